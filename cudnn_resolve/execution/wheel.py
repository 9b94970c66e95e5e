"""A wheel that is about to be installed: checked, and the paths that it will fill."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.environment import KINDS
from cudnn_resolve.execution.payload_recover import MARK
from cudnn_resolve.facts.record import record_rows
from cudnn_resolve.host import disk
from cudnn_resolve.host.archive import MOST_TEXT_BYTES, Archive, bad_wheel
from cudnn_resolve.version import same_version

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.requirement.source import Contents

_SCRIPT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,120}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\\]")
_OWN = {"scripts": re.compile(r"python[0-9.]*"), "data": re.compile(r"pyvenv\.cfg|bin/python[0-9.]*")}
"""What an environment is made of, by the kind of file that would take its place."""
_DEEPEST = 60
"""Folders that a member may lie in: those of real wheels lie in less than twenty."""


class Wheel(Struct, frozen=True, kw_only=True):
    """One wheel on this machine, checked."""

    path: str
    name: str
    version: str
    sha256: str
    paths: tuple[str, ...]
    """Where its files will lie, compiled ones left out."""
    info: str
    """Its `.dist-info` folder in the environment."""
    unpacked: int
    """Bytes."""
    folders: tuple[str, ...] = ()
    """Folders that it brings by name, empty ones too."""
    sums: Mapping[str, int | str] = {}
    """Where its files will lie, each with its CRC-32, or with its SHA-256 as its RECORD writes it."""


def read_wheel(path: str, name: str, version: str, sha256: str, environment: Environment) -> Wheel:
    """The wheel at a path, which must be that version of that package; WorldError where it is not, or where it would write elsewhere."""
    filename = path.rpartition("/")[2]
    try:
        said_name, said_version, _, _ = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise bad_wheel(path, str(error)) from None
    if said_name != canonicalize_name(name) or not same_version(str(said_version), version):
        raise bad_wheel(path, f"it is {said_name} {said_version}, not {name} {version}")
    with Archive(path) as archive:
        members = archive.members()
        check_members((member.name for member in members), path)
        check_no_links((member.name for member in members if member.is_link), path)
        folders = [name for name in archive.folders() if not name.partition("/")[0].endswith((".data", ".dist-info"))]
        check_members(folders, path)
        top = _info_folder([member.name for member in members], path, said_name)
        text = archive.text(f"{top}/WHEEL") or ""
        pure = re.search(r"^root-is-purelib:\s*true\s*$", text, re.IGNORECASE | re.MULTILINE) is not None
        if archive.text(f"{top}/METADATA") is None or not text:
            raise bad_wheel(path, "it has no METADATA or no WHEEL")
        root = environment.scheme["purelib" if pure else "platlib"]
        scripts = tuple(_scripts(archive.text(f"{top}/entry_points.txt") or "", path))
    paths = [_place(member.name, root, said_name, environment, path) for member in members]
    sums = dict(zip(paths, (member.checksum for member in members), strict=True))
    paths += [os.path.join(environment.scheme["scripts"], script) for script in scripts]
    for one in paths:
        if not environment.holds(one):
            raise bad_wheel(path, f"{one!r} would lie outside of the environment")
    return Wheel(
        path=path,
        name=name,
        version=version,
        sha256=sha256,
        paths=tuple(dict.fromkeys(paths)),
        info=os.path.join(root, top),
        unpacked=sum(member.size for member in members),
        folders=tuple(os.path.join(root, one) for one in folders),
        sums=sums,
    )


def sums_of(found: Contents, name: str, environment: Environment) -> dict[str, int]:
    """Where the files of a wheel that is not here will lie, each with its CRC-32."""
    root = environment.scheme["purelib"]
    return {_place(one, root, name, environment, name): checksum for one, checksum in zip(found.names, found.checksums, strict=False)}


def check_staged(wheels: Sequence[Wheel], staging: str, environment: Environment) -> tuple[Wheel, ...]:
    """The wheels that were laid out in a folder, each with its sums; WorldError for a file that may not lie in the environment."""
    found = []
    owners: dict[str, str] = {}
    for wheel in wheels:
        place = os.path.dirname(wheel.info)
        text = disk.content(f"{staging}{wheel.info[len(environment.prefix) :]}/RECORD", MOST_TEXT_BYTES) or b""
        sums = {os.path.normpath(f"{place}/{path}"): digest for path, digest, _ in record_rows(text.decode("utf-8", "replace")) if digest}
        owners.update(dict.fromkeys(sums, f"{wheel.name}-{wheel.version}"))
        found.append(replace(wheel, sums=sums))
    for path in (path for wheel in wheels for path in wheel.paths):
        inside, by = path[len(environment.prefix) + 1 :], owners.get(path, "what uv laid out")
        check_members((inside,), by)
        if disk.kind(f"{staging}/{inside}") == "link":
            check_no_links((inside,), by)
        if _OWN["data"].fullmatch(inside):
            raise bad_wheel(by, f"its member {inside[:120]!r} would take the place of the environment's own")
    return tuple(found)


def check_no_links(names: Iterable[str], filename: str) -> None:
    """Reject a wheel with members that are symbolic links, which some installers follow; raises WorldError."""
    for name in names:
        raise bad_wheel(filename, f"its member {name[:120]!r} is a link, and would lie outside of the environment")


def check_members(names: Iterable[str], filename: str) -> None:
    """Reject a wheel with a member that would lie outside of the environment, or far too deep in it; raises WorldError."""
    for name in names:
        if not is_inside(name):
            raise bad_wheel(filename, f"its member {name[:120]!r} would lie outside of the environment")
        if name.count("/") > _DEEPEST:
            raise bad_wheel(filename, f"its member {name[:120]!r} lies in more than {_DEEPEST} folders")
        if name.endswith(MARK):
            raise bad_wheel(filename, f"its member {name[:120]!r} would mark the environment as half changed")


def check_contents(found: Contents, filename: str) -> None:
    """Reject a wheel with a member, or a program, that would lie outside of the environment; raises WorldError."""
    check_members(found.names, filename)
    check_no_links(found.links, filename)
    for name in found.names:
        top, _, rest = name.partition("/")
        if top.endswith(".data"):
            _kind(name, rest, filename)
    if len(found.programs) > 1:
        raise bad_wheel(filename, "it has more than one list of programs")
    for text in found.programs:
        tuple(_scripts(text, filename))


def is_inside(name: str) -> bool:
    """True for a plain relative path."""
    if not name or name[0] == "/" or name[-1] == "/" or "//" in name or _CONTROL.search(name) is not None:
        return False
    return not (name[0] == "." or "/." in name) or all(part not in (".", "..") for part in name.split("/"))


def _info_folder(names: list[str], path: str, name: str) -> str:
    tops = {top for one in names if (top := one.partition("/")[0]).endswith(".dist-info")}
    if len(tops) != 1:
        raise bad_wheel(path, "it has not exactly one .dist-info folder")
    top = tops.pop()
    if canonicalize_name(top.partition("-")[0]) != name:
        raise bad_wheel(path, f"its folder {top!r} is of another package")
    return top


def _place(member: str, root: str, name: str, environment: Environment, path: str) -> str:
    top, _, rest = member.partition("/")
    if not top.endswith(".data"):
        return os.path.join(root, member)
    kind, inside = _kind(member, rest, path)
    folder = environment.scheme[kind]
    if kind == "data":  # `lib64` is a link to `lib`: what lies there has one name
        folder, inside = disk.real(os.path.join(folder, os.path.dirname(inside))), os.path.basename(inside)
    return os.path.join(folder, name, inside) if kind == "headers" else os.path.join(folder, inside)


def _kind(member: str, rest: str, path: str) -> tuple[str, str]:
    """The kind of file that a member of the `.data` folder is, and its path among those."""
    kind, _, inside = rest.partition("/")
    if kind not in KINDS or not inside:
        raise bad_wheel(path, f"its member {member[:120]!r} is of no known kind")
    if kind in _OWN and _OWN[kind].fullmatch(inside):
        raise bad_wheel(path, f"its member {member[:120]!r} would take the place of the environment's own {inside}")
    return kind, inside


def _scripts(text: str, path: str) -> Iterator[str]:
    """Names of the programs that the installer makes: `[console_scripts]` and `[gui_scripts]`."""
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("["):
            section = line[1:].partition("]")[0].strip().lower()
        elif section in ("console_scripts", "gui_scripts") and ("=" in line or ":" in line) and not line.startswith(("#", ";")):
            script = re.split("[=:]", line, maxsplit=1)[0].strip()  # some readers take a colon, too
            if not _SCRIPT_NAME.fullmatch(script) or script in (".", ".."):
                raise bad_wheel(path, f"its program {script[:80]!r} has no name that a file may have")
            if _OWN["scripts"].fullmatch(script):
                raise bad_wheel(path, f"its program {script[:80]!r} would take the place of the environment's own interpreter")
            yield script


def wrong_hash(filename: str, algorithm: str, wanted: str, found: str) -> WorldError:
    """The refusal of a file that is not the one that was promised."""
    return WorldError(
        f"{filename} is not the file that the plan names: its {algorithm} is {found}, not {wanted}",
        code="hash-mismatch",
        hint="nothing was changed; plan again, and if it stays so, ask whoever runs the index",
    )
