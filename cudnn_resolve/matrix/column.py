"""Kinds of columns: what a value of each kind may be, how it becomes a value of ours and back.

A kind reads twice. `check` takes whatever a TOML file holds and returns the plain value (text, number, truth value or list of
texts) that a compiled table keeps, or raises ValueError in words that finish "is ...". `take` turns a plain value that was
checked before into the value of a row and asks nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from cudnn_resolve.version import Capability, CodeTarget, CudaVersion, CudnnVersion, DriverVersion

LONGEST_TEXT = 4000
"""Characters in one value; anything longer is a mistake, not a table."""
LONGEST_LIST = 20000
"""Entries in one list."""

_NORMALIZED = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_IDENTIFIER = r"[A-Za-z0-9](?:[A-Za-z0-9._+:/-]*[A-Za-z0-9+])?"
_GLIBC = r"\d{1,2}\.\d{1,3}"
_CUDA_LINE = r"\d{1,2}\.\d{1,2}"
_CAPABILITY = r"\d{1,2}\.\d"
_TARGET = r"(?:sm|compute)_\d{2,3}[af]?"
_PYTHON = r"(?:cp|pp|py)\d{1,3}t?"
_BRANCH = r"R?(\d{3,4})"
_COMPARISON = r"(?:major )?[a-z_]\w{0,29} (?:<|<=|==|!=|>=|>|above|below|among|within) (?:major )?[\w.]{1,60}"
_DAY = r"\d{4}-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?"


class Kind(Struct, frozen=True, kw_only=True):
    """One kind of value.

    `take` is None where the plain value is the row's value; `shared` says that equal plain values may share one row value.
    """

    name: str
    """What a right value is, as a message says it."""
    check: Callable[[Any], Any]
    take: Callable[[Any], Any] | None = None
    show: Callable[[Any], Any] | None = None
    """Row value to plain value; None = as it is."""
    shared: bool = False
    each: Kind | None = None
    """The kind of the entries of a list."""


class Column(Struct, frozen=True, kw_only=True):
    """One column of a table: its name in TOML (dotted inside an inline table), the field of the row, and its kind."""

    name: str
    field: str
    kind: Kind
    required: bool = False


def quote(value: object) -> str:
    """`value` as a message may show it: printable ASCII, at most 60 characters."""
    try:
        text = ascii(value) if isinstance(value, (str, int, float)) else f"a {_type_word(value)}"
    except ValueError:  # an integer with more digits than Python prints
        return "a huge number"
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


def _type_word(value: object) -> str:
    if isinstance(value, dict):
        return "table"
    return type(value).__name__


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{quote(value)} is not a text")
    if not value.strip():
        raise ValueError("is empty")
    if len(value) > LONGEST_TEXT:
        raise ValueError(f"is longer than {LONGEST_TEXT} characters")
    if not value.isprintable():
        raise ValueError(f"{quote(value)} holds characters that cannot be printed")
    return value


def _matching(pattern: str, name: str) -> Callable[[Any], str]:
    def check(value: object) -> str:
        text = _text(value)
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{quote(text)} is not {name}")
        return text

    return check


def _pattern(name: str, pattern: str, **more: Any) -> Kind:
    return Kind(name=name, check=_matching(pattern, name), **more)


def _dotted(name: str, kind: type[CudaVersion | CudnnVersion | DriverVersion]) -> Kind:
    def check(value: object) -> str:
        text = _text(value)
        try:
            kind(text)
        except ValueError:
            raise ValueError(f"{quote(text)} is not {name}") from None
        return text

    return Kind(name=name, check=check, take=kind, show=str, shared=True)


def _check_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{quote(value)} is not true or false")
    return value


def _check_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**9:
        raise ValueError(f"{quote(value)} is not a whole number from 0 on")
    return value


def _check_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not 0 <= value < 10**9:
        raise ValueError(f"{quote(value)} is not a number from 0 on")
    return value


def _check_date(value: object) -> str:
    from datetime import date, datetime

    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and re.fullmatch(_DAY, value) and _is_day(value):
        return value
    raise ValueError(f"{quote(value)} is not a date such as 2026-11-21")


def _is_day(text: str) -> bool:
    from datetime import date

    try:
        date.fromisoformat(text if len(text) > 7 else f"{text}-01")
    except ValueError:
        return False
    return True


def _check_specifier(value: object) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    text = _text(value) if value != "" else ""
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"{quote(text)} is not a version specifier such as '>=2.1,<3'") from None
    return text


def _check_version(value: object) -> str:
    from packaging.version import InvalidVersion, Version

    text = _text(value)
    try:
        Version(text)
    except InvalidVersion:
        raise ValueError(f"{quote(text)} is not a version such as 2.15.0") from None
    return text


def _check_requirement(value: object) -> str:
    from packaging.requirements import InvalidRequirement, Requirement

    text = _text(value)
    try:
        Requirement(text)
    except InvalidRequirement:
        raise ValueError(f"{quote(text)} is not a requirement such as 'numpy<2'") from None
    return text


def _check_branch(value: object) -> int:
    found = re.fullmatch(_BRANCH, value) if isinstance(value, str) else None
    if found:
        return int(found[1])
    if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 9999:
        return value
    raise ValueError(f"{quote(value)} is not a driver branch such as 535 or 'R535'")


def _check_url(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"(?:https?|file)://[^\s\"'<>]+", text):
        raise ValueError(f"{quote(text)} is not a URL that starts with https://, http:// or file://")
    return text


def _check_directory(value: object) -> str:
    text = _text(value) if value != "" else ""
    if text.startswith("/") or "\\" in text or ".." in text.split("/"):
        raise ValueError(f"{quote(text)} is not a path below site-packages")
    return text


def _check_metadata(value: object) -> dict[str, int]:
    numbers: dict[str, int] = value if isinstance(value, dict) else {"": value}  # type: ignore[dict-item]
    if not numbers:
        raise ValueError("names no metadata")
    for arch, number in numbers.items():
        if isinstance(value, dict) and arch not in ("x86_64", "aarch64", "ppc64le"):
            raise ValueError(f"{quote(arch)} is not an architecture")
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"{quote(number)} is not the id of a [[metadata]] entry")
    return numbers


def _check_sonames(value: object) -> list[list[str]]:
    if not isinstance(value, dict):
        raise ValueError(f"{quote(value)} is not a table of libraries and their sonames")
    return [[IDENTIFIER.check(library), IDENTIFIER.check(soname)] for library, soname in value.items()]


def _check_apt_pattern(value: object) -> str:
    text = _text(value)
    if re.search(r"[{}]", re.sub(r"\{(?:major|minor|release)\}", "", text)):
        raise ValueError(f"{quote(text)} has a field other than {{major}}, {{minor}} and {{release}}")
    return text


def _check_message(value: object) -> str:
    from cudnn_resolve.matrix.message import check_pattern

    text = _text(value)
    try:
        check_pattern(text)
    except (ValueError, re.error) as error:
        raise ValueError(f"{quote(text)}: {error}") from None
    return text


def _check_lines(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_TEXT:
        raise ValueError(f"{quote(value)} is not a text of at most {LONGEST_TEXT} characters")
    return value


def _check_percent(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100:
        raise ValueError(f"{quote(value)} is not a whole number up to 100")
    return value


def one_of(*words: str) -> Kind:
    """The kind of a column that holds one of `words`."""
    name = "one of " + ", ".join(words)

    def check(value: object) -> str:
        if value not in words or not isinstance(value, str):
            raise ValueError(f"{quote(value)} is not {name}")
        return value

    return Kind(name=name, check=check)


def many(kind: Kind, *, lone: bool = False) -> Kind:
    """The kind of a list of `kind`; with `lone`, a value by itself stands for a list of one."""
    take, show = kind.take, kind.show

    def check(value: object) -> list[Any]:
        if lone and not isinstance(value, list):
            return [kind.check(value)]
        if not isinstance(value, list):
            raise ValueError(f"{quote(value)} is not a list; expected a list of {kind.name}")
        if len(value) > LONGEST_LIST:
            raise ValueError(f"holds more than {LONGEST_LIST} entries")
        return [_check_entry(kind, place, entry) for place, entry in enumerate(value)]

    return Kind(
        name=f"a list of {kind.name}",
        check=check,
        take=tuple if take is None else lambda values: tuple(map(take, values)),
        show=list if show is None else lambda values: list(map(show, values)),
        each=kind,
    )


def _check_entry(kind: Kind, place: int, entry: object) -> Any:
    try:
        return kind.check(entry)
    except ValueError as error:
        raise ValueError(f"entry {place}: {error}") from None


TEXT = Kind(name="a text", check=_text)
FLAG = Kind(name="true or false", check=_check_flag)
COUNT = Kind(name="a whole number", check=_check_count)
NUMBER = Kind(name="a number", check=_check_number)
DATE = Kind(name="a date", check=_check_date)
VERSION = Kind(name="a version", check=_check_version)
SPECIFIER = Kind(name="a version specifier", check=_check_specifier)
REQUIREMENT = Kind(name="a requirement", check=_check_requirement)
BRANCH = Kind(name="a driver branch", check=_check_branch)
URL = Kind(name="a URL", check=_check_url)
APT_PATTERN = Kind(name="a text with the fields {major}, {minor} and {release}", check=_check_apt_pattern)
METADATA = Kind(
    name="the id of a [[metadata]] entry, or one id for each architecture", check=_check_metadata, show=lambda ids: ids.get("", ids)
)
DIRECTORY = Kind(name="a path below site-packages", check=_check_directory)
MESSAGE = Kind(name="a regular expression with fields such as {found:cudnn}", check=_check_message)
LINES = Kind(name="a text of one line or more", check=_check_lines)
PERCENT = Kind(name="a whole number up to 100", check=_check_percent)
PACKAGE = _pattern("a normalized package name such as nvidia-cudnn-cu12", _NORMALIZED)
IDENTIFIER = _pattern("an id made of letters, digits and . _ + : / -", _IDENTIFIER)
COMPARISON = _pattern("a comparison such as 'found < built'", _COMPARISON)
GLIBC = _pattern("a glibc version such as 2.17", _GLIBC)
PYTHON = _pattern("a Python tag such as cp311", _PYTHON)
LINE = _pattern("a CUDA line such as 12.4", _CUDA_LINE)
CUDA_LINE = _pattern("a CUDA line such as 12.4", _CUDA_LINE, take=CudaVersion, show=str, shared=True)
CAPABILITY = _pattern("a compute capability such as 7.5", _CAPABILITY, take=Capability.parse, show=str, shared=True)
TARGET = _pattern("GPU code such as sm_75 or compute_80", _TARGET, take=CodeTarget.parse, show=str, shared=True)
SONAMES = Kind(name="a table of libraries and sonames", check=_check_sonames, take=lambda pairs: tuple(map(tuple, pairs)), show=dict)
CUDA = _dotted("a CUDA version such as 12.4 or 12.4.1", CudaVersion)
CUDNN = _dotted("a cuDNN version such as 9.3.0.75", CudnnVersion)
DRIVER = _dotted("a driver version such as 535.104.05", DriverVersion)
