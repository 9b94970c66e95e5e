"""`Facts` to the JSON object that `detect` prints, and back.

The object is the facts file of `--facts`: every key may be left out and then means unknown; `null` for the driver and `[]` for
a list mean absent. Keys that this version does not know are ignored, so that a newer program's file still serves.
"""

from __future__ import annotations

import json
import re
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
)
from cudnn_resolve.version import Capability

SCHEMA = "cudnn-resolve/detect/1"
LIMIT_BYTES = 64 << 20
"""Largest facts file that is read; the largest real ones are below 1 MB."""
_FAULTS_SHOWN = 20
_HINT = "a facts file is what `cudnn-resolve detect --format json -o FILE` writes"
_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
_SEPARATORS = re.compile(r"[-_.]+")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_+-]{1,80}")
_ROWS = ("gpus", "cuda_toolkits", "cudnn", "frameworks", "problems")


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


# ---- the file


class _Container(Struct, frozen=True, kw_only=True):
    """`docker`, `colab`, `kaggle`, `wsl`; null for none of them."""

    kind: Name | None = None


class FactsFile(Struct, frozen=True, kw_only=True):
    """Facts as they are written; a key that is not there is unknown."""

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
    """The JSON object for `facts`: unknown facts are left out, absent ones are null or empty; only plain dicts and lists inside."""
    file = FactsFile(
        **{
            **{name: getattr(facts, name) for name in facts.__struct_fields__},
            "note": UNSET if facts.note is None else facts.note,
            "container": UNSET if isinstance(facts.container, Unknown) else _Container(kind=facts.container),
            "root": UNSET if facts.root is None else facts.root,
        }
    )
    found: dict[str, Any] = _plain(msgspec.to_builtins(file, enc_hook=dict))
    if not facts.packages.requires:
        del found["packages"]["requires"]
    for row in found.get("frameworks", ()):
        if row["would_load"] is None:
            del row["would_load"]
    return found


def _plain(value: Any) -> Any:
    """The value with lists instead of tuples."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


# ---- JSON to Facts


def decode(text: str, where: str = "the facts file") -> Facts:
    """The facts that a JSON text states; `where` names it in messages.

    FactsError (code `facts-invalid`, exit 2) with all faults at once: no JSON, a key twice, wrong types, versions that cannot be.
    """
    return from_mapping(parse_object(text, where), where)


def from_mapping(found: Mapping[str, Any], where: str = "the facts") -> Facts:
    """The facts that a decoded JSON object states; FactsError as `decode`."""
    stated = {key: _without_nulls(value) if key in _ROWS else value for key, value in found.items()}
    faults = _schema_faults(stated.get("schema"))
    try:
        file = FactsFile() if faults else msgspec.convert(stated, FactsFile)
    except UnicodeEncodeError:
        raise _half_a_character(where) from None
    except (msgspec.ValidationError, RecursionError) as error:
        faults = tuple(_value_faults(stated, inspect.type_info(FactsFile))) or (str(error),)
    else:
        faults = faults or tuple(_twice(file.packages.pip))
    if faults:
        raise FactsError(f"{where} does not hold facts as they are written", faults=faults)
    return _facts(file)


def _facts(file: FactsFile) -> Facts:
    """The facts of a file, names and architectures spelt as they are compared."""
    platform, packages = file.platform, file.packages
    arch = None if platform.arch is None else _ARCHITECTURES.get(platform.arch.lower(), platform.arch)
    pip = packages.pip if isinstance(packages.pip, Unknown) else {_normalized(name): version for name, version in packages.pip.items()}
    frameworks = file.frameworks
    if not isinstance(frameworks, Unknown):
        frameworks = tuple(structs.replace(one, name=_normalized(one.name)) for one in frameworks)
    requires = {_normalized(name): lines for name, lines in packages.requires.items()}
    return Facts(
        **{
            **{name: getattr(file, name) for name in Facts.__struct_fields__},
            "platform": structs.replace(platform, arch=arch),
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
    """A distribution name as packages are compared by; source: PEP 503."""
    return _SEPARATORS.sub("-", name).lower()


# ---- what is wrong with a file


class _RefusedError(ValueError):
    """Something that Python's reader of JSON takes and JSON does not allow."""


def parse_object(text: str, where: str) -> dict[str, Any]:
    """The JSON object in a text, without interpreting it; FactsError as `decode`."""
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
    if "\\ud" in text.lower():
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise _half_a_character(where) from None
    if not isinstance(found, dict):
        raise FactsError(f"{where} holds no facts: expected an object, found {_kind_of(found)}")
    return found


def _half_a_character(where: str) -> FactsError:
    return FactsError(f"{where} holds half a character, which no text has (a lone surrogate, \\ud800 to \\udfff)")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _RefusedError(f"the key {twice[:60]!a} stands twice in one object")
    return found


def _refuse_constant(word: str) -> Any:
    raise _RefusedError(f"{word} is not a value that JSON has")


def _without_nulls(rows: Any) -> Any:
    """Rows without the fields that are null, which is the same as leaving them out."""
    if isinstance(rows, dict):
        return {key: _without_nulls(value) if isinstance(value, dict) else value for key, value in rows.items() if value is not None}
    return [_without_nulls(row) if isinstance(row, dict) else row for row in rows] if isinstance(rows, list) else rows


def _schema_faults(schema: Any) -> tuple[str, ...]:
    """The fault of a file that is none of facts, whose other keys nobody needs to look at."""
    if schema is None or schema == SCHEMA or not isinstance(schema, str):
        return ()
    if schema.startswith("cudnn-resolve/") and not schema.startswith("cudnn-resolve/detect/"):
        return (f"schema: this is the output of another command ({schema[:60]!a}), not facts; its `facts` object may be some",)
    return (f"schema: expected {SCHEMA!r}, found {schema[:60]!a}: facts of another format than this program reads",)


def _twice(pip: Mapping[str, str] | Unknown) -> Iterator[str]:
    """A fault for each package that is there under two spellings with two versions."""
    versions: dict[str, str] = {}
    for name, version in ({} if isinstance(pip, Unknown) else pip).items():
        if versions.setdefault(_normalized(name), version) != version:
            same = f"the same package as another entry (both are {_normalized(name)!r}), with another version"
            yield f"{_step('packages.pip', name)}: {same}"


def _value_faults(value: Any, kind: Any, path: str = "", description: str = "") -> Iterator[str]:
    """Every fault of a value that msgspec refused, since msgspec names the first one alone and no keys."""
    if isinstance(kind, inspect.Metadata):
        yield from _value_faults(value, kind.type, path, (kind.extra_json_schema or {}).get("description", description))
    elif isinstance(kind, inspect.UnionType):
        others = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        if value is not None or len(others) == len(kind.types):
            yield from _value_faults(value, others[0], path, description)
    elif isinstance(kind, (inspect.StructType, inspect.DictType)) and isinstance(value, dict):
        yield from _object_faults(value, kind, path)
    elif isinstance(kind, inspect.VarTupleType) and isinstance(value, list):
        for index, one in enumerate(value):
            yield from _value_faults(one, kind.item_type, f"{path}[{index}]")
    else:
        fault = _fault(value, kind, description)
        if fault:
            yield f"{path}: {fault}"


def _object_faults(value: dict[str, Any], kind: Any, path: str) -> Iterator[str]:
    if isinstance(kind, inspect.StructType):
        for one in kind.fields:
            if one.encode_name in value:
                yield from _value_faults(value[one.encode_name], one.type, _step(path, one.encode_name))
            elif one.required:
                yield f"{_step(path, one.encode_name)}: is missing"
        return
    for key, content in value.items():
        yield from _value_faults(key, kind.key_type, _step(path, key))
        yield from _value_faults(content, kind.value_type, _step(path, key))


def _fault(value: Any, kind: Any, description: str) -> str:
    """Why a value is not what it should be; "" where it is."""
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
        return f"expected {words}, found {_kind_of(value)}" + (f" (leave the key out for what is unknown{hint}" if hint else "")
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
    """The path one level down, `packages.pip.numpy`; a key that is no plain word is quoted and shortened."""
    word = key if _PLAIN_KEY.fullmatch(key) else ascii(key[:60])
    return f"{path}.{word}" if path else word


def _kind_of(value: object) -> str:
    """What a decoded JSON value is, in the words of the messages."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true or false"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list) else "object"
