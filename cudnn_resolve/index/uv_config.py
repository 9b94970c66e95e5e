"""Configuration of uv: its variables, then uv.toml or [tool.uv] of the project, the user's uv.toml, the system's.

Source: uv's documentation, "Configuration files", "Environment variables" and "Indexes".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cudnn_resolve.matrix.toml import decode, texts

_MOST_BYTES = 8 << 20
_NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)", re.DOTALL)


class UvIndex(NamedTuple):
    """An index in uv's configuration, its URL as written."""

    url: str
    source: str
    name: str | None = None
    is_default: bool = False
    is_explicit: bool = False
    """True if it serves only packages that are assigned to it."""


class UvConfig(NamedTuple):
    """The relevant part of uv's configuration."""

    indexes: tuple[UvIndex, ...] = ()
    """In the order in which they are asked, without the default one."""
    default: UvIndex | None = None
    find_links: tuple[str, ...] = ()
    options: Mapping[str, Any] = {}
    """`index-strategy`, `exclude-newer`, `keyring-provider` and so on, each from the first source that sets it."""
    assigned: Mapping[str, str] = {}
    """Name of the index of a package."""
    notes: tuple[str, ...] = ()

    @property
    def names_indexes(self) -> bool:
        """Whether it names any index or folder."""
        return bool(self.indexes or self.default or self.find_links)


_TEXTS = ("index-url", "index-strategy", "exclude-newer", "keyring-provider")
_FLAGS = ("no-index", "no-binary", "no-build")
_LISTS = ("no-binary-package", "no-build-package", "allow-insecure-host")
_OPTIONS = (*_TEXTS[1:], *_FLAGS)
_TRUE = ("1", "true", "yes", "on", "y", "t")


def read_uv_config(environ: Mapping[str, str], home: str, directory: str, system: str) -> UvConfig:
    """Configuration that uv would use in `directory`."""
    notes: list[str] = []
    tables = [_of_environment(environ), *_tables(environ, home, directory, system, notes)]
    indexes: list[UvIndex] = []
    default: UvIndex | None = None
    links: list[str] = []
    options: dict[str, Any] = {}
    assigned: dict[str, str] = {}
    for source, table in tables:
        for index in _indexes(source, table):
            index = index._replace(url=_resolved(source, index.url))  # noqa: PLW2901 - the same index
            if index.is_default:
                default = default or index
            elif all(index.name is None or index.name != other.name for other in indexes):
                indexes.append(index)
        links.extend(_resolved(source, link) for link in texts(table.get("find-links")))
        for key in _OPTIONS:
            if key in table:
                options.setdefault(key, table[key])
        for key in _LISTS:
            options.setdefault(key, []).extend(texts(table.get(key)))
        for package, index_name in _sources(table):
            assigned.setdefault(package, index_name)
    return UvConfig(tuple(indexes), default, tuple(links), options, assigned, tuple(notes))


def _resolved(file: str, place: str) -> str:
    """URL or path in a configuration file; a relative path starts from the file's folder."""
    if "://" in place or place.startswith(("/", "~", "file:")) or not os.path.isabs(file):
        return place
    return os.path.normpath(os.path.join(os.path.dirname(file), place))


def _of_environment(environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The variables `UV_*` as a table with uv's names of options."""

    def of(key: str) -> str:
        return environ.get("UV_" + key.upper().replace("-", "_"), "")

    table: dict[str, Any] = {key: of(key) for key in _TEXTS if of(key)}
    table.update({key: of(key).lower() in _TRUE for key in _FLAGS if of(key)})
    table.update({key: of(key.removeprefix("allow-")).replace(",", " ").split() for key in _LISTS})
    table["extra-index-url"] = of("extra-index-url").split()
    table["find-links"] = re.split(r"[,\s]+", of("find-links").strip(", \t\n")) if of("find-links").strip() else []
    table["index"] = [_named(word) for word in of("index").split()]
    if of("default-index"):
        table["index"].append({**_named(of("default-index")), "default": True})
    return "the environment (UV_*)", table


def _named(text: str) -> dict[str, str]:
    """An index as variables write it: `name=URL`, or the URL alone."""
    found = _NAMED.fullmatch(text)
    return {"name": found[1], "url": found[2]} if found else {"url": text}


def _sources(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Packages that come from one index only, and its name."""
    sources = table.get("sources")
    for package, source in sources.items() if isinstance(sources, dict) else ():
        entry = source[0] if isinstance(source, list) and len(source) == 1 else source
        if isinstance(entry, dict) and isinstance(entry.get("index"), str) and "marker" not in entry:
            yield package, entry["index"]


def _tables(environ: Mapping[str, str], home: str, directory: str, system: str, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The nearest file of a project, then the user's and the system's; or the one that UV_CONFIG_FILE names."""
    if environ.get("UV_NO_CONFIG", "").lower() in _TRUE:
        return
    if environ.get("UV_CONFIG_FILE"):
        yield from _table(environ["UV_CONFIG_FILE"], notes)
        return
    directory = os.path.abspath(directory)
    upwards = [directory]
    while os.path.dirname(upwards[-1]) != upwards[-1]:
        upwards.append(os.path.dirname(upwards[-1]))
    yield from _first((os.path.join(folder, name) for folder in upwards for name in ("uv.toml", "pyproject.toml")), notes)
    yield from _table(os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "uv", "uv.toml"), notes)
    folders = (environ.get("XDG_CONFIG_DIRS") or os.path.join(system, "xdg")).split(":")
    yield from _first((os.path.join(folder, "uv", "uv.toml") for folder in (*folders, system) if folder), notes)


def _first(paths: Iterable[str], notes: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Tables of the first file that has any."""
    return next((found for path in paths if (found := list(_table(path, notes)))), [])


def _table(path: str, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tables of one file, a uv.toml or the [tool.uv] of a pyproject.toml; [pip] comes before the rest."""
    inside = os.path.basename(path) == "pyproject.toml"
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            raw = stream.read(_MOST_BYTES)
    except OSError:
        return
    if inside and b"uv" not in raw:
        return
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


def _indexes(source: str, table: Mapping[str, Any]) -> Iterator[UvIndex]:
    listed = table.get("index")
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("url"), str):
            name = entry.get("name")
            yield UvIndex(
                url=entry["url"],
                source=source,
                name=name if isinstance(name, str) else None,
                is_default=entry.get("default") is True,
                is_explicit=entry.get("explicit") is True,
            )
    yield from (UvIndex(url, source) for url in texts(table.get("extra-index-url")))
    if isinstance(table.get("index-url"), str):
        yield UvIndex(table["index-url"], source, is_default=True)
