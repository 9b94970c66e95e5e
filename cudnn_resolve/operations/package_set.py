"""A set of packages that somebody has: what a file says of them and of the machine, and what an installer adds to them."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.host.files import STDIN, absolute, read_bounded
from cudnn_resolve.locking.foreign import LIMIT_BYTES, read_list
from cudnn_resolve.locking.install_lines import pinned
from cudnn_resolve.locking.package_list import BaseEnvironment, ListedPackage, LooseRequirement, PackageList, PartSelection
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.listed_versions import Wheels, builds_of, has_variants, is_framework, placed
from cudnn_resolve.operations.request import REQUIREMENTS_BYTES
from cudnn_resolve.requirement.file import Reader
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Extra, Request, Target
from cudnn_resolve.requirement.source import File
from cudnn_resolve.resolution import tag
from cudnn_resolve.resolution.attempt import attempt
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.installed import is_frozen
from cudnn_resolve.resolution.model import Resolution
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.vendor import vendor_build

LIVE = "environment"
"""The kind of a set that is installed somewhere."""
_ALL = PartSelection()
_INSTALLERS = frozenset({"pip", "setuptools", "wheel", "uv"})
"""Packages that install, need none, and decide nothing."""
_ROUNDS = 2000


class Subject(Struct, frozen=True, kw_only=True):
    """A set of packages, and where it comes from."""

    name: str
    """The file, or the environment."""
    kind: str
    packages: Mapping[str, str]
    requires: Mapping[str, tuple[str, ...]]
    lines: Mapping[str, int]
    """Package to the line on which it is pinned."""
    files: Mapping[str, str] = {}
    """Package to the file that names it, where that is another one."""
    base: BaseEnvironment | None = None
    """What the file says of the machine."""
    python: str | None = None
    """Pythons that it is for."""
    added: Mapping[str, str] = {}
    """Packages that it does not name, and that an installer brings."""
    clash: str | None = None
    """Why no installer finds what it asks for."""
    conda: frozenset[str] = frozenset()
    """Frameworks that are builds of conda, which brings what they load."""
    foreign: frozenset[str] = frozenset()
    """Those of them that are not made as the wheel is."""
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    """What could change the verdict and was not followed."""
    partial: bool = False
    """True where there may be more packages."""
    unfit: tuple[str, ...] = ()
    """Packages of which the lock holds no file for the machine."""


def subject_of_facts(facts: Facts, name: str | None) -> Subject:
    """What is installed where the facts are from."""
    packages = or_none(facts.packages.pip) or {}
    gaps = tuple(f"{one.what}: {one.why}" for one in facts.problems if one.what == "packages.pip")
    return Subject(
        name=name or "the environment",
        kind=LIVE,
        packages=packages,
        requires=facts.packages.requires,
        lines={},
        gaps=gaps,
        partial=bool(gaps),
    )


def text_of(path: str) -> str:
    """The text of a file to be judged, `-` for standard input."""
    return read_bounded(path, LIMIT_BYTES, "file to be judged")


def subject_of_file(path: str, text: str, book: Book, machine: Machine, choice: PartSelection = _ALL) -> Subject:
    """The packages that a file lists for a machine; InputError where it is none."""
    name = "standard input" if path == STDIN else path
    open_ = _files_beside("." if path == STDIN else os.path.dirname(path) or ".")
    found = read_list(text, name, machine, choice, open_)
    if found.base is not None and found.base.python is not None:  # markers are read for the Python that the file itself names
        machine = placed(found.base, machine)
        found = read_list(text, name, machine, choice, open_)
    wheels = Wheels(book)
    packages = {one.name: version for one in found.packages if (version := wheels.version(one)) is not None}
    here = replace(placed(found.base, machine), pip=packages, requires={})
    own = [
        name
        for name, version in packages.items()
        if not version.replace(".", "").isdigit() and (build := vendor_build(book, here, name)) is not None and build.delivery == "bundled"
    ]
    wheels.gaps += [f"{name} {packages[name]} is its maker's own build: the CUDA and cuDNN of its image are not judged" for name in own]
    named: tuple[ListedPackage | LooseRequirement, ...] = (*found.loose, *found.packages)
    is_all = bool(named) and not found.gaps and all(one.alone for one in named)  # nothing comes that is not named
    subject = Subject(
        name=name,
        kind=found.kind,
        packages=packages,
        requires={},
        lines={one.name: one.line for one in named if one.line is not None},
        files={one.name: one.file for one in named if one.file is not None},
        base=wheels.base(found.base, packages),
        python=found.python,
        clash=found.clash,
        conda=frozenset(one.name for one in found.packages if one.channel is not None or one.cuda is not None),
        foreign=frozenset(one.name for one in found.packages if one.channel is not None),
        notes=found.notes,
        gaps=(*found.gaps, *wheels.gaps),
        partial=found.partial and not is_all and not is_frozen(Context(book, here, OpenRequest(targets=()))),
        unfit=tuple(_unfit(found.packages, machine)),
    )
    return _completed(subject, found, book, machine)


def _files_beside(folder: str) -> Reader:
    """Reads files that a file names: of its own folder and of the current one, and of no other."""
    allowed = [os.path.normpath(absolute(one, None)) for one in (folder, ".")]

    def read(name: str, base: str | None) -> tuple[str, str]:
        if "://" in name:
            raise InputError("it is an address", code="list-outside")
        path = os.path.normpath(os.path.join(os.path.dirname(base) if base and base != "standard input" else folder, name))
        where = os.path.normpath(absolute(path, None))
        if not any(os.path.commonpath((one, where)) == one for one in allowed):
            raise InputError("it lies outside of the folder", code="list-outside")
        return path, read_bounded(path, REQUIREMENTS_BYTES, "requirements file")

    return read


def _unfit(packages: Iterable[ListedPackage], machine: Machine) -> Iterator[str]:
    """Packages whose every file in a lock is a wheel for other machines."""
    target = tag.Target.of(machine)
    for one in packages:
        wheels = all(name.endswith(".whl") for name in one.files)
        if one.files and wheels and tag.best_file((File(name, "", {}) for name in one.files), target) is None:
            yield one.name


# ---- what an installer adds


def _completed(subject: Subject, found: PackageList, book: Book, machine: Machine) -> Subject:
    """The set with what an installer brings for its frameworks: the versions that it chooses, and libraries by the wheels' own pins."""
    loose = {one.name: one for one in found.loose}
    mine = [one for one in found.packages if one.cuda is None and one.channel is None and not one.alone and is_framework(one.name, book)]
    open_ones = [one for one in found.loose if is_framework(one.name, book)]
    rest = sorted(loose.keys() - {one.name for one in open_ones} - _INSTALLERS)
    gaps = (
        (*subject.gaps, f"not pinned, so not judged: {', '.join(rest[:6])}" + (f" and {len(rest) - 6} more" if len(rest) > 6 else ""))
        if rest
        else subject.gaps
    )
    subject = replace(subject, gaps=gaps)
    if not open_ones and not (subject.partial and mine):
        if not subject.packages:
            raise InputError(
                f"{subject.name} pins no package, and asks for no framework ({subject.kind})",
                code="list-empty",
                context="; ".join(subject.gaps) or None,
                hint="`cudnn-resolve plan -r FILE` resolves what is not pinned; `cudnn-resolve lock` pins it"
                if subject.kind == "requirements file"
                else "in the environment that it makes, `cudnn-resolve check` judges what is there",
            )
        return subject
    return _Installer(book, machine, subject, found).completed(mine, open_ones)


def _extras(asked: Requirement) -> tuple[str, ...]:
    return tuple(sorted(map(canonicalize_name, asked.extras)))


def _is_for_system(answer: Resolution) -> bool:
    """True where an extra is for the CUDA of a system, which a list need not name."""
    return any(one.delivery == "system" and one.extra is not None for one in answer.builds)


class _Installer:
    """What pip or uv makes of a set of which not everything is said, as far as the tables know the packages."""

    def __init__(self, book: Book, machine: Machine, subject: Subject, found: PackageList) -> None:
        self.book = book
        self.subject = subject
        self.found = found
        self.machine = replace(
            machine, driver=None, driver_absent=False, native_cuda=None, gpus=(), pip={}, requires={}, toolkits=(), cudnn=(), compat=None
        )
        """The machine as an installer sees it: it asks for no driver and no GPU."""
        named: tuple[ListedPackage | LooseRequirement, ...] = (*found.packages, *found.loose)
        self.is_open = bool(found.gaps) and any(one.alone for one in named)
        """True where what a package needs and does not bring may lie in what nobody followed."""

    def completed(self, mine: Iterable[ListedPackage], open_ones: Iterable[LooseRequirement]) -> Subject:
        """The set with what is added; what could not be found is said."""
        targets: list[Requirement] = []
        others: list[Requirement] = []
        gaps: list[str] = []
        chosen = dict(self.subject.packages)
        for one in mine:
            asked = Requirement(f"{one.name}{one.extras}=={chosen.get(one.name, one.version)}")
            (targets if self._brings(asked) else others).append(asked)
        for loose in open_ones:
            asked = self._variant(Requirement(loose.text), loose.variants)
            if pinned(asked) is None and loose.variants and has_variants(self._versions(asked.name)):
                gaps.append(f"{loose.text:.80} on the index of {', '.join(loose.variants)} is not known: judged as the plain wheel")
            if self._brings(asked) and not loose.alone:
                targets.append(asked)
            elif (version := self._newest(asked) or pinned(asked)) is not None:
                chosen[loose.name] = version
                others += [] if loose.alone else [Requirement(f"{asked.name}=={version}")]
            else:
                gaps.append(f"what an installer would choose for {loose.text:.80} is not known")
        subject = replace(
            self.subject, packages=chosen, added=dict(chosen.items() - self.subject.packages.items()), gaps=(*self.subject.gaps, *gaps)
        )
        if targets:
            return self._searched(subject, targets, others)
        base = subject.base  # a file that tells the CUDA of its own image, and leaves nothing unread, is the whole of it
        is_whole = base is not None and base.source == "apt" and base.cuda is not None and not subject.gaps
        return replace(subject, notes=(*subject.notes, *self._chosen(subject.added)), partial=subject.partial and not is_whole)

    def _chosen(self, added: Mapping[str, str]) -> list[str]:
        """What is said of versions that the file leaves open."""
        loose = {one.name for one in self.found.loose}
        newest = [f"{name} {version}" for name, version in added.items() if name in loose]
        return [f"not pinned, and judged as the newest that the tables know and the rest admits: {', '.join(newest)}"] if newest else []

    def _brings(self, asked: Requirement) -> bool:
        """True where the libraries come along: with the wheel, or with the extra that is asked for."""
        rows = builds_of(asked.name, self.book)
        mine = (row for row in rows if row.cuda is not None and asked.specifier.contains(row.wheel_version))
        bringing = {extra.strip() for row in mine for extra in (row.extra or "").split(",")}
        return "" in bringing or any("cuda" in extra or extra in bringing for extra in _extras(asked))

    def _variant(self, asked: Requirement, variants: Iterable[str]) -> Requirement:
        """The requirement on the index of a variant: its newest release there."""
        ends = tuple(f"+{variant}" for variant in variants)
        known = [text for text in self._versions(asked.name) if text.endswith(ends)] if ends else []
        best = max((Version(one) for one in known if asked.specifier.contains(one)), default=None)
        return Requirement(f"{asked.name}=={best}") if best is not None else asked

    def _versions(self, name: str) -> list[str]:
        """The versions of a framework's wheels that the tables know."""
        return [row.wheel_version for row in builds_of(name, self.book)]

    def _newest(self, asked: Requirement) -> str | None:
        """The release that an installer takes for a framework alone."""
        answer = attempt(self.book, self.machine, self._request([self._target(asked)], ()), rounds=_ROUNDS)
        return answer.builds[0].wheel_version if isinstance(answer, Resolution) else None

    def _target(self, asked: Requirement) -> Target:
        framework = self.book.framework_of(asked.name)
        assert framework is not None
        return Target(text=str(asked), framework=framework, specifier=asked.specifier, package=asked.name, extras=_extras(asked))

    def _request(self, targets: Sequence[Target], limits: Iterable[str]) -> Request:
        return Request(
            targets=tuple(targets),
            extras=tuple(Extra(text=text, origin=self.subject.name, constraint=True) for text in limits),
            channel="pip",
            strict_pins=True,
            variant_indexes=any("+" in one.text for one in targets),
            prefer="newest",
            verb="lock",
        )

    def _searched(self, subject: Subject, targets: Iterable[Requirement], others: Iterable[Requirement]) -> Subject:
        """The set with the versions of one answer for all of them, or with why there is none."""
        targets = list(targets)
        names = {one.name for one in targets}
        pins = (Requirement(f"{name}=={version}") for name, version in subject.packages.items())
        declared = (one for asked in others for one in self._requirements(asked))  # though these bring no libraries
        wanted = (*pins, *declared, *map(Requirement, self.found.constraints))
        limits = [str(one) for one in wanted if one.name not in names and self._decides(one.name)]
        answer = attempt(self.book, self.machine, self._request([self._target(one) for one in targets], limits), rounds=_ROUNDS)
        shown = ", ".join(map(str, targets))
        if not isinstance(answer, Resolution):
            if (left := self._in_turn(subject, targets)) is not None:
                note = f"what {shown} brings is taken from the tables; where commands exclude one another, the later one replaces"
                return replace(left, notes=(*subject.notes, note))
            clash = min(self._contradictions(targets), key=lambda text: "cudnn" not in text, default=None)
            gap = f"what an installer would choose for {shown} is not known"
            return replace(subject, clash=subject.clash or clash) if clash is not None else replace(subject, gaps=(*subject.gaps, gap))
        parts = names | self._brought(answer, targets)
        added = {
            pin.name: pin.version
            for pin in answer.pip
            if pin.version is not None and pin.name not in subject.packages and pin.name in parts
        }
        loose = {one.name for one in self.found.loose}
        said = self._chosen({**subject.added, **added})
        if brought := len(added.keys() - loose):
            said.append(f"what {shown} brings is taken from the tables: {brought} packages")
        return replace(
            subject,
            packages={**subject.packages, **added},
            added={**subject.added, **added},
            notes=(*subject.notes, *said),
            partial=self.is_open or _is_for_system(answer),
        )

    def _in_turn(self, subject: Subject, targets: Iterable[Requirement]) -> Subject | None:
        """What commands leave that install one after the other; None for a single one, and where one of them by itself finds no answer."""
        asked: dict[str, Requirement] = {canonicalize_name(one.name): one for one in targets}
        rows: tuple[ListedPackage | LooseRequirement, ...] = (*self.found.packages, *self.found.loose)
        turns: dict[int, tuple[list[Requirement], list[str]]] = {}
        for row in rows:
            mine, pins = turns.setdefault(row.command, ([], []))
            if row.name in asked:
                mine.append(asked[row.name])
            elif self._decides(row.name) and row.name in subject.packages:
                pins.append(row.name)
        packages, is_partial = dict(subject.packages), self.is_open
        for _, (mine, pins) in sorted(turns.items()) if len(turns) > 1 else ():
            if mine:
                limits = [*(f"{name}=={subject.packages[name]}" for name in pins), *self.found.constraints]
                request = replace(self._request([self._target(one) for one in mine], limits), preferences=packages)
                answer = attempt(self.book, self.machine, request, rounds=_ROUNDS)
                if not isinstance(answer, Resolution):
                    return None
                brought = self._brought(answer, mine) | {one.name for one in mine}
                packages |= {pin.name: pin.version for pin in answer.pip if pin.version is not None and pin.name in brought}
                is_partial |= _is_for_system(answer)
            packages |= {name: subject.packages[name] for name in pins}
        return replace(subject, packages=packages, partial=is_partial) if len(turns) > 1 else None

    def _decides(self, name: str) -> bool:
        return self.book.component(name) is not None or self.book.framework_of(name) is not None or self.book.slot(name) is not None

    def _requirements(self, asked: Requirement) -> Iterator[Requirement]:
        """What the wheel of a pinned framework requires, with the extras that are asked for."""
        row = next((one for one in builds_of(asked.name, self.book) if asked.specifier.contains(one.wheel_version)), None)
        if row is not None and str(asked.specifier).startswith("=="):
            yield from (one for one, extra in self._context.requirements_of(row) if extra is None or asked.extras)

    @cached_property
    def _context(self) -> Context:
        return Context(self.book, self.machine, OpenRequest(targets=()))

    def _brought(self, answer: Resolution, targets: Iterable[Requirement]) -> set[str]:
        """What decides of an answer, and comes with the targets: what their wheels declare, and not what a plan adds for them."""
        asked = {one.name: _extras(one) for one in targets}
        versions = {pin.name: pin.version for pin in answer.pip}
        context, found = self._context, set[str]()
        waiting: list[Requirement] = []
        for build in answer.builds:
            extras = asked.get(build.package, ())
            if not self.book.extras(build.package).issuperset(extras):  # nobody knows what they bring
                return {name for name in versions if self._decides(name)}
            release = context.release_of(build)
            more = [one for one, _ in context.metadata.requirements(release, extras)] if release is not None else []
            of_build = list(context.requirements_of(build))
            found |= {canonicalize_name(one.name) for one, extra in of_build if extra is not None}
            waiting += [*more, *(one for one, _ in of_build)]
        seen = set[tuple[str, tuple[str, ...]]]()
        while waiting:
            one = waiting.pop()
            name, extras = canonicalize_name(one.name), _extras(one)
            if (name, extras) in seen or name not in versions:
                continue
            seen.add((name, extras))
            found |= {name} if self._decides(name) else set()
            release = next((each for each in context.releases.of(name) if each.text == versions[name]), None)
            waiting += [each for each, _ in context.metadata.requirements(release, extras)] if release is not None else []
        return found & versions.keys()

    def _contradictions(self, targets: Iterable[Requirement]) -> Iterator[str]:
        """Packages of which two frameworks each require one version, and not the same."""
        known: dict[str, tuple[str, Requirement]] = {}
        for asked in targets:
            for one in self._requirements(asked):
                version = pinned(one)
                listed = self.subject.packages.get(canonicalize_name(one.name))
                if listed is not None and not one.specifier.contains(listed, prereleases=True):
                    yield f"{asked} requires {one.name}{one.specifier}, and {one.name} {listed} is pinned"
                who, other = known.setdefault(one.name, (str(asked), one)) if version is not None else ("", one)
                if version is not None and pinned(other) != version:
                    yield f"{who} requires {other.name}{other.specifier}, and {asked} {one.name}{one.specifier}"
