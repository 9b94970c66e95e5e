"""A release years older than its framework is taken by those only who name it."""

from __future__ import annotations

from typing import Any

from cudnn_resolve.planning.make_plan import make_plan
from cudnn_resolve.resolution.model import Conflict, Resolution
from tests.fake_source import Published, index_of
from tests.worlds.load import changed, facts, outcome, request, texts

NORTH = texts("small")["wheel/north"]
for version, day in (("1.0", "2022-01-01"), ("2.0", "2024-01-01"), ("3.0", "2026-01-01")):
    NORTH = NORTH.replace(f'version = "{version}"', f'version = "{version}", date = {day}')
BOOK = changed({"wheel/north": NORTH})
OLD = Published(("north",), uploaded="2023-06-01T00:00:00Z")
NEW = Published(("north==2.0",), uploaded="2025-12-01T00:00:00Z")


def answer(target: str, *extras: str, releases: dict[str, Published], **machine: Any) -> Resolution | Conflict:
    machine = {"driver": {"version": "580.65.06"}, **machine}
    return outcome(BOOK, facts(**machine), request(BOOK, target, extras=extras), index_of(BOOK, {"serve": releases}))


def pins(found: Resolution | Conflict) -> dict[str, str | None]:
    assert isinstance(found, Resolution), found
    return {pin.name: pin.version for pin in found.pip if pin.name in ("north", "serve")}


def test_an_older_framework_is_better_than_a_release_of_before_bounds() -> None:
    assert pins(answer("north", "serve", releases={"0.1": OLD, "9.0": NEW})) == {"north": "2.0", "serve": "9.0"}


def test_a_conflict_is_better_than_a_release_of_before_bounds() -> None:
    found = answer("north", "serve", releases={"0.1": OLD, "9.0": NEW._replace(requires=("north==2.0", "lost"))})

    assert isinstance(found, Conflict)
    assert any("lost" in str(cause) for cause in found.causes)


def test_who_names_an_old_release_gets_it() -> None:
    for extra in ("serve==0.1", "serve<9"):
        assert pins(answer("north", extra, releases={"0.1": OLD, "9.0": NEW})) == {"north": "3.0", "serve": "0.1"}


def test_beside_a_package_that_the_user_holds_to_its_time_it_counts() -> None:
    new = NEW._replace(requires=("north", "base>=2"))
    packages = {"serve": {"0.1": OLD, "9.0": new}, "base": {"1.0": OLD._replace(requires=()), "2.0": NEW._replace(requires=())}}

    def held(*extras: str) -> Resolution | Conflict:
        here = facts(driver={"version": "580.65.06"})
        return outcome(BOOK, here, request(BOOK, "north", extras=extras), index_of(BOOK, packages))

    assert pins(held("serve", "base<2")) == {"north": "3.0", "serve": "0.1"}
    assert pins(held("serve", "base<3")) == {"north": "3.0", "serve": "9.0"}


def test_beside_frameworks_of_its_time_it_counts() -> None:
    releases = {"0.1": OLD, "9.0": NEW._replace(requires=("north==3.0",))}

    assert pins(answer("north==2.0", "serve", releases=releases)) == {"north": "2.0", "serve": "0.1"}
    held = answer("north", "serve", releases=releases, driver={"version": "525.60.13"})
    assert pins(held) == {"north": "2.0", "serve": "0.1"}


def test_a_package_that_is_seldom_released_is_meant_as_it_is() -> None:
    assert pins(answer("north", "serve", releases={"0.1": OLD})) == {"north": "3.0", "serve": "0.1"}


def test_what_the_newest_for_another_python_is_does_not_count() -> None:
    releases = {"0.1": OLD, "9.0": Published((), uploaded="2025-12-01T00:00:00Z", requires_python=">=3.99")}

    assert pins(answer("north==3.0", "serve", releases=releases)) == {"north": "3.0", "serve": "0.1"}


def test_what_a_framework_bounds_itself_is_of_the_time_that_it_says() -> None:
    table = NORTH.replace('"numpy>=1.26"', '"serve<1"')
    book = changed({"wheel/north": table})
    found = outcome(
        book,
        facts(driver={"version": "580.65.06"}),
        request(book, "north==3.0", extras=("serve",)),
        index_of(book, {"serve": {"0.1": OLD, "9.0": Published((), uploaded="2025-12-01T00:00:00Z")}}),
    )

    assert pins(found) == {"north": "3.0", "serve": "0.1"}


def test_what_is_installed_stays() -> None:
    packages = {"pip": {"serve": "0.1"}, "apt": {}}
    found = answer("north", "serve", releases={"0.1": OLD, "9.0": NEW._replace(requires=("lost",))}, packages=packages)

    assert pins(found)["serve"] == "0.1"


def test_a_release_whose_gpu_wheels_nobody_read_is_not_denied() -> None:
    head = 'origin = "harvested"\nscript = "a-test"\nread = 2026-11-22\npackage = "west"\n'
    cpu = head + 'release = [{version = "4.0", tags = ["py3-none-any"]}]'
    west = texts("small")["framework/north"].replace('name = "north"', 'name = "west"').replace('"north"', '"west-gpu"')
    book = changed({"framework/west": west, "wheel/west": cpu, "wheel/west-gpu": NORTH.replace('"north"', '"west-gpu"')})

    found = outcome(book, facts(), request(book, "west==4.0"), index_of(book))

    assert isinstance(found, Conflict)
    assert "no GPU build" in found.message
    assert "west 4.0 exists" in found.message
    assert "not in the tables" in found.message


def test_what_only_another_package_requires_is_named_where_it_is_years_older() -> None:
    """Nobody asks for it by name, so that it is taken, and said."""

    def warned(requirement: str, **newest: Any) -> list[str]:
        new = NEW._replace(**{"requires": (), **newest})
        app = Published((requirement,), uploaded="2026-01-01T00:00:00Z")
        packages = {"app": {"1.0": app}, "serve": {"0.1": OLD._replace(requires=()), "9.0": new}}
        here = facts(driver={"version": "580.65.06"})
        source = index_of(BOOK, packages)
        found = outcome(BOOK, here, request(BOOK, "north==3.0", extras=("app",)), source)
        assert isinstance(found, Resolution), found
        return [one.message for one in make_plan(here, found, BOOK, source).warnings if one.code == "years-old"]

    assert warned("serve") == []
    assert warned("serve>=0.1", requires=("north<3",)) == [
        "serve 0.1 of 2023-06 is years older than the frameworks: no newer release fits the rest"
    ]
    assert warned("serve<1") == []  # whoever requires it wants it so
    assert warned("serve", requires_python=">=3.99") == []
