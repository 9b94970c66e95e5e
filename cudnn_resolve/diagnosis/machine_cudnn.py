"""Every copy of cuDNN and the one that a framework would load: findings from facts alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

from cudnn_resolve.diagnosis.installed import Installed
from cudnn_resolve.diagnosis.machine import Machine, as_declared, cudnn_of, fact
from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.diagnosis.specifier import within
from cudnn_resolve.diagnosis.whole import faults_of, is_outer_alone, lacks_of
from cudnn_resolve.facts.model import CudnnCopy, Unknown
from cudnn_resolve.version import CudnnVersion


def _cudnn_loaded(machine: Machine) -> Iterator[Finding]:
    """The cuDNN that each framework would load against the one that it was built with."""
    for one in machine.installed:
        built, loads = one.cudnn, one.would_load
        if built is None or loads is None:
            continue
        found = cudnn_of(loads.version)
        evidence = (fact("frameworks", f"{one.label}: built with cuDNN {built}, would load {loads.version or 'none'} ({loads.because})"),)
        if found is None:
            if loads.path is None and not loads.version:
                yield from _cudnn_absent(machine, one, built, evidence)
            continue
        if found.serves(built):
            continue
        others = [copy for copy in machine.cudnn if (version := cudnn_of(copy.version)) and version.serves(built)]
        if others and found.major == built.major:
            yield Finding(
                cause="ld_path_shadowing",
                severity="error",
                summary=f"{one.label} wants cuDNN {built} or newer; {others[0].version} is in {others[0].path}, but {found} in "
                f"{loads.path} is found first ({loads.because})",
                evidence=evidence,
                confidence=0.93,
            )
        else:
            major = found.major != built.major
            yield Finding(
                cause="cudnn_major_mismatch" if major else "cudnn_too_old_for_framework",
                severity="error",
                summary=f"{one.label} is built with cuDNN {built} and would load {found}, "
                f"which is {'of another major' if major else 'older'}",
                evidence=evidence,
                confidence=0.93,
            )


def _cudnn_absent(machine: Machine, one: Installed, built: CudnnVersion, evidence: tuple[Evidence, ...]) -> Iterator[Finding]:
    same = [copy for copy in machine.cudnn if copy.soname == built.major]
    other = [copy for copy in machine.cudnn if copy.soname is not None and copy.soname != built.major]
    severity = "warning" if machine.driver_absent else "error"
    if same:
        cause, text = "lib_not_on_path", f"cuDNN {same[0].version} is in {same[0].path}, where it does not look"
    elif other:
        cause, text = "cudnn_major_mismatch", f"there is cuDNN {other[0].version}, whose files have other names"
    elif isinstance(machine.facts.cudnn, Unknown):
        return
    else:
        cause, text = "cudnn_missing", "no copy of cuDNN was found"
    yield Finding(
        cause=cause,
        severity=severity,
        summary=f"{one.label} wants cuDNN {built.major} and finds none: {text}",
        evidence=evidence,
        confidence=0.9,
    )


def _cudnn_broken(machine: Machine) -> Iterator[Finding]:
    """Copies of cuDNN with parts missing or of two releases."""
    for copy in machine.cudnn:
        if is_outer_alone(copy):
            yield from _outer_alone(machine, copy)
            continue
        faults = faults_of(copy, machine.book)
        if faults:
            loaded = any(
                one.would_load and one.would_load.path and copy.path and one.would_load.path.startswith(copy.path)
                for one in machine.installed
            )
            why = "; ".join(faults)
            yield Finding(
                cause="cudnn_sublibrary_mix",
                severity="error" if loaded else "warning",
                summary=f"the cuDNN {copy.version or copy.soname} in {copy.path} is not one whole release: {why}",
                evidence=(fact("cudnn", f"{copy.path}: {why}"),),
                remedy=tuple(_again(machine, copy)),
                confidence=0.9 if loaded else 0.6,
            )


def _cudnn_lacks(machine: Machine) -> Iterator[Finding]:
    """Libraries besides cuDNN's own that a copy needs, where a framework would load that copy."""
    for copy in machine.cudnn:
        users = [
            one for one in machine.installed if copy.path and ((one.would_load and one.would_load.path) or "").startswith(f"{copy.path}/")
        ]
        for text in lacks_of(copy) if users else ():
            opened = text.startswith("opens ")
            cause = (
                "zlib_missing" if "libz.so" in text else "driver_incomplete" if "comes with the driver" in text else "cuda_runtime_missing"
            )
            yield Finding(
                cause=cause,
                severity="warning" if opened or machine.driver_absent else "error",
                summary=f"the cuDNN {copy.version or copy.soname} that {users[0].label} loads lacks other libraries: {text}",
                evidence=(fact("cudnn", f"{copy.path}: {text}"),),
                remedy=as_declared(users[0]) if cause == "cuda_runtime_missing" else (),
                confidence=0.75,
            )


def _outer_alone(machine: Machine, copy: CudnnCopy) -> Iterator[Finding]:
    """A package that brings libcudnn without its parts, which the loader then looks for by name (CTranslate2 4.5 to 4.6.2)."""
    told = [one for one in machine.facts.problems if "none of its parts can be opened" in one.why and (copy.path or "?") in one.why]
    if not told:
        return
    major = copy.soname or 0
    others = [one for one in machine.cudnn if one.parts != () and one.path]
    same = next((one for one in others if one.soname == major), None)
    what = f"its parts (libcudnn_ops.so.{major} and others)"
    if same is not None:
        cause, where = "lib_not_on_path", f"{what} are in {same.path}, where the loader does not look"
    elif others:
        cause, where = "cudnn_major_mismatch", f"{what} are not here: cuDNN {others[0].version} in {others[0].path} has other names"
    else:
        cause, where = "cudnn_missing", f"{what} are nowhere on this machine"
    named = next((one for one in machine.installed if one.name == copy.owner), None)
    yield Finding(
        cause=cause,
        severity="warning" if machine.driver_absent else "error",
        summary=f"{named.label if named else copy.owner} brings libcudnn.so.{major} itself and nothing else of cuDNN; {where}: "
        "its first convolution on the GPU ends the program",
        evidence=tuple(fact(one.what, one.why) for one in told),
        remedy=as_declared(named, f"let {named.name} find them" if same is not None else "install them where it finds them")
        if named
        else (),
        confidence=0.93,
    )


def _again(machine: Machine, copy: CudnnCopy) -> Iterator[Remedy]:
    """The package that brought a copy, unpacked once more."""
    if copy.source == "pip" and copy.owner is not None and copy.owner in machine.pip:
        yield Remedy(
            text=f"put the files of {copy.owner} back as its wheel has them",
            command=f"{shlex.quote(machine.facts.python.path or 'python')} -m pip install --force-reinstall --no-deps "
            f"{copy.owner}=={machine.pip[copy.owner]}",
        )
    elif copy.source == "apt" and copy.owner and re.fullmatch(r"[a-z0-9][a-z0-9+.-]{1,80}", copy.owner):
        yield Remedy(text=f"put the files of {copy.owner} back", command=f"sudo apt-get install --reinstall {copy.owner}")


def _cudnn_borrowed(machine: Machine) -> Iterator[Finding]:
    """A wheel's cuDNN that opens a part which it lacks, beside a system copy that has it."""
    for copy in machine.cudnn:
        version = cudnn_of(copy.version)
        if copy.source != "pip" or version is None:
            continue
        for advisory in (
            *machine.book.advisories("cudnn"),
            *machine.book.advisories(copy.owner or f"nvidia-cudnn-cu{(copy.cuda or '12')[:2]}"),
        ):
            if "SUBLIBRARY_VERSION_MISMATCH" not in advisory.summary or not within(advisory.versions, copy.version):
                continue
            system = [other for other in machine.cudnn if other.source != "pip" and (newer := cudnn_of(other.version)) and newer > version]
            system = [other for other in system if other.soname == copy.soname]
            if system:
                yield Finding(
                    cause="cudnn_sublibrary_mix",
                    severity="warning",
                    summary=f"the wheel's cuDNN {version} opens a part that it does not carry, and the loader would take it from "
                    f"{system[0].path} ({system[0].version}): {advisory.summary}",
                    evidence=(fact("cudnn", f"{copy.path}: {version}"), fact("cudnn", f"{system[0].path}: {system[0].version}")),
                    confidence=0.85,
                )


def _two_cudnn(machine: Machine) -> Iterator[Finding]:
    versions = {(copy.version, copy.path) for copy in machine.cudnn}
    if len(versions) > 1:
        each = " and ".join(f"{copy.version} ({copy.path or copy.source})" for copy in machine.cudnn[:4])
        yield Finding(
            cause="harmless",
            severity="info",
            summary=f"there are {len(versions)} copies of cuDNN: {each}; which one a framework loads is told by `cudnn-resolve detect`",
            evidence=tuple(fact("cudnn", f"{copy.version}: {copy.path or copy.owner or copy.source}") for copy in machine.cudnn[:4]),
            confidence=0.9,
        )


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (_cudnn_loaded, _cudnn_broken, _cudnn_lacks, _cudnn_borrowed, _two_cudnn)
