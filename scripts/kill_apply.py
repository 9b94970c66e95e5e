#!/usr/bin/env python3
"""Kill `apply` at many instants and check that the next command leaves exactly the planned or exactly the former environment.

    scripts/kill_apply.py [--kills 200] [--installer pip|uv] [--apt] [--signal KILL|TERM|INT] [--during apply|undo|resume] [--seed N]

The real command line installs a lock of small wheels with real names from an index on loopback, with `--apt` (root) also packages of a
signed repository, by real apt-get in its own root. SIGKILL ends the program and all its children, including apt and dpkg; other signals
go alternately to the program alone and to its process group, as from a terminal. Then follows, alternately, another `apply` or an undo;
file trees and system packages are compared by checksum. Exit code 1 if anything else is left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.index_server import IndexServer
from tests.kill_world import KillWorld

_CLAIMS = {
    "done: the environment matches the plan": "planned",
    "everything was put back": "former",
    "before anything was changed": "former",
    "undone: the environment is as it was": "former",
}
"""Output of a command that requires a state."""
_SUCCESS = {"apply": ("done: ", "nothing to do: "), "undo": ("undone: ", "nothing to undo")}
"""Start of the output of a successful next command."""


@dataclass(frozen=True)
class Trial:
    """The command that is killed, how, and the states that may be left."""

    world: KillWorld
    number: int
    during: str
    seconds: float
    former: dict[str, str]
    planned: dict[str, str]

    def prepare(self, chance: random.Random) -> None:
        """Reset the world to the state before the command that is killed."""
        self.world.reset()
        if self.during == "undo":
            self.world.finish("apply")
        if self.during == "resume":
            process = self.world.start("apply")
            time.sleep(self.seconds * chance.uniform(0.3, 0.95))
            self.world.kill(process)
            process.communicate(timeout=600)

    def strike(self, instant: float, turn: int) -> tuple[int, str]:
        """Start the command, send the signal, and return its exit code and output."""
        process = self.world.start(self.during)
        time.sleep(instant)
        if self.number == signal.SIGKILL:
            self.world.kill(process)
        else:
            send = os.kill if turn % 4 < 2 else os.killpg
            with contextlib.suppress(ProcessLookupError):
                send(process.pid, self.number)
        output, _ = process.communicate(timeout=600)
        return process.returncode, output

    def state(self) -> str:
        """Return the state of the world."""
        if self.world.former() == self.former:
            return "former"
        return "planned" if self.world.planned() == self.planned else "between"

    def fault(self, code: int, output: str, state: str) -> str:
        """Return what is wrong with the end of the command itself; empty if nothing is."""
        started = "/cudnn_resolve/" in output and "import mute" not in output  # before that, Python itself prints a traceback on Ctrl-C
        if ("Traceback" in output and started) or "internal error" in output:
            return "a traceback"
        if self.number == signal.SIGKILL:
            return ""
        for claim, required in _CLAIMS.items():
            if claim in output and state != required:
                return f"wrongly printed {claim!r}"
        return "left in between" if state == "between" or code == 5 else ""


def main() -> int:
    """Run the kills; return 1 if one left something else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--installer", choices=("pip", "uv"), default="pip")
    parser.add_argument("--apt", action="store_true")
    parser.add_argument("--signal", choices=("KILL", "TERM", "INT"), default="KILL")
    parser.add_argument("--during", choices=("apply", "undo", "resume"), default="apply")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    number = getattr(signal, f"SIG{args.signal}")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # for uv
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children of a shell's background job would ignore it
    chance = random.Random(args.seed)  # noqa: S311 - instants, not secrets
    home = Path(tempfile.mkdtemp(prefix="kill-apply-"))
    try:
        with IndexServer() as served:
            world = KillWorld(home, args.installer, served, apt=args.apt)
            world.build()
            counts = rounds(world, number, args.during, args.kills, chance)
    finally:
        for place in reversed([mount for mount in mounted_below(home) if mount.startswith(f"{home}/")]):
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)
        if mounted_below(home):  # mounts may be folders of this machine, which must not be deleted
            print(f"{home} is kept: something is still mounted in it", file=sys.stderr)
        else:
            shutil.rmtree(home, ignore_errors=True)
    print(f"{args.kills} x SIG{args.signal} during {args.during} with {args.installer}{' and apt' if args.apt else ''}:")
    for key, count in sorted(counts.items()):
        print(f"{count:5}  {key}")
    return 1 if any("WRONG" in key for key in counts) else 0


def mounted_below(folder: Path) -> list[str]:
    """Return the mount points related to the folder, in mount order."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line.split()[4] for line in lines if str(folder) in line]


def rounds(world: KillWorld, number: int, during: str, kills: int, chance: random.Random) -> Counter[str]:
    """Count the outcomes."""
    world.reset()
    former = world.former()
    began = time.monotonic()
    code, printed = world.finish("apply")
    seconds = time.monotonic() - began
    planned = world.planned()
    print(f"an apply without a kill: {seconds:.2f} s, exit code {code}, {printed.strip()}", flush=True)
    if code or planned == former:
        raise RuntimeError("apply changes nothing that could be interrupted")
    if during == "undo":
        began = time.monotonic()
        world.finish("undo")
        seconds = time.monotonic() - began
    trial = Trial(world, number, during, seconds, former, planned)
    counts: Counter[str] = Counter()
    for turn in range(kills):
        trial.prepare(chance)
        code, output = trial.strike(seconds * (turn + chance.random()) / kills, turn)
        state = trial.state()
        fault = trial.fault(code, output, state)
        verb = ("undo", "apply")[turn % 2]
        began = time.monotonic()
        last, printed = world.finish(verb)
        if verb == during and state == "former":  # a complete run: adapt to the current load
            seconds = (seconds + time.monotonic() - began) / 2
        wanted, found = (former, world.former()) if verb == "undo" else (planned, world.planned())
        good = wanted == found and last == 0 and not fault and "Traceback" not in printed and printed.lstrip().startswith(_SUCCESS[verb])
        counts[f"{state}, then {verb}: {'as it should be' if good else 'WRONG'}"] += 1
        if not good:
            print(f"turn {turn}: {state}, then {verb}; exit code {last}: {printed} | first {code}: {output} | {fault}")
            print(
                "  ",
                [(path, found.get(path)) for path in sorted({*wanted, *found}) if wanted.get(path) != found.get(path)][:10],
                flush=True,
            )
        if turn % 25 == 24:
            print(f"after {turn + 1}: {sum(count for key, count in counts.items() if 'WRONG' in key)} wrong", flush=True)
    return counts


if __name__ == "__main__":
    sys.exit(main())
