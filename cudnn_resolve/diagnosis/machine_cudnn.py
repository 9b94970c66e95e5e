"""Every copy of cuDNN, the one that a framework would load, and what the loader was told to search: findings from facts alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from cudnn_resolve.diagnosis.machine import Checks, Inspection, Installed, as_declared, cudnn_of, fact, finding
from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.diagnosis.place import faults_of, is_outer_alone, is_searched, lacks_of
from cudnn_resolve.diagnosis.specifier import within
from cudnn_resolve.facts.model import CudnnCopy, Unknown
from cudnn_resolve.version import CudnnVersion

UNLOADED = " does not load: "
"""How it is said of a framework that something stops it before it asks for its cuDNN."""
_STOPPED = r"\S+ (?:needs|cannot load) (lib[\w.+-]*?)[,:]? "
_ELSEWHERE = "; nothing leads to the one in "
"""How the probe says that a library is there and not searched for."""
_READ_ONCE = "the loader reads LD_LIBRARY_PATH once, when a process starts"


def _loaded(machine: Inspection) -> Iterator[Finding]:
    """The cuDNN that each framework would load against the one that it was built with."""
    for one in machine.installed:
        built, loads = one.cudnn, one.would_load
        if built is None or loads is None:
            continue
        found = cudnn_of(loads.version)
        shown = fact("frameworks", f"{one.label}: built with cuDNN {built}, would load {loads.version or 'none'} ({loads.because})")
        if found is None:
            if loads.path is None and not loads.version:
                yield from _absent(machine, one, built, shown)
            continue
        if found.serves(built):
            continue
        other = next((copy for copy in machine.cudnn if (version := cudnn_of(copy.version)) and version.serves(built)), None)
        if other and found.major == built.major:
            cause = "ld_path_shadowing"
            said = (
                f"{one.label} wants cuDNN {built} or newer; {other.version} is in {other.path}, but {found} in "
                f"{loads.path} is found first ({loads.because})"
            )
        else:
            major = found.major != built.major
            cause = "cudnn_major_mismatch" if major else "cudnn_too_old_for_framework"
            said = f"{one.label} is built with cuDNN {built} and would load {found}, which is {'of another major' if major else 'older'}"
        yield finding(cause, "error", 0.93, said, shown)


def _absent(machine: Inspection, one: Installed, built: CudnnVersion, shown: Evidence) -> Iterator[Finding]:
    """A framework that finds no cuDNN of its major."""
    because = one.would_load.because if one.would_load is not None else ""
    stopped = re.match(_STOPPED, because or "")
    if stopped is not None and "cudnn" not in stopped[1]:
        cause = "lib_not_on_path" if _ELSEWHERE in (because or "") else "cuda_runtime_missing"
        yield finding(cause, "warning" if machine.driver_absent else "error", 0.9, f"{one.label}{UNLOADED}{because}", shown)
        return
    cause, where = _whereabouts(machine, built.major)
    if cause:
        said = f"{one.label} wants cuDNN {built.major} and finds none: {where or 'no copy of cuDNN was found'}"
        yield finding(cause, "warning" if machine.driver_absent else "error", 0.9, said, shown)


def _whereabouts(machine: Inspection, major: int) -> tuple[str, str]:
    """Why no cuDNN of a major is found, as a cause, and where there is one all the same; "" for both where nothing is known."""
    same = [copy for copy in machine.cudnn if copy.soname == major]
    unseen = next((copy for copy in same if not is_searched(copy.path, machine.facts)), None)
    other = next((copy for copy in machine.cudnn if copy.soname not in (None, major)), None)
    if unseen:
        return "lib_not_on_path", f"cuDNN {unseen.version} is in {unseen.path}, where it does not look"
    if same:
        why = "; ".join((*faults_of(same[0], machine.book), *lacks_of(same[0])))
        cause = "cudnn_sublibrary_mix" if faults_of(same[0], machine.book) else "cudnn_missing"
        told = f"cuDNN {same[0].version} is in {same[0].path}, which the loader searches, and cannot be opened there"
        return cause, f"{told}: {why}" if why else f"{told}; `ldd {same[0].path}/libcudnn.so.{major}` shows what it lacks"
    if other:
        return "cudnn_major_mismatch", f"there is cuDNN {other.version}, whose files have other names"
    return "" if isinstance(machine.facts.cudnn, Unknown) else "cudnn_missing", ""


def _broken(machine: Inspection) -> Iterator[Finding]:
    """Copies of cuDNN with parts missing or of two releases."""
    for copy in machine.cudnn:
        if is_outer_alone(copy):
            yield from _outer_alone(machine, copy)
        elif why := "; ".join(faults_of(copy, machine.book)):
            loads = [one.would_load.path for one in machine.installed if one.would_load and one.would_load.path]
            loaded = bool(copy.path) and any(path.startswith(copy.path or "") for path in loads)
            said = f"the cuDNN {copy.version or copy.soname} in {copy.path} is not one whole release: {why}"
            severity, confidence = ("error", 0.9) if loaded else ("warning", 0.6)
            shown = fact("cudnn", f"{copy.path}: {why}")
            yield finding("cudnn_sublibrary_mix", severity, confidence, said, shown, remedy=tuple(_reinstalled(machine, copy)))


def _lacks(machine: Inspection) -> Iterator[Finding]:
    """Libraries besides cuDNN's own that a copy needs, where a framework would load that copy."""
    for copy in machine.cudnn:
        home = f"{copy.path}/" if copy.path else None
        user = next((one for one in machine.installed if home and ((one.would_load and one.would_load.path) or "").startswith(home)), None)
        for text in lacks_of(copy) if user else ():
            driver = "driver_incomplete" if "comes with the driver" in text else None
            cause = "zlib_missing" if "libz.so" in text else driver or "cuda_runtime_missing"
            severity = "warning" if text.startswith("opens ") or machine.driver_absent else "error"
            said = f"the cuDNN {copy.version or copy.soname} that {user.label if user else ''} loads lacks other libraries: {text}"
            remedy = as_declared(user) if user and cause == "cuda_runtime_missing" else ()
            yield finding(cause, severity, 0.75, said, fact("cudnn", f"{copy.path}: {text}"), remedy=remedy)


def _mixed(machine: Inspection) -> Iterator[Finding]:
    """A framework whose cuDNN would take its parts from another release, as the probe found by asking the loader."""
    for problem in machine.facts.problems:
        if problem.why.startswith("two releases of cuDNN in one process: "):
            said = f"{problem.what} would load {problem.why}"
            yield finding("cudnn_sublibrary_mix", "warning", 0.88, said, fact("frameworks", f"{problem.what}: {problem.why}"))


def _outer_alone(machine: Inspection, copy: CudnnCopy) -> Iterator[Finding]:
    """A package that brings libcudnn without its parts, which the loader then looks for by name (CTranslate2 4.5 to 4.6.2)."""
    told = [one for one in machine.facts.problems if "none of its parts can be opened" in one.why and (copy.path or "?") in one.why]
    if not told:
        return
    major = copy.soname or 0
    others = [one for one in machine.cudnn if one.parts != () and one.path]
    same = next((one for one in others if one.soname == major), None)
    what = f"its parts (libcudnn_ops.so.{major} and others)"
    if same is not None:
        searched = is_searched(same.path, machine.facts)
        cause = "cudnn_missing" if searched else "lib_not_on_path"
        where = f"{what} are in {same.path}, {'and cannot be opened' if searched else 'where the loader does not look'}"
    elif others:
        cause, where = "cudnn_major_mismatch", f"{what} are not here: cuDNN {others[0].version} in {others[0].path} has other names"
    else:
        cause, where = "cudnn_missing", f"{what} are nowhere on this machine"
    named = next((one for one in machine.installed if one.name == copy.owner), None)
    said = (
        f"{named.label if named else copy.owner} brings libcudnn.so.{major} itself and nothing else of cuDNN; {where}: "
        "its first convolution on the GPU ends the program"
    )
    mend = f"let {named.name} find them" if named and same is not None else "install them where it finds them"
    remedy = as_declared(named, mend) if named else ()
    severity = "warning" if machine.driver_absent else "error"
    yield finding(cause, severity, 0.93, said, *(fact(one.what, one.why) for one in told), remedy=remedy)


def _reinstalled(machine: Inspection, copy: CudnnCopy) -> Iterator[Remedy]:
    """Reinstall the package that brought a copy."""
    if copy.source == "pip" and copy.owner is not None and copy.owner in machine.pip:
        pip = f"{shlex.quote(machine.facts.python.path or 'python')} -m pip install --force-reinstall --no-deps"
        text = f"put the files of {copy.owner} back as its wheel has them"
        yield Remedy(text=text, command=f"{pip} {copy.owner}=={machine.pip[copy.owner]}")
    elif copy.source == "apt" and copy.owner and re.fullmatch(r"[a-z0-9][a-z0-9+.-]{1,80}", copy.owner):
        yield Remedy(text=f"put the files of {copy.owner} back", command=f"sudo apt-get install --reinstall {copy.owner}")


def _borrowed(machine: Inspection) -> Iterator[Finding]:
    """A wheel's cuDNN that opens a part which it lacks, beside a newer system copy that has it."""
    for copy in machine.cudnn:
        version = cudnn_of(copy.version)
        if copy.source != "pip" or version is None:
            continue
        outside = (one for one in machine.cudnn if one.source != "pip" and one.soname == copy.soname)
        newer = next((one for one in outside if (theirs := cudnn_of(one.version)) and theirs > version), None)
        wheel = copy.owner or f"nvidia-cudnn-cu{(copy.cuda or '12')[:2]}"
        for advisory in (*machine.book.advisories("cudnn"), *machine.book.advisories(wheel)) if newer else ():
            if newer and "SUBLIBRARY_VERSION_MISMATCH" in advisory.summary and within(advisory.versions, copy.version):
                said = (
                    f"the wheel's cuDNN {version} opens a part that it does not carry, and the loader would take it from "
                    f"{newer.path} ({newer.version}): {advisory.summary}"
                )
                shown = (fact("cudnn", f"{copy.path}: {version}"), fact("cudnn", f"{newer.path}: {newer.version}"))
                yield finding("cudnn_sublibrary_mix", "warning", 0.85, said, *shown)


def _several(machine: Inspection) -> Iterator[Finding]:
    """More than one copy of cuDNN."""
    count = len({(copy.version, copy.path) for copy in machine.cudnn})
    if count > 1:
        each = " and ".join(f"{copy.version} ({copy.path or copy.source})" for copy in machine.cudnn[:4])
        said = f"there are {count} copies of cuDNN: {each}; which one a framework loads is told by `cudnn-resolve detect`"
        shown = (fact("cudnn", f"{copy.version}: {copy.path or copy.owner or copy.source}") for copy in machine.cudnn[:4])
        yield finding("harmless", "info", 0.9, said, *shown)


def _changed_in_kernel(machine: Inspection) -> Iterator[Finding]:
    """LD_LIBRARY_PATH changed inside a running notebook kernel, whose loader has read it already."""
    for problem in machine.facts.problems:
        where = problem.why
        if problem.what == "loader.kernel.added":
            copy = next((one for one in machine.cudnn if one.path and one.soname and one.path in where.split(", ")), None)
            load = f", as `import ctypes; ctypes.CDLL('{copy.path}/libcudnn.so.{copy.soname}', mode=ctypes.RTLD_GLOBAL)`" if copy else ""
            said = f"LD_LIBRARY_PATH was set to {where} inside the running kernel, which does not search there: {_READ_ONCE}"
            remedy = (
                Remedy(text=f"in the first cell, before a framework is imported, load the libraries by their paths{load}"),
                Remedy(text='or set it where the kernel is started: in the "env" of its kernel.json, or in the shell before `jupyter`'),
            )
            shown = fact("loader", f"not known to the kernel: {where}")
            yield finding("lib_not_on_path", "warning", 0.9, said, shown, remedy=remedy)
        elif problem.what == "loader.kernel.removed":
            said = f"{where} was taken out of LD_LIBRARY_PATH inside the running kernel, which still searches there: {_READ_ONCE}"
            mend = Remedy(text="restart the kernel without it: take it out of the environment that `jupyter` is started in")
            yield finding("ld_path_shadowing", "warning", 0.9, said, fact("loader", f"still known to the kernel: {where}"), remedy=(mend,))


CHECKS: Checks = (_loaded, _broken, _mixed, _lacks, _borrowed, _several, _changed_in_kernel)
