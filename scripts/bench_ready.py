#!/usr/bin/env python3
"""Measure time to ready, from the first line of a setup to a working import: `apply`, `uv pip sync` and `pip install` of the same pins.

usage: bench_ready.py [--rounds N] [--folder DIR] [--without 'pip install'|cold] [REQUIREMENT [OPTION…]]

Without a requirement: `ctranslate2` for CPUs. Fresh environments in turn: *cold* with empty caches, *warm* with the tool's caches, from a
*bundle* on this disk with an empty and with a warm cache of uv, and *again*, with nothing to do. Each run ends with the import in a
separate process. Prints wall time and processor time (of the program and all its children; less sensitive to other load), each as the
median of the rounds, with the ratio to uv. Targets: cold at most 1.1 of `uv pip sync` cold, bundle at most 1.2 of `uv pip sync` warm,
again under 0.3 s. They are meant for wall time, and checked for both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench_apply import Bench

MODULES = {"onnxruntime-gpu": "onnxruntime", "tensorflow-cpu": "tensorflow"}


class Ready(Bench):
    """A lock, its bundle, and caches that can be emptied."""

    def __init__(self, home: Path, words: tuple[str, ...], module: str) -> None:
        super().__init__(home, words)
        self.module = module
        self.cache = home / "uv"
        self.environ |= {"UV_CACHE_DIR": str(self.cache), "PIP_CACHE_DIR": str(home / "pip"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.environ |= {"XDG_CACHE_HOME": str(home / "own")}
        self._run(*self._own("bundle"), "-q", str(self.lock), "-o", str(home / "bundle"))

    def empty(self) -> None:
        """Empty the caches of the installers; a lock needs no index pages."""
        for name in ("uv", "pip"):
            shutil.rmtree(self.home / name, ignore_errors=True)

    def timed(self, *argv: str, cold: bool) -> tuple[float, float]:
        """Wall and processor seconds of a command in a fresh environment and of the import after it."""
        if cold:
            self.empty()
        self.fresh()
        return self._both(*argv)

    def _both(self, *argv: str) -> tuple[float, float]:
        seconds = self._run(*argv)
        used = self.processor
        seconds += self._run(str(self.venv / "bin/python"), "-c", f"import {self.module}")
        return seconds, used + self.processor

    def uv_sync(self) -> tuple[str, ...]:
        """Command line of `uv pip sync` with the lock."""
        return ("uv", "pip", "sync", "-q", "--preview-features", "pylock", "--python", str(self.venv), str(self.lock))

    def pip_install(self) -> tuple[str, ...]:
        """Command line of `pip install` with the same pins."""
        self.pins = self.home / "pins.txt"
        text = self.lock.read_text("utf-8").split("[[packages]]")[1:]
        names = [[line.split('"')[1] for line in entry.splitlines() if line.startswith(("name = ", "version = "))] for entry in text]
        self.pins.write_text("".join(f"{name}=={version}\n" for name, version in (pair[:2] for pair in names)), "utf-8")
        return (sys.executable, "-m", "pip", "-q", "--python", str(self.venv), "install", "--no-deps", "-r", str(self.pins))

    def own(self, what: str) -> tuple[str, ...]:
        """Command line of `apply` with the lock or the bundle."""
        return (*self._own("apply"), str(self.home / what), "--python", str(self.venv), "--installer", "uv", "-q")

    def again(self) -> tuple[float, float]:
        """A second `apply`, without the import."""
        return self._run(*self.own("pylock.toml")), self.processor


def main() -> int:
    """Return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="working folder")
    parser.add_argument("--module", help="module to import; default: the name of the requirement")
    parser.add_argument("--without", action="append", default=[], choices=("pip install", "cold"))
    args, words = parser.parse_known_args()
    words = words or ["ctranslate2", "--device", "cpu"]
    name = words[0].partition("=")[0]
    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-ready-", dir=args.folder) as folder:
        bench = Ready(Path(folder), tuple(words), args.module or MODULES.get(name, name))
        rows: dict[str, Callable[[], tuple[float, float]]] = {
            "uv pip sync, cold": lambda: bench.timed(*bench.uv_sync(), cold=True),
            "apply, cold": lambda: bench.timed(*bench.own("pylock.toml"), cold=True),
            "pip install, cold": lambda: bench.timed(*bench.pip_install(), cold=True),
            "apply of a bundle, cold": lambda: bench.timed(*bench.own("bundle"), cold=True),
            "apply of a bundle, warm": lambda: bench.timed(*bench.own("bundle"), cold=False),
            "uv pip sync, warm": lambda: bench.timed(*bench.uv_sync(), cold=False),
            "apply, warm": lambda: bench.timed(*bench.own("pylock.toml"), cold=False),
            "apply again": bench.again,
        }
        rows = {name: command for name, command in rows.items() if not any(word in name for word in args.without)}
        bench.timed(*bench.own("pylock.toml"), cold=False)  # compiles the tables of a checkout, which a wheel brings compiled
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
        for _ in range(args.rounds):
            for name, command in rows.items():
                if name == "uv pip sync, warm":
                    bench.timed(*bench.uv_sync(), cold=False)  # fills its cache
                found[name].append(command())
    print(f"{' '.join(words)}, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}:\n")
    print("| | wall s | of uv's | processor s | of uv's |\n| --- | ---: | ---: | ---: | ---: |")
    passed, used = ({name: statistics.median(row[which] for row in values) for name, values in found.items()} for which in (0, 1))
    for name in found:
        theirs = "uv pip sync, cold" if name in ("apply, cold", "pip install, cold") else "uv pip sync, warm"
        cells = (f"{took[name]:.2f} | {took[name] / took.get(theirs, 1e9):.2f}" for took in (passed, used))
        print(f"| {name} | {' | '.join(cells)} |")
    for unit, took in (("wall time", passed), ("processor time", used)):
        targets = {"apply, cold": 1.1 * took.get("uv pip sync, cold", 1e9), "apply of a bundle, warm": 1.2 * took["uv pip sync, warm"]}
        missed = [name for name, most in {**targets, "apply again": 0.3}.items() if took.get(name, 0.0) > most]
        print(f"\ntargets missed in {unit}: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
