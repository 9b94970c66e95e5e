"""Each rule of the symptom tables with a row that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_resolve.host.tables import open_book
from cudnn_resolve.matrix import symptom_rules

ROW = {
    "id": '"own-row"',
    "pattern": '"something rare of {found:cudnn}"',
    "anchor": '"something rare"',
    "role": '"proves"',
    "cause": '"cudnn_missing"',
    "sample": '"something rare of 9.1.0"',
}


def faults(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "symptom").mkdir()
    (tmp_path / "symptom" / "own.toml").write_text(text, "utf-8")
    book = open_book((str(tmp_path),))
    return [str(fault) for rule in symptom_rules.RULES for fault in rule(book)]


def row(**changes: str) -> str:
    return "[[symptom]]\n" + "".join(f"{name} = {value}\n" for name, value in (ROW | changes).items())


@pytest.mark.slow
def test_a_row_that_is_right(tmp_path: Path) -> None:
    assert not faults(tmp_path, row())


WRONG = [
    (row(sample='"something rare"'), "matches none of the patterns"),
    (
        row(pattern=r"'\101bcd of {found:cudnn}'", anchor='"bcd of"', sample='"Abcd of 9.1.0"'),
        "lacks a text that its pattern seems to need",
    ),
    (row(anchor='"something else"'), "none is in sample[0]"),
    (row(anchor='"Something rare"'), "is not in lower case"),
    (row(pattern='"A1 {found:cudnn}"', anchor='"a1 "', sample='"A1 9.1.0"'), "no word of three letters"),
    (row(cause='"bad_luck"'), "bad_luck is not a [[cause]]"),
    (row(summary='"cuDNN {wanted}"'), "{wanted} is not a field"),
    (row(when='"wanted < found"'), "wanted is not a field"),
    (row(needs='"moonlight"'), "moonlight is not a feature of any row"),
    (row(id='"error-803"'), "error-803 is already in"),
    (row(versions='"<2"'), "need a framework"),
    ('[[remedy]]\ncause = "bad_luck"\nid = "x"\ntext = "wait"\n', "bad_luck is not a [[cause]]"),
    ('[[remedy]]\ncause = "harmless"\nid = "x"\ntext = "wait"\ncommand = "run {moon}"\n', "{moon} is not a field of any pattern or clue"),
    ('[[cause]]\nid = "bad_end"\ntitle = "x"\nseverity = "error"\nsummary = "x"\n', "bad_end has no [[remedy]]"),
    ('[[cause]]\nid = "harmless"\ntitle = "x"\nseverity = "info"\nsummary = "x"\nexplains = ["none"]\n', "none is not a [[cause]]"),
]
"""Rows that each break a table_rules, and what is said of them."""


@pytest.fixture(scope="module")
def every_fault(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The faults of all of them in one table, each row under an id of its own."""
    texts = [
        text.replace('"own-row"', f'"own-row-{number}"').replace('id = "x"', f'id = "x{number}"') for number, (text, _) in enumerate(WRONG)
    ]
    return faults(tmp_path_factory.mktemp("wrong"), "".join(texts))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_row_that_is_wrong(number: int, every_fault: list[str]) -> None:
    text, said = WRONG[number]
    before = sum("[[symptom]]" in one for one, _ in WRONG[:number])
    place = f"symptom[{before}]" if "[[symptom]]" in text else ""
    assert any(said in fault and place in fault for fault in every_fault), every_fault


def test_a_symptom_of_ones_own_needs_no_code(tmp_path: Path) -> None:
    from cudnn_resolve.diagnosis.diagnose import diagnose
    from cudnn_resolve.diagnosis.match import Reader

    (tmp_path / "symptom").mkdir()
    (tmp_path / "symptom" / "own.toml").write_text(
        row(cause='"hardware_fault"', weight="99", summary='"the rare thing of {found}"'), "utf-8"
    )
    book = open_book((str(tmp_path),))
    found = diagnose(Reader(book.symptoms()).read([b"now something rare of 9.1.0 came\n"]), None, book).findings
    assert (found[0].cause, found[0].summary) == ("hardware_fault", "the rare thing of 9.1.0")
