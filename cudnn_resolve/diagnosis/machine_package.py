"""Packages that write over one another, break an ABI or have no CUDA: findings from facts alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

from cudnn_resolve.diagnosis.machine import Machine, fact
from cudnn_resolve.diagnosis.model import Finding, Remedy
from cudnn_resolve.diagnosis.specifier import is_version, requirements_of, within
from cudnn_resolve.facts.model import Toolkit, or_none

_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,98}[A-Za-z0-9])?", re.ASCII)


def _shared_files(machine: Machine) -> Iterator[Finding]:
    """Packages that write the same files."""
    slots: dict[str, list[str]] = {}
    for name in machine.pip:
        slot = machine.book.slot(name)
        if slot is not None:
            slots.setdefault(slot, []).append(name)
    told = {problem.what.removeprefix("packages.pip.") for problem in machine.facts.problems if "overwritten" in problem.why}
    for names in slots.values():
        if told & set(names) or len(names) < 2 or not any(name.startswith(("nvidia-", "cupy-")) for name in names):
            continue
        each = " and ".join(f"{name} {machine.pip[name]}" for name in sorted(names))
        cudnn = any("cudnn" in name for name in names)
        yield Finding(
            cause="cudnn_sublibrary_mix" if cudnn else "framework_pkg_mismatch",
            severity="warning" if cudnn or (len({machine.pip[name] for name in names}) > 1 and "cupy" in each) else "info",
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


def _abi(machine: Machine) -> Iterator[Finding]:
    """NumPy and protobuf that an installed framework cannot use, by bounds that its metadata does not say."""
    from packaging.requirements import Requirement

    for one in machine.installed:
        framework = machine.book.framework_of(one.name)
        for bound in machine.book.framework(framework).bounds if framework else ():
            requirement = Requirement(bound.requirement)
            version = machine.pip.get(requirement.name)
            cause = {"numpy": "numpy_abi", "protobuf": "protobuf_abi"}.get(requirement.name)
            if cause is None or version is None or (bound.package and bound.package != one.name) or not within(bound.versions, one.version):
                continue
            if not within(str(requirement.specifier), version):
                yield Finding(
                    cause=cause,
                    severity="error",
                    summary=f"{one.label} wants {bound.requirement} and {requirement.name} {version} is installed: {bound.reason}",
                    evidence=(fact("packages.pip", f"{requirement.name} {version}"), fact("packages.pip", one.label)),
                    confidence=0.92,
                )


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


def _declared(machine: Machine) -> Iterator[Finding]:
    """NVIDIA's wheels in other versions than a framework declares: a note, since the matrix knows the ABI."""
    differ = []
    for one in machine.installed:
        for wanted in requirements_of(one.requires, machine.facts):
            version = machine.pip.get(wanted.name)
            if version and wanted.name.startswith("nvidia-") and not within(str(wanted.specifier), version):
                differ.append(f"{one.label} declares {wanted.name}{wanted.specifier} and {version} is installed")
    if differ:
        yield Finding(
            cause="harmless",
            severity="info",
            summary=f"{len(differ)} NVIDIA packages differ from what a framework declares, within what its libraries accept: {differ[0]}",
            evidence=tuple(fact("packages.pip", text) for text in differ[:6]),
            confidence=0.8,
        )


def _lacking(machine: Machine) -> Iterator[Finding]:
    """NVIDIA's wheels that the metadata of an installed framework declares and that are not there."""
    for one in machine.installed:
        lines = machine.facts.packages.requires.get(one.name, ())
        wanted = {need.name: need.specifier for need in requirements_of(lines, machine.facts) if need.name.startswith("nvidia-")}
        gone = [name for name in wanted if name not in machine.pip]
        if one.cuda is None or one.delivery != "wheel" or not gone:
            continue
        toolkits = or_none(machine.facts.cuda_toolkits) or ()
        others = [each for each in toolkits if (each.version or "").partition(".")[0] == str(one.cuda.major)]
        cudnn = all("cudnn" in name for name in gone)
        if cudnn and one.would_load is not None and one.would_load.version:
            continue
        many = f"{len(gone)} NVIDIA packages that are" if len(gone) > 1 else "an NVIDIA package that is"
        brought = f"; CUDA {others[0].version} in {others[0].path or others[0].source} may bring what they hold" if others else ""
        yield Finding(
            cause="cudnn_missing" if cudnn else "cuda_runtime_missing",
            severity="info" if others and not cudnn else "warning" if machine.driver_absent else "error",
            summary=f"{one.label} declares {many} not installed: {', '.join(gone)}{brought}",
            evidence=(fact("packages.pip", one.label), *(fact("packages.requires", f"{name}{wanted[name]}") for name in gone)),
            confidence=0.8 if others else 0.92,
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


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (_shared_files, _overwritten, _abi, _cpu_only, _declared, _lacking, _toolkits)
