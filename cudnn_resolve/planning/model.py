"""The plan as values; its JSON form is the contract's."""

from __future__ import annotations

from msgspec import Struct

from cudnn_resolve.facts.model import Facts
from cudnn_resolve.locking.model import Environment, Framework
from cudnn_resolve.locking.proof import Proof
from cudnn_resolve.requirement.source import DirectUrl, File
from cudnn_resolve.resolution.model import Override, Refusal


class StackFramework(Framework, frozen=True, kw_only=True):
    """A framework of the stack, and what it loads."""

    cudnn: str | None
    """The cuDNN that it loads."""
    libraries: str
    """Where its CUDA libraries come from: `pip`, `apt`, `system`, `bundled` or `none`."""
    asked: bool = True
    """False for one that is installed and stays."""


class Stack(Struct, frozen=True, kw_only=True):
    """What the matrix decided."""

    driver_min: str | None
    driver_because: str | None
    driver_policy: str
    cuda: str | None
    cudnn: str | None
    cudnn_soname: int | None
    frameworks: tuple[StackFramework, ...]
    cuda_of_wheels: bool = False
    """True where the CUDA is that of installed wheels, which a framework finds before that of the system, and the cuDNN is the system's."""


class PipAction(Struct, frozen=True, kw_only=True):
    """One pip package of a plan, from the difference to the journal of an `apply`."""

    name: str
    version: str
    action: str = "install"
    """`install`, `upgrade`, `downgrade`, `keep` or `remove`."""
    index: str | None = None
    """Address of the index it must come from; None = the configured one."""
    because: tuple[str, ...] = ()
    installed: str | None = None
    """The version that is installed; None where there is none."""
    page: bool = False
    """True where the address is a page of links (`--find-links`) and no index."""
    reinstall: bool = False
    """True where this version is installed and its files must be written again."""
    direct: DirectUrl | None = None
    """The one place that the user takes it from; None = an index."""
    file: File | None = None
    """What is to be installed: one file with its address and hashes; None where no index was asked."""

    @property
    def pin(self) -> str:
        """`name==version`."""
        return f"{self.name}=={self.version}"


class AptAction(Struct, frozen=True, kw_only=True):
    """One apt package of a plan, from the difference to the journal of an `apply`."""

    name: str
    version: str
    repository: str = ""
    action: str = "install"
    """`install`, `upgrade` or `keep`."""
    because: tuple[str, ...] = ()
    installed: str | None = None
    """The version that is installed; None where there is none."""


class AptRepository(Struct, frozen=True, kw_only=True):
    """An apt repository that must be known before its packages can be installed."""

    name: str
    """As NVIDIA calls it, `ubuntu2204`."""
    url: str
    """Of a flat repository; ends with a slash."""
    key_url: str
    """Address of the public key that signs it."""
    fingerprint: str
    """Of that key, 40 upper-case hexadecimal digits."""
    is_bundled: bool = False
    """True for one in a bundle: its packages come from it alone, and it is not made known to the system."""

    @property
    def list_name(self) -> str:
        """Name of its list, as NVIDIA's package `cuda-keyring` calls it: `cuda-ubuntu2204-x86_64.list`."""
        return f"cuda-{self.name}-{self.url.rstrip('/').rpartition('/')[2]}.list"

    def entry(self, keyring: str) -> str:
        """Return the line of its list, which accepts the key in the file `keyring` and no other."""
        return f"deb [signed-by={keyring}] {self.url} /\n"


class Step(Struct, frozen=True, kw_only=True):
    """One thing to do."""

    id: str
    kind: str
    """`apt-repository`, `apt`, `venv`, `pip-remove`, `pip`, `pip-unpinned`, `preload`, `folder`, `ldconfig` or `kernel`."""
    argv: tuple[str, ...] | None
    """None where it is not one command."""
    why: str
    needs_root: bool = False
    repository: AptRepository | None = None
    """For `apt-repository`: what `apply` makes known."""


class Warning(Struct, frozen=True, kw_only=True):
    """Something that the reader should know."""

    code: str
    message: str


class Plan(Struct, frozen=True, kw_only=True):
    """The ordered steps from these facts to a resolution, or why there is none: a plain value."""

    targets: tuple[str, ...]
    facts: Facts
    python: str | None = None
    """The Python that it is for, where the facts do not say it: `3.12`."""
    arch: str | None = None
    """The architecture that it is for, where the facts do not say it."""
    stack: Stack | None = None
    pip: tuple[PipAction, ...] = ()
    unpinned: tuple[str, ...] = ()
    """Packages whose versions the installer chooses."""
    left_open: tuple[str, ...] = ()
    """The same, each with everything that is required of it: `wrapt<1.15,>=1.11`."""
    apt: tuple[AptAction, ...] = ()
    overrides: tuple[Override, ...] = ()
    environment: tuple[Environment, ...] = ()
    steps: tuple[Step, ...] = ()
    sources: tuple[str, ...] = ()
    """Options of pip that say where packages come from, as the user gave them, without credentials."""
    warnings: tuple[Warning, ...] = ()
    notes: tuple[str, ...] = ()
    """What was noticed about the indexes on the way."""
    proven: tuple[Proof, ...] | None = None
    """Tests that its lock passed; None where it comes out of none."""
    conflict: Refusal | None = None

    @property
    def is_satisfiable(self) -> bool:
        """True where there is something to do or to keep."""
        return self.conflict is None

    @property
    def changes(self) -> bool:
        """True where carrying it out would change anything."""
        return any(one.action != "keep" for one in self.pip) or any(one.action != "keep" for one in self.apt) or bool(self.unpinned)
