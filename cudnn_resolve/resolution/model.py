"""Values of a resolution: pins with their reasons, and conflicts with their ways out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build, CudnnBuild
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.requirement.source import Direct, File, Offer
    from cudnn_resolve.resolution.candidate import Candidate, Channel, Need
    from cudnn_resolve.resolution.installed import UnrequestedFramework
    from cudnn_resolve.resolution.key import Key
    from cudnn_resolve.version import DriverVersion


class Reason(Struct, frozen=True, kw_only=True):
    """A need that applied to a pin; for its fields see `candidate.Need`."""

    text: str
    because: str
    parent: str | None
    """Display name of the candidate that has it; None for the request."""
    parent_key: Key | None = None
    declared: str | None = None
    requested_by: str | None = None
    binding: bool = True
    obeyed: bool = True
    """False if the chosen version violates the declared specifier."""
    restates: bool = False
    key: Key | None = None
    floor: DriverVersion | tuple[int, int] | None = None


class Pin(Struct, frozen=True, kw_only=True):
    """A chosen candidate and every need that applied to it."""

    candidate: Candidate
    reasons: tuple[Reason, ...]


class PipPin(Struct, frozen=True, kw_only=True):
    """A pip package of the resolution."""

    name: str
    version: str | None
    """None = left to the installer, because the releases of the package are unknown."""
    index: str | None
    """Id of the index it must come from; None = the configured one."""
    reasons: tuple[Reason, ...]
    build: Build | None = None
    offer: Offer | None = None
    """All its files on the index; None if no index was queried."""
    file: File | None = None
    """The file that fits the machine best: a wheel, or a source archive if there is no wheel."""
    requires: tuple[str, ...] = ()
    """Names of the pins that it requires on this machine, sorted."""
    direct: Direct | None = None
    """The direct reference it comes from."""


class AptPin(Struct, frozen=True, kw_only=True):
    """An apt package of the resolution."""

    name: str
    version: str
    repository: str
    because: tuple[str, ...] = ()


class Override(Struct, frozen=True, kw_only=True):
    """A pin in a wheel's metadata that the resolution overrides, because the matrix knows the real range."""

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
    """The pin of every needed package."""
    builds: tuple[Build, ...]
    """The build of each target, in the order of the targets."""
    pip: tuple[PipPin, ...]
    apt: tuple[AptPin, ...]
    overrides: tuple[Override, ...]
    cuda: str | None
    """CUDA line of the libraries."""
    cudnn: str | None
    cudnn_soname: int | None
    cudnn_build: CudnnBuild | None
    channels: dict[str, Channel]
    """Framework to the channel of its CUDA and cuDNN libraries."""
    driver_min: str | None
    driver_because: str | None
    unrequested: tuple[UnrequestedFramework, ...] = ()
    """Installed frameworks that the request does not name."""
    dropped: tuple[str, ...] = ()
    """Installed companions that could not move along."""
    rounds: int = 0
    unreached: Mapping[str, str] = field(default_factory=dict)
    """Package to the error of the index that the matrix names for its variant and that did not answer."""
    remains: Relaxation | None = None
    """The resolution with the configured indexes alone, if the index of a variant did not answer."""
    guessed: Mapping[str, str] = field(default_factory=dict)
    """Package to why its requirements may be incomplete."""
    in_folder: PipPin | None = None
    """The wheel of a second cuDNN in a separate folder."""


class Cause(Struct, frozen=True, kw_only=True):
    """A line of a conflict's explanation."""

    what: str
    because: str


class Relaxation(Struct, frozen=True, kw_only=True):
    """A change that makes the request satisfiable."""

    change: str
    result: str
    command: str
    distance: int = 0
    """Sort key: nearest first."""


class Refusal(Struct, frozen=True, kw_only=True):
    """Why there is no consistent choice, and what would work."""

    message: str
    causes: tuple[Cause, ...]
    relaxations: tuple[Relaxation, ...]


class Conflict(Refusal, frozen=True, kw_only=True):
    """A refusal with its request and machine."""

    request: Request
    machine: Machine


class Demand(NamedTuple):
    """A need and the candidate that has it; None for the request itself."""

    need: Need
    parent: Candidate | None


class Rejection(Struct, frozen=True):
    """A candidate that a search or the machine rejected."""

    candidate: Candidate
    need: Need
    """The need of the candidate that cannot be met."""
    against: tuple[Demand, ...] = ()
    """Earlier demands on the same package."""

    @property
    def about(self) -> Key:
        """The package that it clashed on."""
        return self.need.key


class Failure(Struct, frozen=True, kw_only=True):
    """A search without an answer: the rejections in order, and the demands of the last conflict."""

    rejections: tuple[Rejection, ...]
    causes: tuple[Demand, ...]
    rounds: int
    core: frozenset[str] = frozenset()
    """Needs of the request that exclude one another, as text; empty if unknown."""
    exhausted: bool = False
    """True if the search was stopped before it was complete."""


class Bar(Struct, frozen=True, kw_only=True):
    """The versions that a party allows."""

    who: str
    """`torch 2.6.0`, `driver 550.54.15`, `Tesla T4`."""
    wants: str
    because: str
    spans: tuple[tuple[str, str], ...]
    """First and last version of each allowed run; empty if none is allowed."""


class Range(Struct, frozen=True, kw_only=True):
    """The versions of a component, and what each party allows of them."""

    name: str
    """`driver`, `Python`, `CUDA` or `cuDNN`."""
    versions: tuple[str, ...]
    """Oldest first."""
    chosen: str | None
    """None if nothing is chosen, as in a conflict."""
    bars: tuple[Bar, ...]
    """Parties that exclude a version."""
