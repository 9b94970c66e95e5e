"""Rows laid over rows: replaced, added, taken away; the last layer wins."""

from __future__ import annotations

from cudnn_resolve.matrix.overlay import key_text
from cudnn_resolve.matrix.row import Build, Card, Index
from cudnn_resolve.version import Capability, CudaVersion
from tests.unit.matrix.toy import TextTables, book


def test_a_row_of_the_same_key_replaces_and_keeps_its_place() -> None:
    over = {"gpu/card": 'card = [{name = "Tesla T4", capability = "8.0", class = "tegra"}]'}
    cards = book(over).cards()
    assert [(one.name, str(one.capability), one.alias) for one in cards] == [
        ("Tesla T4", "8.0", ()),
        ("NVIDIA A100-SXM4-40GB", "8.0", ("A100",)),
        ("NVIDIA GeForce RTX 2080 Ti", "7.5", ()),
    ]


def test_new_rows_follow_and_later_overlays_win() -> None:
    one = {"index": 'index = [{id = "new", url = "https://one.example", kind = "simple"}]'}
    two = {"index": 'index = [{id = "new", url = "https://two.example", kind = "find-links"}]'}
    assert [(index.id, index.url) for index in book(one, two).rows(Index)][1:] == [("new", "https://two.example")]
    assert book(two, one).index("new").url == "https://one.example"


def test_versions_that_are_equal_are_one_key() -> None:
    over = {"cudnn/release": '[[build]]\nversion = "9.1.0.70.0"\ncuda_major = 12\nsoname = 9\n'}
    assert [str(one.version) for one in book(over).cudnn_builds()] == ["8.9.7.29", "9.1.0.70.0"]
    over = {"wheel/beta": 'package = "beta"\nrelease = [{version = "0.1.0", requires_python = ">=3"}]'}
    assert [(one.version, one.requires_python) for one in book(over).releases("beta")] == [("0.1.0", ">=3")]


def test_remove_takes_away_every_row_with_the_parts_of_the_key_that_it_writes() -> None:
    def left(text: str) -> list[tuple[str, str]]:
        return [
            (one.version, one.variant) for one in book({"framework/alpha": f"[[build]]\nremove = true\n{text}"}).framework("alpha").builds
        ]

    assert left('version = "2.0"') == [("1.0", "cu124")]
    assert left('version = ["1.0", "2"]') == []
    assert left('version = "2.0.0"\nvariant = "cpu"') == [("1.0", "cu124"), ("2.0", "cu124"), ("2.0", "cu118")]
    assert left('version = "2.0"\narch = ["aarch64"]') == [("1.0", "cu124"), ("2.0", "cu124"), ("2.0", "cu118")]
    assert len(left('version = "9"')) == 4


def test_a_build_replaces_those_of_its_variant_on_every_platform() -> None:
    assert Build.identity == ("version", "variant", "package", "index")
    over = {"framework/alpha": '[[build]]\nversion = "2.0"\nvariant = "cu124"\npythons = ["cp312"]\ncuda = "12.2"\n'}
    found = [one for one in book(over).framework("alpha").builds if one.variant == "cu124"]
    assert [(one.version, one.pythons, str(one.cuda)) for one in found] == [("1.0", (), "12.4"), ("2.0", ("cp312",), "12.2")]
    assert found[1].package == "alpha"


def test_new_releases_of_a_package_stand_in_order_of_version() -> None:
    over = {"wheel/alpha": 'package = "alpha"\nmetadata = [{id = 1, requires = ["x"]}]\nrelease = [{version = "1.5", metadata = 1}]'}
    releases = book(over).releases("alpha")
    assert [one.version for one in releases] == ["1.0", "1.5", "2.0"]
    assert releases[1].requires == {"x86_64": ("x",), "aarch64": ("x",)}
    assert releases[0].requires
    assert releases[0].requires["x86_64"][0] == "numpy>=1.20"


def test_releases_of_a_package_that_only_an_overlay_has_stand_in_order_of_version() -> None:
    over = {"wheel/delta": 'package = "delta"\nrelease = [{version = "1.10"}, {version = "1.9"}]'}
    assert [one.version for one in book(over).releases("delta")] == ["1.9", "1.10"]


def test_an_overlay_brings_a_framework_and_changes_a_head() -> None:
    over = {
        "framework/gamma": '[framework]\nname = "gamma"\ntitle = "Gamma"\npackages = ["gamma-gpu"]\n'
        '[[build]]\nversion = "1"\nvariant = "cpu"\n',
        "framework/beta": '[framework]\nname = "beta"\ntitle = "Better"\naliases = ["b"]\npackages = ["beta"]\n',
    }
    world = book(over)
    assert world.frameworks() == ("alpha", "beta", "gamma")
    assert world.framework("gamma").builds[0].package == "gamma-gpu"
    assert world.framework("b").title == "Better"
    assert len(world.framework("beta").builds) == 1


def test_sources_of_an_overlay_are_its_own() -> None:
    over = {
        "gpu/card": 'source.docs = {where = "my notes", read = 2026-01-02}\n'
        'card = [{name = "X", capability = "7.5", class = "tegra", source = "docs"}]'
    }
    world = book(over)
    shipped, own = world.cards()[0], world.cards()[-1]
    below, above = world.source("gpu/card", shipped.source[0]), world.source("gpu/card", own.source[0])
    assert below
    assert above
    assert (below.where, above.where) == ("https://docs.example/page", "my notes")
    assert world.source("gpu/card", "nowhere") is None


def test_removals_that_meet_nothing_are_counted() -> None:
    over = {"gpu/card": 'card = [{name = "Tesla T4", remove = true}, {name = "Tesla T5", remove = true}]'}
    assert book(over).idle_removals(Card, "card") == [(1, 1)]


def test_rows_know_their_layer_and_position() -> None:
    over = {
        "gpu/card": 'card = [{name = "New", capability = "7.5", class = "tegra"}, {name = "Tesla T4", capability = "8.0", class = "tegra"}]'
    }
    assert [(one.row.name, one.layer, one.position) for one in book(over).placed(Card)] == [
        ("Tesla T4", 1, 1),
        ("NVIDIA A100-SXM4-40GB", 0, 1),
        ("NVIDIA GeForce RTX 2080 Ti", 0, 2),
        ("New", 1, 0),
    ]


def test_tables_that_only_an_overlay_has() -> None:
    from cudnn_resolve.matrix.book import Book

    only = Book(TextTables({}), TextTables({"cuda/release": 'release = [{cuda = "12.4.1", line = "12.4"}]'}, overlay=True))
    assert [one.cuda for one in only.cuda_releases()] == [CudaVersion("12.4.1")]
    assert only.architecture(Capability(7, 5)) is None


def test_a_key_for_reading() -> None:
    row = book().framework("alpha").builds[2]
    assert key_text(row) == "version 2.0, variant cu118, package alpha, index alpha-cu118"
    assert key_text(book().architectures()[0]) == "capability 7.5"
