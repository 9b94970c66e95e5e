#!/usr/bin/env python3
"""Compare `cudnn-resolve plan --offline` and `detect` with an empty Python, pip and uv, in alternating rounds.

usage: bench.py [--rounds N] [--where]

Prints wall time (min, median, max), processor time (user + system), peak memory, and ratios. uv solves the same requirements offline
from its own cache, filled beforehand; if the index cannot be reached, from a folder of empty wheels with the pins of the plan, which is
less work for uv and is noted. "tables cold" is a first plan, before the compiled tables are in the user's cache. `--where` adds where
the time of one plan goes.
"""

from __future__ import annotations

import argparse
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from environments import find_uv
from measure import Run, measure

FACTS = {
    "platform": {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"},
    "python": {"version": "3.11.13", "implementation": "cpython"},
    "driver": {"version": "535.104.05", "cuda": "12.2"},
    "gpus": [{"name": "Tesla T4", "compute_capability": "7.5", "memory_mib": 15360}],
    "packages": {"pip": {}},
}
TARGETS = {"tensorflow": ("tensorflow==2.15",), "joint": ("tensorflow==2.18.0", "torch==2.6.0")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One command to measure."""

    name: str
    argv: tuple[str, ...]
    peer: str | None = None
    """Name of the case that does the same with another program."""


def measure_success(case: Case) -> Run:
    """Measure one run of a command; SystemExit if it fails."""
    run = measure(case.argv)
    if run.code:
        failed = subprocess.run(case.argv, capture_output=True, text=True, check=False)
        raise SystemExit(f"bench: {' '.join(case.argv)} gives {run.code}\n{failed.stderr}")
    return run


def own_command() -> tuple[str, ...]:
    """Command of this environment, or the module if it is not installed."""
    installed = Path(sys.executable).parent / "cudnn-resolve"
    return (str(installed),) if installed.exists() else (sys.executable, "-m", "cudnn_resolve")


def plan_argv(facts: Path, requirements: tuple[str, ...]) -> tuple[str, ...]:
    """Command that plans the requirements for the machine in the file."""
    return (*own_command(), "plan", "--offline", "--facts", str(facts), *(word for text in requirements for word in ("-f", text)))


def own_cases(facts: Path) -> list[Case]:
    """Cases without uv."""
    plans = [Case(name=f"plan, {name}", argv=plan_argv(facts, wanted), peer=f"uv, {name}") for name, wanted in TARGETS.items()]
    return [
        Case(name="python -c pass", argv=(sys.executable, "-c", "pass")),
        Case(name="pip --version", argv=(sys.executable, "-m", "pip", "--version")),
        *plans,
        Case(name="plan, tables cold", argv=("env", "XDG_CACHE_HOME=/dev/null", *plans[0].argv), peer=plans[0].peer),
        Case(name="detect", argv=(*own_command(), "detect")),
    ]


def uv_cases(facts: Path, scratch: Path) -> tuple[list[Case], str]:
    """Cases with uv, each tried once, and a note on where its packages come from or why there are none."""
    uv = find_uv()
    if uv is None:
        return [], "uv is not installed: left out"
    cases, notes = [], []
    for name, wanted in TARGETS.items():
        requirements = scratch / f"{name}.in"
        requirements.write_text("\n".join(wanted), "utf-8")
        target = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_35", "--cache-dir", str(scratch / "uv"))
        argv: tuple[str, ...] = (uv, "pip", "compile", "--quiet", str(requirements), *target)
        if succeeds(argv, 300) and succeeds((*argv, "--offline"), 60):
            notes.append(f"{name} from its warm cache of the configured index")
        else:
            count = write_wheels(facts, wanted, scratch / name)
            argv = (*argv, "--no-index", "--find-links", str(scratch / name))
            if not succeeds((*argv, "--offline"), 60):
                notes.append(f"{name} left out, uv cannot solve it offline")
                continue
            notes.append(f"{name} from a folder of {count} empty wheels, since the index cannot be reached")
        cases.append(Case(name=f"uv, {name}", argv=(*argv, "--offline")))
    return cases, "uv: " + "; ".join(notes)


def succeeds(argv: tuple[str, ...], timeout_seconds: float) -> bool:
    """True if the command exits with 0 in time."""
    try:
        return subprocess.run(argv, capture_output=True, check=False, timeout=timeout_seconds).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def write_wheels(facts: Path, wanted: tuple[str, ...], folder: Path) -> int:
    """Write an empty wheel for each pin of our plan, the targets requiring all others, and return their number."""
    done = subprocess.run([*plan_argv(facts, wanted), "--format", "json"], capture_output=True, text=True, check=True)
    pins = {pin["name"]: pin["version"] for pin in json.loads(done.stdout)["pip"] if pin["action"] != "remove"}
    roots = {text.partition("==")[0] for text in wanted}
    folder.mkdir()
    for name, version in pins.items():
        stem = f"{name.replace('-', '_')}-{version}"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        if name in roots:
            lines += [f"Requires-Dist: {other}=={pin}" for other, pin in pins.items() if other not in roots]
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", "\n".join(lines) + "\n")
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return len(pins)


def table(cases: list[Case], runs: dict[str, list[Run]]) -> str:
    """Result table, one line per case."""
    median = {name: statistics.median(run.wall_ms for run in some) for name, some in runs.items()}
    floor = median["python -c pass"]
    head = f"{'':<20}{'wall ms: min':>13}{'median':>9}{'max':>9}{'cpu ms':>9}{'peak MiB':>10}{'x python':>10}{'x uv':>8}"
    lines = [head]
    for case in cases:
        some = runs[case.name]
        wall = sorted(run.wall_ms for run in some)
        processor = statistics.median(run.processor_ms for run in some)
        peer = f"{median[case.name] / median[case.peer]:.2f}" if case.peer in median else "-"
        numbers = f"{wall[0]:>13.1f}{median[case.name]:>9.1f}{wall[-1]:>9.1f}{processor:>9.1f}{max(run.peak_mib for run in some):>10.1f}"
        lines.append(f"{case.name:<20}{numbers}{median[case.name] / floor:>10.2f}{peer:>8}")
    return "\n".join(lines)


def room_of(file: str) -> str:
    """Part of the program that a source file belongs to, for the profile."""
    parts = Path(file).parts
    if "cudnn_resolve" in parts:
        return "/".join(parts[parts.index("cudnn_resolve") :][:2]).removesuffix(".py")
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    if "importlib" in file:
        return "importing"
    library = Path(os.__file__).parent
    return f"Python's {Path(file).relative_to(library).parts[0].removesuffix('.py')}" if library in Path(file).parents else "Python itself"


def where_time_goes(facts: Path, scratch: Path) -> str:
    """Share of each part in one profiled plan, with built-in functions counted for their callers; profiling inflates calls."""
    out = scratch / "profile"
    argv = plan_argv(facts, TARGETS["joint"])[len(own_command()) :]
    subprocess.run([sys.executable, "-m", "cProfile", "-o", str(out), "-m", "cudnn_resolve", *argv], capture_output=True, check=True)
    shares: dict[str, float] = {}
    for (file, _, _), (_, _, own_seconds, _, callers) in pstats.Stats(str(out)).__dict__["stats"].items():
        by_file = {file: own_seconds} if file != "~" else {}
        for (caller, _, _), (_, _, seconds, _) in callers.items() if file == "~" else ():
            by_file[caller] = by_file.get(caller, 0) + seconds
        for name, seconds in by_file.items():
            shares[room_of(name)] = shares.get(room_of(name), 0) + seconds
    total = sum(shares.values())
    ordered = sorted(shares.items(), key=lambda item: -item[1])[:12]
    return "\n".join(["where the time of `plan, joint` goes:", *(f"  {seconds / total:>6.1%}  {room}" for room, seconds in ordered)])


def main() -> None:
    """Measure all cases and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each command (15)")
    parser.add_argument("--where", action="store_true", help="show where the time of a plan goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-bench-") as folder:
        scratch = Path(folder)
        os.environ["XDG_CACHE_HOME"] = str(scratch / "cache")
        facts = scratch / "facts.json"
        facts.write_text(json.dumps(FACTS), "utf-8")
        peers, note = uv_cases(facts, scratch)
        cases = own_cases(facts) + peers
        for case in cases:
            measure_success(case)  # once unmeasured, so that compiled modules and file caches are warm for all
        runs: dict[str, list[Run]] = {case.name: [] for case in cases}
        for _ in range(options.rounds):
            for case in cases:
                runs[case.name].append(measure_success(case))
        print(f"{options.rounds} rounds, {os.cpu_count()} cores, Python {sys.version.split()[0]}; {note}")
        print(table(cases, runs))
        if options.where:
            print(where_time_goes(facts, scratch))


if __name__ == "__main__":
    main()
