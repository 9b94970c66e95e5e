"""Libraries that would not load in the planned environment: told before anything changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apply_world import lend_pip
from tests.elf_writer import write_elf
from tests.functional.test_apply_cli import Bench
from tests.functional.test_overlap import locked

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    lend_pip(next(made.venv.glob("lib/python3*/site-packages")))
    return made


def extension(*needed: str) -> bytes:
    return write_elf(needed=needed, machine=machine())


def machine() -> int:
    return {"x86_64": 62, "aarch64": 183}[subprocess.run(["uname", "-m"], check=True, capture_output=True, text=True).stdout.strip()]


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_library_that_nobody_brings_stops_the_change(bench: Bench, installer: str) -> None:
    locked(bench, kernels={"kernels/_C.so": extension("libcusparse.so.11"), "kernels/__init__.py": ""})

    done = bench("--installer", installer)

    assert done.returncode == 1, done
    assert "kernels: _C.so needs libcusparse.so.11, which no package provides: nvidia-cusparse-cu11 has it" in done.stderr
    assert "--force" in done.stderr
    assert not list(bench.venv.glob("lib/python3*/site-packages/kernels*"))
    forced = bench("--installer", installer, "--force")
    assert forced.returncode == 0, forced
    assert "needs libcusparse.so.11" in forced.stdout + forced.stderr


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_what_is_brought_along_is_found(bench: Bench, installer: str) -> None:
    wheels: dict[str, dict[str, str | bytes]] = {
        "kernels": {"kernels/_C.so": extension("libcusparse.so.11", "libc.so.6", "libcuda.so.1")},
        "nvidia-cusparse-cu11": {"nvidia/cusparse/lib/libcusparse.so.11": write_elf("libcusparse.so.11", machine=machine())},
    }
    locked(bench, **wheels)

    done = bench("--installer", installer)

    assert done.returncode == 0, done
    assert "libcusparse" not in done.stderr


def stack(bench: Bench, device: str, package: str) -> None:
    """Let the lock say for which framework and device it was made."""
    platform = f"linux_{os.uname().machine}"
    text = f"""
[tool.cudnn-resolve]
schema = 1
device = "{device}"
driver-policy = "minor"
targets = ["{package}"]
python = "{sys.version_info[0]}.{sys.version_info[1]}"
platforms = ["{platform}"]
frameworks = [{{name = "{package}", version = "1.0", variant = "cuda12"}}]
"""
    (bench.base / "pylock.toml").write_text((bench.base / "pylock.toml").read_text() + text)


@pytest.mark.parametrize(
    ("device", "imported", "code"), [("gpu", (), 1), ("cpu", (), 0), ("cpu", ("libonnxruntime_providers_cuda.so",), 1)]
)
def test_without_a_gpu_only_what_an_import_loads_must_be_there(bench: Bench, device: str, imported: tuple[str, ...], code: int) -> None:
    provider = extension("libcusparse.so.12", "libcudnn.so.9")
    files: dict[str, str | bytes] = {"onnxruntime/capi/libonnxruntime_providers_cuda.so": provider, "onnxruntime/__init__.py": ""}
    files["onnxruntime/capi/onnxruntime_pybind11_state.so"] = extension("libc.so.6", *imported)
    locked(bench, **{"onnxruntime-gpu": files})
    stack(bench, device, "onnxruntime-gpu")

    done = bench("--no-validate")

    assert done.returncode == code, done
    assert ("libcudnn.so.9" in done.stdout + done.stderr) == bool(code)


def test_what_was_broken_before_stops_nobody(bench: Bench) -> None:
    locked(bench, kernels={"kernels/_C.so": extension("libcusparse.so.11")})
    assert bench("-q", "--force").returncode == 0
    (bench.base / "pylock.toml").unlink()
    locked(bench, other={"other/__init__.py": ""})

    done = bench()

    assert done.returncode == 0, done
    assert "libcusparse" not in done.stdout + done.stderr


def test_check_tells_what_does_not_load(bench: Bench) -> None:
    locked(bench, torchvision={"torchvision/_C.so": extension("libcusparse.so.11", "libtorch.so")})
    assert bench("-q", "--force").returncode == 0

    found = bench("--format", "json", verb="check")

    (verdict,) = json.loads(found.stdout)["verdicts"]
    assert (found.returncode, verdict["status"]) == (1, "breaks")
    told = [(one["cause"], one["summary"]) for one in verdict["findings"] if one["severity"] == "error"]
    assert ("framework_pkg_mismatch", "torchvision: _C.so needs libtorch.so, which no package provides") in told
    assert any(cause == "cuda_runtime_missing" and "_C.so needs libcusparse.so.11" in summary for cause, summary in told)


@pytest.mark.parametrize("how", ["missing", "changed"])
def test_check_tells_a_damaged_library_once_and_not_who_needs_it(bench: Bench, how: str) -> None:
    wheels: dict[str, dict[str, str | bytes]] = {
        "kernels": {"kernels/_C.so": extension("libcusparse.so.11", "libc.so.6")},
        "nvidia-cusparse-cu11": {"nvidia/cusparse/lib/libcusparse.so.11": write_elf("libcusparse.so.11", machine=machine())},
    }
    locked(bench, **wheels)
    assert bench("-q").returncode == 0
    (library,) = bench.venv.glob("lib/python3*/site-packages/nvidia/cusparse/lib/libcusparse.so.11")
    library.unlink()
    if how == "changed":
        library.write_bytes(b"no library at all")

    found = bench("--format", "json", verb="check")

    (verdict,) = json.loads(found.stdout)["verdicts"]
    (told,) = [one for one in verdict["findings"] if one["severity"] == "error"]
    assert "of nvidia-cusparse-cu11 1.0 are" in told["summary"]
    assert "libcusparse.so.11 cannot be loaded, and others need it" in told["summary"]
    assert told["remedy"][0]["command"].startswith("cudnn-resolve apply --reinstall-package nvidia-cusparse-cu11 --python ")


def test_libraries_of_a_package_without_a_list_of_its_files_are_found(bench: Bench) -> None:
    wheels: dict[str, dict[str, str | bytes]] = {
        "kernels": {"kernels/_C.so": extension("libcusparse.so.11", "libown.so", "libc.so.6")},
        "nvidia-cusparse-cu11": {"nvidia/cusparse/lib/libcusparse.so.11": write_elf("libcusparse.so.11", machine=machine())},
        "own": {"own/__init__.py": "", "own/libown.so": write_elf("libown.so", machine=machine())},
    }
    locked(bench, **wheels)
    assert bench("-q").returncode == 0
    for name in ("nvidia_cusparse_cu11", "own"):
        (record,) = bench.venv.glob(f"lib/python3*/site-packages/{name}-*.dist-info/RECORD")
        record.unlink()
    (info,) = bench.venv.glob("lib/python3*/site-packages/nvidia_cusparse_cu11-*.dist-info")
    (info / "top_level.txt").write_text("nvidia\n", encoding="utf-8")

    found = bench("--format", "json", verb="check")

    (verdict,) = json.loads(found.stdout)["verdicts"]
    assert not [one["summary"] for one in verdict["findings"] if "which no package provides" in one["summary"]]
