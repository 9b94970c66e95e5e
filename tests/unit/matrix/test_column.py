"""Kinds of columns: what each takes, what each refuses, and that no value whatever makes one fail in another way."""

from __future__ import annotations

from datetime import date, datetime, time, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_resolve.matrix import column as kinds
from cudnn_resolve.matrix.column import Kind, many, one_of, quote
from cudnn_resolve.version import Capability, CodeTarget, CudaVersion

KINDS = {name: kind for name, kind in vars(kinds).items() if isinstance(kind, Kind)}

RIGHT = [
    ("TEXT", "a note", "a note"),
    ("FLAG", True, True),
    ("COUNT", 12, 12),
    ("NUMBER", 1.5, 1.5),
    ("NUMBER", 16, 16),
    ("DATE", date(2026, 11, 21), "2026-11-21"),
    ("DATE", "2017-09", "2017-09"),
    ("VERSION", "2.15.0.post1", "2.15.0.post1"),
    ("SPECIFIER", ">=2,<3", ">=2,<3"),
    ("SPECIFIER", "", ""),
    ("REQUIREMENT", "numpy<2; python_version < '3.9'", "numpy<2; python_version < '3.9'"),
    ("BRANCH", "R535", 535),
    ("BRANCH", 535, 535),
    ("URL", "https://a.example/x y".replace(" ", "%20"), "https://a.example/x%20y"),
    ("DIRECTORY", "nvidia/cudnn/lib", "nvidia/cudnn/lib"),
    ("DIRECTORY", "", ""),
    ("PACKAGE", "nvidia-cudnn-cu12", "nvidia-cudnn-cu12"),
    ("IDENTIFIER", "nvidia-cublas:12", "nvidia-cublas:12"),
    ("IDENTIFIER", "c++", "c++"),
    ("GLIBC", "2.17", "2.17"),
    ("PYTHON", "cp313t", "cp313t"),
    ("LINE", "12.4", "12.4"),
    ("CUDA_LINE", "12.4", "12.4"),
    ("CAPABILITY", "12.0", "12.0"),
    ("TARGET", "sm_90a", "sm_90a"),
    ("CUDA", "12.4.1", "12.4.1"),
    ("CUDNN", "9.3.0.75", "9.3.0.75"),
    ("DRIVER", "450.80.02", "450.80.02"),
    ("METADATA", 3, {"": 3}),
    ("METADATA", {"x86_64": 1, "aarch64": 2}, {"x86_64": 1, "aarch64": 2}),
    ("SONAMES", {"cusolver": "libcusolver.so.10"}, [["cusolver", "libcusolver.so.10"]]),
    ("APT_PATTERN", "cuda-libraries-{major}-{minor}={release}", "cuda-libraries-{major}-{minor}={release}"),
    ("MESSAGE", r"library {found:cudnn} of \w{1,20}", r"library {found:cudnn} of \w{1,20}"),
    ("LINES", "one\n  two", "one\n  two"),
    ("PERCENT", 100, 100),
    ("COMPARISON", "major found != major wanted", "major found != major wanted"),
]
WRONG = [
    ("TEXT", 3, "3 is not a text"),
    ("TEXT", " ", "is empty"),
    ("TEXT", "red \x1b[31m", "cannot be printed"),
    ("TEXT", "x" * 5000, "longer than"),
    ("FLAG", 1, "true or false"),
    ("COUNT", -1, "whole number"),
    ("COUNT", True, "whole number"),
    ("COUNT", 10**12, "whole number"),
    ("NUMBER", float("nan"), "number"),
    ("NUMBER", float("inf"), "number"),
    ("NUMBER", True, "number"),
    ("DATE", "2026-02-30", "not a date"),
    ("DATE", datetime(2026, 1, 1, tzinfo=timezone.utc), "not a date"),
    ("DATE", time(1, 2), "not a date"),
    ("VERSION", "two", "not a version"),
    ("SPECIFIER", "2.0", "not a version specifier"),
    ("REQUIREMENT", "numpy<", "not a requirement"),
    ("BRANCH", "R5", "not a driver branch"),
    ("BRANCH", True, "not a driver branch"),
    ("URL", "ftp://a.example", "https://"),
    ("URL", "https://a.example/<b>", "https://"),
    ("DIRECTORY", "/usr/lib", "below site-packages"),
    ("DIRECTORY", "nvidia/../../etc", "below site-packages"),
    ("PACKAGE", "Nvidia_cudnn", "normalized package name"),
    ("IDENTIFIER", "-x", "an id made of"),
    ("GLIBC", "two", "glibc"),
    ("PYTHON", "3.11", "Python tag"),
    ("LINE", "12", "CUDA line"),
    ("CUDA_LINE", "12.4.1", "CUDA line"),
    ("CAPABILITY", "sm_75", "compute capability"),
    ("TARGET", "7.5", "GPU code"),
    ("CUDA", "12.x", "CUDA version"),
    ("CUDNN", "v9", "cuDNN version"),
    ("DRIVER", "R535", "driver version"),
    ("METADATA", {}, "names no metadata"),
    ("METADATA", {"arm": 1}, "architecture"),
    ("METADATA", "1", "[[metadata]]"),
    ("SONAMES", ["x"], "table of libraries"),
    ("SONAMES", {"cublas": "lib cublas"}, "an id made of"),
    ("APT_PATTERN", "cuda-{major:>99999999}", "{major}, {minor} and {release}"),
    ("APT_PATTERN", "cuda-{0.__class__}", "{major}, {minor} and {release}"),
    ("MESSAGE", r"\d{1,9}[ab]", "has no text that each line"),
    ("MESSAGE", "found {found:nothing}", "no kind of field"),
    ("MESSAGE", "(a", "missing )"),
    ("MESSAGE", "a+b", "without an upper bound"),
    ("MESSAGE", "(a{1,9}){1,9}", "repeats a repeat"),
    ("LINES", " ", "text of at most"),
    ("PERCENT", 101, "up to 100"),
    ("PERCENT", True, "up to 100"),
    ("COMPARISON", "found is old", "comparison"),
]


def taken(kind: Kind, plain: Any) -> Any:
    return plain if kind.take is None else kind.take(plain)


@pytest.mark.parametrize(("name", "value", "plain"), RIGHT, ids=[f"{one[0]}-{place}" for place, one in enumerate(RIGHT)])
def test_takes(name: str, value: Any, plain: Any) -> None:
    kind = KINDS[name]
    assert kind.check(value) == plain
    shown = taken(kind, plain) if kind.show is None else kind.show(taken(kind, plain))
    assert kind.check(shown) == plain


@pytest.mark.parametrize(("name", "value", "message"), WRONG, ids=[f"{one[0]}-{place}" for place, one in enumerate(WRONG)])
def test_refuses(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        KINDS[name].check(value)
    assert message in str(caught.value)


def test_every_kind_has_a_right_and_a_wrong_case() -> None:
    assert {one[0] for one in RIGHT} == {one[0] for one in WRONG} == set(KINDS)


def test_values_become_what_rows_hold() -> None:
    assert taken(kinds.CUDA, "12.4") == CudaVersion("12.4")
    assert taken(kinds.CAPABILITY, "12.0") == Capability(12, 0)
    assert taken(kinds.TARGET, "compute_80") == CodeTarget.parse("compute_80")


def test_one_of() -> None:
    kind = one_of("pip", "apt")
    assert kind.check("apt") == "apt"
    for wrong in ("conda", 1, ["pip"], {"pip": 1}):
        with pytest.raises(ValueError, match="one of pip, apt"):
            kind.check(wrong)


def test_a_list_says_which_entry_is_wrong() -> None:
    kind = many(kinds.CAPABILITY)
    assert kind.check(["7.5", "8.0"]) == ["7.5", "8.0"]
    assert kind.take is not None
    assert kind.take(["7.5"]) == (Capability(7, 5),)
    with pytest.raises(ValueError, match="entry 1: 'x' is not a compute capability"):
        kind.check(["7.5", "x"])
    with pytest.raises(ValueError, match="not a list"):
        kind.check("7.5")
    with pytest.raises(ValueError, match="more than"):
        kind.check(["7.5"] * 30000)
    assert many(kinds.IDENTIFIER, lone=True).check("docs") == ["docs"]


def test_quoted_values_are_short_and_plain() -> None:
    assert quote("é\x1b") == r"'\xe9\x1b'"
    assert len(quote("x" * 1000)) <= 61
    assert quote({"a": 1}) == "a table"
    assert quote(10**5000) == "a huge number"
    with pytest.raises(ValueError, match="a huge number is not a whole number"):
        kinds.COUNT.check(10**5000)


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
    kind = KINDS[name]
    refusal = ""
    try:
        plain = kind.check(value)
    except ValueError as error:
        refusal = str(error)
    if refusal:
        assert refusal.isprintable()
    else:
        assert taken(kind, plain) is not None
