"""Advisories about packages that are planned or installed, from the shipped tables."""

from __future__ import annotations

import pytest

from cudnn_resolve.host.tables import open_book
from cudnn_resolve.matrix.advisory import advisories_of
from cudnn_resolve.version import Capability


@pytest.mark.parametrize(
    ("packages", "gpu", "ids"),
    [
        ({"torch": "2.8.0+cu128", "nvidia-cudnn-cu12": "9.10.2.21"}, "8.0", ["cudnn-9.8-conv3d-bf16"]),
        ({"torch": "2.8.0", "nvidia-cudnn-cu12": "9.13.0.50"}, "8.0", []),
        ({"torch": "2.9.1", "nvidia-cudnn-cu12": "9.10.2.21"}, "8.0", ["torch-conv3d-old-cudnn"]),
        ({"torch": "2.9.1", "nvidia-cudnn-cu12": "9.15.1.9"}, "8.0", []),
        ({"tensorflow": "2.18.0", "nvidia-cudnn-cu12": "9.3.0.75"}, "8.0", []),
        ({"jax": "0.7.2", "nvidia-cudnn-cu12": "9.23.1.3"}, "10.0", ["cudnn-9.23-mxfp8-attention"]),
        ({"jax": "0.7.2", "nvidia-cudnn-cu12": "9.23.1.3"}, "9.0", []),
        ({"transformer-engine-cu12": "2.20.2", "torch": "2.6.0"}, "9.0", ["transformer-engine-cu12-cudart"]),
        ({"transformer-engine-cu12": "2.10.0", "torch": "2.6.0"}, "9.0", []),
        ({"torch": "not a version"}, "9.0", []),
    ],
)
def test_advisories(packages: dict[str, str], gpu: str, ids: list[str]) -> None:
    found = advisories_of(open_book(()), packages, [Capability.parse(gpu)])

    assert [one.id for _, one in found] == ids
