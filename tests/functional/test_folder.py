"""A second cuDNN in a folder of its own, as a lock names it: installed, fetched, bundled, and refused where it is none."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudnn_resolve.host import bundle as on_disk
from cudnn_resolve.locking.proof import lock_digest
from cudnn_resolve.locking.read_pylock import read
from tests.functional.test_apply_cli import Bench
from tests.index_server import IndexServer
from tests.program import run

pytestmark = pytest.mark.slow

FOLDER = "_cudnn_resolve_libraries"
WHEEL = "nvidia-cudnn-cu12"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def index() -> Iterator[IndexServer]:
    with IndexServer() as server:
        yield server


def locked(bench: Bench, index: IndexServer, kind: str = "folder", called: str = WHEEL, version: str = "8.9.7.29") -> None:
    """A lock of `tensorflow`, on this disk, whose cuDNN an index has."""
    lock = bench.lock(("tensorflow", "2.15.0"))
    file = index.add_wheel(called, version, members={"nvidia/cudnn/lib/libcudnn.so.8": b"of the folder"})
    url = f"{index.root}/files/{called}/{file.filename}"
    wheel = f'{{name = "{file.filename}", url = "{url}", hashes = {{sha256 = "{file.digest}"}}}}'
    apart = f'{{name = "{called}", version = "{version}", file = {wheel}}}'
    lock.write_text(f"""{lock.read_text()}
[tool.cudnn-resolve]
schema = 1
targets = ["tensorflow"]
python = "{sys.version_info[0]}.{sys.version_info[1]}"
platforms = ["linux_{os.uname().machine}"]
cudnn = "9.1.0.70"
frameworks = [{{name = "tensorflow", version = "2.15.0", variant = "cuda12"}}]
environment = [{{kind = "{kind}", value = "tensorflow", why = "a test", wheel = {apart}}}]
""")


def library(bench: Bench) -> Path:
    site = next(bench.venv.glob("lib/python3*/site-packages"))
    return site / FOLDER / "nvidia/cudnn/lib/libcudnn.so.8"


def test_the_wheel_of_a_folder_is_fetched_where_all_else_lies_on_this_disk(bench: Bench, index: IndexServer) -> None:
    locked(bench, index)

    first, second = bench("-q", "--no-validate"), bench("-q", "--no-validate")

    assert first.stdout.startswith("done: "), first
    assert library(bench).read_bytes() == b"of the folder"
    assert second.stdout == "nothing to do: the environment already matches the plan\n"
    assert bench("--undo", "-q").returncode == 0
    assert not library(bench).exists()


@pytest.mark.parametrize("gone", ["_cudnn_resolve_preload.py", "_cudnn_resolve_preload.pth"])
def test_check_tells_that_nothing_loads_the_folder_any_more(bench: Bench, index: IndexServer, gone: str) -> None:
    locked(bench, index)
    assert bench("-q", "--no-validate").returncode == 0
    said = "is in a separate folder, and nothing loads it"
    whole = run("check", "--python", str(bench.venv / "bin/python"), environ=bench.environ, cwd=bench.base)
    assert said not in whole.stdout
    (library(bench).parents[4] / gone).unlink()
    torn = run("check", "--python", str(bench.venv / "bin/python"), environ=bench.environ, cwd=bench.base)
    assert (torn.returncode, f"{said}: {gone} is missing" in " ".join(torn.stdout.split())) == (1, True), torn
    assert bench("-q", "--no-validate").stdout.startswith("done: ")  # as the remedy says
    assert (library(bench).parents[4] / gone).exists()


def test_a_plan_of_a_lock_names_the_cudnn_that_the_framework_loads(bench: Bench, index: IndexServer) -> None:
    locked(bench, index)

    done = json.loads(bench("--dry-run", "--format", "json").stdout)

    (framework,) = done["plan"]["stack"]["frameworks"]
    assert framework["cudnn"] == "8.9.7.29"


def test_a_test_that_passed_with_another_wheel_in_the_folder_proves_nothing(bench: Bench, index: IndexServer) -> None:
    locked(bench, index)
    text = (bench.base / "pylock.toml").read_text()

    digests = {lock_digest(read(one, "a lock")) for one in (text, text.replace("8.9.7.29", "8.9.5.29"), text)}

    assert len(digests) == 2


def test_a_shared_folder_has_the_wheel_of_a_folder_too(bench: Bench, index: IndexServer) -> None:
    locked(bench, index)
    assert bench("-q", "--no-validate", "--bundle-dir", "share").returncode == 0
    assert bench("--undo", "-q").returncode == 0
    asked = len(index.paths())

    again = bench("-q", "--no-validate", "--bundle-dir", "share")

    assert again.stdout.startswith("done: "), again
    assert library(bench).exists()
    assert len(index.paths()) == asked


@pytest.mark.parametrize("words", [("-o", "b"), ("-o", "b.tar")], ids=["folder", "tar"])
def test_a_bundle_has_the_wheel_of_a_folder_and_puts_it_there(bench: Bench, index: IndexServer, words: tuple[str, ...]) -> None:
    locked(bench, index)
    (place,) = words[1:]
    made = run("bundle", *words, "-q", environ=bench.environ, cwd=bench.base)
    asked = len(index.paths())
    assert made.returncode == 0, made
    before = lock_digest(read((bench.base / "pylock.toml").read_text(), "a lock"))
    (bench.base / "pylock.toml").unlink()
    shutil.rmtree(bench.wheels)

    first, second = (bench(place, "-q", "--no-validate") for _ in "12")

    assert first.stdout.startswith("done: "), first
    assert library(bench).read_bytes() == b"of the folder"
    assert second.stdout == "nothing to do: the environment already matches the plan\n"
    assert run("bundle", "--check", place, environ=bench.environ, cwd=bench.base).returncode == 0
    assert len(index.paths()) == asked
    if place == "b":
        assert lock_digest(read((bench.base / "b/pylock.toml").read_text(), "a lock")) == before


def test_the_start_script_lays_the_wheel_of_a_folder_down_as_apply_does(bench: Bench, index: IndexServer) -> None:
    locked(bench, index)
    assert run("bundle", "-o", "b", "-q", environ=bench.environ, cwd=bench.base).returncode == 0
    shutil.rmtree(bench.wheels)

    done = bench.start("sh", "b/start", "venv2")

    assert done.returncode == 0, done
    assert bench("b", "-q", "--no-validate").stdout.startswith("done: ")
    by_script, by_apply = (next((bench.base / name).glob("lib/python3*/site-packages")) for name in ("venv2", "venv"))
    for name in ("_cudnn_resolve_preload.py", f"{FOLDER}/nvidia/cudnn/lib/libcudnn.so.8"):
        assert (by_script / name).read_bytes() == (by_apply / name).read_bytes()
    bench.venv = bench.base / "venv2"
    assert bench("b", "-q", "--no-validate").stdout == "nothing to do: the environment already matches the plan\n"


@pytest.mark.parametrize("url", ["wheels/../../x.whl", "https://example.org/x.whl"])
def test_a_bundle_whose_lock_takes_the_wheel_of_a_folder_from_elsewhere_is_refused(bench: Bench, index: IndexServer, url: str) -> None:
    locked(bench, index)
    assert run("bundle", "-o", "b", "-q", environ=bench.environ, cwd=bench.base).returncode == 0
    lock = bench.base / "b/pylock.toml"
    (was,) = re.findall(r'url = "([^"]*)"', lock.read_text())
    on_disk.add_to_list(
        str(bench.base / "b"),
        {"pylock.toml": on_disk.place(str(bench.base / "b"), "pylock.toml", lock.read_text().replace(was, url).encode())},
    )

    done = bench("b", "-q", "--no-validate")

    assert done.returncode == 2, done
    assert "damaged" in done.stderr
    assert not library(bench).exists()


@pytest.mark.parametrize(("kind", "called"), [("folder", "numpy"), ("folder", "nvidia-cublas-cu12"), ("preload", WHEEL)])
def test_a_lock_puts_nothing_else_into_a_folder(bench: Bench, index: IndexServer, kind: str, called: str) -> None:
    locked(bench, index, kind, called)

    done = bench("-q", "--no-validate")

    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert not library(bench).parent.exists()
