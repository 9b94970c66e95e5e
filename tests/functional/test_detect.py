"""`detect` as a whole: on this machine, with stand-ins for a driver, recorded and replayed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import record_machine

from cudnn_resolve.facts.codec import decode, encode
from cudnn_resolve.facts.model import Gpu, Toolkit, Unknown
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.probe.probe import detect
from tests.functional.interpreters import make_environment, site_packages
from tests.native.build import build_library
from tests.recorded_host import RecordedHost

THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"
UUID = "GPU-00000000-0000-0000-0000-00000000000a"


def install(folder: Path, name: str, version: str, *requires: str) -> None:
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    (metadata / "METADATA").write_text("\n".join(lines) + "\n")


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with a CUDA runtime wheel in it."""
    make_environment(THIS, tmp_path / "venv")
    packages = site_packages(tmp_path / "venv")
    install(packages, "nvidia-cuda-runtime-cu12", "12.4.127")
    install(packages, "six", "1.16.0", "nothing>=1")
    (packages / "nvidia/cuda_runtime/lib").mkdir(parents=True)
    return tmp_path / "venv"


def test_this_machine_is_known_with_a_source_for_everything(environment: Path) -> None:
    facts = detect(LinuxHost(), str(environment))

    assert facts.platform.system == "linux"
    assert facts.platform.arch == os.uname().machine
    assert facts.python.prefix == str(environment)
    assert facts.packages.pip == {"nvidia-cuda-runtime-cu12": "12.4.127", "six": "1.16.0"}
    assert facts.packages.requires == {"six": ("nothing>=1",)}
    assert not isinstance(facts.cuda_toolkits, Unknown)
    runtime = site_packages(environment) / "nvidia/cuda_runtime"
    assert Toolkit(version="12.4", path=str(runtime), source="pip") in facts.cuda_toolkits
    assert {"platform.arch", "python", "gpus", "cuda_toolkits", "packages.pip", "packages.apt", "container", "root"} <= facts.sources.keys()
    assert all(facts.sources.values())


def test_the_facts_are_a_facts_file(environment: Path) -> None:
    facts = detect(LinuxHost(), str(environment))

    assert encode(decode(json.dumps(encode(facts)))) == encode(facts)


@pytest.mark.slow
def test_a_driver_in_ld_library_path_is_the_driver(environment: Path, tmp_path: Path) -> None:
    build_library("standin_nvml.c", tmp_path / "driver", "libnvidia-ml.so.1", "libnvidia-ml.so.550.54.15")
    build_library("standin_cuda.c", tmp_path / "driver", "libcuda.so.1", "libcuda.so.550.54.15")
    settings = {"LD_LIBRARY_PATH": str(tmp_path / "driver"), "STANDIN_GPUS": f"Tesla T4|7.5|15360|{UUID}", "CUDA_VISIBLE_DEVICES": "-1"}

    facts = detect(LinuxHost(environ={**os.environ, **settings}), str(environment))

    assert not isinstance(facts.driver, Unknown)
    assert facts.driver is not None
    assert (facts.driver.version, facts.driver.cuda) == ("550.54.15", "12.4")
    assert facts.gpus == (Gpu(name="Tesla T4", compute_capability="7.5", memory_mib=15360, uuid=UUID, hidden=True),)
    assert "CUDA_VISIBLE_DEVICES" in {problem.what for problem in facts.problems}
    assert not isinstance(facts.loader, Unknown)
    assert facts.loader.ld_library_path == (str(tmp_path / "driver"),)


def test_a_recorded_machine_gives_the_same_facts_again(environment: Path, tmp_path: Path) -> None:
    path = str(environment / "bin/python")

    text, facts = record_machine.record(LinuxHost(), path, [(str(environment), "/home/user/venv")])

    assert str(environment) not in text
    assert facts.python.prefix == "/home/user/venv"
    assert facts.packages.pip == {"nvidia-cuda-runtime-cu12": "12.4.127", "six": "1.16.0"}
    (tmp_path / "answers.json").write_text(text)
    assert detect(RecordedHost.open(str(tmp_path)), "/home/user/venv/bin/python") == facts


RECORDED = sorted(path.parent for path in (Path(__file__).parent.parent / "machines").glob("*/answers.json"))


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_every_recorded_machine_still_gives_its_facts(folder: Path) -> None:
    asked = record_machine.python_of(folder)

    facts = detect(RecordedHost.open(str(folder)), asked)

    assert encode(facts) == json.loads((folder / "facts.json").read_text())
