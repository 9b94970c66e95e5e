"""Kinds of columns: what each takes, what each refuses, and that no value whatever makes one fail in another way."""

from __future__ import annotations

from datetime import date, datetime, time, timezone
from typing import Annotated, Any, Literal, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_resolve.matrix import column
from cudnn_resolve.matrix.table import plain
from cudnn_resolve.matrix.toml import quote
from cudnn_resolve.matrix.value import described, reader
from cudnn_resolve.version import Capability, CodeTarget, CudaVersion

KINDS: dict[str, Any] = {
    **{name: kind for name, kind in vars(column).items() if get_origin(kind) is Annotated and name not in ("Sources", "SINGLE")},
    "Flag": bool,
}

RIGHT = [
    ("Text", "a note", "a note"),
    ("Flag", True, True),
    ("Count", 12, 12),
    ("Number", 1.5, 1.5),
    ("Number", 16, 16),
    ("Day", date(2026, 11, 21), "2026-11-21"),
    ("Day", "2017-09", "2017-09"),
    ("Version", "2.15.0.post1", "2.15.0.post1"),
    ("Specifier", ">=2,<3", ">=2,<3"),
    ("Specifier", "", ""),
    ("Requirement", "numpy<2; python_version < '3.9'", "numpy<2; python_version < '3.9'"),
    ("BranchNumber", "R535", 535),
    ("BranchNumber", 535, 535),
    ("Url", "https://a.example/x y".replace(" ", "%20"), "https://a.example/x%20y"),
    ("Directory", "nvidia/cudnn/lib", "nvidia/cudnn/lib"),
    ("Directory", "", ""),
    ("PackageName", "nvidia-cudnn-cu12", "nvidia-cudnn-cu12"),
    ("Identifier", "nvidia-cublas:12", "nvidia-cublas:12"),
    ("Identifier", "c++", "c++"),
    ("Glibc", "2.17", "2.17"),
    ("PythonTag", "cp313t", "cp313t"),
    ("Line", "12.4", "12.4"),
    ("CudaLine", "12.4", "12.4"),
    ("ComputeCapability", "12.0", "12.0"),
    ("GpuCode", "sm_90a", "sm_90a"),
    ("Cuda", "12.4.1", "12.4.1"),
    ("Cudnn", "9.3.0.75", "9.3.0.75"),
    ("Driver", "450.80.02", "450.80.02"),
    ("MetadataIds", 3, 3),
    ("MetadataIds", {"x86_64": 1, "aarch64": 2}, {"x86_64": 1, "aarch64": 2}),
    ("Tags", ["cp39 cp310-abi3-linux_x86_64"], ["cp39-cp39-linux_x86_64", "cp310-abi3-linux_x86_64"]),
    ("AptText", "cuda-libraries-{major}-{minor}={release}", "cuda-libraries-{major}-{minor}={release}"),
    ("Pattern", r"library {found:cudnn} of \w{1,20}", r"library {found:cudnn} of \w{1,20}"),
    ("Lines", "one\n  two", "one\n  two"),
    ("Percent", 100, 100),
    ("Comparison", "major found != major wanted", "major found != major wanted"),
]
WRONG = [
    ("Text", 3, "3 is not a string"),
    ("Text", " ", "is empty"),
    ("Text", "red \x1b[31m", "cannot be printed"),
    ("Text", "x" * 5000, "longer than"),
    ("Flag", 1, "true or false"),
    ("Count", -1, "whole number"),
    ("Count", True, "whole number"),
    ("Count", 10**12, "whole number"),
    ("Number", float("nan"), "number"),
    ("Number", float("inf"), "number"),
    ("Number", True, "number"),
    ("Day", "2026-02-30", "not a date"),
    ("Day", datetime(2026, 1, 1, tzinfo=timezone.utc), "not a date"),
    ("Day", time(1, 2), "not a date"),
    ("Version", "two", "not a version"),
    ("Specifier", "2.0", "not a version specifier"),
    ("Requirement", "numpy<", "not a requirement"),
    ("BranchNumber", "R5", "not a driver branch"),
    ("BranchNumber", True, "not a driver branch"),
    ("Url", "ftp://a.example", "https://"),
    ("Url", "https://a.example/<b>", "https://"),
    ("Directory", "/usr/lib", "below site-packages"),
    ("Directory", "nvidia/../../etc", "below site-packages"),
    ("PackageName", "Nvidia_cudnn", "normalized package name"),
    ("Identifier", "-x", "an id made of"),
    ("Glibc", "two", "glibc"),
    ("PythonTag", "3.11", "Python tag"),
    ("Line", "12", "CUDA line"),
    ("CudaLine", "12.4.1", "CUDA line"),
    ("ComputeCapability", "sm_75", "compute capability"),
    ("GpuCode", "7.5", "GPU code"),
    ("Cuda", "12.x", "CUDA version"),
    ("Cudnn", "v9", "cuDNN version"),
    ("Driver", "R535", "driver version"),
    ("MetadataIds", {}, "[[metadata]]"),
    ("MetadataIds", {"arm": 1}, "[[metadata]]"),
    ("MetadataIds", "1", "[[metadata]]"),
    ("Tags", "py3-none-any", "expected a list"),
    ("Tags", [3], "entry 0"),
    ("AptText", "cuda-{major:>99999999}", "{major}, {minor} and {release}"),
    ("AptText", "cuda-{0.__class__}", "{major}, {minor} and {release}"),
    ("Pattern", "a" * 3900 + "{found:gpulib}" * 30, "longer than"),
    ("Pattern", "found {found:nothing}", "not a kind of field"),
    ("Pattern", "(a", "missing )"),
    ("Pattern", "a+b", "without an upper bound"),
    ("Pattern", "(a{1,9}){1,9}", "repeats a repeat"),
    ("Lines", " ", "string of at most"),
    ("Percent", 101, "from 0 to 100"),
    ("Percent", True, "from 0 to 100"),
    ("Comparison", "found is old", "comparison"),
]


@pytest.mark.parametrize(("name", "value", "shown"), RIGHT, ids=[f"{one[0]}-{place}" for place, one in enumerate(RIGHT)])
def test_takes(name: str, value: Any, shown: Any) -> None:
    assert plain(reader(KINDS[name])(value)) == shown


@pytest.mark.parametrize(("name", "value", "message"), WRONG, ids=[f"{one[0]}-{place}" for place, one in enumerate(WRONG)])
def test_refuses(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        reader(KINDS[name])(value)
    assert message in str(caught.value)


def test_every_type_has_a_right_and_a_wrong_case_and_a_description() -> None:
    assert {one[0] for one in RIGHT} == {one[0] for one in WRONG} == set(KINDS)
    assert all(described(kind) for kind in KINDS.values())


def test_values_become_what_rows_hold() -> None:
    assert reader(column.Cuda)("12.4") == CudaVersion("12.4")
    assert reader(column.ComputeCapability)("12.0") == Capability(12, 0)
    assert reader(column.GpuCode)("compute_80") == CodeTarget.parse("compute_80")


def test_one_of() -> None:
    read = reader(Literal["pip", "apt"])
    assert read("apt") == "apt"
    for wrong in ("conda", 1, ["pip"], {"pip": 1}):
        with pytest.raises(ValueError, match="one of pip, apt"):
            read(wrong)


def test_a_list_says_which_entry_is_wrong() -> None:
    read = reader(tuple[column.ComputeCapability, ...])
    assert read(["7.5", "8.0"]) == (Capability(7, 5), Capability(8, 0))
    with pytest.raises(ValueError, match="entry 1: 'x' is not a compute capability"):
        read(["7.5", "x"])
    with pytest.raises(ValueError, match="not a list"):
        read("7.5")
    with pytest.raises(ValueError, match="more than"):
        read(["7.5"] * 30000)
    assert reader(column.Sources)("docs") == ("docs",)


def test_quoted_values_are_short_and_plain() -> None:
    assert quote("é\x1b") == r"'\xe9\x1b'"
    assert len(quote("x" * 1000)) <= 61
    assert quote({"a": 1}) == "a table"
    assert quote(10**5000) == "a huge number"
    with pytest.raises(ValueError, match="a huge number is not a whole number"):
        reader(column.Count)(10**5000)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.dates()
    | st.datetimes()
    | st.times()
    | st.sampled_from([one[1] for one in (*RIGHT, *WRONG)]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(sorted(KINDS)), ANYTHING)
def test_any_value_is_taken_or_refused_with_one_printable_line(name: str, value: Any) -> None:
    try:
        found = reader(KINDS[name])(value)
    except ValueError as error:
        assert str(error).isprintable()  # noqa: PT017 - a refusal is as good as a value
    else:
        assert found is not None
