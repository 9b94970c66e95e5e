#!/usr/bin/env python3
"""Makes docs/proven.md of real runs of `validate`: card, driver, versions, classes, errors, timings, and faults that were staged.

    python scripts/proven.py --run --python PYTHON --record FOLDER   # on a machine with a GPU: runs the tests marked gpu, then the page
    python scripts/proven.py FOLDER_OR_FILE...                       # a page of what was recorded there (or of `validate --format json`)

Every figure comes out of a recording. There is no page, and the exit code is 1, without one that passed on a GPU, where a test failed,
and where a fault that was staged was not told.
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
    """Writes the page; 1 where nothing was proven, or where a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="*", type=Path, help="folders and files of recordings")
    parser.add_argument("--run", action="store_true", help="run the tests marked gpu first")
    parser.add_argument("--python", default=sys.executable, help="the interpreter whose environment is tested")
    parser.add_argument("--record", type=Path, help="where --run keeps what was printed")
    parser.add_argument("--date", help="the day of runs that do not tell it themselves")
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
    missed = [FAULTS[run["name"]] for run in runs if run["name"] in FAULTS and said_of(run) is None]
    if missed:
        return no_page(f"not told of a stack that was broken on purpose: {', '.join(missed)}")
    text = page(runs, options.date)
    if text is None:
        return no_page("nothing was proven on a GPU there")
    options.output.write_text(text, "utf-8")
    print(f"wrote {options.output}")
    return 0


def no_page(why: str) -> int:
    """The exit code where there is no page, and why there is none."""
    print(f"{why}: no page", file=sys.stderr)
    return 1


class Unreadable(Exception):  # noqa: N818 - an answer for people
    """A recording that is none, and why."""


def run_tests(python: str, record: Path) -> int:
    """The exit code of the tests on this GPU, whose runs are recorded."""
    env = {**os.environ, "CUDNN_RESOLVE_TEST_PYTHON": python, "CUDNN_RESOLVE_TEST_RECORD": str(record)}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    # Without what the project adds: pytest alone, and `packaging`, are enough here.
    argv = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=--import-mode=importlib", "-m", "gpu", TESTS]
    return subprocess.run(argv, cwd=ROOT, env=env, check=False).returncode


def read(paths: Sequence[Path]) -> Iterator[Run]:
    """Every recording, by name; what `validate` printed itself goes by the name of its file."""
    for path in paths:
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            try:
                found = json.loads(file.read_text("utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                raise Unreadable(f"{file} cannot be read: {error}") from None
            whole = isinstance(found, dict) and "told" in found
            run = found if whole else {"name": file.stem, "words": [], "exit": None, "seconds": None, "told": found}
            if not is_run(run):
                raise Unreadable(f"{file} is no recording of `validate`")
            yield run


def is_run(run: Run) -> bool:
    """True where everything is there that the page is made of."""
    told = run["told"]
    if (
        not isinstance(told, dict)
        or not {"name", "words", "exit", "seconds"} <= run.keys()
        or not {"status", "gpus", "checks"} <= told.keys()
    ):
        return False
    checks = told["checks"]
    return isinstance(checks, list) and all(
        isinstance(one, dict) and {"id", "status", "observed", "detail"} <= one.keys() for one in checks
    )


def page(runs: Sequence[Run], date: str | None) -> str | None:
    """The page; None where no run passed on a GPU."""
    whole = [run for run in runs if run["told"]["status"] == "passed" and run["told"]["gpus"] and run["name"] not in FAULTS]
    if not whole:
        return None
    lines = [HEAD]
    for run in whole:
        lines += [*section(run, date), ""]
    lines += staged([run for run in runs if run["name"] in FAULTS])
    return "\n".join(lines).rstrip() + "\n"


def section(run: Run, date: str | None) -> Iterator[str]:
    """One run."""
    told = run["told"]
    cards = ", ".join(f"{gpu['name']} (compute capability {gpu['compute_capability']})" for gpu in told["gpus"])
    counts = {status: sum(one["status"] == status for one in told["checks"]) for status in ("passed", "warning", "failed", "skipped")}
    command = " ".join(["validate", *run["words"]])
    took = f" in {run['seconds']:.0f} s" if run["seconds"] else ""
    yield f"## {cell(cards)}, driver {cell(told['driver'] or 'unknown')}: `{cell(command)}`\n"
    yield from table(
        ("", ""),
        [
            ("day", run.get("date") or date or "not recorded"),
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
    rows = [
        (FAULTS[run["name"]], f"`validate {' '.join(run['words'])}`", str(run["exit"]), (said_of(run) or "nothing")[:400]) for run in runs
    ]
    yield from table(("fault", "command", "exit code", "what it says"), rows)


def said_of(run: Run) -> str | None:
    """What was said of a fault; None where it was not seen."""
    found = [one for one in run["told"]["checks"] if one["status"] == "failed"]
    if run["name"] == "neighbour":
        # What it leaves may be enough: that there is little of it must be said.
        found = found or [one for one in run["told"]["checks"] if one["status"] == "warning" and one["id"].endswith("card")]
    if found:
        return "; ".join(f"{one['id']}: {one['observed']}" for one in found[:2])
    # The test holds this against the libraries that the framework really takes.
    return "nothing is wrong: no part of it is used" if run["name"] == "older-first" and run["exit"] == 0 else None


def table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell(one) for one in row)} |"


def cell(text: object) -> str:
    """A text in one line that does not end a cell, without the paths of the machine."""
    line = re.sub(r"(/[\w.+@~-]+)+/(site-packages|dist-packages)", "…/site-packages", " ".join(str(text).split()))
    line = re.sub(r"(?<![\w…/.])(?:/[\w.+@~-]+)+/([\w.+@~-]+)", r"…/\1", line)
    return line.replace("|", "\\|").strip()


if __name__ == "__main__":
    sys.exit(main())
