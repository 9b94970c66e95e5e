from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_resolve.facts.framework_files import (
    CupyWheel,
    cuda_of_label,
    cudnn_of_needs,
    cudnn_preloaded_by_jax,
    jaxlib_label,
    known_version,
    label_of_cuda,
    local_label,
    parse_constants,
    parse_cupy_wheel,
    required_cudnn,
    runtime_of_needs,
    text_of,
)


def test_torch_version_module() -> None:
    text = (
        "from typing import Optional\n__version__ = '2.6.0+cu124'\ndebug = False\ncuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n"
    )

    constants = parse_constants(text)

    assert text_of(constants, "cuda") == "12.4"
    assert text_of(constants, "hip") is None
    assert local_label("2.6.0+cu124") == "cu124"
    assert constants["debug"] is False


def test_tensorflow_build_info() -> None:
    text = (
        "import collections\nbuild_info = collections.OrderedDict([('cuda_version', '12.2'), ('is_cuda_build', True), ('cc', ['sm_50'])])\n"
    )

    assert parse_constants(text)["build_info"] == {"cuda_version": "12.2", "is_cuda_build": True, "cc": ["sm_50"]}


@pytest.mark.parametrize(
    "text",
    [
        "import os\nx = os.system('true')\n",
        "x = open('/etc/passwd').read()\n",
        "x = [n for n in range(3)]\n",
        "x = 1 +\n",
        "\0",
        "x = " + "(" * 5000,
        "x = " + "-" * 100000 + "1",
        "a = {[]: 1}\n",
        "a = dict(1)\n",
        "a = len('\\d')\n",
    ],
)
def test_code_is_not_run_and_damage_is_no_answer(text: str) -> None:
    assert parse_constants(text) == {}


def test_a_module_beyond_any_generated_one_is_not_read() -> None:
    assert parse_constants("x = 1\n" * 100000) == {}


@given(st.text(max_size=200))
def test_any_text_gives_constants(text: str) -> None:
    """No module, however written, raises anything."""
    assert isinstance(parse_constants(text), dict)


def test_paddle_says_false_for_what_it_has_not() -> None:
    assert text_of({"cuda_version": "False", "cudnn_version": ""}, "cuda_version") is None
    assert text_of({"cuda_version": 12}, "cuda_version") is None


@pytest.mark.parametrize(
    ("label", "cuda"),
    [
        ("cu118", "11.8"),
        ("cu92", "9.2"),
        ("cu100", "10.0"),
        ("cu130", "13.0"),
        ("cuda12x", "12"),
        ("cuda112", "11.2"),
        ("cpu", None),
        (None, None),
    ],
)
def test_cuda_behind_a_label(label: str | None, cuda: str | None) -> None:
    assert cuda_of_label(label) == cuda


@pytest.mark.parametrize(("cuda", "label"), [("11.8", "cu118"), ("12.4.1", "cu124"), ("12", None), ("odd", None), (None, None)])
def test_label_of_a_cuda(cuda: str | None, label: str | None) -> None:
    assert label_of_cuda(cuda) == label


@pytest.mark.parametrize(
    ("label", "found"),
    [
        ("cuda12.cudnn89", ("12", "8.9")),
        ("cuda11.cudnn805", ("11", "8.0.5")),
        ("cuda111", ("11.1", None)),
        ("cuda12.cudnn91", ("12", "9.1")),
        ("x", None),
    ],
)
def test_jaxlib_labels(label: str, found: tuple[str, str | None] | None) -> None:
    assert jaxlib_label(label) == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('nvidia-cudnn-cu12 (==9.1.0.70) ; platform_system == "Linux"', ("9.1.0.70", True, 12)),
        ("nvidia-cudnn-cu13==9.19.0.56", ("9.19.0.56", True, 13)),
        ('nvidia-cudnn-cu12<10.0,>=9.8; extra == "with-cuda"', ("9.8", False, 12)),
        ("nvidia_cudnn_cu11~=8.6", ("8.6", False, 11)),
        ("nvidia-cudnn-cu12<10", None),
        ("nvidia-cublas-cu12==12.4.5.8", None),
    ],
)
def test_required_cudnn(line: str, found: tuple[str, bool, int] | None) -> None:
    required = required_cudnn(("numpy>=1", line))

    assert (required and (required.version.text, required.exact, required.cuda)) == found


def test_what_jax_opens_first() -> None:
    assert cudnn_preloaded_by_jax('  _load("nccl", ["libnccl.so.2"])\n  _load("cudnn", ["libcudnn.so.9"])\n') == "libcudnn.so.9"
    assert cudnn_preloaded_by_jax("cudnn") is None


@pytest.mark.parametrize(
    ("needed", "cuda"),
    [
        (("libcublas.so.10", "libcudart.so.10.2"), "10.2"),
        (("libcudart.so.11.0",), "11"),
        (("libcublasLt.so.12", "libcudnn.so.9"), "12"),
        (("libcudart.so.9.0",), "9.0"),
        (("libc.so.6",), None),
    ],
)
def test_cuda_that_a_library_is_linked_to(needed: tuple[str, ...], cuda: str | None) -> None:
    assert runtime_of_needs(needed) == cuda


def test_cudnn_that_a_library_is_linked_to() -> None:
    assert cudnn_of_needs(("libc.so.6", "libcudnn.so.9", "libcudnn_ops.so.9")) == "9"
    assert cudnn_of_needs(("libcudnn_ops.so.9",)) is None


def test_cupy_wheels() -> None:
    text = '{"cuda": "12.x", "packaging": "%s", "cudnn": {"version": "8.8.1", "filenames": ["libcudnn.so.8.8.1", 3]}}'

    assert parse_cupy_wheel(text % "pip") == CupyWheel(cuda="12.x", cudnn="8.8.1", files=("libcudnn.so.8.8.1",))
    assert parse_cupy_wheel(text % "conda") == CupyWheel(cuda="12.x", cudnn="8.8.1")
    for odd in ("", "[]", '{"cudnn": []}', "[" * 100000):
        assert parse_cupy_wheel(odd) == CupyWheel()


def test_only_versions_are_versions() -> None:
    assert [known_version(text) for text in ("12.4", "8", "12.x", "; rm", "", None)] == ["12.4", "8", None, None, None, None]
