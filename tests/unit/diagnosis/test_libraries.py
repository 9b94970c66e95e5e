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
LOST = "ImportError: {}: cannot open shared object file: No such file or directory\n"
TORCH_36 = 'File "/usr/local/lib/python3.6/dist-packages/torch/__init__.py", line 135, in <module>\n'
FRAME = 'File "{}", line 6, in <module>\n    {}\n'
NOT_LINKED = "/usr/local/nccl/lib/libnccl.so.1: undefined symbol: __cuda{}\n"
DLL = "Could not load library cudnn_{}_infer64_8.dll. Error code {}\n"
LOADED = "I tensorflow/stream_executor/cuda/cuda_dnn.cc:384] Loaded cuDNN version {}\n"
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
    assert told(log) == ["find / -name 'libcudnn.so.7*' -not -path '/proc/*' 2>/dev/null"]
    assert "if you did not compile it" in judged(log).findings[0].remedy[-1].text


def test_sudo_gets_the_variable() -> None:
    log = "$ sudo python train.py\nOSError: libcudart.so.7.5: cannot open shared object file: No such file or directory\n"
    assert told(log)[0].startswith('sudo LD_LIBRARY_PATH="$LD_LIBRARY_PATH" ')


def test_xla_on_windows_gets_no_command_of_a_shell() -> None:
    log = (
        '  File "C:\\e\\tf\\lib\\site-packages\\tensorflow\\x.py", line 1, in f\n'
        "error: Can't find libdevice directory ${CUDA_DIR}/nvvm/libdevice\n"
    )
    assert told(log) == ['xcopy /i "%CUDA_PATH%\\nvvm\\libdevice" cuda_sdk_lib\\nvvm\\libdevice']


def test_the_provider_of_onnxruntime_is_mended_in_its_own_python() -> None:
    log = (
        'FAIL : LoadLibrary failed with error 126 "" when trying to load '
        '"C:\\portable\\python_embeded\\Lib\\site-packages\\onnxruntime\\capi\\onnxruntime_providers_cuda.dll"\n'
    )
    assert told(log) == [
        "where /r C:\\ cudart64_*.dll cublas*.dll cudnn*.dll & path",
        'C:\\portable\\python_embeded\\python.exe -m pip install -U "onnxruntime-gpu[cuda,cudnn]>=1.21,<1.27"',
    ]


def test_triton_uses_the_ptxas_of_a_toolkit() -> None:
    log = (
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\n"
        "Repro command: /v/triton/backends/nvidia/bin/ptxas -v --gpu-name=sm_121a\n"
    )
    assert told(log)[0].endswith("export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas TRITON_PTXAS_BLACKWELL_PATH=/usr/local/cuda/bin/ptxas")


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


@pytest.mark.parametrize(
    ("log", "asks"),
    [
        (LOST.format("libcudart.so.10.0") + "/usr/lib/aarch64-linux-gnu/libpython3.6m.so\n", True),
        (LOST.format("libcublas.so.10.0"), True),
        (LOST.format("libcudart.so.10.2") + "$ uname -a\nLinux tx2 4.9.140 aarch64\n", True),
        (TORCH_36 + LOST.format("libnvToolsExt.so.1"), True),
        (LOST.format("libcudnn.so.8") + "nvidia-l4t-core 35.4.1\n", True),
        (LOST.format("libcublas.so.12") + "Linux gh200 6.5 aarch64 GNU/Linux\n", True),
        (LOST.format("libcublas.so.10.0") + "Your CPU supports instructions: AVX2 FMA\n", False),
        (LOST.format("libcudart.so.10.0") + "name: GeForce GTX 1080 Ti\n", False),
        (LOST.format("libcudart.so.10.1"), False),
        (LOST.format("libcublas.so.12"), False),
    ],
)
def test_a_library_that_only_a_jetson_may_lack_asks_which_machine_it_is(log: str, *, asks: bool) -> None:
    assert ("cat /etc/nv_tegra_release" in " ".join(told(log)[:1])) is asks


@pytest.mark.parametrize("log", [LOST.format("libcudart.so.10.0") + "on aarch64\n", LOST.format("libcudnn.so.8") + "JetPack 5.1\n"])
def test_a_jetson_gets_no_packages_of_other_machines(log: str) -> None:
    assert not [one for one in told(log) if "conda " in one or "pip " in one or "libcudnn" in one or "apply" in one]


def test_no_wheel_of_cuda_replaces_what_the_torch_of_its_python_contains() -> None:
    assert not any("nvidia-nvtx" in one.text for one in first(TORCH_36 + LOST.format("libnvToolsExt.so.1")).remedy)


@pytest.mark.parametrize("place", ["/usr/lib/aarch64-linux-gnu/nvidia/libnvdla_compiler.so", "/home/jetson/torch/lib/libtorch_cpu.so"])
def test_libraries_of_a_jetson_are_those_of_its_release(place: str) -> None:
    log = f"ImportError: /lib/aarch64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by {place})\n"
    assert told(log) == ["cat /etc/nv_tegra_release"]


@pytest.mark.parametrize(
    ("lib", "command"),
    [
        ("libcudart.so.9.1", None),
        ("libcudart.so.7.0", None),
        ("libcudart.so.9.0", "conda install cudatoolkit=9.0 cudnn=7"),
        ("libcublas.so.10.0", "conda install cudatoolkit=10.0 cudnn=7"),
    ],
)
def test_conda_is_asked_for_releases_that_it_has(lib: str, command: str | None) -> None:
    found = [one for one in told(LOST.format(lib) + "import tensorflow as tf\n") if one.startswith("conda")]
    assert found == ([command] if command else [])


@pytest.mark.parametrize(
    ("frame", "is_own"),
    [
        (FRAME.format("/home/me/ctpn/lib/utils/__init__.py", "from . import gpu_nms"), True),
        (FRAME.format("run.py", "import cv2"), True),
        (FRAME.format("run.py", "import tensorflow as tf"), False),
        (FRAME.format("/e/lib/python3.7/site-packages/mmcv/ops/__init__.py", "from . import _ext"), False),
        (FRAME.format("run.py", "import x") + "[...]\n" * 4, False),
    ],
)
@pytest.mark.parametrize("lib", ["libcudart.so.9.1", "libcudart.so.11.0"])
def test_a_module_of_the_program_is_compiled_again(frame: str, lib: str, *, is_own: bool) -> None:
    log = frame + LOST.format(lib)
    assert ("compile it again" in first(log).remedy[0].text) is is_own
    assert not (is_own and any("apply" in one or "pip install" in one for one in told(log)))


@pytest.mark.parametrize(
    ("lib", "command"),
    [
        ("libmpi_cxx.so.40", "sudo apt-get install libopenmpi3"),
        ("libGL.so.1", "sudo apt-get install libgl1"),
        ("libopencv_core.so.3.4", "find / -name 'libopencv_core.so.3.4*' -not -path '/proc/*' 2>/dev/null"),
        (
            "libpython3.12.so.1.0",
            "export LD_LIBRARY_PATH=$(python -c 'import sysconfig; print(sysconfig.get_config_var(\"LIBDIR\"))'):$LD_LIBRARY_PATH",
        ),
    ],
)
def test_a_library_of_the_system_is_named_with_its_package(lib: str, command: str) -> None:
    finding = first(LOST.format(lib))
    assert [first(LOST.format(one)).cause == "unrecognised" for one in (lib, "libcublas.so.12", "libcuda.so.1", "libtorch.so")] == [
        True,
        *[False] * 3,
    ]
    assert lib in finding.summary
    assert told(LOST.format(lib)) == [command]


def test_a_library_that_was_found_at_last_is_not_missing() -> None:
    log = LOST.format("libnccl.so") + NOT_LINKED.format("RegisterFatBinary")
    assert [one.cause for one in judged(log).findings if one.severity == "error"] == ["other_bug"]
    assert told(log)[0].startswith("LD_PRELOAD=")


@pytest.mark.parametrize("name", ["RegisterFatBinaryEnd", "PopCallConfiguration", "PushCallConfiguration"])
def test_a_function_of_a_newer_runtime_tells_of_another_cuda(name: str) -> None:
    log = NOT_LINKED.format(name)
    assert first(log).cause == "toolkit_build_mismatch"
    assert "torch.version.cuda" in told(log)[0]


@pytest.mark.parametrize(
    "log",
    [
        "/usr/bin/ld: cannot find -l:libcuda.so.1\n",
        "/usr/bin/ld: cannot find -l:libcuda.so.1: No such file or directory\ncollect2: error: ld returned 1 exit status\n",
        "Command '['/usr/bin/gcc', '/tmp/tmp1/cuda_utils.c', '-lcuda']' failed\n/usr/bin/ld: cannot find -lcuda\n",
    ],
)
def test_a_running_program_links_with_the_library_of_the_driver(log: str) -> None:
    assert first(log).cause == "lib_not_on_path"
    assert "find / -name 'libcuda.so*'" in told(log)[0]
    assert told(log)[1] == "export LIBRARY_PATH=DIRECTORY:$LIBRARY_PATH"
    assert not any("stubs:" in one or "modprobe" in one for one in told(log))
    assert "stubs:" in told("/usr/bin/ld: cannot find -lcuda\nmake: *** [darknet] Error 1\n")[0]  # a build


def test_a_driver_that_works_is_found_by_its_other_name() -> None:
    log = "RuntimeError: Failed to dlopen libcuda.so\n"
    assert told(log)[1] == "ldconfig -p | grep libcuda.so; ls -l /usr/lib/wsl/lib/libcuda.so*"
    assert not any("dkms" in one for one in told(log))
    assert first(f"Linux 5.15.90.1-microsoft-standard-WSL2\n{log}").cause == "lib_not_on_path"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (DLL.format("cnn", 193), "zlib_missing"),
        (LOADED.format(8500) + DLL.format("ops", 193), "zlib_missing"),
        (LOADED.format(8401) + DLL.format("ops", 126), "zlib_missing"),
        (LOADED.format(8100) + DLL.format("ops", 126), "cudnn_missing"),
        (DLL.format("ops", 126), "cudnn_missing"),
    ],
)
def test_a_part_of_cudnn_that_does_not_load_on_windows_lacks_zlib(log: str, cause: str) -> None:
    assert first(log).cause == cause
    assert not ("tensorflow" in log and any("ctranslate2" in one for one in told(log)))


def test_a_mix_of_cudnn_names_the_directory_also_if_the_line_is_cut() -> None:
    symbol = "_Z22cudnnGenericOpTensorNdILi3EE13cudnnStatus_t" + "P" * 130
    log = "Could not load library libcudnn_adv_train.so.8. Error: /e/conda3/envs/x/bin/../lib/libcudnn_ops_train.so.8: symbol "
    log += f"{symbol}, version libcudnn_ops_infer.so.8 not defined in file libcudnn_ops_infer.so.8 with link time reference\n"
    assert told(log)[1].startswith("export LD_LIBRARY_PATH=/e/conda3/envs/x/lib$")
    assert "ldconfig -p | grep libcudnn" in told(log)[2]


def test_a_cudnn_without_wheels_goes_beside_the_other_one() -> None:
    log = "OSError: libcudnn.so.5: cannot open shared object file\nLD_LIBRARY_PATH=/home/me/cudnn-6.0/lib64\n"
    assert first(log).cause == "cudnn_major_mismatch"
    assert "$HOME/cudnn5/cuda/lib64" in told(log)[0]
    assert "compile it again" in words(log)


def test_jax_is_asked_which_cudnn_it_has() -> None:
    log = "CUDA backend failed to initialize: Unable to load cuDNN. Is it installed?\n"
    assert told(log)[0] == "python -m pip list | grep -i -e jax -e cudnn"
    assert "nvidia-cudnn-cu12<9" in words(log)


def test_nvjitlink_that_is_used_already_is_upgraded() -> None:
    ptx = "numba.cuda.cudadrv.driver.LinkerError: [222] Call to cuLinkAddData results in CUDA_ERROR_UNSUPPORTED_PTX_VERSION\n"
    ptx += "ptxas application ptx input, line 9; fatal   : Unsupported .version {}; current version is '8.4'\n"
    used = "pynvjitlink.api.NvJitLinkError: NVJITLINK_ERROR_PTX_COMPILE error when calling nvJitLinkAddData\n"
    assert "python -m pip install -U 'numba-cuda[cu12]'" in told(ptx.format("8.7"))
    assert told(used + ptx.format("8.7"))[0] == "python -m pip install -U pynvjitlink-cu12 'nvidia-nvjitlink-cu12>=12.8'"
    assert not any("cu12>=13" in one for one in told(used + ptx.format("9.0")))
