"""Configuration of the target's pip: its files, in pip's order, and environment variables; and pip's default index.

Source: pip's documentation, "Configuration", and `pip config debug` of pip 26: global, user, site, PIP_CONFIG_FILE, variables;
in each, [install] before [global].
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_MOST_BYTES = 1 << 20
_INDEX_MODULE = "pip/_internal/models/index.py"
_DEFAULT_INDEX = re.compile(r"""^PyPI\s*=\s*PackageIndex\(\s*["'](https?://[^"'\s]+)["']""", re.MULTILINE)
_WHEEL_FOLDERS = ("/usr/share/python-wheels", "/usr/share/python3-wheels")
"""Folders in which distributions keep the wheels of ensurepip."""
_SECTIONS = ("global", "install")


class Value(NamedTuple):
    """A configured value and its source."""

    text: str
    source: str

    @property
    def words(self) -> list[str]:
        """Separate values, for options that may be repeated."""
        return self.text.split()

    @property
    def is_true(self) -> bool:
        """Whether pip reads it as true."""
        return self.text.strip().lower() in ("y", "yes", "t", "true", "on", "1")


def read_pip_config(environ: Mapping[str, str], prefix: str | None, home: str, system: str) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Pip's options by name (`index-url`), and notes on faults of its files.

    `prefix` is that of the target interpreter, whose `pip.conf` is the site's.
    """
    values: dict[tuple[str, str], Value] = {}
    notes = []
    for path in _files(environ, prefix, home, system):
        text = _read(path)
        if text is None:
            continue
        try:
            values.update(_parsed(text, path))
        except ValueError as error:
            notes.append(f"{path} is not a pip configuration: {error}")
    options = {key: value for section in _SECTIONS for (where, key), value in values.items() if where == section}
    for key, text in environ.items():
        if key.startswith("PIP_") and text:
            options[_option(key[4:])] = Value(text, key)
    return options, tuple(notes)


def _option(name: str) -> str:
    return name.lower().replace("_", "-").lstrip("-")


def _files(environ: Mapping[str, str], prefix: str | None, home: str, system: str) -> Iterator[str]:
    named = environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return
    for folder in (environ.get("XDG_CONFIG_DIRS") or os.path.join(system, "xdg")).split(":"):
        yield os.path.join(folder, "pip", "pip.conf")
    yield os.path.join(system, "pip.conf")
    if not (named and os.path.exists(named)):  # as in pip: a named file replaces the user's
        yield os.path.join(home, ".pip", "pip.conf")
        yield os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "pip", "pip.conf")
    if prefix:
        yield os.path.join(prefix, "pip.conf")
    if named:
        yield named


def _read(path: str) -> str | None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8", errors="replace") as stream:
            return stream.read(_MOST_BYTES)
    except (OSError, ValueError):
        return None


def _parsed(text: str, path: str) -> dict[tuple[str, str], Value]:
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text, path)
    except configparser.Error as error:
        raise ValueError(type(error).__name__) from None
    return {
        (section, _option(key)): Value(value, path)
        for section in _SECTIONS
        if parser.has_section(section)
        for key, value in parser.items(section)
        if value
    }


def default_index(import_path: Iterable[str]) -> tuple[str, str] | None:
    """URL of pip's default index and the file that it was read from; None if there is no pip.

    Read from pip on the target's `import_path`, else of this interpreter, else from the wheel that ensurepip would install.
    """
    own = (folder for folder in sys.path if os.path.basename(folder) in ("site-packages", "dist-packages"))  # never the current folder
    modules = ((os.path.join(folder, _INDEX_MODULE), _read) for folder in (*import_path, *own))
    wheels = ((path, _read_in_wheel) for path in _bundled_wheels())
    for path, read in (*modules, *wheels):
        found = _DEFAULT_INDEX.search(read(path) or "")
        if found:
            return found[1].rstrip("/") + "/simple", path
    return None


def _bundled_wheels() -> Iterator[str]:
    standard = os.path.join(os.path.dirname(os.__file__), "ensurepip", "_bundled")
    for folder in (standard, *_WHEEL_FOLDERS):
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else ()
        yield from (os.path.join(folder, name) for name in names if name.startswith("pip-") and name.endswith(".whl"))


def _read_in_wheel(path: str) -> str | None:
    import zipfile

    try:
        with zipfile.ZipFile(path) as wheel, wheel.open(_INDEX_MODULE) as stream:
            return stream.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return None
