#!/usr/bin/env python3
"""Hold the verdicts of `check` against a table of pairs of frameworks, each locked by uv as it would do by itself.

    scripts/check_joint.py joint.csv [--draw N] [--seed S] [--locks DIR]

The table says for each pair whether what uv makes of it runs (`ok...`) or breaks when loaded (`resolves-but-...`). N pairs of either
kind are drawn; uv locks them (kept in DIR, so that a second run asks no index), and `check` judges each for a machine that serves all.
Printed are the misses (breaks, and was not flagged) and the false alarms, by name; exit code 1 where more than 1 % are wrong.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cudnn_resolve

_PLATFORM = "x86_64-manylinux_2_28"


def main() -> int:
    """Draw, lock, judge and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--draw", type=int, default=150, metavar="N", help="pairs of either kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--locks", type=Path, default=Path(tempfile.gettempdir()) / "check-joint", metavar="DIR")
    args = parser.parse_args()
    args.locks.mkdir(parents=True, exist_ok=True)
    rows = list(csv.DictReader(args.table.open(encoding="utf-8")))
    right = [row for row in rows if row["verdict"].startswith("ok") and "index" not in row["combo"]]
    wrong = [row for row in rows if row["verdict"].startswith("resolves-but") and "index" not in row["combo"]]
    chance = random.Random(args.seed)  # noqa: S311 - a sample
    drawn = [*chance.sample(right, min(args.draw, len(right))), *chance.sample(wrong, min(args.draw, len(wrong)))]
    with ThreadPoolExecutor(2) as pool:
        locks = list(pool.map(lambda row: _locked(row, args.locks), drawn))
    return _report([(row, _judged(row, lock)) for row, lock in zip(drawn, locks, strict=True) if lock is not None], len(drawn))


def _python_of(row: dict[str, str]) -> str:
    found = re.search(r"on python (\d\.\d+)", row["evidence"])
    return found[1] if found else row["pythons_common"].split()[-1]


def _locked(row: dict[str, str], folder: Path) -> Path | None:
    """What uv makes of a pair; None where it finds nothing, or the index no longer has it."""
    python = _python_of(row)
    path = folder / (re.sub(r"[^\w.=-]+", "_", f"{row['pip_specs']}-{python}") + ".txt")
    if not path.exists():
        words = ["uv", "pip", "compile", "-q", "--no-annotate", "--python-version", python, "--python-platform", _PLATFORM, "-"]
        made = subprocess.run(words, input="\n".join(row["pip_specs"].split()), capture_output=True, text=True, check=False)
        if made.returncode != 0:
            return None
        path.write_text(made.stdout, encoding="utf-8")
    return path


def _judged(row: dict[str, str], lock: Path) -> tuple[str, str]:
    found = cudnn_resolve.check(lock, python_version=_python_of(row), driver="610.43.02", gpu="A100", os="ubuntu22.04").verdicts[0]
    errors = [one.summary for one in found.findings if one.severity == "error"]
    return found.status, "; ".join(errors)


def _report(judged: Iterable[tuple[dict[str, str], tuple[str, str]]], drawn: int) -> int:
    counted = {"breaks": [0, 0], "right": [0, 0]}
    for row, (status, errors) in judged:
        kind = "breaks" if row["verdict"].startswith("resolves-but") else "right"
        counted[kind][0] += 1
        if (status == "breaks") != (kind == "breaks"):
            counted[kind][1] += 1
            name = "missed" if kind == "breaks" else "false alarm"
            print(f"{name}: {row['pip_specs']} (Python {_python_of(row)}): {row['verdict']} {row['reason']}; said: {status} {errors}")
    (broken, missed), (right, alarms) = counted["breaks"], counted["right"]
    print(f"{drawn} pairs drawn; {broken} that break: {missed} missed; {right} that are right: {alarms} false alarms")
    return 1 if missed * 100 > broken or alarms * 100 > right else 0


if __name__ == "__main__":
    sys.exit(main())
