"""The operating system, the container around it, and whether its user may become root."""

from __future__ import annotations

from cudnn_resolve.facts.container import SIGN_FILES, Signs, container_kind
from cudnn_resolve.facts.model import Platform
from cudnn_resolve.facts.os_release import parse_os_release
from cudnn_resolve.facts.procfs import effective_user
from cudnn_resolve.host.port import Host, which
from cudnn_resolve.probe.python import Target

OS_RELEASE_FILES = ("/etc/os-release", "/usr/lib/os-release")
"""Tried in this order. Source: os-release(5)."""


def find_platform(host: Host, target: Target) -> tuple[Platform, dict[str, str]]:
    """The operating system as the target interpreter sees it, and how each part was learnt."""
    sources = {"platform.arch": "the target interpreter (uname)"}
    file, values = next(((file, parse_os_release(text)) for file in OS_RELEASE_FILES if (text := host.read_text(file))), ("", {}))
    if file:
        sources["platform.distribution"] = file
    if target.glibc:
        sources["platform.glibc"] = "the target interpreter (confstr)"
    return (
        Platform(
            system=target.system,
            arch=target.machine,
            distribution=values.get("ID", "").lower() or None,
            release=values.get("VERSION_ID") or None,
            glibc=target.glibc,
        ),
        sources,
    )


def find_container(host: Host) -> tuple[str | None, str]:
    """`docker`, `colab`, `kaggle`, `wsl` or None, and what says so."""
    signs = Signs(
        environ=host.environ,
        files=frozenset(file for file in SIGN_FILES if host.stat(file) is not None),
        cgroup=host.read_text("/proc/1/cgroup") or "",
        kernel=host.read_text("/proc/version") or "",
    )
    return container_kind(signs)


def find_root(host: Host) -> tuple[bool | None, str]:
    """True where this user is root or becomes root with sudo and no password, and how that was learnt; None = unknown."""
    user = effective_user(host.read_text("/proc/self/status") or "")
    if user == 0:
        return True, "effective user id 0"
    sudo = which(host, "sudo")
    if sudo is None:
        return (None, "the user id is not known") if user is None else (False, f"user id {user}, no sudo")
    asked = host.run([sudo, "-n", "true"], timeout_seconds=5.0)
    return asked.ok, "sudo -n true" if asked.ok else f"sudo -n true {asked.why()}"
