"""Packages whose files are gone, and toolkits that nothing uses: findings from facts alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from cudnn_resolve.diagnosis.machine import Checks, Inspection, fact, finding
from cudnn_resolve.diagnosis.model import Finding, Remedy
from cudnn_resolve.diagnosis.specifier import is_version, requirements_of

_NAME = r"(?a)[A-Za-z0-9](?:[\w.-]{0,98}[A-Za-z0-9])?"
_PIP = "packages.pip."
"""Prefix of the probe's problems with a package."""


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


CHECKS: Checks = (_overwritten, _toolkits)
