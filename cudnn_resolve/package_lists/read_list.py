"""Read what other tools install: their locks, lists, notebooks and images, recognized by content.

Of a lock for several platforms and groups, only the packages are read that its tool would install on the machine.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import InputError
from cudnn_resolve.matrix.toml import parse_toml
from cudnn_resolve.package_lists.model import ListedPackage, PackageList, PartSelection, ReadContext, dicts
from cudnn_resolve.requirement.file import Reader
from cudnn_resolve.resolution.marker import marker_environment

if TYPE_CHECKING:
    from cudnn_resolve.requirement.machine import Machine

LIMIT_BYTES = 64 << 20
_MOST_PACKAGES = 50_000
_DEFAULT_PARTS = PartSelection()


def read_list(
    text: str, where: str, machine: Machine, selection: PartSelection = _DEFAULT_PARTS, open_: Reader | None = None
) -> PackageList:
    """Read the packages that a file lists for a machine; raises InputError if the format is unknown or nothing is listed.

    `open_` reads the files that it refers to.
    """
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    kind, content = _recognize(text, where)
    context = ReadContext(where, marker_environment(machine), selection, open_)
    rows = list(_reader(kind)(content, context))
    if len(rows) > _MOST_PACKAGES:
        raise InputError(f"{where} lists more than {_MOST_PACKAGES} packages", code="list-too-long")
    if not rows and not context.loose:
        raise _empty(kind, context)
    if (selection.extras or selection.groups) and kind not in _WITH_PARTS:
        hint = f"they are for {', '.join(sorted(_WITH_PARTS))}"
        raise InputError(f"{where} has no extras or groups ({kind})", code="list-part", hint=hint)
    line_of = _line_finder(text, is_lock=kind.endswith((".lock", ".toml")))
    packages: dict[str, ListedPackage] = {}
    for row in rows:
        known = packages.get(row.name)
        if known is None:
            packages[row.name] = row if row.line is not None or row.file else replace(row, line=line_of(row.name, row.version))
        elif known.version != row.version:
            context.gap(f"{row.name} is listed twice, as {known.version} and {row.version}: the first one counts")
    return PackageList(
        kind=kind,
        packages=tuple(packages.values()),
        loose=tuple(context.loose.values()),
        constraints=tuple(context.constraints),
        clash=context.clash,
        base=context.base,
        python=context.python,
        partial=context.partial,
        notes=tuple(context.notes),
        gaps=context.gaps,
    )


def _empty(kind: str, context: ReadContext) -> InputError:
    remarks = "; ".join((*context.gaps, *context.notes)) or None
    if kind in ("notebook", "Dockerfile"):
        hint = "run `cudnn-resolve check` inside the environment that it creates"
        return InputError(f"{context.where} installs nothing that can be judged ({kind})", code="list-empty", context=remarks, hint=hint)
    return InputError(f"{context.where} lists no package for this machine ({kind})", code="list-empty", context=remarks)


# ---- recognition


def kind_of(text: str) -> str | None:
    """The format of a text; None for requirements, and if it is unknown."""
    try:
        kind, _ = _recognize(text.replace("\r\n", "\n"), "")
    except InputError:
        return None
    return kind if kind != "requirements file" else None


def not_a_pylock(text: str, where: str) -> InputError | None:
    """The error for a file of another tool in place of a `pylock.toml`; None if it is not recognized as one."""
    kind = kind_of(text)
    if kind is None or kind == "pylock.toml":
        return None
    command = "`uv export --format pylock.toml -o pylock.toml`" if kind == "uv.lock" else "`cudnn-resolve lock`"
    hint = f"`cudnn-resolve check {shlex.quote(where)}` judges it; {command} makes a lock that plan and apply accept"
    form = f"output of `{kind}`" if " " in kind else f"a{'n' if kind[0] in 'aeio' else ''} {kind}"
    return InputError(f"{where} is {form}, not a pylock.toml", code="lock-form", hint=hint)


def _recognize(text: str, where: str) -> tuple[str, Any]:
    """The format of a text, and its content, parsed if it is JSON or TOML."""
    start = text.lstrip("\ufeff \t\r\n")
    if re.match(r"\{|\[\s*[\]{]", start):
        kind = _json_kind(found := _parse_json(start, where))
        if kind is None:
            raise _unknown_format(where, "JSON", "known are Pipfile.lock, notebooks, `pip list --format json` and `conda list --json`")
        return kind, found
    if re.match(r"(?:[^\S\n]*(?:#[^\n]*)?\n)*(?:\[\[?[\w.-]+\]\]?[ \t]*(?:#.*)?(?:\n|\Z)|[\w-]+\s*=\s*[\[{\"'\d])", text):
        found = parse_toml(text, where)
        kind = _toml_kind(found)
        if kind is None:
            raise _unknown_format(where, "TOML", "`cudnn-resolve plan -r FILE` resolves the requirements of a pyproject.toml")
        return kind, found
    return next((kind for kind, sign in _TEXTS if sign.search(text)), "requirements file"), text


_TEXTS = (
    ("pip list", re.compile(r"^Package +Version[^\n]*\n-{3,} +-{3,}", re.MULTILINE)),
    ("conda list", re.compile(r"^# packages in environment at |^# +Name +Version +Build", re.MULTILINE)),
    ("conda list --explicit", re.compile(r"^@EXPLICIT\b", re.MULTILINE)),
    ("pixi.lock", re.compile(r"\A(?:#[^\n]*\n|\s)*version: *\d+[ \t]*\n(?s:.*?)^environments:", re.ASCII | re.MULTILINE)),
    ("conda-lock.yml", re.compile(r"^package:(?:\s|$)", re.MULTILINE)),
    ("environment.yml", re.compile(r"^dependencies:(?:\s|$)", re.MULTILINE)),
    ("Dockerfile", re.compile(r"^[ \t]*FROM[ \t]+\S+", re.MULTILINE | re.IGNORECASE)),
)


def _unknown_format(where: str, language: str, hint: str) -> InputError:
    return InputError(f"{where} is {language} of an unknown format", code="list-form", hint=hint)


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON: {error!s:.200}", code="list-form") from None


def _json_kind(found: Any) -> str | None:
    if isinstance(found, list):
        is_conda = any("channel" in row or "build_string" in row for row in found if isinstance(row, dict))
        return "conda list --json" if is_conda else "pip list --format json"
    if "nbformat" in found:
        return "notebook"
    if isinstance(found.get("_meta"), dict) and isinstance(found.get("default"), dict):
        return "Pipfile.lock"
    return None


def _toml_kind(found: Mapping[str, Any]) -> str | None:
    if "lock-version" in found and isinstance(found.get("packages"), list):
        return "pylock.toml"
    metadata = found.get("metadata")
    if isinstance(found.get("package"), list):
        if isinstance(metadata, dict) and "lock-version" in metadata:
            return "poetry.lock"
        if isinstance(metadata, dict) and "lock_version" in metadata:
            return "pdm.lock"
        if "version" in found:
            return "uv.lock"
    return None


_NAME_IN_LOCK = re.compile(r"""\s*(?:name\s*=\s*["']|["'])([A-Za-z0-9][\w.-]{0,120})["']""")
_NAME_IN_LIST = re.compile(r"""[\s\[{-]*(?:"?name"?\s*:\s*"?)?([A-Za-z0-9][\w.-]{0,120})""")


def _line_finder(text: str, *, is_lock: bool) -> Callable[[str, str], int | None]:
    """Return a function that finds the line on which a package is pinned; in a lock, the line of its name."""
    lines = text.split("\n")
    numbers: dict[str, list[int]] = {}
    pattern = _NAME_IN_LOCK if is_lock else _NAME_IN_LIST
    for number, line in enumerate(lines, start=1):
        found = pattern.match(line[:400])
        if found:
            numbers.setdefault(canonicalize_name(found[1]), []).append(number)

    def line_of(name: str, version: str) -> int | None:
        candidates = numbers.get(name, [])
        following = 1 if is_lock else 0
        exact = (number for number in candidates if any(version in line for line in lines[number - 1 : number + following]))
        return next(exact, candidates[0] if candidates else None)

    return line_of


# ---- readers


def _pip_json(found: list[Any], context: ReadContext) -> Iterator[ListedPackage]:
    for row in dicts(found):
        yield from context.package(row.get("name"), row.get("version"))


def _pip_list(text: str, context: ReadContext) -> Iterator[ListedPackage]:
    lines = iter(text.splitlines())
    for line in lines:
        if re.match(r"-{3,} +-{3,}", line):
            break
    for line in lines:
        words = line.split()
        # Other lines are `[notice] A new release`, `WARNING: x`, or a prompt.
        if len(words) > 1 and re.fullmatch(r"[A-Za-z0-9][\w.-]*", words[0]):
            yield from context.package(words[0], words[1])


_WITH_PARTS = frozenset({"pylock.toml", "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "conda-lock.yml", "pixi.lock"})
"""Formats with extras, groups, categories or environments."""


def _reader(kind: str) -> Callable[[Any, ReadContext], Iterator[ListedPackage]]:
    """The reader of a format; the readers are imported only when a file is read."""
    from cudnn_resolve.package_lists import conda, dockerfile, install_lines, notebook, tool_locks

    readers: dict[str, Callable[[Any, ReadContext], Iterator[ListedPackage]]] = {
        "pylock.toml": tool_locks.read_pylock,
        "uv.lock": tool_locks.read_uv,
        "poetry.lock": tool_locks.read_poetry,
        "pdm.lock": tool_locks.read_pdm,
        "Pipfile.lock": tool_locks.read_pipfile,
        "conda-lock.yml": conda.read_conda_lock,
        "pixi.lock": conda.read_pixi,
        "environment.yml": conda.read_environment,
        "conda list": conda.read_table,
        "conda list --json": conda.read_json,
        "conda list --explicit": conda.read_explicit,
        "pip list": _pip_list,
        "pip list --format json": _pip_json,
        "requirements file": install_lines.read_requirements,
        "notebook": notebook.read_notebook,
        "Dockerfile": dockerfile.read_dockerfile,
    }
    return readers[kind]
