"""The environment whose libraries are looked for: one interpreter, its packages, and what the loader of its processes searches."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from cudnn_resolve.facts.ldconfig import CacheEntry
from cudnn_resolve.facts.model import UNKNOWN, Python, Unknown


class Distribution(Struct, frozen=True, kw_only=True):
    """One installed distribution of the target interpreter."""

    name: str
    """Normalized (PEP 503): lower case, runs of `-`, `_` and `.` as one `-`."""
    version: str
    location: str
    """Directory on the import path that holds it, `…/site-packages`."""
    metadata: str
    """Its `.dist-info` or `.egg-info` directory (or file)."""
    requires: tuple[str, ...] = ()
    """`Requires-Dist` lines as written."""


class TargetEnvironment(Struct, frozen=True, kw_only=True):
    """What probes of libraries and frameworks need to know of the target; every path is one of the host."""

    python: Python
    """`python.path` is the interpreter as it is to be run; None where there is none (then there are no distributions)."""
    prefix: str
    """`sys.prefix`; also the prefix of a conda environment."""
    site_packages: tuple[str, ...] = ()
    """Existing directories on the import path apart from the standard library, in import order."""
    distributions: tuple[Distribution, ...] = ()
    """In import order; one for each name, the first on the path."""
    ld_library_path: tuple[str, ...] = ()
    """Entries of LD_LIBRARY_PATH as written, empty ones left out."""
    ldconfig: tuple[CacheEntry, ...] = ()
    """The whole linker cache in the loader's order, entries of other architectures left out."""
    cuda_directories: tuple[str, ...] = ()
    """Root directories of CUDA toolkits, links resolved, each once: `/usr/local/cuda-12.4`."""
    apt: Mapping[str, str] | Unknown = UNKNOWN
    """Installed apt packages and their versions."""
    arch: str | None = None
    """`x86_64`, `aarch64`."""

    def cached(self, name: str) -> tuple[str, ...]:
        """Paths that the linker cache holds for the library `name`, in its order."""
        return tuple(entry.path for entry in self.ldconfig if entry.name == name)

    def distribution(self, name: str) -> Distribution | None:
        """The installed distribution of a normalized name, or None."""
        return next((found for found in self.distributions if found.name == name), None)
