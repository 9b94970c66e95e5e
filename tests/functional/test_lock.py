"""`lock` as users run it, with a folder of wheels as the only index."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

import cudnn_resolve
from cudnn_resolve.cli.main import main
from cudnn_resolve.locking.read_pylock import read
from tests.lock_project import ELSEWHERE, TARGET, Project
from tests.wheel_maker import made_wheel


@pytest.fixture
def locked(project: Project) -> Project:
    done = project(*TARGET, *ELSEWHERE)
    assert done.returncode == 0, done.stderr
    return project


@pytest.mark.slow
def test_it_writes_a_lock_and_says_so(project: Project) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, "-m", "cudnn_resolve", *project.words(*TARGET, *ELSEWHERE)]
    done = subprocess.run(argv, cwd=project.folder, env=environ, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (0, "")
    assert "wrote pylock.toml: 6 packages for Python 3.11 on linux_x86_64" in done.stderr
    assert project.pins == {
        "ctranslate2": "4.5.0",
        "numpy": "1.26.4",
        "nvidia-cublas-cu12": "12.2.5.6",
        "nvidia-cudnn-cu12": "9.1.0.70",
        "pyyaml": "6.0.2",
        "setuptools": "75.0.0",
    }
    lock = read(project.file.read_text("utf-8"))
    assert all(file.hashes and file.size and (file.path or "").startswith("wheels/") for one in lock.packages for file in one.wheels or ())
    assert lock.tool is not None
    assert lock.tool.stacks[0].cudnn == "9.1.0.70"
    assert stat.S_IMODE(project.file.stat().st_mode) & 0o044


def test_the_same_again_gives_the_same_bytes_and_asks_for_nothing_twice(locked: Project) -> None:
    before = locked.file.read_bytes()
    again = locked()

    assert "is unchanged" in again.stderr
    assert locked.file.read_bytes() == before
    assert locked(*TARGET, *ELSEWHERE, "-o", "-").stdout.encode() == before


def test_pins_stay_until_an_upgrade_is_asked_for(locked: Project) -> None:
    made_wheel(locked.wheels, "numpy", "2.0.2")
    made_wheel(locked.wheels, "setuptools", "76.0.0")

    assert not locked.differences("--no-facts")
    assert "is unchanged" in locked().stderr
    done = locked("--upgrade-package", "NumPy", "-P", "left_pad")
    assert "upgraded numpy 1.26.4 -> 2.0.2" in done.stderr
    assert "left-pad is not in the lock" in done.stderr
    assert locked.pins["setuptools"] == "75.0.0"
    assert "upgraded setuptools 75.0.0 -> 76.0.0" in locked("--upgrade").stderr


def test_bare_requirements_are_remembered_and_hold(project: Project) -> None:
    assert project("ctranslate2==4.5.0", "numpy<2", *ELSEWHERE).returncode == 0
    before = project.file.read_bytes()
    made_wheel(project.wheels, "numpy", "2.0.2")

    assert not project.differences("--no-facts")
    assert project("--upgrade").returncode == 0
    assert (project.pins["numpy"], project.file.read_bytes()) == ("1.26.4", before)
    assert project("ctranslate2==4.5.0", "--upgrade", *ELSEWHERE).returncode == 0  # who names what he wants names all of it
    assert project.pins["numpy"] == "2.0.2"


def test_why_asks_the_lock_that_lies_here(locked: Project, capsys: pytest.CaptureFixture[str]) -> None:
    made_wheel(locked.wheels, "numpy", "2.0.2")
    places = locked.words()[1:]

    assert main(["why", "numpy", *places]) == 0
    assert capsys.readouterr().out.startswith("numpy 1.26.4\n  <- numpy: ctranslate2 4.5.0")
    assert main(["why", "numpy", "gone.toml", *places]) == 2
    assert main(["why", "nympy", *places]) == 2
    assert "did you mean numpy?" in capsys.readouterr().err


def test_why_tells_of_the_lock_and_not_of_what_the_project_asks_for_by_now(locked: Project, capsys: pytest.CaptureFixture[str]) -> None:
    (locked.folder / "pyproject.toml").write_text('[tool.cudnn-resolve]\nframework = ["mxnet==1.9.1"]\n', "utf-8")

    assert main(["why", "ctranslate2", *locked.words()[1:]]) == 0
    assert capsys.readouterr().out.startswith("ctranslate2 4.5.0")


def test_a_failure_leaves_the_old_file(locked: Project) -> None:
    before = locked.file.read_bytes()

    conflict = locked("-f", "ctranslate2==4.5.0", "--cuda", "<12")
    assert conflict.returncode == 1
    assert "There is no plan" in conflict.stdout
    for wheel in locked.wheels.glob("numpy*"):
        wheel.unlink()
    assert locked("-f", "ctranslate2==4.5.0").returncode in (1, 3)
    assert locked("-f", "no-such-framework").returncode == 2
    assert locked.file.read_bytes() == before
    assert sorted(one.name for one in locked.folder.iterdir()) == ["empty", "pylock.toml", "wheels"]


def test_a_file_that_is_no_lock_is_not_written_over(project: Project) -> None:
    project.file.write_text("precious\n", "utf-8")
    done = project(*TARGET, *ELSEWHERE)

    assert done.returncode == 2
    assert "is not valid TOML" in done.stderr
    assert project.file.read_text("utf-8") == "precious\n"


def test_the_json_holds_the_lock_and_what_it_changes(locked: Project) -> None:
    made_wheel(locked.wheels, "numpy", "2.0.2")
    found = json.loads(locked("-U", "--format", "json").stdout)

    assert (found["schema"], found["status"], found["path"]) == ("cudnn-resolve/lock/1", "ok", "pylock.toml")
    assert found["changes"] == [{"name": "numpy", "action": "upgraded", "old": "1.26.4", "new": "2.0.2"}]
    assert {one["name"] for one in found["packages"]} == set(locked.pins)
    assert found["platforms"][0]["cudnn"] == "9.1.0.70"
    refused = locked("--cuda", "<12", "--format", "json")
    assert json.loads(refused.stdout)["status"] == "unsatisfiable"
    assert refused.returncode == 1


def test_requirements_files_are_remembered_and_read_again(project: Project) -> None:
    made_wheel(project.wheels, "app", "1.0")
    made_wheel(project.wheels, "app", "2.0")
    (project.folder / "requirements.txt").write_text("app<2\n", "utf-8")
    assert project(*TARGET, *ELSEWHERE, "-r", "requirements.txt").returncode == 0
    assert project.pins["app"] == "1.0"
    assert not project.differences("--no-facts")

    (project.folder / "requirements.txt").write_text("# now\napp>=2\n", "utf-8")
    what = {one["what"]: (one["locked"], one["now"]) for one in project.differences("--no-facts")}
    assert what == {"requirement app": ("app<2", "app>=2"), "app": ("1.0", "2.0")}
    assert "upgraded app 1.0 -> 2.0" in project().stderr
    assert not project.differences("--no-facts")


def test_targets_of_the_project_come_before_those_of_the_lock(locked: Project) -> None:
    (locked.folder / "pyproject.toml").write_text('[tool.cudnn-resolve]\nframework = ["ctranslate2>=4.5,<4.6"]\n', "utf-8")

    (found,) = locked.differences("--no-facts")
    assert (found["what"], found["locked"], found["now"]) == ("target ctranslate2", "ctranslate2==4.5.0", "ctranslate2<4.6,>=4.5")
    assert locked().returncode == 0
    assert not locked.differences("--no-facts")


def test_a_machine_that_the_lock_is_not_for_is_told_point_by_point(locked: Project) -> None:
    stated = ("--driver", "470.82.01", "--gpu", "K80", "--python-version", "3.12")
    found = {one["what"]: one["now"] for one in locked.differences("--no-facts", *stated)}

    assert set(found) == {"Python", "driver", "gpu"}
    assert (found["Python"], found["driver"]) == ("3.12", "driver 470.82.01")
    text = locked("--check", "--no-facts", *stated)
    assert text.returncode == 1
    assert "not for this machine" in text.stdout
    facts = locked.folder / "facts.json"
    facts.write_text(json.dumps({"schema": "cudnn-resolve/detect/1", "platform": {"arch": "aarch64"}, "driver": None}), "utf-8")
    assert locked.differences("--facts", "facts.json")[0]["what"] == "platform"


def test_a_wheel_that_changed_is_found(locked: Project) -> None:
    made_wheel(locked.wheels, "numpy", "1.26.4", "something-else; python_version < '3'")

    assert "the index now serves different content under the same file name" in locked().stderr


def test_a_version_that_is_gone_is_found(locked: Project) -> None:
    next(locked.wheels.glob("numpy*")).unlink()
    made_wheel(locked.wheels, "numpy", "1.26.3")
    (found,) = locked.differences("--no-facts")

    assert (found["what"], found["locked"], found["now"]) == ("numpy", "1.26.4", "1.26.3")


def test_a_project_in_a_folder_stands_in_the_lock_as_that_folder(project: Project) -> None:
    (project.folder / "lib").mkdir()
    (project.folder / "lib" / "pyproject.toml").write_text(
        '[project]\nname = "my-lib"\nversion = "0.1"\ndependencies = ["pyyaml"]\n', "utf-8"
    )
    (project.folder / "requirements.txt").write_text("-e ./lib\n", "utf-8")
    done = project(*TARGET, *ELSEWHERE, "-r", "requirements.txt")
    assert done.returncode == 0, done.stderr

    (mine,) = (one for one in read(project.file.read_text("utf-8")).packages if one.name == "my-lib")
    assert mine.directory is not None
    assert (mine.directory.path, mine.directory.editable, mine.version) == ("lib", True, None)
    assert mine.dependencies == [{"name": "pyyaml"}]
    (project.folder / "lib" / "pyproject.toml").write_text(
        '[project]\nname = "my-lib"\nversion = "0.2"\ndependencies = ["pyyaml"]\n', "utf-8"
    )
    assert not project.differences("--no-facts"), "the version of a project that is worked on is no pin"
    assert "is unchanged" in project().stderr


def test_nothing_is_written_without_files(project: Project) -> None:
    for wheel in project.wheels.iterdir():
        wheel.unlink()
    done = project(*TARGET, *ELSEWHERE, "--offline")

    assert done.returncode in (1, 3)
    assert not project.file.exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--check",), 2, "there is no lock pylock.toml"),
        (("--check", "--upgrade"), 2, "--check changes nothing"),
        (("--check", "-o", "-"), 2, "reads the lock from a file"),
        (("--no-facts", *TARGET), 2, "--no-facts needs --check"),
        ((*TARGET, "-o", "-", "--format", "json"), 2, "both print to standard output"),
        ((*TARGET, "--platform", "linux_x86_64", "--platform", "manylinux_2_28_x86_64"), 2, "one architecture twice"),
        ((*TARGET, "--platform", "win_amd64"), 2, "win_amd64"),
        ((), 2, "no framework is asked for"),
        ((*TARGET, *ELSEWHERE, "-o", "nowhere/pylock.toml"), 3, "no directory nowhere"),
        ((*TARGET, *ELSEWHERE, "-o", "wheels"), 2, "is a directory"),
    ],
)
def test_wrong_words_are_said_to_be_wrong(project: Project, words: tuple[str, ...], code: int, said: str) -> None:
    done = project(*words)

    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert not project.file.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('version = 1\n[[package]]\nname = "a"\n', "uv.lock is a uv.lock, not a pylock.toml"),
        ('lock-version = "1.0"\ncreated-by = "x"\npackages = []\n', "uv.lock is a lock, not a requirement"),
    ],
)
def test_a_lock_among_the_requirements_is_called_so(project: Project, text: str, said: str) -> None:
    (project.file.parent / "uv.lock").write_text(text)
    for words in (("--check", "uv.lock"), ("uv.lock",)):
        done = project(*words)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_lock_of_another_program_is_renewed_with_its_pins(project: Project) -> None:
    made_wheel(project.wheels, "numpy", "2.0.2")
    digest = "0" * 64
    project.file.write_text(
        'lock-version = "1.0"\ncreated-by = "another"\n[[packages]]\nname = "numpy"\nversion = "1.26.4"\n'
        f'wheels = [{{ url = "https://me:secret@h.example/numpy-1.26.4-py3-none-any.whl", hashes = {{ sha256 = "{digest}" }} }}]\n',
        "utf-8",
    )
    done = project(*TARGET, *ELSEWHERE)

    assert done.returncode == 0, done.stderr
    assert "was written by another" in done.stderr
    assert "removed the credentials" in done.stderr
    assert "secret" not in done.stderr + project.file.read_text("utf-8")
    assert project.pins["numpy"] == "1.26.4"


def test_without_a_python_every_platform_gets_the_same_one(project: Project) -> None:
    for python in ("cp311", "cp312"):
        for arch in ("x86_64", "aarch64"):
            made_wheel(project.wheels, "ctranslate2", "4.5.0", "numpy", "pyyaml", tag=f"{python}-{python}-manylinux_2_17_{arch}")
    for tag in ("cp311-cp311-manylinux_2_17_aarch64", "cp311-cp311-manylinux_2_17_x86_64", "cp312-cp312-manylinux_2_17_x86_64"):
        made_wheel(project.wheels, "app", "1.0", tag=tag)
    (project.folder / "requirements.txt").write_text("app\n", "utf-8")
    both = ("--platform", "linux_aarch64", "--platform", "linux_x86_64")
    done = project(*TARGET, "--device", "cpu", "-r", "requirements.txt", *both)
    assert done.returncode == 0, done.stdout + done.stderr
    lock = read(project.file.read_text("utf-8"))

    assert str(lock.file.requires_python) == "==3.11.*", "the one Python for which both have wheels"
    assert len(lock.file.environments or ()) == 2
    refused = project(*TARGET, "--device", "gpu", *both)
    assert refused.returncode == 1
    assert "aarch64" in refused.stdout
    assert "Python 3.6" not in refused.stdout


def test_programs_get_the_objects_that_the_json_prints(project: Project) -> None:
    index: dict[str, Any] = {"index_url": (project.folder / "empty").as_uri(), "find_links": str(project.wheels)}
    made = cudnn_resolve.lock("ctranslate2==4.5.0", python_version="3.11", platform="linux_x86_64", output="-", **index)

    assert made["status"] == "ok"
    assert made["path"] is None
    assert not project.file.exists()
    assert read(made["text"]).tool is not None
    made = cudnn_resolve.lock("ctranslate2==4.5.0", python_version="3.11", platform=["linux_x86_64"], **index)
    assert made["path"] == "pylock.toml"
    assert cudnn_resolve.lock(check=True, no_facts=True, **index)["status"] == "current"
    old = {"schema": "cudnn-resolve/detect/1", "driver": {"version": "470.82.01"}}
    found = cudnn_resolve.lock(check=True, facts=old, **index)
    assert [one["what"] for one in found["differences"]] == ["driver"]


def test_who_names_what_he_wants_names_all_of_it(project: Project) -> None:
    made_wheel(project.wheels, "app", "1.0")
    (project.folder / "requirements.txt").write_text("app\n", "utf-8")
    assert project(*TARGET, *ELSEWHERE, "-r", "requirements.txt", "--cuda", "12").returncode == 0
    assert project(*TARGET).returncode == 0
    lock = read(project.file.read_text("utf-8"))

    assert "app" not in project.pins
    assert lock.tool is not None
    assert (lock.tool.request.files, lock.tool.request.cuda) == ({}, None)
    assert lock.tool.request.options == {"platform": ("linux_x86_64",), "python-version": ("3.11",)}


@pytest.mark.parametrize("path", ["../secret.txt", "/etc/hostname", "sub/../../secret.txt"])
def test_a_lock_does_not_lead_to_files_elsewhere(project: Project, path: str) -> None:
    (project.folder / "requirements.txt").write_text("numpy\n", "utf-8")
    (project.folder.parent / "secret.txt").write_text("the secret\n", "utf-8")
    assert project(*TARGET, *ELSEWHERE, "-r", "requirements.txt").returncode == 0
    text = project.file.read_text("utf-8")
    project.file.write_text(text.replace('    "requirements.txt",', f'    "{path}",'), "utf-8")

    for words in ((), ("--check",)):
        done = project(*words)
        assert done.returncode == 2
        assert "which is outside of its folder" in done.stderr
        assert "the secret" not in done.stderr
    if path == "../secret.txt":
        (project.folder.parent / "secret.txt").write_text("numpy<3\n", "utf-8")
        assert project(*TARGET, "-r", path).returncode == 0
    (project.folder.parent / "secret.txt").unlink()


def test_a_lock_in_another_folder_finds_its_files(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    made_wheel(project.wheels, "app", "1.0")
    made_wheel(project.wheels, "tool", "1.0")
    (project.folder / "requirements.txt").write_text("app\n", "utf-8")
    (project.folder / "pyproject.toml").write_text('[dependency-groups]\ngpu = ["tool"]\n', "utf-8")
    (project.folder / "locks").mkdir()
    done = project(*TARGET, *ELSEWHERE, "-r", "requirements.txt", "--group", "gpu", "-o", "locks/pylock.gpu.toml")
    assert done.returncode == 0, done.stderr
    text = (project.folder / "locks" / "pylock.gpu.toml").read_text("utf-8")
    lock = read(text)

    assert lock.tool is not None
    assert dict(lock.tool.request.files) == {"requirement": ("../requirements.txt",), "group": ("../pyproject.toml:gpu",)}
    assert {"app", "tool"} <= {one.name for one in lock.packages}
    assert project("--check", "--no-facts", "-o", "locks/pylock.gpu.toml").returncode == 0
    monkeypatch.chdir(project.folder / "locks")
    assert project("--check", "--no-facts", "-o", "pylock.gpu.toml").returncode == 2, "from here they are elsewhere"


def test_a_lock_is_for_every_patch_release_of_its_python(project: Project) -> None:
    made_wheel(project.wheels, "app", "1.0", "backport; python_full_version < '3.11.3'")
    made_wheel(project.wheels, "backport", "1.0")
    (project.folder / "requirements.txt").write_text("app\n", "utf-8")
    facts = {"schema": "cudnn-resolve/detect/1", "python": {"version": "3.11.9"}, "platform": {"system": "linux", "arch": "x86_64"}}
    (project.folder / "facts.json").write_text(json.dumps(facts), "utf-8")
    assert project(*TARGET, "-r", "requirements.txt", "--facts", "facts.json").returncode == 0

    assert "backport" in project.pins
    assert not project.differences("--no-facts")
    assert not project.differences("--facts", "facts.json")


def test_what_should_be_known_is_said(project: Project) -> None:
    (project.folder / "requirements.txt").write_text("only-source\n", "utf-8")
    with tarfile.open(project.wheels / "only-source-1.0.tar.gz", "w:gz") as archive:
        text = b"Metadata-Version: 2.1\nName: only-source\nVersion: 1.0\n"
        member = tarfile.TarInfo("only-source-1.0/PKG-INFO")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    done = project(*TARGET, *ELSEWHERE, "-r", "requirements.txt", "--format", "json")

    assert done.returncode == 0, done.stderr
    assert any("only-source 1.0" in one for one in json.loads(done.stdout)["warnings"])
    assert "warning: no wheel exists for only-source 1.0" in done.stderr
    assert "# source: only-source 1.0 has no wheel that fits" in project.file.read_text("utf-8")


OVERLAY = """
origin = "authored"
source.made = { where = "made up for a test", read = 2026-11-21 }

[[build]]
version = "4.5.0"
variant = "gpu"
arch = ["x86_64"]
cuda = "12.2"
cudnn = "%s"
delivery = "system"
loads = ["cublas", "cublasLt", "cudnn"]
capability = ["sm_53", "sm_60", "sm_61", "sm_70", "sm_75", "sm_80", "sm_86", "compute_86"]
source = "made"
"""


@pytest.mark.slow
def test_tables_that_know_better_are_told_from_tables_that_merely_changed(locked: Project) -> None:
    made_wheel(locked.wheels, "nvidia_cudnn_cu12", "9.3.0.75", tag="py3-none-manylinux_2_17_x86_64")
    table = locked.folder / "rows" / "framework"
    table.mkdir(parents=True)
    (table / "ctranslate2.toml").write_text(OVERLAY % "9.1.0.70", "utf-8")
    assert not locked.differences("--no-facts", "--matrix", "rows")

    (table / "ctranslate2.toml").write_text(OVERLAY % "9.3.0.75", "utf-8")
    (found,) = locked.differences("--no-facts", "--matrix", "rows")
    assert (found["what"], found["locked"], found["now"]) == ("nvidia-cudnn-cu12", "9.1.0.70", "9.3.0.75")
    assert "is built with cuDNN 9.3.0.75" in found["because"]
    assert "upgraded nvidia-cudnn-cu12 9.1.0.70 -> 9.3.0.75" in locked("--matrix", "rows").stderr


def test_a_request_that_cannot_be_met_any_more_is_a_difference(locked: Project) -> None:
    for wheel in locked.wheels.glob("ctranslate2*"):
        wheel.unlink()
    (found,) = locked.differences("--no-facts")

    assert found["what"] == "resolution"
    assert "ctranslate2" in found["now"]


@pytest.mark.parametrize(("name", "said"), [("pylock.gpu.toml", False), ("gpu.toml", True), ("pylock.a.b.toml", True)])
def test_a_name_that_installers_do_not_take_is_warned_of(project: Project, name: str, *, said: bool) -> None:
    done = project(*TARGET, *ELSEWHERE, "-o", name)

    assert done.returncode == 0
    assert ("pylock.NAME.toml" in done.stderr) == said
