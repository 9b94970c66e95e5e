"""Logs with known causes: what is said of each, and that what looks bad and is not stays quiet."""

from __future__ import annotations

import pytest

from tests.written_logs import Case, book, broken, judged, judged_there, loud, of_machines, written

WRITTEN, HEALTHY, BROKEN, OF_MACHINES = written(), written("healthy.txt"), broken(), of_machines()


@pytest.mark.parametrize("case", WRITTEN, ids=[case.name for case in WRITTEN])
def test_a_log_written_after_a_report_has_its_cause(case: Case) -> None:
    found = judged(case.log)
    if case.cause == "harmless":
        assert not loud(found)
        assert not found.is_error
    else:
        assert found.findings[0].cause == case.cause
        assert found.findings[0].severity == book().causes()[case.cause].severity


@pytest.mark.parametrize("case", HEALTHY, ids=[case.name for case in HEALTHY])
def test_a_program_that_works_has_no_cause(case: Case) -> None:
    assert case.cause == "harmless"
    found = judged(case.log)
    assert not loud(found)
    assert not found.is_error


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("failed to initialize NVML: Driver Not Loaded", "driver_not_loaded"),
        ("nvml error: driver not loaded: driver not loaded", "driver_not_loaded"),
        ("RuntimeError: NVIDIA driver is not loaded", "driver_not_loaded"),
        ("Last State: Terminated\n  Reason: OOMKilled\n  Exit Code: 137", "unrecognised"),
        ('"terminated": {"exitCode": 137, "reason": "OOMKilled"}', "unrecognised"),
        ("nvidia 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", "hardware_fault"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "hardware_fault"),
        ("retrying with batch size 8\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory"),
        ("Warning  FailedScheduling  0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "container_toolkit_missing"),
        (
            'Normal Scheduled 4s scheduler Successfully assigned a to b\nWarning Failed 3s no runtime for "nvidia" is configured',
            "container_toolkit_missing",
        ),
        ("Could not open /dev/nvidia-uvm: No such file or directory", "driver_wedged"),
        (
            'OCI runtime create failed: runc create failed: exec: "nvidia-smi": executable file not found in $PATH: unknown',
            "container_gpu_not_passed",
        ),
        ('fatal: [gpu1]: FAILED! => {"msg": "NVIDIA driver is not loaded"}', "driver_not_loaded"),
        ("INFO: Build completed successfully\nFailed to initialize NVML: Driver Not Loaded", "driver_not_loaded"),
        ("CUDA-aware support is disabled.\nFailed to initialize NVML: Driver Not Loaded", "driver_not_loaded"),
    ],
)
def test_a_failure_in_nearly_the_same_words_has_its_cause(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause
    assert loud(judged(log))


@pytest.mark.parametrize("case", BROKEN, ids=[case.name for case in BROKEN])
def test_a_log_of_an_environment_that_was_broken_has_a_cause_of_its_family(case: Case) -> None:
    # What parts the missing from the hidden are the facts of that environment, which are not here.
    families = (
        {"cudnn_missing", "lib_not_on_path", "cudnn_major_mismatch"},
        {"driver_not_loaded", "driver_too_old", "container_gpu_not_passed"},
    )
    family = next((one for one in families if case.cause in one), {case.cause})
    found = judged(case.log)
    if case.cause == "harmless":
        assert not loud(found)
    else:
        assert found.findings[0].cause in family
        assert found.findings[0].evidence
        assert found.findings[0].remedy


@pytest.mark.parametrize("case", OF_MACHINES, ids=[case.name for case in OF_MACHINES])
def test_the_facts_of_its_machine_decide_what_a_log_leaves_open(case: Case) -> None:
    found = judged_there(case)
    if case.cause == "harmless":
        assert not loud(found)
    else:
        assert found.findings[0].cause == case.cause
        assert found.findings[0].remedy
    if case.cause != "harmless" and loud(judged(case.log)):  # a prompt that says no more than `False` is no failure by itself
        assert found.findings[0].severity == "error"
        assert any(one.source == "log" for one in found.findings[0].evidence)


def test_lines_that_a_log_alone_cannot_decide_stand_beside_several_machines() -> None:
    causes: dict[str, set[str]] = {}
    for case in OF_MACHINES:
        causes.setdefault(case.log, set()).add(case.cause)
    assert len(OF_MACHINES) >= 60
    assert max(map(len, causes.values())) >= 5


def test_every_cause_is_tried() -> None:
    assert {case.cause for case in WRITTEN} == set(book().causes())
    assert len(WRITTEN) >= 200
    assert len(BROKEN) >= 25


@pytest.mark.parametrize("case", [case for case in WRITTEN if case.cause == "harmless"], ids=lambda case: case.name)
def test_noise_stays_quiet_among_ordinary_lines(case: Case) -> None:
    ordinary = "".join(f"step {number} loss 0.{number:04d} accuracy 0.9\n" for number in range(300))
    assert not loud(judged(ordinary + case.log + ordinary))


@pytest.mark.parametrize("case", WRITTEN[::3], ids=lambda case: case.name)
def test_a_cause_is_found_behind_what_launchers_write_before_each_line(case: Case) -> None:
    plain = judged(case.log)
    for prefix in ("[rank3]: ", "(trainer pid=4321) ", "Oct 04 13:19:39 node7 train[394]: "):
        dressed = judged("".join(prefix + line for line in case.log.splitlines(keepends=True)))
        assert {one.cause for one in dressed.findings[:2]} & {one.cause for one in plain.findings[:2]} or not plain.findings


@pytest.mark.parametrize("case", WRITTEN[::4], ids=lambda case: case.name)
def test_a_cause_is_found_in_colours_and_with_windows_line_ends(case: Case) -> None:
    dressed = "".join(f"\x1b[31m{line}\x1b[0m\r\n" for line in case.log.splitlines())
    assert [one.cause for one in judged(dressed).findings[:1]] == [one.cause for one in judged(case.log).findings[:1]]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig"])
def test_a_cause_is_found_in_any_encoding(encoding: str) -> None:
    log = "ready\nImportError: libcudnn.so.8: cannot open shared object file: No such file or directory\n" * 2
    assert judged(log.encode(encoding)).findings[0].cause == "cudnn_missing"


def test_a_log_with_nothing_wrong_gives_nothing() -> None:
    assert not judged("epoch 1 loss 0.5\nsaving model\n").findings
    assert not judged("").findings
