"""What every kind of package is asked against: the matrix, one machine, one request, and what the running search has chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.requirement.extra import CPU, package_extras, selects_build
from cudnn_resolve.resolution.candidate import CudaCandidate
from cudnn_resolve.resolution.evidence import is_idle
from cudnn_resolve.resolution.key import CUDA
from cudnn_resolve.resolution.release import SDIST, Release, extras_of, parse_requirement, specifier
from cudnn_resolve.resolution.releases import catalog_of

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.version import Version

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Advisory, Build
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request, Target
    from cudnn_resolve.resolution.candidate import Candidate
    from cudnn_resolve.resolution.key import Key
    from cudnn_resolve.resolution.open_request import OpenRequest

_CUDNN_NAMES = ("cudnn", "nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")


class Context:
    """One request on one machine, while it is being resolved."""

    def __init__(
        self,
        book: Book,
        machine: Machine,
        request: OpenRequest,
        *,
        near: Mapping[str, str] | None = None,
        late_pins: Mapping[str, Sequence[SpecifierSet]] | None = None,
        closed: bool = False,
    ) -> None:
        self.book = book
        self.machine = machine
        self.request = request
        self.near = near or {}
        """Framework to the version whose neighbours are tried first (for relaxations)."""
        self.late_pins = late_pins or {}
        """Library wheel to the pins that packages have for it which are decided after it: its releases are ordered by them, too."""
        self.closed = closed
        """True where a package that the cache knows is one of the releases whose requirements it knows.

        Else it may be left to the installer, or be a release that the tables know though nobody knows what it requires.
        """
        self.is_cut = False
        """True once `closed` left a candidate out."""
        self.offers, self.metadata, self.releases = catalog_of(book, machine, request)
        self.chosen: dict[Key, Candidate] = {}
        """What the running solve has pinned; only ever used to order candidates."""
        self.constraints = constraints(request)
        """Package to its constraints (`-c`): the text of each, and its specifier."""
        self._bad: dict[tuple[str, str], bool] = {}

    @property
    def cuda(self) -> CudaCandidate | None:
        """The CUDA that the running solve has pinned."""
        found = self.chosen.get(CUDA)
        return found if isinstance(found, CudaCandidate) else None

    def allows(self, release: Release) -> bool:
        """True where the user's constraints admit a release."""
        return all(spec.contains(release.version, prereleases=True) for _, spec in self.constraints.get(release.package, ()))

    def target_of(self, framework: str) -> Target | None:
        """The target that asks for a framework; None where nobody does."""
        return next((one for one in self.request.targets if one.framework == framework), None)

    def asked_extras(self, framework: str) -> frozenset[str]:
        """The extras that the user asks for with a framework."""
        target = self.target_of(framework)
        return frozenset(target.extras) if target is not None else frozenset()

    def device_of(self, framework: str) -> str:
        """The device that builds of a framework are wanted for, `gpu` or `cpu`."""
        return CPU if CPU in self.asked_extras(framework) else self.request.device

    def fixes_by_extra(self, framework: str) -> bool:
        """True where the user asks for a GPU build of a framework by an extra."""
        return any(selects_build(self.book, framework, extra) for extra in self.asked_extras(framework))

    def added_extras(self, framework: str) -> tuple[str, ...]:
        """The extras that the user asks for with a framework and that only bring packages."""
        target = self.target_of(framework)
        return package_extras(self.book, target) if target is not None else ()

    def holds(self, framework: str) -> bool:
        """True where the environment has a distribution of the framework and what is installed is preferred."""
        packages = self.book.framework(framework).packages
        return self.request.prefer == "installed" and any(name in self.machine.pip for name in packages)

    def shared_slot(self, package: str, version: str | None = None) -> str | None:
        """The files of a package, or of this release of it, that other packages own, too; None where it is alone."""
        slot = self.book.slot(package, version)
        return slot if slot is not None and self.book.owners(slot) > 1 else None

    def release_of(self, build: Build) -> Release | None:
        """Return the release of a framework's build."""
        return self.releases.of_build(build)

    def requirements_of(self, build: Build) -> Iterator[tuple[Requirement, str | None]]:
        """Return the requirements of a build's wheel with the extra that brings its CUDA libraries; none where there is no wheel."""
        release = self.releases.alone(build) or self.releases.of_build(build)
        return self.metadata.requirements(release, extras_of(build)) if release is not None else iter(())

    def plugins_of(self, build: Build) -> Iterator[Requirement]:
        """What the extra of a build adds to its own code besides CUDA libraries (JAX's plugins); TensorRT is not needed."""
        for requirement, extra in self.requirements_of(build):
            name = canonicalize_name(requirement.name)
            if extra is not None and self.book.component(name) is None and not name.startswith("tensorrt"):
                yield requirement

    def is_from_source(self, release: Release) -> bool:
        """True for a release that would be built from source; not for one that is installed, locked or taken from one place."""
        return release.build is None and release.tags == SDIST and not self._is_kept(release)

    def is_idle(self, release: Release) -> bool:
        """True for a release without GPU code for the machine that another one has; not for one that is installed or locked."""
        if release.build is not None or release.index != "default" or self.request.device != "gpu":
            return False
        return is_idle(self.book, self.machine, release) and not self._is_kept(release)

    def _is_kept(self, release: Release) -> bool:
        kept = self.machine.pip.get(release.package), self.request.preferences.get(release.package)
        return release.package in self.request.direct or release.text in kept

    def is_bad(self, release: Release) -> bool:
        """True where an advisory of the matrix says to avoid the release on this machine, or its index withdrew it.

        Never where the user wants the wheels' own pins to hold.
        """
        if self.request.strict_pins:
            return False
        key = (release.package, release.text)
        answer = self._bad.get(key)
        if answer is None:
            answer = self._bad[key] = self.is_avoided(release.package, release.version) or release.yanked
        return answer

    def is_avoided(self, package: str, version: Version) -> bool:
        """True where an advisory says to avoid this version of a package on this machine.

        Not where the user's limit leaves nothing else: then it is chosen, and named.
        """
        if self.request.cudnn is not None and "cudnn" in package and self._only_bad_cudnn:
            return False
        rows: tuple[Advisory, ...] = self.book.remember("advice against", (package, version), partial(self._advice, package, version))
        return any(not row.capability or any(gpu.capability in row.capability for gpu in self.machine.gpus) for row in rows)

    def _advice(self, package: str, version: Version) -> tuple[Advisory, ...]:
        """The advisories that say to avoid this version, each perhaps on some GPUs alone."""
        rows = (row for row in self.book.advisories(package) if row.action == "avoid")
        return tuple(row for row in rows if (spec := specifier(row.versions)) is not None and spec.contains(version, prereleases=True))

    @cached_property
    def _only_bad_cudnn(self) -> bool:
        """True where every cuDNN that the user's limit allows is to be avoided."""
        limit = self.request.cudnn
        allowed = [one.version for one in self.book.cudnn_builds() if limit is None or limit.specifier.contains(str(one.version))]
        rows = (row for name in _CUDNN_NAMES for row in self.book.advisories(name) if row.action == "avoid")
        bad = [spec for row in rows if (spec := specifier(row.versions)) is not None]
        return bool(allowed) and all(any(spec.contains(str(one), prereleases=True) for spec in bad) for one in allowed)


def constraints(request: Request) -> dict[str, tuple[tuple[str, SpecifierSet], ...]]:
    """The constraints of a request by the package that they limit."""
    out: dict[str, tuple[tuple[str, SpecifierSet], ...]] = {}
    for extra in request.requirements:
        requirement = parse_requirement(extra.text) if extra.constraint else None
        if requirement is not None:
            name = canonicalize_name(requirement.name)
            out[name] = (*out.get(name, ()), (f"{extra.text} ({extra.origin})", requirement.specifier))
    return out
