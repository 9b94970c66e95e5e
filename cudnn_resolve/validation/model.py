"""What is validated, and the result: the frameworks and GPUs of an environment; checks, with what was expected and what was observed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct, field

from cudnn_resolve.facts.model import Facts, InstalledFramework, Unknown
from cudnn_resolve.planning.preload import import_name

Status = Literal["passed", "failed", "warning", "skipped"]
"""`warning`: the work is done, but not as it should be (slowly, without cuDNN, by luck)."""


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was tried and judged."""

    id: str
    """`torch/import`, `torch/conv2d-strided/float16/nhwc`; with several GPUs `gpu1/torch/…`."""
    framework: str | None = None
    """Distribution name, also of a companion: `torch`, `cupy-cuda12x`, `torchvision`; None for cuDNN itself and the machine."""
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


_PLUGIN = re.compile(r"jax-cuda(\d+)-plugin")
POLITE = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""JAX and TensorFlow take most of a card's memory as they start; a test beside other programs must not."""


class Subject(Struct, frozen=True, kw_only=True):
    """One framework that is tested."""

    name: str
    """Distribution name."""
    module: str
    """What is imported, `paddle`."""
    installed: InstalledFramework
    plugin: str | None = None
    """`xla_cuda12`, the plugin of JAX."""

    @property
    def question(self) -> dict[str, Any]:
        """The part of a payload's question that describes it."""
        would_load = self.installed.would_load
        path = would_load.path if would_load else None
        soname = path.rpartition("/")[2] if path else None
        return {"module": self.module, "numpy": "numpy", "would_load": path, "soname": soname, "plugin": self.plugin}

    @property
    def is_cpu_build(self) -> bool:
        """True where its files say that it has no CUDA."""
        return self.installed.variant == "cpu"


def subjects_of(facts: Facts) -> tuple[Subject, ...]:
    """List the frameworks of an environment, each module once, in the order of their names."""
    installed = () if isinstance(facts.frameworks, Unknown) else facts.frameworks
    packages = {} if isinstance(facts.packages.pip, Unknown) else facts.packages.pip
    plugins = sorted(match[1] for name in packages if (match := _PLUGIN.fullmatch(name)))
    found: dict[str, Subject] = {}
    for framework in installed:
        module = import_name(framework.name)
        if module is not None:
            plugin = f"xla_cuda{plugins[-1]}" if module == "jax" and plugins else None
            found.setdefault(module, Subject(name=framework.name, module=module, installed=framework, plugin=plugin))
    return tuple(found.values())


def gpus_of(facts: Facts) -> tuple[VisibleGpu, ...]:
    """List the GPUs that programs see, in the order in which they see them."""
    gpus = () if isinstance(facts.gpus, Unknown) else tuple(gpu for gpu in facts.gpus if not gpu.hidden)
    alone = len(gpus) == 1
    return tuple(
        VisibleGpu(
            index=index,
            name=gpu.name,
            uuid=gpu.uuid,
            compute_capability=gpu.compute_capability,
            visible=None if alone else gpu.uuid or str(index),
        )
        for index, gpu in enumerate(gpus)
    )


def environment_of(environ: Mapping[str, str], gpu: VisibleGpu | None = None, **more: str) -> dict[str, str]:
    """Make the variables of a child: the user's own, since LD_LIBRARY_PATH and the like are part of what is tested, kept to one GPU."""
    chosen = {"CUDA_VISIBLE_DEVICES": gpu.visible} if gpu is not None and gpu.visible is not None else {}
    return {**POLITE, **environ, **chosen, **more}
