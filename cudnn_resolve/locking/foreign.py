"""What other tools say is installed, or will be: their locks, lists, notebooks and images, recognised by content.

From a lock for several platforms and groups the packages are taken that the tool itself would install on the machine.
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
from cudnn_resolve.locking.check_pylock import parse_toml
from cudnn_resolve.locking.listing import Choice, Listed, PackageList, Reading, dicts
from cudnn_resolve.requirement.file import Reader
from cudnn_resolve.resolution.marker import marker_environment

if TYPE_CHECKING:
    from cudnn_resolve.requirement.machine import Machine

LIMIT_BYTES = 64 << 20
_PACKAGES = 50_000
_ALL = Choice()


def read_list(text: str, where: str, machine: Machine, choice: Choice = _ALL, open_: Reader | None = None) -> PackageList:
    """The packages that a file lists for a machine; InputError where it is of no known form, or names none.

    `open_` gives the files that it names itself.
    """
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    kind, found = _recognised(text, where)
    reading = Reading(where, marker_environment(machine), choice, open_)
    rows = list(_reader(kind)(found, reading))
    if len(rows) > _PACKAGES:
        raise InputError(f"{where} lists more than {_PACKAGES} packages", code="list-too-long")
    if not rows and not reading.loose:
        context = "; ".join((*reading.gaps, *reading.notes)) or None
        if kind in ("notebook", "Dockerfile"):
            hint = "in the environment that it makes, `cudnn-resolve check` judges what is there"
            raise InputError(f"{where} installs nothing that can be judged ({kind})", code="list-empty", context=context, hint=hint)
        raise InputError(f"{where} names no package for this machine ({kind})", code="list-empty", context=context)
    if (choice.extras or choice.groups) and kind not in WITH_PARTS:
        raise InputError(
            f"{where} has no extras or groups ({kind})", code="list-part", hint=f"they are for {', '.join(sorted(WITH_PARTS))}"
        )
    lines = _lines(text, is_lock=kind.endswith((".lock", ".toml")))
    packages: dict[str, Listed] = {}
    for one in rows:
        known = packages.get(one.name)
        if known is None:
            packages[one.name] = one if one.line is not None or one.file else replace(one, line=lines(one.name, one.version))
        elif known.version != one.version:
            reading.gap(f"{one.name} is listed twice, as {known.version} and {one.version}: the first counts")
    return PackageList(
        kind=kind,
        packages=tuple(packages.values()),
        loose=tuple(reading.loose.values()),
        constraints=tuple(reading.constraints),
        clash=reading.clash,
        base=reading.base,
        python=reading.python,
        partial=reading.partial,
        notes=tuple(reading.notes),
        gaps=reading.gaps,
    )


# ---- recognition


def kind_of(text: str) -> str | None:
    """What wrote a text; None for requirements, and where nobody knows."""
    try:
        kind, _ = _recognised(text.replace("\r\n", "\n"), "")
    except InputError:
        return None
    return kind if kind != "requirements file" else None


def not_a_pylock(text: str, where: str) -> InputError | None:
    """The refusal of a file that another tool wrote, where a `pylock.toml` is wanted; None where it is not known as one."""
    kind = kind_of(text)
    if kind is None or kind == "pylock.toml":
        return None
    more = "`uv export --format pylock.toml -o pylock.toml`" if kind == "uv.lock" else "`cudnn-resolve lock`"
    hint = f"`cudnn-resolve check {shlex.quote(where)}` judges it; {more} makes a lock that plan and apply take"
    what = f"of the form of `{kind}`" if " " in kind else f"a{'n' if kind[0] in 'aeio' else ''} {kind}"
    return InputError(f"{where} is {what}, and a pylock.toml is wanted", code="lock-form", hint=hint)


def _recognised(text: str, where: str) -> tuple[str, Any]:
    """What wrote a text, and the text parsed as far as that takes."""
    start = text.lstrip("\ufeff \t\r\n")
    if re.match(r"\{|\[\s*[\]{]", start):
        kind = _json_kind(found := _json(start, where))
        if kind is None:
            raise _no_form(where, "JSON", "known are Pipfile.lock, a notebook, `pip list --format json` and `conda list --json`")
        return kind, found
    if re.match(r"(?:[^\S\n]*(?:#[^\n]*)?\n)*(?:\[\[?[\w.-]+\]\]?[ \t]*(?:#.*)?(?:\n|\Z)|[\w-]+\s*=\s*[\[{\"'\d])", text):
        found = parse_toml(text, where)
        kind = _toml_kind(found)
        if kind is None:
            raise _no_form(where, "TOML", "`cudnn-resolve plan -r FILE` resolves what a pyproject.toml asks for")
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


def _no_form(where: str, what: str, hint: str) -> InputError:
    return InputError(f"{where} is {what} of no known form", code="list-form", hint=hint)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error!s:.200}", code="list-form") from None


def _json_kind(found: Any) -> str | None:
    if isinstance(found, list):
        rows = [one for one in found if isinstance(one, dict)]
        return "conda list --json" if any("channel" in one or "build_string" in one for one in rows) else "pip list --format json"
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


_IN_LOCKS = re.compile(r"""\s*(?:name\s*=\s*["']|["'])([A-Za-z0-9][\w.-]{0,120})["']""")
_IN_LISTS = re.compile(r"""[\s\[{-]*(?:"?name"?\s*:\s*"?)?([A-Za-z0-9][\w.-]{0,120})""")


def _lines(text: str, *, is_lock: bool) -> Callable[[str, str], int | None]:
    """A function that finds the line on which a package is pinned; in a lock that is where its name stands."""
    lines = text.split("\n")
    by_name: dict[str, list[int]] = {}
    for number, line in enumerate(lines, start=1):
        found = (_IN_LOCKS if is_lock else _IN_LISTS).match(line[:400])
        if found:
            by_name.setdefault(canonicalize_name(found[1]), []).append(number)

    def line_of(name: str, version: str) -> int | None:
        places = by_name.get(name, [])
        after = 1 if is_lock else 0
        exact = (number for number in places if any(version in line for line in lines[number - 1 : number + after]))
        return next(exact, places[0] if places else None)

    return line_of


# ---- readers


def _pip_json(found: list[Any], reading: Reading) -> Iterator[Listed]:
    for one in dicts(found):
        yield from reading.row(one.get("name"), one.get("version"))


def _pip_list(text: str, reading: Reading) -> Iterator[Listed]:
    lines = iter(text.splitlines())
    for line in lines:
        if re.match(r"-{3,} +-{3,}", line):
            break
    for line in lines:
        words = line.split()
        if len(words) > 1 and re.fullmatch(r"[A-Za-z0-9][\w.-]*", words[0]):  # no name: `[notice] A new release`, `WARNING: x`, a prompt
            yield from reading.row(words[0], words[1])


WITH_PARTS = frozenset({"pylock.toml", "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "conda-lock.yml", "pixi.lock"})
"""Kinds with extras, groups, categories or environments."""


def _reader(kind: str) -> Callable[[Any, Reading], Iterator[Listed]]:
    """The reader of a kind; each is imported where a file of it is read."""
    from cudnn_resolve.locking import conda, dockerfile, install_lines, notebook, tool_locks

    readers: dict[str, Callable[[Any, Reading], Iterator[Listed]]] = {
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
