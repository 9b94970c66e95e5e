"""Texts of an operating system: os-release, dpkg's status file, the signs of a container, the user."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

# --- os-release ---


def parse_os_release(text: str) -> Mapping[str, str]:
    r"""The assignments of an os-release file, quotes and backslashes resolved; lines that are none are passed over.

    Sample: `VERSION_ID="22.04"`. Source: os-release(5).
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and key.replace("_", "").isalnum() and key.isascii():
            found[key] = _unquoted(value)
    return MappingProxyType(found)


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        quote, value = value[0], value[1:-1]
        if quote == "'":
            return value
    letters = iter(value)
    return "".join(next(letters, "") if letter == "\\" else letter for letter in letters)


# --- dpkg ---


class AptPackages(Struct, frozen=True, kw_only=True):
    """Installed packages of a Debian or Ubuntu system."""

    versions: Mapping[str, str]
    """Name without architecture to version; of one name in two architectures the native one."""
    held: frozenset[str]
    """Packages that `apt-mark hold` keeps as they are."""


def parse_status(text: str, native: str | None = None) -> AptPackages:
    """Parse the packages that are installed according to `/var/lib/dpkg/status`; stanzas that say too little are passed over.

    `native` is dpkg's name of the machine's architecture (`amd64`, `arm64`). Sample of a stanza:
    `Package: libcudnn8`, `Status: hold ok installed`, `Architecture: amd64`, `Version: 8.9.7.29-1+cuda12.2`.
    Source: dpkg-query(1), the three words of Status: what is wanted, flags, state.
    """
    versions: dict[str, str] = {}
    foreign: dict[str, str] = {}
    held: set[str] = set()
    for stanza in text.split("\n\n"):
        status = _field(stanza, "Status")
        name = _field(stanza, "Package")
        version = _field(stanza, "Version")
        if not (name and version and status.endswith(" installed")):
            continue
        arch = _field(stanza, "Architecture")
        if native is not None and arch not in (native, "all", ""):
            foreign[name] = version
            continue
        versions[name] = version
        if status.startswith("hold "):
            held.add(name)
    return AptPackages(versions=MappingProxyType({**foreign, **versions}), held=frozenset(held))


def debian_arch(arch: str | None) -> str | None:
    """What dpkg calls an architecture: `amd64` for `x86_64`; None where that is not known."""
    return {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el", "i686": "i386"}.get(arch or "")


def _field(stanza: str, name: str) -> str:
    """The value of a one-line field, "" where the stanza has none."""
    mark = f"{name}: "
    if stanza.startswith(mark):
        at = 0
    else:
        at = stanza.find(f"\n{mark}") + 1
        if at == 0:
            return ""
    at += len(mark)
    end = stanza.find("\n", at)
    return stanza[at : end if end >= 0 else len(stanza)].strip()


# --- containers and notebook services ---

_CGROUP = re.compile(r"/(?:docker|kubepods|containerd|lxc|libpod|crio|garden)\b|docker-[0-9a-f]{12}|/actions_job/")


class Signs(Struct, frozen=True, kw_only=True):
    """Signs of a container or notebook service."""

    environ: Mapping[str, str]
    files: frozenset[str]
    """Those of `SIGN_FILES` that exist."""
    cgroup: str = ""
    """/proc/1/cgroup."""
    kernel: str = ""
    """/proc/version."""


SIGN_FILES = ("/.dockerenv", "/run/.containerenv", "/kaggle", "/opt/google/drive", "/var/colab", "/datalab", "/tools/node")
"""Files and directories that give a container away: of Docker, Podman, Kaggle and Colab."""


def container_kind(signs: Signs) -> tuple[str | None, str]:
    """`colab`, `kaggle`, `docker`, `wsl` or None, and what says so. Any OCI container counts as `docker`."""
    environ = signs.environ
    colab = sorted(name for name in environ if name.startswith("COLAB_") and environ[name])
    if colab:
        return "colab", f"environment variable {colab[0]}"
    kaggle = sorted(name for name in environ if name.startswith("KAGGLE_") and name not in _KAGGLE_CLIENT)
    if kaggle and "/kaggle" in signs.files:
        return "kaggle", f"environment variable {kaggle[0]} and /kaggle"
    if "/var/colab" in signs.files or {"/datalab", "/opt/google/drive"} <= signs.files:
        return "colab", "files of the Colab image"
    for file in ("/.dockerenv", "/run/.containerenv"):
        if file in signs.files:
            return "docker", file
    found = _CGROUP.search(signs.cgroup)
    if found:
        return "docker", f"/proc/1/cgroup names {found[0]}"
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "docker", "environment variable KUBERNETES_SERVICE_HOST"
    if "microsoft" in signs.kernel.lower():
        return "wsl", "/proc/version names Microsoft"
    return None, "no sign of a container, Colab, Kaggle or WSL"


_KAGGLE_CLIENT = frozenset({"KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_CONFIG_DIR"})
"""Set by users of Kaggle's command-line client on any machine."""
