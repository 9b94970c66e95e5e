from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.facts.model import InstalledFramework, Problem
from cudnn_resolve.probe.cudnn import find_copies
from cudnn_resolve.probe.environment import Distribution
from cudnn_resolve.probe.framework import find_frameworks
from tests.elf_writer import write_elf
from tests.fake_host import FakeHost
from tests.library_tree import SITE, WHEEL, Files, cudnn_files, distribution, environment_of, machine, record_of, tells

RPATH = "$ORIGIN/../../nvidia/cublas/lib:$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN"
OTHER = "/opt/other/lib"

Found = tuple[InstalledFramework, tuple[Problem, ...]]


def look(host: FakeHost, *distributions: Distribution, **more: Any) -> Found:
    """The only framework, and what is wrong with it."""
    environment = environment_of(*distributions, **more)
    copies, _ = find_copies(host, environment)
    frameworks, problems = find_frameworks(host, environment, copies)
    assert len(frameworks) == 1, frameworks
    return frameworks[0], problems


def loaded(found: Found) -> tuple[str | None, str | None, str]:
    """Version, path and reason of what would be loaded."""
    would = found[0].would_load
    assert would is not None
    return would.version, would.path, would.because


def whys(found: Found) -> list[str]:
    return [problem.why for problem in found[1]]


def wheel(version: str, build: str, cuda: int = 12) -> tuple[Distribution, Files]:
    """NVIDIA's wheel in the environment."""
    files = cudnn_files(WHEEL, version)
    one, record = record_of(files, f"nvidia-cudnn-cu{cuda}", f"{version}.{build}")
    return one, {**files, **record}


# --- torch ---

TORCH = distribution("torch", "2.6.0", "nvidia-cudnn-cu12 (==9.1.0.70) ; platform_system == 'Linux'")


def torch_files(version: str = "2.6.0+cu124", cuda: str | None = "'12.4'", soname: str = "libcudnn.so.9", init: str = "") -> Files:
    lib = f"{SITE}/torch/lib"
    return {
        f"{SITE}/torch/version.py": f"__version__ = '{version}'\ncuda = {cuda}\nhip = None\n",
        f"{SITE}/torch/__init__.py": init,
        f"{SITE}/torch/_C.cpython-311-x86_64-linux-gnu.so": write_elf(needed=("libtorch_python.so",), rpath="$ORIGIN/lib"),
        f"{lib}/libtorch_global_deps.so": write_elf("libtorch_global_deps.so"),
        f"{lib}/libtorch_python.so": write_elf("libtorch_python.so", ("libtorch_cuda.so",), rpath=RPATH),
        f"{lib}/libtorch_cuda.so": write_elf("libtorch_cuda.so", (soname,), rpath=RPATH),
    }


def test_torch_takes_the_wheel_by_its_rpath_whatever_ld_library_path_says() -> None:
    nvidia, files = wheel("9.1.0", "70")
    files |= {**torch_files(), **cudnn_files(OTHER, "9.1.0")}
    said = {f"{WHEEL}/libcudnn.so.9": tells(90100), f"{OTHER}/libcudnn.so.9": tells(90100)}

    found = look(machine(files, said), TORCH, nvidia, library_path=(OTHER,))

    assert found[0].name == "torch"
    assert (found[0].version, found[0].variant, found[0].cuda_built, found[0].cudnn_built) == ("2.6.0", "cu124", "12.4", "9.1.0.70")
    assert loaded(found) == (
        "9.1.0.70",
        f"{WHEEL}/libcudnn.so.9",
        "RPATH of libtorch_cuda.so leads to it; LD_LIBRARY_PATH cannot change that",
    )
    assert found[1] == ()


def test_ld_library_path_splits_the_wheel_of_torch() -> None:
    nvidia, files = wheel("9.1.0", "70")
    files |= {**torch_files(), **cudnn_files(OTHER, "9.2.1")}
    said = {f"{WHEEL}/libcudnn.so.9": tells(90100), f"{OTHER}/libcudnn.so.9": tells(90201)}

    found = look(machine(files, said), TORCH, nvidia, library_path=(OTHER,))

    assert loaded(found)[:2] == ("9.1.0.70", f"{WHEEL}/libcudnn.so.9")
    both = f"libcudnn.so.9 9.1.0.70 from {WHEEL}, but its parts 9.2.1 from {OTHER}"
    rule = "to which LD_LIBRARY_PATH leads (libcudnn.so.9 has only a RUNPATH)"
    assert whys(found) == [f"two releases of cuDNN in one process: {both}, {rule}"]


def test_a_libcudnn_with_rpath_keeps_its_parts_together_but_not_their_engines() -> None:
    files = {**torch_files(), **cudnn_files(WHEEL, "9.21.1", rpath="$ORIGIN"), **cudnn_files(OTHER, "9.2.1")}
    nvidia, record = record_of(files, "nvidia-cudnn-cu12", "9.21.1.3")
    said = {f"{WHEEL}/libcudnn.so.9": tells(92101), f"{OTHER}/libcudnn.so.9": tells(90201)}

    found = look(machine({**files, **record}, said), TORCH, nvidia, library_path=(OTHER,))

    assert loaded(found)[0] == "9.21.1.3"
    names = "libcudnn_heuristic.so.9, libcudnn_engines_precompiled.so.9, libcudnn_engines_runtime_compiled.so.9"
    assert f"but {names} 9.2.1 from {OTHER}, to which LD_LIBRARY_PATH leads (libcudnn_graph.so.9 has only a RUNPATH)" in whys(found)[0]
    assert len(found[1]) == 1


def test_one_part_of_another_release_is_enough() -> None:
    nvidia, files = wheel("9.1.0", "70")
    files |= {**torch_files(), **cudnn_files(OTHER, "9.0.0", library=False, parts=("graph",))}

    found = look(machine(files, {f"{WHEEL}/libcudnn.so.9": tells(90100)}), TORCH, nvidia, library_path=(OTHER,))

    assert f"but libcudnn_graph.so.9  from {OTHER}" in whys(found)[0]


def test_parts_that_would_make_it_older_than_built() -> None:
    nvidia, files = wheel("9.1.0", "70")
    files |= {**torch_files(), **cudnn_files(OTHER, "9.0.0")}
    said = {f"{WHEEL}/libcudnn.so.9": tells(90100), f"{OTHER}/libcudnn.so.9": tells(90000)}

    found = look(machine(files, said), TORCH, nvidia, library_path=(OTHER,))

    assert "two releases" in whys(found)[0]
    assert "would load cuDNN 9.0.0" in whys(found)[1]
    assert "was built with 9.1.0.70" in whys(found)[1]


def test_newer_torch_opens_the_wheels_itself() -> None:
    nvidia, files = wheel("9.19.0", "56", cuda=13)
    for name in ("libcublasLt.so.13", "libcublas.so.13"):
        files[f"{SITE}/nvidia/cu13/lib/{name}"] = write_elf(name)
    files |= torch_files("2.11.0+cu130", "'13.0'", init="def _load_global_deps():\n    _preload_cuda_deps()\n")
    host = machine(files, {f"{WHEEL}/libcudnn.so.9": tells(91900, 13010)})

    found = look(host, distribution("torch", "2.11.0", "nvidia-cudnn-cu13==9.19.0.56"), nvidia)

    assert loaded(found) == ("9.19.0.56", f"{WHEEL}/libcudnn.so.9", "torch's own code opens it by its path before its libraries ask for it")
    assert (found[0].variant, found[0].cudnn_built) == ("cu130", "9.19.0.56")


def test_newer_torch_stops_where_the_first_wheel_is_missing() -> None:
    nvidia, files = wheel("9.19.0", "56", cuda=13)
    files |= torch_files("2.11.0+cu130", "'13.0'", init="    _preload_cuda_deps()\n")

    found = look(machine(files, {f"{WHEEL}/libcudnn.so.9": tells(91900, 13010)}), distribution("torch", "2.11.0"), nvidia)

    assert loaded(found)[2] == "RPATH of libtorch_cuda.so leads to it"
    assert found[0].cudnn_built == "9"


def test_torch_with_cudnn_in_its_own_wheel() -> None:
    lib = f"{SITE}/torch/lib"
    files = {**torch_files("2.3.1+cu118", "'11.8'", "libcudnn.so.8"), **cudnn_files(lib, "8.7.0")}
    files[f"{lib}/libcudnn.so.8.7.0"] = files.pop(f"{lib}/libcudnn.so.8")
    host = machine(files, {f"{lib}/libcudnn.so.8": tells(8700, 11080)}, links={f"{lib}/libcudnn.so.8": f"{lib}/libcudnn.so.8.7.0"})

    found = look(host, distribution("torch", "2.3.1+cu118"))

    assert (found[0].variant, found[0].cudnn_built) == ("cu118", "8.7.0")
    assert loaded(found)[:2] == ("8.7.0", f"{lib}/libcudnn.so.8")


@pytest.mark.parametrize(
    ("version", "hip", "variant"), [("2.6.0+cpu", "None", "cpu"), ("2.6.0", "None", "cpu"), ("2.6.0+rocm6.2", "'6.2'", "rocm6.2")]
)
def test_torch_without_cuda(version: str, hip: str, variant: str) -> None:
    files: Files = {f"{SITE}/torch/version.py": f"__version__ = '{version}'\ncuda = None\nhip = {hip}\n"}

    found = look(machine(files), distribution("torch", version))

    assert (found[0].variant, found[0].cuda_built, found[0].would_load) == (variant, None, None)
    assert found[1] == ()


def test_torch_that_lacks_another_library() -> None:
    files = {**torch_files(), f"{SITE}/torch/lib/libtorch_cuda.so": write_elf("libtorch_cuda.so", ("libcusparseLt.so.0",), rpath=RPATH)}
    files[f"{SITE}/nvidia/cusparselt/lib/libcusparseLt.so.0"] = write_elf("libcusparseLt.so.0")

    found = look(machine(files), TORCH)

    because = f"libtorch_cuda.so needs libcusparseLt.so.0, which is not found; nothing leads to the one in {SITE}/nvidia/cusparselt/lib"
    assert loaded(found) == (None, None, because)
    assert found[1] == (Problem(what="torch 2.6.0", why=because),)


def test_a_cudnn_for_another_cuda() -> None:
    files = {**torch_files(), **cudnn_files(WHEEL, "9.19.0")}
    nvidia, record = record_of(files, "nvidia-cudnn-cu13", "9.19.0.56")

    found = look(machine({**files, **record}, {f"{WHEEL}/libcudnn.so.9": tells(91900, 13010)}), TORCH, nvidia)

    assert whys(found) == [f"was built for CUDA 12.4, but would load a cuDNN for CUDA 13.1 ({WHEEL})"]


# --- TensorFlow ---

TF = distribution("tensorflow", "2.15.1")


def tensorflow_files(cudnn: str = "8", runpath: str = "$ORIGIN:$ORIGIN/../nvidia/cudnn/lib", info: str | None = None) -> Files:
    info = info or f"OrderedDict([('cuda_version', '12.2'), ('cudnn_version', '{cudnn}'), ('is_cuda_build', True)])"
    python = f"{SITE}/tensorflow/python"
    return {
        f"{python}/platform/build_info.py": f"import collections\nbuild_info = {info}\n",
        f"{python}/_pywrap_tensorflow_internal.so": write_elf(needed=("libtensorflow_framework.so.2",), runpath="$ORIGIN/.."),
        f"{SITE}/tensorflow/libtensorflow_framework.so.2": write_elf("libtensorflow_framework.so.2", runpath=runpath),
    }


def test_ld_library_path_comes_before_the_wheel_of_tensorflow() -> None:
    nvidia, files = wheel("8.9.4", "25")
    files |= {**tensorflow_files(), **cudnn_files(OTHER, "8.9.7")}
    said = {f"{WHEEL}/libcudnn.so.8": tells(8904, 12020), f"{OTHER}/libcudnn.so.8": tells(8907, 12020)}

    found = look(machine(files, said), TF, nvidia, library_path=(OTHER,))

    because = f"LD_LIBRARY_PATH={OTHER} comes before nvidia-cudnn-cu12 8.9.4.25 (RUNPATH of libtensorflow_framework.so.2)"
    assert loaded(found) == ("8.9.7", f"{OTHER}/libcudnn.so.8", because)
    assert (found[0].variant, found[0].cuda_built, found[0].cudnn_built) == ("gpu", "12.2", "8")
    assert found[1] == ()


def test_an_older_copy_that_comes_first_is_a_problem() -> None:
    nvidia, files = wheel("8.9.4", "25")
    files |= {**tensorflow_files(), **cudnn_files(OTHER, "8.6.0")}
    said = {f"{WHEEL}/libcudnn.so.8": tells(8904, 12020), f"{OTHER}/libcudnn.so.8": tells(8600, 12000)}

    found = look(machine(files, said), TF, nvidia, library_path=(OTHER,))

    assert whys(found) == [f"would load cuDNN 8.6.0 from {OTHER} (LD_LIBRARY_PATH), though a newer 8.9.4.25 lies ready for it"]


def test_the_runpath_of_tensorflow() -> None:
    nvidia, files = wheel("8.9.4", "25")
    host = machine({**files, **tensorflow_files()}, {f"{WHEEL}/libcudnn.so.8": tells(8904, 12020)})

    assert loaded(look(host, TF, nvidia)) == ("8.9.4.25", f"{WHEEL}/libcudnn.so.8", "RUNPATH of libtensorflow_framework.so.2 leads to it")
    because = loaded(look(host, TF, nvidia, library_path=("/elsewhere",)))[2]
    assert because.endswith("; LD_LIBRARY_PATH would come first, and does not hold it")


def test_a_tensorflow_that_does_not_look_into_wheels() -> None:
    nvidia, files = wheel("8.9.4", "25")
    host = machine({**files, **tensorflow_files(runpath="$ORIGIN")}, {f"{WHEEL}/libcudnn.so.8": tells(8904, 12020)})

    found = look(host, TF, nvidia)

    places = "LD_LIBRARY_PATH (not set), its RUNPATH, the linker cache and the default directories"
    because = f"libtensorflow_framework.so.2 looks for libcudnn.so.8 in {places}, and it is not there; nothing leads to the one in {WHEEL}"
    assert loaded(found) == (None, None, because)
    assert whys(found) == [because]


def test_the_linker_cache_and_a_default_directory() -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    host = machine({**tensorflow_files(), **cudnn_files(lib, "8.9.7")}, {f"{lib}/libcudnn.so.8": tells(8907, 12020)})
    neither = "libtensorflow_framework.so.2 names no directory that holds it, and LD_LIBRARY_PATH neither"

    cached = loaded(look(host, TF, cache={"libcudnn.so.8": f"{lib}/libcudnn.so.8"}))
    default = loaded(look(host, TF))

    assert cached == ("8.9.7", f"{lib}/libcudnn.so.8", f"the linker cache leads to it; {neither}")
    assert default == ("8.9.7", f"{lib}/libcudnn.so.8", f"it is in {lib}, a default directory of the loader; {neither}")


def test_ld_preload_comes_before_everything() -> None:
    nvidia, files = wheel("8.9.4", "25")
    files |= {**tensorflow_files(), **cudnn_files(OTHER, "8.9.7")}
    said = {f"{WHEEL}/libcudnn.so.8": tells(8904, 12020), f"{OTHER}/libcudnn.so.8": tells(8907, 12020)}
    host = machine(files, said, environ={"LD_PRELOAD": f"{OTHER}/libcudnn.so.8", "CUDNN_PATH": "/opt/other"})

    found = look(host, TF, nvidia)

    assert loaded(found) == ("8.9.7", f"{OTHER}/libcudnn.so.8", f"LD_PRELOAD={OTHER}/libcudnn.so.8 comes before everything")


@pytest.mark.parametrize(
    ("info", "variant"), [("{'is_cuda_build': False}", "cpu"), ("{'is_rocm_build': True}", None), ("os.system('false')", None)]
)
def test_tensorflow_without_cuda(info: str, variant: str | None) -> None:
    found = look(machine(tensorflow_files(info=info)), distribution("tensorflow-cpu", "2.15.1"))

    assert (found[0].name, found[0].variant, found[0].would_load) == ("tensorflow-cpu", variant, None)


def test_tensorflow_of_the_first_generation() -> None:
    core = f"{SITE}/tensorflow_core"
    files: Files = {
        f"{core}/python/platform/build_info.py": "is_cuda_build = True\n",
        f"{core}/python/_pywrap_tensorflow_internal.so": write_elf(needed=("libtensorflow_framework.so.1",), runpath="$ORIGIN/.."),
        f"{core}/libtensorflow_framework.so.1": write_elf("libtensorflow_framework.so.1", runpath="$ORIGIN"),
        **cudnn_files("/usr/local/cuda-10.0/lib64", "7.6.5"),
    }
    host = machine(files, {"/usr/local/cuda-10.0/lib64/libcudnn.so.7": tells(7605, 10000)})

    found = look(host, distribution("tensorflow-gpu", "1.15.5"), library_path=("/usr/local/cuda-10.0/lib64",))

    assert (found[0].cudnn_built, loaded(found)[0]) == ("7", "7.6.5")
    assert loaded(found)[2] == "LD_LIBRARY_PATH=/usr/local/cuda-10.0/lib64 is the only way by which libtensorflow_framework.so.1 finds it"


# --- ONNX Runtime ---

ORT = distribution("onnxruntime-gpu", "1.20.2")


def onnxruntime_files(*needs: str, constants: str | None = None) -> Files:
    capi = f"{SITE}/onnxruntime/capi"
    files: Files = {
        f"{capi}/onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so": write_elf(runpath="$ORIGIN"),
        f"{capi}/libonnxruntime_providers_shared.so": write_elf("libonnxruntime_providers_shared.so"),
        f"{capi}/libonnxruntime_providers_cuda.so": write_elf(needed=needs or ("libcublasLt.so.12", "libcudnn.so.9")),
        f"{SITE}/nvidia/cublas/lib/libcublasLt.so.12": write_elf("libcublasLt.so.12"),
    }
    return files if constants is None else {**files, f"{capi}/build_and_package_info.py": constants}


def test_onnxruntime_finds_no_wheel_by_itself() -> None:
    nvidia, files = wheel("9.1.0", "70")
    host = machine({**files, **onnxruntime_files()}, {f"{WHEEL}/libcudnn.so.9": tells(90100)})

    found = look(host, ORT, nvidia)

    assert (found[0].variant, found[0].cuda_built, found[0].cudnn_built) == ("gpu", "12", "9")
    assert loaded(found)[2].startswith(
        "libonnxruntime_providers_cuda.so needs libcublasLt.so.12, which is not found; nothing leads to the one"
    )


def test_onnxruntime_with_ld_library_path() -> None:
    nvidia, files = wheel("9.1.0", "70")
    host = machine({**files, **onnxruntime_files(constants="cuda_version = '12.2'\n")}, {f"{WHEEL}/libcudnn.so.9": tells(90100)})

    found = look(host, ORT, nvidia, library_path=(WHEEL, f"{SITE}/nvidia/cublas/lib"))

    assert found[0].cuda_built == "12.2"
    because = f"LD_LIBRARY_PATH={WHEEL} is the only way by which libonnxruntime_providers_cuda.so finds it"
    assert loaded(found) == ("9.1.0.70", f"{WHEEL}/libcudnn.so.9", because)


def test_the_rpath_of_a_conda_interpreter_comes_before_ld_library_path() -> None:
    files: Files = {
        **onnxruntime_files("libcudnn.so.9"),
        **cudnn_files("/conda/lib", "9.3.0"),
        **cudnn_files(OTHER, "9.1.0", rpath="$ORIGIN"),
    }
    files["/conda/bin/python"] = write_elf(rpath="$ORIGIN/../lib", interpreter="/lib64/ld-linux-x86-64.so.2")
    host = machine(files, {"/conda/lib/libcudnn.so.9": tells(90300), f"{OTHER}/libcudnn.so.9": tells(90100)})

    found = look(host, ORT, prefix="/conda", library_path=(OTHER,))

    assert loaded(found) == ("9.3.0", "/conda/lib/libcudnn.so.9", "RPATH of python leads to it; LD_LIBRARY_PATH cannot change that")


def test_onnxruntime_for_the_cpu() -> None:
    files: Files = {f"{SITE}/onnxruntime/capi/onnxruntime_pybind11_state.so": write_elf()}

    assert look(machine(files), distribution("onnxruntime", "1.20.2"))[0].variant == "cpu"


# --- JAX ---

PLUGIN = distribution("jax-cuda12-plugin", "0.7.2", 'nvidia-cudnn-cu12<10.0,>=9.8; extra == "with-cuda"')
JAX = (distribution("jax", "0.7.2"), distribution("jaxlib", "0.7.2"), PLUGIN)


def jax_files(init: str = "") -> Files:
    return {
        f"{SITE}/jax_cuda12_plugin/_versions.so": write_elf(rpath="$ORIGIN/../nvidia/cudnn/lib"),
        f"{SITE}/jax_plugins/xla_cuda12/__init__.py": init,
    }


def test_jax_is_one_framework_and_tells_what_it_was_built_with() -> None:
    nvidia, files = wheel("9.8.0", "87")
    said = {
        f"{WHEEL}/libcudnn.so.9": tells(90800),
        "jax_cuda12_plugin._versions": {"cudnn_build_version": 90800, "cuda_runtime_build_version": 12090},
    }

    found = look(machine({**files, **jax_files()}, said), *JAX, nvidia)

    assert (found[0].name, found[0].variant, found[0].cuda_built, found[0].cudnn_built) == ("jax", "cuda12", "12.9", "9.8.0")
    assert loaded(found) == ("9.8.0.87", f"{WHEEL}/libcudnn.so.9", "RPATH of _versions.so leads to it")
    assert found[1] == ()


@pytest.mark.parametrize("answer", [{}, {"failed": "ImportError: x"}, {"cudnn_build_version": None, "cuda_runtime_build_version": "y"}])
def test_where_the_plugin_does_not_answer_its_metadata_speaks(answer: dict[str, Any]) -> None:
    nvidia, files = wheel("9.8.0", "87")
    said = {f"{WHEEL}/libcudnn.so.9": tells(90800), "jax_cuda12_plugin._versions": answer}

    found = look(machine({**files, **jax_files()}, said), *JAX, nvidia)

    assert (found[0].cuda_built, found[0].cudnn_built) == ("12", "9.8")


def test_newer_jax_opens_the_wheel_itself() -> None:
    nvidia, files = wheel("9.8.0", "87")
    files |= jax_files('def _load_nvidia_libraries():\n  _load("cudnn", ["libcudnn.so.9"])\n')

    found = look(machine(files, {f"{WHEEL}/libcudnn.so.9": tells(90800)}), *JAX, nvidia, library_path=(OTHER,))

    assert loaded(found)[2] == "jax's own code opens it by its path before its libraries ask for it"


def test_jax_on_libraries_of_the_system() -> None:
    files = {**jax_files(), **cudnn_files(OTHER, "9.8.0")}

    found = look(machine(files, {f"{OTHER}/libcudnn.so.9": tells(90800)}), *JAX, library_path=(OTHER,))

    assert found[0].variant == "cuda12_local"
    assert loaded(found)[:2] == ("9.8.0", f"{OTHER}/libcudnn.so.9")


def test_jaxlib_of_the_local_versions() -> None:
    jaxlib = distribution("jaxlib", "0.4.25+cuda12.cudnn89")
    files = {
        f"{SITE}/jaxlib/cuda/_versions.so": write_elf(rpath="$ORIGIN/../../nvidia/cudnn/lib"),
        f"{SITE}/jaxlib/xla_extension.so": write_elf(),
    }
    nvidia, cudnn = wheel("8.9.7", "29")

    found = look(machine({**files, **cudnn}, {f"{WHEEL}/libcudnn.so.8": tells(8907, 12020)}), distribution("jax", "0.4.25"), jaxlib, nvidia)

    assert (found[0].variant, found[0].cuda_built, found[0].cudnn_built) == ("cuda12_pip", "12", "8.9")
    assert loaded(found)[0] == "8.9.7.29"


def test_jax_for_the_cpu_and_jaxlib_alone() -> None:
    both = look(machine({}), distribution("jax", "0.7.2"), distribution("jaxlib", "0.7.2"))[0]
    alone = look(machine({}), distribution("jaxlib", "0.7.2"))[0]

    assert (both.name, both.variant, both.would_load) == ("jax", "cpu", None)
    assert (alone.name, alone.variant) == ("jaxlib", "cpu")


# --- the others ---


def ctranslate2_files() -> Files:
    shim = "libcudnn-74a4c495.so.9.1.0"
    return {
        f"{SITE}/ctranslate2/_ext.cpython-311-x86_64-linux-gnu.so": write_elf(needed=(shim,), rpath="$ORIGIN/../ctranslate2.libs"),
        f"{SITE}/ctranslate2.libs/{shim}": write_elf(shim, rpath="$ORIGIN"),
    }


def test_ctranslate2_brings_libcudnn_without_its_parts() -> None:
    found = look(machine(ctranslate2_files()), distribution("ctranslate2", "4.6.0"))

    assert (found[0].variant, found[0].cudnn_built) == ("gpu", "9.1.0")
    assert loaded(found)[:2] == ("9.1.0", f"{SITE}/ctranslate2.libs/libcudnn-74a4c495.so.9.1.0")
    names = "libcudnn_graph.so.9, libcudnn_ops.so.9, libcudnn_cnn.so.9, libcudnn_adv.so.9"
    assert whys(found) == [f"libcudnn-74a4c495.so.9.1.0 would be loaded from {SITE}/ctranslate2.libs, but {names} are not found"]


def test_ctranslate2_with_parts_from_elsewhere() -> None:
    files = {**ctranslate2_files(), **cudnn_files(OTHER, "9.1.0")}

    found = look(machine(files, {f"{OTHER}/libcudnn.so.9": tells(90100)}), distribution("ctranslate2", "4.6.0"), library_path=(OTHER,))

    assert found[1] == ()


CUPY = distribution("cupy-cuda12x", "13.6.0")
CUPY_CUDNN = '{"version": "8.8.1", "filenames": ["libcudnn.so.8.8.1"]}'
CUPY_FILES: Files = {
    f"{SITE}/cupy/.data/_wheel.json": f'{{"cuda": "12.x", "packaging": "pip", "cudnn": {CUPY_CUDNN}}}',
    f"{SITE}/cupy_backends/cuda/libs/cudnn.cpython-311-x86_64-linux-gnu.so": write_elf(needed=("libcudnn.so.8", "libcuda.so.1")),
}


def test_cupy_opens_what_its_own_installer_put_into_the_home_directory() -> None:
    lib = "/home/u/.cupy/cuda_lib/12.x/cudnn/8.8.1/lib"
    cudnn = cudnn_files(lib, "8.8.1")
    files = {**CUPY_FILES, **cudnn, f"{lib}/libcudnn.so.8.8.1": cudnn[f"{lib}/libcudnn.so.8"], **cudnn_files(OTHER, "8.9.7")}

    found = look(machine(files, environ={"HOME": "/home/u"}), CUPY, library_path=(OTHER,))

    assert (found[0].variant, found[0].cuda_built, found[0].cudnn_built) == ("cuda12x", "12", "8.8.1")
    assert loaded(found)[1] == f"{lib}/libcudnn.so.8.8.1"
    assert loaded(found)[2].startswith("cupy-cuda12x's own code opens it by its path")


def test_cupy_on_ld_library_path_and_a_machine_without_a_driver() -> None:
    files = {**CUPY_FILES, **cudnn_files(OTHER, "8.9.7")}

    found = look(machine(files, {f"{OTHER}/libcudnn.so.8": tells(8907, 12020)}), CUPY, library_path=(OTHER,))

    assert loaded(found)[1] == f"{OTHER}/libcudnn.so.8"
    assert loaded(found)[2].endswith("finds it; on this machine only once the driver's libraries are there")


def test_cupy_without_cudnn() -> None:
    assert look(machine({}), distribution("cupy-cuda13x", "14.0.0"))[0].would_load is None


def test_paddle_opens_the_name_without_a_number() -> None:
    files: Files = {
        f"{SITE}/paddle/version/__init__.py": "cuda_version = '11.8'\ncudnn_version = '8.6.0'\n",
        f"{SITE}/paddle/base/libpaddle.so": write_elf(needed=("libphi.so",), runpath="$ORIGIN/../libs"),
        f"{SITE}/paddle/libs/libphi.so": write_elf("libphi.so", runpath="$ORIGIN"),
        **cudnn_files(OTHER, "8.6.0"),
    }
    files[f"{OTHER}/libcudnn.so"] = files[f"{OTHER}/libcudnn.so.8"]
    host = machine(files, {f"{OTHER}/libcudnn.so.8": tells(8600, 11080)})

    found = look(host, distribution("paddlepaddle-gpu", "2.6.2"), library_path=(OTHER,))

    assert (found[0].variant, found[0].cuda_built, found[0].cudnn_built) == ("cu118", "11.8", "8.6.0")
    assert loaded(found)[:2] == ("8.6.0", f"{OTHER}/libcudnn.so")


def test_mxnet() -> None:
    files: Files = {f"{SITE}/mxnet/libmxnet.so": write_elf("libmxnet.so", ("libcudnn.so.8", "libcuda.so.1"), rpath="${ORIGIN}")}
    files |= cudnn_files(f"{SITE}/mxnet", "8.0.5")
    host = machine(files, {f"{SITE}/mxnet/libcudnn.so.8": tells(8005, 11020)})

    found = look(host, distribution("mxnet-cu112", "1.9.1"))

    assert (found[0].variant, found[0].cuda_built, found[0].cudnn_built) == ("cu112", "11.2", "8")
    assert loaded(found)[2] == "RPATH of libmxnet.so leads to it; on this machine only once the driver's libraries are there"


def test_other_distributions_are_no_frameworks() -> None:
    names = (
        "numpy",
        "torchvision",
        "jax-cuda12-pjrt",
        "tensorflow-estimator",
        "onnxruntime-extensions",
        "tf-keras",
        "torch-geometric",
        "cupyx",
    )
    environment = environment_of(*(distribution(name, "1.0") for name in names))

    assert find_frameworks(machine({}), environment, ()) == ((), ())


def test_an_interpreter_that_is_a_script_is_taken_for_one_without_a_search_path() -> None:
    nvidia, files = wheel("8.9.4", "25")
    files |= {**tensorflow_files(), "/venv/bin/python": b"#!/bin/sh\nexec python3\n"}

    assert loaded(look(machine(files, {f"{WHEEL}/libcudnn.so.8": tells(8904, 12020)}), TF, nvidia))[0] == "8.9.4.25"
