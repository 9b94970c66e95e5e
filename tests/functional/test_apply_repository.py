"""NVIDIA's repository beside what apt's lists and keyrings hold already, by real apt-get."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cudnn_resolve.execution.recover import undo
from cudnn_resolve.execution.run import carry_out
from cudnn_resolve.host import disk
from tests.apt_world import AptWorld, missing_tools, task_for, work_on

_NEEDS = f"needs root and {', '.join(missing_tools()) or 'nothing else'}"
pytestmark = [pytest.mark.kill, pytest.mark.skipif(bool(missing_tools()) or not disk.is_root(), reason=_NEEDS)]


@pytest.fixture
def world(tmp_path: Path) -> AptWorld:
    world = AptWorld(tmp_path / "apt")
    world.package("libcudnn9-cuda-12", "9.3.0.75-1")
    world.publish()
    return world


_NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64"


@pytest.mark.parametrize(
    ("name", "before", "during"),
    [
        ("sources.list", f"# mine\ndeb {_NVIDIA}/ /\n", f"# mine\n# deb {_NVIDIA}/ /\n"),
        (
            "sources.list.d/cuda.sources",
            f"Types: deb\nURIs: {_NVIDIA}/\nSuites: /\n\nTypes: deb\nURIs: {{other}}\nSuites: ./\nSigned-By: {{key}}\n",
            f"Enabled: no\nTypes: deb\nURIs: {_NVIDIA}/\nSuites: /\n\nTypes: deb\nURIs: {{other}}\nSuites: ./\nSigned-By: {{key}}\n",
        ),
    ],
)
def test_entries_among_those_of_others_are_switched_off_and_come_back(
    world: AptWorld, tmp_path: Path, name: str, before: str, during: str
) -> None:
    repository = world.unknown()
    world.export(world.key, world.root / "usr/share/keyrings/other.gpg")
    other = world.base / "other"
    shutil.copytree(world.repository, other)
    words = {"other": f"file:{other}", "key": str(world.root / "usr/share/keyrings/other.gpg")}
    path = world.root / "etc/apt" / name
    path.write_text(before.format(**words))
    files = world.files()
    work = work_on(world, tmp_path)

    done = carry_out(task_for(("libcudnn9-cuda-12", "9.3.0.75-1"), repositories=(repository,)), work)
    assert done.status == "done", done
    assert path.read_text() == during.format(**words)

    assert undo(work, None).left == ()
    assert world.files() == files
    work.hold.release()


def test_a_repository_that_is_switched_off_is_not_known(world: AptWorld, tmp_path: Path) -> None:
    repository = world.unknown()
    world.export(world.key, world.keyring)
    mine = world.root / "etc/apt/sources.list.d/mine.sources"
    mine.write_text(f"Enabled: no\nTypes: deb\nURIs: {repository.url}\nSuites: ./\nSigned-By: {world.keyring}\n")
    work = work_on(world, tmp_path)

    done = carry_out(task_for(("libcudnn9-cuda-12", "9.3.0.75-1"), repositories=(repository,)), work)
    work.hold.release()

    assert done.status == "done", done
    assert (world.root / "etc/apt/sources.list.d" / repository.list_name).exists()


def test_a_keyring_with_keys_of_others_is_left_alone(world: AptWorld, tmp_path: Path) -> None:
    repository = world.unknown()
    world.export(world.make_key("another"), world.keyring)
    before = world.keyring.read_bytes()
    other = world.base / "other"
    other.mkdir()
    (other / "Packages").touch()
    theirs = world.root / "etc/apt/sources.list.d/theirs.list"
    theirs.write_text(f"# deb [signed-by={world.keyring}] file:{other} ./\ndeb [signed-by={world.keyring} trusted=yes] file:{other} ./\n")
    work = work_on(world, tmp_path)

    done = carry_out(task_for(("libcudnn9-cuda-12", "9.3.0.75-1"), repositories=(repository,)), work)

    assert done.status == "done", done
    assert world.keyring.read_bytes() == before
    own = world.keyring.parent / "cudnn-resolve-keyring.gpg"
    assert (world.root / "etc/apt/sources.list.d" / repository.list_name).read_text() == repository.entry(str(own))
    assert undo(work, None).left == ()
    assert not own.exists()
    work.hold.release()
