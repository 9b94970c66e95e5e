"""Column values: how a TOML value is checked and converted, by the type of its field.

msgspec checks a type and its constraints; versions are parsed here, and packaging checks what only it can.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from cudnn_resolve.matrix.column import LONGEST_LIST, LONGEST_TEXT, BranchNumber, Text
from cudnn_resolve.matrix.table import intern_version
from cudnn_resolve.matrix.toml import quote
from cudnn_resolve.version import Capability, CodeTarget, Dotted

_Read = Callable[[Any], Any]


class Column(Struct, frozen=True):
    """One column of a table: field of the row, its type, and the function that reads a value."""

    field: str
    type: Any
    read: _Read


@lru_cache(maxsize=64)
def columns_of(type_: type[Struct]) -> dict[str, Column]:
    """Return the columns of a row by TOML name; derived fields are not columns."""
    hints = get_type_hints(type_, include_extras=True)
    found = {}
    for info in msgspec.structs.fields(type_):
        bare = _without_none(hints[info.name])
        if not any((meta.extra or {}).get("derived") for meta in _metas(bare)):
            found[info.encode_name] = Column(info.name, bare, reader(bare))
    return found


@lru_cache(maxsize=64)
def required(type_: type[Struct]) -> tuple[str, ...]:
    """Return the names of the required fields."""
    return tuple(info.name for info in msgspec.structs.fields(type_) if info.required)


def _without_none(type_: Any) -> Any:
    if get_origin(type_) in (Union, UnionType):
        some = tuple(arg for arg in get_args(type_) if arg is not NoneType)
        return some[0] if len(some) == 1 else Union[some]  # noqa: UP007 - made at run time
    return type_


def _metas(type_: Any) -> list[Meta]:
    return [arg for arg in get_args(type_)[1:] if isinstance(arg, Meta)] if get_origin(type_) is Annotated else []


@lru_cache(maxsize=256)
def described(type_: Any) -> str:
    """Describe a valid value, for messages."""
    for meta in reversed(_metas(type_)):
        if meta.description:
            return meta.description
    if get_origin(type_) is Annotated:
        type_ = get_args(type_)[0]
    if get_origin(type_) is Literal:
        return "one of " + ", ".join(get_args(type_))
    if get_origin(type_) is tuple:
        return f"a list of {described(get_args(type_)[0])}"
    return "true or false"


def is_class(type_: Any) -> bool:
    """True for a class; up to Python 3.10 a generic such as `dict[str, str]` is an instance of `type`, too."""
    return isinstance(type_, type) and get_origin(type_) is None


@lru_cache(maxsize=256)
def reader(type_: Any) -> _Read:
    """Return the function that converts a TOML value to a type; its ValueError completes "build[0].cuda: ..."."""
    metas, bare = _metas(type_), get_args(type_)[0] if get_origin(type_) is Annotated else type_
    extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
    if extra.get("check") in _CONVERTERS:
        convert, expected = _CONVERTERS[extra["check"]], described(type_)
        return lambda value: _tried(convert, value, expected)
    if get_origin(bare) is tuple:
        return _list_reader(get_args(bare)[0], single=bool(extra.get("single")))
    expected = described(type_)
    if is_class(bare) and issubclass(bare, Dotted | Capability | CodeTarget):
        spelling = re.compile(extra.get("written", r"[\d.]+"))
        parse: _Read = (lambda text: intern_version(bare, text)) if issubclass(bare, Dotted) else bare.parse
        return lambda value: _tried(lambda text: parse(_matched(spelling, text)), value, expected)
    check = _CHECKS.get(extra.get("check", ""))

    def read(value: Any) -> Any:
        if isinstance(value, str):
            _printable(value, empty="empty" in extra)
        if type(value) is date:
            value = value.isoformat()
        found = _tried(lambda content: msgspec.convert(content, type_), value, expected)
        if check is not None:
            _tried(check, found, expected)
        return found

    return read


def _tried(make: _Read, value: Any, expected: str) -> Any:
    try:
        return make(value)
    except RefusalError:
        raise
    except (msgspec.ValidationError, ValueError, TypeError, OverflowError, AttributeError):
        raise RefusalError(f"{quote(value)} is not {expected}") from None


class RefusalError(ValueError):
    """A value was refused; the text is the whole message."""


def _matched(pattern: re.Pattern[str], text: Any) -> str:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(text)
    return text


def _printable(text: str, *, empty: bool) -> None:
    if not text.strip() and not (empty and not text):
        raise RefusalError("is empty")
    if len(text) > LONGEST_TEXT:
        raise RefusalError(f"is longer than {LONGEST_TEXT} characters")
    if not text.isprintable():
        raise RefusalError(f"{quote(text)} contains characters that cannot be printed")


def _list_reader(type_: Any, *, single: bool) -> _Read:
    inner, expected = reader(type_), described(type_)

    def read(value: Any) -> tuple[Any, ...]:
        if single and not isinstance(value, list):
            return (inner(value),)
        if not isinstance(value, list):
            raise RefusalError(f"{quote(value)} is not a list; expected a list of {expected}")
        if len(value) > LONGEST_LIST:
            raise RefusalError(f"has more than {LONGEST_LIST} entries")
        return tuple(read_entry(place, entry) for place, entry in enumerate(value))

    def read_entry(place: int, entry: Any) -> Any:
        try:
            return inner(entry)
        except ValueError as error:
            raise RefusalError(f"entry {place}: {error}") from None

    return read


def _branch(value: Any) -> int:
    found = re.fullmatch(r"R?(\d{3,4})", value) if isinstance(value, str) else None
    return msgspec.convert(int(found[1]) if found else value, BranchNumber)


def _lines(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_TEXT:
        raise ValueError
    return value


def _pattern(value: Any) -> str:
    from cudnn_resolve.matrix.message import check_pattern

    try:
        check_pattern(reader(Text)(value))
    except (ValueError, re.error) as error:
        raise RefusalError(f"{quote(value)}: {error}") from None
    return str(value)


def _tags(value: Any) -> tuple[str, ...]:
    """Split strings that list the tags of one platform, in which an ABI named like its interpreter is left out."""
    return tuple(tag for text in reader(tuple[Text, ...])(value) for tag in _split_tags(text))


def _split_tags(text: str) -> list[str]:
    pairs, _, platform = text.rpartition("-")
    if " " not in pairs:
        return [text]
    return [f"{pair}-{platform}" if "-" in pair else f"{pair}-{pair}-{platform}" for pair in pairs.split(" ")]


@lru_cache(maxsize=8192)
def _version(text: str) -> None:
    from packaging.version import Version as Parsed

    Parsed(text)


@lru_cache(maxsize=8192)
def _specifier(text: str) -> None:
    from packaging.specifiers import SpecifierSet

    SpecifierSet(text)


@lru_cache(maxsize=8192)
def _requirement(text: str) -> None:
    from packaging.requirements import Requirement

    Requirement(text)


def _day(text: str) -> None:
    date.fromisoformat(text if len(text) > 7 else f"{text}-01")


_CONVERTERS: dict[str, _Read] = {"branch": _branch, "lines": _lines, "pattern": _pattern, "tags": _tags}
"""Checks that also make the value."""
_CHECKS: dict[str, Callable[[str], None]] = {"version": _version, "specifier": _specifier, "requirement": _requirement, "day": _day}
"""Checks of a value already converted by msgspec; each imports packaging only when called."""
