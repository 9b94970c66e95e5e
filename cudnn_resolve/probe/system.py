"""The operating system: release, container, packages, linker cache, and whether the user may become root."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from cudnn_resolve.facts.driver_output import effective_user
from cudnn_resolve.facts.ldconfig import CacheEntry, parse_cache
from cudnn_resolve.facts.model import Platform, Problem
from cudnn_resolve.facts.system import debian_arch, parse_os_release, parse_status
from cudnn_resolve.host.protocol import Host, which
from cudnn_resolve.probe.python import TargetEnvironment

OS_RELEASE_FILES = ("/etc/os-release", "/usr/lib/os-release")
"""In order of preference. Source: os-release(5)."""


def find_platform(host: Host, target: TargetEnvironment) -> tuple[Platform, dict[str, str]]:
    """Describe the operating system as the target interpreter sees it, with the source of each fact."""
    sources = {"platform.arch": "the target interpreter (uname)"}
    file, values = next(((file, parse_os_release(text)) for file in OS_RELEASE_FILES if (text := host.read_text(file))), ("", {}))
    if file:
        sources["platform.distribution"] = file
    if target.glibc:
        sources["platform.glibc"] = "the target interpreter (confstr)"
    return (
        Platform(
            system=target.system,
            arch=target.arch,
            distribution=values.get("ID", "").lower() or None,
            release=values.get("VERSION_ID") or None,
            glibc=target.glibc,
        ),
        sources,
    )


_CGROUP = r"/(?:docker|kubepods|containerd|lxc|libpod|crio|garden)\b|docker-[0-9a-f]{12}|/actions_job/"
_KAGGLE_CLIENT = frozenset({"KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_CONFIG_DIR"})
"""Set for Kaggle's command-line client on any machine."""


def find_container(host: Host) -> tuple[str | None, str]:
    """Identify `colab`, `kaggle`, `docker`, `wsl` or None, with the evidence. Any OCI container counts as `docker`."""

    def exist(*files: str) -> bool:
        return all(host.stat(file) is not None for file in files)

    environ = host.environ
    colab = sorted(name for name in environ if name.startswith("COLAB_") and environ[name])
    if colab:
        return "colab", f"environment variable {colab[0]}"
    kaggle = sorted(name for name in environ if name.startswith("KAGGLE_") and name not in _KAGGLE_CLIENT)
    if kaggle and exist("/kaggle"):
        return "kaggle", f"environment variable {kaggle[0]} and /kaggle"
    if exist("/var/colab") or exist("/datalab", "/opt/google/drive"):
        return "colab", "files of the Colab image"
    for file in ("/.dockerenv", "/run/.containerenv"):  # Docker, Podman
        if exist(file):
            return "docker", file
    found = re.search(_CGROUP, host.read_text("/proc/1/cgroup") or "")
    if found:
        return "docker", f"/proc/1/cgroup names {found[0]}"
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "docker", "environment variable KUBERNETES_SERVICE_HOST"
    if "microsoft" in (host.read_text("/proc/version") or "").lower():
        return "wsl", "/proc/version names Microsoft"
    return None, "no sign of a container, Colab, Kaggle or WSL"


def find_root(host: Host) -> tuple[bool | None, str]:
    """Whether this user is root, or becomes root with sudo and no password, with the source; None = unknown."""
    user = effective_user(host.read_text("/proc/self/status") or "")
    if user == 0:
        return True, "effective user id 0"
    sudo = which(host, "sudo")
    if sudo is None:
        return (None, "the user id is unknown") if user is None else (False, f"user id {user}, no sudo")
    asked = host.run([sudo, "-n", "true"], timeout_seconds=5.0)
    return asked.ok, "sudo -n true" if asked.ok else f"sudo -n true {asked.why()}"


_STATUS = "/var/lib/dpkg/status"
_CACHE = "/etc/ld.so.cache"
_LIMIT_BYTES = 64 << 20
_RELEVANT = re.compile(
    r"lib(?:cu(?:blas|da|dnn|fft|inj|pti|rand|solver|sparse|tensor|file)|nv(?:JitLink|ToolsExt|blas|cuvid|idia|infer|jpeg|rtc|shmem|vm)"
    r"|nccl|npp|tensorrt|z\.so)"
)
_HELD = r"(?:lib)?(?:cuda|cudnn|cublas|nccl|nvinfer|nvidia|tensorrt)"


def find_apt(host: Host, arch: str | None) -> tuple[Mapping[str, str], str, tuple[Problem, ...]]:
    """List installed apt packages, with their source and a problem for each relevant one that is held back.

    Empty on a system without dpkg.
    """
    text = host.read_text(_STATUS, _LIMIT_BYTES)
    if text is None:
        return MappingProxyType({}), f"there is no {_STATUS}", ()
    packages = parse_status(text, debian_arch(arch))
    held = sorted(name for name in packages.held if re.match(_HELD, name))
    problems = tuple(
        Problem(what=name, why=f"is held at {packages.versions[name]} (apt-mark hold): apt does not change it") for name in held
    )
    return packages.versions, _STATUS, problems


def find_cache(host: Host, arch: str | None) -> tuple[tuple[CacheEntry, ...], tuple[Problem, ...]]:
    """Read the linker cache, without entries of other architectures; a problem if it exists but cannot be read."""
    raw = host.read_bytes(_CACHE, 0, _LIMIT_BYTES)
    if raw is None:
        return (), ()
    entries = parse_cache(raw)
    if entries is None:
        return (), (Problem(what=_CACHE, why="is not a linker cache in a known format; run ldconfig"),)
    return tuple(entry for entry in entries if arch is None or entry.arch in (arch, None)), ()


def relevant(entries: tuple[CacheEntry, ...]) -> tuple[str, ...]:
    """Paths of the relevant cached libraries: CUDA, cuDNN, driver, and dependencies of cuDNN."""
    return tuple(dict.fromkeys(entry.path for entry in entries if _RELEVANT.match(entry.name)))
