"""`validate` with frameworks: ones that are broken, and (network) real ones that compute."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.cli.main import main
from cudnn_resolve.facts.model import Facts, InstalledFramework
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.validation.case import CLASSES, WIDE
from cudnn_resolve.validation.children import ChildRunner
from cudnn_resolve.validation.judge_numbers import judge_cases
from cudnn_resolve.validation.model import subjects_of
from tests.functional.interpreters import make_environment, site_packages, uv

THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"


def install(venv: Path, name: str, version: str, code: str) -> None:
    """A distribution with one module of its name."""
    site = site_packages(venv)
    metadata = site / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n", "utf-8")
    (site / name).mkdir()
    (site / name / "__init__.py").write_text(code, "utf-8")
    (site / name / "version.py").write_text("__version__ = '2.6.0+cu124'\ncuda = '12.4'\n", "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import missing_module\n", "ModuleNotFoundError: No module named 'missing_module'"),
        ("raise ImportError('libcudnn.so.9: cannot open shared object file')\n", "libcudnn.so.9: cannot open shared object file"),
        ("import os; os.abort()\n", "crashed (SIGABRT)"),
        ("import sys; sys.exit(3)\n", "SystemExit: 3"),
        ("import os; os.write(2, b'\\x1b[2J\\xff last words\\n'); os._exit(9)\n", "exited with status 9"),
        ("raise BaseException('x' * 100000)\n", "BaseException: xxx"),
    ],
)
def test_a_framework_that_is_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, words: str) -> None:
    make_environment(THIS, tmp_path / "venv")
    install(tmp_path / "venv", "torch", "2.6.0", code)

    assert main(["validate", "--python", str(tmp_path / "venv"), "--format", "json"]) == 1
    checks = {check["id"]: check for check in json.loads(capsys.readouterr().out)["checks"]}

    assert checks["torch/import"]["status"] == "failed"
    assert words in checks["torch/import"]["observed"]
    assert "\x1b" not in json.dumps(checks, ensure_ascii=False)


@pytest.mark.slow
def test_a_framework_that_hangs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_resolve.validation.children.LOAD_SECONDS", 0.5)
    make_environment(THIS, tmp_path / "venv")
    install(tmp_path / "venv", "torch", "2.6.0", "import time; time.sleep(60)\n")

    assert main(["validate", "--python", str(tmp_path / "venv")]) == 1
    assert "did not end within 0.5 s and was stopped" in capsys.readouterr().out


def test_only_the_framework_that_is_named_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_environment(THIS, tmp_path / "venv")
    install(tmp_path / "venv", "torch", "2.6.0", "raise ImportError\n")

    assert main(["validate", "--python", str(tmp_path / "venv"), "-f", "jax>=0.4"]) == 1
    out = capsys.readouterr().out
    assert "jax/import: it is not installed in" in out
    assert "torch" not in out


def test_a_framework_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-f", "tensrflow"]) == 2  # a typo must not pass as "skipped"
    assert "did you mean `tensorflow`?" in capsys.readouterr().err


@pytest.mark.slow
def test_the_last_words_of_an_import_go_to_the_doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_environment(THIS, tmp_path / "venv")
    words = "libcudnn.so.9: cannot open shared object file: No such file or directory"
    install(tmp_path / "venv", "torch", "2.6.0", f"raise ImportError({words!r})\n")

    assert main(["validate", "--python", str(tmp_path / "venv"), "-f", "pytorch", "--format", "json"]) == 1
    checks = {check["id"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert "libcudnn.so.9 (cuDNN) cannot be opened" in checks["torch/import"]["detail"]


@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "packages"), [("jax", ["jax[cpu]"]), ("onnxruntime", ["onnxruntime"]), ("ctranslate2", ["ctranslate2", "setuptools"])]
)
def test_real_frameworks_compute_every_case_on_the_cpu(tmp_path: Path, name: str, packages: list[str]) -> None:
    """The mathematics of a payload is right: what it gives lies within the tolerances, for every class that the CPU can do."""
    python = make_environment(THIS, tmp_path / "venv")
    uv("pip", "install", "-q", "--python", python, *packages)
    facts = Facts(frameworks=(InstalledFramework(name=name, version="1"),))
    bench = ChildRunner(host=LinuxHost(), python=python, progress=lambda _text: None, device="cpu", everything=True)

    checks = list(judge_cases("", name, bench.computed(subjects_of(facts)[0], None), None))

    assert [(check.id, check.observed) for check in checks if check.status not in ("passed", "skipped")] == []
    assert sum(check.status == "passed" for check in checks) >= (1 if name == "ctranslate2" else 25)
    told = bench.timed(subjects_of(facts)[0], None)
    if name != "ctranslate2":
        assert told is not None
        speeds = list(told.values("speed", dict[str, Any]))
        assert (told.failure, [row["type"] for row in speeds]) == ("", ["float32"])
        assert all(row["seconds"] > 0 and row["cpu_seconds"] > 0 for row in speeds)


PLANTED = {
    "jax": """
import jax.lax
real = jax.lax.conv_general_dilated
jax.lax.conv_general_dilated = lambda *given, **words: real(*given, **words) * 1.25
""",
    "onnxruntime": """
import onnxruntime
class Session(onnxruntime.InferenceSession):
    def run(self, *given, **words):
        return [one * 1.25 for one in super().run(*given, **words)]
onnxruntime.InferenceSession = Session
""",
}
"""What makes every convolution of a framework too large by a quarter, within itself."""


@pytest.mark.network
@pytest.mark.parametrize(("name", "packages"), [("jax", ["jax[cpu]"]), ("onnxruntime", ["onnxruntime"])])
def test_a_real_framework_that_computes_wrongly_fails_in_every_class(tmp_path: Path, name: str, packages: list[str]) -> None:
    python = make_environment(THIS, tmp_path / "venv")
    uv("pip", "install", "-q", "--python", python, *packages)
    (site_packages(tmp_path / "venv") / "sitecustomize.py").write_text(PLANTED[name], "utf-8")
    facts = Facts(frameworks=(InstalledFramework(name=name, version="1"),))
    bench = ChildRunner(host=LinuxHost(), python=python, progress=lambda _text: None, device="cpu")

    checks = [check for check in judge_cases("", name, bench.computed(subjects_of(facts)[0], None), None) if check.id.startswith("conv")]

    assert {check.id.partition("/")[0] for check in checks if check.status == "failed"} == {case.name for case in (*CLASSES, WIDE)}
    assert [check.id for check in checks if check.status == "passed"] == []


@pytest.mark.network
@pytest.mark.parametrize("wheel", ["nvidia-cudnn-cu11==8.6.0.163", "nvidia-cudnn-cu12==9.28.0.42"])
def test_a_real_cudnn_is_whole_without_a_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str], wheel: str) -> None:
    """The one ends the process where there is no libcuda.so, a part of the other needs libcuda.so.1."""
    python = make_environment(THIS, tmp_path / "venv")
    uv("pip", "install", "-q", "--python", python, wheel)

    code = main(["validate", "--python", python, "--format", "json"])

    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {check["status"] for check in checks if check["id"].startswith("cudnn/")} <= {"passed", "skipped"}
    assert sum(check["status"] == "passed" for check in checks) >= 2
    assert code == 0
