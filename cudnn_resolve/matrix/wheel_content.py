"""Rows read out of wheels: what their libraries need and contain."""

from cudnn_resolve.matrix.column import Arch, CudaLine, Cudnn, GpuCode, Identifier, PackageName
from cudnn_resolve.matrix.row import Plain, Versions


class WheelEvidence(Plain, frozen=True, kw_only=True):
    """evidence/*.toml: needs and contents of a release's wheel, read out of its files."""

    identity = ("version",)
    apart = ("arch",)
    expands = True
    version: Versions
    arch: tuple[Arch, ...] = ()
    """Empty = a wheel for any platform, or the same on each."""
    cuda: CudaLine | None = None
    """Built with; None if nothing in the wheel tells."""
    needs: tuple[Identifier, ...] = ()
    """CUDA libraries it does not bring, by the name that the loader looks for, `libcudart.so.13`."""
    frameworks: tuple[PackageName, ...] = ()
    """Frameworks whose libraries it links to."""
    same_line: bool = False
    """True if it refuses on import a framework of another CUDA line, not only one of another major."""
    code: tuple[GpuCode, ...] = ()
    """GPU code inside."""


class MeasuredBuild(Plain, frozen=True, kw_only=True):
    """measured/*.toml: CUDA, cuDNN and GPU code of a framework's build, read out of its wheel."""

    identity = ("version",)
    apart = ("arch",)
    expands = True
    version: Versions
    arch: tuple[Arch, ...] = ()
    cuda: CudaLine | None = None
    """Built with; None if nothing that was read tells, as in a wheel without CUDA."""
    cudnn: Cudnn | None = None
    """Built with, or pinned by its metadata; with as many parts as given there."""
    code: tuple[GpuCode, ...] = ()
    """GPU code of its own libraries; empty if they were not read, or contain none."""
