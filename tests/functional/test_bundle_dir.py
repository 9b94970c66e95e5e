"""`apply --bundle-dir`: a shared folder of wheels, as its users fill it and take from it."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.functional.test_bundle import Bundling, relisted
from tests.index_server import IndexServer
from tests.program import ROOT
from tests.small_wheels import write_wheel


@pytest.fixture
def bench(tmp_path: Path) -> Bundling:
    return Bundling(tmp_path)


@pytest.mark.slow
def test_a_shared_folder_takes_what_is_fetched_and_gives_it_back(bench: Bundling) -> None:
    with IndexServer() as index:
        lines = ['lock-version = "1.0"', 'created-by = "a test"']
        for name in ("demo", "other"):
            file = index.add_wheel(name, "1.0", members={f"{name}/__init__.py": b"VERSION = '1.0'\n"})
            url = f"{index.root}/files/{name}/{file.filename}"
            wheel = f'{{name = "{file.filename}", url = "{url}", hashes = {{sha256 = "{file.digest}"}}}}'
            lines += ["[[packages]]", f'name = "{name}"', 'version = "1.0"', f"wheels = [{wheel}]"]
        (bench.base / "pylock.toml").write_text("\n".join(lines))
        for name in ("one", "two"):
            venv.create(bench.base / name, symlinks=True)

        def apply(name: str) -> subprocess.Popen[str]:
            argv = [sys.executable, "-m", "cudnn_resolve", "apply", "--python", name, "--bundle-dir", "share", "-q"]
            environ = {**bench.environ, "PYTHONPATH": str(ROOT), "UV_CACHE_DIR": str(bench.base / name / "cache")}
            return subprocess.Popen(argv, env=environ, cwd=bench.base, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        said = [one.communicate()[0] for one in [apply("one"), apply("two")]]
        fetched = len(index.paths())
    later = bench("--bundle-dir", "share", "-q")  # the index is gone

    assert [text.splitlines()[0] for text in said] == ["done: the environment matches the plan"] * 2
    assert later.stdout.startswith("done: "), later
    assert fetched
    assert sorted(path.name for path in (bench.base / "share").iterdir()) == [".lock", "SHA256SUMS", "wheels"]
    assert json.loads(bench.make("--check", "share", "--format", "json").stdout)["notes"] == []


@pytest.mark.slow
def test_a_file_of_others_with_the_same_name_stays(bench: Bundling) -> None:
    theirs = write_wheel(bench.base / "share" / "wheels", "demo", "1.0", {"demo/__init__.py": "VERSION = 'theirs'"})
    relisted(bench.base / "share", f"wheels/{theirs.filename}")
    before = (bench.base / "share" / "wheels" / theirs.filename).read_bytes()
    with IndexServer() as index:
        file = index.add_wheel("demo", "1.0", members={"demo/__init__.py": b"VERSION = 'ours'\n"})
        wheel = f'{{name = "{file.filename}", url = "{index.root}/files/demo/{file.filename}", hashes = {{sha256 = "{file.digest}"}}}}'
        head = 'lock-version = "1.0"\ncreated-by = "a test"\n[[packages]]\nname = "demo"\nversion = "1.0"\n'
        (bench.base / "pylock.toml").write_text(f"{head}wheels = [{wheel}]\n")

        done = bench("--bundle-dir", "share", "-q")

    assert done.stdout.startswith("done: "), done
    assert (bench.base / "share" / "wheels" / theirs.filename).read_bytes() == before
    assert "ours" in next(bench.venv.glob("lib/python3*/site-packages/demo/__init__.py")).read_text()
