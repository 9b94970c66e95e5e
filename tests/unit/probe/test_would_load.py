"""torch, TensorFlow, and the rules that hold for every framework."""

from __future__ import annotations

import pytest

from cudnn_resolve.facts.model import Problem
from cudnn_resolve.probe.cudnn import find_copies
from cudnn_resolve.probe.loader import DynamicLoader
from cudnn_resolve.probe.would_load import find_frameworks
from tests.elf_writer import write_elf
from tests.library_tree import (
    SITE,
    WHEEL,
    Files,
    cudnn_files,
    distribution,
    environment_of,
    loaded,
    look,
    machine,
    record_of,
    tells,
    wheel,
    whys,
)

RPATH = "$ORIGIN/../../nvidia/cublas/lib:$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN"
OTHER = "/opt/other/lib"


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

    assert loaded(found) == ("9.19.0.56", f"{WHEEL}/libcudnn.so.9", "torch's own code opens it by path before its libraries request it")
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


def test_the_cuda_of_a_torch_whose_libraries_had_other_names() -> None:
    files: Files = {
        f"{SITE}/torch/version.py": "__version__ = '1.4.0'\ndebug = False\ncuda = '10.1'\nhip = None\n",
        f"{SITE}/torch/lib/libc10_cuda.so": write_elf("libc10_cuda.so"),
        f"{SITE}/torch/lib/libtorch.so": write_elf("libtorch.so"),
    }

    found = look(machine(files), distribution("torch", "1.4.0"))

    assert (found[0].variant, found[0].cuda_built) == ("cu101", "10.1")


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


@pytest.mark.parametrize(
    ("content", "because"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1",
            "libtorch_python.so cannot load libtorch_cuda.so: {} cannot be used: it is not an ELF file",
        ),
        (write_elf(machine=183), "libtorch_python.so cannot load libtorch_cuda.so: only files of another architecture are found"),
    ],
)
def test_torch_with_a_damaged_library(content: bytes, because: str) -> None:
    path = f"{SITE}/torch/lib/libtorch_cuda.so"

    assert loaded(look(machine({**torch_files(), path: content}), TORCH))[2] == because.format(path)


def test_torch_without_its_module() -> None:
    files = torch_files()
    del files[f"{SITE}/torch/_C.cpython-311-x86_64-linux-gnu.so"]

    assert loaded(look(machine(files), TORCH))[2] == "_C.so cannot be loaded: it is not there"


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

    assert whys(found) == [f"would load cuDNN 8.6.0 from {OTHER} (LD_LIBRARY_PATH), although a newer 8.9.4.25 is installed for it"]


def test_the_runpath_of_tensorflow() -> None:
    nvidia, files = wheel("8.9.4", "25")
    host = machine({**files, **tensorflow_files()}, {f"{WHEEL}/libcudnn.so.8": tells(8904, 12020)})

    assert loaded(look(host, TF, nvidia)) == ("8.9.4.25", f"{WHEEL}/libcudnn.so.8", "RUNPATH of libtensorflow_framework.so.2 leads to it")
    because = loaded(look(host, TF, nvidia, library_path=("/elsewhere",)))[2]
    assert because.endswith("; LD_LIBRARY_PATH would come first, but does not have it")


def test_a_tensorflow_that_does_not_look_into_wheels() -> None:
    nvidia, files = wheel("8.9.4", "25")
    host = machine({**files, **tensorflow_files(runpath="$ORIGIN")}, {f"{WHEEL}/libcudnn.so.8": tells(8904, 12020)})

    found = look(host, TF, nvidia)

    places = "LD_LIBRARY_PATH (not set), its RUNPATH, the linker cache and the default directories"
    because = f"libtensorflow_framework.so.2 does not find libcudnn.so.8, which is not in {places}; nothing leads to the one in {WHEEL}"
    assert loaded(found) == (None, None, because)
    assert whys(found) == [because]


def test_the_linker_cache_and_a_default_directory() -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    host = machine({**tensorflow_files(), **cudnn_files(lib, "8.9.7")}, {f"{lib}/libcudnn.so.8": tells(8907, 12020)})
    neither = "neither libtensorflow_framework.so.2 nor LD_LIBRARY_PATH names a directory that has it"

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

    assert loaded(found) == ("8.9.7", f"{OTHER}/libcudnn.so.8", f"LD_PRELOAD={OTHER}/libcudnn.so.8 comes first")


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
    assert loaded(found)[2] == "LD_LIBRARY_PATH=/usr/local/cuda-10.0/lib64 is the only way for libtensorflow_framework.so.1 to find it"


def test_a_part_that_lacks_a_library() -> None:
    files = {**torch_files(), **cudnn_files(WHEEL, "9.1.0", needs={"cnn": ("libz.so.1",)})}

    found = look(machine(files, {f"{WHEEL}/libcudnn.so.9": tells(90100)}), TORCH)

    end = "libcudnn_cnn.so.9 cannot be opened, which ends the program that uses it; libcudnn_cnn.so.9 needs libz.so.1, which is not found"
    assert whys(found) == [f"libcudnn.so.9 would be loaded from {WHEEL}, but {end}"]


def test_a_wrong_cudnn_is_told_before_one_that_is_not_there() -> None:
    nvidia, files = wheel("9.1.0", "70")
    files |= {**torch_files(), **tensorflow_files(), **cudnn_files(OTHER, "9.0.0")}
    said = {f"{WHEEL}/libcudnn.so.9": tells(90100), f"{OTHER}/libcudnn.so.9": tells(90000)}
    environment = environment_of(TF, TORCH, nvidia, library_path=(OTHER,))
    host = machine(files, said)

    loader = DynamicLoader(host, environment)
    frameworks, problems = find_frameworks(loader, find_copies(loader)[0])

    assert [one.name for one in frameworks] == ["tensorflow", "torch"]
    assert [problem.what for problem in problems] == ["torch 2.6.0", "torch 2.6.0", "tensorflow 2.15.1"]


def test_an_interpreter_that_is_a_script_is_taken_for_one_without_a_search_path() -> None:
    nvidia, files = wheel("8.9.4", "25")
    files |= {**tensorflow_files(), "/venv/bin/python": b"#!/bin/sh\nexec python3\n"}

    assert loaded(look(machine(files, {f"{WHEEL}/libcudnn.so.8": tells(8904, 12020)}), TF, nvidia))[0] == "8.9.4.25"
