"""`plan` and `why` as users run them; with good words and with bad ones, and in a process of their own where only that shows it."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cudnn_resolve.locking.model import Framework, LockedRequest, Stack, Tool
from cudnn_resolve.locking.proof import add_record
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.write_pylock import write
from tests.lock_maker import lock_with
from tests.program import ROOT, Done, run

MACHINES = Path(__file__).parents[1] / "machines"
ARGV = [sys.executable, "-m", "cudnn_resolve"]
ELSEWHERE = (
    "--offline",
    "--driver",
    "550.54.15",
    "--gpu",
    "T4",
    "--python-version",
    "3.11",
    "--platform",
    "linux_x86_64",
    "--glibc",
    "2.35",
)


class Program:
    """Runs the program in a directory."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd

    def __call__(self, *words: str, text: str = "", **env: str) -> Done:
        return run(*words, environ={**os.environ, **env}, cwd=self.cwd, text=text)

    def start(self, line: str) -> subprocess.CompletedProcess[str]:
        """What becomes of a line of bash."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        argv = ["bash", "-c", line]
        return subprocess.run(argv, env=environ, cwd=self.cwd, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def is_explained(done: Done, code: int, *words: str) -> None:
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.startswith("error: ")
    assert [word for word in words if word not in done.stderr] == [], done.stderr


def test_the_readmes_command_on_this_machine(program: Program) -> None:
    done = program("plan", "-f", "tensorflow", "--offline", "--python", sys.executable, "--gpu", "T4", "--driver", "550.54.15")

    assert done.returncode in (0, 1), done.stderr
    assert done.stdout.startswith("Plan for tensorflow\n")


def test_a_machine_without_a_gpu_gets_a_plan_that_says_what_the_target_must_have(program: Program) -> None:
    done = program("plan", "-f", "torch", "--offline", "--facts", str(MACHINES / "laptop.json"))

    assert (done.returncode, done.stderr) == (0, "")
    assert "the target machine needs driver" in " ".join(done.stdout.split())
    assert "nvidia-cudnn-cu" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("-f", "tenserflow"), 2, ["no framework is called `tenserflow`", "did you mean `tensorflow`"]),
        (("-f", "tensorflow-cpu==2.15.0"), 2, ["ask for `tensorflow==2.15.0` with --device cpu"]),
        (("-f", "left-pad"), 2, ["no framework is called `left-pad`", "--requirement"]),
        (("-f", "torch==x"), 2, ["torch==x", "hint: "]),
        (("-f", ""), 2, ["is not a framework requirement"]),
        ((), 2, ["no framework is asked for", "hint: "]),
        (("-f", "torch", "-r", "gone.txt"), 2, ["gone.txt"]),
        (("-f", "torch", "-r", "."), 2, ["./pyproject.toml"]),
        (("-f", "torch", "--facts", "gone.json", "--cuda", "12"), 2, ["gone.json"]),
        (("-f", "torch", "--cuda", "twelve"), 2, ["--cuda"]),
        (("-f", "torch", "--matrix", "gone"), 2, ["gone"]),
        (("-f", "cupy-cuda11x", "-f", "cupy-cuda12x"), 2, ["two packages of one framework"]),
        (("-f", "torch", "--channel", "conda"), 2, ["--channel"]),
        (("-f", "torch", "--format", "sh", "-o", "gone/there/plan.sh"), 3, ["gone/there"]),
        (("-f", "torch @ https://files.example/torch.whl"), 2, ["names a file"]),
    ],
)
def test_what_cannot_be_read_is_explained(words: tuple[str, ...], code: int, expected: list[str], program: Program) -> None:
    elsewhere = ELSEWHERE if "--facts" not in words else ("--offline",)

    is_explained(program("plan", *words, *elsewhere), code, *expected)


def test_impossible_versions_are_an_answer(program: Program) -> None:
    done = program("plan", "-f", "torch==99", *ELSEWHERE)

    assert (done.returncode, done.stderr) == (1, "")
    assert "There is no plan" in done.stdout
    assert "no release" in done.stdout


@pytest.mark.parametrize("form", ["text", "json", "sh", "requirements"])
def test_every_format_of_a_plan(form: str, program: Program) -> None:
    done = program("plan", "-f", "torch==2.6.0", *ELSEWHERE, "--format", form)

    assert (done.returncode, done.stderr) == (0, "")
    assert "torch" in done.stdout
    if form == "json":
        assert json.loads(done.stdout)["status"] == "ok"


@pytest.mark.parametrize("form", ["text", "json", "sh", "requirements"])
def test_no_format_of_a_conflict_is_empty_or_a_script(form: str, program: Program) -> None:
    done = program("plan", "-f", "ctranslate2==99", *ELSEWHERE, "--format", form)

    assert done.returncode == 1
    said = done.stdout if form in {"text", "json"} else done.stderr
    assert "ctranslate2==99" in said
    assert form in {"text", "json"} or not done.stdout


@pytest.mark.parametrize("text", ["numpy==", "--prefer-newest", "\x00", "<<<<<<<", "-r nested.txt", "a" * 100_000, "numpy @ file:///x"])
def test_a_requirements_file_that_cannot_be_read_is_explained(text: str, program: Program) -> None:
    (program.cwd / "r.txt").write_text(text, "utf-8")
    done = program("plan", "-f", "torch", "-r", "r.txt", *ELSEWHERE)

    if text.startswith("a"):  # a name like any other
        assert done.returncode in (0, 2)
        return
    is_explained(done, 2, "nested.txt" if "nested" in text else "r.txt:1")


def test_a_requirements_file_with_a_byte_order_mark(program: Program) -> None:
    (program.cwd / "r.txt").write_bytes(b"\xef\xbb\xbfnumpy<2\r\n")
    done = program("plan", "-f", "torch==2.6.0", "-r", "r.txt", *ELSEWHERE, "--format", "json")

    assert done.returncode == 0, done.stderr
    assert [one["version"] for one in json.loads(done.stdout)["pip"] if one["name"] == "numpy"] == ["1.26.4"]


def test_a_requirements_file_of_a_monster(program: Program) -> None:
    (program.cwd / "r.txt").write_text("numpy" + " " * 1_000_000 + "<2\n", "utf-8")

    assert program("plan", "-f", "torch==2.6.0", "-r", "r.txt", *ELSEWHERE).returncode in (0, 2)


def test_files_that_name_one_another(program: Program) -> None:
    (program.cwd / "a.txt").write_text("-r b.txt\n", "utf-8")
    (program.cwd / "b.txt").write_text("numpy\n-r a.txt\n", "utf-8")

    is_explained(program("plan", "-f", "torch", "-r", "a.txt", *ELSEWHERE), 2, "include one another", ".txt")


def test_an_overlay_that_is_broken_names_file_row_and_field(program: Program) -> None:
    folder = program.cwd / "over" / "driver"
    folder.mkdir(parents=True)
    (folder / "minimum.toml").write_text('origin = "authored"\nfloor = [{cuda_major = "twelve", first = "1", source = "x"}]\n', "utf-8")

    is_explained(program("plan", "-f", "torch", "--matrix", "over", *ELSEWHERE), 2, "minimum.toml", "cuda_major")


def test_an_overlay_that_is_no_toml(program: Program) -> None:
    (program.cwd / "over").mkdir()
    (program.cwd / "over" / "advisory.toml").write_text("[[advisory\n", "utf-8")

    is_explained(program("plan", "-f", "torch", "--matrix", "over", *ELSEWHERE), 2, "advisory.toml")


def test_an_overlay_changes_the_answer(program: Program) -> None:
    (program.cwd / "over").mkdir()
    (program.cwd / "over" / "advisory.toml").write_text(
        'origin = "authored"\n[source.us]\nwhere = "our own tests"\nread = 2026-11-21\n[[advisory]]\nid = "ours"\n'
        'package = "nvidia-cudnn-cu12"\nversions = "==9.1.0.70"\naction = "avoid"\nsummary = "it fails for us"\nsource = "us"\n',
        "utf-8",
    )
    words = ("plan", "-f", "torch==2.6.0", "--channel", "pip", *ELSEWHERE, "--format", "json")
    before, after = (json.loads(program(*words, *more).stdout) for more in ((), ("--matrix", "over")))

    assert before["stack"]["cudnn"] == "9.1.0.70"
    assert after["stack"]["cudnn"] != "9.1.0.70"
    assert any("it fails for us" in one["message"] for one in after["warnings"])


def test_unreadable_facts(program: Program) -> None:
    path = program.cwd / "facts.json"
    path.write_text('{"schema": "cudnn-resolve/detect/1", "packages": {"pip": {"x"', "utf-8")

    is_explained(program("plan", "-f", "torch", "--offline", "--facts", "facts.json"), 2, "facts.json", "hint: ")


def test_facts_that_are_odd_but_readable(program: Program) -> None:
    odd = {
        "schema": "cudnn-resolve/detect/1",
        "python": {"version": "three"},
        "driver": {"version": "new", "cuda": "?"},
        "gpus": [{"name": "", "compute_capability": "7.5"}, {"name": None}],
        "packages": {"pip": {"torch": "not a version", "numpy": "", "x y": "1"}, "requires": {"torch": ["???", "numpy<2; extra"]}},
        "cuda_toolkits": [{"version": "x", "source": "apt"}],
        "cudnn": [{"version": "?", "soname": 9, "source": "apt", "path": "/x"}],
        "platform": {"glibc": "new", "release": "rolling", "distribution": "arch"},
    }
    (program.cwd / "facts.json").write_text(json.dumps(odd), "utf-8")
    done = program("plan", "-f", "torch", "--offline", "--facts", "facts.json")

    assert done.returncode in (0, 1, 2), done.stderr
    assert done.returncode != 2 or "hint: " in done.stderr


@pytest.mark.slow
def test_a_home_that_cannot_be_written(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    for name, value in (("HOME", home), ("XDG_CACHE_HOME", home / "cache"), ("TMPDIR", home)):
        monkeypatch.setenv(name, str(value))
    try:
        done = program.start(shlex.join([*ARGV, "plan", "-f", "torch==2.6.0", *ELSEWHERE]))
    finally:
        home.chmod(stat.S_IRWXU)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_result_in_a_file(program: Program) -> None:
    done = program("plan", "-f", "torch==2.6.0", *ELSEWHERE, "--format", "sh", "-o", "plan.sh")

    assert (done.returncode, done.stdout) == (0, "")
    assert "plan.sh" in done.stderr
    assert (program.cwd / "plan.sh").read_text("utf-8").startswith("#!/usr/bin/env bash\n")


def test_a_failure_leaves_the_old_file(program: Program) -> None:
    (program.cwd / "plan.sh").write_text("old", "utf-8")

    is_explained(program("plan", "-f", "tenserflow", *ELSEWHERE, "-o", "plan.sh"), 2)
    assert (program.cwd / "plan.sh").read_text("utf-8") == "old"


@pytest.mark.slow
def test_a_reader_that_has_seen_enough(program: Program) -> None:
    words = " ".join([*ARGV, "plan", "-f", "torch==2.6.0", *ELSEWHERE, "--format", "json"])
    done = program.start(f"{words} | head -c 1; exit ${{PIPESTATUS[0]}}")

    assert done.stdout == "{"
    assert done.stderr == ""
    assert done.returncode in (0, 141)


@pytest.mark.slow
def test_a_closed_standard_output(program: Program) -> None:
    done = program.start(" ".join([*ARGV, "plan", "-f", "torch==2.6.0", *ELSEWHERE, ">&-"]))

    assert done.returncode == 3
    assert "standard output is closed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_full_disk(program: Program) -> None:
    done = program.start(" ".join([*ARGV, "plan", "-f", "torch==2.6.0", *ELSEWHERE, ">/dev/full"]))

    assert done.returncode == 3
    assert "error: " in done.stderr


@pytest.mark.slow
def test_the_python_api_gives_what_the_command_prints(program: Program) -> None:
    shown = json.loads(program("plan", "-f", "torch==2.6.0", *ELSEWHERE, "--format", "json").stdout)
    code = (
        "import cudnn_resolve, json, sys; "
        "json.dump(cudnn_resolve.plan('torch==2.6.0', driver='550.54.15', gpu='T4', python_version='3.11', "
        "platform='linux_x86_64', glibc='2.35', offline=True).to_json(), sys.stdout)"
    )
    done = program.start(shlex.join([sys.executable, "-c", code]))

    assert json.loads(done.stdout) == shown


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("nvidia-cudnn-cu12", "-f", "torch==2.6.0"), 0, ["nvidia-cudnn-cu12 9.1.0.70", "torch==2.6.0, asked for"]),
        (("driver", "-f", "torch==2.6.0"), 0, ["driver >= 525.60.13"]),
        (("nvidia-cudnn-cu13", "-f", "torch==2.6.0"), 0, ["is not part of the plan"]),
        (("cudnn", "-f", "cupy-cuda12x"), 0, ["cudnn is not part of the plan"]),
        (("numpy", "-f", "ctranslate2==99"), 1, ["There is no plan"]),
    ],
)
def test_why(words: tuple[str, ...], code: int, expected: list[str], program: Program) -> None:
    done = program("why", *words, *ELSEWHERE)

    assert (done.returncode, done.stderr) == (code, "")
    assert [word for word in expected if word not in done.stdout] == []


def test_why_without_a_package_is_a_mistake(program: Program) -> None:
    is_explained(program("why", "-f", "torch", *ELSEWHERE), 2, "PACKAGE")


def test_a_plan_from_a_lock_says_that_a_wheel_brings_its_own_cudnn(program: Program) -> None:
    names = (("torch", "2.5.1+cu121", "cu121", "9.1.0.70"), ("onnxruntime-gpu", "1.18.1", "cuda12", "9"))
    frameworks = tuple(Framework(name=name, version=version, variant=variant, cudnn_built=cudnn) for name, version, variant, cudnn in names)
    stack = Stack(platform="linux_x86_64", cudnn="9.3.0.75", frameworks=frameworks)
    lock = lock_with(tool=Tool(request=LockedRequest(), python="3.11", matrix=None, stacks=(stack,)))
    (program.cwd / "pylock.toml").write_text(write(lock), "utf-8")
    facts = {"python": {"version": "3.11.9"}, "platform": {"system": "linux", "arch": "x86_64", "glibc": "2.39"}, "packages": {"pip": {}}}
    (program.cwd / "here.json").write_text(json.dumps(facts), "utf-8")

    done = program("plan", "pylock.toml", "--facts", "here.json", "--format", "json", "--offline")

    assert done.returncode == 0, done.stderr
    found = {one["name"]: (one["cudnn"], one["libraries"]) for one in json.loads(done.stdout)["stack"]["frameworks"]}
    assert found == {"torch": ("9.1.0.70", "bundled"), "onnxruntime-gpu": ("9.3.0.75", "pip")}


def test_a_plan_from_a_lock_names_what_it_would_change_or_why_it_does_not_fit(program: Program) -> None:
    golden = Path(__file__).parents[1] / "golden" / "lock-joint.pylock.toml"
    lock = add_record(read(golden.read_text("utf-8")), {"gpu": "Tesla T4", "driver": "550.54.15", "date": "2026-11-21"})
    (program.cwd / "pylock.toml").write_text(write(lock), "utf-8")
    facts = {"python": {"version": "3.11.9"}, "platform": {"system": "linux", "arch": "x86_64", "glibc": "2.39"}, "packages": {"pip": {}}}
    (program.cwd / "here.json").write_text(json.dumps(facts), "utf-8")
    (program.cwd / "other.json").write_text(json.dumps({**facts, "python": {"version": "3.6.1"}}), "utf-8")

    done = program("plan", "pylock.toml", "--facts", "here.json", "--format", "json", "--offline")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {one["action"] for one in found["pip"]} == {"install"}
    assert all(one["file"]["hashes"] for one in found["pip"])
    assert [(one["gpu"], one["fits"], one["because"], one["here"]) for one in found["proven"]] == [("Tesla T4", True, None, False)]
    card = {"gpus": [{"name": "Tesla T4"}], "driver": {"version": "550.54.15"}}
    (program.cwd / "here.json").write_text(json.dumps({**facts, **card}), "utf-8")
    text = program("plan", "pylock.toml", "--facts", "here.json", "--offline").stdout
    assert "  proven on Tesla T4, driver 550.54.15 (2026-11-21), the same GPU model and driver as here\n" in text
    misfit = program("plan", "pylock.toml", "--facts", "other.json")
    assert (misfit.returncode, misfit.stdout) == (1, "")
    assert "3.6.1" in misfit.stderr
    is_explained(program("plan", "pylock.toml", "-f", "torch"), 2, "cannot be combined with targets")
    is_explained(program("plan", "nowhere.toml"), 2, "nowhere.toml")


def test_the_output_of_nvidia_smi_is_a_machine(program: Program) -> None:
    output = (MACHINES.parent / "outputs" / "nvidia-smi-q.txt").read_text(encoding="utf-8")
    words = ("--offline", "--facts", "-", "--python-version", "3.10", "--os", "ubuntu22.04", "torch")
    found = program("plan", *words, "--format", "json", text=output)
    assert found.returncode == 0, found.stderr
    answer = json.loads(found.stdout)
    assert (answer["facts"]["driver"]["version"], answer["facts"]["gpus"][0]["compute_capability"]) == ("450.66", "6.1")
    assert answer["stack"]["cuda"].startswith(("10.", "11.0"))


def test_a_report_of_another_system_is_no_machine_to_plan_for(program: Program) -> None:
    report = str(MACHINES.parent / "outputs" / "windows-collect-env.txt")
    found = program("plan", "--offline", "--facts", report, "torch")
    assert found.returncode == 2
    assert "a machine with windows; only Linux is supported" in found.stderr
    assert program("plan", "--offline", "--facts", report, "--platform", "linux_x86_64", "-q", "torch").returncode == 0
