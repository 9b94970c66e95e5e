"""Wheels to install: checked for hostile members, and mapped to the paths that they will fill."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from cudnn_resolve.execution.environment import KINDS
from cudnn_resolve.execution.payload_recover import MARK
from cudnn_resolve.facts.record import record_rows
from cudnn_resolve.host import disk
from cudnn_resolve.host.wheel_archive import MOST_TEXT_BYTES, Archive, bad_wheel
from cudnn_resolve.version import same_version

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.requirement.source import Contents

_SCRIPT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,120}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\\]")
_RESERVED = {"scripts": re.compile(r"python[0-9.]*"), "data": re.compile(r"pyvenv\.cfg|bin/python[0-9.]*")}
"""Paths that belong to the environment itself, by the kind of file that would replace them."""
_DEEPEST = 60
"""Greatest depth of a member; members of real wheels are less than twenty folders deep."""


class Wheel(Struct, frozen=True, kw_only=True):
    """A checked wheel on this machine."""

    path: str
    name: str
    version: str
    sha256: str
    paths: tuple[str, ...]
    """Paths of its files in the environment, without compiled files."""
    info: str
    """Path of its `.dist-info` folder in the environment."""
    unpacked: int
    """Bytes."""
    folders: tuple[str, ...] = ()
    """Folders that it lists as members, empty ones too."""
    sums: Mapping[str, int | str] = {}
    """Path of each file in the environment to its CRC-32, or to its SHA-256 as written in RECORD."""


def read_wheel(path: str, name: str, version: str, sha256: str, environment: Environment) -> Wheel:
    """Read and check the wheel of a given package version; raises WorldError if it is another one or would write elsewhere."""
    filename = path.rpartition("/")[2]
    try:
        found_name, found_version, _, _ = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise bad_wheel(path, str(error)) from None
    if found_name != canonicalize_name(name) or not same_version(str(found_version), version):
        raise bad_wheel(path, f"it is {found_name} {found_version}, not {name} {version}")
    with Archive(path) as archive:
        contents = archive.contents()
        check_members(contents.names, path, contents.links)
        folders = [folder for folder in archive.folders() if not folder.partition("/")[0].endswith((".data", ".dist-info"))]
        check_members(folders, path)
        info = _info_folder(contents.names, path, found_name)
        metadata = archive.text(f"{info}/WHEEL") or ""
        is_pure = re.search(r"^root-is-purelib:\s*true\s*$", metadata, re.IGNORECASE | re.MULTILINE) is not None
        if archive.text(f"{info}/METADATA") is None or not metadata:
            raise bad_wheel(path, "it has no METADATA or no WHEEL file")
        root = environment.scheme["purelib" if is_pure else "platlib"]
        scripts = tuple(_scripts(archive.text(f"{info}/entry_points.txt") or "", path))
    paths = [_destination(name, root, found_name, environment, path) for name in contents.names]
    sums = dict(zip(paths, contents.checksums, strict=True))
    paths += [os.path.join(environment.scheme["scripts"], script) for script in scripts]
    for destination in paths:
        if not environment.holds(destination):
            raise bad_wheel(path, f"{destination!r} would lie outside of the environment")
    return Wheel(
        path=path,
        name=name,
        version=version,
        sha256=sha256,
        paths=tuple(dict.fromkeys(paths)),
        info=os.path.join(root, info),
        unpacked=contents.unpacked,
        folders=tuple(os.path.join(root, folder) for folder in folders),
        sums=sums,
    )


def sums_of(contents: Contents, name: str, environment: Environment) -> dict[str, int]:
    """Map each file of a remote wheel to its CRC-32, by its path in the environment."""
    root = environment.scheme["purelib"]
    return {
        _destination(member, root, name, environment, name): checksum
        for member, checksum in zip(contents.names, contents.checksums, strict=False)
    }


def check_staged(wheels: Sequence[Wheel], staging: str, environment: Environment) -> tuple[Wheel, ...]:
    """Check wheels that uv unpacked into a staging folder, and add their sums; raises WorldError for a forbidden file."""
    checked = []
    owners: dict[str, str] = {}
    for wheel in wheels:
        site = os.path.dirname(wheel.info)
        record = disk.content(f"{staging}{wheel.info[len(environment.prefix) :]}/RECORD", MOST_TEXT_BYTES) or b""
        rows = record_rows(record.decode("utf-8", "replace"))
        sums = {os.path.normpath(f"{site}/{path}"): digest for path, digest, _ in rows if digest}
        owners.update(dict.fromkeys(sums, f"{wheel.name}-{wheel.version}"))
        checked.append(replace(wheel, sums=sums))
    for path in (path for wheel in wheels for path in wheel.paths):
        inside, owner = path[len(environment.prefix) + 1 :], owners.get(path, "what uv unpacked")
        check_members((inside,), owner, links=(inside,) if disk.kind(f"{staging}/{inside}") == "link" else ())
        if _RESERVED["data"].fullmatch(inside):
            raise bad_wheel(owner, f"its member {inside[:120]!r} would replace the environment's own")
    return tuple(checked)


def check_members(names: Iterable[str], filename: str, links: Iterable[str] = ()) -> None:
    """Raise WorldError for a member that would lie outside of the environment or too deep in it, or that is named as our mark.

    `links` are the members that are symbolic links: none is allowed, because some installers follow them.
    """
    for name in names:
        if not is_inside(name):
            raise bad_wheel(filename, f"its member {name[:120]!r} would lie outside of the environment")
        if name.count("/") > _DEEPEST:
            raise bad_wheel(filename, f"its member {name[:120]!r} is more than {_DEEPEST} folders deep")
        if name.endswith(MARK):
            raise bad_wheel(filename, f"its member {name[:120]!r} would mark the environment as half changed")
    for name in links:
        raise bad_wheel(filename, f"its member {name[:120]!r} is a link, and would lie outside of the environment")


def check_contents(contents: Contents, filename: str) -> None:
    """Raise WorldError for a remote wheel with a member or script that would lie outside of the environment."""
    check_members(contents.names, filename, contents.links)
    for name in contents.names:
        top, _, rest = name.partition("/")
        if top.endswith(".data"):
            _split_data(name, rest, filename)
    tuple(_scripts(contents.programs, filename))


def is_inside(name: str) -> bool:
    """Return whether a member name is a plain relative path."""
    if not name or name[0] == "/" or name[-1] == "/" or "//" in name or _CONTROL.search(name) is not None:
        return False
    return not (name[0] == "." or "/." in name) or all(part not in (".", "..") for part in name.split("/"))


def _info_folder(names: Iterable[str], path: str, name: str) -> str:
    folders = {folder for member in names if (folder := member.partition("/")[0]).endswith(".dist-info")}
    if len(folders) != 1:
        raise bad_wheel(path, "it does not have exactly one .dist-info folder")
    folder = folders.pop()
    if canonicalize_name(folder.partition("-")[0]) != name:
        raise bad_wheel(path, f"its folder {folder!r} belongs to another package")
    return folder


def _destination(member: str, root: str, name: str, environment: Environment, path: str) -> str:
    top, _, rest = member.partition("/")
    if not top.endswith(".data"):
        return os.path.join(root, member)
    kind, inside = _split_data(member, rest, path)
    folder = environment.scheme[kind]
    if kind == "data":  # `lib64` is a link to `lib`: the files behind both need one name
        folder, inside = disk.real(os.path.join(folder, os.path.dirname(inside))), os.path.basename(inside)
    return os.path.join(folder, name, inside) if kind == "headers" else os.path.join(folder, inside)


def _split_data(member: str, rest: str, path: str) -> tuple[str, str]:
    """Kind of a file in the `.data` folder, and its path among those of that kind."""
    kind, _, inside = rest.partition("/")
    if kind not in KINDS or not inside:
        raise bad_wheel(path, f"its member {member[:120]!r} is of unknown kind")
    if kind in _RESERVED and _RESERVED[kind].fullmatch(inside):
        raise bad_wheel(path, f"its member {member[:120]!r} would replace the environment's own {inside}")
    return kind, inside


def _scripts(text: str, path: str) -> Iterator[str]:
    """Names of the scripts that an installer makes: `[console_scripts]` and `[gui_scripts]`."""
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("["):
            section = line[1:].partition("]")[0].strip().lower()
        elif section in ("console_scripts", "gui_scripts") and ("=" in line or ":" in line) and not line.startswith(("#", ";")):
            script = re.split("[=:]", line, maxsplit=1)[0].strip()  # some parsers accept a colon, too
            if not _SCRIPT_NAME.fullmatch(script) or script in (".", ".."):
                raise bad_wheel(path, f"its script {script[:80]!r} has an invalid file name")
            if _RESERVED["scripts"].fullmatch(script):
                raise bad_wheel(path, f"its script {script[:80]!r} would replace the environment's own interpreter")
            yield script
