"""System packages in a bundle: collected from their signed repository, and installed from the bundle."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.execution.bundle_debs import ARCHITECTURES, LARGEST_LIST, fetch_packages, missing_tool
from cudnn_resolve.execution.fetch import Download
from cudnn_resolve.execution.task import Task
from cudnn_resolve.host import bundle as disk_bundle
from cudnn_resolve.host import disk
from cudnn_resolve.listener import Listener
from cudnn_resolve.locking.locked_file import file_url
from cudnn_resolve.locking.model import Lock
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Repository
from cudnn_resolve.planning.model import AptAction, AptRepository, Plan, Step
from cudnn_resolve.requirement.machine import Machine

FOLDER_NAME = re.compile(r"[a-z0-9]+-(x86_64|aarch64)")
"""Folders of a bundle that hold system packages."""


def repositories_of(lock: Lock, machines: Mapping[str, Machine], book: Book) -> dict[str, tuple[AptRepository, ...]]:
    """Repositories of a lock's system packages by platform; platforms without known repositories are left out."""
    names = {stack.platform: {package.repository for package in stack.apt} for stack in lock.stacks}
    repositories = {platform: known_repositories(names.get(platform, ()), machine.arch, book) for platform, machine in machines.items()}
    return {platform: rows for platform, rows in repositories.items() if rows}


def known_repositories(names: Collection[str], arch: str | None, book: Book) -> tuple[AptRepository, ...]:
    """The repositories of these names; none unless the tables know each of them and its key."""
    rows = [row for row in book.rows(Repository) if row.name in names and row.arch == arch and row.key and row.key_file]
    if {row.name for row in rows} != set(names):
        return ()
    return tuple(AptRepository(name=row.name, url=row.url, key_url=f"{row.url}{row.key_file}", fingerprint=row.key or "") for row in rows)


def collect_debs(
    lock: Lock,
    repositories: Mapping[str, tuple[AptRepository, ...]],
    folder: str,
    download: Download | None,
    listener: Listener,
) -> tuple[dict[str, list[dict[str, str]]], dict[str, str], list[str]]:
    """Collect system packages with the signed lists of their repositories.

    Returns the packages for `start.py` by platform, the SHA-256 of each file, and notes on packages that were left out. Without
    `download` the network may not be used.
    """
    from cudnn_resolve.planning.from_lock import apt_of

    debs: dict[str, list[dict[str, str]]] = {}
    sums: dict[str, str] = {}
    omitted: dict[str, list[str]] = {}
    tool = missing_tool()
    for stack in lock.stacks:
        if not stack.apt:
            continue
        platform = stack.platform
        if download is None or tool is not None or platform not in repositories:
            why = "the tables do not know their repository"
            if download is None:
                why = "with --offline"
            elif tool is not None:
                why = f"there is no {tool} here"
            omitted.setdefault(why, []).extend(package.name for package in stack.apt)
            continue
        listener.begin(f"collecting system packages for {platform}")
        debs[platform] = _collect(apt_of(stack.apt), repositories[platform], platform, folder, download, sums)
        listener.end()
    text = "system packages are not in the bundle ({}), and come from the machine's own repositories: {}"
    return debs, sums, [text.format(why, ", ".join(sorted(set(names)))) for why, names in omitted.items()]


def _collect(
    packages: Sequence[AptAction],
    repositories: Sequence[AptRepository],
    platform: str,
    folder: str,
    download: Download,
    sums: dict[str, str],
) -> list[dict[str, str]]:
    """Collect packages in the folder, and return them for `start.py`; the digest of each file is added to `sums`."""
    debs = []
    architecture = ARCHITECTURES[platform.removeprefix("linux_")]
    for repository in repositories:
        subfolder = _folder_of(repository, platform)
        with disk_bundle.staging_folder(folder) as temporary:
            wanted = [package for package in packages if package.repository == repository.name]
            fetched = fetch_packages(repository, wanted, architecture, disk.real(temporary), download, f"{temporary}/log")
            debs += [{"name": name, "version": version, "file": f"{subfolder}/{file}"} for name, version, file in fetched]
            _refuse_unlisted(f"{temporary}/files", f"{folder}/{subfolder}")
            for name in disk.names_in(f"{temporary}/files"):
                disk_bundle.check_name(f"{subfolder}/{name}")
                sums[f"{subfolder}/{name}"] = disk.digest(f"{temporary}/files/{name}", "sha256")
                disk.move(f"{temporary}/files/{name}", f"{folder}/{subfolder}/{name}")
    return debs


def _refuse_unlisted(new: str, old: str) -> None:
    """Reject a bundle with packages that the repository no longer lists: nothing would sign them; raises UsageError."""
    listed = disk.content(f"{new}/Packages", LARGEST_LIST) or b""
    debs = [name for name in disk.names_in(old) if name.endswith(".deb")]
    unlisted = [name for name in debs if re.search(rb"[ /]" + re.escape(name.encode()) + rb"\n", listed) is None]
    if unlisted:
        hint = "make a separate bundle"
        raise UsageError(f"the bundle holds {unlisted[0]}, which the repository no longer lists", code="bundle-name", hint=hint)


def _folder_of(repository: AptRepository, platform: str) -> str:
    """Name of the repository's folder in a bundle."""
    return f"{repository.name}-{platform.removeprefix('linux_')}"


def from_bundle(plan: Plan, lock: str, book: Book) -> Plan:
    """Let a plan for a lock in a bundle install the system packages from there, without configuring a repository."""
    wanted = {package.repository for package in plan.apt if package.action != "keep"}
    arch, bundle = plan.facts.platform.arch, disk_bundle.bundle_of(lock) if wanted else None
    repositories = known_repositories(wanted, arch, book)
    if bundle is None or not repositories:
        return plan
    folder, _ = bundle
    sums, steps = disk_bundle.read_sums(folder), []
    for repository in repositories:
        subfolder = _folder_of(repository, f"linux_{arch}")
        if f"{subfolder}/Packages" not in sums or f"{subfolder}/{_key_of(repository)}" not in sums:
            return plan
        why = f"system packages come from {subfolder} in the bundle, signed by the key {repository.fingerprint[-8:]}"
        bundled = _bundled(repository, f"{folder}/{subfolder}")
        steps.append(Step(id="apt-repository", kind="apt-repository", argv=None, why=why, needs_root=True, repository=bundled))
    return replace(plan, steps=(*steps, *(step for step in plan.steps if step.kind != "apt-repository")))


def _bundled(repository: AptRepository, folder: str) -> AptRepository:
    """The repository in a folder of a bundle."""
    url = f"{file_url(disk.real(folder))}/"
    return replace(repository, url=url, key_url=f"{url}{_key_of(repository)}", is_bundled=True)


def _key_of(repository: AptRepository) -> str:
    return repository.key_url.rpartition("/")[2]


def with_shared_debs(
    task: Task, folder: str, repositories: Sequence[AptRepository], arch: str, download: Download, listener: Listener
) -> Task:
    """Let a task install its system packages from a shared folder; missing ones are downloaded into it.

    If that is not possible, they come from where the plan says.
    """
    if not repositories:
        return task
    platform = f"linux_{arch}"
    sums = disk_bundle.read_sums(folder)
    packages = {repository.name: [package for package in task.apt if package.repository == repository.name] for repository in repositories}
    if not all(_holds(folder, repository, packages[repository.name], platform, sums) for repository in repositories):
        if missing_tool() is not None or not disk.writable(folder):
            return task
        listener.begin(f"collecting system packages in {folder}")
        collected: dict[str, str] = {}
        try:
            _collect(task.apt, repositories, platform, folder, download, collected)
        except UsageError as error:  # the folder has a package that its repository no longer signs
            listener.note(f"  {error.message}: system packages come from their repository")
            return task
        finally:
            listener.end()
        disk_bundle.add_to_list(folder, collected)
    bundled = tuple(_bundled(repository, f"{folder}/{_folder_of(repository, platform)}") for repository in repositories)
    return replace(task, repositories=bundled)


def _holds(folder: str, repository: AptRepository, packages: Sequence[AptAction], platform: str, sums: Mapping[str, str]) -> bool:
    """True if the folder holds these packages and the signed lists, each file as listed."""
    subfolder = _folder_of(repository, platform)
    listed = {name: digest for name, digest in sums.items() if name.startswith(f"{subfolder}/")}
    if not {f"{subfolder}/Packages", f"{subfolder}/{_key_of(repository)}"} <= listed.keys():
        return False
    prefixes = [f"{subfolder}/{package.name}_{(package.version or '').replace(':', '%3a')}_" for package in packages]
    if not all(any(name.startswith(prefix) for name in listed) for prefix in prefixes):
        return False
    return all(disk_bundle.has_digest(f"{folder}/{name}", "sha256", digest) for name, digest in listed.items())
