"""The inputs of a resolution: the matrix, one machine, one request, and the choices of the running search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Advisory, Build
from cudnn_resolve.requirement.extra import CPU, package_extras, selects_build
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request, Target
from cudnn_resolve.resolution.candidate import Candidate, CudaCandidate
from cudnn_resolve.resolution.evidence import is_idle
from cudnn_resolve.resolution.key import CUDA, Key
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.release import SDIST, Release, extras_of, row_specifier
from cudnn_resolve.resolution.release_catalog import catalog_of

_CUDNN_NAMES = ("cudnn", "nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")


class Context:
    """One request on one machine."""

    def __init__(
        self,
        book: Book,
        machine: Machine,
        request: OpenRequest,
        *,
        nearest_to: Mapping[str, str] | None = None,
        late_pins: Mapping[str, Sequence[SpecifierSet]] | None = None,
        only_cached: bool = False,
    ) -> None:
        self.book = book
        self.machine = machine
        self.request = request
        self.nearest_to = nearest_to or {}
        """Framework to a version; the nearest releases are tried first (for relaxations)."""
        self.late_pins = late_pins or {}
        """Library wheel to pins of packages that are decided after it; they order its releases, too."""
        self.only_cached = only_cached
        """True to take only releases with cached metadata, of packages that the cache has.

        Otherwise such a package may be left to the installer, or be a listed release whose requirements are unknown.
        """
        self.is_restricted = False
        """True once `only_cached` excluded a candidate."""
        self.offers, self.metadata, self.releases = catalog_of(book, machine, request)
        self.chosen: dict[Key, Candidate] = {}
        """Choices of the running search; used only to order candidates."""
        self.constraints = constraints(request)
        """Package to the text and the specifier of each of its constraints (`-c`)."""

    @property
    def cuda(self) -> CudaCandidate | None:
        """The CUDA that the running search has chosen."""
        chosen = self.chosen.get(CUDA)
        return chosen if isinstance(chosen, CudaCandidate) else None

    def allows(self, release: Release) -> bool:
        """True if the user's constraints allow a release."""
        return all(specifier.contains(release.version, prereleases=True) for _, specifier in self.constraints.get(release.package, ()))

    def target_of(self, framework: str) -> Target | None:
        """The target that requests a framework; None if it is not requested."""
        return next((target for target in self.request.targets if target.framework == framework), None)

    def requested_extras(self, framework: str) -> frozenset[str]:
        """Requested extras of a framework."""
        target = self.target_of(framework)
        return frozenset(target.extras) if target is not None else frozenset()

    def device_of(self, framework: str) -> str:
        """Device that a framework is requested for, `gpu` or `cpu`."""
        return CPU if CPU in self.requested_extras(framework) else self.request.device

    def selects_build_by_extra(self, framework: str) -> bool:
        """True if a requested extra selects GPU builds of a framework."""
        return any(selects_build(self.book, framework, extra) for extra in self.requested_extras(framework))

    def package_extras(self, framework: str) -> tuple[str, ...]:
        """Requested extras of a framework that only add packages."""
        target = self.target_of(framework)
        return package_extras(self.book, target) if target is not None else ()

    def is_present(self, framework: str) -> bool:
        """True if a distribution of the framework is installed, and installed versions are preferred."""
        packages = self.book.framework(framework).packages
        return self.request.prefer == "installed" and any(name in self.machine.pip for name in packages)

    def shared_slot(self, package: str, version: str | None = None) -> str | None:
        """The slot of a package, or of one release of it, if other packages own it, too."""
        slot = self.book.slot(package, version)
        return slot if slot is not None and self.book.owners(slot) > 1 else None

    def requirements_of(self, build: Build) -> Iterator[tuple[Requirement, str | None]]:
        """Requirements of a build's wheel, each with the extra for CUDA libraries that adds it; none if there is no wheel."""
        release = self.releases.alone(build) or self.releases.of_build(build)
        return self.metadata.requirements(release, extras_of(build)) if release is not None else iter(())

    def plugins_of(self, build: Build) -> Iterator[Requirement]:
        """Requirements for framework code in the extra of a build (JAX's plugins); TensorRT is optional."""
        for requirement, extra in self.requirements_of(build):
            name = canonicalize_name(requirement.name)
            if extra is not None and self.book.component(name) is None and not name.startswith("tensorrt"):
                yield requirement

    def is_from_source(self, release: Release) -> bool:
        """True for a release that would be built from source; False for an installed, locked or direct one."""
        return release.build is None and release.details.tags == SDIST and not self._is_kept(release)

    def is_idle(self, release: Release) -> bool:
        """True for a release without GPU code for the machine, if another has some; False for an installed, locked or direct one."""
        if release.build is not None or release.index != "default" or self.request.device != "gpu":
            return False
        return is_idle(self.book, self.machine, release) and not self._is_kept(release)

    def _is_kept(self, release: Release) -> bool:
        kept = self.machine.pip.get(release.package), self.request.preferences.get(release.package)
        return release.package in self.request.direct or release.text in kept

    def is_unwanted(self, release: Release) -> bool:
        """True if an advisory rejects the release on this machine or it is yanked; never with --strict-pins."""
        return not self.request.strict_pins and (self.is_avoided(release.package, release.version) or release.details.yanked)

    def is_avoided(self, package: str, version: Version) -> bool:
        """True if an advisory says to avoid this version of a package on this machine.

        A cuDNN is accepted, with a warning, if the user's limit leaves nothing else.
        """
        if self.request.cudnn is not None and "cudnn" in package and self._limit_leaves_only_avoided_cudnn:
            return False
        rows: tuple[Advisory, ...] = self.book.remember("advice against", (package, version), partial(self._avoiding, package, version))
        return any(not row.capability or any(gpu.capability in row.capability for gpu in self.machine.gpus) for row in rows)

    def _avoiding(self, package: str, version: Version) -> tuple[Advisory, ...]:
        """Advisories to avoid this version, each possibly on some GPUs only."""
        rows = (row for row in self.book.advisories(package) if row.action == "avoid")
        return tuple(row for row in rows if row_specifier(row.versions).contains(version, prereleases=True))

    @cached_property
    def _limit_leaves_only_avoided_cudnn(self) -> bool:
        """True if an advisory rejects every cuDNN that the user's limit allows."""
        limit = self.request.cudnn
        allowed = [row.version for row in self.book.cudnn_builds() if limit is None or limit.specifier.contains(str(row.version))]
        rows = (row for name in _CUDNN_NAMES for row in self.book.advisories(name) if row.action == "avoid")
        avoided = [row_specifier(row.versions) for row in rows]
        return bool(allowed) and all(
            any(specifier.contains(str(version), prereleases=True) for specifier in avoided) for version in allowed
        )


def constraints(request: Request) -> dict[str, tuple[tuple[str, SpecifierSet], ...]]:
    """Constraints of a request by package, each with its text and origin."""
    found: dict[str, tuple[tuple[str, SpecifierSet], ...]] = {}
    for line in request.requirements:
        if line.constraint:
            found[line.name] = (*found.get(line.name, ()), (f"{line.text} ({line.origin})", line.requirement.specifier))
    return found
