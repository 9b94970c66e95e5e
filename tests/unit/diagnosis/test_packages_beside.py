"""Packages beside the framework: wheel files, extensions, programs with builds of their own, and apt's sets."""

from __future__ import annotations

import pytest

from tests.written_logs import judged


def told(log: str) -> tuple[str, list[str]]:
    """Cause of the first finding, and the commands of its remedies."""
    found = judged(log).findings[0]
    return found.cause, [remedy.command for remedy in found.remedy if remedy.command]


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("xformers-0.0.16+814314d.d20230118-cp38-cp38-linux_x86_64", "xformers==0.0.16"),
        ("tensorflow-1.15.0-cp37-cp37m-win_amd64", "tensorflow==1.15.0"),
        ("torch-1.8.1+cu111-cp38-cp38-linux_x86_64", "torch==1.8.1+cu111 --find-links https://download.pytorch.org/whl/torch_stable.html"),
    ],
)
def test_pip_takes_the_file_that_fits_if_it_gets_the_name(file: str, command: str) -> None:
    found = told(f"ERROR: {file}.whl is not a supported wheel on this platform.\n")
    assert found[1][0] == f"python -m pip install {command}"
    assert not any("cudnn-resolve" in step or "platform.machine" in step for step in found[1])


def test_a_wheel_file_that_no_table_knows_is_asked_of_the_index_only_if_it_is_public() -> None:
    refused = "ERROR: frobnicator-1.2.3{}-cp39-cp39-win_amd64.whl is not a supported wheel on this platform.\n"
    steps = judged(refused.format("")).findings[0].remedy
    assert [step.text.startswith("or, if it is a public package") for step in steps if "frobnicator" in (step.command or "")] == [True]
    for built in ("+cu121", ".dev0"):
        _, commands = told(refused.format(built))
        assert commands
        assert not any("frobnicator" in command for command in commands)


GLIBC = "/lib64/libm.so.6: version `GLIBC_2.29' not found (required by {})\n"


@pytest.mark.parametrize("file", ["flash_attn_2_cuda.so", "torch_sparse/_convert_cuda.so", "tensorflow_io/libtensorflow_io.so"])
def test_a_framework_stays_if_only_another_package_needs_a_newer_glibc(file: str) -> None:
    found = judged("ImportError: " + GLIBC.format(f"/v/lib/python3.10/site-packages/{file}")).findings[0]
    assert file.partition("/")[0] in found.remedy[0].text
    assert not any("cudnn-resolve" in (remedy.command or "") for remedy in found.remedy)


def test_pyg_lib_is_removed_in_the_interpreter_whose_path_is_whole() -> None:
    log = GLIBC.format("/me/envs/g/lib/python3.10/site-packages/libpyg.so") + GLIBC.format("/envs/g/lib/python3.10/site-packages/libpyg.so")
    assert told(log)[1] == ["/me/envs/g/bin/python -m pip uninstall -y pyg-lib"]
    short = GLIBC.format("/me/.../g/lib/python3.10/site-packages/libpyg.so")
    assert told(short)[1] == ["python3.10 -m pip uninstall -y pyg-lib"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("setUpNet DNN module was not built with CUDA backend; switching to CPU", "-DOPENCV_DNN_CUDA=ON"),
        ("AttributeError: module 'faiss' has no attribute 'StandardGpuResources'", "faiss-gpu"),
        ("xgboost.core.XGBoostError: XGBoost version not compiled with GPU support.", "install -U xgboost"),
        ("lightgbm.basic.LightGBMError: CUDA Tree Learner was not enabled in this build.", "cmake.define.USE_CUDA=ON"),
        ("warning: not compiled with GPU offload support, --gpu-layers option will be ignored", "-DGGML_CUDA=ON"),
    ],
)
def test_a_program_without_cuda_is_told_how_it_gets_it(line: str, word: str) -> None:
    cause, commands = told(f"{line}\n")
    assert cause == "cpu_only_build"
    assert word in commands[0]


def test_xformers_names_the_pytorch_that_it_needs() -> None:
    _, commands = told("    PyTorch 2.1.0+cu121 with CUDA 1201 (you have 2.1.0+cpu)\n")
    assert "torch==2.1.0+cu121" in commands[0]
    assert commands[0].endswith("/whl/cu121")


def test_the_bindings_of_a_library_are_in_its_version() -> None:
    log = " python3-libnvinfer : Depends: libnvinfer8 (= 8.2.2-1+cuda11.4) but it is not going to be installed\n"
    assert told(log)[1][0].endswith(" libnvinfer8=8.2.2-1+cuda11.4 python3-libnvinfer=8.2.2-1+cuda11.4")


@pytest.mark.parametrize(
    "line",
    ["The following signatures were invalid: NODATA 1  NODATA 2", "E: x InRelease  Clearsigned file isn't valid, got 'NODATA' (does it?)"],
)
def test_what_is_no_signature_asks_for_no_key(line: str) -> None:
    cause, commands = told(f"{line}\n")
    assert cause == "apt_key"
    assert commands
    assert not any("key" in command or "gpg" in command for command in commands)


@pytest.mark.parametrize(
    "line",
    [
        'cupy.cuda.compiler.CompileException: Catastrophic error: cannot open source file "C:\\Users\\姗\\Temp\\a.cu"',
        "c1xx: fatal error C1083: Cannot open source file: 'C:\\Users\\Иван\\Temp\\x.cpp': No such file or directory",
    ],
)
def test_a_path_outside_ascii_moves_what_is_temporary(line: str) -> None:
    assert 'set "TEMP=C:\\temp"' in told(f"{line}\n")[1][0]
    assert not any("TEMP" in command for command in told(line.replace("姗", "me").replace("Иван", "me") + "\n")[1])


@pytest.mark.parametrize("codec", ["gbk", "ascii", "utf-8"])
def test_a_text_in_another_encoding_is_told_from_a_failure_of_the_program(codec: str) -> None:
    found = judged(f"UnicodeDecodeError: '{codec}' codec can't decode byte 0xa6 in position 7: x\n").findings[0]
    assert f"another encoding than {codec}" in found.summary
    assert found.remedy[0].command == "export PYTHONUTF8=1"


def test_a_pin_from_a_file_is_removed_but_one_that_was_asked_for_is_replaced() -> None:
    log = "ERROR: No matching distribution found for nvidia-cudnn-cu12==8.9.2.26 (from versions: 8.9.4.25, 8.9.7.29)\n"
    listed = log.replace("No matching distribution found for", "Could not find a version that satisfies the requirement")
    assert "remove this requirement" in judged(listed).findings[0].remedy[0].text
    asked = judged("$ pip install nvidia-cudnn-cu12==8.9.2.26\n" + listed).findings[0].remedy
    assert not any("remove this requirement" in remedy.text for remedy in asked)


WANTS = 'File "{}/site-packages/{}", line 1, in <module>\n    x\nImportError: {}\n'
CUDART = "libcudart.so.10.2: cannot open shared object file: No such file or directory"
CXX = "/opt/gcc/lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by {}/site-packages/x/y.so)"
PLAIN, CONDA = "/home/me/v/lib/python3.8", "/home/me/miniconda3/lib/python3.8"


def steps_of(log: str) -> str:
    return "\n".join(f"{one.text} $ {one.command}" for one in judged(log).findings[0].remedy)


@pytest.mark.parametrize(
    ("log", "there", "absent"),
    [
        (WANTS.format(CONDA, "mmcv/ops/__init__.py", CUDART), ["torch.version.cuda", "mim install mmcv"], ["cudatoolkit", "archive"]),
        (WANTS.format(PLAIN, "flash_attn/i.py", CUDART), ["torch.version.cuda", "flash-attn"], ["cudatoolkit", "archive"]),
        (WANTS.format(PLAIN, "torch/__init__.py", CUDART), ["archive"], ["torch.version.cuda"]),
        (WANTS.format(PLAIN, "vllm/a.py", CUDART), ["archive"], ["torch.version.cuda"]),
        (WANTS.format(PLAIN, "x.py", CXX.format(PLAIN)), ["xargs grep -l GLIBCXX_3.4.29"], ["$CONDA_PREFIX"]),
        (WANTS.format(CONDA, "x.py", CXX.format(CONDA)), ["conda install -p /home/me/miniconda3"], ["xargs"]),
        (
            f"ImportError: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by {PLAIN}/site-packages/flash_attn_2_cuda.so)\n",
            ["FLASH_ATTENTION_FORCE_BUILD=TRUE "],
            ["NAME"],
        ),
    ],
)
def test_an_extension_is_built_again_rather_than_given_another_cuda(log: str, there: list[str], absent: list[str]) -> None:
    assert all(word in steps_of(log) for word in there)
    assert not any(word in steps_of(log) for word in absent)


NO_PIN = "ERROR: Could not find a version that satisfies the requirement {} (from versions: {})\n"
PART = "Could not load library {0}libcudnn_cnn_train.so.8. Error: {0}libcudnn_cnn_train.so.8: undefined symbol: _ZN5cudnn3cnn1a, "
PART += "version libcudnn_cnn_infer.so.8\n/v/lib/python3.10/site-packages/torch/x.py\n"
GUEST = "Illegal instruction (core dumped)\nModel name: QEMU Virtual CPU version 2.5+\n"
NO_OPS = "{0}: cannot open shared object file: No such file or directory\n"
MISMATCH = 'File "C:\\Users\\me\\setup.py", line 1, in x\nException: >- DeepSpeed Op Builder: Installed CUDA version 12.0 does not match '
MISMATCH += "the version torch was compiled with 11.7, unable to compile cuda/cpp extensions\n"


@pytest.mark.parametrize(
    ("log", "first", "there", "absent"),
    [
        ("C:\\p>pip install -r r.txt\n" + NO_PIN.format("triton==2.1.0", "none"), "on Windows leave it out", "", ".venv"),
        (
            "pip install nvidia-cudnn-cu12==8.9.2.26\n" + NO_PIN.format("nvidia-cudnn-cu12==8.9.2.26", "8.9.4.25"),
            "on Windows leave",
            "",
            "?",
        ),
        (NO_PIN.format("onnxruntime-gpu==1.18.0", "1.17.1, 1.18.1"), "change its pin where it stands", "==1.18.1", "?"),
        (PART.format("/usr/local/cuda/lib64/"), "without another cuDNN", "/nvidia/*/lib", "LD_LIBRARY_PATH=/usr/local/cuda"),
        (GUEST, "CPU type to host", "avx2", "Jetson"),
        ("llama runner exited with error: signal: illegal instruction\n", "upgrade Ollama", "lscpu", "?"),
        (NO_OPS.format("libcudnn_ops_infer.so.8"), "look for it first", "find / -name 'libcudnn_ops_infer.so.8'", "?"),
        ("Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9}\n", "older than 2.4", "nvidia-cudnn-cu12==9", "site.get"),
        (
            MISMATCH,
            "install DeepSpeed without",
            "CUDA\\v11.7",
            "?",
        ),
        (
            "Can not use cuDNN on context None: cannot compile with cuDNN.\na.c:4:19: fatal error: cudnn.h: No such file\n",
            "cudnn7-devel",
            "",
            "?",
        ),
    ],
)
def test_the_first_step_is_the_one_that_repairs(log: str, first: str, there: str, absent: str) -> None:
    assert first in judged(log).findings[0].remedy[0].text
    assert there in steps_of(log)
    assert absent == "?" or absent not in steps_of(log)


@pytest.mark.parametrize(
    ("log", "command"),
    [
        ("F x/statusor.cc:33] UNIMPLEMENTED: Unimplemented MHLO -> HloOpcode: %1 = mhlo.round_nearest_even\n", "pip show jax jaxlib"),
        ("/v/lib/python3.7/site-packages/tensorflow_addons/a.so: undefined symbol: __cudaPushCallConfiguration\n", "| grep -i tensorflow"),
        ("/v/lib/python3.7/site-packages/tensorflow_text/a.so: undefined symbol: _ZN10tensorflow2OpEv\n", '"tensorflow-text==$('),
    ],
)
def test_which_of_two_packages_moves_is_asked_first(log: str, command: str) -> None:
    assert [one.command for one in judged(log).findings[0].remedy if command in (one.command or "")]
    assert not [one for one in judged(log).findings[0].remedy if "apply" in (one.command or "")]


@pytest.mark.parametrize("error", ["module 'jax.lib' has no attribute 'xla_bridge'", "cannot import name 'xla_bridge' from 'jax.lib'"])
def test_what_jax_has_in_place_of_a_removed_name(error: str) -> None:
    kind = "ImportError" if error.startswith("cannot") else "AttributeError"
    assert "jax.extend.backend in place of" in judged(f"{kind}: {error}\n").findings[0].remedy[0].text
