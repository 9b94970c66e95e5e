"""A plan as text, JSON, script and requirements file."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from packaging.requirements import Requirement

from cudnn_resolve.facts.codec import encode
from cudnn_resolve.facts.model import UNKNOWN
from cudnn_resolve.locking.model import Environment
from cudnn_resolve.planning.model import AptAction, PipAction, Plan, StackFramework, Step, Warning
from cudnn_resolve.report import plan as text_report
from cudnn_resolve.report import requirements, script, why
from cudnn_resolve.report.document import encode_plan
from cudnn_resolve.report.text import Style
from cudnn_resolve.resolution.chain import chain
from cudnn_resolve.resolution.model import Override, Resolution
from tests.pages import text_of
from tests.worlds.load import facts, outcome, plan, request, world

BOOK = world()
COMPANION = Warning(code="companion-left", message="no release of torchvision fits the new framework; it will not work with it")
HELD: dict[str, Any] = {
    "packages": {"pip": {"numpy": "2.1.0", "app": "1.0", "nvidia-cudnn-cu13": "9.13.0.50"}, "requires": {"app": ["numpy>=2"]}},
    "driver": {"version": "535.54.03"},
}


def planned(*targets: str, options: dict[str, Any] | None = None, extras: tuple[str, ...] = (), **parts: Any) -> Plan:
    return plan(BOOK, facts(**parts), request(BOOK, *targets, extras=extras, **(options or {})))


PLANS: dict[str, Callable[[], Plan]] = {
    "joint": lambda: planned("north", "south", extras=("left-pad",), **HELD),
    "apt": lambda: planned("south==1.1", options={"channel": "apt"}, python={"version": "3.10", "path": "/env/bin/python"}, root=False),
    "preload": lambda: planned("south-gpu", python={"version": "3.10"}, gpus=None),
    "cpu": lambda: planned("north", options={"device": "cpu"}),
    "conflict": lambda: planned("north==3.0", "south==2.0", driver={"version": "580.65.06"}),
    "done": lambda: planned("north==2.0+cu118", packages={"pip": {"north": "2.0+cu118", "numpy": "1.26.4"}}),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"plan-{name}.txt", text_of(text_report.show_plan, PLANS[name]()))


def test_an_environment_that_the_facts_describe_is_no_new_one() -> None:
    nobody_says: dict[str, Any] = {"python": {"version": "3.11.9"}}

    assert text_report.environment_line(facts(**HELD, **nobody_says)) == "into the environment that the facts describe"
    assert text_report.environment_line(facts(**nobody_says)) == "into a new environment"


def test_a_plan_with_many_warnings_is_read_in_15_lines() -> None:
    found = planned("north", "south")
    aside = [Warning(code="several-indexes", message="two indexes have it")]
    many = replace(found, warnings=(*aside, *(Warning(code=f"trap-{number}", message=f"trap {number}") for number in range(9)), COMPANION))

    short = text_of(text_report.show_plan, many, width=1000, command="cudnn-resolve apply")

    assert len(short.splitlines()) == 15
    assert COMPANION.message in short, "what the plan leaves broken stands before what is said aside"
    hidden = sum(one.message not in short for one in many.warnings)
    assert f"{hidden} more warnings (-v shows them)" in short
    whole = text_of(text_report.show_plan, many, width=1000, verbose=True)
    assert all(one.message in whole for one in many.warnings)


def test_a_plan_of_a_preload_alone_is_not_nothing() -> None:
    found = planned("south-gpu", python={"version": "3.10"}, gpus=None)
    kept = replace(found, pip=tuple(replace(one, action="keep") for one in found.pip))
    alone = replace(kept, steps=tuple(one for one in kept.steps if one.kind == "preload"))
    assert "no package changes, but `apply` sets up the preload" in text_of(text_report.show_plan, alone)
    assert "nothing to do" in text_of(text_report.show_plan, replace(kept, steps=()))


def test_every_reason_on_demand(golden: Callable[[str, str], None]) -> None:
    golden("plan-joint-verbose.txt", text_of(text_report.show_plan, PLANS["joint"](), verbose=True))


def test_the_script(golden: Callable[[str, str], None]) -> None:
    golden("plan-apt.sh", script.render(PLANS["apt"]()))


def test_the_requirements(golden: Callable[[str, str], None]) -> None:
    golden("plan-joint.requirements.txt", requirements.render(PLANS["joint"]()))


def test_the_chain(golden: Callable[[str, str], None]) -> None:
    found = outcome(BOOK, facts(), request(BOOK, "north", "south"))
    assert isinstance(found, Resolution)
    golden("why.txt", text_of(why.show_chain, chain(found, "nvidia-cudnn-cu12", BOOK)))


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("name", PLANS)
def test_lines_are_as_wide_as_the_terminal(name: str, width: int) -> None:
    lines = text_of(text_report.show_plan, PLANS[name](), width=width).splitlines()
    too_long = [line for line in lines if len(line) > width and not line.strip().startswith(("cudnn-resolve ", "http"))]

    assert not [line for line in too_long if max(map(len, line.split())) <= width - 12], too_long


def test_colour_changes_nothing_but_colour() -> None:
    coloured = text_of(text_report.show_plan, PLANS["joint"](), style=Style(color=True))

    assert "\x1b[" in coloured
    assert len(re.sub(r"\x1b\[[0-9;]*m", "", coloured).split()) == len(text_of(text_report.show_plan, PLANS["joint"]()).split())


EVIL = "a\x1b]0;owned\x07\u202e\nb"


def hostile() -> Plan:
    """A plan in which every text that comes from somebody else's file wants to act on the terminal."""
    found = PLANS["joint"]()
    of = found.facts
    return replace(
        found,
        targets=(EVIL,),
        facts=replace(of, platform=replace(of.platform, distribution=EVIL), python=replace(of.python, path=EVIL, version=EVIL)),
        pip=tuple(replace(one, name=EVIL, version=EVIL, because=(EVIL,)) for one in found.pip),
        unpinned=(EVIL,),
        overrides=tuple(replace(one, package=EVIL, requested_by=EVIL, reason=EVIL) for one in found.overrides),
        environment=tuple(replace(one, why=EVIL) for one in found.environment),
        steps=tuple(replace(one, why=EVIL, argv=(EVIL, *(one.argv or ())[1:])) for one in found.steps),
        warnings=tuple(replace(one, message=EVIL) for one in found.warnings),
    )


@pytest.mark.parametrize("render", [partial(text_of, text_report.show_plan), script.render, requirements.render])
def test_names_do_not_reach_the_terminal_as_they_are(render: Callable[[Plan], str]) -> None:
    shown = render(hostile())

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)
    assert not [line for line in shown.splitlines() if line.startswith("b")]


SHAPE: dict[str, Any] = {
    "schema": str,
    "status": str,
    "targets": [str],
    "facts": dict,
    "stack": {
        "driver_min": (str, None),
        "cuda": (str, None),
        "cudnn": (str, None),
        "cudnn_soname": (int, None),
        "frameworks": [{"name": str, "version": str, "variant": str, "cuda_built": (str, None), "cudnn_built": (str, None)}],
    },
    "pip": [
        {
            "name": str,
            "version": str,
            "action": ("install", "upgrade", "downgrade", "keep", "remove"),
            "index": (str, None),
            "because": [str],
        }
    ],
    "unpinned": [str],
    "apt": [{"name": str, "version": str, "repository": str, "action": str, "because": [str]}],
    "overrides": [{"package": str, "requested_by": str, "declared": str, "chosen": str, "reason": str}],
    "environment": [{"kind": ("ldconfig", "preload", "env", "none"), "value": str, "why": str}],
    "steps": [{"id": str, "kind": str, "argv": ([str], None), "why": str, "needs_root": bool}],
    "warnings": [{"code": str, "message": str}],
    "conflict": (
        {"message": str, "causes": [{"what": str, "because": str}], "relaxations": [{"change": str, "result": str, "command": str}]},
        None,
    ),
}
"""What the interface fixes; a tuple holds alternatives, a text in one is a value."""


def faults(value: Any, shape: Any, where: str) -> list[str]:
    """What of a value is not as the shape says."""
    if isinstance(shape, tuple):
        return [] if any(is_one(value, one, where) for one in shape) else [f"{where} is {value!r}"]
    if isinstance(shape, dict):
        if not isinstance(value, dict) or set(shape) - set(value):
            return [f"{where} lacks {set(shape) - set(value)}" if isinstance(value, dict) else f"{where} is no object"]
        return [fault for key, one in shape.items() for fault in faults(value[key], one, f"{where}.{key}")]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{where} is no list"]
        return [fault for number, one in enumerate(value) for fault in faults(one, shape[0], f"{where}[{number}]")]
    return [] if type(value) is shape else [f"{where} is {value!r}"]


def is_one(value: Any, alternative: Any, where: str) -> bool:
    if alternative is None or isinstance(alternative, str):
        return bool(value == alternative)
    return not faults(value, alternative, where)


@pytest.mark.parametrize("name", PLANS)
def test_json_is_what_the_interface_says(name: str) -> None:
    found = PLANS[name]()
    encoded = json.loads(json.dumps(encode_plan(found, encode(found.facts))))

    shape = {**SHAPE, "stack": (SHAPE["stack"], None)}
    assert not faults(encoded, shape, "plan")
    assert set(encoded) == set(SHAPE)
    assert encoded["schema"] == "cudnn-resolve/plan/1"
    assert encoded["facts"]["schema"] == "cudnn-resolve/detect/1"
    assert (encoded["status"] == "ok") == (encoded["conflict"] is None) == (encoded["stack"] is not None)


@pytest.mark.parametrize("name", [name for name in PLANS if name != "conflict"])
def test_a_script_that_bash_can_read(name: str) -> None:
    shell = shutil.which("bash")
    assert shell
    done = subprocess.run([shell, "-n"], input=script.render(PLANS[name]()), text=True, capture_output=True, check=False, timeout=20)

    assert (done.returncode, done.stderr) == (0, "")


STUB = '#!/bin/bash\nprintf "%s\\n" "$0" "$@" >> "$LOG"\n'


@pytest.mark.parametrize(
    "path",
    ["/tmp/a b/python", "/tmp/$(touch owned)/python", "/tmp/`id`'\"/python", "/tmp/x;y&z|/python", "/tmp/}/python", "/tmp/\\/python"],
)
def test_a_script_does_not_run_what_stands_in_a_path(path: str, tmp_path: Path) -> None:
    python = str(tmp_path) + path[4:]
    Path(python).parent.mkdir(parents=True, exist_ok=True)
    Path(python).write_text(STUB)
    Path(python).chmod(0o755)
    log = tmp_path / "log"
    shown = script.render(planned("north==2.0+cu118", python={"version": "3.11.9", "path": python}, driver={"version": "535.54.03"}))
    env = {"PATH": "/usr/bin:/bin", "LOG": str(log)}

    done = subprocess.run(["bash", "-c", shown], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=20)

    assert done.returncode == 0, done.stderr
    words = log.read_text("utf-8").splitlines()
    assert words[0] == python
    assert "north==2.0+cu118" in words
    assert not (tmp_path / "owned").exists()


def test_a_script_writes_folders_of_the_linker_cache_as_they_are() -> None:
    folders = ["/opt/a b", "/opt/%s\\ninclude /x", "/opt/'$(id)"]
    entry = Environment(kind="ldconfig", value=":".join(folders), why="")
    shown = script.render(replace(planned("north"), environment=(entry,), steps=(Step(id="1", kind="ldconfig", argv=None, why=""),)))

    (line,) = (one for one in shown.splitlines() if "cudnn-resolve.conf" in one)
    done = subprocess.run(["bash", "-c", line.partition(" | $SUDO")[0]], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == folders


def test_a_script_stops_at_the_first_failure(tmp_path: Path) -> None:
    shown = script.render(planned("north==2.0+cu118", python={"version": "3.11.9", "path": "/bin/false"}, driver={"version": "535.54.03"}))
    done = subprocess.run(
        ["bash", "-c", shown], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False, timeout=20
    )

    assert done.returncode != 0


@pytest.mark.parametrize(("driver", "code"), [("535.104.05", 0), ("525.60.13", 0), ("470.57.02", 1), ("525.9.1", 1)])
def test_a_script_looks_at_the_driver(driver: str, code: int, tmp_path: Path) -> None:
    for name, text in (("nvidia-smi", f"#!/bin/sh\necho {driver}\n"), ("python", STUB)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    shown = script.render(planned("north==2.0", python={"version": "3.11", "path": str(tmp_path / "python")}))
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(tmp_path / "log")}
    done = subprocess.run(["bash", "-c", shown], env=env, capture_output=True, text=True, check=False, timeout=20)

    assert done.returncode == code, done.stderr
    assert (tmp_path / "log").exists() == (code == 0)
    assert code == 0 or driver in done.stderr


def test_a_script_writes_a_preload_that_is_python(tmp_path: Path) -> None:
    (tmp_path / "python").write_text('#!/bin/bash\nif [ "$1" = -c ]; then echo "$SITE_PACKAGES"; fi\n')
    (tmp_path / "python").chmod(0o755)
    shown = script.render(planned("south==1.1", python={"version": "3.10", "path": str(tmp_path / "python")}))
    env = {"PATH": "/usr/bin:/bin", "SITE_PACKAGES": str(tmp_path)}
    done = subprocess.run(["bash", "-c", shown], env=env, capture_output=True, text=True, check=False, timeout=20)

    assert done.returncode == 0, done.stderr
    module = tmp_path / "_cudnn_resolve_preload.py"
    compile(module.read_text("utf-8"), str(module), "exec")
    assert (tmp_path / "_cudnn_resolve_preload.pth").read_text("utf-8") == "import _cudnn_resolve_preload\n"


@pytest.mark.parametrize("name", [name for name in PLANS if name != "conflict"])
def test_requirements_that_pip_can_read(name: str) -> None:
    found = PLANS[name]()
    lines = requirements.render(found).splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith(("#", "--"))]

    wanted = {one.name: f"=={one.version}" for one in found.pip if one.action != "remove"} | dict.fromkeys(found.unpinned, "")
    assert {pin.name: str(pin.specifier) for pin in pins} == wanted
    options = [line for line in lines if line.startswith("--")]
    assert options == [f"--extra-index-url {index}" for index in dict.fromkeys(one.index for one in found.pip if one.index)]


def test_a_plan_with_every_kind_of_change_reads_in_fifteen_lines() -> None:
    def change(name: str, action: str, installed: str | None, index: str | None = None) -> PipAction:
        return PipAction(name=name, version="2.0", action=action, installed=installed, index=index)

    def framework(name: str, *, asked: bool) -> StackFramework:
        return StackFramework(name=name, version="2.0", variant="cu124", cudnn="9.1.0.70", libraries="pip", asked=asked)

    plan = PLANS["joint"]()
    assert plan.stack is not None
    stack = replace(plan.stack, frameworks=(framework("torch", asked=True), *(framework(name, asked=False) for name in ("jax", "cupy"))))
    broken = Warning(code="breaks", message="jax 2.0 requires ml-dtypes>=0.4; ml-dtypes 0.4 becomes 0.2")
    full = replace(
        plan,
        stack=stack,
        pip=(
            change("torch", "install", None, "https://index.example/cu124"),
            change("numpy", "upgrade", "1.0"),
            change("ml-dtypes", "downgrade", "3.0"),
        ),
        apt=(AptAction(name="libcudnn8", version="8.9.7.29-1", action="install"),),
        environment=(Environment(kind="preload", value="torch", why="it does not look"),),
        overrides=(Override(package="numpy", requested_by="jax 2.0", declared="<2", chosen="2.0", reason="x"),),
        warnings=(Warning(code="no-driver", message="there is no driver"), Warning(code="root", message="root is needed"), broken),
    )

    text = text_of(text_report.show_plan, full, command="cudnn-resolve apply -f torch")

    assert len(text.splitlines()) <= 15
    assert "installed and kept: jax 2.0, cupy 2.0" in text
    assert "libcudnn8=8.9.7.29-1" in text
    assert text.splitlines()[-1] == "cudnn-resolve apply -f torch"
    assert "! jax 2.0 requires ml-dtypes" in text, "what breaks is told before what is missing here"
    assert "1 override: numpy 2.0" in text


@pytest.mark.parametrize(
    ("known", "head", "driver"), [({"driver": None, "gpus": ()}, "no driver, no GPU", "none"), ({}, "GPU unknown", "unknown")]
)
def test_what_is_not_known_of_the_hardware_takes_no_room_from_the_plan(known: dict[str, Any], head: str, driver: str) -> None:
    of = replace(facts(packages={"pip": {}}), **{"driver": UNKNOWN, "gpus": UNKNOWN, **known})
    found = plan(BOOK, of, request(BOOK, "north", "south"))

    for width in (60, 100):
        lines = text_of(text_report.show_plan, found, width=width, command="cudnn-resolve apply").splitlines()
        assert len(lines) <= 15
        assert any(head in line for line in lines), "no line ends in the middle of a fact"
        assert any(line.startswith("  driver ") and line.endswith(f"policy minor; {driver} here") for line in lines)
    assert any(line.startswith("  + north 2.0, south 2.0, ") for line in lines), "packages are named as where the hardware is known"
