#!/usr/bin/env python3
"""Times `doctor` on logs of its own making, beside `grep -E` of the same patterns; says megabytes per second of processor time.

usage: bench_doctor.py [--megabytes N] [--large]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-m", "cudnn_resolve", "doctor", "--no-facts", "--format", "json"]
FAILURE = b"RuntimeError: CUDA error: no kernel image is available for execution on the device\n"


def training(megabytes: int) -> Iterator[bytes]:
    """What a trainer prints: lines of a few shapes, progress bars, now and then a checkpoint."""
    chance = random.Random(1)  # noqa: S311 - numbers of a log that means nothing
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
        piece = ("\n".join(lines) + "\n").encode()
        size += len(piece)
        yield piece


def one_line(megabytes: int) -> Iterator[bytes]:
    """A line that does not end."""
    for _ in range(megabytes):
        yield b'{"token": "' + b"abcdefgh " * 116508 + b'"}'


def patterns() -> str:
    """The expressions of all symptoms as one for `grep -E`, as far as that knows them."""
    sys.path.insert(0, str(HERE))
    from cudnn_resolve.host.tables import open_book
    from cudnn_resolve.matrix.message import expand

    out = []
    for symptom in open_book().symptoms():
        for pattern in symptom.pattern:
            plain = (
                re.sub(r"\(\?P<\w+>", "(", expand(pattern))
                .replace("(?:", "(")
                .replace("(?i)", "")
                .replace(r"\d", "[0-9]")
                .replace(r"\w", "[[:alnum:]_]")
            )
            plain = plain.replace(r"\s", "[[:space:]]").replace("[[[:alnum:]_]", "[[:alnum:]_").replace("[^[:space:]]", "[^[:space:]]")
            if "(?" not in plain and "[[:alnum:]_]" not in re.sub(r"[^\[\]]", "", plain):
                out.append(plain)
    return "\n".join(out)


def timed(argv: list[str], log: Path) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and peak MiB of a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    with log.open("rb") as file:
        process = subprocess.Popen(
            argv, stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(HERE)}
        )
        _, _, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - start
    del before
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--large", action="store_true", help="2048 megabytes, and a line of 100")
    args = parser.parse_args()
    size = 2048 if args.large else args.megabytes
    with tempfile.TemporaryDirectory() as folder:
        short, log, line, words = (Path(folder, name) for name in ("short.log", "train.log", "line.log", "patterns"))
        short.write_bytes(FAILURE)
        with log.open("wb") as file:
            file.writelines(training(size))
            file.write(FAILURE)
        with line.open("wb") as file:
            file.writelines(one_line(100 if args.large else 20))
        words.write_text(patterns(), "utf-8")
        timed([*COMMAND, "-"], short)
        for name, argv, path in (
            ("doctor, one line", [*COMMAND, "-"], short),
            (f"doctor, training log of {size} MB", [*COMMAND, "-"], log),
            ("doctor, one line without an end", [*COMMAND, "-"], line),
            (f"grep -E, training log of {size} MB", ["grep", "-E", "-f", str(words), "-"], log),
        ):
            wall, processor, peak = timed(argv, path)
            speed = path.stat().st_size / 1e6 / max(processor, 1e-9)
            print(f"{name:<42} {wall:8.2f} s wall {processor:8.2f} s processor {speed:8.0f} MB/s {peak:6.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
