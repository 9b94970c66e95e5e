"""Candidates for each kind of package in the universe, needs on them, and the base class of the kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import Struct
from packaging.specifiers import SpecifierSet

from cudnn_resolve.resolution.key import CudaKey, CudnnKey, FrameworkKey, GpuKey, Key, LibrariesKey, LimitKey, PipKey, SlotKey
from cudnn_resolve.version import CudaVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build, CudnnBuild
    from cudnn_resolve.resolution.release import Release

T = TypeVar("T")
Channel = Literal["pip", "apt", "system", "bundled", "folder"]
MachineProblem = Literal["driver", "ptx", "gpu-too-old", "gpu-too-new"]
"""What is wrong with a driver or GPU that does not meet a need; `ptx`: the driver is too old to compile it."""


class Candidate(Struct, frozen=True, kw_only=True, eq=False):
    """A version of a package in the universe; compared by identity, so each is made once."""

    key: Key
    version: str
    """Display text: `12.4`, `535.104.05`, `2.6.0+cu118`; `unknown` for an unknown fact."""
    channel: Channel | None = None

    def __str__(self) -> str:
        return f"{str(self.key).partition(':')[0]} {self.version}"


class Fact(Candidate, Generic[T], frozen=True, kw_only=True, eq=False):
    """A fact of the machine or a limit of the user."""

    value: T | None
    """None = unknown, which excludes nothing."""

    def __str__(self) -> str:
        if isinstance(self.key, GpuKey):
            return self.version
        return f"limit {self.version}" if isinstance(self.key, LimitKey) else f"{self.key} {self.version}"


class BuildCandidate(Candidate, frozen=True, kw_only=True, eq=False):
    """A build of a framework."""

    key: FrameworkKey
    build: Build

    def __str__(self) -> str:
        return f"{self.key.name} {self.version}"


class LibrariesCandidate(Candidate, frozen=True, kw_only=True, eq=False):
    """A channel for the CUDA libraries of a build."""

    key: LibrariesKey
    build: Build
    channel: Channel

    def __str__(self) -> str:
        return f"CUDA libraries of {self.key.framework} ({self.channel})"


class CudaCandidate(Candidate, frozen=True, kw_only=True, eq=False):
    """A line of CUDA runtime libraries through a channel."""

    key: CudaKey
    cuda: CudaVersion
    """The line, `12.4`."""
    channel: Channel
    releases: tuple[str, ...]
    """Toolkit releases of the line in the channel, newest last."""
    path: str | None = None
    """Folder of an installed toolkit."""
    repository: str | None = None
    """Name of the apt repository."""
    foreign: bool = False
    """True for the repository of an older release of the distribution."""

    def __str__(self) -> str:
        return f"CUDA {self.version} ({self.channel})"


class CudnnCandidate(Candidate, frozen=True, kw_only=True, eq=False):
    """A cuDNN build through a channel."""

    key: CudnnKey
    build: CudnnBuild
    channel: Channel

    def __str__(self) -> str:
        return f"cuDNN {self.version} ({self.channel})"


class PipCandidate(Candidate, frozen=True, kw_only=True, eq=False):
    """A release of a pip package; None for an unlisted package whose version is left to the installer."""

    key: PipKey
    channel: Channel | None = "pip"
    release: Release | None

    def __str__(self) -> str:
        return f"{self.key.full_name} {self.version}"


class WheelCandidate(PipCandidate, frozen=True, kw_only=True, eq=False):
    """The wheel of a framework's build."""

    release: Release
    build: Build


class SlotCandidate(Candidate, frozen=True, kw_only=True, eq=False):
    """The owner of a slot."""

    key: SlotKey

    @property
    def owner(self) -> str:
        """The owning package, or the value of the shared property."""
        return self.version


class Need(Struct, frozen=True, eq=False):
    """A condition on one package of the universe; compared by identity."""

    key: Key
    test: Callable[[Any], bool]
    """True for the candidates that it accepts."""
    text: str
    """What is needed: `driver >= 525.60.13`."""
    because: str
    """Who needs it, and the source of the rule."""
    declared: SpecifierSet | None = None
    """Specifier in the wheel's metadata, if `test` is wider."""
    requested_by: str | None = None
    """`torch 2.6.0`: who declares it."""
    binding: bool = True
    """False for a pin that is only preferred (of an extra that is not installed)."""
    floor: DriverVersion | tuple[int, int] | None = None
    """Oldest accepted driver or C library."""
    build: Build | None = None
    """The build whose CUDA libraries it is about."""
    owner: str | None = None
    """Required owner of a slot."""
    restates: bool = False
    """True if it only leads from a candidate to another form of itself, such as from a build to its wheel."""
    divides: bool = False
    """True if it only partitions the search and explains nothing."""
    test_key: tuple[object, ...] | None = None
    """Needs with equal keys accept the same candidates; None = unknown."""
    problem: MachineProblem | None = None
    """For a need on the driver or a GPU."""


def impossible(key: Key, text: str, because: str) -> Need:
    """Need that no candidate meets."""
    return Need(key, lambda _: False, text, because)


def known_mismatch(key: Key, text: str, because: str, problem: MachineProblem | None = None) -> Need:
    """Need that a fact or a limit does not meet if it is known."""
    return Need(key, lambda fact: fact.value is None, text, because, problem=problem)


def slot_need(key: Key, owner: str, text: str, because: str, *, requested_by: str | None = None) -> Need:
    """Need that a slot is owned by `owner` alone."""
    return Need(key, lambda slot: slot.owner == owner, text, because, requested_by=requested_by, owner=owner)


def shared_major(library: str, major: int, because: str) -> Need:
    """Need that all frameworks of an environment share a major of CUDA or cuDNN."""
    return slot_need(SlotKey(f"{library} major"), str(major), f"{library} {major}", because)


class LazyList(Generic[T]):
    """The values of an iterator, each computed on demand and once."""

    __slots__ = ("_source", "_values")

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._values: list[T] = []

    def __iter__(self) -> Iterator[T]:
        number = 0
        while True:
            if number == len(self._values):
                try:
                    self._values.append(next(self._source))
                except StopIteration:
                    return
            yield self._values[number]
            number += 1


K = TypeVar("K", bound=Key)
C = TypeVar("C", bound=Candidate)


class Kind(Generic[K, C]):
    """A kind of package in the universe: makes its candidates and knows their needs."""

    def __init__(self) -> None:
        self._made: dict[K, LazyList[C]] = {}

    def make(self, key: K) -> Iterator[C]:
        """Make the candidates of a package."""
        raise NotImplementedError

    def candidates(self, key: K, needs: Sequence[Need]) -> Iterable[C]:  # noqa: ARG002 - some kinds derive candidates from the needs
        """Candidates of a package in the order in which they are made, not yet filtered by the needs."""
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = LazyList(self.make(key))
        return found

    def ordered(self, key: K, needs: Sequence[Need]) -> Iterable[C]:
        """Candidates of a package, best first under these needs."""
        return self.candidates(key, needs)

    def needs(self, candidate: C) -> Iterator[Need]:  # noqa: ARG002 - most facts need nothing
        """Needs of a candidate, facts first, so that one that does not suit the machine is dropped early."""
        return iter(())
