"""Asks a module of a framework what it was built with; runs as a program of its own and prints one JSON line.

Python 3.6 grammar, standard library only.

    python payload_framework.py '{"directory": "…", "module": "jax_cuda12_plugin._versions", "calls": ["cudnn_build_version"]}'
"""

import json
import os
import sys

MARK = "cudnn-resolve-answer "


def returned(module: "object", name: str) -> "int | None":
    """The number that a function returns; None where it is not there or fails."""
    try:
        return int(getattr(module, name)())
    except Exception:
        return None


def main() -> None:
    """Prints the number that each function returns; null for one that is not there or fails."""
    question = json.loads(sys.argv[1])
    sys.path.insert(0, question["directory"])
    answer = {}  # type: dict[str, int | str | None]
    try:
        module = __import__(question["module"], fromlist=["_"])
    except Exception as error:
        answer["failed"] = "{}: {}".format(type(error).__name__, str(error)[:300])
    else:
        answer.update((name, returned(module, name)) for name in question["calls"])
    print("\n" + MARK + json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
