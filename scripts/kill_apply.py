#!/usr/bin/env python3
"""Kills `apply` at many instants and looks whether the next command leaves exactly the planned or exactly the former environment.

    scripts/kill_apply.py [--kills 200] [--installer pip|uv] [--apt] [--signal KILL|TERM|INT] [--during apply|undo|resume] [--seed N]

The real command line installs a lock of small wheels with the real names from an index on the loopback interface, with `--apt` (root)
also packages of a signed repository, by real apt-get in a root of its own. SIGKILL ends the program and all its children, apt and dpkg
too; the other signals go to the program alone, or to its process group as a terminal sends them, by turns. Then, by turns, `apply` again
or an undo; file trees, and the packages of the system, are compared by sums. Exit code 1 where one of them left something else.
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

_SAID = {
    "done: the environment matches the plan": "planned",
    "everything was put back": "former",
    "before anything was changed": "former",
    "undone: the environment is as it was": "former",
}
"""What a command may say only where the world is so."""
_WELL = {"apply": ("done: ", "nothing to do: "), "undo": ("undone: ", "nothing to undo")}
"""What the next command says where all is well."""


@dataclass(frozen=True)
class Trial:
    """What is killed, how, and what may be left."""

    world: KillWorld
    number: int
    during: str
    seconds: float
    former: dict[str, str]
    planned: dict[str, str]

    def prepare(self, chance: random.Random) -> None:
        """Nothing; the world is as it is before the command that is killed."""
        self.world.reset()
        if self.during == "undo":
            self.world.finish("apply")
        if self.during == "resume":
            process = self.world.start("apply")
            time.sleep(self.seconds * chance.uniform(0.3, 0.95))
            self.world.kill(process)
            process.communicate(timeout=600)

    def strike(self, instant: float, turn: int) -> tuple[int, str]:
        """The exit code and words of the command that got the signal."""
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

    def now(self) -> str:
        """What the world is like."""
        if self.world.former() == self.former:
            return "former"
        return "planned" if self.world.planned() == self.planned else "between"

    def fault(self, code: int, output: str, now: str) -> str:
        """What is wrong with how the command itself ended; empty where nothing is."""
        started = "/cudnn_resolve/" in output and "import mute" not in output  # before, Ctrl-C makes Python itself print where it is
        if ("Traceback" in output and started) or "internal error" in output:
            return "a traceback"
        if self.number == signal.SIGKILL:
            return ""
        for words, state in _SAID.items():
            if words in output and now != state:
                return f"said {words!r}, and it is not so"
        return "left in between" if now == "between" or code == 5 else ""


def main() -> int:
    """Runs the kills; 1 where one of them left something else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--installer", choices=("pip", "uv"), default="pip")
    parser.add_argument("--apt", action="store_true")
    parser.add_argument("--signal", choices=("KILL", "TERM", "INT"), default="KILL")
    parser.add_argument("--during", choices=("apply", "undo", "resume"), default="apply")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    number = getattr(signal, f"SIG{args.signal}")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where uv is
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would hand on that it is ignored
    chance = random.Random(args.seed)  # noqa: S311 - instants, not secrets
    home = Path(tempfile.mkdtemp(prefix="kill-apply-"))
    try:
        with IndexServer() as served:
            world = KillWorld(home, args.installer, served, apt=args.apt)
            world.build()
            counts = rounds(world, number, args.during, args.kills, chance)
    finally:
        for place in reversed([one for one in mounted_below(home) if one.startswith(f"{home}/")]):
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)
        if mounted_below(home):  # what is mounted there, this machine's own folders too, is not to be deleted
            print(f"{home} is left: something is still mounted there", file=sys.stderr)
        else:
            shutil.rmtree(home, ignore_errors=True)
    print(f"{args.kills} x SIG{args.signal} during {args.during} with {args.installer}{' and apt' if args.apt else ''}:")
    for key, count in sorted(counts.items()):
        print(f"{count:5}  {key}")
    return 1 if any("WRONG" in key for key in counts) else 0


def mounted_below(folder: Path) -> list[str]:
    """Where something is mounted that has to do with the folder, in the order in which it was mounted."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line.split()[4] for line in lines if str(folder) in line]


def rounds(world: KillWorld, number: int, during: str, kills: int, chance: random.Random) -> Counter[str]:
    """How often what was seen."""
    world.reset()
    former = world.former()
    began = time.monotonic()
    code, said = world.finish("apply")
    seconds = time.monotonic() - began
    planned = world.planned()
    print(f"an apply without a kill: {seconds:.2f} s, exit code {code}, {said.strip()}", flush=True)
    if code or planned == former:
        raise RuntimeError("there is nothing to kill")
    if during == "undo":
        began = time.monotonic()
        world.finish("undo")
        seconds = time.monotonic() - began
    trial = Trial(world, number, during, seconds, former, planned)
    counts: Counter[str] = Counter()
    for turn in range(kills):
        trial.prepare(chance)
        code, output = trial.strike(seconds * (turn + chance.random()) / kills, turn)
        now = trial.now()
        fault = trial.fault(code, output, now)
        verb = ("undo", "apply")[turn % 2]
        began = time.monotonic()
        last, said = world.finish(verb)
        if verb == during and now == "former":  # a whole one: how busy the machine is just now
            seconds = (seconds + time.monotonic() - began) / 2
        wanted, found = (former, world.former()) if verb == "undo" else (planned, world.planned())
        good = wanted == found and last == 0 and not fault and "Traceback" not in said and said.lstrip().startswith(_WELL[verb])
        counts[f"{now}, then {verb}: {'as it should be' if good else 'WRONG'}"] += 1
        if not good:
            print(f"turn {turn}: {now}, then {verb}; exit code {last}: {said} | first {code}: {output} | {fault}")
            print("  ", [(one, found.get(one)) for one in sorted({*wanted, *found}) if wanted.get(one) != found.get(one)][:10], flush=True)
        if turn % 25 == 24:
            print(f"after {turn + 1}: {sum(count for key, count in counts.items() if 'WRONG' in key)} wrong", flush=True)
    return counts


if __name__ == "__main__":
    sys.exit(main())
