"""Installed frameworks that nobody asked for: what they live on is a constraint."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from packaging.version import Version

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.operations.options import PlanRequest
from cudnn_resolve.operations.plan import broken_installed
from cudnn_resolve.planning.model import PipAction, Plan
from cudnn_resolve.report.plan import show_plan
from cudnn_resolve.resolution.chain import chain
from cudnn_resolve.resolution.model import Resolution
from tests.pages import text_of
from tests.worlds.load import changed, facts, outcome, plan, request, texts, universe, versions, world

BOOK = world()
NORTH = {
    "north": "2.0",
    "nvidia-cudnn-cu12": "9.1.0.70",
    "nvidia-cublas-cu12": "12.4.5.8",
    "nvidia-cuda-runtime-cu12": "12.4.127",
    "numpy": "1.26.4",
}
"""An environment in which north 2.0 works."""


OF_CUDA_12 = texts()["framework/south"].replace('cuda = "11.2"\ncudnn = "8.1"', 'cuda = "12.2"\ncudnn = "8.9"')
BESIDE = changed({"framework/south": OF_CUDA_12})
"""The world whose south 1.1 has the CUDA of north 2.0, but an older cuDNN."""


def planned(*targets: str, pip: dict[str, str] | None = None, extras: tuple[str, ...] = (), **options: Any) -> Plan:
    parts = {name: options.pop(name) for name in ("requires", "cudnn", "cuda_toolkits") if name in options}
    packages = {"pip": NORTH if pip is None else pip, "apt": {}, "requires": parts.pop("requires", {})}
    python = {"version": options.pop("python", "3.10.9"), "path": "/env/bin/python"}
    book = options.pop("book", BOOK)
    return plan(book, facts(packages=packages, python=python, **parts), request(book, *targets, extras=extras, **options))


def codes(found: Plan) -> list[str]:
    return [one.code for one in found.warnings]


def in_folder(version: str, **more: Any) -> dict[str, Any]:
    """A copy of cuDNN that an earlier plan put into the folder."""
    path = f"/env/lib/python3.10/site-packages/{FOLDER}/nvidia/cudnn/lib"
    return {
        "version": version,
        "soname": int(version.partition(".")[0]),
        "cuda": "12",
        "path": path,
        "source": "pip",
        "complete": True,
        **more,
    }


def test_a_wheel_that_would_take_the_installed_cudnn_away_lies_in_a_folder_of_its_own() -> None:
    found = planned("south==1.1", book=BESIDE, channel="pip")

    assert found.conflict is None
    assert not found.apt
    assert [(one.version, one.action) for one in found.pip if one.name == "nvidia-cudnn-cu12"] == [("9.1.0.70", "keep")]
    (first,) = [one.message for one in found.warnings if one.code == "cudnn-majors"]
    assert "south loads cuDNN 8" in first
    assert "north wants cuDNN 9" in first
    (entry,) = [one for one in found.environment if one.kind == "folder"]
    assert entry.value == "south"
    assert entry.wheel is not None
    assert (entry.wheel.name, entry.wheel.version) == ("nvidia-cudnn-cu12", "8.9.7.29")
    assert [step.kind for step in found.steps][-1] == "folder"
    assert found.stack is not None
    assert [(one.name, one.cudnn, one.libraries) for one in found.stack.frameworks if one.asked] == [("south", "8.9.7.29", "pip")]
    assert "libcudnn.so.8 for south only, in a separate folder" in text_of(show_plan, found)


def test_no_framework_loses_the_cudnn_that_lies_in_the_folder() -> None:
    found = planned("south==1.1", book=BESIDE, channel="pip", cudnn=[in_folder("7.6.5")])

    assert found.conflict is not None
    assert "the installed north 2.0" in found.conflict.message
    assert any("north 2.0 is built with cuDNN 9.1" in one.because for one in found.conflict.causes)


@pytest.mark.parametrize("channel", ["auto", "pip"])
def test_a_framework_that_lives_on_the_folder_stays_there(channel: str) -> None:
    installed = {**NORTH, "south": "1.1"}
    found = planned("south==1.1", book=BESIDE, channel=channel, pip=installed, cudnn=[in_folder("8.9.7")])

    assert found.conflict is None
    assert not found.changes
    assert [one.wheel.version for one in found.environment if one.wheel is not None] == ["8.9.7.29"]


def test_a_framework_that_lives_on_the_folder_is_in_nobodys_way_and_holds_its_cuda() -> None:
    found = planned("north==2.0", book=BESIDE, pip={**NORTH, "south": "1.1"}, cudnn=[in_folder("8.9.7")])

    assert found.conflict is None
    assert found.stack is not None
    assert [(one.name, one.libraries) for one in found.stack.frameworks] == [("north", "pip"), ("south", "pip")]


def test_two_frameworks_that_are_both_new_get_no_second_cudnn() -> None:
    found = planned("north==2.0", "south==1.1", book=BESIDE, channel="pip", pip={})

    assert found.conflict is not None


def test_an_environment_of_its_own_is_the_first_way_out_and_giving_up_the_framework_the_last() -> None:
    found = planned("south==1.1", channel="pip")
    assert found.conflict is not None
    first, *_, last = found.conflict.relaxations

    assert first.change == "south==1.1 in a separate environment; north 2.0 stays where it is"
    assert first.command == "cudnn-resolve apply south==1.1 --channel pip --env DIR"
    assert last.change.startswith("--allow-break north")
    assert last.command.endswith("--allow-break north")


def test_the_other_cudnn_comes_from_apt_where_the_wheel_would_break_something() -> None:
    found = planned("south==1.1", book=BESIDE)

    assert found.conflict is None
    assert [one.name for one in found.apt] == ["cuda-libraries-12-4", "libcudnn8"]
    assert not [one for one in found.pip if one.name.startswith("nvidia-")]


SYSTEM: dict[str, Any] = {
    "cuda_toolkits": [{"version": "12.4", "path": "/usr/local/cuda", "source": "other"}],
    "cudnn": [{"version": "9.3.0.75", "soname": 9, "cuda": "12", "path": "/usr/lib/x86_64-linux-gnu", "source": "apt", "complete": True}],
}
ON_THE_SYSTEM = {"north": "2.0", "numpy": "1.26.4"}


@pytest.mark.parametrize("channel", ["auto", "pip", "apt"])
@pytest.mark.parametrize(("pip", "parts"), [(NORTH, {}), (ON_THE_SYSTEM, SYSTEM)])
def test_another_cuda_major_beside_an_installed_framework_is_no_answer(channel: str, pip: dict[str, str], parts: dict[str, Any]) -> None:
    found = planned("south==1.1", pip=pip, channel=channel, **parts)

    assert found.conflict is not None
    assert any("frameworks of one environment share one major" in one.because for one in found.conflict.causes)
    assert found.conflict.relaxations[-1].command.endswith("--allow-break north")


def test_an_installed_framework_of_another_cuda_major_is_in_nobodys_way() -> None:
    pip = {**NORTH, "south": "1.1", "nvidia-cuda-runtime-cu11": "11.8.89"}
    toolkit = {"version": "11.2", "path": "/usr/local/cuda-11.2", "source": "other"}
    cudnn = {"version": "8.1.0.77", "soname": 8, "cuda": "11", "path": "/usr/lib/x86_64-linux-gnu", "source": "apt", "complete": True}
    found = planned("south==1.1", pip=pip, cuda_toolkits=[toolkit], cudnn=[cudnn])

    assert found.conflict is None
    assert not found.changes


def test_a_framework_that_may_break_does_and_the_plan_says_so_first() -> None:
    found = planned("south==1.1", channel="pip", allow_break=frozenset({"north"}))

    assert codes(found)[0] == "breaks-framework"
    assert "north 2.0 will no longer import" in "\n".join(text_of(show_plan, found).splitlines()[:4])
    assert "north" not in {one.name for one in found.stack.frameworks} if found.stack else False


def test_what_may_break_is_kept_where_it_can_be() -> None:
    found = planned("south==1.1", book=BESIDE, allow_break=frozenset({"north"}))

    assert [one.name for one in found.apt] == ["cuda-libraries-12-4", "libcudnn8"]
    assert "breaks-framework" not in codes(found)


def test_an_upgrade_within_the_abi_is_an_override_of_the_installed_framework() -> None:
    found = planned("south==2.0")

    assert versions(found)["nvidia-cudnn-cu12"] == "9.3.0.75"
    (override,) = found.overrides
    assert (override.package, override.declared, override.requested_by) == ("nvidia-cudnn-cu12", "==9.1.0.70", "north 2.0 (installed)")
    assert "ABI" in override.reason


def test_installed_frameworks_stand_in_the_stack() -> None:
    found = planned("south==2.0")
    assert found.stack is not None

    assert [(one.name, one.asked, one.libraries) for one in found.stack.frameworks] == [("south", True, "pip"), ("north", False, "pip")]
    assert "installed and kept" in text_of(show_plan, found)


def test_a_framework_that_cannot_be_loaded_holds_nothing() -> None:
    found = planned("south==1.1", channel="pip", pip={"north": "2.0"}, cudnn=[])

    assert found.conflict is None
    assert "broken-framework" in codes(found)


def test_two_cuda_majors_in_one_environment_are_told_first() -> None:
    assert codes(planned("south==1.1", allow_break=frozenset({"north"}), pip=ON_THE_SYSTEM, **SYSTEM))[0] == "cuda-majors"


@pytest.mark.parametrize("version", ["2.0+cpu", "2.0+rocm6.2", "2.0+xpu"])
def test_a_build_for_another_device_needs_no_cuda_to_work(version: str) -> None:
    found = planned("south==1.1", channel="pip", pip={"north": version, "numpy": "1.26.4"}, cudnn=[])

    assert found.conflict is None
    assert "broken-framework" not in codes(found)


def test_a_framework_whose_gpu_code_is_not_installed_is_one_without_gpu() -> None:
    wheel = texts()["wheel/south"].replace("nvidia-cudnn-cu12==9.3.0.75; extra", "south-plugin==2.0; extra")
    book = changed({"wheel/south": wheel})
    pip = {"south": "2.0", "nvidia-cudnn-cu12": "9.3.0.75", "nvidia-cuda-runtime-cu12": "12.4.127", "nvidia-cublas-cu12": "12.4.5.8"}

    def held(**more: str) -> bool:
        found = universe(book, "north==2.0", packages={"pip": {**pip, **more}, "apt": {}})
        (south,) = (one for one in found.installed.protected if one.package == "south")
        return any(hold.package == "nvidia-cudnn-cu12" for hold in south.holds)

    assert held(**{"south-plugin": "2.0"})
    assert not held()


def test_a_distribution_that_owns_the_frameworks_files_is_that_framework() -> None:
    slot = texts()["package/slot"].replace('"south-gpu"]', '"south-gpu", "south-cpu"]')
    book = changed({"package/slot": slot})
    found = universe(book, "north==2.0", packages={"pip": {"south-cpu": "1.1", "numpy": "1.26.4"}, "apt": {}})

    assert [(one.package, [hold.text for hold in one.holds]) for one in found.installed.protected] == [("south-cpu", ["numpy<2"])]


def test_a_bound_holds_for_a_package_that_only_comes_with_the_plan() -> None:
    assert versions(planned("north==1.0", pip={}))["numpy"] == "2.1.0"
    assert versions(planned("north==1.0", pip={"south": "1.1"}))["numpy"] == "1.26.4"


def test_a_declared_requirement_holds_for_a_package_that_only_comes_with_the_plan() -> None:
    found = planned("north==1.0", pip={"south": "2.0"}, requires={"south": ["pillow<11", "numpy<2"]}, extras=("pillow",))

    assert (versions(found)["pillow"], versions(found)["numpy"]) == ("10.0.0", "1.26.4")


def test_a_declared_minimum_that_is_not_met_is_met_where_it_can_be() -> None:
    pip = {**NORTH, "pillow": "9.0.0"}
    found = planned("south==2.0", pip=pip, extras=("pillow",), requires={"north": ["pillow>=10"]})

    assert Version(versions(found)["pillow"]) >= Version("10")
    assert "breaks-framework" not in codes(found)


def test_a_declared_minimum_that_cannot_be_met_is_in_nobodys_way() -> None:
    pip = {**NORTH, "pillow": "9.0.0"}
    found = planned("south==2.0", pip=pip, extras=("pillow<10",), requires={"north": ["pillow>=10"]})

    assert found.conflict is None
    assert "breaks-framework" not in codes(found)


@pytest.mark.parametrize(
    ("requires", "asked", "chosen"),
    [
        ("numpy<2", (), "1.26.4"),  # an answer that keeps it is found
        ("left-pad>=1", (), "1.26.4"),  # what is not installed was broken before
        ("numpy<1.20", (), "1.26.4"),  # what is not met was broken before
    ],
)
def test_what_an_installed_framework_declares(requires: str, asked: tuple[str, ...], chosen: str) -> None:
    found = planned("south==2.0", extras=asked, requires={"north": [requires]})

    assert versions(found)["numpy"] == chosen


@pytest.mark.parametrize("release", ["1.0", "1.1"])
def test_a_yanked_release_declares_what_the_matrix_has_of_it(release: str) -> None:
    book = changed({"wheel/south": texts()["wheel/south"].replace("numpy>=1.20", "numpy>=1.26")})
    found = planned("north==2.0", book=book, pip={"south": release, "numpy": "1.26.4"}, extras=("numpy<1.26",))

    assert found.conflict is not None
    assert f"the installed south {release}" in found.conflict.message
    found = planned("north==2.0", book=book, pip={"south": release, "numpy": "1.26.4"}, extras=("numpy<1.26",), allow_break=("south",))
    assert [one.message for one in found.warnings if one.code == "breaks"] == [
        f"south {release} requires numpy>=1.26; numpy 1.26.4 becomes 1.24.4"
    ]


def test_numpy_stays_within_what_an_installed_framework_is_compiled_against() -> None:
    found = planned("south==2.0", extras=("numpy>=2",), requires={"north": ["numpy<2"]}, python="3.11.9")

    assert found.conflict is not None
    assert "the installed north 2.0" in found.conflict.message


def test_an_older_release_than_declared_is_an_override() -> None:
    pip = {**NORTH, "pillow": "11.0.0"}
    found = planned("south==2.0", pip=pip, extras=("pillow<11",), requires={"north": ["pillow>=11"]})

    assert found.conflict is None
    assert [(one.package, one.declared, one.requested_by) for one in found.overrides if one.package == "pillow"] == [
        ("pillow", ">=11", "north 2.0 (installed)")
    ]


def test_a_framework_that_a_line_of_the_project_moves_holds_nothing() -> None:
    found = planned("south==2.0", pip={**NORTH, "nvidia-cudnn-cu12": "9.3.0.75"}, extras=("north-vision==0.1",))

    assert found.stack is not None
    assert [one.name for one in found.stack.frameworks] == ["south"]


IMAGE = "2.0a0+ecf3bae40a.nv25.1"


@pytest.mark.parametrize("target", ["north", "north==2.0", "north>=2.0,<3", f"north=={IMAGE}"])
def test_an_images_own_build_is_kept(target: str) -> None:
    found = planned(target, pip={"north": IMAGE, "numpy": "1.26.4"}, **SYSTEM)

    assert [(one.name, one.version, one.action) for one in found.pip if one.name == "north"] == [("north", IMAGE, "keep")]
    assert not found.changes


@pytest.mark.parametrize("target", ["north==1.0", "north==2.0+cu118"])
def test_an_images_own_build_is_not_another_one(target: str) -> None:
    found = planned(target, pip={"north": IMAGE, "numpy": "1.26.4"}, **SYSTEM)

    assert {one.name: one.action for one in found.pip}["north"] != "keep"


def test_an_images_own_build_beside_another_framework_stays() -> None:
    found = planned("south==2.0", pip={"north": IMAGE, "numpy": "1.26.4"}, **SYSTEM)

    assert "north" not in {one.name for one in found.pip if one.action != "keep"}
    assert found.stack is not None
    assert [one.version for one in found.stack.frameworks if not one.asked] == [IMAGE]


def test_an_asked_framework_that_is_installed_keeps_its_wheels_beside_one_on_the_system() -> None:
    found = planned("north==2.0", "south==2.0", **SYSTEM)

    assert found.conflict is None
    assert {one.name: one.action for one in found.pip}["north"] == "keep"


def test_a_proposed_command_repeats_what_may_break() -> None:
    found = planned("south==9", context=(("--allow-break", "north"),))

    assert found.conflict is not None
    assert all("--allow-break north" in one.command for one in found.conflict.relaxations)


def test_a_lock_that_takes_an_installed_framework_its_cudnn_says_so_and_stops() -> None:
    here = facts(packages={"pip": NORTH, "apt": {}}, python={"version": "3.10.9", "path": "/env/bin/python"})
    cudnn = PipAction(name="nvidia-cudnn-cu12", version="8.9.7.29", action="downgrade", installed="9.1.0.70")
    found = Plan(targets=("south==1.1",), facts=here, pip=(cudnn,))

    (said,) = broken_installed(found, PlanRequest(), BOOK)
    assert said.code == "lock-breaks"
    assert said.message.startswith("north 2.0 will no longer import: north 2.0 is built with cuDNN 9.1")
    assert [one.code for one in broken_installed(found, PlanRequest(allow_break=("north",)), BOOK)] == ["breaks-framework"]
    north = PipAction(name="north", version="2.0", action="keep", installed="2.0")
    assert not list(broken_installed(replace(found, pip=(cudnn, north)), PlanRequest(), BOOK)), "the lock speaks of it"
    assert not list(broken_installed(replace(found, pip=(replace(cudnn, version="9.3.0.75"),)), PlanRequest(), BOOK))


def test_why_names_what_an_installed_framework_holds_and_that_it_stays() -> None:
    def resolved(**options: Any) -> Resolution:
        environment = {"pip": NORTH, "apt": {}, "requires": {"north": ("numpy>=1.20",)}}
        of = facts(packages=environment, python={"version": "3.10.9", "path": "/env/bin/python"})
        found = outcome(BOOK, of, request(BOOK, "south==2.0", **options))
        assert isinstance(found, Resolution)
        return found

    found = resolved()
    held = {link.text: link.links for link in chain(found, "nvidia-cudnn-cu12", BOOK).links}
    assert [(one.text, one.links) for one in held["nvidia-cudnn-cu12>=9.1,<10"]] == [("north 2.0 is installed", ())]
    kept = chain(found, "north", BOOK)
    assert (kept.chosen, [link.text for link in kept.links]) == ("2.0", ["north 2.0 is installed"])
