"""What a finding says is true for whatever versions, paths and lines a log holds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.matrix.message import KINDS, expand
from cudnn_resolve.report.doctor import markdown, redact, show_diagnosis
from cudnn_resolve.report.document import DoctorDocument, document
from cudnn_resolve.version import CudnnVersion, DriverVersion
from tests.examples import examples
from tests.pages import text_of
from tests.written_logs import book, judged

numbers = st.integers(0, 20)
cudnn = st.builds(lambda major, minor, patch: f"{major}.{minor}.{patch}", st.integers(7, 10), numbers, numbers)
driver = st.builds(
    lambda major, minor, patch: f"{major}.{minor}.{patch:02d}", st.integers(400, 700), st.integers(10, 200), st.integers(1, 99)
)
capability = st.sampled_from([30, 35, 37, 50, 52, 60, 61, 70, 75, 80, 86, 89, 90, 100, 120, 121])


def encoded(version: CudnnVersion) -> int:
    major, minor, patch = (*version.parts, 0, 0)[:3]
    return major * 10000 + minor * 100 + patch if major >= 9 else major * 1000 + minor * 100 + patch


@settings(max_examples=examples(40))
@given(cudnn, cudnn)
def test_an_older_cudnn_is_said_to_be_older(found: str, built: str) -> None:
    log = f"E cuda_dnn.cc:447] Loaded runtime CuDNN library: {found} but source was compiled with: {built}.  CuDNN library needs\n"
    told = judged(log).findings
    one, other = CudnnVersion(found), CudnnVersion(built)
    if one == other:
        return
    assert told[0].cause == ("cudnn_too_old_for_framework" if one < other else "cudnn_too_new_for_framework")
    assert f"cuDNN {found}" in told[0].summary
    assert built in told[0].summary
    assert ("newer" if one < other else "older") in told[0].summary


@settings(max_examples=examples(40))
@given(st.integers(7, 9), numbers, st.integers(7, 9), numbers)
def test_numbers_that_are_encoded_are_decoded(major: int, minor: int, other_major: int, other: int) -> None:
    found, built = CudnnVersion(f"{major}.{min(minor, 9)}.2"), CudnnVersion(f"{other_major}.{min(other, 9)}.1")
    log = f"Found cuDNN version {encoded(found)}, but JAX was built against version {encoded(built)}, which is newer.\n"
    told = [one for one in judged(log).findings if one.cause == "cudnn_too_old_for_framework"]
    assert bool(told) == (found < built)
    if told:
        assert f"cuDNN {found} is loaded, but JAX was built against the newer {built}" in told[0].summary


@settings(max_examples=examples(40))
@given(capability, st.lists(capability, min_size=1, max_size=6, unique=True))
def test_a_gpu_is_told_from_the_list_that_it_is_not_on(gpu: int, targets: list[int]) -> None:
    log = (
        f"GPU X with CUDA capability sm_{gpu} is not compatible with the current PyTorch installation.\n"
        f"The current PyTorch install supports CUDA capabilities {' '.join(f'sm_{one}' for one in sorted(targets))}.\n"
    )
    told = judged(log).findings
    if gpu < min(targets):
        assert told[0].cause == "gpu_arch_too_old_for_build"
        assert f"sm_{gpu}" in told[0].summary
    elif gpu // 10 > max(targets) // 10:
        assert told[0].cause == "gpu_arch_too_new_for_build"


@settings(max_examples=examples(40))
@given(driver, driver)
def test_driver_versions_that_differ_are_told(kernel: str, library: str) -> None:
    log = f"E cuda_diagnostics.cc:313] kernel version {kernel} does not match DSO version {library} -- cannot find working devices\n"
    told = judged(log).findings
    differs = DriverVersion(kernel) != DriverVersion(library)
    assert (told[0].cause == "driver_library_mismatch") == differs
    if differs:
        assert kernel in told[0].summary
        assert library in told[0].summary


@settings(max_examples=examples(40))
@given(st.integers(5, 12), st.sampled_from(["", "_ops_infer", "_cnn_infer", "_ops", "_cnn", "_adv_train"]))
def test_a_library_that_is_missing_is_named(major: int, part: str) -> None:
    name = f"libcudnn{part}.so.{major}"
    told = judged(f"OSError: {name}: cannot open shared object file: No such file or directory\n").findings
    assert told[0].cause == "cudnn_missing"
    assert name in told[0].summary


@settings(max_examples=examples(25))
@given(st.text(max_size=200), st.text(max_size=80))
def test_any_text_is_rendered_without_harm(text: str, name: str) -> None:
    log = f"{text}\nOSError: libcudnn.so.8: cannot open shared object file {name}\n"
    found = judged(log.encode("utf-8", "surrogatepass"))
    assert "\x1b" not in text_of(show_diagnosis, found, width=80)
    assert "\x1b" not in markdown(found)
    assert document(DoctorDocument, found)["schema"]


@settings(max_examples=examples(40))
@given(st.binary(max_size=600))
def test_any_bytes_are_read(raw: bytes) -> None:
    symptoms = book().symptoms()
    assert Reader(symptoms).read([raw]).lines >= 0


@pytest.mark.slow
def test_no_pattern_takes_long_for_lines_that_nearly_match() -> None:
    # Samples cut, doubled and followed by what each repeat could take: the steps that an engine makes stay few, or this never ends.
    for symptom in book().symptoms():
        for pattern in symptom.pattern:
            compiled = re.compile(expand(pattern))
            for sample in symptom.sample:
                for filler in ("a" * 4000, "1." * 2000, "/" * 4000, " " * 4000, "sm_80 " * 700, "(1, 2, " * 600, "[" * 4000):
                    compiled.search(sample[: len(sample) * 2 // 3] + filler)
                    compiled.search(filler + sample[:20])


@settings(max_examples=examples(30))
@given(st.sampled_from(sorted(KINDS)), st.text(max_size=60))
def test_a_field_is_taken_or_refused(kind: str, text: str) -> None:
    found = re.search(KINDS[kind].pattern, text)
    if found is not None:
        try:
            KINDS[kind].take(found[0])
        except ValueError:
            return


@given(st.text(max_size=200))
def test_levelling_twice_is_levelling_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)
