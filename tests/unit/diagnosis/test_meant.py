"""The same words where nothing failed: the GPU works afterwards, or its absence is meant. Each log has a twin that failed."""

from __future__ import annotations

import pytest

from tests.written_logs import judged, loud

NO_SMI = "bash: nvidia-smi: command not found\n"
SEEN = "True NVIDIA GeForce RTX 4070\n"
NO_DEVICE = "2022-09-08 16:40:11.22: E tensorflow/stream_executor/cuda/cuda_driver.cc:271] failed call to cuInit: CUDA_ERROR_NO_DEVICE\n"
NO_DRIVER = "/v/torch/cuda/__init__.py:107: UserWarning: CUDA initialization: Found no NVIDIA driver on your system.\n"
NO_TOOLKIT = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n'
NO_PROVIDER = "UserWarning: Specified provider 'CUDAExecutionProvider' is not in available provider names.Available providers: "
SMI = "    img: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
LESS = "I tensorflow/cuda_driver.cc:806] failed to allocate 7.42G (7972519936 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
TRAINS = "".join(f"Epoch {epoch}/2\n938/938 [==============================] - 4s 3ms/step - loss: 0.3\n" for epoch in (1, 2))
INTEL = "00:02.0 VGA compatible controller: Intel Corporation UHD Graphics 620\n"
DISPLAY = "00:02.0 VGA compatible controller: Cirrus Logic GD 5446\n"
HIDDEN = 'os.environ["CUDA_VISIBLE_DEVICES"] = "-1"'
BUILT = "==> Builds finished. The artifacts of successful builds are:\n"
SIZES = "RuntimeWarning: numpy.dtype size changed, may indicate binary incompatibility. Expected 96, got 88\n"
REMOVED = "NVRM: Xid (PCI:0000:01:00): 45, pid=51934, name=python, Ch 00000010\n"
NO_MODULE = "ERROR:105: Unable to locate a modulefile for 'cuda/9.0'\n"
DSO = "W tensorflow/dso_loader.cc:64] Could not load dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared object\n"
CREATED = "I tensorflow/gpu_device.cc:1525] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 9617 MB memory\n"
OLD = "/v/torch/cuda/__init__.py:7: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 10010).\n"
VFIO = "NVRM: GPU 0000:41:00.0 is already bound to vfio-pci.\nNVRM: The NVIDIA probe routine was not called for 1 device(s).\n"
LISTED = "GPU 0: Quadro P2000 (UUID: GPU-0)\n"
ROM = "WARNING: infoROM is corrupted at gpu 0000:41:00.0\n"
STEPS = "step 8 loss 0.3\nstep 9 loss 0.2\n"


@pytest.mark.parametrize(
    ("harmless", "failed"),
    [
        (f"{NO_SMI}{SEEN}", f"{NO_SMI}False\n"),
        (f"{NO_SMI}1.9.0 True Xavier\n", f"{NO_SMI}$ ssh me@gpu2\n{SEEN}"),
        (f"{NO_SMI}[CudaDevice(id=0)]\n", f"root@3f2a91bc77de:/# nvidia-smi\n{NO_SMI}{SEEN}"),
        (f"$ python a.py --cpu\n{NO_DEVICE}wrote a.csv\n", f"$ python a.py --gpu\n{NO_DEVICE}wrote a.csv\n"),
        (f"$ python a.py --cpu\n{NO_DEVICE}wrote a.csv\n", f"$ python a.py --cpu\n$ python b.py\n{NO_DEVICE}wrote a.csv\n"),
        (f"{HIDDEN}  # on the CPU\n$ python a.py\n{NO_DEVICE}wrote a.csv\n", f"{HIDDEN}\n$ python a.py\n{NO_DEVICE}wrote a.csv\n"),
        (f"{HIDDEN}  # on the CPU\n{NO_DEVICE}wrote a.csv\n", f"# {HIDDEN}  # on the CPU\n{NO_DEVICE}wrote a.csv\n"),
        (f"$ python a.py --cpu\n{NO_DEVICE}wrote a.csv\n", f"$ python a.py --cpu\n$ make train\n{NO_DEVICE}wrote a.csv\n"),
        (f"$ python a.py --cpu\n{NO_DEVICE}wrote a.csv\n", f"$ python a.py --cpu\n$ uv run train\n{NO_DEVICE}wrote a.csv\n"),
        (f"{NO_MODULE}Using cuda:0\n{TRAINS}", NO_MODULE),
        (f"$ kill -9 51934\n{REMOVED}", REMOVED),
        (f"$ lspci\n{DISPLAY}{NO_DRIVER}wrote a.csv\n", f"$ lspci | grep VGA\n{DISPLAY}{NO_DRIVER}wrote a.csv\n"),
        (f"{INTEL}{NO_TOOLKIT} ✔ Container app-cpu  Healthy\n", f"$ lspci | grep VGA\n{INTEL}{NO_TOOLKIT} ✔ Container app-cpu  Healthy\n"),
        (f"{INTEL}{NO_DRIVER}wrote a.csv\n", f"{INTEL}01:00.0 3D controller: NVIDIA Corporation GP108M\n{NO_DRIVER}wrote a.csv\n"),
        (f"{NO_PROVIDER}'CoreMLExecutionProvider'\nwrote a.txt\n", f"{NO_PROVIDER}'CPUExecutionProvider'\nwrote a.txt\n"),
        (f"    img: m5.large\n{SMI}{BUILT}", f"    img: g4dn.xlarge\n{SMI}{BUILT}"),
        (f"#8 0.5 {NO_DRIVER}#9 naming to a/b:1 done\n", "#8 0.5 No CUDA runtime is found, using CUDA_HOME=/a\n#9 naming to a/b:1 done\n"),
        (f"{LESS}{TRAINS}", f"{LESS}Epoch 1/2\nResourceExhaustedError: OOM when allocating tensor with shape[64,512]\n"),
        (f"{SIZES}{TRAINS}", f"{SIZES}ImportError: numpy.core.multiarray failed to import\n"),
        (f"step 7 loss 0.4^C\nKeyboardInterrupt\n{REMOVED}{STEPS}", f"step 7 loss 0.4\n{REMOVED}"),
        (f"step 7 loss 0.4^C\nKeyboardInterrupt\n{REMOVED}{STEPS}", f"KeyboardInterrupt\n{STEPS}ValueError: lr must not be negative\n"),
        (f"{DSO}$ conda install cudnn=8.1\n{CREATED}I cuda_dnn.cc:368] Loaded cuDNN version 8100\n", f"{CREATED}{DSO}"),
        (f"{DSO}{CREATED}", f"{DSO}{CREATED}libcudnn_cnn_infer.so.8: cannot open shared object file\nAborted (core dumped)\n"),
        (f"$ yolo export device=cpu\n{OLD}Export complete (2.4s)\n", f"$ yolo export device=0\n{OLD}Export complete (2.4s)\n"),
        (f"$ tts --use_cuda false\n{OLD}Done in 12.4s\n", f"$ tts --use_cuda true\n{OLD}Done in 12.4s\n"),
        (f"{VFIO}{LISTED}", f"{VFIO}RuntimeError: Found no NVIDIA driver on your system.\n{LISTED}"),
        (f"{VFIO}{LISTED}", f"{VFIO}NVRM: GPU 0000:42:00.0 is already bound to nouveau.\n{LISTED}"),
        (f"{ROM}{STEPS}", f"{ROM}{STEPS}NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n"),
    ],
)
def test_what_surrounds_a_message_decides(harmless: str, failed: str) -> None:
    assert not loud(judged(harmless))
    assert loud(judged(failed))


def test_a_training_that_was_told_to_use_the_gpu_is_not_silently_on_the_cpu() -> None:
    assert loud(judged(f"$ python fit.py --accelerator gpu\n{NO_DRIVER}{TRAINS}"))


def test_powershell_gets_commands_that_it_has() -> None:
    log = "PS C:\\work> .\\demo.exe\nThe code execution cannot proceed because cudart64_12.dll was not found.\n"
    undecided = judged(log).findings[0].undecided or ""

    assert "where.exe /r C:\\ cudart64_*.dll" in undecided
    assert " & " not in undecided
