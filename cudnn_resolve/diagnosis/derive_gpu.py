"""Refine suspected causes about driver and GPU: which driver part is wrong, why no GPU is visible, GPU newer or older than the build."""

from __future__ import annotations

import re

from msgspec.structs import replace

from cudnn_resolve.diagnosis.log_stack import compilers, driver_of
from cudnn_resolve.diagnosis.model import Case, Match, Suspect, Suspects, of_symptom, values_of
from cudnn_resolve.facts.driver_output import is_compat
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.matrix.row import Architecture
from cudnn_resolve.matrix.symptom import Clue
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion

_REPORTS_OF_DRIVER = ("context-driver-collected", "context-smi-table", "context-driver-seen")
"""Symptoms that show the driver's version, in one of the fields `_DRIVER_FIELDS`."""
_DRIVER_FIELDS = ("driver", "driver2", "driver3", "doubted")
_DROP_OLD = r"(?i)onnxruntime|ctranslate2|ggml|llama|catboost|xgboost|lightgbm|rapids|cudf|cuml"
"""Programs that most people install as a package, whose new releases have dropped old GPUs."""
_LEAST_OF_GGML = 610
"""Code for older GPUs lacks instructions that kernels of llama.cpp use."""
_BY_AGE = ("gpu_arch_too_old_for_build", "gpu_arch_too_new_for_build")
_COMPARED = ("context-nvcc", "context-torch-cuda")
"""Symptoms that show the CUDA of a compiler, and that of PyTorch."""
_REFUSED = re.compile(r"Unsupported gpu architecture '(?:compute|sm)_(\d{1,2})(\d)")
_OPEN = 66
"""Weight up to which it is open whether a GPU is newer or older than the build."""
_SURE = 90
"""Weight of a cause that the build and the GPU in the log leave no doubt about."""
_PROVEN = 96
"""Weight of a container that has no libcuda: what else it lacks is of no use before it has a GPU."""
_ABSENT = ("container_gpu_not_passed", "driver_not_loaded", "driver_too_old", "driver_wedged", "gpu_hidden_by_env", "cpu_only_build")
IS_STUB, IS_UNSEEN = "is the toolkit's stub for linking", ", where the loader does not look"
"""The probe's wording for a libcuda that no program can use, or find."""
_LAST_DROPPED = Capability(7, 5)
"""Capability below which new builds have dropped GPUs."""
_GENERAL = 60
"""Symptoms up to this weight do not say why no GPU is visible."""
_NO_DEVICE = r"CUDA_ERROR_NO_DEVICE|no CUDA-capable device|No CUDA GPUs are available"
"""CUDA's answer that it has no device, which needs a driver at work."""
_STARTED = 88
"""Weight of a container without a GPU if the log shows the command that started it."""
_NOT_GIVEN = {
    "docker-build": "the steps of docker build have no GPU, and this one wants it",
    "container-start": "the program sees no GPU, and the command that started its container does not request one",
}
"""Features that show why a container has no GPU, and the sentences for them."""
_DRIVER_VERSION = r"[1-9]\d{2}\.\d{1,3}(?:\.\d{1,3})?"
_CODE_35 = r"(?i)insufficient for CUDA runtime version|cudaErrorInsufficientDriver|\b35\b"
"""Wording of a program that calls the driver too old, or does not see it, without saying which."""
_NO_GPU_HERE = "so that it is not the driver: the program's container or pod got no GPU, or another libcuda is found first"
_OTHER_DRIVERS = frozenset({"windows", "wsl", "hosted-notebook", "jetson"})
"""Places where driver versions differ, or where there is no container to start again."""
_CONTAINED = frozenset({"docker", "composed", "container-start", "docker-build", "hosted-notebook", "compat-first"})
"""With any of these features the loader may find a compat libcuda."""
_ENGINES = r"docker|containerd|podman|kube|conmon|[0-9a-f]{12}\["
"""Starts of the names under which a journal has the output of containers; Docker's own is the container's id."""
_OF_SERVICE = re.compile(rf"[A-Z][a-z]{{2}} [ \d]?\d [\d:]{{8}} [\w.-]{{1,60}} (?!{_ENGINES})[\w.@-]{{1,60}}\[\d{{1,8}}\]: ")
"""Prefix of a line in the journal of a machine that one of its own services wrote."""
_PYTHON_FRAMEWORK = r"(?i)\b(?:torch|tensorflow|tf\.|keras|jax|onnxruntime|paddle)"
_GPU_IN_CONTAINER = frozenset({"docker-gpus", "gpu-seen", "cpu-machine", "smi-table", "visible-devices-set"})
"""With any of these features the container has a GPU, or is not meant to have one."""


def compare_driver_parts(found: Suspects, case: Case) -> None:
    """NVML or the facts show different versions of driver libraries and module: CUDA's compatibility error follows from that."""
    mismatch, compat = found["driver_library_mismatch"], found["forward_compat_hw"]
    driver = or_none(case.known.driver)
    if compat.matches and driver is not None and driver.version and driver.kernel_module and driver.version != driver.kernel_module:
        text = f"the driver libraries are version {driver.version}, but the loaded kernel module is {driver.kernel_module}"
        found.supersede(compat, "driver_library_mismatch", 3, text)
    elif compat.matches and any(match.symptom.id == "nvml-mismatch" or _is_one_branch(match) for match in mismatch.matches):
        matches = tuple(dict.fromkeys((*mismatch.matches, *compat.matches)))
        found["driver_library_mismatch"] = replace(mismatch, weight=98, matches=matches)
        del found["forward_compat_hw"]
    elif mismatch.matches and driver is not None and driver.version and driver.version == driver.kernel_module:
        loader = or_none(case.known.loader)
        searched = (*loader.ld_library_path, *loader.ldconfig) if loader is not None else ()
        place = next((path for path in searched if is_compat(path)), None)
        if place is not None and not any(of_symptom(mismatch.matches, "nvml-mismatch")):
            is_cached = place.rpartition("/")[2].startswith("lib") and ".so" in place
            setting = "the linker cache" if is_cached else "LD_LIBRARY_PATH"
            text = f"driver {driver.version} matches its kernel module, but {setting} makes the loader take libcuda from {place} first"
            found.supersede(mismatch, "ld_path_shadowing", 0, text)
    elif compat.matches and driver is None and _is_on_host(compat, case):
        text = "error 804 outside a container: most often the driver was updated, and the old kernel module runs until a reboot"
        found.supersede(replace(compat, weight=_OPEN), "driver_library_mismatch", 12, text)


def _is_on_host(suspect: Suspect, case: Case) -> bool:
    """True if the program that fails runs on the machine itself, by its service's journal or its user's prompt."""
    is_service = any(_OF_SERVICE.match(match.text) for match in suspect.matches)
    return not case.features & _CONTAINED and (is_service or any(of_symptom(case.matches, "context-host-prompt")))


def _is_one_branch(match: Match) -> bool:
    """True if libcuda and the kernel module are of one branch: a compat libcuda is of a newer one than the driver."""
    kernel, library = match.fields.get("kernel"), match.fields.get("dso")
    return isinstance(kernel, DriverVersion) and isinstance(library, DriverVersion) and kernel.major == library.major


def compare_listed_driver(found: Suspects, case: Case) -> None:
    """The log shows the loaded kernel module, and driver libraries of another version only: NVML and CUDA fail for that reason."""
    module = next((match for match in case.matches if "driver2" in match.fields and "Kernel Module" in match.text), None)
    unseen = next((found[cause] for cause in (*_ABSENT, "forward_compat_hw") if cause in found), None)
    if module is None or unseen is None:
        return
    listed = {
        DriverVersion(match.fields["present"].version): match
        for match in of_symptom(case.matches, "context-cuda-listed", "context-cuda-names")
        if not is_compat(str(match.fields.get("place", "")))
        if match.fields["present"].family == "driver" and re.fullmatch(_DRIVER_VERSION, match.fields["present"].version or "")
    }
    loaded = module.fields["driver2"]
    if not listed or loaded in listed:
        return
    library, match = next(iter(listed.items()))
    text = f"the driver's libraries are version {library}, but the loaded kernel module is {loaded}, as after an upgrade without a reboot"
    base = replace(unseen, weight=max(unseen.weight, _OPEN))
    found.supersede(base, "driver_library_mismatch", 20, text, [module, match])


def consider_setting(found: Suspects, case: Case) -> None:
    """Decide by where the program runs why it sees no GPU: in a container, in a hosted notebook, or on Windows."""
    not_passed, in_container = found["container_gpu_not_passed"], not case.features & _GPU_IN_CONTAINER
    not_given = next((text for feature, text in _NOT_GIVEN.items() if feature in case.features), None) if in_container else None
    if not_passed.matches and not_given is not None:
        weight = max(not_passed.weight, _STARTED)
        found["container_gpu_not_passed"] = replace(not_passed, weight=weight, summary=not_passed.summary or not_given)
        return
    seen = [found[cause] for cause in ("driver_not_loaded", "cpu_only_build") if cause in found]
    unseen = max((suspect for suspect in seen if _is_vague(suspect)), key=lambda suspect: suspect.weight, default=None)
    if unseen is None or not_passed.matches or any(suspect.weight > unseen.weight for suspect in found.values()):
        return
    setting = ("container_gpu_not_passed", not_given) if not_given else _setting(unseen, case, in_container=in_container)
    if setting is not None:
        cause, text = setting
        more = _SURE - _GENERAL if "docker-build" in case.features and cause == "container_gpu_not_passed" else 12
        found.add(cause, replace(unseen, weight=max(unseen.weight, _GENERAL)), more, text)


def _is_vague(unseen: Suspect) -> bool:
    """True if no symptom says why there is no GPU."""
    weight = unseen.matches[0].symptom.weight
    return weight <= _GENERAL if unseen.cause == "driver_not_loaded" else weight < _GENERAL


def _setting(unseen: Suspect, case: Case, *, in_container: bool) -> tuple[str, str] | None:
    """Return the cause that the setting of a program makes likely, and the sentence for it."""
    features = case.features
    if "hosted-notebook" in features and "gpu-seen" not in features:
        return "no_gpu_runtime", "this hosted notebook runs without a GPU"
    is_framework = bool(case.frames) or any(re.search(_PYTHON_FRAMEWORK, match.text) for match in unseen.matches)
    if "windows" in features and "wsl" not in features:
        if is_framework and all(match.symptom.last for match in unseen.matches):
            return "cpu_only_build", "the framework sees no GPU: on Windows, pip installs builds without CUDA unless told otherwise"
        return None
    if in_container and features & {"docker", "composed"}:
        return "container_gpu_not_passed", "the program runs in a container that was started without access to the GPU"
    return None


def doubt_cpu_build(found: Suspects, case: Case) -> None:
    """A framework is called a CPU build that the facts have with CUDA: what they say of the driver may explain why it sees no GPU."""
    cpu = found["cpu_only_build"]
    named = {match.symptom.framework for match in cpu.matches} - {None}
    builds = [each for each in or_none(case.known.frameworks) or () if case.book.framework_of(each.name) in named]
    if builds and all(each.cuda_built for each in builds):
        found["cpu_only_build"] = replace(cpu, weight=min(cpu.weight, _GENERAL))


def compare_reported_driver(found: Suspects, case: Case) -> None:
    """A framework that sees no GPU, or whose cuDNN does not start, in a log that shows the driver: it may be older than CUDA needs."""
    vague = (found[cause] for cause in ("driver_not_loaded", "cpu_only_build") if cause in found and _is_vague(found[cause]))
    doubted = next((match for match in case.matches if "doubted" in match.fields), None)
    unseen = next(vague, found.get("out_of_memory") if doubted else None)
    reported = next((match for match in of_symptom(case.matches, *_REPORTS_OF_DRIVER) if _driver_in(match) is not None), doubted)
    fields = (str(match.fields.get(name, "")) for match in case.matches for name in ("toolkit", "told"))
    named = [CudaVersion(text) for text in fields if "." in text]
    cuda = max([*named, *(build.cuda for build in case.context.builds if build.cuda is not None)], default=None)
    if unseen is None or reported is None or cuda is None:
        return
    driver = _driver_in(reported)
    least = case.book.floor(cuda.major) or case.book.toolkit_driver(cuda)
    if least is not None and driver is not None and driver < least:
        text = f"the program uses CUDA {cuda}, which needs driver {least} or newer; driver {driver} is installed"
        found.add("driver_too_old", unseen, 24, text, [reported])


def compare_driver_with_builds(found: Suspects, case: Case) -> None:
    """A program calls the driver too old that is new enough for its builds according to facts or log: its container got no GPU."""
    old, facts = found["driver_too_old"], case.facts
    driver = or_none(case.known.driver)
    version = DriverVersion(driver.version) if driver is not None and driver.version else driver_of(case) if facts is None else None
    cudas = [build.cuda for build in case.context.builds if build.cuda is not None]
    if not old.matches or version is None or (facts is not None and not _is_container_without_driver(case)):
        return
    if facts is None:
        if case.features & _OTHER_DRIVERS or not all(re.search(_CODE_35, match.text) for match in old.matches):
            return
        cudas = cudas or _newest_cudas(old, case)
    least = [case.book.floor(cuda.major) or case.book.toolkit_driver(cuda) for cuda in cudas]
    if cudas and all(one is not None and version >= one for one in least):
        why = "but this container has no libcuda: it was started without the GPU" if facts is not None else _NO_GPU_HERE
        text = f"driver {version} is new enough for these packages, {why}"
        found.supersede(old, "container_gpu_not_passed", 4, text)


def _newest_cudas(old: Suspect, case: Case) -> list[CudaVersion]:
    """The newest CUDA of each framework that the messages name."""
    words = (clue.values.items() for clue in case.book.rows(Clue) if clue.tells == "framework" and not clue.field and not clue.symptoms)
    known = [pair for pairs in words for pair in pairs]
    named = {value for match in old.matches for word, value in known if word in match.text.casefold()}
    rows = [case.book.framework(name).builds for value in named if (name := case.book.framework_of(value))]
    return [max(build.cuda for build in builds if build.cuda is not None) for builds in rows if any(build.cuda for build in builds)]


def find_hidden_gpu(found: Suspects, case: Case) -> None:
    """A program sees no GPU where the facts have a working one: it hides the GPU itself, since the environment does not."""
    unseen, facts = found["driver_not_loaded"], case.facts
    if facts is None or not unseen.matches or "driver-seen" not in case.features:
        return
    if not all(re.search(_NO_DEVICE, match.text) for match in unseen.matches):
        return
    is_refused = any(problem.what in ("cuInit", "NVML") for problem in facts.problems)
    if not is_refused and not all(gpu.hidden for gpu in or_none(facts.gpus) or ()):
        text = "this machine has a working GPU, but the program sees none: it sets CUDA_VISIBLE_DEVICES itself, or was started with it"
        found.supersede(unseen, "gpu_hidden_by_env", 4, text)


def confirm_missing_driver(found: Suspects, case: Case) -> None:
    """Where the facts have no libcuda, a container or notebook got no GPU, and another machine has no driver that could be too old.

    A stub of libcuda answers as if there were no GPU, or an old driver.
    """
    cause, text, names = _place_without_driver(case)
    absent = [found[name] for name in names if name in found]
    if not absent or cause == absent[0].cause == "driver_not_loaded":
        return
    text = (absent[0].summary if absent[0].cause == cause else None) or text
    for suspect in absent:
        del found[suspect.cause]
    found[cause] = replace(absent[0], cause=cause, weight=max(absent[0].weight, _PROVEN), summary=text)


def _place_without_driver(case: Case) -> tuple[str, str, tuple[str, ...]]:
    """Cause and wording of a driver that is missing according to the facts, and the causes that it replaces, if any."""
    driver = or_none(case.known.driver)
    if driver is not None and any(IS_STUB in problem.why for problem in case.known.problems):
        text = "the loader finds the toolkit's stub of libcuda, which is only for linking, before the driver's own"
        return "ld_path_shadowing", text, _ABSENT
    if _is_container_without_driver(case) and (driver is None or driver.cuda is None):
        is_known = driver is not None and driver.version is not None  # it may be too old
        if "jetson" in case.features and case.known.cuda_toolkits == ():
            text = "this container has neither libcuda nor CUDA, those of a Jetson: it has no NVIDIA runtime"
            return "container_gpu_not_passed", text, (*_ABSENT[:3], "cuda_runtime_missing", "cudnn_missing")
        text = "this container has no libcuda: it was started without access to the GPU"
        return "container_gpu_not_passed", text, _ABSENT[: 2 if is_known else 3]
    if case.facts is None or case.facts.container == "docker":
        return "", "", ()
    if "hosted-notebook" in case.features and (case.facts.driver is None or case.facts.gpus == ()):  # some images have a libcuda
        return "no_gpu_runtime", "this notebook's runtime has no GPU", _ABSENT[:3]
    if case.facts.driver is not None or _is_in_sif(case):
        return "", "", ()
    return "driver_not_loaded", "this machine has no NVIDIA driver", _ABSENT[:3]


def _is_container_without_driver(case: Case) -> bool:
    """True for a container that has no libcuda, according to the facts; those of a host without a driver may come with its log."""
    loader = or_none(case.known.loader)
    is_of_host = case.known.container is None and case.known.driver is None
    is_elsewhere = any(IS_UNSEEN in problem.why for problem in case.known.problems)
    if loader is None or is_of_host or is_elsewhere or "docker" not in case.features:
        return False
    return not any(path.rpartition("/")[2].startswith("libcuda.so") for path in loader.ldconfig)


def _is_in_sif(case: Case) -> bool:
    """True inside a Singularity or Apptainer container, whose host may have a driver."""
    loader = or_none(case.known.loader)
    return loader is not None and any(path.startswith("/.singularity.d/") for path in loader.ld_library_path)


def _driver_in(match: Match) -> DriverVersion | None:
    """Return the driver version that a message shows."""
    return next((match.fields[name] for name in _DRIVER_FIELDS if name in match.fields), None)


def decide_gpu_age(found: Suspects, case: Case) -> None:
    """Decide whether an unnamed GPU without code is newer or older: by the build's code, else by the age of PyTorch in its wording.

    The hint at TORCH_USE_CUDA_DSA came with 2.0, AcceleratorError with 2.8. Between them GPUs without code were mostly new (Hopper,
    Blackwell); builds from 2.8 on know those and have dropped old ones. Self-compiled programs have code for the GPUs of their day, so
    that the GPU is usually newer.
    """
    there = [found[cause] for cause in _BY_AGE if cause in found]
    old, new = (found[cause] for cause in _BY_AGE)
    is_either = len(there) == len(_BY_AGE)
    if there and max(old.weight, new.weight) <= _OPEN and "gpu-served" in case.features:
        _blame_extension(found, there[0], case)
    elif is_either and "gpu-older" in case.features and "gpu-newer" not in case.features and new.weight < old.weight:
        del found["gpu_arch_too_new_for_build"]
    elif is_either and max(old.weight, new.weight) <= _OPEN:
        if "build-lacks-new" in case.features:
            found["gpu_arch_too_new_for_build"] = replace(new, weight=old.weight + 6)
        elif "build-drops-old" in case.features:
            found["gpu_arch_too_old_for_build"] = replace(old, weight=max(old.weight, new.weight) + 6)
        elif "torch-2.8" not in case.features and ("torch-2" in case.features or not (_is_of_torch(old, case) or _drops_old(old))):
            found["gpu_arch_too_new_for_build"] = replace(new, weight=old.weight + 3)
    if found.keys() >= set(_BY_AGE) and not case.context.capabilities:  # the first step asks for the GPU, and says what each answer means
        del found[min(_BY_AGE, key=lambda cause: found[cause].weight)]


def compare_compiler(found: Suspects, case: Case) -> None:
    """An nvcc does not know an architecture: the CUDA of PyTorch, if it is another one, does, or both are older than the GPU."""
    shown = {match.symptom.id: match for match in of_symptom(case.matches, *_COMPARED)}
    there = [found[cause] for cause in _BY_AGE if cause in found]
    by_arch = {hit: suspect for suspect in there for match in suspect.matches for hit in _REFUSED.findall(match.text)}
    for (major, minor), suspect in by_arch.items() if len(shown) == len(_COMPARED) else ():
        row, tool, own = case.book.architecture(Capability(int(major), int(minor))), *(shown[name] for name in _COMPARED)
        if row is not None and _compiles(row, own.fields["built"]) and not _compiles(row, tool.fields["nvcc"]):
            text = "nvcc is of CUDA {nvcc}, but PyTorch was built with CUDA {built}, which knows compute capability "
            text = text.format(nvcc=tool.fields["nvcc"].line, built=own.fields["built"].line) + str(row.capability)
            found.supersede(suspect, "toolkit_build_mismatch", 0, text, [tool, own])
            return
    mismatch = found["toolkit_build_mismatch"]
    arch = next(values_of(of_symptom(mismatch.matches, "extension-arch"), "arch"), None)
    nvcc = {nvcc.line for nvcc in compilers(case)}
    built = {build.cuda.line for build in case.context.builds if build.cuda}
    built |= {match.fields["built"].line for name, match in shown.items() if name != "context-nvcc"}
    if arch is not None and len(nvcc) == 1 and nvcc == built:
        text = f"the nvcc of CUDA {nvcc.pop()}, which PyTorch was built with too, does not know {arch}: both are older than the GPU"
        found.supersede(mismatch, "gpu_arch_too_new_for_build", 0, text)


def _compiles(row: Architecture, cuda: CudaVersion) -> bool:
    """True if the nvcc of a CUDA compiles for an architecture."""
    return row.cuda_first.parts[:2] <= cuda.parts[:2] and (row.cuda_last is None or cuda.parts[:2] <= row.cuda_last.parts[:2])


def _blame_extension(found: Suspects, suspect: Suspect, case: Case) -> None:
    """PyTorch has code for the GPU, so that a package beside it has none."""
    gpu = min(case.context.capabilities)
    text = f"PyTorch {case.context.version('torch')} has code for this GPU ({gpu}): a package beside it, whose kernel failed, has none"
    cause = _BY_AGE[gpu >= _LAST_DROPPED]
    for name in _BY_AGE:
        found.pop(name, None)
    found[cause] = replace(suspect, cause=cause, weight=_SURE, summary=text)


def _is_of_torch(suspect: Suspect, case: Case) -> bool:
    """True if PyTorch prints the message, or the log shows PyTorch."""
    words = ("RuntimeError: CUDA error", "AcceleratorError", "torch", "enforce fail at")
    return any(name == "torch" for name, _ in case.context.frameworks) or any(
        word in match.text for match in (*suspect.matches, *case.frames) for word in words
    )


def _drops_old(suspect: Suspect) -> bool:
    return any(re.search(_DROP_OLD, match.text) for match in suspect.matches)


def decide_ggml_age(found: Suspects, _: Case) -> None:
    """Decide whether a GPU is older than, newer than or between the architectures that llama.cpp was compiled for."""
    new = found["gpu_arch_too_new_for_build"]
    match = next(of_symptom(new.matches, "ggml-arch"), None)
    if match is None:
        return
    arch, compiled = match.fields["arch"], match.fields["compiled"].strip(",")
    built = [int(number) for number in compiled.split(",") if number]
    if arch > max(built):
        return
    if built == [arch] and arch < _LEAST_OF_GGML:
        text = f"llama.cpp was compiled for {compiled} only, nvcc's default, but its kernels need code for newer architectures"
        found["gpu_arch_too_new_for_build"] = replace(new, summary=text)
        return
    text = (
        f"llama.cpp was compiled for {compiled}, but the GPU is {arch}, which is older"
        if arch < min(built)
        else f"llama.cpp was compiled for {compiled}, none of which runs on the GPU, {arch}: compile it for {arch} as well"
    )
    found.add("gpu_arch_too_old_for_build", new, 0, text, [match])
    if all(match.symptom.id == "ggml-arch" for match in new.matches):
        del found[new.cause]
