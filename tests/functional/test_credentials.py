"""The password of an index: in no file, log, journal, message or command of a child, however it was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apply_world import lend_pip
from tests.functional.test_apply_cli import Bench
from tests.index_server import IndexServer, cut


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("installer", "how"), [("pip", "option"), ("uv", "variable"), ("pip", "file")])
def test_a_password_stands_nowhere(bench: Bench, compiled_tables: Path, how: str, installer: str) -> None:
    site = next(bench.venv.glob("lib/python3*/site-packages"))
    lend_pip(site)
    seen = bench.base / "argv.txt"
    (site / "sitecustomize.py").write_text(f"import sys\nopen({str(seen)!r}, 'a').write(repr(sys.orig_argv) + '\\n')\n")
    (bench.base / "home").mkdir()
    (bench.base / "cache/cudnn-resolve").mkdir(parents=True)
    (bench.base / "cache/cudnn-resolve/tables-v2").symlink_to(compiled_tables)
    with IndexServer() as index:
        index.login = ("joe", "s3cr3t")
        index.form = "json"
        index.add_wheel("demo", "1.0", requires=["other"])
        index.add_wheel("other", "1.0")
        url = index.url.replace("://", "://joe:s3cr3t@")
        env = {"HOME": str(bench.base / "home"), "XDG_CACHE_HOME": str(bench.base / "cache")}
        words = ["-f", "demo", "--device", "cpu", "--matrix", "over", "--installer", installer, "-v", "--no-validate"]
        (bench.base / "over" / "framework").mkdir(parents=True)
        (bench.base / "over" / "framework" / "house.toml").write_text(
            '[framework]\nname = "house"\ntitle = "House"\npackages = ["demo"]\n'
            '[[build]]\nversion = "1.0"\nvariant = "cpu"\ndelivery = "none"\n'
        )
        if how == "option":
            words += ["--index-url", url]
        elif how == "variable":
            env["PIP_INDEX_URL"] = url
        else:
            env["PIP_CONFIG_FILE"] = ""
            (bench.venv / "pip.conf").write_text(f"[global]\nindex-url = {url}\n")
        index.fail("/files/other/", cut(0))
        lost = bench(*words, env=env)
        index.heal()
        done = bench(*words, env=env)
        past = bench("--history", env=env)

    assert (lost.returncode, done.returncode, past.returncode) == (3, 0, 0), done.stderr
    assert (site / "demo").exists()
    found = [path for path in bench.base.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes() and path.name != "pip.conf"]
    assert found == []
    assert seen.exists()
    for one in (lost, done, past):
        assert "s3cr3t" not in one.stdout + one.stderr
