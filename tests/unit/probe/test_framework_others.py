"""Frameworks besides torch and TensorFlow."""

from __future__ import annotations

from typing import Any

import pytest

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
    tells,
    wheel,
    whys,
)

OTHER = "/opt/other/lib"


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
    because = f"LD_LIBRARY_PATH={WHEEL} is the only way for libonnxruntime_providers_cuda.so to find it"
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

    assert loaded(found)[2] == "jax's own code opens it by path before its libraries request it"


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
    home = f"libcudnn-74a4c495.so.9.1.0 would be loaded from {SITE}/ctranslate2.libs"
    assert whys(found) == [f"{home}, but none of its parts can be opened, which ends the program that uses it"]


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
    assert loaded(found)[2].startswith("cupy-cuda12x's own code opens it by path")


def test_cupy_on_ld_library_path_and_a_machine_without_a_driver() -> None:
    files = {**CUPY_FILES, **cudnn_files(OTHER, "8.9.7")}

    found = look(machine(files, {f"{OTHER}/libcudnn.so.8": tells(8907, 12020)}), CUPY, library_path=(OTHER,))

    assert loaded(found)[1] == f"{OTHER}/libcudnn.so.8"
    assert loaded(found)[2].endswith("to find it; on this machine only once the driver's libraries are installed")


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
    assert loaded(found)[2] == "RPATH of libmxnet.so leads to it; on this machine only once the driver's libraries are installed"


def test_a_ctranslate2_that_needs_no_cudnn_loads_none() -> None:
    files: Files = {f"{SITE}/ctranslate2/_ext.cpython-311-x86_64-linux-gnu.so": write_elf()}

    found = look(machine(files), distribution("ctranslate2", "3.0.0"))

    assert (found[0].variant, found[0].would_load, found[1]) == (None, None, ())


@pytest.mark.parametrize(
    ("name", "version", "files", "variant"),
    [
        ("ctranslate2", "4.6.0", {}, None),
        ("paddlepaddle", "2.6.2", {}, None),
        ("paddlepaddle", "2.6.2", {"paddle/version/__init__.py": "cuda_version = 'False'\ncudnn_version = 'False'\n"}, "cpu"),
        ("paddlepaddle-gpu", "2.6.2", {"paddle/version/__init__.py": "cuda_version = '11.2'\ncudnn_version = '8.1.1'\n"}, "cu112"),
        ("mxnet", "1.9.1", {"mxnet/libmxnet.so": write_elf("libmxnet.so")}, "cpu"),
        ("mxnet-cu102mkl", "1.5.0", {"mxnet/libmxnet.so": write_elf("libmxnet.so", ("libcudart.so.10.2",))}, "cu102"),
        ("cupy", "12.3.0", {"cupy/.data/_wheel.json": '{"cuda": "11.x"}'}, None),
        ("tf-nightly", "2.22.0", {}, None),
    ],
)
def test_builds_that_load_no_cudnn_or_lack_their_files(name: str, version: str, files: dict[str, str | bytes], variant: str | None) -> None:
    found = look(machine({f"{SITE}/{path}": content for path, content in files.items()}), distribution(name, version))

    assert (found[0].name, found[0].variant, found[0].would_load) == (name, variant, None)


@pytest.mark.parametrize(
    ("jaxlib", "variant"),
    [("0.1.75+cuda111", "cuda111"), ("0.3.25+cuda11.cudnn82", "cuda11_cudnn82"), ("0.4.25+cuda12.cudnn89", "cuda12_local")],
)
def test_variants_of_the_local_versions(jaxlib: str, variant: str) -> None:
    assert look(machine({}), distribution("jax", "0.4.25"), distribution("jaxlib", jaxlib))[0].variant == variant


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

    assert find_frameworks(DynamicLoader(machine({}), environment), ()) == ((), ())
