"""What a lock holds: a PEP 751 file, and what the program must know that PEP 751 has no place for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Meta, Struct, field

from cudnn_resolve.requirement.source import File
from cudnn_resolve.resolution.model import AptPin, Override

if TYPE_CHECKING:
    from packaging.markers import Marker
    from packaging.pylock import Package, PackageArchive, PackageDirectory, PackageSdist, PackageVcs, PackageWheel, Pylock
    from typing_extensions import Self

    from cudnn_resolve.matrix.row import Build

    LockedFile = PackageWheel | PackageSdist | PackageArchive
    Source = LockedFile | PackageDirectory | PackageVcs

CREATED_BY = "cudnn-resolve"
TOOL = "cudnn-resolve"
"""Name of our table below `tool`."""

VersionText = Annotated[str, Meta(pattern=r"^\d{1,6}(\.\d{1,9}){0,4}\Z")]
"""A version of a driver or of cuDNN."""
CapabilityText = Annotated[str, Meta(pattern=r"^[1-9][0-9]?\.[0-9][af]?\Z")]


class Framework(Struct, frozen=True, kw_only=True):
    """A framework of a stack, as a lock and a plan name it."""

    name: str
    version: str
    variant: str
    cuda_built: str | None = None
    cudnn_built: str | None = None

    @classmethod
    def of(cls, build: Build, **more: Any) -> Self:
        """The framework of one build."""
        built = {"cuda_built": str(build.cuda) if build.cuda else None, "cudnn_built": str(build.cudnn) if build.cudnn else None}
        return cls(name=build.package, version=build.wheel_version, variant=build.variant, **built, **more)


class FolderWheel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A library wheel that is unpacked into a folder of its own, because the environment has another version of it."""

    name: str
    version: str
    index: str | None = None
    """Address of the index it must come from; None = the configured one."""
    file: File | None = None
    """What is to be unpacked; None where no index was asked."""


class Environment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the loader finds the libraries, as a lock and a plan say it."""

    kind: str
    """`none`, `preload`, `folder`, `ldconfig` or `env`."""
    value: str
    """For `ldconfig`: the directories; for `preload` and `folder`: the frameworks; empty for `none`."""
    why: str
    wheel: FolderWheel | None = None
    """For `folder`: what lies in it and is loaded for them before they are imported."""


class Stack(Struct, frozen=True, kw_only=True):
    """What the matrix decided for one platform."""

    platform: str
    """`linux_x86_64`."""
    driver_min: VersionText | None = None
    cuda: str | None = None
    cudnn: VersionText | None = None
    cudnn_soname: int | None = None
    compute_capabilities: tuple[CapabilityText, ...] = ()
    """GPUs for which every part has machine code, `7.5`; empty = not known, or builds without CUDA."""
    ptx_capabilities: tuple[CapabilityText, ...] = ()
    """GPUs for which some part has only PTX, which the driver compiles."""
    ptx_driver_min: VersionText | None = None
    """The oldest driver that may compile it."""
    frameworks: tuple[Framework, ...] = ()
    apt: tuple[AptPin, ...] = ()
    overrides: tuple[Override, ...] = ()
    environment: tuple[Environment, ...] = ()


class Asked(Struct, frozen=True, kw_only=True):
    """What the lock is the answer to; it is asked again when the lock is renewed or checked."""

    targets: tuple[str, ...] = ()
    """The frameworks that were asked for, those of requirements files among them."""
    said: tuple[str, ...] = ()
    """Those of them that were asked for without a file."""
    requirements: tuple[str, ...] = ()
    """Further requirements and constraints, as they were read from the files; constraints begin with `-c `."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Option (`requirement`, `constraint`, `group`) to the files that it named, relative to the folder of the lock."""
    cuda: str | None = None
    cudnn: str | None = None
    driver_policy: Literal["minor", "strict"] = "minor"
    device: Literal["gpu", "cpu"] = "gpu"
    channel: Literal["auto", "pip", "apt"] = "auto"
    strict_pins: bool = False
    stated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further options as they were given: `{"driver": ("535.104.05",), "gpu": ("T4", "A100"), "exclude-newer": …}`.

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
    validation: tuple[Mapping[str, Any], ...] = ()
    """Records of tests that passed on real machines; they speak of exactly these pins."""

    @property
    def has_overrides(self) -> bool:
        """True where a pin leaves what some wheel declares: an installer that resolves again would refuse it."""
        return any(stack.overrides for stack in self.stacks)

    @property
    def preload_note(self) -> str | None:
        """What installers of the lock leave undone for frameworks that need the preload; None where none does."""
        values = (one.value for stack in self.stacks for one in stack.environment if one.kind in ("preload", "folder"))
        names = ", ".join(dict.fromkeys(name for value in values for name in value.split()))
        if not names:
            return None
        return (
            f"installers cannot set up the loader for {names}: `cudnn-resolve apply` on this lock does; without it there is no GPU for them"
        )


class Lock(Struct, frozen=True, kw_only=True):
    """A whole lock."""

    file: Pylock
    """The PEP 751 part without our table; packages by name, then version, their wheels by file name."""
    tool: Tool | None = None
    """None for a lock of another program."""
    notes: tuple[str, ...] = ()
    """What should be known of a lock that was read, such as credentials that were left out of it."""

    @property
    def packages(self) -> Sequence[Package]:
        """The entries of the lock."""
        return self.file.packages

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """What the matrix decided, for each platform; nothing for a lock of another program."""
        return self.tool.stacks if self.tool is not None else ()

    def stack(self, platform: str) -> Stack | None:
        """The stack for a platform; None where it has none."""
        return next((one for one in self.stacks if one.platform == platform), None)


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that is no longer as the lock has it, or not here as the lock needs it, in plain words."""

    what: str
    locked: str
    now: str
    because: str | None = None
    """How that is known, or what it comes from."""
    machine: bool = False
    """True where the lock is not at fault, but for another machine than the one that it was held against."""


def files_of(package: Package) -> Iterator[LockedFile]:
    """The files of an entry: wheels, source archive, archive of a direct reference."""
    yield from package.wheels or ()
    yield from (one for one in (package.sdist, package.archive) if one is not None)


def name_of(file: LockedFile) -> str:
    """The file name, from the path or address where the lock does not say it."""
    return getattr(file, "name", None) or path_name(file.path, file.url)


def path_name(path: str | None, url: str | None) -> str:
    """The last part of a path, else of an address."""
    return (path or unquote(urlsplit(url or "").path)).replace("\\", "/").rpartition("/")[2]


def version_of(package: Package) -> str | None:
    """The version as a text; None where only building the project tells it."""
    return str(package.version) if package.version is not None else None


def because_of(package: Package) -> tuple[str, ...]:
    """Why this version, where that is more than the declared requirements of the others."""
    return tuple((package.tool or {}).get(TOOL, {}).get("because", ()))


def marker_text(marker: Marker | None) -> str | None:
    """A marker with single quotes, which TOML need not escape."""
    text = str(marker)
    return None if marker is None else text if "'" in text else text.replace('"', "'")
