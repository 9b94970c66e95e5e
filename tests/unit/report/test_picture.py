"""The picture of ranges, and the page of a result."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cudnn_resolve.report import html_page, picture

SVG = "{http://www.w3.org/2000/svg}"


def one_range(**changes: Any) -> dict[str, Any]:
    bars = [
        {"who": "torch 2.6.0", "wants": "cuDNN >= 9.1", "because": "it is built with 9.1", "spans": [["9.1", "9.4"]]},
        {"who": "tensorflow 2.18.0", "wants": "cuDNN >= 9.3", "because": "", "spans": [["9.3", "9.4"]]},
    ]
    return {"name": "cuDNN", "versions": ["8.9", "9.1", "9.2", "9.3", "9.4"], "chosen": "9.3", "bars": bars, **changes}


def test_the_line_of_what_is_chosen_goes_through_every_bar() -> None:
    drawn = ET.fromstring(picture.svg([one_range()]))  # noqa: S314 - our own

    line = float(next(drawn.iter(f"{SVG}line")).attrib["x1"])
    bars = [one for one in drawn.iter(f"{SVG}rect") if one.attrib.get("rx")]
    assert len(bars) == 2
    assert all(float(one.attrib["x"]) < line < float(one.attrib["x"]) + float(one.attrib["width"]) for one in bars)


def test_bars_that_do_not_meet_are_said_in_words_and_for_a_screen_reader() -> None:
    conflict = one_range(chosen=None)
    conflict["bars"][0]["spans"] = [["8.9", "9.1"]]

    drawn = picture.svg([conflict])

    assert "no common version" in drawn
    assert "torch 2.6.0 allows 8.9 to 9.1; tensorflow 2.18.0 allows 9.3 to 9.4" in ET.fromstring(drawn).attrib["aria-label"]  # noqa: S314 - our own


def test_a_party_that_allows_nothing_has_no_bar() -> None:
    empty = one_range()
    empty["bars"][1]["spans"] = []

    assert picture.svg([empty]).count("none of these") == 3  # beside the bar, and twice in words


def test_no_ranges_are_no_picture() -> None:
    assert picture.render([]) == ""
    assert "<svg" in picture.svg([])


HOSTILE = "</title></svg><script>alert(1)</script>\"'&"


def test_texts_of_a_picture_are_escaped() -> None:
    bad = one_range(name=HOSTILE)
    bad["bars"][0] |= {"who": HOSTILE, "wants": HOSTILE, "because": HOSTILE}

    drawn = picture.render([bad])

    assert "<script" not in drawn
    ET.fromstring(drawn)  # noqa: S314 - our own


@pytest.mark.parametrize(
    "result",
    [
        {"schema": "cudnn-resolve/plan/1", "status": "ok", "targets": [HOSTILE], "stack": {"cuda": HOSTILE}, "command": HOSTILE},
        {"schema": "cudnn-resolve/plan/1", "status": "unsatisfiable", "targets": [], "conflict": {"message": HOSTILE, "causes": []}},
        {"schema": "cudnn-resolve/check/1", "verdicts": [{"what": HOSTILE, "machine": HOSTILE, "status": "breaks", "frameworks": []}]},
        {"schema": "cudnn-resolve/doctor/1", "findings": [{"severity": "error", "cause": "x", "summary": HOSTILE, "evidence": []}]},
        {"schema": "cudnn-resolve/validate/1", "status": "failed", "checks": [{"status": "failed", "id": HOSTILE, "detail": HOSTILE}]},
    ],
)
def test_a_page_needs_nothing_but_itself_and_runs_nothing_of_its_texts(result: dict[str, Any]) -> None:
    drawn = html_page.render(result, "1.0")

    assert drawn.startswith("<!doctype html>")
    assert drawn.count("<script>") == 1
    assert "<script>alert" not in drawn
    assert not re.search(r"(?:src|href)=|url\(|@import", drawn)
    assert "default-src 'none'" in drawn


def test_the_verdict_of_check_stands_first_in_its_page() -> None:
    verdict = {
        "what": "uv.lock",
        "machine": "colab-t4",
        "status": "breaks",
        "frameworks": [{"name": "torch", "version": "2.6.0", "status": "breaks"}],
        "findings": [{"severity": "error", "cause": "cudnn", "summary": "cuDNN is too old", "evidence": [], "remedy": []}],
        "remedy": [{"text": "take the newer one", "command": "uv add nvidia-cudnn-cu12==9.3.0.75"}],
        "not_judged": ["mystery"],
    }

    drawn = html_page.render({"schema": "cudnn-resolve/check/1", "verdicts": [verdict]}, "1.0")

    said = ["uv.lock on colab-t4: will not run", "cuDNN is too old", "uv add nvidia-cudnn-cu12==9.3.0.75", "not judged: mystery"]
    assert [drawn.index(one) for one in said] == sorted(drawn.index(one) for one in said)


def test_a_picture_is_there_for_screens_of_either_width() -> None:
    wide, narrow = (ET.fromstring(one) for one in re.findall("<svg.*?</svg>", picture.render([one_range()])))  # noqa: S314 - our own

    assert int(wide.attrib["width"]) > 800
    assert int(narrow.attrib["width"]) < 320
    assert narrow.attrib["aria-label"] == wide.attrib["aria-label"]
    assert len([one for one in narrow.iter(f"{SVG}rect") if one.attrib.get("rx")]) == 2


def test_an_image_alone_is_legible_on_either_background() -> None:
    assert "prefers-color-scheme:dark" in picture.svg([one_range()])
    assert "<style>" not in picture.render([one_range()])


def test_a_lock_as_a_page_has_its_packages_with_their_reasons_and_what_changed() -> None:
    lock = {
        "schema": "cudnn-resolve/lock/1",
        "status": "ok",
        "path": "pylock.toml",
        "packages": [{"name": "torch", "version": "2.6.0", "because": ["it was asked for"]}],
        "changes": [{"name": "torch", "action": "upgraded", "old": "2.5.0", "new": "2.6.0"}],
        "ranges": [one_range()],
    }

    drawn = html_page.render(lock, "0")

    assert "<td>torch</td><td>2.6.0</td><td>it was asked for</td>" in drawn
    assert "<td>upgraded</td><td>2.5.0</td><td>2.6.0</td>" in drawn
    assert "9.3 chosen" in drawn
    assert "uv pip sync pylock.toml" in drawn
