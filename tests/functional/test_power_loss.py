"""What a disk holds when the power fails: images of a real ext4, taken at each record of the journal, mounted and worked on.

The file system lies on a loop device. A copy of the file behind that device, taken while it is mounted, is what a disk would hold at that
moment: what the kernel has in memory and has not written yet is not in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cudnn_resolve.execution.loader_settings import is_done
from cudnn_resolve.execution.model import Execution
from cudnn_resolve.execution.recover import repair, undo
from cudnn_resolve.execution.run import carry_out
from cudnn_resolve.host import disk
from tests.apply_world import ApplyWorld, work_in
from tests.watching import watching

_MIB = 1 << 20


def mount(image: Path, place: Path) -> bool:
    """Mount an image; False where this machine has no loop devices."""
    done = subprocess.run(["mount", "-o", "loop,noatime", str(image), str(place)], capture_output=True, check=False)
    return done.returncode == 0


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[bool]:
    ok = mount(image, place)
    try:
        yield ok
    finally:
        if ok:
            subprocess.run(["umount", str(place)], check=True)


pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(not disk.is_root() or shutil.which("mkfs.ext4") is None, reason="needs root and mkfs.ext4"),
]


def sums(world: ApplyWorld) -> dict[str, str]:
    """SHA-256 of each file of the environment that a package brought, compiled files left out."""
    files = (path for path in world.site.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    skipped = ("uv_cache.json", "RECORD", ".lock", "REQUESTED", "INSTALLER", "direct_url.json")
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.name not in skipped}


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_disk_that_loses_power_at_any_record_holds_one_of_the_two_environments(
    tmp_path: Path, installer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(96 * _MIB)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    world = ApplyWorld(place / "world", installer)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(world.state))
    monkeypatch.setenv("UV_CACHE_DIR", str(world.base / "uv-cache"))
    copies: list[tuple[str, Path]] = []

    def keep(kind: str) -> None:
        copy = tmp_path / f"{len(copies)}.img"
        subprocess.run(["cp", "--sparse=always", str(image), str(copy)], check=True)
        copies.append((kind, copy))

    with mounted(image, place) as ok:
        if not ok:
            pytest.skip("this machine has no loop devices")
        world.build()
        os.sync()
        before = sums(world)
        work = work_in(world)
        with watching(keep):
            done = carry_out(world.task(work.environment), work)
        assert done.status == "done", done
        after = sums(world)
        work.hold.release()
    assert [kind for kind, _ in copies][-1] == "commit"
    for kind, copy in copies:
        again = tmp_path / "again.img"
        shutil.copy2(copy, again)
        with mounted(copy, place):
            if kind == "commit":
                assert sums(world) == after, f"at {kind}"
            work = work_in(world)
            back = undo(work, None)
            assert (back.left, sums(world)) == ((), before), f"at {kind}: {back}"
            work.hold.release()
        with mounted(again, place):
            work = work_in(world)
            repaired = repair(work)
            assert repaired is None or repaired.left == (), f"at {kind}: {repaired}"
            task = world.task(work.environment)
            done = Execution(status="nothing") if is_done(task, work) else carry_out(task, work)
            assert (done.status, sums(world)) == ("nothing" if kind == "commit" else "done", after), f"at {kind}: {done}"
            work.hold.release()
        copy.unlink()
