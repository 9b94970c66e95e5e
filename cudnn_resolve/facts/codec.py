"""`Facts` to the JSON object that `detect` prints, and back.

The object is the facts file of `--facts`: every key may be left out and then means unknown; `null` for the driver and `[]` for
a list mean absent. Keys that this version does not know are ignored, so that a newer program's file still serves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.model import (
    CudnnCopy,
    Driver,
    Facts,
    Gpu,
    InstalledFramework,
    Loader,
    Packages,
    Platform,
    Problem,
    Python,
    Toolkit,
    Unknown,
)
from cudnn_resolve.facts.parse import SCHEMA, parse_facts
from cudnn_resolve.facts.reader import Reader, kind_of

__all__ = ["LIMIT_BYTES", "SCHEMA", "FactsError", "decode", "encode", "from_mapping"]

LIMIT_BYTES = 64 << 20
"""Largest facts file that is read; the largest real ones are below 1 MB."""
_FAULTS_SHOWN = 20
_HINT = "a facts file is what `cudnn-resolve detect --format json -o FILE` writes"


class FactsError(InputError):
    """A facts file that cannot be used; `faults` holds one line for each fault, beginning with its path in the file."""

    def __init__(self, message: str, *, faults: tuple[str, ...] = (), context: str | None = None) -> None:
        super().__init__(message, code="facts-invalid", context=context, hint=_HINT)
        self.faults = faults

    def __str__(self) -> str:
        shown = [f"  {fault}" for fault in self.faults[:_FAULTS_SHOWN]]
        if len(self.faults) > _FAULTS_SHOWN:
            shown.append(f"  and {len(self.faults) - _FAULTS_SHOWN} more")
        first, *rest = super().__str__().split("\n")
        return "\n".join([first, *shown, *rest])


# ---- Facts to JSON


def encode(facts: Facts) -> dict[str, Any]:
    """The JSON object for `facts`: unknown facts are left out, absent ones are null or empty; only plain dicts and lists inside."""
    found: dict[str, Any] = {"schema": SCHEMA}
    if facts.note is not None:
        found["note"] = facts.note
    found["platform"] = _known(facts.platform)
    found["python"] = _known(facts.python)
    if not isinstance(facts.driver, Unknown):
        found["driver"] = None if facts.driver is None else _known(facts.driver)
    for key in ("gpus", "cuda_toolkits", "cudnn"):
        rows = getattr(facts, key)
        if not isinstance(rows, Unknown):
            found[key] = [_row(row) for row in rows]
    if not isinstance(facts.frameworks, Unknown):
        found["frameworks"] = [_framework(row) for row in facts.frameworks]
    if not isinstance(facts.loader, Unknown):
        found["loader"] = _row(facts.loader)
    found["packages"] = _packages(facts.packages)
    if not isinstance(facts.container, Unknown):
        found["container"] = {"kind": facts.container}
    if facts.root is not None:
        found["root"] = facts.root
    found["sources"] = dict(facts.sources)
    found["problems"] = [_row(problem) for problem in facts.problems]
    return found


def _fields(value: Any) -> dict[str, Any]:
    pairs = ((name, getattr(value, name)) for name in value.__struct_fields__)
    return {name: list(item) if isinstance(item, tuple) else item for name, item in pairs}


def _known(value: Platform | Python | Driver) -> dict[str, Any]:
    """The fields that are known."""
    return {name: item for name, item in _fields(value).items() if item is not None}


def _row(value: Gpu | Toolkit | CudnnCopy | Loader | Problem) -> dict[str, Any]:
    """Every field, null for an unknown one: readers of a list should find the same keys in each row."""
    return _fields(value)


def _framework(row: InstalledFramework) -> dict[str, Any]:
    found = {name: getattr(row, name) for name in ("name", "version", "variant", "cuda_built", "cudnn_built")}
    if row.would_load is not None:
        load = row.would_load
        copy = None if load.version is None and load.path is None else {"version": load.version, "path": load.path}
        found["would_load"] = {"cudnn": copy, "because": load.because}
    return found


def _packages(packages: Packages) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, names in (("pip", packages.pip), ("apt", packages.apt)):
        if not isinstance(names, Unknown):
            found[key] = dict(names)
    if packages.requires:
        found["requires"] = {name: list(lines) for name, lines in packages.requires.items()}
    return found


# ---- JSON to Facts


def decode(text: str, where: str = "the facts file") -> Facts:
    """The facts that a JSON text states; `where` names it in messages.

    FactsError (code `facts-invalid`, exit 2) with all faults at once: no JSON, a key twice, wrong types, versions that cannot be.
    """
    return from_mapping(_parse(text, where), where)


def from_mapping(found: Mapping[str, Any], where: str = "the facts") -> Facts:
    """The facts that a decoded JSON object states; FactsError as `decode`."""
    faults: list[str] = []
    facts = parse_facts(Reader(found, "", faults))
    if faults:
        raise FactsError(f"{where} does not hold facts as they are written", faults=tuple(faults))
    return facts


class _RefusedError(ValueError):
    """Something that Python's reader of JSON takes and JSON does not allow."""


def _parse(text: str, where: str) -> dict[str, Any]:
    if len(text) > LIMIT_BYTES:
        raise FactsError(f"{where} is too large for a facts file: more than {LIMIT_BYTES >> 20} MB")
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError:
        raise FactsError(f"{where} is nested too deeply for a facts file") from None
    except json.JSONDecodeError as error:
        ends = error.pos >= len(text.rstrip())
        message = f"{where} ends in the middle of its JSON" if ends else f"{where} is not JSON: {error.msg}"
        raise FactsError(message, context=f"line {error.lineno}, column {error.colno}") from None
    except _RefusedError as error:
        raise FactsError(f"{where} is not JSON as facts are written: {error}") from None
    except ValueError:
        raise FactsError(f"{where} holds a number with thousands of digits") from None
    if not isinstance(found, dict):
        raise FactsError(f"{where} holds no facts: expected an object, found {kind_of(found)}")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _RefusedError(f"the key {twice[:60]!a} stands twice in one object")
    return found


def _refuse_constant(word: str) -> Any:
    raise _RefusedError(f"{word} is not a value that JSON has")
