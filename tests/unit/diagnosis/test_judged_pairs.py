"""Packages that are made for one another, from facts alone."""

from __future__ import annotations

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose_facts
from cudnn_resolve.facts.codec import from_mapping
from tests.written_logs import book


def pairs(pip: dict[str, str], requires: dict[str, list[str]] | None = None) -> list[tuple[str, str]]:
    facts = from_mapping({"platform": {"system": "linux", "arch": "x86_64"}, "packages": {"pip": pip, "requires": requires or {}}}, "test")
    return [(one.severity, one.summary) for one in diagnose_facts(facts, book()) if one.cause == "framework_pkg_mismatch"]


@pytest.mark.parametrize(
    "pip",
    [
        {"torch": "2.6.0+cu124", "torchvision": "0.21.0+cu124", "torchaudio": "2.6.0+cu124"},
        {"torch": "2.6.0", "torchvision": "0.21.0"},
        {"torch": "2.6.0"},
        {"torchvision": "0.21.0"},
        {"jax": "0.5.2", "jaxlib": "0.5.1", "jax-cuda12-plugin": "0.5.1", "jax-cuda12-pjrt": "0.5.1"},
        {"jax": "0.4.13", "jaxlib": "0.4.13+cuda11.cudnn86"},
        {"jax": "0.4.35", "jaxlib": "0.4.34", "jax-cuda12-plugin": "0.4.35"},  # its own metadata takes both
        {"torch": "nightly", "torchvision": "of my own", "jaxlib": "x"},
    ],
)
def test_what_pairs_is_not_spoken_of(pip: dict[str, str]) -> None:
    assert not pairs(pip)


@pytest.mark.parametrize(
    ("pip", "severity", "said"),
    [
        (
            {"torch": "2.6.0", "torchvision": "0.20.1"},
            "error",
            "torchvision 0.20.1 is built for torch==2.5.1, but torch 2.6.0 is installed",
        ),
        ({"torch": "2.4.0+cu121", "torchaudio": "2.6.0+cu124"}, "error", "torchaudio 2.6.0+cu124 is built for torch==2.6.0"),
        ({"torch": "2.5.0", "torchvision": "0.20.1"}, "info", "which is of the same minor release"),
        (
            {"torch": "2.6.0+cu124", "torchvision": "0.21.0+cu118"},
            "error",
            "torchvision 0.21.0+cu118 needs torch built with CUDA 11.8; there is torch 2.6.0+cu124",
        ),
        ({"torch": "2.6.0+cu124", "torchvision": "0.21.0+cpu"}, "warning", "without CUDA"),
        ({"jax": "0.7.2", "jaxlib": "0.7.1", "jax-cuda12-plugin": "0.7.2"}, "error", "which ignores it"),
        ({"jax": "0.4.35", "jaxlib": "0.4.34", "jax-cuda12-plugin": "0.4.31"}, "error", "and jax 0.4.35 does not take it"),
        (
            {"jax": "0.7.2", "jaxlib": "0.7.2", "jax-cuda12-plugin": "0.7.2", "jax-cuda12-pjrt": "0.7.1"},
            "warning",
            "needs jax-cuda12-pjrt==0.7.2, but jax-cuda12-pjrt 0.7.1 is installed",
        ),
        ({"jax": "0.5.0", "jaxlib": "0.5.1"}, "error", "jaxlib 0.5.1 is newer than jax 0.5.0"),
        ({"jax": "0.7.2", "jaxlib": "0.5.0"}, "error", "jax 0.7.2 needs jaxlib"),
    ],
)
def test_what_does_not_pair(pip: dict[str, str], severity: str, said: str) -> None:
    assert any(one == severity and said in text for one, text in pairs(pip))


def test_the_metadata_of_the_installed_wheel_comes_first() -> None:
    pip = {"torch": "2.6.0", "torchvision": "0.99.0+mine"}
    assert not pairs(pip)
    assert pairs(pip, {"torchvision": ["numpy", "!!", "torch ==2.7.0", 'scipy; extra == "scipy"']}) == [
        ("error", "torchvision 0.99.0+mine is built for torch==2.7.0, but torch 2.6.0 is installed")
    ]
    assert not pairs({"torch": "2.6.0a0+nv25.1", "torchvision": "0.20.0a0"}, {"torchvision": ["torch==2.6.0a0+nv25.1"]})
    assert not pairs({"torch": "2.6.0a0+nv25.1", "torchvision": "0.20.0a0"}, {"torchvision": ["torch"]})
    nights = pairs({"torch": "2.7.0.dev20250102+cu126", "torchvision": "0.22.0.dev1"}, {"torchvision": ["torch==2.7.0.dev20250101"]})
    assert [severity for severity, _ in nights] == ["info"]
