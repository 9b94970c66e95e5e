"""A whole environment exchanged for another and back, cut off anywhere."""

from __future__ import annotations

import json
import mmap
import os
import platform
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.execution import payload_exchange as exchange

MACHINE = f"linux_{platform.machine()}"
START = """import json, os, sys
path = sys.argv[-1]
here = os.path.dirname(os.path.abspath(__file__))
site = os.path.join(path, "lib/python3.11/site-packages")
os.makedirs(site)
open(os.path.join(path, ".cudnn-resolve-unfinished"), "w").close()
if os.path.exists(os.path.join(here, "fail")):
    print("error: no room", file=sys.stderr)
    sys.exit(3)
for one in json.load(open(os.path.join(here, "plan.json")))["platforms"].popitem()[1]["packages"]:
    os.mkdir(os.path.join(site, one["name"] + "-" + one["version"] + ".dist-info"))
open(os.path.join(path, "pyvenv.cfg"), "w").close()
os.unlink(os.path.join(path, ".cudnn-resolve-unfinished"))
"""


class Node:
    """A folder with an environment `dl` and a bundle."""

    def __init__(self, base: Path) -> None:
        self.base, self.path, self.bundle = base, base / "dl", base / "bundle"
        self.bundle.mkdir()
        (self.bundle / "start.py").write_text(START)

    def job(self, version: str) -> dict[str, Any]:
        packages = [{"name": "demo", "version": version}]
        parts = {"packages": packages, "apart": [], "files": {}, "debs": [], "notes": [], "folder": "x"}
        plan = {"python": "3.11", "platforms": {MACHINE: parts}}
        (self.bundle / "plan.json").write_text(json.dumps(plan))
        return {"path": str(self.path), "plan": plan, "bundle": str(self.bundle)}

    def do(self, what: str, **more: Any) -> dict[str, Any]:
        return exchange.main({"do": what, "path": str(self.path), **more})

    def put(self, version: str, *, keep: bool = True) -> dict[str, Any]:
        done = self.do("put", **self.job(version))
        if done.get("changed"):
            self.do("settle", keep=keep, run=done["run"])
        return done

    @property
    def there(self) -> dict[str, str]:
        return exchange.installed(str(self.path))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(os, "sync", lambda: None)  # of the whole machine
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield Node(tmp_path)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.slow
def test_an_environment_is_exchanged_once_and_put_back(node: Node) -> None:
    assert node.put("1.0")["changed"]
    assert not node.put("1.0")["changed"]
    assert node.put("2.0")["changed"]
    assert node.there == {"demo": "2.0"}
    assert node.do("undo")["changed"]
    assert node.there == {"demo": "1.0"}
    assert not node.do("undo")["changed"]


@pytest.mark.slow
def test_what_fails_or_is_not_kept_is_put_back_with_the_undo_before_it(node: Node) -> None:
    node.put("1.0")
    node.put("2.0")
    (node.bundle / "fail").touch()
    assert node.put("3.0") == {"error": "no room"}
    assert node.there == {"demo": "2.0"}
    (node.bundle / "fail").unlink()
    assert node.put("3.0", keep=False)["changed"]
    assert node.there == {"demo": "2.0"}
    assert node.do("undo")["changed"]
    assert node.there == {"demo": "1.0"}


def test_a_first_environment_that_is_undone_is_gone(node: Node) -> None:
    node.put("1.0")
    assert node.do("undo")["changed"]
    assert not node.path.exists()


@pytest.mark.parametrize("step", range(12))
@pytest.mark.parametrize("kept", [True, False])
def test_a_run_that_is_cut_off_at_any_step_is_put_back_by_the_next(
    node: Node, monkeypatch: pytest.MonkeyPatch, step: int, *, kept: bool
) -> None:
    node.put("1.0")
    node.put("2.0")
    count = 0

    def dying(real: Any) -> Any:
        def call(*words: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count > step:
                raise SystemExit
            return real(*words, **more)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", dying(os.rename))
        patch.setattr(exchange, "start", dying(exchange.start))
        try:
            node.put("3.0", keep=kept)
            over = True
        except SystemExit:
            over = exchange.Place(str(node.path)).read().get("state") == "done" and node.there == {"demo": "3.0"}  # but for what is swept
    if not over:
        node.do("put", **node.job("2.0"))
    assert node.there == {"demo": "3.0" if over and kept else "2.0"}
    assert node.do("undo")["changed"]
    assert node.there == {"demo": "2.0" if over and kept else "1.0"}


def test_packages_that_the_lock_does_not_have_are_not_thrown_away(node: Node) -> None:
    (node.path / "lib/python3.11/site-packages/mine-1.dist-info").mkdir(parents=True)
    (node.path / "pyvenv.cfg").touch()
    assert "mine" in node.put("1.0")["error"]
    assert node.there == {"mine": "1"}
    assert exchange.main({**node.job("1.0"), "do": "put", "replace": True})["changed"]


def test_an_undo_does_not_lose_what_was_installed_since(node: Node) -> None:
    node.put("1.0")
    node.put("2.0")
    site = next(node.path.glob("lib/*/site-packages"))
    (site / "mine-3.0.dist-info").mkdir()
    (site / "pip-24.0.dist-info").mkdir()
    assert "mine 3.0; --replace" in node.do("undo")["error"]
    assert "mine" in node.do("undo", check=True)["error"]
    assert node.there["mine"] == "3.0"
    assert node.do("undo", replace=True)["changed"]
    assert node.there == {"demo": "1.0"}


def test_an_undo_judges_what_is_there_when_its_turn_has_come(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.put("1.0")
    node.put("2.0")
    alone = exchange.Place.alone

    def late(place: exchange.Place) -> Any:
        (next(node.path.glob("lib/*/site-packages")) / "mine-3.0.dist-info").mkdir()
        return alone(place)

    monkeypatch.setattr(exchange.Place, "alone", late)
    assert "mine 3.0; --replace" in node.do("undo")["error"]
    assert node.there["mine"] == "3.0"


def test_a_refusal_leaves_nothing_beside_the_environment(node: Node) -> None:
    node.path.mkdir()
    (node.path / "file").write_text("mine")
    assert "error" in node.put("1.0")
    assert {one.name for one in node.base.iterdir()} == {"dl", "bundle"}


def test_a_folder_that_is_no_environment_is_left_alone(node: Node) -> None:
    node.path.mkdir()
    (node.path / "work").touch()
    assert "not a virtual environment" in node.put("1.0")["error"]
    assert (node.path / "work").exists()


def test_looking_changes_nothing(node: Node) -> None:
    seen = node.do("look", **node.job("1.0"))
    assert (seen["changed"], seen["after"]) == (True, {"demo": "1.0"})
    assert not node.path.exists()
    assert sorted(one.name for one in node.base.iterdir()) == ["bundle"]


@pytest.mark.slow
def test_an_environment_behind_a_link_is_exchanged_again_and_again(node: Node) -> None:
    real = node.base / "real"
    real.mkdir()
    (real / "pyvenv.cfg").touch()
    node.path.symlink_to(real)
    for version in ("1.0", "2.0", "3.0", "4.0"):
        assert "error" not in node.put(version)
    assert real.is_dir()
    assert sorted(one.name for one in node.base.joinpath(".dl.cudnn-resolve").iterdir()) == ["journal.json", "previous"]


@pytest.mark.slow
def test_what_cannot_be_removed_is_in_nobody_s_way(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    for version in ("1.0", "2.0", "3.0", "4.0"):
        assert "error" not in node.put(version)
    assert node.do("undo")["changed"]
    assert node.there == {"demo": "3.0"}


def test_a_run_does_not_keep_what_another_has_made_meanwhile(node: Node) -> None:
    first = node.do("put", **node.job("1.0"))
    second = node.do("put", **node.job("2.0"))
    assert "another run" in node.do("settle", keep=True, run=first["run"])["error"]
    assert node.do("settle", keep=True, run=second["run"])["changed"]
    assert node.there == {"demo": "2.0"}


def test_a_start_script_that_goes_on_holds_off_the_next_run(node: Node) -> None:
    place = exchange.Place(str(node.path))
    with place.alone():
        place.write({"state": "begun", "had": False, "before": {}, "run": "1"})
        handle = os.dup(place.held[0])  # what the script has
    assert "another run" in node.put("1.0")["error"]
    os.close(handle)
    assert "error" not in node.put("1.0")


def test_children_of_an_interrupted_start_script_write_no_more(node: Node) -> None:
    node.put("1.0")
    script = "import os, subprocess, sys, time\nchild = subprocess.Popen(['sleep', '600'])\n"
    script += f"open({str(node.base / 'pid')!r}, 'w').write(str(child.pid))\nos.kill(os.getppid(), 15)\ntime.sleep(600)\n"
    (node.bundle / "start.py").write_text(script)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    try:
        assert node.do("put", **node.job("2.0")) == {"error": "interrupted"}
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGHUP, before[1])
    assert node.there == {"demo": "1.0"}
    status = Path(f"/proc/{(node.base / 'pid').read_text()}/stat")
    ends = time.monotonic() + 60
    while status.exists() and ") Z " not in status.read_text():  # it was killed, and dies once it gets a processor
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_folder_beside_it_that_is_a_link_is_not_used(node: Node) -> None:
    (node.base / "elsewhere").mkdir()
    (node.base / ".dl.cudnn-resolve").symlink_to("elsewhere")
    assert "another user" in node.put("1.0")["error"]
    assert not any((node.base / "elsewhere").iterdir())


@pytest.mark.slow
def test_programs_that_have_it_open_are_told(node: Node) -> None:
    node.put("1.0")
    (node.path / "lib.so").write_bytes(bytes(4096))
    with (node.path / "lib.so").open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ):
        assert f"process {os.getpid()}" in node.put("2.0")["said"][0]
    assert node.put("3.0")["said"] == []
