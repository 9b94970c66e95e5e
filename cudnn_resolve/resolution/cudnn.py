"""The cuDNN that an environment loads, through one channel: its wheel, the apt package, a copy that is there, or a wheel in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.matrix.row import CudnnBuild
from cudnn_resolve.resolution import compatibility
from cudnn_resolve.resolution.candidate import Channel, CudaCandidate, CudnnCandidate, Kind, Need, PipCandidate
from cudnn_resolve.resolution.channel import channels, channels_of_system, framework_around, in_folder, preferred
from cudnn_resolve.resolution.key import CUDA, CUDA_OF_SYSTEM, CudnnKey, pip_key
from cudnn_resolve.resolution.release import parse_version
from cudnn_resolve.version import CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.resolution.context import Context
    from cudnn_resolve.resolution.installed import InstalledFrameworks

_SERVED_WITH: dict[Channel, tuple[Channel, ...]] = {
    "pip": ("pip",),
    "apt": ("apt", "system", "pip"),
    "system": ("system", "apt", "pip"),
    "folder": ("pip",),
}
"""The channels of CUDA that a cuDNN of a channel may stand beside."""


class CudnnLibraries(Kind[CudnnKey, CudnnCandidate]):
    """Builds of cuDNN through the channels that the request allows."""

    def __init__(self, context: Context, installed: InstalledFrameworks) -> None:
        super().__init__()
        self.context = context
        self.installed = installed
        self._of_wheel: dict[str, set[str]] = {}
        self._orders: dict[CudnnKey, list[CudnnCandidate]] = {}

    def make(self, key: CudnnKey) -> Iterator[CudnnCandidate]:
        """Every cuDNN build that some allowed channel has; for that of the system, beside wheels, what is there and what apt has."""
        context = self.context
        served: tuple[Channel, ...] = ("folder",) if key.in_folder else channels_of_system(context) if key.of_system else channels(context)
        for channel in served:
            if channel == "system":
                yield from (_candidate(key, build, channel) for build in self._there())
                continue
            for build in context.book.cudnn_builds():
                if channel in ("pip", "folder"):
                    if build.wheel is None or str(build.version) not in self._versions(build.wheel):
                        continue
                elif build.apt.package is None or build.apt.version is None:
                    continue
                if not self._is_avoided(build, channel):
                    yield _candidate(key, build, channel)

    def _versions(self, wheel: str) -> set[str]:
        if wheel not in self._of_wheel:
            self._of_wheel[wheel] = {release.text for release in self.context.releases.of(wheel)}
        return self._of_wheel[wheel]

    def _is_avoided(self, build: CudnnBuild, channel: Channel) -> bool:
        version = parse_version(str(build.version))
        if version is None or self.context.request.strict_pins:
            return False
        names = ("cudnn", build.wheel) if channel in ("pip", "folder") and build.wheel else ("cudnn",)
        return any(self.context.is_avoided(name, version) for name in names)

    def _there(self) -> Iterator[CudnnBuild]:
        """The builds of the copies on the system, as the matrix knows them or as far as the copy tells."""
        builds = self.context.book.cudnn_builds()
        for copy in self.context.machine.cudnn:
            if copy.version is None or copy.source == "pip" or copy.complete is False or framework_around(self.context, copy) is not None:
                continue
            try:
                version = CudnnVersion(copy.version)
            except ValueError:
                continue
            major = int(copy.cuda.split(".")[0]) if copy.cuda and copy.cuda.split(".")[0].isdigit() else None
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
        """Builds of cuDNN, best first: the preferred channel, what the folder holds, then the newest."""
        if key not in self._orders:
            rank = {channel: number for number, channel in enumerate(preferred(self.context))}
            here = in_folder(self.context) if key.in_folder else ()

            def order(one: CudnnCandidate) -> tuple[int, ...]:
                is_here = any(one.version.startswith(version) for version in here)
                return rank.get(one.channel, 9), not is_here, *_newest_first(one.build)

            self._orders[key] = sorted(self.candidates(key, needs), key=order)
        return self._orders[key]

    def needs(self, candidate: CudnnCandidate) -> Iterator[Need]:
        """What a cuDNN needs: GPUs that it has code for, a CUDA that it works with, a driver, and to be allowed."""
        book, machine, build = self.context.book, self.context.machine, candidate.build
        if candidate.channel == "apt":
            yield from self.installed.apt_needs(build)
        who = f"cuDNN {build.version} for CUDA {build.cuda_major}"
        yield from compatibility.cudnn_hardware(book, machine, build)
        if build.driver is not None and self.context.request.driver_policy == "strict":
            yield compatibility.at_least(build.driver, f"{who} asks for it")
        yield compatibility.cudnn_limit(build.version, who)
        yield _cuda_need(candidate, who)
        if candidate.channel == "pip" and build.wheel:
            text = str(build.version)

            def is_wheel(other: PipCandidate) -> bool:
                return other.release is not None and other.release.text == text

            yield Need(pip_key(build.wheel), is_wheel, f"{build.wheel}=={text}", f"the wheel that carries {who}")


def _candidate(key: CudnnKey, build: CudnnBuild, channel: Channel) -> CudnnCandidate:
    return CudnnCandidate(key=key, version=str(build.version), build=build, channel=channel)


def _cuda_need(candidate: CudnnCandidate, who: str) -> Need:
    """The need for a CUDA that a cuDNN works with, through a channel that goes with its own."""
    build = candidate.build
    channels = _SERVED_WITH[candidate.channel]
    first, last = build.cuda_first, build.cuda_last

    def fits(other: CudaCandidate) -> bool:
        if other.channel not in channels or other.cuda.major != build.cuda_major:
            return False
        return (first is None or other.cuda >= CudaVersion(first.line)) and (last is None or other.cuda <= CudaVersion(last.line))

    span = f"CUDA {first.line if first else build.cuda_major}" + (f" to {last.line}" if last else " or later of that major")
    return Need(CUDA_OF_SYSTEM if candidate.key.of_system else CUDA, fits, span, f"{who} works with it")


def _newest_first(build: CudnnBuild) -> tuple[int, ...]:
    parts = (*build.version.parts, 0, 0, 0)[:4]
    return (*(-part for part in parts), -build.cuda_major)
