#!/usr/bin/env python3
"""Compares `cudnn-resolve plan --offline` and `detect` with an empty Python, pip and uv, round by round in one run.

usage: bench.py [--rounds N] [--where]

Prints wall time (min, median, max), processor time (user + system), peak memory, and ratios. uv solves the same requirements offline
from a cache of its own that is filled first; where the index cannot be asked, from a folder of empty wheels that hold the plan's
pins, which is less work for uv and is said so. "tables cold" is a first plan, before the compiled tables are in the user's cache.
`--where` adds what the time of one plan goes to.
"""

from __future__ import annotations

import argparse
import json
import os
import pstats
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

FACTS = {
    "platform": {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"},
    "python": {"version": "3.11.13", "implementation": "cpython"},
    "driver": {"version": "535.104.05", "cuda": "12.2"},
    "gpus": [{"name": "Tesla T4", "compute_capability": "7.5", "memory_mib": 15360}],
    "packages": {"pip": {}},
}
TARGETS = {"tensorflow": ("tensorflow==2.15",), "joint": ("tensorflow==2.18.0", "torch==2.6.0")}
LAUNCHER = """
import os, sys, time
null = [(os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in (0, 1, 2)]
start = time.perf_counter()
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=null)
_, status, used = os.wait4(child, 0)
print(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss, os.waitstatus_to_exitcode(status))
"""
"""Runs one command and measures it. A process of its own: the peak memory of a child is never less than that of who starts it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One command to measure."""

    name: str
    argv: tuple[str, ...]
    peer: str | None = None
    """Name of the case that does the same job in another program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What one run took."""

    wall_ms: float
    processor_ms: float
    peak_mib: float


def measure(case: Case) -> Run:
    """What running the command once took; ends the program where the command fails."""
    argv = [sys.executable, "-I", "-S", "-c", LAUNCHER, *case.argv]
    wall, processor, peak_kib, code = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    if code != "0":
        said = subprocess.run(case.argv, capture_output=True, text=True, check=False)
        raise SystemExit(f"bench: {' '.join(case.argv)} gives {code}\n{said.stderr}")
    return Run(wall_ms=float(wall) * 1000, processor_ms=float(processor) * 1000, peak_mib=int(peak_kib) / 1024)


def own_command() -> tuple[str, ...]:
    """The command of this environment, or the module where it is not installed."""
    beside = Path(sys.executable).parent / "cudnn-resolve"
    return (str(beside),) if beside.exists() else (sys.executable, "-m", "cudnn_resolve")


def plan_argv(facts: Path, requirements: tuple[str, ...]) -> tuple[str, ...]:
    """The command that plans the requirements for the machine in the file."""
    return (*own_command(), "plan", "--offline", "--facts", str(facts), *(word for text in requirements for word in ("-f", text)))


def own_cases(facts: Path) -> list[Case]:
    """What is compared, without uv."""
    plans = [Case(name=f"plan, {name}", argv=plan_argv(facts, wanted), peer=f"uv, {name}") for name, wanted in TARGETS.items()]
    return [
        Case(name="python -c pass", argv=(sys.executable, "-c", "pass")),
        Case(name="pip --version", argv=(sys.executable, "-m", "pip", "--version")),
        *plans,
        Case(name="plan, tables cold", argv=("env", "XDG_CACHE_HOME=/dev/null", *plans[0].argv), peer=plans[0].peer),
        Case(name="detect", argv=(*own_command(), "detect")),
    ]


def uv_cases(facts: Path, scratch: Path) -> tuple[list[Case], str]:
    """The same targets for uv, each tried once, and a word on where its packages come from or why there are none."""
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        return [], "uv is not here: left out"
    cases, words = [], []
    for name, wanted in TARGETS.items():
        asked = scratch / f"{name}.in"
        asked.write_text("\n".join(wanted), "utf-8")
        target = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_35", "--cache-dir", str(scratch / "uv"))
        argv: tuple[str, ...] = (uv, "pip", "compile", "--quiet", str(asked), *target)
        if works(argv, 300) and works((*argv, "--offline"), 60):
            words.append(f"{name} from its warm cache of the configured index")
        else:
            count = write_wheels(facts, wanted, scratch / name)
            argv = (*argv, "--no-index", "--find-links", str(scratch / name))
            if not works((*argv, "--offline"), 60):
                words.append(f"{name} left out, uv cannot solve it offline")
                continue
            words.append(f"{name} from a folder of {count} empty wheels, the index cannot be asked")
        cases.append(Case(name=f"uv, {name}", argv=(*argv, "--offline")))
    return cases, "uv: " + "; ".join(words)


def works(argv: tuple[str, ...], timeout_seconds: float) -> bool:
    """True where the command ends well in that time."""
    try:
        return subprocess.run(argv, capture_output=True, check=False, timeout=timeout_seconds).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def write_wheels(facts: Path, wanted: tuple[str, ...], folder: Path) -> int:
    """The number of empty wheels written: one for each pin of our plan, where the targets require all the others."""
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
    """One line for each case."""
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
    """The part of the program that a source file belongs to, for the profile."""
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
    """Share of each part in one profiled plan, built-in functions counted for their callers; profiling makes calls dearer."""
    out = scratch / "profile"
    argv = plan_argv(facts, TARGETS["joint"])[len(own_command()) :]
    subprocess.run([sys.executable, "-m", "cProfile", "-o", str(out), "-m", "cudnn_resolve", *argv], capture_output=True, check=True)
    shares: dict[str, float] = {}
    for (file, _, _), (_, _, own_seconds, _, callers) in pstats.Stats(str(out)).__dict__["stats"].items():
        by_room = {file: own_seconds} if file != "~" else {}
        for (caller, _, _), (_, _, seconds, _) in callers.items() if file == "~" else ():
            by_room[caller] = by_room.get(caller, 0) + seconds
        for name, seconds in by_room.items():
            shares[room_of(name)] = shares.get(room_of(name), 0) + seconds
    total = sum(shares.values())
    ordered = sorted(shares.items(), key=lambda item: -item[1])[:12]
    return "\n".join(["where the time of `plan, joint` goes:", *(f"  {seconds / total:>6.1%}  {room}" for room, seconds in ordered)])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="how often each command runs (15)")
    parser.add_argument("--where", action="store_true", help="say what the time of a plan goes to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-bench-") as folder:
        scratch = Path(folder)
        os.environ["XDG_CACHE_HOME"] = str(scratch / "cache")
        facts = scratch / "facts.json"
        facts.write_text(json.dumps(FACTS), "utf-8")
        peers, word = uv_cases(facts, scratch)
        cases = own_cases(facts) + peers
        for case in cases:
            measure(case)  # once unmeasured: compiled modules and file caches are warm for all
        runs: dict[str, list[Run]] = {case.name: [] for case in cases}
        for _ in range(options.rounds):
            for case in cases:
                runs[case.name].append(measure(case))
        print(f"{options.rounds} rounds, {os.cpu_count()} cores, Python {sys.version.split()[0]}; {word}")
        print(table(cases, runs))
        if options.where:
            print(where_time_goes(facts, scratch))


if __name__ == "__main__":
    main()
