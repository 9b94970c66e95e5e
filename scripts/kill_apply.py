"""Kills `apply` at many instants and looks whether the next command leaves exactly the planned or exactly the former environment.

    scripts/kill_apply.py [--kills 200] [--installer pip|uv] [--signal KILL|TERM|INT] [--seed N]

Each kill ends the program and all its children. Then, by turns, `apply` again or an undo; file trees are compared by sums.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.apply_world import ApplyWorld


def main() -> int:
    """Runs the kills; 1 where one of them left something else."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--installer", default="pip")
    parser.add_argument("--signal", default="KILL")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    number = getattr(signal, f"SIG{args.signal}")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would hand on that it is ignored
    chance = random.Random(args.seed)  # noqa: S311 - instants, not secrets
    with tempfile.TemporaryDirectory(prefix="kill-apply-") as folder:
        world = ApplyWorld(Path(folder), args.installer)
        world.build()
        former = world.former()
        began = time.monotonic()
        code, said = world.finish("apply")
        seconds = time.monotonic() - began
        planned = world.planned()
        print(f"an apply without a kill: {seconds:.2f} s, exit code {code}, {said.strip()}")
        counts: dict[str, int] = {}
        for turn in range(args.kills):
            world.reset()
            process = world.start("apply")
            time.sleep(seconds * (turn + chance.random()) / args.kills)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            output, _ = process.communicate(timeout=60)
            now = "former" if world.former() == former else "planned" if world.planned() == planned else "between"
            fault = signalled(number, process.returncode, now)
            verb = ("undo", "apply")[turn % 2]
            code, said = world.finish(verb)
            good = world.former() == former if verb == "undo" else world.planned() == planned
            key = f"{now}, then {verb}: {'as it should be' if good and not fault else 'WRONG'}"
            counts[key] = counts.get(key, 0) + 1
            if not good or fault or code != 0:
                print(f"turn {turn}: {key}; exit code {code}: {said} | first said {process.returncode} {output} {fault}")
                wanted = former if verb == "undo" else planned
                found = world.former() if verb == "undo" else world.planned()
                print("  ", [one for one in sorted({*wanted, *found}) if wanted.get(one) != found.get(one)][:10])
        for key, count in sorted(counts.items()):
            print(f"{count:5}  {key}")
    return 1 if any("WRONG" in key for key in counts) else 0


def signalled(number: int, code: int, now: str) -> str:
    """What is wrong with how the program itself ended on a signal that it can hear; empty where nothing is."""
    if number == signal.SIGKILL:
        return ""
    return "left in between" if now == "between" or code == 5 else ""


if __name__ == "__main__":
    sys.exit(main())
