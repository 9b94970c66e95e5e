"""Packages of the system for a bundle: fetched by an apt of its own, which verifies them, with what it verifies them by.

Nothing of this system is asked but its apt-get and gpg, so that a bundle can be made without root, and for another architecture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution import aptget
from cudnn_resolve.execution.aptget import Apt
from cudnn_resolve.execution.repository import apt_alone
from cudnn_resolve.host import disk
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import which

if TYPE_CHECKING:
    from cudnn_resolve.execution.fetch import Download
    from cudnn_resolve.host.run_tool import Tooling
    from cudnn_resolve.planning.model import AptAction, AptRepository

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""As Debian calls them."""
_CONFIGURATION = """Dir::Etc::parts "/dev/null";
Dir::Etc::main "/dev/null";
Dir::State "{place}/state";
Dir::State::status "{place}/state/status";
Dir::Cache "{place}/cache";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
Acquire::GzipIndexes "false";
"""
_SIGNED = re.compile(r"(?:^|_)(InRelease|Release|Release\.gpg|Packages)$", re.ASCII)
"""What apt keeps of a repository in its lists, as the repository calls it."""
LARGEST_LIST = 256 << 20
_FIELD = re.compile(r"^(Package|Version|Filename|Depends|Pre-Depends|Provides): (.*)$", re.MULTILINE)
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*", re.ASCII)
_MOVES = re.compile(r'^Acquire::https?::[^\n"]*"[^\n]*$', re.MULTILINE)
"""How the system's apt reaches a network: proxies and certificates."""
_STANZA = "Package: {}\nStatus: install ok installed\nArchitecture: {}\nVersion: 99999\nMaintainer: nobody\nDescription: is there\n\n"


def missing_tool() -> str | None:
    """The program that is needed and not here."""
    host = LinuxHost()
    return next((name for name in ("apt-get", "gpg") if which(host, name) is None), None)


def bring(
    repository: AptRepository,
    packages: Sequence[AptAction],
    architecture: str,
    place: str,
    download: Download,
    tooling: Tooling,
) -> tuple[tuple[str, str, str], ...]:
    """Name, version and file of each package in the new folder `place`/files, with what they need of the repository.

    What signs them lies beside them.

    What the repository does not have counts as installed where they go. WorldError where a package is not there, or not signed.
    """
    target, host = f"{place}/files", LinuxHost()
    for name in ("state", "cache/archives/partial", "files"):
        disk.make_folder(f"{place}/{name}")
    disk.write_whole(f"{place}/state/status", b"")
    apt = Apt(host=host, program=which(host, "apt-get") or "", sudo=(), environ={**host.environ, "LC_ALL": "C"})
    _, said = apt.ask("apt-config", "dump")
    lines = "".join(f"{line}\n" for line in _MOVES.findall(said)) + _CONFIGURATION.format(place=place, architecture=architecture)
    apt = apt_alone((repository,), replace(apt, environ={**apt.environ, "APT_CONFIG": ""}), place, download, lines)
    aptget.update(apt, tooling)
    listed = {found[1]: name for name in disk.names_in(f"{place}/lists") if (found := _SIGNED.search(name)) is not None}
    raw = disk.content(f"{place}/lists/{listed['Packages']}", LARGEST_LIST) if "Packages" in listed else None
    stanzas = [dict(_FIELD.findall(text)) for text in (raw or b"").decode("utf-8", "replace").split("\n\n")]
    text = "".join(_STANZA.format(name, architecture) for name in sorted(_outside(stanzas)))
    disk.write_whole(f"{place}/state/status", text.encode())
    wanted = aptget.simulate(apt, [replace(one, installed=None) for one in packages], ()).install
    result = apt.run(
        replace(tooling, cwd=target), apt.program, "download", "-q", *(f"{name}={version}" for name, version in wanted.items())
    )
    if not result.ok:
        raise WorldError(f"apt-get could not fetch the packages: {result.why()}", code="apt-download", context=tooling.log)
    debs = tuple(_as_listed(stanzas, wanted, target))
    release = disk.content(f"{place}/lists/{listed.get('InRelease') or listed.get('Release', '')}", LARGEST_LIST) or b""
    if re.search(rb"^ [0-9a-f]+ +[0-9]+ Packages$", release, re.MULTILINE) is None:
        raise WorldError(f"{repository.url} does not sign its list of packages as it is", code="repository", context=tooling.log)
    key = repository.key_url.rpartition("/")[2]
    for name, path in ({name: f"lists/{path}" for name, path in listed.items()} | {key: key}).items():
        disk.write_whole(f"{target}/{name}", disk.content(disk.real(f"{place}/{path}"), LARGEST_LIST) or b"")
    return debs


def _outside(stanzas: Sequence[Mapping[str, str]]) -> set[str]:
    """Names that packages of the repository depend on, and that it does not have."""
    names = {name for one in stanzas for field in ("Depends", "Pre-Depends") for name in _names(one.get(field, ""))}
    return names - {one.get("Package") for one in stanzas} - {name for one in stanzas for name in _names(one.get("Provides", ""))}


def _names(text: str) -> Iterator[str]:
    return (found[0] for part in re.split("[,|]", text) if (found := _NAME.match(part.strip())) is not None)


def _as_listed(stanzas: Sequence[Mapping[str, str]], wanted: Mapping[str, str], folder: str) -> Iterator[tuple[str, str, str]]:
    """The name, version and file of each package, as the signed list knows it; WorldError where that lies in another folder."""
    here = aptget.deb_files(wanted, folder)
    for name, version in wanted.items():
        listed = next((one["Filename"] for one in stanzas if (one.get("Package"), one.get("Version")) == (name, version)), "")
        base = listed.removeprefix("./")
        if not base or "/" in base or name not in here:
            raise WorldError(f"{name}={version} lies at {listed[:200]!r}, which no bundle can hold", code="bundle-name")
        disk.move(f"{folder}/{here[name]}", f"{folder}/{base}")
        yield name, version, base
