"""How a run ended: what died is not passed over, and what was outlived is no warning."""

from __future__ import annotations

import pytest

from tests.written_logs import judged, loud


@pytest.mark.parametrize(
    "log",
    [
        "epoch 1\nError: 0.0312\nSaved model to out.pt\n",
        "step 4\nerror: 1.2%\nSaved model to out.pt\n",
        "ERROR: could not upload artifacts\nResults saved to runs/1\n",
        "error: mirror timed out, Retrying (1/5)\nall 3 jobs done\n",
        "worker 3 exited with code 1, restarting\nINFO: GET /health 200\n",
    ],
)
def test_an_error_that_was_outlived_is_no_warning(log: str) -> None:
    assert not loud(judged(log))


@pytest.mark.parametrize("log", ["ERROR: could not upload\nstep 4\n", "ValueError: x\nall done\n", "make: *** [all] Error 2\nDone\n"])
def test_an_error_that_was_not_is_one(log: str) -> None:
    assert loud(judged(log))


@pytest.mark.parametrize(
    "log",
    [
        "epoch 1\nKilled\n",
        "epoch 1\nrun.sh: line 3: 12345 Killed                  python train.py\n",
        "the container ended with exit code 137\n",
        "rank 0 failed (exitcode: -9) local_rank: 0\n",
        "memory.events: oom_kill 1\n",
        "Out of memory: Killed process 4242 (python) total-vm:12345kB\n",
    ],
)
def test_a_kill_is_a_lack_of_memory_of_the_machine(log: str) -> None:
    found = judged(log).findings[0]
    assert found.cause == "unrecognised"  # of the GPU's stack nothing failed
    assert "system memory" in found.summary
    assert not any(remedy.command == "nvidia-smi" for remedy in found.remedy)


@pytest.mark.parametrize("log", ["python: can't open file 'train.py': [Errno 2]\n", "npm ERR! code 1\n"])
def test_what_did_not_start_has_failed(log: str) -> None:
    assert loud(judged("step 1\n" + log)) == ["unrecognised"]


def test_nvml_that_does_not_start_is_of_the_driver() -> None:
    assert judged("step\nUserWarning: Can't initialize NVML\n").findings[0].cause == "driver_not_loaded"


def test_noise_excuses_no_other_line() -> None:
    noise = "E0000 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register factory\n"
    assert not loud(judged(noise))
    assert loud(judged(noise + "ERROR: the run was lost\n")) == ["unrecognised"]
    assert loud(judged(noise + "ERROR: 3 GPUs requested, but 0\n")) == ["driver_not_loaded"]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("[TRT] [E] CUDA initialization failure with error: 35. Please check your CUDA installation", "driver_too_old"),
        ("CUDA init failed with error code 100", "driver_not_loaded"),
        ("cuInit returned 802", "fabric_manager_missing"),
        ("CUDA driver returned error 803", "driver_library_mismatch"),
        ("CUDA error: 999", "driver_wedged"),
    ],
)
def test_a_code_of_cuda_decides(said: str, cause: str) -> None:
    assert judged(f"start\n{said}\n").findings[0].cause == cause


def test_what_a_line_names_is_not_said_to_be_unnamed() -> None:
    found = judged("start\nERROR: cuDNN went away\n").findings[0]
    assert found.cause == "unrecognised"
    assert "is named" not in found.summary


DIFF = """diff --git a/docs/faq.md b/docs/faq.md
@@ -3,2 +3,4 @@
 ### Errors
+Failed to initialize NVML: Driver/library version mismatch
+RuntimeError: CUDA error: out of memory
 more
"""


@pytest.mark.parametrize(
    "log",
    [
        DIFF,
        "## v0.4.31\n\n* Fixed a bug where `libcudnn.so.9: cannot open shared object file` was said\n* CUDA_ERROR_OUT_OF_MEMORY is gone\n",
        "Bug fixes:\n- no kernel image is available for execution on the device\n  with its GPU\n",
        "1a2b3c4d Fix CUDA out of memory at start\n5e6f7a8b Avoid CUDNN_STATUS_NOT_INITIALIZED\n",
        "[Bug Fix] CUDNN_STATUS_EXECUTION_FAILED could come up with a padding mask\n",
    ],
)
def test_what_tells_of_errors_that_were_mended_is_no_failure(log: str) -> None:
    assert not loud(judged(log))


PASSED_OVER = "skipped text that only mentions errors (a diff, a changelog, source code, help, passed tests) from line {} on"


def test_what_was_passed_over_is_said() -> None:
    assert judged(f"start\n{DIFF}").note == PASSED_OVER.format(3)
    assert judged("start\n1a2b3c4d Fix CUDA out of memory at start\n").note == PASSED_OVER.format(2)
    assert judged("start\nepoch 1\n").note is None
    assert judged(COMMIT).note == PASSED_OVER.format(1)


OOM_TEST = "[ RUN      ] Cuda.Memory\nCUDA error: out of memory\n"
COMMIT = f"commit {'5b0c' * 10}\nAuthor: A <a@example.org>\n\n    RuntimeError: CUDA error: out of memory\n"


@pytest.mark.parametrize(
    ("told", "after"),
    [
        ('try:\n    raise RuntimeError("CUDA error: out of memory")\n', "RuntimeError: CUDA error: out of memory\n"),
        ('  std::cerr << "CUDA error: out of memory";\n', "CUDA error: out of memory\n"),
        (f"{OOM_TEST}[       OK ] Cuda.Memory (3 ms)\n", f"{OOM_TEST}[  FAILED  ] Cuda.Memory (3 ms)\n"),
        ("=== RUN   TestOom\n    CUDA error: out of memory\n--- PASS: TestOom (0.00s)\n", "CUDA error: out of memory\n"),
        ("test tests::cuda_error_out_of_memory ... ok\n", "CUDA error: out of memory\n"),
        ('def test() -> None:\n    """CUDA error: out of memory"""\n', "CUDA error: out of memory\n"),
        ('@parametrize(\n    "CUDA error: out of memory",\n)\n', "CUDA error: out of memory\n"),
        ("usage: a [-h]\n\nmemory and time:\n  --small  avoids CUDA error: out of memory\n", "CUDA error: out of memory\n"),
        ("If you see `CUDA error: out of memory`, take less.\n", "CUDA error: out of memory\n"),
        ("docs/faq.md:33:CUDA error: out of memory\n", "a.cu:33: CUDA error: out of memory\n"),
        ('RUN test -e x || echo "CUDA error: out of memory"\n', "CUDA error: out of memory\n"),
        ("usage: a [-h]\n\noptions:\n  --small  avoids CUDA error: out of memory\n", "CUDA error: out of memory\n"),
        (COMMIT, "RuntimeError: CUDA error: out of memory\n"),
        ("a1b2c3d docs: tell of CUDA out of memory\nb2c3d4e test: CUDA error: out of memory\n", "CUDA error: out of memory\n"),
        ("- feat(gpu): CUDA error: out of memory is told\n", "- CUDA error: out of memory\n"),
        ("## Troubleshooting\n\n- `CUDA error: out of memory`: take less.\n", "\nCUDA error: out of memory\n"),
    ],
)
def test_what_only_tells_of_an_error_is_none_and_a_failure_beside_it_is(told: str, after: str) -> None:
    assert not loud(judged(told))
    assert loud(judged(told + after)) == ["out_of_memory"]


@pytest.mark.parametrize(
    ("after", "is_loud"),
    [
        ("[10:05:09 - Predict] Processing 2 long region(s) with batching.\n", False),
        ("INFO:     Application startup complete.\n", False),
        ("{'pair_1': {'distance': 0.23476946353912354,\n            'verified': True}}\n", False),
        ("[{'label': 'POSITIVE', 'score': 0.9998656511306763}]\n", False),
        ("{'score_threshold': 0.5, 'confidence': 0.25}\n", True),
        ("{'score': 0.98765}\nValueError: x\n", True),
        ("Processing failed\n", True),
        ("| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2 |\nProcessing 3 files\n", True),
        ("Processing 3 files\nValueError: x\n", True),
    ],
)
def test_a_program_that_works_on_without_a_gpu_needs_none(after: str, is_loud: bool) -> None:  # noqa: FBT001
    assert bool(loud(judged(f"E cuda_driver.cc:313] failed call to cuInit: UNKNOWN ERROR (303)\n{after}"))) is is_loud


def test_a_service_that_starts_has_outlived_a_part_that_does_not() -> None:
    part = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'insightface'\n"
    assert not loud(judged(f"{part}Starting server\n"))
    assert loud(judged(f"Starting server\n{part}")) == ["unrecognised"]


def test_source_code_that_a_traceback_shows_was_executed() -> None:
    assert loud(judged('  File "a.py", line 3, in <module>\n    raise RuntimeError("CUDA error: out of memory")\n')) == ["out_of_memory"]


@pytest.mark.parametrize(
    ("end", "is_loud"),
    [
        ("40 passed, 12 deselected in 3.21s\n", False),
        ("100% tests passed, 0 tests failed out of 3\n", False),
        ("OK (skipped=1)\n", False),
        ("39 passed, 1 failed in 3.21s\n", True),
        ("40 passed in 3.21s\nProcess exited with code 1\n", True),
    ],
)
def test_tests_that_all_passed_outlived_what_was_before_them(end: str, is_loud: bool) -> None:  # noqa: FBT001
    assert bool(loud(judged(f"bash: nvidia-smi: command not found\n{end}"))) is is_loud


@pytest.mark.parametrize(
    "log",
    [
        DIFF + "RuntimeError: CUDA error: out of memory\n",
        "v1.2\n* started\nRuntimeError: CUDA error: out of memory\n",
        "Known issues:\n- slow start\n- RuntimeError: CUDA error: out of memory\n",
        "@@ -1,300 +1,300 @@\n import os\nCUDA error: out of memory\n",
        f"@@ -1,300 +1,300 @@\n {'x' * 80}\nRuntimeError: CUDA error: out of memory\n",
        "+ git diff\n@@ -1,9 +1,9 @@\n-old\n+new\n+ python train.py\nRuntimeError: CUDA error: out of memory\n",
    ],
)
def test_a_failure_behind_a_diff_or_a_list_of_changes_is_one(log: str) -> None:
    first = judged(log).findings[0]
    assert (first.cause, first.evidence[0].line) == ("out_of_memory", log.count("\n"))


OOM = "CUDA out of memory. Tried to allocate 1.25 GiB"
STEPS = "".join(f"step {at} loss 1.{at}\n" for at in range(3))
LEVELS = "".join(f'2022-08-21 00:29:5{at} | INFO | trainer | {{"epoch": 1, "loss": "9.{at}"}}\n' for at in range(3))


@pytest.mark.parametrize(
    ("log", "severity"),
    [
        (f"{OOM} - retrying with batch size 8\n{STEPS}", "info"),
        (f"{OOM}\n| WARNING: ran out of memory on GPU #2, skipping batch\n{STEPS}", "info"),
        (f"{OOM}\n{STEPS}", "warning"),
        (f"2022-08-21 00:29:47 | WARNING | trainer | {OOM}, attempting to recover\n{LEVELS}", "info"),
        (f"{STEPS}{OOM} - retrying with batch size 8\n", "error"),
    ],
)
def test_a_lack_of_memory_that_a_training_was_ready_for_is_a_note(log: str, severity: str) -> None:
    assert judged(log).findings[0].severity == severity


PROBE = "cudart init failure: 100\n"
GPU = 'level=INFO msg="inference compute" library=cuda name="RTX 3060"\n'


def test_a_gpu_that_is_found_after_all_was_not_missing() -> None:
    assert not loud(judged(PROBE + GPU))
    assert loud(judged(GPU + PROBE))


CREATED = "I tensorflow/core/gpu_device.cc:1525] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 14115 MB memory\n"


@pytest.mark.parametrize(
    "log",
    [
        "torch/cuda/__init__.py:129: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)\n",
        "libcudart.so.12: cannot open shared object file: No such file or directory\nonnxruntime: Failed to create CUDAExecutionProvider\n",
    ],
)
def test_the_gpu_of_another_program_was_not_found_by_this_one(log: str) -> None:
    assert loud(judged(log + CREATED))
    assert not loud(judged("tensorflow: libcudart.so.12: cannot open shared object file: No such file or directory\n" + CREATED))


def test_a_number_of_gpus_that_is_not_the_one_expected_is_none_found_after_all() -> None:
    assert loud(judged(PROBE + "Expected 4 GPUs, found 2 CUDA devices\n"))
    assert not loud(judged(PROBE + "ggml_cuda_init: found 2 CUDA devices:\n"))


@pytest.mark.parametrize(
    "log",
    [
        "9f8e7d6c5b4a RuntimeError: {0}\n9f8e7d6c5b4a RuntimeError: {0}\n",
        "9f8e7d6c5b4a starts\n9f8e7d6c5b4a {0}\n",
        "a1b2c3d4 starts\na1b2c3d5 RuntimeError: {0}\n",
        "=== RUN   TestA\n=== RUN   TestB\n    {0}\n--- FAIL: TestA (0.0s)\n--- PASS: TestB (0.0s)\n",
        "=== RUN   TestA\n=== RUN   TestB\n=== RUN   TestC\n    {0}\n--- PASS: TestC (0.0s)\n--- FAIL: TestA (0.0s)\n",
        "usage: a\nCaused by:\n  RuntimeError: {0}\n",
        "run: RuntimeError: {0}\n",
        "run.txt:12:RuntimeError: {0}\n",
    ],
)
def test_what_a_program_says_is_not_passed_over(log: str) -> None:
    assert loud(judged(log.format("CUDA error: out of memory"))) == ["out_of_memory"]


def test_a_lack_of_memory_that_a_program_was_ready_for_is_a_warning_where_it_ended_well() -> None:
    log = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n{}step 10 loss 0.5\nTraining finished.\n"
    assert judged(log.format("retrying with batch size 8\n")).findings[0].severity == "warning"
    assert judged(log.format("")).findings[0].severity == "error"


@pytest.mark.parametrize(
    "last",
    [
        "Processing aborted",
        "Finished with code 1",
        "finished with status 1",
        "Finished 0 of 3 jobs",
        "Detected 2 problems",
        "processing terminated",
    ],
)
def test_work_that_came_to_nothing_outlives_no_failure(last: str) -> None:
    log = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU\n{}\n"
    assert loud(judged(log.format(last)))
    assert not loud(judged(log.format("Processed 3 of 3 jobs")))


def test_tests_of_which_none_failed_are_no_failure() -> None:
    assert not judged("100% tests passed, 0 tests failed out of 3\n").findings


_FOUND_NONE = (
    "torch==2.5.1+cpu\nUsing device: cpu\n",
    "torch/cuda/__init__.py:129: UserWarning: CUDA initialization: Found no NVIDIA driver on your system.\nUsing device: cpu\n",
    'time=2025-03-01T10:00:00.010Z level=INFO source=gpu.go:377 msg="no compatible GPUs were discovered"\n',
    "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n",
    "WARNING:jax._src.xla_bridge:An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed.\n",
)
_WENT_ON = (
    "Epoch 1/10: loss 0.53\nEpoch 2/10: loss 0.41\n",
    "step 100 loss 0.32\nstep 200 loss 0.22\n",
    "1875/1875 [==============================] - 5s 3ms/step - loss: 0.2\n",
    'INFO:     127.0.0.1:1 - "POST /predict HTTP/1.1" 200 OK\n',
    '[GIN] 2025/03/01 - 10:01:10 | 200 |  9.1s |  172.17.0.1 | POST "/api/generate"\n',
    "llama_print_timings:        eval time =    9000.00 ms /   100 runs   (   90.00 ms per token,    11.11 tokens per second)\n",
    "Results saved to runs/detect/predict\n",
    "Done.\n",
)


@pytest.mark.parametrize("found_none", _FOUND_NONE)
def test_a_program_that_does_its_work_without_a_gpu_needs_none(found_none: str) -> None:
    assert not [after for after in _WENT_ON if loud(judged(found_none + after))]
    assert loud(judged(f"starting\n{found_none}"))
    # Where the GPU is there, it should be used; and a program that has died has not done its work.
    smi = "| NVIDIA-SMI 550.54.14    Driver Version: 550.54.14    CUDA Version: 12.4     |\n"
    assert all(loud(judged(smi + found_none + after)) for after in _WENT_ON)
    assert all(loud(judged(found_none + after + "RuntimeError: no GPU\n")) for after in _WENT_ON)


def test_a_note_on_its_device_shows_that_paddle_has_it() -> None:
    absent = "W0508 dynamic_loader.cc:412] The third-party dynamic library (libcuda.so) that Paddle depends on is not configured correctly."
    absent += " (error code is libcuda.so: cannot open shared object file: No such file or directory)\n"
    note = "W0508 gpu_resources.cc:116] Please NOTE: device: 0, GPU Compute Capability: 12.0, Driver API Version: 13.2\n"
    assert not loud(judged(absent + note))
    assert loud(judged(note + absent))
