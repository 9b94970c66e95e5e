"""Tables are checked column by column; every fault of a file is said at once, with its place."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from cudnn_resolve.matrix.parse import compile_table
from cudnn_resolve.matrix.table import TABLES, arrays_of, decode_part, encode, plain, table_type
from cudnn_resolve.matrix.toml import decode
from cudnn_resolve.version import Capability
from tests.unit.matrix.test_value import ANYTHING
from tests.unit.matrix.toy import HEAD, WORLD

CARD = '{name = "T4", capability = "7.5", class = "datacenter", source = "docs"}'


def faults(name: str, text: str, *, overlay: bool = False) -> list[str]:
    return [str(fault) for fault in compile_table(name, decode(text), file="m/x.toml", overlay=overlay)[1]]


@pytest.mark.parametrize("name", sorted(WORLD))
def test_the_toy_tables_are_right(name: str) -> None:
    assert faults(name, WORLD[name]) == []


def test_every_fault_of_a_file_is_said_at_once() -> None:
    text = (
        HEAD
        + """
        answer = 42
        [[build]]
        version = "9.x"
        cuda_major = 12
        soname = 9
        capability = ["7.5", "7_5"]
        cuda_biult = "12.4"
        apt = {package = "libcudnn9-cuda-12", versoin = "9"}
        source = ["docs", "nowhere"]
        [[build]]
        version = "9.1.0.70"
        cuda_major = "12"
        soname = 9
        """
    )
    assert faults("cudnn/release", text) == [
        "m/x.toml: build[0].version: '9.x' is not a cuDNN version such as 9.3.0.75",
        "m/x.toml: build[0].capability: entry 1: '7_5' is not a compute capability such as 7.5",
        "m/x.toml: build[0].cuda_biult: is not a column; did you mean cuda_built?",
        "m/x.toml: build[0].apt.versoin: is not a column; did you mean version?",
        "m/x.toml: build[0].source: 'nowhere' is not one of the [source.ID] tables of this file",
        "m/x.toml: build[1].cuda_major: '12' is not a whole number, 0 or more",
        "m/x.toml: build[1].source: is missing: every row needs a source",
        "m/x.toml: answer: is not part of this table",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("card = []", "m/x.toml: origin: is missing; expected one of authored, harvested"),
        ('origin = "guessed"', "m/x.toml: origin: 'guessed' is not one of authored, harvested"),
        ('origin = "harvested"', "m/x.toml: script: is missing; expected a string"),
        ('origin = "authored"', "m/x.toml: holds no rows"),
        ("card = 3", "m/x.toml: card: is not an array of tables [[card]] of at most 50000 rows"),
        ("card = [3]", "m/x.toml: card[0]: 3 is not a table of columns"),
        ('[[cards]]\nname = "T4"', "m/x.toml: cards: is not part of this table; did you mean card?"),
        ('source = "docs"', "m/x.toml: source: 'docs' is not a set of tables [source.ID]"),
        ("source.docs = 3", "m/x.toml: source.docs: 3 is not a table"),
        ('source.docs = {where = "x"}', "m/x.toml: source.docs.read: is missing; expected a date such as 2026-11-21"),
        ("source.docs = {url = 3}", "m/x.toml: source.docs.url: is not a column"),
        (
            "source.one = {where = 'x', read = 2026-01-01, default = true}\nsource.two = {where = 'x', read = 2026-01-01, default = true}",
            "m/x.toml: source.two.default: is set twice: one source is that of rows that name none",
        ),
        (
            '[source.cuda-12.4]\nwhere = "x"\nread = 2026-01-01',
            'm/x.toml: source.cuda-12.4: is not a column; write an id with a dot as [source."cuda-12.4"]',
        ),
        ('"a b" = 1', "m/x.toml: 'a b': is not part of this table"),
        ('"\\u001b[31m" = 1', r"m/x.toml: '\x1b[31m': is not part of this table"),
        ('[[card]]\nremove = true\nname = "T4"', "m/x.toml: card[0].remove: is not a column"),
    ],
)
def test_shape_of_a_file(text: str, fault: str) -> None:
    assert fault in faults("gpu/card", text)


def test_a_row_without_a_source_has_the_default_of_its_file() -> None:
    head = HEAD.replace("2026-01-31}", "2026-01-31, default = true}\nsource.seen = {where = 'x', read = 2026-01-31}")
    rows = [CARD.replace(', source = "docs"', ""), CARD.replace("T4", "L4").replace('"docs"', '"seen"')]
    table, found = compile_table("gpu/card", decode(f"{head}card = [{', '.join(rows)}]\n"), file="m/x.toml")

    assert found == ()
    assert [card["source"] for card in plain(table)["card"]] == [["docs"], ["seen"]]


def test_a_name_in_a_file_is_that_of_the_file() -> None:
    assert faults("wheel/alpha", WORLD["wheel/beta"])[0] == "m/x.toml: package: 'beta' is not the name of its file, alpha.toml"
    assert "m/x.toml: framework.name: 'beta' is not the name of its file, alpha.toml" in faults("framework/alpha", WORLD["framework/beta"])


def test_what_releases_share_is_in_the_file() -> None:
    text = WORLD["wheel/beta"].replace("metadata = 1", "metadata = 1, files = 7").replace("{id = 1}", "{id = 1, requires = [0, 1]}")
    assert faults("wheel/beta", 'lines = ["numpy"]\n' + text) == [
        "m/x.toml: release[0].files: 7 is not the id of a [[files]] entry of this file",
        "m/x.toml: metadata[0].requires: 1 is not the position of one of the lines of this file",
    ]


def test_metadata_of_a_release_is_in_the_file() -> None:
    text = WORLD["wheel/beta"].replace("metadata = 1", "metadata = {x86_64 = 1, aarch64 = 7}")
    assert faults("wheel/beta", text) == ["m/x.toml: release[0].metadata: 7 is not the id of a [[metadata]] entry of this file"]


def test_tags_of_one_platform_are_one_text() -> None:
    text = WORLD["wheel/beta"].replace('"py3-none-any"', '"cp39-cp39-any", "cp27-cp27mu cp312 cp313-cp313t-linux_x86_64", "sdist"')
    table: Any = compile_table("wheel/beta", decode(text), file="m/x.toml")[0]
    assert table.release[0].tags == (
        "cp39-cp39-any",
        "cp27-cp27mu-linux_x86_64",
        "cp312-cp312-linux_x86_64",
        "cp313-cp313t-linux_x86_64",
        "sdist",
    )
    assert faults("wheel/beta", text.replace('"sdist"', "3")) == ["m/x.toml: release[0].tags: entry 2: 3 is not a string"]


def test_a_row_of_a_wheel_table_lists_releases_with_their_days() -> None:
    days = WORLD["wheel/beta"].replace('version = "0.1"', 'version = ["0.1", "0.2"], date = [2024-04-03, 2024-05-03]')
    assert days != WORLD["wheel/beta"]
    assert faults("wheel/beta", days) == []
    assert faults("wheel/beta", days.replace("2024-04-03, ", "")) == [
        "m/x.toml: release[0].date: is not a list of 2 days, one for each version"
    ]


def test_an_overlay_may_leave_out_what_the_table_below_says() -> None:
    assert faults("gpu/card", f"card = [{CARD}]".replace(', source = "docs"', ""), overlay=True) == []
    assert faults("framework/alpha", '[[build]]\nversion = "3"\nvariant = "cpu"', overlay=True) == []
    assert faults("gpu/card", 'card = [{remove = true, name = "T4"}]', overlay=True) == []
    assert faults("framework/alpha", '[[build]]\nversion = "3"', overlay=True) == ["m/x.toml: build[0].variant: is missing; expected " + ID]
    assert faults("gpu/card", "card = [{remove = true}]", overlay=True) == ["m/x.toml: card[0].name: is missing; expected a string"]
    assert "m/x.toml: card[0].remove: 'yes' is not true or false" in faults("gpu/card", 'card = [{remove = "yes"}]', overlay=True)


ID = "an id made of letters, digits and . _ + : / -"


def test_columns_of_a_removing_row_are_checked_all_the_same() -> None:
    text = 'card = [{remove = true, name = "T4", capability = "x"}]'
    assert faults("gpu/card", text, overlay=True) == ["m/x.toml: card[0].capability: 'x' is not a compute capability such as 7.5"]


@pytest.mark.parametrize("name", sorted(WORLD))
def test_a_table_is_the_same_as_message_pack_and_as_toml_again(name: str) -> None:
    table, _ = compile_table(name, decode(WORLD[name]), file="x")
    assert decode_part(type(table), encode(table)) == table
    raw: dict[str, Any] = {array: plain(getattr(table, array)) for array in arrays_of(name)}
    for row in raw.get("build", ()):
        row.pop("framework", None)
    head = {key: value for key, value in decode(WORLD[name]).items() if key not in raw}
    again, found = compile_table(name, decode(tomli_w.dumps(head | raw)), file="x")
    assert not found
    assert all(getattr(again, array) == getattr(table, array) for array in arrays_of(name))


def test_rows_may_share_columns() -> None:
    shared = 'like.old = {cuda = "11.0", delivery = "bundled", loads = ["cublas"]}\n'
    text = (
        shared + '[[build]]\nversion = ["1", "2"]\nvariant = "a"\nlike = "old"\n[[build]]\nversion = "3"\n'
        'variant = "a"\nlike = "old"\nloads = []\n'
    )
    table, found = compile_table("framework/alpha", decode(text), file="x", overlay=True)
    assert not found
    assert [(one.version, str(one.cuda), one.delivery, one.loads) for one in table.build] == [  # type: ignore[attr-defined]
        ("1", "11.0", "bundled", ("cublas",)),
        ("2", "11.0", "bundled", ("cublas",)),
        ("3", "11.0", "bundled", ()),
    ]
    assert faults("framework/alpha", text.replace("like.old", "like.new"), overlay=True) == [
        "m/x.toml: build[0].like: 'old' is not one of the [like.ID] tables of this file",
        "m/x.toml: build[1].like: 'old' is not one of the [like.ID] tables of this file",
    ]
    assert faults("framework/alpha", "like = 3", overlay=True) == ["m/x.toml: like: 3 is not a set of tables [like.ID]"]
    assert faults("framework/alpha", "like.a = 3", overlay=True) == ["m/x.toml: like.a: is not a table of columns that rows share"]


def test_a_build_is_made_for_each_version_that_a_row_lists() -> None:
    text = '[[build]]\nversion = ["1.0", "2.0"]\nvariant = "cu118"\nlocal = "cu118"\ncuda = "11.8"\ncapability = ["sm_75"]\n'
    table, _ = compile_table("framework/alpha", decode(text), file="x", overlay=True)
    one, other = table.build  # type: ignore[attr-defined]
    assert [(each.version, each.wheel_version, each.framework, each.index) for each in (one, other)] == [
        ("1.0", "1.0+cu118", "alpha", "default"),
        ("2.0", "2.0+cu118", "alpha", "default"),
    ]
    assert one.cuda is other.cuda
    assert one.targets[0].capability == Capability(7, 5)
    assert table.places == {"build": (0, 0)}
    text = '[[build]]\nversion = "1.0"\nvariant = "cpu"\nwheel_version = "1.0.post1"\npackage = "beta"\nindex = "x"\n'
    [one] = compile_table("framework/alpha", decode(text), file="x", overlay=True)[0].build  # type: ignore[attr-defined]
    assert (one.wheel_version, one.package, one.index) == ("1.0.post1", "beta", "x")


def test_a_release_elsewhere_carries_its_local_part_in_its_version() -> None:
    text = '[[release]]\nversion = ["1", "2"]\nlocal = "cu118"\npackage = "vision"\nindex = "x"\n'
    table, _ = compile_table("framework/alpha", decode(text), file="x", overlay=True)
    assert [(one.version, one.package) for one in table.release] == [("1+cu118", "vision"), ("2+cu118", "vision")]  # type: ignore[attr-defined]


def test_every_identity_is_made_of_columns() -> None:
    for arrays in TABLES.values():
        for type_ in arrays.values():
            assert type_.identity
            assert {*type_.identity, *type_.apart} <= set(type_.__struct_fields__)


def test_every_table_has_a_json_schema() -> None:
    for name in TABLES:
        table = table_type(name.replace("*", "any"))
        assert msgspec.json.schema(table)["$defs"]


@pytest.mark.parametrize("name", ["card", "gpu/cards", "framework/", "framework/a/b", "wheel/*", "framework/*", ""])
def test_no_such_table(name: str) -> None:
    assert table_type(name) is None
    assert compile_table(name, {}, file="x")[1][0].message.startswith("there is no table")


@pytest.mark.parametrize(
    "text", ["a = ", "[a]\n[a]", "a = 2026-13-01", 'a = "\\q"', "\x00", "a." * 3000 + "a = 1\n" + "b = " + "[" * 100000]
)
def test_what_is_not_toml_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(text)


def test_nesting_without_end_is_a_fault() -> None:
    deep: Any = []
    for _ in range(100000):
        deep = [deep]
    found = compile_table("gpu/card", {"card": [{"name": deep, "alias": [deep], "x": deep}], "source": {"a": deep}}, file="x")[1]
    assert [fault.place for fault in found][:3] == ["origin", "source.a", "card[0].name"]


@given(st.text())
def test_any_text_is_decoded_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        decode(text)


SHAPES = st.dictionaries(
    st.sampled_from(
        sorted({array for arrays in TABLES.values() for array in arrays} | {"origin", "source", "date", "framework", "package"})
    ),
    ANYTHING
    | st.lists(st.dictionaries(st.sampled_from(["version", "name", "id", "package", "source", "remove", "apt", "cuda"]), ANYTHING)),
)


@given(name=st.sampled_from(sorted(WORLD)), raw=SHAPES, overlay=st.booleans())
def test_any_mapping_gives_faults_and_nothing_else(name: str, raw: dict[str, Any], *, overlay: bool) -> None:
    compiled, found = compile_table(name, raw, file="x", overlay=overlay)
    assert all(str(fault).isprintable() for fault in found)
    for array, rows in arrays_of(name).items() if not found else ():
        assert all(isinstance(one, rows) for one in getattr(compiled, array))
