"""Hosts of a fleet for tests: facts files in a folder, and classes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.fleet.classes import Classes
from cudnn_resolve.fleet.model import FleetClass
from cudnn_resolve.matrix.book import Book

CARDS = {"A100": ("NVIDIA A100-SXM4-80GB", "8.0"), "T4": ("Tesla T4", "7.5"), "K80": ("Tesla K80", "3.7"), "B200": ("NVIDIA B200", "10.0")}


def told(
    name: str,
    card: str = "A100",
    driver: str | None = "550.54.15",
    *,
    python: str = "3.11.9",
    glibc: str = "2.35",
    arch: str = "x86_64",
    pip: Mapping[str, str] | None = None,
    count: int = 1,
) -> dict[str, Any]:
    """What `detect` says on such a host."""
    gpu, capability = CARDS[card]
    gpus = [{"name": gpu, "compute_capability": capability, "uuid": f"GPU-{name}-{number}"} for number in range(count)]
    return {
        "schema": "cudnn-resolve/detect/1",
        "platform": {"system": "linux", "arch": arch, "distribution": "ubuntu", "release": "22.04", "glibc": glibc},
        "python": {"version": python},
        "driver": None if driver is None else {"version": driver},
        "gpus": gpus,
        "packages": {} if pip is None else {"pip": dict(pip)},
    }


def write(folder: Path, **hosts: Mapping[str, Any]) -> Path:
    """A folder with the facts of those hosts."""
    folder.mkdir(exist_ok=True)
    for name, facts in hosts.items():
        (folder / f"{name}.json").write_text(json.dumps(facts), "utf-8")
    return folder


def classes(
    book: Book, hosts: Mapping[str, Mapping[str, Any]], *, whole: bool = False, policy: str | None = None
) -> tuple[FleetClass, ...]:
    """The classes of those hosts."""
    made = Classes(book, whole=whole, policy=policy)
    for name, facts in hosts.items():
        made.add(name, from_mapping(facts))
    return made.build()
