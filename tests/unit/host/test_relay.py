"""A machine elsewhere, asked in rounds: what comes of it is what this machine says of itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import Any

import pytest

from cudnn_resolve.errors import WorldError
from cudnn_resolve.host.child import payload_text
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.payload_door import MOST_OUTPUT, wait_for
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.host.relay import ask_in_rounds
from cudnn_resolve.probe.python import ask_python

BOOT = """import json, sys
job, scope = json.load(sys.stdin), {"__name__": "x"}
exec(job["program"], scope)
print(json.dumps(scope["main"](job)))"""


class There:
    """A Python that answers, and how often it was asked."""

    def __init__(self, python: str = sys.executable) -> None:
        self.python = python
        self.rounds = 0

    def __call__(self, name: str, job: dict[str, Any]) -> dict[str, Any]:
        self.rounds += 1
        text = json.dumps({**job, "program": payload_text(name)})
        done = subprocess.run([self.python, "-I", "-c", BOOT], input=text, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def looked(host: Host) -> tuple[Any, ...]:
    path = "/etc/os-release"
    return (
        host.read_text(path),
        host.read_bytes(path, 3, 5),
        host.list_dir("/etc/ssl"),
        host.stat("/etc") is not None,
        host.stat("/nowhere"),
        host.realpath("/bin/sh"),
        host.run(["sh", "-c", "cat; echo $A; exit 3"], timeout_seconds=5, env={"A": "b", "PATH": "/usr/bin:/bin"}, input="text\n"),
        host.run(["/nowhere/at-all"], timeout_seconds=5).missing,
        host.run(["sh", "-c", "kill -SEGV $$"], timeout_seconds=5).signal,
        host.run(["sleep", "60"], timeout_seconds=0.2).timed_out,
        host.run(["sh", "-c", "yes | head -c 40000000"], timeout_seconds=20).flooded,
    )


@pytest.mark.slow
def test_a_machine_elsewhere_answers_as_this_one() -> None:
    there = There()
    assert ask_in_rounds(there, looked) == looked(LinuxHost())
    assert there.rounds == 2


def test_output_that_is_not_kept_whole_is_told_of_a_program_that_ended_before_anybody_looked() -> None:
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(["head", "-c", str(MOST_OUTPUT + 1), "/dev/zero"], stdout=said, start_new_session=True)
        assert child.wait() == 0
        assert wait_for(child, 5, (said.fileno(),)) == {"flooded": True}
        said.truncate(MOST_OUTPUT)
        assert wait_for(child, 5, (said.fileno(),)) == {"returncode": 0}


@pytest.mark.slow
def test_programs_of_this_package_run_there() -> None:
    here = ask_python(LinuxHost(), sys.executable, "named")
    assert ask_in_rounds(There(), lambda host: ask_python(host, sys.executable, "named")) == here


def test_nothing_is_run_in_vain_without_a_guess() -> None:
    there = There()

    def work(host: Host) -> str:
        first = host.run(["echo", "one"], timeout_seconds=5).stdout.strip()
        return host.run(["echo", first, "two"], timeout_seconds=5).stdout

    assert ask_in_rounds(there, work, guess=False) == "one two\n"
    assert there.rounds == 3


def test_variables_that_may_be_secrets_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_PYTHON_TOKEN", "secret")
    monkeypatch.setenv("PIP_INDEX_URL", "https://name:secret@example.com")
    monkeypatch.setenv("CUDA_HOME", "/usr/local/cuda")
    told = ask_in_rounds(There(), lambda host: dict(host.environ))
    assert told["CUDA_HOME"] == "/usr/local/cuda"
    assert "secret" not in str(told)


def test_an_answer_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(WorldError, match="cannot be understood"):
        ask_in_rounds(lambda _name, _job: {"answers": 3}, lambda host: host.python)


def test_work_that_never_ends_is_given_up() -> None:
    count = 0

    def work(host: Host) -> None:
        nonlocal count
        count += 1
        host.stat(f"/{count}")

    with pytest.raises(WorldError, match="new questions"):
        ask_in_rounds(lambda _name, job: {"answers": [None] * len(job["questions"]), "environ": {}, "python": "p"}, work)
