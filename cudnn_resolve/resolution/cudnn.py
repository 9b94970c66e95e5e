"""The cuDNN of an environment, through one channel: its wheel, the apt package, a copy on the system, or a wheel in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from cudnn_resolve.matrix.row import CudnnBuild
from cudnn_resolve.resolution import compatibility
from cudnn_resolve.resolution.candidate import Channel, CudaCandidate, CudnnCandidate, Kind, Need, PipCandidate
from cudnn_resolve.resolution.candidate_order import CudnnOrder
from cudnn_resolve.resolution.channel import (
    allowed_channels,
    enclosing_framework,
    folder_versions,
    system_channels,
)
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.installed import InstalledFrameworks
from cudnn_resolve.resolution.key import CUDA, CUDA_OF_SYSTEM, CudnnKey, pip_key
from cudnn_resolve.resolution.release import parse_version
from cudnn_resolve.version import CudaVersion, CudnnVersion

_CUDA_CHANNELS: dict[Channel, tuple[Channel, ...]] = {
    "pip": ("pip",),
    "apt": ("apt", "system", "pip"),
    "system": ("system", "apt", "pip"),
    "folder": ("pip",),
}
"""Channel of a cuDNN to the channels of CUDA that it can be combined with."""


class CudnnLibraries(Kind[CudnnKey, CudnnCandidate]):
    """cuDNN builds through the allowed channels."""

    def __init__(self, context: Context, installed: InstalledFrameworks) -> None:
        super().__init__()
        self.context = context
        self.installed = installed
        self._versions_of: Callable[[str], set[str]] = cache(lambda wheel: {release.text for release in context.releases.of(wheel)})

    def make(self, key: CudnnKey) -> Iterator[CudnnCandidate]:
        """Every cuDNN build of the allowed channels; for that of the system: installed copies and apt."""
        for channel in self._channels(key):
            for build in self._installed_builds() if channel == "system" else self._builds(channel):
                yield CudnnCandidate(key=key, version=str(build.version), build=build, channel=channel)

    def _channels(self, key: CudnnKey) -> tuple[Channel, ...]:
        if key.in_folder:
            return ("folder",)
        return system_channels(self.context) if key.of_system else allowed_channels(self.context)

    def _builds(self, channel: Channel) -> Iterator[CudnnBuild]:
        """Builds of the matrix that a channel has and no advisory rejects."""
        for build in self.context.book.cudnn_builds():
            if channel in ("pip", "folder"):
                is_there = build.wheel is not None and str(build.version) in self._versions_of(build.wheel)
            else:
                is_there = build.apt.package is not None and build.apt.version is not None
            if is_there and not self._is_avoided(build, channel):
                yield build

    def _is_avoided(self, build: CudnnBuild, channel: Channel) -> bool:
        version = parse_version(str(build.version))
        if version is None or self.context.request.strict_pins:
            return False
        return self.context.is_avoided(build.wheel if channel in ("pip", "folder") and build.wheel else "cudnn", version)

    def _installed_builds(self) -> Iterator[CudnnBuild]:
        """Builds of the copies on the system, from the matrix or derived from the copy."""
        builds = self.context.book.cudnn_builds()
        for copy in self.context.machine.cudnn:
            if copy.version is None or copy.source == "pip" or copy.complete is False:
                continue
            if enclosing_framework(self.context, copy) is not None:
                continue
            version = CudnnVersion(copy.version)
            major = CudaVersion(copy.cuda).major if copy.cuda else None
            known = [
                build
                for build in builds
                if (build.version == version or (len(version.parts) == 3 and build.version.parts[:3] == version.parts))
                and (major is None or build.cuda_major == major)
            ]
            if known:
                yield from known[: 1 if major is not None else None]
            elif major is not None:
                yield CudnnBuild(version=version, cuda_major=major, soname=copy.soname or version.major)

    def ordered(self, key: CudnnKey, needs: Sequence[Need]) -> Iterable[CudnnCandidate]:
        """Builds of cuDNN, best first: the preferred channel, the one in the folder, then the newest."""
        rank = {channel: number for number, channel in enumerate(allowed_channels(self.context))}
        in_folder = folder_versions(self.context) if key.in_folder else ()

        def order(candidate: CudnnCandidate) -> CudnnOrder:
            parts = (*candidate.build.version.parts, 0, 0, 0)[:4]
            return CudnnOrder(
                channel=rank.get(candidate.channel, 9),
                is_not_in_folder=not any(candidate.version.startswith(version) for version in in_folder),
                version=tuple(-part for part in parts),
                cuda=-candidate.build.cuda_major,
            )

        return sorted(self.candidates(key, needs), key=order)

    def needs(self, candidate: CudnnCandidate) -> Iterator[Need]:
        """What a cuDNN needs: supported GPUs, a matching CUDA, a driver, and a limit that allows it."""
        book, machine, build = self.context.book, self.context.machine, candidate.build
        if candidate.channel == "apt":
            yield from self.installed.apt_needs(build)
        who = f"cuDNN {build.version} for CUDA {build.cuda_major}"
        yield from compatibility.cudnn_hardware(book, machine, build)
        if build.driver is not None and self.context.request.driver_policy == "strict":
            yield compatibility.at_least(build.driver, f"{who} requires it")
        yield compatibility.cudnn_limit(build.version, "it limits the cuDNN of the environment")
        yield _cuda_need(candidate, who)
        if candidate.channel == "pip" and build.wheel:
            text = str(build.version)

            def is_wheel(other: PipCandidate) -> bool:
                return other.release is not None and other.release.text == text

            yield Need(pip_key(build.wheel), is_wheel, f"{build.wheel}=={text}", f"the wheel of {who}")


def _cuda_need(candidate: CudnnCandidate, who: str) -> Need:
    """Need for a CUDA that a cuDNN supports, through a channel that can be combined with its own."""
    build = candidate.build
    channels = _CUDA_CHANNELS[candidate.channel]
    first, last = build.cuda_first, build.cuda_last

    def test(other: CudaCandidate) -> bool:
        if other.channel not in channels or other.cuda.major != build.cuda_major:
            return False
        return (first is None or other.cuda >= CudaVersion(first.line)) and (last is None or other.cuda <= CudaVersion(last.line))

    span = f"CUDA {first.line if first else build.cuda_major}" + (f" to {last.line}" if last else " or later of that major")
    return Need(CUDA_OF_SYSTEM if candidate.key.of_system else CUDA, test, span, f"{who} supports it")
