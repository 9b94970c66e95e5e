"""What the loader says in trace mode against what a process then holds: worlds of small libraries, asked for and then really opened."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudnn_resolve.facts.loader_trace import Library as Opened
from cudnn_resolve.facts.model import Python
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.probe.loader import DynamicLoader, Process
from cudnn_resolve.probe.python import TargetEnvironment
from tests.examples import examples
from tests.native.template import RPATH, RUNPATH, Template, templates

DIRECTORIES = ("d0", "d1", "d2", "d3")
NAMES = ("liba.so", "libb.so.1", "libc0.so.1.2")


@dataclass(frozen=True)
class Library:
    """A file of a world; `content` other than "elf" is something that only looks like a library."""

    place: str
    soname: str | None = None
    needed: tuple[str, ...] = ()
    tag: int | None = None
    path: str = ""
    content: str = "elf"


@dataclass(frozen=True)
class World:
    """Libraries, a program, the variables of its environment, and what it opens."""

    libraries: tuple[Library, ...]
    opens: tuple[str, ...] = ("liba.so",)
    tag: int | None = None
    path: str = ""
    library_path: str | None = None
    preload: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = field(default=())


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> tuple[Template, Template]:
    return templates(tmp_path_factory.mktemp("templates"))


def build(root: Path, world: World, forms: tuple[Template, Template]) -> Path:
    program, form = forms
    for one in world.libraries:
        path = root / one.place
        form.write(path, soname=one.soname, needed=[use(root, name) for name in one.needed], tag=one.tag, path=use(root, one.path))
        raw = bytearray(path.read_bytes())
        if one.content == "foreign":
            raw[18:20] = b"\x28\x00"  # a 32-bit ARM library
        elif one.content == "text":
            raw = bytearray(b"INPUT(-la)" * 200)
        path.write_bytes(raw)
    for link, target in world.links:
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(use(root, target))
    (root / "cwd").mkdir(exist_ok=True)
    return program.write(root / "bin" / "opener", tag=world.tag, path=use(root, world.path))


def use(root: Path, text: str) -> str:
    return text.replace("ROOT", str(root))


def actual(root: Path, world: World, program: Path) -> tuple[list[bool], list[str]]:
    """For each open whether it worked, and the paths of our libraries in the process."""
    env = {"LC_ALL": "C"}
    if world.library_path is not None:
        env["LD_LIBRARY_PATH"] = use(root, world.library_path)
    if world.preload:
        env["LD_PRELOAD"] = ":".join(use(root, one) for one in world.preload)
    argv = [str(program), *(use(root, name) for name in world.opens)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env, cwd=root / "cwd")
    lines = done.stdout.splitlines()
    objects = [line.removeprefix("object ") for line in lines if line.startswith("object ")]
    return [line == "open yes" for line in lines if line.startswith("open ")], ours(root, [one for one in objects if "vdso" not in one])


def predicted(root: Path, world: World, program: Path) -> tuple[list[bool], list[str]]:
    process = started(root, world, program)
    sonames = {os.path.realpath(root / one.place): one.soname for one in world.libraries}
    worked = []
    for name in world.opens:
        asker, at, wanted = use(root, name).rpartition("@")
        by = next((one for one in process.libraries if at and sonames[os.path.realpath(one.path)] == asker), None)
        worked.append((by is not None or not at) and isinstance(process.open(wanted, by), Opened))
    return worked, ours(root, [one.path for one in process.libraries])


def started(root: Path, world: World, program: Path) -> Process:
    """The program as the target interpreter, before it opened anything."""
    paths = () if world.library_path is None else tuple(use(root, one) for one in world.library_path.split(":"))
    environ = {"PATH": os.environ["PATH"], "LD_PRELOAD": ":".join(use(root, one) for one in world.preload)}
    target = TargetEnvironment(python=Python(path=str(program)), prefix="", ld_library_path=paths if any(paths) else ())
    return DynamicLoader(LinuxHost(environ=environ), target).process()


def ours(root: Path, paths: list[str]) -> list[str]:
    absolute = ((path if path.startswith("/") else f"{root}/cwd/{path}").replace("/./", "/") for path in paths if path)
    below = [path.removeprefix(f"{root}/") for path in absolute if path.startswith(f"{root}/")]
    return [path for path in below if path != "bin/opener"]


def check(root: Path, world: World, forms: tuple[Template, Template]) -> list[str]:
    program = build(root, world, forms)
    before = os.getcwd()
    os.chdir(root / "cwd")
    try:
        assert predicted(root, world, program) == actual(root, world, program)
    finally:
        os.chdir(before)
    return actual(root, world, program)[1]


TWO = (Library("d1/libb.so.1", "libb.so.1"), Library("d2/libb.so.1", "libb.so.1"))

TABLE = {
    "nothing leads there": (World((Library("d0/liba.so"),)), []),
    "LD_LIBRARY_PATH": (World((Library("d0/liba.so"),), library_path="ROOT/d0"), ["d0/liba.so"]),
    "first directory of LD_LIBRARY_PATH": (World(TWO, opens=("libb.so.1",), library_path="ROOT/d2:ROOT/d1"), ["d2/libb.so.1"]),
    "RPATH of the program before LD_LIBRARY_PATH": (
        World(TWO, opens=("libb.so.1",), tag=RPATH, path="ROOT/d1", library_path="ROOT/d2"),
        ["d1/libb.so.1"],
    ),
    "LD_LIBRARY_PATH before RUNPATH of the program": (
        World(TWO, opens=("libb.so.1",), tag=RUNPATH, path="ROOT/d1", library_path="ROOT/d2"),
        ["d2/libb.so.1"],
    ),
    "RUNPATH where LD_LIBRARY_PATH has none": (
        World(TWO, opens=("libb.so.1",), tag=RUNPATH, path="$ORIGIN/../d1", library_path="ROOT/d3"),
        ["bin/../d1/libb.so.1"],
    ),
    "RPATH of the library that needs it": (
        World(
            (Library("d0/liba.so", needed=("libb.so.1",), tag=RPATH, path="$ORIGIN/../d1"), *TWO),
            opens=("ROOT/d0/liba.so",),
            library_path="ROOT/d2",
        ),
        ["d0/liba.so", "d0/../d1/libb.so.1"],
    ),
    "RPATH of what loaded the one that needs it": (
        World(
            (
                Library("d0/liba.so", needed=("libc0.so.1.2",), tag=RPATH, path="$ORIGIN:$ORIGIN/../d1"),
                Library("d0/libc0.so.1.2", needed=("libb.so.1",)),
                *TWO,
            ),
            opens=("ROOT/d0/liba.so",),
            library_path="ROOT/d2",
        ),
        ["d0/liba.so", "d0/libc0.so.1.2", "d0/../d1/libb.so.1"],
    ),
    "RUNPATH is not handed on": (
        World(
            (
                Library("d0/liba.so", needed=("libc0.so.1.2",), tag=RUNPATH, path="$ORIGIN:$ORIGIN/../d1"),
                Library("d0/libc0.so.1.2", needed=("libb.so.1",)),
                *TWO,
            ),
            opens=("ROOT/d0/liba.so",),
        ),
        [],
    ),
    "RUNPATH of the one that asks hides every RPATH": (
        World(
            (
                Library("d0/liba.so", needed=("libc0.so.1.2",), tag=RPATH, path="$ORIGIN:$ORIGIN/../d1"),
                Library("d0/libc0.so.1.2", needed=("libb.so.1",), tag=RUNPATH, path="ROOT/d2"),
                *TWO,
            ),
            opens=("ROOT/d0/liba.so",),
        ),
        ["d0/liba.so", "d0/libc0.so.1.2", "d2/libb.so.1"],
    ),
    "RPATH of the program counts for a library without a path": (
        World(
            (Library("d0/liba.so", needed=("libb.so.1",)), *TWO),
            opens=("ROOT/d0/liba.so",),
            tag=RPATH,
            path="ROOT/d2",
            library_path="ROOT/d1",
        ),
        ["d0/liba.so", "d2/libb.so.1"],
    ),
    "RUNPATH of the program does not": (
        World(
            (Library("d0/liba.so", needed=("libb.so.1",)), *TWO),
            opens=("ROOT/d0/liba.so",),
            tag=RUNPATH,
            path="ROOT/d2",
            library_path="ROOT/d1",
        ),
        ["d0/liba.so", "d1/libb.so.1"],
    ),
    "already loaded under its soname": (
        World(
            (*TWO, Library("d0/liba.so", needed=("libb.so.1",), tag=RPATH, path="ROOT/d1")), opens=("ROOT/d2/libb.so.1", "ROOT/d0/liba.so")
        ),
        ["d2/libb.so.1", "d0/liba.so"],
    ),
    "a longer name is not the soname": (
        World(
            (Library("d2/libb.so.1", "libb.so.1"), Library("d1/libb.so.1.0", "libb.so.1")),
            opens=("ROOT/d2/libb.so.1", "libb.so.1.0"),
            library_path="ROOT/d1",
        ),
        ["d2/libb.so.1", "d1/libb.so.1.0"],
    ),
    "without a soname the name that found it counts": (
        World(
            (Library("d1/libb.so.1"), Library("d0/liba.so", needed=("libb.so.1",))),
            opens=("libb.so.1", "ROOT/d0/liba.so"),
            library_path="ROOT/d1",
        ),
        ["d1/libb.so.1", "d0/liba.so"],
    ),
    "opened by its path it has no name to be found by": (
        World((Library("d1/libb.so.1"), Library("d0/liba.so", needed=("libb.so.1",))), opens=("ROOT/d1/libb.so.1", "ROOT/d0/liba.so")),
        ["d1/libb.so.1"],
    ),
    "the same file through a link": (
        World(TWO[:1], opens=("ROOT/d3/libb.so.1", "ROOT/d1/libb.so.1"), links=(("d3", "ROOT/d1"),)),
        ["d3/libb.so.1"],
    ),
    "a library opens by its own RUNPATH": (
        World((Library("d0/liba.so", "liba.so", tag=RUNPATH, path="$ORIGIN/../d1"), *TWO), opens=("ROOT/d0/liba.so", "liba.so@libb.so.1")),
        ["d0/liba.so", "d0/../d1/libb.so.1"],
    ),
    "LD_LIBRARY_PATH before the RUNPATH of a library that opens": (
        World(
            (Library("d0/liba.so", "liba.so", tag=RUNPATH, path="$ORIGIN/../d1"), *TWO),
            opens=("ROOT/d0/liba.so", "liba.so@libb.so.1"),
            library_path="ROOT/d2",
        ),
        ["d0/liba.so", "d2/libb.so.1"],
    ),
    "not before its RPATH": (
        World(
            (Library("d0/liba.so", "liba.so", tag=RPATH, path="${ORIGIN}/../d1"), *TWO),
            opens=("ROOT/d0/liba.so", "liba.so@libb.so.1"),
            library_path="ROOT/d2",
        ),
        ["d0/liba.so", "d0/../d1/libb.so.1"],
    ),
    "files of another architecture are passed over": (
        World((Library("d1/libb.so.1", content="foreign"), TWO[1]), opens=("libb.so.1",), library_path="ROOT/d1:ROOT/d2"),
        ["d2/libb.so.1"],
    ),
    "a text in the way stops the search": (
        World((Library("d1/libb.so.1", content="text"), TWO[1]), opens=("libb.so.1",), library_path="ROOT/d1:ROOT/d2"),
        [],
    ),
    "a missing need takes everything back": (
        World((Library("d0/liba.so", needed=("libb.so.1", "libnowhere.so")), *TWO), library_path="ROOT/d0:ROOT/d1"),
        [],
    ),
    "an empty element is the working directory": (
        World((Library("cwd/liba.so"),), tag=RUNPATH, path="ROOT/d0:"),
        ["cwd/liba.so"],
    ),
    "LD_PRELOAD comes first": (
        World(
            (*TWO, Library("d0/liba.so", needed=("libb.so.1",))),
            opens=("ROOT/d0/liba.so",),
            preload=("ROOT/d2/libb.so.1",),
            library_path="ROOT/d1",
        ),
        ["d2/libb.so.1", "d0/liba.so"],
    ),
    "$ORIGIN of a need that is a path": (
        World((Library("d0/liba.so", needed=("$ORIGIN/../d1/libb.so.1",)), *TWO), opens=("ROOT/d0/liba.so",), library_path="ROOT/d2"),
        ["d0/liba.so", "d0/../d1/libb.so.1"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", TABLE)
def test_table(case: str, tmp_path: Path, forms: tuple[Template, Template]) -> None:
    world, expected = TABLE[case]

    assert [path.replace(f"{tmp_path}/", "") for path in check(tmp_path, world, forms)] == expected


def test_the_rule_is_right_where_the_log_names_another(tmp_path: Path, forms: tuple[Template, Template]) -> None:
    asker = Library("d0/liba.so", "liba.so", needed=("libb.so.1",), tag=RPATH, path="ROOT/d1")
    world = World((asker, *TWO), library_path="ROOT/d1")
    process = started(tmp_path, world, build(tmp_path, world, forms))

    opened = process.open(str(tmp_path / "d0/liba.so"))
    assert isinstance(opened, Opened)
    found = process.open("libb.so.1", opened)

    assert isinstance(found, Opened)
    assert (found.rule.value, found.holder) == ("RPATH", str(tmp_path / "d0/liba.so"))


@pytest.mark.parametrize("case", ["RPATH of what loaded the one that needs it", "a library opens by its own RUNPATH"])
def test_paths_with_spaces(case: str, tmp_path: Path, forms: tuple[Template, Template]) -> None:
    world, expected = TABLE[case]
    root = tmp_path / "my own place"

    assert [path.replace(f"{root}/", "") for path in check(root, world, forms)] == expected


def test_cache_and_default_directories(tmp_path: Path, forms: tuple[Template, Template]) -> None:
    program = build(tmp_path, World(()), forms)
    done = subprocess.run([program, "libm.so.6"], capture_output=True, text=True, check=True, env={"LC_ALL": "C"})

    opened = started(tmp_path, World(()), program).open("libm.so.6")

    assert isinstance(opened, Opened)
    assert os.path.realpath(opened.path) in {os.path.realpath(line.removeprefix("object ")) for line in done.stdout.splitlines()}


element = st.sampled_from(
    ["ROOT/d0", "ROOT/d1", "ROOT/d2", "ROOT/d3", "$ORIGIN", "$ORIGIN/../d1", "${ORIGIN}/../d2", "", "ROOT/nowhere", "d3/"]
)
path_list = st.lists(element, max_size=3).map(":".join)
tag = st.sampled_from([None, RPATH, RUNPATH])
need = st.sampled_from([*NAMES, "libd.so", "ROOT/d2/libb.so.1"])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    places = draw(st.lists(st.tuples(st.sampled_from(DIRECTORIES), st.sampled_from(NAMES)), min_size=1, max_size=8, unique=True))
    libraries = tuple(
        Library(
            f"{directory}/{name}",
            name,  # as real libraries that others ask for by name: a library that was opened is asked about again by its path
            tuple(draw(st.lists(need, max_size=2))),
            draw(tag),
            draw(path_list),
            draw(st.sampled_from(["elf"] * 12 + ["foreign", "text"])),
        )
        for directory, name in places
    )
    opens = draw(st.lists(st.sampled_from([*NAMES, *(f"ROOT/{one.place}" for one in libraries)]), min_size=1, max_size=3))
    askers = [one.soname for one in libraries if one.soname]
    if askers:
        opens += [f"{draw(st.sampled_from(askers))}@{draw(need)}"]
    return World(libraries, tuple(opens), draw(tag), draw(path_list), draw(st.none() | path_list))


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(world=worlds())
def test_any_world(world: World, tmp_path_factory: pytest.TempPathFactory, forms: tuple[Template, Template]) -> None:
    """Whatever the libraries say and need, the same ones come from the same places in the same order."""
    check(tmp_path_factory.mktemp("world"), world, forms)
