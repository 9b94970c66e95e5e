"""What journals hold of the disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudnn_resolve.cli.main import main
from cudnn_resolve.execution.journal import Journal
from cudnn_resolve.execution.journal_store import free_lost, holdings
from cudnn_resolve.host import disk


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "state/cudnn-resolve/environments"


def write(state: Path, prefix: Path, *, end: str, device: int | None = None) -> Path:
    """A journal of an environment, with a megabyte that it saved."""
    folder = state / f"{prefix.name}-0123456789ab" / "000001"
    folder.mkdir(parents=True)
    journal = Journal(str(folder), 1)
    journal.add("begin", schema=1, id=1, prefix=str(prefix), install=[], remove=[], **({"device": device} if device is not None else {}))
    journal.add("change")
    if end != "change":
        journal.add(end)
    (folder / "saved").mkdir()
    (folder / "saved/0").write_bytes(b"x" * (1 << 20))
    return folder


def test_what_is_held_for_environments_that_are_gone_is_freed(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = tmp_path / "here"
    here.mkdir()
    gone = write(state, tmp_path / "gone", end="commit")
    torn = write(state, tmp_path / "torn", end="change")
    (tmp_path / "torn").mkdir()
    kept = write(state, here, end="commit")

    assert main(["clean", "--dry-run", "--format", "json"]) == 0
    told = {Path(one["what"]).name: one for one in json.loads(capsys.readouterr().out)["parts"]}
    assert {name: one["freed"] for name, one in told.items()} == {"gone": False, "here": False, "torn": False}
    assert all(one["bytes"] >= 1 << 20 for one in told.values())

    assert main(["clean"]) == 0
    assert [one.exists() for one in (gone, torn, kept)] == [False, True, True]
    assert "`cudnn-resolve clean --all`" in capsys.readouterr().out
    assert main(["clean", "--all"]) == 0
    assert [one.exists() for one in (gone, torn, kept)] == [False, True, False], "the way back of a stopped apply stays"


def test_files_that_the_environment_shares_take_nothing(state: Path, tmp_path: Path) -> None:
    folder = write(state, tmp_path / "here", end="commit")
    (tmp_path / "here").mkdir()
    before = holdings()[0].bytes
    (tmp_path / "here/same").hardlink_to(folder / "saved/0")

    assert holdings()[0].bytes <= before - (1 << 20)


def test_only_what_is_surely_gone_is_freed_without_being_asked(state: Path, tmp_path: Path) -> None:
    lost = write(state, tmp_path / "lost", end="commit", device=disk.device_of(str(tmp_path)))
    unmounted = write(state, tmp_path / "unmounted", end="commit", device=-1)
    unknown = write(state, tmp_path / "unknown", end="commit")

    free_lost()

    assert [one.exists() for one in (lost, unmounted, unknown)] == [False, True, True]


def test_files_for_hosts_are_shown_and_freed_with_all(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = state.parent / "fleet/0123456789abcdef/bundle"
    bundle.mkdir(parents=True)
    (bundle / "a.whl").write_bytes(b"x" * (1 << 20))
    assert main(["clean", "--format", "json"]) == 0
    (part,) = json.loads(capsys.readouterr().out)["parts"]
    assert (part["what"], part["bytes"] >= 1 << 20, part["freed"], bundle.exists()) == ("fleet", True, False, True)
    assert main(["clean", "--all"]) == 0
    assert not bundle.exists()
