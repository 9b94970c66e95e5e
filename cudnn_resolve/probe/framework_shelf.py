"""How a framework comes to load cuDNN, as values, and the shelf on which its files stand."""

from __future__ import annotations

from msgspec import Struct

from cudnn_resolve.facts.elf import Elf
from cudnn_resolve.host.port import Host
from cudnn_resolve.probe.environment import Distribution, TargetEnvironment
from cudnn_resolve.probe.loader import Loading

PYTHON, CTYPES = "python", "ctypes"


class Open(Struct, frozen=True, kw_only=True):
    """A library that is opened by its path."""

    path: str
    by: str = PYTHON
    """Who calls the loader: `python` (an import), `ctypes`, or the beginning of the name of a library that is there by then."""
    required: bool = True
    """False where the framework goes on without it."""


class Seek(Struct, frozen=True, kw_only=True):
    """A library that is searched for by name, the first name that is found."""

    names: tuple[str, ...]
    by: tuple[str, ...]
    """Beginnings of the names of the libraries that may make the call; the first that is there makes it."""


class Question(Struct, frozen=True, kw_only=True):
    """What a module of a framework can be asked in a child, cheaply."""

    directory: str
    """Put on the import path first."""
    module: str
    cuda: str
    """Function that returns the encoded CUDA that it was built with."""
    cudnn: str
    """The same for cuDNN."""


class Reading(Struct, frozen=True, kw_only=True):
    """One framework as its files describe it; None = they do not say."""

    name: str
    version: str
    variant: str | None = None
    cuda_built: str | None = None
    cudnn_built: str | None = None
    steps: tuple[Open | Seek, ...] = ()
    """Empty for a build that loads no cuDNN."""
    question: Question | None = None
    """Where a module knows more than the files say."""
    preload: str | None = None
    """The file that makes this environment's interpreter open NVIDIA's wheels first, where the framework is one of those it is for."""
    preloaded: frozenset[str] = frozenset()
    """The libraries that it opens."""


class Shelf:
    """One distribution's files, as the readers below ask for them."""

    def __init__(self, host: Host, environment: TargetEnvironment, loading: Loading, distribution: Distribution) -> None:
        self.host = host
        self.environment = environment
        self.distribution = distribution
        self.loading = loading

    def path(self, *parts: str) -> str:
        """Path of a file beside the distribution."""
        return "/".join((self.distribution.location.rstrip("/"), *parts))

    def text(self, *parts: str) -> str:
        """A file's text, "" where there is none."""
        return self.host.read_text(self.path(*parts)) or ""

    def has(self, *parts: str) -> bool:
        """True where there is such a file."""
        return self.host.stat(self.path(*parts)) is not None

    def find(self, folder: str, begin: str) -> str | None:
        """Path of the first library in a folder whose name begins so, `onnxruntime_pybind11_state`."""
        names = self.loading.names(self.path(folder))
        return next((self.path(folder, name) for name in sorted(names) if name.startswith(begin) and ".so" in name), None)

    def needs(self, path: str | None) -> tuple[str, ...]:
        """What a library needs; nothing where there is none."""
        elf = self.loading.look(path) if path else None
        return elf.needed if isinstance(elf, Elf) else ()

    def below_sites(self, *parts: str, begin: str) -> tuple[str, ...]:
        """Paths of libraries in a folder below every directory of the import path, in its order."""
        sites = self.environment.site_packages
        folders = ["/".join((site, *parts)) for site in sites]
        return tuple(f"{folder}/{name}" for folder in folders for name in sorted(self.loading.names(folder)) if name.startswith(begin))
