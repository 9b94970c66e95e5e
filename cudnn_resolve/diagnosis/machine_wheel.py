"""CUDA's libraries against the frameworks that want them, as far as packages, copies and toolkits tell: findings from facts alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from packaging.version import Version

from cudnn_resolve.diagnosis.machine import Checks, Inspection, Installed, as_declared, cudnn_of, fact, finding
from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.diagnosis.specifier import Required, is_version, requirements_of, within
from cudnn_resolve.facts.model import Unknown
from cudnn_resolve.version import CudaVersion, CudnnVersion

_CUDA_FILE = re.compile(r"/lib(?:cublas|cudart)\.so\.(\d{1,2})")


class Declared(NamedTuple):
    """A wheel of NVIDIA's that a framework declares, and what is there of it."""

    framework: Installed
    wanted: Required
    version: str | None
    """None where it is not installed."""

    @property
    def text(self) -> str:
        """The sentence."""
        here = f"{self.version} is installed" if self.version else "it is not installed"
        return f"{self.framework.label} declares {self.wanted.name}{self.wanted.specifier} and {here}"


def _cudnn_of_wheels(machine: Inspection) -> Iterator[Finding]:
    """The cuDNN that there is against the one that a framework was built with, where nobody looked which copy would be loaded."""
    for one in machine.installed:
        built = one.cudnn
        if one.would_load is not None or built is None or not _takes_from_outside(machine, one):
            continue
        found = _cudnn_there(machine, one)
        builds = [built, *(cudnn for _, cudnn in one.others if cudnn is not None)]
        if found is None or any(version.serves(each) for version in found.values() for each in builds):
            continue
        what = ", ".join(found)
        if found:
            major = all(version.major != built.major for version in found.values())
            cause = "cudnn_major_mismatch" if major else "cudnn_too_old_for_framework"
            told = f"what there is of cuDNN is of {'another major' if major else 'an older minor release'}: {what}"
        elif _is_lacking(machine, one) or not _has_cuda(machine, one):
            continue  # one finding is enough
        else:
            cause, told = "cudnn_missing", "no copy of cuDNN was found"
        shown = (fact("packages.pip", one.label), *((fact("cudnn", what),) if found else ()))
        yield finding(cause, "error", 0.9, f"{one.label} is built with cuDNN {built}, and {told}", *shown, remedy=as_declared(one))


def _cudnn_there(machine: Inspection, one: Installed) -> dict[str, CudnnVersion] | None:
    """Every cuDNN that a framework may find, by what to call it; None where that is not known, or none is wanted."""
    required = {each.name for each in requirements_of(one.requires, machine.facts)}
    pip = ((name, cudnn_of(text)) for name, text in machine.pip.items() if name.startswith("nvidia-cudnn"))
    wheels = {f"{name} {version}": version for name, version in pip if version is not None}
    own = {text: version for text, version in wheels.items() if text.partition(" ")[0] in required}
    if own:
        return own
    if isinstance(machine.facts.cudnn, Unknown) or machine.driver_absent:
        return None  # there may be other copies; and where nothing computes, none is wanted
    copies = [(copy, cudnn_of(copy.version)) for copy in machine.cudnn if copy.source != "pip"]
    if any(version is None for _, version in copies):
        return None
    return wheels | {f"{version} ({copy.path or copy.source})": version for copy, version in copies if version is not None}


def _cuda_of_anybody(machine: Inspection) -> Iterator[Finding]:
    """A framework that takes the CUDA libraries from outside where there are none of its major, in a wheel, a toolkit or the cache."""
    for one in machine.installed if not machine.driver_absent else ():
        served = one.would_load is not None and one.would_load.path is not None
        if served or not _takes_from_outside(machine, one) or _has_cuda(machine, one) or _is_lacking(machine, one):
            continue
        said = (
            f"{one.label} is built for CUDA {one.cuda} and brings no libraries of it, and there are none here: "
            "neither NVIDIA's wheels nor a toolkit"
        )
        shown = (fact("packages.pip", one.label), fact("cuda_toolkits", "no CUDA of that major was found"))
        yield finding("cuda_runtime_missing", "error", 0.85, said, *shown, remedy=as_declared(one))


def _takes_from_outside(machine: Inspection, one: Installed) -> bool:
    """True for a wheel that the tables know and that takes its CUDA from elsewhere, by the loader's common rules.

    A conda environment and a Jetson have builds and libraries of their own.
    """
    sources = {copy.source for copy in machine.cudnn} | {toolkit.source for toolkit in machine.toolkits}
    return one.is_wheel and one.cuda is not None and one.delivery in ("wheel", "system") and "conda" not in sources and not machine.is_tegra


def _is_lacking(machine: Inspection, one: Installed) -> bool:
    """True where `_lacking` speaks of a framework."""
    told = machine.facts.packages.requires.get(one.name)
    return bool(told) and any(each.framework is one and each.version is None for each in _declared(machine))


def _has_cuda(machine: Inspection, one: Installed) -> bool:
    """True where there are CUDA libraries of a major that a framework can use, or nobody looked."""
    facts, toolkits = machine.facts, machine.toolkits
    # LD_LIBRARY_PATH may lead to libraries that nobody has looked at.
    if isinstance(facts.cuda_toolkits, Unknown) or isinstance(facts.packages.pip, Unknown) or machine.loader.ld_library_path:
        return True
    majors = {cuda.major for cuda in (one.cuda, *(cuda for cuda, _ in one.others)) if cuda is not None}
    components = (machine.book.component(name) for name in machine.pip)
    there = {component.cuda_major for component in components if component is not None and component.library != "cudnn"}
    there |= {int(major) for toolkit in toolkits if (major := (toolkit.version or "").partition(".")[0]).isdecimal()}
    there |= {int(found[1]) for path in machine.loader.ldconfig if (found := _CUDA_FILE.search(path))}
    return bool(majors & there) or any(toolkit.version is None for toolkit in toolkits)


def _linker(machine: Inspection) -> Iterator[Finding]:
    """An nvJitLink older than libraries that link with it, which then lacks their symbols (`__nvJitLinkAddData_12_4`)."""
    book, pip = machine.book, machine.pip
    found: dict[str, list[tuple[CudaVersion, str]]] = {}
    for name, version in sorted(pip.items()):
        cuda = book.cuda_of(name, version)
        linker = _linker_of(machine, name, version) if cuda is not None else None
        own = book.cuda_of(linker, pip[linker]) if linker is not None and linker in pip else None
        if linker is not None and cuda is not None and own is not None and (own.major, own.minor) < (cuda.major, cuda.minor):
            found.setdefault(linker, []).append((cuda, f"{name} {version}"))
    for linker, users in found.items():
        newest, who = max(users)
        said = f"{who} of CUDA {newest.line} links with {linker}, of which {pip[linker]} is installed: it is older and lacks symbols"
        shown = (*(fact("packages.pip", text) for _, text in users), *machine.pip_facts(linker))
        yield finding("nvjitlink_mix", "error", 0.9, said, *shown, remedy=tuple(_newer(machine, linker, newest)))


def _newer(machine: Inspection, linker: str, cuda: CudaVersion) -> Iterator[Remedy]:
    """Install the newest nvJitLink of the same CUDA, which serves all older ones of its major, too."""
    table = machine.book.package(linker)
    releases = [one.version for one in table.releases if not one.yanked] if table else []
    same = [one for one in releases if (own := machine.book.cuda_of(linker, one)) is not None and own.line == cuda.line]
    if same:
        command = f"{shlex.quote(machine.facts.python.path or 'python')} -m pip install --no-deps {linker}=={max(same, key=CudaVersion)}"
        yield Remedy(text=f"install the {linker} of CUDA {cuda.line}; only that package changes", command=command)


def _linker_of(machine: Inspection, name: str, version: str) -> str | None:
    """The wheel of nvJitLink that a release of a library requires."""
    lines = machine.book.requires(name, version).get(machine.arch, ())
    return next((one.name for one in requirements_of(lines, machine.facts) if one.name.startswith("nvidia-nvjitlink")), None)


def _declared(machine: Inspection) -> list[Declared]:
    """NVIDIA's wheels that are not as a framework declares them; cuDNN of another ABI is the matter of `_cudnn_of_wheels`."""
    found = []
    for one in machine.installed:
        for wanted in requirements_of(one.requires, machine.facts):
            version = machine.pip.get(wanted.name)
            if wanted.name.startswith("nvidia-") and (version is None or not within(str(wanted.specifier), version)):
                found.append(Declared(one, wanted, version))
    return found


def _accepts(machine: Inspection, one: Declared) -> bool:
    """True where NVIDIA's ABI promise covers the version that is there."""
    from cudnn_resolve.resolution.pin_override import abi_range

    component = machine.book.component(one.wanted.name)
    if component is None or one.version is None or not is_version(one.version):
        return False
    return abi_range(component, one.wanted.specifier)[1](Version(one.version))


def _other_versions(machine: Inspection) -> Iterator[Finding]:
    """NVIDIA's wheels in other versions than a framework declares: a note where the ABI allows it, else a warning."""
    differ = [one for one in _declared(machine) if one.version is not None]
    fine = [one for one in differ if _accepts(machine, one)]
    told = ("nvidia-cudnn", *(("nvidia-nvjitlink",) if any(_linker(machine)) else ()))
    rest = [one for one in differ if one not in fine and not one.wanted.name.startswith(told)]
    if fine:
        some = "1 NVIDIA package differs" if len(fine) == 1 else f"{len(fine)} NVIDIA packages differ"
        said = f"{some} from what a framework declares, within what its libraries accept: {_first(fine)}"
        yield finding("harmless", "info", 0.8, said, *_evidence(fine))
    if rest:
        said = f"a CUDA library is of a release that the build does not promise to work with: {_first(rest)}"
        yield finding("cuda_runtime_missing", "warning", 0.7, said, *_evidence(rest), remedy=as_declared(rest[0].framework))


def _lacking(machine: Inspection) -> Iterator[Finding]:
    """NVIDIA's wheels that the metadata of an installed framework declares and that are not there."""
    for one in machine.installed:
        lines = machine.facts.packages.requires.get(one.name, ())
        wanted = {need.name: need.specifier for need in requirements_of(lines, machine.facts) if need.name.startswith("nvidia-")}
        gone = [name for name in wanted if name not in machine.pip]
        if one.cuda is None or one.delivery != "wheel" or not gone:
            continue
        other = next((each for each in machine.toolkits if (each.version or "").partition(".")[0] == str(one.cuda.major)), None)
        cudnn = all("cudnn" in name for name in gone)
        if cudnn and one.would_load is not None and one.would_load.version:
            continue
        many = f"{len(gone)} NVIDIA packages that are" if len(gone) > 1 else "an NVIDIA package that is"
        brought = f"; CUDA {other.version} in {other.path or other.source} may bring what they hold" if other else ""
        severity = "info" if other and not cudnn else "warning" if machine.driver_absent else "error"
        said = f"{one.label} declares {many} not installed: {', '.join(gone)}{brought}"
        shown = (fact("packages.pip", one.label), *(fact("packages.requires", f"{name}{wanted[name]}") for name in gone))
        yield finding("cudnn_missing" if cudnn else "cuda_runtime_missing", severity, 0.8 if other else 0.92, said, *shown)


def _first(found: Sequence[Declared]) -> str:
    return found[0].text if len(found) == 1 else f"for one, {found[0].text}"


def _evidence(found: Sequence[Declared]) -> tuple[Evidence, ...]:
    return tuple(fact("packages.pip", one.text) for one in found[:6])


CHECKS: Checks = (_cuda_of_anybody, _cudnn_of_wheels, _linker, _lacking, _other_versions)
