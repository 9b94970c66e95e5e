"""What goes away while an apply works: memory, its journal, the environment itself."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.execution.recover import mark_path, undo
from cudnn_resolve.execution.run import carry_out
from cudnn_resolve.execution.task import Work
from tests.apply_world import ApplyWorld
from tests.watching import watching


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (OSError(errno.EIO, "Input/output error"), None, "could not be removed"),
        (MemoryError(), "memory", ""),
    ],
    ids=["disk", "memory"],
)
def test_a_folder_that_cannot_be_removed_leads_back(
    world: ApplyWorld, work: Work, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str | None, told: str
) -> None:
    former = world.former()
    real = os.rmdir
    failed: list[str] = []

    def rmdir(path: str, **more: Any) -> None:
        if str(path).endswith("/tensorflow_gpu") and not failed:
            failed.append(path)
            raise error
        real(path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", rmdir)
        done = carry_out(world.task(work.environment), work)

    assert failed
    assert done.trouble is not None
    assert (done.status, done.left) == ("reverted", ())
    assert code in (None, done.trouble.code)
    assert told in done.trouble.message
    assert world.former() == former


def test_a_journal_that_somebody_removes_meanwhile_is_no_all_clear(world: ApplyWorld, work: Work) -> None:
    def remove(kind: str) -> None:
        if kind == "saved":
            shutil.rmtree(world.state)

    with watching(remove):
        done = carry_out(world.task(work.environment), work)

    assert (done.status, done.exit_code) == ("broken", 5), done
    assert "the journal was removed" in done.left[0]
    assert Path(mark_path(work.environment)).is_file(), "who comes next sees that it is half changed"


def test_an_environment_that_somebody_moves_meanwhile_is_put_back_when_it_is_back(world: ApplyWorld, work: Work, tmp_path: Path) -> None:
    former = world.former()

    def move(kind: str) -> None:
        if kind == "saved":
            world.venv.rename(tmp_path / "moved")

    with watching(move):
        done = carry_out(world.task(work.environment), work)

    assert (done.status, done.exit_code) == ("broken", 5), done
    assert "was moved or made again" in done.left[0]
    shutil.rmtree(world.venv, ignore_errors=True)
    (tmp_path / "moved").rename(world.venv)
    back = undo(work, None)
    assert (back.left, world.former()) == ((), former), back
