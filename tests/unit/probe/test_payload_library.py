"""What the payload that asks the driver decides by itself; what it asks is tested with stand-ins in tests/functional."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from cudnn_resolve.probe import payload_library
from cudnn_resolve.probe.payload_library import (
    LIBRARY_DIRECTORIES,
    Child,
    asking,
    candidates_for,
    gather,
    how_ended,
    mapped,
    parse_answers,
    words,
)

Tell = Callable[[str, Any], None]


def test_the_loaders_own_search_comes_first_and_every_mount_after_it() -> None:
    places = candidates_for("libcuda.so.1", LIBRARY_DIRECTORIES)

    assert places[0] == "libcuda.so.1"
    expected = ["/usr/lib64-nvidia", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", f"/usr/lib/{os.uname().machine}-linux-gnu"]
    found = [places.index(f"{directory}/libcuda.so.1") for directory in expected]
    assert found == sorted(found)


def test_what_was_told_before_a_line_broke_off_counts() -> None:
    raw = b'["cuda", 12040]\n["gpu", {"name": "A"}]\n["gpu", {"name": "B"}]\n["lost", [2, 15, "x"]]\n["driver", "550'

    assert parse_answers(raw) == {"cuda": 12040, "gpus": [{"name": "A"}, {"name": "B"}], "lost": [[2, 15, "x"]], "checks": {}}


def test_control_characters_do_not_reach_the_screen() -> None:
    assert words(b"\x1b[31mTesla\xff T4\n") == "?[31mTesla\ufffd T4?"
    assert len(words(b"x" * 1000)) == 200


def test_a_library_that_is_not_mapped_is_not_seen() -> None:
    assert mapped("libno-such-library.so.1") is None


def hang(places: list[str], tell: Tell) -> None:
    tell("cuda", len(places))
    signal.pause()


def flood(places: list[str], tell: Tell) -> None:
    while places:
        tell("gpu", "x" * 1000)


def fail(places: list[str], tell: Tell) -> None:
    tell("cuda", 1 // len(places))


@pytest.mark.slow
def test_children_are_gathered_in_time_whatever_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_library, "MOST_BYTES", 100_000)
    before = time.monotonic()

    answers = gather({"hang": asking(hang, ["a"]), "flood": asking(flood, ["a"]), "fail": asking(fail, [])}, 1.5)

    assert time.monotonic() - before < 10
    assert (answers["hang"]["ended"], answers["hang"]["cuda"]) == ("time", 1)
    assert answers["flood"]["ended"] in ("exit", "time")
    assert (answers["fail"]["failed"], answers["fail"]["ended"]) == ("ZeroDivisionError: integer division or modulo by zero", "exit")
    assert len(json.dumps(answers)) < 200_000


def test_a_child_for_which_no_time_is_left_has_no_answer() -> None:
    assert gather({"late": asking(hang, ["a"])}, 0.0) == {}


def test_the_end_of_a_child_is_named() -> None:
    child = Child(lambda _pipe: os.kill(os.getpid(), signal.SIGTERM))

    assert how_ended(child.process, 5.0) == "SIGTERM"
