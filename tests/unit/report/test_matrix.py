"""The texts and values of `matrix`, on the toy world."""

from __future__ import annotations

import json

import pytest

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.digest import digest
from cudnn_resolve.matrix.row_fault import Fault
from cudnn_resolve.matrix.table import plain
from cudnn_resolve.operations.matrix import everything, shown
from cudnn_resolve.report import matrix, matrix_stack
from cudnn_resolve.report.text import Page, Style
from cudnn_resolve.requirement.target import version_filter
from cudnn_resolve.version import Capability, DriverVersion
from tests.pages import text_of
from tests.unit.matrix.toy import WORLD, TextTables, book

WORLD_BOOK = book()


def test_list() -> None:
    assert text_of(matrix.show_list, WORLD_BOOK, width=80) == (
        "Frameworks\n"
        "  name   framework  releases   builds  newest built with\n"
        "  alpha  Alpha      1.0 - 2.0  4       CUDA 12.4, cuDNN 9.1\n"
        "  beta   Beta       0.1 - 0.1  1\n"
        "\n"
        "Tables\n"
        "  table             rows  from      to\n"
        "  driver            3     R450      R550\n"
        "  cuda              4     11.0.3    12.4.1\n"
        "  cudnn             2     8.9.7.29  9.1.0.70\n"
        "  gpu               3     sm 7.5    sm 9.0\n"
        "  gpu cards         3\n"
        "  pip packages      6\n"
        "  indexes           1\n"
        "  apt repositories  1\n"
        "\n"
        "Version 2026-01-31.toy\n"
        "  `cudnn-resolve matrix show NAME` shows a framework, or `cudnn`, `cuda`,\n"
        "  `driver` or `gpu`.\n"
    )


def test_a_framework() -> None:
    shown = text_of(matrix.show_framework, digest(WORLD_BOOK, "alpha"), width=120)
    assert shown.startswith(
        "Alpha (alpha, alpha-gpu)\n"
        "companion packages: alpha-vision\n"
        "\n"
        "  version  variant  Python     CUDA  cuDNN  driver  strict  GPUs         libraries     index\n"
        "  2.0      cu124    3.0+       12.4  9.1    525.60  550.54  7.5-8.0+PTX  extra cuda\n"
    )
    assert "  2.0      cu118" in shown
    assert "in the wheel  alpha-cu118" in shown
    assert "Not shown here: 1 CPU build or pre-release; `cudnn-resolve matrix show alpha VERSION`" in shown
    assert "  2.0      0.2.1\n" in shown


def test_builds_that_agree_are_one_line() -> None:
    text = WORLD["framework/beta"].replace('version = "0.1"', 'version = ["0.1", "0.2", "0.3"]')
    shown = text_of(matrix.show_framework, digest(book(framework__beta=text), "beta"), width=80)
    assert "  0.2 - 0.3\n  0.1        3.0+\n" in shown


def test_one_release() -> None:
    found = digest(WORLD_BOOK, "alpha", version_filter("1.0"))
    shown = text_of(matrix.show_release, WORLD_BOOK, found, width=100)
    for line in (
        "alpha 1.0 (cu124)",
        "  driver     525.60.13 or newer; strict: 550.54.14",
        "  GPU code   sm_75 sm_80 compute_80",
        "  libraries  pip wheels with extra [cuda] by its RPATH, before LD_LIBRARY_PATH",
        "  requires   numpy>=1.20; nvidia-cudnn-cu12==9.1.0.70 [cuda]",
        "  - numpy<2: built against NumPy 1",
        "  - <2: it warns",
        "  - https://docs.example/page (read 2026-01-31)",
    ):
        assert f"\n{line}\n" in shown, line


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("numpy<2,>=1", "numpy<2, >=1"),
        ('triton==3.2.0; platform_system == "Linux" and platform_machine == "x86_64"', "triton==3.2.0"),
        ('setuptools; python_version >= "3.12"', 'setuptools (python_version >= "3.12")'),
        ('x; sys_platform == "linux" and python_version < "3.9"', 'x (python_version < "3.9")'),
        ('nvidia-x==1; extra == "cuda"', "nvidia-x==1 [cuda]"),
        ('x; platform_machine == "aarch64"', 'x (platform_machine == "aarch64")'),
    ],
)
def test_a_requirement_without_what_always_holds(line: str, shown: str) -> None:
    assert matrix.requirement_text(line, "cuda") == shown


def test_the_newest_build_is_a_final_gpu_build() -> None:
    text = WORLD["framework/alpha"].replace('version = ["1.0", "2.0"]', 'version = ["1.0", "2.0", "3.0rc1"]')
    builds = book(framework__alpha=text).framework("alpha").builds
    newest = matrix.newest_build(builds)
    assert newest
    assert (newest.version, newest.variant) == ("2.0", "cu124")
    assert matrix.span(builds) == "1.0 - 2.0"
    assert matrix.newest_build(()) is None
    assert matrix.span(()) == ""


def test_hostile_texts_do_not_reach_the_terminal() -> None:
    fault = Fault(file="a\x1b[31m/b.toml", place="x", message="\u202e")
    assert text_of(matrix.show_faults, [fault], "m") == "a\\x1b[31m/b.toml: x: \\u202e\n1 fault\n"
    assert text_of(matrix.show_faults, [], "m").startswith("m: all rows")
    page = Page(width=20)
    page.table(("a", "b"), [("\x1b[31m", "x")])
    assert "\x1b" not in page.text()


def test_columns_are_dropped_in_order_and_named() -> None:
    page = Page(width=24)
    page.table(("one", "two", "three"), [("1" * 10, "2" * 10, "3" * 10)], droppable=("two", "three"))
    assert page.lines == ["  one         three", "  1111111111  3333333333", "  (no room for: two)"]


def test_headers_are_styled() -> None:
    page = Page(Style(color=True), 80)
    page.title("T")
    page.table(("a", ""), [("1", "")])
    assert page.lines == ["\x1b[1mT\x1b[0m", "\x1b[2m  a\x1b[0m", "  1"]


def test_the_stack() -> None:
    assert "  9.1.0.70  12.0+" in text_of(matrix_stack.show_cudnn, WORLD_BOOK.cudnn_builds())
    shown = text_of(matrix_stack.show_cuda, WORLD_BOOK, WORLD_BOOK.cuda_releases())
    assert "  12.4.1   525.60.13  550.54.15   7.5-9.0  2024-04-03  ubuntu2204\n" in shown
    assert "  11.0.3   450.51.06  450.51.06   7.5-8.0\n" in shown, "its own driver is older than the floor and serves it all the same"
    assert "Libraries" not in shown
    shown = text_of(matrix_stack.show_cuda, WORLD_BOOK, WORLD_BOOK.cuda_releases()[-1:])
    assert "  cublas   libcublas.so.12  nvidia-cublas-cu12  nvidia/cublas/lib\n" in shown
    assert "  R535    12.2         supported  2026-06\n" in text_of(matrix_stack.show_drivers, WORLD_BOOK.branches())
    assert "  7.5         Turing        10.0+  R410+\n" in text_of(matrix_stack.show_gpus, WORLD_BOOK.architectures())


def test_a_driver() -> None:
    shown = text_of(matrix_stack.show_driver, WORLD_BOOK, DriverVersion("535.104.05"))
    assert "  runs natively                     CUDA 12.2 and older\n" in shown
    assert "  with minor-version compatibility  CUDA 12.x\n" in shown
    assert "  with a package, on datacenter     cuda-compat-12-4\n" in shown
    assert "no CUDA release in the tables" in text_of(matrix_stack.show_driver, WORLD_BOOK, DriverVersion("390.1"))


def test_a_gpu() -> None:
    shown = text_of(matrix_stack.show_gpu, WORLD_BOOK, Capability(7, 5), WORLD_BOOK.card("T4"))
    assert shown.startswith("Tesla T4: compute capability 7.5\n  card            datacenter, 16 GiB\n")
    assert "  cuDNN, CUDA 12  newest with code for it: 9.1.0.70\n" in shown
    assert "  peak            fp32 8.1, fp16 65 TFLOP/s (Tesla T4)\n" in shown
    assert "  cards           Tesla T4, NVIDIA GeForce RTX 2080 Ti\n" in text_of(matrix_stack.show_gpu, WORLD_BOOK, Capability(7, 5), None)


def test_an_empty_book_can_be_listed() -> None:
    assert "Frameworks" in text_of(matrix.show_list, Book(TextTables({})))


def test_values() -> None:
    found = shown(WORLD_BOOK, digest(WORLD_BOOK, "alpha", version_filter("2"))).to_json()
    json.dumps(found)
    assert found["schema"] == "cudnn-resolve/matrix/1"
    assert [one["wheel_version"] for one in found["builds"]] == ["2.0", "2.0+cu118", "2.0"]
    assert found["builds"][0]["driver_min"] == {"minor": "525.60.13", "strict": "550.54.14"}
    assert found["builds"][2]["driver_min"] == {"minor": None, "strict": None}
    assert found["sources"] == {"docs": {"where": "https://docs.example/page", "read": "2026-01-31"}}
    assert found["traps"][0]["id"] == "old-alpha"
    listed = everything(WORLD_BOOK).value()
    assert listed["frameworks"][0]["releases"] == "1.0 - 2.0"
    assert plain(WORLD_BOOK.cards()[:1]) == [
        {"name": "Tesla T4", "alias": ["T4"], "capability": "7.5", "class": "datacenter", "memory_gib": 16, "source": ["docs"]}
    ]
