"""Notebooks: the kernel above a cell's command, and what it has imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudnn_resolve.execution.model import Execution
from cudnn_resolve.operations import notebook_kernel
from cudnn_resolve.operations.notebook_kernel import imported, imported_here, restart_note
from cudnn_resolve.probe.notebook import kernel_above
from tests.fake_host import FakeHost


def machine(command: str, maps: str = "") -> FakeHost:
    """A program below a shell below a process with that command line."""
    return FakeHost(
        {
            "/proc/self/stat": "900 (cudnn) resolve) S 800 1 1",
            "/proc/800/stat": "800 (sh) S 700 1 1",
            "/proc/800/cmdline": "/bin/sh\0-c\0x",
            "/proc/700/stat": "700 (python3) S 1 1 1",
            "/proc/700/cmdline": command,
            "/proc/700/maps": maps,
        }
    )


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("/usr/bin/python3\0-m\0ipykernel_launcher\0-f\0k.json", 700),
        ("/usr/bin/python3\0-m\0colab_kernel_launcher\0-f\0k.json", 700),
        ("python3\0/usr/lib/ipykernel_launcher.py", 700),
        ("/usr/bin/python3\0train.py", None),
    ],
)
def test_the_kernel_above(command: str, found: int | None) -> None:
    assert kernel_above(machine(command)) == found


def test_no_processes_no_kernel() -> None:
    assert kernel_above(FakeHost()) is None


def test_what_the_kernel_has_imported_is_seen_in_its_maps() -> None:
    site = "/usr/local/lib/python3.12/dist-packages"
    maps = f"7f00-7f01 r-xp 0 0 0 {site}/torch/lib/libtorch.so\n"
    host = machine("python3\0-m\0ipykernel_launcher", maps)

    assert imported(host, ("tensorflow", "torch"), (site,)) == ("torch",)
    assert imported(host, ("torch",), ("/elsewhere/lib/python3.11/site-packages",)) == (), "it is the kernel's own, and stays"
    assert imported(machine("python3\0train.py", maps), ("torch",), (site,)) == ()
    assert "this kernel has already imported torch" in (restart_note(("torch",), notebook=True) or "")
    assert "runtime" not in (restart_note(("torch",), notebook=False) or "runtime"), "there is none"
    assert restart_note((), notebook=True) is None


@pytest.mark.parametrize("ends", [True, False])
def test_a_restart_is_said_where_there_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, ends: bool) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(notebook_kernel, "restart_kernel", lambda host: ends and host is not None)
    done = Execution(status="done", restart=restart_note(("torch",), notebook=True))

    said = notebook_kernel.restart(done, FakeHost(), ("/env", "torch")).restart or ""

    assert said.startswith("restarting the runtime: this kernel" if ends else "restart the runtime: this kernel")
    assert said.endswith("changes nothing" if ends else "(--restart does it automatically)")
    again = notebook_kernel.restart(done, FakeHost(), ("/env", "torch")).restart or ""
    assert again.endswith("for this command, and is not restarted again" if ends else "(--restart does it automatically)")
    third = notebook_kernel.restart(done, FakeHost(), ("/env", "torch")).restart
    assert third == said


def test_what_this_process_has_imported() -> None:
    assert imported_here(("pytest", "torch"), (os.path.dirname(os.path.dirname(os.path.realpath(pytest.__file__))),)) == ("pytest",)
    assert imported_here(("pytest",), ("/elsewhere/lib/python3.11/site-packages",)) == ()
