"""The result of a validation: checks, each with what was expected and what was observed, and their status together."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct, field

Status = Literal["passed", "failed", "warning", "skipped"]
"""`warning`: the work is done, but not as it should be (slowly, without cuDNN, by luck)."""


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was tried and judged."""

    id: str
    """`torch/import`, `torch/conv2d-strided/float16/nhwc`; with several GPUs `gpu1/torch/…`."""
    framework: str | None = None
    """Distribution name, `torch`, `cupy-cuda12x`; None for cuDNN itself and the machine."""
    status: Status
    expected: str | None = None
    observed: str | None = None
    detail: str = ""
    """Why it is so and what to do, in one line; empty where there is nothing to say."""
    seconds: float | None = None
    """As the child measured it; None where nothing was run or it did not come back."""
    gpu: int | None = None
    """Number of the GPU, as programs on this machine count them; None for what needs none."""
    group: str | None = None
    """What it belongs to where it is one of many cases, `torch`; tables for people show those that passed together."""
    output: tuple[str, ...] = ()
    """The last lines that the child printed, where it failed or ended unexpectedly."""


class VisibleGpu(Struct, frozen=True, kw_only=True):
    """One GPU that a validation was asked to use."""

    index: int
    name: str | None = None
    uuid: str | None = None
    compute_capability: str | None = None
    visible: str | None = None
    """What CUDA_VISIBLE_DEVICES must be for it; None = as the user has it."""


class Validation(Struct, frozen=True, kw_only=True):
    """All checks of one run, and what they were about."""

    checks: tuple[Check, ...]
    gpus: tuple[VisibleGpu, ...] = ()
    driver: str | None = None
    frameworks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Name to version of the frameworks that were tested."""
    loaded: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Library to the version that was seen loaded, `cudnn` to `9.1.0`."""

    @property
    def status(self) -> Literal["passed", "failed", "skipped"]:
        """`failed` where any check failed; `passed` where something was proven on a GPU, else `skipped`."""
        if any(check.status == "failed" for check in self.checks):
            return "failed"
        proven = any(check.gpu is not None and check.status in ("passed", "warning") for check in self.checks)
        return "passed" if proven else "skipped"
