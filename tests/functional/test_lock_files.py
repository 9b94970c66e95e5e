"""Locks of what requirements files ask for."""

from __future__ import annotations

import pytest

from cudnn_resolve.cli.main import main
from cudnn_resolve.locking.model import marker_text, version_of
from cudnn_resolve.locking.read_pylock import read
from tests.lock_project import ELSEWHERE, TARGET, Project
from tests.wheel_maker import made_wheel


def test_frameworks_with_markers_are_locked_for_the_platforms_that_they_are_for(project: Project) -> None:
    for version, arch in (("4.5.0", "aarch64"), ("4.4.0", "x86_64")):
        tag = f"cp311-cp311-manylinux_2_17_{arch}"
        made_wheel(project.wheels, "ctranslate2", version, "setuptools", "numpy", "pyyaml<7,>=5.3", tag=tag)
    old, new = 'ctranslate2==4.4.0; platform_machine == "x86_64"', 'ctranslate2==4.5.0; platform_machine == "aarch64"'
    (project.folder / "requirements.txt").write_text(f'{old}\n{new}\nctranslate2==1.0; sys_platform == "win32"\n', "utf-8")
    one, other = ("--platform", "linux_x86_64"), ("--platform", "linux_aarch64")
    asked = ("-r", "requirements.txt", "--python-version", "3.11", "--device", "cpu")
    assert project(*asked, *one, *other).returncode == 0
    first = project.file.read_bytes()
    lock = read(first.decode())

    assert {(version_of(entry), marker_text(entry.marker)) for entry in lock.packages if entry.name == "ctranslate2"} == {
        ("4.4.0", "platform_machine == 'x86_64'"),
        ("4.5.0", "platform_machine == 'aarch64'"),
    }
    assert lock.tool is not None
    assert lock.tool.request.targets == (old, new, 'ctranslate2==1.0; sys_platform == "win32"')
    assert project().returncode == 0
    assert project.file.read_bytes() == first, "the same again"
    project.file.unlink()
    assert project(*asked, *other, *one).returncode == 0
    assert project.file.read_bytes() == first, "in another order"
    assert not project.differences("--no-facts")


def test_a_marker_decides_which_python_is_meant_where_nobody_says(project: Project) -> None:
    (project.folder / "requirements.txt").write_text('ctranslate2==4.5.0; python_version < "3.12"\n', "utf-8")
    assert project("-r", "requirements.txt", "--platform", "linux_x86_64").returncode == 0
    assert str(read(project.file.read_text("utf-8")).file.requires_python) == "==3.11.*"

    (project.folder / "requirements.txt").write_text('ctranslate2==4.5.0; python_version < "2"\n', "utf-8")
    done = project("-r", "requirements.txt", "--platform", "linux_x86_64")
    assert done.returncode == 2
    assert "no framework is asked for" in done.stderr
    (project.folder / "requirements.txt").write_text('ctranslate2==4.5.0; platform_machine ~= "x86_64"\n', "utf-8")
    done = project("-r", "requirements.txt", *ELSEWHERE)
    assert (done.returncode, "requirements.txt:1" in done.stderr) == (2, True)


def test_a_requirements_file_may_leave_indexes_out_and_ask_for_prereleases(project: Project) -> None:
    made_wheel(project.wheels, "app", "1.0")
    made_wheel(project.wheels, "app", "2.0rc1")
    text = f"--no-index\n--find-links {project.wheels}\napp\n"
    argv = ["lock", *TARGET, *ELSEWHERE, "-r", "requirements.txt"]
    (project.folder / "requirements.txt").write_text(text, "utf-8")
    assert main(argv) == 0
    assert project.pins["app"] == "1.0"
    (project.folder / "requirements.txt").write_text(f"--pre\n{text}", "utf-8")
    assert main([*argv, "--upgrade"]) == 0
    assert project.pins["app"] == "2.0rc1"
    (project.folder / "requirements.txt").write_text(text, "utf-8")
    assert main([*argv, "--upgrade", "--pre"]) == 0
    lock = read(project.file.read_text("utf-8"))
    assert project.pins["app"] == "2.0rc1"
    assert lock.tool is not None
    assert lock.tool.request.options["pre"] == ("true",)


@pytest.mark.slow
def test_what_is_proposed_instead_of_a_lock_keeps_the_settings_of_files_and_the_wish_to_upgrade(project: Project) -> None:
    below = project.folder / "sub"
    below.mkdir()
    made_wheel(below, "app", "1.0rc1")
    settings = "--extra-index-url https://name:word@index.invalid/simple\n--find-links .\n--pre\n"
    (below / "requirements.txt").write_text(f"{settings}app\n", "utf-8")
    apart = ("-f", "jax==0.9.0", "--driver", "580.65.06", "--gpu", "T4", "--offline")
    done = project("-r", "sub/requirements.txt", "-f", "ctranslate2==4.4.0", *apart, *ELSEWHERE, "-U", "-P", "numpy")

    assert done.returncode == 1
    (way,) = (line for line in done.stdout.splitlines() if " && " in line)
    first, _, second = way.partition(" && ")
    assert "--requirement sub/requirements.txt" in first
    assert "--requirement" not in second
    assert all("--upgrade --upgrade-package numpy" in one for one in (first, second))
    assert second.endswith("--extra-index-url https://index.invalid/simple --find-links sub/. --pre")
    (below / "requirements.txt").write_text("--find-links .\n--pre\napp\n", "utf-8")
    assert project("-r", "sub/requirements.txt", *TARGET, *ELSEWHERE).returncode == 0
    assert project.pins["app"] == "1.0rc1", "a folder is meant relative to the file that names it"
