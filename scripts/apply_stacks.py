#!/usr/bin/env python3
"""Apply real stacks to fresh environments with uv and pip, import them, and check which cuDNN they load.

usage: apply_stacks.py [--python X.Y]… [--installer uv|pip]… [--stack NAME]… [--folder DIR]

Each run makes an environment, runs `apply` with the real command line and the configured index, runs it again (which must find nothing
to do), imports the frameworks in every order in a process that sees a stand-in driver and GPU, and removes the environment. The process
must have libcudnn mapped from one directory, in the planned version, and opening libcudnn by its bare name afterwards must give the
same one. Prints a line for each run and a final table. Exit code 1 if there is a fault.
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

from environments import find_python, run, uv_program
from install_lock import CARD, CHILD, MODULES, encoded

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.native.build import build_library

ROOT = Path(__file__).resolve().parents[1]
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
    module.config.list_physical_devices("GPU")  # loads its libraries when it looks for a device
library = ctypes.CDLL(sys.argv[2])
library.cudnnGetVersion.restype = ctypes.c_size_t
print("ANSWER", library.cudnnGetVersion())
"""


@dataclass(frozen=True)
class Result:
    """Result of one run."""

    words: tuple[str, ...]
    python: str
    installer: str
    cudnn: str
    seconds: float
    again: float
    faults: tuple[str, ...]


def apply(words: tuple[str, ...], python: str, installer: str, home: Path) -> Result:
    """Apply a stack in a temporary environment."""
    environment = home / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    run([find_python(python), "-m", "venv", *(("--without-pip",) if installer == "uv" else ()), str(environment)])
    program = str(environment / "bin/python")
    targets = [part for word in words for part in ("-f", word)]
    own = [sys.executable, "-m", "cudnn_resolve", "apply", "--python", program, *targets, *MACHINE]
    own += ["--installer", installer, "--yes", "-q", "--format", "json"]
    places = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(home / "state"), "UV_CACHE_DIR": str(home / "uv")}
    places["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    try:
        began = time.monotonic()
        first = json.loads(run(own, **places))
        seconds = time.monotonic() - began
        began = time.monotonic()
        second = json.loads(run(own, **places))
        again = time.monotonic() - began
        planned = str(first["plan"]["stack"]["cudnn"])
        faults = [] if first["status"] == "done" else [f"apply ended as {first['status']}"]
        faults += [] if second["status"] == "nothing" else [f"the second apply ended as {second['status']}"]
        faults += import_faults(words, program, planned, home)
        return Result(words, python, installer, planned, seconds, again, tuple(faults))
    finally:
        shutil.rmtree(environment, ignore_errors=True)
        shutil.rmtree(home / "state", ignore_errors=True)


def import_faults(words: tuple[str, ...], program: str, planned: str, home: Path) -> Iterator[str]:
    """Yield differences from the plan in processes that import the frameworks."""
    members = [MODULES[word.partition("==")[0]] for word in words]
    machine = {"LD_LIBRARY_PATH": str(home / "driver"), "STANDIN_CUDA": "13020", "STANDIN_GPUS": CARD}
    for order in itertools.permutations(members):
        try:
            answer = json.loads(run([program, "-c", CHILD, *order], **machine).rpartition("ANSWER ")[2])
        except (RuntimeError, ValueError) as error:
            yield f"{' then '.join(order)}: {error}"
            continue
        if len(answer["folders"]) != 1 or set(answer["versions"].values()) != {encoded(planned)}:
            yield f"{' then '.join(order)}: loaded {answer['versions']} from {answer['folders']}, planned {planned}"
        if answer["reported"].get("tensorflow") == 0:
            yield f"{' then '.join(order)}: TensorFlow sees no GPU"
    for member in members:
        opened = run([program, "-c", BARE, member, f"libcudnn.so.{planned.partition('.')[0]}"], **machine).rpartition("ANSWER ")[2].strip()
        if opened != str(encoded(planned)):
            yield f"libcudnn by its bare name after {member} is {opened}, planned {planned}"


def main() -> int:
    """Return 1 if an environment differs from its plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="default: all that the stack has wheels for")
    parser.add_argument("--installer", action="append", choices=("uv", "pip"), help="default: both")
    parser.add_argument("--stack", action="append", choices=tuple(STACKS), help="default: all")
    parser.add_argument("--folder", help="working folder; a run temporarily takes up to 15 GB")
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
    results = []
    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-stacks-", dir=args.folder) as folder:
        home = Path(folder)
        build_library("standin_cuda.c", home / "driver", "libcuda.so.1")
        last = ""
        for words, python, installer in wanted:
            if python != last:  # wheels of the frameworks are gigabytes and serve a single Python
                for name in ("torch", "tensorflow", "triton"):
                    subprocess.run([uv_program(), "cache", "clean", "-q", "--cache-dir", str(home / "uv"), name], check=False)
            last = python
            try:
                result = apply(words, python, installer, home)
            except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
                result = Result(words, python, installer, "", 0.0, 0.0, (str(error),))
            results.append(result)
            print(f"{'FAULT' if result.faults else 'good'}: {row(result)} {'; '.join(result.faults)}", flush=True)
    print("\n| stack | Python | installer | cuDNN planned and loaded | apply | again |\n| --- | --- | --- | --- | --- | --- |")
    for result in results:
        print(row(result))
    faulty = sum(bool(result.faults) for result in results)
    print(f"\n{len(results) - faulty} good, {faulty} faults")
    return 1 if faulty else 0


def row(result: Result) -> str:
    """Render a row of the table."""
    cudnn = "**not as planned**" if result.faults else result.cudnn
    words = " + ".join(result.words)
    return f"| {words} | {result.python} | {result.installer} | {cudnn} | {result.seconds:.0f} s | {result.again:.1f} s |"


if __name__ == "__main__":
    sys.exit(main())
