"""What is remembered of a bundle that was read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cudnn_resolve.errors import InputError
from cudnn_resolve.host import bundle as on_disk


def test_what_was_verified_is_read_again_where_it_was_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mounts, point = tmp_path / "mounts", str(tmp_path.resolve()).replace(" ", "\\040")
    monkeypatch.setattr(on_disk, "_MOUNTS", str(mounts))
    mounts.write_text(f"1 0 8:1 / / rw - vfat /dev/a rw\n2 1 8:2 / {point} rw,relatime shared:1 - ext4 /dev/b rw\n")
    folder, wheel = str(tmp_path / "b"), tmp_path / "b/wheels/demo-1.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    on_disk.add_to_list(folder, {name: on_disk.place(folder, name, b"PK" + bytes(700)) for name in (f"wheels/{wheel.name}", "start.py")})
    read: list[str] = []
    whole = on_disk.verify

    def recorded(folder: str, files: tuple[on_disk.BundledFile, ...], progress: on_disk.Progress | None = None) -> None:
        read.append(folder)
        whole(folder, files, progress)

    monkeypatch.setattr(on_disk, "verify", recorded)

    def verify() -> int:
        read.clear()
        on_disk.verify_touched(folder, on_disk.files_of(folder, on_disk.read_sums(folder)))
        return len(read)

    assert (verify(), verify()) == (1, 1), "what was changed moments ago is not remembered"
    monkeypatch.setattr(on_disk, "_TICK_NS", 0)
    assert (verify(), verify()) == (1, 0)
    time.sleep(0.02)  # a tick of the clock of a file system
    before, raw = wheel.stat(), wheel.read_bytes()
    wheel.write_bytes(b"QK" + raw[2:])
    os.utime(wheel, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputError, match="damaged"):
        verify()
    wheel.write_bytes(raw)
    assert (verify(), verify()) == (1, 0)
    with mounts.open("a") as stream:
        stream.write(f"3 1 8:3 / {point}/b rw - exfat /dev/c rw\n")
    assert (verify(), verify()) == (1, 1), "a file system without a time of change of its own tells nothing"
