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
    # Debian's pip installs as root below /usr/local, which is what this scheme names.
    paths = sysconfig.get_paths(preferred("prefix")) if preferred is not None else sysconfig.get_paths()
    try:
        from pip._internal.locations import get_scheme

        told = get_scheme("cudnn-resolve-name")
        found = {kind: getattr(told, kind) for kind in ("purelib", "platlib", "scripts", "data", "headers")}
        found["headers"] = os.path.dirname(found["headers"])
        return found
    except Exception:
        pass
    short = "python{}.{}".format(*sys.version_info[:2])
    return {
        "purelib": paths["purelib"],
        "platlib": paths["platlib"],
        "scripts": paths["scripts"],
        "data": paths["data"],
        "headers": os.path.join(sys.prefix, "include", "site", short),
    }


def pip_version() -> "str | None":
    """The version of pip in this environment; None where there is none."""
    try:
        import pip
    except Exception:
        return None
    return str(getattr(pip, "__version__", "")) or None


def pip_folder() -> "str | None":
    """Where pip is imported from."""
    module = sys.modules.get("pip")
    path = getattr(module, "__file__", None)
    return os.path.dirname(os.path.abspath(path)) if path else None


def main() -> None:
    """Prints the answer."""
    answer = {
        "prefix": sys.prefix,
        "executable": sys.executable or "",
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "tag": getattr(sys.implementation, "cache_tag", None) or "",
        "scheme": {kind: os.path.abspath(path) for kind, path in scheme().items()},
        "pip": pip_version(),
        "pip_folder": pip_folder(),
    }
    print("\n" + MARK + json.dumps(answer))


if __name__ == "__main__":
    main()
