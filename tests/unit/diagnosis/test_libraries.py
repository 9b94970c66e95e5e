"""Remedies for libraries name the copy, the directory and the environment of the log, and suit the place where it runs."""

from __future__ import annotations

import pytest

from cudnn_resolve.diagnosis.model import Finding
from tests.written_logs import judged

CELL = "Cell In[3], line 1\n----> 1 import torch\n"
CUSPARSE = "libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12\n"
WHEEL = f"ImportError: /e/lib/python3.11/site-packages/torch/lib/../../nvidia/cusparse/lib/{CUSPARSE}"
CAFFE = (
    "F1011 13:25:12.899116  7866 cudnn.hpp:122] Check failed: status == CUDNN_STATUS_SUCCESS (3 vs. 0)  CUDNN_STATUS_BAD_PARAM\n"
    "    @     0x7f01584a5daa  caffe::CuDNNConvolutionLayer<>::Reshape()\n"
)
SHELL = ("unset LD_LIBRARY_PATH", "export ")


def first(log: str) -> Finding:
    return judged(log).findings[0]


def told(log: str) -> list[str]:
    """Commands of the first finding."""
    return [remedy.command for remedy in first(log).remedy if remedy.command]


def words(log: str) -> str:
    """All texts of the first finding's remedies."""
    return " ".join(remedy.text for remedy in first(log).remedy)


@pytest.mark.parametrize(
    ("log", "library", "upgrade"),
    [
        (f"ImportError: /opt/conda/bin/../lib/{CUSPARSE}", "/opt/conda/lib/libnvJitLink.so.12", "-c conda-forge 'libnvjitlink>=12.4'"),
        (WHEEL, "/e/lib/python3.11/site-packages/nvidia/nvjitlink/lib/libnvJitLink.so.12", "pip install -U 'nvidia-nvjitlink-cu12>=12.4'"),
    ],
)
def test_the_right_copy_is_that_of_the_library_that_needs_it(log: str, library: str, upgrade: str) -> None:
    in_shell, in_notebook = told(log), told(CELL + log)
    assert f"export LD_LIBRARY_PATH={library.rpartition('/')[0]}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" in in_shell
    assert in_notebook[0] == f"import ctypes; ctypes.CDLL('{library}', ctypes.RTLD_GLOBAL)"
    assert not any(command.startswith(SHELL) for command in in_notebook)
    assert any(upgrade in command for command in in_shell)
    assert any(upgrade in command for command in in_notebook)


def test_a_library_of_the_system_is_not_put_first() -> None:
    log = "Could not load library x. Error: /usr/lib/x86_64-linux-gnu/libcudnn_graph.so.9: undefined symbol: cudnnGetLibConfig\n"
    assert not any("x86_64-linux-gnu" in command for command in told(log))


@pytest.mark.parametrize("lib", ["libcudnn.so.8", "libcublas.so.11"])
def test_a_running_kernel_gets_no_variable_of_a_shell(lib: str) -> None:
    log = f"{CELL}OSError: {lib}: cannot open shared object file: No such file or directory\n"
    assert not any("export " in command for command in told(log))


def test_a_missing_wheel_is_loaded_into_the_kernel() -> None:
    assert "for name in ['libcublas.so.11']" in words(
        f"{CELL}OSError: libcublas.so.11: cannot open shared object file: No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("python", "prefix"),
    [
        ("/home/a/anaconda3/envs/py27/lib/python2.7/site-packages/theano/x.py", "/home/a/anaconda3/envs/py27"),
        ("/opt/conda/lib/python3.6/site-packages/cupy/x.py", "/opt/conda"),
    ],
)
def test_conda_installs_into_the_environment_of_the_log(python: str, prefix: str) -> None:
    log = f'  File "{python}", line 1, in f\nImportError: libcublas.so.9.0: cannot open shared object file: No such file or directory\n'
    assert any(command.startswith(f"conda install -p {prefix} cudatoolkit=9.0") for command in told(log))


def test_conda_is_given_no_virtual_environment() -> None:
    log = (
        '  File "/home/a/venv/lib/python3.6/site-packages/cupy/x.py", line 1, in f\n'
        "ImportError: libcublas.so.9.0: cannot open shared object file\n"
    )
    assert not any(" -p " in command for command in told(log))


def test_caffe_and_its_cudnn_are_compared() -> None:
    found = judged(CAFFE).findings
    assert [one.cause for one in found] == ["ld_path_shadowing"]  # no bad input, and no version is said to be the older one
    assert "make clean && make -j4 all" in told(CAFFE)
    assert not any("apply" in command or "unset" in command for command in told(CAFFE))


@pytest.mark.parametrize(
    ("log", "command"),
    [
        ("Can not use cuDNN on context None: cannot compile with cuDNN. We got this error:\n/usr/bin/ld: cannot find -lcudnn\n", "find / "),
        ("RuntimeError: Mixed dnn version. The header is version 5005 while the library is version 5110.\n", "find / "),
        (
            (
                "Can not use cuDNN on context None: cannot compile with cuDNN. We got this error:\n"
                "c:\\users\\a\\temp\\try_flags_jbgv_m.c:4:19: fatal error: cudnn.h: No such file or directory\n"
            ),
            "where /r C:\\ ",
        ),
    ],
)
def test_theano_is_told_where_cudnn_is(log: str, command: str) -> None:
    assert told(log)[0].startswith(command)
    assert "include_path" in words(log)
    assert not any("conda-forge" in one for one in told(log))  # which has no cuDNN as old as Theano


def test_an_old_paddle_gets_no_wheel() -> None:
    log = (
        "Error: Cannot load cudnn shared library. Cannot invoke method cudnnGetVersion at "
        "(/paddle/paddle/fluid/platform/dynload/cudnn.cc:63)\n"
    )
    assert told(log)[0].startswith("find / -name 'libcudnn.so*'")
    assert not any("cudnn-resolve" in command for command in told(log))


def test_cupy_that_lacks_a_function_has_an_older_cudnn() -> None:
    log = "/a/lib/python3.6/site-packages/cupy/cuda/cudnn.cpython-36m-x86_64-linux-gnu.so: undefined symbol: cudnnGetConvolutionMathType\n"
    assert first(log).cause == "cudnn_too_old_for_framework"
    assert "cuDNN 7 or newer" in words(log)
    assert any("pip uninstall -y cupy" in command for command in told(log))


@pytest.mark.parametrize(("driver", "cause"), [("470.182.3", "driver_too_old"), ("550.54.14", "ld_path_shadowing")])
def test_a_doubted_driver_is_too_old_if_it_is_older_than_the_build(driver: str, cause: str) -> None:
    source = "2024-02-12 20:36:44.949913: E external/xla/xla/stream_executor/cuda/cuda_dnn.cc"
    log = (
        f"{source}:474] Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n"
        f"{source}:478] Memory usage: 42069065728 bytes free, 42505273344 bytes total.\n"
        f"{source}:488] Possibly insufficient driver version: {driver}\n"
    )
    assert next(one.cause for one in judged(log).findings if one.severity == "error") == cause


def test_settings_that_nccl_does_not_know() -> None:
    log = (
        "DistBackendError: NCCL error in: NCCLUtils.hpp:219, invalid argument, NCCL version 2.14.3\n"
        "Invalid config blocking attribute value -2147483648\n"
    )
    assert first(log).cause == "nccl_mix"


def test_a_program_linked_with_another_cuda_is_compiled_again() -> None:
    log = "./darknet: error while loading shared libraries: libcudnn.so.7: cannot open shared object file: No such file or directory\n"
    assert told(log) == ["find / -name 'libcudnn.so.7*' -not -path '/proc/*' 2>/dev/null", "make clean && make"]


def test_sudo_gets_the_variable() -> None:
    log = "$ sudo python train.py\nOSError: libcudart.so.7.5: cannot open shared object file: No such file or directory\n"
    assert told(log)[0].startswith('sudo LD_LIBRARY_PATH="$LD_LIBRARY_PATH" ')


def test_xla_on_windows_gets_no_command_of_a_shell() -> None:
    log = (
        '  File "C:\\e\\tf\\lib\\site-packages\\tensorflow\\x.py", line 1, in f\n'
        "error: Can't find libdevice directory ${CUDA_DIR}/nvvm/libdevice\n"
    )
    assert told(log) == ['set XLA_FLAGS=--xla_gpu_cuda_data_dir="%CUDA_PATH%"']


def test_the_provider_of_onnxruntime_is_mended_in_its_own_python() -> None:
    log = (
        'FAIL : LoadLibrary failed with error 126 "" when trying to load '
        '"C:\\portable\\python_embeded\\Lib\\site-packages\\onnxruntime\\capi\\onnxruntime_providers_cuda.dll"\n'
    )
    assert told(log) == [
        "where /r C:\\ cudart64_*.dll cublas*.dll cudnn*.dll & path",
        'C:\\portable\\python_embeded\\python.exe -m pip install -U "onnxruntime-gpu[cuda,cudnn]"',
    ]


def test_triton_uses_the_ptxas_of_a_toolkit() -> None:
    log = (
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\n"
        "Repro command: /v/triton/backends/nvidia/bin/ptxas -v --gpu-name=sm_121a\n"
    )
    assert told(log)[0].endswith("export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas")


def test_tensorflow_1_fits_the_cudnn_that_is_there() -> None:
    log = (
        "E tensorflow/stream_executor/cuda/cuda_dnn.cc:378] Loaded runtime CuDNN library: 6021 (compatibility version "
        "6000) but source was compiled with 5105 (compatibility version 5100).\n"
    )
    assert "python -m pip install tensorflow-gpu==1.4.1" in told(log)


LISTED = (
    'File "/anaconda/envs/a/lib/python3.9/site-packages/onnxruntime/__init__.py", line 1, in <module>\n'
    "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory\n"
    '$ find / -name "libcudnn.so*"\n'
    "/anaconda/envs/other/lib/python3.9/site-packages/nvidia/cudnn/lib/libcudnn.so.8\n"
)


@pytest.mark.parametrize("own", ["/anaconda/envs/a/lib", "/opt/cudnn/lib64"])
def test_a_listed_directory_is_used_that_of_the_same_environment_first(own: str) -> None:
    (command,) = told(f"{LISTED}{own}/libcudnn.so.8\n")[:1]
    assert f"{own}${{LD_LIBRARY_PATH:+:" in command
    assert ("/envs/other/" in command) == own.startswith("/opt")


def test_bitsandbytes_is_upgraded_where_its_cuda_is_missing() -> None:
    log = (
        "Could not load bitsandbytes native library: libcusparse.so.11: cannot open shared object file: No such file or directory\n"
        'File "/v/lib/python3.10/site-packages/bitsandbytes/cextension.py", line 109, in <module>\n'
    )
    assert told(log)[0] == "/v/bin/python -m pip install -U bitsandbytes"


def test_ctranslate2_on_windows_gets_wheels_in_its_own_python() -> None:
    log = (
        '  File "D:\\DEV\\anaconda3\\envs\\gpt\\lib\\site-packages\\faster_whisper\\transcribe.py", line 629, in encode\n'
        "RuntimeError: Library cublas64_12.dll is not found or cannot be loaded\n"
    )
    assert told(log)[0] == "D:\\DEV\\anaconda3\\envs\\gpt\\python.exe -m pip install nvidia-cublas-cu12 nvidia-cudnn-cu12"


def test_an_old_cudnn_is_looked_for_before_it_is_installed() -> None:
    log = "ImportError: libcudnn.so.5: cannot open shared object file: No such file or directory\n"
    assert told(log)[0] == "find / -name 'libcudnn.so.5*' -not -path '/proc/*' 2>/dev/null"
