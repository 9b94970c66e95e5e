"""Packages in RPM form: their names, and the commands for whoever may run them; nothing of such a system is touched from here."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from cudnn_resolve.facts.os_release import parse_os_release

if TYPE_CHECKING:
    from cudnn_resolve.execution.task import Task
    from cudnn_resolve.host.port import Host

_REBUILDS = ("rhel", "centos", "rocky", "almalinux", "ol")
"""Systems that take NVIDIA's packages for Red Hat Enterprise Linux."""
_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)


def rpm_name(name: str, version: str) -> str:
    """The RPM package of an apt package, `libcudnn8-8.9.7.29-1.cuda12.2` for `libcudnn8` `8.9.7.29-1+cuda12.2`."""
    renamed = re.sub(r"-dev(?=-|$)", "-devel", name)
    return f"{renamed}-{version.replace('+', '.')}"


def rpm_commands(task: Task, host: Host) -> list[str]:
    """What brings the system's packages of a task about on this system, for a shell; NVIDIA's repository first."""
    names = [rpm_name(one.name, one.version) for one in task.apt]
    system = _system(host)
    known = []
    if system is not None:
        place = f"https://developer.download.nvidia.com/compute/cuda/repos/{system}/$(uname -m | sed s/aarch64/sbsa/)/cuda-{system}.repo"
        known = [f'sudo curl -fsSLo /etc/yum.repos.d/cuda-{system}.repo "{place}"']
    return [*known, shlex.join(["sudo", "dnf", "install", *names]), shlex.join(["sudo", "dnf", "versionlock", "add", *names])]


def _system(host: Host) -> str | None:
    """How NVIDIA calls this system in the addresses of its repositories: `rhel9`, `fedora41`, `amzn2023`; None where that is not known."""
    said = parse_os_release(host.read_text("/etc/os-release") or host.read_text("/usr/lib/os-release") or "")
    name = "rhel" if said.get("ID") in _REBUILDS else said.get("ID", "")
    major = said.get("VERSION_ID", "").partition(".")[0]
    return f"{name}{major}" if name in ("rhel", "fedora", "amzn") and _NUMBER.fullmatch(major) else None
