"""The `[tool.cudnn-resolve]` table of a lock, read and written; its form is that of the structs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.check_pylock import shown
from cudnn_resolve.locking.model import TOOL, Asked, Stack, Tool

T = TypeVar("T")
SCHEMA = 1
"""Version of the table."""
_RECORDS = 1000
_DEEPEST = 12


class _Version(Struct):
    schema: Annotated[int, Meta(ge=1)]


class _Limits(Struct):
    cuda: str | None = None
    cudnn: str | None = None


class _Head(Struct):
    """What the table says beside the request and the stacks."""

    python: Annotated[str, Meta(pattern=r"^\d{1,2}\.\d{1,3}t?\Z")]
    platforms: Annotated[tuple[Annotated[str, Meta(pattern=r"^[a-z0-9]{1,20}(_[a-z0-9]{1,20}){1,3}\Z")], ...], Meta(min_length=1)]
    matrix: str | None = None
    limits: _Limits = field(default_factory=_Limits)
    platform: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What differs from platform to platform: fields of `Stack`."""
    validation: Annotated[tuple[dict[str, Any], ...], Meta(max_length=_RECORDS)] = ()


class _Record(Struct):
    """What we read of a record of a test; the rest belongs to whoever wrote it."""

    gpu: str = ""
    driver: str = ""
    date: str = ""
    pins: str = ""
    frameworks: dict[str, str] = field(default_factory=dict)
    loaded: dict[str, str] = field(default_factory=dict)
    beside: dict[str, str] = field(default_factory=dict)


def read_tool(raw: object, where: str) -> Tool:
    """Our table of a lock; InputError with the dotted path of the first fault. Fields of newer versions are ignored."""
    at = f"{where}: tool.{TOOL}"
    schema = _convert(raw, _Version, at).schema
    if schema > SCHEMA:
        raise InputError(
            f"the lock was written by a newer cudnn-resolve (schema {schema}, known is {SCHEMA})",
            code="lock-version",
            context=at,
            hint="upgrade cudnn-resolve",
        )
    assert isinstance(raw, dict), "it has a schema"
    head = _convert(raw, _Head, at)
    if len(set(head.platforms)) < len(head.platforms):
        raise InputError("the lock is not valid: a platform stands twice", code="lock-invalid", context=f"{at}.platforms")
    for number, record in enumerate(head.validation):
        _check_record(record, f"{at}.validation[{number}]")
    asked = _convert({**raw, "cuda": head.limits.cuda, "cudnn": head.limits.cudnn}, Asked, at)
    return Tool(
        asked=asked if "said" in raw else replace(asked, said=asked.targets),
        python=head.python,
        matrix=head.matrix,
        stacks=tuple(_stack(raw, one, head.platform.get(one, {}), at) for one in sorted(head.platforms)),
        validation=head.validation,
    )


def _stack(shared: Mapping[str, Any], platform: str, own: Mapping[str, Any], at: str) -> Stack:
    return _convert({**shared, **own, "platform": platform}, Stack, at, apart=(f".platform.{platform}", frozenset(own)))


def _convert(value: object, kind: type[T], at: str, *, apart: tuple[str, frozenset[str]] = ("", frozenset())) -> T:
    """The value as that type; InputError with the path of the fault. `apart`: fields that stand below another table, and its place."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, path = shown(error).partition(" - at `$")
        path = path.removesuffix("`")
        inner = apart[0] if path.lstrip(".").partition(".")[0].partition("[")[0] in apart[1] else ""
        message = "".join(char if char.isprintable() else "?" for char in message)
        raise InputError(f"the lock is not valid: {message}", code="lock-invalid", context=f"{at}{inner}{path}") from None


def _check_record(record: Mapping[str, Any], at: str) -> None:
    _convert(record, _Record, at)
    if not _is_plain(record, 0):
        message = "the lock is not valid: it holds what is neither text, number, truth value, list nor table"
        raise InputError(message, code="lock-invalid", context=at)


def _is_plain(value: object, depth: int) -> bool:
    if depth > _DEEPEST or isinstance(value, (datetime, date, time)):
        return False
    if isinstance(value, dict):
        return all(_is_plain(one, depth + 1) for one in value.values())
    if isinstance(value, list):
        return all(_is_plain(one, depth + 1) for one in value)
    return isinstance(value, (str, int, float, bool))


def tool_table(tool: Tool) -> dict[str, Any]:
    """Our table as it is written: what all platforms share stands once."""
    asked = msgspec.to_builtins(tool.asked)
    limits = {"cuda": asked.pop("cuda"), "cudnn": asked.pop("cudnn")}
    said = asked.pop("said")
    named = {name: found for name in ("files", "stated") if (found := asked.pop(name))}
    stacks = [_compact(msgspec.to_builtins(one)) for one in tool.stacks]
    names = [one.pop("platform") for one in stacks]
    shared = {key: value for key, value in stacks[0].items() if all(key in one and one[key] == value for one in stacks)}
    apart = {name: {key: one[key] for key in one if key not in shared} for name, one in zip(names, stacks, strict=True)}
    table = {
        "schema": SCHEMA,
        **asked,
        "python": tool.python,
        "platforms": names,
        "limits": limits,
        "matrix": tool.matrix,
        **shared,
        "platform": apart,
    }
    return {
        **_compact(table),
        **named,
        **({"said": said} if said != asked["targets"] else {}),
        **({"validation": [dict(one) for one in tool.validation]} if tool.validation else {}),
    }


def _compact(value: Any) -> Any:
    """The value without fields that say nothing: null, and empty lists and tables; a file has hashes, be they none."""
    if isinstance(value, dict):
        found = {key: _compact(one) for key, one in value.items()}
        return {key: one for key, one in found.items() if one is not None and (one not in ([], (), {}) or key == "hashes")}
    return [_compact(one) for one in value] if isinstance(value, (list, tuple)) else value
