"""Evidence: what the shared libraries of a wheel, or of an environment, ask for and hold."""

from __future__ import annotations

from msgspec import Struct

from cudnn_resolve.version import CodeTarget, CudaVersion


class Binary(Struct, frozen=True, kw_only=True):
    """One shared library."""

    path: str
    """Relative to site-packages."""
    needed: tuple[str, ...] = ()
    """DT_NEEDED, in the order of the file."""
    opens: tuple[str, ...] = ()
    """Names of CUDA libraries in its read-only data, which it may `dlopen`."""
    code: tuple[CodeTarget, ...] = ()
    """GPU code in its fat binaries."""
    strays: tuple[CodeTarget, ...] = ()
    """Targets among them for which there are few pieces of code only: the library as a whole is not made for those GPUs."""
    cuda: CudaVersion | None = None
    """Line of the toolkit that compiled the GPU code, where an uncompressed cubin says it."""


class Evidence(Struct, frozen=True, kw_only=True):
    """What a wheel holds."""

    binaries: tuple[Binary, ...] = ()
    cuda: CudaVersion | None = None
    """Line of the CUDA that it was built with, from its build strings or its GPU code; None where nothing says it."""
    same_line: bool = False
    """True where its code refuses a framework of another CUDA line on import, not only one of another major."""
    unread: tuple[str, ...] = ()
    """Libraries that could not be read, each with its reason."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Libraries that its own need and that it does not bring, in order of the alphabet.

        The loader searches for a file name: a copy that was renamed (`libcudart.faf08d9a.so.13`) is not found by its soname.
        """
        own = {one.path.rpartition("/")[2] for one in self.binaries}
        return tuple(sorted({name for one in self.binaries for name in one.needed} - own))

    @property
    def code(self) -> tuple[CodeTarget, ...]:
        """GPU code of all its libraries."""
        return tuple(sorted({target for one in self.binaries for target in one.code}))
