"""Evidence: needs and contents of the shared libraries of a wheel or environment."""

from __future__ import annotations

from msgspec import Struct

from cudnn_resolve.version import CodeTarget, CudaVersion


class Binary(Struct, frozen=True, kw_only=True):
    """One shared library."""

    path: str
    """Relative to site-packages."""
    needed: tuple[str, ...] = ()
    """DT_NEEDED, in the order of the file."""
    code: tuple[CodeTarget, ...] = ()
    """GPU code in its fat binaries."""
    strays: tuple[CodeTarget, ...] = ()
    """Targets among them with very little code: the library as a whole is not built for those GPUs."""
    cuda: CudaVersion | None = None
    """Line of the toolkit that compiled the GPU code, if an uncompressed cubin names it."""


class Evidence(Struct, frozen=True, kw_only=True):
    """Evidence of one wheel."""

    binaries: tuple[Binary, ...] = ()
    cuda: CudaVersion | None = None
    """CUDA line of the build, from its build strings or its GPU code; None if unknown."""
    same_line: bool = False
    """True if its code rejects, on import, a framework of another CUDA line and not only of another major."""
    unread: tuple[str, ...] = ()
    """Unreadable libraries, each with the reason."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Libraries that its own need and that it does not contain, sorted.

        The loader searches by file name: a renamed copy (`libcudart.faf08d9a.so.13`) is not found by its soname.
        """
        own = {binary.path.rpartition("/")[2] for binary in self.binaries}
        return tuple(sorted({name for binary in self.binaries for name in binary.needed} - own))

    @property
    def code(self) -> tuple[CodeTarget, ...]:
        """GPU code of all its libraries."""
        return tuple(sorted({target for binary in self.binaries for target in binary.code}))
