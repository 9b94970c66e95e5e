"""What `apply` says of itself: text, JSON, history."""

from __future__ import annotations

import json

import pytest

from cudnn_resolve.execution.journal import PastApply
from cudnn_resolve.execution.model import Done, Execution, Trouble
from cudnn_resolve.report.apply import show_execution, show_history
from cudnn_resolve.report.document import encode_apply as encode
from cudnn_resolve.report.document import history
from tests.pages import text_of

TROUBLE = Trouble(message="uv failed: \x1b[31mred", code="installer-failed", hint="look")


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (Execution(status="nothing"), ["nothing to do"]),
        (Execution(status="done", id=3, steps=(Done(what="2 packages installed with uv", seconds=1.25),)), ["1.2 s", "apply --undo 3"]),
        (Execution(status="reverted", id=3, trouble=TROUBLE, log="/log.txt"), ["everything was put back", "hint: look", "/log.txt"]),
        (
            Execution(status="broken", id=3, trouble=TROUBLE, left=("a.py: in use",)),
            ["not everything", "left: a.py: in use", "apply --undo"],
        ),
        (Execution(status="reverted", trouble=TROUBLE, differences=("torch is 2.5.0, not 2.6.0",)), ["- torch is 2.5.0"]),
        (Execution(status="done", id=1, restart="restart the runtime: torch"), ["restart the runtime: torch"]),
        (
            Execution(status="interrupted", trouble=Trouble(message="interrupted (SIGINT)", code="interrupted")),
            ["before anything was changed"],
        ),
    ],
)
def test_text(done: Execution, said: list[str]) -> None:
    shown = text_of(show_execution, done)

    assert [one for one in said if one not in shown] == []
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_nothing_to_undo() -> None:
    done = text_of(show_execution, Execution(status="done", id=3), python="my env/bin/python")
    assert "`cudnn-resolve apply --undo 3 --python 'my env/bin/python'` undoes this apply" in done
    assert text_of(show_execution, Execution(status="nothing"), head="nothing to undo").startswith("nothing to undo\n")


def test_json_has_every_field_and_can_be_printed() -> None:
    told = encode(Execution(status="reverted", id=3, trouble=TROUBLE, left=("x",)), {"schema": "p"})

    assert json.loads(json.dumps(told)) == {
        "schema": "cudnn-resolve/apply/1",
        "status": "reverted",
        "id": 3,
        "installed": [],
        "removed": [],
        "steps": [],
        "differences": [],
        "left": ["x"],
        "notes": [],
        "use": [],
        "restart": None,
        "error": {"code": "installer-failed", "message": TROUBLE.message, "context": None, "hint": "look"},
        "log": None,
        "kept_bytes": 0,
        "plan": {"schema": "p"},
    }


def test_history() -> None:
    begin = {"kind": "begin", "at": "2026-11-21T12:00:00Z", "targets": ["torch"], "remove": ["old"]}
    install = [["torch", "2.6.0", None], ["numpy", "2.0.0", "1.26.4"]]
    apt = {"kind": "apt", "packages": [["libcudnn9-cuda-12", "9.3.0.75-1", None], ["same", "1", "1"]], "along": {"cudart": ["2", "1"]}}
    applies = [PastApply(folder="/j/000001", id=1, state="committed", records=({**begin, "install": install}, apt))]
    applies.append(PastApply(folder="/j/000002", id=2, state="changing", records=({**begin, "install": []},)))

    rows = history(applies, [1])

    assert [(row.id, row.state, row.can_undo) for row in rows] == [(2, "interrupted", False), (1, "committed", True)]
    assert list(rows[1].changes) == [
        "+ torch 2.6.0",
        "numpy 1.26.4 -> 2.0.0",
        "- old",
        "+ libcudnn9-cuda-12 9.3.0.75-1 (apt)",
        "cudart 1 -> 2 (apt)",
    ]
    assert history(applies, [1], is_running=True)[0].state == "at work"
    undone = PastApply(folder="/j/000001", id=1, state="reverted", records=({**begin}, {"kind": "revert", "why": "undo"}))
    assert [row.state for row in history([undone], [])] == ["undone"]
    assert "can no longer be undone" in text_of(show_history, history(applies, []))
    assert text_of(show_history, []) == "no apply has run in this environment\n"
