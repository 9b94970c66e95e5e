#!/usr/bin/env python3
"""Holds a table of framework combinations against the planner: which it solves, which it refuses, and whether a loader would object.

    scripts/pairs.py TABLE.csv [--every N] [--jobs N] [--say VERDICT]

The table has the columns `combo`, `pip_specs`, `tensorflow`, `torch`, `jax`, `jax_extra`, `onnxruntime_gpu`, `pythons_common`,
`cuda_majors_needed` and `cudnn_majors_needed`; a cell of versions holds one release or none. Each row is asked without a network for a
machine with a new driver and an Ampere GPU, in the newest Python that all its members have.

An answer is judged by rules of its own, which share nothing with the resolution: the first library of a name that a process loads
serves all that load it later, so there is one cuDNN of one major, at least as new as each framework was built with, for one CUDA
major; and no two packages own the same files. Exit code 1 where an accepted row would break, or where a row is refused that these rules
allow (`one CUDA, one cuDNN, a common Python`) for no reason outside NVIDIA's libraries. The last line is "N rows, N solved, N faults".
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from packaging.version import Version  # noqa: E402

import cudnn_resolve  # noqa: E402

MACHINE: dict[str, Any] = {"driver": "600.10", "gpu": "A100", "os": "ubuntu22.04", "glibc": "2.35"}
MEMBERS = (("tensorflow", "tensorflow"), ("torch", "torch"), ("jax", "jax"), ("onnxruntime_gpu", "onnxruntime-gpu"))
NVIDIA = ("nvidia-", "cuda", "cudnn", "libcudnn", "nccl", "slot:")


class Row(NamedTuple):
    """One combination."""

    specs: str
    targets: tuple[str, ...]
    pythons: tuple[str, ...]
    cuda: tuple[str, ...]
    cudnn: tuple[str, ...]

    @property
    def is_plain(self) -> bool:
        """True where all members were built for one CUDA and one cuDNN major and have a Python in common."""
        return len(self.cuda) <= 1 and len(self.cudnn) <= 1 and bool(self.pythons)


class Judgement(NamedTuple):
    """What came of a row."""

    row: Row
    verdict: str
    """`solved`, `solved otherwise` (its majors differ, another variant opens it), `refused`, `refused: outside`, `fault: …`."""
    note: str


def rows(path: str) -> Iterator[Row]:
    """The rows of a table; those of other indexes than the configured one are left out."""
    with open(path, encoding="utf-8", newline="") as file:
        for found in csv.DictReader(file):
            if "--index-url" in found["pip_specs"]:
                continue
            yield Row(
                specs=found["pip_specs"],
                targets=tuple(f"{name}=={found[column]}" for column, name in MEMBERS if found[column]),
                pythons=tuple(found["pythons_common"].split()),
                cuda=tuple(filter(None, found["cuda_majors_needed"].split("/"))),
                cudnn=tuple(filter(None, found["cudnn_majors_needed"].split("/"))),
            )


def judge(row: Row) -> Judgement:
    """What the planner makes of a row, and what is wrong with that."""
    python = max(row.pythons, key=Version) if row.pythons else "3.11"
    plan = cudnn_resolve.plan(row.targets, python_version=python, offline=True, **MACHINE).to_json()
    if plan["status"] == "ok":
        faults = [*loader_faults(plan), *file_faults(plan)]
        if faults:
            return Judgement(row, "fault: would break", "; ".join(faults))
        return Judgement(row, "solved" if row.is_plain else "solved otherwise", _stack(plan))
    said = plan["conflict"]["message"]
    causes = " | ".join(f"{one['what']} ({one['because']})" for one in plan["conflict"]["causes"])
    if not row.is_plain:
        return Judgement(row, "refused", said)
    outside = [cause for cause in plan["conflict"]["causes"] if not _is_nvidia(cause["what"])]
    return Judgement(row, "refused: outside" if outside else "fault: refused", f"{said}: {causes}")


def _is_nvidia(text: str) -> bool:
    return any(word in text.lower() for word in NVIDIA)


def _stack(plan: dict[str, Any]) -> str:
    stack = plan["stack"]
    names = " ".join(f"{one['name']}=={one['version']}" for one in stack["frameworks"])
    return f"{names} CUDA {stack['cuda']} cuDNN {stack['cudnn']}, {len(plan['overrides'])} overrides"


def loader_faults(plan: dict[str, Any]) -> Iterator[str]:
    """Frameworks that the one cuDNN of the process would not serve, and CUDA majors that meet."""
    loaded = {name: version for name, version in installed(plan) if name.startswith("nvidia-cudnn-cu")}
    if len(loaded) > 1:
        yield f"several cuDNN wheels: {', '.join(loaded)}"
    majors = set()
    for one in plan["stack"]["frameworks"]:
        if one["libraries"] == "bundled" or not one["cudnn_built"]:
            continue
        majors.add(one["cuda_built"].split(".")[0])
        built = [int(part) for part in one["cudnn_built"].split(".")]
        for name, version in loaded.items():
            here = [int(part) for part in version.split(".")]
            if here[0] != built[0] or here[:2] < (built if len(built) > 1 else [built[0], 0])[:2]:
                yield f"{one['name']} {one['version']} was built with cuDNN {one['cudnn_built']}, {name} is {version}"
            if name.rpartition("cu")[2] != one["cuda_built"].split(".")[0]:
                yield f"{one['name']} {one['version']} is for CUDA {one['cuda_built']}, cuDNN is {name}"
        if not loaded and one["libraries"] == "pip":
            yield f"no cuDNN wheel for {one['name']}"
    if len(majors) > 1:
        yield f"CUDA majors {', '.join(sorted(majors))} in one process"


def file_faults(plan: dict[str, Any]) -> Iterator[str]:
    """NVIDIA wheels of two CUDA majors that own the same files: all of them put `nvidia/NAME/lib` below site-packages."""
    seen: dict[str, str] = {}
    for name, _ in installed(plan):
        stem = name.rpartition("-cu1")[0] or name.rpartition("-cu9")[0]
        if not name.startswith("nvidia-") or not stem:
            continue
        if stem in seen:
            yield f"{seen[stem]} and {name} own the same files"
        seen[stem] = name


def installed(plan: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """What the environment would hold."""
    return [(one["name"], one["version"]) for one in plan["pip"] if one["action"] != "remove"]


@lru_cache(maxsize=1)
def _quiet() -> None:
    os.environ.setdefault("NO_COLOR", "1")


def main(argv: Sequence[str] | None = None) -> int:
    """1 where a row is judged wrongly."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth row")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--say", default="fault", help="show rows whose verdict begins so (default: faults)")
    args = parser.parse_args(argv)
    _quiet()
    found = list(rows(args.table))[:: args.every]
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(args.jobs) as pool:
        for judgement in pool.map(judge, found, chunksize=8):
            counts[judgement.verdict] += 1
            if judgement.verdict.startswith(args.say):
                print(f"{judgement.verdict}: {judgement.row.specs} [{'/'.join(judgement.row.pythons)}]: {judgement.note}", flush=True)
    for verdict, count in sorted(counts.items()):
        print(f"{count:6} {verdict}")
    solved = sum(count for verdict, count in counts.items() if verdict.startswith("solved"))
    faults = sum(count for verdict, count in counts.items() if verdict.startswith("fault"))
    print(f"{len(found)} rows, {solved} solved, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
