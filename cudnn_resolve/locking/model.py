"""What a lock holds: packages with their files, and what the program must know of them that PEP 751 has no place for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

SCHEMA = 1
"""Version of the `[tool.cudnn-resolve]` table."""
CREATED_BY = "cudnn-resolve"
TOOL = "cudnn-resolve"
"""Name of our table below `tool`."""


class LockedFile(NamedTuple):
    """One wheel, source archive or archive of a direct reference."""

    name: str
    """File name; of a wheel, its tags are in it."""
    hashes: tuple[tuple[str, str], ...]
    """Algorithm and hexadecimal digest, sorted; at least one."""
    url: str | None = None
    """Without credentials; None where `path` says it."""
    path: str | None = None
    """Relative to the folder of the lock, with `/`."""
    size: int | None = None
    """Bytes."""
    uploaded: str | None = None
    """ISO 8601 in UTC, `2024-02-05T23:55:32Z`."""
    subdirectory: str | None = None
    """Of an archive: where in it the project is."""


class LockedDirectory(NamedTuple):
    """A project in a local folder."""

    path: str
    editable: bool = False
    subdirectory: str | None = None


class LockedVcs(NamedTuple):
    """A project at one commit of a repository."""

    type: str
    commit: str
    url: str | None = None
    path: str | None = None
    requested: str | None = None
    subdirectory: str | None = None


class Dependency(NamedTuple):
    """Another entry of the lock that an entry needs."""

    name: str
    version: str | None = None
    """Said only where two entries have the name."""


class LockedPackage(Struct, frozen=True, kw_only=True):
    """One `[[packages]]` entry; it has wheels, a source archive or both, or else exactly one direct source."""

    name: str
    """Normalized."""
    version: str | None
    """None where only building the project tells it."""
    marker: str | None = None
    """None = on every platform of the lock."""
    requires_python: str | None = None
    dependencies: tuple[Dependency, ...] = ()
    index: str | None = None
    """Address of the index that the files are listed on, without credentials."""
    wheels: tuple[LockedFile, ...] = ()
    sdist: LockedFile | None = None
    archive: LockedFile | None = None
    directory: LockedDirectory | None = None
    vcs: LockedVcs | None = None
    because: tuple[str, ...] = ()
    """Why this version, where that is more than the declared requirements of the others."""


class LockedFramework(NamedTuple):
    """A framework of the stack, in the words of a plan."""

    name: str
    version: str
    variant: str
    cuda_built: str | None = None
    cudnn_built: str | None = None


class LockedApt(NamedTuple):
    """An apt package that the stack needs."""

    name: str
    version: str
    repository: str


class LockedOverride(NamedTuple):
    """A pin of a wheel that the lock leaves."""

    package: str
    requested_by: str
    declared: str
    chosen: str
    reason: str


class LockedEnvironment(NamedTuple):
    """How the loader finds the libraries, in the words of a plan."""

    kind: str
    value: str
    why: str


class Stack(Struct, frozen=True, kw_only=True):
    """What the matrix decided for one platform."""

    platform: str
    """`linux_x86_64`."""
    driver_min: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    cudnn_soname: int | None = None
    compute_capabilities: tuple[str, ...] = ()
    """GPUs for which every part has machine code, `7.5`; empty = not known, or builds without CUDA."""
    ptx_capabilities: tuple[str, ...] = ()
    """GPUs for which some part has only PTX, which the driver compiles."""
    ptx_driver_min: str | None = None
    """The oldest driver that may compile it."""
    frameworks: tuple[LockedFramework, ...] = ()
    apt: tuple[LockedApt, ...] = ()
    overrides: tuple[LockedOverride, ...] = ()
    environment: tuple[LockedEnvironment, ...] = ()


class Asked(Struct, frozen=True, kw_only=True):
    """What the lock is the answer to; it is asked again when the lock is renewed or checked."""

    targets: tuple[str, ...] = ()
    """The frameworks that were asked for, those of requirements files among them."""
    said: tuple[str, ...] = ()
    """Those of them that were asked for without a file."""
    requirements: tuple[str, ...] = ()
    """Further requirements and constraints, as they were read from the files; constraints begin with `-c `."""
    files: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Option (`requirement`, `constraint`, `group`) and the files that it named, relative to the folder of the lock."""
    cuda: str | None = None
    cudnn: str | None = None
    driver_policy: str = "minor"
    device: str = "gpu"
    channel: str = "auto"
    strict_pins: bool = False
    stated: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Further options as they were given: `("driver", ("535.104.05",))`, `("gpu", ("T4", "A100"))`, `("exclude-newer", …)`.

    With `platform` or `python-version` among them, nothing counted of the machine on which the lock was made.
    """


class Tool(Struct, frozen=True, kw_only=True):
    """Our own table of a lock."""

    asked: Asked
    python: str
    """The Python minor that the pins hold for, `3.11`; `3.13t` for one without the GIL."""
    matrix: str | None
    """Version of the tables that decided."""
    stacks: tuple[Stack, ...]
    """One for each platform, in the order of their names; at least one."""
    validation: tuple[Mapping[str, object], ...] = ()
    """Records of tests that passed on real machines; they speak of exactly these pins."""

    @property
    def has_overrides(self) -> bool:
        """True where a pin leaves what some wheel declares: an installer that resolves again would refuse it."""
        return any(stack.overrides for stack in self.stacks)


class Lock(Struct, frozen=True, kw_only=True):
    """A whole lock."""

    packages: tuple[LockedPackage, ...]
    """By name, then version."""
    requires_python: str | None = None
    environments: tuple[str, ...] = ()
    """Markers of the platforms that it is for; empty = any."""
    default_groups: tuple[str, ...] = ()
    """Dependency groups that are installed unasked; only locks of other programs have them."""
    created_by: str = CREATED_BY
    tool: Tool | None = None
    """None for a lock of another program."""
    notes: tuple[str, ...] = ()
    """What should be known of a lock that was read, such as credentials that were left out of it."""
