"""Failures of no known cause: the line that says why, the kind of failure, and the steps of that kind."""

from __future__ import annotations

import pytest

from tests.written_logs import judged, loud

SITE = "/home/me/env/lib/python3.10/site-packages"


def steps(log: str) -> list[str]:
    """Texts and commands of the first finding's remedies."""
    return [part for remedy in judged(log).findings[0].remedy for part in (remedy.text, remedy.command) if part]


def quoted(log: str) -> list[str]:
    """Evidence of the first finding."""
    return [evidence.text for evidence in judged(log).findings[0].evidence]


def test_an_error_of_a_package_names_it_and_its_interpreter() -> None:
    log = (
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    run()\n'
        f'  File "{SITE}/timm/layers.py", line 7, in run\n    x()\nTypeError: __init__() got an unexpected keyword argument foo\n'
    )
    finding = judged(log).findings[0]
    assert finding.cause == "unrecognised"
    assert "not a failure of the GPU stack" in finding.summary
    assert "timm" in finding.summary
    assert "/home/me/env/bin/python -m pip show timm" in steps(log)
    assert any("line 3 of train.py" in step for step in steps(log))
    assert not any(word in step for step in steps(log) for word in ("LD_DEBUG", "NCCL", "cudnn-resolve"))


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: 'arr' does not have a suitable array shape for any mode",
        "TypeError: Cannot handle this data type: (1, 1, 3), <f4",
        "OSError: image file is truncated (12 bytes not processed)",
        "PIL.UnidentifiedImageError: cannot identify image file 'a.jpg'",
        "cv2.error: OpenCV(4.5.4) color.cpp:182: error: (-215:Assertion failed) !_src.empty() in function 'cvtColor'",
    ],
)
def test_an_image_that_cannot_be_used_is_looked_at(line: str) -> None:
    assert any("print the file's name" in step for step in steps(line + "\n"))
    assert not any("pip" in step for step in steps(line + "\n"))


def test_a_rank_before_the_message_changes_nothing() -> None:
    log = f"[rank0]:   File \"{SITE}/datasets/load.py\", line 7, in load\n[rank0]:     raise x\n[rank0]: KeyError: 'train'\n"
    wrapper = (
        f'  File "{SITE}/torch/distributed/launcher/api.py", line 264, in launch_agent\n    raise ChildFailedError(\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    )
    assert quoted(log + wrapper) == ["[rank0]: KeyError: 'train'"]
    assert "/home/me/env/bin/python -m pip install -U datasets" in steps(log + wrapper)


def test_a_notebook_gets_commands_of_a_notebook() -> None:
    log = (
        "<ipython-input-4-2da0ffaf5447> in <module>()\n/usr/local/lib/python3.6/dist-packages/jax/core.py in __getattr__(self, name)\n"
        "    365 x\nAttributeError: 'A' object has no attribute 'b'\n"
    )
    assert "%pip show jax" in steps(log)


@pytest.mark.parametrize(
    ("log", "command"),
    [
        ("ModuleNotFoundError: No module named 'cv2'\n", "python -m pip install opencv-python"),
        ("ModuleNotFoundError: No module named 'einops'\n", "python -m pip install einops"),
        (
            "ImportError: cannot import name 'metrics' from 'fairseq' (unknown location)\n",
            "python -c 'import fairseq; print(fairseq.__path__)'",
        ),
    ],
)
def test_a_failed_import_says_what_to_install_or_where_it_was_found(log: str, command: str) -> None:
    assert command in steps(log)


def test_a_name_that_one_package_asks_of_another_upgrades_both_unless_one_is_a_framework() -> None:
    call = f'  File "{SITE}/peft/peft_model.py", line 37, in <module>\n    from x import y\n'
    error = "ImportError: cannot import name 'EncoderDecoderCache' from '{}' ({}/x/__init__.py)\n"
    assert "/home/me/env/bin/python -m pip install -U transformers peft" in steps(call + error.format("transformers", SITE))
    assert "/home/me/env/bin/python -m pip install -U peft" in steps(call + error.format("numpy_ext", SITE))


def test_an_error_without_calls_asks_for_them() -> None:
    assert any("whole traceback" in step for step in steps("TypeError: F.__init__() takes 1 positional argument but 2 were given\n"))


@pytest.mark.parametrize(
    "said",
    [
        "E0327 01:23:03.1 1 model_repository_manager.cc:1682] unexpected platform type caffe2_netdef for resnet50_netdef\n",
        "E0618 07:08:13.9 8 model_repository_manager.cc:1916] Poll failed for model directory 'rul': unexpected platform type x for rul\n",
        "E1104 12:45:39.6 1 model_lifecycle.cc:596] failed to load 'a': Invalid argument: unknown platform 'tensorflow_graphdef'\n",
        "E1104 12:45:39.6 1 model_lifecycle.cc:596] failed to load 'a': Invalid argument: unable to find 'libtriton_tensorflow.so'\n",
    ],
)
def test_a_model_that_triton_cannot_load_is_no_matter_of_the_driver(said: str) -> None:
    pinned = (
        "E0327 01:23:03.1 1 pinned_memory_manager.cc:202] failed to allocate pinned system memory: CUDA driver version is insufficient\n"
    )
    assert judged(pinned + said).findings[0].cause == "unrecognised"
    assert "ls /opt/tritonserver/backends" in steps(pinned + said)


@pytest.mark.parametrize("end", ["ninja: build stopped: subcommand failed.\n", "make: *** [all] Error 2\n"])
def test_the_first_error_of_a_build_is_quoted(end: str) -> None:
    log = 'nvcc -c a.cu\na.cu(12): error: namespace "at" has no member "f"\na.cu(13): error: expected a ";"\n'
    assert quoted(log + end) == ['a.cu(12): error: namespace "at" has no member "f"']
    assert "nvcc --version && gcc --version" in steps(log + end)


def test_a_build_of_a_package_is_told_of_its_wheel() -> None:
    log = "  gcc: error: maskApi.c: No such file or directory\n  ERROR: Failed building wheel for mmpycocotools\n"
    assert quoted(log) == ["gcc: error: maskApi.c: No such file or directory"]
    assert steps(log)[1] == "python -m pip install --only-binary=:all: mmpycocotools"
    assert not any("nvcc" in step for step in steps(log))  # nothing of CUDA is compiled


def test_a_crash_asks_for_the_call_and_the_libraries() -> None:
    log = '  File "run.py", line 2, in <module>\nSegmentation fault (core dumped)\n'
    assert "python -X faulthandler run.py" in steps(log)
    assert any("LD_DEBUG" in step for step in steps(log))
    assert not any("LD_DEBUG" in step for step in steps("C:\\x\\a.py\nWindows fatal exception: access violation\n"))


def test_a_line_that_only_passes_on_a_failure_is_named_as_such() -> None:
    log = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    assert "something before it failed" in judged(log).findings[0].summary


def test_a_message_that_starts_on_the_next_line_is_quoted_whole() -> None:
    log = (
        "RuntimeError: Failed to import transformers.models.bert because of the following error (look up to see its traceback):\n"
        "No module named 'foo.bar'\n"
    )
    assert quoted(log)[0].endswith("No module named 'foo.bar'")
    assert "python -m pip show foo" in steps(log)


def test_nothing_is_said_to_be_absent_that_was_not_looked_for() -> None:
    summary = judged("step\nERROR: the run was lost\n").findings[0].summary
    assert "no missing library" not in summary
    assert "invisible" not in summary


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ('RuntimeError: Error(s) in loading state_dict for M:\n\tMissing key(s) in state_dict: "a.b".\n', "strict=False"),
        ("RuntimeError: Error(s) in loading state_dict for M:\n\tsize mismatch for a: copying a param with shape x\n", "number of classes"),
        ("_pickle.UnpicklingError: invalid load key, 'v'.\n", "git lfs pull"),
        ("ValueError: Unknown layer: Attention\n", "custom_objects={'Attention': Attention}"),
        ("ValueError: Unknown layer: Functional\n", "tensorflow>=2.3"),
        ("[E] Watchdog caught collective operation timeout: WorkNCCL(x)\n", "first error before the timeout"),
        ("RuntimeError: The server socket has failed to bind (errno: 98 - Address already in use).\n", "ss -ltnp"),
        ("urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>\n", "HTTPS_PROXY"),
        ("huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1)\n", "HF_TOKEN"),
        ("RuntimeError: received 0 items of ancdata\n", "ulimit -n 65536"),
        ("OSError: [Errno 28] No space left on device\n", "df -h"),
        (
            "[E] [c10d] The client socket has timed out after 60s while trying to connect to 192.0.0.1:1234\nRuntimeError: x\n",
            "nc -vz 192.0.0.1 1234",
        ),
        ("ValueError: Shapes (None, 30) and (None, 9) are incompatible\n", "number of classes"),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1595 (packagekitd)\n", "ps -fp 1595"),
        ("E: dpkg was interrupted, you must manually run 'sudo dpkg --configure -a' to correct the problem.\n", "sudo dpkg --configure -a"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n", "python -m pip cache purge"),
        ("pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='h', port=443): Read timed out.\n", "--timeout 600"),
        ("KeyError: 'ReDet is not in the models registry'\n", "custom_imports"),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.\n", "num_workers=0"),
        ("mpirun noticed that process rank 1 with PID 7 on node n exited on signal 9 (Killed).\n", "dmesg"),
        ("ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n", "session_latest"),
        ('a.cu(6): error: identifier "__hmax2" is undefined\nninja: build stopped: subcommand failed.\n', "nvcc --version"),
    ],
)
def test_common_failures_outside_the_gpu_stack_have_their_steps(log: str, words: str) -> None:
    assert loud(judged(log)) == ["unrecognised"]
    assert any(words in step for step in steps(log))


@pytest.mark.parametrize(
    "line",
    [
        "  file /usr/bin/nvidia-modprobe conflicts between attempted installs of {one} and {other}",
        "  Datei /usr/bin/nvidia-modprobe aus der Installation von {one} steht im Konflikt mit der Datei aus dem Paket {other}",
    ],
)
def test_two_rpm_packages_with_one_file_are_named(line: str) -> None:
    said = line.format(one="nvidia-modprobe-3:495.29.05-1.el8.x86_64", other="nvidia-modprobe-latest-3:495.29.05-1.el7.x86_64")
    log = f"Transaction check error:\n{said}\n"
    assert judged(log).findings[0].cause == "apt_conflict"
    assert "yum repolist; repoquery --location nvidia-modprobe nvidia-modprobe-latest" in steps(log)


def test_the_package_that_asks_for_a_name_of_another_release_is_upgraded() -> None:
    call = f'  File "{SITE}/deepspeed/runtime/utils.py", line 18, in <module>\n    from torch._six import inf\n'
    log = f"{call}ModuleNotFoundError: No module named 'torch._six'\n"
    assert steps(log)[1:] == ["/home/me/env/bin/python -m pip install -U deepspeed"]


def test_the_list_of_architectures_is_empty_without_a_gpu() -> None:
    end = "-> 1606         arch_list[-1] += '+PTX'\nIndexError: list index out of range\n"
    log = "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'\n{}\n" + end
    assert judged(log.format("from model import *")).findings[0].cause == "driver_not_loaded"
    assert judged(log.format("/content/x.py")).findings[0].cause == "no_gpu_runtime"


IGNORED = (
    "Exception ignored in: <function WeakSet._remove at 0x10>\nTraceback (most recent call last):\n"
    '  File "/usr/lib/python3.11/_weakrefset.py", line 39, in _remove\n    def x\nAttributeError: no attribute f_code\n'
)


def test_an_error_that_python_ignores_does_not_end_a_run() -> None:
    assert not loud(judged(IGNORED))
    assert loud(judged(f"{IGNORED}KeyError: 'train'\n")) == ["unrecognised"]


@pytest.mark.parametrize(
    "log",
    [
        "W0903 20:13:19.043000 55763 torch/_inductor/utils.py:1436] [0/0] Not enough SMs to use max_autotune_gemm mode\n",
        "WARNING | xformers | Triton is not available. This is just a warning: No module named 'triton'\n",
        "[W reducer.cpp:1303] Warning: find_unused_parameters=True was specified in DDP constructor (function operator())\n",
        "OSError: [Errno 98] Address already in use\nTrying port 7861\nINFO:     Application startup complete.\n",
        "WARNING: Retrying after connection broken by 'ConnectTimeoutError'\nSuccessfully installed foo-1.0\n",
    ],
)
def test_warnings_and_what_was_survived_stay_quiet(log: str) -> None:
    assert not loud(judged(log))


CUT = (
    "Can not use cuDNN on context None: cannot compile with cuDNN. We got this error:\n"
    "g++.exe: error: c:\\users\\mary: No such file or directory\n"
    "g++.exe: error: major\\appdata\\local\\temp\\try_flags_x.c: No such file or directory\n"
)


def test_a_path_that_is_cut_at_a_space_is_not_a_missing_library() -> None:
    finding = judged(CUT).findings[0]
    assert (finding.cause, finding.severity) == ("unrecognised", "warning")
    assert "mary" in finding.evidence[0].text
    assert any('"TEMP=C:\\temp"' in step for step in steps(CUT))
    assert not any("cudnn.h" in step for step in steps(CUT))
    assert not any("TEMP" in step for step in steps("'C:\\Program' is not recognized as an internal or external command,\n"))


@pytest.mark.parametrize(
    "line",
    [
        "FloatingPointError: Loss became infinite or NaN at iteration=12!",
        "Loss is nan, stopping training",
        "FloatingPointError: Minimum loss scale reached (0.0001).",
        "tensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError: NaN loss during training.",
    ],
)
def test_a_loss_that_is_no_number_is_a_matter_of_the_training(line: str) -> None:
    log = f'Traceback (most recent call last):\n  File "train_loop.py", line 239, in _detect_anomaly\n    x\n{line}\n'
    assert any("learning rate" in step for step in steps(log))
    assert not any("line 239" in step for step in steps(log))


def test_a_loss_in_a_running_training_is_no_failure() -> None:
    assert not loud(judged("step 10 loss=inf grad_scale 65536\nstep 20 loss=2.31 grad_scale 32768\nTraining done.\n"))


def test_a_node_that_does_not_answer_is_named() -> None:
    connect = (
        "n5:24:24 [6] misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10.0.0.4<56849> returned 113(No route to host) errno 115\n"
    )
    log = f'{connect}[TP14] Scheduler hit an exception: Traceback (most recent call last):\n  File "scheduler.py", line 18, in run\n    x\n'
    assert quoted(log) == [connect.strip()]
    assert "ping -c 3 10.0.0.4; nc -vz 10.0.0.4 56849" in steps(log)
    gloo = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [10.1.0.2]:4321: Connection refused\n"
    assert "ping -c 3 10.1.0.2; nc -vz 10.1.0.2 4321" in steps(gloo)
    assert not loud(judged(connect.replace("errno 115", "; retrying") + "Training done.\n"))
    retried = "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node1]:29500 (errno: 111 - Connection refused).\n"
    assert not loud(judged(f"{retried}epoch 1 loss 0.3\n"))


def test_an_engine_of_another_tensorrt_names_both_releases() -> None:
    line = "6: The engine plan file is not compatible with this version of TensorRT, expecting library version 8.0.0 got 8.0.1\n"
    assert all(release in steps(line)[0] for release in ("8.0.0", "8.0.1"))
    assert not any("GPU" in step for step in steps(line))


def test_a_jax_without_a_newer_name_is_called_older() -> None:
    assert (
        "older"
        in steps(f"  File \"{SITE}/colabfold/batch.py\", line 9, in main\n    x\nModuleNotFoundError: No module named 'jax.extend'\n")[0]
    )
    assert "older" not in steps("ModuleNotFoundError: No module named 'jax.linear_util'\n")[0]


@pytest.mark.parametrize(
    ("log", "summary", "step"),
    [
        ("ImportError: cannot import name 'ModelMetaclass' from 'pydantic.main' (/v/main.py)\n", "pydantic 1", "pydantic<2"),
        (
            "RuntimeError: Failed to import a because of the following error:\n'FieldInfo' object has no attribute 'x'\n",
            "pydantic 1",
            "pydantic<2",
        ),
        ("OpenCV(4.5.5) /io/modules/dnn/src/dnn.cpp:3: error: (-213:The function is not implemented) Layer 'a'\n", "OpenCV's", "ONNX"),
        ("E Device 0 does not support CUDA Virtual Memory Management (VMM).\nRuntimeError: no supported devices\n", "VMM", "enable_uvm=1"),
        ("ModuleNotFoundError: No module named 'tensorflow.contrib'\n", "TensorFlow 1", "tensorflow-gpu==1.15.0"),
        ("RuntimeError: UNKNOWN: Failed to determine best cudnn convolution algorithm for:\n", "jaxlib", "PREALLOCATE=false"),
    ],
)
def test_a_known_shape_is_told_with_its_steps(log: str, summary: str, step: str) -> None:
    assert summary in judged(log).findings[0].summary
    assert any(step in one for one in steps(log))


def test_only_known_packages_are_upgraded() -> None:
    log = f'  File "{SITE}/{{}}/a.py", line 3, in run\nRuntimeError: Can\'t pickle local object\n'
    assert "/home/me/env/bin/python -m pip install -U unsloth_zoo" in steps(log.format("unsloth_zoo"))
    assert not any("install -U" in one for name in ("mine_own", "torch", "jax") for one in steps(log.format(name)))


@pytest.mark.parametrize(
    ("line", "is_denied"),
    [
        ("RuntimeError: Error(s) in loading state_dict for Net:\n", True),
        ("RuntimeError: Error(s) in loading state_dict for Net: a param on the GPU\n", False),
        ("PytorchStreamReader failed reading zip archive\n", True),
        ("PytorchStreamReader failed reading zip archive of CUDA tensors\n", False),
        ("KeyError: 'colour'\n", True),
        ("ValueError: PJRT plugin returned an unexpected value\n", False),
    ],
)
def test_what_speaks_of_the_gpu_is_not_said_to_be_of_something_else(line: str, *, is_denied: bool) -> None:
    assert ("not a failure of the GPU stack" in judged(line).findings[0].summary) == is_denied


BUILT = """  Getting requirements to build wheel did not run successfully.
  │ exit code: 1
      Traceback (most recent call last):
        File "{}", line 18, in <module>
      ModuleNotFoundError: No module named '{}'
      [end of output]
error: subprocess-exited-with-error
"""
OLD_BUILD = "/tmp/pip-install-dn0wbgm7/xformers_52b932e5a3a54b90aba931c0fbdd03b6/setup.py"
NEW_BUILD = "/tmp/pip-build-env-x/overlay/lib/python3.10/site-packages/setuptools/build_meta.py"
OWN_BUILD = "Traceback (most recent call last):\n  File \"setup.py\", line 5, in <module>\nModuleNotFoundError: No module named 'numpy'\n"


@pytest.mark.parametrize(
    ("log", "python", "first", "then"),
    [
        (BUILT.format(OLD_BUILD, "torch"), "python", "torch", "xformers"),
        (f"$ pip install flash-attn==2.7.4\n{BUILT.format(NEW_BUILD, 'torch')}", "python3.10", "torch", "flash-attn==2.7.4"),
        (OWN_BUILD, "python", "numpy", "."),
    ],
)
def test_a_build_that_needs_a_module_gets_it_first(log: str, python: str, first: str, then: str) -> None:
    assert f"the build of a package needs {first}" in judged(log).findings[0].summary
    assert "ModuleNotFoundError" in quoted(log)[0]
    assert f"{python} -m pip install {first} && {python} -m pip install --no-build-isolation {then}" in steps(log)


def test_what_a_build_needs_is_not_installed_under_a_guessed_name() -> None:
    assert not any("install mytool" in step for step in steps(BUILT.format(OLD_BUILD, "mytool")))


def test_a_missing_framework_is_planned() -> None:
    log = "Traceback (most recent call last):\n  File \"train.py\", line 5, in <module>\nModuleNotFoundError: No module named 'torch'\n"
    assert "cudnn-resolve apply -f torch" in steps(log)


def test_what_ends_a_build_only_passes_on_its_error() -> None:
    log = (
        BUILT.format(NEW_BUILD, "torch")
        .replace("  │ exit code: 1\n", "")
        .replace("subprocess-exited-with-error", "metadata-generation-failed")
    )
    assert "build of a package needs torch" in judged(log).findings[0].summary
    assert "build of a package needs torch" in judged(f"{log}Note: This error originates from the build backend\n").findings[0].summary


@pytest.mark.parametrize(
    ("file", "error", "place"),
    [
        ("/h/onnxruntime/onnxruntime/__init__.py", "ModuleNotFoundError: No module named 'onnxruntime.capi'", "/h/onnxruntime"),
        (
            "/h/src/detectron2/layers/a.py",
            "ImportError: cannot import name '_C' from 'detectron2' (/h/src/detectron2/__init__.py)",
            "/h/src",
        ),
        ("/h/n/numpy/__init__.py", "ImportError: Error importing numpy: you should not try to import numpy from", "/h/n"),
        ("C:\\s\\torch\\__init__.py", "ImportError: cannot import name '_Z' from 'torch' (C:\\s\\torch\\__init__.py)", "C:\\s"),
        ("/h/app/app/__init__.py", "ModuleNotFoundError: No module named 'app.config'", None),
        (f"{SITE}/onnxruntime/__init__.py", "ModuleNotFoundError: No module named 'onnxruntime.capi'", None),
    ],
)
def test_a_package_imported_from_its_sources_is_left(file: str, error: str, place: str | None) -> None:
    every = steps(f'  File "{file}", line 12, in <module>\n    x\n{error}\n')
    assert any(f"from its sources in {place}," in step for step in every) == (place is not None)
    assert any("cd /" in step for step in every) == (place is not None)


@pytest.mark.parametrize(
    ("error", "step"),
    [
        ("ValueError: Unrecognized keyword arguments: ['batch_shape']", "TensorFlow 2.16"),
        ("Exception encountered: Unrecognized keyword arguments: ['optional', 'batch_shape']", "TensorFlow 2.16"),
        (
            "ValueError: Unknown dtype policy: 'DTypePolicy'. Please ensure you are using a `keras.utils.custom_object_scope`",
            "TensorFlow 2.16",
        ),
        (
            (
                "TypeError: Could not locate class 'Functional'. Make sure custom classes are decorated. "
                "Full object config: {'module': 'keras.src.models.functional', 'class_name': 'Functional'}"
            ),
            "TensorFlow 2.16",
        ),
        ("ValueError: Unrecognized keyword arguments passed to DepthwiseConv2D: {'groups': 1}", "tf-keras"),
        ("ValueError: Unrecognized keyword arguments passed to Conv2D: {'weights': [array([[[[-0.1", "tf-keras"),
        ("ValueError: Argument(s) not recognized: {'lr': 0.001}", "tf-keras"),
        (
            "ValueError: File format not supported: filepath=m. Keras 3 only supports V3 `.keras` files and legacy H5 format files",
            "tf-keras",
        ),
        ("TypeError: ('Keyword argument not understood:', 'ragged')", "'tensorflow>=2.3,<2.11'"),
    ],
)
def test_keras_2_and_3_are_told_apart(error: str, step: str) -> None:
    found = judged(f"{error}\n").findings[0]
    assert (found.cause, found.severity) == ("unrecognised", "warning")
    assert any(step in f"{one.text} {one.command}" for one in found.remedy)


@pytest.mark.parametrize("error", ["passed to MyAttention: {'foo': 1}", "passed to Dense: {'unitss': 3}"])
def test_a_misspelt_argument_is_no_matter_of_keras_2(error: str) -> None:
    assert "Keras 2" not in judged(f"ValueError: Unrecognized keyword arguments {error}\n").findings[0].summary


def test_a_warning_that_tensorflow_survives_is_not_why_an_import_failed() -> None:
    log = (
        "2021-05-20 10:45:32.922460: W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library "
        "'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory\n"
        "2021-05-20 10:45:32.922460: I tensorflow/stream_executor/cuda/cudart_stub.cc:29] Ignore above cudart dlerror if you do not "
        "have a GPU set up on your machine.\n"
        "Traceback (most recent call last):\n"
        "ModuleNotFoundError: No module named 'keras.backend.tensorflow_backend'; 'keras.backend' is not a package\n"
    )
    found = judged(log).findings[0]
    assert found.cause == "unrecognised"
    assert found.remedy[0].text == "write tensorflow.keras.backend where it is asked for"


@pytest.mark.parametrize("prefix", ["", "#9 12.10 ", "#12 4.321 ", "0.532 ", "123.4 "])
def test_the_time_of_a_step_of_docker_build_is_no_part_of_the_message(prefix: str) -> None:
    lines = ("Traceback (most recent call last):", '  File "setup.py", line 8, in <module>', "ModuleNotFoundError: No module named 'torch'")
    found = judged("".join(f"{prefix}{line}\n" for line in lines)).findings[0]
    assert "the build of a package needs torch (line 3)" in found.summary


@pytest.mark.parametrize("said", ["UserWarning: Failed to initialize NumPy: No module named 'numpy'", "ImportError: No module named numpy"])
def test_a_numpy_that_is_not_there_has_no_abi(said: str) -> None:
    found = judged(f"{said}\nRuntimeError: Numpy is not available\n").findings[0]
    assert (found.cause, found.remedy[0].command) == ("unrecognised", "python -m pip install numpy")
    assert judged("RuntimeError: Numpy is not available\n").findings[0].cause == "numpy_abi"
