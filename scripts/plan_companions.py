#!/usr/bin/env python3
"""Plan frameworks with companion packages, and install a random selection of the plans.

usage: plan_companions.py [--plans N] [--install N] [--seed N] [--results FILE] [--folder DIR] [--cache DIR] [--program PATH]

A combination is a release of a framework, one to three packages that people install with it, a Python, a GPU and a driver, drawn from
the lists below, reproducible by seed. The real command line plans each from the configured index. Printed for each: time, whether there
is a solution, and doubtful parts of it, such as a source archive.

Some of the solved plans are installed with `uv pip sync`, one after the other, and removed again; not those with packages built from
source, which need a compiler or an index that not every machine reaches. The link check and the real loader must agree that every library
resolves, and the framework and its companions must import on this machine without a GPU. Progress is kept in the file of results, one
line of JSON per plan and environment, and not repeated. Exit code 1 if there is a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from environments import find_python, uv_program
from measure import processor_seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cudnn_resolve.evidence.link_check import broken_links, explain
from cudnn_resolve.host.link_site import SystemLibraries, installed_site
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.tables import open_book

LIMIT_SECONDS = 600
SLOW_SECONDS = 60
"""Processor time, which does not depend on other load."""
FRAMEWORKS = {
    "torch": ("", "", "", "==2.11.0", "==2.9.1", "==2.8.0", "==2.7.1", "==2.6.0", "==2.4.1", "==2.2.2", "==2.0.1", "==1.13.1"),
    "tensorflow": ("", "", "==2.20.0", "==2.18.0", "==2.16.2", "==2.15.1", "==2.13.1"),
    "jax": ("", "", "==0.7.2", "==0.5.2", "==0.4.26"),
    "onnxruntime-gpu": ("", "==1.22.0", "==1.20.2", "==1.18.1"),
}
COMPANIONS = {
    "torch": (
        *("torchvision", "torchaudio", "torchcodec", "torchtext", "xformers", "bitsandbytes", "torchao", "transformers", "accelerate"),
        *("diffusers", "lightning", "timm", "peft", "sentence-transformers", "ultralytics", "kornia", "torch-geometric", "torchmetrics"),
        *(
            "faiss-gpu-cu12",
            "faiss-cpu",
            "xgboost",
            "lightgbm",
            "numba",
            "opencv-python",
            "opencv-python-headless",
            "cupy-cuda12x",
            "spacy",
        ),
        *(
            "transformer-engine-cu12",
            "vllm",
            "torch-tensorrt",
            "cudf-cu12",
            "nvidia-dali-cuda120",
            "triton",
            "onnxruntime-gpu",
            "torchdata",
        ),
    ),
    "tensorflow": (
        "tensorflow-text",
        "tensorflow-probability",
        "tf-keras",
        "tensorflow-hub",
        "keras",
        "keras-cv",
        "tensorflow-io",
        "xgboost",
    ),
    "jax": ("flax", "optax", "chex", "equinox", "numpyro", "orbax-checkpoint", "dm-haiku", "diffrax", "brax", "xgboost"),
    "onnxruntime-gpu": ("onnx", "transformers", "rapidocr-onnxruntime", "insightface", "opencv-python-headless", "cupy-cuda12x"),
}
MACHINES = (
    *(
        ("T4", "550.54.15"),
        ("T4", "535.104.05"),
        ("V100", "570.86.10"),
        ("A100", "580.65.06"),
        ("A100", "525.60.13"),
        ("H100", "590.44.01"),
    ),
    *(("L4", "610.40.01"), ("RTX 4090", "560.35.03"), ("RTX 5090", "580.82.07"), ("P100", "550.54.15"), ("B200", "580.65.06")),
)
MODULES = {
    "onnxruntime-gpu": "onnxruntime",
    "faiss-gpu-cu12": "faiss",
    "faiss-cpu": "faiss",
    "opencv-python": "cv2",
    "opencv-python-headless": "cv2",
    "cupy-cuda12x": "cupy",
    "cudf-cu12": "cudf",
    "nvidia-dali-cuda120": "nvidia.dali",
    "transformer-engine-cu12": "transformer_engine",
    "dm-haiku": "haiku",
    "orbax-checkpoint": "orbax.checkpoint",
}
LOADER = """
import ctypes, importlib, os, re, sys
site = next(path for path in sys.path if path.endswith("site-packages"))
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        print("IMPORT", name, type(error).__name__, str(error)[:300].replace(chr(10), " "))
for folder, _, files in os.walk(site):
    for file in files:
        path = os.path.join(folder, file)
        if not re.search(r"[.]so([.][0-9.]+)?$", file) or open(path, "rb").read(4) != b"\\x7fELF":
            continue
        sys.stdout.flush()
        if os.fork() == 0:
            try:
                ctypes.CDLL(path)
            except OSError as error:
                if "cannot open shared object" in str(error) or "version `" in str(error):
                    print("LOADER", os.path.relpath(path, site), str(error)[:200])
                    sys.stdout.flush()
            os._exit(0)
        os.wait()
"""
ABSENT = re.compile(
    r"libcuda\.so\.1|libnvidia-ml|libnvidia-|libnvcuvid|No CUDA|no NVIDIA|CUDA driver|cuInit|get current device|GPU|FFmpeg is not properly"
)
"""Messages that only report the lack of a GPU, or of FFmpeg, which no wheel brings."""


class Combination(NamedTuple):
    """Targets and machine of one plan."""

    framework: str
    companions: tuple[str, ...]
    python: str
    gpu: str
    driver: str

    def __str__(self) -> str:
        return f"{self.framework} + {', '.join(self.companions)} (Python {self.python}, {self.gpu}, driver {self.driver})"


def draw(count: int, seed: int) -> list[Combination]:
    """Draw distinct combinations."""
    dice = random.Random(seed)  # noqa: S311 - need not be secret
    found: dict[Combination, None] = {}
    while len(found) < count:
        name = dice.choice(("torch", "torch", "torch", "tensorflow", "jax", "onnxruntime-gpu"))
        companions = tuple(sorted(dice.sample(COMPANIONS[name], dice.choice((1, 1, 2, 3)))))
        python = dice.choice(("3.10", "3.11", "3.11", "3.12", "3.13"))
        found[Combination(name + dice.choice(FRAMEWORKS[name]), companions, python, *dice.choice(MACHINES))] = None
    return list(found)


def make_plan(program: str, wanted: Combination, home: Path) -> tuple[dict[str, Any], float]:
    """Return the plan as JSON and the processor seconds it took."""
    requirements = home / "requirements.txt"
    requirements.write_text("\n".join(wanted.companions) + "\n")
    machine = ["--gpu", wanted.gpu, "--driver", wanted.driver, "--python-version", wanted.python]
    machine += ["--platform", "linux_x86_64", "--glibc", "2.35", "--no-variant-indexes"]
    argv = [program, "plan", "-f", wanted.framework, "-r", str(requirements), *machine, "--format", "json"]
    began = processor_seconds()
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS, cwd=home)
        plan = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        plan = {"status": "slow"}
    except ValueError:
        plan = {"status": "failed", "why": done.stderr.strip()[-300:]}
    seconds = processor_seconds() - began
    return ({"status": "slow"} if seconds > SLOW_SECONDS else plan), seconds


def doubts(plan: dict[str, Any]) -> Iterator[str]:
    """Yield parts of a plan that need an explanation."""
    for warning in plan.get("warnings", ()):
        if warning["code"] in ("from-source", "unread"):
            yield f"{warning['code']}: {warning['message'][:160]}"
    majors = {
        found[1]
        for item in plan.get("pip", ())
        if (found := re.search(r"-cu(1[123])$", item["name"])) and item["name"].startswith("nvidia-")
    }
    if len(majors) > 1:
        yield f"NVIDIA's wheels are for CUDA {' and '.join(sorted(majors))}"


def install_faults(wanted: Combination, pinned: dict[str, str], home: Path, cache: str | None) -> Iterator[str]:
    """Install a plan, by default with a temporary cache of uv, and yield what is wrong with the environment."""
    uv = uv_program()
    environment = home / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    pins = home / "pins.txt"
    pins.write_text("".join(f"{name}=={version}\n" for name, version in pinned.items()))
    python = str(environment / "bin/python")
    places = {**os.environ, "UV_CACHE_DIR": cache or str(home / "cache")}
    subprocess.run([uv, "venv", "-q", "--python", find_python(wanted.python), str(environment)], check=True, capture_output=True)
    try:
        done = subprocess.run(
            [uv, "pip", "sync", "-q", "--python", python, str(pins)], env=places, capture_output=True, text=True, check=False
        )
        if done.returncode:
            yield f"uv pip sync: {done.stderr.strip()[-300:]}"
            return
        host, book = LinuxHost(), open_book(())
        roots = tuple(map(str, environment.glob("lib/python3*/site-packages")))
        site = installed_site(host, roots, SystemLibraries(host, python), book)
        broken = [explain(site, link, book)[0] for link in broken_links(site) if link.severity == "error"]
        names = (wanted.framework.partition("==")[0], *wanted.companions)
        modules = [MODULES.get(name, name.replace("-", "_")) for name in names]
        printed = subprocess.run([python, "-c", LOADER, *modules], capture_output=True, text=True, check=False, timeout=900).stdout
        for line in dict.fromkeys(printed.splitlines()):
            if line.startswith("IMPORT") and not ABSENT.search(line):
                yield line
        missing = {found[1] for line in printed.splitlines() if (found := re.search(r"^LOADER \S+ (\S+\.so[.\d]*): cannot", line))}
        yield from (f"link check: {text}" for text in broken)
        reported = " ".join(broken)
        cuda = re.compile(r"lib(?:cu|nv(?:rtc|Jit|infer)|nccl|torch|c10)")
        unreported = sorted(name for name in missing if cuda.match(name) and name not in reported)
        if unreported:
            yield f"note: before any import, the loader alone does not find {', '.join(unreported[:6])}"
    finally:
        shutil.rmtree(environment, ignore_errors=True)
        shutil.rmtree(home / "cache", ignore_errors=True)


class Results:
    """Results by combination, in memory and in a file."""

    def __init__(self, path: Path | None) -> None:
        """Read the results of an earlier run."""
        self.path = path
        self.known: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._take(json.loads(line))

    def add(self, combination: Combination, **found: Any) -> dict[str, Any]:
        """Add results, and return all results of the combination."""
        line = {"combination": str(combination), **found}
        self._take(line)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
        return self.known[str(combination)]

    def _take(self, line: dict[str, Any]) -> None:
        self.known.setdefault(line["combination"], {}).update(line)


def planned(results: Results, program: str, wanted: Combination, home: Path) -> dict[str, Any]:
    """Return the results of a combination, planning it if there are none."""
    entry = results.known.get(str(wanted), {})
    if "status" in entry:
        return entry
    plan, seconds = make_plan(program, wanted, home)
    pins = {item["name"]: item["version"] for item in plan.get("pip", ()) if item["action"] != "remove"}
    conflict = str((plan.get("conflict") or plan.get("error") or {}).get("message", plan.get("why", "")))[:300]
    doubtful = list(doubts(plan))
    entry = results.add(wanted, status=plan["status"], seconds=round(seconds, 1), pins=pins, conflict=conflict, doubts=doubtful)
    named = " ".join(f"{name} {pins.get(name, '-')}" for name in (wanted.framework.partition("==")[0], *wanted.companions))
    print(f"{plan['status']:13} {seconds:6.1f} s  {wanted}: {named if pins else conflict}", flush=True)
    for doubt in doubtful:
        print(f"    {doubt}", flush=True)
    return entry


def main() -> int:
    """Return 1 if a plan is slow, or an installed one faulty."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=300)
    parser.add_argument("--install", type=int, default=0)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--results", type=Path, help="file of results, from which a further run continues")
    parser.add_argument("--cache", metavar="DIR", help="cache of uv to use and keep (default: a temporary one)")
    parser.add_argument("--folder", help="working folder; an environment temporarily takes up to 15 GB")
    parser.add_argument("--program", default=str(Path(sys.executable).parent / "cudnn-resolve"))
    args = parser.parse_args()
    results = Results(args.results)
    combinations = draw(args.plans, args.seed)
    random.Random(args.seed).shuffle(combinations)  # noqa: S311 - as above
    installed: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        home = Path(folder).resolve()
        for combination in combinations:
            entry = planned(results, args.program, combination, home)
            if entry["status"] != "ok" or len(installed) >= args.install or any(text.startswith("from-source") for text in entry["doubts"]):
                continue
            if "wrong" not in entry:
                entry = results.add(combination, wrong=list(install_faults(combination, entry["pins"], home, args.cache)))
                print(
                    f"installed {combination}: {'faulty' if _faults(entry) else 'right'}",
                    *(f"    {text}" for text in entry["wrong"]),
                    sep="\n",
                    flush=True,
                )
            installed.append(entry)
    entries = [results.known[str(combination)] for combination in combinations]
    counted = Counter(entry["status"] for entry in entries)
    faulty = sum(_faults(entry) for entry in installed)
    print(f"{len(entries)} plans: {dict(counted)}; {len(installed)} installed: {faulty} faulty")
    return int(faulty + counted["slow"] + counted["failed"] + counted["error"] > 0)


def _faults(entry: dict[str, Any]) -> bool:
    return any(not text.startswith("note: ") for text in entry["wrong"])


if __name__ == "__main__":
    sys.exit(main())
