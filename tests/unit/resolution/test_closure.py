"""The packages around the stack: releases that an index offers, what they require, and which of them fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from cudnn_resolve.errors import UsageError
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.matrix.row import Index
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.requirement.model import RequirementLine
from cudnn_resolve.requirement.source import Direct, Metadata, Offer
from cudnn_resolve.resolution import conflict
from cudnn_resolve.resolution.model import Conflict, PipPin, Resolution
from cudnn_resolve.resolution.offers import accepted_hashes
from cudnn_resolve.resolution.open_request import Progress
from cudnn_resolve.resolution.prefetch import likely_packages
from cudnn_resolve.resolution.resolve import resolve
from tests.fake_source import FakeSource, Published, files, index_of
from tests.worlds.load import facts, request, world

BOOK = world()


def asked(
    source: FakeSource,
    *extras: str,
    target: str = "north==2.0",
    machine: dict[str, Any] | None = None,
    progress: Progress | None = None,
    **more: Any,
) -> Any:
    here = machine_of(facts(**(machine or {})), BOOK)
    return resolve(BOOK, here, replace(request(BOOK, target, extras=extras), **more), source, progress=progress)


def pins(found: Resolution | Conflict) -> dict[str, PipPin]:
    assert isinstance(found, Resolution), found
    return {pin.name: pin for pin in found.pip}


def words(found: Resolution | Conflict) -> str:
    assert isinstance(found, Conflict), found
    return " ".join([found.message, *(f"{one.what} {one.because}" for one in found.causes)])


def versions(found: Resolution | Conflict) -> dict[str, str | None]:
    return {name: pin.version for name, pin in pins(found).items()}


def test_packages_that_the_matrix_does_not_know_are_pinned_with_all_that_they_require() -> None:
    source = index_of(BOOK, {"app": {"1.0": Published(("lib>=2",)), "0.9": Published()}, "lib": {"1.0": Published(), "2.1": Published()}})
    found = pins(asked(source, "app"))

    assert {name: found[name].version for name in ("app", "lib")} == {"app": "1.0", "lib": "2.1"}
    assert found["app"].requires == ("lib",)
    assert found["lib"].file is not None
    assert found["lib"].file.filename == "lib-2.1-py3-none-any.whl"
    assert "app 1.0 requires lib>=2" in found["lib"].reasons[0].because


def test_every_pin_has_its_files() -> None:
    found = pins(asked(index_of(BOOK)))

    assert all(pin.offer is not None and pin.file is not None for pin in found.values())
    assert {"north", "nvidia-cudnn-cu12"} <= set(found)


def test_a_build_that_the_index_does_not_have_is_not_chosen() -> None:
    new = {"driver": {"version": "580.65.06"}}
    assert versions(asked(index_of(BOOK), target="north", machine=new))["north"] == "3.0"
    assert versions(asked(index_of(BOOK, without=["north==3.0"]), target="north", machine=new))["north"] == "2.0"
    assert "not on the configured index" in words(asked(index_of(BOOK, without=["north==3.0"]), target="north==3.0", machine=new))


def test_a_release_that_is_newer_than_the_matrix_is_taken_for_a_plain_package() -> None:
    source = index_of(BOOK, {"numpy": {"9.9": Published()}})

    assert versions(asked(source, "numpy", target="south==2.0"))["numpy"] == "9.9"
    assert versions(asked(source, "numpy<2"))["numpy"] == "1.26.4"


def test_metadata_that_the_matrix_knows_and_that_of_files_that_do_not_fit_is_not_read() -> None:
    source = index_of(
        BOOK,
        {
            "app": {
                "3.0": Published(tags=("cp39-cp39-manylinux_2_17_x86_64",)),
                "2.0": Published(requires_python=">=3.14"),
                "1.0": Published(("numpy",)),
            }
        },
    )
    assert versions(asked(source, "app"))["app"] == "1.0"
    assert set(source.read) == {"app-1.0-py3-none-any.whl"}


def test_what_will_be_needed_is_expected_before_it_is_asked_for() -> None:
    source = index_of(
        BOOK, {"app": {"1.0": Published(("one", "two", "three"))}, **{name: {"1": Published()} for name in ("one", "two", "three")}}
    )
    asked(source, "app")

    assert {"one", "two", "three"} <= set(source.expected)


@pytest.mark.parametrize(
    ("releases", "wanted", "chosen"),
    [
        ({"2.0": Published(tags=("sdist",)), "1.0": Published()}, "app", "1.0"),
        ({"2.0": Published(tags=("sdist",)), "1.0": Published()}, "app>=2", "2.0"),
        ({"2.0": Published(yanked="broken"), "1.0": Published()}, "app", "1.0"),
        ({"2.0": Published(yanked="broken"), "1.0": Published()}, "app==2.0", "2.0"),
        ({"2.0rc1": Published(), "1.0": Published()}, "app", "1.0"),
        ({"2.0rc1": Published(), "1.0": Published()}, "app>=2.0rc1", "2.0rc1"),
        ({"2.0rc1": Published(), "2.0b1": Published()}, "app", "2.0rc1"),
        ({"2.0": Published(tags=("cp311-cp311-manylinux_2_39_x86_64",)), "1.0": Published()}, "app", "1.0"),
        ({"2.0": Published(tags=("cp311-cp311-win_amd64",)), "1.0": Published()}, "app", "1.0"),
        ({"2.0": Published(tags=("cp311-cp311-win_amd64", "sdist")), "1.0": Published()}, "app", "1.0"),
        ({"2.0": Published(tags=("cp312-cp312-manylinux_2_17_x86_64", "sdist")), "1.0": Published()}, "app", "1.0"),
        ({"2.0": Published(tags=("cp311-cp311-manylinux_2_39_x86_64", "sdist"))}, "app", "2.0"),
        ({"2.0": Published(tags=("cp38-abi3-manylinux_2_17_x86_64",)), "1.0": Published()}, "app", "2.0"),
    ],
)
def test_which_release_is_taken(releases: dict[str, Published], wanted: str, chosen: str) -> None:
    assert versions(asked(index_of(BOOK, {"app": releases}), wanted))["app"] == chosen


@pytest.mark.parametrize(
    ("tags", "best"),
    [
        (("py3-none-any", "cp311-cp311-manylinux_2_17_x86_64"), 1),
        (("cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_39_x86_64"), 1),
        (("cp38-abi3-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_17_x86_64"), 1),
        (("cp38-abi3-manylinux_2_17_x86_64", "cp310-abi3-manylinux_2_17_x86_64"), 1),
        (("sdist", "py3-none-any"), 1),
        (("cp312-cp312-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_17_aarch64", "py2.py3-none-any"), 2),
    ],
)
def test_which_file_is_taken(tags: tuple[str, ...], best: int) -> None:
    found = pins(asked(index_of(BOOK, {"app": {"1.0": Published(tags=tags)}}), "app"))["app"]

    assert found.file is not None
    assert found.file.tag == tags[best]


def test_a_source_archive_says_what_may_be_missing() -> None:
    found = asked(index_of(BOOK, {"app": {"1.0": Published(("lib",), tags=("sdist",))}, "lib": {"1": Published()}}), "app")

    assert versions(found)["lib"] == "1"
    assert found.guessed == {"app": "its build may add some"}


def test_a_release_whose_metadata_cannot_be_read_is_passed_over() -> None:
    source = index_of(BOOK, {"app": {"2.0": Published(garbled=True), "1.0": Published()}})

    assert versions(asked(source, "app"))["app"] == "1.0"
    assert "app-2.0-py3-none-any.whl is garbled" in words(asked(source, "app>=2"))


def test_a_conflict_of_the_closure_names_the_chain_down_to_the_users_words() -> None:
    source = index_of(
        BOOK,
        {
            "app": {"1.0": Published(("lib<2",))},
            "tool": {"1.0": Published(("helper",))},
            "helper": {"1.0": Published(("lib>=2",))},
            "lib": {"1.0": Published(), "2.0": Published()},
            "bystander": {"1.0": Published()},
        },
    )
    said = words(asked(source, "app", "bystander", "tool"))

    assert "app" in said
    assert "tool" in said
    assert "lib>=2" in said
    assert "lib<2" in said
    assert "helper 1.0 requires lib>=2" in said
    assert "bystander" not in said


def test_older_releases_are_tried_where_the_newest_clash() -> None:
    source = index_of(
        BOOK,
        {
            "app": {"1.0": Published(("lib<2",))},
            "tool": {"3.0": Published(("lib>=3",)), "2.0": Published(("lib>=2",)), "1.0": Published(("lib",))},
            "lib": {"1.0": Published(), "2.0": Published(), "3.0": Published()},
        },
    )
    assert {name: version for name, version in versions(asked(source, "tool", "app")).items() if name in ("app", "tool", "lib")} == {
        "app": "1.0",
        "tool": "1.0",
        "lib": "1.0",
    }


def test_a_package_that_no_index_has_is_no_answer() -> None:
    source = index_of(BOOK, {"app": {"1.0": Published(("nowhere-to-be-found",))}, "other": {"1.0": Published()}})

    for wanted in ("nowhere-to-be-found", "app"):
        said = words(asked(source, wanted))
        assert "no configured index has nowhere-to-be-found" in said
    said = words(asked(source, "other>=2"))
    assert "other>=2" in said
    assert "the newest release of other on the configured indexes is 1.0" in said


def test_what_the_metadata_says_of_pythons_counts_where_the_index_says_nothing() -> None:
    class Silent(FakeSource):
        def listing(self, name: str, place: Any = None) -> Any:
            found = super().listing(name, place)
            assert found is not None
            offers = tuple(
                Offer(version=one.version, files=tuple(replace(f, requires_python=None) for f in one.files)) for one in found.offers
            )
            return replace(found, offers=offers)

    source = Silent(index_of(BOOK, {"app": {"2.0": Published(requires_python=">=3.13"), "1.0": Published()}})._packages)  # noqa: SLF001

    assert versions(asked(source, "app"))["app"] == "1.0"


def test_a_python_without_a_patch_number_is_its_first_release() -> None:
    source = index_of(BOOK, {"app": {"2.0": Published(requires_python=">=3.11.5"), "1.0": Published()}})
    minor, patch = ({"python": {"version": version, "path": "/env/bin/python"}} for version in ("3.11", "3.11.9"))

    assert versions(asked(source, "app", machine=minor))["app"] == "1.0"
    assert versions(asked(source, "app", machine=patch))["app"] == "2.0"


def test_a_conflict_among_packages_leaves_the_frameworks_out() -> None:
    source = index_of(BOOK, {"app": {"1.0": Published(("lib<2",))}, "lib": {"1.0": Published(), "2.0": Published()}})
    found = asked(source, "app", "lib==2.0")

    assert isinstance(found, Conflict)
    assert found.message == "app and lib==2.0 cannot share one environment"


def test_only_files_with_the_hashes_that_the_user_gives_are_taken() -> None:
    source = index_of(BOOK, {"app": {"1.0": Published(), "2.0": Published()}})
    listing = source.listing("app")
    assert listing is not None
    digest = listing.offers[1].files[0].hashes["sha256"]
    good = RequirementLine(text="app", origin="r.txt:1", hashes=(f"sha256:{digest}",))

    assert versions(asked(source, requirements=(good,)))["app"] == "1.0"
    assert "app" in words(asked(source, requirements=(replace(good, hashes=("sha256:00",)),)))


def test_hashes_of_a_framework_count_too() -> None:
    source = index_of(BOOK)
    listing = source.listing("north")
    assert listing is not None
    digests = {offer.version: offer.files[0].hashes["sha256"] for offer in listing.offers}
    (target,) = request(BOOK, "north").targets
    new = {"driver": {"version": "580.65.06"}}

    def with_hash(digest: str) -> Any:
        return asked(source, target="north", machine=new, targets=(replace(target, hashes=(f"sha256:{digest}",)),))

    assert versions(asked(source, target="north", machine=new))["north"] == "3.0"
    assert versions(with_hash(digests["2.0"]))["north"] == "2.0"
    assert isinstance(with_hash("00"), Conflict)


def test_prereleases_count_where_they_are_asked_for() -> None:
    source = index_of(BOOK, {"app": {"1.0": Published(), "2.0rc1": Published(("lib",))}, "lib": {"1.0b1": Published(), "0.9": Published()}})

    assert versions(asked(source, "app"))["app"] == "1.0"
    found = versions(asked(source, "app", pre=True))
    assert (found["app"], found["lib"]) == ("2.0rc1", "1.0b1")


def test_a_prerelease_of_a_library_is_no_way_out_for_who_names_no_release() -> None:
    """A placeholder such as 0.0.0a0 of nvidia-cuda-nvrtc fits any CUDA, and holds nothing."""
    library = "nvidia-cusparselt-cu12"

    def taken(wanted: str, releases: Mapping[str, Published]) -> str | None:
        return versions(asked(index_of(BOOK, {"app": {"1.0": Published((wanted,))}, library: releases}), "app"))[library]

    assert taken(library, {"0.8rc1": Published(), "0.7": Published()}) == "0.7"
    assert taken(f"{library}>=0.8rc1", {"0.8rc1": Published(), "0.7": Published()}) == "0.8rc1"
    assert taken(library, {"0.8": Published(yanked="wrong"), "0.7": Published()}) == "0.7"


def test_a_framework_with_a_marker_is_a_target_where_it_holds() -> None:
    here = replace(request(BOOK, "north==2.0").targets[0], marker="platform_machine == 'x86_64'")
    elsewhere = replace(request(BOOK, "south==2.0").targets[0], marker="sys_platform == 'win32'", origin="r.txt:2")
    found = asked(index_of(BOOK), targets=(), conditional=(here, elsewhere))

    assert isinstance(found, Resolution)
    assert [build.package for build in found.builds] == ["north"]
    assert [target.text for target in found.request.targets] == ["north==2.0"]
    with pytest.raises(UsageError, match="no framework is asked for on x86_64") as caught:
        asked(index_of(BOOK), targets=(), conditional=(elsewhere,))
    assert caught.value.context == "r.txt:2"


def test_hashes_hold_on_indexes_that_cannot_be_asked_and_for_every_package_of_a_framework() -> None:
    (target,) = request(BOOK, "north==2.0").targets
    hashed = replace(target, hashes=(f"sha256:{'0' * 64}",))
    unavailable = [row.url for row in BOOK.rows(Index) if row.url]
    found = asked(FakeSource(index_of(BOOK)._packages, unavailable), targets=(hashed,))  # noqa: SLF001 - the same, but for the variants

    assert isinstance(found, Conflict)
    assert "has one of the given hashes" in words(found)
    book = open_book()
    (target,) = request(book, "tensorflow==2.10.0").targets
    only = accepted_hashes(replace(request(book, "tensorflow"), targets=(replace(target, hashes=("sha256:1",)),)), book)
    assert {"tensorflow", "tensorflow-gpu"} <= set(only)


def test_a_conflict_of_conditional_targets_names_them() -> None:
    second = replace(request(BOOK, "north==1.0").targets[0], marker="python_version >= '3'", origin="r.txt:2")
    found = asked(index_of(BOOK), target="north==2.0", conditional=(second,))

    assert isinstance(found, Conflict)
    assert "north==2.0,==1.0" in words(found)


def test_constraints_limit_what_is_needed_and_ask_for_nothing() -> None:
    source = index_of(
        BOOK, {"app": {"1.0": Published(("lib",))}, "lib": {"1.0": Published(), "2.0": Published()}, "other": {"1": Published()}}
    )
    limits = (
        RequirementLine(text="lib<2", origin="limits.txt:1", constraint=True),
        RequirementLine(text="other<1", origin="limits.txt:2", constraint=True),
    )
    extra = RequirementLine(text="app", origin="requirements.txt:1")
    found = versions(asked(source, requirements=(extra, *limits)))

    assert found["lib"] == "1.0"
    assert "other" not in found
    never = RequirementLine(text="lib>2", origin="limits.txt:3", constraint=True)
    said = words(asked(source, requirements=(extra, never)))
    assert "lib>2" in said
    assert "limits.txt:3" in said


def test_what_a_lock_holds_is_tried_first_and_what_is_installed_before_it() -> None:
    releases = {"1.0": Published(), "2.0": Published(), "3.0": Published()}
    source = index_of(BOOK, {"app": releases})
    packages = {"packages": {"pip": {"app": "1.0"}, "apt": {}}}

    assert versions(asked(source, "app", preferences={"app": "2.0"}))["app"] == "2.0"
    assert versions(asked(source, "app>2", preferences={"app": "2.0"}))["app"] == "3.0"
    assert versions(asked(source, "app", preferences={"app": "2.0"}, machine=packages))["app"] == "1.0"
    assert versions(asked(source, target="north", preferences={"north": "2.0"}))["north"] == "2.0"


def test_what_is_installed_stays_though_the_index_has_it_no_longer() -> None:
    source = index_of(BOOK, {"app": {"2.0": Published(), "1.0": Published()}})
    packages = {"packages": {"pip": {"app": "1.5"}, "apt": {}}}

    assert versions(asked(source, "app", machine=packages))["app"] == "1.5"
    assert versions(asked(source, "app>1.5", machine=packages))["app"] == "2.0"


def test_a_package_from_one_place_comes_from_there_alone() -> None:
    source = index_of(BOOK, {"app": {"9.0": Published()}, "lib": {"1.0": Published()}})
    offer = Offer(version="1.2", files=files("app", "1.2", Published(), "https://files.example"))
    direct = {"app": Direct(name="app", url="https://files.example/app.whl", offer=offer, metadata=Metadata(("lib",), None, ()))}
    found = pins(asked(source, "app", direct=direct))

    assert found["app"].version == "1.2"
    assert found["app"].offer is offer
    assert found["lib"].version == "1.0"
    assert "app" not in source.listed


def test_a_variant_comes_from_the_index_of_the_matrix_and_from_no_other() -> None:
    row = BOOK.index("north-cu118")
    tags = ("cp311-cp311-manylinux_2_17_x86_64",)
    own = {f"{row.url} north": {"2.0+cu118": Published(tags=tags)}}
    there = index_of(BOOK, {**own, "north": {"2.0+cu118": Published(tags=tags)}})
    old = {"driver": {"version": "470.82.01"}}
    found = asked(there, machine=old)

    assert pins(found)["north"].version == "2.0+cu118"
    assert {file.origin for file in pins(found)["north"].offer.files} == {row.url}  # type: ignore[union-attr]
    away = asked(_without(there, row.url), machine=old)
    assert pins(away)["north"].offer is None
    assert "does not answer" in away.unreached["north"]


def _without(source: FakeSource, url: str) -> FakeSource:
    return FakeSource(source._packages, unavailable=[url])  # noqa: SLF001


def test_an_extra_of_a_package_brings_its_requirements() -> None:
    source = index_of(
        BOOK,
        {
            "app": {"1.0": Published(("lib; extra == 'more'", "tool; python_version < '3'"))},
            "lib": {"1": Published()},
            "tool": {"1": Published()},
        },
    )
    assert {"app", "lib"} <= set(versions(asked(source, "app[more]")))
    assert not {"lib", "tool"} & set(versions(asked(source, "app")))
    assert SpecifierSet("==1").contains(versions(asked(source, "app[more]"))["lib"] or "")


def test_what_will_probably_be_needed_is_guessed_from_the_matrix() -> None:
    here = machine_of(facts(), BOOK)
    names = set(likely_packages(BOOK, here, request(BOOK, "north==2.0", extras=["pillow", "unknown>=1", "other; sys_platform == 'win32'"])))

    assert {"north", "numpy", "nvidia-cudnn-cu12", "pillow", "unknown"} <= names
    assert "other" not in names
    assert "nvidia-cudnn-cu12" in set(likely_packages(BOOK, here, request(BOOK, "south==2.0")))


def test_a_search_counts_its_steps_and_names_the_last_conflict() -> None:
    heard: list[str] = []
    source = index_of(
        BOOK,
        {
            "zoo": {"1.0": Published(("lib<2",))},
            "tool": {"2.0": Published(("lib>=2",)), "1.0": Published()},
            "lib": {"1.0": Published(), "2.0": Published()},
        },
    )
    found = asked(source, "tool", "zoo", progress=lambda at: heard.append(at()))

    assert versions(found)["tool"] == "1.0"
    assert heard[0] == ""
    assert any(one.startswith("conflict between ") and "lib<2" in one and "lib>=2" in one for one in heard)


def test_a_search_that_is_given_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflict, "ROUNDS", 1)
    here = machine_of(facts(), BOOK)
    found = conflict.explain(BOOK, here, request(BOOK, "north==2.0"))

    assert "no answer was found within 1 steps" in found.message
