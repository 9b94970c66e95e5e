"""Rows of what was read out of wheels: what their libraries ask for and hold."""

from cudnn_resolve.matrix.column import Arch, CudaLine, Cudnn, GpuCode, Identifier, PackageName
from cudnn_resolve.matrix.row import Plain, Versions


class WheelEvidence(Plain, frozen=True, kw_only=True):
    """evidence/*.toml: what the files of a release's wheel ask for and hold, read out of them."""

    identity = ("version",)
    apart = ("arch",)
    expands = True
    version: Versions
    arch: tuple[Arch, ...] = ()
    """Empty = a wheel for any platform, or the same on each."""
    cuda: CudaLine | None = None
    """Built with; None where nothing in the wheel says it."""
    needs: tuple[Identifier, ...] = ()
    """CUDA libraries that it does not bring, by the name that the loader looks for, `libcudart.so.13`."""
    frameworks: tuple[PackageName, ...] = ()
    """Frameworks whose libraries it links to."""
    same_line: bool = False
    """True where it refuses a framework of another CUDA line on import, not only one of another major."""
    code: tuple[GpuCode, ...] = ()
    """GPU code inside."""


class MeasuredBuild(Plain, frozen=True, kw_only=True):
    """measured/*.toml: what the wheel of a framework's release says of its own build, read out of it."""

    identity = ("version",)
    apart = ("arch",)
    expands = True
    version: Versions
    arch: tuple[Arch, ...] = ()
    cuda: CudaLine | None = None
    """Built with; None where nothing that was read says it, as in a wheel without CUDA."""
    cudnn: Cudnn | None = None
    """Built with, or pinned by its metadata; as many parts as it says."""
    code: tuple[GpuCode, ...] = ()
    """GPU code of its own libraries; empty where they were not read, or hold none."""
