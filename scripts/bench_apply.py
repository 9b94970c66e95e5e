#!/usr/bin/env python3
"""Compare `apply LOCK` with `uv pip sync LOCK`: the same lock, alternating fresh environments, uv's cache warm.

usage: bench_apply.py [--rounds N] [--folder DIR] [REQUIREMENT…]

Without requirements: a small lock (`onnxruntime` for CPUs) and a big one (`torch==2.6.0`). The target is at most 1 s + 10 % more than uv,
and "nothing to do" in under a second. Since the machine may be busy, pairs run one after the other, the load is printed with them, and
the median of the differences counts; the smallest is printed as well. So is processor time (of the program and all its children), which
does not depend on other load.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import processor_seconds

ROOT = Path(__file__).resolve().parent.parent
SETS = (("onnxruntime", "--device", "cpu"), ("torch==2.6.0", "--driver", "610.40.01", "--gpu", "L4", "--no-variant-indexes"))


class Bench:
    """A lock, a cache, and an environment recreated for each run."""

    def __init__(self, home: Path, words: tuple[str, ...]) -> None:
        self.home = home
        self.venv = home / "venv"
        self.lock = home / "pylock.toml"
        self.processor = 0.0
        """Processor seconds of the last command."""
        self.environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(home / "uv")),
            "XDG_STATE_HOME": str(home / "state"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled, as in an installation
        self.lock.unlink(missing_ok=True)
        self._run(*self._own("lock"), "-q", "-f", *words, "-o", str(self.lock))

    def _own(self, verb: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "cudnn_resolve", verb)

    def _run(self, *argv: str) -> float:
        began, before = time.monotonic(), processor_seconds()
        done = subprocess.run(argv, env=self.environ, cwd=self.home, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv[:6])}: {done.returncode} {done.stdout[-400:]} {done.stderr[-800:]}")
        self.processor = processor_seconds() - before
        return time.monotonic() - began

    def fresh(self) -> None:
        """Recreate the environment, empty."""
        shutil.rmtree(self.venv, ignore_errors=True)
        shutil.rmtree(self.home / "state", ignore_errors=True)
        self._run("uv", "venv", "-q", "--python", sys.executable, str(self.venv))
        os.sync()  # so that the next command does not pay for earlier writes

    def uv(self) -> float:
        """Seconds that `uv pip sync` takes."""
        self.fresh()
        return self._run("uv", "pip", "sync", "-q", "--preview-features", "pylock", "--python", str(self.venv), str(self.lock))

    def apply(self) -> tuple[float, float]:
        """Seconds that `apply` takes, and a second one with nothing to do; `processor` is that of the first."""
        self.fresh()
        words = (*self._own("apply"), str(self.lock), "--python", str(self.venv), "--installer", "uv", "-q")
        first, used = self._run(*words), self.processor
        again = self._run(*words)
        self.processor = used
        return first, again


def main() -> int:
    """Return 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirement", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="working folder; torch takes 6 GB")
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
            print(f"  apply over 110 % of uv: minimum {min(over):.2f} s, median {statistics.median(over):.2f} s (target: under 1 s)")
            work = [row[4] for row in rows]
            print(f"  the same in processor time: minimum {min(work):.2f} s, median {statistics.median(work):.2f} s")
            idle = [row[3] for row in rows]
            print(f"  nothing to do: minimum {min(idle):.2f} s, median {statistics.median(idle):.2f} s (target: under 1 s)", flush=True)
            missed = missed or statistics.median(over) >= 1 or statistics.median(idle) >= 1
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
