"""The shipped tables: every row is well formed, every rule holds, and what the program promises to know is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from packaging.version import Version

from cudnn_resolve.host.tables import DirectoryTables, open_book
from cudnn_resolve.matrix import framework_rules, symptom_rules, table_rules
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import AptPattern
from cudnn_resolve.matrix.row_fault import Fault
from cudnn_resolve.matrix.table import TABLES, table_type
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion

ROOT = Path(__file__).resolve().parent.parent / "matrices"


@pytest.fixture(scope="module")
def book() -> Book:
    return Book(DirectoryTables(ROOT, label="matrices"))


@pytest.mark.slow
def test_every_row_is_well_formed() -> None:
    assert [str(fault) for fault in DirectoryTables(ROOT, label="matrices").faults()] == []


@pytest.mark.slow
@pytest.mark.parametrize("one", [*table_rules.RULES, *framework_rules.RULES, *symptom_rules.RULES], ids=lambda one: one.__name__)
def test_law(one: Callable[[Book], Iterable[Fault]], book: Book) -> None:
    assert [str(fault) for fault in one(book)] == []


@pytest.mark.slow
def test_names_kept_by_hand_are_those_that_no_row_gives(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    features, fields = symptom_rules.DERIVED, symptom_rules.FIELDS
    monkeypatch.setattr(symptom_rules, "DERIVED", frozenset())
    monkeypatch.setattr(symptom_rules, "FIELDS", frozenset())
    assert {fault.message.split()[0] for fault in symptom_rules.features_known(book)} == features
    assert {fault.message.split()[0].strip("{}") for fault in symptom_rules.remedies_filled(book)} == fields


def test_every_table_is_there(book: Book) -> None:
    names = set(book.names())
    assert {name for name in TABLES if not name.endswith("*")} <= names
    assert all(table_type(name) for name in names)


def test_extras_that_a_requirement_names_and_others(book: Book) -> None:
    assert {"cuda12", "cuda13-local"} <= book.extras("jax")
    assert {"all", "cudart"} <= book.extras("cuda-toolkit")


def test_they_stay_small() -> None:
    sizes = {path: path.stat().st_size for path in ROOT.rglob("*.toml")}
    symptoms = sum(size for path, size in sizes.items() if path.parent.name == "symptom")
    assert sum(sizes.values()) - symptoms < 1_500_000, "let rows that are alike be written once"
    assert symptoms < 1_120_000, "let a pattern cover what messages have in common"


def test_the_program_finds_them() -> None:
    assert Path(open_book().layers[0].path("index")).name == "index.toml"
    assert open_book().frameworks()


@pytest.mark.parametrize("name", ["tensorflow", "torch", "jax", "onnxruntime", "ctranslate2", "cupy", "paddlepaddle", "mxnet"])
def test_framework(name: str, book: Book) -> None:
    framework = book.framework(name)
    assert any(one.cuda is not None for one in framework.builds)
    assert framework.source


@pytest.mark.parametrize(
    ("name", "oldest", "newest"),
    [("tensorflow", "1.13.2", "2.18"), ("torch", "1.4", "2.6"), ("jax", "0.2", "0.5"), ("onnxruntime", "1.12", "1.20")],
)
def test_range_of_releases(name: str, oldest: str, newest: str, book: Book) -> None:
    versions = [Version(one.version) for one in book.framework(name).builds]
    assert min(versions) <= Version(oldest)
    assert max(versions) >= Version(newest)


def test_torch_has_its_cuda_variants_on_its_own_indexes(book: Book) -> None:
    found = {(one.variant, one.index) for one in book.framework("torch").builds if one.version == "2.6.0" and "aarch64" not in one.arch}
    assert {("cu118", "pytorch-cu118"), ("cu124", "default"), ("cu126", "pytorch-cu126")} <= found


@pytest.mark.parametrize(
    ("framework", "version", "index", "cuda", "cudnn"),
    [
        ("torch", "1.1.0", "default", "9.0", "7"),
        ("torch", "1.2.0", "default", "10.0", "7"),
        ("torch", "2.10.0", "pytorch-cu129", "12.9", "9.10.2.21"),
        ("tensorflow", "1.4.0", "default", "8.0", "6"),
        ("tensorflow", "1.10.1", "default", "9.0", "7"),
        ("tensorflow", "1.12.0", "default", "9.0", "7.2"),
        ("paddlepaddle", "3.0.0", "paddle-cu126", "12.6", "9.5.1.17"),
        ("paddlepaddle", "3.1.1", "paddle-cu126", "12.6", "9.5.1.17"),
        ("paddlepaddle", "3.2.2", "paddle-cu129", "12.9", "9.9.0.52"),
        ("paddlepaddle", "3.3.1", "paddle-cu126", "12.6", "9.5.1.17"),
    ],
)
def test_what_a_release_is_built_with(framework: str, version: str, index: str, cuda: str, cudnn: str, book: Book) -> None:
    found = {(str(one.cuda), str(one.cudnn)) for one in book.framework(framework).builds if (one.version, one.index) == (version, index)}
    assert (cuda, cudnn) in found


def test_old_builds_of_jax_hold_ptx_for_the_last_of_their_gpus(book: Book) -> None:
    lists = {one.targets for one in book.framework("jax").builds if one.targets}
    assert all(targets[-1].kind == "ptx" and targets[-1].capability == max(one.capability for one in targets) for targets in lists)


def test_apt_has_no_nvtx_of_cuda_9_0(book: Book) -> None:
    assert min(one.first for one in book.rows(AptPattern) if one.library == "nvtx") == CudaVersion("9.1")


def test_cudnn_from_7_on(book: Book) -> None:
    majors = {one.version.major for one in book.cudnn_builds()}
    assert {7, 8, 9} <= majors
    assert min(one.version for one in book.cudnn_builds()).line == "7.0"
    assert all(any(one.wheel == f"nvidia-cudnn-cu{major}" for one in book.cudnn_builds()) for major in (11, 12, 13))


def test_old_gpus_have_their_last_cudnn(book: Book) -> None:
    volta = [one.version for one in book.cudnn_builds() if Capability(7, 0) in one.capability]
    assert str(max(volta)) == "9.10.2.21", "measured in the wheels: 9.11 dropped Maxwell, Pascal and Volta"
    assert str(max(one.version for one in book.cudnn_builds() if Capability(3, 7) in one.capability)) == "8.7.0.84"


@pytest.mark.parametrize(
    ("driver", "cuda"), [("450.80.02", "11.0"), ("470.57.02", "11.4"), ("535.104.05", "12.2"), ("550.54.15", "12.4"), ("580.65.06", "13.0")]
)
def test_native_cuda_of_well_known_drivers(driver: str, cuda: str, book: Book) -> None:
    assert book.native_cuda(DriverVersion(driver)) == CudaVersion(cuda)


@pytest.mark.parametrize(
    ("library", "cuda", "soname"),
    [
        ("cudart", "11.8", "libcudart.so.11.0"),
        ("cudart", "12.4", "libcudart.so.12"),
        ("cufft", "11.8", "libcufft.so.10"),
        ("cufft", "12.4", "libcufft.so.11"),
        ("curand", "12.4", "libcurand.so.10"),
        ("cusolver", "12.4", "libcusolver.so.11"),
        ("cusparse", "13.0", "libcusparse.so.12"),
        ("cublas", "10.2", "libcublas.so.10"),
    ],
)
def test_sonames_that_do_not_follow_the_major(library: str, cuda: str, soname: str, book: Book) -> None:
    assert book.soname(library, CudaVersion(cuda)) == soname


def test_packages_that_own_the_same_files_share_a_slot(book: Book) -> None:
    assert book.slot("nvidia-cudnn-cu11") == book.slot("nvidia-cudnn-cu12") == book.slot("nvidia-cudnn-cu13")
    assert book.slot("nvidia-nccl-cu12") == book.slot("nvidia-nccl-cu13")
    assert book.slot("nvidia-cublas-cu12") != book.slot("nvidia-cublas")


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("Tesla T4", "7.5"),
        ("T4", "7.5"),
        ("NVIDIA A100-SXM4-40GB", "8.0"),
        ("NVIDIA L4", "8.9"),
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("Tesla P100-PCIE-16GB", "6.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA H200", "9.0"),
        ("NVIDIA B200", "10.0"),
        ("NVIDIA GeForce RTX 5090", "12.0"),
        ("NVIDIA GeForce RTX 3070 Ti Laptop GPU", "8.6"),
        ("GeForce GTX 1080 Ti", "6.1"),
        ("Tesla K80", "3.7"),
        ("RTX 6000 Ada", "8.9"),
        ("Quadro RTX 6000", "7.5"),
        ("NVIDIA RTX 6000D", "12.0"),
        ("NVIDIA CMP 50HX", "7.5"),
        ("P106-100", "6.1"),
    ],
)
def test_cards_as_the_driver_names_them(name: str, capability: str, book: Book) -> None:
    card = book.card(name)
    assert card
    assert str(card.capability) == capability


def test_no_card_is_taken_for_another_of_its_own_table(book: Book) -> None:
    for card in book.cards():
        for name in (card.name, *card.alias):
            found = book.card(name)
            assert found, name
            assert found.capability == card.capability, name


def test_the_version_tells_the_day_and_the_content(book: Book) -> None:
    day, _, digest = book.version.partition(".")
    assert day >= "2026-11-21"
    assert len(digest) == 8
    assert book.version == Book(DirectoryTables(ROOT, label="matrices")).version
