"""Read and write the `[tool.cudnn-resolve]` table of a lock, whose fields are those of the structs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime, time
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from cudnn_resolve.errors import InputError, first_line
from cudnn_resolve.locking.model import TOOL, LockedRequest, Stack, Tool

T = TypeVar("T")
SCHEMA = 1
"""Version of the table."""
_MOST_RECORDS = 1000
_DEEPEST = 12
"""Nesting of a validation record."""


class _Version(Struct):
    schema: Annotated[int, Meta(ge=1)]


class _Limits(Struct):
    cuda: str | None = None
    cudnn: str | None = None


class _Head(Struct):
    """Fields other than those of the request and the stacks."""

    python: Annotated[str, Meta(pattern=r"^\d{1,2}\.\d{1,3}t?\Z")]
    platforms: Annotated[tuple[Annotated[str, Meta(pattern=r"^[a-z0-9]{1,20}(_[a-z0-9]{1,20}){1,3}\Z")], ...], Meta(min_length=1)]
    matrix: str | None = None
    limits: _Limits = field(default_factory=_Limits)
    platform: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fields of `Stack` that differ between platforms."""
    validation: Annotated[tuple[dict[str, Any], ...], Meta(max_length=_MOST_RECORDS)] = ()


class _Record(Struct):
    """The known fields of a validation record; it may have others."""

    gpu: str = ""
    driver: str = ""
    date: str = ""
    pins: str = ""
    frameworks: dict[str, str] = field(default_factory=dict)
    loaded: dict[str, str] = field(default_factory=dict)
    beside: dict[str, str] = field(default_factory=dict)


def read_tool(raw: object, where: str) -> Tool:
    """Read the table; raises InputError with the dotted path of the first fault. Fields of newer versions are ignored."""
    at = f"{where}: tool.{TOOL}"
    schema = _convert(raw, _Version, at).schema
    if schema > SCHEMA:
        raise InputError(
            f"the lock was written by a newer cudnn-resolve (schema {schema}; this version supports {SCHEMA})",
            code="lock-version",
            context=at,
            hint="upgrade cudnn-resolve",
        )
    assert isinstance(raw, dict), "it has a schema"
    head = _convert(raw, _Head, at)
    if len(set(head.platforms)) < len(head.platforms):
        raise InputError("the lock is not valid: a platform is listed twice", code="lock-invalid", context=f"{at}.platforms")
    for number, record in enumerate(head.validation):
        place = f"{at}.validation[{number}]"
        _convert(record, _Record, place)
        if not _is_plain(record, 0):
            message = "the lock is not valid: a record may contain only strings, numbers, booleans, lists and tables"
            raise InputError(message, code="lock-invalid", context=place)
    request = _convert({**raw, "cuda": head.limits.cuda, "cudnn": head.limits.cudnn}, LockedRequest, at)
    return Tool(
        request=request if "said" in raw else replace(request, direct_targets=request.targets),
        python=head.python,
        matrix=head.matrix,
        stacks=tuple(_stack(raw, platform, head.platform.get(platform, {}), at) for platform in sorted(head.platforms)),
        validation=head.validation,
    )


def _stack(shared: Mapping[str, Any], platform: str, own: Mapping[str, Any], at: str) -> Stack:
    fields = {**shared, **own, "platform": platform}
    return _convert(fields, Stack, at, subtable=f".platform.{platform}", subtable_fields=own.keys())


def _convert(value: object, kind: type[T], at: str, *, subtable: str = "", subtable_fields: Collection[str] = ()) -> T:
    """Convert a value; raises InputError with the path of the fault, which is below `subtable` for its fields."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, path = first_line(error).partition(" - at `$")
        path = path.removesuffix("`")
        top = path.lstrip(".").partition(".")[0].partition("[")[0]
        inner = subtable if top in subtable_fields else ""
        message = "".join(char if char.isprintable() else "?" for char in message)
        raise InputError(f"the lock is not valid: {message}", code="lock-invalid", context=f"{at}{inner}{path}") from None


def _is_plain(value: object, depth: int) -> bool:
    if depth > _DEEPEST or isinstance(value, (datetime, date, time)):
        return False
    if isinstance(value, dict):
        return all(_is_plain(item, depth + 1) for item in value.values())
    if isinstance(value, list):
        return all(_is_plain(item, depth + 1) for item in value)
    return isinstance(value, (str, int, float, bool))


def tool_table(tool: Tool) -> dict[str, Any]:
    """Encode the table; fields that all platforms share are written once."""
    request = msgspec.to_builtins(tool.request)
    limits = {"cuda": request.pop("cuda"), "cudnn": request.pop("cudnn")}
    direct_targets = request.pop("said")
    options = {name: found for name in ("files", "stated") if (found := request.pop(name))}
    stacks = [_compact(msgspec.to_builtins(stack)) for stack in tool.stacks]
    names = [stack.pop("platform") for stack in stacks]
    shared = {key: value for key, value in stacks[0].items() if all(key in stack and stack[key] == value for stack in stacks)}
    own = {name: {key: stack[key] for key in stack if key not in shared} for name, stack in zip(names, stacks, strict=True)}
    table = {
        "schema": SCHEMA,
        **request,
        "python": tool.python,
        "platforms": names,
        "limits": limits,
        "matrix": tool.matrix,
        **shared,
        "platform": own,
    }
    return {
        **_compact(table),
        **options,
        **({"said": direct_targets} if direct_targets != request["targets"] else {}),
        **({"validation": [dict(record) for record in tool.validation]} if tool.validation else {}),
    }


def _compact(value: Any) -> Any:
    """Drop null and empty fields, except the hashes of a file, which are always written."""
    if isinstance(value, dict):
        found = {key: _compact(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item is not None and (item not in ([], (), {}) or key == "hashes")}
    return [_compact(item) for item in value] if isinstance(value, (list, tuple)) else value
