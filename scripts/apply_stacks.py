#!/usr/bin/env python3
"""Applies real stacks to fresh environments by uv and by pip, imports them, and reads back which cuDNN they load.

usage: apply_stacks.py [--python X.Y]… [--installer uv|pip]… [--stack NAME]… [--folder DIR]

Each run makes an environment, carries the plan out with the real command line and the configured index, does it again (which must find
nothing to do), imports the frameworks in every order in a process that sees a stand-in for the driver and a GPU, and removes the
environment. The process tells which libcudnn it has mapped: one directory, of the planned version. A child that opens libcudnn by its
bare name afterwards gets the same one. Prints a line for each run, and a table at the end. Exit code 1 where there is a fault.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from install_lock import CARD, CHILD, MODULES, interpreter, numbers, run  # noqa: E402

from tests.native.build import build_library  # noqa: E402

STACKS = {
    "torch": (("torch==2.6.0",), ("3.9", "3.10", "3.11", "3.12", "3.13")),
    "tensorflow": (("tensorflow==2.15.1",), ("3.9", "3.10", "3.11")),
    "pair": (("torch==2.6.0", "tensorflow==2.18.0"), ("3.9", "3.10", "3.11", "3.12")),
    "preload": (("tensorflow==2.13.1",), ("3.9", "3.10", "3.11")),
}
MACHINE = ("--driver", "610.40.01", "--gpu", "L4", "--no-variant-indexes")
BARE = """
import ctypes, importlib, sys
module = importlib.import_module(sys.argv[1])
if sys.argv[1] == "tensorflow":
    module.config.list_physical_devices("GPU")  # it loads its libraries when it looks for a device
library = ctypes.CDLL(sys.argv[2])
library.cudnnGetVersion.restype = ctypes.c_size_t
print("ANSWER", library.cudnnGetVersion())
"""


@dataclass(frozen=True)
class Found:
    """What one run saw."""

    words: tuple[str, ...]
    python: str
    installer: str
    cudnn: str
    seconds: float
    again: float
    faults: tuple[str, ...]


def apply(words: tuple[str, ...], python: str, installer: str, home: Path) -> Found:
    """One run in an environment that is gone afterwards."""
    environment = home / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    run([interpreter(python), "-m", "venv", *(("--without-pip",) if installer == "uv" else ()), str(environment)])
    program = str(environment / "bin/python")
    targets = [part for word in words for part in ("-f", word)]
    own = [sys.executable, "-m", "cudnn_resolve", "apply", "--python", program, *targets, *MACHINE]
    own += ["--installer", installer, "--yes", "-q", "--format", "json"]
    places = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(home / "state"), "UV_CACHE_DIR": str(home / "uv")}
    places["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    try:
        began = time.monotonic()
        told = json.loads(run(own, **places))
        seconds = time.monotonic() - began
        began = time.monotonic()
        second = json.loads(run(own, **places))
        again = time.monotonic() - began
        planned = str(told["plan"]["stack"]["cudnn"])
        faults = [] if told["status"] == "done" else [f"it ended as {told['status']}"]
        faults += [] if second["status"] == "nothing" else [f"the second apply ended as {second['status']}"]
        faults += look(words, program, planned, home)
        return Found(words, python, installer, planned, seconds, again, tuple(faults))
    finally:
        shutil.rmtree(environment, ignore_errors=True)
        shutil.rmtree(home / "state", ignore_errors=True)


def look(words: tuple[str, ...], program: str, planned: str, home: Path) -> Iterator[str]:
    """What is not as planned in processes that import the frameworks."""
    members = [MODULES[word.partition("==")[0]] for word in words]
    machine = {"LD_LIBRARY_PATH": str(home / "driver"), "STANDIN_CUDA": "13020", "STANDIN_GPUS": CARD}
    for order in itertools.permutations(members):
        try:
            answer = json.loads(run([program, "-c", CHILD, *order], **machine).rpartition("ANSWER ")[2])
        except (RuntimeError, ValueError) as error:
            yield f"{' then '.join(order)}: {error}"
            continue
        if len(answer["folders"]) != 1 or set(answer["versions"].values()) != {numbers(planned)}:
            yield f"{' then '.join(order)}: loaded {answer['versions']} from {answer['folders']}, planned {planned}"
        if answer["said"].get("tensorflow") == 0:
            yield f"{' then '.join(order)}: TensorFlow sees no GPU"
    for member in members:
        said = run([program, "-c", BARE, member, f"libcudnn.so.{planned.partition('.')[0]}"], **machine).rpartition("ANSWER ")[2].strip()
        if said != str(numbers(planned)):
            yield f"libcudnn by its bare name after {member} is {said}, planned {planned}"


def main() -> int:
    """1 where an environment is not what its plan says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="default: every one that the stack has wheels for")
    parser.add_argument("--installer", action="append", choices=("uv", "pip"), help="default: both")
    parser.add_argument("--stack", action="append", choices=tuple(STACKS), help="default: all")
    parser.add_argument("--folder", help="where to work; one run takes up to 15 GB for a while")
    args = parser.parse_args()
    wanted = [
        (words, python, installer)
        for python in ("3.11", "3.9", "3.13", "3.12", "3.10")
        for name, (words, pythons) in STACKS.items()
        for installer in ("uv", "pip")
        if python in pythons
        and python in (args.python or pythons)
        and installer in (args.installer or (installer,))
        and name in (args.stack or STACKS)
    ]
    found = []
    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-stacks-", dir=args.folder) as folder:
        home = Path(folder)
        build_library("standin_cuda.c", home / "driver", "libcuda.so.1")
        last = ""
        for words, python, installer in wanted:
            if python != last:  # wheels of the frameworks are of one Python each, and gigabytes
                for name in ("torch", "tensorflow", "triton"):
                    subprocess.run(["uv", "cache", "clean", "-q", "--cache-dir", str(home / "uv"), name], check=False)
            last = python
            try:
                one = apply(words, python, installer, home)
            except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
                one = Found(words, python, installer, "", 0.0, 0.0, (str(error),))
            found.append(one)
            print(f"{'FAULT' if one.faults else 'good'}: {row(one)} {'; '.join(one.faults)}", flush=True)
    print("\n| stack | Python | installer | cuDNN planned and loaded | apply | again |\n| --- | --- | --- | --- | --- | --- |")
    for one in found:
        print(row(one))
    faulty = sum(bool(one.faults) for one in found)
    print(f"\n{len(found) - faulty} good, {faulty} faults")
    return 1 if faulty else 0


def row(one: Found) -> str:
    """A row of the table."""
    cudnn = "**not as planned**" if one.faults else one.cudnn
    return f"| {' + '.join(one.words)} | {one.python} | {one.installer} | {cudnn} | {one.seconds:.0f} s | {one.again:.1f} s |"


if __name__ == "__main__":
    sys.exit(main())
