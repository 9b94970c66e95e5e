"""What dpkg's status file says, read without a process."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct


class AptPackages(Struct, frozen=True, kw_only=True):
    """Installed packages of a Debian or Ubuntu system."""

    versions: Mapping[str, str]
    """Name without architecture to version; of one name in two architectures the native one."""
    held: frozenset[str]
    """Packages that `apt-mark hold` keeps as they are."""


def parse_status(text: str, native: str | None = None) -> AptPackages:
    """The packages that are installed according to `/var/lib/dpkg/status`; stanzas that say too little are passed over.

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
