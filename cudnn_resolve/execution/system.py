"""The packages of the system in an `apply`: prepared before anything changes, installed, and put back by the .deb files that were kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, WorldError
from cudnn_resolve.execution import aptget
from cudnn_resolve.execution.aptget import Apt
from cudnn_resolve.execution.journal import ARRIVING, LEAVING, tampered
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


def prepare_system(task: Task, work: Work, journal: Journal, tooling: Tooling, *, reserve: int = 0) -> tuple[Apt, tuple[AptAction, ...]]:
    """How apt is called, and the packages with the versions that are there now; every .deb is then fetched and verified.

    A repository that is not known yet is made known, which the journal tells. `reserve` are bytes that are still to be written beside
    the journal. WorldError where apt refuses.
    """
    apt = aptget.require_apt(task, work.host)
    here = aptget.installed_versions(apt)
    held = aptget.held_packages(apt)
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
    keep_leaving(system, replaced | (set(simulation.install) & set(here)), here, journal.folder, tooling, reserve=reserve)
    keep_arriving(apt, simulation.install, journal.folder, tooling, reserve=reserve)
    named = {one.name for one in packages}
    journal.add(
        "apt",
        packages=[[one.name, one.version, one.installed] for one in packages],
        along={name: [version, here.get(name)] for name, version in simulation.install.items() if name not in named},
        held=sorted(held),
        unfinished=list(aptget.unfinished_files(apt)),
        automatic=sorted(set(aptget.automatic_packages(apt)) & named),  # apt-get takes those that are named for wanted
        debs=kept_sums(journal.folder),
    )
    return apt, packages


def change_system(apt: Apt, packages: tuple[AptAction, ...], journal: Journal, tooling: Tooling) -> float:
    """Seconds that it took to install the packages and to hold them; WorldError where apt refuses or does something else."""
    held = aptget.held_packages(apt)
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
    record, keyring = past.last("apt"), past.last("keyring")
    if record is None and keyring is None:
        return ()
    apt = aptget.find_apt(host)
    if apt is None:
        return ("packages of the system: putting them back needs root",)
    left: list[str] = []
    try:
        aptget.mend(apt, aptget.dpkg_options(apt), tooling)
        _forget_lists(apt, past.folder, tooling)
        if record is not None:
            aptget.forget_unfinished(apt, _texts(record.get("unfinished", []), past), tooling)
            left += _restore_packages(record, past, apt, tooling)
        if keyring is not None:
            left += restore_repository(keyring, past, apt, tooling)
    except CudnnResolveError as error:
        left.append(error.message)
    return tuple(left)


def _restore_packages(record: Mapping[str, Any], past: PastApply, apt: Apt, tooling: Tooling) -> list[str]:
    before = _before(record, past)
    held = [name for name in _texts(record.get("held"), past) if APT_NAME.fullmatch(name)]
    left = _unpack_again(record, past, apt, tooling)
    here = aptget.installed_versions(apt)
    present = aptget.present_packages(apt)
    new = [name for name, version in before.items() if version is None and name in present]
    old = [AptAction(name=name, version=version, installed=here.get(name)) for name, version in before.items() if version]
    old = [one for one in old if here.get(one.name) != one.version]
    names = [name for name in before if name in present]
    if names and (new or old or set(names) & set(aptget.held_packages(apt)) - set(held)):
        apt.run(tooling, "apt-mark", "unhold", *names)
    if old:
        kept = aptget.deb_files({one.name: one.version for one in old}, f"{past.folder}/{LEAVING}").values()
        debs = [f"{past.folder}/{LEAVING}/{name}" for name in kept if is_as_kept(record, past.folder, f"{LEAVING}/{name}")]
        words = ("dpkg", *aptget.dpkg_options(apt), "--force-confold", "-i", *debs) if len(debs) == len(old) else ()
        done = apt.run(tooling, *words) if words else aptget.install(apt, old, (), tooling)
        if not done.ok:
            changed = "; what was kept of them is not as it was" if len(debs) < len(kept) else ""
            left.append(f"{', '.join(f'{one.name}={one.version}' for one in old)}: {done.why()}{changed}")
    if new:
        done = aptget.purge(apt, aptget.dpkg_options(apt), new, tooling)
        if not done.ok:
            left.append(f"{', '.join(new)} could not be removed: {done.why()}")
    here, present = aptget.installed_versions(apt), aptget.present_packages(apt)
    wrong = [name for name, version in before.items() if here.get(name) != version or (version is None and name in present)]
    if wrong and not left:
        left.append(f"packages of the system that are not as they were: {', '.join(wrong)}")
    automatic = set(_texts(record.get("automatic", []), past)) - set(aptget.automatic_packages(apt))
    for mark, marked in (("auto", automatic), ("hold", held)):
        again = [name for name in sorted(marked) if before.get(name)]
        if again:
            apt.run(tooling, "apt-mark", mark, *again)
    return left


def _unpack_again(record: Mapping[str, Any], past: PastApply, apt: Apt, tooling: Tooling) -> list[str]:
    """What of these packages dpkg cannot be told again, of which it, killed, had left files in no list: they are not at hand any more."""
    left = []
    torn = aptget.half_installed(apt)
    arriving = {name: version for name, (version, _) in _changes(record, past).items() if name in torn}
    for name, version in arriving.items():  # one at a time: each that can be is
        kept = [f"{ARRIVING}/{one}" for one in aptget.deb_files({name: version}, f"{past.folder}/{ARRIVING}").values()]
        intact = [f"{past.folder}/{one}" for one in kept if is_as_kept(record, past.folder, one)]
        path = intact[0] if intact else fetch_anew(apt, name, version, past.folder, tooling)
        if path is not None:
            aptget.unpack(apt, aptget.dpkg_options(apt), (path,), tooling)
        elif kept:
            left.append(_swapped(f"{name}={version}"))
    return left


def _swapped(what: str) -> str:
    return f"{what}: the file that was kept of it is not as it was, and dpkg did not get it: files of the package may be left"


def _before(record: Mapping[str, Any], past: PastApply) -> dict[str, str | None]:
    """Each package that was touched with the version that was there, None for none."""
    return {name: before for name, (_, before) in _changes(record, past).items()}


def _changes(record: Mapping[str, Any], past: PastApply) -> dict[str, tuple[str, str | None]]:
    """Each package that was touched with the version that was to come and the one that was there; everything of it looked at."""
    out: dict[str, tuple[str, str | None]] = {}
    rows = record.get("packages")
    along = record.get("along")
    if not isinstance(rows, list) or not isinstance(along, dict):
        raise tampered(past.folder, "what it says of apt is not readable")
    found = [tuple(row) for row in rows if isinstance(row, list) and len(row) == 3]
    found += [(name, *row) for name, row in along.items() if isinstance(row, list) and len(row) == 2]
    for name, version, before in found:
        if not isinstance(name, str) or not APT_NAME.fullmatch(name):
            raise tampered(past.folder, "a name of a package in it is none")
        for one in (version, *(() if before is None else (before,))):
            if not isinstance(one, str) or not APT_VERSION.fullmatch(one):
                raise tampered(past.folder, "a version of a package in it is none")
        out[name] = (version, before)
    return out


def changed_system(past: PastApply, host: Host) -> tuple[str, ...]:
    """Packages, lists and keys of the system that are not as a committed journal left them; empty where nobody can say."""
    record, keyring = past.last("apt"), past.last("keyring")
    apt = aptget.find_apt(host) if record is not None or keyring is not None else None
    if apt is None:
        return ()
    out = []
    if record is not None:
        here = aptget.installed_versions(apt)
        out += [name for name, (version, _) in _changes(record, past).items() if here.get(name) != version]
    if keyring is not None:
        out += changed_repository(keyring, past, apt)
    return tuple(out)


def changes_of(past: PastApply) -> list[tuple[str, str, str | None]]:
    """Name, new and old version of each package of the system that a journal changed; WorldError where it is not readable."""
    record = past.last("apt")
    changes = _changes(record, past) if record is not None else {}
    return [(name, version, before) for name, (version, before) in changes.items() if version != before]


def _texts(value: object, past: PastApply) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise tampered(past.folder, "a list in it is none")
    return list(value)


RESERVE_BYTES = 32 << 20
"""What stays free of the disk that they are kept on: the journal itself goes on there."""


def keep_leaving(apt: Apt, names: Iterable[str], here: Mapping[str, str], folder: str, tooling: Tooling, *, reserve: int = 0) -> None:
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
        _copy(apt, fetched, place, tooling, reserve)
    for name in sorted(set(install) - set(cached)):  # a repository on this disk is not copied into the cache
        _fetch(apt, name, install[name], place, tooling, reserve)


def kept_sums(folder: str) -> dict[str, str]:
    """Each .deb that is kept in a journal's folder, as its path there, with its SHA-256: by that it is known again before dpkg gets it."""
    places = [place for place in (LEAVING, ARRIVING) if disk.kind(f"{folder}/{place}") == "folder"]
    names = [f"{place}/{name}" for place in places for name in sorted(disk.names_in(f"{folder}/{place}")) if name.endswith(".deb")]
    return {name: disk.digest(f"{folder}/{name}", "sha256") for name in names if disk.kind(f"{folder}/{name}") == "file"}


def is_as_kept(record: Mapping[str, Any], folder: str, name: str) -> bool:
    """True where a file in a journal's folder is the one that the record has the sum of."""
    sums, path = record.get("debs"), f"{folder}/{name}"
    return isinstance(sums, dict) and disk.kind(path) == "file" and disk.digest(path, "sha256") == sums.get(name)


def fetch_anew(apt: Apt, name: str, version: str, folder: str, tooling: Tooling) -> str | None:
    """Path, in a journal's folder, of a package that apt-get fetched and verified in the place of what is there; None where it cannot."""
    place = f"{folder}/{ARRIVING}"
    disk.make_folder(place, 0o755)
    _drop(place, aptget.deb_files({name: version}, place).values())
    _fetch(apt, name, version, place, tooling, 0)
    return next((f"{place}/{one}" for one in aptget.deb_files({name: version}, place).values()), None)


def _copy(apt: Apt, paths: list[str], place: str, tooling: Tooling, reserve: int) -> None:
    """Copy the files, or none of them where there is no room: they are wanted, and not needed."""
    if not _fits(sum(disk.size_of(path) for path in paths), place, reserve):
        return
    if not apt.run(tooling, "cp", "--force", "--target-directory", place, "--", *paths).ok:
        _drop(place, [path.rpartition("/")[2] for path in paths])


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
