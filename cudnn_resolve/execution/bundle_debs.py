"""System packages for a bundle: fetched and verified by a separately configured apt, together with the files that sign them.

This uses nothing of the system but its apt-get and gpg, so that a bundle can be made without root, and for another architecture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution import aptget
from cudnn_resolve.execution.aptget import Apt
from cudnn_resolve.execution.repository import isolated_apt
from cudnn_resolve.host import disk
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import which
from cudnn_resolve.host.run_tool import Tooling

if TYPE_CHECKING:
    from cudnn_resolve.execution.fetch import Download
    from cudnn_resolve.planning.model import AptAction, AptRepository

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Debian's names of architectures."""
_CONFIGURATION = """Dir::Etc::parts "/dev/null";
Dir::Etc::main "/dev/null";
Dir::State "{folder}/state";
Dir::State::status "{folder}/state/status";
Dir::Cache "{folder}/cache";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
Acquire::GzipIndexes "false";
"""
_REPOSITORY_FILE = re.compile(r"(?:^|_)(InRelease|Release|Release\.gpg|Packages)$", re.ASCII)
"""Files of a repository that apt keeps among its lists; the group is the repository's own name for one."""
LARGEST_LIST = 256 << 20
_FIELD = re.compile(r"^(Package|Version|Filename|Depends|Pre-Depends|Provides): (.*)$", re.MULTILINE)
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*", re.ASCII)
_NETWORK_OPTIONS = re.compile(r'^Acquire::https?::[^\n"]*"[^\n]*$', re.MULTILINE)
"""The system's apt options for proxies and certificates."""
_STANZA = "Package: {}\nStatus: install ok installed\nArchitecture: {}\nVersion: 99999\nMaintainer: nobody\nDescription: is there\n\n"


def missing_tool() -> str | None:
    """Return the required program that this machine lacks; None if it has all."""
    host = LinuxHost()
    return next((name for name in ("apt-get", "gpg") if which(host, name) is None), None)


def fetch_packages(
    repository: AptRepository, packages: Sequence[AptAction], architecture: str, folder: str, download: Download, log: str
) -> tuple[tuple[str, str, str], ...]:
    """Fetch packages and their dependencies from one repository into the new folder `folder`/files, with the files that sign them.

    Dependencies outside of the repository count as installed on the target. Returns name, version and file of each package; raises
    WorldError if one is missing or not signed.
    """
    target = f"{folder}/files"
    apt = _apt_of(repository, architecture, folder, download, log)
    aptget.update(apt)
    files = {found[1]: name for name in disk.names_in(f"{folder}/lists") if (found := _REPOSITORY_FILE.search(name)) is not None}
    listing = disk.content(f"{folder}/lists/{files['Packages']}", LARGEST_LIST) if "Packages" in files else None
    stanzas = [dict(_FIELD.findall(text)) for text in (listing or b"").decode("utf-8", "replace").split("\n\n")]
    status = "".join(_STANZA.format(name, architecture) for name in sorted(_external_dependencies(stanzas)))
    disk.write_whole(f"{folder}/state/status", status.encode())
    wanted = aptget.simulate(apt, [replace(package, installed=None) for package in packages], ())
    pins = (f"{name}={version}" for name, version in wanted.items())
    result = apt.run(apt.program, "download", "-q", *pins, cwd=target)
    if not result.ok:
        raise WorldError(f"apt-get could not download the packages: {result.why()}", code="apt-download", context=apt.log)
    debs = tuple(_with_listed_names(stanzas, wanted, target))
    release = disk.content(f"{folder}/lists/{files.get('InRelease') or files.get('Release', '')}", LARGEST_LIST) or b""
    if re.search(rb"^ [0-9a-f]+ +[0-9]+ Packages$", release, re.MULTILINE) is None:
        raise WorldError(f"{repository.url} does not sign its uncompressed package list", code="repository", context=apt.log)
    key = repository.key_url.rpartition("/")[2]
    signing = {name: f"{folder}/lists/{path}" for name, path in files.items()} | {key: f"{folder}/{key}"}
    for name, path in signing.items():
        disk.write_whole(f"{target}/{name}", disk.content(disk.real(path), LARGEST_LIST) or b"")
    return debs


def _apt_of(repository: AptRepository, architecture: str, folder: str, download: Download, log: str) -> Apt:
    """An apt that knows this repository alone, and a system without packages; it shares the network options of the system's apt."""
    host = LinuxHost()
    for name in ("state", "cache/archives/partial", "files"):
        disk.make_folder(f"{folder}/{name}")
    disk.write_whole(f"{folder}/state/status", b"")
    environ = {**host.environ, "LC_ALL": "C"}
    apt = Apt(host=host, program=which(host, "apt-get") or "", sudo=(), environ=environ, tooling=Tooling(log=log))
    _, system_options = apt.ask("apt-config", "dump")
    options = "".join(f"{line}\n" for line in _NETWORK_OPTIONS.findall(system_options))
    options += _CONFIGURATION.format(folder=folder, architecture=architecture)
    return isolated_apt((repository,), replace(apt, environ={**apt.environ, "APT_CONFIG": ""}), folder, download, options)


def _external_dependencies(stanzas: Sequence[Mapping[str, str]]) -> set[str]:
    """Names of dependencies that the repository does not have."""
    needed = {name for stanza in stanzas for field in ("Depends", "Pre-Depends") for name in _names(stanza.get(field, ""))}
    provided = {name for stanza in stanzas for name in _names(stanza.get("Provides", ""))}
    return needed - {stanza.get("Package") for stanza in stanzas} - provided


def _names(text: str) -> Iterator[str]:
    return (found[0] for part in re.split("[,|]", text) if (found := _NAME.match(part.strip())) is not None)


def _with_listed_names(stanzas: Sequence[Mapping[str, str]], wanted: Mapping[str, str], folder: str) -> Iterator[tuple[str, str, str]]:
    """Rename the .deb files as the signed list names them; raises WorldError for a file that the list has in a subfolder."""
    files = aptget.deb_files(wanted, folder)
    for name, version in wanted.items():
        stanza = next((stanza for stanza in stanzas if (stanza.get("Package"), stanza.get("Version")) == (name, version)), {})
        listed = stanza.get("Filename", "")
        base = listed.removeprefix("./")
        if not base or "/" in base or name not in files:
            raise WorldError(f"a bundle cannot hold {name}={version}: the repository has it at {listed[:200]!r}", code="bundle-name")
        disk.move(f"{folder}/{files[name]}", f"{folder}/{base}")
        yield name, version, base
