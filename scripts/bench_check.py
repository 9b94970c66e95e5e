"""Measure the processor time of `check`: one lock of 300 packages against one machine and against 100.

The lock has the stack of a recorded image. The machines are of twelve kinds, as in a fleet, or all different. Prints times and limits,
and exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cudnn_resolve.operations.check import check
from cudnn_resolve.operations.options import CheckRequest

IMAGE = Path(__file__).resolve().parents[1] / "tests" / "images" / "colab-2025-03-13.json"
PACKAGES, MACHINES = 300, 100
LIMITS = {"one machine": 0.5, f"{MACHINES} machines": 2.0, f"{MACHINES} different machines": 2.0}
STACK = ("nvidia", "torch", "tensor", "jax", "numpy", "keras", "triton", "cupy")
GPUS, DRIVERS = ("Tesla T4", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA L4"), ("550.54.15", "570.86.10", "535.104.05")


def lock() -> str:
    """Return pins: all of the stack, then other packages up to the total."""
    pip = json.loads(IMAGE.read_text(encoding="utf-8"))["packages"]["pip"]
    names = sorted(pip, key=lambda name: (not name.startswith(STACK), name))
    plain = [name for name in names if name.startswith(STACK) or pip[name][:1].isdigit()]
    return "".join(f"{name}=={pip[name]}\n" for name in plain[:PACKAGES])


def machine(number: int, *, alike: bool) -> str:
    """Return the facts of one machine; unless `alike`, there are 28 Pythons and 100 drivers."""
    python, driver = f"3.{10 + number % 4}.{number % 7}", f"{525 + number}.60.13"
    if alike:
        python, driver = "3.11.11", DRIVERS[number % len(DRIVERS)]
    facts = {
        "platform": {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"},
        "python": {"version": python},
        "driver": {"version": driver},
        "gpus": [{"name": GPUS[number % len(GPUS)]}],
    }
    return json.dumps(facts)


def main() -> int:
    """Print the processor time of each check, the best of three; return 1 if one is too slow."""
    with tempfile.TemporaryDirectory() as folder:
        path, fleet, zoo = Path(folder) / "requirements.txt", Path(folder) / "fleet", Path(folder) / "zoo"
        path.write_text(lock(), encoding="utf-8")
        for place in (fleet, zoo):
            place.mkdir()
            for number in range(MACHINES):
                (place / f"{number:03}.json").write_text(machine(number, alike=place is fleet), encoding="utf-8")
        slow = False
        for name, facts in zip(LIMITS, (fleet / "000.json", fleet, zoo), strict=True):
            times = []
            for _ in range(3):
                start = time.process_time()
                found = check(CheckRequest(what=(str(path),), facts=(str(facts),)))
                times.append(time.process_time() - start)
            slow |= min(times) > LIMITS[name]
            print(f"{name}: {min(times):.2f} s (limit {LIMITS[name]} s), {len(found.verdicts)} verdicts")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
