"""What holds for every request on every machine: against brute force on small worlds that are made up, and law by law."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from cudnn_resolve.facts.codec import encode
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.report.document import encode_plan
from cudnn_resolve.version import Capability, CodeTarget, DriverVersion
from tests.examples import examples
from tests.worlds.load import changed, facts, gpu, plan, request, versions, world

BOOK = world()
SOURCE = 'origin = "authored"\nsource.made = {where = "made up", read = 2026-11-21}\n'
HARVESTED = 'origin = "harvested"\nscript = "scripts/harvest.py"\nread = 2026-11-21\n'

FLOORS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
OWN = {"11.8": "520.61.05", "12.2": "535.54.03", "12.4": "550.54.14", "13.0": "580.65.06"}
LINES = {11: ["11.8"], 12: ["12.2", "12.4", "12.8"], 13: ["13.0"]}
RUNTIMES = {11: "nvidia-cuda-runtime-cu11", 12: "nvidia-cuda-runtime-cu12", 13: "nvidia-cuda-runtime"}
WHEELS = {"11.8": "11.8.89", "12.2": "12.2.53", "12.4": "12.4.127", "12.8": "12.8.57", "13.0": "13.0.48"}
CUDNN = {11: ["8.7.0.84"], 12: ["8.9.7.29", "9.1.0.70", "9.3.0.75", "9.8.0.87"], 13: ["9.13.0.50"]}
"""Those that no advisory is about on the GPUs below."""
CODE = {
    "8.7.0.84": ["6.0", "7.5", "8.0", "9.0"],
    "8.9.7.29": ["6.0", "7.5", "8.0", "9.0"],
    "9.1.0.70": ["6.0", "7.5", "8.0", "9.0"],
    "9.3.0.75": ["7.5", "8.0", "9.0"],
    "9.8.0.87": ["7.5", "8.0", "9.0", "12.0"],
    "9.13.0.50": ["7.5", "8.0", "9.0", "12.0"],
}
UP_TO = {"8.9.7.29": 4}
"""Last minor of its CUDA major that a cuDNN is for, where it is not for all of them."""
GPUS = {"6.0": ((8, 0), (12, 9)), "7.5": ((10, 0), None), "8.6": ((11, 0), None), "12.0": ((12, 8), None)}
NUMPY = ["1.24.4", "1.26.4", "2.1.0"]


class Made(NamedTuple):
    """A build of a framework that is made up."""

    cuda: str
    cudnn: str
    code: tuple[str, ...]
    pythons: tuple[str, ...]
    numpy: str


@st.composite
def builds(draw: st.DrawFn) -> Made:
    cuda = draw(st.sampled_from(sorted(OWN)))
    return Made(
        cuda=cuda,
        cudnn=draw(st.sampled_from([*CUDNN[int(cuda[:2])], *(["9.12.0.46"] if cuda == "13.0" else [])])),
        code=tuple(
            draw(
                st.lists(
                    st.sampled_from(["sm_60", "sm_75", "sm_80", "sm_86", "sm_120", "compute_60", "compute_80"]),
                    min_size=1,
                    max_size=3,
                    unique=True,
                )
            )
        ),
        pythons=tuple(draw(st.lists(st.sampled_from(["3.10", "3.11", "3.12"]), min_size=1, max_size=3, unique=True))),
        numpy=draw(st.sampled_from(["", "<2", ">=2", "==1.26.4", ">=1.25"])),
    )


class Here(NamedTuple):
    """A machine that is made up."""

    driver: str
    gpus: tuple[str, ...]
    python: str


machines = st.builds(
    Here,
    driver=st.sampled_from(["440.1", "470.57.02", "525.60.13", "550.54.15", "580.65.06"]),
    gpus=st.lists(st.sampled_from(sorted(GPUS)), max_size=2, unique=True).map(tuple),
    python=st.sampled_from(["3.10", "3.11", "3.12"]),
)
worlds = st.fixed_dictionaries({"red": st.lists(builds(), min_size=1, max_size=3), "blue": st.lists(builds(), min_size=1, max_size=2)})


def tables(made: Mapping[str, Sequence[Made]]) -> dict[str, str]:
    """The tables of the frameworks, version 1.0 for the first build and so on."""
    out = {}
    for name, all_of in made.items():
        text = f'{SOURCE}[framework]\nname = "{name}"\ntitle = "{name}"\npackages = ["{name}"]\nsource = "made"\n'
        metadata, releases = [], []
        for number, one in enumerate(all_of, 1):
            major = int(one.cuda[:2])
            cudnn = ".".join(one.cudnn.split(".")[:2])
            text += f'[[build]]\nversion = "{number}.0"\nvariant = "gpu"\ncuda = "{one.cuda}"\ncudnn = "{cudnn}"\n'
            text += f'delivery = "wheel"\nfinds = "rpath"\ncapability = {json.dumps(one.code)}\nsource = "made"\n'
            requires = [
                f"numpy{one.numpy}",
                f"nvidia-cudnn-cu{major}=={one.cudnn}",
                f"{RUNTIMES[major]}=={WHEELS[one.cuda]}",
            ]
            tags = [f"cp3{python[2:]}-cp3{python[2:]}-manylinux_2_17_x86_64" for python in one.pythons]
            metadata.append(f"{{id = {number}, requires = {json.dumps(requires)}}}")
            releases.append(f'{{version = "{number}.0", tags = {json.dumps(tags)}, metadata = {number}}}')
        out[f"framework/{name}"] = text
        out[f"wheel/{name}"] = f'{HARVESTED}package = "{name}"\nmetadata = [{", ".join(metadata)}]\nrelease = [{", ".join(releases)}]\n'
    return out


def pair(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def runs(one: Made, here: Here) -> bool:
    """The rules for one build alone, written down a second time."""
    driver = DriverVersion(here.driver)
    if here.python not in one.pythons or driver < DriverVersion(FLOORS[int(one.cuda[:2])]):
        return False
    for name in here.gpus:
        card = Capability.parse(name)
        code = [CodeTarget.parse(text) for text in one.code]
        if any(
            target.kind == "cubin" and target.capability.major == card.major and target.capability.minor <= card.minor for target in code
        ):
            continue
        if not any(target.kind == "ptx" and target.capability <= card for target in code) or driver < DriverVersion(OWN[one.cuda]):
            return False
    return True


def together(chosen: Sequence[Made], here: Here, numpy: str = "") -> bool:
    """Whether these builds can share one environment: brute force over cuDNN, CUDA line and NumPy."""
    majors = {int(one.cuda[:2]) for one in chosen}
    if len(majors) > 1 or not all(runs(one, here) for one in chosen):
        return False
    major = majors.pop()
    if not any(all(SpecifierSet(one).contains(version) for one in (numpy, *(one.numpy for one in chosen))) for version in NUMPY):
        return False
    return any(fits(chosen, here, cudnn, line) for cudnn, line in product(CUDNN[major], LINES[major]))


def fits(chosen: Sequence[Made], here: Here, cudnn: str, line: str) -> bool:
    for name in here.gpus:
        first, last = GPUS[name]
        if pair(line) < first or (last is not None and pair(line) > last):
            return False
        if not any(pair(code)[0] == pair(name)[0] and pair(code)[1] <= pair(name)[1] for code in CODE[cudnn]):
            return False
    if pair(line)[1] > UP_TO.get(cudnn, 99):
        return False
    return all(pair(cudnn)[0] == pair(one.cudnn)[0] and pair(cudnn) >= pair(one.cudnn) and pair(line) >= pair(one.cuda) for one in chosen)


def described(here: Here) -> Any:
    return facts(driver={"version": here.driver}, gpus=gpu(*here.gpus), python={"version": here.python, "path": "/env/bin/python"})


def status(book: Book, here: Here, *targets: str, extras: Sequence[str] = (), **options: Any) -> Plan:
    return plan(book, described(here), request(book, *targets, extras=extras, **options))


@pytest.mark.slow
@settings(max_examples=examples(50))
@given(worlds, machines)
def test_there_is_a_plan_exactly_where_brute_force_finds_one(made: dict[str, list[Made]], here: Here) -> None:
    book = changed(tables(made))

    assert status(book, here, "red").is_satisfiable == any(together([one], here) for one in made["red"])
    expected = any(together(both, here) for both in product(made["red"], made["blue"]))
    assert status(book, here, "red", "blue", channel="pip").is_satisfiable == expected


@settings(max_examples=examples(25))
@given(worlds, machines)
def test_the_newest_release_that_fits_is_chosen(made: dict[str, list[Made]], here: Here) -> None:
    fitting = [number for number, one in enumerate(made["red"], 1) if together([one], here)]
    found = status(changed(tables(made)), here, "red")

    assert (versions(found).get("red") if found.is_satisfiable else None) == (f"{max(fitting)}.0" if fitting else None)


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(worlds, machines, st.sampled_from(["<2", ">=2", "==1.24.4", ">=3"]))
def test_a_further_requirement_never_makes_a_plan_of_a_conflict(made: dict[str, list[Made]], here: Here, numpy: str) -> None:
    book = changed(tables(made))
    more = status(book, here, "red", extras=[f"numpy{numpy}"]).is_satisfiable

    assert more == any(together([one], here, numpy) for one in made["red"])
    assert status(book, here, "red").is_satisfiable or not more
    assert status(book, here, "red").is_satisfiable or not status(book, here, "red", "blue", channel="pip").is_satisfiable


@settings(max_examples=examples(25))
@given(worlds, machines, st.sets(st.sampled_from(["driver", "gpus", "python", "platform", "packages"]), min_size=1))
def test_a_fact_that_is_left_out_excludes_nothing(made: dict[str, list[Made]], here: Here, left: set[str]) -> None:
    book = changed(tables(made))
    asked = request(book, "red")
    parts: dict[str, Any] = {"driver": {"version": here.driver}, "gpus": gpu(*here.gpus), "python": {"version": here.python}}

    known = plan(book, facts(**parts), asked).is_satisfiable
    less = plan(book, facts(**(parts | dict.fromkeys(left))), asked).is_satisfiable

    assert less or not known


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(worlds, machines)
def test_a_plan_that_is_carried_out_leaves_nothing_to_do(made: dict[str, list[Made]], here: Here) -> None:
    book = changed(tables(made))
    asked = request(book, "red", "blue", channel="pip")
    parts: dict[str, Any] = {"driver": {"version": here.driver}, "gpus": gpu(*here.gpus), "python": {"version": here.python}}
    first = plan(book, facts(**parts), asked)
    if not first.is_satisfiable:
        return

    second = plan(book, facts(**parts, packages={"pip": versions(first)}), asked)

    assert {one.action for one in second.pip} == {"keep"}
    assert versions(second) == versions(first)
    assert second.stack == first.stack
    assert not second.steps


REQUESTS: tuple[tuple[str, ...], ...] = (("north",), ("south",), ("north", "south"), ("south==1.1",), ("north==3.0",))
HELD = {
    "north": "2.0",
    "north-vision": "0.1",
    "numpy": "1.24.4",
    "nvidia-cudnn-cu12": "9.1.0.70",
    "nvidia-nccl-cu12": "2.19.3",
    "pillow": "10.0.0",
}
held = st.sets(st.sampled_from(sorted(HELD))).map(lambda names: {name: HELD[name] for name in sorted(names)})
drivers = st.sampled_from(["470.57.02", "535.54.03", "580.65.06"])


def printed(found: Plan) -> str:
    return json.dumps(encode_plan(found, encode(found.facts)), sort_keys=True)


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(st.sampled_from(REQUESTS), held, drivers, st.randoms(use_true_random=False))
def test_the_same_question_has_the_same_answer(targets: tuple[str, ...], pip: dict[str, str], driver: str, order: random.Random) -> None:
    shuffled = list(pip.items())
    order.shuffle(shuffled)
    parts: dict[str, Any] = {"driver": {"version": driver}, "python": {"version": "3.11"}}

    answers = {printed(plan(BOOK, facts(**parts, packages={"pip": dict(one)}), request(BOOK, *targets))) for one in (pip, shuffled, pip)}

    assert len(answers) == 1


@settings(max_examples=examples(40))
@given(st.sampled_from(REQUESTS), held, drivers, st.sampled_from(["3.10", "3.11"]))
def test_planning_again_on_what_came_out_is_stable(targets: tuple[str, ...], pip: dict[str, str], driver: str, python: str) -> None:
    parts: dict[str, Any] = {"driver": {"version": driver}, "python": {"version": python}}
    asked = request(BOOK, *targets, channel="pip")
    first = plan(BOOK, facts(**parts, packages={"pip": pip}), asked)
    if not first.is_satisfiable:
        return
    removed = {one.name for one in first.pip if one.action == "remove"}
    after = {name: version for name, version in pip.items() if name not in removed} | versions(first)

    second = plan(BOOK, facts(**parts, packages={"pip": after}), asked)

    assert {one.action for one in second.pip} <= {"keep"}
    assert {step.kind for step in second.steps} <= {"preload"}  # facts do not tell whether it is there


@settings(max_examples=examples(25))
@given(st.sampled_from(REQUESTS), held, drivers)
def test_actions_tell_what_becomes_of_what_is_installed(targets: tuple[str, ...], pip: dict[str, str], driver: str) -> None:
    found = plan(BOOK, facts(driver={"version": driver}, packages={"pip": pip}), request(BOOK, *targets))

    for one in found.pip:
        assert one.installed == pip.get(one.name)
        assert (one.action == "install") == (one.name not in pip)
        assert one.action != "keep" or one.version == pip[one.name]
