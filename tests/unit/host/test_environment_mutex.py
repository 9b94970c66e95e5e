"""The hold on an environment."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from cudnn_resolve.host.environment_mutex import hold


def test_one_holds_it_at_a_time(tmp_path: Path) -> None:
    first = hold(str(tmp_path))
    assert first is not None
    assert first.is_locked
    assert hold(str(tmp_path)) is None
    first.release()
    second = hold(str(tmp_path))
    assert second is not None
    second.release()


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_handle: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    found = hold(str(tmp_path))
    assert found is not None
    assert not found.is_locked
    found.release()
