"""How the hosts of an inventory are reached, and what is said nowhere: a password of sudo, another connection, logins of indexes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fleet_world import SSHD, Fleet, Kind, lock, outcomes, processes
from tests.index_server import IndexServer
from tests.lock_project import NVIDIA
from tests.program import Done

pytestmark = pytest.mark.fleet
PASSWORD = "pa55word-of-the-admin"  # noqa: S105 - it is to be found nowhere
TOKEN = "t0ken-of-the-index"  # noqa: S105 - likewise
KINDS = {
    "a1": Kind(card="a100", password=PASSWORD),
    "a2": Kind(card="a100", password=PASSWORD),
    "b1": Kind(card="t4"),
}
WORDS = ("--env", "/opt/dl", "--format", "json")
CONNECTION = '''\
DOCUMENTATION = """
name: own_chroot
short_description: programs in a root
description: Runs programs in another root of this machine.
author: a test
options: {}
"""
import os
import shutil
import subprocess

from ansible.plugins.connection import ConnectionBase


class Connection(ConnectionBase):
    transport = "own_chroot"
    has_pipelining = PIPELINING

    def _connect(self):
        self._connected = True
        return self

    def exec_command(self, cmd, in_data=None, sudoable=True):
        root, process, *said = self._play_context.remote_addr.split(";")
        said.append("HOME=" + os.path.expanduser("~root"))
        argv = ["nsenter", "--mount", "--target", process, "chroot", root, "env", "-i", *said, "/bin/sh", "-c", cmd]
        done = subprocess.run(argv, input=in_data if self.has_pipelining and in_data else b"", capture_output=True)
        return done.returncode, done.stdout, done.stderr

    def _at(self, path):
        return os.path.join(self._play_context.remote_addr.partition(";")[0], path.lstrip("/"))

    def put_file(self, in_path, out_path):
        shutil.copy(in_path, self._at(out_path))

    def fetch_file(self, in_path, out_path):
        shutil.copy(self._at(in_path), out_path)

    def close(self):
        self._connected = False
'''


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    if os.geteuid() != 0 or not Path(SSHD).exists() or shutil.which("sudo") is None:
        pytest.skip("needs root, an sshd and a sudo")
    made = Fleet(tmp_path / "f", KINDS)
    yield made
    made.stop()


def with_passwords(fleet: Fleet, password: str) -> None:
    """The password of the administrator in a vault, as `ansible-vault` writes it."""
    ansible = str(Path(sys.executable).parent)
    (fleet.base / "key-of-the-vault").write_text("the password of the vault\n")
    (fleet.base / "ansible.cfg").write_text("[defaults]\nvault_password_file = key-of-the-vault\n")
    argv = [f"{ansible}/ansible-vault", "encrypt_string", "--stdin-name", "ansible_become_password"]
    done = subprocess.run(argv, cwd=fleet.base, env=fleet.environ, input=password, capture_output=True, text=True, check=True)
    (fleet.base / "group_vars").mkdir(exist_ok=True)
    (fleet.base / "group_vars/all.yml").write_text(done.stdout)


def faults(done: Done) -> Mapping[str, str]:
    found: dict[str, Any] = json.loads(done.stdout)
    return {one["host"]: one["why"] for one in found["faults"]}


def test_root_is_become_by_a_password_of_a_vault(fleet: Fleet) -> None:
    lock(fleet.base, ("demo", "1.0"))
    refused = faults(fleet("detect", "--format", "json"))
    assert set(refused) == {"a1", "a2"}
    assert "password" in refused["a1"]
    with_passwords(fleet, "not this one")
    assert "a1: the host did not answer: sudo: 1 incorrect password" in fleet("detect", "--limit", "a1").stderr
    with_passwords(fleet, PASSWORD)

    with processes() as seen:
        found = fleet("detect", "--format", "json", "-v")
        made = fleet("apply", "pylock.toml", *WORDS, "-v")

    assert found.returncode == 0, found.stdout + found.stderr
    assert all(one["facts"]["root"] for one in json.loads(found.stdout)["classes"])
    assert outcomes(made) == dict.fromkeys(KINDS, "changed"), made.stdout + made.stderr
    for one in fleet.machines.values():
        assert one.versions() == ["demo-1.0"]
        assert (one.root / "opt/dl/pyvenv.cfg").stat().st_uid == 0
    said = found.stdout + found.stderr + made.stdout + made.stderr
    assert PASSWORD not in said
    assert PASSWORD.encode() not in b"".join(seen)
    assert where(fleet, PASSWORD) == set()


def test_a_password_that_ansible_asks_for_is_asked_for_once(fleet: Fleet) -> None:
    pexpect = pytest.importorskip("pexpect")  # comes with ansible-runner
    lock(fleet.base, ("demo", "1.0"))
    program = [sys.executable, "-m", "cudnn_resolve", "fleet", "apply", "-i", str(fleet.inventory), "pylock.toml", *WORDS]
    environ = {**fleet.environ, "ANSIBLE_BECOME_ASK_PASS": "true"}
    done = subprocess.run(program, cwd=fleet.base, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, "there is no terminal" in done.stderr) == (2, True), done.stderr

    asked = pexpect.spawn(program[0], program[1:], cwd=str(fleet.base), env=environ, timeout=200, encoding="utf-8")
    asked.expect("BECOME password: ")
    asked.sendline(PASSWORD)
    asked.expect(pexpect.EOF)
    asked.close()

    assert (asked.exitstatus, PASSWORD in asked.before) == (0, False), asked.before
    assert [one.versions() for one in fleet.machines.values()] == [["demo-1.0"]] * 3


def where(fleet: Fleet, secret: str) -> set[str]:
    """The files of the administrator and of the hosts that hold a secret; no program is asked, whose command line would hold it."""
    files = (one for one in fleet.base.rglob("*") if one.is_file() and not one.is_symlink())
    return {str(one.relative_to(fleet.base)) for one in files if secret.encode() in one.read_bytes()}


@pytest.mark.parametrize("pipelining", [True, False])
def test_a_host_is_reached_by_any_connection_that_ansible_has(fleet: Fleet, *, pipelining: bool) -> None:
    """By one that passes standard input on, as those of ssh and docker, and by one that does not, as podman's."""
    (fleet.base / "connections").mkdir()
    (fleet.base / "connections/own_chroot.py").write_text(CONNECTION.replace("PIPELINING", str(pipelining)))
    (fleet.base / "ansible.cfg").write_text("[defaults]\nconnection_plugins = ./connections\n")
    lock(fleet.base, ("demo", "1.0"))
    one = fleet.machines["b1"]
    assert one.sshd is not None
    address = ";".join((str(one.root), str(one.sshd.pid), *(said.replace("'", "") for said in one.said)))
    fleet.inventory.write_text(json.dumps({"all": {"hosts": {"c1": {"ansible_connection": "own_chroot", "ansible_host": address}}}}))
    fleet.inventory = fleet.inventory.rename(fleet.base / "hosts.json")

    found = fleet("detect", "--format", "json")
    assert found.returncode == 0, found.stdout
    made = fleet("apply", "pylock.toml", *WORDS)
    assert outcomes(made) == {"c1": "changed"}, made.stdout[-600:]
    again = fleet("apply", "pylock.toml", *WORDS)
    back = fleet("undo", *WORDS)

    assert [(each["hosts"], each["about"]["gpus"]) for each in json.loads(found.stdout)["classes"]] == [(["c1"], "Tesla T4 (7.5)")]
    assert [outcomes(each) for each in (again, back)] == [{"c1": "nothing to do"}, {"c1": "changed"}]
    assert one.versions() == []


def test_the_login_of_an_index_is_nowhere(fleet: Fleet) -> None:
    base, limit = fleet.base, ("--limit", "b1")
    with IndexServer() as index:
        tag = f"cp3{sys.version_info[1]}-cp3{sys.version_info[1]}-manylinux_2_17_x86_64"  # of the hosts' Python, which is this one
        index.add_wheel("ctranslate2", "4.6.0", tag=tag, requires=("setuptools", "numpy", "pyyaml<7,>=5.3"))
        for name, version in (("numpy", "1.26.4"), ("pyyaml", "6.0.2"), ("setuptools", "75.0.0")):
            index.add_wheel(name, version)
        for name, version in NVIDIA:
            index.add_wheel(name, version, tag="py3-none-manylinux_2_17_x86_64")
        file = index.add_wheel("demo", "1.0")
        known = f'{{name = "{file.filename}", url = "{index.root}/files/demo/{file.filename}", hashes = {{sha256 = "{file.digest}"}}}}'
        package = ["[[packages]]", 'name = "demo"', 'version = "1.0"', f"wheels = [{known}]"]
        (base / "demo.toml").write_text("\n".join(['lock-version = "1.0"', 'created-by = "a test"', *package]))
        index.login = "ci", TOKEN
        signed = index.url.replace("//", f"//ci:{TOKEN}@")
        (base / "tmp").mkdir()
        with processes() as seen:
            for name, text in (
                ("pip.conf", f"[global]\nindex-url = {signed}\n"),
                ("netrc", f"machine 127.0.0.1 login ci password {TOKEN}\n"),
                ("pyproject.toml", f'[tool.cudnn-resolve]\nindex-url = "{signed}"\n'),
            ):
                (base / name).write_text(text)
                env = f"/opt/by-{name}"
                with pytest.MonkeyPatch.context() as patch:
                    patch.setenv("PIP_CONFIG_FILE", str(base / "pip.conf"))
                    patch.setenv("NETRC", str(base / "netrc"))
                    patch.setenv("TMPDIR", str(base / "tmp"))
                    if name == "netrc":
                        patch.setenv("PIP_INDEX_URL", index.url)
                    made = fleet("lock", "-f", "ctranslate2==4.6.0", "-o", f"locks-{name}", *limit, "-v")
                    put = fleet("apply", "demo.toml", "--env", env, *limit, "--format", "json", "-vv")
                    page = fleet("check", f"locks-{name}", *limit, "--format", "html", "-o", f"{name}.html")
                (base / name).unlink()
                assert (made.returncode, outcomes(put)) == (0, {"b1": "changed"}), made.stdout + put.stderr
                assert fleet.machines["b1"].versions(env[1:]) == ["demo-1.0"]
                assert TOKEN not in "".join(map(str, (*made, *put, *page)))
                assert where(fleet, TOKEN) == set()
                shutil.rmtree(base / "state")  # the next one fetches all again
                shutil.rmtree(base / "cache")
    assert TOKEN.encode() not in b"".join(seen)
