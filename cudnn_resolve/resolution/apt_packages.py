"""Packages of apt for a resolution whose CUDA or cuDNN come from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cudnn_resolve.matrix.row import AptPattern
from cudnn_resolve.resolution.candidate import CudaCandidate, LibrariesCandidate
from cudnn_resolve.resolution.channel import EXTRA_LIBRARIES, apt_patterns, extra_apt_package
from cudnn_resolve.resolution.compatibility import LIBRARIES
from cudnn_resolve.resolution.cuda import repositories
from cudnn_resolve.resolution.key import (
    CUDA,
    CUDA_OF_SYSTEM,
    CUDNN,
    CUDNN_OF_SYSTEM,
    Key,
)
from cudnn_resolve.resolution.model import AptPin, Pin
from cudnn_resolve.resolution.solve import cuda_of, cudnn_of
from cudnn_resolve.resolution.universe import Universe


def apt_pins(universe: Universe, pins: Mapping[Key, Pin]) -> tuple[AptPin, ...]:
    """The packages of CUDA and cuDNN, for each of the two chosen pairs that comes through apt, and of what frameworks load besides."""
    found: list[AptPin] = []
    for cuda_key, cudnn_key in ((CUDA, CUDNN), (CUDA_OF_SYSTEM, CUDNN_OF_SYSTEM)):
        cuda, cudnn = cuda_of(pins, cuda_key), cudnn_of(pins, cudnn_key)
        if cuda is not None and cuda.channel == "apt":
            found += _cuda(universe, cuda, _because(pins[cuda_key]))
        if cudnn is not None and cuda is not None and cudnn.channel == "apt":
            name, version = cudnn.build.apt.package or "", cudnn.build.apt.version or ""
            repository = cuda.repository or next(iter(repositories(universe.context)), "")
            found.append(AptPin(name=name, version=version, repository=repository, because=_because(pins[cudnn_key])))
        if cuda is not None and cuda.channel == "apt":
            found += _extra_libraries(universe, cuda, pins)
    return tuple(found)


def _cuda(universe: Universe, runtime: CudaCandidate, because: tuple[str, ...]) -> Iterator[AptPin]:
    fields = {"major": runtime.cuda.major, "minor": runtime.cuda.minor, "release": runtime.releases[-1]}
    for pattern in filter(_needs_pin, apt_patterns(universe.book, runtime.cuda)):
        yield AptPin(
            name=pattern.name.format(**fields),
            version=pattern.version.format(**fields),
            repository=runtime.repository or "",
            because=because,
        )


def _needs_pin(pattern: AptPattern) -> bool:
    """True for the metapackage of runtime libraries, and for a package with the same name in several CUDA lines: apt takes the newest."""
    is_shared = "{major}" not in pattern.name and "*" not in pattern.version
    return pattern.library == "libraries" or (is_shared and pattern.library in LIBRARIES)


def _extra_libraries(universe: Universe, runtime: CudaCandidate, pins: Mapping[Key, Pin]) -> Iterator[AptPin]:
    """Packages of libraries that frameworks load and the metapackage of runtime libraries leaves out."""
    loading: dict[str, list[str]] = {}
    for pin in pins.values():
        candidate = pin.candidate
        if isinstance(candidate, LibrariesCandidate) and candidate.channel == "apt":
            for library in candidate.build.loads:
                because = f"{candidate.build.package} {candidate.build.wheel_version} loads {library}"
                loading.setdefault(library, []).append(because)
    for library in EXTRA_LIBRARIES:
        pattern = extra_apt_package(universe.book, library, runtime.cuda) if library in loading else None
        if pattern is not None:
            name = pattern.name.format(major=runtime.cuda.major, minor=runtime.cuda.minor)
            yield AptPin(name=name, version=pattern.version, repository=runtime.repository or "", because=tuple(loading[library]))


def _because(pin: Pin) -> tuple[str, ...]:
    return tuple(f"{reason.text}: {reason.because}" for reason in pin.reasons)
