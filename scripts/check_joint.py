#!/usr/bin/env python3
"""Hold the verdicts of `check` against a table of pairs of frameworks, each locked by uv as it would do by itself.

    scripts/check_joint.py joint.csv [--draw N] [--seed S] [--locks DIR] [--kept] [--mend]

The table says for each pair whether what uv makes of it runs (`ok...`) or breaks when loaded (`resolves-but-...`). N pairs of either
kind are drawn; uv locks them (kept in DIR, so that a second run asks no index), and `check` judges each for a machine that serves all.
Printed are the misses (breaks, and was not flagged), the false alarms, and the pairs that are flagged for another reason than the table
gives, by name; exit code 1 where more than 1 % are wrong. The table looks at CUDA and cuDNN: a build for NumPy 1 that gets NumPy 2, such as
onnxruntime-gpu 1.18.0 and tensorflow 2.14.0, which then cannot be imported, is counted apart.

`--mend` applies the smallest change that is proposed for each pair that breaks, as overrides of uv, and judges what uv makes of it.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
    parser.add_argument("--kept", action="store_true", help="judge the pairs whose lock is kept, and ask no index")
    parser.add_argument("--mend", action="store_true", help="apply the changes that are proposed, and judge again")
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
    """What uv makes of a pair; None where it finds nothing, or the index no longer has it."""
    python, overrides = _python_of(row), list(overrides)
    name = re.sub(r"[^\w.=-]+", "_", f"{row['pip_specs']}-{python}")
    path = folder / f"{name}{'.mended' if overrides else ''}.txt"
    if kept and not path.exists() and not overrides:
        return None
    if not path.exists() or overrides:
        uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
        words = [uv, "pip", "compile", "-q", "--no-annotate", "--python-version", python, "--python-platform", _PLATFORM, "-"]
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
    """The verdict, what it says, errors first, and whether NumPy is all that breaks."""
    found = _verdict(row, lock)
    errors = [one for one in found.findings if one.severity == "error"]
    is_numpy = bool(errors) and all(one.cause == "numpy_abi" for one in errors)
    return found.status, [one.summary for one in found.findings if one.severity != "info"], is_numpy


_PINS = re.compile(r"^in (?:lines? [\d, ]+ of )?\S+: (.+?)(?:; install with .*)?$")


def _mended(pairs: Iterable[tuple[dict[str, str], Path]], folder: Path) -> int:
    """Apply what is proposed for each pair; 1 where one still breaks."""
    counted: Counter[str] = Counter()
    for row, lock in pairs:
        offered = next((pins for one in _verdict(row, lock).remedy if (pins := _PINS.match(one.text))), None)
        if offered is None:
            counted["no change of the libraries serves"] += 1
            continue
        made = _locked(row, folder, overrides=offered[1].split(", "))
        status = "refused by uv" if made is None else _verdict(row, made).status
        counted[f"mended: {status}"] += 1
        if status != "runs":
            said = [] if made is None else [one.summary for one in _verdict(row, made).findings if one.severity != "info"]
            print(f"{status}: {row['pip_specs']} with {offered[1]}: {'; '.join(said)}")
    print(dict(sorted(counted.items())))
    return int(any(name not in ("mended: runs", "mended: unknown", "no change of the libraries serves") for name in counted))


def _reasons(row: dict[str, str], said: list[str]) -> dict[str, bool]:
    """Reasons that the table gives, and whether the verdict gives them, too.

    Packages that own the same files must be named together; of several such pairs one is enough, for one collision breaks what all of them
    break. Mixed majors are told where a text says that a framework needs another CUDA or cuDNN, or a library of it.
    """
    text, reason = "\n".join(said), row["reason"]
    found = {}
    if pairs := re.findall(r"(nvidia-[\w-]+?)\+(nvidia-[\w-]+)", reason):
        found["files"] = any(all(name in one for name in pair) for pair in pairs for one in said)
    if "cuDNN majors" in reason or "needs cuDNN" in reason:
        found["cuDNN"] = bool(re.search(r"cudnn", text, re.IGNORECASE))
    if "CUDA majors" in reason:
        found["CUDA"] = bool(re.search(r"CUDA|libcu(?!dnn)|nvidia-(?!cudnn)\w+-cu\d\d", text))
    return found


def _report(judged: Iterable[tuple[dict[str, str], tuple[str, list[str], bool]]], drawn: int) -> int:
    counted: Counter[str] = Counter()
    for row, (status, said, is_numpy) in judged:
        kind = "breaks" if row["verdict"].startswith("resolves-but") else "right"
        counted[kind] += 1
        pair = f"{row['pip_specs']} (Python {_python_of(row)}): {row['verdict']} {row['reason']}; said: {status} {'; '.join(said)}"
        if kind == "right" and is_numpy:
            counted["NumPy 2 under a build for NumPy 1"] += 1
            print(f"NumPy: {pair}")
        elif (status == "breaks") != (kind == "breaks"):
            counted[name := "missed" if kind == "breaks" else "false alarm"] += 1
            print(f"{name}: {pair}")
        elif kind == "breaks":
            told = _reasons(row, said)
            name = "all reasons" if all(told.values()) else "some reasons" if any(told.values()) else "another reason"
            counted[name] += 1
            counted.update(f"{reason} not told" for reason, is_told in told.items() if not is_told)
            if name == "another reason":
                print(f"{name}: {pair}")
    print(f"{drawn} pairs drawn; {counted['breaks']} that break: {counted['missed']} missed; {counted['right']} right:", end=" ")
    print(f"{counted['false alarm']} false alarms; reasons as in the table: {dict(sorted(counted.items()))}")
    wrong = counted["missed"] + counted["another reason"]
    return 1 if wrong * 100 > counted["breaks"] or counted["false alarm"] * 100 > counted["right"] else 0


if __name__ == "__main__":
    sys.exit(main())
