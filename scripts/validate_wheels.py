#!/usr/bin/env python3
"""Test the load check on real wheels: intact environments, and faults staged in them. Needs no GPU.

    python scripts/validate_wheels.py --folder /tmp/wheels            # installs (some 10 GB), checks, prints a table
    python scripts/validate_wheels.py --folder /tmp/wheels --keep     # keeps the environments for the next run

Environments are made with uv from the configured package index, in a marked subfolder of the given folder; nothing else is changed or
deleted. Exit code 1 if a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from environments import uv_program

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.stage import cudnn_folder, environment, view

ROOT = Path(__file__).resolve().parents[1]
TORCH, TFJAX = "torch", "tfjax"
JAX, CUDNN_OF_TFJAX = "0.4.38", "nvidia-cudnn-cu12==9.3.0.75"
ENVIRONMENTS = {
    # triton 3.2 imports setuptools, which neither it nor torch 2.6 requires below Python 3.12.
    TORCH: ["torch==2.6.0", "onnxruntime-gpu==1.20.2", "numpy", "setuptools"],
    # Not jax[cuda12], which requires a newer nvcc than TensorFlow does.
    TFJAX: ["tensorflow[and-cuda]==2.18.0", f"jax=={JAX}", f"jax-cuda12-plugin=={JAX}", f"jax-cuda12-pjrt=={JAX}", CUDNN_OF_TFJAX],
}
COPIES = {"old": "nvidia-cudnn-cu12==9.0.0.312", "new": "nvidia-cudnn-cu12==9.2.1.18"}
PYTHON = "3.11"
OWN, MARK = "cudnn-resolve-wheels", "made-by-validate_wheels"


class Trial(NamedTuple):
    """One environment with one fault."""

    name: str
    environment: str
    framework: str
    expected: Mapping[str, str]
    """Expected status of each check."""
    words: tuple[str, ...] = ()
    """Words that the observations must contain."""
    first: str = ""
    """Staged folder on LD_LIBRARY_PATH."""
    copy: str = ""
    """Staged folder on PYTHONPATH."""
    hidden: str = ""
    """Part that is really moved away for the trial, since TensorFlow's many libraries do not all look in the copy."""


Row = dict[str, Any]
"""A trial and its result."""
OK, BAD, LUCK = "passed", "failed", "warning"
TRIALS = (
    Trial("whole", TORCH, "torch", {"import": OK, "cudnn": OK, "cudnn-parts": OK, "cuda": OK}, ("9.1.0 from ",)),
    Trial("whole", TFJAX, "tensorflow", {"import": OK, "cudnn": OK, "cudnn-parts": OK, "cuda": OK}, ("9.3.0 from ",)),
    Trial("whole", TFJAX, "jax", {"import": OK, "cudnn": OK, "cudnn-parts": OK, "cuda": OK}, ("9.3.0 from ",)),
    Trial("nothing leads to cuDNN", TORCH, "onnxruntime-gpu", {"import": OK, "cudnn": BAD}, ("libcublasLt.so.12: cannot open",)),
    Trial("older cuDNN on the path", TORCH, "torch", {"cudnn": BAD, "cudnn-parts": BAD}, ("(9.0.0)", "split"), first="old"),
    Trial("older cuDNN on the path", TFJAX, "tensorflow", {"cudnn": BAD, "cudnn-parts": OK}, ("9.0.0 from ",), first="old"),
    Trial("older cuDNN on the path", TFJAX, "jax", {"cudnn": BAD, "cudnn-parts": BAD}, ("split",), first="old"),
    Trial("newer cuDNN on the path: two directories, no error", TORCH, "torch", {"cudnn": OK, "cudnn-parts": BAD}, ("split",), first="new"),
    Trial(
        "mixed: the graph part of an older one on the path", TORCH, "torch", {"cudnn-parts": BAD}, ("libcudnn_graph.so.9",), first="graph"
    ),
    Trial("mixed: an older ops part on the path", TORCH, "torch", {"cudnn-parts": BAD}, ("Ops 1002",), first="ops"),
    Trial("mixed: an older ops part among the files", TORCH, "torch", {"cudnn-parts": BAD}, ("Ops 1002",), copy="mixed"),
    Trial("missing part: cnn", TORCH, "torch", {"cudnn-parts": BAD}, ("cudnnCnnVersionCheck()",), copy="missing-cnn"),
    Trial("missing part: cnn", TFJAX, "jax", {"cudnn-parts": BAD}, ("cudnnCnnVersionCheck()",), copy="missing-cnn-tfjax"),
    Trial("missing part: cnn", TFJAX, "tensorflow", {"cudnn-parts": BAD}, ("cudnnCnnVersionCheck()",), hidden="cnn"),
    Trial("missing part: heuristic", TORCH, "torch", {"cudnn-parts": BAD}, ("heuristic",), copy="missing-heuristic"),
    Trial("missing part: engines", TORCH, "torch", {"cudnn-parts": BAD}, ("engines_precompiled",), copy="missing-engines"),
    Trial("the same by way of a link to its directory", TORCH, "torch", {"cudnn-parts": BAD}, ("9.2.1",), first="linked"),
    Trial("split: the same release twice", TORCH, "torch", {"cudnn": OK, "cudnn-parts": LUCK}, ("the same release twice",), first="twin"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environments, run all trials, print the table; return 1 if a verdict is not the expected one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where to make the environments")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--json", type=Path, help="write all verdicts in full to this file")
    options = parser.parse_args(arguments)
    uv = uv_program()
    folder = own_folder(options.folder.resolve())
    try:
        install(folder, uv)
        stage(folder)
        rows = [run_trial(folder, trial) for trial in TRIALS]
    finally:
        shutil.rmtree(folder / "staged" if options.keep else folder, ignore_errors=True)
    print_table(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), "utf-8")
    return 1 if any(row["wrong"] for row in rows) else 0


def own_folder(parent: Path) -> Path:
    """Return the marked subfolder in which everything is made, and which may be deleted."""
    folder = parent / OWN
    if folder.is_symlink() or (folder.exists() and not (folder / MARK).is_file()):
        raise SystemExit(f"{folder} was not made by this script ({MARK} is missing): remove it, or use another --folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    return folder


def install(folder: Path, uv: str) -> None:
    """Make the environments that do not exist yet."""
    quiet = [uv, "pip", "install", "-q"]
    for name, packages in ENVIRONMENTS.items():
        if not (folder / name / "complete").exists():
            subprocess.run([uv, "venv", "-q", "--clear", "--python", PYTHON, str(folder / name)], check=True)
            subprocess.run([*quiet, "--python", str(folder / name), *packages], check=True)
            (folder / name / "complete").touch()
    for name, package in COPIES.items():
        if not (folder / name / "nvidia").exists():
            subprocess.run(
                [uv, "pip", "install", "-q", "--no-deps", "--python", str(folder / TORCH), "--target", str(folder / name), package],
                check=True,
            )


def site_of(folder: Path, name: str) -> Path:
    """Return the site-packages of an environment."""
    return next((folder / name / "lib").glob("python*/site-packages"))


def stage(folder: Path) -> None:
    """Stage every fault."""
    staged = folder / "staged"
    shutil.rmtree(staged, ignore_errors=True)
    old, new = (folder / name / "nvidia/cudnn/lib" for name in COPIES)
    site = site_of(folder, TORCH)
    home = cudnn_folder(site)
    assert home is not None
    for name, source in (("old", old), ("new", new)):
        view(source, staged / name)
    for part in ("graph", "ops"):
        view(old, staged / part, only=[part])
    view(site / home, staged / "twin")
    (staged / "linked").symlink_to(new)
    for part in ("cnn", "heuristic"):
        environment(site, staged / f"missing-{part}", cudnn=home, without=[part])
    environment(site_of(folder, TFJAX), staged / "missing-cnn-tfjax", cudnn=cudnn_folder(site_of(folder, TFJAX)), without=["cnn"])
    environment(site, staged / "missing-engines", cudnn=home, without=["engines_precompiled"])
    environment(site, staged / "mixed", cudnn=home, instead={"libcudnn_ops.so.9": old / "libcudnn_ops.so.9"})


@contextmanager
def without(site: Path, part: str) -> Iterator[None]:
    """Hide a part of cuDNN temporarily."""
    home = cudnn_folder(site)
    assert home is not None
    files = list((site / home).glob(f"libcudnn_{part}.so*")) if part else []
    try:
        for file in files:
            file.rename(file.with_name(f"hidden-{file.name}"))
        yield
    finally:
        for file in files:
            file.with_name(f"hidden-{file.name}").rename(file)


def run_trial(folder: Path, trial: Trial) -> Row:
    """Run `validate` on one trial."""
    env = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
    env["PYTHONPATH"] = str(ROOT)
    if trial.first:
        env["LD_LIBRARY_PATH"] = str(folder / "staged" / trial.first)
    python = folder / trial.environment / "bin/python"
    if trial.copy:
        env["PYTHONPATH"] += os.pathsep + str(folder / "staged" / trial.copy)
    argv = [sys.executable, "-m", "cudnn_resolve", "validate", "--python", str(python), "-f", trial.framework, "--format", "json"]
    before = time.monotonic()
    with without(site_of(folder, trial.environment), trial.hidden):
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=600)
    report: Row = json.loads(done.stdout) if done.stdout else {"checks": [], "status": done.stderr[-500:]}
    checks = {check["id"].removeprefix(f"{trial.framework}/"): check for check in report["checks"] if check["framework"] == trial.framework}
    seen = {name: checks[name]["status"] if name in checks else "absent" for name in trial.expected}
    observed = " | ".join(str(check["observed"]) for check in checks.values())
    wrong = [f"{name} is {seen[name]}, not {status}" for name, status in trial.expected.items() if seen[name] != status]
    wrong += [f"{words!r} is not observed" for words in trial.words if words not in observed]
    code = 1 if BAD in trial.expected.values() else 0
    wrong += [f"exit code {done.returncode}, not {code}"] if done.returncode != code else []
    return {"trial": trial._asdict(), "seen": seen, "wrong": wrong, "seconds": round(time.monotonic() - before, 1), "report": report}


def print_table(rows: Sequence[Row]) -> None:
    """Print a line for each trial."""
    print("| framework | fault | verdicts | as expected | s |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        verdicts = ", ".join(f"{name} {status}" for name, status in row["seen"].items())
        fine = "yes" if not row["wrong"] else "NO: " + "; ".join(row["wrong"])
        print(f"| {row['trial']['framework']} | {row['trial']['name']} | {verdicts} | {fine} | {row['seconds']} |")


if __name__ == "__main__":
    sys.exit(main())
