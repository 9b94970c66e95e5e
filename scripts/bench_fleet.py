"""Measure processor time and memory of `fleet` on generated facts files.

scripts/bench_fleet.py [--hosts N] [--classes N] [--noise] [VERB WORD ...]

A class combines a recorded image with a card and a driver. Its hosts differ in the UUIDs of their GPUs, with `--noise` also in the patch
release of the driver, the memory of the cards and one package. Prints processor seconds, wall seconds and peak memory.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import measure

from cudnn_resolve.host.tables import open_book

IMAGES = Path(__file__).resolve().parent.parent / "tests" / "images"
DRIVERS = ("470.82.01", "525.105.17", "535.104.05", "550.54.15", "560.35.03", "570.86.15", "580.65.06")


def kinds(count: int, choice: random.Random) -> Iterator[dict[str, Any]]:
    """Yield the facts shared by the hosts of each class."""
    images = [json.loads(path.read_text("utf-8")) for path in sorted(IMAGES.glob("*.json"))]
    cards = [card for card in open_book().cards() if card.kind in ("datacenter", "geforce")]
    seen: set[tuple[str, str, str, int]] = set()
    while len(seen) < count:
        image, card, driver = choice.choice(images), choice.choice(cards), choice.choice(DRIVERS)
        key = str(image.get("note")), str(card.capability), driver.partition(".")[0], len(card.kind)
        if key not in seen:
            seen.add(key)
            gpu = {"name": f"NVIDIA {card.name}", "compute_capability": str(card.capability), "memory_mib": 16384}
            yield {**image, "driver": {"version": driver}, "gpus": [gpu] * choice.choice((1, 4, 8))}


def host(kind: dict[str, Any], number: int, choice: random.Random, *, noise: bool) -> dict[str, Any]:
    """Return the facts of one host of a class."""
    gpus = [{**gpu, "uuid": f"GPU-{number:08x}-{place:04x}"} for place, gpu in enumerate(kind["gpus"])]
    facts = {**kind, "note": f"node{number:05d}", "gpus": gpus}
    if noise:
        packages = {**kind["packages"], "pip": {**kind["packages"]["pip"], "six": f"1.{choice.randrange(20)}.0"}}
        driver = {"version": f"{kind['driver']['version'].rpartition('.')[0]}.{choice.randrange(90, 99)}"}
        for gpu in gpus:
            gpu["memory_mib"] += choice.randrange(4)
        facts = {**facts, "driver": driver, "packages": packages}
    return facts


def main() -> int:
    """Write the files, run the verb on them, and print the cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("words", nargs="*", default=["detect"])
    args, further = parser.parse_known_args()
    choice = random.Random(7)  # noqa: S311 - the same hosts in every run
    with tempfile.TemporaryDirectory() as folder:
        shared = list(kinds(args.classes, choice))
        for number in range(args.hosts):
            facts = host(shared[number % len(shared)], number, choice, noise=args.noise)
            (Path(folder) / f"node{number:05d}.json").write_text(json.dumps(facts, indent=1), "utf-8")
        words = [*args.words, *further, "--from", folder, "--format", "json", "-o", f"{folder}.answer"]
        run = measure([sys.executable, "-m", "cudnn_resolve", "fleet", *words])
    answer = Path(f"{folder}.answer")
    found = json.loads(answer.read_text("utf-8")) if answer.exists() else {"classes": ()}
    answer.unlink(missing_ok=True)
    print(f"{args.hosts} hosts, {len(found['classes'])} classes, exit code {run.code}")
    print(f"{run.processor_ms / 1000:.1f} s of processor time, {run.wall_ms / 1000:.1f} s, {run.peak_mib:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
