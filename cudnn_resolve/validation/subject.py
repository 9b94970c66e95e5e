"""The frameworks and GPUs of an environment that can be tested, and the variables that keep a child to one GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cudnn_resolve.facts.model import Facts, Gpu, InstalledFramework, Unknown
from cudnn_resolve.planning.preload import import_name
from cudnn_resolve.validation.model import VisibleGpu

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
    return tuple(_tested(index, gpu, alone=alone) for index, gpu in enumerate(gpus))


def _tested(index: int, gpu: Gpu, *, alone: bool) -> VisibleGpu:
    visible = None if alone else gpu.uuid or str(index)
    return VisibleGpu(index=index, name=gpu.name, uuid=gpu.uuid, compute_capability=gpu.compute_capability, visible=visible)


def environment_of(environ: Mapping[str, str], gpu: VisibleGpu | None = None, **more: str) -> dict[str, str]:
    """Make the variables of a child: the user's own, since LD_LIBRARY_PATH and the like are part of what is tested, kept to one GPU."""
    chosen = {"CUDA_VISIBLE_DEVICES": gpu.visible} if gpu is not None and gpu.visible is not None else {}
    return {**POLITE, **environ, **chosen, **more}
