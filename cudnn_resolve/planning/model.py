"""Values that make up a plan; the contract fixes their JSON form."""

from __future__ import annotations

from msgspec import Struct

from cudnn_resolve.facts.model import Facts
from cudnn_resolve.locking.model import Environment, Framework
from cudnn_resolve.locking.proof import Proof
from cudnn_resolve.requirement.source import DirectUrl, File
from cudnn_resolve.resolution.model import Override, Refusal


class StackFramework(Framework, frozen=True, kw_only=True):
    """A framework of the stack and the libraries it loads."""

    cudnn: str | None
    """Version of the cuDNN it loads."""
    libraries: str
    """Origin of its CUDA libraries: `pip`, `apt`, `system`, `bundled` or `none`."""
    asked: bool = True
    """False for an installed framework that the user did not request."""


class Stack(Struct, frozen=True, kw_only=True):
    """The part of a plan that the matrix decides."""

    driver_min: str | None
    driver_because: str | None
    driver_policy: str
    cuda: str | None
    cudnn: str | None
    cudnn_soname: int | None
    frameworks: tuple[StackFramework, ...]
    cuda_of_wheels: bool = False
    """True if CUDA comes from installed wheels, which a framework finds before the system's CUDA, while cuDNN is the system's."""


class PipAction(Struct, frozen=True, kw_only=True):
    """A pip package of a plan and what happens to it."""

    name: str
    version: str
    action: str = "install"
    """`install`, `upgrade`, `downgrade`, `keep` or `remove`."""
    index: str | None = None
    """URL of the index it must come from; None for the configured index."""
    because: tuple[str, ...] = ()
    installed: str | None = None
    """Installed version; None if it is not installed."""
    page: bool = False
    """True if `index` is a page of links (`--find-links`) instead of an index."""
    reinstall: bool = False
    """True if this version is installed already and its files must be written again."""
    direct: DirectUrl | None = None
    """Direct reference requested by the user; None for a package from an index."""
    file: File | None = None
    """File to install, with its URL and hashes; None if no index was asked."""

    @property
    def pin(self) -> str:
        """`name==version`."""
        return f"{self.name}=={self.version}"


class AptAction(Struct, frozen=True, kw_only=True):
    """An apt package of a plan and what happens to it."""

    name: str
    version: str
    repository: str = ""
    action: str = "install"
    """`install`, `upgrade` or `keep`."""
    because: tuple[str, ...] = ()
    installed: str | None = None
    """Installed version; None if it is not installed."""

    @property
    def pin(self) -> str:
        """`name=version`, as apt-get takes it."""
        return f"{self.name}={self.version}"


class AptRepository(Struct, frozen=True, kw_only=True):
    """An apt repository that apt must know before its packages can be installed."""

    name: str
    """NVIDIA's name, such as `ubuntu2204`."""
    url: str
    """URL of a flat repository; ends with a slash."""
    key_url: str
    """URL of the public key that signs it."""
    fingerprint: str
    """Fingerprint of that key, 40 upper-case hexadecimal digits."""
    is_bundled: bool = False
    """True for a repository inside a bundle: the only source of its packages, and never added to the system's apt."""

    @property
    def list_name(self) -> str:
        """Name of its source list, as NVIDIA's package `cuda-keyring` names it: `cuda-ubuntu2204-x86_64.list`."""
        return f"cuda-{self.name}-{self.url.rstrip('/').rpartition('/')[2]}.list"

    def entry(self, keyring: str) -> str:
        """Return its source list entry, which trusts no key but the one in the file `keyring`."""
        return f"deb [signed-by={keyring}] {self.url} /\n"


class Step(Struct, frozen=True, kw_only=True):
    """One step of a plan."""

    id: str
    kind: str
    """`apt-repository`, `apt`, `venv`, `pip-remove`, `pip`, `pip-unpinned`, `preload`, `folder`, `ldconfig` or `kernel`."""
    argv: tuple[str, ...] | None
    """None if the step is not a single command."""
    why: str
    needs_root: bool = False
    repository: AptRepository | None = None
    """For `apt-repository`: the repository to add."""


class Warning(Struct, frozen=True, kw_only=True):
    """A warning to the reader of a plan."""

    code: str
    message: str


class Plan(Struct, frozen=True, kw_only=True):
    """Ordered steps from a machine's facts to a resolution, or the conflict that rules one out."""

    targets: tuple[str, ...]
    facts: Facts
    python: str | None = None
    """Python version that the plan assumes if the facts have none: `3.12`."""
    arch: str | None = None
    """Architecture that the plan assumes if the facts have none."""
    stack: Stack | None = None
    pip: tuple[PipAction, ...] = ()
    unpinned: tuple[str, ...] = ()
    """Packages whose versions are left to the installer."""
    left_open: tuple[str, ...] = ()
    """The same packages with their combined specifiers: `wrapt<1.15,>=1.11`."""
    apt: tuple[AptAction, ...] = ()
    overrides: tuple[Override, ...] = ()
    environment: tuple[Environment, ...] = ()
    steps: tuple[Step, ...] = ()
    sources: tuple[str, ...] = ()
    """pip's index options as the user gave them, without credentials."""
    warnings: tuple[Warning, ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks about the indexes that were asked."""
    proven: tuple[Proof, ...] | None = None
    """Validation records of the lock that the plan comes from; None for a plan without a lock."""
    conflict: Refusal | None = None

    @property
    def is_satisfiable(self) -> bool:
        """True unless there is a conflict."""
        return self.conflict is None

    @property
    def changes(self) -> bool:
        """True if applying the plan would change anything."""
        return any(one.action != "keep" for one in self.pip) or any(one.action != "keep" for one in self.apt) or bool(self.unpinned)
