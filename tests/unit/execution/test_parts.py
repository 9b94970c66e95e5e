"""Single parts of an apply: the script for shells, the preload, the installer, looks afterwards."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from cudnn_resolve.errors import InputError, UsageError, WorldError
from cudnn_resolve.execution.conditions import check_before, differences, package_folder
from cudnn_resolve.execution.environment import Environment, ask_environment
from cudnn_resolve.execution.installed import files_of
from cudnn_resolve.execution.installer import choose_installer, installer_environ
from cudnn_resolve.execution.loader_settings import activation, preload_change
from cudnn_resolve.execution.task import Task, check_task
from cudnn_resolve.facts.model import Facts, InstalledFramework, LoadedCudnn, Packages, WouldLoad
from cudnn_resolve.host.installed_files import InstalledPackage
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.planning.model import PipAction
from cudnn_resolve.planning.preload import MODULE
from tests.fake_host import FakeHost

SITE = "/env/lib/python3.11/site-packages"
ENVIRONMENT = Environment(
    python="/env/bin/python",
    version="3.11.1",
    prefix="/env",
    scheme={"purelib": SITE, "platlib": SITE, "scripts": "/env/bin", "data": "/env", "headers": "/env/include/site/python3.11"},
)


def test_the_script_for_shells_keeps_what_the_user_set_and_adds_once(tmp_path: Path) -> None:
    script = tmp_path / "activate.sh"
    script.write_text(activation(("/opt/cudnn/lib", "/opt/with space/lib")))
    command = f'set -eu; . {script}; . {script}; printf %s "$LD_LIBRARY_PATH"'

    def run(**env: str) -> str:
        return subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, check=True).stdout

    assert run(LD_LIBRARY_PATH="/mine") == "/mine:/opt/cudnn/lib:/opt/with space/lib"
    assert run() == "/opt/cudnn/lib:/opt/with space/lib"


def test_a_framework_that_nobody_speaks_of_keeps_its_preload() -> None:
    first = preload_change(Task(targets=(), frameworks=("tensorflow",), preload=("tensorflow",)), FakeHost(), ENVIRONMENT)
    files = {path: text for path, text in first.items() if text is not None}
    assert set(files) == {f"{SITE}/{MODULE}.py", f"{SITE}/{MODULE}.pth"}
    host = FakeHost(files)

    assert preload_change(Task(targets=(), frameworks=("tensorflow",), preload=("tensorflow",)), host, ENVIRONMENT) == {}
    both = preload_change(Task(targets=(), frameworks=("ctranslate2",), preload=("ctranslate2",)), host, ENVIRONMENT)
    assert b"NAMES = ('ctranslate2', 'tensorflow')" in (both[f"{SITE}/{MODULE}.py"] or b"")
    assert preload_change(Task(targets=(), frameworks=("torch",)), host, ENVIRONMENT) == {}
    gone = preload_change(Task(targets=(), frameworks=("tensorflow",)), host, ENVIRONMENT)
    assert gone == {f"{SITE}/{MODULE}.py": None, f"{SITE}/{MODULE}.pth": None}


def test_a_file_of_that_name_that_is_not_ours_is_left_alone() -> None:
    host = FakeHost({f"{SITE}/{MODULE}.py": "print('mine')\n"})

    assert preload_change(Task(targets=(), frameworks=("torch",)), host, ENVIRONMENT) == {}


def facts(**packages: str) -> Facts:
    return Facts(packages=Packages(pip=MappingProxyType(packages)))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (facts(torch="2.6.0"), ()),
        (facts(torch="2.6.0+cu124"), ()),
        (facts(torch="2.5.0"), ("torch is 2.5.0, not 2.6.0",)),
        (facts(), ("torch 2.6.0 is missing",)),
        (facts(torch="2.6.0", old="1"), ("old 1 is still installed",)),
        (Facts(), ("the packages of the environment cannot be listed any more",)),
    ],
)
def test_what_is_seen_afterwards(found: Facts, said: tuple[str, ...]) -> None:
    assert differences(Task(targets=(), pinned={"torch": "2.6.0"}, remove=("old",)), found) == said


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x" * 200_000, "a line is too long"),
        ("torch/a.py,,\ntorch/\0.py,,\ntorch/b.py,,\n", "it holds a NUL character"),
        ('torch/a.py,,\n"torch/b.py,,\ntorch/c.py,,\n', "a quote is not closed"),
    ],
)
def test_a_list_of_files_that_nobody_can_read_is_an_error_of_the_world(text: str, fault: str) -> None:
    host = FakeHost({f"{SITE}/torch-2.6.0.dist-info/RECORD": text})

    with pytest.raises(WorldError, match=rf"the RECORD of torch 2\.6\.0 is invalid: {fault}"):
        files_of(InstalledPackage(name="torch", version="2.6.0", info=f"{SITE}/torch-2.6.0.dist-info"), host, ENVIRONMENT)


def test_a_program_that_has_what_is_replaced_is_named(tmp_path: Path) -> None:
    site = str(tmp_path)
    environment = replace(ENVIRONMENT, prefix=site, scheme=dict.fromkeys(ENVIRONMENT.scheme, site))
    record = "onnxruntime/capi/libort.so.1,sha256=x,1\nonnxruntime/__init__.py,,\n../../bin/tool.so,,\nlone.so,,\n"
    host = FakeHost(
        {
            f"{site}/onnxruntime_gpu-1.20.2.dist-info/RECORD": record,
            f"{site}/onnxruntime_gpu-1.20.2.dist-info/METADATA": "Name: onnxruntime-gpu\nVersion: 1.20.2\n",
            f"{site}/other-1.0.dist-info/RECORD": "other/a.so,,\n",
            f"{site}/other-1.0.dist-info/METADATA": "Name: other\nVersion: 1.0\n",
            "/proc/7/maps": f"7f00 r-xp 0 0:0 0\n7f00 r-xp 0 0:0 1      {site}/onnxruntime/capi/libort.so.1 (deleted)\n",
            "/proc/7/comm": "python\n",
            "/proc/8/maps": f"7f00 r-xp 0 0:0 1 {site}/other/a.so\n",
            "/proc/self/maps": f"7f00 r-xp 0 0:0 1 {site}/onnxruntime/capi/libort.so.1\n",
        }
    )

    def told(before: str | None) -> tuple[str, ...]:
        return check_before(
            Task(targets=(), install=(PipAction(name="onnxruntime-gpu", version="1.22.0", installed=before),)), host, environment
        )

    assert told("1.20.2") == ("python (process 7) has loaded packages that are replaced: restart it afterwards",)
    assert told(None) == ()


def test_another_cudnn_than_planned_is_a_difference() -> None:
    loads = WouldLoad(cudnn=LoadedCudnn(version="8.9.7", path="/usr/lib/libcudnn.so.8"), because="LD_LIBRARY_PATH comes first")
    framework = InstalledFramework(name="tensorflow", version="2.15.0", would_load=loads)
    found = replace(facts(), frameworks=(framework,))

    assert differences(Task(targets=(), cudnn={"tensorflow": "8.9.7.29"}), found) == ()
    said = differences(Task(targets=(), cudnn={"tensorflow": "8.9.4.25"}), found)
    assert said == ("tensorflow would load cuDNN 8.9.7 from /usr/lib/libcudnn.so.8, not 8.9.4.25: LD_LIBRARY_PATH comes first",)
    assert differences(Task(targets=(), cudnn={"tensorflow": "8.9.70.1"}), found)
    unknown = replace(found, frameworks=(replace(framework, would_load=WouldLoad(because="no driver")),))
    assert differences(Task(targets=(), cudnn={"tensorflow": "8.9.4.25"}), unknown) == ()


@pytest.mark.parametrize(
    ("wanted", "changes", "name"),
    [
        ("auto", {"pip": "/p"}, "pip"),
        ("auto", {"pip": "/p", "uv": "/usr/bin/uv"}, "uv"),
        ("auto", {"uv": "/usr/bin/uv"}, "uv"),
        ("uv", {"pip": "/p", "uv": "/usr/bin/uv"}, "uv"),
        ("pip", {"pip": "/p", "uv": "/env/bin/uv"}, "pip"),
    ],
)
def test_the_installer(wanted: str, changes: dict[str, object], name: str) -> None:
    assert choose_installer(wanted, replace(ENVIRONMENT, **changes)) == name


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (("/env/bin/uv", "/usr/bin/uv", "/ours/bin/uv"), "/env/bin/uv"),
        (("/usr/bin/uv", "/ours/bin/uv"), "/usr/bin/uv"),
        (("/ours/bin/uv",), "/ours/bin/uv"),
        ((), None),
    ],
)
def test_uv_is_found_in_the_target_on_the_path_and_beside_us(there: tuple[str, ...], found: str | None) -> None:
    told = {"prefix": "/env", "executable": "/env/bin/python", "version": "3.11.1", "pip_folder": None, "scheme": ENVIRONMENT.scheme}
    answer = CommandResult(returncode=0, stdout=f"cudnn-resolve-answer {json.dumps(told)}")
    host = FakeHost(executables=there, environ={"PATH": "/usr/bin"}, python="/ours/bin/python", programs=lambda _: answer)

    assert ask_environment(host, "/env/bin/python").uv == found


def test_an_installer_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="uv is not installed"):
        choose_installer("uv", ENVIRONMENT)
    with pytest.raises(UsageError, match="has no pip"):
        choose_installer("pip", ENVIRONMENT)
    with pytest.raises(WorldError, match="has no pip, and there is no uv"):
        choose_installer("auto", ENVIRONMENT)


def test_nothing_tells_an_installer_where_packages_come_from_or_go_to() -> None:
    said = {"PIP_INDEX_URL": "x", "PIP_TARGET": "x", "UV_INDEX": "x", "UV_CACHE_DIR": "/c", "PYTHONPATH": "x", "PATH": "/bin"}

    found = installer_environ(said)

    assert found["PATH"] == "/bin"
    assert found["UV_CACHE_DIR"] == "/c"
    assert found["PIP_CONFIG_FILE"] == "/dev/null"
    assert not {"PIP_INDEX_URL", "PIP_TARGET", "UV_INDEX", "PYTHONPATH"} & set(found)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("nvidia-cudnn-cu12", "nvidia/cudnn"),
        ("nvidia-cuda-runtime-cu11", "nvidia/cuda_runtime"),
        ("onnxruntime-gpu", "onnxruntime_gpu"),
        ("torch", "torch"),
    ],
)
def test_where_the_files_of_a_package_lie(name: str, folder: str) -> None:
    assert package_folder(name) == folder


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a\n/b", "/a:/b", "/a*", "/a\\ninclude /b", "/a%s"])
def test_folders_for_the_linker_cache(path: str) -> None:
    with pytest.raises(InputError):
        check_task(Task(targets=(), linker_folders=(path,)))
