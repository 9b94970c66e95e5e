"""Wall time, processor time and peak memory of commands, for the benchmarks."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LAUNCHER = """
import os, sys, time
files = [(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0), *((os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_WRONLY, 0) for n in (1, 2))]
start = time.perf_counter()
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ, file_actions=files)
_, status, used = os.wait4(child, 0)
print(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss, os.waitstatus_to_exitcode(status))
"""
"""Runs and measures a command, given its standard input file and its words.

A process of its own, since the peak memory reported for a child is never below that of its parent.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Cost of one run of a command."""

    wall_ms: float
    processor_ms: float
    peak_mib: float
    code: int
    """Exit code."""


def measure(argv: Sequence[str], environment: Mapping[str, str] | None = None, *, stdin: str = os.devnull) -> Run:
    """Run a command once, discarding its output."""
    command = [sys.executable, "-I", "-S", "-c", LAUNCHER, stdin, *argv]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    wall, processor, peak_kib, code = printed.split()
    return Run(wall_ms=float(wall) * 1000, processor_ms=float(processor) * 1000, peak_mib=int(peak_kib) / 1024, code=int(code))


def processor_seconds() -> float:
    """Processor time used so far by all finished child processes and their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
