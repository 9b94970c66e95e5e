#!/usr/bin/env python3
"""Plan a table of framework combinations, and check which are solved, which refused, and whether a loader would accept the result.

    scripts/pairs.py TABLE.csv [--every N] [--jobs N] [--say VERDICT]

The table has the columns `combo`, `pip_specs`, `tensorflow`, `torch`, `jax`, `jax_extra`, `onnxruntime_gpu`, `pythons_common`,
`cuda_majors_needed` and `cudnn_majors_needed`; a version cell has one release or none. Each row is planned offline for a machine with a
new driver and an Ampere GPU, with the newest Python that all its members support.

Plans are judged by rules independent of the resolution: the first library of a name that a process loads serves all later users, so there
must be one cuDNN of one major, at least as new as each framework was built with, for one CUDA major; and no two packages may own the same
files. Exit code 1 if an accepted row would break, or a row is refused that these rules allow (`one CUDA, one cuDNN, a common Python`) for
no reason outside NVIDIA's libraries. The last line is "N rows, N solved, N faults".
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from packaging.version import Version

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cudnn_resolve

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
        """True if all members were built for one CUDA and one cuDNN major and have a common Python."""
        return len(self.cuda) <= 1 and len(self.cudnn) <= 1 and bool(self.pythons)


class Judgement(NamedTuple):
    """Verdict on a row."""

    row: Row
    verdict: str
    """`solved`, `solved otherwise` (with another variant, since its majors differ), `refused`, `refused: outside`, `fault: …`."""
    note: str


def rows(path: str) -> Iterator[Row]:
    """Yield the rows of a table, except those with other indexes."""
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
    """Plan a row and judge the plan."""
    python = max(row.pythons, key=Version) if row.pythons else "3.11"
    plan = cudnn_resolve.plan(row.targets, python_version=python, offline=True, **MACHINE).to_json()
    if plan["status"] == "ok":
        faults = [*loader_faults(plan), *file_faults(plan)]
        if faults:
            return Judgement(row, "fault: would break", "; ".join(faults))
        return Judgement(row, "solved" if row.is_plain else "solved otherwise", _stack(plan))
    message = plan["conflict"]["message"]
    causes = " | ".join(f"{cause['what']} ({cause['because']})" for cause in plan["conflict"]["causes"])
    if not row.is_plain:
        return Judgement(row, "refused", message)
    outside = [cause for cause in plan["conflict"]["causes"] if not _is_nvidia(cause["what"])]
    return Judgement(row, "refused: outside" if outside else "fault: refused", f"{message}: {causes}")


def _is_nvidia(text: str) -> bool:
    return any(word in text.lower() for word in NVIDIA)


def _stack(plan: dict[str, Any]) -> str:
    stack = plan["stack"]
    names = " ".join(f"{framework['name']}=={framework['version']}" for framework in stack["frameworks"])
    return f"{names} CUDA {stack['cuda']} cuDNN {stack['cudnn']}, {len(plan['overrides'])} overrides"


def loader_faults(plan: dict[str, Any]) -> Iterator[str]:
    """Yield frameworks that the single cuDNN of the process cannot serve, and mixed CUDA majors."""
    loaded = {name: version for name, version in installed(plan) if name.startswith("nvidia-cudnn-cu")}
    if len(loaded) > 1:
        yield f"several cuDNN wheels: {', '.join(loaded)}"
    majors = set()
    for framework in plan["stack"]["frameworks"]:
        if framework["libraries"] == "bundled" or not framework["cudnn_built"]:
            continue
        majors.add(framework["cuda_built"].split(".")[0])
        built = [int(part) for part in framework["cudnn_built"].split(".")]
        for name, version in loaded.items():
            here = [int(part) for part in version.split(".")]
            if here[0] != built[0] or here[:2] < (built if len(built) > 1 else [built[0], 0])[:2]:
                yield f"{framework['name']} {framework['version']} was built with cuDNN {framework['cudnn_built']}, {name} is {version}"
            if name.rpartition("cu")[2] != framework["cuda_built"].split(".")[0]:
                yield f"{framework['name']} {framework['version']} is for CUDA {framework['cuda_built']}, cuDNN is {name}"
        if not loaded and framework["libraries"] == "pip":
            yield f"no cuDNN wheel for {framework['name']}"
    if len(majors) > 1:
        yield f"CUDA majors {', '.join(sorted(majors))} in one process"


def file_faults(plan: dict[str, Any]) -> Iterator[str]:
    """Yield NVIDIA wheels of two CUDA majors that own the same files: all install to `nvidia/NAME/lib` in site-packages."""
    seen: dict[str, str] = {}
    for name, _ in installed(plan):
        stem = name.rpartition("-cu1")[0] or name.rpartition("-cu9")[0]
        if not name.startswith("nvidia-") or not stem:
            continue
        if stem in seen:
            yield f"{seen[stem]} and {name} own the same files"
        seen[stem] = name


def installed(plan: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Return the packages that the environment would have."""
    return [(pin["name"], pin["version"]) for pin in plan["pip"] if pin["action"] != "remove"]


def main(argv: Sequence[str] | None = None) -> int:
    """Return 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth row")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--say", default="fault", help="print rows whose verdict starts with this (default: faults)")
    args = parser.parse_args(argv)
    os.environ.setdefault("NO_COLOR", "1")
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
