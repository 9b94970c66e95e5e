"""Whether a lock is still right, and what a new one changes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import astuple, replace

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.model import Driver, Facts, Gpu
from cudnn_resolve.locking.change import changes, keep_records
from cudnn_resolve.locking.merge import Answer
from cudnn_resolve.locking.model import Difference, Environment, Lock, LockedRequest
from cudnn_resolve.locking.proof import add_record, proofs
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.up_to_date import request_differences, resolution_differences
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.report.document import encode_check
from cudnn_resolve.report.lock import show_check
from cudnn_resolve.requirement.source import File, Offer
from cudnn_resolve.resolution.model import AptPin, Override
from tests.fake_source import Published, index_of
from tests.lock_maker import BOOK, answer, changed, lock_of, pinned, pins, with_packages
from tests.pages import text_of

ASKED = LockedRequest(targets=("torch>=2.4",), requirements=("numpy<2", "-c six==1.0"), driver_policy="minor")


def short(found: tuple[Difference, ...]) -> list[tuple[str, str, str]]:
    return [(one.what, one.locked, one.now) for one in found]


def preferred(lock: Lock, *targets: str, **more: object) -> Answer:
    return answer(*targets, preferences={name: version or "" for name, version in pins(lock).items()}, **more)  # type: ignore[arg-type]


def test_resolving_again_from_a_lock_changes_nothing() -> None:
    lock = lock_of(answer("north", "south", extras=("pillow",)))
    again = preferred(lock, "north", "south", extras=("pillow",))

    assert resolution_differences(lock, [again]) == ()
    assert replace(lock_of(again), tool=None) == replace(lock, tool=None)


def test_pins_stay_when_newer_releases_appear() -> None:
    old = index_of(BOOK, {"app": {"1.0": Published(("lib",))}, "lib": {"1.0": Published()}})
    new = index_of(BOOK, {"app": {"1.0": Published(("lib",)), "2.0": Published(("lib",))}, "lib": {"1.0": Published(), "1.1": Published()}})
    lock = lock_of(answer("north==2.0", extras=("app",), source=old))

    assert resolution_differences(lock, [preferred(lock, "north==2.0", extras=("app",), source=new)]) == ()
    assert pins(lock_of(answer("north==2.0", extras=("app",), source=new)))["app"] == "2.0"


def test_a_pin_that_a_requirement_refuses_is_named_with_it() -> None:
    source = index_of(BOOK, {"app": {"1.0": Published(), "2.0": Published()}})
    lock = lock_of(answer("north==2.0", extras=("app<2",), source=source))
    (found,) = resolution_differences(lock, [preferred(lock, "north==2.0", extras=("app>=2",), source=source)])

    assert (found.what, found.locked, found.now) == ("app", "1.0", "2.0")
    assert found.because == "app>=2: asked for in requirements.txt:1"


def test_packages_that_come_and_go_are_named() -> None:
    source = index_of(BOOK, {"app": {"1.0": Published()}, "web": {"1.0": Published()}})
    lock = lock_of(answer("north==2.0", extras=("app",), source=source))
    found = resolution_differences(lock, [preferred(lock, "north==2.0", extras=("web",), source=source)])

    assert short(found) == [("app", "1.0", "not needed"), ("web", "not in the lock", "1.0")]


def test_a_release_that_was_withdrawn_is_named_as_such() -> None:
    lock = lock_of(answer("north==2.0", extras=("app",), source=index_of(BOOK, {"app": {"1.0": Published(), "0.9": Published()}})))
    source = index_of(BOOK, {"app": {"1.0": Published(yanked="it deletes files"), "0.9": Published()}})
    (found,) = resolution_differences(lock, [preferred(lock, "north==2.0", extras=("app",), source=source)], source)

    assert (found.what, found.locked, found.now) == ("app", "1.0", "0.9")
    assert found.because == "app 1.0 was withdrawn: it deletes files"


def test_a_withdrawn_release_that_is_asked_for_by_its_version_is_said_to_be_one() -> None:
    lock = lock_of(answer("north==2.0", extras=("app==1.0",), source=index_of(BOOK, {"app": {"1.0": Published()}})))
    source = index_of(BOOK, {"app": {"1.0": Published(yanked="broken")}})
    found = resolution_differences(lock, [preferred(lock, "north==2.0", extras=("app==1.0",), source=source)], source)

    assert short(found) == [("app 1.0", "offered", "withdrawn: broken")]


def test_a_file_with_other_contents_and_one_that_is_gone_are_named() -> None:
    lock = lock_of(pinned("app==1.0 py3-none-any cp311-cp311-manylinux_2_17_x86_64"))
    now = pinned("app==1.0 py3-none-any")
    pin = now.resolution.pip[0]
    assert pin.file is not None
    file: File = replace(pin.file, hashes={"sha256": "e" * 64})
    pin = replace(pin, file=file, offer=Offer(version="1.0", files=(file,)))
    found = resolution_differences(lock, [replace(now, resolution=replace(now.resolution, pip=(pin,)))])

    assert [(one.what, one.now) for one in found] == [("app 1.0", f"sha256 {'e' * 64}"), ("app 1.0", "no longer on the index")]
    assert found[0].because == "app-1.0-py3-none-any.whl has changed on the index since it was locked"
    assert found[1].locked == "app-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"


def test_what_differs_on_one_platform_only_is_said_of_it() -> None:
    lock = lock_of(pinned("app==1.0", "lib==1.0"), pinned("app==1.0", "lib==1.0", arch="aarch64"))
    found = resolution_differences(lock, [pinned("app==2.0", "lib==1.0"), pinned("app==2.0", "lib==2.0", arch="aarch64")])

    assert short(found) == [("app", "1.0", "2.0"), ("lib (linux_aarch64)", "1.0", "2.0")]


def test_what_the_matrix_knows_otherwise_now_is_named_and_another_version_of_it_alone_is_not() -> None:
    now = answer("north", "south")
    lock = lock_of(now)
    assert lock.tool is not None
    assert resolution_differences(replace(lock, tool=replace(lock.tool, matrix="2020-01-01.ffffffff")), [now]) == ()
    (stack,) = lock.tool.stacks
    other = Override(package="numpy", requested_by="north 2.0", declared="==1.0", chosen="1.26.4", reason="")
    stack = replace(
        stack, driver_min="450.36.06", cudnn="9.1.0.70", overrides=(other,), compute_capabilities=("3.5", *stack.compute_capabilities)
    )
    found = resolution_differences(replace(lock, tool=replace(lock.tool, stacks=(stack,))), [now])

    assert [one.what for one in found] == [
        "override of numpy for north 2.0",
        "override of nvidia-cudnn-cu12 for north 2.0 (cu124)",
        "cuDNN",
        "oldest driver",
        "compute capabilities",
    ]
    assert found[0].now == "nothing"
    assert found[1].now == "9.3.0.75 instead of ==9.1.0.70"


def test_a_driver_that_may_be_older_now_is_no_difference() -> None:
    now = answer("north==2.0")
    lock = lock_of(now)
    assert lock.tool is not None
    stack = replace(lock.tool.stacks[0], driver_min="600.1.1")

    assert resolution_differences(replace(lock, tool=replace(lock.tool, stacks=(stack,))), [now]) == ()


def test_another_request_is_named_point_by_point() -> None:
    now = LockedRequest(
        targets=("torch>=2.5", "jax"), requirements=("numpy <2", "-c six==2.0"), driver_policy="strict", cuda="<13", strict_pins=True
    )
    found = tuple(request_differences(ASKED, now))

    assert short(found) == [
        ("target jax", "nothing", "jax"),
        ("target torch", "torch>=2.4", "torch>=2.5"),
        ("constraint six", "six==1.0", "six==2.0"),
        ("limit on CUDA", "nothing", "<13"),
        ("driver policy", "minor", "strict"),
        ("strict pins", "off", "on"),
    ]
    assert not tuple(request_differences(ASKED, ASKED))


def test_changes_are_named_by_what_happens() -> None:
    old = lock_of(pinned("gone==1.0", "up==1.9", "down==2.0", "same==1.0", "more==1.0"))
    new = lock_of(pinned("came==1.0", "up==1.10", "down==1.0", "same==1.0", "more==1.0 py2.py3-none-any py3-none-any"))

    assert [astuple(one) for one in changes(old, new)] == [
        ("came", "added", None, "1.0"),
        ("down", "downgraded", "2.0", "1.0"),
        ("gone", "removed", "1.0", None),
        ("more", "files", "1.0", "1.0"),
        ("up", "upgraded", "1.9", "1.10"),
    ]
    assert changes(new, new) == ()
    assert {one.action for one in changes(None, new)} == {"added"}


def test_other_contents_under_the_same_name_are_said_to_be_that() -> None:
    old = lock_of(pinned("app==1.0"))
    wheel = changed((old.packages[0].wheels or ())[0], hashes={"sha256": "0" * 64})
    new = with_packages(old, changed(old.packages[0], wheels=[wheel]))

    assert [one.action for one in changes(old, new)] == ["replaced"]


def test_records_of_tests_stay_as_long_as_the_pins_do() -> None:
    old, new = lock_of(pinned("app==1.0")), lock_of(pinned("app==1.1"))
    assert old.tool is not None
    record = {"gpu": "Tesla T4"}
    proven = replace(old, tool=replace(old.tool, validation=(record,)))

    kept = keep_records(replace(old, tool=replace(old.tool, matrix="newer")), proven)
    assert kept.tool is not None
    assert kept.tool.validation == (record,)
    assert keep_records(new, proven) == new
    assert keep_records(new, None) == new


def test_a_record_takes_the_place_of_an_older_one_of_the_same_machine_and_is_shown() -> None:
    lock = lock_of(pinned("app==1.0"))
    for record in (
        {"gpu": "Tesla T4", "driver": "550.54.15", "date": "2026-01-01"},
        {"gpu": "NVIDIA L4", "driver": "580.65.06"},
        {"gpu": "Tesla T4", "driver": "550.54.15", "date": "2026-02-02", "checks": ["conv"]},
    ):
        lock = add_record(lock, record)

    assert [one.words for one in proofs(lock)] == ["NVIDIA L4, driver 580.65.06", "Tesla T4, driver 550.54.15 (2026-02-02)"]
    assert read(write(lock)) == lock
    text = text_of(show_check, lock, (), "pylock.toml")
    assert text.splitlines()[1:] == ["  proven on NVIDIA L4, driver 580.65.06", "  proven on Tesla T4, driver 550.54.15 (2026-02-02)"]
    assert encode_check(lock, ())["proven"][1]["checks"] == ["conv"]
    foreign = replace(lock, tool=None)
    assert add_record(foreign, {"gpu": "Tesla T4"}) == foreign
    assert not list(proofs(foreign))


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (["app==1.0", "lib==2.0"], None),
        (["app==1.1", "lib==2.0"], "app was 1.0+cu124 then and is 1.1 now"),
        (["lib==2.0"], "app is no longer in the lock"),
        (["app==1.0", "lib==2.1"], "packages, files or settings of the lock have changed"),
    ],
)
def test_a_proof_speaks_of_the_pins_that_were_tested(change: list[str], because: str | None) -> None:
    old = lock_of(pinned("app==1.0", "lib==2.0"))
    record = {"gpu": "Tesla T4", "driver": "550.54.15", "frameworks": {"app": "1.0+cu124"}, "loaded": {"cudnn": "9.1.0"}}
    tested = add_record(old, record)
    assert tested.tool is not None
    edited = lock_of(pinned(*change))
    assert edited.tool is not None
    # As a merge of two branches leaves it, or an editor.
    lock = replace(edited, tool=replace(edited.tool, validation=tested.tool.validation))

    (proof,) = proofs(lock)

    assert (proof.fits, proof.because) == (because is None, because)
    assert encode_check(lock, ())["proven"][0]["fits"] is proof.fits
    line = text_of(show_check, lock, (), "pylock.toml", width=200).splitlines()[1]
    assert line == f"  {'no longer ' if because else ''}proven on Tesla T4, driver 550.54.15{f': {because}' if because else ''}"


STACK: dict[str, Any] = {
    "cudnn": "8.9.7.29",
    "apt": (AptPin(name="libcudnn9-cuda-12", version="9.1.0.70-1", repository="cuda"),),
    "environment": (Environment(kind="variable", value="LD_LIBRARY_PATH=/x", why="it is found there"),),
    "overrides": (Override(package="numpy", requested_by="north 2.0", declared="==1.0", chosen="1.26.4", reason=""),),
}


@pytest.mark.parametrize("name", STACK)
def test_a_proof_ends_with_the_stack_that_was_tested(name: str) -> None:
    lock = add_record(lock_of(pinned("app==1.0")), {"gpu": "Tesla T4", "driver": "550.54.15"})
    assert lock.tool is not None
    (stack,) = lock.tool.stacks
    other = replace(lock, tool=replace(lock.tool, stacks=(replace(stack, **{name: STACK[name]}),)))
    told = replace(lock, tool=replace(lock.tool, stacks=(replace(stack, driver_min="999.1"),)))

    assert [one.because for one in proofs(other)] == ["packages, files or settings of the lock have changed"]
    assert [one.fits for one in proofs(told)] == [True]


def test_a_record_that_does_not_say_what_was_tested_is_held_against_versions() -> None:
    lock = lock_of(pinned("app==1.0"))
    assert lock.tool is not None
    stacks = tuple(replace(one, cudnn="9.1.0.70") for one in lock.tool.stacks)
    records: tuple[dict[str, object], ...] = ({"gpu": "a", "loaded": {"cudnn": "9.1.0"}}, {"gpu": "b", "loaded": {"cudnn": "8.9.7"}}, {})
    lock = replace(lock, tool=replace(lock.tool, stacks=stacks, validation=records))

    assert [(one.fits, one.is_open, one.because) for one in proofs(lock)] == [
        (False, True, "the record does not say for which pins"),
        (False, False, "cuDNN was 8.9.7 then and is 9.1.0.70 now"),
        (False, True, "the record does not say on which GPU"),
    ]
    assert text_of(show_check, lock, (), "pylock.toml").splitlines()[1:] == [
        "  recorded on a: the record does not say for which pins",
        "  no longer proven on b: cuDNN was 8.9.7 then and is 9.1.0.70 now",
        "  recorded on an unnamed machine: the record does not say on which GPU",
    ]
    assert [one["fits"] for one in encode_check(lock, ())["proven"]] == [False] * 3


@pytest.mark.parametrize(
    "record", [{"gpu": ["a"]}, {"pins": 7}, {"date": 1.5}, {"driver": True}, {"frameworks": "x"}, {"loaded": [1]}, {"loaded": {"cudnn": 9}}]
)
def test_a_record_of_other_types_is_no_record(record: dict[str, object]) -> None:
    lock = lock_of(pinned("app==1.0"))
    assert lock.tool is not None
    (name,) = record
    text = write(replace(lock, tool=replace(lock.tool, validation=(record,))))

    with pytest.raises(InputError) as caught:
        read(text)
    assert f"tool.cudnn-resolve.validation[0].{name}" in (caught.value.context or "")


def test_what_was_tested_beside_the_lock_is_not_missed_in_it() -> None:
    old = add_record(lock_of(pinned("app==1.0", "lib==2.0")), {"gpu": "a", "frameworks": {"app": "1.0", "cupy-cuda12x": "13.6.0"}})
    assert old.tool is not None
    new = lock_of(pinned("app==1.0", "lib==2.1"))
    assert new.tool is not None
    (proof,) = proofs(replace(new, tool=replace(new.tool, validation=old.tool.validation)))
    told = {"gpu": "a", "frameworks": {"cupy-cuda12x": "13.6.0"}}
    (open_,) = proofs(replace(new, tool=replace(new.tool, validation=(told,))))

    assert proof.because == "packages, files or settings of the lock have changed"
    assert proof.record["beside"] == {"cupy-cuda12x": "13.6.0"}
    assert open_.because == "the record does not say for which pins"


def test_a_proof_of_this_machine_is_known_by_card_and_driver() -> None:
    lock = add_record(lock_of(pinned("app==1.0")), {"gpu": "Tesla T4", "driver": "550.54.15"})
    (proof,) = proofs(lock)

    def of(gpu: str, driver: str) -> bool:
        return proof.is_of(Facts(gpus=(Gpu(name=gpu),), driver=Driver(version=driver)))

    assert (of("Tesla T4", "550.54.15"), of("Tesla T4", "580.65.06"), of("NVIDIA L4", "550.54.15")) == (True, False, False)
    assert not proof.is_of(Facts())


def test_what_is_printed_of_a_hostile_lock_cannot_act_on_a_terminal() -> None:
    lock = add_record(lock_of(pinned("app==1.0")), {"gpu": "\x1b[31mT4\u202e"})
    found = Difference(what="app\x1b]0;x\x07", locked="1\n2", now="\u202e", because="\x9b31m")
    text = text_of(show_check, lock, (found,), "py\x1block.toml")

    assert all(char == "\n" or char.isprintable() for char in text)
