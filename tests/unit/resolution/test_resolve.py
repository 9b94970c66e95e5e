"""Requests on the toy matrix, from the machine to the choice or the conflict; and the chain behind a pin."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.requirement.source import Source
from cudnn_resolve.resolution.chain import chain
from cudnn_resolve.resolution.model import Conflict, Resolution
from tests.fake_source import Published, index_of
from tests.worlds.load import facts, gpu, outcome, pins, request, world

BOOK = world()


def chosen(
    *targets: str, extras: tuple[str, ...] = (), options: dict[str, Any] | None = None, source: Source | None = None, **parts: Any
) -> Resolution:
    found = outcome(BOOK, facts(**parts), request(BOOK, *targets, extras=extras, **(options or {})), source)
    assert isinstance(found, Resolution), found
    return found


def refused(*targets: str, extras: tuple[str, ...] = (), options: dict[str, Any] | None = None, **parts: Any) -> Conflict:
    found = outcome(BOOK, facts(**parts), request(BOOK, *targets, extras=extras, **(options or {})))
    assert isinstance(found, Conflict), {pin.name: pin.version for pin in found.pip}
    return found


def ways(found: Conflict) -> list[str]:
    return [one.change for one in found.relaxations]


def test_one_framework() -> None:
    found = chosen("north")

    assert pins(found) == {
        "north": "2.0",
        "nvidia-cudnn-cu12": "9.1.0.70",
        "nvidia-cublas-cu12": "12.4.5.8",
        "nvidia-cuda-runtime-cu12": "12.4.127",
        "numpy": "1.26.4",
    }
    assert (found.cuda, found.cudnn, found.cudnn_soname, found.driver_min) == ("12.4", "9.1.0.70", 9, "525.60.13")
    assert not found.overrides


def test_a_shared_library_is_as_new_as_the_newest_wish_and_the_pins_left_are_named() -> None:
    found = chosen("north", "south")

    assert pins(found)["nvidia-cudnn-cu12"] == "9.3.0.75"
    assert pins(found)["nvidia-cuda-runtime-cu12"] == "12.4.127"
    left = {(one.package, one.declared, one.chosen) for one in found.overrides}
    assert ("nvidia-cudnn-cu12", "==9.1.0.70", "9.3.0.75") in left


def test_two_frameworks_of_different_cuda_majors_meet_on_the_older_one() -> None:
    found = chosen("south", "north", driver={"version": "580.65.06"})

    assert pins(found)["north"] == "2.0"
    assert "nvidia-cudnn-cu13" not in pins(found)


def test_each_keeps_its_newest_alone() -> None:
    found = chosen("north", driver={"version": "580.65.06"})

    assert pins(found)["north"] == "3.0"
    assert pins(found)["nvidia-cudnn-cu13"] == "9.13.0.50"


def test_packages_that_own_the_same_files_never_meet() -> None:
    found = refused("north==3.0", "south==2.0", driver={"version": "580.65.06"})

    assert any("separate environment" in way for way in ways(found))
    assert found.message == "north==3.0 and south==2.0 cannot share one environment"


def test_an_old_gpu_takes_an_old_cudnn() -> None:
    assert chosen("north", gpus=gpu("6.0")).cudnn == "9.1.0.70"
    found = refused("south==2.0", gpus=gpu("6.0"))
    assert "6.0" in found.message
    assert any("9.1.0.70 is the last" in cause.because for cause in found.causes)


def test_a_known_bad_cudnn_is_left_for_one_gpu_only() -> None:
    assert chosen("south==2.0", gpus=gpu("8.0")).cudnn == "9.3.0.75"
    assert chosen("south==2.0", gpus=gpu("9.0")).cudnn == "9.8.0.87"


def test_every_gpu_is_served() -> None:
    assert pins(chosen("north", gpus=gpu("6.0", "8.6")))["north"] == "2.0"
    found = refused("north", gpus=gpu("3.5", "12.0"), python={"version": "3.10"})
    assert any("without card" in way for way in ways(found))


def test_only_ptx_needs_the_toolkits_driver() -> None:
    parts: dict[str, Any] = {"python": {"version": "3.10"}, "gpus": gpu("8.0")}

    assert chosen("south==1.1", driver={"version": "460.27.03"}, **parts).driver_min == "460.27.03"
    found = refused("south==1.1", driver={"version": "450.80.02"}, **parts)
    assert any("PTX" in cause.because for cause in found.causes)
    assert any("460.27.03" in way for way in ways(found))


def test_the_strict_policy_asks_for_the_toolkits_driver() -> None:
    assert chosen("north==2.0", options={"driver_policy": "strict"}).driver_min == "550.54.14"
    found = refused("north==2.0", options={"driver_policy": "strict", "cuda": ">=12"}, driver={"version": "535.54.03"})
    assert any("minor" in way for way in ways(found))


def test_a_limit_is_kept() -> None:
    assert chosen("south==2.0", options={"cuda": "12.4"}).cuda == "12.4"
    assert chosen("south==2.0", options={"cuda": ">=12.5"}, driver={"version": "580.65.06"}).cuda == "12.8"
    assert chosen("south==2.0", options={"cudnn": "9.8"}).cudnn == "9.8.0.87"
    assert any("without --cuda" in way for way in ways(refused("south==2.0", options={"cuda": "<12"})))


@pytest.mark.parametrize(("policy", "version"), [("minor", "2.0"), ("strict", "2.0+cu118")])
def test_another_variant_serves_an_older_driver(policy: str, version: str) -> None:
    assert pins(chosen("north==2.0", options={"driver_policy": policy}, driver={"version": "535.54.03"}))["north"] == version


def test_bundled_libraries() -> None:
    found = chosen("north==2.0", driver={"version": "470.57.02"})

    assert pins(found) == {"north": "2.0+cu118", "numpy": "1.26.4"}
    assert (found.cuda, found.cudnn, found.cudnn_soname) == ("11.8", "8.7", 8)
    assert found.channels == {"north": "bundled"}


def test_apt_where_the_user_wants_it() -> None:
    found = chosen("south==2.0", options={"channel": "apt"})

    assert [(one.name, one.version, one.repository) for one in found.apt] == [
        ("cuda-libraries-12-2", "12.2.0-1", "newer"),
        ("libcudnn9-cuda-12", "9.3.0.75-1", "newer"),
    ]
    assert set(pins(found)) == {"south", "numpy"}


def test_what_is_on_the_system_serves_before_apt() -> None:
    found = chosen(
        "south==2.0",
        options={"channel": "apt"},
        cuda_toolkits=[{"version": "12.2", "path": "/usr/local/cuda-12.2", "source": "runfile"}],
        cudnn=[{"version": "9.3.0.75", "soname": 9, "cuda": "12", "path": "/opt/cudnn", "source": "other", "complete": True}],
    )

    assert (found.cuda, found.cudnn, found.apt) == ("12.2", "9.3.0.75", ())


def test_apt_is_no_way_for_a_user_without_root() -> None:
    platform = {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04"}
    book_limit = {"cudnn": "9.1"}

    assert chosen("north==2.0", options=book_limit, platform=platform, root=False).apt == ()


def test_a_cpu_build_is_never_the_silent_answer() -> None:
    old = {"version": "418.1"}

    assert any("--device cpu" in one.command for one in refused("north==2.0", driver=old).relaxations)
    assert pins(chosen("north", options={"device": "cpu"}, driver=old)) == {"north": "2.0+cpu", "numpy": "1.26.4"}


def test_a_withdrawn_build_is_taken_only_where_it_is_named() -> None:
    parts: dict[str, Any] = {"python": {"version": "3.10"}, "driver": {"version": "470.57.02"}}

    assert pins(chosen("south<2", **parts))["south"] == "1.1"
    assert pins(chosen("south==1.0", **parts))["south"] == "1.0"
    assert isinstance(refused("south<1.1", **parts), Conflict)


def test_the_package_that_the_user_names() -> None:
    assert "south-gpu" in pins(chosen("south-gpu", python={"version": "3.10"}))


def test_companions_move_along() -> None:
    held = {"pip": {"north": "2.0", "north-vision": "0.1", "pillow": "10.0.0", "numpy": "1.26.4"}}
    found = chosen("north==3.0", driver={"version": "580.65.06"}, packages=held)

    assert pins(found)["north-vision"] == "0.2"
    assert pins(found)["pillow"] == "10.0.0"
    assert not found.dropped


def test_a_companion_brings_what_it_imports_beside_its_framework() -> None:
    """Its extra for the framework says what; an extra for another framework, and for users, are left alone."""
    said = (
        'north>=3; extra == "on-north"',
        'north-keras>=1; extra == "on-north"',
        'south-keras; extra == "on-south"',
        'shell; extra == "cli"',
    )
    files = {"north-vision": {"0.3": Published(said)}, "north-keras": {"1.5": Published(())}, "shell": {"1.0": Published(())}}
    found = pins(chosen("north==3.0", driver={"version": "580.65.06"}, extras=("north-vision",), source=index_of(BOOK, files)))
    assert found["north-keras"] == "1.5"
    assert not {"south-keras", "shell"} & set(found)


@pytest.mark.parametrize(("pre", "expected"), [(False, "0.3"), (True, "0.4rc1")])
def test_a_companion_moves_to_a_pre_release_only_where_those_count(expected: str, *, pre: bool) -> None:
    vision = {"0.3": Published(("north==3.0",)), "0.4rc1": Published(("north==3.0",))}
    held = {"pip": {"north": "2.0", "north-vision": "0.1"}}
    found = chosen(
        "north==3.0",
        options={"pre": pre},
        source=index_of(BOOK, {"north-vision": vision}),
        driver={"version": "580.65.06"},
        packages=held,
    )

    assert pins(found)["north-vision"] == expected


def test_an_installed_pre_release_of_a_companion_stays() -> None:
    vision = {"0.4rc1": Published(("north==3.0",)), "0.3": Published(("north==3.0",))}
    held = {"pip": {"north": "3.0", "north-vision": "0.4rc1"}}
    found = chosen(
        "north==3.0",
        source=index_of(BOOK, {"north-vision": vision}),
        driver={"version": "580.65.06"},
        packages=held,
    )

    assert pins(found)["north-vision"] == "0.4rc1"


def test_a_companion_without_a_fitting_release_is_left_and_named() -> None:
    held = {"pip": {"north": "2.0", "north-vision": "0.1"}}
    found = chosen("north==1.0", driver={"version": "535.54.03"}, python={"version": "3.10"}, packages=held)

    assert found.dropped == ("north-vision",)


def test_further_requirements_hold() -> None:
    assert pins(chosen("south", extras=("numpy<2", "pillow==10.0.0"))) | {"numpy": "1.26.4", "pillow": "10.0.0"} == pins(
        chosen("south", extras=("numpy<2", "pillow==10.0.0"))
    )
    found = refused("north==2.0", extras=("numpy>=2",))
    assert any("requirements.txt:1" in cause.because for cause in found.causes)


def test_a_requirement_for_another_machine_does_not_count() -> None:
    found = chosen(
        "north==2.0", extras=("numpy>=2; python_version < '3.9'", "numpy>=2; sys_platform == 'win32'", "pillow; extra == 'never'")
    )

    assert pins(found)["numpy"] == "1.26.4"
    assert "pillow" not in pins(found)


@pytest.mark.parametrize(("python", "expected"), [("3.11.9", "2.0"), ("3.9.1", "1.0")])
def test_the_newest_release_for_a_python(python: str, expected: str) -> None:
    assert pins(chosen("north", python={"version": python}))["north"] == expected


def test_without_a_python_the_one_with_most_wheels_is_assumed() -> None:
    found = chosen("north==2.0", python={})

    assert found.machine.python == (3, 11)


def test_a_release_that_does_not_exist_is_no_fault_of_the_machine() -> None:
    found = refused("north==7.0")

    assert [cause.what for cause in found.causes][:1] == ["north==7.0"]
    assert "driver" not in found.message
    assert any("north==3.0" in way or "north==2.0" in way for way in ways(found))


def test_a_conflict_names_no_more_than_it_must() -> None:
    found = refused("north==3.0")

    assert "driver 550.54.15" in found.message
    assert not any(word in found.message for word in ("glibc", "GPU", "Python", "ubuntu"))
    assert any("580.65.06" in way for way in ways(found))


def test_the_forward_compatibility_package_is_for_data_centers() -> None:
    driver = {"version": "470.57.02"}
    center = refused("south==2.0", options={"cuda": "12.4"}, driver=driver)
    home = refused("south==2.0", options={"cuda": "12.4"}, driver=driver, gpus=[{"name": "NVIDIA GeForce RTX 3090"}])

    assert any("cuda-compat-12-4" in way for way in ways(center))
    assert not any("cuda-compat" in way for way in ways(home))


def test_the_chain_ends_with_the_users_words() -> None:
    found = chain(chosen("north", "south"), "nvidia-cudnn-cu12", BOOK)

    assert found.chosen == "9.3.0.75"
    ends = []
    left = list(found.links)
    while left:
        link = left.pop()
        left += link.links
        if not link.links:
            ends.append(link)
    assert {(one.text, one.because) for one in ends} >= {("north", "asked for"), ("south", "asked for")}
    assert any(not link.obeyed for link in found.links)


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("nvidia-cudnn-cu13", "owns the same files"),
        ("nvidia-cuda-runtime-cu11", "it is for CUDA 11"),
        ("left-pad", "nothing in the plan needs it"),
        ("pillow", "it is installed (10.0.0)"),
    ],
)
def test_why_something_is_not_there(word: str, part: str) -> None:
    found = chain(chosen("north", packages={"pip": {"pillow": "10.0.0"}}), word, BOOK)

    assert found.chosen is None
    assert part in str(found.absence)


@pytest.mark.parametrize("word", ["cuda", "CUDNN", "driver", "north", "NumPy"])
def test_facts_and_libraries_have_a_chain_too(word: str) -> None:
    found = chain(chosen("north"), word, BOOK)

    assert found.chosen
    assert found.links


@pytest.mark.parametrize(("verb", "proposed"), [("plan", "plan"), ("lock", "lock"), ("apply", "plan")])
def test_ways_out_are_commands_of_the_verb_that_asked_unless_they_state_a_machine(verb: str, proposed: str) -> None:
    old = {"version": "418.1"}
    context = (("--platform", "linux_aarch64"), ("--platform", "linux_x86_64")) if verb == "lock" else ()
    found = refused("north==2.0", driver=old, options={"verb": verb, "context": context})
    newer = next(one for one in found.relaxations if "--driver" in one.command)

    assert newer.command.startswith(f"cudnn-resolve {proposed} -f north==2.0")
    assert newer.command.count("--platform") == len(context)


def test_two_environments_are_two_plans_or_two_locks() -> None:
    targets, new = ("north==3.0", "south==2.0"), {"version": "580.65.06"}
    ways = {}
    for verb in ("plan", "lock", "apply"):
        found = refused(*targets, options={"verb": verb, "context": (("--requirement", "r.txt"),)}, driver=new)
        (ways[verb],) = (one.command for one in found.relaxations if " && " in one.command)

    assert ways["lock"].endswith("lock -f south==2.0 --output pylock.south.toml")
    assert ways["lock"].startswith("cudnn-resolve lock -f north==3.0 --requirement r.txt && ")
    assert ways["apply"] == ways["plan"], "neither changes the one environment twice"
    assert ways["plan"].endswith("cudnn-resolve apply south==2.0 --env DIR")


def test_the_environment_apart_keeps_what_a_file_says_of_where_packages_come_from() -> None:
    options = {"context": (("--requirement", "r.txt"),), "settings": (("--find-links", "sub/wheels"), ("--pre", ""))}
    found = refused("north==3.0", "south==2.0", options=options, driver={"version": "580.65.06"})

    (way,) = (one.command for one in found.relaxations if " && " in one.command)
    first, _, second = way.partition(" && ")
    assert first.endswith("--requirement r.txt"), "the file says it itself"
    assert second == "cudnn-resolve apply south==2.0 --env DIR --find-links sub/wheels --pre"
