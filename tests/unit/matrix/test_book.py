"""The questions of the book, on the toy world; and that each reads no more than it needs."""

from __future__ import annotations

import pytest

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import AptPattern, Card, Forward, Repository
from cudnn_resolve.matrix.table import arrays_of
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion
from tests.unit.matrix.toy import WORLD, TextTables, book

WORLD_BOOK = book()


def test_frameworks_by_any_name() -> None:
    assert WORLD_BOOK.frameworks() == ("alpha", "beta")
    for name in ("alpha", "al", "alpha-gpu", "Alpha_GPU", "AL"):
        assert WORLD_BOOK.framework(name).name == "alpha"
    assert WORLD_BOOK.framework("alpha") is WORLD_BOOK.framework("al")
    with pytest.raises(KeyError):
        WORLD_BOOK.framework("gamma")


def test_framework_of_a_distribution_and_the_nearest_names() -> None:
    assert WORLD_BOOK.framework_of("alpha-gpu") == "alpha"
    assert WORLD_BOOK.framework_of("al") is None
    assert WORLD_BOOK.framework_of("numpy") is None
    assert WORLD_BOOK.nearest("alpah") == ("alpha",)
    assert WORLD_BOOK.nearest("zzz") == ()
    assert WORLD_BOOK.nearest("a" * 10000) == ()


def test_a_framework_holds_builds_and_bounds() -> None:
    alpha = WORLD_BOOK.framework("alpha")
    assert [(one.version, one.variant) for one in alpha.builds] == [("1.0", "cu124"), ("2.0", "cu124"), ("2.0", "cu118"), ("2.0", "cpu")]
    assert [one.requirement for one in alpha.bounds] == ["numpy<2"]
    assert alpha.companions == ("alpha-vision",)
    assert alpha.builds[0].source == ("docs",)


def test_releases_elsewhere() -> None:
    assert [(one.version, one.index) for one in WORLD_BOOK.extra_releases("Alpha")] == [("3.0+cu118", "alpha-cu118")]
    assert WORLD_BOOK.extra_releases("numpy") == ()


def test_packages() -> None:
    alpha = WORLD_BOOK.releases("Alpha")
    assert [one.version for one in alpha] == ["1.0", "2.0"]
    assert alpha[0].requires == dict.fromkeys(("x86_64", "aarch64"), ("numpy>=1.20", "nvidia-cudnn-cu12==9.1.0.70; extra == 'cuda'"))
    second = alpha[1].requires
    assert second
    assert second["aarch64"] == ()
    assert (alpha[1].yanked, alpha[1].date) == (True, "2024-05-05")
    assert WORLD_BOOK.releases("alpha-gpu")[0].requires is None
    assert WORLD_BOOK.releases("numpy") == ()
    assert (WORLD_BOOK.is_harvested("Alpha"), WORLD_BOOK.is_harvested("numpy")) == (True, False)
    assert "alpha-vision" in WORLD_BOOK.packages()


def test_components_and_slots() -> None:
    component = WORLD_BOOK.component("nvidia_cublas_cu12")
    assert component
    assert (component.library, component.abi) == ("cublas", "minor")
    assert WORLD_BOOK.component("numpy") is None
    assert [one.library for one in WORLD_BOOK.components(12)] == ["cublas", "cudnn"]
    assert WORLD_BOOK.components(11) == ()
    assert WORLD_BOOK.slot("nvidia-cudnn-cu12") == "nvidia/cudnn"
    assert WORLD_BOOK.slot("alpha-gpu") == WORLD_BOOK.slot("alpha") == "alpha"
    assert WORLD_BOOK.slot("numpy") is None
    assert WORLD_BOOK.cuda_of("nvidia-cublas-cu12", "12.4.5.8") == CudaVersion("12.4.1")
    assert WORLD_BOOK.cuda_of("nvidia-cublas-cu12", "1") is None


def test_cuda() -> None:
    assert [str(one.cuda) for one in WORLD_BOOK.cuda_releases()] == ["11.0.3", "12.2.2", "12.4.0", "12.4.1"]
    assert WORLD_BOOK.soname("cublas", CudaVersion("11.8.0")) == "libcublas.so.11"
    assert WORLD_BOOK.soname("cublas", CudaVersion("12.4.1")) == "libcublas.so.12"
    assert WORLD_BOOK.soname("cublas", CudaVersion("10.2")) is None
    assert WORLD_BOOK.soname("cufft", CudaVersion("12.4")) is None


def test_cudnn_builds_are_in_order() -> None:
    assert [str(one.version) for one in WORLD_BOOK.cudnn_builds()] == ["8.9.7.29", "9.1.0.70"]
    assert WORLD_BOOK.cudnn_builds()[1].apt.package == "libcudnn9-cuda-12"


@pytest.mark.parametrize(
    ("cuda", "driver"),
    [
        ("12.4.1", "550.54.15"),
        ("12.4.0", "550.54.14"),
        ("12.4", "550.54.14"),
        ("12.4.9", "550.54.15"),
        ("12.2", "535.104.05"),
        ("13.0", None),
    ],
)
def test_the_driver_of_a_toolkit(cuda: str, driver: str | None) -> None:
    assert WORLD_BOOK.toolkit_driver(CudaVersion(cuda)) == (DriverVersion(driver) if driver else None)


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("535.104.05", "12.2"), ("545.23.06", "12.2"), ("550.1", "12.4"), ("999.1", "12.4"), ("450.80.02", "11.0"), ("390.1", None)],
)
def test_the_newest_cuda_of_a_driver(driver: str, cuda: str | None) -> None:
    assert WORLD_BOOK.native_cuda(DriverVersion(driver)) == (CudaVersion(cuda) if cuda else None)


def test_drivers() -> None:
    assert WORLD_BOOK.floor(12) == DriverVersion("525.60.13")
    assert WORLD_BOOK.floor(10) is None
    assert [one.number for one in WORLD_BOOK.branches()] == [450, 535, 550]
    assert [(one.package, one.base, one.branch) for one in WORLD_BOOK.rows(Forward)] == [("cuda-compat-12-4", 535, 550)]
    assert [str(one.cuda) for one in WORLD_BOOK.minimums()] == ["11.0.3", "12.2.2", "12.4.0", "12.4.1"]


def test_gpus() -> None:
    turing = WORLD_BOOK.architecture(Capability(7, 5))
    assert turing
    assert (turing.name, turing.driver_first) == ("Turing", 410)
    assert WORLD_BOOK.architecture(Capability(6, 1)) is None
    assert [str(one.capability) for one in WORLD_BOOK.architectures()] == ["7.5", "8.0", "9.0"]


def test_remarks_and_places() -> None:
    assert [one.id for one in WORLD_BOOK.advisories("nvidia-cudnn-cu12")] == ["bad-one"]
    assert WORLD_BOOK.advisories("cudnn") == ()
    assert [one.id for one in WORLD_BOOK.traps("alpha")] == ["old-alpha"]
    assert WORLD_BOOK.traps("beta") == ()
    assert [(one.os, one.arch, one.name) for one in WORLD_BOOK.rows(Repository)] == [("ubuntu22.04", "x86_64", "ubuntu2204")]
    assert [one.name for one in WORLD_BOOK.rows(AptPattern)] == ["cuda-libraries-{major}-{minor}"]
    assert WORLD_BOOK.index("alpha-cu118").serves == ("alpha",)
    with pytest.raises(KeyError):
        WORLD_BOOK.index("nowhere")
    source = WORLD_BOOK.source("gpu/card", "docs")
    assert source
    assert (source.where, source.read, source.confidence) == ("https://docs.example/page", "2026-01-31", None)
    assert WORLD_BOOK.version == "2026-01-31.toy"
    assert book({}).version == "2026-01-31.toy+2026-01-31.toy"


def test_nothing_is_read_before_it_is_needed_and_nothing_twice() -> None:
    tables = TextTables(WORLD)
    world = Book(tables)
    world.framework_of("numpy")
    world.frameworks()
    assert tables.loaded == []
    world.framework("alpha")
    assert set(tables.loaded) == {"framework/alpha"}
    world.releases("beta")
    assert set(tables.loaded) == {"framework/alpha", "wheel/beta"}
    before = len(tables.loaded)
    assert world.framework("alpha") is world.framework("alpha")
    assert world.releases("beta") is world.releases("beta")
    assert world.releases("numpy") == ()
    assert len(tables.loaded) == before


def test_books_do_not_share_what_they_keep() -> None:
    assert book().framework("alpha") is not book().framework("alpha")
    assert book().framework("alpha") == book().framework("alpha")


def test_an_empty_book_knows_nothing_and_fails_nowhere() -> None:
    empty = Book(TextTables({}))
    assert empty.frameworks() == ()
    assert empty.cards() == ()
    assert empty.native_cuda(DriverVersion("550")) is None
    assert empty.toolkit_driver(CudaVersion("12.4")) is None
    assert empty.slot("numpy") is None
    assert empty.card("T4") is None
    assert empty.placed(Card) == []


def test_builds_in_outline_are_those_of_the_table() -> None:
    from cudnn_resolve.host.tables import open_book

    shipped = open_book()
    for name in shipped.frameworks():
        whole = [(one.version, str(one.cuda or ""), str(one.cudnn or "")) for one in shipped.framework(name).builds]
        assert [(one.version, str(one.cuda or ""), str(one.cudnn or "")) for one in open_book().builds(name)] == whole
    over = book({"framework/alpha": '[[build]]\nversion = "9.9"\nvariant = "cpu"\ndelivery = "none"\n'})
    assert "9.9" in [one.version for one in over.builds("alpha")]


def test_rows_of_an_array_that_is_read_alone_are_those_of_the_table() -> None:
    from cudnn_resolve.host.tables import open_book

    shipped, rows = open_book(), 0
    for name in shipped.names():
        for row_type in arrays_of(name).values():
            stem = name.partition("/")[2]
            whole = tuple(one.row for one in open_book().placed(row_type, stem))
            assert shipped.rows(row_type, stem) == whole
            rows += len(whole)
    assert rows > 5000


def test_a_slot_that_some_releases_of_a_package_own() -> None:
    slot = (
        'slot = [{slot = "alpha", packages = ["alpha", "alpha-gpu"], source = "docs"},'
        ' {slot = "bindings", packages = ["bindings"], releases = ["meta<2,!=1.5"], source = "docs"}]'
    )
    found = Book(TextTables({**WORLD, "package/slot": WORLD["package/slot"].partition("slot =")[0] + slot}))

    assert [found.slot("meta", version) for version in ("1.0", "1.5", "2.0", None)] == ["bindings", None, None, None]
    assert found.slot("bindings") == found.slot("bindings", "3.0") == "bindings"
    assert (found.owners("bindings"), found.owners("alpha")) == (2, 2)
