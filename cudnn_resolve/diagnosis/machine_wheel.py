"""CUDA libraries that frameworks need and do not have, by packages, copies and toolkits: findings from facts alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from cudnn_resolve.diagnosis.machine import Checks, Inspection, Installed, as_declared, cudnn_of, fact, finding
from cudnn_resolve.diagnosis.model import Evidence, Finding
from cudnn_resolve.diagnosis.specifier import Required, is_version, requirements_of, within
from cudnn_resolve.facts.model import Unknown
from cudnn_resolve.version import CudnnVersion

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

_ELSEWHERE = ("nvidia-cudnn", "nvidia-nvjitlink")
"""Wheels of which other checks and the judgement tell."""
_CUDA_FILE = re.compile(r"/lib(?:cublas|cudart)\.so\.(\d{1,2})")


class Declared(NamedTuple):
    """NVIDIA wheel that a framework declares in other versions than the installed one."""

    framework: Installed
    wanted: Required
    version: str

    @property
    def text(self) -> str:
        """The sentence."""
        return f"{self.framework.label} declares {self.wanted.name}{self.wanted.specifier}, but {self.version} is installed"


def _cudnn_of_wheels(machine: Inspection) -> Iterator[Finding]:
    """Compare the installed cuDNN with the one that a framework was built with, if the loaded copy is unknown."""
    for framework in machine.installed:
        built = framework.cudnn
        if framework.would_load is not None or built is None or not _takes_from_outside(machine, framework):
            continue
        found = _cudnn_there(machine, framework)
        builds = [built, *(cudnn for _, cudnn in framework.others if cudnn is not None)]
        if found is None or any(version.serves(each) for version in found.values() for each in builds):
            continue
        what = ", ".join(found)
        if found:
            major = all(version.major != built.major for version in found.values())
            cause = "cudnn_major_mismatch" if major else "cudnn_too_old_for_framework"
            difference = f"the installed cuDNN is {'another major version' if major else 'an older minor release'}: {what}"
        elif _lacked(machine, framework) or not _has_cuda(machine, framework):
            continue  # one finding is enough
        else:
            cause, difference = "cudnn_missing", "no copy of cuDNN is installed"
        evidence = (fact("packages.pip", framework.label), *((fact("cudnn", what),) if found else ()))
        yield finding(
            cause,
            "error",
            0.9,
            f"{framework.label} is built with cuDNN {built}, but {difference}",
            *evidence,
            remedy=as_declared(framework),
        )


def _cudnn_there(machine: Inspection, framework: Installed) -> dict[str, CudnnVersion] | None:
    """Each cuDNN that a framework may find, by label; None if unknown or not needed."""
    required = {each.name for each in requirements_of(framework.requires, machine.facts)}
    pip = ((name, cudnn_of(text)) for name, text in machine.pip.items() if name.startswith("nvidia-cudnn"))
    wheels = {f"{name} {version}": version for name, version in pip if version is not None}
    own = {text: version for text, version in wheels.items() if text.partition(" ")[0] in required}
    if own:
        return own
    if isinstance(machine.facts.cudnn, Unknown) or machine.driver_absent:
        return None  # there may be other copies, and without a driver none is needed
    copies = [(copy, cudnn_of(copy.version)) for copy in machine.cudnn if copy.source != "pip"]
    if any(version is None for _, version in copies):
        return None
    return wheels | {f"{version} ({copy.path or copy.source})": version for copy, version in copies if version is not None}


def _cuda_missing(machine: Inspection) -> Iterator[Finding]:
    """Framework that needs external CUDA libraries, with none of its major in wheels, toolkits or the loader's cache."""
    for framework in machine.installed if not machine.driver_absent else ():
        served = framework.would_load is not None and framework.would_load.path is not None
        if served or not _takes_from_outside(machine, framework) or _has_cuda(machine, framework) or _lacked(machine, framework):
            continue
        summary = (
            f"{framework.label} is built for CUDA {framework.cuda} and does not include its libraries, and none are installed: "
            "neither NVIDIA's wheels nor a toolkit"
        )
        evidence = (fact("packages.pip", framework.label), fact("cuda_toolkits", "no CUDA of that major was found"))
        yield finding("cuda_runtime_missing", "error", 0.85, summary, *evidence, remedy=as_declared(framework))


def _takes_from_outside(machine: Inspection, framework: Installed) -> bool:
    """True for a known wheel that finds its CUDA libraries elsewhere by the usual loader rules.

    Not in conda environments and on Jetsons before Thor, which have their own builds and libraries.
    """
    sources = {copy.source for copy in machine.cudnn} | {toolkit.source for toolkit in machine.toolkits}
    return (
        framework.is_wheel
        and framework.cuda is not None
        and framework.delivery in ("wheel", "system")
        and "conda" not in sources
        and not machine.has_own_driver
    )


def _lacked(machine: Inspection, framework: Installed) -> dict[str, SpecifierSet]:
    """NVIDIA wheels that an installed framework declares and that are missing, with their versions."""
    needs = requirements_of(machine.facts.packages.requires.get(framework.name, ()), machine.facts)
    return {need.name: need.specifier for need in needs if need.name.startswith("nvidia-") and need.name not in machine.pip}


def _has_cuda(machine: Inspection, framework: Installed) -> bool:
    """True if CUDA libraries of a usable major are installed, or that is unknown."""
    facts, toolkits = machine.facts, machine.toolkits
    # LD_LIBRARY_PATH may lead to libraries that the facts do not list.
    if isinstance(facts.cuda_toolkits, Unknown) or isinstance(facts.packages.pip, Unknown) or machine.loader.ld_library_path:
        return True
    majors = {cuda.major for cuda in (framework.cuda, *(cuda for cuda, _ in framework.others)) if cuda is not None}
    components = (machine.book.component(name) for name in machine.pip)
    there = {component.cuda_major for component in components if component is not None and component.library != "cudnn"}
    there |= {int(major) for toolkit in toolkits if (major := (toolkit.version or "").partition(".")[0]).isdecimal()}
    there |= {int(found[1]) for path in machine.loader.ldconfig if (found := _CUDA_FILE.search(path))}
    return bool(majors & there) or any(toolkit.version is None for toolkit in toolkits)


def _declared(machine: Inspection) -> Iterator[Declared]:
    """NVIDIA wheels that differ from a framework's declaration; cuDNN of another ABI is left to `_cudnn_of_wheels`."""
    for framework in machine.installed:
        for wanted in requirements_of(framework.requires, machine.facts):
            version = machine.pip.get(wanted.name)
            if version is not None and wanted.name.startswith("nvidia-") and not within(str(wanted.specifier), version):
                yield Declared(framework, wanted, version)


def _accepts(machine: Inspection, declared: Declared) -> bool:
    """True if NVIDIA's ABI promise covers the installed version."""
    from cudnn_resolve.resolution.pin_override import abi_range

    component = machine.book.component(declared.wanted.name)
    if component is None or not is_version(declared.version):
        return False
    return abi_range(component, declared.wanted.specifier)[1](Version(declared.version))


def _other_versions(machine: Inspection) -> Iterator[Finding]:
    """NVIDIA wheels in other versions than declared: a note if the ABI allows it, else a warning."""
    differ = list(_declared(machine))
    fine = [declared for declared in differ if _accepts(machine, declared)]
    rest = [declared for declared in differ if declared not in fine and not declared.wanted.name.startswith(_ELSEWHERE)]
    if fine:
        some = "1 NVIDIA package differs" if len(fine) == 1 else f"{len(fine)} NVIDIA packages differ"
        summary = f"{some} from what a framework declares, within what its libraries accept: {_first(fine)}"
        yield finding("harmless", "info", 0.8, summary, *_evidence(fine))
    if rest:
        summary = f"a CUDA library is of a release that the build is not guaranteed to work with: {_first(rest)}"
        yield finding("cuda_runtime_missing", "warning", 0.7, summary, *_evidence(rest), remedy=as_declared(rest[0].framework))


def _lacking(machine: Inspection) -> Iterator[Finding]:
    """NVIDIA wheels that an installed framework declares and that are missing."""
    for framework in machine.installed:
        gone = _lacked(machine, framework)
        if framework.cuda is None or framework.delivery != "wheel" or not gone:
            continue
        other = next((each for each in machine.toolkits if (each.version or "").partition(".")[0] == str(framework.cuda.major)), None)
        cudnn = all("cudnn" in name for name in gone)
        if cudnn and framework.would_load is not None and framework.would_load.version:
            continue
        many = f"{len(gone)} NVIDIA packages that are" if len(gone) > 1 else "an NVIDIA package that is"
        brought = f"; CUDA {other.version} in {other.path or other.source} may provide their libraries" if other else ""
        severity = "info" if other and not cudnn else "warning" if machine.driver_absent else "error"
        summary = f"{framework.label} declares {many} not installed: {', '.join(gone)}{brought}"
        evidence = (
            fact("packages.pip", framework.label),
            *(fact("packages.requires", f"{name}{versions}") for name, versions in gone.items()),
        )
        yield finding("cudnn_missing" if cudnn else "cuda_runtime_missing", severity, 0.8 if other else 0.92, summary, *evidence)


def _first(found: Sequence[Declared]) -> str:
    return found[0].text if len(found) == 1 else f"for example, {found[0].text}"


def _evidence(found: Sequence[Declared]) -> tuple[Evidence, ...]:
    return tuple(fact("packages.pip", declared.text) for declared in found[:6])


CHECKS: Checks = (_cuda_missing, _cudnn_of_wheels, _lacking, _other_versions)
