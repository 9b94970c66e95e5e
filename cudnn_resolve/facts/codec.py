"""Convert `Facts` to the JSON object that `detect` prints, and back.

The object is the facts file of `--facts`: every key may be omitted, which means unknown; `null` for the driver and `[]` for a list mean
absent. Unknown keys are ignored, so that the file of a newer program can be read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field, inspect, structs

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.model import (
    CudnnCopy,
    Driver,
    Facts,
    Gpu,
    InstalledFramework,
    Loader,
    Name,
    Packages,
    Platform,
    Problem,
    Python,
    Text,
    Toolkit,
    Unknown,
    architecture,
)
from cudnn_resolve.version import Capability

SCHEMA = "cudnn-resolve/detect/1"
LIMIT_BYTES = 64 << 20
"""Bound on a facts file; the largest real ones are below 1 MB."""
_FAULTS_SHOWN = 20
_HINT = "a facts file is what `cudnn-resolve detect --format json -o FILE` writes"
_SEPARATORS = re.compile(r"[-_.]+")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_+-]{1,80}")
_ROWS = ("gpus", "cuda_toolkits", "cudnn", "frameworks", "problems")


class FactsError(InputError):
    """An invalid facts file; `faults` has a line for each fault, starting with its path in the file."""

    def __init__(self, message: str, *, faults: tuple[str, ...] = (), context: str | None = None) -> None:
        super().__init__(message, code="facts-invalid", context=context, hint=_HINT)
        self.faults = faults

    def __str__(self) -> str:
        shown = [f"  {fault}" for fault in self.faults[:_FAULTS_SHOWN]]
        if len(self.faults) > _FAULTS_SHOWN:
            shown.append(f"  and {len(self.faults) - _FAULTS_SHOWN} more")
        first, *rest = super().__str__().split("\n")
        return "\n".join([first, *shown, *rest])


# ---- the file


class _Container(Struct, frozen=True, kw_only=True):
    """`docker`, `colab`, `kaggle`, `wsl`; null for none of them."""

    kind: Name | None = None


class FactsFile(Struct, frozen=True, kw_only=True):
    """A facts file; an omitted key is unknown."""

    schema: Annotated[str, Meta(pattern=f"^{SCHEMA}$")] | None = SCHEMA
    note: Text | UnsetType | None = UNSET
    platform: Platform = Platform()
    python: Python = Python()
    driver: Driver | UnsetType | None = UNSET
    gpus: tuple[Gpu, ...] | UnsetType = UNSET
    cuda_toolkits: tuple[Toolkit, ...] | UnsetType = UNSET
    cudnn: tuple[CudnnCopy, ...] | UnsetType = UNSET
    frameworks: tuple[InstalledFramework, ...] | UnsetType = UNSET
    loader: Loader | UnsetType = UNSET
    packages: Packages = field(default_factory=Packages)
    container: _Container | UnsetType | None = UNSET
    root: bool | UnsetType | None = UNSET
    sources: Mapping[Name, Text] = {}
    problems: tuple[Problem, ...] = ()


# ---- Facts to JSON


def encode(facts: Facts) -> dict[str, Any]:
    """JSON object of `facts`, of plain dicts and lists: unknown facts are omitted, absent ones are null or empty."""
    file = FactsFile(
        **{
            **structs.asdict(facts),
            "note": UNSET if facts.note is None else facts.note,
            "container": UNSET if isinstance(facts.container, Unknown) else _Container(kind=facts.container),
            "root": UNSET if facts.root is None else facts.root,
        }
    )
    encoded: dict[str, Any] = _plain(msgspec.to_builtins(file, enc_hook=dict))
    if not facts.packages.requires:
        del encoded["packages"]["requires"]
    for row in encoded.get("frameworks", ()):
        if row["would_load"] is None:
            del row["would_load"]
    return encoded


def _plain(value: Any) -> Any:
    """The value with lists in place of tuples."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


# ---- JSON to Facts


def decode(text: str, where: str = "the facts file") -> Facts:
    """Facts in a JSON text; `where` names it in messages.

    Raise FactsError (code `facts-invalid`, exit 2) with all faults at once: not JSON, duplicate keys, wrong types, impossible versions.
    """
    return from_mapping(parse_object(text, where), where)


def from_mapping(found: Mapping[str, Any], where: str = "the facts") -> Facts:
    """Facts in a decoded JSON object; raise FactsError as `decode` does."""
    stated = {key: _without_nulls(value) if key in _ROWS else value for key, value in found.items()}
    faults = _schema_faults(stated.get("schema"))
    try:
        file = FactsFile() if faults else msgspec.convert(stated, FactsFile)
    except UnicodeEncodeError:
        raise _lone_surrogate(where) from None
    except (msgspec.ValidationError, RecursionError) as error:
        faults = tuple(_value_faults(stated, inspect.type_info(FactsFile))) or (str(error),)
    else:
        faults = faults or tuple(_duplicate_packages(file.packages.pip))
    if faults:
        raise FactsError(f"{where} is not a valid facts file", faults=faults)
    return _facts(file)


def _facts(file: FactsFile) -> Facts:
    """Facts of a file, with normalized names and architectures."""
    platform, packages = file.platform, file.packages
    pip = packages.pip if isinstance(packages.pip, Unknown) else {_normalized(name): version for name, version in packages.pip.items()}
    frameworks = file.frameworks
    if not isinstance(frameworks, Unknown):
        frameworks = tuple(structs.replace(framework, name=_normalized(framework.name)) for framework in frameworks)
    requires = {_normalized(name): lines for name, lines in packages.requires.items()}
    return Facts(
        **{
            **{name: getattr(file, name) for name in Facts.__struct_fields__},
            "platform": structs.replace(platform, arch=platform.arch and architecture(platform.arch)),
            "gpus": file.gpus if isinstance(file.gpus, Unknown) else tuple(map(_read_gpu, file.gpus)),
            "frameworks": frameworks,
            "packages": structs.replace(packages, pip=pip, requires=requires),
            "container": file.container.kind if isinstance(file.container, _Container) else file.container,
            "root": None if isinstance(file.root, Unknown) else file.root,
            "note": None if isinstance(file.note, Unknown) else file.note,
        }
    )


def _read_gpu(row: Gpu) -> Gpu:
    written = row.compute_capability
    return row if written is None else structs.replace(row, compute_capability=str(Capability.parse(written)))


def _normalized(name: str) -> str:
    """Normalized name of a distribution, as in PEP 503."""
    return _SEPARATORS.sub("-", name).lower()


# ---- what is wrong with a file


class _RefusedError(ValueError):
    """Something that Python's JSON parser accepts and JSON does not allow."""


def parse_object(text: str, where: str) -> dict[str, Any]:
    """JSON object in a text, not interpreted; raise FactsError as `decode` does."""
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
        raise FactsError(f"{where} is not strict JSON: {error}") from None
    except ValueError:
        raise FactsError(f"{where} contains a number with thousands of digits") from None
    if "\\ud" in text.lower():
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise _lone_surrogate(where) from None
    if not isinstance(found, dict):
        raise FactsError(f"{where} contains no facts: expected an object, found {_kind_of(found)}")
    return found


def _lone_surrogate(where: str) -> FactsError:
    return FactsError(f"{where} contains a lone surrogate, half of a character (\\ud800 to \\udfff)")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        duplicate = next(key for key, count in counts.items() if count > 1)
        raise _RefusedError(f"duplicate key {duplicate[:60]!a} in an object")
    return found


def _refuse_constant(word: str) -> Any:
    raise _RefusedError(f"{word} is not a JSON value")


def _without_nulls(rows: Any) -> Any:
    """Rows without null fields, which mean the same as omitted ones."""
    if isinstance(rows, dict):
        return {key: _without_nulls(value) if isinstance(value, dict) else value for key, value in rows.items() if value is not None}
    return [_without_nulls(row) if isinstance(row, dict) else row for row in rows] if isinstance(rows, list) else rows


def _schema_faults(schema: Any) -> tuple[str, ...]:
    """Fault of a file of another schema, whose other keys are not checked."""
    if schema is None or schema == SCHEMA or not isinstance(schema, str):
        return ()
    if schema.startswith("cudnn-resolve/") and not schema.startswith("cudnn-resolve/detect/"):
        return (f"schema: this is the output of another command ({schema[:60]!a}), not facts; its `facts` object may be used",)
    return (f"schema: expected {SCHEMA!r}, found {schema[:60]!a}: this program does not support that format",)


def _duplicate_packages(pip: Mapping[str, str] | Unknown) -> Iterator[str]:
    """A fault for each package with two spellings and two versions."""
    versions: dict[str, str] = {}
    for name, version in ({} if isinstance(pip, Unknown) else pip).items():
        if versions.setdefault(_normalized(name), version) != version:
            path = _step("packages.pip", name)
            yield f"{path}: the same package as another entry (both are {_normalized(name)!r}), with another version"


def _value_faults(value: Any, kind: Any, path: str = "", description: str = "") -> Iterator[str]:
    """All faults of a value that msgspec rejected; msgspec itself reports only the first one, and no mapping keys."""
    if isinstance(kind, inspect.Metadata):
        yield from _value_faults(value, kind.type, path, (kind.extra_json_schema or {}).get("description", description))
    elif isinstance(kind, inspect.UnionType):
        others = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
        if value is not None or len(others) == len(kind.types):
            yield from _value_faults(value, others[0], path, description)
    elif isinstance(kind, (inspect.StructType, inspect.DictType)) and isinstance(value, dict):
        yield from _object_faults(value, kind, path)
    elif isinstance(kind, inspect.VarTupleType) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _value_faults(item, kind.item_type, f"{path}[{index}]")
    else:
        fault = _fault(value, kind, description)
        if fault:
            yield f"{path}: {fault}"


def _object_faults(value: dict[str, Any], kind: Any, path: str) -> Iterator[str]:
    if isinstance(kind, inspect.StructType):
        for member in kind.fields:
            name = member.encode_name
            if name in value:
                yield from _value_faults(value[name], member.type, _step(path, name))
            elif member.required:
                yield f"{_step(path, name)}: is missing"
        return
    for key, content in value.items():
        yield from _value_faults(key, kind.key_type, _step(path, key))
        yield from _value_faults(content, kind.value_type, _step(path, key))


def _fault(value: Any, kind: Any, description: str) -> str:
    """Why a value is invalid; "" if it is valid."""
    if isinstance(kind, inspect.LiteralType):
        return "" if value in kind.values else f"expected one of {', '.join(map(str, kind.values))}, found {_shown(value)}"
    wanted: dict[Any, tuple[type, str]] = {
        inspect.StrType: (str, "text"),
        inspect.IntType: (int, "a whole number"),
        inspect.BoolType: (bool, "true or false"),
        inspect.VarTupleType: (list, "a list"),
    }
    python, words = wanted.get(type(kind), (dict, "an object"))
    if not isinstance(value, python) or (python is int and isinstance(value, bool)):
        hint = {"a list": ", write [] for none)", "an object": ")"}.get(words) if value is None else None
        return f"expected {words}, found {_kind_of(value)}" + (f" (omit the key if it is unknown{hint}" if hint else "")
    bounds: Any = kind
    if isinstance(kind, inspect.IntType) and not bounds.ge <= value <= bounds.le:
        return f"expected a whole number from {kind.ge} to {kind.le}, found {_shown(value)}"
    if isinstance(kind, inspect.StrType):
        rule = Meta(min_length=kind.min_length, max_length=kind.max_length, pattern=kind.pattern)
        try:
            msgspec.convert(value, Annotated[str, rule])
        except msgspec.ValidationError:
            return f"{_shown(value)} is not {description}"
    return ""


def _shown(value: Any) -> str:
    return ascii(value)[:80] if not isinstance(value, str) else ascii(value[:60])


def _step(path: str, key: str) -> str:
    """Path of a key, `packages.pip.numpy`; a key that is not a plain word is quoted and shortened."""
    word = key if _PLAIN_KEY.fullmatch(key) else ascii(key[:60])
    return f"{path}.{word}" if path else word


def _kind_of(value: object) -> str:
    """JSON type of a value, as messages name it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true or false"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list) else "object"
