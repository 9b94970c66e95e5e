"""Copies of cuDNN, the one that each framework would load, and changes of LD_LIBRARY_PATH: findings from facts alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from cudnn_resolve.diagnosis.library_path import faults_of, is_outer_alone, is_searched, lacks_of, put_on_path, wheels_on_path
from cudnn_resolve.diagnosis.machine import Checks, Inspection, Installed, as_declared, cudnn_of, fact, finding
from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.diagnosis.specifier import within
from cudnn_resolve.facts.model import CudnnCopy, Facts, Unknown
from cudnn_resolve.version import CudnnVersion

UNLOADED = " does not load: "
"""Marks a framework that fails to load before it opens cuDNN."""
_STOPPED = r"\S+ (?:needs|cannot load) (lib[\w.+-]*?)[,:]? "
_ELSEWHERE = "; nothing leads to the one in "
"""The probe's wording for a library that exists but is not searched for."""
_INSIDE = r"/(?:site|dist)-packages/(?!nvidia/)(?P<package>\w{1,60})/"
_READ_ONCE = "the loader reads LD_LIBRARY_PATH once, when a process starts"


def _loaded(machine: Inspection) -> Iterator[Finding]:
    """Compare the cuDNN that each framework would load with the one that it was built with."""
    for framework in machine.installed:
        built, loads = framework.cudnn, framework.would_load
        if built is None or loads is None:
            continue
        found = cudnn_of(loads.version)
        evidence = fact(
            "frameworks", f"{framework.label}: built with cuDNN {built}, would load {loads.version or 'none'} ({loads.because})"
        )
        if found is None:
            if loads.path is None and not loads.version:
                yield from _absent(machine, framework, built, evidence)
            continue
        if found.serves(built):
            continue
        usable = (copy for copy in machine.cudnn if _is_usable(copy, framework))
        other = next((copy for copy in usable if (version := cudnn_of(copy.version)) and version.serves(built)), None)
        if other and found.major == built.major:
            cause = "ld_path_shadowing"
            summary = (
                f"{framework.label} needs cuDNN {built} or newer; {other.version} is in {other.path}, but {found} in "
                f"{loads.path} is found first ({loads.because})"
            )
        else:
            major = found.major != built.major
            cause = "cudnn_major_mismatch" if major else "cudnn_too_old_for_framework"
            difference = "another major version" if major else "an older release"
            summary = f"{framework.label} is built with cuDNN {built} but would load {found}, {difference}"
        yield finding(cause, "error", 0.93, summary, evidence)


def _is_usable(copy: CudnnCopy, framework: Installed) -> bool:
    """False for a copy inside another package, as in torch/lib, where only that package finds it."""
    inside = re.search(_INSIDE, f"{copy.path}/")
    return inside is None or framework.name.startswith(inside["package"])


def _absent(machine: Inspection, framework: Installed, built: CudnnVersion, evidence: Evidence) -> Iterator[Finding]:
    """Framework that finds no cuDNN of its major version."""
    because = framework.would_load.because if framework.would_load is not None else ""
    stopped = re.match(_STOPPED, because or "")
    if stopped is not None and "cudnn" not in stopped[1]:
        cause = "lib_not_on_path" if _ELSEWHERE in (because or "") else "cuda_runtime_missing"
        severity = "warning" if machine.driver_absent else "error"
        yield finding(cause, severity, 0.9, f"{framework.label}{UNLOADED}{because}", evidence)
        return
    cause, where = _whereabouts(machine, built.major)
    if cause:
        summary = f"{framework.label} needs cuDNN {built.major} and finds none: {where or 'no copy of cuDNN is installed'}"
        unseen = _unseen(machine, built.major) if cause == "lib_not_on_path" else None
        text = "add the library's directory to LD_LIBRARY_PATH before the program starts"
        remedy = () if unseen is None or not unseen.path else (Remedy(text=text, command=_seen(machine.facts, unseen.path)),)
        yield finding(cause, "warning" if machine.driver_absent else "error", 0.9, summary, evidence, remedy=remedy)


def _seen(facts: Facts, path: str) -> str:
    """Command that lets the loader search a directory; for that of a wheel, those of all of NVIDIA's wheels."""
    return wheels_on_path(shlex.quote(facts.python.path or "python")) if "-packages/nvidia/" in path else put_on_path(path)


def _whole(machine: Inspection, major: int) -> list[CudnnCopy]:
    """Copies of a major version with their parts."""
    return [copy for copy in machine.cudnn if copy.soname == major and not is_outer_alone(copy)]


def _unseen(machine: Inspection, major: int) -> CudnnCopy | None:
    """A copy of a major version outside the directories that the loader searches, rather of no wheel: those have every name."""
    outside = (copy for copy in _whole(machine, major) if not is_searched(copy.path, machine.facts))
    return min(outside, key=lambda copy: copy.source == "pip", default=None)


def _whereabouts(machine: Inspection, major: int) -> tuple[str, str]:
    """Cause and explanation of a cuDNN major version that is not found; "" for both if cuDNN is unknown."""
    same, unseen = _whole(machine, major), _unseen(machine, major)
    other = next((copy for copy in machine.cudnn if copy.soname not in (None, major)), None)
    if unseen:
        return "lib_not_on_path", f"cuDNN {unseen.version} is in {unseen.path}, which the loader does not search"
    if same:
        faults = faults_of(same[0], machine.book)
        why = "; ".join((*faults, *lacks_of(same[0])))
        cause = "cudnn_sublibrary_mix" if faults else "cudnn_missing"
        text = f"cuDNN {same[0].version} is in {same[0].path}, which the loader searches, but cannot be opened"
        return cause, f"{text}: {why}" if why else f"{text}; `ldd {same[0].path}/libcudnn.so.{major}` shows what it lacks"
    if other:
        return "cudnn_major_mismatch", f"cuDNN {other.version} is installed, whose files have other names"
    return "" if isinstance(machine.facts.cudnn, Unknown) else "cudnn_missing", ""


def _broken(machine: Inspection) -> Iterator[Finding]:
    """Incomplete copies of cuDNN, and copies mixed from two releases."""
    for copy in machine.cudnn:
        if is_outer_alone(copy):
            yield from _outer_alone(machine, copy)
        elif why := "; ".join(faults_of(copy, machine.book)):
            summary = f"the cuDNN {copy.version or copy.soname} in {copy.path} is not a complete release: {why}"
            severity, confidence = ("error", 0.9) if _user_of(machine, copy) is not None else ("warning", 0.6)
            evidence = fact("cudnn", f"{copy.path}: {why}")
            yield finding("cudnn_sublibrary_mix", severity, confidence, summary, evidence, remedy=tuple(_reinstalled(machine, copy)))


def _user_of(machine: Inspection, copy: CudnnCopy) -> Installed | None:
    """A framework that would load a copy."""
    loads = ((framework, framework.would_load.path) for framework in machine.installed if framework.would_load is not None)
    return next((framework for framework, path in loads if path and copy.path and path.startswith(f"{copy.path}/")), None)


def _lacks(machine: Inspection) -> Iterator[Finding]:
    """Other libraries that are missing for a copy of cuDNN that a framework would load."""
    for copy in machine.cudnn:
        user = _user_of(machine, copy)
        if user is None:
            continue
        for text in lacks_of(copy):
            driver = "driver_incomplete" if "comes with the driver" in text else None
            cause = "zlib_missing" if "libz.so" in text else driver or "cuda_runtime_missing"
            severity = "warning" if text.startswith("opens ") or machine.driver_absent else "error"
            summary = f"the cuDNN {copy.version or copy.soname} that {user.label} loads cannot find other libraries: {text}"
            remedy = as_declared(user) if cause == "cuda_runtime_missing" else ()
            yield finding(cause, severity, 0.75, summary, fact("cudnn", f"{copy.path}: {text}"), remedy=remedy)


def _mixed(machine: Inspection) -> Iterator[Finding]:
    """Framework whose cuDNN would open parts of another release, according to the loader."""
    for problem in machine.facts.problems:
        if problem.why.startswith("two releases of cuDNN in one process: "):
            summary = f"{problem.what} would load {problem.why}"
            yield finding("cudnn_sublibrary_mix", "warning", 0.88, summary, fact("frameworks", f"{problem.what}: {problem.why}"))


def _outer_alone(machine: Inspection, copy: CudnnCopy) -> Iterator[Finding]:
    """Package that bundles libcudnn without its parts, which are then opened by name (CTranslate2 4.5 to 4.6.2)."""
    problems = [
        problem
        for problem in machine.facts.problems
        if "none of its parts can be opened" in problem.why and (copy.path or "?") in problem.why
    ]
    if not problems:
        return
    major = copy.soname or 0
    others = [copy for copy in machine.cudnn if copy.parts != () and copy.path]
    same = next((copy for copy in others if copy.soname == major), None)
    what = f"its parts (libcudnn_ops.so.{major} and others)"
    if same is not None:
        searched = is_searched(same.path, machine.facts)
        cause = "cudnn_missing" if searched else "lib_not_on_path"
        where = f"{what} are in {same.path}, {'but cannot be opened' if searched else 'which the loader does not search'}"
    elif others:
        cause, where = "cudnn_major_mismatch", f"{what} are missing: cuDNN {others[0].version} in {others[0].path} has other file names"
    else:
        cause, where = "cudnn_missing", f"{what} are not on this machine"
    named = next((framework for framework in machine.installed if framework.name == copy.owner), None)
    summary = (
        f"{named.label if named else copy.owner} bundles only libcudnn.so.{major}; {where}: "
        "its first convolution on the GPU crashes the program"
    )
    mend = f"make them visible to {named.name}" if named and same is not None else "install them where it finds them"
    remedy = as_declared(named, mend) if named else ()
    severity = "warning" if machine.driver_absent else "error"
    yield finding(cause, severity, 0.93, summary, *(fact(problem.what, problem.why) for problem in problems), remedy=remedy)


def _reinstalled(machine: Inspection, copy: CudnnCopy) -> Iterator[Remedy]:
    """Reinstall the package that a copy belongs to."""
    if copy.source == "pip" and copy.owner is not None and copy.owner in machine.pip:
        pip = f"{shlex.quote(machine.facts.python.path or 'python')} -m pip install --force-reinstall --no-deps"
        text = f"reinstall {copy.owner} from its wheel"
        yield Remedy(text=text, command=f"{pip} {copy.owner}=={machine.pip[copy.owner]}")
    elif copy.source == "apt" and copy.owner and re.fullmatch(r"[a-z0-9][a-z0-9+.-]{1,80}", copy.owner):
        yield Remedy(text=f"reinstall {copy.owner}", command=f"sudo apt-get install --reinstall {copy.owner}")


def _borrowed(machine: Inspection) -> Iterator[Finding]:
    """A cuDNN wheel that opens a part which it does not contain, next to a newer system copy that does."""
    for copy in machine.cudnn:
        version = cudnn_of(copy.version)
        if copy.source != "pip" or version is None:
            continue
        outside = (other for other in machine.cudnn if other.source != "pip" and other.soname == copy.soname)
        newer = next((other for other in outside if (theirs := cudnn_of(other.version)) and theirs > version), None)
        wheel = copy.owner or f"nvidia-cudnn-cu{(copy.cuda or '12')[:2]}"
        for advisory in (*machine.book.advisories("cudnn"), *machine.book.advisories(wheel)) if newer else ():
            if newer and "SUBLIBRARY_VERSION_MISMATCH" in advisory.summary and within(advisory.versions, copy.version):
                summary = (
                    f"the wheel's cuDNN {version} opens a part that it does not contain, and the loader would take it from "
                    f"{newer.path} ({newer.version}): {advisory.summary}"
                )
                evidence = (fact("cudnn", f"{copy.path}: {version}"), fact("cudnn", f"{newer.path}: {newer.version}"))
                yield finding("cudnn_sublibrary_mix", "warning", 0.85, summary, *evidence)


def _several(machine: Inspection) -> Iterator[Finding]:
    """Several copies of cuDNN."""
    count = len({(copy.version, copy.path) for copy in machine.cudnn})
    if count > 1:
        each = " and ".join(f"{copy.version} ({copy.path or copy.source})" for copy in machine.cudnn[:4])
        summary = f"there are {count} copies of cuDNN: {each}; `cudnn-resolve detect` shows which one each framework loads"
        evidence = (fact("cudnn", f"{copy.version}: {copy.path or copy.owner or copy.source}") for copy in machine.cudnn[:4])
        yield finding("harmless", "info", 0.9, summary, *evidence)


def _changed_in_kernel(machine: Inspection) -> Iterator[Finding]:
    """LD_LIBRARY_PATH changed inside a running notebook kernel, after the loader has read it."""
    for problem in machine.facts.problems:
        where = problem.why
        if problem.what == "loader.kernel.added":
            copy = next((copy for copy in machine.cudnn if copy.path and copy.soname and copy.path in where.split(", ")), None)
            load = f", as `import ctypes; ctypes.CDLL('{copy.path}/libcudnn.so.{copy.soname}', mode=ctypes.RTLD_GLOBAL)`" if copy else ""
            summary = f"LD_LIBRARY_PATH was set to {where} inside the running kernel, which does not search it: {_READ_ONCE}"
            remedy = (
                Remedy(text=f"in the first cell, before importing a framework, load the libraries by path{load}"),
                Remedy(text='or set it before the kernel starts: in "env" of its kernel.json, or in the shell that starts `jupyter`'),
            )
            evidence = fact("loader", f"not known to the kernel: {where}")
            yield finding("lib_not_on_path", "warning", 0.9, summary, evidence, remedy=remedy)
        elif problem.what == "loader.kernel.removed":
            summary = f"{where} was removed from LD_LIBRARY_PATH inside the running kernel, which still searches it: {_READ_ONCE}"
            restart = Remedy(text="remove it from the environment in which `jupyter` is started, then restart the kernel")
            yield finding(
                "ld_path_shadowing", "warning", 0.9, summary, fact("loader", f"still known to the kernel: {where}"), remedy=(restart,)
            )


CHECKS: Checks = (_loaded, _broken, _mixed, _lacks, _borrowed, _several, _changed_in_kernel)
