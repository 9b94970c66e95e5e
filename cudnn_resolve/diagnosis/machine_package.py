"""Packages that write over one another, break an ABI or have no CUDA: findings from facts alone."""

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
"""Begins what the probe tells of one package."""


def _shared_files(machine: Inspection) -> Iterator[Finding]:
    """Packages that write the same files."""
    slots: dict[str, list[str]] = {}
    for name in machine.pip:
        slot = machine.book.slot(name)
        if slot is not None and machine.book.shares_files(slot):
            slots.setdefault(slot, []).append(name)
    cuda = {one.name: one.cuda for one in machine.installed}
    cpu = CPU_PACKAGES | {one.name for one in machine.installed if one.is_cpu}
    told = {problem.what.removeprefix(_PIP) for problem in machine.facts.problems if "overwritten" in problem.why}
    for names in map(sorted, slots.values()):
        if told & set(names) or len(names) < 2:
            continue
        cudnn = any("cudnn" in name for name in names)
        unlike = len({(machine.pip[name], name in cpu, cuda.get(name)) for name in names}) > 1
        ours = any(machine.book.framework_of(name) is not None for name in names)
        each = " and ".join(f"{name} {machine.pip[name]}" for name in names)
        said = f"{each} install the same files: whichever was unpacked last is there, and removing one takes them from the other"
        severity = "warning" if cudnn or (ours and unlike) else "info"
        yield finding("cudnn_sublibrary_mix" if cudnn else "framework_pkg_mismatch", severity, 0.8, said, *machine.pip_facts(*names))


def _overwritten(machine: Inspection) -> Iterator[Finding]:
    """What the probe found of wheels whose files are not their own, or not there."""
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
        said = f"{name}: {problem.why.removeprefix('removed: ')}"
        yield finding(cause, severity, 0.93, said, fact(problem.what, problem.why), remedy=tuple(_restored(machine, name, problem.why)))


def _restored(machine: Inspection, name: str, why: str) -> Iterator[Remedy]:
    """Remove both and install the wanted one: removing one of two takes the files of the other along. None for what no command can name."""
    if not _is_told(machine, name):
        return
    pip = f"{shlex.quote(machine.facts.python.path or 'python')} -m pip"
    other = next((one for one in machine.pip if f"overwritten by {one}:" in why and _is_told(machine, one)), None)
    wanted = other if other and _is_required(machine, other) and not _is_required(machine, name) else name
    yield Remedy(
        text=f"reinstall the files of {wanted}" + (f"; {name if wanted == other else other}, which has the same, goes" if other else ""),
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


def _is_told(machine: Inspection, name: str) -> bool:
    """True for an installed package whose name and version are what PEP 503 and PEP 440 take for one: facts may say anything."""
    version = machine.pip.get(name)
    return re.fullmatch(_NAME, name) is not None and version is not None and is_version(version)


def _is_required(machine: Inspection, name: str) -> bool:
    """True where an installed framework declares that package, on this machine."""
    return any(one.name == name for each in machine.installed for one in requirements_of(each.requires, machine.facts))


def _abi(machine: Inspection) -> Iterator[Finding]:
    """NumPy and protobuf that an installed framework cannot use: by bounds that its metadata does not say, and by those that it does."""
    for one in machine.installed:
        framework = machine.book.framework_of(one.name)
        silent = []
        for bound in machine.book.framework(framework).bounds if framework else ():
            requirement = Requirement(bound.requirement)
            version = machine.pip.get(requirement.name)
            if requirement.name not in _ABI or version is None or bound.package not in (None, "", one.name):
                continue
            if within(bound.versions, one.version) and not within(str(requirement.specifier), version):
                silent.append(requirement.name)
                yield _unusable(machine, one, requirement, f"{one.label} wants {bound.requirement}", f": {bound.reason}")
        for declared in requirements_of(one.requires, machine.facts):
            version = machine.pip.get(declared.name)
            if declared.name in _ABI and declared.name not in silent and version and not within(str(declared.specifier), version):
                yield _unusable(machine, one, declared, f"{one.label} declares {declared.name}{declared.specifier}", "")


def _unusable(machine: Inspection, one: Installed, wanted: Requirement | Required, who: str, why: str) -> Finding:
    """A package that a framework was not built for.

    By a bound that the tables give a reason for, or of a newer major than it declares, NumPy will not do; older than it
    declares, it may not; a newer minor release mostly does.
    """
    version = machine.pip[wanted.name]
    tops = [most for bound in wanted.specifier if (most := _most(bound.operator, bound.version)) is not None]
    newer = bool(tops) and _major(version) > min(tops)
    older = any(bound.operator in (">", ">=", "~=", "==") and not bound.contains(version, prereleases=True) for bound in wanted.specifier)
    surely = bool(why) or (wanted.name == "numpy" and newer)
    severity = "error" if surely else "warning" if older or newer else "info"
    said = f"{who} and {wanted.name} {version} is installed{why}"
    shown = (*machine.pip_facts(wanted.name), fact("packages.pip", one.label))
    return finding(_ABI[wanted.name], severity, 0.92 if surely else 0.6, said, *shown)


def _most(operator: str, version: str) -> int | None:
    """The newest major that a bound allows, None where it sets no upper end."""
    if operator == "<":
        rest = re.sub(r"\.?(?:dev|a|b|rc)\d*$", "", version.partition(".")[2])  # `<5.0.0dev` allows no 5 either
        return _major(version) - (not rest.replace(".", "").strip("0"))
    return _major(version) if operator in ("<=", "~=", "==", "===") else None


def _major(version: str) -> int:
    number = version.partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _cpu_only(machine: Inspection) -> Iterator[Finding]:
    """Builds without CUDA on a machine with a GPU."""
    if not machine.gpus or machine.driver_absent:
        return
    gpu, severity = machine.gpus[0].name, "info" if any(one.cuda is not None for one in machine.installed) else "warning"
    for one in machine.installed:
        if one.is_cpu:
            said = f"{one.label} is built without CUDA: it runs on the CPU although there is a {gpu or 'GPU'}"
            yield finding("cpu_only_build", severity, 0.9, said, fact("packages.pip", one.label), fact("gpus", gpu or "a GPU"))


def _toolkits(machine: Inspection) -> Iterator[Finding]:
    """CUDA toolkits that play no part, since the wheels bring what they load."""
    builds = [one for one in machine.installed if one.cuda is not None]
    own = [one for one in builds if one.delivery in ("wheel", "bundled")]
    if machine.toolkits and own and not any(one.delivery == "system" for one in builds):
        each = ", ".join(f"{one.version} ({one.path or one.source})" for one in machine.toolkits[:3])
        names = ", ".join(one.label for one in own)
        said = f"CUDA {each} plays no part for {names}: their wheels bring the libraries that they load"
        yield finding("harmless", "info", 0.8, said, *(fact("cuda_toolkits", f"{one.version}: {one.path}") for one in machine.toolkits[:3]))


def _advised(machine: Inspection) -> Iterator[Finding]:
    """Releases that are known to be bad on this machine: those that no plan takes, and those of which it is worth knowing."""
    gpus = tuple(found for gpu in machine.gpus if (found := capability_of(gpu)) is not None)
    for name, one in advisories_of(machine.book, machine.pip, gpus):
        remedy = (Remedy(text=one.remedy, command=None),) if one.remedy else ()
        severity = "warning" if one.action == "avoid" else "info"
        yield finding("other_bug", severity, 0.6, f"{name} {machine.pip[name]}: {one.summary}", *machine.pip_facts(name), remedy=remedy)


CHECKS: Checks = (_shared_files, _overwritten, _abi, _cpu_only, _toolkits, _advised)
