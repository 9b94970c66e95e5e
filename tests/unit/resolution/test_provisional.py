"""Releases that the index has and the tables do not know."""

from __future__ import annotations

import pytest

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.planning.make_plan import make_plan
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.resolution.model import Conflict
from cudnn_resolve.resolution.provisional import with_new_releases
from cudnn_resolve.resolution.resolve import resolve
from tests.fake_source import Published, index_of
from tests.worlds.load import facts, request, world

HERE = facts(driver={"version": "580.65.06"})
TAGS = ("cp311-cp311-manylinux_2_28_x86_64",)
NEXT = Published(("nvidia-cuda-runtime==13.0.48", "nvidia-cudnn-cu13==9.12.0.46"), TAGS)


def extended(target: str, **north: Published) -> Book:
    source = index_of(world(), {"north": {name.replace("_", ".").removeprefix("v"): one for name, one in north.items()}})
    return with_new_releases(world(), request(world(), target), machine_of(HERE, world()), source)


def known(book: Book) -> set[str]:
    return {build.version for build in book.framework("north").builds if build.provisional}


def test_tables_that_know_every_release_stay_as_they_are() -> None:
    assert extended("north") is world()


def test_a_newer_release_is_taken_and_said_to_be_new() -> None:
    source = index_of(world(), {"north": {"4.0": NEXT}})
    asked, machine = request(world(), "north"), machine_of(HERE, world())

    book = with_new_releases(world(), asked, machine, source)
    plan = make_plan(HERE, resolve(book, machine, asked, source), book, source)

    assert [(one.version, one.variant) for one in plan.stack.frameworks] == [("4.0", "cu130")] if plan.stack else False
    assert any(one.code == "provisional" and "north 4.0" in one.message for one in plan.warnings)


def test_what_its_metadata_say_counts_before_what_the_last_release_was() -> None:
    older = Published(("nvidia-cuda-runtime-cu12==12.4.127", "nvidia-cudnn-cu12==9.1.0.70"), TAGS)

    (build,) = [one for one in extended("north", v4_0=older).framework("north").builds if one.provisional]

    assert (str(build.cuda), str(build.cudnn), build.variant) == ("12.4", "9.1.0.70", "cu124")
    assert build.targets == ()  # for which GPUs it holds code is not known


@pytest.mark.parametrize(
    ("target", "published", "expected"),
    [
        ("north", {"v2_5": NEXT}, set()),  # older than what is known: nobody asked for it
        ("north==2.5", {"v2_5": NEXT}, {"2.5"}),
        ("north", {"v4_0": NEXT, "v5_0": NEXT, "v6_0": NEXT}, {"5.0", "6.0"}),
        ("north==4.0", {"v4_0": NEXT, "v5_0": NEXT, "v6_0": NEXT}, {"4.0", "5.0", "6.0"}),
        ("north", {"v4_0rc1": NEXT}, set()),
        ("north==4.0rc1", {"v4_0rc1": NEXT}, {"4.0rc1"}),
        ("north", {"v4_0": Published(NEXT.requires, ("cp313-cp313-manylinux_2_28_x86_64",))}, set()),
        ("north==4.0", {"v4_0": Published(NEXT.requires, ("cp313-cp313-manylinux_2_28_x86_64",))}, {"4.0"}),  # so that it is said why not
        ("north", {"v4_0": Published(NEXT.requires, ("sdist",))}, set()),
        ("north", {"v4_0": Published(NEXT.requires, TAGS, yanked="broken")}, set()),
        ("north", {"v4_0": Published(NEXT.requires, TAGS, garbled=True)}, set()),
        ("north==0.1", {"v0_1": Published(("numpy",), TAGS)}, set()),  # older than all that is known: its CUDA is not that of a later one
        ("north==0.1", {"v0_1": NEXT}, {"0.1"}),
    ],
)
def test_which_releases_are_looked_at(target: str, published: dict[str, Published], expected: set[str]) -> None:
    assert known(extended(target, **published)) == expected


@pytest.mark.parametrize(
    ("requires", "cuda", "cudnn"),
    [
        (("nvidia-cuda-runtime==14.0.48", "nvidia-cudnn-cu14==10.0.0.1"), "14.0", "10.0.0.1"),  # newer than the tables know
        (("cuda-toolkit==13.1.2; platform_machine=='x86_64'", "cuda-toolkit==12.6.3; platform_machine=='aarch64'"), "13.1", None),
        (("nvidia-cuda-runtime==13.0.48", "nvidia-cudnn-cu13>=9.1.0rc1"), "13.0", "9.1.0"),
        (("cuda-toolkit==13.0.1", "nvidia-cudnn-cu13==9.1.0.70+foo"), "13.0", "9.1.0.70"),
        (("cuda-toolkit==13.0.1", "nvidia-cudnn-cu13==1.2.3.4.5.6"), "13.0", "1.2.3.4"),
        (("cuda-toolkit>=13.0a1",), "13.0", None),
        (("cuda-toolkit==99999999.1",), None, None),
        (("numpy",), None, None),
    ],
)
def test_odd_metadata_is_read_as_far_as_it_makes_sense(requires: tuple[str, ...], cuda: str | None, cudnn: str | None) -> None:
    builds = [one for one in extended("north", v4_0=Published(requires, TAGS)).framework("north").builds if one.provisional]

    assert [str(one.cuda) for one in builds] == ([cuda] if cuda else [])
    if cudnn is not None:
        assert str(builds[0].cudnn) == cudnn


@pytest.mark.parametrize("published", [Published(("numpy",), ("sdist",)), Published(("numpy",), TAGS)])
def test_a_release_that_the_index_has_is_never_denied(published: Published) -> None:
    source = index_of(world(), {"north": {"0.1": published}})
    asked, machine = request(world(), "north==0.1"), machine_of(HERE, world())
    book = with_new_releases(world(), asked, machine, source)

    found = resolve(book, machine, asked, source)

    assert isinstance(found, Conflict)
    assert "north 0.1 exists" in found.message


@pytest.mark.parametrize(
    ("asked", "offline", "said"),
    [
        ("north==0.2", False, "there is no release of north"),
        ("north==0.2", True, "and no index is queried offline"),
        ("north<1", False, "the tables have no release of north that matches north<1, only 1.0 to 3.0"),  # the index is asked for no range
    ],
)
def test_a_release_is_denied_only_where_the_index_was_asked_for_it(asked: str, *, offline: bool, said: str) -> None:
    source = index_of(world(), {"north": {}})
    source.offline = offline

    found = resolve(world(), machine_of(HERE, world()), request(world(), asked), source)

    assert isinstance(found, Conflict)
    assert said in found.message
