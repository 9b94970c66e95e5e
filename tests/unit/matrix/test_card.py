"""Which card a name means, as users, nvidia-smi and NVML write it."""

from __future__ import annotations

import pytest

from cudnn_resolve.matrix.card import find, nearest
from cudnn_resolve.matrix.row import Card
from cudnn_resolve.version import Capability


def card(name: str, capability: str, *alias: str) -> Card:
    return Card(name=name, capability=Capability.parse(capability), kind="geforce", alias=alias)


CARDS = (
    card("Tesla T4", "7.5", "T4"),
    card("Tesla T40 24GB", "7.5", "T40"),
    card("NVIDIA T400", "7.5"),
    card("NVIDIA A100-SXM4-40GB", "8.0", "A100"),
    card("NVIDIA A100 80GB PCIe", "8.0"),
    card("NVIDIA A10G", "8.6"),
    card("NVIDIA GeForce RTX 4090", "8.9"),
    card("NVIDIA GeForce RTX 4090 D", "8.9"),
    card("NVIDIA GeForce RTX 2060", "7.5"),
    card("NVIDIA GeForce RTX 2060 SUPER", "7.5"),
    card("Quadro RTX 6000", "7.5"),
    card("NVIDIA RTX 6000 Ada Generation", "8.9"),
    card("Quadro P4000", "6.1"),
    card("NVIDIA H100 80GB HBM3", "9.0", "H100"),
    card("NVIDIA TITAN V", "7.0"),
)


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("T4", "Tesla T4"),
        ("tesla  t4", "Tesla T4"),
        ("NVIDIA Tesla T4", "Tesla T4"),
        ("T400", "NVIDIA T400"),
        ("A100", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-40GB"),
        ("a10g", "NVIDIA A10G"),
        ("NVIDIA RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("RTX4090", "NVIDIA GeForce RTX 4090"),
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090"),
        ("rtx 2060 super", "NVIDIA GeForce RTX 2060 SUPER"),
        ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("H100 PCIe", "NVIDIA H100 80GB HBM3"),
        ("GRID T4-4Q", "Tesla T4"),
        ("Titan V", "NVIDIA TITAN V"),
    ],
)
def test_known(word: str, name: str) -> None:
    found = find(CARDS, word)
    assert found
    assert found.name == name


@pytest.mark.parametrize(
    "word", ["", " ", "NVIDIA", "GPU", "RTX", "Tesla", "RTX 9999", "GTX P4000", "T4000000", "x" * 10000, "\x00", "sm_75"]
)
def test_not_known(word: str) -> None:
    assert find(CARDS, word) is None


def test_a_name_that_could_mean_two_capabilities_means_none() -> None:
    twins = (card("NVIDIA RTX A", "8.0", "X1 Foo"), card("NVIDIA GTX A", "7.5", "X1 Bar"))
    assert find(twins, "X1 Foo Bar") is None


def test_nearest() -> None:
    assert nearest(CARDS, "RTX 4091")[0] == "NVIDIA GeForce RTX 4090"
    assert "Quadro P4000" in nearest(CARDS, "P400")
    assert nearest(CARDS, "zzzzzz") == ()
    assert len(nearest(CARDS, "RTX 20")) <= 5
