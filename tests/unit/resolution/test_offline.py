"""Offline: what the cache holds adds to what the tables know, and never makes an answer worse."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.requirement.model import RequirementLine
from cudnn_resolve.resolution.model import Conflict, PipPin, Resolution
from cudnn_resolve.resolution.resolve import resolve
from tests.fake_source import FakeSource, Published, index_of
from tests.worlds.load import changed, facts, request, texts, world

BOOK = world()


def asked(source: FakeSource, *extras: str, machine: dict[str, Any] | None = None) -> Resolution | Conflict:
    return resolve(BOOK, machine_of(facts(**(machine or {})), BOOK), request(BOOK, "north==2.0", extras=extras), source)


def pins(found: Resolution | Conflict) -> dict[str, PipPin]:
    assert isinstance(found, Resolution), found
    return {pin.name: pin for pin in found.pip}


def versions(found: Resolution | Conflict) -> dict[str, str | None]:
    return {name: pin.version for name, pin in pins(found).items()}


def test_offline_an_unknown_package_is_left_to_the_installer() -> None:
    class Nothing(FakeSource):
        def listing(self, name: str, place: Any = None) -> None:
            del name, place

    found = pins(asked(Nothing({}), "app"))
    assert found["app"].version is None
    assert found["north"].version == "2.0"


def test_offline_what_the_cache_knows_is_no_way_around_what_cannot_be() -> None:
    releases: dict[str, dict[str, Published]] = {"app": {}, "lib": {}}
    for version, numpy in (("1.0", "numpy<2"), ("2.0", "numpy>=2")):
        releases["app"][version] = Published((f"lib=={version}",))
        releases["lib"][version] = Published((numpy,))
    source = index_of(BOOK, releases)
    online = versions(asked(source, "app", "numpy<2"))
    source.offline = True

    assert versions(asked(source, "app", "numpy<2")) == online
    assert (online["app"], online["lib"]) == ("1.0", "1.0")


def test_offline_a_folder_of_wheels_does_not_hide_what_the_matrix_knows() -> None:
    class Folder(FakeSource):
        def listing(self, name: str, place: Any = None) -> Any:
            found = super().listing(name, place)
            return replace(found, is_partial=True) if found is not None and found.offers else None

    folder = Folder({"numpy": {"2.1.0": Published()}, "app": {"1.0": Published()}})
    found = versions(asked(folder, "numpy", "app"))

    assert found["numpy"] == "1.26.4"
    assert found["app"] == "1.0"


def test_offline_a_release_whose_requirements_nobody_knows_is_left_to_the_installer() -> None:
    class Cache(FakeSource):
        offline = True

        def listing(self, name: str, place: Any = None) -> Any:
            found = super().listing(name, place)
            return found if found is not None and found.offers else None

        def metadata(self, name: str, file: Any) -> Any:
            return super().metadata(name, file) if "-1.0-" in file.filename else None

    source = Cache({"app": {"2.0": Published(), "1.0": Published(("lib",))}, "lib": {"2.0": Published()}})
    source.offline = True
    found = versions(asked(source, "app"))

    assert found["app"] == "1.0"
    assert found["lib"] is None
    here = {"packages": {"pip": {"lib": "2.0", "app": "0.9"}, "apt": {}}}
    assert versions(asked(source, "app>=1", machine=here))["lib"] == "2.0"


def test_offline_a_package_of_the_tables_may_be_a_release_whose_metadata_the_cache_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    source = index_of(BOOK, {"numpy": {"1.26.4": Published(), "1.26.9": Published()}})
    source.offline = True
    monkeypatch.setattr(source, "metadata", lambda *_: None)  # its page is in the cache, and nothing else

    assert versions(asked(source))["numpy"] == "1.26.4"
    assert versions(asked(source, "numpy==1.26.9"))["numpy"] == "1.26.9"


class HalfACache(FakeSource):
    """An index of which the cache has every page and no metadata of one package."""

    offline = True
    lacks = ""

    def metadata(self, name: str, file: Any) -> Any:
        return None if name == self.lacks else super().metadata(name, file)


def half_a_cache(releases: dict[str, dict[str, Published]], lacks: str) -> FakeSource:
    source = HalfACache(index_of(BOOK, releases)._packages)  # noqa: SLF001
    source.offline, source.lacks = True, lacks
    return source


def test_offline_a_half_filled_cache_leaves_no_companion_behind() -> None:
    releases = {"north-vision": {"0.1.1": Published(("north==2.0", "pillow>=11.5"))}, "pillow": {"11.5.0": Published()}}
    here = {"packages": {"pip": {"north": "3.0", "north-vision": "0.2"}, "apt": {}}}
    limit = RequirementLine(text="north-vision!=0.1", origin="constraints.txt:1", constraint=True)
    wish = replace(request(BOOK, "north==2.0"), requirements=(limit,))
    found = resolve(BOOK, machine_of(facts(**here), BOOK), wish, half_a_cache(releases, "pillow"))

    assert isinstance(found, Resolution)
    assert not found.dropped
    assert versions(found)["north-vision"] == "0.1.1"


def test_offline_a_half_filled_cache_gives_no_older_framework() -> None:
    releases = {"pillow": {"11.5.0": Published()}, "north": {"2.0": Published(("pillow>=11.5",))}}
    book = changed({"wheel/north": texts()["wheel/north"].replace('["numpy<2", ', '["numpy<2", "pillow>=11.5", ')})
    here = machine_of(facts(python={"version": "3.10.9"}), book)
    found = resolve(book, here, request(book, "north"), half_a_cache(releases, "pillow"))

    assert versions(found)["north"] == "2.0"
    assert versions(found)["pillow"] == "11.5.0"


def test_offline_what_is_installed_stays_though_nobody_knows_what_it_requires() -> None:
    source = half_a_cache({"app": {"1.0": Published(("lib",))}, "lib": {"2.0": Published(), "1.0": Published()}}, "lib")
    here = {"packages": {"pip": {"lib": "1.0"}, "apt": {}}}

    assert versions(asked(source, "app", machine=here))["lib"] == "1.0"


def test_offline_a_package_whose_releases_are_all_known_is_not_left_to_the_installer_for_a_newer_build() -> None:
    lib = Published(("nvidia-cudnn-cu12<9",))
    source = index_of(BOOK, {"app": {"1.0": Published(("lib",))}, "lib": {"1.0": lib, "2.0": lib}})
    wish, here = request(BOOK, "north", extras=("app",)), machine_of(facts(), BOOK)
    online = versions(resolve(BOOK, here, wish, source))
    source.offline = True

    assert versions(resolve(BOOK, here, wish, source)) == online
    assert (online["north"], online["lib"]) == ("2.0+cu118", "2.0")
