"""Says where the interpreter that runs it installs packages to, and with what; prints one JSON line.

Python 3.6 grammar, standard library only. Run with `-I -B`.
"""

import json
import os
import sys
import sysconfig

MARK = "cudnn-resolve-answer "


def scheme() -> "dict[str, str]":
    """Where files of each kind go: `purelib`, `platlib`, `scripts`, `data`, `headers`."""
    preferred = getattr(sysconfig, "get_preferred_scheme", None)
    if preferred is None and sys.prefix == getattr(sys, "base_prefix", sys.prefix):
        # Before Python 3.10 a distribution's own places are known to pip only.
        found = of_pip()
        if found is not None:
            return found
    # Debian's pip installs as root below /usr/local, which is what this scheme names.
    paths = sysconfig.get_paths(preferred("prefix")) if preferred is not None else sysconfig.get_paths()
    short = "python{}.{}".format(*sys.version_info[:2])
    found = {kind: paths[kind] for kind in ("purelib", "platlib", "scripts", "data")}
    found["headers"] = os.path.join(found["data"], "include", "site", short)
    return found


def of_pip() -> "dict[str, str] | None":
    """The places that pip names; None where it does not say."""
    try:
        where = "pip._internal.locations"
        told = __import__(where, fromlist=["_"]).get_scheme("cudnn-resolve-name")
        found = {kind: getattr(told, kind) for kind in ("purelib", "platlib", "scripts", "data", "headers")}
        found["headers"] = os.path.dirname(found["headers"])
    except Exception:
        return None
    return found


def pip_folder() -> "str | None":
    """Where pip would be imported from; None where there is none."""
    for entry in sys.path:
        if entry and os.path.isfile(os.path.join(entry, "pip", "__main__.py")):
            return os.path.join(entry, "pip")
    return None


def outside() -> "list[str]":
    """Folders on the import path that belong neither to this environment nor to the standard library."""
    standard = {os.path.realpath(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")}
    standard |= {os.path.join(one, "lib-dynload") for one in standard}
    own = os.path.realpath(sys.prefix) + os.sep
    found = [os.path.realpath(one) for one in sys.path if one and os.path.isdir(one)]
    return [one for one in found if one not in standard and not one.startswith(own)]


def main() -> None:
    """Prints the answer."""
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
