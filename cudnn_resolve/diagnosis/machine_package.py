"""Packages that write over one another, break an ABI or have no CUDA: findings from facts alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.installed import CPU_PACKAGES, Installed
from cudnn_resolve.diagnosis.machine import Machine, fact
from cudnn_resolve.diagnosis.model import Finding, Remedy
from cudnn_resolve.diagnosis.specifier import Required, is_version, requirements_of, within
from cudnn_resolve.facts.model import Toolkit, or_none

if TYPE_CHECKING:
    from packaging.requirements import Requirement


_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,98}[A-Za-z0-9])?", re.ASCII)


def _shared_files(machine: Machine) -> Iterator[Finding]:
    """Packages that write the same files."""
    slots: dict[str, list[str]] = {}
    for name in machine.pip:
        slot = machine.book.slot(name)
        if slot is not None and machine.book.shares_files(slot):
            slots.setdefault(slot, []).append(name)
    cuda = {one.name: one.cuda for one in machine.installed}
    cpu = CPU_PACKAGES | {one.name for one in machine.installed if one.is_cpu}
    told = {problem.what.removeprefix("packages.pip.") for problem in machine.facts.problems if "overwritten" in problem.why}
    for names in slots.values():
        if told & set(names) or len(names) < 2:
            continue
        each = " and ".join(f"{name} {machine.pip[name]}" for name in sorted(names))
        cudnn = any("cudnn" in name for name in names)
        unlike = len({(machine.pip[name], name in cpu, cuda.get(name)) for name in names}) > 1
        ours = any(machine.book.framework_of(name) is not None for name in names)
        yield Finding(
            cause="cudnn_sublibrary_mix" if cudnn else "framework_pkg_mismatch",
            severity="warning" if cudnn or (ours and unlike) else "info",
            summary=f"{each} install the same files: whichever was unpacked last is there, and removing one takes them from the other",
            evidence=tuple(fact("packages.pip", f"{name} {machine.pip[name]}") for name in sorted(names)),
            confidence=0.8,
        )


def _overwritten(machine: Machine) -> Iterator[Finding]:
    """What the probe found of wheels whose files are not their own, or not there."""
    for problem in machine.facts.problems:
        removed = problem.why.startswith("removed: ")
        if problem.what.startswith("packages.pip.") and (removed or "overwritten" in problem.why):
            name = problem.what.removeprefix("packages.pip.")
            cudnn, library = "cudnn" in name, machine.book.component(name) is not None
            lost = "cudnn_missing" if cudnn else "cuda_runtime_missing" if library else "framework_pkg_mismatch"
            told = "are missing" if removed else "are not those that it installed"
            yield Finding(
                cause=lost if removed else "cudnn_sublibrary_mix" if cudnn else "framework_pkg_mismatch",
                severity="error" if cudnn or (removed and _is_required(machine, name)) else "warning",
                summary=f"files of {name} {told}: {problem.why}",
                evidence=(fact(problem.what, problem.why),),
                remedy=tuple(_restore(machine, name, problem.why)),
                confidence=0.93,
            )


def _restore(machine: Machine, name: str, why: str) -> Iterator[Remedy]:
    """Both away, the wanted one back: removing one of two takes the files of the other along. None for what no command can name."""
    if not _is_told(machine, name):
        return
    pip = f"{shlex.quote(machine.facts.python.path or 'python')} -m pip"
    other = next((one for one in machine.pip if f"overwritten by {one}:" in why and _is_told(machine, one)), None)
    wanted = other if other and _is_required(machine, other) and not _is_required(machine, name) else name
    yield Remedy(
        text=f"lay the files of {wanted} anew" + (f"; {name if wanted == other else other}, which has the same, goes" if other else ""),
        command=f"cudnn-resolve apply --reinstall-package {shlex.quote(wanted)}",
    )
    first, exact = shlex.quote(name), shlex.quote(f"{name}=={machine.pip[name]}")
    if other:
        second, exact_second = shlex.quote(other), shlex.quote(f"{other}=={machine.pip[other]}")
        yield Remedy(
            text=f"if {name} is the one that is wanted: remove both, then install it again "
            "(removing one alone takes the files of the other along)",
            command=f"{pip} uninstall -y {second} {first} && {pip} install --no-deps {exact}",
        )
        yield Remedy(
            text=f"if it is {other}: remove {name}, then install {other} again",
            command=f"{pip} uninstall -y {first} && {pip} install --force-reinstall --no-deps {exact_second}",
        )
    else:
        yield Remedy(text=f"install {name} again", command=f"{pip} install --force-reinstall --no-deps {exact}")


def _is_told(machine: Machine, name: str) -> bool:
    """True for an installed package whose name and version are what PEP 503 and PEP 440 take for one: facts may say anything."""
    version = machine.pip.get(name)
    return _NAME.fullmatch(name) is not None and version is not None and is_version(version)


def _is_required(machine: Machine, name: str) -> bool:
    """True where an installed framework declares that package, on this machine."""
    return any(one.name == name for each in machine.installed for one in requirements_of(each.requires, machine.facts))


_ABI = {"numpy": "numpy_abi", "protobuf": "protobuf_abi"}


def _abi(machine: Machine) -> Iterator[Finding]:
    """NumPy and protobuf that an installed framework cannot use: by bounds that its metadata does not say, and by those that it does."""
    from packaging.requirements import Requirement

    for one in machine.installed:
        framework = machine.book.framework_of(one.name)
        silent = []
        for bound in machine.book.framework(framework).bounds if framework else ():
            requirement = Requirement(bound.requirement)
            version = machine.pip.get(requirement.name)
            cause = _ABI.get(requirement.name)
            if cause is None or version is None or (bound.package and bound.package != one.name) or not within(bound.versions, one.version):
                continue
            if not within(str(requirement.specifier), version):
                silent.append(requirement.name)
                yield _unusable(machine, one, requirement, f"{one.label} wants {bound.requirement}", f": {bound.reason}")
        for declared in requirements_of(one.requires, machine.facts):
            version = machine.pip.get(declared.name)
            if declared.name in _ABI and declared.name not in silent and version and not within(str(declared.specifier), version):
                yield _unusable(machine, one, declared, f"{one.label} declares {declared.name}{declared.specifier}", "")


def _unusable(machine: Machine, one: Installed, wanted: Requirement | Required, who: str, why: str) -> Finding:
    """A package that a framework was not built for.

    By a bound that the tables give a reason for, or of a newer major than it declares, NumPy will not do; older than it
    declares, it may not; a newer minor release mostly does.
    """
    version = machine.pip[wanted.name]
    most = [_most(bound.operator, bound.version) for bound in wanted.specifier]
    tops = [one for one in most if one is not None]
    newer = bool(tops) and _major(version) > min(tops)
    over = wanted.name == "numpy" and newer
    older = any(bound.operator in (">", ">=", "~=", "==") and not bound.contains(version, prereleases=True) for bound in wanted.specifier)
    return Finding(
        cause=_ABI[wanted.name],
        severity="error" if why or over else "warning" if older or newer else "info",
        summary=f"{who} and {wanted.name} {version} is installed{why}",
        evidence=(fact("packages.pip", f"{wanted.name} {version}"), fact("packages.pip", one.label)),
        confidence=0.92 if why or over else 0.6,
    )


def _most(operator: str, version: str) -> int | None:
    """The newest major that a bound allows, None where it sets no upper end."""
    if operator == "<":
        rest = re.sub(r"\.?(?:dev|a|b|rc)\d*$", "", version.partition(".")[2])  # `<5.0.0dev` allows no 5 either
        return _major(version) - (not rest.replace(".", "").strip("0"))
    return _major(version) if operator in ("<=", "~=", "==", "===") else None


def _major(version: str) -> int:
    number = version.partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _cpu_only(machine: Machine) -> Iterator[Finding]:
    """Builds without CUDA on a machine with a GPU."""
    if not machine.gpus or machine.driver_absent:
        return
    gpu_builds = [one for one in machine.installed if one.cuda is not None]
    for one in machine.installed:
        if one.is_cpu:
            yield Finding(
                cause="cpu_only_build",
                severity="info" if gpu_builds else "warning",
                summary=f"{one.label} is built without CUDA: it runs on the CPU although there is a {machine.gpus[0].name or 'GPU'}",
                evidence=(fact("packages.pip", one.label), fact("gpus", machine.gpus[0].name or "a GPU")),
                confidence=0.9,
            )


def _toolkits(machine: Machine) -> Iterator[Finding]:
    """CUDA toolkits that play no part, since the wheels bring what they load."""
    toolkits: tuple[Toolkit, ...] = or_none(machine.facts.cuda_toolkits) or ()
    own = [one for one in machine.installed if one.cuda is not None and one.delivery in ("wheel", "bundled")]
    need = [one for one in machine.installed if one.cuda is not None and one.delivery == "system"]
    if toolkits and own and not need:
        each = ", ".join(f"{one.version} ({one.path or one.source})" for one in toolkits[:3])
        yield Finding(
            cause="harmless",
            severity="info",
            summary=f"CUDA {each} plays no part for {', '.join(one.label for one in own)}: their wheels bring the libraries that they load",
            evidence=tuple(fact("cuda_toolkits", f"{one.version}: {one.path}") for one in toolkits[:3]),
            confidence=0.8,
        )


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (_shared_files, _overwritten, _abi, _cpu_only, _toolkits)
