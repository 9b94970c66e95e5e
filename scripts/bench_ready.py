#!/usr/bin/env python3
"""Time to ready: from the first line of a setup to a validated import, by `apply`, by `uv pip sync` and by `pip install` of the same pins.

usage: bench_ready.py [--rounds N] [--folder DIR] [--without 'pip install'|cold] [REQUIREMENT [OPTION…]]

Without a requirement: `ctranslate2` for CPUs. Fresh environments by turns, in one run: *cold* with empty caches, *warm* with what the tool
keeps, from a *bundle* on this disk with an empty cache of uv and with a warm one, and *again*, where nothing is to be done. Each time ends
with the import in a process of its own. The time that passes and the time of a processor (of the program and all that it starts; it grows
less with what others do) are told, the median of the rounds each, with the ratio to uv's. The aims: cold at most 1.1 of `uv pip sync`
cold, bundle at most 1.2 of `uv pip sync` warm, again under 0.3 s. They are of the time that passes, and judged by both.
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
    """A lock, a bundle of it, and caches that can be emptied."""

    def __init__(self, home: Path, words: tuple[str, ...], module: str) -> None:
        super().__init__(home, words)
        self.module = module
        self.cache = home / "uv"
        self.environ |= {"UV_CACHE_DIR": str(self.cache), "PIP_CACHE_DIR": str(home / "pip"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.environ |= {"XDG_CACHE_HOME": str(home / "own")}
        self._run(*self._own("bundle"), "-q", str(self.lock), "-o", str(home / "bundle"))

    def empty(self) -> None:
        """Empty the caches of the installers: a lock asks for no pages."""
        for name in ("uv", "pip"):
            shutil.rmtree(self.home / name, ignore_errors=True)

    def timed(self, *argv: str, cold: bool) -> tuple[float, float]:
        """Seconds, and seconds of a processor, of a command in a fresh environment and of the import after it."""
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
        """`uv pip sync` of the lock."""
        return ("uv", "pip", "sync", "-q", "--preview-features", "pylock", "--python", str(self.venv), str(self.lock))

    def pip_install(self) -> tuple[str, ...]:
        """`pip install` of the same pins."""
        self.pins = self.home / "pins.txt"
        text = self.lock.read_text("utf-8").split("[[packages]]")[1:]
        names = [[line.split('"')[1] for line in entry.splitlines() if line.startswith(("name = ", "version = "))] for entry in text]
        self.pins.write_text("".join(f"{name}=={version}\n" for name, version in (one[:2] for one in names)), "utf-8")
        return (sys.executable, "-m", "pip", "-q", "--python", str(self.venv), "install", "--no-deps", "-r", str(self.pins))

    def own(self, what: str) -> tuple[str, ...]:
        """`apply` of the lock or of the bundle."""
        return (*self._own("apply"), str(self.home / what), "--python", str(self.venv), "--installer", "uv", "-q")

    def again(self) -> tuple[float, float]:
        """A second `apply`, without the import."""
        return self._run(*self.own("pylock.toml")), self.processor


def main() -> int:
    """1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where to work")
    parser.add_argument("--module", help="what is imported; default: as the requirement is called")
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
        rows = {name: what for name, what in rows.items() if not any(word in name for word in args.without)}
        bench.timed(*bench.own("pylock.toml"), cold=False)  # compiles the tables of a checkout, as a wheel has them
        found: dict[str, list[tuple[float, float]]] = {one: [] for one in rows}
        for _ in range(args.rounds):
            for one, what in rows.items():
                if one == "uv pip sync, warm":
                    bench.timed(*bench.uv_sync(), cold=False)  # fills its cache
                found[one].append(what())
    print(f"{' '.join(words)}, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}:\n")
    print("| | seconds | of uv's | of a processor | of uv's |\n| --- | ---: | ---: | ---: | ---: |")
    passed, used = ({one: statistics.median(row[which] for row in values) for one, values in found.items()} for which in (0, 1))
    for one in found:
        theirs = "uv pip sync, cold" if one in ("apply, cold", "pip install, cold") else "uv pip sync, warm"
        ratios = (f"{took[one]:.2f} | {took[one] / took.get(theirs, 1e9):.2f}" for took in (passed, used))
        print(f"| {one} | {' | '.join(ratios)} |")
    for unit, took in (("time", passed), ("time of a processor", used)):
        aims = {"apply, cold": 1.1 * took.get("uv pip sync, cold", 1e9), "apply of a bundle, warm": 1.2 * took["uv pip sync, warm"]}
        missed = [one for one, most in {**aims, "apply again": 0.3}.items() if took.get(one, 0.0) > most]
        print(f"\naims missed in {unit}: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
