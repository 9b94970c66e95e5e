#!/usr/bin/env python3
"""Compares `apply LOCK` with `uv pip sync LOCK`: the same lock, fresh environments by turns, uv's cache warm, in one run.

usage: bench_apply.py [--rounds N] [--folder DIR] [REQUIREMENT…]

Without requirements: a small lock (`onnxruntime` for CPUs) and a big one (`torch==2.6.0`). The aim is at most 1 s + 10 % more than uv, and
"nothing to do" in under a second. The machine may be busy with other things, so pairs run one after the other, the load is printed
beside them, and the median of the pairs' differences is judged; the smallest one is told, too. Processor time (of the program and all
that it starts) is told, too: it does not grow with what others do.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETS = (("onnxruntime", "--device", "cpu"), ("torch==2.6.0", "--driver", "610.40.01", "--gpu", "L4", "--no-variant-indexes"))


class Bench:
    """A lock, a cache and an environment that is made anew for each run."""

    def __init__(self, home: Path, words: tuple[str, ...]) -> None:
        self.home = home
        self.venv = home / "venv"
        self.lock = home / "pylock.toml"
        self.processor = 0.0
        """Of the last command."""
        self.environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(home / "uv")),
            "XDG_STATE_HOME": str(home / "state"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has its modules compiled
        self.lock.unlink(missing_ok=True)
        self._run(*self._own("lock"), "-q", "-f", *words, "-o", str(self.lock))

    def _own(self, verb: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "cudnn_resolve", verb)

    def _run(self, *argv: str) -> float:
        began, before = time.monotonic(), processor()
        done = subprocess.run(argv, env=self.environ, cwd=self.home, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv[:6])}: {done.returncode} {done.stdout[-400:]} {done.stderr[-800:]}")
        self.processor = processor() - before
        return time.monotonic() - began

    def fresh(self) -> None:
        """An empty environment."""
        shutil.rmtree(self.venv, ignore_errors=True)
        shutil.rmtree(self.home / "state", ignore_errors=True)
        self._run("uv", "venv", "-q", "--python", sys.executable, str(self.venv))
        os.sync()  # what was written before is not on the next one's account

    def uv(self) -> float:
        """Seconds of `uv pip sync`."""
        self.fresh()
        return self._run("uv", "pip", "sync", "-q", "--preview-features", "pylock", "--python", str(self.venv), str(self.lock))

    def apply(self) -> tuple[float, float]:
        """Seconds of an `apply`, and of the second one that finds nothing to do; `processor` is of the first."""
        self.fresh()
        words = (*self._own("apply"), str(self.lock), "--python", str(self.venv), "--installer", "uv", "-q")
        first, used = self._run(*words), self.processor
        again = self._run(*words)
        self.processor = used
        return first, again


def processor() -> float:
    """Seconds of processor time that programs started here have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """1 where the aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirement", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="where to work; torch takes 6 GB")
    args = parser.parse_args()
    missed = False
    for words in [tuple(args.requirement)] if args.requirement else SETS:
        with tempfile.TemporaryDirectory(prefix="cudnn-resolve-bench-", dir=args.folder) as folder:
            bench = Bench(Path(folder), words)
            bench.uv()  # fills the cache
            bench.apply()
            print(f"{words[0]}:", flush=True)
            rows = []
            for number in range(args.rounds):
                load = os.getloadavg()[0]
                used = {}
                for name in ("uv", "apply") if number % 2 else ("apply", "uv"):
                    if name == "uv":
                        theirs = bench.uv()
                    else:
                        ours, again = bench.apply()
                    used[name] = bench.processor
                rows.append((ours - theirs * 1.1, theirs, ours, again, used["apply"] - used["uv"] * 1.1))
                print(
                    f"  uv {theirs:6.2f} s ({used['uv']:.2f} s of a processor)  apply {ours:6.2f} s ({used['apply']:.2f} s)  "
                    f"again {again:5.2f} s  load {load:.1f}",
                    flush=True,
                )
            over = [row[0] for row in rows]
            print(f"  apply over 110 % of uv: least {min(over):.2f} s, median {statistics.median(over):.2f} s (aim: under 1 s)")
            work = [row[4] for row in rows]
            print(f"  the same in processor time: least {min(work):.2f} s, median {statistics.median(work):.2f} s")
            idle = [row[3] for row in rows]
            print(f"  nothing to do: least {min(idle):.2f} s, median {statistics.median(idle):.2f} s (aim: under 1 s)", flush=True)
            missed = missed or statistics.median(over) >= 1 or statistics.median(idle) >= 1
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
