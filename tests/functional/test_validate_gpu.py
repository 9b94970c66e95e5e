"""`validate` on a real GPU, with the frameworks that are there, whole and broken on purpose (-m gpu).

CUDNN_RESOLVE_TEST_PYTHON   the interpreter whose environment is tested; else the one that runs the tests
CUDNN_RESOLVE_TEST_RECORD   a folder that gets what each run printed: `scripts/proven.py` makes a page of it
CUDNN_RESOLVE_TEST_OLDER    a folder with parts of an older cuDNN (`libcudnn_ops.so.9`, …); else stand-ins are compiled

Nothing is fetched, and nothing of the environment is changed: faults are staged in folders of links beside it.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_verdicts import not_for_lack_of_memory, without_cudnn
from tests.native.cudnn import build_cudnn, build_part
from tests.stage import cudnn_folder, environment, view

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("CUDNN_RESOLVE_TEST_PYTHON", sys.executable)
RECORD = os.environ.get("CUDNN_RESOLVE_TEST_RECORD")
OLDER = os.environ.get("CUDNN_RESOLVE_TEST_OLDER")
CLASSES = ("conv1d", "conv2d", "conv3d", "conv2d-grouped", "conv2d-depthwise", "conv2d-strided", "conv2d-dilated", "conv2d-wide")
WITH_CUDNN = ("torch", "jax", "tensorflow")
"""Frameworks that bring a cuDNN and can be broken through it, the best known first."""
CONVOLVES = {
    "torch": """
import torch
if torch.cuda.is_available():
    x = torch.randn(2, 8, 16, 16, device="cuda")
    torch.nn.functional.conv2d(x, torch.randn(8, 8, 3, 3, device="cuda")).sum().item()
else:
    torch.backends.cudnn.version()
""",
    "jax": """
import jax
import jax.numpy as numpy
jax.lax.conv(numpy.ones((2, 8, 16, 16)), numpy.ones((8, 8, 3, 3)), (1, 1), "SAME").block_until_ready()
""",
    "tensorflow": """
import tensorflow
tensorflow.nn.conv2d(tensorflow.ones((2, 16, 16, 8)), tensorflow.ones((3, 3, 8, 8)), 1, "SAME").numpy()
""",
}
"""A convolution by each of them."""
SHOWS = """
print("\\n".join(sorted({line.split()[-1] for line in open("/proc/self/maps") if "libcudnn" in line})))
"""
HOG = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
device, context, free, total = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
left, step = free.value - (256 << 20), 1 << 30
while left > 0 and step >= 1 << 20:
    if driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(min(step, left))) == 0:
        left -= min(step, left)
    else:
        step //= 2
print("full", flush=True)
sys.stdin.read()
"""


class Run:
    """One run of `validate`, as its user sees it."""

    def __init__(self, name: str, *words: str, copy: Path | None = None, first: Path | None = None, **env: str) -> None:
        argv = [sys.executable, "-m", "cudnn_resolve", "validate", "--python", PYTHON, "--format", "json", *words]
        before = time.monotonic()
        env = surroundings(copy=copy, first=first, **env)
        self.done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=900)
        self.seconds = time.monotonic() - before
        assert self.done.stdout, self.done.stderr
        self.told: dict[str, Any] = json.loads(self.done.stdout)
        self.checks: dict[str, dict[str, Any]] = {check["id"]: check for check in self.told["checks"]}
        if RECORD:
            row = {
                "name": name,
                "date": time.strftime("%Y-%m-%d"),
                "words": words,
                "exit": self.done.returncode,
                "seconds": round(self.seconds, 2),
                "told": self.told,
            }
            Path(RECORD).mkdir(parents=True, exist_ok=True)
            (Path(RECORD) / f"{name}.json").write_text(json.dumps(row, indent=1), "utf-8")

    def failed(self) -> list[tuple[str, str, str]]:
        """What failed, and how."""
        return [(one["id"], one["observed"], one["detail"]) for one in self.told["checks"] if one["status"] == "failed"]

    def words(self) -> str:
        """All that was observed where something was not right."""
        return "\n".join(f"{one['id']}: {one['observed']} {one['detail']}" for one in self.told["checks"] if one["status"] != "passed")


def surroundings(*, copy: Path | None = None, first: Path | None = None, **env: str) -> dict[str, str]:
    """The variables of this machine; `copy` goes before what Python finds, `first` before what the loader finds."""
    found = {**os.environ, **env}
    before = [str(copy)] if copy else []
    if copy:
        # A whole cuDNN that the loader is led to would stand in for what is broken in the copy.
        led = found.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        found["LD_LIBRARY_PATH"] = os.pathsep.join(one for one in led if one and not list(Path(one).glob("libcudnn*")))
    found["PYTHONPATH"] = os.pathsep.join([*before, str(ROOT), *filter(None, [found.get("PYTHONPATH")])])
    if first:
        found["LD_LIBRARY_PATH"] = os.pathsep.join([str(first), *filter(None, [found.get("LD_LIBRARY_PATH")])])
    return found


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """One test at a time, however many workers there are: one of them takes all the memory of a card."""
    with (Path(tempfile.gettempdir()) / "cudnn-resolve-gpu-tests.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def site() -> Path:
    """The folder in which the environment has a cuDNN of its own."""
    code = "import json, sys; print(json.dumps(sys.path))"
    told = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    found = next((Path(path) for path in json.loads(told.stdout) if path and cudnn_folder(Path(path))), None)
    if found is None:
        pytest.skip(f"{PYTHON} has no cuDNN of its own that could be staged")
    return found


@pytest.fixture(scope="module")
def major(site: Path) -> int:
    """The major of that cuDNN."""
    home = cudnn_folder(site)
    assert home is not None
    return int(next((site / home).glob("libcudnn.so.*")).name.rpartition(".")[2])


@pytest.fixture(scope="module")
def framework(site: Path) -> str:
    """One framework that uses it."""
    found = next((name for name in WITH_CUDNN if (site / name).is_dir()), None)
    if found is None:
        pytest.skip(f"{site} has none of {', '.join(WITH_CUDNN)}")
    return found


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory, major: int) -> Path:
    """Parts of an older release: real ones where they were brought along, else stand-ins."""
    target = tmp_path_factory.mktemp("older") / "lib"
    if OLDER:
        return view(Path(OLDER), target)
    return build_cudnn(target, f"{major}.0.0")


@pytest.mark.parametrize("words", [(), ("--full",)], ids=["default", "full"])
def test_everything_that_is_installed_passes_on_every_gpu(words: tuple[str, ...]) -> None:
    run = Run("full" if words else "default", "--require-gpu", *words)

    assert run.failed() == []
    assert (run.done.returncode, run.told["status"]) == (0, "passed")
    assert run.told["gpus"]
    assert run.told["driver"]
    computed = [one for one in run.told["checks"] if one["gpu"] is not None and one["status"] == "passed"]
    assert {one["framework"] for one in computed} - {None} or not run.told["frameworks"]
    # Where there is a cuDNN, it does every class by itself; so does each framework that has it, and its log shows cuDNN at work.
    alone = {one["id"].rpartition("cudnn/")[2].split("/")[1] for one in computed if one["framework"] is None and "/conv" in one["id"]}
    if "cudnn" in run.told["loaded"]:
        assert alone == set(CLASSES)
    for name in set(run.told["frameworks"]) & set(WITH_CUDNN):
        classes = {one["id"].partition(f"{name}/")[2].partition("/")[0] for one in computed if one["framework"] == name}
        assert {*CLASSES, "conv2d-transposed", "matmul"} <= classes
        used = [one for one in run.told["checks"] if one["id"].endswith(f"{name}/cudnn-used")]
        assert len(used) == len(run.told["gpus"])
        assert without_cudnn(used) == []
        speed = [one for one in run.told["checks"] if one["id"].endswith(f"{name}/speed")]
        assert all(one["seconds"] > 0 for one in speed)
        assert len(speed) == len(run.told["gpus"])


def test_a_hidden_gpu_is_told() -> None:
    run = Run("hidden-gpu", "--require-gpu", CUDA_VISIBLE_DEVICES="")

    assert run.done.returncode == 1
    assert "CUDA_VISIBLE_DEVICES" in run.checks["gpu"]["observed"]


def test_an_older_cudnn_first_on_the_path(framework: str, older: Path) -> None:
    """Held against what the framework really does: whether it takes anything from there depends on how it was linked."""
    run = Run("older-first", "-f", framework, first=older)

    code = CONVOLVES[framework] + SHOWS
    oracle = subprocess.run([PYTHON, "-c", code], env=surroundings(first=older), capture_output=True, text=True, check=False, timeout=300)
    real = {str(path.resolve().parent) for path in older.iterdir()} | {str(older)}
    taken = [path for path in oracle.stdout.splitlines() if os.path.dirname(path) in real]
    assert (run.done.returncode == 1) == bool(oracle.returncode or taken), (run.words(), oracle.stdout, oracle.stderr[-2000:])
    if taken:
        assert any(folder in run.words() for folder in real)


@pytest.mark.parametrize("part", ["ops", "cnn"])
def test_parts_of_two_releases(tmp_path: Path, site: Path, framework: str, older: Path, major: int, part: str) -> None:
    name = f"libcudnn_{part}.so.{major}" if major > 8 else f"libcudnn_{part}_infer.so.{major}"
    other = older / name
    if not other.exists():
        other = build_part(tmp_path / "part", name.partition(".")[0].removeprefix("libcudnn_"), f"{major}.0.0")
    copy = environment(site, tmp_path / "mixed", cudnn=cudnn_folder(site), instead={name: other})

    run = Run(f"mixed-{part}", "-f", framework, copy=copy)

    assert run.done.returncode == 1
    assert any(one.startswith(f"{framework}/cudnn-parts") for one, _, _ in run.failed()), run.words()


def test_a_missing_part(tmp_path: Path, site: Path, framework: str, major: int) -> None:
    part = "cnn" if major > 8 else "cnn_infer"
    copy = environment(site, tmp_path / "missing", cudnn=cudnn_folder(site), without=[part])

    run = Run("missing-cnn", "-f", framework, copy=copy)

    assert run.done.returncode == 1
    assert "cnn" in run.words().lower()


def test_a_build_for_the_cpu(tmp_path: Path) -> None:
    for name, text in (
        ("torch-2.6.0+cpu.dist-info/METADATA", "Name: torch\nVersion: 2.6.0+cpu\n"),
        ("torch/__init__.py", "from . import version\n__version__ = version.__version__\n"),
        ("torch/version.py", "__version__ = '2.6.0+cpu'\ncuda = None\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")

    run = Run("cpu-build", "-f", "torch", "--require-gpu", copy=tmp_path)

    assert run.done.returncode == 1
    assert run.checks["torch/build"]["observed"] == "a build for the CPU (2.6.0+cpu)"


@pytest.fixture
def neighbour() -> Iterator[None]:
    """Another program that holds all but 256 MiB of the first GPU."""
    hog = subprocess.Popen([sys.executable, "-c", HOG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert hog.stdin is not None
    assert hog.stdout is not None
    try:
        assert hog.stdout.readline() == "full\n", "the memory of the card could not be taken"
        yield
    finally:
        hog.stdin.close()
        hog.wait(60)
        hog.stdout.close()


@pytest.mark.usefixtures("neighbour")
def test_memory_that_a_neighbour_holds() -> None:
    run = Run("neighbour", "--gpu", "0", "--require-gpu")

    card = next(one for one in run.told["checks"] if one["id"].endswith("card"))
    assert card["status"] in ("warning", "failed")
    assert "MiB are free" in card["observed"] or "OUT_OF_MEMORY" in card["observed"]
    # Whatever fails for it says so, and nothing else fails.
    assert not_for_lack_of_memory(run.told["checks"]) == []
