"""Judge what a process holds after a framework was imported: whether it loads, with which cuDNN, and whether all parts belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.model import CPU_PACKAGES, CudnnCopy, Driver, Facts, Unknown
from cudnn_resolve.validation.answers import CompilerAnswer, CudnnAnswer, Told, cudnn_of, one_line
from cudnn_resolve.validation.model import Check, Status, Subject
from cudnn_resolve.validation.payload_load import COMPILES, DRIVER
from cudnn_resolve.version import CudnnVersion

_DRIVER = re.compile(rf"({DRIVER.pattern}[.\d]*): cannot open")
"""What the loader says of a library that only a driver brings."""
_MISSING = re.compile(r"\blib(\w+)\.so(?:\.(\d+))?[.\d]*: cannot open shared object file")
_CUDA_WHEELS = {"cublas": "cublas", "cublasLt": "cublas", "cudart": "cuda-runtime", "nvrtc": "cuda-nvrtc", "nvJitLink": "nvjitlink"}
"""Libraries of CUDA that cuDNN needs, to the wheel that brings them."""
_CUDA = {"cudart": "CUDA runtime", "cublas": "cuBLAS", "cublasLt": "cuBLASLt"}


_WITHOUT = {
    "cupy": "cuDNN cannot be loaded: CuPy does without it, but has no convolutions then",
    "onnxruntime": "a session silently runs on the CPU then: LD_LIBRARY_PATH, the linker cache or what was loaded before must lead to it",
}
"""What frameworks do without cuDNN."""


class Seen(Struct, frozen=True, kw_only=True):
    """What a child told of the libraries in its process."""

    cudnns: tuple[CudnnAnswer, ...]
    libraries: Mapping[str, str | None]
    """Path to version."""
    imported: Mapping[str, tuple[str, float]]
    """Module to its version and the seconds that its import took."""
    built: Mapping[str, Mapping[str, Any]]
    """Module to what it says of itself."""
    opened: Mapping[str, str]
    """Module to how it opened cuDNN."""
    unopened: Mapping[str, str]
    """Module to why it could not."""

    @property
    def cudnn_directories(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """For each major of cuDNN that is there: directory to the files of it that came from there."""
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        for path in self.libraries:
            directory, _, name = path.rpartition("/")
            if name.startswith("libcudnn"):
                major = name.partition(".so.")[2].partition(".")[0]
                there = found.setdefault(major, {})
                there[directory] = (*there.get(directory, ()), name)
        return found

    def homes(self, version: CudnnVersion) -> str:
        """The directories from which a cuDNN came."""
        return " and ".join(self.cudnn_directories.get(str(version.major), {}))

    def cudnn_for(self, built: CudnnVersion | None) -> CudnnAnswer | None:
        """The libcudnn that a framework built with that one finds: the one of its major, else any."""
        alike = [one for one in self.cudnns if built and one.release and one.release.major == built.major]
        return next(iter((*alike, *self.cudnns)), None)


def seen_in(told: Told) -> Seen:
    """Collect what a child told of the libraries in its process."""
    # A child that ended before it could ask the libraries for their versions has told their paths.
    libraries = told.last("libraries", dict[str, str | None]) or dict.fromkeys(told.last("mapped", list[str]) or ())
    return Seen(
        cudnns=tuple({one.path: one for one in told.every("cudnn", CudnnAnswer)}.values()),
        libraries={path: version for path, version in libraries.items() if path.startswith("/")},
        imported={name: (one_line(version, 60), seconds) for name, version, seconds in told.every("imported", tuple[str, str, float])},
        built=dict(told.every("built", tuple[str, dict[str, Any]])),
        opened={name: one_line(how) for name, how in told.every("opened", tuple[str, str])},
        unopened={name: one_line(why) for name, why in told.every("unopened", tuple[str, str])},
    )


def library_name(path: str) -> str:
    """The name of a library, `cublas` for `/usr/lib/libcublas.so.12`."""
    return path.rpartition("/")[2].removeprefix("lib").partition(".so")[0]


def missing_driver(text: str, facts: Facts) -> str:
    """The library of the driver for want of which something failed on a machine without a driver; "" for any other failure."""
    found = _DRIVER.search(text)
    return found[1] if found and not isinstance(facts.driver, Driver) else ""


def unless_driver(check: Check, text: str, facts: Facts) -> Check:
    """The check, or a skipped one where by these words it failed for want of a driver."""
    what = missing_driver(text, facts) if check.status != "passed" else ""
    return replace(check, status="skipped", observed=f"no driver: {what} comes with it", detail="", output=()) if what else check


def judge_loading(subject: Subject, told: Told, facts: Facts, *, has_gpu: bool, is_asked: bool = False) -> tuple[Check, ...]:
    """Check one framework alone in a process: import, kind of build, cuDNN, its parts, CUDA's libraries.

    `is_asked`: the framework was named by whoever wants it tested, and did not just happen to be there.
    """
    seen = seen_in(told)
    first = Check(id=f"{subject.name}/import", framework=subject.name, status="passed", expected=subject.installed.version)
    if subject.module not in seen.imported:
        why, detail = told.failure or "ended without a word", f"import {subject.module} fails"
        return (unless_driver(replace(first, status="failed", observed=why, detail=detail, output=told.output), told.failure, facts),)
    version, seconds = seen.imported[subject.module]
    first = replace(first, observed=version or "imported", seconds=seconds)
    if subject.is_cpu_build or seen.built.get(subject.module, {}).get("device") == "cpu":
        return first, _cpu_build(subject, has_gpu=has_gpu, is_asked=is_asked)
    return first, *judge_cudnn(f"{subject.name}/", (subject,), told, facts), *_judge_cuda(subject, seen)


def _cpu_build(subject: Subject, *, has_gpu: bool, is_asked: bool) -> Check:
    # A package that is for the CPU by its name often comes along as what something else requires.
    fault: Status = "warning" if subject.name in CPU_PACKAGES and not is_asked else "failed"
    return Check(
        id=f"{subject.name}/build",
        framework=subject.name,
        status=fault if has_gpu else "skipped",
        expected="a build with CUDA",
        observed=f"a build for the CPU ({subject.installed.version})",
        detail="this build never uses a GPU" + (f"; `cudnn-resolve plan -f {subject.module}` says which would" if has_gpu else ""),
    )


def judge_order(pair: tuple[Subject, Subject], told: Told, facts: Facts) -> Check:
    """Check two frameworks in one process: the cuDNN that the first one loads must serve both, and the second must still load."""
    imported = seen_in(told).imported
    blank = Check(id=f"order/{pair[0].name} then {pair[1].name}", status="failed", expected="one cuDNN that serves both")
    missing = next((one for one in pair if one.module not in imported), None)
    if missing:
        why, detail = told.ending or "ended without a word", f"{missing.name} is not served"
        return unless_driver(replace(blank, observed=why, detail=detail, output=told.output), told.failure, facts)
    checks = judge_cudnn("", pair, told, facts)
    bad = [check for check in checks if check.status in ("failed", "warning")]
    if not bad:
        served = list(dict.fromkeys(check.observed or "" for check in checks if check.id == "cudnn" and check.status == "passed"))
        return replace(blank, status="passed" if served else "skipped", observed="; ".join(served) or "no cuDNN was loaded")
    worst: Status = "failed" if any(check.status == "failed" for check in bad) else "warning"
    words = "; ".join(f"{check.framework}: {check.observed}" if check.framework else str(check.observed) for check in bad)
    details = "; ".join(dict.fromkeys(check.detail for check in bad if check.detail))
    return replace(blank, status=worst, observed=words, detail=details, output=bad[0].output)


def judge_library(id_: str, told: Told, facts: Facts) -> tuple[Check, ...]:
    """Check that one libcudnn opens alone, with all its parts."""
    seen = seen_in(told)
    version = seen.cudnns[0].release if seen.cudnns else None
    blank = Check(id=f"{id_}/load", status="passed", expected="it opens")
    if version is None:
        names = [name for path in seen.libraries if (name := path.rpartition("/")[2]).startswith("libcudnn")]
        why, detail = told.ending or "it does not say its version", _PARTS_ELSEWHERE if _is_outer(names) else ""
        return (unless_driver(replace(blank, status="failed", observed=why, detail=detail, output=told.output), told.failure, facts),)
    return replace(blank, observed=f"{version} from {seen.homes(version)}"), *_judge_parts(f"{id_}/", (), _loaded(told), facts)


def judge_cudnn(prefix: str, subjects: Sequence[Subject], told: Told, facts: Facts) -> tuple[Check, ...]:
    """Check which cuDNN answers, that it serves each of these frameworks, and that all its parts are of one release."""
    seen = seen_in(told)
    found = [_judge_version(f"{prefix}cudnn", subject, seen, told) for subject in subjects]
    checks = [unless_driver(check, check.observed or "", facts) for check in found]
    if not seen.cudnn_directories and (not told.failure or missing_driver(told.failure, facts)):
        return tuple(checks)
    parts = _judge_parts(f"{prefix}cudnn-", subjects, _loaded(told), facts)
    return *checks, *parts, *_judge_compiler(f"{prefix}nvrtc", subjects, told, facts)


def _loaded(told: Told) -> Told:
    """Forget an end in the last step, which is judged separately."""
    return replace(told, failure="") if told.step == COMPILES else told


def _judge_compiler(id_: str, subjects: Sequence[Subject], told: Told, facts: Facts) -> Iterator[Check]:
    """Check that the engines that compile at run time have a compiler; most convolutions do without, so that nothing else shows it."""
    answer = told.last("compiler", CompilerAnswer)
    ended = bool(told.failure) and told.step == COMPILES
    if (answer is None and not ended) or len(subjects) > 1:
        return
    answer = answer or CompilerAnswer()
    name, path = one_line(answer.name, 300), one_line(answer.path, 300)
    blank = Check(
        id=id_,
        framework=subjects[0].name if subjects else None,
        status="passed",
        expected="libnvrtc compiles for cuDNN's engines",
        observed=f"{path or name} compiles{_IN_ANOTHER_WHEEL if answer.how == 'wheel' else ''}",
    )
    warned = replace(blank, status="warning", detail=_WITHOUT_COMPILER)
    if ended:
        yield replace(warned, observed=told.ending, output=told.output)
    elif not answer.how:
        yield unless_driver(replace(warned, observed=f"{name} cannot be opened: {one_line(answer.why, 300)}"), answer.why, facts)
    elif answer.status != 0:
        detail = f"at status 7 its libnvrtc-builtins is missing or of another release; {_WITHOUT_COMPILER}"
        yield replace(warned, observed=f"{path or name} compiles nothing (status {answer.status})", detail=detail)
    else:
        yield blank


_IN_ANOTHER_WHEEL = ": it is in another wheel, from where the framework must load it"
_WITHOUT_COMPILER = "engines of cuDNN that compile at run time (fused and attention operations) will fail, all others work"


def _judge_version(id_: str, subject: Subject, seen: Seen, told: Told) -> Check:
    """Compare the cuDNN that is loaded with the one that the framework was built with."""
    said = seen.built.get(subject.module, {}).get("cudnn")
    built = cudnn_of(said if isinstance(said, str) and "." in said else None) or cudnn_of(subject.installed.cudnn_built) or cudnn_of(said)
    whole = built is not None and len(built.parts) > 1
    expected = f"cuDNN {built.line} or a later {built.major}.x" if built and whole else f"cuDNN {built or ''}".strip()

    def check(status: Status, observed: str, detail: str = "") -> Check:
        output = told.output if status == "failed" else ()
        return Check(id=id_, framework=subject.name, status=status, expected=expected, observed=observed, detail=detail, output=output)

    unopened, found = seen.unopened.get(subject.module), seen.cudnn_for(built)
    if unopened is not None:
        if "incompatib" in unopened:
            return check("failed", unopened, "the framework itself refuses this cuDNN")
        goes_on = subject.module == "cupy"
        return check("warning" if goes_on else "failed", unopened, _WITHOUT.get(subject.module, "cuDNN cannot be loaded"))
    if found is None:
        if told.failure:
            alone = _is_outer([name for there in seen.cudnn_directories.values() for names in there.values() for name in names])
            return check("failed", told.ending, _PARTS_ELSEWHERE if alone else "cuDNN does not load")
        return check(
            "skipped", "not loaded", "it opens cuDNN only once it uses a GPU" if subject.installed.would_load else "it uses no cuDNN"
        )
    if found.release is None:
        return check("failed", told.failure or f"{found.path} does not say its version", "cuDNN does not answer")
    observed = f"{found.release} from {seen.homes(found.release)}"
    if built is not None and not found.release.serves(built):
        rule = "the same major and at least the same minor are needed" if whole else "the same major is needed"
        return check("failed", observed, f"built with {built}: {rule}")
    how = seen.opened.get(subject.module, "")
    if how == "onnxruntime.preload_dlls()":
        detail = "found only after onnxruntime.preload_dlls() (or an import of torch): without it the session falls back to the CPU"
        return check("warning", observed, detail)
    return check("passed", observed, f"opened by {how}" if how else "")


def _judge_parts(prefix: str, subjects: Sequence[Subject], told: Told, facts: Facts) -> Iterator[Check]:
    """Check that all parts are of one release, from one directory, and that what a first convolution loads can be loaded."""
    seen = seen_in(told)
    faults = list(_split(seen, facts))
    for one in seen.cudnns:
        if one.faults:
            others = f"parts of another release than {one.path.rpartition('/')[2]}: {', '.join(one.faults)}"
            faults.append(f"{others} (1002 is CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH)")
        faults += [f"{name} cannot be opened: {one_line(why)}" for name, why in one.engines.items() if why]
    if told.failure:
        faults.append(told.ending)
    without = [fault for fault in faults if missing_driver(fault, facts)]
    faults = [fault for fault in faults if fault not in without]
    homes = {directory: names for there in seen.cudnn_directories.values() for directory, names in there.items()}
    count = sum(len(names) for names in homes.values())
    same = [one for one in faults if one.startswith(_SAME)]
    status: Status = "passed" if not faults else "warning" if len(same) == len(faults) else "failed"
    framework = subjects[0].name if len(subjects) == 1 else None
    yield Check(
        id=f"{prefix}parts",
        framework=framework,
        status=status,
        expected="all parts of one release, from one directory",
        observed="; ".join(faults) if faults else f"{count} part{'s' if count > 1 else ''} from {', '.join(homes)}",
        detail=_remedy(homes, facts, seen, "\n".join([*faults, *told.output])) if faults else "",
        output=told.output if status == "failed" else (),
    )
    if without:
        names = ", ".join(fault.partition(" ")[0] for fault in without)
        what = ", ".join(dict.fromkeys(missing_driver(fault, facts) for fault in without))
        check = Check(id=f"{prefix}driver", framework=framework, status="skipped", expected=f"{names} opens")
        yield replace(check, observed=f"no driver: {names} needs {what}, which comes with it")


_SAME = "the same release twice"


def _split(seen: Seen, facts: Facts) -> Iterator[str]:
    """Name the directories from which one cuDNN comes where they are several, with the release of each where it is known."""
    copies: dict[str, CudnnCopy] = {} if isinstance(facts.cudnn, Unknown) else {copy.path: copy for copy in facts.cudnn if copy.path}
    for there in seen.cudnn_directories.values():
        releases = {directory: copies[directory].version if directory in copies else None for directory in there}
        directories = _without_outer(
            there, {directory: releases[directory] or _told_release(directory, there, seen) for directory in there}
        )
        if len(directories) < 2:
            continue
        words = []
        for directory, names in directories.items():
            named = ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} other parts"
            words.append(f"{named} ({releases[directory] or 'release unknown'}) from {directory}")
        one = _is_one_release([releases[directory] for directory in directories])
        yield f"{_SAME if one else 'cuDNN is split'}: {'; '.join(words)}"


_OUTER = re.compile(r"libcudnn-[0-9a-f]{6,}\.so\.\d+((?:\.\d+)*)")
"""cuDNN's outer library as a wheel renames it; of some wheels (CTranslate2 up to 4.6.2) it is all of cuDNN that they bring."""
_PARTS_ELSEWHERE = (
    "this wheel brings cuDNN's outer library only: the directory of a whole cuDNN of the same major, no older than it,"
    " must be on LD_LIBRARY_PATH before Python starts"
)


def _is_outer(names: Sequence[str]) -> bool:
    return bool(names) and all(_OUTER.fullmatch(name) for name in names)


def _without_outer(directories: dict[str, tuple[str, ...]], releases: Mapping[str, str | None]) -> dict[str, tuple[str, ...]]:
    """Leave out directories of an outer library alone, whose parts come from elsewhere by design, and are known to be no older."""
    parts = {directory: names for directory, names in directories.items() if not _is_outer(names)}
    told = [cudnn_of(releases[directory]) for directory in parts]
    least = [cudnn_of(_release_in(names) or releases[directory]) for directory, names in directories.items() if directory not in parts]
    serve = all(one and two and len(two.parts) > 1 and one.parts[:2] >= two.parts[:2] for one in told for two in least)
    return parts if parts and serve else directories


def _told_release(directory: str, there: Mapping[str, tuple[str, ...]], seen: Seen) -> str | None:
    """The release of a directory that nobody looked into, by the names in it or by an outer library that asks what is in it.

    cuDNN 9's outer library has no number of its own: its cudnnGetVersion() is that of libcudnn_graph.
    """
    if release := _release_in(there[directory]):
        return release
    if not any(name.startswith("libcudnn_graph.") for name in there[directory]):
        return None
    outer = {f"{place}/{name}" for place, names in there.items() if _is_outer(names) for name in names}
    return next((one.release.text for one in seen.cudnns if one.release and one.path in outer), None)


def _release_in(names: Sequence[str]) -> str | None:
    """The release that all of the names end in, `9.1.0`; None where one of them has its major only, or another."""
    endings = {name.partition(".so.")[2] for name in names}
    return next(iter(endings)) if len(endings) == 1 and all("." in one for one in endings) else None


def _is_one_release(releases: Sequence[str | None]) -> bool:
    """True where all are known and alike; a library tells three parts of its version, a package four."""
    parts = [release.split(".") for release in releases if release]
    length = min((len(one) for one in parts), default=0)
    return len(parts) == len(releases) and length > 2 and len({tuple(one[:length]) for one in parts}) == 1


def _remedy(directories: Mapping[str, tuple[str, ...]], facts: Facts, seen: Seen, faults: str) -> str:
    """Say what to do about parts that do not belong together."""
    missing = next((one for one in _MISSING.finditer(faults) if one[1] in _CUDA_WHEELS), None)
    if missing is not None:
        suffix = f"-cu{missing[2]}" if missing[2] in ("11", "12") else ""
        name = missing[0].partition(":")[0]
        return f"{name} is a library of CUDA, not of cuDNN: install nvidia-{_CUDA_WHEELS[missing[1]]}{suffix}, or that of the system"
    split = any(len(there) > 1 for there in seen.cudnn_directories.values())
    loader = None if isinstance(facts.loader, Unknown) else facts.loader
    led = [path for path in (loader.ld_library_path if loader else ()) if path.rstrip("/") in directories]
    if split and led:
        return f"LD_LIBRARY_PATH leads to {', '.join(led)}: take that out of it; cuDNN's own version call does not see the mixture"
    if _is_outer([name for names in directories.values() for name in names]):
        return _PARTS_ELSEWHERE
    if split:
        return "cuDNN's own version call does not see the mixture, only the paths do; `cudnn-resolve detect` says which rule leads where"
    return "a part is missing or of another release: reinstall this copy of cuDNN"


def _judge_cuda(subject: Subject, seen: Seen) -> Iterator[Check]:
    """Check that CUDA's libraries are of the major that the framework was built with, and cuBLAS and cuBLASLt from one place."""
    built = seen.built.get(subject.module, {}).get("cuda") or subject.installed.cuda_built
    found: dict[str, list[str]] = {}
    for path in seen.libraries:
        found.setdefault(library_name(path), []).append(path)
    runtime = next((seen.libraries[path] for path in found.get("cudart", ()) if seen.libraries[path]), None)
    if not isinstance(built, str) or runtime is None:
        return
    faults = []
    if runtime.partition(".")[0] != built.partition(".")[0]:
        faults.append(f"built for CUDA {built}, but the CUDA runtime that is loaded is {runtime}")
    homes = {path.rpartition("/")[0] for kind in ("cublas", "cublasLt") for path in found.get(kind, ())}
    if len(homes) > 1:
        faults.append(f"cuBLAS and cuBLASLt come from different directories: {', '.join(sorted(homes))}")
    twice = {name: found[kind] for kind, name in _CUDA.items() if len(found.get(kind, ())) > 1}
    faults += [f"{name} is loaded {len(paths)} times: {', '.join(paths)}" for name, paths in twice.items()]
    yield Check(
        id=f"{subject.name}/cuda",
        framework=subject.name,
        status="failed" if faults else "passed",
        expected=f"CUDA {built.partition('.')[0]}.x",
        observed="; ".join(faults) or f"CUDA runtime {runtime}",
    )
