"""Changes of a real virtual environment by real pip and real uv: what comes, what goes, what fails, and the way back."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution import recover
from cudnn_resolve.execution.journal import Journal
from cudnn_resolve.execution.journal_store import Journals
from cudnn_resolve.execution.loader_settings import is_done
from cudnn_resolve.execution.recover import repair, undo
from cudnn_resolve.execution.run import carry_out
from cudnn_resolve.execution.task import Task, Work
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.interrupt import InterruptError
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.planning.model import PipAction
from cudnn_resolve.planning.preload import MODULE
from tests.apply_world import NEW, ApplyWorld
from tests.small_wheels import file_of, tree, write_wheel
from tests.watching import watching

both = pytest.mark.parametrize("installer", ["pip", "uv"])


def versions(world: ApplyWorld) -> dict[str, str]:
    found = (path.name.removesuffix(".dist-info").rpartition("-") for path in world.site.glob("*.dist-info"))
    return {name: version for name, _, version in found if name not in ("pip", "setuptools")}


@pytest.mark.slow
@both
def test_what_is_planned_is_there_and_an_undo_leads_back_byte_for_byte(world: ApplyWorld, work: Work) -> None:
    former = world.former()

    done = carry_out(world.task(work.environment), work)

    assert (done.status, done.differences, done.left) == ("done", (), ())
    assert versions(world) == {
        "torch": "2.6.0",
        "numpy": "2.0.0",
        "nvidia_cudnn_cu12": "9.3.0.75",
        "nvidia_cublas_cu12": "12.4.5.8",
    }
    assert (world.site / "torch/users_own.txt").exists()
    assert (world.site / "nvidia/__init__.py").exists(), "nvidia-cublas-cu12 stays and owns it, too"
    assert (world.site / f"{MODULE}.pth").exists()
    assert not (world.site / "torch-2.6.0.dist-info/direct_url.json").exists(), "it came by its name"
    shown = subprocess.run([world.venv / "bin/torch-tool"], capture_output=True, text=True, check=True)
    assert shown.stdout == "2.6.0\n"
    assert world.former() != former
    assert undo(work, None).status == "undone"
    assert world.former() == former


@pytest.mark.slow
def test_two_applies_are_undone_one_after_the_other(world: ApplyWorld, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    former = world.former()
    task = world.task(work.environment)
    carry_out(replace(task, install=task.install[:1], remove=(), preload=()), work)
    between = world.former()
    carry_out(replace(task, install=task.install[1:]), work)

    with pytest.raises(WorldError, match="is not the last one"):
        undo(work, 1)
    with monkeypatch.context() as patched:
        patched.setattr(disk, "writable", lambda path: path == "/nowhere")
        with pytest.raises(WorldError, match="may not write"):
            undo(work, None)
    assert undo(work, 2).status == "undone"
    assert world.former() == between
    work.journals.mark(())  # a third one, that is killed before it has a journal
    assert repair(work) is None
    assert undo(work, None).status == "nothing"
    assert undo(work, None).id == 1
    assert world.former() == former
    assert undo(work, None).status == "nothing"


def test_what_others_changed_since_is_not_undone(world: ApplyWorld, work: Work) -> None:
    carry_out(world.task(work.environment), work)
    record = world.site / "numpy-2.0.0.dist-info/RECORD"
    record.write_text(record.read_text() + "more.py,,\n")
    after = world.former()

    with pytest.raises(WorldError, match="others changed the environment since apply number 1: numpy"):
        undo(work, None)

    assert world.former() == after


@pytest.mark.slow
@both
def test_an_installer_that_fails_is_put_back(world: ApplyWorld, work: Work) -> None:
    former = world.former()
    (world.site / "numpy").write_text("a file where a folder must be")
    before = world.former()
    task = world.task(work.environment)

    done = carry_out(task, work)

    # uv and pip lay a folder over a file or refuse; either way the environment is whole.
    assert done.status in ("done", "reverted")
    if done.status == "done":
        undo(work, None)
    else:
        assert done.exit_code == 4
        assert done.log is not None
        assert Path(done.log).read_text()
    assert world.former() == before != former


def test_a_difference_afterwards_is_a_failure_and_put_back(world: ApplyWorld, work: Work) -> None:
    former = world.former()

    done = carry_out(world.task(work.environment), replace(work, verify=lambda: ("torch is 9.9, not 2.6.0",)))

    assert (done.status, done.exit_code, done.differences) == ("reverted", 4, ("torch is 9.9, not 2.6.0",))
    assert world.former() == former


def test_an_interruption_at_any_record_is_put_back(world: ApplyWorld, work: Work) -> None:
    cache = world.site / "torch" / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "part0.cpython-311.pyc.77").write_text("half compiled by somebody else, and earlier")
    former = world.former()
    seen: list[str] = []

    def stop(kind: str) -> None:
        seen.append(kind)
        if kind == "installed":
            (world.site / "numpy" / "__pycache__").mkdir(exist_ok=True)
            for folder in (world.site / "numpy", world.site / "torch"):
                (folder / "__pycache__" / "part1.cpython-311.pyc.139622380197392").write_text("half")
            raise InterruptError("SIGTERM")

    with watching(stop):
        done = carry_out(world.task(work.environment), work)

    assert seen[:6] == ["begin", "fetched", "files", "change", "saved", "installed"]
    assert (done.status, done.exit_code) == ("reverted", 4)
    assert world.former() == former


@pytest.mark.slow
def test_what_only_looks_half_made_and_came_meanwhile_stays(world: ApplyWorld, work: Work) -> None:
    mine = ("my-results.tmp/run1/all.txt", "bin/notes.tmp", "~mine/x.py", ".tmpAbc123/my.txt", "torch/~x.py", "torch/y.pyc.7", ".tmp9")
    places = [world.venv / one if one.startswith(("my-", "bin")) else world.site / one for one in mine]
    torn = world.site / ".tmpXyz789" / "cudnn.h"

    def stop(kind: str) -> None:
        if kind == "installed":
            for path in (*places, torn):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("mine")
            raise InterruptError("SIGTERM")

    with watching(stop):
        done = carry_out(world.task(work.environment), replace(work, members=None))  # uv itself writes then

    assert (done.status, done.left) == ("reverted", ())
    assert [path.read_text() for path in places] == ["mine"] * len(places)
    assert not torn.parent.exists()


@pytest.mark.slow
def test_a_clock_that_jumps_changes_nothing_of_what_is_done(world: ApplyWorld, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    former = world.former()
    times = itertools.cycle(("2026-11-21T00:00:00Z", "1970-01-01T00:00:00Z", "2106-02-07T06:28:15Z", "1999-12-31T23:59:59Z"))
    monkeypatch.setattr(clock, "moment", lambda: next(times))
    first = Task(targets=("numpy",), install=tuple(one for one in world.task(work.environment).install if one.name == "numpy"))
    assert carry_out(first, work).status == "done"
    middle = world.former()

    stopped = carry_out(world.task(work.environment), replace(work, verify=lambda: ("as if",)))
    assert (stopped.status, world.former() == middle) == ("reverted", True)
    done = carry_out(world.task(work.environment), work)

    assert (done.status, done.id) == ("done", 3)
    assert [one.id for one in work.journals.all()] == [1, 2, 3]
    assert (undo(work, None).left, world.former() == middle) == ((), True)
    assert (undo(work, None).left, world.former() == former) == ((), True)


def test_a_bug_of_ours_is_put_back_too(world: ApplyWorld, work: Work) -> None:
    former = world.former()

    def fail() -> tuple[str, ...]:
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError):
        carry_out(world.task(work.environment), replace(work, verify=fail))

    assert world.former() == former


def test_a_package_without_a_list_of_its_files_is_not_touched(world: ApplyWorld, work: Work) -> None:
    (world.site / "torch-2.5.0.dist-info/RECORD").unlink()
    former = world.former()

    with pytest.raises(WorldError, match="has no RECORD"):
        carry_out(world.task(work.environment), work)

    assert world.former() == former


@pytest.mark.slow
def test_a_record_that_names_files_elsewhere_is_not_believed(world: ApplyWorld, work: Work, tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    record = world.site / "torch-2.5.0.dist-info/RECORD"
    record.write_text(f"{record.read_text()}{os.path.relpath(victim, world.site)},,\n")

    with pytest.raises(WorldError, match="outside of the environment"):
        carry_out(world.task(work.environment), work)

    assert victim.read_text() == "mine"


def test_a_folder_that_is_a_link_to_elsewhere_is_not_touched(world: ApplyWorld, work: Work, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (world.site / "torch").rename(elsewhere)
    (world.site / "torch").symlink_to(elsewhere)
    former = tree(elsewhere)

    with pytest.raises(WorldError, match="a link leads to"):
        carry_out(world.task(work.environment), work)

    assert tree(elsewhere) == former


@pytest.mark.slow
def test_a_link_above_folders_that_come_is_seen_before_anything_changes(world: ApplyWorld, work: Work, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (world.site / "fresh").symlink_to(tmp_path)
    file = write_wheel(world.wheels, "fresh-one", "1.0", {"fresh/deep/er/x.py": ""})
    former = world.former()

    with pytest.raises(WorldError, match="a link leads to"):
        carry_out(Task(targets=(), install=(PipAction(name="fresh-one", version="1.0", file=file),)), work)

    assert (world.former(), os.listdir(tmp_path)) == (former, ["mine.txt"])


def test_a_signal_before_the_first_record_is_no_bug(world: ApplyWorld, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "add", Mock(side_effect=InterruptError("SIGINT")))

    assert carry_out(world.task(work.environment), work).status == "interrupted"


@pytest.mark.slow
def test_what_cannot_be_cleaned_up_afterwards_is_a_note(world: ApplyWorld, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    former = world.former()
    work.journals.mark(())
    monkeypatch.setattr(Journals, "unmark", Mock())  # as by a kill that came just then

    monkeypatch.setattr(Journals, "prune", Mock(side_effect=WorldError("busy", code="system")))
    done = carry_out(world.task(work.environment), work)

    assert (done.status, [past.state for past in work.journals.all()]) == ("done", ["committed"])
    assert any("busy" in note for note in done.notes)
    assert (undo(work, None).status, world.former()) == ("undone", former)


_PLANNED: dict[Path, dict[str, str]] = {}


def planned_in(world: ApplyWorld) -> dict[str, str]:
    """What a world is after an apply that nobody disturbed; made once."""
    if world.base not in _PLANNED:
        world.reset()
        code, said = world.finish("apply")
        assert code == 0, said
        _PLANNED[world.base] = world.planned()
    return _PLANNED[world.base]


@pytest.mark.kill
@pytest.mark.parametrize(("stop_at", "installer"), [(3, "uv"), (4, "uv"), (5, "uv"), (6, "uv"), (7, "uv"), (5, "pip")])
def test_a_kill_at_any_record_is_repaired_by_an_undo_or_by_the_next_apply(world: ApplyWorld, stop_at: int) -> None:
    former = world.former()
    code, _ = world.finish("apply", "--stop-at", str(stop_at))
    assert code == -signal.SIGKILL

    code, said = world.finish("undo")
    assert (code, world.former() == former) == (0, True), said
    world.finish("apply", "--stop-at", str(stop_at))
    code, said = world.finish("apply")
    assert code == 0, said
    assert world.planned() == planned_in(world)


@pytest.mark.kill
def test_a_kill_in_the_middle_of_the_installer_and_another_of_the_repair(world: ApplyWorld) -> None:
    former = world.former()
    process = world.start("apply")
    deadline = time.monotonic() + 30
    while not (world.site / "torch-2.6.0.dist-info").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

    code, said = world.finish("undo", "--stop-at", "1")
    assert code in (0, -signal.SIGKILL), said
    code, said = world.finish("undo")

    assert (code, world.former() == former) == (0, True), said


@pytest.mark.kill
@pytest.mark.parametrize(("number", "installer"), [(signal.SIGTERM, "pip"), (signal.SIGINT, "uv")])
def test_a_signal_while_the_installer_runs_ends_with_everything_put_back(world: ApplyWorld, number: signal.Signals) -> None:
    former = world.former()
    process = world.start("apply")
    log = world.state / "cudnn-resolve/environments"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if any('"kind":"saved"' in path.read_text() for path in log.glob("*/*/journal.jsonl")):
            break
        time.sleep(0.002)
    os.kill(process.pid, number)
    said, _ = process.communicate(timeout=60)

    assert process.returncode in (4, 0), said
    if process.returncode == 4:
        assert "interrupted" in said
        assert world.former() == former


@pytest.mark.slow
def test_a_journal_that_somebody_wrote_into_is_not_followed(world: ApplyWorld, work: Work, tmp_path: Path) -> None:
    carry_out(world.task(work.environment), work)
    after = world.former()
    journal = next(world.state.glob("cudnn-resolve/environments/*/000001/journal.jsonl"))
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    journal.write_text(journal.read_text().replace(str(world.site / "torch/__init__.py"), str(victim)))

    with pytest.raises(WorldError, match="was modified"):
        undo(work, None)

    assert victim.read_text() == "mine"
    assert world.former() == after


def test_a_journal_with_right_sums_and_paths_elsewhere_is_not_followed(work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part, said in (
        ("restore_linker_cache", WorldError("the cache was tried", code="x")),
        ("restore_system", ValueError("and the system")),
    ):
        monkeypatch.setattr(recover, part, Mock(side_effect=said))
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    journal = work.journals.open()
    begin = {"schema": 1, "id": 1, "prefix": work.environment.prefix, "install": [], "remove": []}
    journal.add("begin", **begin)
    store = work.journals.store_of(1)
    journal.add("files", store=store, save=[], add=[str(victim)], infos=[], made=[], modes={}, names=[])
    journal.add("commit")
    with pytest.raises(WorldError, match="outside of the environment"):
        undo(work, None)
    assert work.journals.all()[-1].state == "committed", "a refusal is no beginning of an undo"
    journal.add("change")

    done = repair(work)

    assert done is not None
    assert done.status == "broken"
    assert "outside of the environment" in done.left[0]
    assert done.left[1:] == ("the cache was tried", "and the system")
    assert victim.read_text() == "mine"


@pytest.mark.slow
def test_saved_files_are_kept_for_the_last_three_within_a_bound(world: ApplyWorld, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    task = world.task(work.environment)
    one = replace(task, install=task.install[:1], remove=(), preload=())
    for _ in range(5):
        carry_out(one, work)

    journals = Journals(work.environment)
    assert [past.id for past in journals.all() if journals.can_undo(past)] == [3, 4, 5]
    with pytest.raises(WorldError, match="not the last one"):
        undo(work, 1)
    for bound, kept in (("_MOST_OLDER_BYTES", [5]), ("MOST_SAVED_BYTES", [])):
        monkeypatch.setattr(f"cudnn_resolve.execution.journal_store.{bound}", 0)
        monkeypatch.setattr("cudnn_resolve.host.disk.own_bytes", lambda _: 1)
        journals.prune()
        assert [past.id for past in journals.all() if journals.can_undo(past)] == kept
    assert set(NEW) >= {"torch"}


@pytest.mark.slow
@both
def test_a_second_cudnn_comes_into_its_folder_and_goes_with_an_undo_or_with_who_needs_it(world: ApplyWorld, work: Work) -> None:
    former = world.former()
    world.wheel("nvidia-cudnn-cu12", "8.9.7.29")
    file = file_of(world.wheels / "nvidia_cudnn_cu12-8.9.7.29-py3-none-any.whl")
    wheel = PipAction(name="nvidia-cudnn-cu12", version="8.9.7.29", file=file)
    task = replace(world.task(work.environment), folder_frameworks=("torch",), preload=(), folder_wheels=(wheel,))
    library = world.site / FOLDER / "nvidia/cudnn/lib/libcudnn.so.9"

    done = carry_out(task, work)

    assert done.status == "done", done.trouble
    assert library.read_text().startswith("8.9.7.29")
    assert (world.site / "nvidia/cudnn/lib/libcudnn.so.9").read_text().startswith("9.3.0.75")
    assert "APART = ('torch',)" in (world.site / f"{MODULE}.py").read_text()
    assert is_done(replace(task, install=(), remove=()), work)
    assert undo(work, None).status == "undone"
    assert world.former() == former

    assert carry_out(task, work).status == "done"
    without = replace(task, install=(), remove=(), folder_frameworks=(), folder_wheels=())
    assert not is_done(without, work)
    assert carry_out(without, work).status == "done"
    assert not (world.site / FOLDER).exists()
    assert not (world.site / f"{MODULE}.py").exists()
    assert undo(work, None).status == "undone"
    assert library.exists()


def test_a_preload_alone_needs_no_installer(world: ApplyWorld, work: Work) -> None:
    bare = replace(work, installer="auto", journals=Journals(replace(work.environment, uv=None, pip=None)))
    task = replace(world.task(work.environment), install=(), remove=(), cudnn={})

    done = carry_out(task, bare)

    assert done.status == "done", done.trouble
    assert (Path(work.environment.scheme["purelib"]) / f"{MODULE}.pth").exists()


@pytest.mark.slow
@pytest.mark.parametrize("spoiled", ["WHEEL", "RECORD", "__init__.py"])
def test_what_a_power_failure_left_of_uvs_cache_does_not_stop_an_apply(
    world: ApplyWorld, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoiled: str
) -> None:
    cache = tmp_path / "uv-cache"
    monkeypatch.setenv("UV_CACHE_DIR", str(cache))
    work = replace(work, host=LinuxHost())
    done = carry_out(world.task(work.environment), work)
    planned = world.planned()
    assert (done.status, undo(work, None).status) == ("done", "undone")
    cached = [path for path in cache.rglob("*") if path.name == spoiled and path.stat().st_size]
    for path in cached:
        path.write_bytes(b"")  # as it is on a disk to which it was not written yet
    assert cached

    again = carry_out(world.task(work.environment), work)

    assert (again.status, world.planned()) == ("done", planned), again
