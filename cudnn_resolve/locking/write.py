"""A lock to the text of a `pylock.toml`: the same lock gives the same bytes, and a small change a small difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cudnn_resolve.locking import toml
from cudnn_resolve.locking.model import SCHEMA, TOOL, Dependency, Lock, LockedFile, LockedPackage, Stack, Tool

HEADER = "Written by `cudnn-resolve lock`, which also renews it; `uv pip sync` and `pip install -r` install it."
OVERRIDDEN = "pip needs --no-deps for it: it would resolve again what wheels declare, and overrides leave some of that."


def write(lock: Lock) -> str:
    """The text of the lock, checked against PEP 751; InputError where packaging is too old to check it."""
    from cudnn_resolve.locking.pep751 import check

    found = "\n".join(_lines(lock)) + "\n"
    check(found, "the lock that was made")
    return found


def _lines(lock: Lock) -> Iterator[str]:
    yield toml.comment(HEADER)
    if lock.tool is not None and lock.tool.has_overrides:
        yield toml.comment(OVERRIDDEN)
    yield from toml.pair("lock-version", "1.0")
    yield from toml.pair("environments", lock.environments or None)
    yield from toml.pair("requires-python", lock.requires_python)
    yield from toml.pair("created-by", lock.created_by)
    if not lock.packages:
        yield "packages = []"
    for package in lock.packages:
        yield ""
        yield from (toml.comment(words) for words in comments(package, lock.tool))
        yield "[[packages]]"
        yield from _package(package)
    if lock.tool is not None:
        yield ""
        yield from _tool(lock.tool)


def comments(package: LockedPackage, tool: Tool | None) -> Iterator[str]:
    """What a reader should know before an entry: pins that it leaves, and how it is installed where that is not from a wheel."""
    seen = set()
    for stack in tool.stacks if tool is not None else ():
        for one in stack.overrides:
            if (one.package, one.chosen) == (package.name, package.version) and one not in seen:
                seen.add(one)
                yield f"override: {one.requested_by} declares {one.declared}, {one.chosen} is chosen: {one.reason}"
    if package.directory is not None:
        yield f"folder: {package.name} is a project of yours; uv installs it, pip 26 refuses folders beside files with hashes"
    if package.sdist is not None:
        where = "has no wheel that fits" if not package.wheels else "has no wheel for every platform"
        yield f"source: {package.name} {package.version} {where}, and is built from source when it is installed"


def _package(package: LockedPackage) -> Iterator[str]:
    yield from toml.pair("name", package.name)
    yield from toml.pair("version", package.version)
    yield from toml.pair("marker", package.marker)
    yield from toml.pair("requires-python", package.requires_python)
    yield from toml.pair("dependencies", [_dependency(one) for one in package.dependencies] or None)
    yield from toml.pair("index", package.index)
    if package.vcs is not None:
        vcs = package.vcs
        yield from toml.pair(
            "vcs",
            {
                "type": vcs.type,
                "url": vcs.url,
                "path": vcs.path,
                "requested-revision": vcs.requested,
                "commit-id": vcs.commit,
                "subdirectory": vcs.subdirectory,
            },
        )
    if package.directory is not None:
        place = package.directory
        yield from toml.pair("directory", {"path": place.path, "editable": place.editable or None, "subdirectory": place.subdirectory})
    if package.archive is not None:
        yield from toml.pair("archive", _file(package.archive, named=False))
    if package.sdist is not None:
        yield from toml.pair("sdist", _file(package.sdist))
    yield from toml.pair("wheels", [_file(one) for one in package.wheels] or None)
    if package.because:
        yield f"[packages.tool.{toml.key(TOOL)}]"
        yield from toml.pair("because", package.because)


def _dependency(one: Dependency) -> dict[str, Any]:
    return {"name": one.name, "version": one.version}


def _file(file: LockedFile, *, named: bool = True) -> dict[str, Any]:
    return {
        "name": file.name if named else None,
        "upload-time": toml.Moment(file.uploaded) if file.uploaded else None,
        "url": file.url,
        "path": file.path,
        "size": file.size,
        "hashes": dict(file.hashes),
        "subdirectory": file.subdirectory,
    }


def _tool(tool: Tool) -> Iterator[str]:
    asked = tool.asked
    yield f"[tool.{toml.key(TOOL)}]"
    yield from toml.pair("schema", SCHEMA)
    yield from toml.pair("targets", asked.targets)
    yield from toml.pair("said", asked.said if asked.said != asked.targets else None)
    yield from toml.pair("requirements", asked.requirements or None)
    yield from toml.pair("files", {name: list(values) for name, values in asked.files} or None)
    yield from toml.pair("python", tool.python)
    yield f"platforms = {toml.inline([one.platform for one in tool.stacks])}"
    limits = {"cuda": asked.cuda, "cudnn": asked.cudnn}
    yield from toml.pair("limits", limits if (asked.cuda, asked.cudnn) != (None, None) else None)
    yield from toml.pair("driver_policy", asked.driver_policy)
    yield from toml.pair("device", asked.device)
    yield from toml.pair("channel", asked.channel)
    yield from toml.pair("strict_pins", asked.strict_pins)
    yield from toml.pair("stated", {name: list(values) for name, values in asked.stated} or None)
    yield from toml.pair("matrix", tool.matrix)
    stacks = [stack_table(one) for one in tool.stacks]
    shared = {name for name in stacks[0] if all(one[name] == stacks[0][name] for one in stacks)}
    yield from _stack({name: value for name, value in stacks[0].items() if name in shared})
    for stack, table in zip(tool.stacks, stacks, strict=True) if len(shared) < len(stacks[0]) else ():
        yield ""
        yield f"[tool.{toml.key(TOOL)}.platform.{toml.key(stack.platform)}]"
        yield from _stack({name: value for name, value in table.items() if name not in shared})
    for record in tool.validation:
        yield ""
        yield f"[[tool.{toml.key(TOOL)}.validation]]"
        for name, value in record.items():
            yield from toml.pair(name, value)


def stack_table(stack: Stack) -> dict[str, Any]:
    """What is said of one platform, by the names in the file."""
    return {
        "driver_min": stack.driver_min,
        "cuda": stack.cuda,
        "cudnn": stack.cudnn,
        "cudnn_soname": stack.cudnn_soname,
        "compute_capabilities": list(stack.compute_capabilities),
        "ptx_capabilities": list(stack.ptx_capabilities),
        "ptx_driver_min": stack.ptx_driver_min,
        "frameworks": [one._asdict() for one in stack.frameworks],
        "apt": [one._asdict() for one in stack.apt],
        "overrides": [one._asdict() for one in stack.overrides],
        "environment": [one._asdict() for one in stack.environment],
    }


def _stack(table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        if name.endswith("capabilities") and value:
            yield f"{name} = {toml.inline(value)}"
        elif value not in (None, []):
            yield from toml.pair(name, value)
