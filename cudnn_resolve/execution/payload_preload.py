"""Run the preload as the import of a framework would, and report the cuDNN that is loaded then, as one JSON line.

Python 3.6 grammar, standard library only. Arguments: the preload's module, and the framework's module.
"""

import ctypes
import json
import sys

MARK = "cudnn-resolve-answer "


def mapped() -> "str | None":
    """Path of the libcudnn loaded into this process; None if there is none."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            path = line.rstrip("\n").partition("/")[2]
            if path.rpartition("/")[2].startswith("libcudnn.so."):
                return "/" + path
    return None


def main() -> None:
    """Print the answer."""
    answer = {}  # type: dict[str, object]
    try:
        __import__(sys.argv[1]).load(*sys.argv[2:])
        path = mapped()
        if path is not None:
            get_version = ctypes.CDLL(path).cudnnGetVersion
            get_version.restype = ctypes.c_size_t
            answer = {"path": path, "version": int(get_version())}
    except Exception as error:
        answer = {"failed": "{}: {}".format(type(error).__name__, str(error)[:300])}
    print("\n" + MARK + json.dumps(answer))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
