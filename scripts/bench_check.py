"""How long `check` takes, in processor time: one lock of 300 packages, and 100 machines against it.

The lock holds the stack of a recorded image; the machines are of twelve kinds, as those of a fleet are, or no two of them are alike.
`scripts/bench_check.py` prints the times and the limits, and exits with 1 where one is above its limit.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cudnn_resolve.operations.check import check  # noqa: E402
from cudnn_resolve.operations.options import CheckRequest  # noqa: E402

IMAGE = ROOT / "tests" / "images" / "colab-2025-03-13.json"
PACKAGES, MACHINES = 300, 100
LIMITS = {"one machine": 0.5, f"{MACHINES} machines": 2.0, f"{MACHINES} different machines": 2.0}
STACK = ("nvidia", "torch", "tensor", "jax", "numpy", "keras", "triton", "cupy")
GPUS, DRIVERS = ("Tesla T4", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA L4"), ("550.54.15", "570.86.10", "535.104.05")


def lock() -> str:
    """A list of pins: all of the stack, and other packages up to the number that is wanted."""
    pip = json.loads(IMAGE.read_text(encoding="utf-8"))["packages"]["pip"]
    names = sorted(pip, key=lambda name: (not name.startswith(STACK), name))
    plain = [name for name in names if name.startswith(STACK) or pip[name][:1].isdigit()]
    return "".join(f"{name}=={pip[name]}\n" for name in plain[:PACKAGES])


def machine(number: int, *, alike: bool) -> str:
    """The facts of one machine; of 28 Pythons and 100 drivers where they are not `alike`."""
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
    """Print the processor time of each check, the best of three."""
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
