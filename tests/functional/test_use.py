"""What a user types and reads: bare requirements, the short plan, the environment that is meant, help, options anywhere."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.functional.interpreters import make_environment
from tests.program import ROOT, Done, run

ELSEWHERE = ("--offline", "--driver", "550.54.15", "--gpu", "T4", "--python-version", "3.11", "--os", "ubuntu22.04")
HERE = ("--offline", "--driver", "550.54.15", "--gpu", "T4")
TORCH = ("torch==2.6.0",)


class Program:
    """Runs the program in a folder, without an active environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX", "COLUMNS")}

    def __call__(self, *words: str, **environ: str) -> Done:
        return run(*words, environ={**self.environ, **environ}, cwd=self.folder)

    def plan(self, *words: str, **environ: str) -> dict[str, Any]:
        """The plan as an object."""
        done = self("plan", *words, "--format", "json", **environ)
        assert done.returncode in (0, 1), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def pins(plan: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["version"] for one in plan["pip"]}


# -- bare requirements -----------------------------------------------------------------------------------------------------------


def test_requirements_stand_bare_before_and_after_options(program: Program) -> None:
    bare = program.plan("torch==2.6.0", *ELSEWHERE, "numpy<2")
    (program.folder / "r.txt").write_text("numpy<2\n")
    long = program.plan("-f", "torch==2.6.0", "-r", "r.txt", *ELSEWHERE)

    assert pins(bare) == pins(long)
    assert pins(bare)["numpy"] == "1.26.4"
    assert shlex.split(bare["command"])[:5] == ["cudnn-resolve", "plan", "-f", "torch==2.6.0", "numpy<2"]


def test_frameworks_among_bare_requirements_are_targets_also_by_another_name(program: Program) -> None:
    assert program.plan("tensorflow==2.18.0", "pytorch==2.6.0", *ELSEWHERE)["targets"] == ["tensorflow==2.18.0", "pytorch==2.6.0"]


@pytest.mark.parametrize("words", [("-f", "torchvision==0.21.0"), ("torchvision==0.21.0",)])
def test_a_companion_brings_its_framework(words: tuple[str, ...], program: Program) -> None:
    found = program.plan(*words, *ELSEWHERE)

    assert (pins(found)["torchvision"], pins(found)["torch"]) == ("0.21.0", "2.6.0")
    assert found["targets"] == ["torch"]


@pytest.mark.slow
def test_a_bare_requirement_can_be_left_out(program: Program) -> None:
    found = program.plan("torch==2.1.0", "torchvision==0.16.0", "numpy>=2", *ELSEWHERE)

    (first, *_) = found["conflict"]["relaxations"]
    assert first["change"] == "without `numpy>=2`"
    assert "numpy" not in first["command"]
    assert "torchvision==0.16.0" in first["command"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("tenserflow",), ["no framework is asked for", "did you mean `tensorflow`"]),
        (("numpy",), ["no framework is asked for", "planned together with one"]),
        (("torch", "<<<"), ["is not a valid requirement", "the command line"]),
        (("torch", "pylock.toml"), ["pylock.toml cannot be combined with torch"]),
        (("gone.toml",), ["there is no file gone.toml"]),
    ],
)
def test_a_wrong_bare_word_is_explained(words: tuple[str, ...], expected: list[str], program: Program) -> None:
    done = program("plan", *words, *ELSEWHERE)

    assert (done.returncode, done.stdout) == (2, "")
    assert [word for word in expected if word not in done.stderr] == []
    assert "cupy" not in done.stderr.partition("known:")[0]  # it looks like numpy to a machine only


# -- the plan as it is read ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_plan_reads_in_fifteen_lines_and_ends_with_the_command_that_does_it(program: Program) -> None:
    make_environment("3.11", program.folder / ".venv")
    done = program("plan", *TORCH, *HERE)
    lines = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (0, "")
    assert len(lines) <= 15
    assert lines[-1] == "cudnn-resolve apply -f torch==2.6.0 --driver 550.54.15 --gpu T4 --offline"
    assert [line for line in lines if " to install" in line]
    assert "…" not in done.stdout


def test_the_last_line_writes_the_script_for_another_machine_and_works(program: Program) -> None:
    last = program("plan", *TORCH, *ELSEWHERE).stdout.splitlines()[-1]
    words = shlex.split(last)

    assert words[:2] == ["cudnn-resolve", "plan"]
    assert program(*words[1:]).returncode == 0
    assert (program.folder / "setup.sh").read_text().startswith("#!")


def test_everything_is_shown_on_demand_and_the_verdict_alone_too(program: Program) -> None:
    everything = program("plan", *TORCH, *ELSEWHERE, "-v").stdout
    verdict = program("plan", *TORCH, *ELSEWHERE, "-q").stdout
    no = program("plan", "torch==2.1", *ELSEWHERE[:3], "--gpu", "RTX 5090", "--python-version", "3.11", "-q")

    assert [title for title in ("Stack", "Packages", "Loader", "Steps") if title not in everything] == []
    assert "typing-extensions" in everything
    assert verdict.startswith("yes: torch 2.6.0, CUDA 12.4, cuDNN 9.1.0.70, driver >= 525.60.13: ")
    assert verdict.count("\n") == 1
    assert (no.returncode, no.stdout.count("\n"), no.stdout[:14]) == (1, 1, "no: torch==2.1")


@pytest.mark.slow
def test_steps_say_what_is_done_and_where(program: Program) -> None:
    make_environment("3.11", program.folder / ".venv")
    steps = program("plan", "onnxruntime-gpu==1.20.2", *HERE, "-v").stdout.partition("Steps\n")[2]

    assert f"write _cudnn_resolve_preload.py and _cudnn_resolve_preload.pth into the site-packages of {program.folder}/.venv" in steps
    assert "does not look" not in steps


def test_nothing_is_wrapped_or_cut_in_a_pipe(program: Program) -> None:
    facts = Path(__file__).parents[1] / "machines" / "workstation.json"
    shown = program("plan", *TORCH, *ELSEWHERE, "-v").stdout
    detected = program("detect", "--facts", str(facts)).stdout

    assert max(map(len, shown.splitlines())) > 400  # the step that installs
    assert "…" not in shown + detected


# -- the environment that is meant -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_environment_of_the_folder_is_meant_and_named_with_the_reason(program: Program) -> None:
    own = program("plan", *TORCH, *HERE).stdout
    make_environment("3.11", program.folder / ".venv")
    local = program("plan", *TORCH, *HERE).stdout
    make_environment("3.11", program.folder / "active")
    active = program("plan", *TORCH, *HERE, VIRTUAL_ENV=str(program.folder / "active")).stdout
    named = program("plan", *TORCH, *HERE, "--python", "active").stdout

    assert f"  into {sys.executable} (the Python that runs cudnn-resolve)\n" in own
    assert f"  into {program.folder}/.venv/bin/python (the virtual environment in this folder)\n" in local
    assert f"  into {program.folder}/active/bin/python (the active virtual environment)\n" in active
    assert "active/bin/python (from --python)\n" in named
    assert "  into a new environment\n" in program("plan", *TORCH, *ELSEWHERE).stdout


@pytest.mark.slow
def test_the_environment_of_a_tool_is_not_the_target(program: Program) -> None:
    tool = program.folder / "tool"
    python = make_environment(".".join(map(str, sys.version_info[:2])), tool)  # it must load the libraries that run here
    (tool / "uv-receipt.toml").write_text("")
    packages = os.pathsep.join([str(ROOT), *(path for path in sys.path if "site-packages" in path)])
    environ = {**program.environ, "PYTHONPATH": packages, "PATH": str(tool / "bin")}
    argv = [python, "-m", "cudnn_resolve", "plan", *TORCH, *HERE]

    done = subprocess.run(argv, cwd=program.folder, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "an environment of its own" in done.stderr
    make_environment("3.11", program.folder / ".venv")
    done = subprocess.run(argv, cwd=program.folder, env=environ, capture_output=True, text=True, check=False)
    assert f"  into {program.folder}/.venv/bin/python (the virtual environment in this folder)\n" in done.stdout


# -- help, and options anywhere ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["plan", "lock", "apply", "doctor", "why"])
def test_help_is_short_and_the_whole_is_one_word_away(verb: str, program: Program) -> None:
    short, whole = program(verb, "--help", COLUMNS="100").stdout, program("help", verb, COLUMNS="100").stdout

    assert len(short.splitlines()) <= 58 < len(whole.splitlines())
    assert f"`cudnn-resolve help {verb}` shows every option." in short
    assert run(verb, "--help-all").stdout == run("help", verb).stdout
    assert "--no-variant-indexes" in whole
    assert "--no-variant-indexes" not in short


def test_apply_lists_only_what_it_takes(program: Program) -> None:
    shown = program("help", "apply").stdout
    done = program("apply", "torch", "--platform", "linux_x86_64")

    assert [option for option in ("--facts", "--python-version", "--platform") if option in shown] == []
    assert (done.returncode, "plans for another machine" in done.stderr) == (2, True)
    assert "130" in shown


@pytest.mark.parametrize("words", [("-q", "plan", *TORCH), ("--format", "text", "plan", *TORCH, "-q"), ("--offline", "-q", "plan", *TORCH)])
def test_options_stand_before_or_after_the_command(words: tuple[str, ...], program: Program) -> None:
    done = program(*words, *ELSEWHERE)

    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr


def test_help_and_version_are_words_too(program: Program) -> None:
    assert program("version").stdout == program("--version").stdout
    assert program("help").stdout == program("--help").stdout
    assert "130 interrupted" in " ".join(program("help").stdout.split())


def test_colours_can_be_forced_into_a_pipe(program: Program) -> None:
    kept = program.environ.pop("NO_COLOR", None)
    assert "\x1b[" in program("plan", *TORCH, *ELSEWHERE, FORCE_COLOR="1").stdout
    assert "\x1b[" not in program("plan", *TORCH, *ELSEWHERE, FORCE_COLOR="0").stdout
    assert "\x1b[" not in program("plan", *TORCH, *ELSEWHERE, FORCE_COLOR="1", NO_COLOR="1").stdout
    assert kept is None or kept


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("--format", "json", "plan", "tenserflow"), 2, "no-target"),
        (("plan", "-f", "tenserflow", "--format=json"), 2, "unknown-framework"),
        (("detect", "--facts", "gone.json", "--format", "json"), 2, None),
        (("apply", "--undo", "77", "--format", "json"), 2, "no-such-apply"),
    ],
)
def test_an_error_is_an_object_for_who_reads_objects(words: tuple[str, ...], code: int, error: str | None, program: Program) -> None:
    done = program(*words, XDG_STATE_HOME=str(program.folder / "state"))
    found = json.loads(done.stdout)

    assert (done.returncode, found["exit_code"], found["schema"]) == (code, code, "cudnn-resolve/error/1")
    assert error in (None, found["error"]["code"])
    assert found["error"]["message"] in done.stderr


def test_a_file_that_no_plan_is_written_to_is_spoken_of(program: Program) -> None:
    script = program("plan", "ctranslate2==99", *ELSEWHERE, "--format", "sh", "-o", "plan.sh")
    text = program("plan", "ctranslate2==99", *ELSEWHERE, "-o", "plan.txt")

    assert (script.returncode, text.returncode) == (1, 1)
    assert "there is no plan, and plan.sh is not written" in script.stderr
    assert not (program.folder / "plan.sh").exists()
    assert "there is no plan, and plan.txt says why" in text.stderr


def test_an_environment_that_cannot_be_written_is_told_before_the_plan(program: Program) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    make_environment("3.11", program.folder / ".venv")
    (folder,) = (program.folder / ".venv" / "lib").glob("python*/site-packages")
    folder.chmod(0o555)
    done = program("apply", *TORCH, *HERE, "--yes", XDG_STATE_HOME=str(program.folder / "state"))
    folder.chmod(0o755)

    assert done.returncode == 3
    assert done.stderr.index("cannot be executed by this user") < done.stderr.index("Plan for") if "Plan for" in done.stderr else True


# -- what cannot be ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--os", "ubunut22.04"), "no distribution is called 'ubunut'", "ubuntu22.04"),
        (("--os", "ubuntu99.04"), "ubuntu has no release 99.04", "ubuntu24.04"),
        (("--os", "debian99"), "debian has no release 99", "debian"),
        (("--os", "frobnix7"), "no distribution is called", "--glibc"),
        (("--gpu", "sm_999"), "no GPU has the compute capability 99.9", "12.0"),
        (("--driver", "999.99"), "no such driver exists", "nvidia-smi"),
        (("--driver", "five", "--driver", "550.54.15"), "--driver is given twice, with 'five' and '550.54.15'", "once"),
        (("--matrix", "/etc/ssl"), "contains no table", ""),
    ],
)
def test_what_cannot_be_is_refused_with_the_nearest(words: tuple[str, ...], message: str, hint: str, program: Program) -> None:
    done = program("plan", "torch", *words, "--offline", "--python-version", "3.11")

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert hint in done.stderr.partition(message)[2]


@pytest.mark.parametrize("name", ["ubuntu2204", "rocky9.3", "centos7", "fedora41", "Ubuntu 24.04", "amzn2023", "sles15.6", "arch1"])
def test_what_is_there_is_planned_for(name: str, program: Program) -> None:
    assert program("plan", "torch==2.6.0", "--offline", "--python-version", "3.11", "--os", name, "-q").returncode == 0


@pytest.mark.slow
def test_a_gpu_and_a_driver_newer_than_the_tables_are_planned_for(program: Program) -> None:
    assert program.plan("torch", "--offline", "--python-version", "3.11", "--gpu", "sm_130", "--driver", "640.10")["facts"]["gpus"]


def test_the_doctor_knows_frameworks_too(program: Program) -> None:
    done = program("doctor", "-f", "tenserflow", "--facts", str(Path(__file__).parents[1] / "machines" / "laptop.json"))

    assert done.returncode == 2
    assert "did you mean `tensorflow`" in done.stderr


# -- why -----------------------------------------------------------------------------------------------------------------------------


def test_no_sentence_of_a_chain_explains_itself(program: Program) -> None:
    shown = program("why", "nvidia-cudnn-cu12", "torch==2.6.0", "tensorflow==2.18.0", *ELSEWHERE).stdout
    lines = [line.strip().removeprefix("<- ") for line in shown.splitlines()]

    assert "is that build" not in shown
    assert "CUDA libraries for tensorflow 2.18.0 (gpu)" in lines
    assert [line for line in lines if line.startswith("cuDNN 9.3.0.75: nvidia-cudnn-cu12 9.3.0.75")] == []  # which is what was asked about
    top = [line for line in shown.splitlines() if line.startswith("  <- ")]
    assert len(top) == len(set(top))


def test_a_driver_that_is_not_there_is_spoken_of_as_that(program: Program) -> None:
    facts = Path(__file__).parents[1] / "machines" / "laptop.json"
    shown = program("why", "driver", "torch==2.6.0", "--facts", str(facts), "--offline").stdout

    assert shown.startswith("driver: this machine has none\n  <- driver >= 525.60.13: ")


@pytest.mark.parametrize(("name", "hint"), [("left-pad", "plan -v"), ("sympi", "did you mean sympy?")])
def test_a_package_that_nobody_knows_is_a_mistake(name: str, hint: str, program: Program) -> None:
    (program.folder / "r.txt").write_text("sympy==1.13.1\n")
    done = program("why", name, *TORCH, "-r", "r.txt", *ELSEWHERE)

    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr


def test_what_is_known_and_not_there_is_explained(program: Program) -> None:
    done = program("why", "nvidia-cudnn-cu13", *TORCH, *ELSEWHERE)

    assert (done.returncode, "is not part of the plan" in done.stdout) == (0, True)


# -- files of a project ------------------------------------------------------------------------------------------------------------

PROJECT = """
[project]
name = "x"
version = "1"
dependencies = ["torch==2.6.0"]
[project.optional-dependencies]
more = ["numpy<2"]
[dependency-groups]
gpu = ["torch==2.6.0", "numpy<2"]
"""


@pytest.mark.parametrize(
    "words",
    [
        ("-r", "sub/pyproject.toml[more]"),
        ("-r", "sub[more]"),
        ("-r", "sub", "numpy<2"),
        ("--group", "sub:gpu"),
        ("--group", "sub/pyproject.toml:gpu"),
    ],
)
def test_a_project_is_named_by_its_file_or_its_folder(words: tuple[str, ...], program: Program) -> None:
    (program.folder / "sub").mkdir()
    (program.folder / "sub" / "pyproject.toml").write_text(PROJECT)

    found = pins(program.plan(*words, *ELSEWHERE))

    assert (found["torch"], found["numpy"]) == ("2.6.0", "1.26.4")


def test_a_path_that_is_no_utf8_stands_in_json_too(program: Program) -> None:
    facts = program.folder / os.fsdecode(b"\xff.json")
    facts.write_text((Path(__file__).parents[1] / "machines" / "notebook.json").read_text("utf-8"), "utf-8")

    assert program.plan("ctranslate2==99", "--facts", str(facts), "--offline")["status"] == "unsatisfiable"
