#!/usr/bin/env python3
"""Lock requirements, install the lock into a fresh environment, and import the frameworks together in every order.

usage: install_lock.py [--tool uv|pip] [--python X.Y] [--pairs FILE] [REQUIREMENT…]

Each line of `--pairs FILE` is one set of requirements (with ` @ X.Y` for its Python; `@FILE` names a requirements file); otherwise the
command line is one. The lock is made for a machine with a new driver and an L4. No GPU is needed: a stand-in driver, compiled from
tests/native, lets TensorFlow open the libraries that it would open on one. Every process must have libcudnn mapped from one directory, in
the locked version, whichever framework came first. Prints a line for each set and finally "N installed, N faults". Exit code 1 if there
is a fault.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from environments import find_python, run, uv_program

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.native.build import build_library

MACHINE = ("--driver", "610.40.01", "--gpu", "L4", "--os", "ubuntu22.04", "--glibc", "2.35")
CARD = "NVIDIA L4|8.9|23034|GPU-0"
MODULES = {"tensorflow": "tensorflow", "torch": "torch", "jax": "jax", "onnxruntime-gpu": "onnxruntime"}
CHILD = r"""
import ctypes, json, os, re, sys
reported = {}
for name in sys.argv[1:]:
    module = __import__(name)
    if name == "torch":
        reported["torch"] = module.backends.cudnn.version()
    if name == "tensorflow":
        reported["tensorflow"] = len(module.config.list_physical_devices("GPU"))
    if name == "jax":
        import importlib
        for plugin in ("jax_cuda13_plugin", "jax_cuda12_plugin"):
            try:
                reported["jax"] = importlib.import_module(plugin + "._versions").cudnn_get_version()
                break
            except ImportError:
                pass
    if name == "onnxruntime":
        if hasattr(module, "preload_dlls"):
            module.preload_dlls()
        reported["onnxruntime"] = "CUDAExecutionProvider" in module.get_available_providers()
paths = sorted({line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if "libcudnn" in line})
shims = [path for path in paths if re.search(r"libcudnn\.so\.\d+", path)]
versions = {}
for path in shims:
    library = ctypes.CDLL(path)
    library.cudnnGetVersion.restype = ctypes.c_size_t
    versions[path] = library.cudnnGetVersion()
print("ANSWER " + json.dumps({"reported": reported, "folders": sorted({os.path.dirname(path) for path in paths}), "versions": versions}))
"""


def encoded(version: str) -> int:
    """Return the result of cudnnGetVersion for `9.3.0.75` or `8.9.7.29`."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return major * 10_000 + minor * 100 + patch if major >= 9 else major * 1000 + minor * 100 + patch


def install(tool: str, lock: Path, python: Path, home: Path) -> None:
    """Install the lock into the environment."""
    if tool == "uv":
        words = ["--preview-features", "pylock", "--python", str(python), "--cache-dir", str(home / "uv"), str(lock)]
        run([uv_program(), "pip", "sync", "-q", *words])
        return
    pip = home / "pip"
    if not pip.exists():
        run([sys.executable, "-m", "venv", str(pip)])
        run([str(pip / "bin/python"), "-m", "pip", "install", "-q", "pip>=26.1"])
    deps = ["--no-deps"] if "# With pip, add --no-deps" in lock.read_text("utf-8") else []
    run([str(pip / "bin/python"), "-m", "pip", "--python", str(python), "install", "-q", "--no-cache-dir", *deps, "-r", str(lock)])


def lock_faults(words: list[str], python: str, tool: str, home: Path) -> list[str]:
    """Lock and install requirements, and return what is wrong with the result."""
    lock = home / "pylock.toml"
    lock.unlink(missing_ok=True)
    own = str(Path(sys.executable).parent / "cudnn-resolve")
    files = [str(Path(word[1:]).resolve()) for word in words if word.startswith("@")]
    words = [word for word in words if not word.startswith("@")]
    targets = [part for word in words for part in ("-f", word)] + [part for file in files for part in ("-r", file)]
    run([own, "lock", "-q", "--no-variant-indexes", *MACHINE, "--python-version", python, *targets, "-o", str(lock)])
    environment = home / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    run([find_python(python), "-m", "venv", "--without-pip", str(environment)])
    install(tool, lock, environment / "bin/python", home)
    text = lock.read_text("utf-8")
    locked = re.search(r'name = "nvidia-cudnn-cu\d+"\nversion = "([^"]+)"', text)
    wanted = encoded(locked[1]) if locked else None
    members = [MODULES[name] for name in (re.split(r"[\[=<>!~]", word)[0] for word in words) if name in MODULES]
    faults = []
    for order in itertools.permutations(members):
        try:
            printed = run(
                [str(environment / "bin/python"), "-c", CHILD, *order],
                LD_LIBRARY_PATH=str(home / "driver"),
                STANDIN_CUDA="13020",
                STANDIN_GPUS=CARD,
            )
            answer = json.loads(printed.rpartition("ANSWER ")[2])
        except (RuntimeError, ValueError) as error:
            faults.append(f"{' then '.join(order)}: {error}")
            continue
        if len(answer["folders"]) != 1:
            faults.append(f"{' then '.join(order)}: cuDNN mapped from {answer['folders']}")
        if set(answer["versions"].values()) != {wanted}:
            faults.append(f"{' then '.join(order)}: loaded {answer['versions']}, locked {wanted}")
    shutil.rmtree(environment)
    shutil.rmtree(home / "uv", ignore_errors=True)  # gigabytes for each set
    return faults


def main() -> int:
    """Return 1 if an installed set differs from its lock."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirement", nargs="*")
    parser.add_argument("--tool", choices=("uv", "pip"), default="uv")
    parser.add_argument("--python", default="3.11")
    parser.add_argument("--pairs", help="file with one set of requirements per line")
    parser.add_argument("--folder", help="working folder; a set temporarily takes up to 12 GB")
    args = parser.parse_args()
    sets = [(args.requirement, args.python)] if args.requirement else []
    for line in Path(args.pairs).read_text("utf-8").splitlines() if args.pairs else []:
        words, _, python = line.partition(" @ ")
        if words.strip():
            sets.append((words.split(), python.strip() or args.python))
    faulty = 0
    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-install-", dir=args.folder) as folder:
        home = Path(folder)
        build_library("standin_cuda.c", home / "driver", "libcuda.so.1")
        for words, python in sets:
            try:
                faults = lock_faults(words, python, args.tool, home)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                faults = [str(error)]
            faulty += bool(faults)
            print(f"{'FAULT' if faults else 'good'}: {' '.join(words)} on Python {python} by {args.tool} {'; '.join(faults)}", flush=True)
    print(f"{len(sets) - faulty} installed, {faulty} faults")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
