"""What lines install, one after the other: requirements files, and the words of `pip install`. A later line overrides an earlier one."""

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

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.check_pylock import parse_toml
from cudnn_resolve.locking.listing import LONGEST_NAME, Listed, Loose, Reading, table
from cudnn_resolve.masking import without_logins
from cudnn_resolve.matrix.toml import texts
from cudnn_resolve.requirement.file import FILES, LONGEST, logical_lines
from cudnn_resolve.resolution.release import version_within

_PIN = re.compile(r"={2,3}\s*[^*\s,;]+")
_OPTIONS = re.compile(r"(?:^|\s)#|\s(?=--?[a-z])")
VARIANT = re.compile(r"/(cu\d{2,3}|cpu|xpu|rocm[\d.]*)(?=/|$)")
"""An index of one variant, in its address."""
_BACKEND = re.compile(r"--torch-backend[=\s]\s*(\S+)")
_FILE = re.compile(r"(?:(--requirements?|--constraints?)[=\s]|(-[rc])[=\s]?)\s*(\S.*)")
_INDEX = re.compile(r"(?:--(?:index-url|default-index|index|extra-index-url|find-links)[=\s]|-[if][=\s]?)\s*[\"']?([^\s\"']+)[\"']?")
_IDLE = re.compile(
    r"--(?:pre|no-index|prefer-binary|require-hashes|(?:no-binary|only-binary|trusted-host|use-feature|config-settings)\b.*)(?:\s|$).*"
)
_VALUED = frozenset(
    {"-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints", "-i", "--index-url", "--extra-index-url", "-f"}
    | {"--find-links", "--default-index", "--index", "-e", "--editable", "--torch-backend"}
)
"""Options of `pip install` with a value that decides what is installed."""
_SKIPPED = frozenset(
    {"-t", "--target", "--prefix", "--root", "--src", "--platform", "--python-version", "--python", "-p", "--implementation", "--abi"}
    | {"--timeout", "--retries", "--trusted-host", "--cache-dir", "--progress-bar", "--no-binary", "--only-binary", "--log", "--proxy"}
    | {"--cert", "--client-cert", "--root-user-action", "--upgrade-strategy", "--exists-action", "--use-feature", "--index-strategy"}
    | {"--resolution", "--prerelease", "--exclude-newer", "--config-settings", "-C", "--no-build-isolation-package"}
)
"""Options with a value that does not."""
_GLOBAL = frozenset({"--keyring-provider", "--use-deprecated", "--directory", "--project", "--config-file", "--color"})
"""Further ones, before the command."""
_NO_INSTALL = frozenset(
    {"", "uninstall", "config", "cache", "list", "freeze", "show", "check", "download", "wheel", "debug", "hash", "inspect", "index"}
)


class Line(NamedTuple):
    """One requirement, and where it stands."""

    text: str
    line: int | None
    file: str | None
    is_limit: bool


class _Command(NamedTuple):
    """What counts for all requirements of one command."""

    variants: tuple[str, ...]
    limits: Mapping[str, Sequence[Requirement]]
    """Its constraints, by the names of the packages."""
    mine: set[str]
    """Packages that it pinned so far."""
    loose: set[str]
    """Packages that it asked for without a version so far."""
    upgrade: bool
    alone: bool
    number: int


class Installs:
    """What an environment holds while lines install into it."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._pins: dict[str, Listed] = {}
        self._nameless: list[str] = []
        self._commands = 0

    def put(self, row: Listed) -> None:
        """Install a version in the place of another one."""
        self.reading.loose.pop(row.name, None)
        self._pins[row.name] = row

    def loosen(self, loose: Loose) -> None:
        """Leave the version to the installer."""
        self._pins.pop(loose.name, None)
        self.reading.loose[loose.name] = loose

    def remove(self, names: Iterable[str]) -> None:
        """Take packages out."""
        for name in map(canonicalize_name, names):
            self._pins.pop(name, None)
            self.reading.loose.pop(name, None)

    def rows(self) -> Iterator[Listed]:
        """What is there in the end."""
        if self._nameless:
            self.reading.gap(f"of no known version, so not judged: {_few(self._nameless)}")
        yield from self._pins.values()

    def take(self, lines: Iterable[Line], *, upgrade: bool = False, alone: bool = False) -> None:
        """Carry out one command: its requirements, the files that they name, and the indexes that count for all of them.

        `alone`: what they require is not installed.
        """
        addresses: list[str] = []
        flat = list(self._flat(lines, addresses))
        variants = tuple(dict.fromkeys(found[1] for found in map(VARIANT.search, addresses) if found))
        for address in addresses:
            if not VARIANT.search(address):
                self.reading.note(f"packages come from {without_logins(address)[:80]}, too: judged by name and version")
        self._commands += 1
        command = _Command(variants, self._limits(one for one in flat if one.is_limit), set(), set(), upgrade, alone, self._commands)
        for one in flat:
            if not one.is_limit:
                self._requirement(one, command)

    def _flat(self, lines: Iterable[Line], addresses: list[str]) -> Iterator[Line]:
        """The requirements, those of the files that they name in their place; what says where packages come from goes to `addresses`."""
        waiting = [iter(lines)]
        seen: set[tuple[str, str, bool]] = set()
        while waiting:
            one = next(waiting[-1], None)
            if one is None:
                waiting.pop()
                continue
            found = _FILE.fullmatch(one.text)
            if found is not None:
                is_limit = one.is_limit or (found[1] or found[2]).startswith(("-c", "--c"))
                if len(seen) < FILES:
                    waiting.append(iter(self._lines_of(found[3].strip(), one.file, seen, is_limit=is_limit)))
                else:
                    self.reading.gap(f"not followed: more than {FILES} files that name one another")
            elif index := _INDEX.fullmatch(one.text):
                addresses.append(index[1])
            elif backend := _BACKEND.fullmatch(one.text):
                self.backend(backend[1], addresses)
            elif not _IDLE.fullmatch(one.text):
                yield one

    def backend(self, name: str, addresses: list[str]) -> None:
        """Take packages from the index that uv's `--torch-backend` chooses; one that the machine of the build decides is not known."""
        address = f"/{name}"
        if VARIANT.fullmatch(address):
            addresses.append(address)
        else:
            self.reading.gap(f"which build of torch `--torch-backend {name[:40]}` takes is decided where it is installed")

    def _lines_of(self, name: str, base: str | None, seen: set[tuple[str, str, bool]], *, is_limit: bool) -> Sequence[Line]:
        reading = self.reading
        option = "-c" if is_limit else "-r"
        if reading.open is None:
            reading.gap(f"not followed: {option} {name[:60]}")
            return ()
        try:
            path, text = reading.open(name, base or reading.where)
        except InputError as error:
            reading.gap(f"not followed: {option} {name[:60]} ({error.message[:120]})")
            return ()
        if (path, text, is_limit) in seen:
            return ()
        seen.add((path, text, is_limit))
        if path.endswith("pyproject.toml"):  # as uv takes it
            return [Line(one[:LONGEST], None, path, is_limit) for one in self._project(text, path)]
        return [Line(line[:LONGEST], number, path, is_limit) for number, line in logical_lines(text.replace("\r\n", "\n"))]

    def _project(self, text: str, path: str) -> list[str]:
        """What a project requires."""
        try:
            project = table(parse_toml(text, path).get("project"))
        except InputError as error:
            self.reading.gap(f"not followed: {error.message[:120]}")
            return []
        if "dependencies" in texts(project.get("dynamic")):
            self.reading.gap(f"what {path[-60:]} requires is worked out when it is built")
        return texts(project.get("dependencies"))

    def line(self, text: str, number: int | None) -> None:
        """Take one requirement as a command of its own."""
        self.take([Line(text.strip(), number, None, is_limit=False)])

    def _words(self, one: Line) -> str:
        """What is asked for in a line, without its comment and options; nothing where that is not followed."""
        words, *options = (part.strip() for part in _OPTIONS.split(one.text, maxsplit=1))
        if words.startswith("-"):
            self.reading.gap(f"not followed: {words[:60]}")
            return ""
        if options and (index := _INDEX.match(options[0])):
            self.reading.note(f"pip takes no index on the line of a requirement: {without_logins(index[1])[:80]} is passed over")
        return words

    def _limits(self, lines: Iterable[Line]) -> dict[str, list[Requirement]]:
        """The constraints that hold on the machine."""
        found: dict[str, list[Requirement]] = {}
        for one in lines:
            words = self._words(one)
            try:
                requirement = Requirement(words) if words else None
            except (InvalidRequirement, ValueError, RecursionError):
                requirement = None
            version = pinned(requirement) if requirement is not None else None
            if requirement is None or (requirement.url is not None and version is None):
                if words:
                    self.reading.gap(f"not followed: -c {words[:60]}")
            elif requirement.marker is None or self.reading.holds(str(requirement.marker)):
                name = canonicalize_name(requirement.name)
                limit = Requirement(f"{name}=={version}" if requirement.url is not None else f"{name}{requirement.specifier}")
                self.reading.constraints.setdefault(str(limit))
                found.setdefault(name, []).append(limit)
        return found

    def _requirement(self, one: Line, command: _Command) -> None:
        reading, words = self.reading, self._words(one)
        if not words:
            return
        try:
            requirement = _parsed(words)
        except (InvalidRequirement, ValueError, RecursionError):
            self._archive(words, one, command)
            return
        if requirement.marker is not None and not reading.holds(str(requirement.marker)):
            return
        version, name = pinned(requirement), canonicalize_name(requirement.name)
        if requirement.url is not None and version is None:
            self._nameless.append(name)
            return
        inside = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        limits = command.limits.get(name, ())
        version = self._limited(requirement, version, limits)
        before = reading.loose.get(name) if name in command.loose else None
        if version is None:
            loose = Loose(
                name=name,
                text=inside,
                line=one.line,
                file=one.file,
                variants=command.variants,
                command=command.number,
                alone=command.alone,
            )
            self._loosened(requirement, loose, command)
            return
        if before is not None and not _admits(Requirement(before.text), version):
            reading.refuse(f"{requirement} and {before.text} exclude each other")
        for row in reading.row(name, version, extras=inside, line=one.line, file=one.file, variants=command.variants):
            self._pin(replace(row, command=command.number, alone=command.alone), command.mine)

    def _loosened(self, requirement: Requirement, loose: Loose, command: _Command) -> None:
        """Take what admits several versions, within the limits of its command; `loose` has the extras for a text."""
        name, specifier = loose.name, requirement.specifier
        for limit in command.limits.get(name, ()):
            specifier &= limit.specifier
        before = self.reading.loose.get(name) if name in command.loose else None
        if before is not None:
            specifier &= Requirement(before.text).specifier
        if specifier and version_within(specifier) is None:
            self.reading.refuse(f"no version of {requirement.name} is {specifier}")
        pin = self._pins.get(name)
        if pin is not None and name in command.mine and not specifier.contains(pin.version, prereleases=True):
            self.reading.refuse(f"{requirement} and {name}=={pin.version} exclude each other")
        if command.upgrade or pin is None or not specifier.contains(pin.version, prereleases=True):
            command.loose.add(name)
            self._left_behind(pin, loose)
            self.loosen(replace(loose, text=f"{requirement.name}{loose.text}{specifier}"))
        elif not command.alone:
            self._pins[name] = replace(pin, alone=False)  # pip installs what an installed package lacks

    def _limited(self, requirement: Requirement, version: str | None, limits: Sequence[Requirement]) -> str | None:
        """The version that is asked for, or the one that a constraint pins; where they exclude each other, that is a clash."""
        for limit in limits:
            fixed = pinned(limit)
            if fixed is not None:
                is_admitted = requirement.url is None and _admits(requirement, fixed)
                if version is None and not is_admitted:
                    self.reading.refuse(f"{requirement.name}{requirement.specifier} is excluded by the constraint {limit}")
                if version is None or is_admitted:
                    version = fixed  # of `2.6.0` and a constraint to `2.6.0+cu118` the latter is meant
        against = next((limit for limit in limits if version is not None and not _admits(limit, version)), None)
        if against is not None:
            self.reading.refuse(f"{requirement.name}=={version} is excluded by the constraint {against}")
        return version

    def _pin(self, row: Listed, mine: set[str]) -> None:
        known = self._pins.get(row.name)
        if known is not None and row.name in mine and known.version != row.version:
            self.reading.gap(f"{row.name} is listed twice, as {known.version} and {row.version}: the first counts")
            return
        mine.add(row.name)
        if known is not None and known.version == row.version and not known.alone:
            row = replace(row, alone=False)  # what it requires came with it before
        self._left_behind(known, row)
        self.put(row)

    def _left_behind(self, known: Listed | None, other: Listed | Loose) -> None:
        """Say that what a package brought stays where another version of it comes alone."""
        if known is not None and other.alone and not known.alone:
            self.reading.gap(f"another {known.name} replaces {known.version} with --no-deps: what that one brought is not judged")

    def _archive(self, words: str, one: Line, command: _Command) -> None:
        """A wheel that is named by its address alone."""
        found = wheel_at(words)
        if found is None:
            self.reading.gap(f"not followed: {words[:60]}" if re.match(r"[./~]|\w+[:+]", words) else f"no requirement: {words[:60]!r}")
            return
        for row in self.reading.row(*found, line=one.line, file=one.file, command=command.number, alone=command.alone):
            self._pin(row, command.mine)

    def pip(self, words: Sequence[str], number: int | None, file: str | None = None) -> bool:
        """Carry out the words after `pip`; False where the command is not known."""
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
                lines += [word] if word.partition("=")[0] in _VALUED else []
                lines += [f"{word[:2]} {word[2:]}"] if word[:2] in ("-r", "-c", "-i", "-f") and len(word) > 2 else []
            else:
                lines.append(f"-r {word}" if command == "sync" else word)
        self.take([Line(line, number, file, is_limit=False) for line in lines], upgrade=upgrade, alone=alone)
        return True


@lru_cache(maxsize=1024)
def _parsed(words: str) -> Requirement:
    requirement = Requirement(words)
    if len(requirement.name) > LONGEST_NAME:
        raise InvalidRequirement("the name is too long for a package")
    return requirement


def _admits(requirement: Requirement, version: str) -> bool:
    """Whether a requirement admits a version; one that cannot be read is told elsewhere."""
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except (InvalidVersion, ValueError):
        return True


def _few(names: Sequence[str]) -> str:
    shown = [name[:60] for name in names[:6]]
    return ", ".join(shown) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def wheel_at(address: str) -> tuple[str, str] | None:
    """Name and version in an address of a wheel."""
    try:
        name, version, *_ = parse_wheel_filename(unquote(address.partition("#")[0].partition("?")[0].rpartition("/")[2]))
    except (InvalidWheelFilename, InvalidVersion, ValueError):
        return None
    return name, str(version)


def pinned(requirement: Requirement) -> str | None:
    """The one version that a requirement admits: `==2.6.0`, or the wheel at its address."""
    if requirement.url is not None:
        found = wheel_at(requirement.url)
        return found[1] if found is not None else None
    if _PIN.fullmatch(str(requirement.specifier)) is None:
        return None
    return str(requirement.specifier).lstrip("=").strip()


def read_requirements(text: str, reading: Reading) -> Iterator[Listed]:
    """A requirements file: what it pins, what it leaves open, and the files that it names."""
    installs = Installs(reading)
    installs.take(Line(line, number, None, is_limit=False) for number, line in logical_lines(text))
    reading.partial = True
    yield from installs.rows()


_UNTIL_COMMENT = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?P<comment>(?:^|(?<=[\s;&|()]))#[^\n]*)|[^\\'\"#]+|.", re.DOTALL)


def words_of(text: str) -> list[str]:
    """The words of a shell's line, operators apart and without its comment; ValueError where its quotes do not close."""
    if "#" in text:
        text = _UNTIL_COMMENT.sub(lambda found: "" if found["comment"] else found[0], text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    return list(lexer)
