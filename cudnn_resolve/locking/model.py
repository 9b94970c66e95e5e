"""The content of a lock: a PEP 751 file, and the table of this program."""

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
"""Name of this program's table below `tool`."""

VersionText = Annotated[str, Meta(pattern=r"^\d{1,6}(\.\d{1,9}){0,4}\Z")]
"""A version of the driver or of cuDNN."""
CapabilityText = Annotated[str, Meta(pattern=r"^[1-9][0-9]?\.[0-9][af]?\Z")]


class Framework(Struct, frozen=True, kw_only=True):
    """A framework of a stack, in a lock and in a plan."""

    name: str
    version: str
    variant: str
    cuda_built: str | None = None
    cudnn_built: str | None = None

    @classmethod
    def of(cls, build: Build, **fields: Any) -> Self:
        """The framework of a build; `fields` are those of a subclass."""
        return cls(
            name=build.package,
            version=build.wheel_version,
            variant=build.variant,
            cuda_built=str(build.cuda) if build.cuda else None,
            cudnn_built=str(build.cudnn) if build.cudnn else None,
            **fields,
        )


class FolderWheel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A library wheel that is unpacked into a separate folder, because the environment has another version of it."""

    name: str
    version: str
    index: str | None = None
    """URL of the index that it must come from; None = the configured one."""
    file: File | None = None
    """The file to unpack; None if no index was consulted."""


class Environment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way in which the loader finds the libraries, in a lock and in a plan."""

    kind: str
    """`none`, `preload`, `folder`, `ldconfig` or `env`."""
    value: str
    """For `ldconfig`: the directories; for `preload` and `folder`: the frameworks; empty for `none`."""
    why: str
    wheel: FolderWheel | None = None
    """For `folder`: the wheel in it, which is loaded before the frameworks are imported."""


class Stack(Struct, frozen=True, kw_only=True):
    """The decisions of the matrix for one platform."""

    platform: str
    """`linux_x86_64`."""
    driver_min: VersionText | None = None
    cuda: str | None = None
    cudnn: VersionText | None = None
    cudnn_soname: int | None = None
    compute_capabilities: tuple[CapabilityText, ...] = ()
    """GPUs for which every part has machine code, such as `7.5`; empty = unknown, or builds without CUDA."""
    ptx_capabilities: tuple[CapabilityText, ...] = ()
    """GPUs for which some part has only PTX, which the driver must compile."""
    ptx_driver_min: VersionText | None = None
    """The oldest driver that can compile it."""
    frameworks: tuple[Framework, ...] = ()
    apt: tuple[AptPin, ...] = ()
    overrides: tuple[Override, ...] = ()
    environment: tuple[Environment, ...] = ()


class LockedRequest(Struct, frozen=True, kw_only=True):
    """The request that the lock answers; it is repeated when the lock is renewed or checked."""

    targets: tuple[str, ...] = ()
    """The requested frameworks, including those from requirements files."""
    direct_targets: tuple[str, ...] = field(default=(), name="said")
    """The targets that were not requested in a file."""
    requirements: tuple[str, ...] = ()
    """Further requirements and constraints, as read from the files; constraints begin with `-c `."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Option (`requirement`, `constraint`, `group`) to its files, relative to the folder of the lock."""
    cuda: str | None = None
    cudnn: str | None = None
    driver_policy: Literal["minor", "strict"] = "minor"
    device: Literal["gpu", "cpu"] = "gpu"
    channel: Literal["auto", "pip", "apt"] = "auto"
    strict_pins: bool = False
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict, name="stated")
    """Further options as given: `{"driver": ("535.104.05",), "gpu": ("T4", "A100"), "exclude-newer": …}`.

    With `platform` or `python-version` among them, the machine on which the lock was made was ignored.
    """


class Tool(Struct, frozen=True, kw_only=True):
    """The table of this program in a lock."""

    request: LockedRequest
    python: str
    """The Python minor that the pins are for: `3.11`, or `3.13t` for a free-threaded one."""
    matrix: str | None
    """Version of the tables that the decisions come from."""
    stacks: tuple[Stack, ...]
    """One for each platform, ordered by name; at least one."""
    validation: tuple[Mapping[str, Any], ...] = ()
    """Records of validations that passed on real machines with exactly these pins."""

    @property
    def has_overrides(self) -> bool:
        """True if a pin overrides what some wheel declares: an installer that resolves again would refuse it."""
        return any(stack.overrides for stack in self.stacks)

    @property
    def preload_note(self) -> str | None:
        """What installers of the lock cannot do for frameworks that need the preload; None if none does."""
        values = (entry.value for stack in self.stacks for entry in stack.environment if entry.kind in ("preload", "folder"))
        names = ", ".join(dict.fromkeys(name for value in values for name in value.split()))
        if not names:
            return None
        return f"installers cannot set up the loader for {names}: run `cudnn-resolve apply` on this lock, or they will find no GPU"


class Lock(Struct, frozen=True, kw_only=True):
    """A complete lock."""

    file: Pylock
    """The PEP 751 part without this program's table: packages by name, then version; their wheels by file name."""
    tool: Tool | None = None
    """None for a lock of another program."""
    notes: tuple[str, ...] = ()
    """Remarks on a lock that was read, such as that credentials were removed."""

    @property
    def packages(self) -> Sequence[Package]:
        """The entries of the lock."""
        return self.file.packages

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The decisions of the matrix for each platform; empty for a lock of another program."""
        return self.tool.stacks if self.tool is not None else ()

    def stack(self, platform: str) -> Stack | None:
        """The stack for a platform; None if there is none."""
        return next((stack for stack in self.stacks if stack.platform == platform), None)


class Difference(Struct, frozen=True, kw_only=True):
    """One difference between a lock and the present, or the machine, in words."""

    what: str
    locked: str
    now: str
    because: str | None = None
    """Its reason, or how it is known."""
    machine: bool = False
    """True if the lock is valid, but for another machine."""


def files_of(package: Package) -> Iterator[LockedFile]:
    """The files of an entry: wheels, source archive, archive of a direct reference."""
    yield from package.wheels or ()
    yield from (file for file in (package.sdist, package.archive) if file is not None)


def name_of(file: LockedFile) -> str:
    """The file name, taken from the path or URL if the lock has no name."""
    return getattr(file, "name", None) or path_name(file.path, file.url)


def path_name(path: str | None, url: str | None) -> str:
    """The last part of a path, else of a URL."""
    return (path or unquote(urlsplit(url or "").path)).replace("\\", "/").rpartition("/")[2]


def version_of(package: Package) -> str | None:
    """The version as text; None if only a build determines it."""
    return str(package.version) if package.version is not None else None


def because_of(package: Package) -> tuple[str, ...]:
    """Reasons for the version, beyond the declared requirements of other packages."""
    return tuple((package.tool or {}).get(TOOL, {}).get("because", ()))


def marker_text(marker: Marker | None) -> str | None:
    """The marker with single quotes, which TOML need not escape."""
    text = str(marker)
    return None if marker is None else text if "'" in text else text.replace('"', "'")
