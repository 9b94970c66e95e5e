"""A second `apply` of a lock: it answers at once where nothing was changed, and looks at everything where anything was."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.host import fingerprint
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import CommandResult
from tests.functional.test_apply_cli import Bench
from tests.program import Done, run

pytestmark = pytest.mark.slow
NOTHING = "nothing to do: the environment already matches the plan\n"


class Settled(Bench):
    """An environment in which a lock was applied."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.lock(("demo", "1.0"), ("other", "2.0"))
        assert self("-q").returncode == 0

    @property
    def environ(self) -> dict[str, str]:
        return {name: text for name, text in super().environ.items() if name != "PYTEST_CURRENT_TEST"}  # it names the phase of a test

    @property
    def site(self) -> Path:
        return next(self.venv.glob("lib/python3*/site-packages"))

    def again(self, *words: str, env: Mapping[str, str] | None = None) -> tuple[Done, bool]:
        """A further `apply`, and whether it looked at everything: then it asks the interpreter."""
        ran: list[object] = []
        ask = LinuxHost.run

        def told(host: LinuxHost, argv: Sequence[str], **more: Any) -> CommandResult:
            ran.append(argv)
            return ask(host, argv, **more)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LinuxHost, "run", told)
            return self(*words, env=env), bool(ran)


@pytest.fixture
def settled(tmp_path: Path) -> Settled:
    return Settled(tmp_path)


def test_what_was_just_installed_needs_no_look_and_the_answer_is_that_of_one(settled: Settled) -> None:
    at_once, looked = settled.again("--format", "json", "-q")
    assert not looked
    (remembered,) = settled.base.glob("state/cudnn-resolve/environments/*/settled")
    remembered.unlink()
    anew, looked = settled.again("--format", "json", "-q")

    assert looked
    assert at_once == anew
    assert settled.again("-q") == (Done(0, NOTHING, ""), False)


def altered(bench: Settled) -> None:
    path = bench.site / "demo/__init__.py"
    path.write_text(path.read_text().replace("1.0", "7.7"))
    later = path.stat().st_mtime_ns + 60 * 10**9  # what comes within seconds is the installer's
    os.utime(path, ns=(later, later))


def touched_alike(bench: Settled) -> None:
    path = bench.site / "demo/__init__.py"
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_text(path.read_text() + "\n")
    os.utime(path, ns=times)


CHANGES: dict[str, tuple[Callable[[Settled], object], str]] = {
    "a file": (altered, "files of demo 1.0 are changed"),
    "a file, with its time": (touched_alike, "files of demo 1.0 are changed"),
    "a file that goes": (lambda bench: (bench.site / "demo/__init__.py").unlink(), "the package was reinstalled"),
    "a file that is empty": (lambda bench: (bench.site / "demo/__init__.py").write_text(""), "the package was reinstalled"),
    "a package that goes": (lambda bench: shutil.rmtree(bench.site / "demo-1.0.dist-info"), "1 package installed"),
    "a program": (lambda bench: (bench.venv / "bin/demo").write_text("#!/bin/sh\n"), NOTHING),
    "the lock": (lambda bench: bench.lock(("demo", "1.1"), ("other", "2.0")), "1 package installed"),
    "a link to a folder elsewhere": (lambda bench: (bench.site / "more").symlink_to(bench.base), NOTHING),
    "a folder on the path": (lambda bench: (bench.site / "more.pth").write_text(f"{bench.base}\n"), NOTHING),
    "a stopped apply": (lambda bench: next(bench.base.glob("state/*/environments/*/")).joinpath("at-work").write_text("{}"), NOTHING),
    "a journal": (lambda bench: next(bench.base.glob("state/*/environments/*/000001/journal.jsonl")).touch(), NOTHING),
    "what is remembered": (lambda bench: _damage(next(bench.base.glob("state/*/environments/*/settled"))), NOTHING),
}


def _damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


LEADS: dict[str, Callable[[Settled, Path], object]] = {
    "a link to a file of paths": lambda bench, file: (bench.site / "more.pth").symlink_to(file),
    "code in a file of paths": lambda bench, file: (bench.site / "more.pth").write_text(
        f"import site; site.addsitedir({str(file.parent)!r})\n"
    ),
    "what runs at start": lambda bench, file: (bench.site / "sitecustomize.py").write_text(
        f"import sys; sys.path.append({str(file.parent)!r})\n"
    ),
}


@pytest.mark.parametrize("what", LEADS)
def test_nothing_is_remembered_of_an_environment_that_sees_a_folder_elsewhere(settled: Settled, tmp_path: Path, what: str) -> None:
    file = tmp_path / "elsewhere/paths.txt"
    file.parent.mkdir()
    file.write_text(f"{file.parent}\n")
    LEADS[what](settled, file)

    assert all(settled.again("-q") == (Done(0, NOTHING, ""), True) for _ in range(2))


def test_a_lock_to_which_a_link_leads_is_read(settled: Settled) -> None:
    (settled.base / "pylock.toml").rename(settled.base / "held.toml")
    (settled.base / "pylock.toml").symlink_to("held.toml")
    settled.again("-q")
    assert settled.again("-q") == (Done(0, NOTHING, ""), False)

    settled.lock(("demo", "1.1"), ("other", "2.0"), called="held.toml")

    assert "1 package installed" in settled.again("-q")[0].stdout


def test_a_table_to_which_a_link_leads_is_looked_at(settled: Settled) -> None:
    head = 'origin = "authored"\nsource.us = {where = "our own tests", read = 2026-11-21}\n'
    row = '[[advisory]]\nid = "ours"\npackage = "demo"\nversions = "==1.0"\naction = "avoid"\nsource = "us"\nsummary = "%s"\n'
    kept = settled.base / "kept.toml"
    kept.write_text(head + row % "one")
    (settled.base / "ours").mkdir()
    (settled.base / "ours/advisory.toml").symlink_to(kept)
    settled.again("-q", "--matrix", "ours")
    assert not settled.again("-q", "--matrix", "ours")[1]

    kept.write_text(head + row % "three")

    assert settled.again("-q", "--matrix", "ours")[1]


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_looked_at(settled: Settled, what: str) -> None:
    change, said = CHANGES[what]
    change(settled)

    done, looked = settled.again("-q")

    assert looked
    assert said in done.stdout


def test_another_question_another_machine_and_another_variable_are_looked_at(settled: Settled, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settled.again("-q", "--cuda", "12")[1]
    assert settled.again("-q", env={"LD_LIBRARY_PATH": "/opt"})[1]
    assert settled.again("-q")[1], "one is remembered, the last"
    assert settled.again("-q", env={"COLUMNS": "70", "JPY_PARENT_PID": "7"}) == (Done(0, NOTHING, ""), False)
    assert settled.again("-q", "--dry-run")[1]
    driver = settled.base / "version"
    monkeypatch.setattr(fingerprint, "_CONTENTS", (str(driver),))
    assert settled.again("-q")[1]
    assert not settled.again("-q")[1]
    driver.write_text("NVRM version: 550.54.15")
    assert settled.again("-q")[1]


def test_a_library_to_which_a_variable_leads_is_looked_at(settled: Settled, tmp_path: Path) -> None:
    led = {"LD_LIBRARY_PATH": str(tmp_path / "led")}
    library = tmp_path / "led/libcudnn.so.9"
    library.parent.mkdir()
    library.write_bytes(b"one")
    settled.again("-q", env=led)
    assert settled.again("-q", env=led) == (Done(0, NOTHING, ""), False)

    library.write_bytes(b"another")

    assert settled.again("-q", env=led)[1]


def test_what_was_kept_is_remembered_only_where_it_is_whole(settled: Settled) -> None:
    altered(settled)
    settled.lock(("demo", "1.0"), ("other", "2.1"))
    assert "1 package installed" in settled("-q").stdout

    done, looked = settled.again("-q")

    assert looked
    assert "files of demo 1.0 are changed" in done.stdout
    assert settled.again("-q") == (done, False), "what is wrong is said each time"


def test_where_packages_of_the_system_are_seen_nothing_is_remembered(settled: Settled) -> None:
    config = settled.venv / "pyvenv.cfg"
    config.write_text(config.read_text().replace("include-system-site-packages = false", "include-system-site-packages = true"))

    assert all(settled.again("-q")[1] for _ in range(2))


def test_an_environment_that_no_apply_changed_is_looked_at_each_time(settled: Settled) -> None:
    shutil.rmtree(settled.base / "state")

    assert all(settled.again("-q") == (Done(0, NOTHING, ""), True) for _ in range(2))


def test_a_new_environment_is_remembered_as_it_is_made(settled: Settled) -> None:
    made = ("apply", "--env", "made", "-q")
    ran: list[object] = []
    with pytest.MonkeyPatch.context() as patched:
        assert run(*made, environ=settled.environ, cwd=settled.base).returncode == 0
        patched.setattr(LinuxHost, "run", lambda _host, argv, **_more: ran.append(argv))
        second = run(*made, environ=settled.environ, cwd=settled.base)

    assert second.stdout.startswith(NOTHING)
    assert "use it: `source " in " ".join(second.stdout.split())
    assert not ran
