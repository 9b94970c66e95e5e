"""What a resolution is made of, and what it says when there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build, CudnnBuild
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.requirement.source import Direct, File, Offer
    from cudnn_resolve.resolution.candidate import Candidate, Channel
    from cudnn_resolve.resolution.installed import UnrequestedFramework
    from cudnn_resolve.resolution.key import Key
    from cudnn_resolve.version import DriverVersion


class Reason(Struct, frozen=True, kw_only=True):
    """One requirement that touched a pin."""

    text: str
    because: str
    parent: str | None
    """The candidate that brought it, in words; None for the user's own request."""
    parent_key: Key | None = None
    """The same as a package of the universe."""
    declared: str | None = None
    requested_by: str | None = None
    binding: bool = True
    obeyed: bool = True
    """False where the chosen version is not the one that is declared."""
    key: Key | None = None
    """The package of the universe that it is about."""
    floor: DriverVersion | tuple[int, int] | None = None
    """The oldest driver, or C library, that it accepts."""


class Pin(Struct, frozen=True, kw_only=True):
    """One chosen candidate and every requirement that touched it."""

    candidate: Candidate
    reasons: tuple[Reason, ...]


class PipPin(Struct, frozen=True, kw_only=True):
    """A pip package of the resolution."""

    name: str
    version: str | None
    """None = left to the installer, because the matrix does not list the package."""
    index: str | None
    """Id of the index that it must come from; None = the configured one."""
    reasons: tuple[Reason, ...]
    build: Build | None = None
    offer: Offer | None = None
    """Its files on the index, all of them; None where no index was asked."""
    file: File | None = None
    """The file of them that fits the machine best: a wheel, or a source archive where there is no wheel."""
    requires: tuple[str, ...] = ()
    """Names of the pins that it requires on this machine, sorted."""
    direct: Direct | None = None
    """Where it comes from, for a package that the user takes from one place of his own."""


class AptPin(Struct, frozen=True, kw_only=True):
    """An apt package of the resolution."""

    name: str
    version: str
    repository: str
    because: tuple[str, ...] = ()


class Override(Struct, frozen=True, kw_only=True):
    """A pin of a wheel that the resolution leaves, because the matrix knows the real range."""

    package: str
    requested_by: str
    declared: str
    chosen: str
    reason: str


class Resolution(Struct, frozen=True, kw_only=True):
    """One consistent choice."""

    request: Request
    machine: Machine
    pins: dict[Key, Pin]
    """Every package of the universe that was decided."""
    builds: tuple[Build, ...]
    """The build of each target, in the order of the targets."""
    pip: tuple[PipPin, ...]
    apt: tuple[AptPin, ...]
    overrides: tuple[Override, ...]
    cuda: str | None
    """CUDA line that the libraries are of."""
    cudnn: str | None
    cudnn_soname: int | None
    cudnn_build: CudnnBuild | None
    channels: dict[str, Channel]
    """Framework to where its CUDA and cuDNN libraries come from."""
    driver_min: str | None
    driver_because: str | None
    unrequested: tuple[UnrequestedFramework, ...] = ()
    """Installed frameworks that nobody asked for."""
    dropped: tuple[str, ...] = ()
    """Installed companions that could not move along."""
    rounds: int = 0
    unreached: Mapping[str, str] = field(default_factory=dict)
    """Package to why its files could not be listed, where the index that the matrix names for its variant did not answer."""
    remains: Relaxation | None = None
    """What the configured indexes alone would give, where the index of a variant did not answer."""
    guessed: Mapping[str, str] = field(default_factory=dict)
    """Package to why its requirements may not be all."""
    in_folder: PipPin | None = None
    """The wheel of a second cuDNN, which lies in a folder of its own."""


class Cause(Struct, frozen=True, kw_only=True):
    """One line of a conflict."""

    what: str
    because: str


class Relaxation(Struct, frozen=True, kw_only=True):
    """A change that would make the request satisfiable."""

    change: str
    result: str
    command: str
    distance: int = 0
    """Nearest first."""


class Refusal(Struct, frozen=True, kw_only=True):
    """Why there is no consistent choice, and what would work."""

    message: str
    causes: tuple[Cause, ...]
    relaxations: tuple[Relaxation, ...]


class Conflict(Refusal, frozen=True, kw_only=True):
    """The same, with what was asked."""

    request: Request
    machine: Machine


class Rejection(Struct, frozen=True, kw_only=True):
    """A candidate that a solve turned down, and what it met."""

    candidate: Candidate
    about: Key
    """The package of the universe on which it clashed."""
    need: str
    because: str
    against: tuple[Reason, ...]
    """What others wanted of that package already."""


class Failure(Struct, frozen=True, kw_only=True):
    """A solve without a result: what was turned down on the way, in order, and the requirements of the last clash."""

    rejections: tuple[Rejection, ...]
    causes: tuple[Reason, ...]
    rounds: int
    core: frozenset[tuple[Key, str]] = frozenset()
    """The wishes of the request that exclude one another, each by its package and its text; empty where nobody knows."""
    exhausted: bool = False
    """True where the search was cut off before it was complete."""


class Bar(Struct, frozen=True, kw_only=True):
    """What one party allows."""

    who: str
    """`torch 2.6.0`, `driver 550.54.15`, `Tesla T4`."""
    wants: str
    because: str
    spans: tuple[tuple[str, str], ...]
    """First and last version of each run of allowed ones; empty where it allows none."""


class Range(Struct, frozen=True, kw_only=True):
    """The versions of one thing, and what each party allows of them."""

    name: str
    """`driver`, `Python`, `CUDA` or `cuDNN`."""
    versions: tuple[str, ...]
    """Oldest first."""
    chosen: str | None
    """None where nothing is chosen, as in a conflict."""
    bars: tuple[Bar, ...]
    """Those that exclude something."""
