from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import cudnn_resolve
from cudnn_resolve.errors import InputError
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import CommandResult, Host
from tests.recorded_host import NotRecordedError, RecordedHost, RecordingHost, write_recording

PAYLOAD = os.path.join(os.path.dirname(cudnn_resolve.__file__), "probe", "payload.py")


def ask(host: Host, folder: Path) -> list[object]:
    """Every kind of question, those with nothing to answer among them."""
    return [
        host.run([sys.executable, "-c", "print(input())"], timeout_seconds=20, input="hé"),
        host.run(["/no/program"], timeout_seconds=1),
        host.run([sys.executable, "-c", "import sys; sys.exit('x')", PAYLOAD], timeout_seconds=20),
        host.read_text(str(folder / "text")),
        host.read_text(str(folder / "none")),
        host.read_bytes(str(folder / "text"), 1, 2),
        host.read_bytes(str(folder / "none"), 0, 1),
        host.list_dir(str(folder)),
        host.stat(str(folder / "text")),
        host.stat(str(folder / "none")),
        host.realpath(str(folder / "text")),
        host.python,
        dict(host.environ),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text").write_text("some ü text")
    return tmp_path


def test_a_replay_answers_as_the_machine_did(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    machine = str(tmp_path_factory.mktemp("machine") / "x")
    recording = RecordingHost(LinuxHost(environ={"PATH": os.environ["PATH"], "CUDA_HOME": "/usr/local/cuda", "HOME": "/home/me"}))
    asked = ask(recording, folder)
    write_recording(machine, recording.answers())
    (folder / "text").unlink()

    replay = RecordedHost.open(machine)

    assert ask(replay, folder) == asked
    assert replay.run([sys.executable, "-c", "import sys; sys.exit('x')", PAYLOAD], timeout_seconds=1) == CommandResult(
        returncode=1, stderr="x\n"
    )


def test_the_place_of_the_package_is_not_recorded() -> None:
    recording = RecordingHost(LinuxHost())
    recording.run(["/no/program", PAYLOAD], timeout_seconds=1)

    keys = json.loads(recording.answers())["commands"]

    assert list(keys) == ['[["/no/program", "{cudnn_resolve}/probe/payload.py"], null]']


def test_secrets_are_not_recorded() -> None:
    environ = {
        "PATH": "/bin",
        "KAGGLE_KEY": "s3cret",
        "NVIDIA_API_KEY": "s3cret",
        "AWS_SECRET": "s3cret",
        "COLAB_JWT_ID": "s3cret",
        "CUDA_HOME": "/c",
    }

    recording = RecordingHost(LinuxHost(environ=environ))

    assert "s3cret" not in recording.answers()
    assert dict(recording.environ) == {"PATH": "/bin", "CUDA_HOME": "/c"}


def test_a_question_that_nobody_asked_is_a_loud_failure() -> None:
    replay = RecordedHost({"commands": {}, "python": "/p", "environ": {}})

    with pytest.raises(NotRecordedError, match="texts: nobody asked for /etc/os-release"):
        replay.read_text("/etc/os-release")
    with pytest.raises(NotRecordedError, match="nvidia-smi"):
        replay.run(["nvidia-smi"], timeout_seconds=1)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_folder_without_a_recording_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "answers.json").write_text(content)

    with pytest.raises(InputError) as raised:
        RecordedHost.open(str(tmp_path))

    assert raised.value.code == "recording-unreadable"
