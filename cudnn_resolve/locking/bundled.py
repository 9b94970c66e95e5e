"""A lock in a bundle: the files that each platform takes of it, and the same lock with other places for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.check_pylock import validated
from cudnn_resolve.locking.file import file_url, hashes_of
from cudnn_resolve.locking.model import name_of
from cudnn_resolve.locking.select import applies, targets_for
from cudnn_resolve.requirement.source import File
from cudnn_resolve.resolution.tag import Target, best_file

if TYPE_CHECKING:
    from packaging.pylock import Package

    from cudnn_resolve.locking.model import Environment, Lock, LockedFile
    from cudnn_resolve.requirement.machine import Machine


def taken_by(lock: Lock, machine: Machine) -> dict[str, Package]:
    """The entries that a machine installs, by name."""
    return {one.name: one for one in lock.packages if applies(one.marker, lock, machine)}


def wheels_of(taken: Iterable[Mapping[str, Package]], machines: Iterable[Machine]) -> dict[str, File]:
    """Every wheel of the entries that fits one of the machines, by name; its C library may be any.

    InputError where an entry has none, or where nobody has said how it is known again.
    """
    out: dict[str, File] = {}
    for packages, machine in zip(taken, machines, strict=True):
        target = Target.of(machine, any_libc=True)
        for package in packages.values():
            fitting = [one for one in map(_file, _wheels(package)) if best_file((one,), target) is not None]
            if not fitting:
                raise _no_wheel(package)
            for one in fitting:
                if not hashes_of(one):
                    raise InputError(
                        f"the lock has no hash of {one.filename}", code="no-hashes", hint="`cudnn-resolve lock` makes one that has"
                    )
                out[one.filename] = one
    return out


def folder_files(lock: Lock, platforms: Collection[str]) -> dict[str, File]:
    """The wheels of these platforms that lie in a folder of their own, by name; InputError for one that nobody can know again."""
    steps = (step for stack in lock.stacks if stack.platform in platforms for step in stack.environment)
    out: dict[str, File] = {}
    for wheel in (step.wheel for step in steps if step.wheel is not None):
        if wheel.file is None or not hashes_of(wheel.file):
            raise InputError(
                f"the lock has no file with a hash for {wheel.name} {wheel.version}", code="no-hashes", hint="lock again without --offline"
            )
        out[wheel.file.filename] = wheel.file
    return out


def with_folder_files(lock: Lock, change: Callable[[File], File]) -> Lock:
    """The lock with each wheel of a folder of its own as `change` makes it."""
    if lock.tool is None:
        return lock

    def moved(step: Environment) -> Environment:
        wheel = step.wheel
        return step if wheel is None or wheel.file is None else replace(step, wheel=replace(wheel, file=change(wheel.file)))

    stacks = tuple(replace(stack, environment=tuple(map(moved, stack.environment))) for stack in lock.tool.stacks)
    return replace(lock, tool=replace(lock.tool, stacks=stacks))


def _wheels(package: Package) -> list[LockedFile]:
    archive = package.archive
    return [*(package.wheels or ()), *([archive] if archive is not None and name_of(archive).endswith(".whl") else [])]


def _file(locked: LockedFile) -> File:
    return File(filename=name_of(locked), url=locked.url or file_url(locked.path or ""), hashes=locked.hashes, size=locked.size)


def _no_wheel(package: Package) -> InputError:
    return InputError(
        f"{package.name} {package.version or ''} has no wheel that could be bundled".replace("  ", " "),
        code="source-only",
        hint=f"build one, `pip wheel --no-deps {package.name} -w wheels`, and lock with --find-links wheels",
    )


def with_files(lock: Lock, change: Callable[[Mapping[str, Any]], Mapping[str, Any] | None], keep: Collection[str] | None = None) -> Lock:
    """The lock with each wheel as `change` makes it, left out where that is None; of `keep` alone, and without sources then."""
    document = dict(lock.file.to_dict())
    entries = []
    for entry, package in zip(document["packages"], lock.packages, strict=True):
        if keep is not None and package.name not in keep:
            continue
        names = [name_of(one) for one in package.wheels or ()]
        wheels = [change({**file, "name": name}) for file, name in zip(entry.get("wheels", ()), names, strict=True)]
        out = {**entry, **({"wheels": [one for one in wheels if one is not None]} if wheels else {})}
        if package.archive is not None:
            moved = change({**entry["archive"], "name": name_of(package.archive)}) or {}
            out["archive"] = {key: value for key, value in moved.items() if key != "name"}
        entries.append({key: value for key, value in out.items() if keep is None or key != "sdist"})
    return replace(lock, file=validated({**document, "packages": entries}, "the lock of the bundle"))


def name_for(lock: Lock, machines: Mapping[str, Machine], taken: Collection[str]) -> str:
    """The name of the lock in a bundle that has others: the first is `pylock.toml`, each further one is called after its targets."""
    if not taken:
        return "pylock.toml"
    first = next(iter(machines.values()))
    words = [*targets_for(lock, first)][:3] or [lock.file.created_by]
    python = f"py{first.python[0]}{first.python[1]}" if first.python else "py"
    said = "-".join((*words, python, *(name.removeprefix("linux_") for name in machines)))
    return f"pylock.{re.sub(r'[^a-z0-9]+', '-', said.lower()).strip('-')[:80]}.toml"
