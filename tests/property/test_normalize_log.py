"""A log says the same in whatever form it was pasted, and its lines keep their numbers."""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_resolve.diagnosis.normalize_log import formed
from tests.examples import examples
from tests.written_logs import judged

LOG = [
    "Traceback (most recent call last):",
    '  File "/opt/app/train.py", line 12, in <module>',
    "    import torch",
    (
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (8, 7, 0) but found runtime version (8, 2, 4). "
        "PyTorch already comes bundled with cuDNN. One option to resolving this error is to ensure PyTorch can find the bundled cuDNN."
    ),
]
FORMS: dict[str, Callable[[str], str]] = {
    "quoted": lambda line: f"> {line}",
    "entities": html.escape,
    "docker": lambda line: f"2026-01-05T10:20:30.123456789Z {line}",
    "kubernetes": lambda line: f"2026-01-05T10:20:30.123456789Z stderr F {line}",
    "compose": lambda line: f"trainer-1  | {line}",
    "journal": lambda line: f"Jan 05 10:20:30 node17 train[4711]: {line}",
    "rank": lambda line: f"[rank3]: {line}",
    "json": lambda line: json.dumps({"log": line + "\n", "stream": "stderr"}),
    "json of another logger": lambda line: json.dumps({"level": "error", "msg": line}),
    "logfmt": lambda line: f"time=2026-01-05T10:20:30.123Z level=ERROR source=server.go:12 msg={json.dumps(line)}",
    "json in docker": lambda line: f"2026-01-05T10:20:30.123456789Z {json.dumps({'message': line})}",
    "continuous integration": lambda line: f"2026-01-05T10:20:30.1234567Z {line}",
    "colours": lambda line: f"\x1b[31m{line}\x1b[0m",
    "cut at 80": lambda line: "\n".join(line[at : at + 80] for at in range(0, len(line), 80)),
    "cut at 100": lambda line: "\n".join(line[at : at + 100] for at in range(0, len(line), 100)),
    "wrapped at 80": lambda line: "\n".join(textwrap.wrap(line, 80, break_long_words=False, replace_whitespace=False)),
    "wrapped at 72, quoted": lambda line: "\n".join(f"> {one}" for one in textwrap.wrap(line, 72, break_long_words=False)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_log_is_understood_in_any_form(form: str) -> None:
    told = judged("".join(FORMS[form](line) + "\n" for line in LOG)).findings
    assert told[0].cause == "ld_path_shadowing"
    assert "(8, 7, 0)" in told[0].summary or "8.7" in told[0].summary
    assert [one.line for one in told[0].evidence] == [4]


def test_a_traceback_in_one_string_is_read_line_by_line() -> None:
    told = judged(json.dumps({"level": "error", "exception": "\n".join(LOG)})).findings
    assert told[0].cause == "ld_path_shadowing"
    assert told[0].evidence[0].line == 1


@settings(max_examples=examples(60))
@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r\x1f"), max_size=200), max_size=30))
def test_lines_keep_their_numbers(lines: list[str]) -> None:
    found = formed("\n".join(lines))
    assert found.numbers == sorted(found.numbers)
    assert not lines or found.numbers[-1] <= len(lines)


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(["a" * 40, "b" * 60, "word another", "", "x" * 79 + "y"]), max_size=12))
def test_nothing_is_lost_where_lines_are_joined(lines: list[str]) -> None:
    assert sorted("".join(formed("\n".join(lines)).text.split())) == sorted("".join("".join(lines).split()))
