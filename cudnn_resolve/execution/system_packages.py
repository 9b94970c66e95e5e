"""System packages of an `apply`: prepared before anything changes, installed by apt-get, and put back from kept .deb files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, WorldError
from cudnn_resolve.execution import aptget
from cudnn_resolve.execution.journal import ARRIVING_DEBS, LEAVING_DEBS
from cudnn_resolve.execution.repository import add_repositories, changed_repositories, isolated_apt, restore_repositories
from cudnn_resolve.host import disk
from cudnn_resolve.planning.model import AptAction
from cudnn_resolve.planning.tool_input import APT_NAME, APT_VERSION

if TYPE_CHECKING:
    from cudnn_resolve.execution.aptget import Apt
    from cudnn_resolve.execution.journal import Journal, PastApply
    from cudnn_resolve.execution.task import Task, Work
    from cudnn_resolve.host.protocol import Host
    from cudnn_resolve.host.run_tool import Tooling


_BUNDLE_OPTIONS = """Acquire::Check-Valid-Until "false";
Acquire::IndexTargets::deb::Packages::CompressionTypes "uncompressed";
"""
"""A bundle may be old, and holds its package list as signed, not as downloaded."""
_ISOLATED_FOLDER = "lists"
"""Subfolder of a journal for an apt that installs from a bundle."""
RESERVE_BYTES = 32 << 20
"""Disk space that kept .deb files must leave free for the journal itself."""


_Name = Annotated[str, Meta(pattern=rf"^(?:{APT_NAME.pattern})\Z")]
_Version = Annotated[str, Meta(pattern=rf"^(?:{APT_VERSION.pattern})\Z")]


class _AptRecord(Struct, frozen=True):
    """The `apt` record: changes of system packages."""

    packages: tuple[tuple[_Name, _Version, _Version | None], ...]
    """Packages that the plan names, each with its new and its old version."""
    along: Mapping[_Name, tuple[_Version, _Version | None]]
    """Dependencies installed along with them, with new and old version."""
    held: tuple[_Name, ...]
    unfinished: tuple[str, ...] = ()
    automatic: tuple[_Name, ...] = ()
    debs: Mapping[str, str] = {}
    """Kept .deb files by their paths in the journal's folder, with their SHA-256."""

    @property
    def changes(self) -> dict[str, tuple[str, str | None]]:
        """New and old version of every changed package."""
        return {**{name: (version, before) for name, version, before in self.packages}, **self.along}


def prepare_system(task: Task, work: Work, journal: Journal, reserve: int) -> tuple[Apt, tuple[AptAction, ...]]:
    """Return how to call apt, and the packages with their installed versions, after every .deb is downloaded and verified.

    Adds unknown repositories, which the journal records. `reserve` bytes are about to be written next to the journal. Raises WorldError if
    apt refuses.
    """
    system_apt = apt = aptget.require_apt(task, work.host, work.tooling(journal))
    installed = aptget.installed_versions(apt)
    held = aptget.marked(apt, "hold")
    packages = tuple(replace(package, installed=installed.get(package.name)) for package in task.apt)
    if any(repository.is_bundled for repository in task.repositories):
        apt = isolated_apt(task.repositories, apt, f"{journal.folder}/{_ISOLATED_FOLDER}", work.download, _BUNDLE_OPTIONS)
    elif task.repositories:
        add_repositories(task.repositories, apt, journal, work.download)
    aptget.update(apt)
    arriving = aptget.simulate(apt, packages, held)
    aptget.download(apt, packages, held)
    replaced = {package.name for package in packages if package.installed not in (None, package.version)}
    replaced |= set(arriving) & set(installed)
    _keep_leaving(system_apt, {name: installed[name] for name in replaced}, journal.folder, reserve)
    keep_arriving(apt, arriving, journal.folder, reserve=reserve)
    named = {package.name for package in packages}
    journal.add(
        "apt",
        packages=[[package.name, package.version, package.installed] for package in packages],
        along={name: [version, installed.get(name)] for name, version in arriving.items() if name not in named},
        held=sorted(held),
        unfinished=list(aptget.unfinished_files(apt)),
        automatic=sorted(aptget.marked(apt, "auto") & named),  # apt-get marks named packages as manually installed
        debs=_kept_digests(journal.folder),
    )
    return apt, packages


def change_system(apt: Apt, packages: tuple[AptAction, ...], journal: Journal) -> float:
    """Install and hold the packages, and return the seconds that took; raises WorldError if apt refuses or installs something else."""
    held = aptget.marked(apt, "hold")
    journal.add("change")
    result = aptget.install(apt, packages, held)
    if not result.ok:
        raise WorldError(f"apt-get failed: {result.why()}", code="apt-failed", context=journal.log)
    marked = apt.run("apt-mark", "hold", *(package.name for package in packages))
    if not marked.ok:
        raise WorldError(f"the packages could not be held: {marked.why()}", code="apt-failed", context=journal.log)
    installed = aptget.installed_versions(apt)
    wrong = [
        f"{package.name} is {installed.get(package.name, 'missing')}, not {package.version}"
        for package in packages
        if installed.get(package.name) != package.version
    ]
    if wrong:
        raise WorldError("; ".join(wrong), code="not-as-planned", context=journal.log)
    _remove_isolated_folder(apt, journal.folder)
    return result.seconds


def _remove_isolated_folder(apt: Apt, folder: str) -> None:
    """Remove the lists of a bundle by apt's means, because they may belong to root while the journal belongs to this user."""
    if disk.kind(f"{folder}/{_ISOLATED_FOLDER}") == "folder":
        apt.run("rm", "-rf", "--", f"{folder}/{_ISOLATED_FOLDER}")


# ---- the way back


def restore_system(past: PastApply, host: Host, tooling: Tooling) -> tuple[str, ...]:
    """Put system packages and repositories back; returns what could not be put back. May be repeated."""
    if not past.changed_system:
        return ()
    apt = aptget.find_apt(host, tooling)
    if apt is None:
        return ("system packages: putting them back needs root",)
    left: list[str] = []
    try:
        aptget.dpkg(apt, "--force-confold", "--configure", "-a")  # packages that a kill left unconfigured
        _remove_isolated_folder(apt, past.folder)
        record = past.last_of("apt", _AptRecord)
        if record is not None:
            aptget.remove_unfinished_files(apt, record.unfinished)
            left += _restore_packages(record, past.folder, apt)
        left += restore_repositories(past, apt)
    except CudnnResolveError as error:
        left.append(error.message)
    return tuple(left)


def _restore_packages(record: _AptRecord, folder: str, apt: Apt) -> list[str]:
    before = {name: version for name, (_, version) in record.changes.items()}
    left = _unpack_half_installed(record, folder, apt)
    installed = aptget.installed_versions(apt)
    present = aptget.present_packages(apt)
    new = [name for name, version in before.items() if version is None and name in present]
    old = [AptAction(name=name, version=version, installed=installed.get(name)) for name, version in before.items() if version]
    old = [package for package in old if package.installed != package.version]
    names = [name for name in before if name in present]
    if names and (new or old or set(names) & aptget.marked(apt, "hold") - set(record.held)):
        apt.run("apt-mark", "unhold", *names)
    if old:
        left += _reinstall(old, record, folder, apt)
    if new:
        result = aptget.purge(apt, new)
        if not result.ok:
            left.append(f"{', '.join(new)} could not be removed: {result.why()}")
    installed, present = aptget.installed_versions(apt), aptget.present_packages(apt)
    wrong = [name for name, version in before.items() if installed.get(name) != version or (version is None and name in present)]
    if wrong and not left:
        left.append(f"system packages that were not restored: {', '.join(wrong)}")
    automatic = set(record.automatic) - aptget.marked(apt, "auto")
    for mark, marked in (("auto", automatic), ("hold", record.held)):
        again = [name for name in sorted(marked) if before.get(name)]
        if again:
            apt.run("apt-mark", mark, *again)
    return left


def _reinstall(packages: list[AptAction], record: _AptRecord, folder: str, apt: Apt) -> list[str]:
    """Install old versions from the kept .deb files if all are there, else from their repositories."""
    kept = aptget.deb_files({package.name: package.version for package in packages}, f"{folder}/{LEAVING_DEBS}").values()
    intact = [f"{folder}/{LEAVING_DEBS}/{name}" for name in kept if _is_intact(record, folder, f"{LEAVING_DEBS}/{name}")]
    has_all = len(intact) == len(packages)
    result = aptget.dpkg(apt, "--force-confold", "-i", *intact) if has_all else aptget.install(apt, packages, ())
    if result.ok:
        return []
    modified = "; a kept .deb file was modified" if len(intact) < len(kept) else ""
    return [f"{', '.join(package.pin for package in packages)}: {result.why()}{modified}"]


def _unpack_half_installed(record: _AptRecord, folder: str, apt: Apt) -> list[str]:
    """Unpack packages again that a killed dpkg left half unpacked: only then it knows all their files, and can remove them.

    Returns the packages whose .deb file is not at hand any more.
    """
    left = []
    half_installed = aptget.half_installed(apt)
    arriving = {name: version for name, (version, _) in record.changes.items() if name in half_installed}
    for name, version in arriving.items():  # one at a time, so that one failure does not stop the others
        kept = [f"{ARRIVING_DEBS}/{file}" for file in aptget.deb_files({name: version}, f"{folder}/{ARRIVING_DEBS}").values()]
        intact = [f"{folder}/{file}" for file in kept if _is_intact(record, folder, file)]
        path = intact[0] if intact else _fetch_again(apt, name, version, folder)
        if path is not None:
            aptget.dpkg(apt, "--force-confold", "--force-depends", "--no-triggers", "--unpack", path)
        elif kept:
            left.append(f"{name}={version}: its kept .deb file was modified and so not given to dpkg; files of the package may be left")
    return left


def changed_system(past: PastApply, host: Host) -> tuple[str, ...]:
    """Return the packages, lists and keys that others changed since a committed journal; empty if apt cannot be asked."""
    apt = aptget.find_apt(host) if past.changed_system else None
    if apt is None:
        return ()
    installed = aptget.installed_versions(apt)
    record = past.last_of("apt", _AptRecord)
    changes = record.changes if record is not None else {}
    changed = (name for name, (version, _) in changes.items() if installed.get(name) != version)
    return (*changed, *changed_repositories(past, apt))


def version_changes(past: PastApply) -> list[tuple[str, str, str | None]]:
    """Return name, new and old version of each system package that a journal changed; raises WorldError if that is not readable."""
    record = past.last_of("apt", _AptRecord)
    changes = record.changes if record is not None else {}
    return [(name, version, before) for name, (version, before) in changes.items() if version != before]


# ---- .deb files kept in the journal's folder


def _keep_leaving(apt: Apt, versions: Mapping[str, str], folder: str, reserve: int) -> None:
    """Keep the .deb files of packages that are replaced, as far as a repository still has them and there is room.

    `reserve` bytes are about to be written to the same disk by others.
    """
    target = f"{folder}/{LEAVING_DEBS}"
    disk.make_folder(target, 0o755)
    for name, version in sorted(versions.items()):
        _fetch(apt, f"{name}={version}", target, reserve)


def keep_arriving(apt: Apt, versions: Mapping[str, str], folder: str, *, reserve: int = 0) -> None:
    """Keep the .deb files of packages to install: hard links to apt's cache, or copies if there is room.

    A killed dpkg forgets the files that it had unpacked of a package until it unpacks that package again.
    """
    target, cache = f"{folder}/{ARRIVING_DEBS}", aptget.configured(apt, "Dir::Cache::archives/d", "/var/cache/apt/archives")
    disk.make_folder(target, 0o755)
    cached = aptget.deb_files(versions, cache)
    paths = [f"{cache}/{file}" for file in cached.values()]
    if paths and not apt.run("cp", "--force", "--link", "--target-directory", target, "--", *paths).ok:
        _remove_files(target, cached.values())
        fits = _fits(sum(map(disk.size_of, paths)), target, reserve)  # all or none: they are useful but not essential
        if fits and not apt.run("cp", "--force", "--target-directory", target, "--", *paths).ok:
            _remove_files(target, cached.values())
    for name in sorted(set(versions) - set(cached)):  # apt does not copy packages of a local repository into its cache
        _fetch(apt, f"{name}={versions[name]}", target, reserve)


def _kept_digests(folder: str) -> dict[str, str]:
    """SHA-256 of each kept .deb file by its path in the journal's folder; dpkg gets only files that still match."""
    paths = [f"{place}/{name}" for place in (LEAVING_DEBS, ARRIVING_DEBS) for name in sorted(disk.names_in(f"{folder}/{place}"))]
    debs = [path for path in paths if path.endswith(".deb") and disk.kind(f"{folder}/{path}") == "file"]
    return {path: disk.digest(f"{folder}/{path}", "sha256") for path in debs}


def _is_intact(record: _AptRecord, folder: str, name: str) -> bool:
    """True for a kept file that still has its recorded digest."""
    path = f"{folder}/{name}"
    return disk.kind(path) == "file" and disk.digest(path, "sha256") == record.debs.get(name)


def _fetch_again(apt: Apt, name: str, version: str, folder: str) -> str | None:
    """Let apt-get download and verify a package that replaces the kept file; returns its path, None if that fails."""
    target = f"{folder}/{ARRIVING_DEBS}"
    disk.make_folder(target, 0o755)
    _remove_files(target, aptget.deb_files({name: version}, target).values())
    _fetch(apt, f"{name}={version}", target, 0)
    return next((f"{target}/{file}" for file in aptget.deb_files({name: version}, target).values()), None)


def _fetch(apt: Apt, pin: str, target: str, reserve: int) -> None:
    """Download `name=version` if a repository has it and there is room; a failure leaves no partial file."""
    size = aptget.download_size(apt, pin)
    if size is None or not _fits(size, target, reserve):
        return
    before = set(disk.names_in(target))
    if not apt.run(apt.program, "download", "-q", pin, cwd=target).ok:
        _remove_files(target, set(disk.names_in(target)) - before)


def _fits(size: int, folder: str, reserve: int) -> bool:
    return size + reserve + RESERVE_BYTES <= disk.free_bytes(folder)


def _remove_files(folder: str, names: Iterable[str]) -> None:
    for name in names:
        if disk.kind(f"{folder}/{name}") == "file":
            disk.remove(f"{folder}/{name}")
