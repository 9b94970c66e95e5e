"""Where a pin may be overridden: NVIDIA's pins are read as the ranges that their ABI allows, other specifiers as by pip."""

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
    """True for the release of a version, however that is written."""
    return release.text == text or release.version == parse_version(text)


def contains(spec: SpecifierSet) -> Callable[[Version], bool]:
    """Return the test that a version, a pre-release or not, is within a specifier."""
    return lambda version: spec.contains(version, prereleases=True)


def abi_range(component: Component, spec: SpecifierSet) -> tuple[str, Callable[[Version], bool]]:
    """How a specifier on an NVIDIA library may be read: the range in words, and the test of a version.

    An exact pin X becomes: same major, not older than X (for cuDNN: than X's minor). Source: NVIDIA's ABI promise within a
    CUDA major and cuDNN's compatibility rule; `component.abi` says for which packages it is given. Other operators hold as written.
    """
    pins = [one for one in spec if one.operator == "==" and not one.version.endswith(".*")]
    if component.abi == "exact" or not pins:
        return str(spec), contains(spec)
    rest = SpecifierSet(",".join(str(one) for one in spec if one not in pins))
    pin = Version(pins[0].version)
    if component.abi == "major":
        floor = Version(str(pin.major))
    elif component.library == "cudnn":
        floor = Version(f"{pin.major}.{pin.minor}")
    else:
        floor = pin
    top = pin.major + 1

    def test(version: Version) -> bool:
        return floor <= version and version.major < top and rest.contains(version, prereleases=True)

    return f">={floor},<{top}" + (f",{rest}" if str(rest) else ""), test


def within(spec: SpecifierSet, context: Context) -> Callable[[PipCandidate], bool]:
    """A test of candidates: pre-releases only where the specifier names one, withdrawn ones only where it pins or they are installed."""
    lowest, above = _outer_bounds(spec)
    counts = _counting(spec, context)

    def test(candidate: PipCandidate) -> bool:
        release = candidate.release
        if release is None:
            return True
        if release.build is None and ((lowest and release.version < lowest) or (above and release.version >= above)):
            return False
        if not spec.contains(release.version, prereleases=True) and not _is_vendor_pin(spec, release):
            return False
        return counts(release)

    return test


def _counting(spec: SpecifierSet, context: Context) -> Callable[[Release], bool]:
    """A test of releases inside a specifier: whether the kind of release counts for it."""
    named, pinned = names_prerelease(spec), is_exact(spec)

    def test(release: Release) -> bool:
        if not (release.version.is_prerelease or release.yanked):
            return True
        installed = context.machine.pip.get(release.package)
        if installed is not None and is_version(release, installed):
            return True
        return (named or release.pre_counts or not release.version.is_prerelease) and (pinned or not release.yanked)

    return test


def _outer_bounds(spec: SpecifierSet) -> tuple[Version | None, Version | None]:
    """A version that nothing older meets, and one that is not met itself nor by what is newer: most tests take no more than these."""
    lowest = [Version(one.version) for one in spec if one.operator in (">=", "~=", ">")]
    above = [Version(one.version) for one in spec if one.operator == "<"]
    return max(lowest, default=None), min(above, default=None)


def _is_vendor_pin(spec: SpecifierSet, release: Release) -> bool:
    """True where a specifier names an image's own build by its whole version."""
    version = parse_version(release.text) if release.build is not None and release.build.variant == VENDOR else None
    return version is not None and spec.contains(version, prereleases=True)


def requirement_need(context: Context, requirement: Requirement, *, by: Release, extra: str | None, who: str, binding: bool = True) -> Need:
    """The need behind one Requires-Dist line; a pin of an NVIDIA library is read as the range that its ABI allows."""
    name = canonicalize_name(requirement.name)
    key = pip_key(name, requirement.extras)
    spec, said = requirement.specifier, str(requirement.specifier)
    because = f"{who} requires {requirement.name}{said}" + (f" (extra {extra})" if extra else "")
    component = context.book.component(name)
    own = context.book.cuda_of(by.package, by.text) if component is not None and component.library == "nvjitlink" else None
    strict = context.request.strict_pins and binding
    if component is None or strict:
        return Need(key, within(spec, context), f"{requirement.name}{said}", because, alike=(key, said))
    lowest, test = abi_range(component, spec)
    counts = _counting(spec, context)
    text = f"{requirement.name}{lowest}" if lowest else requirement.name

    def holds(candidate: PipCandidate) -> bool:
        release = candidate.release
        if release is None:
            return True
        if own is not None:
            cuda = context.book.cuda_of(name, release.text)
            if cuda is not None and cuda < CudaVersion(own.line):
                return False
        return test(release.version) and counts(release) and not context.is_bad(release)

    alike = (key, said, own.line if own is not None else None)
    return Need(key, holds, text, because, declared=spec if said else None, requested_by=who, binding=binding, alike=alike)
