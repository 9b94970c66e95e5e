"""What several symptoms and facts say together: a library that is missing, on disk, of another major, or found in the wrong place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from cudnn_resolve.diagnosis.context import FILES_LISTED, build_of, is_listing
from cudnn_resolve.diagnosis.gpu_code import part_kernel_image
from cudnn_resolve.diagnosis.model import Case, Match, Present, Suspect, Suspects
from cudnn_resolve.diagnosis.pip import part_of_others, part_pip, part_wheel
from cudnn_resolve.diagnosis.place import carries, is_default, is_searched, missing, place_of, wheel_component
from cudnn_resolve.diagnosis.stated import majors_of, toolkit_without
from cudnn_resolve.diagnosis.weigh import FINDING
from cudnn_resolve.facts.driver_output import is_compat
from cudnn_resolve.facts.model import Loader, Unknown, or_none
from cudnn_resolve.matrix.library import Library
from cudnn_resolve.version import CudaVersion, CudnnVersion

_OPENED_BY_GRAPH = ("libcudnn_engines_precompiled.so", "libcudnn_engines_runtime_compiled.so", "libcudnn_heuristic.so")
"""Parts of cuDNN 9 that libcudnn_graph opens once it is loaded itself."""
_OPENED_FIRST = ("libcudnn_ops", "libcudnn_graph", "libcudnn.so")
"""Of these nothing tells whether the others are there."""
_DRIVER_TOLD, _NAMES_OF_DRIVER = ("context-driver-collected", "context-smi-table", "context-driver-seen"), {"driver", "driver2", "driver3"}
_OF_NVML = ("nvml-mismatch", "container-cli-mismatch")
_OF_NO_USE = r"/stubs/|/i[3-6]86-|/lib32/|/overlay2/|/flatpak/|^/tmp/"
"""Where files lie that no program is to load: stand-ins for the linker, and of another system."""
_NOT_THERE = r"(?i)cannot access|ENOENT|no such file|\bremoved |unable to|failed to|cannot open|not found|\s0 [A-Z][a-z]{2} {1,2}\d"
"""What a line says of a file that is not there, or is empty."""
_COMPANIONS = ("torchaudio", "torchvision", "torchtext", "torchcodec", "torch_scatter", "torch_sparse", "torch_cluster")
"""These import PyTorch before their own libraries."""
_SHORT = ("cuFFT", "cuRAND", "cuSOLVER", "cuSPARSE")
"""These write 12.1.3 as 12103; cuBLAS writes it as 120103, and CUDA itself 12.2 as 12020."""
_LEAST_OF_GGML = 610
"""Code for older GPUs lacks instructions that kernels of llama.cpp use."""
_PROVIDER = "onnxruntime"
_GENERAL = 60
"""Symptoms up to this weight do not say why no GPU is found."""
_STARTED = 88
"""The weight of a container without its GPU where the command that started it is there to see."""
_NOT_ASKED = "the program sees no GPU, and the command that started its container does not request one"
_PYTHON_FRAMEWORK = r"(?i)\b(?:torch|tensorflow|tf\.|keras|jax|onnxruntime|paddle)"
_GPU_IN_CONTAINER = frozenset({"docker-gpus", "gpu-seen", "cpu-machine", "smi-table", "visible-devices-set"})
"""With any of these the container has a GPU, or is not meant to have one."""
_BARE = ("tensorflow", "jax", "jaxlib")
"""Their wheels bring cuDNN only where the extra for CUDA is asked for, which a version alone does not tell."""
_ASKED = r"(?i)\b(?:requires?|requirement (?!already)|collecting|downloading|uninstall\w{0,4}|found existing|no matching|could not find)\b"
"""How pip speaks of a wheel that is not there yet, or no longer."""
_UNDATED = "CUPTI"
"""It has the number of its interface, which is no release."""


def derive(found: Suspects, case: Case) -> Suspects:
    """The suspects with what their fields and the facts say together."""
    for step in _STEPS:
        found = step(dict(found), case)
    return found


def _strengthened(found: Suspects, cause: str, base: Suspect, more: float, summary: str, shown: Iterable[Match | None] = ()) -> Suspects:
    """The suspects with a cause on the evidence of another, a little stronger than it."""
    before = found[cause].matches if cause in found else ()
    matches = dict.fromkeys((*base.matches, *(one for one in shown if one), *before))
    return found | {cause: Suspect(cause=cause, weight=min(base.weight + more, 98), matches=tuple(matches), summary=summary)}


def _part_cudnn(found: Suspects, case: Case) -> Suspects:
    """Missing, on disk but not searched, or another major: by what else the log and the facts show of cuDNN."""
    absent = found.get("cudnn_missing")
    libraries = [one.fields["lib"] for one in absent.matches if isinstance(one.fields.get("lib"), Library)] if absent else []
    if absent is None or not libraries:
        return found
    told = _whereabouts(libraries, absent, case)
    if told is None:
        return found
    cause, more, text, shown = told
    return _strengthened(found, cause, absent, more, f"{libraries[0].file} {text}", [one.match for one in shown[:2]])


def _whereabouts(libraries: list[Library], absent: Suspect, case: Case) -> tuple[str, float, str, list[Present]] | None:
    """The cause of a cuDNN that is not found, by how much it is surer, the words for it, and what shows it."""
    lib, majors = libraries[0].file, {one.major for one in libraries if one.major is not None}
    is_looked_for = case.facts is not None and not isinstance(case.facts.cudnn, Unknown)
    if not majors and (is_looked_for or case.context.cudnn):
        return _unversioned(case)
    wanted = " or ".join(map(str, sorted(majors)))
    there = [one for one in case.context.cudnn if one.major in majors]
    # What lies where the loader always looks was not there for the program of the log: `contradictions` tells.
    same = [one for one in there if one.path is None or case.facts is None or not is_searched(one.path, case.facts)]
    other = [one for one in case.context.cudnn if one.major not in majors]
    brought = {
        build.cudnn.major: build.package
        for build in case.context.builds
        if build.cudnn is not None and build.delivery in ("wheel", "bundled") and build.package not in _BARE
    }
    broken = next((one for one in there[:1] if one.broken and lib.startswith("libcudnn_")), None)
    if broken:
        text = f"is needed but not found: cuDNN {broken.version or broken.major} in {broken.path} is incomplete: {broken.broken}"
        return "cudnn_sublibrary_mix", 8, text, []
    if there and not same:
        text = (
            f"is needed but not found, although cuDNN {there[0].version or there[0].major} is in {there[0].path}, which the loader searches"
        )
        return "cudnn_missing", 0, text, []
    if same or (brought.keys() & majors and not other):
        where = f"in {same[0].path}" if same and same[0].path else "installed"
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
    return _by_message(lib, wanted, absent, case, is_looked_for=is_looked_for)


def _by_message(lib: str, wanted: str, absent: Suspect, case: Case, *, is_looked_for: bool) -> tuple[str, float, str, list[Present]] | None:
    """The same where no cuDNN is seen: what the message, and who prints it, make likely."""
    printed_by = {one.symptom.id for one in absent.matches}
    if "hosted-notebook" in case.features and wanted:
        text = f"(cuDNN {wanted}) is needed; hosted notebooks come with cuDNN, so the installed one is of another major version"
        return "cudnn_major_mismatch", 2, text, []
    if lib.startswith(_OPENED_BY_GRAPH):
        text = "is needed but not found, although libcudnn_graph, which opens it, was: the directory of this cuDNN is not searched"
        return "lib_not_on_path", 4, text, []
    if "loader-cudnn-9-parts" in printed_by and not is_looked_for and not lib.startswith(_OPENED_FIRST):
        text = "and the other parts of cuDNN 9 are not found: the loader does not search their directory, or an older cuDNN is installed"
        return "lib_not_on_path", 2, text, []
    if "torch7-cudnn" in printed_by:
        text = f"is needed but not found: these Torch 7 bindings work with cuDNN {wanted} only, and a newer one is usually installed"
        return "cudnn_major_mismatch", 2, text, []
    if not wanted and "gpu-seen" in case.features:
        text = "(no version in its name) is not found although CUDA works: only versioned files are there, or none where the loader looks"
        return "lib_not_on_path", 3, text, []
    return None


def _unversioned(case: Case) -> tuple[str, float, str, list[Present]] | None:
    """The same for libcudnn.so, a name that any major may have, by the copies that the log shows or the facts know."""
    built = {one.cudnn.major for one in case.context.builds if one.cudnn is not None}
    copies = [(one, place) for one in case.context.cudnn if (place := one.path or _shown_at(one.match))]
    fit, place = next(((one, place) for one, place in copies if not built or one.major in built), (None, ""))
    if fit is not None:
        is_found = case.facts is not None and is_searched(place, case.facts)
        where = "without a link of that name" if is_found else "where the loader does not look"
        text = f"(no version in its name) is needed; cuDNN {fit.version or fit.major} is in {place}, {where}"
        return "lib_not_on_path", 6, text, [fit]
    if copies:
        wanted, (found, place) = " or ".join(map(str, sorted(built))), copies[0]
        text = f"(cuDNN {wanted}) is needed, but cuDNN {found.version or found.major} is in {place}"
        return "cudnn_major_mismatch", 8, text, [found]
    return None


def _shown_at(match: Match | None) -> str:
    """The directory in which a line of the log shows a file."""
    return match.fields.get("where", "").rstrip("/") if match is not None else ""


def _name(brought: Mapping[int, str], majors: Iterable[int]) -> str:
    """The package that brings a cuDNN of these majors, as it is called."""
    name = next(brought[one] for one in majors if one in brought)
    return "PyTorch" if name == "torch" else name


def _part_provider(found: Suspects, case: Case) -> Suspects:
    """ONNX Runtime's CUDA provider, which does not load, beside a cuDNN of another major version than it was built with."""
    base = max((found[one] for one in ("cuda_runtime_missing", "cudnn_missing") if one in found), key=lambda one: one.weight, default=None)
    if base is None or any(missing(base.matches)) or not any(_PROVIDER in one.text for one in base.matches):
        return found
    own = [build_of("onnxruntime-gpu", version, case.book) for name, version in case.context.frameworks if name.startswith(_PROVIDER)]
    others = [one for one in case.context.builds if one.package not in _BARE and not one.package.startswith(_PROVIDER)]
    needed = {one.cudnn.major for one in own if one is not None and one.cudnn is not None}
    there = {one.major for one in case.context.cudnn} | {one.cudnn.major for one in others if one.cudnn is not None}
    if not needed or not there or needed & there:
        return found
    text = f"ONNX Runtime's CUDA provider needs cuDNN {max(needed)}, but cuDNN {max(there)} is installed"
    return _strengthened({cause: one for cause, one in found.items() if one is not base}, "cudnn_major_mismatch", base, 10, text)


def _part_shadowing(found: Suspects, case: Case) -> Suspects:
    """A cuDNN too old although the log shows a newer one: the older copy is found first."""
    old = found.get("cudnn_too_old_for_framework")
    told = [one for one in old.matches if all(isinstance(one.fields.get(name), CudnnVersion) for name in ("built", "found"))] if old else []
    match = next(iter(told), None)
    if old is None or match is None or old.weight < FINDING:
        return found
    built, loaded = match.fields["built"], match.fields["found"]
    for one in case.context.cudnn:
        if one.version is not None and one.version.serves(built) and one.version > loaded:
            text = f"cuDNN {loaded} is loaded although {one.version} is installed, which would serve: the older copy is found first"
            return _strengthened(found, "ld_path_shadowing", old, 4, text, [one.match])
    return found


def _part_runtime(found: Suspects, _: Case) -> Suspects:
    """CUDA libraries missing besides cuDNN: the whole of CUDA is not there, and cuDNN is only part of it."""
    runtime, cudnn = found.get("cuda_runtime_missing"), found.get("cudnn_missing")
    if runtime and cudnn and runtime.weight < 98 and any(isinstance(one.fields.get("lib"), Library) for one in runtime.matches):
        found["cuda_runtime_missing"] = replace(runtime, weight=min(max(runtime.weight, cudnn.weight) + 8, 98))
    return found


def _part_listed(found: Suspects, case: Case) -> Suspects:
    """Libraries of CUDA or of the driver that are not found although the log shows such a file, or the wheel that brings it."""
    for cause in ("cuda_runtime_missing", "driver_incomplete", "driver_not_loaded"):
        lacking = found.get(cause)
        listed = None if lacking is None else _listed(lacking, case)
        if lacking is not None and listed is not None:
            library, place, match = listed
            text = f"{library.file} is needed but not found, although the log shows it{place}: the loader does not look there"
            return _strengthened(found, "lib_not_on_path", lacking, 6, text, [match])
    return found


def _listed(lacking: Suspect, case: Case) -> tuple[Library, str, Match] | None:
    """A library that is missing, where the log shows it, and the line that does."""
    wanted = list(dict.fromkeys(missing(lacking.matches)))
    lines = {one.line for one in lacking.matches}
    shown = {one.file for match in case.matches for one in wanted if match.line not in lines and _shown_in(match, one, case) is not None}
    # Beside a file that is nowhere, one of a mere name that is there is not what the program ended for.
    is_nowhere = any(one.version is not None and one.file not in shown for one in wanted)
    for match in case.matches if shown else ():
        for library in wanted:
            place = _shown_in(match, library, case) if match.line not in lines else None
            if place is not None and (library.version is not None or not is_nowhere):
                return library, place, match
    return None


def _shown_in(match: Match, library: Library, case: Case) -> str | None:
    """Where a line of a log shows a library of CUDA, in words; None where it does not."""
    shown = match.fields.get("present")
    if match.symptom.id in ("context-cuda-listed", "context-cuda-names") and isinstance(shown, Library):
        if shown.file != library.file and not shown.file.startswith(f"{library.file}."):
            return None
        if "place" in match.fields:
            place = str(match.fields["place"])
            is_of_no_use = (
                re.search(_OF_NO_USE, f"{place}/") or is_compat(place) or (library.family not in ("cuda", "cudnn") and is_default(place))
            )
            return None if is_of_no_use or re.search(_NOT_THERE, match.text) else f" in {place}"
        return "" if is_listing(match.text, shown, is_asked=FILES_LISTED in case.features) else None
    if match.symptom.id == "context-cuda-wheel" and not library.windows and not re.search(_ASKED, match.text):
        package = match.fields["cudapackage"].lower().replace("_", "-")
        row = case.book.component(package)
        if row is not None and row.library.lower() == wheel_component(library) and carries(library, row.cuda_major, case.book):
            return f" in the wheel {package} {match.fields['cudawheelversion']}"
    if match.symptom.id == "context-cuda-conda" and library.family == "cuda" and not re.search(_ASKED, match.text):
        version = match.fields["condaversion"]
        return f" in the conda package cudatoolkit {version}" if version.major in majors_of(library, case.book) else None
    return None


def _part_companion(found: Suspects, case: Case) -> Suspects:
    """CUDA libraries that a package beside PyTorch does not find, where PyTorch itself was loaded: it was built for another PyTorch."""
    runtime = found.get("cuda_runtime_missing")
    wanted = list(missing(runtime.matches)) if runtime else []
    companion = next((one for one in case.frames if str(one.fields.get("frame")) in _COMPANIONS), None)
    if runtime and wanted and companion and not any("torch/__init__.py" in one.text.replace("\\", "/") for one in case.frames):
        text = f"{companion.fields['frame']} wants {wanted[0].file}, although PyTorch itself was loaded: it is a build for another CUDA"
        return _strengthened(found, "framework_pkg_mismatch", runtime, 4, text, [companion])
    return found


def _part_on_disk(found: Suspects, case: Case) -> Suspects:
    """CUDA libraries that are not found although the facts know where each of them is."""
    runtime = found.get("cuda_runtime_missing")
    libraries = list(dict.fromkeys(missing(runtime.matches))) if runtime else []
    places = [place_of(one, case.facts, case.book) for one in libraries]
    symbol = next((one.fields["symbol"] for one in runtime.matches if "symbol" in one.fields), None) if runtime else None
    if runtime and symbol is not None:  # it was found, in another copy than that of the wheel
        text = f"{symbol} is not in the {libraries[0].file} that is found, but another one is in {places[0]}" if libraries else ""
        return _strengthened(found, "ld_path_shadowing", runtime, 9, text) if any("/nvidia/" in (one or "") for one in places) else found
    if runtime and places and all(places):
        text = (
            f"{libraries[0].file} is needed but not found, although what is installed has it in {places[0]}: "
            "the loader does not search that directory"
        )
        return _strengthened(found, "lib_not_on_path", runtime, 9, text)
    return found


def _part_linked(found: Suspects, case: Case) -> Suspects:
    """A library that JAX cannot load: for want of a linker as new as it, but of the library itself where nothing here brings that."""
    mix, facts = found.get("nvjitlink_mix"), case.facts
    match = next((one for one in mix.matches if "component" in one.fields), None) if mix else None
    pip = or_none(facts.packages.pip) if facts is not None else None
    if mix is None or match is None or facts is None or pip is None or or_none(facts.loader) is None:
        return found
    component = match.fields["component"]
    brought = {row.library.lower() for name in pip if (row := case.book.component(name)) is not None}
    if component.lower() in brought or or_none(facts.cuda_toolkits) != () or (or_none(facts.loader) or Loader()).ld_library_path:
        return found
    text = f"JAX cannot load {component}, and neither a wheel nor a toolkit that brings it is installed"
    return _strengthened({name: one for name, one in found.items() if one is not mix}, "cuda_runtime_missing", mix, 9, text)


def _part_driver(found: Suspects, case: Case) -> Suspects:
    """NVML, or the facts, tell that library and module are of two versions: what CUDA says of compatibility follows from that."""
    mismatch, compat = found.get("driver_library_mismatch"), found.get("forward_compat_hw")
    driver = or_none(case.facts.driver) if case.facts is not None else None
    if compat and driver is not None and driver.version and driver.kernel_module and driver.version != driver.kernel_module:
        text = f"the driver's libraries are {driver.version} and the kernel module that is loaded is {driver.kernel_module}"
        found = _strengthened(found, "driver_library_mismatch", compat, 3, text)
        del found["forward_compat_hw"]
    elif mismatch and compat and any(one.symptom.id in _OF_NVML for one in mismatch.matches):
        matches = tuple(dict.fromkeys((*mismatch.matches, *compat.matches)))
        found["driver_library_mismatch"] = replace(mismatch, weight=98, matches=matches)
        del found["forward_compat_hw"]
    elif mismatch and driver is not None and driver.version and driver.version == driver.kernel_module:
        loader = or_none(case.facts.loader) if case.facts is not None else None
        searched = (*loader.ld_library_path, *loader.ldconfig) if loader is not None else ()
        place = next((one for one in searched if is_compat(one)), None)
        if place is not None and not any(one.symptom.id in _OF_NVML for one in mismatch.matches):
            told = "the linker cache" if place.rpartition("/")[2].startswith("lib") and ".so" in place else "LD_LIBRARY_PATH"
            text = f"the driver {driver.version} fits its module, and by {told} libcuda is looked for in {place} before that"
            found = _strengthened(found, "ld_path_shadowing", mismatch, 0, text)
            del found["driver_library_mismatch"]
    return found


def _part_setting(found: Suspects, case: Case) -> Suspects:
    """Decide by where the program runs why it sees no GPU: in a container, in a hosted notebook, or on Windows."""
    told, in_container = found.get("container_gpu_not_passed"), not case.features & _GPU_IN_CONTAINER
    if told is not None and in_container and "container-start" in case.features:
        found["container_gpu_not_passed"] = replace(told, weight=max(told.weight, _STARTED), summary=told.summary or _NOT_ASKED)
        return found
    seen = [found[cause] for cause in ("driver_not_loaded", "cpu_only_build") if cause in found]
    unseen = max((one for one in seen if _is_vague(one)), key=lambda one: one.weight, default=None)
    if unseen is None or told is not None or any(one.weight > unseen.weight for one in found.values()):
        return found
    setting = _setting(unseen, case, in_container=in_container)
    if setting is None:
        return found
    cause, text = setting
    return _strengthened(found, cause, replace(unseen, weight=max(unseen.weight, _GENERAL)), 12, text)


def _is_vague(unseen: Suspect) -> bool:
    """True if no symptom says why there is no GPU."""
    weight = unseen.matches[0].symptom.weight
    return weight <= _GENERAL if unseen.cause == "driver_not_loaded" else weight < _GENERAL


def _setting(unseen: Suspect, case: Case, *, in_container: bool) -> tuple[str, str] | None:
    """Return the cause that the setting of a program makes likely, and the sentence for it."""
    features = case.features
    if in_container and "container-start" in features:
        return "container_gpu_not_passed", _NOT_ASKED
    if "hosted-notebook" in features and "gpu-seen" not in features:
        return "no_gpu_runtime", "this hosted notebook runs without a GPU"
    is_framework = bool(case.frames) or any(re.search(_PYTHON_FRAMEWORK, one.text) for one in unseen.matches)
    if "windows" in features and "wsl" not in features:
        if is_framework and all(one.symptom.last for one in unseen.matches):
            return "cpu_only_build", "the framework sees no GPU: on Windows, pip installs builds without CUDA unless told otherwise"
        return None
    if in_container and features & {"docker", "composed"}:
        return "container_gpu_not_passed", "the program runs in a container that was started without access to the GPU"
    return None


def _part_too_old(found: Suspects, case: Case) -> Suspects:
    """A framework that sees no CUDA, in a log which shows the driver too: that driver may be older than the build needs."""
    unseen = next((found[one] for one in ("driver_not_loaded", "cpu_only_build") if one in found and _is_vague(found[one])), None)
    told = next((one for one in case.matches if one.symptom.id in _DRIVER_TOLD and (_NAMES_OF_DRIVER & one.fields.keys())), None)
    named = [CudaVersion(text) for one in case.matches for name in ("toolkit", "told") if "." in (text := str(one.fields.get(name, "")))]
    cuda = max([*named, *(one.cuda for one in case.context.builds if one.cuda is not None)], default=None)
    if unseen is None or told is None or cuda is None:
        return found
    driver = next(told.fields[name] for name in sorted(_NAMES_OF_DRIVER) if name in told.fields)
    least = case.book.floor(cuda.major) or case.book.toolkit_driver(cuda)
    if least is not None and driver < least:
        text = f"the program uses CUDA {cuda}, which needs driver {least} or newer, but the driver is {driver}"
        return _strengthened(found, "driver_too_old", unseen, 24, text, [told])
    return found


def _part_ggml(found: Suspects, _: Case) -> Suspects:
    """A GPU that llama.cpp has no code for, by the whole list of what it was compiled for: older than that, newer, or between."""
    new = found.get("gpu_arch_too_new_for_build")
    match = next((one for one in new.matches if one.symptom.id == "ggml-arch"), None) if new else None
    if new is None or match is None:
        return found
    arch, compiled = match.fields["arch"], match.fields["compiled"].strip(",")
    built = [int(one) for one in compiled.split(",") if one]
    if arch > max(built):
        return found
    if built == [arch] and arch < _LEAST_OF_GGML:
        text = f"llama.cpp was compiled for {compiled} alone, which nvcc takes where it is told nothing: its kernels want newer code"
        found["gpu_arch_too_new_for_build"] = replace(new, summary=text)
        return found
    text = (
        f"llama.cpp was compiled for {compiled}, and the GPU is {arch}, which is older"
        if arch < min(built)
        else f"llama.cpp was compiled for {compiled}, and nothing of that serves the GPU, which is {arch}: compile it for that one, too"
    )
    found = _strengthened(found, "gpu_arch_too_old_for_build", new, 0, text, [match])
    if all(one.symptom.id == "ggml-arch" for one in new.matches):
        del found["gpu_arch_too_new_for_build"]
    return found


def _part_loaded(found: Suspects, case: Case) -> Suspects:
    """The loader's own list: parts of one cuDNN that come from two directories."""
    places: dict[int | None, dict[str, dict[str, Match]]] = {}
    for match in case.matches:
        if match.symptom.id == "context-cudnn-loaded":
            library = match.fields["loadedlib"]
            places.setdefault(library.major, {}).setdefault(match.fields["loaded"], {})[library.stem] = match
    for major, directories in places.items():
        stems = [stem for parts in directories.values() for stem in parts]
        # A part that is loaded from both is a second whole copy, which another package may bring for itself.
        if len(directories) > 1 and len(stems) == len(set(stems)):
            fewest = min(directories, key=lambda one: len(directories[one]))
            part = next(iter(directories[fewest].values()))
            name = f"cuDNN {major}" if major is not None else "cuDNN"
            file = part.fields["loadedlib"].file
            text = f"{file} comes from {fewest}, the other parts of {name} from elsewhere: they are of two installations"
            matches = (part, *(match for parts in directories.values() for match in parts.values()))
            base = Suspect(cause="cudnn_sublibrary_mix", weight=86, matches=matches)
            found = _strengthened(found, "cudnn_sublibrary_mix", base, 0, text)
    return found


def _part_outdated(found: Suspects, case: Case) -> Suspects:
    """A library that JAX calls too old although its wheel is new enough: an older copy is found first."""
    old = found.get("cuda_runtime_missing")
    match = next((one for one in old.matches if one.symptom.id == "jax-cuda-older-than-built"), None) if old else None
    if old is None or match is None:
        return found
    component, built = match.fields["component"], match.fields["built"]
    loaded, wanted = (_told(component, match.fields[name]) for name in ("found", "built"))
    if old.matches[0] is match:
        said = f"{component} {loaded} is loaded, and JAX was built against {wanted}, which is newer"
        found["cuda_runtime_missing"] = replace(old, summary=said)
    for one in case.matches if component != _UNDATED else ():
        if one.symptom.id == "context-cuda-wheel" and _wheel_of(one.fields["cudawheel"]) == component.lower():
            version = str(one.fields["cudawheelversion"])
            if tuple(map(int, re.findall(r"\d{1,9}", version)[:3])) >= _release(component, built):
                text = f"{component} {loaded} is loaded although its wheel {version} is installed, which would serve"
                return _strengthened(found, "ld_path_shadowing", old, 12, f"{text}: an older copy is found first", [one])
    return found


def _wheel_of(package: str) -> str:
    """The component that a wheel is named after."""
    name = package.lower().replace("_", "-")
    return {"cuda-cupti": "cupti", "cuda-runtime": "cuda"}.get(name, name)


def _told(component: str, encoded: int) -> str:
    """A release as it is written, for what a library says of itself with one number."""
    if component == _UNDATED:
        return f"(number {encoded} of its interface)"
    release = _release(component, encoded)
    return ".".join(map(str, release[:2] if component == "CUDA" else release))


def _release(component: str, encoded: int) -> tuple[int, int, int]:
    if component == "CUDA":
        return encoded // 1000, encoded % 1000 // 10, 0
    unit = 1000 if component in _SHORT else 10_000
    return encoded // unit, encoded % unit // 100, encoded % 100


_STEPS: tuple[Callable[[Suspects, Case], Suspects], ...] = (
    _part_cudnn,
    _part_provider,
    _part_shadowing,
    _part_runtime,
    _part_listed,
    _part_companion,
    _part_on_disk,
    _part_linked,
    _part_driver,
    _part_setting,
    _part_too_old,
    part_kernel_image,
    _part_ggml,
    _part_loaded,
    _part_outdated,
    part_pip,
    part_wheel,
    part_of_others,
)
