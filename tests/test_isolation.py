"""The suite cannot touch the machine: what `conftest.isolation` promises."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest


def test_home_is_empty_and_of_this_test(isolation: Path) -> None:
    assert Path.home() == isolation
    assert {path.name for path in isolation.rglob("*")} == {".cache", "cudnn-resolve", "tables-v2"}  # copies of tables, common to all
    assert all(value.startswith(str(isolation)) for name, value in os.environ.items() if name.startswith("XDG_"))


def test_settings_of_the_machine_are_gone() -> None:
    assert not {name for name in os.environ if name.startswith(("CUDA_", "CUDNN_", "LD_", "NVIDIA_", "VIRTUAL_ENV", "PYTHON"))}
    assert os.environ["PIP_CONFIG_FILE"] == os.devnull
    assert not {"PIP_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX_URL"} & set(os.environ)


@pytest.mark.slow
def test_settings_of_the_machine_were_there() -> None:
    """The test above, run with settings to lose: it would fail if the fixture left any."""
    planted = ["LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDNN_RESOLVE_FACTS", "PIP_INDEX_URL", "UV_INDEX_URL", "VIRTUAL_ENV"]
    argv = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", __file__, "-k", "settings_of_the_machine_are_gone"]

    done = subprocess.run(argv, env={**os.environ, **dict.fromkeys(planted, "planted")}, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "index.example"])
def test_sockets_do_not_leave_the_machine(host: str) -> None:
    with pytest.raises(RuntimeError, match="not marked `network`"):
        socket.create_connection((host, 443), timeout=1)


def test_datagrams_do_not_leave_the_machine() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, pytest.raises(RuntimeError, match="not marked `network`"):
        sender.sendto(b"", ("192.0.2.1", 53))


def test_sockets_on_this_machine_work() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            client.sendall(b"x")

            assert peer.recv(1) == b"x"


def test_a_child_finds_no_way_out() -> None:
    script = "import urllib.request; urllib.request.urlopen('http://192.0.2.1/', timeout=5)"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "refused" in done.stderr
