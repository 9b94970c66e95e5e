"""From options to the request that a resolution answers."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import InputError, UsageError, did_you_mean
from cudnn_resolve.host import disk
from cudnn_resolve.host.files import exists, path_from, read_bounded
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.toml import decode
from cudnn_resolve.operations.options import FACTS, INDEXES, Options, option_words
from cudnn_resolve.requirement.model import Limit, Request, RequirementLine, Target
from cudnn_resolve.requirement.source import Direct

if TYPE_CHECKING:
    from cudnn_resolve.requirement.file import Line, Reference, Setting

_ADDRESSES = frozenset({"--index-url", "--extra-index-url", "--find-links"})
_PROPOSED = (
    *("requirement", "constraint", "group", "facts", "python", "env", "kernel", *FACTS),
    *("allow_break", "reinstall_package", "prefer", "pre", "matrix", *INDEXES, "upgrade", "upgrade_package"),
)
"""Options that a proposed command repeats if it has them, in this order; targets and limits come from the request."""
_SINGLE = frozenset({"--index-url", "--pre"})
"""Options of which one counts: that of the command line, else the first one in a file."""
_ONLY_IN_FILES = frozenset({"--no-index", "--trusted-host"})
"""Settings of requirements files without an option of ours."""
COMMAND_LINE = "the command line"
"""Origin of a requirement that is in no file."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
REQUIREMENTS_BYTES = 4 * 1024 * 1024
"""Size limit of a requirements file."""


class Requirements(Struct, frozen=True, kw_only=True):
    """Requirements of files and of the command line, except `--framework`, and settings in the files."""

    extras: tuple[RequirementLine, ...] = ()
    """Those of the command line first."""
    references: tuple[Reference, ...] = ()
    settings: tuple[Setting, ...] = ()


def request_of(options: Options, book: Book, requirements: Requirements, direct: Sequence[Direct] = ()) -> Request:
    """Build the request; UsageError or InputError for an invalid requirement, or without any target.

    `direct` holds the packages behind the references.
    """
    from cudnn_resolve.requirement.target import merge_targets, parse_target

    pre = options.pre or any(setting.option == "--pre" for setting in requirements.settings)
    targets, extras = [], []
    for text in options.framework:
        if _companion(text, book) is None:
            targets.append(parse_target(text, book))
        else:
            extras.append(RequirementLine(text=text, origin=COMMAND_LINE))
    for extra in requirements.extras:
        target = None if extra.constraint else _framework(extra, book)
        if target is None:
            extras.append(extra)
        else:
            targets.append(target)
    if not targets:
        targets = list(_implied(extras, book))
    if not targets and not options.reinstall_package:
        near = dict.fromkeys(f"`{name}`" for text in options.packages for name in book.nearest(text))
        known = ", ".join(book.frameworks())
        hint = f"{did_you_mean(near)} name one: `-f tensorflow==2.15`; known: {known}; other packages are planned together with one"
        raise UsageError("no framework is asked for", code="no-target", hint=hint.strip())
    plain = request_without_targets(options)
    typed = [extra.text for extra in extras if extra.origin == COMMAND_LINE]
    typed += [reference.place for reference in requirements.references if reference.origin == COMMAND_LINE]
    return replace(
        plain,
        context=(*(("", text) for text in typed), *plain.context),
        allow_break=frozenset(_framework_named(name, book) for name in options.allow_break),
        targets=merge_targets(replace(target, pre=pre) for target in targets if target.marker is None),
        conditional=tuple(replace(target, pre=pre) for target in targets if target.marker is not None),
        pre=pre,
        requirements=tuple(extras),
        direct={package.name: package for package in direct},
        settings=tuple(_settings(requirements, options)),
    )


def _companion(text: str, book: Book) -> str | None:
    """The framework that a companion package belongs to, `torch` for `torchvision>=0.21`; None for other packages and frameworks."""
    name = _NAME.match(text.strip())
    return book.companion_of(name[0]) if name is not None and book.framework_named(name[0]) is None else None


def _implied(extras: Iterable[RequirementLine], book: Book) -> Iterator[Target]:
    """Frameworks of companion packages, for a request that names no framework."""
    from packaging.specifiers import SpecifierSet

    for extra in extras:
        framework = None if extra.constraint else _companion(extra.text, book)
        if framework is not None:
            yield Target(text=framework, framework=framework, specifier=SpecifierSet(), origin=f"`{extra.text}`, its companion")


def _framework_named(name: str, book: Book) -> str:
    """Normalized name of a framework; UsageError for an unknown one."""
    try:
        return book.framework(name).name
    except KeyError:
        suggestion = did_you_mean(f"`{near}`" for near in book.nearest(name))
        raise UsageError(
            f"no framework is called `{name}`",
            code="unknown-framework",
            context="--allow-break",
            hint=f"{suggestion} known: {', '.join(book.frameworks())}".strip(),
        ) from None


def request_without_targets(options: Options) -> Request:
    """The part of a request that says how to plan, without targets; UsageError for an invalid limit."""
    return Request(
        targets=(),
        cuda=_limit(options.cuda, "--cuda"),
        cudnn=_limit(options.cudnn, "--cudnn"),
        prefer=options.prefer or "installed",
        driver_policy=options.driver_policy or "minor",
        device=options.device or "gpu",
        strict_pins=options.strict_pins,
        channel=options.channel or "auto",
        variant_indexes=not options.no_variant_indexes,
        context=_context(options),
    )


def _limit(text: str | None, option: str) -> Limit | None:
    if not text:
        return None
    from cudnn_resolve.requirement.target import parse_limit

    return parse_limit(text, option)


def requirements_of(options: Options) -> Requirements:
    """Read the packages of the command line, and the files of `-r`, `-c` and `--group`; InputError for an unreadable one."""
    if not (options.packages or options.requirement or options.constraint or options.group):
        return Requirements()
    from cudnn_resolve.requirement.file import Reference, Setting

    lines = list(_lines(options))
    return Requirements(
        extras=tuple(line for line in lines if isinstance(line, RequirementLine)),
        references=tuple(line for line in lines if isinstance(line, Reference)),
        settings=tuple(_located(line) for line in lines if isinstance(line, Setting)),
    )


def _located(setting: Setting) -> Setting:
    """Resolve `--find-links` as pip does: relative to its file if that exists, else to the current folder."""
    if setting.option != "--find-links" or "://" in setting.value or setting.value.startswith("file:"):
        return setting
    near = path_from(setting.value, setting.origin.rpartition(":")[0])
    return replace(setting, value=near) if exists(near) else setting


def _lines(options: Options) -> Iterator[Line]:
    from cudnn_resolve.requirement.file import read_requirements
    from cudnn_resolve.requirement.project import read_group, read_project

    typed = "\n".join(" ".join(word.split()) for word in options.packages)
    yield from (replace(line, origin=COMMAND_LINE) for line in read_requirements(COMMAND_LINE, lambda *_: (COMMAND_LINE, typed)))
    for path in options.requirement:
        file, _, extras = path.partition("[") if path.endswith("]") else (path, "", "]")
        file = _project_file(file)
        if os.path.basename(file) == "pyproject.toml":
            yield from read_project(_project_table(file), file, [extra.strip() for extra in extras[:-1].split(",") if extra.strip()])
        else:
            yield from read_requirements(path, _read_requirements_file)
    for word in options.group:
        where, _, name = word.rpartition(":")
        file = _project_file(where) if where else "pyproject.toml"
        yield from read_group(_project_table(file), file, name)
    for path in options.constraint:
        yield from read_requirements(path, _read_requirements_file, constraint=True)


def _read_requirements_file(path: str, base: str | None) -> tuple[str, str]:
    where = path_from(path, base)
    return where, read_bounded(where, REQUIREMENTS_BYTES, "requirements file")


def _project_file(path: str) -> str:
    return os.path.join(path, "pyproject.toml") if disk.is_folder(path) else path


def _project_table(path: str) -> dict[str, Any]:
    try:
        return decode(read_bounded(path, REQUIREMENTS_BYTES, "project file"))
    except ValueError as error:
        raise InputError(f"is not TOML: {error}", code="project-invalid", context=path) from None


def _framework(extra: RequirementLine, book: Book) -> Target | None:
    """The target for a requirement that names a framework; None for other packages."""
    from packaging.requirements import Requirement

    from cudnn_resolve.requirement.target import parse_target

    requirement = Requirement(extra.text)
    is_typed = extra.origin == COMMAND_LINE
    if book.framework_of(requirement.name) is None and not (is_typed and book.framework_named(requirement.name) is not None):
        return None
    marker, requirement.marker = requirement.marker, None
    target = parse_target(str(requirement) if marker else extra.text, book)
    return replace(target, origin=None if is_typed else extra.origin, marker=str(marker) if marker else None, hashes=extra.hashes)


def _context(options: Options) -> tuple[tuple[str, str], ...]:
    """Options about machine and environment, for proposed commands; credentials are left out."""
    if options.prefer == "installed":
        options = replace(options, prefer=None)
    names = (name for name in _PROPOSED if name in options.__struct_fields__)
    return tuple((name, _redacted(name, value)) for name, value in option_words(options, names))


def _redacted(option: str, value: str) -> str:
    """Value of an option, without the login in a URL."""
    if option not in _ADDRESSES:
        return value
    from cudnn_resolve.masking import redacted

    return redacted(value)


def _settings(requirements: Requirements, options: Options) -> Iterator[tuple[str, str]]:
    """Index settings in files as options, for a command that does not name the files; credentials are left out."""
    known = {name for name, _ in _context(options)}
    settings = ((setting.option, setting.value) for setting in requirements.settings if setting.option not in _ONLY_IN_FILES)
    for option, value in dict.fromkeys(settings):
        if option not in _SINGLE or option not in known:
            known.add(option)
            yield option, _redacted(option, value)


# ---- constraints files that the environment configures for pip and uv


MOST_FILES = 50
"""Limit on files that are read, including nested ones."""
_NESTED = r"(?:-c|--constraint|-r|--requirement)[=\s]\s*(\S.*)"
_AT_URL = r"([A-Za-z0-9][\w.-]{0,199})\s*(?:\[[^\]]{0,500}\])?\s*@\s*\S"


def configured_constraints(constraints: Iterable[tuple[str, str]], notes: list[str]) -> Iterator[RequirementLine]:
    """Read constraints from files, each given with the setting that names it (`PIP_CONSTRAINT`).

    Whatever is unreadable or no limit on a version (a package at a URL, a file on a server, another option) is skipped and added to
    `notes`: the environment's configuration must not prevent a plan.
    """
    for path, setting in constraints:
        found = list(_ConstraintReader(setting, notes).read(path))
        if found:
            notes.append(f"applied {len(found)} constraint{'s' if len(found) > 1 else ''} from {path} ({setting})")
        yield from found


class _ConstraintReader:
    """Reads a constraints file and those nested in it."""

    def __init__(self, setting: str, notes: list[str]) -> None:
        self._setting, self._notes = setting, notes
        self._seen: set[str] = set()

    def read(self, path: str, base: str | None = None) -> Iterator[RequirementLine]:
        """Constraints in a file that is named in the file `base`."""
        local = _local_path(path)
        if local is None:
            self._note("constraints on a server are not read; download the file, and name it with --constraint")
            return
        where = path_from(local, base)
        if where in self._seen or len(self._seen) >= MOST_FILES:
            return
        self._seen.add(where)
        try:
            text = read_bounded(where, REQUIREMENTS_BYTES, "constraints file")
        except InputError as error:
            self._note(f"{error.message}: its constraints are ignored")
            return
        from cudnn_resolve.requirement.file import logical_lines

        for number, line in logical_lines(text):
            yield from self._read_line(line, f"{where}:{number}", where)

    def _read_line(self, line: str, origin: str, where: str) -> Iterator[RequirementLine]:
        from cudnn_resolve.requirement.file import parse_requirement

        nested, at_url = re.fullmatch(_NESTED, line), re.match(_AT_URL, line)
        if nested is not None:
            yield from self.read(nested[1].strip(), where)
        elif line.startswith("-"):
            self._note(f"{origin}: options are ignored here")
        elif at_url is not None:
            self._note(f"{origin} pins {at_url[1]} to a URL, which is ignored here")
        else:
            try:
                requirement = parse_requirement(line.partition(" --")[0].strip(), origin, base=None, constraint=True)
            except InputError:
                self._note(f"{origin} is not a valid requirement")
                return
            if isinstance(requirement, RequirementLine):
                yield RequirementLine(text=requirement.text, origin=f"{origin}, named by {self._setting}", constraint=True)

    def _note(self, text: str) -> None:
        note = f"{self._setting}: {text}"
        if note not in self._notes:
            self._notes.append(note)


def _local_path(text: str) -> str | None:
    """The path in a setting; None for a file on a server."""
    if text.startswith("file:"):
        from urllib.parse import unquote, urlsplit

        return unquote(urlsplit(text).path)
    return None if "://" in text or text == "-" else text
