"""The packages of the system in a bundle: brought from their repository with what signs it, and installed from there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.host import bundle as disk_bundle
from cudnn_resolve.host import disk
from cudnn_resolve.locking.file import file_url
from cudnn_resolve.planning.model import AptRepository, Step

if TYPE_CHECKING:
    from cudnn_resolve.execution.fetch import Download
    from cudnn_resolve.execution.model import Reporter
    from cudnn_resolve.locking.model import Lock
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.planning.model import Plan
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.resolution.model import AptPin

FOLDER_NAME = re.compile(r"[a-z0-9]+-(x86_64|aarch64)")
"""Folders of a bundle that hold packages of the system."""


def repositories_of(lock: Lock, machines: Mapping[str, Machine], book: Book) -> dict[str, tuple[AptRepository, ...]]:
    """Where the packages of the system come from, by the platforms that have some; nothing for one that the tables do not know."""
    wanted = {one.platform: {pin.repository for pin in one.apt} for one in (lock.tool.stacks if lock.tool is not None else ())}
    found = {name: tuple(_known(book, wanted[name], machines[name].arch)) for name in machines if wanted.get(name)}
    return {name: rows for name, rows in found.items() if {one.name for one in rows} == wanted[name]}


def _known(book: Book, names: Collection[str], arch: str | None) -> Iterator[AptRepository]:
    """The repositories of these names whose keys the tables know."""
    for row in book.repositories():
        if row.name in names and row.arch == arch and row.key and row.key_file:
            yield AptRepository(name=row.name, url=row.url, key_url=f"{row.url}{row.key_file}", fingerprint=row.key)


def bring_debs(
    lock: Lock,
    repositories: Mapping[str, tuple[AptRepository, ...]],
    folder: str,
    download: Download | None,
    reporter: Reporter,
) -> tuple[dict[str, list[dict[str, str]]], dict[str, str], list[str]]:
    """Bring packages of the system and what signs them: those of each platform, the digest of each file, and what is left out and why.

    Without `download` nobody may be asked.
    """
    from cudnn_resolve.execution.debs import missing_tool

    debs: dict[str, list[dict[str, str]]] = {}
    sums: dict[str, str] = {}
    left: dict[str, list[str]] = {}
    lacking = missing_tool()
    for stack in lock.tool.stacks if lock.tool is not None else ():
        if not stack.apt:
            continue
        if lacking is not None or download is None or stack.platform not in repositories:
            why = (
                "with --offline"
                if download is None
                else f"there is no {lacking} here"
                if lacking
                else "the tables do not know where they are"
            )
            left.setdefault(why, []).extend(one.name for one in stack.apt)
            continue
        reporter.begin(f"bringing packages of the system for {stack.platform} into the bundle")
        debs[stack.platform] = []
        for one in repositories[stack.platform]:
            pins = [pin for pin in stack.apt if pin.repository == one.name]
            with disk_bundle.arriving(folder) as passing:
                debs[stack.platform] += _debs(one, pins, stack.platform, passing, download)
                inside = _folder_of(one, stack.platform)
                _refuse_gone(f"{passing}/files", f"{folder}/{inside}")
                for name in disk.names_in(f"{passing}/files"):
                    disk_bundle.check_name(f"{inside}/{name}")
                    sums[f"{inside}/{name}"] = disk.digest(f"{passing}/files/{name}", "sha256")
                    disk.move(f"{passing}/files/{name}", f"{folder}/{inside}/{name}")
        reporter.end()
    text = "packages of the system are not in the bundle ({}), and come from the machine's own repositories: {}"
    return debs, sums, [text.format(why, ", ".join(sorted(set(names)))) for why, names in left.items()]


def _refuse_gone(new: str, old: str) -> None:
    """Reject packages of the bundle that the repository does not list any more: nothing would sign them; raises UsageError."""
    from cudnn_resolve.execution.debs import LARGEST_LIST

    listed = disk.content(f"{new}/Packages", LARGEST_LIST) or b""
    gone = [
        name
        for name in disk.names_in(old)
        if name.endswith(".deb") and re.search(rb"[ /]" + re.escape(name.encode()) + rb"\n", listed) is None
    ]
    if gone:
        hint = "make a bundle of its own"
        raise UsageError(f"the repository has {gone[0]} no more, which the bundle holds", code="bundle-name", hint=hint)


def _debs(one: AptRepository, pins: Sequence[AptPin], platform: str, place: str, download: Download) -> list[dict[str, str]]:
    """Each package that is in the folder `place`/files then, as `start.py` reads it."""
    from cudnn_resolve.execution.debs import ARCHITECTURES, bring
    from cudnn_resolve.host.tool import Tooling
    from cudnn_resolve.planning.from_lock import apt_of

    architecture = ARCHITECTURES[platform.removeprefix("linux_")]
    found = bring(one, apt_of(pins), architecture, disk.real(place), download, Tooling(log=f"{place}/log"))
    return [{"name": name, "version": version, "file": f"{_folder_of(one, platform)}/{file}"} for name, version, file in found]


def _folder_of(one: AptRepository, platform: str) -> str:
    """The folder of a repository in a bundle."""
    return f"{one.name}-{platform.removeprefix('linux_')}"


def from_bundle(plan: Plan, lock: str, book: Book) -> Plan:
    """The plan for a lock in a bundle that has the packages of the system: no repository is made known for them."""
    wanted = {one.repository for one in plan.apt if one.action != "keep"}
    found = disk_bundle.bundle_of(lock) if wanted else None
    if found is None:
        return plan
    arch = plan.facts.platform.arch
    sums, steps = disk_bundle.read_sums(found[0]), []
    for one in _known(book, wanted, arch):
        place = _folder_of(one, f"linux_{arch}")
        key = one.key_url.rpartition("/")[2]
        if f"{place}/Packages" not in sums or f"{place}/{key}" not in sums:
            return plan
        url = f"{file_url(disk.real(f'{found[0]}/{place}'))}/"
        why = f"packages of the system come from the bundle's {place}, signed by the key {one.fingerprint[-8:]}"
        here = replace(one, url=url, key_url=f"{url}{key}", is_bundled=True)
        steps.append(Step(id="apt-repository", kind="apt-repository", argv=None, why=why, needs_root=True, repository=here))
    if {one.repository.name for one in steps if one.repository is not None} != wanted:
        return plan
    return replace(plan, steps=(*steps, *(one for one in plan.steps if one.kind != "apt-repository")))
