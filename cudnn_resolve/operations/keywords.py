"""Keyword arguments of the functions of the package: their types, the requests made of them, and messages that speak of them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.operations.options import (
    ApplyRequest,
    BundleRequest,
    CheckRequest,
    Declared,
    DoctorRequest,
    FleetRequest,
    LockRequest,
    PlanRequest,
    WhyRequest,
    declared,
)

R = TypeVar("R", bound=Struct)
_OPTION = r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)"
_EXAMPLE = r"(?:-f|-r|-c|--([a-z-]+))[= ]('[^']*'|\S+)"
_SHORT = {"-f": "framework", "-r": "requirement", "-c": "constraint"}

Path = str | os.PathLike[str]
Texts = str | Sequence[str]
Paths = Path | Sequence[Path]


class _Machine(TypedDict, total=False):
    """Keywords that speak of this machine, and of the tables."""

    python: Path | None
    driver: str | None
    gpu: Texts
    matrix: Paths


class _Stated(_Machine, total=False):
    """Keywords that state single facts of a machine."""

    machine: str | None
    python_version: str | None
    glibc: str | None
    os: str | None


class _Elsewhere(_Stated, total=False):
    """Keywords that speak of any machine."""

    facts: Path | Facts | Mapping[str, Any] | None


class _Resolving(_Machine, total=False):
    """Keywords of the functions that resolve."""

    packages: Texts
    requirement: Paths
    constraint: Paths
    group: Texts
    cuda: str | None
    cudnn: str | None
    driver_policy: Literal["minor", "strict"] | None
    device: Literal["gpu", "cpu"] | None
    pre: bool
    strict_pins: bool
    channel: Literal["auto", "pip", "apt"] | None
    index_url: str | None
    extra_index_url: Texts
    find_links: Paths
    index_strategy: Literal["first-index", "best-match"] | None
    exclude_newer: str | None
    no_binary: Texts
    only_binary: Texts
    no_variant_indexes: bool
    offline: bool


class WhyWords(_Resolving, _Elsewhere, total=False):
    """Keywords of `why`."""

    platform: str | None
    prefer: Literal["installed", "newest"] | None


class PlanWords(WhyWords, total=False):
    """Keywords of `plan`."""

    allow_break: Texts
    reinstall_package: Texts
    env: Path | None
    kernel: str | None


class LockWords(_Resolving, _Elsewhere, total=False):
    """Keywords of `lock`."""

    platform: Texts
    no_facts: bool
    upgrade: bool
    upgrade_package: Texts


class ApplyWords(_Resolving, total=False):
    """Keywords of `apply`."""

    prefer: Literal["installed", "newest"] | None
    allow_break: Texts
    reinstall_package: Texts
    env: Path | None
    kernel: str | None
    python_version: str | None
    installer: Literal["auto", "pip", "uv"]
    no_hashes: bool
    break_system_packages: bool
    no_validate: bool
    restart: bool
    bundle_dir: Path | None


class BundleWords(_Resolving, _Elsewhere, total=False):
    """Keywords of `bundle`."""

    platform: Texts
    prefer: Literal["installed", "newest"] | None
    sbom: bool


class FleetWords(_Resolving, total=False):
    """Keywords of the functions for many machines."""

    inventory: Paths
    from_folder: Paths
    prefer: Literal["installed", "newest"] | None


class DoctorWords(_Elsewhere, total=False):
    """Keywords of `doctor`."""

    platform: str | None


class CheckWords(_Stated, total=False):
    """Keywords of `check`."""

    facts: Paths | Facts | Mapping[str, Any]

    platform: str | None


_WORDS: Mapping[type[Struct], type] = {
    ApplyRequest: ApplyWords,
    BundleRequest: BundleWords,
    CheckRequest: CheckWords,
    DoctorRequest: DoctorWords,
    FleetRequest: FleetWords,
    LockRequest: LockWords,
    PlanRequest: PlanWords,
    WhyRequest: WhyWords,
}


def together(kind: type[Struct], named: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Join the keywords that a function names to its `options`, as fields of a request of this kind.

    TypeError, as for any function, where one is none of its kind.
    """
    for name in options:
        if name not in _WORDS[kind].__annotations__:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    words = {**named, **options}
    if "platforms" in kind.__struct_fields__:  # which mean several where others mean one
        words["platforms"] = words.pop("platform", None)
    return words


def make(kind: type[R], words: Mapping[str, Any]) -> R:
    """The request that these words mean: None and False are what was not said, one text may stand for a list of one.

    UsageError for a value that the option of that name cannot have.
    """
    known = declared(kind)
    given: dict[str, Any] = {}
    for name, value in words.items():
        if name not in known:
            raise UsageError(f"there is no option {name!r}", code="usage-option", hint=f"the options are {', '.join(known)}")
        if value is None or value is False:
            continue
        given[name] = _plain(value, one_of_many=known[name].is_list)
    if not isinstance(given.get("facts", ""), (str, list, tuple)):
        given["given"] = _facts(given.pop("facts"))
    held = given.pop("given", None)
    try:
        made = convert(given, kind)
    except ValidationError as error:
        raise _refusal(str(error), known, given) from None
    return made if held is None else replace(made, given=held)


def _plain(value: Any, *, one_of_many: bool) -> Any:
    """Paths as texts, and a text where a list is meant as a list of one."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if one_of_many and isinstance(value, (list, tuple)):
        value = tuple(os.fspath(one) if isinstance(one, os.PathLike) else one for one in value)
    return (value,) if one_of_many and isinstance(value, str) else value


def _refusal(said: str, known: Mapping[str, Declared], given: Mapping[str, Any]) -> UsageError:
    """What is wrong with the value that msgspec refused."""
    option = known[re.split(r"\W", said.partition(" - at `$.")[2])[0]]
    value = given[option.name]
    if option.choices:
        why = f"it is one of {', '.join(option.choices)}"
    else:
        wanted = "a whole number" if option.is_number else "True or False" if option.is_flag else "a text"
        wanted += " or a list of texts" if option.is_list else ""
        found = next((one for one in value if not isinstance(one, str)), value) if isinstance(value, tuple) else value
        why = f"expected {wanted}, found {type(found).__name__}"
    return UsageError(f"{option.name} cannot be {value!r:.80}: {why}", code="usage-choice" if option.choices else "usage-argument")


def _facts(value: Any) -> Any:
    from cudnn_resolve.facts.codec import from_mapping

    if isinstance(value, Facts):
        return value
    found = value.to_json() if hasattr(value, "to_json") else value
    if not isinstance(found, Mapping):
        hint = "give a path, what detect() returned, or an object such as its to_json()"
        raise UsageError(f"facts cannot be {value!r:.80}", code="usage-argument", hint=hint)
    return from_mapping(found, "the object given as `facts`")


def as_keywords(text: str, names: Collection[str]) -> str:
    """A message that names options, as one that names the arguments of a function; commands in backquotes stay."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(_example(part) if part.startswith("`") else re.sub(_OPTION, lambda found: _named(found, names), part) for part in parts)


def _named(found: re.Match[str], names: Collection[str]) -> str:
    name = found[1].replace("-", "_")
    return name if name in names else found[0]


def _example(part: str) -> str:
    """An option with its value in backquotes, as an argument with its value; a whole command stays."""
    found = re.fullmatch(_EXAMPLE, part[1:-1])
    if found is None:
        return part
    name = (found[1] or _SHORT[part[1:3]]).replace("-", "_")
    return f"`{name}={found[2].strip(chr(39))!r}`"
