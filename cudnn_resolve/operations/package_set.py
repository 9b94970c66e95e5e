"""A set of packages to judge: listed in a file or installed, completed by what an installer would add."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.errors import InputError, first_few
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.host.files import STDIN, absolute, read_bounded
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.listed_versions import Wheels, has_variants, is_framework, on_base
from cudnn_resolve.operations.request import REQUIREMENTS_BYTES
from cudnn_resolve.package_lists.install_lines import pinned
from cudnn_resolve.package_lists.model import BaseEnvironment, ListedPackage, LooseRequirement, PackageList, PartSelection
from cudnn_resolve.package_lists.read_list import LIMIT_BYTES, read_list
from cudnn_resolve.requirement.file import Reader
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request, RequirementLine
from cudnn_resolve.requirement.source import File
from cudnn_resolve.requirement.target import parse_target
from cudnn_resolve.resolution import tag
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.installed import is_frozen
from cudnn_resolve.resolution.model import Resolution
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.strategies import attempt
from cudnn_resolve.resolution.vendor import vendor_build

LIVE = "environment"
"""Kind of a set that is installed somewhere."""
_DEFAULT_CHOICE = PartSelection()
_INSTALLERS = frozenset({"pip", "setuptools", "wheel", "uv"})
"""Installers and build tools, which need no framework and decide nothing."""
_ROUNDS = 2000


class Subject(Struct, frozen=True, kw_only=True):
    """A set of packages and its origin."""

    name: str
    """The file, or the environment."""
    kind: str
    packages: Mapping[str, str]
    requires: Mapping[str, tuple[str, ...]]
    lines: Mapping[str, int]
    """Line of each package's pin."""
    files: Mapping[str, str] = {}
    """File of each package's pin, if it is another one."""
    base: BaseEnvironment | None = None
    """Facts about the machine in the file."""
    python: str | None = None
    """Specifier of the Pythons that it supports."""
    added: Mapping[str, str] = {}
    """Packages that are not named, and that an installer adds."""
    clash: str | None = None
    """Why no installer can satisfy it."""
    conda: frozenset[str] = frozenset()
    """Frameworks that are conda builds, which bring the libraries that they load."""
    foreign: frozenset[str] = frozenset()
    """Those conda builds that are not made from the wheel."""
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    """What was not resolved and could change the verdict."""
    partial: bool = False
    """True if there may be more packages."""
    unfit: tuple[str, ...] = ()
    """Packages without a file for the machine in the lock."""


def subject_of_facts(facts: Facts, name: str | None) -> Subject:
    """The packages installed in the environment of the facts."""
    packages = or_none(facts.packages.pip) or {}
    gaps = tuple(f"{problem.what}: {problem.why}" for problem in facts.problems if problem.what == "packages.pip")
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
    """Text of a file to judge, `-` for standard input."""
    return read_bounded(path, LIMIT_BYTES, "file to be judged")


def subject_of_file(path: str, text: str, book: Book, machine: Machine, choice: PartSelection = _DEFAULT_CHOICE) -> Subject:
    """The packages that a file lists for a machine; InputError for an unknown format."""
    name = "standard input" if path == STDIN else path
    reader = _reader_beside("." if path == STDIN else os.path.dirname(path) or ".")
    listing = read_list(text, name, machine, choice, reader)
    if listing.base is not None and listing.base.python is not None:  # evaluate markers for the Python that the file itself names
        machine = on_base(machine, listing.base)
        listing = read_list(text, name, machine, choice, reader)
    wheels = Wheels(book)
    packages = {package.name: version for package in listing.packages if (version := wheels.version(package)) is not None}
    based_machine = replace(on_base(machine, listing.base), pip=packages, requires={})
    wheels.gaps += [
        f"{package} {packages[package]} is a vendor build: the CUDA and cuDNN of its image are not judged"
        for package in _bundled_vendor_builds(packages, book, based_machine)
    ]
    named: tuple[ListedPackage | LooseRequirement, ...] = (*listing.loose, *listing.packages)
    is_complete = bool(named) and not listing.gaps and all(item.alone for item in named)  # installed without dependencies
    subject = Subject(
        name=name,
        kind=listing.kind,
        packages=packages,
        requires={},
        lines={item.name: item.line for item in named if item.line is not None},
        files={item.name: item.file for item in named if item.file is not None},
        base=wheels.base(listing.base, packages),
        python=listing.python,
        clash=listing.clash,
        conda=frozenset(package.name for package in listing.packages if package.channel is not None or package.cuda is not None),
        foreign=frozenset(package.name for package in listing.packages if package.channel is not None),
        notes=listing.notes,
        gaps=(*listing.gaps, *wheels.gaps),
        partial=listing.partial and not is_complete and not is_frozen(Context(book, based_machine, OpenRequest(targets=()))),
        unfit=tuple(_without_file(listing.packages, machine)),
    )
    return _completed(subject, listing, book, machine)


def _bundled_vendor_builds(packages: Mapping[str, str], book: Book, machine: Machine) -> Iterator[str]:
    """Packages that are vendor builds and use the CUDA libraries of their image."""
    for name, version in packages.items():
        if version.replace(".", "").isdigit():
            continue
        build = vendor_build(book, machine, name)
        if build is not None and build.delivery == "bundled":
            yield name


def _reader_beside(folder: str) -> Reader:
    """Reader for files named in a file: only inside its folder and the current one."""
    allowed = [os.path.normpath(absolute(root, None)) for root in (folder, ".")]

    def read(name: str, base: str | None) -> tuple[str, str]:
        if "://" in name:
            raise InputError("it is a URL", code="list-outside")
        path = os.path.normpath(os.path.join(os.path.dirname(base) if base and base != "standard input" else folder, name))
        where = os.path.normpath(absolute(path, None))
        if not any(os.path.commonpath((root, where)) == root for root in allowed):
            raise InputError("it is outside of the folder", code="list-outside")
        return path, read_bounded(path, REQUIREMENTS_BYTES, "requirements file")

    return read


def _without_file(packages: Iterable[ListedPackage], machine: Machine) -> Iterator[str]:
    """Packages of a lock all of whose files are wheels for other machines."""
    target = tag.TargetPython.of(machine)
    for package in packages:
        has_only_wheels = all(name.endswith(".whl") for name in package.files)
        files = (File(name, "", {}) for name in package.files)
        if package.files and has_only_wheels and tag.best_file(files, target) is None:
            yield package.name


# ---- packages added by an installer


def _completed(subject: Subject, listing: PackageList, book: Book, machine: Machine) -> Subject:
    """Add what an installer brings for the frameworks: the versions that it chooses, and libraries pinned by the wheels."""
    pinned_frameworks = [
        package
        for package in listing.packages
        if package.cuda is None and package.channel is None and not package.alone and is_framework(package.name, book)
    ]
    loose_frameworks = [requirement for requirement in listing.loose if is_framework(requirement.name, book)]
    other_names = {requirement.name for requirement in listing.loose} - {requirement.name for requirement in loose_frameworks}
    others = sorted(other_names - _INSTALLERS)
    if others:
        subject = replace(subject, gaps=(*subject.gaps, f"not pinned, so not judged: {first_few(others, 6)}"))
    if loose_frameworks or (subject.partial and pinned_frameworks):
        return _Installer(book, machine, subject, listing).completed(pinned_frameworks, loose_frameworks)
    if subject.packages:
        return subject
    raise InputError(
        f"{subject.name} pins no package, and requires no framework ({subject.kind})",
        code="list-empty",
        context="; ".join(subject.gaps) or None,
        hint="`cudnn-resolve plan -r FILE` resolves unpinned requirements; `cudnn-resolve lock` pins them"
        if subject.kind == "requirements file"
        else "create the environment, and run `cudnn-resolve check` in it",
    )


def _extras(requirement: Requirement) -> tuple[str, ...]:
    return tuple(sorted(map(canonicalize_name, requirement.extras)))


def _needs_system_cuda(resolution: Resolution) -> bool:
    """True if an extra is for the system's CUDA, which a list need not name."""
    return any(build.delivery == "system" and build.extra is not None for build in resolution.builds)


class _Installer:
    """Completes a set like pip or uv would, as far as the tables know the packages."""

    def __init__(self, book: Book, machine: Machine, subject: Subject, listing: PackageList) -> None:
        self.book = book
        self.subject = subject
        self.listing = listing
        self.machine = replace(
            machine, driver=None, driver_absent=False, native_cuda=None, gpus=(), pip={}, requires={}, toolkits=(), cudnn=(), compat=None
        )
        """The machine as an installer sees it, without driver and GPU."""
        named: tuple[ListedPackage | LooseRequirement, ...] = (*listing.packages, *listing.loose)
        self.is_open = bool(listing.gaps) and any(item.alone for item in named)
        """True if missing dependencies may be in a part that was not read."""

    def completed(self, pinned_frameworks: Iterable[ListedPackage], loose_frameworks: Iterable[LooseRequirement]) -> Subject:
        """Add versions and libraries to the set; what cannot be determined becomes a gap."""
        targets: list[Requirement] = []
        others: list[Requirement] = []
        gaps: list[str] = []
        chosen = dict(self.subject.packages)
        for package in pinned_frameworks:
            requirement = Requirement(f"{package.name}{package.extras}=={chosen.get(package.name, package.version)}")
            (targets if self._brings_libraries(requirement) else others).append(requirement)
        for loose in loose_frameworks:
            requirement = self._on_variant_index(Requirement(loose.text), loose.variants)
            if pinned(requirement) is None and loose.variants and has_variants(self._versions(requirement.name)):
                indexes = ", ".join(loose.variants)
                gaps.append(f"{loose.text:.80} on the index of {indexes} is unknown: judged as the plain wheel")
            if self._brings_libraries(requirement) and not loose.alone:
                targets.append(requirement)
            elif (version := self._newest(requirement) or pinned(requirement)) is not None:
                chosen[loose.name] = version
                others += [] if loose.alone else [Requirement(f"{requirement.name}=={version}")]
            else:
                gaps.append(f"the version that an installer would choose for {loose.text:.80} is unknown")
        added = dict(chosen.items() - self.subject.packages.items())
        subject = replace(self.subject, packages=chosen, added=added, gaps=(*self.subject.gaps, *gaps))
        if targets:
            return self._searched(subject, targets, others)
        base = subject.base
        is_complete_image = base is not None and base.source == "apt" and base.cuda is not None and not subject.gaps
        notes = (*subject.notes, *self._notes_on_chosen(subject.added))
        return replace(subject, notes=notes, partial=subject.partial and not is_complete_image)

    def _notes_on_chosen(self, added: Mapping[str, str]) -> list[str]:
        """Note on versions that the file leaves open."""
        loose = {requirement.name for requirement in self.listing.loose}
        newest = [f"{name} {version}" for name, version in added.items() if name in loose]
        return [f"not pinned, and judged as the newest known version that fits the rest: {', '.join(newest)}"] if newest else []

    def _brings_libraries(self, requirement: Requirement) -> bool:
        """True if CUDA libraries are installed along: with the wheel, or with a requested extra."""
        rows = (row for row in self.book.builds_of(requirement.name) if row.cuda is not None)
        extras = {
            extra.strip() for row in rows if requirement.specifier.contains(row.wheel_version) for extra in (row.extra or "").split(",")
        }
        return "" in extras or any("cuda" in extra or extra in extras for extra in _extras(requirement))

    def _on_variant_index(self, requirement: Requirement, variants: Iterable[str]) -> Requirement:
        """Pin a requirement to its newest release on a variant index, if one is known."""
        suffixes = tuple(f"+{variant}" for variant in variants)
        known = [version for version in self._versions(requirement.name) if version.endswith(suffixes)] if suffixes else []
        best = max((Version(version) for version in known if requirement.specifier.contains(version)), default=None)
        return Requirement(f"{requirement.name}=={best}") if best is not None else requirement

    def _versions(self, name: str) -> list[str]:
        """Known wheel versions of a framework."""
        return [row.wheel_version for row in self.book.builds_of(name)]

    def _newest(self, requirement: Requirement) -> str | None:
        """The release that an installer chooses for this framework alone."""
        resolution = self._resolve([requirement])
        return resolution.builds[0].wheel_version if resolution is not None else None

    def _resolve(
        self, targets: Iterable[Requirement], limits: Iterable[str] = (), preferences: Mapping[str, str] | None = None
    ) -> Resolution | None:
        """The resolution for frameworks, like an installer's: with the pins of the wheels, and the newest versions that fit."""
        parsed = tuple(replace(parse_target(str(target), self.book), package=target.name) for target in targets)
        request = Request(
            targets=parsed,
            requirements=tuple(RequirementLine(text=text, origin=self.subject.name, constraint=True) for text in limits),
            preferences=preferences or {},
            channel="pip",
            strict_pins=True,
            variant_indexes=any("+" in target.text for target in parsed),
            prefer="newest",
            verb="lock",
        )
        answer = attempt(self.book, self.machine, request, rounds=_ROUNDS)
        return answer if isinstance(answer, Resolution) else None

    def _searched(self, subject: Subject, targets: Sequence[Requirement], others: Iterable[Requirement]) -> Subject:
        """Add the versions of one resolution for all targets, or the reason that there is none."""
        names = {target.name for target in targets}
        pins = (Requirement(f"{name}=={version}") for name, version in subject.packages.items())
        declared = (requirement for other in others for requirement in self._requirements(other))  # though these bring no libraries
        wanted = (*pins, *declared, *map(Requirement, self.listing.constraints))
        limits = [str(requirement) for requirement in wanted if requirement.name not in names and self._decides(requirement.name)]
        resolution = self._resolve(targets, limits)
        shown = ", ".join(map(str, targets))
        if resolution is None:
            return self._without_resolution(subject, targets, shown)
        relevant = names | self._brought(resolution, targets)
        added = {
            pin.name: pin.version
            for pin in resolution.pip
            if pin.version is not None and pin.name not in subject.packages and pin.name in relevant
        }
        loose = {requirement.name for requirement in self.listing.loose}
        notes = self._notes_on_chosen({**subject.added, **added})
        if count := len(added.keys() - loose):
            notes.append(f"what {shown} brings is taken from the tables: {count} packages")
        return replace(
            subject,
            packages={**subject.packages, **added},
            added={**subject.added, **added},
            notes=(*subject.notes, *notes),
            partial=self.is_open or _needs_system_cuda(resolution),
        )

    def _without_resolution(self, subject: Subject, targets: Sequence[Requirement], shown: str) -> Subject:
        """The set without a common resolution: after one install command after another, or with its contradiction."""
        if (after_commands := self._installed_in_turn(subject, targets)) is not None:
            note = f"what {shown} brings is taken from the tables; where commands contradict each other, the later one wins"
            return replace(after_commands, notes=(*subject.notes, note))
        clash = min(self._contradictions(targets), key=lambda text: "cudnn" not in text, default=None)
        if clash is not None:
            return replace(subject, clash=subject.clash or clash)
        return replace(subject, gaps=(*subject.gaps, f"the versions that an installer would choose for {shown} are unknown"))

    def _installed_in_turn(self, subject: Subject, targets: Iterable[Requirement]) -> Subject | None:
        """The set after several install commands; None for a single one, and if one of them has no resolution by itself."""
        targets_by_name: dict[str, Requirement] = {canonicalize_name(target.name): target for target in targets}
        rows: tuple[ListedPackage | LooseRequirement, ...] = (*self.listing.packages, *self.listing.loose)
        commands: dict[int, tuple[list[Requirement], list[str]]] = {}
        for row in rows:
            requested, pins = commands.setdefault(row.command, ([], []))
            if row.name in targets_by_name:
                requested.append(targets_by_name[row.name])
            elif self._decides(row.name) and row.name in subject.packages:
                pins.append(row.name)
        if len(commands) < 2:
            return None
        packages, is_partial = dict(subject.packages), self.is_open
        for _, (requested, pins) in sorted(commands.items()):
            if requested:
                limits = [*(f"{name}=={subject.packages[name]}" for name in pins), *self.listing.constraints]
                resolution = self._resolve(requested, limits, packages)
                if resolution is None:
                    return None
                brought = self._brought(resolution, requested) | {target.name for target in requested}
                packages |= {pin.name: pin.version for pin in resolution.pip if pin.version is not None and pin.name in brought}
                is_partial |= _needs_system_cuda(resolution)
            packages |= {name: subject.packages[name] for name in pins}
        return replace(subject, packages=packages, partial=is_partial)

    def _decides(self, name: str) -> bool:
        return self.book.component(name) is not None or self.book.framework_of(name) is not None or self.book.slot(name) is not None

    def _requirements(self, pin: Requirement) -> Iterator[Requirement]:
        """Requirements of the wheel of a pinned framework, including requested extras."""
        row = next((row for row in self.book.builds_of(pin.name) if pin.specifier.contains(row.wheel_version)), None)
        if row is not None and str(pin.specifier).startswith("=="):
            yield from (requirement for requirement, extra in self._context.requirements_of(row) if extra is None or pin.extras)

    @cached_property
    def _context(self) -> Context:
        return Context(self.book, self.machine, OpenRequest(targets=()))

    def _brought(self, resolution: Resolution, targets: Iterable[Requirement]) -> set[str]:
        """Decisive packages that the targets' wheels declare, directly or indirectly, without those that a plan adds for them."""
        target_extras = {target.name: _extras(target) for target in targets}
        versions = {pin.name: pin.version for pin in resolution.pip}
        context, found = self._context, set[str]()
        waiting: list[Requirement] = []
        for build in resolution.builds:
            extras = target_extras.get(build.package, ())
            if not self.book.extras(build.package).issuperset(extras):  # the contents of these extras are unknown
                return {name for name in versions if self._decides(name)}
            release = context.releases.of_build(build)
            if release is not None:
                waiting += [requirement for requirement, _ in context.metadata.requirements(release, extras)]
            of_build = list(context.requirements_of(build))
            found |= {canonicalize_name(requirement.name) for requirement, extra in of_build if extra is not None}
            waiting += [requirement for requirement, _ in of_build]
        seen = set[tuple[str, tuple[str, ...]]]()
        while waiting:
            requirement = waiting.pop()
            name, extras = canonicalize_name(requirement.name), _extras(requirement)
            if (name, extras) in seen or name not in versions:
                continue
            seen.add((name, extras))
            if self._decides(name):
                found.add(name)
            release = next((release for release in context.releases.of(name) if release.text == versions[name]), None)
            if release is not None:
                waiting += [requirement for requirement, _ in context.metadata.requirements(release, extras)]
        return found & versions.keys()

    def _contradictions(self, targets: Iterable[Requirement]) -> Iterator[str]:
        """Packages of which two frameworks require different versions, or of which another version is pinned."""
        known: dict[str, tuple[str, Requirement]] = {}
        for target in targets:
            for requirement in self._requirements(target):
                version = pinned(requirement)
                listed = self.subject.packages.get(canonicalize_name(requirement.name))
                if listed is not None and not requirement.specifier.contains(listed, prereleases=True):
                    yield f"{target} requires {requirement.name}{requirement.specifier}, and {requirement.name} {listed} is pinned"
                if version is None:
                    continue
                first_target, first = known.setdefault(requirement.name, (str(target), requirement))
                if pinned(first) != version:
                    conflict = f"{target} {requirement.name}{requirement.specifier}"
                    yield f"{first_target} requires {first.name}{first.specifier}, and {conflict}"
