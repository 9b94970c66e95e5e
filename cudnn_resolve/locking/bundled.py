"""The lock of a bundle: the files that each platform needs, and the lock with other places for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.locked_file import file_url, hashes_of
from cudnn_resolve.locking.model import name_of
from cudnn_resolve.locking.pep751 import parse_pylock
from cudnn_resolve.locking.select import targets_for
from cudnn_resolve.requirement.source import File
from cudnn_resolve.resolution.tag import TargetPython, best_file

if TYPE_CHECKING:
    from packaging.pylock import Package

    from cudnn_resolve.locking.model import Environment, Lock, LockedFile
    from cudnn_resolve.requirement.machine import Machine


def fitting_wheels(installed: Iterable[Mapping[str, Package]], machines: Iterable[Machine]) -> dict[str, File]:
    """The wheels of each machine's entries that fit it with any C library, by file name.

    Raises InputError for an entry without such a wheel, and for a wheel without a hash.
    """
    out: dict[str, File] = {}
    for packages, machine in zip(installed, machines, strict=True):
        target = TargetPython.of(machine, any_libc=True)
        for package in packages.values():
            fitting = [file for file in map(_file, _wheels(package)) if best_file((file,), target) is not None]
            if not fitting:
                raise _no_wheel(package)
            for file in fitting:
                if not hashes_of(file):
                    raise InputError(
                        f"the lock has no hash of {file.filename}", code="no-hashes", hint="`cudnn-resolve lock` makes a lock with hashes"
                    )
                out[file.filename] = file
    return out


def folder_files(lock: Lock, platforms: Collection[str]) -> dict[str, File]:
    """The wheels of these platforms that are unpacked into a separate folder, by file name; raises InputError for one without a hash."""
    entries = (entry for stack in lock.stacks if stack.platform in platforms for entry in stack.environment)
    out: dict[str, File] = {}
    for wheel in (entry.wheel for entry in entries if entry.wheel is not None):
        if wheel.file is None or not hashes_of(wheel.file):
            raise InputError(
                f"the lock has no file with a hash for {wheel.name} {wheel.version}", code="no-hashes", hint="lock again without --offline"
            )
        out[wheel.file.filename] = wheel.file
    return out


def map_folder_wheels(lock: Lock, change: Callable[[File], File]) -> Lock:
    """Change the wheels that are unpacked into a separate folder."""
    if lock.tool is None:
        return lock

    def changed(entry: Environment) -> Environment:
        wheel = entry.wheel
        return entry if wheel is None or wheel.file is None else replace(entry, wheel=replace(wheel, file=change(wheel.file)))

    stacks = tuple(replace(stack, environment=tuple(map(changed, stack.environment))) for stack in lock.tool.stacks)
    return replace(lock, tool=replace(lock.tool, stacks=stacks))


def _wheels(package: Package) -> list[LockedFile]:
    archive = package.archive
    return [*(package.wheels or ()), *([archive] if archive is not None and name_of(archive).endswith(".whl") else [])]


def _file(locked: LockedFile) -> File:
    return File(filename=name_of(locked), url=locked.url or file_url(locked.path or ""), hashes=locked.hashes, size=locked.size)


def _no_wheel(package: Package) -> InputError:
    return InputError(
        f"{package.name} {package.version or ''} has no wheel to bundle".replace("  ", " "),
        code="source-only",
        hint=f"build one, `pip wheel --no-deps {package.name} -w wheels`, and lock with --find-links wheels",
    )


def map_wheels(lock: Lock, change: Callable[[Mapping[str, Any]], Mapping[str, Any] | None], keep: Collection[str] | None = None) -> Lock:
    """Change the wheels of a lock, dropping those that become None; with `keep`, only the packages named there, without their sources."""
    document = dict(lock.file.to_dict())
    entries = []
    for entry, package in zip(document["packages"], lock.packages, strict=True):
        if keep is not None and package.name not in keep:
            continue
        names = [name_of(wheel) for wheel in package.wheels or ()]
        wheels = [change({**file, "name": name}) for file, name in zip(entry.get("wheels", ()), names, strict=True)]
        out = {**entry, **({"wheels": [wheel for wheel in wheels if wheel is not None]} if wheels else {})}
        if package.archive is not None:
            archive = change({**entry["archive"], "name": name_of(package.archive)}) or {}
            out["archive"] = {key: value for key, value in archive.items() if key != "name"}
        entries.append({key: value for key, value in out.items() if keep is None or key != "sdist"})
    return replace(lock, file=parse_pylock({**document, "packages": entries}, "the lock of the bundle"))


def bundled_lock_name(lock: Lock, machines: Mapping[str, Machine], existing: Collection[str]) -> str:
    """File name of a lock in a bundle: `pylock.toml` for the first one, else a name made of its targets, Python and platforms."""
    if not existing:
        return "pylock.toml"
    first = next(iter(machines.values()))
    words = [*targets_for(lock, first)][:3] or [lock.file.created_by]
    python = f"py{first.python[0]}{first.python[1]}" if first.python else "py"
    name = "-".join((*words, python, *(platform.removeprefix("linux_") for platform in machines)))
    return f"pylock.{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')[:80]}.toml"
