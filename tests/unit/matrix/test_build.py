"""Compiled tables become rows, and a row becomes what TOML would hold, and that the same row again."""

from __future__ import annotations

from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import NODEFAULT

from cudnn_resolve.matrix import column as kinds
from cudnn_resolve.matrix import row as rows
from cudnn_resolve.matrix.build import Builder, Given, defaults_of, render
from cudnn_resolve.matrix.column import Kind
from cudnn_resolve.matrix.pack import pack, unpack
from cudnn_resolve.matrix.parse import compile_table, decode
from cudnn_resolve.matrix.table import TABLES, Form, TableForm
from cudnn_resolve.version import Capability, CudaVersion, CudnnVersion

NUMBER = st.integers(0, 99)
WORD = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "TEXT": st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=20),
    "FLAG": st.booleans(),
    "COUNT": st.integers(0, 10**9 - 1),
    "NUMBER": st.floats(0, 10**6) | NUMBER,
    "DATE": st.dates().map(lambda day: day.isoformat()),
    "VERSION": st.tuples(NUMBER, NUMBER).map(lambda parts: f"{parts[0]}.{parts[1]}"),
    "SPECIFIER": NUMBER.map(lambda number: f">={number}"),
    "REQUIREMENT": st.tuples(WORD, NUMBER).map(lambda parts: f"{parts[0]}<{parts[1]}"),
    "BRANCH": st.integers(100, 9999),
    "URL": WORD.map(lambda word: f"https://{word}.example/"),
    "DIRECTORY": WORD.map(lambda word: f"nvidia/{word}/lib"),
    "PACKAGE": WORD,
    "IDENTIFIER": WORD,
    "GLIBC": NUMBER.map(lambda number: f"2.{number}"),
    "PYTHON": NUMBER.map(lambda number: f"cp3{number}"),
    "LINE": st.tuples(NUMBER, NUMBER).map(lambda parts: f"{parts[0]}.{parts[1]}"),
    "CUDA_LINE": st.tuples(NUMBER, NUMBER).map(lambda parts: f"{parts[0]}.{parts[1]}"),
    "CAPABILITY": st.tuples(st.integers(1, 12), st.integers(0, 9)).map(lambda parts: f"{parts[0]}.{parts[1]}"),
    "TARGET": st.tuples(st.sampled_from(["sm", "compute"]), st.integers(10, 129), st.sampled_from(["", "a", "f"])).map(
        lambda parts: f"{parts[0]}_{parts[1]}{parts[2]}"
    ),
    "CUDA": st.tuples(NUMBER, NUMBER, NUMBER).map(lambda parts: ".".join(map(str, parts))),
    "CUDNN": st.tuples(NUMBER, NUMBER, NUMBER, NUMBER).map(lambda parts: ".".join(map(str, parts))),
    "DRIVER": st.tuples(NUMBER, NUMBER).map(lambda parts: f"{parts[0]}.{parts[1]:02}"),
    "SONAMES": st.dictionaries(WORD, WORD, max_size=3).map(lambda pairs: [list(pair) for pair in pairs.items()]),
    "MESSAGE": WORD,
    "LINES": WORD.map(lambda word: f"{word}\n{word}"),
    "PERCENT": st.integers(0, 100),
    "COMPARISON": WORD.map(lambda word: f"{word} < other"),
    "APT_PATTERN": WORD.map(lambda word: f"{word}-{{major}}-{{minor}}"),
}
BY_NAME = {kind.name: PLAIN[name] for name, kind in vars(kinds).items() if isinstance(kind, Kind) and name in PLAIN}
FORMS = [
    (table, form)
    for table in TABLES.values()
    for form in (*table.arrays, *([table.head] if table.head else ()))
    if not table.name.startswith("wheel")
]


def strategy(kind: Kind) -> st.SearchStrategy[Any]:
    if kind.each is not None:
        return st.lists(strategy(kind.each), max_size=3)
    if kind.name.startswith("one of "):
        return st.sampled_from(kind.name.removeprefix("one of ").split(", "))
    return BY_NAME[kind.name]


def plain_rows(form: Form) -> st.SearchStrategy[dict[str, Any]]:
    columns = [one for one in form.columns if one.field != "source"]
    needed = {one.field: strategy(one.kind) for one in columns if one.required}
    others = {one.field: strategy(one.kind) for one in columns if not one.required}
    if form.expands:
        needed["version"] = st.lists(PLAIN["VERSION"], min_size=1, max_size=1)
        needed |= {name: others.pop(name) for name in ("package", "index", "wheel_version") if name in others}
        others.pop("local")
    return st.fixed_dictionaries(needed, optional=others)


ROWS_OF = {id(form): plain_rows(form) for _, form in FORMS}


@pytest.mark.parametrize(("table", "form"), FORMS, ids=[f"{table.name}-{form.array}" for table, form in FORMS])
@settings(max_examples=40)
@given(data=st.data())
def test_a_row_written_as_toml_is_the_same_row(table: TableForm, form: Form, data: st.DataObject) -> None:
    extra = {"framework": "alpha"} if form.type is rows.Build else {}
    given_ = Given(fields={**extra, "source": ["docs"]})
    plain = data.draw(ROWS_OF[id(form)])
    derived = form.derive(plain) if form.derive is not None else {}
    [(_, row)] = Builder().rows(form, pack([plain | derived]), given=given_)
    shown = render(form, row)
    raw: dict[str, Any] = {"origin": "authored", "source": {"docs": {"where": "here", "read": "2026-01-01"}}}
    stem = "alpha"
    if form is table.head:
        stem = shown["name"]
        raw[form.array] = shown
        raw["build"] = [{"version": "1", "variant": "cpu"}]
    else:
        raw[form.array] = [shown]
    if table.name == "framework/*" and form is not table.head:
        raw["framework"] = {"name": "alpha", "title": "Alpha", "packages": ["alpha"], "source": "docs"}
    compiled, faults = compile_table(table.name.replace("*", stem), decode(tomli_w.dumps(raw)), file="x")
    assert faults == ()
    packed = pack([compiled["head"]]) if form is table.head else compiled["rows"][form.array]
    assert [one for _, one in Builder().rows(form, packed, given=given_)] == [row]


def test_every_column_has_a_field_and_every_optional_one_a_default() -> None:
    for table, form in FORMS:
        known = defaults_of(form.type)
        for column in form.columns:
            if column.field not in known:
                assert form.expands
                assert column.field == "local"
            elif not column.required and not form.expands:
                assert known[column.field] is not NODEFAULT, f"{table.name} {form.array} {column.field}"


def test_the_key_of_every_table_is_made_of_columns() -> None:
    for table in TABLES.values():
        for form in table.arrays:
            assert form.key
            for field in form.key + form.apart:
                assert form.column(field).field == field
    with pytest.raises(KeyError):
        TABLES["gpu/card"].form("cards")
    with pytest.raises(KeyError):
        TABLES["gpu/card"].form("card").column("price")


BUILD = TABLES["framework/*"].form("build")
EXTRA = TABLES["framework/*"].form("release")


def build(plain: dict[str, Any], given_: Given | None = None) -> list[rows.Build]:
    defaults = {"framework": "alpha", "package": "alpha", "index": "default", "wheel_version": None}
    return [one for _, one in Builder().rows(BUILD, pack([plain]), given=given_ or Given(fields=defaults, dates={"1.0": "2020-01-01"}))]


def test_a_build_is_made_for_each_version_that_a_row_lists() -> None:
    one, other = build(
        {"version": ["1.0", "2.0"], "variant": "cu118", "local": "cu118", "cuda": "11.8", "cudnn": "9.1.0", "targets": ["sm_75"]}
    )
    assert (one.version, one.wheel_version, one.date) == ("1.0", "1.0+cu118", "2020-01-01")
    assert (other.version, other.wheel_version, other.date) == ("2.0", "2.0+cu118", None)
    assert one.framework == other.framework == one.package == "alpha"
    assert one.index == "default"
    assert one.cuda == CudaVersion("11.8")
    assert one.cudnn == CudnnVersion("9.1.0")
    assert one.cuda is other.cuda
    assert one.targets[0].capability == Capability(7, 5)
    assert (one.pythons, one.requires, one.delivery, one.yanked) == ((), None, "none", False)


def test_what_a_build_writes_itself_wins() -> None:
    [one] = build(
        {"version": ["1.0"], "variant": "cpu", "wheel_version": "1.0.post1", "date": "2021-01-01", "package": "beta", "index": "x"}
    )
    assert (one.wheel_version, one.date, one.package, one.index) == ("1.0.post1", "2021-01-01", "beta", "x")


def test_a_release_elsewhere_carries_its_local_part_in_its_version() -> None:
    found = Builder().rows(EXTRA, pack([{"version": ["1", "2"], "local": "cu118", "package": "vision", "index": "x"}]))
    assert [(place, one.version, one.package) for place, one in found] == [(0, "1+cu118", "vision"), (0, "2+cu118", "vision")]


def test_rows_of_an_overlay_cite_their_own_sources() -> None:
    form = TABLES["index"].form("index")
    plain: list[dict[str, Any]] = [
        {"id": "a", "url": "https://a", "kind": "simple", "source": ["docs"]},
        {"id": "b", "url": "https://b", "kind": "simple"},
    ]
    found = Builder().rows(form, pack(plain), prefix="overlay-1:")
    assert [one.source for _, one in found] == [("overlay-1:docs",), ()]


def test_rows_that_remove_are_told_apart() -> None:
    form = TABLES["index"].form("index")
    packed = pack([{"id": "a", "remove": True}, {"id": "b", "url": "https://b", "kind": "simple"}])
    assert [(place, one.id) for place, one in Builder().rows(form, packed)] == [(1, "b")]
    assert Builder().removals(form, packed) == [(0, {"id": ["a"]})]


ROWS = st.lists(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.integers() | st.text() | st.booleans() | st.lists(st.text(), max_size=2) | st.dictionaries(st.text(), st.integers(), max_size=2),
    )
)


@given(ROWS)
def test_packed_rows_are_the_same_rows(plain: list[dict[str, Any]]) -> None:
    packed = pack(plain)
    assert unpack(packed) == plain
    assert [[type(value) for value in row.values()] for row in unpack(packed)] == [
        [type(row[name]) for name in packed["columns"] if name in row] for row in plain
    ]
