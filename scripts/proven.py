#!/usr/bin/env python3
"""Makes docs/proven.md of real runs of `validate`: card, driver, versions, classes, errors, timings, and faults that were staged.

    python scripts/proven.py --run --python PYTHON --record FOLDER   # on a machine with a GPU: runs the tests marked gpu, then the page
    python scripts/proven.py FOLDER_OR_FILE...                       # a page of what was recorded there (or of `validate --format json`)

Every figure comes out of a recording; without one that passed on a GPU there is no page, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = "tests/functional/test_validate_gpu.py"
HEAD = """# Proven on real cards

Made by `scripts/proven.py` out of what `cudnn-resolve validate --format json` printed on the machines named here. An error is a share of
what [the tolerances](tolerances.md) allow; a time is that of all cases of a row with their gradients, under "How fast" of one convolution.
"""
FAULTS = {
    "hidden-gpu": '`CUDA_VISIBLE_DEVICES=""`',
    "older-first": "an older cuDNN first on `LD_LIBRARY_PATH`",
    "mixed-ops": "the ops part of another release among the files",
    "mixed-cnn": "the cnn part of another release among the files",
    "missing-cnn": "the cnn part is missing",
    "cpu-build": "a build for the CPU",
    "neighbour": "another program holds the memory of the card",
}
_ERROR = re.compile(r"error at most (\d+)% of the tolerance")
Run = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the page; 1 where nothing was proven, or where a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="*", type=Path, help="folders and files of recordings")
    parser.add_argument("--run", action="store_true", help="run the tests marked gpu first")
    parser.add_argument("--python", default=sys.executable, help="the interpreter whose environment is tested")
    parser.add_argument("--record", type=Path, help="where --run keeps what was printed")
    parser.add_argument("--date", default=time.strftime("%Y-%m-%d"), help="the day of the runs (default: today)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs/proven.md")
    options = parser.parse_args(arguments)
    code = 0
    if options.run:
        record = options.record or parser.error("--run needs --record FOLDER")
        code = run_tests(options.python, record.resolve())
        options.recordings.append(record)
    if not options.recordings:
        parser.error("name a recording, or --run")
    text = page(list(read(options.recordings)), options.date)
    if text is None:
        print("nothing was proven on a GPU there: no page", file=sys.stderr)
        return 1
    options.output.write_text(text, "utf-8")
    print(f"wrote {options.output}")
    return code


def run_tests(python: str, record: Path) -> int:
    """The exit code of the tests on this GPU, whose runs are recorded."""
    env = {**os.environ, "CUDNN_RESOLVE_TEST_PYTHON": python, "CUDNN_RESOLVE_TEST_RECORD": str(record)}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    argv = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "gpu", TESTS]
    return subprocess.run(argv, cwd=ROOT, env=env, check=False).returncode


def read(paths: Sequence[Path]) -> Iterator[Run]:
    """Every recording, by name; what `validate` printed itself goes by the name of its file."""
    for path in paths:
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            found = json.loads(file.read_text("utf-8"))
            yield found if "told" in found else {"name": file.stem, "words": [], "exit": None, "seconds": None, "told": found}


def page(runs: Sequence[Run], date: str) -> str | None:
    """The page; None where no run passed on a GPU."""
    whole = [run for run in runs if run["told"]["status"] == "passed" and run["told"]["gpus"] and run["name"] not in FAULTS]
    if not whole:
        return None
    lines = [HEAD]
    for run in whole:
        lines += [*section(run, date), ""]
    lines += staged([run for run in runs if run["name"] in FAULTS])
    return "\n".join(lines).rstrip() + "\n"


def section(run: Run, date: str) -> Iterator[str]:
    """One run."""
    told = run["told"]
    cards = ", ".join(f"{gpu['name']} (compute capability {gpu['compute_capability']})" for gpu in told["gpus"])
    counts = {status: sum(one["status"] == status for one in told["checks"]) for status in ("passed", "warning", "failed", "skipped")}
    command = " ".join(["validate", *run["words"]])
    took = f" in {run['seconds']:.0f} s" if run["seconds"] else ""
    yield f"## {cell(cards)}, driver {cell(told['driver'] or 'unknown')}: `{command}`\n"
    yield from table(
        ("", ""),
        [
            ("day", date),
            ("frameworks", ", ".join(f"{name} {version}" for name, version in told["frameworks"].items())),
            ("loaded", ", ".join(f"{name} {version}" for name, version in told["loaded"].items())),
            ("checks", ", ".join(f"{count} {status}" for status, count in counts.items() if count) + took),
        ],
    )
    yield "\n### What was computed\n"
    yield from table(("by", "class", "types and layouts", "largest error", "seconds"), computed(told["checks"]))
    timed = list(speeds(told["checks"]))
    if timed:
        yield "\n### How fast\n"
        yield from table(("framework", "type", "one convolution", "which is"), timed)
    others = [one for one in told["checks"] if one["status"] == "warning" or one["id"].endswith("/cudnn-used")]
    if others:
        yield "\n### What else was seen\n"
        yield from table(("check", "status", "seen"), [(one["id"], one["status"], f"{one['observed']} {one['detail']}") for one in others])


def computed(checks: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    """A row for each class of each framework and of cuDNN by itself."""
    rows: dict[tuple[str, str], list[Run]] = {}
    for one in checks:
        if one["status"] == "passed" and _ERROR.search(one["observed"] or ""):
            words = one["id"].split("/")
            at = next(index for index, word in enumerate(words) if re.match(r"conv|matmul|lstm", word))
            rows.setdefault(("/".join(words[:at]), words[at]), []).append(one)
    for (by, name), cases in rows.items():
        types = ", ".join(one["id"].partition(f"{name}/")[2].replace("/", " ") for one in cases)
        worst = max(int(match[1]) for one in cases if (match := _ERROR.search(one["observed"])))
        yield by, name, types, f"{worst}%", f"{sum(one['seconds'] or 0 for one in cases):.3f}"


def speeds(checks: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    """A row for each framework and type that was timed."""
    for one in checks:
        by, found, type_ = one["id"].partition("/speed")
        if found and one["seconds"]:
            yield by, type_.lstrip("/") or "float32", f"{one['seconds'] * 1000:.3f} ms", one["observed"]


def staged(runs: Sequence[Run]) -> Iterator[str]:
    """What was said of stacks that were broken on purpose."""
    if not runs:
        return
    yield "## Broken on purpose\n"
    rows = []
    for run in runs:
        found = [one for one in run["told"]["checks"] if one["status"] == "failed"]
        said = "; ".join(f"{one['id']}: {one['observed']}" for one in found[:2]) or "nothing is wrong: no part of it was used"
        rows.append((FAULTS[run["name"]], f"`validate {' '.join(run['words'])}`", str(run["exit"]), said[:400]))
    yield from table(("fault", "command", "exit code", "what it says"), rows)


def table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell(one) for one in row)} |"


def cell(text: object) -> str:
    """A text in one line that does not end a cell, without the paths of the machine."""
    return re.sub(r"(/[\w.+-]+)+/(site-packages|dist-packages)", "…/site-packages", " ".join(str(text).split())).replace("|", "\\|").strip()


if __name__ == "__main__":
    sys.exit(main())
