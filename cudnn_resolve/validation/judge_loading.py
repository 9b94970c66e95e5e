"""Judge a process after the import of a framework: does it load, with which cuDNN, and do all parts belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from cudnn_resolve.facts.model import CPU_PACKAGES, CudnnCopy, Driver, Facts, or_none
from cudnn_resolve.validation.answers import ChildReport, CompilerAnswer, cudnn_of, one_line
from cudnn_resolve.validation.loaded import LoadedLibraries, library_name, loaded_libraries
from cudnn_resolve.validation.model import Check, Status, Subject
from cudnn_resolve.validation.payload_load import COMPILES, DRIVER

SILENT = "ended without an answer"
_DRIVER = re.compile(rf"({DRIVER.pattern}[.\d]*): cannot open")
"""The loader's error about a library that only a driver provides."""
_MISSING = re.compile(r"\blib(\w+)\.so(?:\.(\d+))?[.\d]*: cannot open shared object file")
_CUDA_WHEELS = {"cublas": "cublas", "cublasLt": "cublas", "cudart": "cuda-runtime", "nvrtc": "cuda-nvrtc", "nvJitLink": "nvjitlink"}
"""CUDA libraries that cuDNN needs, to the wheel that provides them."""
_CUDA = {"cudart": "CUDA runtime", "cublas": "cuBLAS", "cublasLt": "cuBLASLt"}
_WITHOUT_CUDNN = {
    "cupy": "cuDNN cannot be loaded: CuPy works without it, but has no convolutions then",
    "onnxruntime": "sessions silently fall back to the CPU: LD_LIBRARY_PATH, the linker cache or an earlier import must provide cuDNN",
}
"""Behaviour of frameworks without cuDNN."""
_IN_ANOTHER_WHEEL = ": it is in another wheel, from which the framework must load it"
_WITHOUT_COMPILER = "cuDNN engines that compile at run time (fused operations, attention) will fail; all others work"
_SAME_RELEASE = "the same release twice"
_OUTER = re.compile(r"libcudnn-[0-9a-f]{6,}\.so\.\d+((?:\.\d+)*)")
"""cuDNN's outer library as renamed in a wheel; some wheels (CTranslate2 up to 4.6.2) contain no other part of cuDNN."""
_PARTS_ELSEWHERE = (
    "this wheel contains only cuDNN's outer library: the directory of a complete cuDNN of the same major, at least as new,"
    " must be on LD_LIBRARY_PATH before Python starts"
)


def missing_driver(text: str, facts: Facts) -> str:
    """Driver library whose absence caused a failure on a machine without a driver; "" for any other failure."""
    found = _DRIVER.search(text)
    return found[1] if found and not isinstance(facts.driver, Driver) else ""


def skipped_without_driver(check: Check, text: str, facts: Facts) -> Check:
    """Turn a check into a skipped one if the text shows that it failed for lack of a driver."""
    library = missing_driver(text, facts) if check.status != "passed" else ""
    return replace(check, status="skipped", observed=f"no driver: {library} is part of it", detail="", output=()) if library else check


def judge_loading(subject: Subject, report: ChildReport, facts: Facts, *, has_gpu: bool, is_asked: bool = False) -> tuple[Check, ...]:
    """Check one framework alone in a process: import, kind of build, cuDNN and its parts, CUDA libraries.

    `is_asked`: the user named the framework, rather than it merely being installed.
    """
    loaded = loaded_libraries(report)
    first = Check(id=f"{subject.name}/import", framework=subject.name, status="passed", expected=subject.installed.version)
    if subject.module not in loaded.imported:
        failed = replace(
            first, status="failed", observed=report.failure or SILENT, detail=f"import {subject.module} fails", output=report.output
        )
        return (skipped_without_driver(failed, report.failure, facts),)
    version, seconds = loaded.imported[subject.module]
    first = replace(first, observed=version or "imported", seconds=seconds)
    if subject.is_cpu_build or loaded.built.get(subject.module, {}).get("device") == "cpu":
        return first, _cpu_build(subject, has_gpu=has_gpu, is_asked=is_asked)
    return first, *judge_cudnn(f"{subject.name}/", (subject,), report, facts), *_judge_cuda(subject, loaded)


def _cpu_build(subject: Subject, *, has_gpu: bool, is_asked: bool) -> Check:
    # A package whose name says CPU is often just a dependency of something else.
    fault: Status = "warning" if subject.name in CPU_PACKAGES and not is_asked else "failed"
    return Check(
        id=f"{subject.name}/build",
        framework=subject.name,
        status=fault if has_gpu else "skipped",
        expected="a build with CUDA",
        observed=f"a build for the CPU ({subject.installed.version})",
        detail="this build never uses a GPU" + (f"; `cudnn-resolve plan -f {subject.module}` finds one that does" if has_gpu else ""),
    )


def judge_order(pair: tuple[Subject, Subject], report: ChildReport, facts: Facts) -> Check:
    """Check two frameworks in one process: the second must load, and the cuDNN of the first must serve both."""
    imported = loaded_libraries(report).imported
    blank = Check(id=f"order/{pair[0].name} then {pair[1].name}", status="failed", expected="one cuDNN that serves both")
    missing = next((subject for subject in pair if subject.module not in imported), None)
    if missing:
        failed = replace(blank, observed=report.ending or SILENT, detail=f"{missing.name} does not load", output=report.output)
        return skipped_without_driver(failed, report.failure, facts)
    checks = judge_cudnn("", pair, report, facts)
    bad = [check for check in checks if check.status in ("failed", "warning")]
    if not bad:
        served = list(dict.fromkeys(check.observed or "" for check in checks if check.id == "cudnn" and check.status == "passed"))
        return replace(blank, status="passed" if served else "skipped", observed="; ".join(served) or "no cuDNN was loaded")
    worst: Status = "failed" if any(check.status == "failed" for check in bad) else "warning"
    words = "; ".join(f"{check.framework}: {check.observed}" if check.framework else str(check.observed) for check in bad)
    details = "; ".join(dict.fromkeys(check.detail for check in bad if check.detail))
    return replace(blank, status=worst, observed=words, detail=details, output=bad[0].output)


def judge_library(id_: str, report: ChildReport, facts: Facts) -> tuple[Check, ...]:
    """Check that one libcudnn opens on its own, with all its parts."""
    loaded = loaded_libraries(report)
    version = loaded.cudnns[0].release if loaded.cudnns else None
    blank = Check(id=f"{id_}/load", status="passed", expected="it opens")
    if version is None:
        observed, detail = report.ending or "it does not report its version", _PARTS_ELSEWHERE if _is_outer(loaded.cudnn_names) else ""
        failed = replace(blank, status="failed", observed=observed, detail=detail, output=report.output)
        return (skipped_without_driver(failed, report.failure, facts),)
    parts = _judge_parts(f"{id_}/", (), _without_compiler_failure(report), facts)
    return replace(blank, observed=f"{version} from {loaded.homes(version)}"), *parts


def judge_cudnn(prefix: str, subjects: Sequence[Subject], report: ChildReport, facts: Facts) -> tuple[Check, ...]:
    """Check which cuDNN answers, that it serves each framework, and that all its parts are of one release."""
    loaded = loaded_libraries(report)
    versions = [_judge_version(f"{prefix}cudnn", subject, loaded, report) for subject in subjects]
    checks = [skipped_without_driver(check, check.observed or "", facts) for check in versions]
    if not loaded.cudnn_directories and (not report.failure or missing_driver(report.failure, facts)):
        return tuple(checks)
    parts = _judge_parts(f"{prefix}cudnn-", subjects, _without_compiler_failure(report), facts)
    return *checks, *parts, *_judge_compiler(f"{prefix}nvrtc", subjects, report, facts)


def _without_compiler_failure(report: ChildReport) -> ChildReport:
    """Ignore a failure of the last step, the compiler, which has a check of its own."""
    return replace(report, failure="") if report.step == COMPILES else report


def _judge_compiler(id_: str, subjects: Sequence[Subject], report: ChildReport, facts: Facts) -> Iterator[Check]:
    """Check that cuDNN's runtime-compiled engines have a compiler; most convolutions do without, so no other check shows it."""
    answer = report.last("compiler", CompilerAnswer)
    ended = bool(report.failure) and report.step == COMPILES
    if (answer is None and not ended) or len(subjects) > 1:
        return
    answer = answer or CompilerAnswer()
    name, path = one_line(answer.name, 300), one_line(answer.path, 300)
    passed = Check(
        id=id_,
        framework=subjects[0].name if subjects else None,
        status="passed",
        expected="libnvrtc compiles for cuDNN's engines",
        observed=f"{path or name} compiles{_IN_ANOTHER_WHEEL if answer.how == 'wheel' else ''}",
    )
    warning = replace(passed, status="warning", detail=_WITHOUT_COMPILER)
    if ended:
        yield replace(warning, observed=report.ending, output=report.output)
    elif not answer.how:
        observed = f"{name} cannot be opened: {one_line(answer.why, 300)}"
        yield skipped_without_driver(replace(warning, observed=observed), answer.why, facts)
    elif answer.status != 0:
        detail = f"status 7 means that libnvrtc-builtins is missing or of another release; {_WITHOUT_COMPILER}"
        yield replace(warning, observed=f"{path or name} does not compile (status {answer.status})", detail=detail)
    else:
        yield passed


def _judge_version(id_: str, subject: Subject, loaded: LoadedLibraries, report: ChildReport) -> Check:
    """Compare the loaded cuDNN with the one that the framework was built with."""
    stated = loaded.built.get(subject.module, {}).get("cudnn")
    exact = stated if isinstance(stated, str) and "." in stated else None
    built = cudnn_of(exact) or cudnn_of(subject.installed.cudnn_built) or cudnn_of(stated)
    has_minor = built is not None and len(built.parts) > 1
    expected = f"cuDNN {built.line} or a later {built.major}.x" if built and has_minor else f"cuDNN {built or ''}".strip()

    def check(status: Status, observed: str, detail: str = "") -> Check:
        output = report.output if status == "failed" else ()
        return Check(id=id_, framework=subject.name, status=status, expected=expected, observed=observed, detail=detail, output=output)

    unopened, found = loaded.unopened.get(subject.module), loaded.cudnn_for(built)
    if unopened is not None:
        if "incompatib" in unopened:
            return check("failed", unopened, "the framework itself refuses this cuDNN")
        status: Status = "warning" if subject.module == "cupy" else "failed"
        return check(status, unopened, _WITHOUT_CUDNN.get(subject.module, "cuDNN cannot be loaded"))
    if found is None and report.failure:
        return check("failed", report.ending, _PARTS_ELSEWHERE if _is_outer(loaded.cudnn_names) else "cuDNN does not load")
    if found is None:
        why = "it opens cuDNN only when it uses a GPU" if subject.installed.would_load else "it does not use cuDNN"
        return check("skipped", "not loaded", why)
    if found.release is None:
        return check("failed", report.failure or f"{found.path} does not report its version", "cuDNN does not answer")
    observed = f"{found.release} from {loaded.homes(found.release)}"
    if built is not None and not found.release.serves(built):
        rule = "the same major and at least the same minor are needed" if has_minor else "the same major is needed"
        return check("failed", observed, f"built with {built}: {rule}")
    how = loaded.opened.get(subject.module, "")
    if how == "onnxruntime.preload_dlls()":
        detail = "found only after onnxruntime.preload_dlls() (or an import of torch): without it the session falls back to the CPU"
        return check("warning", observed, detail)
    return check("passed", observed, f"opened by {how}" if how else "")


def _judge_parts(prefix: str, subjects: Sequence[Subject], report: ChildReport, facts: Facts) -> Iterator[Check]:
    """Check that all parts are of one release, from one directory, and that those needed by a first convolution load."""
    loaded = loaded_libraries(report)
    faults = list(_splits(loaded, facts))
    for cudnn in loaded.cudnns:
        if cudnn.faults:
            others = f"parts of another release than {cudnn.path.rpartition('/')[2]}: {', '.join(cudnn.faults)}"
            faults.append(f"{others} (1002 is CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH)")
        faults += [f"{name} cannot be opened: {one_line(why)}" for name, why in cudnn.engines.items() if why]
    if report.failure:
        faults.append(report.ending)
    lack_driver = [fault for fault in faults if missing_driver(fault, facts)]
    faults = [fault for fault in faults if fault not in lack_driver]
    homes = {directory: names for directories in loaded.cudnn_directories.values() for directory, names in directories.items()}
    count = len(loaded.cudnn_names)
    harmless = all(fault.startswith(_SAME_RELEASE) for fault in faults)
    status: Status = "passed" if not faults else "warning" if harmless else "failed"
    framework = subjects[0].name if len(subjects) == 1 else None
    yield Check(
        id=f"{prefix}parts",
        framework=framework,
        status=status,
        expected="all parts of one release, from one directory",
        observed="; ".join(faults) if faults else f"{count} part{'s' if count > 1 else ''} from {', '.join(homes)}",
        detail=_remedy(homes, facts, loaded, "\n".join([*faults, *report.output])) if faults else "",
        output=report.output if status == "failed" else (),
    )
    if lack_driver:
        names = ", ".join(fault.partition(" ")[0] for fault in lack_driver)
        libraries = ", ".join(dict.fromkeys(missing_driver(fault, facts) for fault in lack_driver))
        yield Check(
            id=f"{prefix}driver",
            framework=framework,
            status="skipped",
            expected=f"{names} opens",
            observed=f"no driver: {names} needs {libraries}, which is part of it",
        )


def _splits(loaded: LoadedLibraries, facts: Facts) -> Iterator[str]:
    """For each cuDNN loaded from several directories, list these with their releases."""
    copies: dict[str, CudnnCopy] = {copy.path: copy for copy in or_none(facts.cudnn) or () if copy.path}
    for directories in loaded.cudnn_directories.values():
        releases = {directory: copies[directory].version if directory in copies else None for directory in directories}
        all_releases = {directory: release or _reported_release(directory, directories, loaded) for directory, release in releases.items()}
        complete = _without_outer(directories, all_releases)
        if len(complete) < 2:
            continue
        words = []
        for directory, names in complete.items():
            parts = ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} other parts"
            words.append(f"{parts} ({releases[directory] or 'release unknown'}) from {directory}")
        is_same = _is_one_release([releases[directory] for directory in complete])
        yield f"{_SAME_RELEASE if is_same else 'cuDNN is split'}: {'; '.join(words)}"


def _is_outer(names: Sequence[str]) -> bool:
    return bool(names) and all(_OUTER.fullmatch(name) for name in names)


def _without_outer(directories: dict[str, tuple[str, ...]], releases: Mapping[str, str | None]) -> dict[str, tuple[str, ...]]:
    """Leave out directories with only an outer library, whose parts come from elsewhere by design, if those parts are no older."""
    complete = {directory: names for directory, names in directories.items() if not _is_outer(names)}
    found = [cudnn_of(releases[directory]) for directory in complete]
    least = [cudnn_of(_release_in(names) or releases[directory]) for directory, names in directories.items() if directory not in complete]
    serve = all(parts and outer and len(outer.parts) > 1 and parts.parts[:2] >= outer.parts[:2] for parts in found for outer in least)
    return complete if complete and serve else directories


def _reported_release(directory: str, directories: Mapping[str, tuple[str, ...]], loaded: LoadedLibraries) -> str | None:
    """Release of an unprobed directory, from the file names in it or from an outer library that asks its parts.

    cuDNN 9's outer library has no version of its own: its cudnnGetVersion() is that of libcudnn_graph.
    """
    if release := _release_in(directories[directory]):
        return release
    if not any(name.startswith("libcudnn_graph.") for name in directories[directory]):
        return None
    outer = {f"{home}/{name}" for home, names in directories.items() if _is_outer(names) for name in names}
    return next((cudnn.release.text for cudnn in loaded.cudnns if cudnn.release and cudnn.path in outer), None)


def _release_in(names: Sequence[str]) -> str | None:
    """Release in which all names end, `9.1.0`; None if they differ or have only the major."""
    endings = {name.partition(".so.")[2] for name in names}
    return next(iter(endings)) if len(endings) == 1 and all("." in ending for ending in endings) else None


def _is_one_release(releases: Sequence[str | None]) -> bool:
    """True if all are known and equal; a library reports three parts of its version, a package four."""
    parts = [release.split(".") for release in releases if release]
    length = min(map(len, parts), default=0)
    return len(parts) == len(releases) and length > 2 and len({tuple(version[:length]) for version in parts}) == 1


def _remedy(homes: Mapping[str, tuple[str, ...]], facts: Facts, loaded: LoadedLibraries, faults: str) -> str:
    """Suggest how to mend parts that do not belong together."""
    missing = next((found for found in _MISSING.finditer(faults) if found[1] in _CUDA_WHEELS), None)
    if missing is not None:
        suffix = f"-cu{missing[2]}" if missing[2] in ("11", "12") else ""
        name = missing[0].partition(":")[0]
        return f"{name} belongs to CUDA, not to cuDNN: install nvidia-{_CUDA_WHEELS[missing[1]]}{suffix}, or the system's package"
    is_split = any(len(directories) > 1 for directories in loaded.cudnn_directories.values())
    loader = or_none(facts.loader)
    led = [path for path in (loader.ld_library_path if loader else ()) if path.rstrip("/") in homes]
    if is_split and led:
        return f"LD_LIBRARY_PATH leads to {', '.join(led)}: remove that from it; cuDNN's own version call does not detect the mixture"
    if _is_outer(loaded.cudnn_names):
        return _PARTS_ELSEWHERE
    if is_split:
        return "only the paths show the mixture, cuDNN's own version call does not; `cudnn-resolve detect` names the loader's rules"
    return "a part is missing or of another release: reinstall this copy of cuDNN"


def _judge_cuda(subject: Subject, loaded: LoadedLibraries) -> Iterator[Check]:
    """Check that CUDA's libraries are of the framework's major, and that cuBLAS and cuBLASLt come from one directory."""
    built = loaded.built.get(subject.module, {}).get("cuda") or subject.installed.cuda_built
    paths: dict[str, list[str]] = {}
    for path in loaded.libraries:
        paths.setdefault(library_name(path), []).append(path)
    runtime = next((version for path in paths.get("cudart", ()) if (version := loaded.libraries[path])), None)
    if not isinstance(built, str) or runtime is None:
        return
    faults = []
    if runtime.partition(".")[0] != built.partition(".")[0]:
        faults.append(f"built for CUDA {built}, but CUDA runtime {runtime} is loaded")
    homes = {path.rpartition("/")[0] for kind in ("cublas", "cublasLt") for path in paths.get(kind, ())}
    if len(homes) > 1:
        faults.append(f"cuBLAS and cuBLASLt come from different directories: {', '.join(sorted(homes))}")
    twice = {name: paths[kind] for kind, name in _CUDA.items() if len(paths.get(kind, ())) > 1}
    faults += [f"{name} is loaded {len(copies)} times: {', '.join(copies)}" for name, copies in twice.items()]
    yield Check(
        id=f"{subject.name}/cuda",
        framework=subject.name,
        status="failed" if faults else "passed",
        expected=f"CUDA {built.partition('.')[0]}.x",
        observed="; ".join(faults) or f"CUDA runtime {runtime}",
    )
