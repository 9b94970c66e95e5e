"""A remedy for a log alone: it is for the environment, the system, the CUDA and the card that the log tells, and for no other."""

from __future__ import annotations

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import Finding
from tests.written_logs import book, judged


def first(log: str) -> Finding:
    return diagnose(Reader(book().symptoms()).read([log.encode()]), None, book()).findings[0]


def commands(log: str) -> list[str]:
    """What the first finding of a log says to do."""
    return [one.command for one in first(log).remedy if one.command]


def frame(path: str) -> str:
    return f'Traceback (most recent call last):\n  File "{path}", line 1, in <module>\n'


NUMPY = "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.3 as it may crash.\nAttributeError: _ARRAY_API not found\n"
KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"


@pytest.mark.parametrize(
    ("path", "python"),
    [
        ("/home/me/.venv/lib/python3.11/site-packages/torch/__init__.py", "/home/me/.venv/bin/python"),
        ("./venv/lib/python3.11/site-packages/torch/__init__.py", "./venv/bin/python"),
        ("~/miniconda3/envs/a/lib/python3.9/site-packages/torch/__init__.py", "~/miniconda3/envs/a/bin/python"),
        ("/home/a b/.venv/lib/python3.9/site-packages/torch/__init__.py", "python3.9"),
        ("/home/me/.local/lib/python3.10/site-packages/torch/__init__.py", "python3.10"),
        ("/usr/local/lib/python3.10/dist-packages/torch/__init__.py", "python3.10"),
        (r"C:\Python310\lib\site-packages\torch\__init__.py", r"C:\Python310\python.exe"),
        (r"c:\Python310\lib\site-packages\torch\__init__.py", r"c:\Python310\python.exe"),
        (r"D:\anaconda3\envs\env\lib\site-packages\torch\__init__.py", r"D:\anaconda3\envs\env\python.exe"),
        (r"P:\AI\my venv\lib\site-packages\torch\__init__.py", r'"P:\AI\my venv\Scripts\python.exe"'),
        (r"D:\AI\app\.app\lib\site-packages\torch\__init__.py", r"D:\AI\app\.app\Scripts\python.exe"),
        (r"D:\AI\app\python-env\Lib\site-packages\torch\__init__.py", r"D:\AI\app\python-env\Scripts\python.exe"),
        (r"D:\webui\installer_files\env\lib\site-packages\torch\__init__.py", r"D:\webui\installer_files\env\python.exe"),
        (r"D:\UI\python_embeded\Lib\site-packages\torch\__init__.py", r"D:\UI\python_embeded\python.exe"),
        (r"C:\Users\me\Miniconda3\lib\site-packages\torch\__init__.py", r"C:\Users\me\Miniconda3\python.exe"),
        (r"P:\AI\kohya ss\venv\lib\site-packages\torch\__init__.py", r'"P:\AI\kohya ss\venv\Scripts\python.exe"'),
    ],
)
def test_commands_are_for_the_interpreter_of_the_traceback(path: str, python: str) -> None:
    assert commands(frame(path) + NUMPY)[0].startswith(f"{python} -m pip install")


def test_quotes_are_those_of_the_system() -> None:
    assert "'numpy<2'" in commands(frame("/v/lib/python3.11/site-packages/torch/__init__.py") + NUMPY)[0]
    # cmd.exe would read `<2'` as a file.
    assert '"numpy<2"' in commands(frame(r"C:\Python310\lib\site-packages\torch\__init__.py") + NUMPY)[0]


@pytest.mark.parametrize(
    ("built", "there", "asked"),
    [("0x10", "0xe", "'numpy>=1.23,<2'"), ("0xa", "0x9", "'numpy>=1.10,<2'"), ("0x12", "0x10", "'numpy>=2.0'")],
)
def test_numpy_stays_below_the_major_that_the_extension_was_not_made_for(built: str, there: str, asked: str) -> None:
    found = commands(f"RuntimeError: module compiled against API version {built} but this version of numpy is {there}\n")
    assert [one.split(" ", 4)[4] for one in found] == [asked]


def test_no_plan_for_windows_which_is_not_planned_for() -> None:
    """PyTorch's own index has wheels for Windows; TensorFlow, which has none there, is told what it needs."""
    torch = frame(r"C:\v\venv\lib\site-packages\torch\cuda\__init__.py") + "AssertionError: Torch not compiled with CUDA enabled\n"
    assert not any("cudnn-resolve" in one for one in commands(torch))
    assert commands(torch)[0].startswith(r"C:\v\venv\Scripts\python.exe -m pip install -U torch torchvision --index-url ")
    assert all("/whl/cu" in one and "==" not in one for one in commands(torch))  # pip knows which Python this is
    missing = "W tensorflow/dso_loader.cc:55] Could not load dynamic library 'cudart64_101.dll'; dlerror: cudart64_101.dll not found\n"
    assert commands(missing) == ["conda install cudatoolkit=10.1 cudnn=7.6"]
    assert any("CUDA 10.1" in one.text for one in first(missing).remedy)


def test_wheels_are_of_the_cuda_that_the_log_is_of() -> None:
    """libcusolver.so.11 is that of CUDA 11 and that of CUDA 12."""
    lost = "OSError: libcusolver.so.11: cannot open shared object file: No such file or directory\n"
    assert "nvidia-cusolver-cu11" in commands("OSError: libcudart.so.11.0: cannot open shared object file\n" + lost)[0]
    assert "nvidia-cusolver-cu12" in commands("OSError: libcudart.so.12: cannot open shared object file\n" + lost)[0]
    assert not any("pip install" in one for one in commands(lost))


def test_no_wheel_where_there_was_none_yet() -> None:
    found = commands("ImportError: libcudart.so.9.0: cannot open shared object file: No such file or directory\nimport tensorflow\n")
    assert not any("nvidia-cuda-runtime" in one for one in found)
    assert "conda install cudatoolkit=9.0 cudnn=7" in found  # the tables know no minor version


def test_the_compiler_package_is_of_the_cuda_of_the_log() -> None:
    old = "RuntimeError: {}: libdevice not found at ./libdevice.10.bc\n"
    assert all(commands(old.format(word))[0].endswith("echo $XLA_FLAGS") for word in ("Internal", "INTERNAL"))
    assert "nvcc-cu12" in commands(f"jaxlib.xla_extension.Xla{old.format('INTERNAL')}")[1]
    lost = "InternalError: libdevice not found at ./libdevice.10.bc [Op:__some_op]\n"
    assert "nvidia-cuda-nvcc-cu12" in commands(lost)[1]
    found = commands("Searched for CUDA in the following directories:\n  /usr/local/cuda-11.8\n" + lost)
    assert not any("cu12" in one for one in found)
    assert "cuda-nvcc=11.8" in found[1]


def test_no_word_is_left_to_fill_in_for_the_framework() -> None:
    assert commands(KERNEL.replace("CUDA error", "cuda runtime error (209)") + "at aten/src/THC/generic/THCTensorMath.cu:94\n")
    found = commands("Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file\n")
    assert not any("FRAMEWORK" in one for one in found)
    assert "sudo apt-get install libcudnn8" in found


def test_a_build_is_named_that_the_card_and_the_driver_run() -> None:
    smi = "| NVIDIA-SMI 430.50       Driver Version: 430.50       CUDA Version: 10.1     |\n|   0  Tesla K80           Off  |\n"
    log = frame("/v/lib/python3.7/site-packages/torch/cuda/__init__.py") + KERNEL + smi
    told = first(log).remedy[0]
    assert "PyTorch 1.8.1, built with CUDA 10.1" in told.text
    assert told.command == "cudnn-resolve apply -f torch --python /v/bin/python"


def test_a_build_is_named_for_the_cuda_that_the_driver_is_for() -> None:
    log = frame("/v/lib/python3.7/site-packages/torch/cuda/__init__.py")
    log += "AssertionError: The NVIDIA driver on your system is too old (found version 10010).\n"
    assert "built with CUDA 10.1" in first(log).remedy[0].text


def test_no_plan_is_offered_that_the_tables_know_to_be_none() -> None:
    """Of no TensorFlow have they machine code for such a card."""
    log = "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0. CUDA kernels will be jit-compiled\n"
    found = first(log)
    assert found.cause == "gpu_arch_too_new_for_build"
    assert [one.command for one in found.remedy] == ["docker run --gpus all -it --rm nvcr.io/nvidia/tensorflow:25.02-tf2-py3"]
    assert "no known build of TensorFlow runs on compute capability 12.0" in found.remedy[0].text


def test_an_older_library_is_not_cured_by_a_reboot() -> None:
    """After an upgrade the library is the newer one, and the old module goes with the reboot."""
    log = "cuda_diagnostics.cc:313] kernel version {}.0 does not match DSO version {}.0 -- cannot find working devices\n"
    assert commands(log.format("440.33", "440.64"))[0] == "sudo reboot"
    older = commands(log.format("384.130", "375.66"))
    assert "ldconfig" in older[0]
    assert "sudo reboot" not in older


def test_a_container_is_started_as_in_the_log_with_the_gpu() -> None:
    log = "$ docker run -it -p 8888:8888 tensorflow/tensorflow:latest-gpu-jupyter jupyter notebook\n"
    log += "no NVIDIA GPU device is present: /dev/nvidia0 does not exist\n"
    assert commands(log) == ["docker run --gpus all -it -p 8888:8888 tensorflow/tensorflow:latest-gpu-jupyter jupyter notebook"]


def test_a_framework_of_one_cudnn_gets_that_one() -> None:
    found = commands("RuntimeError: cuDNN version mismatch: PyTorch was compiled against 7102 but linked against 7605\n")
    assert found[0] == "conda install 'cudnn=7.1'"


def test_what_failed_is_not_asked_for_again() -> None:
    log = "ERROR: Could not find a version that satisfies the requirement tensorflow (from versions: none)\n"
    assert not any(one.endswith("pip install tensorflow") and "uv venv" not in one for one in commands(log))
    assert any("uv venv --seed --python 3." in one for one in commands(log))


def test_a_name_without_a_version_is_looked_for_and_not_installed() -> None:
    """Wheels have libnvrtc.so.12 alone."""
    lost = "Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so: cannot open shared object file: No such file or directory\n"
    found = commands(lost)
    assert found[0].startswith("find / -name 'libnvrtc.so*'")
    assert not any("pip install" in one for one in found)


def test_packages_of_apt_stay_with_the_cuda_that_is_there() -> None:
    log = " libnccl-dev : Depends: libnccl2 (= 2.18.3-1+cuda12.2) but 2.13.4-1+cuda11.7 is to be installed\n"
    assert commands(log)[0].endswith("libnccl2=2.13.4-1+cuda11.7 libnccl-dev=2.13.4-1+cuda11.7")


def test_a_key_that_was_rejected_is_enrolled() -> None:
    log = "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n"
    assert [one.partition(" && ")[0] for one in commands(log)] == ["sudo mokutil --import /var/lib/shim-signed/mok/MOK.der"]


def test_wheels_for_windows_have_the_cudnn_and_the_cuda_of_the_log() -> None:
    log = "PS E:\\a> pip install torch --index-url https://example.org/whl/cu121\n"
    found = commands(f"{log}Could not locate cudnn_ops_infer64_8.dll. Please make sure it is in your library path!\n")
    assert "+cu121" in found[0]
    build = next(one for one in book().framework("torch").builds if f"torch=={one.wheel_version}" in found[0])
    assert build.cudnn is not None
    assert build.cudnn.major == 8


def test_a_program_without_a_table_is_told_what_to_do() -> None:
    log = frame("/v/lib/python3.7/site-packages/lightgbm/engine.py")
    found = first(f"{log}lightgbm.basic.LightGBMError: GPU Tree Learner was not enabled in this build.\n")
    assert found.cause == "cpu_only_build"
    assert "compile it" in found.remedy[0].text


def test_nothing_is_installed_into_a_store_that_cannot_be_written() -> None:
    assert commands(frame("/nix/store/abc-python3-env/lib/python3.11/site-packages/torch/__init__.py") + NUMPY)[0].startswith("python3.11 ")


def test_a_driver_that_tensorflow_doubts_is_looked_at_first() -> None:
    log = "E tensorflow/stream_executor/cuda/cuda_dnn.cc:385] could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n"
    found = first(f"{log}E cuda_dnn.cc:393] possibly insufficient driver version: 384.81.0\n")
    assert "driver is too old" in found.remedy[0].text


def test_for_a_package_that_is_no_framework_none_is_asked_for() -> None:
    found = commands("nvidia_stub.error.InstallFailedError:\nThe installation of cudf-cu12 for version 24.4.1 failed.\n")
    assert not any("doctor LOG" in one for one in found)


def test_an_image_is_not_what_an_option_names() -> None:
    failed = "no NVIDIA GPU device is present: /dev/nvidia0 does not exist\n"
    for options, image in (  # a command that does more than start a container is not repeated
        ("--add-host db:10.0.0.1 --rm ubuntu:22.04 bash; reboot", "ubuntu:22.04"),
        ("-it pytorch/pytorch python tools/train.py | tee log", "pytorch/pytorch"),
        ("--rm --network container:other ubuntu bash -c 'a && b'", "IMAGE"),
    ):
        assert commands(f"$ docker run {options}\n{failed}") == [f"docker run --gpus all {image}"]


def test_a_folder_of_windows_that_a_shell_would_read_is_not_put_into_a_command() -> None:
    log = '  File "C:\\a{0}b\\lib\\site-packages\\numpy\\__init__.py", line 1, in <module>\nRuntimeError: Numpy is not available\n'
    assert commands(log.format("_"))[0] == 'C:\\a_b\\Scripts\\python.exe -m pip install "numpy<2"'
    for sign in "&;^%$`!":
        assert sign not in commands(log.format(f"{sign}calc{sign}"))[0]


def test_a_release_for_an_old_gpu_is_pinned_since_pip_keeps_a_newer_one() -> None:
    """Of a Python that is not told its wheels may be refused, so that an environment follows."""
    old = "UserWarning:\n    Found GPU0 GeForce GTX 960M which is of cuda capability 5.0.\n"
    old += "    PyTorch no longer supports this GPU because it is too old.\n"
    found = first(frame(r"C:\conda\envs\voice\lib\site-packages\torch\cuda\__init__.py") + old).remedy
    assert [(one.command or "").partition("torch==")[0].rpartition(" -m ")[2] for one in found] == ["pip install -U ", "pip install "]
    told = commands(frame(r"C:\Python311\lib\site-packages\torch\cuda\__init__.py") + old)
    assert [one.partition(" -U torch==")[0] for one in told] == [r"C:\Python311\python.exe -m pip install"]


def test_the_package_that_a_traceback_names_moves_along() -> None:
    load = r'  File "C:\Python311\lib\site-packages\torchaudio\_extension\utils.py", line 61, in _load_lib' + "\n"
    failed = "OSError: [WinError 127] The specified procedure could not be found\n"
    start = frame(r"C:\Python311\lib\site-packages\torch\_ops.py")
    assert " torchvision torchaudio " in commands(start + load + failed)[0]
    assert not any("torchaudio" in one for one in commands(start + failed))


def test_the_name_without_a_version_is_not_looked_for_in_names_that_have_it() -> None:
    lost = "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file: No such file or directory\n"
    assert commands(lost)[0].startswith("ldconfig -p | grep libcuda.so")
    assert commands(lost)[1] == "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH"


def test_what_was_linked_here_is_not_installed_again() -> None:
    """`sudo` drops the path that the linker's libraries are on."""
    lost = "{}: error while loading shared libraries: libcudart.so.9.0: cannot open shared object file: No such file or directory\n"
    built = first(lost.format(".build_release/tools/caffe"))
    assert built.cause == "lib_not_on_path"
    assert "/usr/local/cuda-9.0/lib64" in (built.remedy[0].command or "")
    assert any("sudo LD_LIBRARY_PATH=" in one.text for one in built.remedy)
    assert first(lost.format("/usr/bin/caffe")).cause == "cuda_runtime_missing"


def test_the_driver_that_a_message_asks_for_is_named() -> None:
    found = first("Required: NVENC API 13.0\nFound: 12.2\nMinimum required Nvidia driver is 570.0 or newer\n")
    assert (found.cause, found.severity) == ("driver_too_old", "error")
    assert "570.0" in found.remedy[0].text


def test_a_python_that_only_conda_has_is_asked_of_conda() -> None:
    log = "ERROR: Could not find a version that satisfies the requirement tensorflow-gpu=={} (from versions: {})\n"
    old = commands(log.format("1.12.0", "1.13.1, 1.15.0, 2.0.0"))
    assert any(one.startswith("conda create ") and "python=3.6" in one for one in old)
    assert not any(one.startswith("uv venv") for one in old)
    assert any(one.startswith("uv venv") for one in commands(log.format("2.3.0", "2.8.0, 2.9.0")))


def test_growth_is_for_handles_that_find_no_room() -> None:
    full = "ResourceExhaustedError: OOM when allocating tensor with shape[1,2] and type float on /job:localhost [Op:Conv2D] tensorflow\n"
    handle = "E tensorflow/stream_executor/cuda/cuda_dnn.cc:328] Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n"
    assert not any("ALLOW_GROWTH" in one for one in commands(full))
    assert any("ALLOW_GROWTH" in one for one in commands(handle))


def test_a_part_of_the_driver_is_first_a_capability_of_the_container() -> None:
    found = first("[h264_nvenc @ 0x55] Cannot load libnvidia-encode.so.1\n")
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility,video" in (found.remedy[0].command or "")
    assert not any("libnvidia-gl" in one.text for one in found.remedy)


def test_what_finds_the_framework_is_no_step_beside_one_that_mends() -> None:
    found = first("[h264_nvenc @ 0x7ff] Driver does not support the required nvenc API version. Required: 9.1 Found: 9.0\n")
    assert found.remedy
    assert not any("which framework it is" in one.text for one in found.remedy)


def test_another_environment_whose_path_ends_alike_is_not_taken() -> None:
    log = (
        "/srv/projects/old/venv/lib/python3.8/site-packages/x.py: warning\n"
        '  File "/venv/lib/python3.10/site-packages/torch/cuda/__init__.py", line 3, in f\n'
        "AssertionError: Torch not compiled with CUDA enabled\n"
    )
    commands = [step.command or "" for step in judged(log).findings[0].remedy]
    assert any("/venv/bin/python" in command for command in commands)
    assert not any("/srv/" in command for command in commands)


def test_a_masked_path_is_no_interpreter() -> None:
    log = '  File "/home/*/lib/python3.10/site-packages/jax/__init__.py", line 3, in f\nAttributeError: _ARRAY_API not found\n'
    assert not any("*/bin" in (step.command or "") for step in judged(log).findings[0].remedy)
