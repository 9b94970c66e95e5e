"""Values of a validation: frameworks and GPUs under test, checks and their status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct, field

from cudnn_resolve.facts.model import Facts, InstalledFramework, or_none
from cudnn_resolve.planning.preload import import_name

Status = Literal["passed", "failed", "warning", "skipped"]
"""`warning`: it works, but not as intended: slowly, without cuDNN, or by chance."""


class Check(Struct, frozen=True, kw_only=True):
    """Outcome of one test."""

    id: str
    """`torch/import`, `torch/conv2d-strided/float16/nhwc`; with several GPUs `gpu1/torch/…`."""
    framework: str | None = None
    """Distribution name of a framework or companion: `torch`, `cupy-cuda12x`, `torchvision`; None for cuDNN itself and the machine."""
    status: Status
    expected: str | None = None
    observed: str | None = None
    detail: str = ""
    """Cause and remedy in one line; empty if there is nothing to add."""
    seconds: float | None = None
    """Measured by the child; None if nothing ran or the child did not report back."""
    gpu: int | None = None
    """Index of the GPU as programs on this machine see it; None if no GPU is involved."""
    group: str | None = None
    """Group of related cases, `torch`; text reports merge those of a group that passed."""
    output: tuple[str, ...] = ()
    """Last lines printed by a child that failed or ended unexpectedly."""


class VisibleGpu(Struct, frozen=True, kw_only=True):
    """One GPU selected for validation."""

    index: int
    name: str | None = None
    uuid: str | None = None
    compute_capability: str | None = None
    visible: str | None = None
    """Value of CUDA_VISIBLE_DEVICES that selects it; None leaves the user's setting."""


class Validation(Struct, frozen=True, kw_only=True):
    """Result of one run: its checks and the environment they apply to."""

    checks: tuple[Check, ...]
    gpus: tuple[VisibleGpu, ...] = ()
    driver: str | None = None
    frameworks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Name to version of the frameworks under test."""
    loaded: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Library to the version that was loaded, `cudnn` to `9.1.0`."""

    @property
    def status(self) -> Literal["passed", "failed", "skipped"]:
        """`failed` if any check failed, `passed` if anything was proven on a GPU, else `skipped`."""
        if any(check.status == "failed" for check in self.checks):
            return "failed"
        proven = any(check.gpu is not None and check.status in ("passed", "warning") for check in self.checks)
        return "passed" if proven else "skipped"


_PLUGIN = re.compile(r"jax-cuda(\d+)-plugin")
_SHARE_GPU_MEMORY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""By default JAX and TensorFlow reserve most of a GPU's memory at start-up; a test beside other programs must not."""


class Subject(Struct, frozen=True, kw_only=True):
    """One framework under test."""

    name: str
    """Distribution name."""
    module: str
    """Import name, `paddle`."""
    installed: InstalledFramework
    plugin: str | None = None
    """JAX's CUDA plugin, `xla_cuda12`."""

    @property
    def question(self) -> dict[str, Any]:
        """Description of the framework in a payload's question."""
        would_load = self.installed.would_load
        return {"module": self.module, "would_load": would_load.path if would_load else None, "plugin": self.plugin}

    @property
    def is_cpu_build(self) -> bool:
        """True if its files identify a build without CUDA."""
        return self.installed.variant == "cpu"


def subjects_of(facts: Facts) -> tuple[Subject, ...]:
    """List the frameworks of an environment sorted by name, each module once."""
    installed, packages = or_none(facts.frameworks) or (), or_none(facts.packages.pip) or {}
    plugins = sorted(match[1] for name in packages if (match := _PLUGIN.fullmatch(name)))
    found: dict[str, Subject] = {}
    for framework in installed:
        module = import_name(framework.name)
        if module is not None:
            plugin = f"xla_cuda{plugins[-1]}" if module == "jax" and plugins else None
            found.setdefault(module, Subject(name=framework.name, module=module, installed=framework, plugin=plugin))
    return tuple(found.values())


def gpus_of(facts: Facts) -> tuple[VisibleGpu, ...]:
    """List the GPUs visible to programs, in their order."""
    gpus = [gpu for gpu in or_none(facts.gpus) or () if not gpu.hidden]
    return tuple(
        VisibleGpu(
            index=index,
            name=gpu.name,
            uuid=gpu.uuid,
            compute_capability=gpu.compute_capability,
            visible=None if len(gpus) == 1 else gpu.uuid or str(index),
        )
        for index, gpu in enumerate(gpus)
    )


def environment_of(environ: Mapping[str, str], gpu: VisibleGpu | None = None, **more: str) -> dict[str, str]:
    """Environment of a child: the user's variables, since LD_LIBRARY_PATH and the like are under test, restricted to one GPU."""
    selected = {"CUDA_VISIBLE_DEVICES": gpu.visible} if gpu is not None and gpu.visible is not None else {}
    return {**_SHARE_GPU_MEMORY, **environ, **selected, **more}
