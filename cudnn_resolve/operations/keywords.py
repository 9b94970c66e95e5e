"""Keyword arguments of the package's functions: their types, their conversion to requests, and error messages in terms of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from msgspec import Struct, ValidationError, convert
from msgspec.structs import fields, replace

from cudnn_resolve.errors import ContradictionError, CudnnResolveError, UsageError
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
T = TypeVar("T")
_OPTION = r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)"
_OPTION_WITH_VALUE = r"(?:-f|-r|-c|--([a-z-]+))[= ]('[^']*'|\S+)"
_SHORT = {"-f": "framework", "-r": "requirement", "-c": "constraint"}

Path = str | os.PathLike[str]
Texts = str | Sequence[str]
Paths = Path | Sequence[Path]


class _Machine(TypedDict, total=False):
    """Keywords about this machine and the tables."""

    python: Path | None
    driver: str | None
    gpu: Texts
    matrix: Paths


class _Stated(_Machine, total=False):
    """Keywords that state single facts about a machine."""

    machine: str | None
    python_version: str | None
    glibc: str | None
    os: str | None


class _Elsewhere(_Stated, total=False):
    """Keywords about any machine."""

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
    """Keywords of the fleet functions."""

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


_KEYWORDS: Mapping[type[Struct], type] = {
    ApplyRequest: ApplyWords,
    BundleRequest: BundleWords,
    CheckRequest: CheckWords,
    DoctorRequest: DoctorWords,
    FleetRequest: FleetWords,
    LockRequest: LockWords,
    PlanRequest: PlanWords,
    WhyRequest: WhyWords,
}


def call(function: Callable[[R], T], kind: type[R], named: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> T:
    """Call a function of `api` with a request made of keyword arguments: those in a signature, and its further `options`.

    Error messages name arguments instead of options. In a notebook, results include the version ranges for its picture.
    """
    try:
        request = make(kind, _combined(kind, named, options or {}))
        if "ranges" in kind.__struct_fields__:
            from cudnn_resolve.operations.notebook_kernel import in_notebook

            request = replace(request, ranges=in_notebook())
        return function(request)
    except CudnnResolveError as error:
        names = {"undo", *(field.name for field in fields(kind))}
        error.message = as_keywords(error.message, names)
        error.args = (error.message,)
        error.context = error.context and as_keywords(error.context, names)
        error.hint = error.hint and as_keywords(error.hint, names)
        raise


def _combined(kind: type[Struct], named: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """All keywords as request fields; TypeError for an unexpected one, as for any function."""
    for name in options:
        if name not in _KEYWORDS[kind].__annotations__:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    keywords = {**named, **options}
    if "platforms" in kind.__struct_fields__:  # `platform` may be several here
        keywords["platforms"] = keywords.pop("platform", None)
    return keywords


def make(kind: type[R], keywords: Mapping[str, Any]) -> R:
    """Build a request from keywords: None and False are unset, a single text stands for a list of one.

    UsageError for an invalid value.
    """
    known = declared(kind)
    given: dict[str, Any] = {}
    for name, value in keywords.items():
        if name not in known:
            raise UsageError(f"there is no option {name!r}", code="usage-option", hint=f"the options are {', '.join(known)}")
        if value is None or value is False:
            continue
        given[name] = _plain(value, is_list=known[name].is_list)
    if not isinstance(given.get("facts", ""), (str, list, tuple)):
        given["given"] = _facts(given.pop("facts"))
    facts = given.pop("given", None)
    try:
        request = convert(given, kind)
    except ValidationError as error:
        raise _invalid(str(error), known, given) from None
    return request if facts is None else replace(request, given=facts)


def _plain(value: Any, *, is_list: bool) -> Any:
    """Convert paths to texts, and for a list option a single text to a list of one."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if is_list and isinstance(value, (list, tuple)):
        value = tuple(os.fspath(item) if isinstance(item, os.PathLike) else item for item in value)
    return (value,) if is_list and isinstance(value, str) else value


def _invalid(message: str, known: Mapping[str, Declared], given: Mapping[str, Any]) -> UsageError:
    """Error for the value that msgspec rejected with `message`."""
    option = known[re.split(r"\W", message.partition(" - at `$.")[2])[0]]
    value = given[option.name]
    if option.choices:
        why = f"it is one of {', '.join(option.choices)}"
    else:
        expected = "a whole number" if option.is_number else "True or False" if option.is_flag else "a text"
        expected += " or a list of texts" if option.is_list else ""
        wrong = next((item for item in value if not isinstance(item, str)), value) if isinstance(value, tuple) else value
        why = f"expected {expected}, found {type(wrong).__name__}"
    return UsageError(f"{option.name} cannot be {value!r:.80}: {why}", code="usage-choice" if option.choices else "usage-argument")


def _facts(value: Any) -> Facts:
    from cudnn_resolve.facts.codec import from_mapping

    if isinstance(value, Facts):
        return value
    found = value.to_json() if hasattr(value, "to_json") else value
    if not isinstance(found, Mapping):
        hint = "give a path, the result of detect(), or an object such as its to_json()"
        raise UsageError(f"facts cannot be {value!r:.80}", code="usage-argument", hint=hint)
    return from_mapping(found, "the object given as `facts`")


def undo_number(undo: Any, keywords: Mapping[str, Any]) -> int | None:
    """Number of the `apply` to undo, None for the last one.

    UsageError for an invalid number, or for other arguments that undo does not take.
    """
    if undo is not True and (not isinstance(undo, int) or undo < 1):
        raise UsageError(f"undo cannot be {undo!r:.80}: expected True or a number of history()", code="usage-argument")
    request = make(ApplyRequest, keywords)
    allowed = ApplyRequest(python=request.python, env=request.env, dry_run=request.dry_run, force=request.force, restart=request.restart)
    refused = [field.name for field in fields(ApplyRequest) if getattr(request, field.name) != getattr(allowed, field.name)]
    if refused:
        raise ContradictionError(f"undo takes no {refused[0]}")
    return None if undo is True else undo


def as_keywords(text: str, names: Collection[str]) -> str:
    """Rewrite the options in a message as arguments of a function; commands in backquotes stay."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        _argument_with_value(part) if part.startswith("`") else re.sub(_OPTION, lambda found: _argument(found, names), part)
        for part in parts
    )


def _argument(option: re.Match[str], names: Collection[str]) -> str:
    name = option[1].replace("-", "_")
    return name if name in names else option[0]


def _argument_with_value(quoted: str) -> str:
    """Rewrite `` `--option value` `` as `` `option=value` ``; a whole command stays."""
    found = re.fullmatch(_OPTION_WITH_VALUE, quoted[1:-1])
    if found is None:
        return quoted
    name = (found[1] or _SHORT[quoted[1:3]]).replace("-", "_")
    return f"`{name}={found[2].strip(chr(39))!r}`"
