from __future__ import annotations

import pytest

from cudnn_resolve.facts.model import Platform, Python
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.probe.python import TargetEnvironment
from cudnn_resolve.probe.system import find_container, find_platform, find_root
from tests.fake_host import FakeHost

TARGET = TargetEnvironment(
    python=Python(version="3.11.4"),
    how="",
    prefix="/usr",
    system="linux",
    arch="aarch64",
    glibc="2.35",
    site_packages=(),
    distributions=(),
    ld_library_path=(),
    problems=(),
)


def test_the_platform_is_that_of_os_release_and_of_the_interpreter() -> None:
    host = FakeHost({"/etc/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\n'})

    platform, sources = find_platform(host, TARGET)

    assert platform == Platform(system="linux", arch="aarch64", distribution="ubuntu", release="22.04", glibc="2.35")
    assert sources["platform.distribution"] == "/etc/os-release"


def test_os_release_may_lie_in_its_other_place() -> None:
    platform, sources = find_platform(FakeHost({"/usr/lib/os-release": "ID=Arch\n"}), TARGET)

    assert (platform.distribution, platform.release) == ("arch", None)
    assert sources["platform.distribution"] == "/usr/lib/os-release"


def test_without_os_release_the_distribution_is_unknown() -> None:
    platform, sources = find_platform(FakeHost(), TARGET)

    assert platform.distribution is None
    assert "platform.distribution" not in sources


def test_a_container_is_told_by_its_files() -> None:
    assert find_container(FakeHost({"/.dockerenv": ""})) == ("docker", "/.dockerenv")
    assert find_container(FakeHost({"/proc/version": "Linux 5.15-microsoft-standard-WSL2"}))[0] == "wsl"
    assert find_container(FakeHost({"/proc/1/cgroup": "0::/docker/0123456789ab\n"}))[0] == "docker"
    assert find_container(FakeHost())[0] is None


def status(user: int) -> dict[str, str]:
    return {"/proc/self/status": f"Name:\tpython\nUid:\t1000\t{user}\t0\t0\n"}


def test_the_user_with_id_0_is_root() -> None:
    host = FakeHost(status(0))

    assert find_root(host) == (True, "effective user id 0")
    assert host.asked == []


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (CommandResult(returncode=0), (True, "sudo -n true")),
        (
            CommandResult(returncode=1, stderr="sudo: a password is required\n"),
            (False, "sudo -n true exited with status 1: sudo: a password is required"),
        ),
        (CommandResult(timed_out=True), (False, "sudo -n true did not answer in time and was stopped")),
    ],
)
def test_sudo_is_asked_without_a_password(result: CommandResult, expected: tuple[bool, str]) -> None:
    host = FakeHost(status(1000), environ={"PATH": "/usr/bin"}, executables=["/usr/bin/sudo"], programs=lambda _: result)

    assert find_root(host) == expected
    assert host.asked == [("/usr/bin/sudo", "-n", "true")]


def test_without_sudo_the_user_cannot_become_root() -> None:
    assert find_root(FakeHost(status(1000))) == (False, "user id 1000, no sudo")
    assert find_root(FakeHost()) == (None, "the user id is unknown")
