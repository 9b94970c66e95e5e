"""Report where the running interpreter installs packages, as one JSON line.

Python 3.6 grammar, standard library only. Run with `-I -B`.
"""

import json
import os
import sys
import sysconfig

MARK = "cudnn-resolve-answer "


def scheme() -> "dict[str, str]":
    """Folder for each kind of file: `purelib`, `platlib`, `scripts`, `data`, `headers`."""
    preferred = getattr(sysconfig, "get_preferred_scheme", None)
    if preferred is None and sys.prefix == getattr(sys, "base_prefix", sys.prefix):
        # Before Python 3.10 only pip knows the folders that a distribution patched in.
        found = pip_scheme()
        if found is not None:
            return found
    # As root, Debian's pip installs below /usr/local, which is what this scheme names.
    paths = sysconfig.get_paths(preferred("prefix")) if preferred is not None else sysconfig.get_paths()
    short = "python{}.{}".format(*sys.version_info[:2])
    found = {kind: paths[kind] for kind in ("purelib", "platlib", "scripts", "data")}
    found["headers"] = os.path.join(found["data"], "include", "site", short)
    return found


def pip_scheme() -> "dict[str, str] | None":
    """Folders that pip uses; None if it does not tell."""
    try:
        module = "pip._internal.locations"
        paths = __import__(module, fromlist=["_"]).get_scheme("cudnn-resolve-name")
        found = {kind: getattr(paths, kind) for kind in ("purelib", "platlib", "scripts", "data", "headers")}
        found["headers"] = os.path.dirname(found["headers"])
    except Exception:
        return None
    return found


def pip_folder() -> "str | None":
    """Folder that pip would be imported from; None if there is none."""
    for entry in sys.path:
        if entry and os.path.isfile(os.path.join(entry, "pip", "__main__.py")):
            return os.path.join(entry, "pip")
    return None


def outside() -> "list[str]":
    """Folders on the import path outside of this environment and the standard library."""
    standard = {os.path.realpath(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")}
    standard |= {os.path.join(folder, "lib-dynload") for folder in standard}
    own = os.path.realpath(sys.prefix) + os.sep
    folders = [os.path.realpath(entry) for entry in sys.path if entry and os.path.isdir(entry)]
    return [folder for folder in folders if folder not in standard and not folder.startswith(own)]


def main() -> None:
    """Print the answer."""
    answer = {
        "prefix": sys.prefix,
        "executable": sys.executable or "",
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "scheme": {kind: os.path.abspath(path) for kind, path in scheme().items()},
        "pip_folder": pip_folder(),
        "outside": outside(),
    }
    print("\n" + MARK + json.dumps(answer))


if __name__ == "__main__":
    main()
