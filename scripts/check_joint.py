#!/usr/bin/env python3
"""Compare the verdicts of `check` with a table of framework pairs, each locked by plain uv.

    scripts/check_joint.py joint.csv [--draw N] [--seed S] [--locks DIR] [--kept] [--mend]

The table says for each pair whether uv's lock runs (`ok...`) or breaks when loaded (`resolves-but-...`). N pairs of either kind are
drawn; uv locks them (kept in DIR, so that a second run needs no index), and `check` judges each for a machine that suits all. Prints the
misses (breaks, but not flagged), the false alarms, and the pairs flagged for a reason other than the table's; exit code 1 if more than
1 % are wrong. The table is about CUDA and cuDNN: a build for NumPy 1 that gets NumPy 2 and cannot be imported, such as onnxruntime-gpu
1.18.0 with tensorflow 2.14.0, is counted separately.

`--mend` applies the smallest proposed change to each pair that breaks, as overrides of uv, and judges the result.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from environments import uv_program

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cudnn_resolve
from cudnn_resolve.diagnosis.model import Verdict

_PLATFORM = "x86_64-manylinux_2_28"


def main() -> int:
    """Draw, lock, judge and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--draw", type=int, default=150, metavar="N", help="pairs of either kind; 0 for the whole table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kept", action="store_true", help="judge only pairs with a kept lock, without an index")
    parser.add_argument("--mend", action="store_true", help="apply the proposed changes, and judge again")
    parser.add_argument("--locks", type=Path, default=Path(tempfile.gettempdir()) / "check-joint", metavar="DIR")
    args = parser.parse_args()
    args.locks.mkdir(parents=True, exist_ok=True)
    rows = list(csv.DictReader(args.table.open(encoding="utf-8")))
    right = [row for row in rows if row["verdict"].startswith("ok") and "index" not in row["combo"]]
    wrong = [row for row in rows if row["verdict"].startswith("resolves-but") and "index" not in row["combo"]]
    chance = random.Random(args.seed)  # noqa: S311 - a sample
    drawn = [row for rows in (right, wrong) for row in chance.sample(rows, min(args.draw or len(rows), len(rows)))]
    chance.shuffle(drawn)
    with ThreadPoolExecutor(2) as pool:
        locks = list(pool.map(lambda row: _locked(row, args.locks, kept=args.kept), drawn))
    if args.mend:
        broken = [(row, lock) for row, lock in zip(drawn, locks, strict=True) if lock is not None]
        return _mended([pair for pair in broken if pair[0]["verdict"].startswith("resolves-but")], args.locks)
    return _report([(row, _judged(row, lock)) for row, lock in zip(drawn, locks, strict=True) if lock is not None], len(drawn))


def _python_of(row: dict[str, str]) -> str:
    found = re.search(r"on python (\d\.\d+)", row["evidence"])
    return found[1] if found else row["pythons_common"].split()[-1]


def _locked(row: dict[str, str], folder: Path, *, kept: bool = False, overrides: Iterable[str] = ()) -> Path | None:
    """Return uv's lock of a pair; None if it finds none, or the index no longer has the releases."""
    python, overrides = _python_of(row), list(overrides)
    name = re.sub(r"[^\w.=-]+", "_", f"{row['pip_specs']}-{python}")
    path = folder / f"{name}{'.mended' if overrides else ''}.txt"
    if kept and not path.exists() and not overrides:
        return None
    if not path.exists() or overrides:
        words = [uv_program(), "pip", "compile", "-q", "--no-annotate", "--python-version", python, "--python-platform", _PLATFORM, "-"]
        if overrides:
            limits = folder / f"{name}.overrides.txt"
            limits.write_text("\n".join(overrides), encoding="utf-8")
            words += ["--overrides", str(limits)]
        made = subprocess.run(words, input="\n".join([*row["pip_specs"].split(), *overrides]), capture_output=True, text=True, check=False)
        if made.returncode != 0:
            return None
        path.write_text(made.stdout, encoding="utf-8")
    return path


def _verdict(row: dict[str, str], lock: Path) -> Verdict:
    return cudnn_resolve.check(lock, python_version=_python_of(row), driver="610.43.02", gpu="A100", os="ubuntu22.04").verdicts[0]


def _judged(row: dict[str, str], lock: Path) -> tuple[str, list[str], bool]:
    """Return the verdict, its findings, and whether NumPy is all that breaks."""
    found = _verdict(row, lock)
    errors = [finding for finding in found.findings if finding.severity == "error"]
    is_numpy = bool(errors) and all(finding.cause == "numpy_abi" for finding in errors)
    return found.status, [finding.summary for finding in found.findings if finding.severity != "info"], is_numpy


_PINS = re.compile(r"^in (?:lines? [\d, ]+ of )?\S+: (.+?)(?:; install with .*)?$")


def _mended(pairs: Iterable[tuple[dict[str, str], Path]], folder: Path) -> int:
    """Apply the change proposed for each pair; return 1 if one still breaks."""
    counted: Counter[str] = Counter()
    for row, lock in pairs:
        offered = next((pins for remedy in _verdict(row, lock).remedy if (pins := _PINS.match(remedy.text))), None)
        if offered is None:
            counted["no change of the libraries helps"] += 1
            continue
        made = _locked(row, folder, overrides=offered[1].split(", "))
        status = "refused by uv" if made is None else _verdict(row, made).status
        counted[f"mended: {status}"] += 1
        if status != "runs":
            findings = [] if made is None else [finding.summary for finding in _verdict(row, made).findings if finding.severity != "info"]
            print(f"{status}: {row['pip_specs']} with {offered[1]}: {'; '.join(findings)}")
    print(dict(sorted(counted.items())))
    return int(any(name not in ("mended: runs", "mended: unknown", "no change of the libraries helps") for name in counted))


def _reasons(row: dict[str, str], findings: list[str]) -> dict[str, bool]:
    """Return the reasons of the table, and whether the verdict gives them, too.

    Packages that own the same files must be named together; one of several such pairs is enough, since one collision breaks as much as
    all. Mixed majors count as found if a finding says that a framework needs another CUDA or cuDNN, or a library of it.
    """
    text, reason = "\n".join(findings), row["reason"]
    found = {}
    if pairs := re.findall(r"(nvidia-[\w-]+?)\+(nvidia-[\w-]+)", reason):
        found["files"] = any(all(name in finding for name in pair) for pair in pairs for finding in findings)
    if "cuDNN majors" in reason or "needs cuDNN" in reason:
        found["cuDNN"] = bool(re.search(r"cudnn", text, re.IGNORECASE))
    if "CUDA majors" in reason:
        found["CUDA"] = bool(re.search(r"CUDA|libcu(?!dnn)|nvidia-(?!cudnn)\w+-cu\d\d", text))
    return found


def _report(judged: Iterable[tuple[dict[str, str], tuple[str, list[str], bool]]], drawn: int) -> int:
    counted: Counter[str] = Counter()
    for row, (status, findings, is_numpy) in judged:
        kind = "breaks" if row["verdict"].startswith("resolves-but") else "right"
        counted[kind] += 1
        pair = f"{row['pip_specs']} (Python {_python_of(row)}): {row['verdict']} {row['reason']}; found: {status} {'; '.join(findings)}"
        if kind == "right" and is_numpy:
            counted["NumPy 2 under a build for NumPy 1"] += 1
            print(f"NumPy: {pair}")
        elif (status == "breaks") != (kind == "breaks"):
            counted[name := "missed" if kind == "breaks" else "false alarm"] += 1
            print(f"{name}: {pair}")
        elif kind == "breaks":
            reasons = _reasons(row, findings)
            name = "all reasons" if all(reasons.values()) else "some reasons" if any(reasons.values()) else "another reason"
            counted[name] += 1
            counted.update(f"{reason} not found" for reason, is_found in reasons.items() if not is_found)
            if name == "another reason":
                print(f"{name}: {pair}")
    print(f"{drawn} pairs drawn; {counted['breaks']} that break: {counted['missed']} missed; {counted['right']} right:", end=" ")
    print(f"{counted['false alarm']} false alarms; reasons as in the table: {dict(sorted(counted.items()))}")
    wrong = counted["missed"] + counted["another reason"]
    return 1 if wrong * 100 > counted["breaks"] or counted["false alarm"] * 100 > counted["right"] else 0


if __name__ == "__main__":
    sys.exit(main())
