"""The journal: what is on the disk after a kill at any byte, and after somebody else wrote into it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution import creation
from cudnn_resolve.execution.environment import Environment
from cudnn_resolve.execution.journal import STAGING, Journal, PastApply, read_journal
from cudnn_resolve.execution.journal_store import KEPT_JOURNALS, Journals
from cudnn_resolve.execution.payload_recover import JOURNAL
from cudnn_resolve.execution.recover import changed_packages

BEGIN = {"schema": 1, "id": 1, "prefix": "/env", "install": [], "remove": []}


def written(folder: Path) -> bytes:
    journal = Journal(str(folder), 1)
    journal.add("begin", **BEGIN)
    journal.add("files", save=["/env/a"])
    journal.add("change")
    return (folder / JOURNAL).read_bytes()


def installed(infos: object) -> PastApply:
    return PastApply(folder="/journal", id=1, state="committed", records=({"kind": "installed", "records": {}, "infos": infos},))


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("journal"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cut")


@given(st.data())
def test_a_kill_at_any_byte_leaves_the_records_that_were_whole(content: bytes, folder: Path, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(content)))
    (folder / JOURNAL).write_bytes(content[:cut])

    past = read_journal(str(folder))

    whole = content[:cut].count(b"\n")
    assert (len(past.records) if past else 0) == whole
    if past is not None:
        journal = Journal.resume(past)
        journal.add("revert")
        again = read_journal(str(folder))
        assert again is not None
        assert [one["kind"] for one in again.records] == [*["begin", "files", "change"][:whole], "revert"]


@given(st.data())
def test_a_byte_that_somebody_changed_is_seen_or_ends_the_story(content: bytes, folder: Path, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(content) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda one: one != content[at]))
    (folder / JOURNAL).write_bytes(content[:at] + bytes([value]) + content[at + 1 :])

    try:
        past = read_journal(str(folder))
    except WorldError:
        return
    assert past is None or len(past.records) < 3


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        ((), "begun"),
        (("fetched", "files"), "begun"),
        (("files", "change"), "changing"),
        (("change", "saved", "installed"), "changing"),
        (("change", "commit"), "committed"),
        (("change", "revert"), "reverting"),
        (("change", "revert", "reverted"), "reverted"),
        (("change", "commit", "revert"), "reverting"),
        (("change", "revert", "left"), "broken"),
        (("change", "revert", "left", "revert", "reverted"), "reverted"),
        (("dropped",), "dropped"),
    ],
)
def test_the_state_is_that_of_the_last_word(tmp_path: Path, kinds: tuple[str, ...], state: str) -> None:
    journal = Journal(str(tmp_path), 1)
    journal.add("begin", **BEGIN)
    for kind in kinds:
        journal.add(kind)

    past = read_journal(journal.folder)

    assert past is not None
    assert past.state == state
    assert past.is_open == (state in ("changing", "reverting", "broken"))


@pytest.mark.parametrize(
    "said",
    [{"install": [["torch"]]}, {"install": "torch"}, {"install": [["torch", 2, None]]}, {"targets": "x"}, {"words": [1]}, {"folder": None}],
)
def test_a_beginning_that_nobody_can_read_is_refused(tmp_path: Path, said: dict[str, object]) -> None:
    journal = Journal(str(tmp_path), 1)
    journal.add("begin", **{**BEGIN, **said})

    with pytest.raises(WorldError, match="was modified"):
        read_journal(journal.folder)


def environment() -> Environment:
    scheme = {
        "purelib": "/env/lib/site-packages",
        "platlib": "/env/lib/site-packages",
        "scripts": "/env/bin",
        "data": "/env",
        "headers": "/env/include",
    }
    return Environment(python="/env/bin/python", version="3.11.1", prefix="/env", scheme=scheme)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/env/../etc/passwd",
        "/env",
        "/environment/x",
        "env/x",
        "/env//x",
        "/env/./x",
        "/env/\0x",
        "",
        "/env/x/",
        "/env/\ud800x",
    ],
)
def test_paths_elsewhere_are_not_believed(path: str) -> None:
    assert not environment().holds(path)
    with pytest.raises(WorldError):
        changed_packages(installed({"torch": path}), environment())


@pytest.mark.slow
@given(st.text(max_size=40))
def test_what_is_held_lies_inside(text: str) -> None:
    path = f"/env/{text}"

    if environment().holds(path):
        assert ".." not in path.split("/")
        assert path.startswith("/env/")


@pytest.mark.parametrize("which", ["cudnn-resolve", "environments/*"])
def test_a_folder_that_others_can_change_is_not_read(tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    journals = Journals(environment(), str(tmp_path / "cudnn-resolve"))
    journals.mark(())
    journals.open().add("begin", **BEGIN)
    assert len(journals.all()) == 1
    folder = next(tmp_path.glob(which if which == "cudnn-resolve" else f"cudnn-resolve/{which}"))

    folder.chmod(0o775)
    for read in (journals.all, journals.marked):
        with pytest.raises(WorldError, match="not a folder that only this user can change") as refused:
            read()
        assert f"chmod go-w {folder}" in (refused.value.hint or "")
        assert "remove" not in (refused.value.hint or "")
    folder.chmod(0o700)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises(WorldError, match="not a folder that only this user can change"):
        journals.all()


@pytest.mark.parametrize("value", [None, "x", [1], {"a": 1}])
def test_a_list_that_is_none(value: object) -> None:
    with pytest.raises(WorldError):
        changed_packages(installed(value), environment())


def test_the_oldest_journals_go_but_none_that_can_be_undone_or_is_open(tmp_path: Path) -> None:
    journals = Journals(environment(), str(tmp_path / "cudnn-resolve"))
    for number in range(1, KEPT_JOURNALS + 6):
        journal = journals.open()
        journal.add("begin", **{**BEGIN, "id": number, "prefix": environment().prefix})
        if number == 2:
            journal.add("files", save=[])
            journal.add("change")
        elif number < 8:
            journal.add("commit")
        else:
            journal.add("dropped")
    before = [one.id for one in journals.all()]
    journals.prune()
    left = [one.id for one in journals.all()]
    assert before == list(range(1, KEPT_JOURNALS + 6))
    assert left == [2, 5, *range(6, KEPT_JOURNALS + 6)]
    assert journals.newest() == KEPT_JOURNALS + 5


def test_what_was_fetched_for_a_journal_that_a_power_failure_took_along_goes(tmp_path: Path) -> None:
    journals = Journals(environment(), str(tmp_path / "cudnn-resolve"))
    lost = Path(journals.open().folder)
    for name in (STAGING, "saved"):
        (lost / name).mkdir()
        (lost / name / "file").write_text("x")
    journal = journals.open()
    journal.add("begin", **{**BEGIN, "id": journal.id, "prefix": environment().prefix})
    journal.add("commit")
    begun = Path(journals.open().folder)

    journals.prune()

    assert [one.name for one in lost.iterdir()] == ["saved"]
    assert list(begun.iterdir()), "the newest one may be at work"


def test_an_environment_may_lie_in_a_folder_whose_name_is_not_utf8(tmp_path: Path) -> None:
    prefix = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(prefix)
    journals = Journals(Environment(python="", version="", prefix=prefix, scheme={}), str(tmp_path / "state"))

    creation.begin(journals, ("--env", prefix), None, (prefix,))

    record = creation.creation_of(journals)
    assert record is not None
    assert (record.words, record.folders, record.by) == (("--env", prefix), (prefix,), None)
    creation.finish(journals, 1)
    finished = creation.creation_of(journals)
    assert finished is not None
    assert finished.by == 1
