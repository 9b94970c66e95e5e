"""Packages that overwrite each other, break an ABI or lack CUDA: findings from facts alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from packaging.requirements import Requirement

from cudnn_resolve.diagnosis.machine import Checks, Inspection, Installed, capability_of, fact, finding
from cudnn_resolve.diagnosis.model import Finding, Remedy
from cudnn_resolve.diagnosis.specifier import Required, is_version, requirements_of, within
from cudnn_resolve.facts.model import CPU_PACKAGES
from cudnn_resolve.matrix.advisory import advisories_of

_NAME = r"(?a)[A-Za-z0-9](?:[\w.-]{0,98}[A-Za-z0-9])?"
_ABI = {"numpy": "numpy_abi", "protobuf": "protobuf_abi"}
_PIP = "packages.pip."
"""Prefix of the probe's problems with a package."""


def _shared_files(machine: Inspection) -> Iterator[Finding]:
    """Packages that install the same files."""
    slots: dict[str, list[str]] = {}
    for name in machine.pip:
        slot = machine.book.slot(name)
        if slot is not None and machine.book.shares_files(slot):
            slots.setdefault(slot, []).append(name)
    cuda = {framework.name: framework.cuda for framework in machine.installed}
    cpu = CPU_PACKAGES | {framework.name for framework in machine.installed if framework.is_cpu}
    reported = {problem.what.removeprefix(_PIP) for problem in machine.facts.problems if "overwritten" in problem.why}
    for names in map(sorted, slots.values()):
        if reported & set(names) or len(names) < 2:
            continue
        cudnn = any("cudnn" in name for name in names)
        unlike = len({(machine.pip[name], name in cpu, cuda.get(name)) for name in names}) > 1
        ours = any(machine.book.framework_of(name) is not None for name in names)
        each = " and ".join(f"{name} {machine.pip[name]}" for name in names)
        summary = (
            f"{each} install the same files: the one installed last has overwritten the other, and removing either removes them from both"
        )
        severity = "warning" if cudnn or (ours and unlike) else "info"
        yield finding("cudnn_sublibrary_mix" if cudnn else "framework_pkg_mismatch", severity, 0.8, summary, *machine.pip_facts(*names))


def _overwritten(machine: Inspection) -> Iterator[Finding]:
    """Wheels whose files were overwritten or removed, as found by the probe."""
    for problem in machine.facts.problems:
        removed = problem.why.startswith("removed: ")
        if not problem.what.startswith(_PIP) or not (removed or "overwritten" in problem.why):
            continue
        name = problem.what.removeprefix(_PIP)
        cudnn, library = "cudnn" in name, machine.book.component(name) is not None
        if removed:
            cause = "cudnn_missing" if cudnn else "cuda_runtime_missing" if library else "framework_pkg_mismatch"
        else:
            cause = "cudnn_sublibrary_mix" if cudnn else "framework_pkg_mismatch"
        severity = "error" if cudnn or (removed and _is_required(machine, name)) else "warning"
        # "removed: 2 of 9 files that torch 2.6.0 installed are empty, such as ...": the first word is a mark for programs
        summary = f"{name}: {problem.why.removeprefix('removed: ')}"
        yield finding(cause, severity, 0.93, summary, fact(problem.what, problem.why), remedy=tuple(_restored(machine, name, problem.why)))


def _restored(machine: Inspection, name: str, why: str) -> Iterator[Remedy]:
    """Reinstall the wanted package, since removing the other deletes its files; nothing for names that no command can contain."""
    if not _is_nameable(machine, name):
        return
    pip = f"{shlex.quote(machine.facts.python.path or 'python')} -m pip"
    other = next((name for name in machine.pip if f"overwritten by {name}:" in why and _is_nameable(machine, name)), None)
    wanted = other if other and _is_required(machine, other) and not _is_required(machine, name) else name
    yield Remedy(
        text=f"reinstall the files of {wanted}"
        + (f"; {name if wanted == other else other}, which has the same files, is removed" if other else ""),
        command=f"cudnn-resolve apply --reinstall-package {shlex.quote(wanted)}",
    )
    first, exact = shlex.quote(name), shlex.quote(f"{name}=={machine.pip[name]}")
    if other:
        second, exact_second = shlex.quote(other), shlex.quote(f"{other}=={machine.pip[other]}")
        yield Remedy(
            text=f"if you need {name}: remove both, then reinstall it (removing only one also deletes files of the other)",
            command=f"{pip} uninstall -y {second} {first} && {pip} install --no-deps {exact}",
        )
        yield Remedy(
            text=f"if you need {other}: remove {name}, then reinstall {other}",
            command=f"{pip} uninstall -y {first} && {pip} install --force-reinstall --no-deps {exact_second}",
        )
    else:
        yield Remedy(text=f"reinstall {name}", command=f"{pip} install --force-reinstall --no-deps {exact}")


def _is_nameable(machine: Inspection, name: str) -> bool:
    """True if a package is installed and its name and version are valid (PEP 503, PEP 440): facts may contain anything."""
    version = machine.pip.get(name)
    return re.fullmatch(_NAME, name) is not None and version is not None and is_version(version)


def _is_required(machine: Inspection, name: str) -> bool:
    """True if an installed framework requires that package on this machine."""
    return any(requirement.name == name for each in machine.installed for requirement in requirements_of(each.requires, machine.facts))


def _abi(machine: Inspection) -> Iterator[Finding]:
    """NumPy or protobuf outside an installed framework's bounds, declared in its metadata or known from the tables."""
    for installed in machine.installed:
        framework = machine.book.framework_of(installed.name)
        silent = []
        for bound in machine.book.framework(framework).bounds if framework else ():
            requirement = Requirement(bound.requirement)
            version = machine.pip.get(requirement.name)
            if requirement.name not in _ABI or version is None or bound.package not in (None, "", installed.name):
                continue
            if within(bound.versions, installed.version) and not within(str(requirement.specifier), version):
                silent.append(requirement.name)
                yield _unusable(machine, installed, requirement, f"{installed.label} needs {bound.requirement}", f": {bound.reason}")
        for declared in requirements_of(installed.requires, machine.facts):
            version = machine.pip.get(declared.name)
            if declared.name in _ABI and declared.name not in silent and version and not within(str(declared.specifier), version):
                yield _unusable(machine, installed, declared, f"{installed.label} declares {declared.name}{declared.specifier}", "")


def _unusable(machine: Inspection, framework: Installed, wanted: Requirement | Required, who: str, why: str) -> Finding:
    """Finding for a package outside a framework's bounds.

    Error: a bound of the tables, or a NumPy of a newer major than declared. Warning: older than declared, which may fail. Note: a newer
    minor release, which mostly works.
    """
    version = machine.pip[wanted.name]
    tops = [most for bound in wanted.specifier if (most := _most(bound.operator, bound.version)) is not None]
    newer = bool(tops) and _major(version) > min(tops)
    older = any(bound.operator in (">", ">=", "~=", "==") and not bound.contains(version, prereleases=True) for bound in wanted.specifier)
    surely = bool(why) or (wanted.name == "numpy" and newer)
    severity = "error" if surely else "warning" if older or newer else "info"
    summary = f"{who}, but {wanted.name} {version} is installed{why}"
    evidence = (*machine.pip_facts(wanted.name), fact("packages.pip", framework.label))
    return finding(_ABI[wanted.name], severity, 0.92 if surely else 0.6, summary, *evidence)


def _most(operator: str, version: str) -> int | None:
    """Newest major that a bound allows; None without an upper bound."""
    if operator == "<":
        rest = re.sub(r"\.?(?:dev|a|b|rc)\d*$", "", version.partition(".")[2])  # `<5.0.0dev` allows no 5 either
        return _major(version) - (not rest.replace(".", "").strip("0"))
    return _major(version) if operator in ("<=", "~=", "==", "===") else None


def _major(version: str) -> int:
    number = version.partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _cpu_only(machine: Inspection) -> Iterator[Finding]:
    """CPU builds on a machine with a GPU."""
    if not machine.gpus or machine.driver_absent:
        return
    gpu, severity = machine.gpus[0].name, "info" if any(framework.cuda is not None for framework in machine.installed) else "warning"
    for framework in machine.installed:
        if framework.is_cpu:
            summary = f"{framework.label} is built without CUDA: it runs on the CPU although this machine has a {gpu or 'GPU'}"
            yield finding("cpu_only_build", severity, 0.9, summary, fact("packages.pip", framework.label), fact("gpus", gpu or "a GPU"))


def _toolkits(machine: Inspection) -> Iterator[Finding]:
    """CUDA toolkits that no framework uses, since the wheels include their libraries."""
    builds = [framework for framework in machine.installed if framework.cuda is not None]
    own = [framework for framework in builds if framework.delivery in ("wheel", "bundled")]
    if machine.toolkits and own and not any(framework.delivery == "system" for framework in builds):
        each = ", ".join(f"{toolkit.version} ({toolkit.path or toolkit.source})" for toolkit in machine.toolkits[:3])
        names = ", ".join(framework.label for framework in own)
        summary = f"CUDA {each} is not used by {names}: their wheels include the libraries that they load"
        yield finding(
            "harmless",
            "info",
            0.8,
            summary,
            *(fact("cuda_toolkits", f"{toolkit.version}: {toolkit.path}") for toolkit in machine.toolkits[:3]),
        )


def _advised(machine: Inspection) -> Iterator[Finding]:
    """Installed releases with an advisory: avoided by plans (warning), or worth knowing (note)."""
    gpus = tuple(found for gpu in machine.gpus if (found := capability_of(gpu)) is not None)
    for name, advisory in advisories_of(machine.book, machine.pip, gpus):
        remedy = (Remedy(text=advisory.remedy, command=None),) if advisory.remedy else ()
        severity = "warning" if advisory.action == "avoid" else "info"
        yield finding(
            "other_bug", severity, 0.6, f"{name} {machine.pip[name]}: {advisory.summary}", *machine.pip_facts(name), remedy=remedy
        )


CHECKS: Checks = (_shared_files, _overwritten, _abi, _cpu_only, _toolkits, _advised)
