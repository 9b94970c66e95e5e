"""Which facts a plan is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.facts.model import UNKNOWN, Driver, Facts, Gpu, Python
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Architecture, Card
from cudnn_resolve.operations import machine_facts
from cudnn_resolve.operations.machine_facts import facts_of_place, gather_facts
from cudnn_resolve.operations.options import Options, PlanRequest
from cudnn_resolve.operations.settings import project_settings, with_settings
from cudnn_resolve.version import Capability, CudaVersion

T4 = Card(name="Tesla T4", alias=("T4",), capability=Capability(7, 5), kind="datacenter")


class Shelf:
    """As much of a book as the facts need."""

    def card(self, name: str) -> Card | None:
        return T4 if name == "T4" else None

    def nearest_cards(self, word: str) -> tuple[str, ...]:
        return ("Tesla T4",) if word.startswith("T") else ()

    def architectures(self) -> tuple[Architecture, ...]:
        known = (Capability(7, 5), Capability(8, 0), Capability(9, 0))
        return tuple(Architecture(capability=one, name="x", cuda_first=CudaVersion("9.0")) for one in known)

    def branches(self) -> tuple[()]:
        return ()


BOOK = cast("Book", Shelf())
HERE = Facts(python=Python(version="3.10.1"), driver=Driver(version="535.1"), gpus=(Gpu(name="here"),))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Every time that this machine was asked."""
    found: list[Options] = []

    def detect(options: Options) -> Facts:
        found.append(options)
        return HERE

    monkeypatch.setattr(machine_facts, "detect_facts", detect)
    return found


def facts(**words: Any) -> Facts:
    return machine_facts.gather_facts(Options(**words), BOOK)


def test_this_machine_is_asked_once(asked: list[Options]) -> None:
    assert facts() == HERE
    assert len(asked) == 1


def test_a_stated_fact_lies_over_this_machine(asked: list[Options]) -> None:
    found = facts(gpu=("T4",))

    assert found.gpus == (Gpu(name="Tesla T4", compute_capability="7.5"),)
    assert found.driver == HERE.driver
    assert len(asked) == 1


def test_elsewhere_this_machine_is_not_asked(asked: list[Options]) -> None:
    found = facts(python_version="3.11", gpu=("T4",))

    assert asked == []
    assert found.driver is UNKNOWN
    assert found.python == Python(version="3.11")


def test_facts_of_a_file(asked: list[Options], tmp_path: Path) -> None:
    path = tmp_path / "there.json"
    path.write_text('{"driver": {"version": "525.1"}}')

    assert facts(facts=str(path)).driver == Driver(version="525.1")
    assert facts(facts=str(path), driver="530.1").driver == Driver(version="530.1")
    assert asked == []


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "there.json"
    path.write_text('{"driver": 1}')

    with pytest.raises(InputError) as caught:
        facts(facts=str(path))

    assert str(path) in str(caught.value)
    assert "driver: expected an object, found number" in str(caught.value)


def test_facts_that_were_handed_in(asked: list[Options]) -> None:
    assert facts(given=Facts(root=True)).root is True
    assert asked == []


@pytest.mark.parametrize(("words", "hint"), [({"gpu": ("T5",)}, "Tesla T4"), ({"gpu": ("X",)}, "sm_89"), ({"driver": "x"}, "550")])
def test_a_wrong_word_is_said_before_the_machine_is_asked(words: dict[str, Any], hint: str, asked: list[Options]) -> None:
    with pytest.raises(UsageError) as caught:
        facts(**words)

    assert hint in (caught.value.hint or "")
    assert asked == []


def test_a_capability_that_no_gpu_has() -> None:
    with pytest.raises(UsageError) as caught:
        facts(python_version="3.11", gpu=("8.3",))

    assert "8.3" in caught.value.message
    assert "8.0" in (caught.value.hint or "")


def test_a_gpu_newer_than_the_tables_is_taken() -> None:
    assert facts(python_version="3.11", gpu=("13.0",)).gpus == (Gpu(compute_capability="13.0"),)


def test_settings_of_the_project_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.cudnn-resolve]\nprefer = "newest"\nmatrix = ["rows"]\n')
    monkeypatch.chdir(tmp_path)

    options = with_settings(Options(), project_settings())

    assert options.prefer == "newest"
    assert options.project_matrix == (str(tmp_path / "rows"),)


def test_the_gpu_of_a_jetson_is_in_no_x86_64_machine() -> None:
    from cudnn_resolve.host.tables import open_book

    book = open_book(())
    with pytest.raises(UsageError, match="only on Arm boards") as caught:
        machine_facts.gather_facts(Options(gpu=("Jetson Orin",), platform="linux_x86_64"), book)
    assert "linux_aarch64" in (caught.value.hint or "")
    assert machine_facts.gather_facts(Options(gpu=("Jetson Orin",), python_version="3.10"), book).gpus


@pytest.mark.parametrize(
    ("name", "gpu", "arch"),
    [
        ("g5.xlarge", "NVIDIA A10G", "x86_64"),
        ("G4DN.12xlarge", "Tesla T4", "x86_64"),
        ("p5.48xlarge", "NVIDIA H100 80GB HBM3", "x86_64"),
        ("a2-highgpu-1g", "NVIDIA A100-SXM4-40GB", "x86_64"),
        ("Standard_NC24ads_A100_v4", "NVIDIA A100-SXM4-80GB", "x86_64"),
        ("Standard_NC6s_v3", "Tesla V100-SXM2-16GB", "x86_64"),
        ("jetson-orin", "Jetson AGX Orin", "aarch64"),
    ],
)
def test_a_place_that_people_name(name: str, gpu: str, arch: str) -> None:
    facts = facts_of_place(name, open_book())
    assert isinstance(facts.gpus, tuple)
    assert (facts.gpus[0].name, facts.platform.arch, facts.driver) == (gpu, arch, UNKNOWN)


def test_a_place_with_its_driver_and_what_is_stated_over_it() -> None:
    book = open_book()
    facts = gather_facts(PlanRequest(machine="colab-t4", driver="535.104.05"), book)
    assert (facts.driver.version, facts.python.version, facts.platform.release) == ("535.104.05", "3.13", "22.04")  # type: ignore[union-attr]
    assert facts.packages.pip == {}


def test_a_place_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match="g55") as caught:
        facts_of_place("g55.xlarge", open_book())
    assert "g5" in str(caught.value)
