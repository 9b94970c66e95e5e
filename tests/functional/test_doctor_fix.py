"""`doctor --fix` from end to end: an environment that really fails, its log, the remedy carried out by `apply`, and no failure."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from cudnn_resolve.cli import apply, doctor
from cudnn_resolve.cli.arguments import Output
from cudnn_resolve.diagnosis.model import Diagnosis, Finding, Remedy
from tests.apply_world import lend_pip
from tests.program import Done, run
from tests.small_wheels import tree, write_wheel

pytestmark = pytest.mark.slow

JAX = """import jaxlib
VERSION = {version!r}
if tuple(map(int, jaxlib.VERSION.split("."))) > tuple(map(int, VERSION.split("."))):
    raise RuntimeError(f"jaxlib version {{jaxlib.VERSION}} is newer than and incompatible with jax version {{VERSION}}.")
print("jax", VERSION)
"""
RELEASES = (
    ("jax", "0.5.0"),
    ("jax", "0.5.1"),
    ("jaxlib", "0.5.1"),
    ("ml-dtypes", "0.5.1"),
    ("numpy", "2.1.3"),
    ("opt-einsum", "3.4.0"),
    ("scipy", "1.15.2"),
)


class Shop:
    """An index of small wheels on this disk, and an environment with a jax that is older than its jaxlib."""

    def __init__(self, base: Path) -> None:
        self.index = base / "simple"
        self.venv = base / "venv"
        self.base = base
        for name, version in RELEASES:
            folder = self.index / name
            file = write_wheel(folder, name, version, {"jax/__init__.py": JAX.format(version=version)} if name == "jax" else None)
            with (folder / "index.html").open("a") as page:
                page.write(f'<a href="{file.filename}#sha256={file.hashes["sha256"]}">{file.filename}</a>\n')
        venv.create(self.venv, symlinks=True)
        self.site = next(self.venv.glob("lib/python3*/site-packages"))
        for name, version in (("jax", "0.5.0"), ("jaxlib", "0.5.1")):
            zipfile.ZipFile(self.index / name / f"{name}-{version}-py3-none-any.whl").extractall(self.site)
        lend_pip(self.site)

    def offer(self, name: str, version: str, files: dict[str, bytes], *, install: bool = False) -> None:
        folder = self.index / name
        file = write_wheel(folder, name, version, files)
        (folder / "index.html").write_text(f'<a href="{file.filename}#sha256={file.hashes["sha256"]}">{file.filename}</a>\n')
        if install:
            zipfile.ZipFile(folder / file.filename).extractall(self.site)

    def offer_cublas(self) -> None:
        """What cuDNN requires."""
        for name, version in (
            ("nvidia-cublas-cu12", "12.9.1.4"),
            ("nvidia-cuda-nvrtc-cu12", "12.9.86"),
            ("nvidia-cuda-runtime-cu12", "12.9.79"),
        ):
            self.offer(name, version, {f"nvidia/{name}/lib/part.so.12": b"c"}, install=True)

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.venv / "bin" / "python", *words], capture_output=True, text=True, check=False)

    def doctor(self, *words: str) -> Done:
        places = [f"--python={self.venv}", f"--index-url={self.index.as_uri()}", "--device=cpu"]
        own = {"XDG_STATE_HOME": str(self.base / "state"), "PIP_CONFIG_FILE": "/dev/null"}
        return run("doctor", *places, *words, environ={**os.environ, **own})


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_what_failed_works_once_the_remedy_was_carried_out(shop: Shop) -> None:
    failed = shop.python("-c", "import jax")
    assert failed.returncode == 1
    log = shop.base / "train.log"
    log.write_text(failed.stderr)
    before = tree(shop.venv)

    told = shop.doctor(str(log), "--format", "json")
    finding = json.loads(told.stdout)["findings"][0]
    assert (told.returncode, finding["cause"], finding["severity"]) == (1, "framework_pkg_mismatch", "error")
    assert "jaxlib==0.5.1" in str(finding["evidence"])
    assert finding["remedy"][0]["command"] == (
        f"cudnn-resolve apply -f jax --device cpu --python {shop.venv} --index-url {shop.index.as_uri()}"
    )
    assert "nvidia" not in finding["remedy"][0]["text"]
    assert tree(shop.venv) == before

    mended = shop.doctor(str(log), "--fix", "-y")
    assert mended.returncode == 0, mended

    assert shop.python("-c", "import jax").stdout == "jax 0.5.1\n"
    after = tree(shop.venv, compiled=False)
    assert shop.doctor("--fix", "-y").returncode == 0
    assert tree(shop.venv, compiled=False) == after


def test_files_that_another_wheel_overwrote_are_laid_anew(shop: Shop) -> None:
    part = shop.site / "nvidia/cudnn/lib/libcudnn_part.so.9"
    shop.offer_cublas()
    for name, content in (("nvidia-cudnn-cu12", b"a"), ("nvidia-cudnn-cu13", b"b")):
        shop.offer(name, "9.12.0.46", {"nvidia/cudnn/lib/libcudnn_part.so.9": content * 5000}, install=True)
    assert part.read_bytes() == b"b" * 5000

    done = shop.doctor("--fix", "-y")

    assert done.returncode == 0, done.stdout + done.stderr
    assert part.read_bytes() == b"a" * 5000
    assert not list(shop.site.glob("nvidia_cudnn_cu13*"))
    assert shop.python("-c", "import jax").stdout == "jax 0.5.1\n"


def test_what_apply_does_not_mend_is_said(shop: Shop) -> None:
    for name, content in (("nvidia-cudnn-cu12", b"a"), ("nvidia-cudnn-cu13", b"b")):
        file = write_wheel(shop.base, name, "9.12.0.46", {"nvidia/cudnn/lib/libcudnn_part.so.9": content * 5000})
        zipfile.ZipFile(shop.base / file.filename).extractall(shop.site)

    done = shop.doctor("--fix", "-y")

    assert done.returncode == 1, done.stdout + done.stderr
    assert "still wrong: nvidia-cudnn-cu12: overwritten by nvidia-cudnn-cu13" in done.stderr
    assert "cudnn-resolve apply --reinstall-package nvidia-cudnn-cu12" in done.stderr


@pytest.mark.parametrize("asked", [["-f", "jax"], ["--framework", "jax==0.5.1", "--framework=torch"]])
def test_frameworks_of_the_command_line_take_the_place_of_the_plans_alone(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = "cudnn-resolve apply -f tensorflow -f torch==2.1.0 --driver-policy strict"
    finding = Finding(
        cause="ptx_too_new", severity="error", summary="s", remedy=(Remedy(text="t", command="echo 'it"), Remedy(text="t", command=plan))
    )
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    args = parser.parse_args(["--fix", *asked])
    seen: list[argparse.Namespace] = []

    def carried_out(one: argparse.Namespace) -> int:
        seen.append(one)
        return 0

    monkeypatch.setattr(apply, "run", carried_out)
    assert doctor.fix(Diagnosis(findings=(finding,)), args, Output(), set()) == 0
    assert (seen[0].framework, seen[0].driver_policy) == (args.framework, "strict")
