"""Releases of pip packages as candidates, and what each of them requires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cudnn_resolve.record import dataclass
from cudnn_resolve.resolution.kept import Kept
from cudnn_resolve.resolution.tag import Fit, Target, fit

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build, ExtraRelease, WheelRelease
    from cudnn_resolve.requirement.machine import Machine


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Release:
    """One installable release of a pip package."""

    package: str
    version: Version
    text: str
    """The version as the index writes it."""
    fit: Fit
    tags: tuple[str, ...]
    requires: tuple[str, ...]
    """Requires-Dist lines."""
    requires_python: str | None = None
    known: bool = True
    """False where its requirements were never read."""
    yanked: bool = False
    index: str = "default"
    build: Build | None = None
    """The build of the framework, where the package is one."""


@lru_cache(maxsize=4096)
def parse_requirement(line: str) -> Requirement | None:
    """The requirement in a Requires-Dist line; None for a line that is none."""
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


@lru_cache(maxsize=16384)
def parse_version(text: str) -> Version | None:
    """The PEP 440 version, None for text that is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


@lru_cache(maxsize=4096)
def specifier(text: str) -> SpecifierSet | None:
    """The PEP 440 specifier, None for text that is none."""
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


class Shelf:
    """All releases of pip packages that the matrix or the machine knows, made once for each package."""

    def __init__(self, book: Book, machine: Machine) -> None:
        self._book = book
        self._machine = machine
        self._releases: dict[str, Kept[Release]] = {}
        self._plain: dict[str, tuple[Release, ...]] = {}
        self._markers: dict[tuple[str, str], bool] = {}
        self._target = Target(machine.python, machine.free_threaded, machine.arch, machine.glibc)
        self._environment = _marker_environment(machine)

    def releases(self, package: str) -> Kept[Release]:
        """Releases of the package, newest first, made as they are looked at; empty for one that nobody knows."""
        found = self._releases.get(package)
        if found is None:
            found = self._releases[package] = Kept(self._make(package))
        return found

    def plain(self, package: str) -> tuple[Release, ...]:
        """Releases of a framework that nobody asked for, newest first.

        The wheels as they are, without what only an extra or the system brings.
        """
        found = self._plain.get(package)
        if found is None:
            own = [one for one in self.releases(package) if one.fit.arch and (one.build is None or not _by_hand(one.build))]
            installed = self._machine.pip.get(package)
            kept = {one.text: one for one in reversed(own) if one.index == "default" or one.text == installed}
            table = self._book.package(package)
            for row in table.releases if table else ():
                release = None if row.version in kept else self._from_row(package, row)
                if release is not None:
                    kept[row.version] = release
            found = tuple(sorted(kept.values(), key=_order, reverse=True))
            self._plain[package] = found
        return found

    def applies(self, text: str) -> bool:
        """True where the marker of a requirement holds for the target, or there is none."""
        requirement = parse_requirement(text)
        return requirement is None or requirement.marker is None or self._holds(requirement, str(requirement.marker), "")

    def requirements(self, release: Release, extras: tuple[str, ...] = ()) -> Iterator[tuple[Requirement, str | None]]:
        """Requirements of the release on this machine, each with the extra that brings it (None: it always holds)."""
        for line in release.requires:
            if "extra" in line and ";" in line and not self._extra_named(line, extras):
                continue
            requirement = parse_requirement(line)
            if requirement is None:
                continue
            if requirement.marker is None:
                yield requirement, None
                continue
            marker = str(requirement.marker)
            if self._holds(requirement, marker, ""):
                yield requirement, None
                continue
            for extra in extras:
                if self._holds(requirement, marker, extra):
                    yield requirement, extra
                    break

    @staticmethod
    def _extra_named(line: str, extras: tuple[str, ...]) -> bool:
        marker = line.split(";", 1)[1]
        if "extra" not in marker:
            return True
        return any(f'"{extra}"' in marker or f"'{extra}'" in marker for extra in extras)

    def _holds(self, requirement: Requirement, marker: str, extra: str) -> bool:
        key = (marker, extra)
        answer = self._markers.get(key)
        if answer is None:
            try:
                answer = bool(requirement.marker and requirement.marker.evaluate({**self._environment, "extra": extra}))
            except UndefinedEnvironmentName:
                answer = False
            self._markers[key] = answer
        return answer

    def _make(self, package: str) -> Iterator[Release]:
        table = self._book.package(package)
        framework = self._book.framework_of(package)
        builds = self._book.framework(framework).builds if framework else ()
        builds = tuple(build for build in builds if build.package == package)
        extras = self._book.extra_releases(package)
        installed = self._machine.pip.get(package)
        rows = table.releases if table else ()
        if builds or extras or (installed is not None and all(row.version != installed for row in rows)):
            yield from self._gathered(package, rows, builds, extras)
            return
        for row in reversed(rows):  # the table is in order of version
            release = self._from_row(package, row)
            if release is not None:
                yield release

    def _gathered(
        self, package: str, rows: Sequence[WheelRelease], builds: Sequence[Build], extras: Sequence[ExtraRelease]
    ) -> Iterator[Release]:
        """Releases of several origins, in order of version."""
        known = {row.version: row for row in rows}
        found = [self._from_build(build, known.get(build.version)) for build in builds]
        if not builds:
            found = [self._from_row(package, row) for row in rows]
        out = [release for release in found if release is not None]
        seen = {release.text for release in out}
        for extra in extras:
            release = None if extra.version in seen else self._from_extra(extra, known)
            if release is not None:
                seen.add(extra.version)
                out.append(release)
        out += self._installed(package, seen, framework_known=bool(builds))
        yield from sorted(out, key=_order, reverse=True)

    def _from_extra(self, extra: ExtraRelease, rows: Mapping[str, WheelRelease]) -> Release | None:
        version = parse_version(extra.version)
        if version is None:
            return None
        tags = _tags(extra.pythons, extra.arch, extra.glibc)
        base = rows.get(version.public)
        requires = self._like(extra.requires, extra.requires_like, self._requires(base) if base else None)
        return Release(
            package=extra.package,
            version=version,
            text=extra.version,
            fit=fit(tags, self._target),
            tags=tags,
            requires=requires or (),
            requires_python=extra.requires_python or (base.requires_python if base else None),
            known=requires is not None,
            yanked=extra.yanked,
            index=extra.index,
        )

    def _installed(self, package: str, seen: set[str], *, framework_known: bool) -> Iterator[Release]:
        """The installed release, where the matrix does not list it; not for a framework, whose unknown builds cannot be judged."""
        text = self._machine.pip.get(package)
        if text is None or text in seen or framework_known:
            return
        version = parse_version(text)
        if version is not None and version not in {parse_version(other) for other in seen}:
            requires = self._machine.requires.get(package)
            yield Release(
                package=package,
                version=version,
                text=text,
                fit=Fit(python=True, arch=True, glibc=(0, 0)),
                tags=(),
                requires=requires or (),
                known=requires is not None,
            )

    def _from_row(self, package: str, row: WheelRelease) -> Release | None:
        version = parse_version(row.version)
        if version is None:
            return None
        requires = self._requires(row)
        found = fit(row.tags, self._target) if row.tags else Fit(python=True, arch=True, glibc=(0, 0))
        if "sdist" in row.tags and self._too_old(package, row):
            found = Fit(python=False, arch=True, glibc=None)
        return Release(
            package=package,
            version=version,
            text=row.version,
            fit=found,
            tags=row.tags,
            requires=requires or (),
            requires_python=row.requires_python,
            known=requires is not None,
            yanked=row.yanked,
        )

    def _from_build(self, build: Build, row: WheelRelease | None) -> Release | None:
        version = parse_version(build.wheel_version)
        if version is None:
            return None
        requires = self._like(build.requires, build.requires_like, self._requires(row) if row else None)
        tags = _tags(build.pythons, build.arch, build.glibc)
        if row is not None and build.index == "default":
            tags = tuple(tag for tag in row.tags if not build.pythons or _python_of(tag) & set(build.pythons))
        if build.arch and self._machine.arch and self._machine.arch not in build.arch:
            tags = _tags(build.pythons, build.arch, build.glibc)
        return Release(
            package=build.package,
            version=version,
            text=build.wheel_version,
            fit=fit(tags, self._target),
            tags=tags,
            requires=requires or (),
            requires_python=row.requires_python if row else None,
            known=requires is not None,
            yanked=build.yanked or bool(row and row.yanked),
            # JAX itself is on the configured index even where its jaxlib is not.
            index="default" if row is not None and version.local is None else build.index,
            build=build,
        )

    def _too_old(self, package: str, row: WheelRelease) -> bool:
        """True for a source archive of compiled code that knows nothing of the target's Python.

        Told by the next release with compiled wheels: where even that one has none for this Python, the older source will not build.
        """
        table = self._book.package(package)
        rows = table.releases if table else ()
        place = next((number for number, one in enumerate(rows) if one is row), len(rows))
        for one in rows[place + 1 :]:
            compiled = tuple(tag for tag in one.tags if tag.startswith("cp") and not tag.endswith("any"))
            if compiled:
                return not fit(compiled, self._target).python
        return False

    def _like(self, own: tuple[str, ...] | None, like: str | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The requirements of a release: its own, and where it says so those of the default index's wheel but for the NVIDIA part."""
        if own is None and like is None:
            return other
        if like is None or other is None:
            return own
        return (*(own or ()), *(line for line in other if not self._of_variant(line)))

    @staticmethod
    def _of_variant(line: str) -> bool:
        """True for a requirement that differs from variant to variant: NVIDIA's libraries and the compiler built for them."""
        requirement = parse_requirement(line)
        if requirement is None:
            return False
        name = canonicalize_name(requirement.name)
        return name.startswith(("nvidia-", "cuda-", "triton", "pytorch-triton"))

    def _requires(self, row: WheelRelease) -> tuple[str, ...] | None:
        if row.requires is None:
            return None
        return row.requires.get(self._machine.arch or "x86_64") or row.requires.get("x86_64") or ()


def _order(release: Release) -> tuple[Version, bool, Version]:
    """Newest first; of one public version the configured index before those that name a local part."""
    return Version(release.version.public), release.index == "default", release.version


def shelf_of(book: Book, machine: Machine) -> Shelf:
    """The shelf for a machine, shared by all resolutions over one book for which it is the same."""
    key = (machine.python_full, machine.free_threaded, machine.arch, machine.glibc, id(machine.pip), id(machine.requires))
    return book.remember("shelf", key, lambda: Shelf(book, machine))


def _by_hand(build: Build) -> bool:
    """True where a GPU build is the same wheel as the CPU build, and an extra or libraries from outside make the difference."""
    return build.extra is not None or build.delivery in ("system", "none") or (build.index != "default" and "+" not in build.wheel_version)


def _python_of(tag: str) -> set[str]:
    """The interpreters that a tag names, `cp313t` for a free-threaded one."""
    pythons, abis, _ = tag.split("-", 2)
    return {f"{python}t" if abis == f"{python}t" else python for python in pythons.split(".")}


def _tags(pythons: tuple[str, ...], arch: tuple[str, ...], glibc: str | None) -> tuple[str, ...]:
    """Wheel tags of a build whose files nobody listed; abi3-free, one for each Python and architecture."""
    platforms = [f"manylinux_{glibc.replace('.', '_')}_{one}" if glibc else f"linux_{one}" for one in arch or ("x86_64",)]
    out: list[str] = []
    for python in pythons or ("py3",):
        abi = "none" if python.startswith("py") else python
        out.extend(f"{python.rstrip('t')}-{abi}-{platform}" for platform in platforms)
    return tuple(out)


def _marker_environment(machine: Machine) -> dict[str, str]:
    """PEP 508 variables of the target, not of the interpreter that runs this."""
    major, minor = machine.python or (3, 11)
    full = machine.python_full or f"{major}.{minor}.0"
    if full.count(".") < 2:
        full = f"{major}.{minor}.0"
    return {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": machine.arch or "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": f"{major}.{minor}",
        "sys_platform": "linux",
    }
