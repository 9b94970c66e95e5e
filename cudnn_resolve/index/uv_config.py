"""What uv is configured to: its variables, then uv.toml or [tool.uv] of the project, the user's uv.toml, the system's.

Source: uv's documentation, "Configuration files", "Environment variables" and "Indexes".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_MOST_BYTES = 8 << 20
_NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)", re.DOTALL)


class UvIndex(NamedTuple):
    """One index of uv's configuration, its address as it was written."""

    url: str
    said_by: str
    name: str | None = None
    is_default: bool = False
    is_explicit: bool = False
    """True where it serves only packages that are assigned to it."""


class UvConfig(NamedTuple):
    """What uv's configuration says, as far as it counts here."""

    indexes: tuple[UvIndex, ...] = ()
    """Those asked first come first; without the default one."""
    default: UvIndex | None = None
    find_links: tuple[str, ...] = ()
    options: Mapping[str, Any] = {}
    """`index-strategy`, `exclude-newer`, `keyring-provider` and so on: the first that says something."""
    assigned: Mapping[str, str] = {}
    """Package to the name of its index."""
    notes: tuple[str, ...] = ()

    @property
    def says_where(self) -> bool:
        """True where it names any index or folder."""
        return bool(self.indexes or self.default or self.find_links)


_SCALARS = ("index-strategy", "exclude-newer", "keyring-provider", "no-index", "no-binary", "no-build")
_LISTS = ("no-binary-package", "no-build-package", "allow-insecure-host")
_TRUE = ("1", "true", "yes", "on", "y", "t")


def read_uv_config(environ: Mapping[str, str], home: str, directory: str, system: str) -> UvConfig:  # noqa: C901 - one arm for each kind of value
    """Uv's configuration as it counts in `directory`."""
    notes: list[str] = []
    tables = [_of_environment(environ), *_tables(environ, home, directory, system, notes)]
    indexes: list[UvIndex] = []
    default: UvIndex | None = None
    links: list[str] = []
    options: dict[str, Any] = {}
    assigned: dict[str, str] = {}
    for said_by, table in tables:
        for index in _indexes(said_by, table):
            index = index._replace(url=_beside(said_by, index.url))  # noqa: PLW2901 - the same, with its whole path
            if index.is_default:
                default = default or index
            elif all(index.name is None or index.name != other.name for other in indexes):
                indexes.append(index)
        links.extend(_beside(said_by, link) for link in _texts(table.get("find-links")))
        for key in _SCALARS:
            if key in table:
                options.setdefault(key, table[key])
        for key in _LISTS:
            options.setdefault(key, []).extend(_texts(table.get(key)))
        sources = table.get("sources")
        if isinstance(sources, dict):
            for package, source in sources.items():
                one = source[0] if isinstance(source, list) and len(source) == 1 else source
                if isinstance(one, dict) and isinstance(one.get("index"), str) and "marker" not in one:
                    assigned.setdefault(package, one["index"])
    return UvConfig(tuple(indexes), default, tuple(links), options, assigned, tuple(notes))


def _beside(file: str, place: str) -> str:
    """A place as a file means it: a path that is not whole starts from the file's folder."""
    if "://" in place or place.startswith(("/", "~", "file:")) or not os.path.isabs(file):
        return place
    return os.path.normpath(os.path.join(os.path.dirname(file), place))


def _of_environment(environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    table: dict[str, Any] = {}
    named = []
    for word in environ.get("UV_INDEX", "").split():
        found = _NAMED.fullmatch(word)
        named.append({"name": found[1], "url": found[2]} if found and "://" not in found[1] else {"url": word})
    if environ.get("UV_DEFAULT_INDEX"):
        found = _NAMED.fullmatch(environ["UV_DEFAULT_INDEX"])
        url = found[2] if found and "://" not in found[1] else environ["UV_DEFAULT_INDEX"]
        named.append({"url": url, "default": True, **({"name": found[1]} if found and "://" not in found[1] else {})})
    if named:
        table["index"] = named
    for variable, key in (("UV_INDEX_URL", "index-url"), ("UV_INDEX_STRATEGY", "index-strategy"), ("UV_EXCLUDE_NEWER", "exclude-newer")):
        if environ.get(variable):
            table[key] = environ[variable]
    if environ.get("UV_KEYRING_PROVIDER"):
        table["keyring-provider"] = environ["UV_KEYRING_PROVIDER"]
    for variable, key in (("UV_NO_INDEX", "no-index"), ("UV_NO_BINARY", "no-binary"), ("UV_NO_BUILD", "no-build")):
        if environ.get(variable):
            table[key] = environ[variable].lower() in _TRUE
    table["extra-index-url"] = environ.get("UV_EXTRA_INDEX_URL", "").split()
    table["find-links"] = [part for part in re.split(r"[,\s]+", environ.get("UV_FIND_LINKS", "")) if part]
    for variable, key in (
        ("UV_NO_BINARY_PACKAGE", "no-binary-package"),
        ("UV_NO_BUILD_PACKAGE", "no-build-package"),
        ("UV_INSECURE_HOST", "allow-insecure-host"),
    ):
        table[key] = environ.get(variable, "").replace(",", " ").split()
    return "the environment (UV_*)", table


def _tables(environ: Mapping[str, str], home: str, directory: str, system: str, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    if environ.get("UV_NO_CONFIG", "").lower() in _TRUE:
        return
    named = environ.get("UV_CONFIG_FILE")
    if named:
        yield from _table(named, notes)
        return
    yield from _of_project(directory, notes)
    yield from _table(os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "uv", "uv.toml"), notes)
    folders = environ.get("XDG_CONFIG_DIRS", "").split(":") if environ.get("XDG_CONFIG_DIRS") else [os.path.join(system, "xdg")]
    for path in (*(os.path.join(folder, "uv", "uv.toml") for folder in folders if folder), os.path.join(system, "uv", "uv.toml")):
        found = list(_table(path, notes))
        if found:
            yield from found
            return


def _of_project(directory: str, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The nearest uv.toml or [tool.uv], upwards."""
    directory = os.path.abspath(directory)
    while True:
        found = list(_table(os.path.join(directory, "uv.toml"), notes)) or list(
            _table(os.path.join(directory, "pyproject.toml"), notes, inside=True)
        )
        if found:
            yield from found
            return
        parent = os.path.dirname(directory)
        if parent == directory:
            return
        directory = parent


def _table(path: str, notes: list[str], *, inside: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """What one file says: uv.toml, or [tool.uv] where it is `inside` a pyproject.toml; [pip] before the rest."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            raw = stream.read(_MOST_BYTES)
    except OSError:
        return
    if inside and b"uv" not in raw:
        return
    from cudnn_resolve.matrix.parse import decode

    try:
        table: Any = decode(raw.decode("utf-8"))
    except ValueError as error:
        notes.append(f"{path} is not TOML: {error}")
        return
    if inside:
        tool = table.get("tool")
        table = tool.get("uv") if isinstance(tool, dict) else None
    if isinstance(table, dict):
        if isinstance(table.get("pip"), dict):
            yield path, table["pip"]
        yield path, table


def _indexes(said_by: str, table: Mapping[str, Any]) -> Iterator[UvIndex]:
    listed = table.get("index")
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and isinstance(one.get("url"), str):
            name = one.get("name")
            yield UvIndex(
                one["url"], said_by, name if isinstance(name, str) else None, one.get("default") is True, one.get("explicit") is True
            )
    yield from (UvIndex(url, said_by) for url in _texts(table.get("extra-index-url")))
    if isinstance(table.get("index-url"), str):
        yield UvIndex(table["index-url"], said_by, is_default=True)


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
