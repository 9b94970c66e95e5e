"""Simulate what requirements files and `pip install` commands install, one after the other; later ones override earlier ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from cudnn_resolve.errors import InputError, first_few
from cudnn_resolve.masking import without_logins
from cudnn_resolve.matrix.toml import parse_toml, texts
from cudnn_resolve.package_lists.model import LONGEST_NAME, ListedPackage, LooseRequirement, ReadContext, table
from cudnn_resolve.requirement.file import FILES, LONGEST, logical_lines
from cudnn_resolve.resolution.release import version_within

_PIN = re.compile(r"={2,3}\s*[^*\s,;]+")
_OPTIONS = re.compile(r"(?:^|\s)#|\s(?=--?[a-z])")
VARIANT = re.compile(r"/(cu\d{2,3}|cpu|xpu|rocm[\d.]*)(?=/|$)")
"""The variant in the URL of an index."""
_BACKEND = re.compile(r"--torch-backend[=\s]\s*(\S+)")
_FILE = re.compile(r"(?:(--requirements?|--constraints?)[=\s]|(-[rc])[=\s]?)\s*(\S.*)")
_INDEX = re.compile(r"(?:--(?:index-url|default-index|index|extra-index-url|find-links)[=\s]|-[if][=\s]?)\s*[\"']?([^\s\"']+)[\"']?")
_IRRELEVANT = re.compile(
    r"--(?:pre|no-index|prefer-binary|require-hashes|(?:no-binary|only-binary|trusted-host|use-feature|config-settings)\b.*)(?:\s|$).*"
)
_VALUED = frozenset(
    {"-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints", "-i", "--index-url", "--extra-index-url", "-f"}
    | {"--find-links", "--default-index", "--index", "-e", "--editable", "--torch-backend"}
)
"""Options of `pip install` whose value decides what is installed."""
_SKIPPED = frozenset(
    {"-t", "--target", "--prefix", "--root", "--src", "--platform", "--python-version", "--python", "-p", "--implementation", "--abi"}
    | {"--timeout", "--retries", "--trusted-host", "--cache-dir", "--progress-bar", "--no-binary", "--only-binary", "--log", "--proxy"}
    | {"--cert", "--client-cert", "--root-user-action", "--upgrade-strategy", "--exists-action", "--use-feature", "--index-strategy"}
    | {"--resolution", "--prerelease", "--exclude-newer", "--config-settings", "-C", "--no-build-isolation-package"}
)
"""Options whose value does not."""
_GLOBAL = frozenset({"--keyring-provider", "--use-deprecated", "--directory", "--project", "--config-file", "--color"})
"""Further options with a value, before the command."""
_NO_INSTALL = frozenset(
    {"", "uninstall", "config", "cache", "list", "freeze", "show", "check", "download", "wheel", "debug", "hash", "inspect", "index"}
)
"""Commands of pip that install nothing."""


class Line(NamedTuple):
    """One line of a requirements file, or one argument of a command."""

    text: str
    line: int | None
    file: str | None
    is_constraint: bool


class _Command(NamedTuple):
    """State and options of one command."""

    number: int
    variants: tuple[str, ...]
    constraints: Mapping[str, Sequence[Requirement]]
    """Constraints by package."""
    pinned: set[str]
    """Packages that it has pinned so far."""
    loose: set[str]
    """Packages that it has requested without a version so far."""
    upgrade: bool
    alone: bool


class SimulatedInstalls:
    """The content of an environment while commands install into it."""

    def __init__(self, context: ReadContext) -> None:
        self.context = context
        self._pins: dict[str, ListedPackage] = {}
        self._without_version: list[str] = []
        self._commands = 0

    def pin(self, package: ListedPackage) -> None:
        """Install a version, replacing any other."""
        self.context.loose.pop(package.name, None)
        self._pins[package.name] = package

    def loosen(self, requirement: LooseRequirement) -> None:
        """Install a version that the installer chooses."""
        self._pins.pop(requirement.name, None)
        self.context.loose[requirement.name] = requirement

    def remove(self, names: Iterable[str]) -> None:
        """Uninstall packages."""
        for name in map(canonicalize_name, names):
            self._pins.pop(name, None)
            self.context.loose.pop(name, None)

    def packages(self) -> Iterator[ListedPackage]:
        """The pinned packages after all commands."""
        if self._without_version:
            names = [name[:60] for name in self._without_version]
            self.context.gap(f"without a known version, so not judged: {first_few(names, 6)}")
        yield from self._pins.values()

    def install(self, lines: Iterable[Line], *, upgrade: bool = False, alone: bool = False) -> None:
        """Run one command: its requirements, the files that they include, and the indexes that apply to all of them.

        `alone`: without dependencies.
        """
        addresses: list[str] = []
        flat = list(self._flatten(lines, addresses))
        variants = tuple(dict.fromkeys(found[1] for found in map(VARIANT.search, addresses) if found))
        for address in addresses:
            if not VARIANT.search(address):
                self.context.note_index(address)
        self._commands += 1
        command = _Command(
            number=self._commands,
            variants=variants,
            constraints=self._constraints(line for line in flat if line.is_constraint),
            pinned=set(),
            loose=set(),
            upgrade=upgrade,
            alone=alone,
        )
        for line in flat:
            if not line.is_constraint:
                self._install_line(line, command)

    def _flatten(self, lines: Iterable[Line], addresses: list[str]) -> Iterator[Line]:
        """The requirements with included files expanded in place; URLs of indexes are added to `addresses`."""
        waiting = [iter(lines)]
        seen: set[tuple[str, str, bool]] = set()
        while waiting:
            line = next(waiting[-1], None)
            if line is None:
                waiting.pop()
                continue
            found = _FILE.fullmatch(line.text)
            if found is not None:
                is_constraint = line.is_constraint or (found[1] or found[2]).startswith(("-c", "--c"))
                if len(seen) < FILES:
                    waiting.append(iter(self._lines_of(found[3].strip(), line.file, seen, is_constraint=is_constraint)))
                else:
                    self.context.gap(f"not followed: more than {FILES} files that include one another")
            elif index := _INDEX.fullmatch(line.text):
                addresses.append(index[1])
            elif backend := _BACKEND.fullmatch(line.text):
                address = f"/{backend[1]}"  # the end of the index that uv chooses, unless the building machine decides
                if VARIANT.fullmatch(address):
                    addresses.append(address)
                else:
                    self.context.gap(f"`--torch-backend {backend[1][:40]}` chooses the build of torch during installation")
            elif not _IRRELEVANT.fullmatch(line.text):
                yield line

    def _lines_of(self, name: str, base: str | None, seen: set[tuple[str, str, bool]], *, is_constraint: bool) -> Sequence[Line]:
        """The lines of an included file; none if it cannot be read, which is a gap, or was included already."""
        context = self.context
        option = "-c" if is_constraint else "-r"
        if context.open is None:
            context.gap(f"not followed: {option} {name[:60]}")
            return ()
        try:
            path, text = context.open(name, base or context.where)
        except InputError as error:
            context.gap(f"not followed: {option} {name[:60]} ({error.message[:120]})")
            return ()
        if (path, text, is_constraint) in seen:
            return ()
        seen.add((path, text, is_constraint))
        if path.endswith("pyproject.toml"):  # uv accepts one, too
            return [Line(requirement[:LONGEST], None, path, is_constraint) for requirement in self._project_requirements(text, path)]
        return [Line(line[:LONGEST], number, path, is_constraint) for number, line in logical_lines(text.replace("\r\n", "\n"))]

    def _project_requirements(self, text: str, path: str) -> list[str]:
        try:
            project = table(parse_toml(text, path).get("project"))
        except InputError as error:
            self.context.gap(f"not followed: {error.message[:120]}")
            return []
        if "dependencies" in texts(project.get("dynamic")):
            self.context.gap(f"the dependencies of {path[-60:]} are dynamic: only a build determines them")
        return texts(project.get("dependencies"))

    def _requirement_text(self, line: Line) -> str:
        """The requirement in a line without its comment and options; empty if it is not supported."""
        text, *options = (part.strip() for part in _OPTIONS.split(line.text, maxsplit=1))
        if text.startswith("-"):
            self.context.gap(f"not followed: {text[:60]}")
            return ""
        if options and (index := _INDEX.match(options[0])):
            self.context.note(f"pip ignores an index on the line of a requirement: {without_logins(index[1])[:80]}")
        return text

    def _constraints(self, lines: Iterable[Line]) -> dict[str, list[Requirement]]:
        """The constraints that apply on the machine, by package."""
        found: dict[str, list[Requirement]] = {}
        for line in lines:
            text = self._requirement_text(line)
            if not text:
                continue
            try:
                requirement = Requirement(text)
            except (InvalidRequirement, ValueError, RecursionError):
                self.context.gap(f"not followed: -c {text[:60]}")
                continue
            version = pinned(requirement)
            if requirement.url is not None and version is None:
                self.context.gap(f"not followed: -c {text[:60]}")
            elif requirement.marker is None or self.context.holds(str(requirement.marker)):
                name = canonicalize_name(requirement.name)
                constraint = Requirement(f"{name}=={version}" if requirement.url is not None else f"{name}{requirement.specifier}")
                self.context.constraints.setdefault(str(constraint))
                found.setdefault(name, []).append(constraint)
        return found

    def _install_line(self, line: Line, command: _Command) -> None:
        text = self._requirement_text(line)
        if not text:
            return
        try:
            requirement = _parsed(text)
        except (InvalidRequirement, ValueError, RecursionError):
            self._install_wheel_url(text, line, command)
            return
        if requirement.marker is None or self.context.holds(str(requirement.marker)):
            self._install_requirement(requirement, line, command)

    def _install_requirement(self, requirement: Requirement, line: Line, command: _Command) -> None:
        context, name = self.context, canonicalize_name(requirement.name)
        version = pinned(requirement)
        if requirement.url is not None and version is None:
            self._without_version.append(name)
            return
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        version = self._constrained(requirement, version, command.constraints.get(name, ()))
        if version is None:
            self._install_loose(requirement, extras, line, command)
            return
        if name in command.loose and name in context.loose:
            loose = context.loose[name]
            if not _admits(Requirement(loose.text), version):
                context.refuse(f"{requirement} and {loose.text} exclude each other")
        for package in context.package(name, version, extras=extras, line=line.line, file=line.file, variants=command.variants):
            self._install_pin(replace(package, command=command.number, alone=command.alone), command.pinned)

    def _install_loose(self, requirement: Requirement, extras: str, line: Line, command: _Command) -> None:
        """Install a requirement that admits several versions, within the constraints of its command."""
        name, specifier = canonicalize_name(requirement.name), requirement.specifier
        for constraint in command.constraints.get(name, ()):
            specifier &= constraint.specifier
        if name in command.loose and name in self.context.loose:
            specifier &= Requirement(self.context.loose[name].text).specifier
        if specifier and version_within(specifier) is None:
            self.context.refuse(f"no version of {requirement.name} satisfies {specifier}")
        pin = self._pins.get(name)
        is_satisfied = pin is not None and specifier.contains(pin.version, prereleases=True)
        if pin is not None and name in command.pinned and not is_satisfied:
            self.context.refuse(f"{requirement} and {name}=={pin.version} exclude each other")
        if command.upgrade or pin is None or not is_satisfied:
            loose = LooseRequirement(
                name=name,
                text=f"{requirement.name}{extras}{specifier}",
                line=line.line,
                file=line.file,
                variants=command.variants,
                command=command.number,
                alone=command.alone,
            )
            command.loose.add(name)
            self._note_orphans(pin, loose)
            self.loosen(loose)
        elif not command.alone:
            self._pins[name] = replace(pin, alone=False)  # pip installs the missing dependencies of an installed package

    def _constrained(self, requirement: Requirement, version: str | None, constraints: Sequence[Requirement]) -> str | None:
        """The requested version, or the one that a constraint pins; refuses the list if they exclude each other."""
        for constraint in constraints:
            fixed = pinned(constraint)
            if fixed is not None:
                is_admitted = requirement.url is None and _admits(requirement, fixed)
                if version is None and not is_admitted:
                    self.context.refuse(f"{requirement.name}{requirement.specifier} is excluded by the constraint {constraint}")
                if version is None or is_admitted:
                    version = fixed  # with `2.6.0` and a constraint to `2.6.0+cu118`, the latter is meant
        against = next((one for one in constraints if version is not None and not _admits(one, version)), None)
        if against is not None:
            self.context.refuse(f"{requirement.name}=={version} is excluded by the constraint {against}")
        return version

    def _install_pin(self, package: ListedPackage, pinned_by_command: set[str]) -> None:
        known = self._pins.get(package.name)
        if known is not None and package.name in pinned_by_command and known.version != package.version:
            self.context.gap(f"{package.name} is listed twice, as {known.version} and {package.version}: the first one counts")
            return
        pinned_by_command.add(package.name)
        if known is not None and known.version == package.version and not known.alone:
            package = replace(package, alone=False)  # its dependencies were installed before
        self._note_orphans(known, package)
        self.pin(package)

    def _note_orphans(self, known: ListedPackage | None, new: ListedPackage | LooseRequirement) -> None:
        """Note that dependencies of the old version stay if the new one is installed without dependencies."""
        if known is not None and new.alone and not known.alone:
            self.context.gap(f"{known.name} {known.version} is replaced with --no-deps: what it required before is not judged")

    def _install_wheel_url(self, text: str, line: Line, command: _Command) -> None:
        """Install a wheel from its bare URL or path."""
        found = wheel_at(text)
        if found is None:
            is_place = re.match(r"[./~]|\w+[:+]", text)
            self.context.gap(f"not followed: {text[:60]}" if is_place else f"not a requirement: {text[:60]!r}")
            return
        for package in self.context.package(*found, line=line.line, file=line.file, command=command.number, alone=command.alone):
            self._install_pin(package, command.pinned)

    def pip(self, words: Sequence[str], number: int | None, file: str | None = None) -> bool:
        """Run the words after `pip`; False if the command is unknown."""
        at = 0
        while at < len(words) and words[at].startswith("-"):
            at += 2 if words[at] in _SKIPPED or words[at] in _GLOBAL else 1
        command, rest = words[at] if at < len(words) else "", iter(words[at + 1 :])
        if command == "uninstall":
            self.remove(word for word in rest if not word.startswith("-"))
        if command not in ("install", "add", "sync"):
            return command in _NO_INSTALL
        lines, upgrade, alone = [], False, command == "sync"
        for word in rest:
            if word in _VALUED:
                lines.append(f"{word} {next(rest, '')}")
            elif word in _SKIPPED:
                next(rest, None)
            elif word.startswith("-"):
                upgrade = upgrade or word in ("-U", "--upgrade", "--force-reinstall")
                alone = alone or word in ("--no-deps", "--no-dependencies")
                if word.partition("=")[0] in _VALUED:
                    lines.append(word)
                if word[:2] in ("-r", "-c", "-i", "-f") and len(word) > 2:
                    lines.append(f"{word[:2]} {word[2:]}")
            else:
                lines.append(f"-r {word}" if command == "sync" else word)
        self.install([Line(line, number, file, is_constraint=False) for line in lines], upgrade=upgrade, alone=alone)
        return True


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Requirement:
    requirement = Requirement(text)
    if len(requirement.name) > LONGEST_NAME:
        raise InvalidRequirement("the name is too long for a package")
    return requirement


def _admits(requirement: Requirement, version: str) -> bool:
    """True if a requirement admits a version; an invalid version is reported elsewhere."""
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except (InvalidVersion, ValueError):
        return True


def wheel_at(address: str) -> tuple[str, str] | None:
    """Name and version in the URL or path of a wheel."""
    try:
        name, version, *_ = parse_wheel_filename(unquote(address.partition("#")[0].partition("?")[0].rpartition("/")[2]))
    except (InvalidWheelFilename, InvalidVersion, ValueError):
        return None
    return name, str(version)


def pinned(requirement: Requirement) -> str | None:
    """The only version that a requirement admits: of `==2.6.0`, or of the wheel at its URL."""
    if requirement.url is not None:
        found = wheel_at(requirement.url)
        return found[1] if found is not None else None
    if _PIN.fullmatch(str(requirement.specifier)) is None:
        return None
    return str(requirement.specifier).lstrip("=").strip()


def read_requirements(text: str, context: ReadContext) -> Iterator[ListedPackage]:
    """A requirements file: its pins, its loose requirements, and the files that it includes."""
    installs = SimulatedInstalls(context)
    installs.install(Line(line, number, None, is_constraint=False) for number, line in logical_lines(text))
    context.partial = True
    yield from installs.packages()


_UNTIL_COMMENT = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?P<comment>(?:^|(?<=[\s;&|()]))#[^\n]*)|[^\\'\"#]+|.", re.DOTALL)


def shell_words(text: str) -> list[str]:
    """Split a shell line into words and operators, without its comment; raises ValueError for unclosed quotes."""
    if "#" in text:
        text = _UNTIL_COMMENT.sub(lambda found: "" if found["comment"] else found[0], text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    return list(lexer)
