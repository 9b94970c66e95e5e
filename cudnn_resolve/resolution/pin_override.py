"""Needs of requirement lines; a pin on an NVIDIA library is widened to the range that its ABI allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.requirement.target import VENDOR, is_exact, names_prerelease
from cudnn_resolve.resolution.candidate import Need, PipCandidate
from cudnn_resolve.resolution.key import pip_key
from cudnn_resolve.resolution.release import Release, parse_version
from cudnn_resolve.version import CudaVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Component
    from cudnn_resolve.resolution.context import Context


def is_version(release: Release, text: str) -> bool:
    """True if a release has a version, however that is spelled."""
    return release.text == text or release.version == parse_version(text)


def contains(specifier: SpecifierSet) -> Callable[[Version], bool]:
    """Test for versions within a specifier, including pre-releases."""
    return lambda version: specifier.contains(version, prereleases=True)


def abi_range(component: Component, specifier: SpecifierSet) -> tuple[str, Callable[[Version], bool]]:
    """The range that a specifier on an NVIDIA library can be widened to: as text, and as a test of versions.

    A pin to X becomes: same major, not older than X (for cuDNN: than X's minor). Source: NVIDIA's ABI promise within a
    CUDA major and cuDNN's compatibility rule; `component.abi` tells which packages have it. Other operators hold as written.
    """
    pins = [part for part in specifier if part.operator == "==" and not part.version.endswith(".*")]
    if component.abi == "exact" or not pins:
        return str(specifier), contains(specifier)
    rest = SpecifierSet(",".join(str(part) for part in specifier if part not in pins))
    pin = Version(pins[0].version)
    if component.abi == "major":
        floor = Version(str(pin.major))
    elif component.library == "cudnn":
        floor = Version(f"{pin.major}.{pin.minor}")
    else:
        floor = pin
    next_major = pin.major + 1

    def test(version: Version) -> bool:
        return floor <= version and version.major < next_major and rest.contains(version, prereleases=True)

    return f">={floor},<{next_major}" + (f",{rest}" if str(rest) else ""), test


def within(specifier: SpecifierSet, context: Context) -> Callable[[PipCandidate], bool]:
    """Test for candidates within a specifier; pre-releases and yanked releases need an opt-in, see `_eligibility`."""
    lowest, above = _outer_bounds(specifier)
    is_eligible = _eligibility(specifier, context)

    def test(candidate: PipCandidate) -> bool:
        release = candidate.release
        if release is None:
            return True
        if release.build is None and ((lowest and release.version < lowest) or (above and release.version >= above)):
            return False
        if not specifier.contains(release.version, prereleases=True) and not _is_vendor_pin(specifier, release):
            return False
        return is_eligible(release)

    return test


def _eligibility(specifier: SpecifierSet, context: Context) -> Callable[[Release], bool]:
    """Test whether releases are eligible under a specifier.

    A pre-release is eligible if the specifier names one, if it needs no opt-in or if it is installed; a yanked release if the
    specifier pins it or it is installed.
    """
    allows_prerelease, is_pin = names_prerelease(specifier), is_exact(specifier)

    def test(release: Release) -> bool:
        if not (release.version.is_prerelease or release.details.yanked):
            return True
        installed = context.machine.pip.get(release.package)
        if installed is not None and is_version(release, installed):
            return True
        return (allows_prerelease or release.pre_counts or not release.version.is_prerelease) and (is_pin or not release.details.yanked)

    return test


def _outer_bounds(specifier: SpecifierSet) -> tuple[Version | None, Version | None]:
    """Inclusive lower and exclusive upper bound of a specifier, which decide most tests quickly."""
    lowest = [Version(part.version) for part in specifier if part.operator in (">=", "~=", ">")]
    above = [Version(part.version) for part in specifier if part.operator == "<"]
    return max(lowest, default=None), min(above, default=None)


def _is_vendor_pin(specifier: SpecifierSet, release: Release) -> bool:
    """True if a specifier names a vendor build by its full version."""
    version = parse_version(release.text) if release.build is not None and release.build.variant == VENDOR else None
    return version is not None and specifier.contains(version, prereleases=True)


def requirement_need(context: Context, requirement: Requirement, *, by: Release, extra: str | None, who: str, binding: bool = True) -> Need:
    """Need of a Requires-Dist line; a pin on an NVIDIA library is widened to the range that its ABI allows."""
    name = canonicalize_name(requirement.name)
    key = pip_key(name, requirement.extras)
    specifier, text = requirement.specifier, str(requirement.specifier)
    because = f"{who} requires {requirement.name}{text}" + (f" (extra {extra})" if extra else "")
    component = context.book.component(name)
    if component is None or (context.request.strict_pins and binding):
        return Need(key, within(specifier, context), f"{requirement.name}{text}", because, test_key=(key, text))
    # A library links against an nvJitLink at least as new as itself.
    linked_cuda = context.book.cuda_of(by.package, by.text) if component.library == "nvjitlink" else None
    range_text, is_in_range = abi_range(component, specifier)
    is_eligible = _eligibility(specifier, context)

    def test(candidate: PipCandidate) -> bool:
        release = candidate.release
        if release is None:
            return True
        if linked_cuda is not None:
            cuda = context.book.cuda_of(name, release.text)
            if cuda is not None and cuda < CudaVersion(linked_cuda.line):
                return False
        return is_in_range(release.version) and is_eligible(release) and not context.is_unwanted(release)

    return Need(
        key,
        test,
        f"{requirement.name}{range_text}",
        because,
        declared=specifier if text else None,
        requested_by=who,
        binding=binding,
        test_key=(key, text, linked_cuda.line if linked_cuda is not None else None),
    )
