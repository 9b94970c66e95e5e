"""Values written as JSON and read back: facts, requests, plans, findings, whatever is made of structs."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from packaging.specifiers import SpecifierSet

from cudnn_resolve.requirement.source import File, Offer

T = TypeVar("T")


def write(value: object) -> str:
    """The value as JSON, from which `read` makes an equal one."""
    return msgspec.json.encode(value, enc_hook=_written).decode()


def read(text: str | bytes, kind: type[T]) -> T:
    """The value of that type; msgspec.DecodeError where the text holds none."""
    return msgspec.json.decode(text, type=kind, dec_hook=_made)


def _written(value: Any) -> Any:
    """What JSON has for a value that is no struct."""
    if isinstance(value, Offer):
        return {"version": value.version, "files": value.files}
    if isinstance(value, MappingProxyType):
        return dict(value)
    if isinstance(value, SpecifierSet):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _made(kind: type, value: Any) -> Any:
    if kind is SpecifierSet:
        return SpecifierSet(value)
    if kind is Offer:
        return Offer(value["version"], tuple(msgspec.convert(value["files"], tuple[File, ...])))
    raise NotImplementedError(f"{kind.__name__} cannot be read")
