"""CUDA's libraries against the frameworks that want them, as far as packages, copies and toolkits tell: findings from facts alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from cudnn_resolve.diagnosis.machine import Machine, as_declared, cudnn_of, fact
from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.diagnosis.specifier import Required, is_version, requirements_of, within
from cudnn_resolve.facts.model import Toolkit, Unknown, or_none
from cudnn_resolve.version import CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.installed import Installed

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


def _cudnn_of_wheels(machine: Machine) -> Iterator[Finding]:
    """The cuDNN that there is against the one that a framework was built with, where nobody looked which copy would be loaded."""
    for one in machine.installed:
        if one.would_load is not None or one.cudnn is None or not _takes_from_outside(machine, one):
            continue
        required = {each.name for each in requirements_of(one.requires, machine.facts)}
        pip = ((name, cudnn_of(text)) for name, text in machine.pip.items() if name.startswith("nvidia-cudnn"))
        wheels = {f"{name} {version}": version for name, version in pip if version is not None}
        own = {text: version for text, version in wheels.items() if text.partition(" ")[0] in required}
        if own:
            found = own
        elif isinstance(machine.facts.cudnn, Unknown) or machine.driver_absent:
            continue  # there may be other copies; and where nothing computes, none is wanted
        else:
            versions = [(copy, cudnn_of(copy.version)) for copy in machine.cudnn if copy.source != "pip"]
            if any(version is None for _, version in versions):
                continue
            found = wheels | {f"{version} ({copy.path or copy.source})": version for copy, version in versions if version is not None}
        builds = [one.cudnn, *(cudnn for _, cudnn in one.others if cudnn is not None)]
        if any(version.serves(built) for version in found.values() for built in builds):
            continue
        if not found and (_is_lacking(machine, one) or not _has_cuda(machine, one)):
            continue  # one finding is enough
        yield _unserved(one, one.cudnn, found)


def _unserved(one: Installed, built: CudnnVersion, found: dict[str, CudnnVersion]) -> Finding:
    """A framework that finds no cuDNN that serves it among those that there are."""
    what = ", ".join(found)
    major = all(version.major != built.major for version in found.values())
    kind = "another major" if major else "an older minor release"
    return Finding(
        cause="cudnn_missing" if not found else "cudnn_major_mismatch" if major else "cudnn_too_old_for_framework",
        severity="error",
        summary=f"{one.label} is built with cuDNN {built}, and "
        + (f"what there is of cuDNN is of {kind}: {what}" if found else "no copy of cuDNN was found"),
        evidence=(fact("packages.pip", one.label), *((fact("cudnn", what),) if found else ())),
        remedy=as_declared(one),
        confidence=0.9,
    )


def _cuda_of_anybody(machine: Machine) -> Iterator[Finding]:
    """A framework that takes the CUDA libraries from outside where there are none of its major, in a wheel, a toolkit or the cache."""
    if machine.driver_absent:
        return
    for one in machine.installed:
        served = one.would_load is not None and one.would_load.path is not None
        if served or not _takes_from_outside(machine, one) or _has_cuda(machine, one):
            continue
        if _is_lacking(machine, one):
            continue
        yield Finding(
            cause="cuda_runtime_missing",
            severity="error",
            summary=f"{one.label} is built for CUDA {one.cuda} and brings no libraries of it, and there are none here: "
            "neither NVIDIA's wheels nor a toolkit",
            evidence=(fact("packages.pip", one.label), fact("cuda_toolkits", "no CUDA of that major was found")),
            remedy=as_declared(one),
            confidence=0.85,
        )


def _takes_from_outside(machine: Machine, one: Installed) -> bool:
    """True for a wheel that the tables know and that takes its CUDA from elsewhere, by the loader's common rules.

    A conda environment and a Jetson have builds and libraries of their own.
    """
    toolkits: tuple[Toolkit, ...] = or_none(machine.facts.cuda_toolkits) or ()
    sources = {copy.source for copy in machine.cudnn} | {toolkit.source for toolkit in toolkits}
    return one.is_wheel and one.cuda is not None and one.delivery in ("wheel", "system") and "conda" not in sources and not machine.is_tegra


def _is_lacking(machine: Machine, one: Installed) -> bool:
    """True where `_lacking` speaks of a framework."""
    return any(
        each.framework is one and each.version is None for each in _declared(machine) if machine.facts.packages.requires.get(one.name)
    )


def _has_cuda(machine: Machine, one: Installed) -> bool:
    """True where there are CUDA libraries of a major that a framework can use, or nobody looked."""
    if isinstance(machine.facts.cuda_toolkits, Unknown) or isinstance(machine.facts.packages.pip, Unknown):
        return True
    if machine.loader.ld_library_path:  # which may lead to libraries that nobody has looked at
        return True
    majors = {cuda.major for cuda in (one.cuda, *(cuda for cuda, _ in one.others)) if cuda is not None}
    components = (machine.book.component(name) for name in machine.pip)
    there = {component.cuda_major for component in components if component is not None and component.library != "cudnn"}
    there |= {
        int(version.partition(".")[0])
        for toolkit in machine.facts.cuda_toolkits or ()
        if (version := toolkit.version or "0")[0].isdecimal()
    }
    unnamed = any(toolkit.version is None for toolkit in machine.facts.cuda_toolkits or ())
    there |= {int(found[1]) for path in machine.loader.ldconfig if (found := _CUDA_FILE.search(path))}
    return unnamed or bool(majors & there)


def _linker(machine: Machine) -> Iterator[Finding]:
    """An nvJitLink older than libraries that link with it, which then lacks their symbols (`__nvJitLinkAddData_12_4`)."""
    found: dict[str, list[tuple[CudaVersion, str]]] = {}
    for name, version in sorted(machine.pip.items()):
        cuda = machine.book.cuda_of(name, version)
        linker = _linker_of(machine, name, version) if cuda is not None else None
        there = machine.pip.get(linker) if linker is not None else None
        own = machine.book.cuda_of(linker, there) if linker is not None and there is not None else None
        if linker is not None and cuda is not None and own is not None and (own.major, own.minor) < (cuda.major, cuda.minor):
            found.setdefault(linker, []).append((cuda, f"{name} {version}"))
    for linker, users in found.items():
        newest, who = max(users)
        there = machine.pip[linker]
        yield Finding(
            cause="nvjitlink_mix",
            severity="error",
            summary=f"{who} of CUDA {newest.line} links with {linker}, of which {there} is installed: it is older and lacks symbols",
            evidence=(*(fact("packages.pip", text) for _, text in users), fact("packages.pip", f"{linker} {there}")),
            remedy=tuple(_newer(machine, linker, newest)),
            confidence=0.9,
        )


def _newer(machine: Machine, linker: str, cuda: CudaVersion) -> Iterator[Remedy]:
    """The newest nvJitLink of the same CUDA, which serves all older ones of its major, too."""
    table = machine.book.package(linker)
    releases = [one.version for one in table.releases if not one.yanked] if table else []
    same = [one for one in releases if (own := machine.book.cuda_of(linker, one)) is not None and own.line == cuda.line]
    if same:
        python = shlex.quote(machine.facts.python.path or "python")
        newest = max(same, key=CudaVersion)
        yield Remedy(
            text=f"install the {linker} of CUDA {cuda.line}; only that package changes",
            command=f"{python} -m pip install --no-deps {linker}=={newest}",
        )


def _linker_of(machine: Machine, name: str, version: str) -> str | None:
    """The wheel of nvJitLink that a release of a library requires."""
    table = machine.book.package(name)
    release = next((one for one in table.releases if one.version == version), None) if table else None
    arch = machine.facts.platform.arch or "x86_64"
    lines = (release.requires or {}).get(arch, ()) if release else ()
    return next((one.name for one in requirements_of(lines, machine.facts) if one.name.startswith("nvidia-nvjitlink")), None)


def _declared(machine: Machine) -> list[Declared]:
    """NVIDIA's wheels that are not as a framework declares them; cuDNN of another ABI is the matter of `_cudnn_of_wheels`."""
    found = []
    for one in machine.installed:
        for wanted in requirements_of(one.requires, machine.facts):
            version = machine.pip.get(wanted.name)
            if wanted.name.startswith("nvidia-") and (version is None or not within(str(wanted.specifier), version)):
                found.append(Declared(one, wanted, version))
    return found


def _accepts(machine: Machine, one: Declared) -> bool:
    """True where NVIDIA's ABI promise covers the version that is there."""
    from packaging.version import Version

    from cudnn_resolve.resolution.package import abi_range

    component = machine.book.component(one.wanted.name)
    if component is None or one.version is None or not is_version(one.version):
        return False
    return abi_range(component, one.wanted.specifier)[1](Version(one.version))


def _other_versions(machine: Machine) -> Iterator[Finding]:
    """NVIDIA's wheels in other versions than a framework declares: a note where the ABI allows it, else a warning."""
    differ = [one for one in _declared(machine) if one.version is not None]
    fine = [one for one in differ if _accepts(machine, one)]
    told = ("nvidia-cudnn", *(("nvidia-nvjitlink",) if any(_linker(machine)) else ()))
    rest = [one for one in differ if one not in fine and not one.wanted.name.startswith(told)]
    if fine:
        some = "1 NVIDIA package differs" if len(fine) == 1 else f"{len(fine)} NVIDIA packages differ"
        yield Finding(
            cause="harmless",
            severity="info",
            summary=f"{some} from what a framework declares, within what its libraries accept: {_first(fine)}",
            evidence=_evidence(fine),
            confidence=0.8,
        )
    if rest:
        yield Finding(
            cause="cuda_runtime_missing",
            severity="warning",
            summary=f"a CUDA library is of a release that the build does not promise to work with: {_first(rest)}",
            evidence=_evidence(rest),
            remedy=as_declared(rest[0].framework),
            confidence=0.7,
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


def _first(found: list[Declared]) -> str:
    return found[0].text if len(found) == 1 else f"for one, {found[0].text}"


def _evidence(found: list[Declared]) -> tuple[Evidence, ...]:
    return tuple(fact("packages.pip", one.text) for one in found[:6])


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (_cuda_of_anybody, _cudnn_of_wheels, _linker, _lacking, _other_versions)
