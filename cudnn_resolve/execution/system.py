"""The packages of the system in an `apply`: prepared before anything changes, installed, and put back by the .deb files that were kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, WorldError
from cudnn_resolve.execution import aptget
from cudnn_resolve.execution.aptget import Apt
from cudnn_resolve.execution.journal import ARRIVING, LEAVING
from cudnn_resolve.execution.repository import apt_alone, changed_repository, make_known, restore_repository
from cudnn_resolve.host import disk
from cudnn_resolve.planning.model import AptAction
from cudnn_resolve.planning.tool_input import APT_NAME, APT_VERSION

if TYPE_CHECKING:
    from cudnn_resolve.execution.aptget import Apt
    from cudnn_resolve.execution.journal import Journal, PastApply
    from cudnn_resolve.execution.task import Task, Work
    from cudnn_resolve.host.protocol import Host
    from cudnn_resolve.host.run_tool import Tooling


_BUNDLED = """Acquire::Check-Valid-Until "false";
Acquire::IndexTargets::deb::Packages::CompressionTypes "uncompressed";
"""
"""A bundle is as old as it is, and has the list of its packages as it is signed, not as it was fetched."""
_OWN_LISTS = "lists"
"""Below a journal's folder: what apt reads where its packages come from a bundle."""


_Name = Annotated[str, Meta(pattern=rf"^(?:{APT_NAME.pattern})\Z")]
_Version = Annotated[str, Meta(pattern=rf"^(?:{APT_VERSION.pattern})\Z")]


class _Packages(Struct, frozen=True):
    """What a journal says of the system's packages."""

    packages: tuple[tuple[_Name, _Version, _Version | None], ...]
    """Each that the plan names: the version that was to come and the one that was there."""
    along: Mapping[_Name, tuple[_Version, _Version | None]]
    """The same of those that came along."""
    held: tuple[_Name, ...]
    unfinished: tuple[str, ...] = ()
    automatic: tuple[_Name, ...] = ()
    debs: Mapping[str, str] = {}
    """Each file that was kept, as its path in the journal's folder, with its SHA-256."""

    @property
    def changes(self) -> dict[str, tuple[str, str | None]]:
        """Every package that was touched."""
        return {**{name: (version, before) for name, version, before in self.packages}, **self.along}


def prepare_system(task: Task, work: Work, journal: Journal, tooling: Tooling, reserve: int) -> tuple[Apt, tuple[AptAction, ...]]:
    """How apt is called, and the packages with the versions that are there now; every .deb is then fetched and verified.

    A repository that is not known yet is made known, which the journal tells. `reserve` are bytes that are still to be written beside
    the journal. WorldError where apt refuses.
    """
    apt = aptget.require_apt(task, work.host)
    here = aptget.installed_versions(apt)
    held = aptget.marked(apt, "hold")
    packages = tuple(replace(one, installed=here.get(one.name)) for one in task.apt)
    system = apt
    if any(one.is_bundled for one in task.repositories):
        place = f"{journal.folder}/{_OWN_LISTS}"
        apt = apt_alone(task.repositories, apt, place, work.download, _BUNDLED)
    elif task.repositories:
        make_known(task.repositories, apt, journal, tooling, work.download)
    aptget.update(apt, tooling)
    simulation = aptget.simulate(apt, packages, held)
    aptget.download(apt, packages, held, tooling)
    replaced = {one.name for one in packages if one.installed not in (None, one.version)}
    keep_leaving(system, replaced | (set(simulation.install) & set(here)), here, journal.folder, tooling, reserve)
    keep_arriving(apt, simulation.install, journal.folder, tooling, reserve=reserve)
    named = {one.name for one in packages}
    journal.add(
        "apt",
        packages=[[one.name, one.version, one.installed] for one in packages],
        along={name: [version, here.get(name)] for name, version in simulation.install.items() if name not in named},
        held=sorted(held),
        unfinished=list(aptget.unfinished_files(apt)),
        automatic=sorted(aptget.marked(apt, "auto") & named),  # apt-get takes those that are named for wanted
        debs=kept_sums(journal.folder),
    )
    return apt, packages


def change_system(apt: Apt, packages: tuple[AptAction, ...], journal: Journal, tooling: Tooling) -> float:
    """Seconds that it took to install the packages and to hold them; WorldError where apt refuses or does something else."""
    held = aptget.marked(apt, "hold")
    journal.add("change")
    result = aptget.install(apt, packages, held, tooling)
    if not result.ok:
        raise WorldError(f"apt-get failed: {result.why()}", code="apt-failed", context=journal.log)
    marked = apt.run(tooling, "apt-mark", "hold", *(one.name for one in packages))
    if not marked.ok:
        raise WorldError(f"the packages could not be held: {marked.why()}", code="apt-failed", context=journal.log)
    here = aptget.installed_versions(apt)
    wrong = [f"{one.name} is {here.get(one.name, 'not there')}, not {one.version}" for one in packages if here.get(one.name) != one.version]
    if wrong:
        raise WorldError("; ".join(wrong), code="not-as-planned", context=journal.log)
    _forget_lists(apt, journal.folder, tooling)
    return result.seconds


def _forget_lists(apt: Apt, folder: str, tooling: Tooling) -> None:
    """Remove the lists that apt had of a bundle: they may be root's, and the journal's folder is this user's."""
    if disk.kind(f"{folder}/{_OWN_LISTS}") == "folder":
        apt.run(tooling, "rm", "-rf", "--", f"{folder}/{_OWN_LISTS}")


def restore_system(past: PastApply, host: Host, tooling: Tooling) -> tuple[str, ...]:
    """What of the system's packages could not be put back, in words; can be called again."""
    if past.last("apt") is None and past.last("keyring") is None:
        return ()
    apt = aptget.find_apt(host)
    if apt is None:
        return ("packages of the system: putting them back needs root",)
    left: list[str] = []
    try:
        aptget.dpkg(apt, tooling, "--force-confold", "--configure", "-a")  # what a kill left half configured
        _forget_lists(apt, past.folder, tooling)
        for record in past.told("apt", _Packages)[-1:]:
            aptget.forget_unfinished(apt, record.unfinished, tooling)
            left += _restore_packages(record, past, apt, tooling)
        left += restore_repository(past, apt, tooling)
    except CudnnResolveError as error:
        left.append(error.message)
    return tuple(left)


def _restore_packages(record: _Packages, past: PastApply, apt: Apt, tooling: Tooling) -> list[str]:
    before = {name: there for name, (_, there) in record.changes.items()}
    left = _unpack_again(record, past, apt, tooling)
    here = aptget.installed_versions(apt)
    present = aptget.present_packages(apt)
    new = [name for name, version in before.items() if version is None and name in present]
    old = [AptAction(name=name, version=version, installed=here.get(name)) for name, version in before.items() if version]
    old = [one for one in old if here.get(one.name) != one.version]
    names = [name for name in before if name in present]
    if names and (new or old or set(names) & aptget.marked(apt, "hold") - set(record.held)):
        apt.run(tooling, "apt-mark", "unhold", *names)
    if old:
        kept = aptget.deb_files({one.name: one.version for one in old}, f"{past.folder}/{LEAVING}").values()
        debs = [f"{past.folder}/{LEAVING}/{name}" for name in kept if is_as_kept(record, past.folder, f"{LEAVING}/{name}")]
        is_kept = len(debs) == len(old)
        done = aptget.dpkg(apt, tooling, "--force-confold", "-i", *debs) if is_kept else aptget.install(apt, old, (), tooling)
        if not done.ok:
            changed = "; what was kept of them is not as it was" if len(debs) < len(kept) else ""
            left.append(f"{', '.join(f'{one.name}={one.version}' for one in old)}: {done.why()}{changed}")
    if new:
        done = aptget.purge(apt, new, tooling)
        if not done.ok:
            left.append(f"{', '.join(new)} could not be removed: {done.why()}")
    here, present = aptget.installed_versions(apt), aptget.present_packages(apt)
    wrong = [name for name, version in before.items() if here.get(name) != version or (version is None and name in present)]
    if wrong and not left:
        left.append(f"packages of the system that are not as they were: {', '.join(wrong)}")
    automatic = set(record.automatic) - aptget.marked(apt, "auto")
    for mark, marked in (("auto", automatic), ("hold", record.held)):
        again = [name for name in sorted(marked) if before.get(name)]
        if again:
            apt.run(tooling, "apt-mark", mark, *again)
    return left


def _unpack_again(record: _Packages, past: PastApply, apt: Apt, tooling: Tooling) -> list[str]:
    """What of these packages dpkg cannot be told again, of which it, killed, had left files in no list: they are not at hand any more."""
    left = []
    torn = aptget.half_installed(apt)
    arriving = {name: version for name, (version, _) in record.changes.items() if name in torn}
    for name, version in arriving.items():  # one at a time: each that can be is
        kept = [f"{ARRIVING}/{one}" for one in aptget.deb_files({name: version}, f"{past.folder}/{ARRIVING}").values()]
        intact = [f"{past.folder}/{one}" for one in kept if is_as_kept(record, past.folder, one)]
        path = intact[0] if intact else fetch_anew(apt, name, version, past.folder, tooling)
        if path is not None:
            aptget.dpkg(apt, tooling, "--force-confold", "--force-depends", "--no-triggers", "--unpack", path)
        elif kept:
            lost = "the file that was kept of it is not as it was, and dpkg did not get it: files of the package may be left"
            left.append(f"{name}={version}: {lost}")
    return left


def changed_system(past: PastApply, host: Host) -> tuple[str, ...]:
    """Packages, lists and keys of the system that are not as a committed journal left them; empty where nobody can say."""
    has_changed = past.last("apt") is not None or past.last("keyring") is not None
    apt = aptget.find_apt(host) if has_changed else None
    if apt is None:
        return ()
    here = aptget.installed_versions(apt)
    changes = {name: version for record in past.told("apt", _Packages)[-1:] for name, (version, _) in record.changes.items()}
    return (*(name for name, version in changes.items() if here.get(name) != version), *changed_repository(past, apt))


def changes_of(past: PastApply) -> list[tuple[str, str, str | None]]:
    """Name, new and old version of each package of the system that a journal changed; WorldError where it is not readable."""
    changes = {name: row for record in past.told("apt", _Packages)[-1:] for name, row in record.changes.items()}
    return [(name, version, before) for name, (version, before) in changes.items() if version != before]


RESERVE_BYTES = 32 << 20
"""What stays free of the disk that they are kept on: the journal itself goes on there."""


def keep_leaving(apt: Apt, names: Iterable[str], here: Mapping[str, str], folder: str, tooling: Tooling, reserve: int) -> None:
    """Keep the .deb files of the installed packages of these names, as far as a repository still has them and there is room.

    `reserve` are bytes that somebody else is about to write there.
    """
    place = f"{folder}/{LEAVING}"
    disk.make_folder(place, 0o755)
    for name in sorted(names):
        _fetch(apt, name, here[name], place, tooling, reserve)


def keep_arriving(apt: Apt, install: Mapping[str, str], folder: str, tooling: Tooling, *, reserve: int = 0) -> None:
    """Keep the .deb files of packages that are about to be installed: linked from apt's cache, else copied where there is room.

    A dpkg that is killed leaves the files that it had unpacked by then in no list; it knows them again only by unpacking that package anew.
    """
    place, cache = f"{folder}/{ARRIVING}", aptget.archives(apt)
    disk.make_folder(place, 0o755)
    cached = aptget.deb_files(install, cache)
    fetched = [f"{cache}/{name}" for name in cached.values()]
    if fetched and not apt.run(tooling, "cp", "--force", "--link", "--target-directory", place, "--", *fetched).ok:
        _drop(place, cached.values())
        fits = _fits(sum(map(disk.size_of, fetched)), place, reserve)  # all of them or none: they are wanted, and not needed
        if fits and not apt.run(tooling, "cp", "--force", "--target-directory", place, "--", *fetched).ok:
            _drop(place, cached.values())
    for name in sorted(set(install) - set(cached)):  # a repository on this disk is not copied into the cache
        _fetch(apt, name, install[name], place, tooling, reserve)


def kept_sums(folder: str) -> dict[str, str]:
    """Each .deb that is kept in a journal's folder, as its path there, with its SHA-256: by that it is known again before dpkg gets it."""
    listed = [f"{place}/{name}" for place in (LEAVING, ARRIVING) for name in sorted(disk.names_in(f"{folder}/{place}"))]
    names = [name for name in listed if name.endswith(".deb")]
    return {name: disk.digest(f"{folder}/{name}", "sha256") for name in names if disk.kind(f"{folder}/{name}") == "file"}


def is_as_kept(record: _Packages, folder: str, name: str) -> bool:
    """True where a file in a journal's folder is the one that the record has the sum of."""
    path = f"{folder}/{name}"
    return disk.kind(path) == "file" and disk.digest(path, "sha256") == record.debs.get(name)


def fetch_anew(apt: Apt, name: str, version: str, folder: str, tooling: Tooling) -> str | None:
    """Path, in a journal's folder, of a package that apt-get fetched and verified in the place of what is there; None where it cannot."""
    place = f"{folder}/{ARRIVING}"
    disk.make_folder(place, 0o755)
    _drop(place, aptget.deb_files({name: version}, place).values())
    _fetch(apt, name, version, place, tooling, 0)
    return next((f"{place}/{one}" for one in aptget.deb_files({name: version}, place).values()), None)


def _fetch(apt: Apt, name: str, version: str, place: str, tooling: Tooling, reserve: int) -> None:
    """Fetch the package where a repository has it and there is room; leave no part of it behind otherwise."""
    size = aptget.download_size(apt, f"{name}={version}")
    if size is None or not _fits(size, place, reserve):
        return
    before = set(disk.names_in(place))
    if not apt.run(replace(tooling, cwd=place), apt.program, "download", "-q", f"{name}={version}").ok:
        _drop(place, set(disk.names_in(place)) - before)


def _fits(size: int, place: str, reserve: int) -> bool:
    return size + reserve + RESERVE_BYTES <= disk.free_bytes(place)


def _drop(place: str, names: Iterable[str]) -> None:
    for name in names:
        if disk.kind(f"{place}/{name}") == "file":
            disk.remove(f"{place}/{name}")
