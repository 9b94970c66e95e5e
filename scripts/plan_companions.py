#!/usr/bin/env python3
"""Plans frameworks with companions, and installs a drawn number of the plans for real.

usage: plan_companions.py [--plans N] [--install N] [--seed N] [--results FILE] [--folder DIR] [--cache DIR] [--program PATH]

A combination is a release of a framework, one to three packages that people install beside it, a Python, a GPU and a driver, drawn from the
lists below, the same for each seed. For each, the real command line makes a plan from the configured index. Told of each: how long it
took, whether there is an answer, and what is doubtful in it, such as a source archive.

Of the plans with an answer some are installed by `uv pip sync`, one after the other, and removed again; not one that says itself that
something in it is built from source, which needs a compiler or an index that not every machine reaches. The link check and the real loader
must agree that every library resolves, and the framework and its companions must import on this machine without a GPU. What is done
stands in the file of results, one line of JSON for each plan and each environment: what stands there is not done again. Exit code 1 where
there is a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from install_lock import interpreter  # noqa: E402

from cudnn_resolve.evidence.link_check import broken_links, explain  # noqa: E402
from cudnn_resolve.host.libraries import SystemLibraries, installed_site  # noqa: E402
from cudnn_resolve.host.linux import LinuxHost  # noqa: E402
from cudnn_resolve.host.tables import open_book  # noqa: E402

LIMIT_SECONDS = 600
SLOW_SECONDS = 60
"""Of processor time, which another program on the machine does not change."""
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
"""What says only that this machine has no GPU, or no FFmpeg, which no wheel brings."""


class Combination(NamedTuple):
    """What is asked for."""

    framework: str
    companions: tuple[str, ...]
    python: str
    gpu: str
    driver: str

    def __str__(self) -> str:
        return f"{self.framework} + {', '.join(self.companions)} (Python {self.python}, {self.gpu}, driver {self.driver})"


def draw(count: int, seed: int) -> list[Combination]:
    """Combinations, no two alike."""
    dice = random.Random(seed)  # noqa: S311 - it need not be secret
    found: dict[Combination, None] = {}
    while len(found) < count:
        name = dice.choice(("torch", "torch", "torch", "tensorflow", "jax", "onnxruntime-gpu"))
        companions = tuple(sorted(dice.sample(COMPANIONS[name], dice.choice((1, 1, 2, 3)))))
        python = dice.choice(("3.10", "3.11", "3.11", "3.12", "3.13"))
        found[Combination(name + dice.choice(FRAMEWORKS[name]), companions, python, *dice.choice(MACHINES))] = None
    return list(found)


def plan(program: str, one: Combination, home: Path) -> tuple[dict[str, Any], float]:
    """The plan as JSON, and the seconds of processor time that it took."""
    wanted = home / "requirements.txt"
    wanted.write_text("\n".join(one.companions) + "\n")
    machine = ("--gpu", one.gpu, "--driver", one.driver, "--python-version", one.python, "--platform", "linux_x86_64", "--glibc", "2.35")
    argv = [program, "plan", "-f", one.framework, "-r", str(wanted), *machine, "--no-variant-indexes", "--format", "json"]
    began = _processor()
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS, cwd=home)
        told = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        told = {"status": "slow"}
    except ValueError:
        told = {"status": "failed", "why": done.stderr.strip()[-300:]}
    seconds = _processor() - began
    return ({"status": "slow"} if seconds > SLOW_SECONDS else told), seconds


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def doubts(told: dict[str, Any]) -> Iterator[str]:
    """What an answer should not have without a word."""
    for warning in told.get("warnings", ()):
        if warning["code"] in ("from-source", "unread"):
            yield f"{warning['code']}: {warning['message'][:160]}"
    majors = {
        found[1]
        for item in told.get("pip", ())
        if (found := re.search(r"-cu(1[123])$", item["name"])) and item["name"].startswith("nvidia-")
    }
    if len(majors) > 1:
        yield f"NVIDIA's wheels are of CUDA {' and '.join(sorted(majors))}"


def install(one: Combination, pinned: dict[str, str], home: Path, cache: str | None) -> Iterator[str]:
    """What is wrong with the environment of a plan; the cache of uv is one of its own where none is given."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    environment = home / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    pins = home / "pins.txt"
    pins.write_text("".join(f"{name}=={version}\n" for name, version in pinned.items()))
    python = str(environment / "bin/python")
    places = {**os.environ, "UV_CACHE_DIR": cache or str(home / "cache")}
    subprocess.run([uv, "venv", "-q", "--python", interpreter(one.python), str(environment)], check=True, capture_output=True)
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
        names = (one.framework.partition("==")[0], *one.companions)
        modules = [MODULES.get(name, name.replace("-", "_")) for name in names]
        seen = subprocess.run([python, "-c", LOADER, *modules], capture_output=True, text=True, check=False, timeout=900).stdout
        for line in dict.fromkeys(seen.splitlines()):
            if line.startswith("IMPORT") and not ABSENT.search(line):
                yield line
        missed = {found[1] for line in seen.splitlines() if (found := re.search(r"^LOADER \S+ (\S+\.so[.\d]*): cannot", line))}
        yield from (f"link check: {text}" for text in broken)
        told_names = " ".join(broken)
        unseen = sorted(
            name for name in missed if re.match(r"lib(?:cu|nv(?:rtc|Jit|infer)|nccl|torch|c10)", name) and name not in told_names
        )
        if unseen:
            yield f"note: the loader alone, before any import, does not find {', '.join(unseen[:6])}"
    finally:
        shutil.rmtree(environment, ignore_errors=True)
        shutil.rmtree(home / "cache", ignore_errors=True)


class Results:
    """What was found of combinations, in memory and in a file."""

    def __init__(self, path: Path | None) -> None:
        """What an earlier run left in the file."""
        self.path = path
        self.known: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._take(json.loads(line))

    def add(self, one: Combination, **found: Any) -> dict[str, Any]:
        """Note what was found, and return all that is known of the combination."""
        line = {"combination": str(one), **found}
        self._take(line)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
        return self.known[str(one)]

    def _take(self, line: dict[str, Any]) -> None:
        self.known.setdefault(line["combination"], {}).update(line)


def planned(results: Results, program: str, one: Combination, home: Path) -> dict[str, Any]:
    """The entry of a combination; a plan is made and told of where there is none."""
    entry = results.known.get(str(one), {})
    if "status" in entry:
        return entry
    told, seconds = plan(program, one, home)
    found = {item["name"]: item["version"] for item in told.get("pip", ()) if item["action"] != "remove"}
    conflict = str((told.get("conflict") or told.get("error") or {}).get("message", told.get("why", "")))[:300]
    doubtful = list(doubts(told))
    entry = results.add(one, status=told["status"], seconds=round(seconds, 1), pins=found, conflict=conflict, doubts=doubtful)
    named = " ".join(f"{name} {found.get(name, '-')}" for name in (one.framework.partition("==")[0], *one.companions))
    print(f"{told['status']:13} {seconds:6.1f} s  {one}: {named if found else conflict}", flush=True)
    for doubt in doubtful:
        print(f"    {doubt}", flush=True)
    return entry


def main() -> int:
    """1 where a plan is slow, or an installed one is faulty."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=300)
    parser.add_argument("--install", type=int, default=0)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--results", type=Path, help="what is done; a further run goes on from there")
    parser.add_argument("--cache", metavar="DIR", help="cache of uv to use and to leave full; without it nothing is left on the disk")
    parser.add_argument("--folder", help="where to work; one environment takes up to 15 GB for a while")
    parser.add_argument("--program", default=str(Path(sys.executable).parent / "cudnn-resolve"))
    args = parser.parse_args()
    results = Results(args.results)
    combinations = draw(args.plans, args.seed)
    random.Random(args.seed).shuffle(combinations)  # noqa: S311 - as above
    installed: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        home = Path(folder).resolve()
        for one in combinations:
            entry = planned(results, args.program, one, home)
            if entry["status"] != "ok" or len(installed) >= args.install or any(text.startswith("from-source") for text in entry["doubts"]):
                continue
            if "wrong" not in entry:
                entry = results.add(one, wrong=list(install(one, entry["pins"], home, args.cache)))
                print(
                    f"installed {one}: {'faulty' if _faults(entry) else 'right'}",
                    *(f"    {text}" for text in entry["wrong"]),
                    sep="\n",
                    flush=True,
                )
            installed.append(entry)
    entries = [results.known[str(one)] for one in combinations]
    counted = Counter(entry["status"] for entry in entries)
    faulty = sum(_faults(entry) for entry in installed)
    print(f"{len(entries)} plans: {dict(counted)}; {len(installed)} installed: {faulty} faulty")
    return int(faulty + counted["slow"] + counted["failed"] + counted["error"] > 0)


def _faults(entry: dict[str, Any]) -> bool:
    return any(not text.startswith("note: ") for text in entry["wrong"])


if __name__ == "__main__":
    sys.exit(main())
