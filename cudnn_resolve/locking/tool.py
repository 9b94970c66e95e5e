"""The `[tool.cudnn-resolve]` table of a lock, read: every field is checked, and a fault is named by its dotted path."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any, NamedTuple, TypeVar

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.model import (
    SCHEMA,
    TOOL,
    Asked,
    LockedApt,
    LockedEnvironment,
    LockedFramework,
    LockedOverride,
    Stack,
    Tool,
)
from cudnn_resolve.version import Capability, DriverVersion

R = TypeVar("R", bound=NamedTuple)
_MINOR = re.compile(r"\d{1,2}\.\d{1,3}t?", re.ASCII)
_PLATFORM = re.compile(r"[a-z0-9]{1,20}(?:_[a-z0-9]{1,20}){1,3}", re.ASCII)
_RECORDS = 1000
_DEEPEST = 12
_TEXTS = ("gpu", "driver", "date", "pins")
_TABLES = ("frameworks", "loaded", "beside")
"""What of a record we read ourselves; the rest is whoever's who wrote it."""


def read_tool(raw: object, where: str) -> Tool:
    """Our table of a lock; InputError with the dotted path of the first fault."""
    table = _Table(raw, f"{where}: tool.{TOOL}")
    schema = table.number("schema")
    if schema is None or schema < 1:
        raise table.fault("schema", "is missing")
    if schema > SCHEMA:
        raise InputError(
            f"the lock was written by a newer cudnn-resolve (schema {schema}, known is {SCHEMA})",
            code="lock-version",
            context=table.at,
            hint="upgrade cudnn-resolve",
        )
    platforms = table.texts("platforms")
    if not platforms or not all(_PLATFORM.fullmatch(one) for one in platforms) or len(set(platforms)) < len(platforms):
        raise table.fault("platforms", "is not a list of platforms such as linux_x86_64")
    python = table.text("python")
    if python is None or not _MINOR.fullmatch(python):
        raise table.fault("python", "is not a Python such as 3.11")
    limits = table.table("limits")
    apart = table.table("platform")
    return Tool(
        asked=Asked(
            targets=table.texts("targets"),
            said=table.texts("said" if "said" in table.raw else "targets"),
            requirements=table.texts("requirements"),
            files=table.lists("files"),
            cuda=limits.text("cuda"),
            cudnn=limits.text("cudnn"),
            driver_policy=table.choice("driver_policy", ("minor", "strict")),
            device=table.choice("device", ("gpu", "cpu")),
            channel=table.choice("channel", ("auto", "pip", "apt")),
            strict_pins=table.flag("strict_pins"),
            stated=table.lists("stated"),
        ),
        python=python,
        matrix=table.text("matrix"),
        stacks=tuple(_stack(one, apart.table(one).over(table)) for one in sorted(platforms)),
        validation=_records(table),
    )


def _stack(platform: str, table: _Table) -> Stack:
    return Stack(
        platform=platform,
        driver_min=table.parsed("driver_min", DriverVersion),
        cuda=table.text("cuda"),
        cudnn=table.text("cudnn"),
        cudnn_soname=table.number("cudnn_soname"),
        compute_capabilities=table.capabilities("compute_capabilities"),
        ptx_capabilities=table.capabilities("ptx_capabilities"),
        ptx_driver_min=table.parsed("ptx_driver_min", DriverVersion),
        frameworks=table.rows("frameworks", LockedFramework, optional=("cuda_built", "cudnn_built")),
        apt=table.rows("apt", LockedApt),
        overrides=table.rows("overrides", LockedOverride),
        environment=table.rows("environment", LockedEnvironment),
    )


def _records(table: _Table) -> tuple[Mapping[str, object], ...]:
    """Records of tests, kept as they are."""
    found = table.get("validation", [])
    if not isinstance(found, list) or len(found) > _RECORDS or not all(isinstance(one, dict) for one in found):
        raise table.fault("validation", "is not a list of tables")
    for number, one in enumerate(found):
        if not _plain(one, 0):
            raise table.fault(f"validation[{number}]", "holds what is neither text, number, truth value, list nor table")
        for name in _TEXTS:
            if not isinstance(one.get(name, ""), str):
                raise table.fault(f"validation[{number}].{name}", "is no text")
        for name in _TABLES:
            rows = one.get(name, {})
            if not isinstance(rows, dict) or not all(isinstance(text, str) for text in rows.values()):
                raise table.fault(f"validation[{number}].{name}", "is no table of texts")
    return tuple(found)


def _plain(value: object, depth: int) -> bool:
    if depth > _DEEPEST or isinstance(value, (datetime, date, time)):
        return False
    if isinstance(value, dict):
        return all(_plain(one, depth + 1) for one in value.values())
    if isinstance(value, list):
        return all(_plain(one, depth + 1) for one in value)
    return isinstance(value, (str, int, float, bool))


class _Table:
    """One table of the file with its place; a field that is not there is None, empty or false."""

    def __init__(self, raw: object, at: str, below: _Table | None = None) -> None:
        self.at = at
        self._below = below
        if not isinstance(raw, dict):
            raise InputError("the lock is not valid: not a table", code="lock-invalid", context=at)
        self.raw: dict[str, Any] = raw

    def over(self, other: _Table) -> _Table:
        """The table with the fields of the other one where it has none itself."""
        return _Table(self.raw, self.at, other)

    def get(self, name: str, default: object = None) -> Any:
        return self._home(name).raw.get(name, default)

    def _home(self, name: str) -> _Table:
        """The table that has the field: this one, or the one below."""
        return self if self._below is None or name.partition("[")[0] in self.raw else self._below

    def place(self, name: str) -> str:
        """The dotted path of a field."""
        return f"{self._home(name).at}.{name}"

    def fault(self, name: str, message: str) -> InputError:
        return InputError(f"the lock is not valid: {name} {message}", code="lock-invalid", context=self.place(name))

    def table(self, name: str) -> _Table:
        return _Table(self.get(name, {}), self.place(name))

    def text(self, name: str) -> str | None:
        found: str | None = self._kind(name, str, "a text")
        return found

    def parsed(self, name: str, parse: Callable[[str], object]) -> str | None:
        """A text that can be parsed."""
        found = self.text(name)
        try:
            _ = parse(found) if found is not None else None
        except ValueError:
            raise self.fault(name, f"is not what it should be: {found!r:.80}") from None
        return found

    def capabilities(self, name: str) -> tuple[str, ...]:
        """A list of compute capabilities."""
        found = self.texts(name)
        try:
            _ = [Capability.parse(one) for one in found]
        except ValueError:
            raise self.fault(name, "is not a list of compute capabilities such as 7.5") from None
        return found

    def number(self, name: str) -> int | None:
        found = self.get(name)
        if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
            raise self.fault(name, "is not a whole number")
        return found

    def flag(self, name: str) -> bool:
        return bool(self._kind(name, bool, "true or false"))

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        found = self.text(name)
        if found is not None and found not in known:
            raise self.fault(name, f"is not one of {', '.join(known)}")
        return found or known[0]

    def texts(self, name: str) -> tuple[str, ...]:
        found = self.get(name, [])
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self.fault(name, "is not a list of texts")
        return tuple(found)

    def lists(self, name: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """A table of lists of texts."""
        found = self.table(name)
        return tuple((one, found.texts(one)) for one in found.raw)

    def rows(self, name: str, kind: Callable[..., R], optional: tuple[str, ...] = ()) -> tuple[R, ...]:
        """The list of tables as values of a kind; further fields of a newer version are passed over."""
        found = self.get(name, [])
        fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
        if not isinstance(found, list):
            raise self.fault(name, "is not a list of tables")
        out = []
        for number, one in enumerate(found):
            row = _Table(one, self.place(f"{name}[{number}]"))
            values = {field: row.text(field) for field in fields}
            lacking = next((field for field in fields if values[field] is None and field not in optional), None)
            if lacking is not None:
                raise row.fault(lacking, "is missing")
            out.append(kind(**values))
        return tuple(out)

    def _kind(self, name: str, kind: type, words: str) -> Any:
        found = self.get(name)
        if found is not None and not isinstance(found, kind):
            raise self.fault(name, f"is not {words}")
        return found
