#!/usr/bin/env python3
"""Measure `doctor` on generated logs, next to `grep -E` with the same patterns, in megabytes per second of processor time.

usage: bench_doctor.py [--megabytes N] [--large]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measure import measure

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.matrix.message import expand

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-m", "cudnn_resolve", "doctor", "--no-facts", "--format", "json"]
FAILURE = b"RuntimeError: CUDA error: no kernel image is available for execution on the device\n"


def training(megabytes: int) -> Iterator[bytes]:
    """Output of a training run: lines of a few kinds, progress bars, an occasional checkpoint."""
    chance = random.Random(1)  # noqa: S311 - numbers of a meaningless log
    size = step = 0
    while size < megabytes << 20:
        lines = []
        for _ in range(2000):
            step += 1
            lines.append(
                f"2026-05-01 12:{step // 60 % 60:02d}:{step % 60:02d},{step % 1000:03d} INFO trainer.py:214] epoch {step // 5000} "
                f"step {step} loss={chance.random():.5f} acc={chance.random():.4f} lr=3.0e-04 "
                f"throughput={chance.random() * 2000:.1f} samples/s mem=21.3GB"
            )
            if step % 10 == 0:
                bar = "#" * (step % 40)
                lines.append(f" {step % 100}%|{bar:<40}| {step % 100}/100 [00:12<00:03, 23.1it/s, loss=0.123]\r")
            if step % 2000 == 0:
                lines.append(f"saving checkpoint of the torch model to runs/{step}.pt from device cuda:0")
        block = ("\n".join(lines) + "\n").encode()
        size += len(block)
        yield block


def endless_line(megabytes: int) -> Iterator[bytes]:
    """Text without a line break."""
    for _ in range(megabytes):
        yield b'{"token": "' + b"abcdefgh " * 116508 + b'"}'


def patterns() -> str:
    """Patterns of all symptoms for `grep -E`, without those that it cannot express."""
    found = []
    for symptom in open_book().symptoms():
        for pattern in symptom.pattern:
            plain = re.sub(r"\(\?P<\w+>", "(", expand(pattern))
            for python, posix in (("(?:", "("), ("(?i)", ""), (r"\d", "[0-9]"), (r"\w", "[[:alnum:]_]"), (r"\s", "[[:space:]]")):
                plain = plain.replace(python, posix)
            plain = plain.replace("[[[:alnum:]_]", "[[:alnum:]_")
            if "(?" not in plain and "[[:alnum:]_]" not in re.sub(r"[^\[\]]", "", plain):
                found.append(plain)
    return "\n".join(found)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--large", action="store_true", help="a log of 2048 megabytes, and a line of 100")
    args = parser.parse_args()
    size = 2048 if args.large else args.megabytes
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        short, log, line, words = (Path(folder, name) for name in ("short.log", "train.log", "line.log", "patterns"))
        short.write_bytes(FAILURE)
        with log.open("wb") as file:
            file.writelines(training(size))
            file.write(FAILURE)
        with line.open("wb") as file:
            file.writelines(endless_line(100 if args.large else 20))
        words.write_text(patterns(), "utf-8")
        measure([*COMMAND, "-"], environment, stdin=str(short))  # compiles the tables
        for name, argv, path in (
            ("doctor, one line", [*COMMAND, "-"], short),
            (f"doctor, training log of {size} MB", [*COMMAND, "-"], log),
            ("doctor, one line without an end", [*COMMAND, "-"], line),
            (f"grep -E, training log of {size} MB", ["grep", "-E", "-f", str(words), "-"], log),
        ):
            run = measure(argv, environment, stdin=str(path))
            wall, processor = run.wall_ms / 1000, run.processor_ms / 1000
            speed = path.stat().st_size / 1e6 / max(processor, 1e-9)
            print(f"{name:<42} {wall:8.2f} s wall {processor:8.2f} s processor {speed:8.0f} MB/s {run.peak_mib:6.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
