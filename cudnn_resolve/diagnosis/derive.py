"""Refine suspected causes by combining symptoms and facts: a library is missing, on disk, of another major, or shadowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from cudnn_resolve.diagnosis.derive_gpu import (
    compare_compiler,
    compare_driver_parts,
    compare_driver_with_builds,
    compare_listed_driver,
    compare_reported_driver,
    confirm_missing_driver,
    consider_setting,
    decide_ggml_age,
    decide_gpu_age,
    doubt_cpu_build,
    find_hidden_gpu,
)
from cudnn_resolve.diagnosis.derive_listed import BARE, explain_unnamed, find_listed
from cudnn_resolve.diagnosis.derive_pip import (
    compare_index,
    dismiss_unrelated_pins,
    interpret_pip_versions,
    interpret_wheel_tags,
    name_misspelt,
)
from cudnn_resolve.diagnosis.library_path import (
    command_of,
    is_default,
    is_searched,
    missing,
    place_of,
    shown_at,
    shown_twice,
)
from cudnn_resolve.diagnosis.log_stack import toolkit_without
from cudnn_resolve.diagnosis.model import Case, Match, Present, Suspect, Suspects, of_symptom, values_of
from cudnn_resolve.diagnosis.weigh import FINDING
from cudnn_resolve.facts.model import Unknown, or_none
from cudnn_resolve.matrix.library_name import Library, library_of
from cudnn_resolve.version import CudnnVersion

_OPENED_BY_GRAPH = ("libcudnn_engines_precompiled.so", "libcudnn_engines_runtime_compiled.so", "libcudnn_heuristic.so")
"""Parts of cuDNN 9 that libcudnn_graph opens after it is loaded itself."""
_OPENED_FIRST = ("libcudnn_ops", "libcudnn_graph", "libcudnn.so")
"""Parts that are opened first: a failure says nothing about the others."""
_COMPANIONS = ("torchaudio", "torchvision", "torchtext", "torchcodec", "torch_scatter", "torch_sparse", "torch_cluster")
"""Packages that import PyTorch before they load their own libraries."""
_SHORT = ("cuFFT", "cuRAND", "cuSOLVER", "cuSPARSE")
"""Libraries that encode 12.1.3 as 12103; cuBLAS encodes it as 120103, and CUDA itself 12.2 as 12020."""
_VAGUE = 60
"""Weight of wording that says only that cuDNN did not start."""
_UNDATED = "CUPTI"
"""Reports its interface number, not a release."""
_NVVM = re.compile(r"(/[^\s:'\"]{1,200})/nvvm/lib\w{0,3}/libnvvm\.so")
"""A toolkit in which a program looks for its compiler."""
_OWN_TOOLKIT = re.compile(r"conda|mamba|forge|/envs/|-packages/")
"""Paths of toolkits that Numba finds in its environment, without a variable."""
_Conclusion = tuple[str, float, str, list[Present]]
"""Cause of a cuDNN that is not found, added weight, wording, and evidence."""


def derive(found: Suspects, case: Case) -> None:
    """Combine matched fields with machine facts to refine the suspects."""
    for step in _STEPS:
        step(found, case)


def _miss_cudnn(found: Suspects, case: Case) -> None:
    """A program does not find cuDNN, or its header, where it is told to look: whether the facts have a copy of it decides."""
    misplaced, absent = found["lib_not_on_path"], found["cudnn_missing"]
    copies = or_none(case.known.cudnn)
    if copies and any("try_flags_" in match.text for match in absent.matches):
        found.add("lib_not_on_path", absent, 4, "cuDNN is installed, but Theano's compiler does not look there")
    elif copies == () and any(re.search(r"(?i)cudnn", match.text) for match in misplaced.matches[:1]):
        found.add("cudnn_missing", misplaced, 4, "cuDNN is not installed on this machine")


def _locate_cudnn(found: Suspects, case: Case) -> None:
    """Decide whether cuDNN is missing, outside the loader's path, or of another major, by what log and facts show of it."""
    absent = found["cudnn_missing"]
    if not absent.matches or _is_of_driver(found):
        return
    libraries = list(missing(absent.matches)) or _wanted_by_framework(absent, case)
    conclusion = _whereabouts(libraries, absent, case) if libraries else _unnamed_library(case)
    if conclusion is not None:
        cause, more, text, shown = conclusion
        matches = [match for present in shown[:2] for match in (present.match, command_of(present.match, case.matches))]
        found.add(cause, absent, more, f"{libraries[0].file if libraries else 'cuDNN'} {text}", matches)


def _is_of_driver(found: Suspects) -> bool:
    """True if the loader does not find the driver's library: the directory of another one does not help."""
    return any(
        match.symptom.feature == "driver-library" or "driver" in [library.family for library in missing([match])]
        for match in found["lib_not_on_path"].matches
    )


def _is_looked_for(case: Case) -> bool:
    """True if the facts list all copies of cuDNN."""
    return not isinstance(case.known.cudnn, Unknown)


def _wanted_by_framework(absent: Suspect, case: Case) -> list[Library]:
    """The cuDNN library of the framework that finds none without naming it, for a comparison with the copies in the facts."""
    frameworks = {case.book.framework_of(match.symptom.framework) for match in absent.matches if match.symptom.framework}
    builds = [build for build in case.context.builds if build.cudnn is not None and case.book.framework_of(build.package) in frameworks]
    majors = {build.cudnn.major for build in builds if build.cudnn is not None}
    library = library_of(f"libcudnn.so.{max(majors)}") if len(majors) == 1 and _is_looked_for(case) else None
    return [library] if library is not None else []


def _whereabouts(libraries: list[Library], absent: Suspect, case: Case) -> _Conclusion | None:
    """Conclusion by the copies in the log and the facts, and by those that wheels include."""
    lib, majors = libraries[0].file, {library.major for library in libraries if library.major is not None}
    is_looked_for = _is_looked_for(case)
    if not majors and (is_looked_for or case.context.cudnn):
        return _unversioned(case)
    wanted = " or ".join(map(str, sorted(majors)))
    there = [copy for copy in case.context.cudnn if copy.major in majors]
    # A copy in a default directory was not there for the program of the log: see `contradictions`.
    same = [present for present in there if present.path is None or case.facts is None or not is_searched(present.path, case.facts)]
    other = [copy for copy in case.context.cudnn if copy.major not in majors]
    # The facts list what wheels brought.
    brought = {
        build.cudnn.major: build.package
        for build in (case.context.builds if not is_looked_for else ())
        if build.cudnn is not None and build.delivery in ("wheel", "bundled") and build.package not in BARE
    }
    broken = next((present for present in there[:1] if present.broken and lib.startswith("libcudnn_")), None)
    if broken:
        text = f"is needed but not found: cuDNN {broken.version or broken.major} in {broken.path} is incomplete: {broken.broken}"
        return "cudnn_sublibrary_mix", 8, text, []
    if there and not same:
        text = (
            f"is needed but not found, although cuDNN {there[0].version or there[0].major} is in {there[0].path}, which the loader searches"
        )
        return "cudnn_missing", 0, text, []
    if same or (brought.keys() & majors and not other):
        where = f"in {place}" if same and (place := same[0].path or shown_at(same[0].match, case.matches)) else "installed"
        place = f"cuDNN {same[0].version or same[0].major} is {where}" if same else f"the {_name(brought, majors)} wheel includes it"
        text = f"is needed but not found, although {place}: the loader does not search its directory"
        return "lib_not_on_path", 6, text, same
    if other or (brought and majors):
        seen = other[0].version or other[0].major if other else min(brought)
        text = f"(cuDNN {wanted}) is needed, but cuDNN {seen} is installed"
        return "cudnn_major_mismatch", 8, text, other
    toolkit = toolkit_without(majors, case)
    if toolkit is not None:
        text = f"(cuDNN {wanted}) is needed, but there is no cuDNN {wanted} for CUDA {toolkit}, whose toolkit is installed"
        return "cudnn_major_mismatch", 4, text, []
    return _by_message(lib, wanted, absent, case)


def _by_message(lib: str, wanted: str, absent: Suspect, case: Case) -> _Conclusion | None:
    """The same if no cuDNN is shown: judge by the message and the program that prints it."""
    printed_by = {match.symptom.id for match in absent.matches}
    is_of_parts = "loader-cudnn-9-parts" in printed_by and not _is_looked_for(case)
    if "cudnn-nowhere" in case.features:
        return "cudnn_missing", 8, "is needed but not found, and the log shows a search that finds no cuDNN on the disk", []
    if "hosted-notebook" in case.features and wanted:
        text = f"(cuDNN {wanted}) is needed; hosted notebooks come with cuDNN, so the installed one is of another major version"
        return "cudnn_major_mismatch", 2, text, []
    if lib.startswith(_OPENED_BY_GRAPH):
        text = "is needed but not found, although libcudnn_graph, which opens it, was: the directory of this cuDNN is not searched"
        return "lib_not_on_path", 4, text, []
    if is_of_parts and not lib.startswith(_OPENED_FIRST):
        text = "and the other parts of cuDNN 9 are not found: the loader does not search their directory, or an older cuDNN is installed"
        return "lib_not_on_path", 2, text, []
    if is_of_parts and lib.startswith("libcudnn_ops"):
        text = "(cuDNN 9) is needed but not found; programs that open it themselves usually run beside a framework with cuDNN 8"
        return "cudnn_major_mismatch", 2, text, []
    if "torch7-cudnn" in printed_by:
        text = f"is needed but not found: these Torch 7 bindings work with cuDNN {wanted} only, and a newer one is usually installed"
        return "cudnn_major_mismatch", 2, text, []
    if not wanted and "gpu-seen" in case.features:
        text = "(no version in its name) is not found although CUDA works: only versioned files are there, or none where the loader looks"
        return "lib_not_on_path", 3, text, []
    return None


def _unversioned(case: Case, *, named: bool = True) -> _Conclusion | None:
    """The same for libcudnn.so, a name without a major version, by the copies in log or facts."""
    built = {build.cudnn.major for build in case.context.builds if build.cudnn is not None}
    copies = [(copy, place) for copy in case.context.cudnn if (place := copy.path or shown_at(copy.match, case.matches) or _unnamed(copy))]
    fit, place = next(((copy, place) for copy, place in copies if not built or copy.major in built), (None, ""))
    if fit is not None:
        is_found = case.facts is not None and is_searched(place, case.facts)
        where = "without a link of that name" if is_found else "which the loader does not search" if named else "which is not searched"
        text = f"{'(no version in its name) ' if named else ''}is needed; cuDNN {fit.version or fit.major} is in {place}, {where}"
        return "lib_not_on_path", 6, text, [fit]
    if copies:
        wanted, (found, place) = " or ".join(map(str, sorted(built))), copies[0]
        text = f"{f'(cuDNN {wanted})' if named else wanted} is needed, but cuDNN {found.version or found.major} is in {place}"
        return "cudnn_major_mismatch", 8, text, [found]
    return None


def _unnamed_library(case: Case) -> _Conclusion | None:
    """The same for a message without a file name, as of CMake or JAX, by a file that the log shows elsewhere."""
    conclusion = _unversioned(case, named=False) if case.facts is None else None
    places = [shown_at(copy.match, case.matches) for copy in conclusion[3]] if conclusion is not None else []
    return conclusion if any(place and not (is_default(place) or place.startswith("/usr/local/cuda")) for place in places) else None


def _unnamed(copy: Present) -> str:
    """Wording for the directory of a file in a list that does not name it; empty for a version that is not of a file."""
    return "a directory that the log lists" if copy.match is not None and copy.match.symptom.id == "context-cudnn-listed" else ""


def _name(brought: Mapping[int, str], majors: Iterable[int]) -> str:
    """Display name of the package that includes a cuDNN of these majors."""
    name = next(brought[major] for major in majors if major in brought)
    return "PyTorch" if name == "torch" else name


def _detect_shadowing(found: Suspects, case: Case) -> None:
    """The cuDNN is too old, or newer than a build accepts, although a copy that fits is shown: another one is found first."""
    for cause in ("cudnn_too_old_for_framework", "cudnn_too_new_for_framework"):
        wrong = found[cause]
        match = next(filter(_compares, wrong.matches), None)
        if match is None or wrong.weight < FINDING:
            continue
        built, loaded = match.fields["built"], match.fields["found"]
        for version, copy in ((copy.version, copy) for copy in case.context.cudnn if copy.version is not None):
            fits = version.serves(built) and version > loaded if loaded < built else version.parts[:2] == built.parts[:2]
            if fits and version != loaded:
                text = f"cuDNN {loaded} is loaded although {version}, which fits, is installed: the other copy is found first"
                found.add("ld_path_shadowing", wrong, 4, text, [copy.match])
                return
        if loaded < built and (twice := shown_twice(built, case.matches)):
            text = f"cuDNN {loaded} is loaded, and the log shows two copies: the older one is found first"
            found.add("ld_path_shadowing", wrong, 2, text, twice)
            return


def _compares(match: Match) -> bool:
    """True if a message names the cuDNN of the build and the one that is loaded."""
    return all(isinstance(match.fields.get(name), CudnnVersion) for name in ("built", "found"))


def _detect_single_copy(found: Suspects, case: Case) -> None:
    """PyTorch loads another cuDNN than it was built with, and facts or the listed wheel, which it loads, show no copy that would do."""
    hidden = found["ld_path_shadowing"]
    match = next(filter(_compares, hidden.matches), None)
    if match is None:
        return
    built, loaded = match.fields["built"], match.fields["found"]
    wheels = {copy.version.parts[:3] for copy in case.context.cudnn if copy.version and copy.match and "wheel" in copy.match.fields}
    copies = [copy for copy in case.context.cudnn if copy.match is None or wheels == {loaded.parts[:3]}]
    if copies and not any(copy.version is None or copy.version.serves(built) for copy in copies):
        cause = "cudnn_too_old_for_framework" if loaded.major == built.major else "cudnn_major_mismatch"
        text = f"PyTorch was compiled with cuDNN {built} but loads {loaded}, and no copy on this machine is new enough"
        found.supersede(hidden, cause, 2, text)


def _acquit_cudnn(found: Suspects, case: Case) -> None:
    """The facts have a cuDNN that fits for each framework that may say that it does not start: it is not too old."""
    old, frameworks = found["cudnn_too_old_for_framework"], or_none(case.known.frameworks)
    if not old.matches or old.weight > _VAGUE:
        return
    asked = [each for each in frameworks or () if case.book.framework_of(each.name) in ("tensorflow", "jax") and each.cudnn_built]
    loads = [(each.would_load.version if each.would_load else None, each.cudnn_built) for each in asked]
    if loads and all(version and built and CudnnVersion(version).serves(CudnnVersion(built)) for version, built in loads):
        text = f"cuDNN could not start; {loads[0][0]}, which would be loaded, fits, so that most likely no GPU memory is left for it"
        found.supersede(old, "out_of_memory", 3, text)


def _blame_openblas(found: Suspects, case: Case) -> None:
    """On a Jetson, what looks like a lack of instructions is usually a bug of NumPy 1.19.5, unless the facts have another NumPy."""
    lacking, pip = found["cpu_without_avx"], or_none(case.known.packages.pip)
    is_python = case.facts is not None or bool(case.frames) or any("python" in match.text for match in case.matches)
    numpy = (pip or {}).get("numpy", "1.19.5" if is_python and "jetson" in case.features else None)
    if lacking.matches and "arm-cpu" in case.features and numpy == "1.19.5":
        text = "the program was killed by a CPU instruction that this processor lacks: usually by OpenBLAS in NumPy 1.19.5, made for others"
        found.supersede(lacking, "other_bug", 0, text)


def _widen_to_cuda(found: Suspects, _: Case) -> None:
    """Other CUDA libraries are missing as well as cuDNN: CUDA as a whole is missing."""
    runtime, cudnn = found["cuda_runtime_missing"], found["cudnn_missing"]
    if cudnn.matches and runtime.weight < 98 and any(missing(runtime.matches)):
        found["cuda_runtime_missing"] = replace(runtime, weight=min(max(runtime.weight, cudnn.weight) + 8, 98))


def _blame_companion(found: Suspects, case: Case) -> None:
    """A companion of PyTorch does not find CUDA libraries although PyTorch loaded: it was built for another CUDA."""
    runtime = found["cuda_runtime_missing"]
    wanted = list(missing(runtime.matches))
    companion = next((match for match in case.frames if str(match.fields.get("frame")) in _COMPANIONS), None)
    if wanted and companion and not any("torch/__init__.py" in frame.text.replace("\\", "/") for frame in case.frames):
        text = f"{companion.fields['frame']} needs {wanted[0].file}, but PyTorch loaded without it: it is a build for another CUDA"
        found.add("framework_pkg_mismatch", runtime, 4, text, [companion])


def _find_on_disk(found: Suspects, case: Case) -> None:
    """CUDA libraries that are not found although the facts contain the location of each."""
    if _is_of_driver(found):
        return
    runtime = found["cuda_runtime_missing"]
    libraries = list(dict.fromkeys(missing(runtime.matches)))
    places = [place_of(library, case.facts, case.book) for library in libraries]
    symbol = next(values_of(runtime.matches, "symbol"), None)
    if symbol is not None:  # the loader found a copy other than that of the wheel
        if any("/nvidia/" in (place or "") for place in places):
            text = f"the {libraries[0].file} that the loader finds lacks {symbol}; another copy is in {places[0]}"
            found.add("ld_path_shadowing", runtime, 9, text)
    elif places and all(places):
        text = (
            f"{libraries[0].file} is needed but not found, although it is installed in {places[0]}: "
            "the loader does not search that directory"
        )
        found.add("lib_not_on_path", runtime, 9, text)


def _find_toolkit(found: Suspects, case: Case) -> None:
    """Numba looks for libNVVM where it is not: a variable names the wrong directory, unless facts have no toolkit elsewhere."""
    absent = found["cuda_runtime_missing"]
    asked = next((hit[1] for match in absent.matches if (hit := _NVVM.search(match.text))), None)
    toolkits = or_none(case.known.cuda_toolkits)
    homes = [one.path for one in toolkits or () if one.path and one.source != "pip" and (one.version or "").count(".") > 1]
    is_told = bool(homes) or (case.facts is None and _OWN_TOOLKIT.search(asked or "") is None)
    if not is_told or asked in (None, "/usr/local/cuda", *homes):
        return
    why = f"although CUDA is installed in {homes[0]}" if homes else "because an environment variable (NUMBAPRO_NVVM, CUDA_HOME) names it"
    found.add("lib_not_on_path", absent, 4, f"Numba looks for libNVVM in {asked}, where it is not, {why}")


def _check_jax_library(found: Suspects, case: Case) -> None:
    """A library that JAX cannot load is itself missing, rather than nvJitLink, if nothing installed, or listed by the log, contains it."""
    mix = found["nvjitlink_mix"]
    component = str(next(values_of(mix.matches, "component"), ""))
    if not component:
        return
    if case.facts is None:
        brought, why = {name for name, _, _ in _wheels(case)}, "its wheel is not among those that the log lists"
        is_all = bool(brought) and "wheels-listed" in case.features and "ld-library-path" not in case.features
    else:
        pip, loader, toolkits = or_none(case.facts.packages.pip), or_none(case.facts.loader), or_none(case.facts.cuda_toolkits)
        brought = {row.library.lower() for name in pip or () if (row := case.book.component(name)) is not None}
        is_without_others = loader is not None and not loader.ld_library_path and toolkits is not None
        is_all = pip is not None and is_without_others and all(toolkit.source == "pip" for toolkit in toolkits or ())
        why = "no installed wheel or toolkit contains it"
    if is_all and component.lower() not in brought:
        found.supersede(mix, "cuda_runtime_missing", 9, f"JAX cannot load {component}, and {why}")


def _compare_loaded_parts(found: Suspects, case: Case) -> None:
    """The loader's output shows parts of one cuDNN from two directories."""
    places: dict[int | None, dict[str, dict[str, Match]]] = {}
    for match in of_symptom(case.matches, "context-cudnn-loaded"):
        library = match.fields["loadedlib"]
        places.setdefault(library.major, {}).setdefault(match.fields["loaded"], {})[library.stem] = match
    for major, directories in places.items():
        stems = [stem for parts in directories.values() for stem in parts]
        # A part loaded from both directories is a second complete copy, which another package may bundle.
        if len(directories) > 1 and len(stems) == len(set(stems)):
            fewest = min(directories, key=lambda directory: len(directories[directory]))
            part = next(iter(directories[fewest].values()))
            name = f"cuDNN {major}" if major is not None else "cuDNN"
            file = part.fields["loadedlib"].file
            text = f"{file} comes from {fewest}, the other parts of {name} from elsewhere: two installations are mixed"
            matches = (part, *(match for parts in directories.values() for match in parts.values()))
            base = Suspect(cause="cudnn_sublibrary_mix", weight=86, matches=matches)
            found.add("cudnn_sublibrary_mix", base, 0, text)


def _explain_outdated(found: Suspects, case: Case) -> None:
    """JAX reports a library as too old although its wheel is new enough: an older copy is found first."""
    old = found["cuda_runtime_missing"]
    match = next(of_symptom(old.matches, "jax-cuda-older-than-built"), None)
    if match is None:
        return
    component, built = match.fields["component"], match.fields["built"]
    loaded, wanted = (_release_text(component, match.fields[name]) for name in ("found", "built"))
    if old.matches[0] is match:
        summary = f"{component} {loaded} is loaded, but JAX was built against the newer {wanted}"
        found["cuda_runtime_missing"] = replace(old, summary=summary)
    for name, version, wheel in _wheels(case) if component != _UNDATED else ():
        if name == component.lower() and tuple(map(int, re.findall(r"\d{1,9}", version)[:3])) >= _release(component, built):
            text = f"{component} {loaded} is loaded although its wheel {version}, which is new enough, is installed"
            found.add("ld_path_shadowing", old, 12, f"{text}: an older copy is found first", [wheel])
            break


def _wheels(case: Case) -> Iterator[tuple[str, str, Match | None]]:
    """Component, version and line of NVIDIA's wheels, according to log and facts."""
    for match in of_symptom(case.matches, "context-cuda-wheel"):
        yield _wheel_of(match.fields["cudawheel"]), str(match.fields["cudawheelversion"]), match
    pip = or_none(case.known.packages.pip)
    for name, version in (pip or {}).items():
        if name.startswith("nvidia-"):
            yield _wheel_of(re.sub(r"^nvidia-|-cu\d\d$", "", name)), version, None


def _wheel_of(package: str) -> str:
    """Component that a wheel is named after."""
    name = package.lower().replace("_", "-")
    return {"cuda-cupti": "cupti", "cuda-runtime": "cuda"}.get(name, name)


def _release_text(component: str, encoded: int) -> str:
    """Format the encoded release that a library reports."""
    if component == _UNDATED:
        return f"(interface {encoded})"
    release = _release(component, encoded)
    return ".".join(map(str, release[:2] if component == "CUDA" else release))


def _release(component: str, encoded: int) -> tuple[int, int, int]:
    if component == "CUDA":
        return encoded // 1000, encoded % 1000 // 10, 0
    unit = 1000 if component in _SHORT else 10_000
    return encoded // unit, encoded % unit // 100, encoded % 100


_STEPS: tuple[Callable[[Suspects, Case], None], ...] = (
    _miss_cudnn,
    _locate_cudnn,
    explain_unnamed,
    _detect_shadowing,
    _detect_single_copy,
    _acquit_cudnn,
    _blame_openblas,
    _widen_to_cuda,
    find_listed,
    _blame_companion,
    _find_on_disk,
    _find_toolkit,
    _check_jax_library,
    compare_driver_parts,
    compare_listed_driver,
    doubt_cpu_build,
    consider_setting,
    compare_reported_driver,
    compare_driver_with_builds,
    find_hidden_gpu,
    confirm_missing_driver,
    compare_compiler,
    decide_gpu_age,
    decide_ggml_age,
    _compare_loaded_parts,
    _explain_outdated,
    interpret_pip_versions,
    interpret_wheel_tags,
    compare_index,
    dismiss_unrelated_pins,
    name_misspelt,
)
