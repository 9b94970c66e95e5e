"""What the causes of a conflict name, and what they leave out."""

from __future__ import annotations

from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.resolution.model import Conflict
from cudnn_resolve.resolution.resolve import resolve
from tests.fake_source import Published, index_of
from tests.worlds.load import facts, request, world

BOOK = world()


def test_a_release_for_another_architecture_is_no_cause_of_pins_that_clash() -> None:
    lib = {"2.0": Published(tags=("py3-none-manylinux_2_17_aarch64",)), "1.0": Published()}
    source = index_of(BOOK, {"lib": lib, "other": {"1.0": Published(("numpy>=2",))}, "app": {"1.0": Published(("lib", "other"))}})
    here = machine_of(facts(python={"version": "3.10.9"}), BOOK)
    found = resolve(BOOK, here, request(BOOK, "north==2.0", "south==2.0", extras=("app",)), source)

    assert isinstance(found, Conflict)
    assert any("numpy>=2" in cause.what for cause in found.causes)
    assert not [cause for cause in found.causes if "no wheel for" in cause.because]


def test_a_build_without_gpu_leads_to_the_option_that_takes_it() -> None:
    found = resolve(BOOK, machine_of(facts(), BOOK), request(BOOK, "north==2.0+cpu"))

    assert isinstance(found, Conflict)
    assert found.message == "north==2.0+cpu is a CPU build, which is used with --device cpu only"
    assert found.relaxations[0].command == "cudnn-resolve plan -f north==2.0+cpu --device cpu"
    assert found.relaxations[1].command == "cudnn-resolve plan -f north==2.0"


def test_a_build_for_other_accelerators_is_said_to_be_out_of_scope() -> None:
    found = resolve(BOOK, machine_of(facts(), BOOK), request(BOOK, "north==2.0+rocm6.2"))

    assert isinstance(found, Conflict)
    assert "is a build for AMD GPUs (ROCm)" in found.message


def test_a_release_that_is_not_there_is_named_once_among_the_causes() -> None:
    found = resolve(BOOK, machine_of(facts(), BOOK), request(BOOK, "north==9.9"))

    assert isinstance(found, Conflict)
    assert [cause.what for cause in found.causes] == ["north==9.9"]
