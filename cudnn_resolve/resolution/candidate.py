"""Candidates for each kind of package of the universe, what must hold of them, and the kinds that make them."""

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


class Candidate(Struct, frozen=True, kw_only=True, eq=False):
    """One version of one package of the universe; compared by identity, so that each is made once."""

    key: Key
    version: str
    """For people: `12.4`, `535.104.05`, `2.6.0+cu118`; `unknown` for a fact that nobody knows."""
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
    """One line of CUDA runtime libraries through one channel."""

    key: CudaKey
    cuda: CudaVersion
    """The line, `12.4`."""
    channel: Channel
    releases: tuple[str, ...]
    """Toolkit releases of the line that the channel has, newest last."""
    path: str | None = None
    """Directory of an installed toolkit."""
    repository: str | None = None
    """Name of the apt repository."""
    foreign: bool = False
    """True for the repository of an older release of the distribution."""

    def __str__(self) -> str:
        return f"CUDA {self.version} ({self.channel})"


class CudnnCandidate(Candidate, frozen=True, kw_only=True, eq=False):
    """A cuDNN build through one channel."""

    key: CudnnKey
    build: CudnnBuild
    channel: Channel

    def __str__(self) -> str:
        return f"cuDNN {self.version} ({self.channel})"


class PipCandidate(Candidate, frozen=True, kw_only=True, eq=False):
    """A release of a pip package; None for one that the matrix does not list, whose version is left to the installer."""

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
        """The package, or the text of the property."""
        return self.version


class Need(Struct, frozen=True, eq=False):
    """One thing that must hold of one package of the universe; compared by identity."""

    key: Key
    test: Callable[[Any], bool]
    """True for a candidate of that package that it accepts."""
    text: str
    """What is wanted, in words: `driver >= 525.60.13`."""
    because: str
    """Who wants it and how that is known."""
    declared: SpecifierSet | None = None
    """The specifier as a wheel declares it, where `test` reads it more widely."""
    requested_by: str | None = None
    """`torch 2.6.0`: who declares it."""
    binding: bool = True
    """False for a pin that nobody has to obey (of an extra that is not installed), only better kept."""
    floor: DriverVersion | tuple[int, int] | None = None
    """The oldest driver, or C library, that it accepts."""
    build: Build | None = None
    """The build whose CUDA libraries it is about."""
    owner: str | None = None
    """The owner that it wants for a slot."""
    divides: bool = False
    """True where it only divides the search: it explains nothing."""
    alike: tuple[object, ...] | None = None
    """Needs with the same value accept the same candidates; None = nobody knows of another one that does."""


def slot_need(key: Key, owner: str, text: str, because: str, *, requested_by: str | None = None) -> Need:
    """Return the need that a slot is owned by `owner` alone."""
    return Need(key, lambda other: other.owner == owner, text, because, requested_by=requested_by, owner=owner)


def shared_major(library: str, major: int, because: str) -> Need:
    """Return the need that all frameworks of an environment share a major of CUDA or cuDNN."""
    return slot_need(SlotKey(f"{library} major"), str(major), f"{library} {major}", because)


class LazyList(Generic[T]):
    """The values of an iterator, worked out on demand and once."""

    __slots__ = ("_found", "_source")

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._found: list[T] = []

    def __iter__(self) -> Iterator[T]:
        number = 0
        while True:
            if number == len(self._found):
                try:
                    self._found.append(next(self._source))
                except StopIteration:
                    return
            yield self._found[number]
            number += 1


K = TypeVar("K", bound=Key)
C = TypeVar("C", bound=Candidate)


class Kind(Generic[K, C]):
    """One kind of packages of the universe."""

    def __init__(self) -> None:
        self._made: dict[K, LazyList[C]] = {}

    def make(self, key: K) -> Iterator[C]:
        """Make the candidates of a package."""
        raise NotImplementedError

    def candidates(self, key: K, needs: Sequence[Need]) -> Iterable[C]:  # noqa: ARG002 - some kinds tell their candidates by them
        """Return the candidates of a package in the order in which they are made, not yet held against the needs."""
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = LazyList(self.make(key))
        return found

    def ordered(self, key: K, needs: Sequence[Need]) -> Iterable[C]:
        """Return the candidates of a package, best first under these needs."""
        return self.candidates(key, needs)

    def needs(self, candidate: C) -> Iterator[Need]:  # noqa: ARG002 - most facts need nothing
        """What a candidate needs, facts first, so that one that does not suit the machine is dropped early."""
        return iter(())
