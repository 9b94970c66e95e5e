"""Goes through the preload as a framework's import would, and says which cuDNN is loaded then; prints one JSON line.

Python 3.6 grammar, standard library only. Its words are the names of the preload's module and of the module that asks.
"""

import ctypes
import json
import sys

MARK = "cudnn-resolve-answer "


def mapped() -> "str | None":
    """The path of the libcudnn of this process; None where there is none."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            path = line.rstrip("\n").partition("/")[2]
            if path.rpartition("/")[2].startswith("libcudnn.so."):
                return "/" + path
    return None


def main() -> None:
    """Prints the answer."""
    answer = {}  # type: dict[str, object]
    try:
        __import__(sys.argv[1]).load(*sys.argv[2:])
        path = mapped()
        if path is not None:
            ask = ctypes.CDLL(path).cudnnGetVersion
            ask.restype = ctypes.c_size_t
            answer = {"path": path, "version": int(ask())}
    except Exception as error:
        answer = {"failed": "{}: {}".format(type(error).__name__, str(error)[:300])}
    print("\n" + MARK + json.dumps(answer))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
