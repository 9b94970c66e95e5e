"""Conditions of a request, wishes and facts, that can be dropped one by one to see which of them cause a conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.requirement.machine import Machine, MachineGpu
from cudnn_resolve.requirement.model import RequirementLine, Target
from cudnn_resolve.requirement.target import target_reason
from cudnn_resolve.resolution.installed import UnrequestedFramework
from cudnn_resolve.resolution.key import ARCH, DRIVER, GLIBC, OS, PYTHON, ROOT, GpuKey, InstalledKey, Key
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.proposal import OPTIONS, Option

Subject = Key | Target | RequirementLine | str
"""What a condition is about: a fact or a limit, an installed framework, a target, a requirement line, or an option by its name."""


class Condition(Struct, frozen=True, kw_only=True):
    """A wish or a fact that can be dropped."""

    about: Subject
    what: str
    because: str
    without: Callable[[Machine, OpenRequest], tuple[Machine, OpenRequest]]


def conditions(machine: Machine, request: OpenRequest, protected: Sequence[UnrequestedFramework]) -> Iterator[Condition]:
    """Every condition, least often relevant first, so that those a person would name are dropped last.

    `protected`: the installed frameworks that must go on working.
    """
    for line in request.requirements:
        yield _line(line)
    held = frozenset[str]().union(*(framework.names for framework in protected))
    yield from _system(machine, held, has_one_target=len(request.targets) == 1)
    for framework in protected:
        yield _installed(framework)
    for number, gpu in enumerate(machine.gpus):
        yield _gpu(number, gpu)
    if machine.driver is not None:
        because = "the machine's NVIDIA driver, which this program never changes"
        yield _fact(DRIVER, f"driver {machine.driver_text}", because, driver=None, native_cuda=None, compat=None)
    yield from (_option(option, value) for option in OPTIONS if (value := option.value(request)) is not None)
    if machine.python is not None:
        yield _fact(PYTHON, f"Python {machine.python_full}", "the target interpreter", python=None, python_full=None)
    for target in request.targets:
        yield _target(target)


def _fact(about: Subject, what: str, because: str, **unknown: Any) -> Condition:
    """A fact, dropped by these changes to the machine."""
    return Condition(about=about, what=what, because=because, without=lambda machine, request: (replace(machine, **unknown), request))


def _option(option: Option, value: str) -> Condition:
    """An option of the user, with its value."""
    what, because = option.what.format(value), option.flag if not value or "{}" in option.what else f"{option.flag} {value}"
    return Condition(about=option.subject, what=what, because=because, without=lambda machine, request: (machine, option.dropped(request)))


def _line(line: RequirementLine) -> Condition:
    because = f"{'a constraint' if line.constraint else 'asked for'} in {line.origin}"
    return Condition(about=line, what=line.text, because=because, without=lambda machine, request: (machine, without_line(request, line)))


def _gpu(number: int, gpu: MachineGpu) -> Condition:
    def without(machine: Machine, request: OpenRequest) -> tuple[Machine, OpenRequest]:
        gpus = tuple(replace(other, capability=None) if other is gpu else other for other in machine.gpus)
        return replace(machine, gpus=gpus), request

    return Condition(about=GpuKey(number), what=f"the GPU: {gpu.label}", because="the machine's hardware", without=without)


def _installed(framework: UnrequestedFramework) -> Condition:
    name = framework.framework
    return Condition(
        about=InstalledKey(name),
        what=f"the installed {framework.who}",
        because="it works and is not part of the request",
        without=lambda machine, request: (machine, replace(request, allow_break=request.allow_break | {name})),
    )


def _target(target: Target) -> Condition:
    return Condition(
        about=target,
        what=f"{target.text} with the given hashes" if target.hashes else target.text,
        because=target_reason(target),
        without=lambda machine, request: (machine, without_target(request, target)),
    )


def without_line(request: OpenRequest, line: RequirementLine) -> OpenRequest:
    """The request without a requirement line."""
    return replace(request, requirements=tuple(other for other in request.requirements if other is not line))


def without_target(request: OpenRequest, target: Target) -> OpenRequest:
    """The request without a target."""
    return replace(request, targets=tuple(other for other in request.targets if other is not target))


def _system(machine: Machine, held: frozenset[str], *, has_one_target: bool) -> Iterator[Condition]:
    if machine.glibc is not None:
        yield _fact(GLIBC, f"glibc {machine.glibc[0]}.{machine.glibc[1]}", "the machine's C library", glibc=None)
    if has_one_target:  # for several frameworks another architecture only offers other builds, which is no explanation
        yield _fact(ARCH, machine.arch, "the machine's architecture", arch="")
    if machine.os is not None:
        yield _fact(OS, machine.os, "the machine's distribution", os=None)
    if machine.root is False:
        yield _fact(ROOT, "no root", "the user", root=None)
    if machine.pip.keys() - held:
        pip = {name: version for name, version in machine.pip.items() if name in held}
        yield _fact("installed", "the installed packages", "the environment", pip=pip)
