"""The packages of the system in a bundle: brought from their repository with what signs it, and installed from there."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.execution.debs import ARCHITECTURES, LARGEST_LIST, fetch_packages, missing_tool
from cudnn_resolve.execution.fetch import Download
from cudnn_resolve.execution.model import Reporter
from cudnn_resolve.execution.task import Task
from cudnn_resolve.host import bundle as disk_bundle
from cudnn_resolve.host import disk
from cudnn_resolve.host.run_tool import Tooling
from cudnn_resolve.locking.file import file_url
from cudnn_resolve.locking.model import Lock
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.planning.model import AptAction, AptRepository, Plan, Step
from cudnn_resolve.requirement.machine import Machine

FOLDER_NAME = re.compile(r"[a-z0-9]+-(x86_64|aarch64)")
"""Folders of a bundle that hold packages of the system."""


def repositories_of(lock: Lock, machines: Mapping[str, Machine], book: Book) -> dict[str, tuple[AptRepository, ...]]:
    """Where the packages of the system come from, by the platforms that have some; nothing for one that the tables do not know."""
    wanted = {one.platform: {pin.repository for pin in one.apt} for one in lock.stacks}
    found = {name: known_repositories(wanted.get(name, ()), machine.arch, book) for name, machine in machines.items()}
    return {name: rows for name, rows in found.items() if rows}


def known_repositories(names: Collection[str], arch: str | None, book: Book) -> tuple[AptRepository, ...]:
    """The repositories of these names; none where the tables do not know each of them and its key."""
    rows = [row for row in book.repositories() if row.name in names and row.arch == arch and row.key and row.key_file]
    made = (AptRepository(name=row.name, url=row.url, key_url=f"{row.url}{row.key_file}", fingerprint=row.key or "") for row in rows)
    return tuple(made) if {row.name for row in rows} == set(names) else ()


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
    from cudnn_resolve.planning.from_lock import apt_of

    debs: dict[str, list[dict[str, str]]] = {}
    sums: dict[str, str] = {}
    left: dict[str, list[str]] = {}
    lacking = missing_tool()
    for stack in lock.stacks:
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
        debs[stack.platform] = _brought(apt_of(stack.apt), repositories[stack.platform], stack.platform, folder, download, sums)
        reporter.end()
    text = "packages of the system are not in the bundle ({}), and come from the machine's own repositories: {}"
    return debs, sums, [text.format(why, ", ".join(sorted(set(names)))) for why, names in left.items()]


def _brought(
    packages: Sequence[AptAction],
    repositories: Sequence[AptRepository],
    platform: str,
    folder: str,
    download: Download,
    sums: dict[str, str],
) -> list[dict[str, str]]:
    """Each package that is in the folder then, as `start.py` reads it; the digest of each file is added to `sums`."""
    found = []
    for one in repositories:
        with disk_bundle.staging_folder(folder) as passing:
            found += _debs(one, [package for package in packages if package.repository == one.name], platform, passing, download)
            inside = _folder_of(one, platform)
            _refuse_gone(f"{passing}/files", f"{folder}/{inside}")
            for name in disk.names_in(f"{passing}/files"):
                disk_bundle.check_name(f"{inside}/{name}")
                sums[f"{inside}/{name}"] = disk.digest(f"{passing}/files/{name}", "sha256")
                disk.move(f"{passing}/files/{name}", f"{folder}/{inside}/{name}")
    return found


def _refuse_gone(new: str, old: str) -> None:
    """Reject packages of the bundle that the repository does not list any more: nothing would sign them; raises UsageError."""
    listed = disk.content(f"{new}/Packages", LARGEST_LIST) or b""
    gone = [
        name
        for name in disk.names_in(old)
        if name.endswith(".deb") and re.search(rb"[ /]" + re.escape(name.encode()) + rb"\n", listed) is None
    ]
    if gone:
        hint = "make a bundle of its own"
        raise UsageError(f"the repository has {gone[0]} no more, which the bundle holds", code="bundle-name", hint=hint)


def _debs(one: AptRepository, packages: Sequence[AptAction], platform: str, place: str, download: Download) -> list[dict[str, str]]:
    """Each package that is in the folder `place`/files then, as `start.py` reads it."""
    architecture = ARCHITECTURES[platform.removeprefix("linux_")]
    found = fetch_packages(one, list(packages), architecture, disk.real(place), download, Tooling(log=f"{place}/log"))
    return [{"name": name, "version": version, "file": f"{_folder_of(one, platform)}/{file}"} for name, version, file in found]


def _folder_of(one: AptRepository, platform: str) -> str:
    """The folder of a repository in a bundle."""
    return f"{one.name}-{platform.removeprefix('linux_')}"


def from_bundle(plan: Plan, lock: str, book: Book) -> Plan:
    """The plan for a lock in a bundle that has the packages of the system: no repository is made known for them."""
    wanted = {one.repository for one in plan.apt if one.action != "keep"}
    arch, found = plan.facts.platform.arch, disk_bundle.bundle_of(lock) if wanted else None
    repositories = known_repositories(wanted, arch, book)
    if found is None or not repositories:
        return plan
    sums, steps = disk_bundle.read_sums(found[0]), []
    for one in repositories:
        place = _folder_of(one, f"linux_{arch}")
        if f"{place}/Packages" not in sums or f"{place}/{_key_of(one)}" not in sums:
            return plan
        why = f"packages of the system come from the bundle's {place}, signed by the key {one.fingerprint[-8:]}"
        here = _bundled(one, f"{found[0]}/{place}")
        steps.append(Step(id="apt-repository", kind="apt-repository", argv=None, why=why, needs_root=True, repository=here))
    return replace(plan, steps=(*steps, *(one for one in plan.steps if one.kind != "apt-repository")))


def _bundled(one: AptRepository, place: str) -> AptRepository:
    """The repository as it lies in a folder of a bundle."""
    url = f"{file_url(disk.real(place))}/"
    return replace(one, url=url, key_url=f"{url}{_key_of(one)}", is_bundled=True)


def _key_of(one: AptRepository) -> str:
    return one.key_url.rpartition("/")[2]


def with_shared_debs(
    task: Task, folder: str, repositories: Sequence[AptRepository], arch: str, download: Download, reporter: Reporter
) -> Task:
    """The task with its packages of the system out of a shared folder, which is given first what it lacks.

    What cannot be kept there comes from where the plan says.
    """
    if not repositories:
        return task
    platform = f"linux_{arch}"
    sums = disk_bundle.read_sums(folder)
    if not all(_holds(folder, one, [row for row in task.apt if row.repository == one.name], platform, sums) for one in repositories):
        if missing_tool() is not None or not disk.writable(folder):
            return task
        reporter.begin(f"bringing packages of the system into {folder}")
        brought: dict[str, str] = {}
        try:
            _brought(task.apt, repositories, platform, folder, download, brought)
        except UsageError as error:  # the folder has what its repository signs no more
            reporter.say(f"  {error.message}: packages of the system come from their repository")
            return task
        finally:
            reporter.end()
        disk_bundle.add_to_list(folder, brought)
    return replace(task, repositories=tuple(_bundled(one, f"{folder}/{_folder_of(one, platform)}") for one in repositories))


def _holds(folder: str, one: AptRepository, packages: Sequence[AptAction], platform: str, sums: Mapping[str, str]) -> bool:
    """True where the folder has these packages and what signs them, each file as listed."""
    place = _folder_of(one, platform)
    listed = {name: digest for name, digest in sums.items() if name.startswith(f"{place}/")}
    named = [f"{place}/{package.name}_{(package.version or '').replace(':', '%3a')}_" for package in packages]
    if not {f"{place}/Packages", f"{place}/{_key_of(one)}"} <= listed.keys():
        return False
    if not all(any(name.startswith(start) for name in listed) for start in named):
        return False
    return all(
        disk.kind(f"{folder}/{name}") == "file" and disk.digest(f"{folder}/{name}", "sha256") == digest for name, digest in listed.items()
    )
