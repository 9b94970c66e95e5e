"""Wishes and facts that can be left out one by one, to see which of them matter to a conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.requirement.derive import asked
from cudnn_resolve.requirement.model import Extra, Target
from cudnn_resolve.resolution.key import ARCH, CUDA_LIMIT, CUDNN_LIMIT, DRIVER, GLIBC, OS, PYTHON, ROOT, GpuKey, InstalledKey, Key

if TYPE_CHECKING:
    from cudnn_resolve.requirement.machine import Machine, MachineGpu
    from cudnn_resolve.resolution.installed import UnaskedFramework
    from cudnn_resolve.resolution.open_request import OpenRequest


Subject = Key | Target | Extra | str
"""What a condition is about."""


class Condition(Struct, frozen=True, kw_only=True):
    """A wish or a fact that can be left out to see whether it matters."""

    about: Subject
    """A fact or a limit, an installed framework, a target, a line of a file, or an option by its name."""
    what: str
    because: str
    without: Callable[[Machine, OpenRequest], tuple[Machine, OpenRequest]]


def conditions(machine: Machine, request: OpenRequest, protected: Sequence[UnaskedFramework] = ()) -> Iterator[Condition]:
    """Every wish and fact, those that least often matter first, so that what is left are those that a person would name.

    `protected`: the installed frameworks that must go on working.
    """
    for extra in request.extras:
        yield _extra(extra)
    yield from _system(machine, frozenset().union(*(one.names for one in protected)), alone=len(request.targets) == 1)
    for one in protected:
        yield _installed(one)
    for number, gpu in enumerate(machine.gpus):
        yield _gpu(number, gpu)
    if machine.driver is not None:
        yield Condition(
            about=DRIVER,
            what=f"driver {machine.driver_text}",
            because="the machine's NVIDIA driver, which this program never changes",
            without=lambda m, r: (replace(m, driver=None, native_cuda=None, compat=None), r),
        )
    yield from _policies(request)
    if machine.python is not None:
        yield Condition(
            about=PYTHON,
            what=f"Python {machine.python_full}",
            because="the target interpreter",
            without=lambda m, r: (replace(m, python=None, python_full=None), r),
        )
    for target in request.targets:
        yield _target(target)


def _extra(extra: Extra) -> Condition:
    def without(machine: Machine, request: OpenRequest) -> tuple[Machine, OpenRequest]:
        return machine, replace(request, extras=tuple(one for one in request.extras if one is not extra))

    because = f"{'a constraint' if extra.constraint else 'asked for'} in {extra.origin}"
    return Condition(about=extra, what=extra.text, because=because, without=without)


def _gpu(number: int, gpu: MachineGpu) -> Condition:
    def without(machine: Machine, request: OpenRequest) -> tuple[Machine, OpenRequest]:
        gpus = tuple(replace(one, capability=None) if one is gpu else one for one in machine.gpus)
        return replace(machine, gpus=gpus), request

    return Condition(about=GpuKey(number), what=f"the GPU: {gpu.label}", because="the machine's hardware", without=without)


def _installed(one: UnaskedFramework) -> Condition:
    def without(machine: Machine, request: OpenRequest) -> tuple[Machine, OpenRequest]:
        return machine, replace(request, allow_break=request.allow_break | {one.framework})

    because = "it works, and nobody asked for another"
    return Condition(about=InstalledKey(one.framework), what=f"the installed {one.who}", because=because, without=without)


def _target(target: Target) -> Condition:
    def without(machine: Machine, request: OpenRequest) -> tuple[Machine, OpenRequest]:
        return machine, replace(request, targets=tuple(one for one in request.targets if one is not target))

    what = f"{target.text} with the hashes given for it" if target.hashes else target.text
    return Condition(about=target, what=what, because=asked(target), without=without)


def _system(machine: Machine, kept: frozenset[str], *, alone: bool) -> Iterator[Condition]:
    if machine.glibc is not None:
        glibc = f"glibc {machine.glibc[0]}.{machine.glibc[1]}"
        yield Condition(about=GLIBC, what=glibc, because="the machine's C library", without=lambda m, r: (replace(m, glibc=None), r))
    if alone:  # of several frameworks another architecture would only offer other builds, which is beside the point
        yield Condition(about=ARCH, what=machine.arch, because="the machine's architecture", without=lambda m, r: (replace(m, arch=""), r))
    if machine.os is not None:
        yield Condition(about=OS, what=machine.os, because="the machine's distribution", without=lambda m, r: (replace(m, os=None), r))
    if machine.root is False:
        yield Condition(about=ROOT, what="no root", because="the user", without=lambda m, r: (replace(m, root=None), r))
    if machine.pip.keys() - kept:
        pip = {name: version for name, version in machine.pip.items() if name in kept}
        yield Condition(
            about="installed", what="what is installed", because="the environment", without=lambda m, r: (replace(m, pip=pip), r)
        )


def _policies(request: OpenRequest) -> Iterator[Condition]:
    if request.channel != "auto":
        yield Condition(
            about="channel",
            what=f"CUDA libraries from {request.channel} only",
            because="--channel",
            without=lambda m, r: (m, replace(r, channel="auto")),
        )
    if request.device == "cpu":
        yield Condition(
            about="device", what="builds without GPU", because="--device cpu", without=lambda m, r: (m, replace(r, device="gpu"))
        )
    if not request.variant_indexes:
        yield Condition(
            about="variant-indexes",
            what="packages of the configured index only",
            because="--no-variant-indexes",
            without=lambda m, r: (m, replace(r, variant_indexes=True)),
        )
    if request.driver_policy == "strict":
        yield Condition(
            about="driver-policy",
            what="a driver at least as new as the toolkit's own",
            because="--driver-policy strict",
            without=lambda m, r: (m, replace(r, driver_policy="minor")),
        )
    if request.strict_pins:
        yield Condition(
            about="strict-pins",
            what="every pin of every wheel, as it is written",
            because="--strict-pins",
            without=lambda m, r: (m, replace(r, strict_pins=False)),
        )
    if request.cuda is not None:
        yield Condition(
            about=CUDA_LIMIT, what=f"CUDA {request.cuda.text}", because="--cuda", without=lambda m, r: (m, replace(r, cuda=None))
        )
    if request.cudnn is not None:
        yield Condition(
            about=CUDNN_LIMIT,
            what=f"cuDNN {request.cudnn.text}",
            because="--cudnn",
            without=lambda m, r: (m, replace(r, cudnn=None)),
        )
