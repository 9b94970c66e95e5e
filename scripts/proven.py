#!/usr/bin/env python3
"""Write docs/proven.md from real runs of `validate`: card, driver, versions, classes, errors, timings, and staged faults.

    python scripts/proven.py --run --python PYTHON --record FOLDER   # with a GPU: run the tests marked gpu, then write the page
    python scripts/proven.py FOLDER_OR_FILE...                       # write the page from recordings (or from `validate --format json`)

Every number comes from a recording. No page is written, and the exit code is 1, without a run that passed on a GPU, if a test failed, or
if a staged fault was not found.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
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
    """Write the page; return 1 if nothing was proven, or a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="*", type=Path, help="folders and files of recordings")
    parser.add_argument("--run", action="store_true", help="run the tests marked gpu first")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environment to test")
    parser.add_argument("--record", type=Path, help="folder for the recordings of --run")
    parser.add_argument("--date", help="day of runs that do not record it")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs/proven.md")
    options = parser.parse_args(arguments)
    if options.run:
        record = options.record or parser.error("--run needs --record FOLDER")
        if run_tests(options.python, record.resolve()) != 0:
            return no_page("a test failed")
        options.recordings.append(record)
    if not options.recordings:
        parser.error("name a recording, or --run")
    try:
        runs = list(read(options.recordings))
    except Unreadable as error:
        return no_page(str(error))
    missed = [FAULTS[run["name"]] for run in runs if run["name"] in FAULTS and reported_fault(run) is None]
    if missed:
        return no_page(f"staged faults that were not found: {', '.join(missed)}")
    text = page(runs, options.date)
    if text is None:
        return no_page("nothing was proven on a GPU there")
    options.output.write_text(text, "utf-8")
    print(f"wrote {options.output}")
    return 0


def no_page(why: str) -> int:
    """Print why there is no page, and return the exit code."""
    print(f"{why}: no page", file=sys.stderr)
    return 1


class Unreadable(Exception):  # noqa: N818 - an answer for people
    """A file is not a recording; the text says why."""


def run_tests(python: str, record: Path) -> int:
    """Run and record the tests on this GPU, and return the exit code of pytest."""
    env = {**os.environ, "CUDNN_RESOLVE_TEST_PYTHON": python, "CUDNN_RESOLVE_TEST_RECORD": str(record)}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    # Without the options of the project: pytest and `packaging` are enough here.
    argv = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=--import-mode=importlib", "-m", "gpu", TESTS]
    return subprocess.run(argv, cwd=ROOT, env=env, check=False).returncode


def read(paths: Sequence[Path]) -> Iterator[Run]:
    """Yield the recordings; plain output of `validate` is named after its file."""
    for path in paths:
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            try:
                found = json.loads(file.read_text("utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                raise Unreadable(f"{file} cannot be read: {error}") from None
            whole = isinstance(found, dict) and "told" in found
            run = found if whole else {"name": file.stem, "words": [], "exit": None, "seconds": None, "told": found}
            if not is_run(run):
                raise Unreadable(f"{file} is not a recording of `validate`")
            yield run


def is_run(run: Run) -> bool:
    """True if everything needed for the page is there."""
    report = run["told"]
    if (
        not isinstance(report, dict)
        or not {"name", "words", "exit", "seconds"} <= run.keys()
        or not {"status", "gpus", "checks"} <= report.keys()
    ):
        return False
    checks = report["checks"]
    return isinstance(checks, list) and all(
        isinstance(check, dict) and {"id", "status", "observed", "detail"} <= check.keys() for check in checks
    )


def page(runs: Sequence[Run], date: str | None) -> str | None:
    """Render the page; None if no run passed on a GPU."""
    whole = [run for run in runs if run["told"]["status"] == "passed" and run["told"]["gpus"] and run["name"] not in FAULTS]
    if not whole:
        return None
    lines = [HEAD]
    for run in whole:
        lines += [*section(run, date), ""]
    lines += staged([run for run in runs if run["name"] in FAULTS])
    return "\n".join(lines).rstrip() + "\n"


def section(run: Run, date: str | None) -> Iterator[str]:
    """Render the section of one run."""
    report = run["told"]
    cards = ", ".join(f"{gpu['name']} (compute capability {gpu['compute_capability']})" for gpu in report["gpus"])
    counts = {status: sum(check["status"] == status for check in report["checks"]) for status in ("passed", "warning", "failed", "skipped")}
    command = " ".join(["validate", *run["words"]])
    took = f" in {run['seconds']:.0f} s" if run["seconds"] else ""
    yield f"## {cell(cards)}, driver {cell(report['driver'] or 'unknown')}: `{cell(command)}`\n"
    yield from table(
        ("", ""),
        [
            ("day", run.get("date") or date or "not recorded"),
            ("frameworks", ", ".join(f"{name} {version}" for name, version in report["frameworks"].items())),
            ("loaded", ", ".join(f"{name} {version}" for name, version in report["loaded"].items())),
            ("checks", ", ".join(f"{count} {status}" for status, count in counts.items() if count) + took),
        ],
    )
    yield "\n### What was computed\n"
    yield from table(("by", "class", "types and layouts", "largest error", "seconds"), computed(report["checks"]))
    timed = list(speeds(report["checks"]))
    if timed:
        yield "\n### How fast\n"
        yield from table(("framework", "type", "one convolution", "which is"), timed)
    others = [check for check in report["checks"] if check["status"] == "warning" or check["id"].endswith("/cudnn-used")]
    if others:
        yield "\n### What else was seen\n"
        yield from table(
            ("check", "status", "seen"), [(check["id"], check["status"], f"{check['observed']} {check['detail']}") for check in others]
        )


def computed(checks: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each class of each framework and of plain cuDNN."""
    rows: dict[tuple[str, str], list[Run]] = {}
    for check in checks:
        if check["status"] == "passed" and _ERROR.search(check["observed"] or ""):
            words = check["id"].split("/")
            at = next(index for index, word in enumerate(words) if re.match(r"conv|matmul|lstm", word))
            rows.setdefault(("/".join(words[:at]), words[at]), []).append(check)
    for (by, name), cases in rows.items():
        types = ", ".join(check["id"].partition(f"{name}/")[2].replace("/", " ") for check in cases)
        worst = max(int(match[1]) for check in cases if (match := _ERROR.search(check["observed"])))
        yield by, name, types, f"{worst}%", f"{sum(check['seconds'] or 0 for check in cases):.3f}"


def speeds(checks: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each timed framework and type."""
    for check in checks:
        by, found, type_ = check["id"].partition("/speed")
        if found and check["seconds"]:
            yield by, type_.lstrip("/") or "float32", f"{check['seconds'] * 1000:.3f} ms", check["observed"]


def staged(runs: Sequence[Run]) -> Iterator[str]:
    """Render the section on staged faults."""
    if not runs:
        return
    yield "## Broken on purpose\n"
    rows = [
        (FAULTS[run["name"]], f"`validate {' '.join(run['words'])}`", str(run["exit"]), (reported_fault(run) or "nothing")[:400])
        for run in runs
    ]
    yield from table(("fault", "command", "exit code", "what it says"), rows)


def reported_fault(run: Run) -> str | None:
    """Return the report of a staged fault; None if it was not found."""
    found = [check for check in run["told"]["checks"] if check["status"] == "failed"]
    if run["name"] == "neighbour":
        # The remaining memory may be enough, but there must be a warning about it.
        found = found or [check for check in run["told"]["checks"] if check["status"] == "warning" and check["id"].endswith("card")]
    if found:
        return "; ".join(f"{check['id']}: {check['observed']}" for check in found[:2])
    # The test compares this with the libraries that the framework really loads.
    return "nothing is wrong: no part of it is used" if run["name"] == "older-first" and run["exit"] == 0 else None


def table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Render a table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell(value) for value in row)} |"


def cell(text: object) -> str:
    """Render text for a table cell: one line, escaped, without paths of the machine."""
    line = re.sub(r"(/[\w.+@~-]+)+/(site-packages|dist-packages)", "…/site-packages", " ".join(str(text).split()))
    line = re.sub(r"(?<![\w…/.])(?:/[\w.+@~-]+)+/([\w.+@~-]+)", r"…/\1", line)
    return line.replace("|", "\\|").strip()


if __name__ == "__main__":
    sys.exit(main())
