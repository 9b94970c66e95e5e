"""The index that pip asks where nothing is configured, read from pip's own text: it is pip's to know, not ours."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator

_WHERE = os.path.join("pip", "_internal", "models", "index.py")
_LINE = re.compile(r"""^PyPI\s*=\s*PackageIndex\(\s*["'](https?://[^"'\s]+)["']""", re.MULTILINE)
_MOST_BYTES = 1 << 20
_WHEEL_FOLDERS = ("/usr/share/python-wheels", "/usr/share/python3-wheels")
"""Where distributions keep the wheels of ensurepip."""
_PACKAGES = ("site-packages", "dist-packages")


def default_index(import_path: Iterable[str]) -> tuple[str, str] | None:
    """The address of pip's default index and the file that says so; None where there is no pip.

    Read from pip on the target's `import_path`, else of this interpreter, else from the wheel that the interpreter would install.
    """
    own = (folder for folder in sys.path if os.path.basename(folder) in _PACKAGES)  # never the directory that somebody stands in
    for folder in (*import_path, *own):
        path = os.path.join(folder, _WHERE)
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                found = _LINE.search(stream.read(_MOST_BYTES))
        except (OSError, ValueError):
            continue
        if found:
            return _simple(found[1]), path
    for wheel in _bundled():
        base = base_in_wheel(wheel)
        if base:
            return _simple(base), wheel
    return None


def _simple(base: str) -> str:
    return base.rstrip("/") + "/simple"


def _bundled() -> Iterator[str]:
    standard = os.path.join(os.path.dirname(os.__file__), "ensurepip", "_bundled")
    for folder in (standard, *_WHEEL_FOLDERS):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        yield from (os.path.join(folder, name) for name in names if name.startswith("pip-") and name.endswith(".whl"))


def base_in_wheel(path: str) -> str | None:
    """The address that a wheel of pip knows, without `simple`; None where it is no wheel of pip."""
    import zipfile

    try:
        with zipfile.ZipFile(path) as wheel, wheel.open(_WHERE.replace(os.sep, "/")) as stream:
            found = _LINE.search(stream.read(_MOST_BYTES).decode("utf-8", "replace"))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return None
    return found[1] if found else None
