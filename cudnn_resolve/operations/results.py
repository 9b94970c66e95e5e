"""Base class of all results (attributes, JSON, and HTML in a notebook), and conversion between kinds of structs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec import Struct

from cudnn_resolve.facts.model import Facts


class Result:
    """Base class of all results; also a read-only mapping of its JSON object, `result["status"]`."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `--format json`."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> Any:
        return self.to_json()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_json())

    def __contains__(self, name: object) -> bool:
        return name in self.to_json()

    def keys(self) -> list[str]:
        """Keys of the JSON object, so that `dict(result)` works."""
        return list(self.to_json())

    def get(self, name: str, default: Any = None) -> Any:
        """An entry of the JSON object."""
        return self.to_json().get(name, default)

    def _repr_html_(self) -> str:
        from cudnn_resolve.report.result_html import render

        return render(self.to_json())


S = TypeVar("S", bound=Struct)


def recast(kind: type[S], value: Struct, **more: Any) -> S:
    """Copy the fields that two kinds of struct share into a new struct; `more` replaces or adds fields."""
    return kind(**{name: getattr(value, name) for name in kind.__struct_fields__ if hasattr(value, name)} | more)


class FactsResult(Facts, Result, frozen=True, kw_only=True):
    """Result of `detect`: the facts."""

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `detect --format json`."""
        from cudnn_resolve.facts.codec import encode

        return encode(self)
