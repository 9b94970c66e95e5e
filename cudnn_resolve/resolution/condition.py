"""Wishes and facts that can be left out one by one, to see which of them matter to a conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.requirement.model import RequirementLine, Target
from cudnn_resolve.requirement.target import target_reason
from cudnn_resolve.resolution.key import ARCH, CUDA_LIMIT, CUDNN_LIMIT, DRIVER, GLIBC, OS, PYTHON, ROOT, GpuKey, InstalledKey, Key

if TYPE_CHECKING:
    from cudnn_resolve.requirement.machine import Machine, MachineGpu
    from cudnn_resolve.resolution.installed import UnrequestedFramework
    from cudnn_resolve.resolution.open_request import OpenRequest


Subject = Key | Target | RequirementLine | str
"""What a condition is about."""


class Condition(Struct, frozen=True, kw_only=True):
    """A wish or a fact that can be left out to see whether it matters."""

    about: Subject
    """A fact or a limit, an installed framework, a target, a line of a file, or an option by its name."""
    what: str
    because: str
    without: Callable[[Machine, OpenRequest], tuple[Machine, OpenRequest]]


def conditions(machine: Machine, request: OpenRequest, protected: Sequence[UnrequestedFramework]) -> Iterator[Condition]:
    """Every wish and fact, those that least often matter first, so that what is left are those that a person would name.

    `protected`: the installed frameworks that must go on working.
    """
    for extra in request.requirements:
        yield _extra(extra)
    yield from _system(machine, frozenset().union(*(one.names for one in protected)), alone=len(request.targets) == 1)
    for one in protected:
        yield _installed(one)
    for number, gpu in enumerate(machine.gpus):
        yield _gpu(number, gpu)
    if machine.driver is not None:
        because = "the machine's NVIDIA driver, which this program never changes"
        yield _fact(DRIVER, f"driver {machine.driver_text}", because, driver=None, native_cuda=None, compat=None)
    yield from _policies(request)
    if machine.python is not None:
        yield _fact(PYTHON, f"Python {machine.python_full}", "the target interpreter", python=None, python_full=None)
    for target in request.targets:
        yield _target(target)


def _fact(about: Subject, what: str, because: str, **unknown: Any) -> Condition:
    """A fact, left out by changing the machine so."""
    return Condition(about=about, what=what, because=because, without=lambda machine, request: (replace(machine, **unknown), request))


def _option(about: Subject, what: str, because: str, **usual: Any) -> Condition:
    """An option of the user, left out by changing the request so."""
    return Condition(about=about, what=what, because=because, without=lambda machine, request: (machine, replace(request, **usual)))


def _extra(extra: RequirementLine) -> Condition:
    because = f"{'a constraint' if extra.constraint else 'asked for'} in {extra.origin}"
    return Condition(
        about=extra, what=extra.text, because=because, without=lambda machine, request: (machine, without_line(request, extra))
    )


def _gpu(number: int, gpu: MachineGpu) -> Condition:
    def without(machine: Machine, request: OpenRequest) -> tuple[Machine, OpenRequest]:
        gpus = tuple(replace(one, capability=None) if one is gpu else one for one in machine.gpus)
        return replace(machine, gpus=gpus), request

    return Condition(about=GpuKey(number), what=f"the GPU: {gpu.label}", because="the machine's hardware", without=without)


def _installed(one: UnrequestedFramework) -> Condition:
    def without(machine: Machine, request: OpenRequest) -> tuple[Machine, OpenRequest]:
        return machine, replace(request, allow_break=request.allow_break | {one.framework})

    because = "it works, and nobody asked for another"
    return Condition(about=InstalledKey(one.framework), what=f"the installed {one.who}", because=because, without=without)


def _target(target: Target) -> Condition:
    what = f"{target.text} with the hashes given for it" if target.hashes else target.text
    return Condition(
        about=target, what=what, because=target_reason(target), without=lambda machine, request: (machine, without_target(request, target))
    )


def without_line(request: OpenRequest, line: RequirementLine) -> OpenRequest:
    """The request without one of its further requirements."""
    return replace(request, requirements=tuple(one for one in request.requirements if one is not line))


def without_target(request: OpenRequest, target: Target) -> OpenRequest:
    """The request without one of its targets."""
    return replace(request, targets=tuple(one for one in request.targets if one is not target))


def _system(machine: Machine, kept: frozenset[str], *, alone: bool) -> Iterator[Condition]:
    if machine.glibc is not None:
        yield _fact(GLIBC, f"glibc {machine.glibc[0]}.{machine.glibc[1]}", "the machine's C library", glibc=None)
    if alone:  # of several frameworks another architecture would only offer other builds, which is beside the point
        yield _fact(ARCH, machine.arch, "the machine's architecture", arch="")
    if machine.os is not None:
        yield _fact(OS, machine.os, "the machine's distribution", os=None)
    if machine.root is False:
        yield _fact(ROOT, "no root", "the user", root=None)
    if machine.pip.keys() - kept:
        pip = {name: version for name, version in machine.pip.items() if name in kept}
        yield _fact("installed", "what is installed", "the environment", pip=pip)


def _policies(request: OpenRequest) -> Iterator[Condition]:
    if request.channel != "auto":
        yield _option("channel", f"CUDA libraries from {request.channel} only", "--channel", channel="auto")
    if request.device == "cpu":
        yield _option("device", "builds without GPU", "--device cpu", device="gpu")
    if not request.variant_indexes:
        yield _option("variant-indexes", "packages of the configured index only", "--no-variant-indexes", variant_indexes=True)
    if request.driver_policy == "strict":
        what = "a driver at least as new as the toolkit's own"
        yield _option("driver-policy", what, "--driver-policy strict", driver_policy="minor")
    if request.strict_pins:
        yield _option("strict-pins", "every pin of every wheel, as it is written", "--strict-pins", strict_pins=False)
    if request.cuda is not None:
        yield _option(CUDA_LIMIT, f"CUDA {request.cuda.text}", "--cuda", cuda=None)
    if request.cudnn is not None:
        yield _option(CUDNN_LIMIT, f"cuDNN {request.cudnn.text}", "--cudnn", cudnn=None)
