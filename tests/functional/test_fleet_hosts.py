"""`fleet -i INVENTORY` on real hosts: an sshd on loopback for each, in a root of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet_world import SSHD, Fleet, Kind, lock, outcomes, processes
from tests.program import ROOT
from tests.small_wheels import tree

pytestmark = pytest.mark.fleet
KINDS = {
    "a1": Kind(card="a100"),
    "a2": Kind(card="a100"),
    "a3": Kind(card="a100"),
    "b1": Kind(card="t4"),
    "b2": Kind(card="t4", read_only=True),
    "c1": Kind(card="v100", variables=("STANDIN_LIBCUDA=802",)),
    "c2": Kind(card="v100"),
    "d1": Kind(card="h100"),
    "d2": Kind(card="h100"),
}
"""Four classes; no program can use the card of c1, b2 cannot be written to, d2 will be killed."""
SECRET = "s3cr3t-of-the-vault"  # noqa: S105 - it is to be found nowhere


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    if os.geteuid() != 0 or not Path(SSHD).exists():
        pytest.skip("needs root and an sshd")
    made = Fleet(tmp_path / "f", KINDS)
    with made.inventory.open("a") as stream:
        stream.write(f"\n[down]\nu1 ansible_host=127.0.0.1 ansible_port={made.closed}\n")
    yield made
    made.stop()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Fleet]:
    """Two classes of hosts, as the page names them."""
    if os.geteuid() != 0 or not Path(SSHD).exists():
        pytest.skip("needs root and an sshd")
    made = Fleet(tmp_path / "f", {"node16": Kind(card="a100"), "node17": Kind(card="a100"), "node18": Kind(card="t4")})
    yield made
    made.stop()


def test_the_right_hosts_are_changed_and_the_right_ones_put_back(fleet: Fleet) -> None:
    lock(fleet.base, ("demo", "1.0"), ("other", "2.0"))
    words = ("pylock.toml", "--env", "/opt/dl", "--format", "json")
    assert list((fleet.machines["a1"].root / "opt").iterdir()) == []
    before = {name: tree(one.root / "etc") for name, one in fleet.machines.items()}
    over = threading.Event()
    cut = threading.Thread(target=cut_off, args=(fleet, "d2", over), daemon=True)
    cut.start()

    first = fleet("apply", *words, "--serial", "2")
    over.set()
    cut.join()
    told = outcomes(first)

    assert first.returncode == 4, first.stderr
    assert {told[name] for name in ("a1", "a2", "a3", "b1", "d1")} == {"changed"}, first.stdout
    assert (told["b2"], told["c1"], told["c2"], told["u1"]) == ("failed", "put back", "left", "fault")
    assert told["d2"] in ("failed", "unreachable")
    for name in ("a1", "a2", "a3", "b1", "d1"):
        assert fleet.machines[name].versions() == ["demo-1.0", "other-2.0"]
    for name in ("b2", "c1", "c2"):
        assert fleet.machines[name].versions() == []
        assert [one.name for one in (fleet.machines[name].root / "opt").iterdir() if not one.name.startswith(".")] == []
    assert {name: tree(one.root / "etc") for name, one in fleet.machines.items()} == before

    limit = ("--limit", "a1:a2:d2")
    second = fleet("apply", *words, *limit)

    assert outcomes(second) == {"a1": "nothing to do", "a2": "nothing to do", "d2": "changed"}, second.stdout
    assert "an earlier run was interrupted" in second.stdout
    assert fleet.machines["d2"].versions() == ["demo-1.0", "other-2.0"]

    (next((fleet.machines["a3"].root / "opt/dl").glob("lib/python3.*/site-packages")) / "mine-1.0.dist-info").mkdir()
    third = fleet("undo", "--env", "/opt/dl", "--format", "json", "--limit", "a1:a2:a3")

    assert outcomes(third) == {"a1": "changed", "a2": "changed", "a3": "failed"}, third.stdout
    assert fleet.machines["a1"].versions() == []
    assert fleet.machines["a3"].versions() == ["demo-1.0", "mine-1.0", "other-2.0"]

    shutil.copytree(fleet.base / "wheels", fleet.machines["a1"].root / "srv")
    (fleet.machines["a1"].root / "etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /srv\n")

    fourth = fleet("apply", *words, "--fetch", "host", "--limit", "a1:a2")

    assert outcomes(fourth) == {"a1": "changed", "a2": "failed"}, fourth.stdout
    assert fleet.machines["a1"].versions() == ["demo-1.0", "other-2.0"]
    assert fleet.machines["a2"].versions() == []


def cut_off(fleet: Fleet, name: str, over: threading.Event) -> None:
    """Kill everything on a host once its environment is half made."""
    machine = fleet.machines[name]
    while not over.is_set():
        if (machine.root / "opt/dl/pyvenv.cfg").exists():
            machine.kill()
            return
        time.sleep(0.02)


def test_secrets_of_the_inventory_are_nowhere(fleet: Fleet) -> None:
    ansible = str(Path(sys.executable).parent)
    (fleet.base / "password").write_text("the password of the vault\n")
    encrypt = [f"{ansible}/ansible-vault", "encrypt_string", "--vault-password-file", "password", SECRET, "--name", "index_token"]
    text = subprocess.run(encrypt, cwd=fleet.base, env=fleet.environ, capture_output=True, text=True, check=True).stdout
    (fleet.base / "group_vars").mkdir()
    (fleet.base / "group_vars/all.yml").write_text(text + 'ansible_become_password: "{{ index_token }}"\n')
    (fleet.base / "ansible.cfg").write_text("[defaults]\nvault_password_file = password\n")
    play = {
        "hosts": "a1",
        "gather_facts": False,
        "tasks": [{"cudnn_resolve.fleet.cudnn_facts": {}, "environment": {"T": "{{ index_token }}"}}],
    }
    (fleet.base / "play.yml").write_text(json.dumps([play]))
    environ = {**fleet.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "cudnn_resolve/fleet")}
    argv = [f"{ansible}/ansible-playbook", "-vvv", "-i", str(fleet.inventory), "play.yml"]
    with processes() as seen:
        done = subprocess.run(argv, cwd=fleet.base, env=environ, capture_output=True, check=False)
        asked = fleet("detect", "--limit", "a1", "--format", "json", "-vv")
        page = fleet("detect", "--limit", "a1", "--format", "html", "-o", "page.html")

    assert done.returncode == 0, done.stdout
    assert asked.returncode == 0, asked.stderr
    assert page.returncode == 0, page.stderr
    shown = done.stdout + done.stderr + asked.stdout.encode() + asked.stderr.encode() + b"".join(seen)
    assert SECRET.encode() not in shown
    left = subprocess.run(["grep", "-rl", SECRET, str(fleet.base)], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_a_host_behind_another_is_reached_as_the_inventory_says(fleet: Fleet) -> None:
    first, far = fleet.machines["a1"], fleet.machines["b1"]
    strict = f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={fleet.base}/known"
    jump = f"ssh -i {fleet.key} {strict} -W %h:%p -p {first.port} root@127.0.0.1"
    with fleet.inventory.open("a") as stream:
        stream.write("\n[far]\nj1\n")
    (fleet.base / "host_vars").mkdir()
    said = {
        "ansible_host": "127.0.0.1",
        "ansible_port": far.port,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(fleet.key),
        "ansible_ssh_common_args": f'{strict} -o ProxyCommand="{jump}"',
    }
    (fleet.base / "host_vars/j1.yml").write_text(json.dumps(said))

    found = json.loads(fleet("detect", "--limit", "j1", "--format", "json").stdout)

    assert [(one["hosts"], one["about"]["gpus"]) for one in found["classes"]] == [(["j1"], "Tesla T4 (7.5)")]


def test_the_collection_is_installed_from_its_archive_and_documented(tmp_path: Path) -> None:
    ansible = str(Path(sys.executable).parent)
    if not Path(ansible, "ansible-galaxy").exists():
        pytest.skip("needs the extra `fleet`")
    environ = {**as_typed(tmp_path), "ANSIBLE_HOME": str(tmp_path / "a"), "ANSIBLE_NOCOLOR": "1"}

    def say(line: str) -> str:
        done = subprocess.run(["bash", "-ec", line], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    assert "replace" in say(shown("ansible-galaxy"))
    for name in ("cudnn_facts", "cudnn_env", "cudnn_validate"):
        text = say(f"ansible-doc cudnn_resolve.fleet.{name}")
        assert "EXAMPLES" in text
        assert f"cudnn_resolve.fleet.{name}:" in text


def shown(words: str) -> str:
    """The commands of the page that have those words."""
    page = (ROOT / "docs/situations/fleet.md").read_text("utf-8")
    (found,) = (text for text in re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if words in text)
    return str(found)


def as_typed(folder: Path) -> dict[str, str]:
    """An environment in which this program and Ansible are found as the page types them."""
    program = folder / "bin/cudnn-resolve"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cudnn_resolve "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


@pytest.mark.network
def test_the_commands_of_the_page_work_on_hosts(nodes: Fleet, tmp_path: Path) -> None:
    """As the page types them; the locks that `fleet lock` makes of an index are then exchanged for some of small wheels."""
    typed = {name: value for name, value in as_typed(tmp_path).items() if name in ("PATH", "PYTHONPATH")}
    environ = {**nodes.environ, **typed, "CUDNN_RESOLVE_NO_VARIANT_INDEXES": "1"}  # the configured index is enough
    said = []
    for line in shown("fleet detect").splitlines():
        if " fleet apply " in line:
            locks = sorted((nodes.base / "locks").glob("pylock.*.toml"))
            assert ['\nname = "torch"\n' in path.read_text() for path in locks] == [True, True]
            lock(nodes.base, ("demo", "1.0"))
            for path in locks:
                path.write_text((nodes.base / "pylock.toml").read_text().replace('"wheels/', '"../wheels/'))
        done = subprocess.run(["bash", "-ec", line], cwd=nodes.base, env=environ, capture_output=True, text=True, check=False)
        said.append(done.stdout)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"

    assert len(said) == 5
    assert {name: one.versions() for name, one in nodes.machines.items()} == {"node16": ["demo-1.0"], "node17": [], "node18": ["demo-1.0"]}


def test_the_module_checks_shows_differences_and_does_nothing_twice(tmp_path: Path) -> None:
    ansible = str(Path(sys.executable).parent)
    if not Path(ansible, "ansible-playbook").exists():
        pytest.skip("needs the extra `fleet`")
    lock(tmp_path, ("demo", "1.0"))
    words = {"path": str(tmp_path / "dl"), "lock": str(tmp_path / "pylock.toml")}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"cudnn_resolve.fleet.cudnn_env": words}]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    own = {"XDG_STATE_HOME": str(tmp_path / "state"), "ANSIBLE_HOME": str(tmp_path / "a"), "ANSIBLE_NOCOLOR": "1"}
    environ = {**os.environ, **own, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "cudnn_resolve/fleet")}

    def play_it(*more: str) -> str:
        argv = [f"{ansible}/ansible-playbook", "-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
        done = subprocess.run([*argv, "play.yml", *more], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    planned = play_it("--check", "--diff")
    assert "+demo==1.0" in planned
    assert "changed=1" in planned
    assert not (tmp_path / "dl").exists()
    assert "changed=1" in play_it()
    assert (tmp_path / "dl/bin/python").exists()
    assert "changed=0" in play_it()


def test_ansible_lint_finds_nothing() -> None:
    lint = Path(sys.executable).parent / "ansible-lint"
    if not lint.exists():
        pytest.skip("needs ansible-lint")
    source = ROOT / "cudnn_resolve/fleet/ansible_collections/cudnn_resolve/fleet"
    environ = {**os.environ, "PATH": f"{lint.parent}:{os.environ['PATH']}"}
    done = subprocess.run([lint, "--offline", "--strict", "."], cwd=source, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ansible_test_sanity_is_clean(tmp_path: Path) -> None:
    ansible = str(Path(sys.executable).parent)
    if not Path(ansible, "ansible-test").exists():
        pytest.skip("needs the extra `fleet`")
    target = tmp_path / "ansible_collections/cudnn_resolve/fleet"
    shutil.copytree(ROOT / "cudnn_resolve/fleet/ansible_collections/cudnn_resolve/fleet", target)
    environ = {**os.environ, "PATH": f"{ansible}:{os.environ['PATH']}"}
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    words = [word for name in SANITY for word in ("--test", name)]
    argv = [f"{ansible}/ansible-test", "sanity", "--python", version, *words]
    done = subprocess.run(argv, cwd=target, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


SANITY = (
    *("action-plugin-docs", "compile", "empty-init", "line-endings", "no-assert", "no-get-exception", "no-illegal-filenames"),
    *("no-smart-quotes", "replace-urlopen", "shebang", "symlinks", "use-argspec-type-path", "use-compat-six"),
)
"""Those that fetch nothing."""
