#!/usr/bin/env python3
"""Make every modifying system call of `apply` fail, one at a time, and check that the next command recovers.

    scripts/fault_apply.py [--installer uv|pip] [--during apply|undo|resume] [--mode kill|EIO|ENOSPC]
                           [--thin N] [--seldom N] [--results FILE]

The real command line installs ten small wheels, removes one package and replaces four. A seccomp filter intercepts each call that changes
a file system, of the program and all its children, including static ones such as uv. The selected call kills every process, fails with
an input/output error, or finds the disk full from then on. Afterwards the environment must be as before or as planned, or the exit code
must say otherwise; then, in turn, another `apply`, an undo, or the journal's own `recover.py` must leave exactly the planned or the former
environment. `--thin N` takes only every Nth of the calls that neither the environment nor the journal can notice: caches, temporary
folders, and files staged before the change; `--seldom N` continues with `apply`, the slowest, only after every Nth of those. With
`--results` an interrupted run continues where it stopped. Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.fault_world import FaultWorld, Point, Trial, place_of
from tests.index_server import IndexServer

_THEN = ("undo", "apply", "recover.py")
_UNSEEN = ("cache", "staging")
"""Places in which neither the environment nor the journal can notice a failed call."""


def main() -> int:
    """Run every trial without a result; return 1 if one left something else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--installer", choices=("pip", "uv"), default="uv")
    parser.add_argument("--during", choices=("apply", "undo", "resume"), default="apply")
    parser.add_argument("--mode", choices=("kill", "EIO", "ENOSPC"), default="kill")
    parser.add_argument("--thin", type=int, default=1, metavar="N")
    parser.add_argument("--seldom", type=int, default=1, metavar="N")
    parser.add_argument("--results", type=Path, metavar="FILE")
    args = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - much faster, and spares the disk
    home = Path(tempfile.mkdtemp(prefix="fault-apply-", dir=memory))
    rows = _rows(args.results)
    try:
        with IndexServer() as served:
            world = FaultWorld(home, args.installer, served)
            world.build()
            try:
                rows += _strike(Trial(world, args.during, images=args.mode == "kill"), args, {row["at"] for row in rows})
            finally:
                world.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return _report(rows, args)


def _rows(results: Path | None) -> list[dict[str, object]]:
    if results is None or not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def due(points: list[Point], mode: str, thin: int) -> list[Point]:
    """Return the calls to fail: every Nth of the unnoticeable ones, and for a full disk those that need space."""
    chosen, unseen = [], 0
    for point in points:
        if mode == "ENOSPC" and not point.room:
            continue
        if point.place in _UNSEEN:
            unseen += 1
            if unseen % thin:
                continue
        chosen.append(point)
    return chosen


def _strike(trial: Trial, args: argparse.Namespace, done: set[object]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    chosen = due(trial.points, args.mode, args.thin)
    random.Random(0).shuffle(chosen)  # noqa: S311 - so that an interrupted run has tried some of everything
    print(f"{len(trial.points)} calls, {len(chosen)} of them to fail", flush=True)
    for turn, point in enumerate(chosen):
        if point.number in done:
            continue
        then = _THEN[turn % len(_THEN)]
        if then == "apply" and point.place in _UNSEEN and turn // len(_THEN) % args.seldom:
            then = "undo"
        first, wrong = trial.strike(args.mode, point.number, then)
        call, _, path = first.what.partition(" ")
        row = {"at": point.number, "then": then, "call": call, "place": place_of(path), "reached": first.reached, "code": first.code}
        row["wrong"] = wrong
        rows.append(row)
        if wrong:
            print(f"call {point.number}, {first.what}, then {then}: {wrong}", flush=True)
        if args.results is not None:
            with args.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    return rows


def _report(rows: list[dict[str, object]], args: argparse.Namespace) -> int:
    reached = [row for row in rows if row["reached"]]
    print(f"{args.mode} during {args.during} with {args.installer}: {len(reached)} calls failed, of {len(rows)} tried")
    for key, count in sorted(Counter((str(row["place"]), "WRONG" if row["wrong"] else "as it should be") for row in reached).items()):
        print(f"{count:6}  {key[0]}: {key[1]}")
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
