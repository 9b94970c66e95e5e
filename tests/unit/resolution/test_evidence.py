"""What a wheel's libraries are linked to decides, whatever its metadata declares."""

from __future__ import annotations

import pytest

from cudnn_resolve.planning.make_plan import make_plan
from cudnn_resolve.resolution.model import Conflict, Resolution
from tests.fake_source import Published, index_of
from tests.worlds.load import changed, facts, outcome, request
from tests.worlds.load import pins as pins_of

EVIDENCE = """
origin = "harvested"
script = "a-test"
read = 2026-11-22
package = "sight"
wheel = [
  {version = ["1.0"], cuda = "12.4", needs = ["libcudart.so.12"], frameworks = ["north"], code = ["sm_75"]},
  {version = ["2.0"], arch = ["x86_64"], cuda = "13.0", needs = ["libcudart.so.13", "libcublas.so.13"], frameworks = ["north"]},
  {version = ["3.0"], cuda = "13.1", needs = ["libcudart.so.13"], frameworks = ["north"], same_line = true},
  {version = ["5.0"], needs = ["libcudart.so.12", "libcublas.so.13"], frameworks = ["north"]},
  {version = ["6.0"], needs = ["libcudart.so.99"], frameworks = ["north"]},
  {version = ["4.0"], needs = ["libcudart.so.12", "libcudart.so.13"], frameworks = ["north"]},
]
"""
ALONE = EVIDENCE.replace('frameworks = ["north"]', "frameworks = []").replace('"sight"', '"kernels"')
CARDS = """
origin = "harvested"
script = "a-test"
read = 2026-11-22
package = "cards"
wheel = [{version = ["1.0"], code = ["sm_60", "sm_75"]}, {version = ["2.0"], code = ["sm_75"]}]
"""
BOOK = changed({"evidence/sight": EVIDENCE, "evidence/kernels": ALONE, "evidence/cards": CARDS})


def pins(target: str, *extras: str, driver: str = "580.65.06", **packages: dict[str, Published]) -> dict[str, str | None]:
    return pins_of(answer(target, *extras, driver=driver, **packages))


def answer(target: str, *extras: str, driver: str = "580.65.06", **packages: dict[str, Published]) -> Resolution | Conflict:
    return outcome(BOOK, facts(driver={"version": driver}), request(BOOK, target, extras=extras), index_of(BOOK, packages))


SIGHT = {"1.0": Published(("north",)), "2.0": Published(("north",))}


def test_an_extension_follows_the_cuda_of_its_framework() -> None:
    assert pins("north==2.0", "sight", sight=SIGHT)["sight"] == "1.0"
    assert pins("north==3.0", "sight", sight=SIGHT)["sight"] == "2.0"


def test_an_extension_that_is_fixed_moves_the_framework() -> None:
    assert pins("north", "sight==1.0", sight=SIGHT)["north"] == "2.0"


def test_what_cannot_load_together_is_refused_with_the_library() -> None:
    found = answer("north==2.0", "sight==2.0", sight=SIGHT)

    assert isinstance(found, Conflict)
    assert any("libcudart.so.13" in reason for reason in map(str, found.causes)), found.causes


def test_one_that_compares_lines_wants_that_very_line() -> None:
    found = answer("north==3.0", "sight==3.0", sight={"3.0": Published(("north",))})

    assert isinstance(found, Conflict)  # north 3.0 is of CUDA 13.0


def test_libraries_of_several_majors_are_alternatives() -> None:
    several = {"4.0": Published(("north",))}

    assert pins("north==2.0", "sight", sight=several)["sight"] == "4.0"
    assert pins("north==3.0", "sight", sight=several)["sight"] == "4.0"


def test_kernels_of_their_own_share_the_major_of_the_process() -> None:
    kernels = {"1.0": Published()}

    assert pins("north==2.0", "kernels", kernels=kernels)["kernels"] == "1.0"
    assert isinstance(answer("north==3.0", "kernels", kernels=kernels), Conflict)


def test_a_framework_that_another_package_requires_brings_its_cuda_along() -> None:
    here = facts(driver={"version": "580.65.06"}, python={"version": "3.10.9", "path": "/env/bin/python"})
    source = index_of(BOOK, {"frames": {"1.0": Published(("south==1.1",))}})
    found = outcome(BOOK, here, request(BOOK, "north==2.0", extras=("frames",)), source)

    assert isinstance(found, Resolution), found
    assert {pin.name: pin.version for pin in found.pip}["north"] == "2.0+cu118"  # south 1.1 loads CUDA 11, and brings none


def test_a_wheel_that_nobody_has_read_binds_nothing() -> None:
    assert pins("north==3.0", "sight", sight={"9.0": Published(("north",))})["sight"] == "9.0"


def warned(code: str, target: str, *extras: str, gpu: str = "7.5", **packages: dict[str, Published]) -> list[str]:
    here = facts(driver={"version": "580.65.06"}, gpus=[{"name": "a card", "compute_capability": gpu}])
    source = index_of(BOOK, packages)
    found = make_plan(here, outcome(BOOK, here, request(BOOK, target, extras=extras), source), BOOK, source)
    return [one.message for one in found.warnings if one.code == code]


def test_one_that_nobody_has_read_is_named() -> None:
    compiled = Published(("north",), ("cp311-cp311-manylinux_2_28_x86_64",))

    assert "sight 9.0" in warned("unread", "north==3.0", "sight", sight={"9.0": compiled})[0]
    assert not warned("unread", "north==2.0", "sight", sight={"1.0": compiled})
    assert "sight 5.0" in warned("unread", "north==3.0", "sight", sight={"5.0": compiled})[0]  # of two majors at once
    assert "sight 6.0" in warned("unread", "north==3.0", "sight", sight={"6.0": compiled})[0]  # of none that is known
    assert not warned("unread", "north==3.0", "sight", sight={"9.0": Published(("north",))})  # it holds no library


@pytest.mark.parametrize(
    ("gpu", "installed", "chosen"), [("7.5", "", "3.0"), ("6.0", "", "3.0"), ("6.0", "2.0", "2.0"), ("9.0", "", "3.0")]
)
def test_a_wheel_that_nobody_has_read_keeps_its_place(gpu: str, installed: str, chosen: str) -> None:
    assert cards(gpu, installed, "1.0", "2.0", "3.0") == chosen


@pytest.mark.parametrize(
    ("gpu", "installed", "chosen"), [("7.5", "", "2.0"), ("6.0", "", "1.0"), ("6.0", "2.0", "2.0"), ("9.0", "", "2.0")]
)
def test_kernels_for_the_card_come_before_newer_ones_for_others(gpu: str, installed: str, chosen: str) -> None:
    assert cards(gpu, installed, "1.0", "2.0") == chosen


def cards(gpu: str, installed: str, *versions: str) -> str | None:
    packages = {"pip": {"cards": installed} if installed else {}, "apt": {}}
    here = facts(driver={"version": "580.65.06"}, gpus=[{"name": "a card", "compute_capability": gpu}], packages=packages)
    source = index_of(BOOK, {"cards": {version: Published() for version in versions}})
    return pins_of(outcome(BOOK, here, request(BOOK, "north==2.0", extras=("cards",)), source))["cards"]


def test_kernels_for_other_gpus_are_named() -> None:
    assert "sm_75" in warned("no-kernel", "north==2.0", "sight", gpu="6.0", sight=SIGHT)[0]
    assert not warned("no-kernel", "north==2.0", "sight", gpu="7.5", sight=SIGHT)
