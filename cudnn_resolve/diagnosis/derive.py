"""What follows from several symptoms together: the family of missing libraries parted by what else the log shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.diagnosis.context import NEWEST, OLDEST, Case, Context, Present
from cudnn_resolve.diagnosis.copies import part_loaded, part_outdated
from cudnn_resolve.diagnosis.fitting import part_wheel
from cudnn_resolve.diagnosis.model import Match
from cudnn_resolve.diagnosis.package import part_pip
from cudnn_resolve.diagnosis.place import missing, place_of
from cudnn_resolve.diagnosis.weigh import Suspect
from cudnn_resolve.facts.model import Unknown, or_none
from cudnn_resolve.matrix.library import Library
from cudnn_resolve.version import Capability

if TYPE_CHECKING:
    from cudnn_resolve.facts.model import Facts

_OPENED_BY_GRAPH = ("libcudnn_engines_precompiled.so", "libcudnn_engines_runtime_compiled.so", "libcudnn_heuristic.so")
"""Parts of cuDNN 9 that libcudnn_graph opens once it is loaded itself."""
_OF_NVML = ("nvml-mismatch", "container-cli-mismatch")
_GPU_THERE = frozenset({"gpu-named", "gpu-seen", "gpu-works", "smi-table", "driver-seen", "docker-gpus"})
"""With any of these a GPU is there, or is meant to be."""
Suspects = dict[str, Suspect]


def features_of(matches: Iterable[Match], context: Context, facts: Facts | None = None) -> frozenset[str]:
    """What the log, and the facts where there are any, say of the machine."""
    matches = list(matches)
    features = {one.symptom.feature for one in matches if one.symptom.feature and one.symptom.role == "context"}
    if facts is not None:
        features |= set(_of_facts(facts))
    features |= _gpu_age(context, features, matches)
    if features & _GPU_THERE:
        features.add("gpu-wanted")
    if _is_cpu_machine(matches, features):
        features.add("cpu-machine")
    if "windows" in features and _is_cpu_tensorflow(context):
        features.add("tf-cpu-on-windows")
    if any(name in ("torch", "onnxruntime-gpu", "ctranslate2") for name, _ in context.frameworks):
        features.add("other-framework-works")
    return frozenset(features)


def _of_facts(facts: Facts) -> Iterable[str]:
    if isinstance(facts.container, str):
        yield "hosted-notebook" if facts.container in ("colab", "kaggle") else facts.container
    if facts.platform.system == "windows":
        yield "windows"
    if facts.driver is not None and not isinstance(facts.driver, Unknown):
        yield "driver-seen"
    gpus = or_none(facts.gpus) or ()
    if gpus:
        yield from ("gpu-named", "gpu-seen")
        if all(one.hidden for one in gpus):
            yield "visible-devices-set"
    if facts.driver is None and not gpus:
        yield "no-driver"


def _gpu_age(context: Context, features: set[str], matches: list[Match]) -> set[str]:
    """Whether the GPU is newer or older than the build, as far as both are known; a list that PyTorch prints is the better witness."""
    found = set()
    printed = next((one.fields["targets"] for one in matches if isinstance(one.fields.get("targets"), tuple)), ())
    built = next((one.targets for one in context.builds if one.targets), ())
    targets = printed or built
    for capability in context.capabilities:
        if targets:
            if not any(one.runs_on(capability) for one in targets):
                found.add("gpu-newer" if capability > min(one.capability for one in targets) else "gpu-older")
        elif capability >= NEWEST or ("cuda-10" in features and capability >= Capability(8, 0)):
            found.add("gpu-newer")
        elif capability < OLDEST:
            found.add("gpu-older")
        if capability >= Capability(8, 0):
            found.add("gpu-ampere")
    if context.capabilities or context.cards:
        found.add("gpu-named")
    if not context.capabilities and built:
        # The card is not named: builds for CUDA 12.8 and newer have lost the old ones, builds before do not know the new ones.
        found.add("build-drops-old" if min(one.capability for one in built) >= Capability(7, 0) else "build-lacks-new")
    return found


def _is_cpu_machine(matches: list[Match], features: set[str]) -> bool:
    """True where TensorFlow finds neither a CUDA runtime nor a driver: nothing of the GPU's stack is there."""
    if features & {"gpu-seen", "cuda-opened", "gpu-works", "smi-table", "docker-gpus"}:
        return False
    names = {one.symptom.id for one in matches}
    missing = {one.fields["lib"].stem for one in matches if isinstance(one.fields.get("lib"), Library)}
    no_runtime = "cudart" in missing or "tf-cuda-drivers-not-found" in names
    no_driver = bool({"cuda", "nvcuda"} & missing) or "cuinit-failed-303" in names
    return no_runtime and no_driver and "tf-cannot-dlopen" not in names


def _is_cpu_tensorflow(context: Context) -> bool:
    version = context.version("tensorflow")
    if version is None:
        return False
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    return len(numbers) == 2 and tuple(numbers) >= (2, 11)


def derive(found: Suspects, case: Case) -> Suspects:
    """The suspects with what their fields together say."""
    for step in _STEPS:
        found = step(dict(found), case)
    return found


def _part_cudnn(found: Suspects, case: Case) -> Suspects:
    """Missing, on disk but not searched, or another major: by what else the log shows of cuDNN."""
    absent = found.get("cudnn_missing")
    wanted = {one.fields["lib"].major for one in absent.matches if isinstance(one.fields.get("lib"), Library)} if absent else set()
    if absent is None or not wanted:
        return found
    majors = {one for one in wanted if one is not None}
    same = [one for one in case.context.cudnn if one.major in majors]
    other = [one for one in case.context.cudnn if one.major not in majors]
    brought = {build.cudnn.major for build in case.context.builds if build.cudnn is not None and build.delivery in ("wheel", "bundled")}
    lib = next(one.fields["lib"].file for one in absent.matches if isinstance(one.fields.get("lib"), Library))
    if same and same[0].broken and lib.startswith("libcudnn_"):
        text = (
            f"{lib} is wanted and not found: the cuDNN {same[0].version or same[0].major} in {same[0].path} is not whole: {same[0].broken}"
        )
        found["cudnn_sublibrary_mix"] = _move(absent, "cudnn_sublibrary_mix", 8, text, found, [])
    elif same or (brought & majors and not other):
        shown = f"cuDNN {same[0].version or same[0].major} is {_where(same[0])}" if same else "the wheel of PyTorch brings it along"
        text = f"{lib} is wanted and not found, although {shown}: the loader does not look in its directory"
        found["lib_not_on_path"] = _move(absent, "lib_not_on_path", 6, text, found, [one.match for one in same[:2] if one.match])
    elif other or (brought and majors and not brought & majors):
        seen = other[0].version or other[0].major if other else min(brought)
        text = f"{lib} is wanted, a file of cuDNN {_words(majors)}, and there is cuDNN {seen}, whose files have other names"
        found["cudnn_major_mismatch"] = _move(absent, "cudnn_major_mismatch", 8, text, found, [one.match for one in other[:2] if one.match])
    elif "hosted-notebook" in case.features and majors:
        text = (
            f"{lib} is wanted, a file of cuDNN {_words(majors)}; hosted notebooks come with a cuDNN, so theirs is of another major version"
        )
        found["cudnn_major_mismatch"] = _move(absent, "cudnn_major_mismatch", 2, text, found, [])
    elif lib.startswith(_OPENED_BY_GRAPH):
        text = f"{lib} is wanted and not found, although libcudnn_graph, which opens it, was: the directory of this cuDNN is not searched"
        found["lib_not_on_path"] = _move(absent, "lib_not_on_path", 4, text, found, [])
    elif any(one.symptom.id == "loader-cudnn-9-parts" for one in absent.matches) and not _is_looked_for(case):
        text = (
            f"the parts of cuDNN 9 ({lib} and its other names) are not found: an older cuDNN is installed, or its directory is not searched"
        )
        found["cudnn_major_mismatch"] = _move(absent, "cudnn_major_mismatch", 2, text, found, [])
    elif None in wanted and not majors and "gpu-seen" in case.features:
        text = (
            f"{lib}, the name without a version, is not found although CUDA works: "
            "only names with a version are installed, or the loader does not look there"
        )
        found["lib_not_on_path"] = _move(absent, "lib_not_on_path", 3, text, found, [])
    return found


def _is_looked_for(case: Case) -> bool:
    """True where the facts say which copies of cuDNN there are."""
    return case.facts is not None and not isinstance(case.facts.cudnn, Unknown)


def _where(present: Present) -> str:
    return f"in {present.path}" if present.path else "there"


def _words(majors: Iterable[int]) -> str:
    return " or ".join(map(str, sorted(majors)))


def _move(base: Suspect, cause: str, more: float, summary: str, found: Suspects, shown: list[Match]) -> Suspect:
    """A suspect on the evidence of another, a little stronger than it."""
    before = found[cause].matches if cause in found else ()
    matches = tuple(dict.fromkeys((*base.matches, *shown, *before)))
    return Suspect(cause=cause, weight=min(base.weight + more, 98), matches=matches, summary=summary)


def _part_shadowing(found: Suspects, case: Case) -> Suspects:
    """A cuDNN too old although the log shows a newer one: the older copy is found first."""
    old = found.get("cudnn_too_old_for_framework")
    match = next((one for one in old.matches if "built" in one.fields and "found" in one.fields), None) if old else None
    if old is None or match is None:
        return found
    built, loaded = match.fields["built"], match.fields["found"]
    newer = [one for one in case.context.cudnn if one.version is not None and one.version.serves(built) and one.version > loaded]
    if newer:
        text = f"cuDNN {loaded} is loaded although {newer[0].version} is installed, which would serve: the older copy is found first"
        found["ld_path_shadowing"] = _move(old, "ld_path_shadowing", 4, text, found, [newer[0].match] if newer[0].match else [])
    return found


def _part_on_disk(found: Suspects, case: Case) -> Suspects:
    """CUDA libraries that are not found although the facts know where each of them is."""
    runtime = found.get("cuda_runtime_missing")
    libraries = list(dict.fromkeys(missing(runtime.matches))) if runtime else []
    places = [place_of(one, case.facts, case.book) for one in libraries]
    if runtime and places and all(places):
        text = (
            f"{libraries[0].file} is wanted and not found, although by what is installed it is in {places[0]}: "
            "the loader does not look in that directory"
        )
        found["lib_not_on_path"] = _move(runtime, "lib_not_on_path", 9, text, found, [])
    return found


def _part_driver(found: Suspects, _: Case) -> Suspects:
    """NVML tells that library and module are of two versions, which no compat directory makes: what CUDA says of compatibility follows."""
    mismatch, compat = found.get("driver_library_mismatch"), found.get("forward_compat_hw")
    if mismatch and compat and any(one.symptom.id in _OF_NVML for one in mismatch.matches):
        matches = tuple(dict.fromkeys((*mismatch.matches, *compat.matches)))
        found["driver_library_mismatch"] = replace(mismatch, weight=98, matches=matches)
        del found["forward_compat_hw"]
    return found


def _part_runtime(found: Suspects, _: Case) -> Suspects:
    """CUDA libraries missing besides cuDNN: the whole of CUDA is not there, and cuDNN is only part of it."""
    runtime, cudnn = found.get("cuda_runtime_missing"), found.get("cudnn_missing")
    if runtime and cudnn and runtime.weight < 98 and any(isinstance(one.fields.get("lib"), Library) for one in runtime.matches):
        found["cuda_runtime_missing"] = replace(runtime, weight=min(max(runtime.weight, cudnn.weight) + 8, 98))
    return found


def _part_kernel_image(found: Suspects, case: Case) -> Suspects:
    """No code for a card that the log does not name: by what the build holds, else by the age of PyTorch that its words tell.

    The hint at TORCH_USE_CUDA_DSA came with 2.0, AcceleratorError with 2.8: between them the cards that builds did not know were mostly
    new ones (Hopper, Blackwell), from 2.8 on the usual build knows those and has dropped old ones.
    """
    old, new = found.get("gpu_arch_too_old_for_build"), found.get("gpu_arch_too_new_for_build")
    if old and new and max(old.weight, new.weight) <= 66:
        if "build-lacks-new" in case.features:
            found["gpu_arch_too_new_for_build"] = replace(new, weight=old.weight + 6)
        elif "build-drops-old" in case.features:
            found["gpu_arch_too_old_for_build"] = replace(old, weight=max(old.weight, new.weight) + 6)
        elif "torch-2" in case.features and "torch-2.8" not in case.features:
            found["gpu_arch_too_new_for_build"] = replace(new, weight=old.weight + 3)
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
    text = (
        f"llama.cpp was compiled for {compiled}, and the GPU is {arch}, which is older"
        if arch < min(built)
        else f"llama.cpp was compiled for {compiled}, and nothing of that serves the GPU, which is {arch}: compile it for that one, too"
    )
    found["gpu_arch_too_old_for_build"] = _move(new, "gpu_arch_too_old_for_build", 0, text, found, [match])
    if all(one.symptom.id == "ggml-arch" for one in new.matches):
        del found["gpu_arch_too_new_for_build"]
    return found


_STEPS: tuple[Callable[[Suspects, Case], Suspects], ...] = (
    _part_cudnn,
    _part_shadowing,
    _part_runtime,
    _part_on_disk,
    _part_driver,
    _part_kernel_image,
    _part_ggml,
    part_loaded,
    part_outdated,
    part_pip,
    part_wheel,
)
