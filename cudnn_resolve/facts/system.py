"""Parsers for files of the operating system: os-release and dpkg's status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

# --- os-release ---


def parse_os_release(text: str) -> Mapping[str, str]:
    r"""Assignments of an os-release file, quotes and backslashes resolved; other lines are skipped.

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


_FIELD = re.compile(r"\n(Package|Version|Status|Architecture): (.*)")  # a line break is found twice as fast as ^


class AptPackages(Struct, frozen=True, kw_only=True):
    """Installed packages of a Debian or Ubuntu system."""

    versions: Mapping[str, str]
    """Version by name without architecture; the native one if a package is installed for two architectures."""
    held: frozenset[str]
    """Packages on hold (`apt-mark hold`)."""


def parse_status(text: str, native: str | None = None) -> AptPackages:
    """Installed packages according to `/var/lib/dpkg/status`; incomplete stanzas are skipped.

    `native` is dpkg's name of the machine's architecture (`amd64`, `arm64`). Sample of a stanza:
    `Package: libcudnn8`, `Status: hold ok installed`, `Architecture: amd64`, `Version: 8.9.7.29-1+cuda12.2`.
    Source: dpkg-query(1), the three words of Status: desired action, flags, state.
    """
    versions: dict[str, str] = {}
    foreign: dict[str, str] = {}
    held: set[str] = set()
    for stanza in text.split("\n\n"):
        fields = dict(_FIELD.findall(f"\n{stanza}"))
        name, version, status, arch = (fields.get(key, "").strip() for key in ("Package", "Version", "Status", "Architecture"))
        if not (name and version and status.endswith(" installed")):
            continue
        if native is not None and arch not in (native, "all", ""):
            foreign[name] = version
            continue
        versions[name] = version
        if status.startswith("hold "):
            held.add(name)
    return AptPackages(versions=MappingProxyType({**foreign, **versions}), held=frozenset(held))


def debian_arch(arch: str | None) -> str | None:
    """Name of an architecture in dpkg: `amd64` for `x86_64`; None if unknown."""
    return {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el", "i686": "i386"}.get(arch or "")
