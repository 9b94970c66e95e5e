#!/usr/bin/env python3
"""Locks requirements, really installs the lock into a fresh environment, and imports the frameworks together in both orders.

usage: install_lock.py [--tool uv|pip] [--python X.Y] [--pairs FILE] [REQUIREMENT…]

Each line of `--pairs FILE` is one set of requirements (and ` @ X.Y` for its Python; `@FILE` names a requirements file), else the words of
the command line are one. The lock is
made for a machine with a new driver and an L4. There needs to be no GPU: a stand-in for the driver, compiled from tests/native, lets
TensorFlow open the libraries that it would open on one. What every process has mapped is read back: one directory of libcudnn, of the
locked version, whoever came first. Prints a line for each set; the last one is "N installed, N faults". Exit code 1 where there is a fault.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.native.build import build_library  # noqa: E402

MACHINE = ("--driver", "610.40.01", "--gpu", "L4", "--os", "ubuntu22.04", "--glibc", "2.35")
CARD = "NVIDIA L4|8.9|23034|GPU-0"
MODULES = {"tensorflow": "tensorflow", "torch": "torch", "jax": "jax", "onnxruntime-gpu": "onnxruntime"}
CHILD = r"""
import ctypes, json, os, re, sys
said = {}
for name in sys.argv[1:]:
    module = __import__(name)
    if name == "torch":
        said["torch"] = module.backends.cudnn.version()
    if name == "tensorflow":
        said["tensorflow"] = len(module.config.list_physical_devices("GPU"))
    if name == "jax":
        import importlib
        for plugin in ("jax_cuda13_plugin", "jax_cuda12_plugin"):
            try:
                said["jax"] = importlib.import_module(plugin + "._versions").cudnn_get_version()
                break
            except ImportError:
                pass
    if name == "onnxruntime":
        if hasattr(module, "preload_dlls"):
            module.preload_dlls()
        said["onnxruntime"] = "CUDAExecutionProvider" in module.get_available_providers()
paths = sorted({line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if "libcudnn" in line})
shims = [path for path in paths if re.search(r"libcudnn\.so\.\d+", path)]
versions = {}
for path in shims:
    library = ctypes.CDLL(path)
    library.cudnnGetVersion.restype = ctypes.c_size_t
    versions[path] = library.cudnnGetVersion()
print("ANSWER " + json.dumps({"said": said, "folders": sorted({os.path.dirname(path) for path in paths}), "versions": versions}))
"""


def run(argv: list[str], **more: str) -> str:
    """What the command prints; RuntimeError with its last words where it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"} | more
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, timeout=1500)
    if done.returncode:
        raise RuntimeError(f"{Path(argv[0]).name} {argv[1] if len(argv) > 1 else ''} gives {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout


def interpreter(version: str) -> str:
    """A CPython of that version."""
    found = shutil.which(f"python{version}")
    for path in (found, *map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")))):
        if path is None:
            continue
        done = subprocess.run([path, "-c", "import sys, venv; print(sys.executable)"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()  # what a shim of pyenv stands for
    raise RuntimeError(f"there is no Python {version} here")


def numbers(version: str) -> int:
    """What cudnnGetVersion answers for `9.3.0.75` or `8.9.7.29`."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return major * 10_000 + minor * 100 + patch if major >= 9 else major * 1000 + minor * 100 + patch


def install(tool: str, lock: Path, python: Path, home: Path) -> None:
    """Puts the lock into the environment."""
    tools = Path(sys.executable).parent
    if tool == "uv":
        words = ["--preview-features", "pylock", "--python", str(python), "--cache-dir", str(home / "uv"), str(lock)]
        run([str(tools / "uv"), "pip", "sync", "-q", *words])
        return
    pip = home / "pip"
    if not pip.exists():
        run([sys.executable, "-m", "venv", str(pip)])
        run([str(pip / "bin/python"), "-m", "pip", "install", "-q", "pip>=26.1"])
    deps = ["--no-deps"] if "# With pip, add --no-deps" in lock.read_text("utf-8") else []
    run([str(pip / "bin/python"), "-m", "pip", "--python", str(python), "install", "-q", "--no-cache-dir", *deps, "-r", str(lock)])


def try_one(words: list[str], python: str, tool: str, home: Path) -> list[str]:
    """What is wrong with the installed lock of some requirements; empty where nothing is."""
    lock = home / "pylock.toml"
    lock.unlink(missing_ok=True)
    own = str(Path(sys.executable).parent / "cudnn-resolve")
    files = [str(Path(word[1:]).resolve()) for word in words if word.startswith("@")]
    words = [word for word in words if not word.startswith("@")]
    targets = [part for word in words for part in ("-f", word)] + [part for file in files for part in ("-r", file)]
    run([own, "lock", "-q", "--no-variant-indexes", *MACHINE, "--python-version", python, *targets, "-o", str(lock)])
    environment = home / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    run([interpreter(python), "-m", "venv", "--without-pip", str(environment)])
    install(tool, lock, environment / "bin/python", home)
    text = lock.read_text("utf-8")
    locked = re.search(r'name = "nvidia-cudnn-cu\d+"\nversion = "([^"]+)"', text)
    wanted = numbers(locked[1]) if locked else None
    members = [MODULES[name] for name in (re.split(r"[\[=<>!~]", word)[0] for word in words) if name in MODULES]
    faults = []
    for order in itertools.permutations(members):
        try:
            said = run(
                [str(environment / "bin/python"), "-c", CHILD, *order],
                LD_LIBRARY_PATH=str(home / "driver"),
                STANDIN_CUDA="13020",
                STANDIN_GPUS=CARD,
            )
            answer = json.loads(said.rpartition("ANSWER ")[2])
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
    """1 where an installed set is not what its lock says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirement", nargs="*")
    parser.add_argument("--tool", choices=("uv", "pip"), default="uv")
    parser.add_argument("--python", default="3.11")
    parser.add_argument("--pairs", help="file with one set of requirements a line")
    parser.add_argument("--folder", help="where to work; one set takes up to 12 GB for a while")
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
                faults = try_one(words, python, args.tool, home)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                faults = [str(error)]
            faulty += bool(faults)
            print(f"{'FAULT' if faults else 'good'}: {' '.join(words)} on Python {python} by {args.tool} {'; '.join(faults)}", flush=True)
    print(f"{len(sets) - faulty} installed, {faulty} faults")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
