"""Compare installed packages with wanted ones, whether a resolution or a lock wants them: one action per package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.planning.model import AptAction, PipAction
from cudnn_resolve.resolution.release import parse_version

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cudnn_resolve.matrix.book import Book


def pip_actions(
    wanted: Sequence[PipAction], installed: Mapping[str, str], book: Book, *, gpu: Mapping[str, bool], reinstall: Collection[str] = ()
) -> tuple[PipAction, ...]:
    """Decide the action of each wanted package, and append the installed packages that must be removed for them.

    `gpu` maps the frameworks among them to whether a GPU build is meant; `reinstall` names packages whose files are written again even if
    their version stays.
    """
    removals = tuple(_removals(wanted, installed, book))
    removed_by_slot = {
        slot: removal.name for removal in removals if (slot := book.slot(removal.name)) is not None and book.shares_files(slot)
    }
    actions = []
    for package in wanted:
        present = installed.get(package.name)
        bare = _bare_variant(package, book, gpu=gpu[package.name]) if package.name in gpu else None
        action = replace(package, action=_compare(present, package.version, bare), installed=present)
        if action.action == "keep":
            removed = removed_by_slot.get(book.slot(package.name) or "")
            action = _keep_or_reinstall(action, removed, reinstall=package.name in reinstall)
        actions.append(action)
    return (*actions, *removals)


def _keep_or_reinstall(action: PipAction, removed: str | None, *, reinstall: bool) -> PipAction:
    """Turn *keep* into a reinstallation if another removal deletes its files or the user asked for it."""
    if removed:
        because = f"removing {removed}, which owns the same files, deletes them"
    elif reinstall:
        because = "reinstallation requested"
    else:
        return replace(action, version=action.installed or action.version)
    return replace(action, action="install", reinstall=True, because=(because, *action.because))


def _compare(installed: str | None, wanted: str, bare: str | None) -> str:
    """Action that leads from one version to the other; `bare` is the variant that the default index serves without a local version."""
    if installed is None:
        return "install"
    if installed == wanted:
        return "keep"
    old, new = parse_version(installed), parse_version(wanted)
    if old is None or new is None:
        return "upgrade"
    if old == new:
        return "keep"
    if old.public == new.public:
        # The default index serves one variant under its bare version: its 2.6.0 and the variant index's 2.6.0+cu124 are the same build.
        return "keep" if bare is not None and (old.local or bare) == (new.local or bare) else "upgrade"
    return "upgrade" if new > old else "downgrade"


def _bare_variant(package: PipAction, book: Book, *, gpu: bool) -> str | None:
    """Variant that the default index serves under the bare version of a framework."""
    public = package.version.partition("+")[0]
    for build in book.builds_of(package.name):
        if (build.version, build.index) == (public, "default") and (build.cuda is not None) == gpu:
            return build.variant
    return None


def _removals(wanted: Iterable[PipAction], installed: Mapping[str, str], book: Book) -> Iterator[PipAction]:
    """Installed packages that a wanted one excludes, usually because both own the same files."""
    names = {package.name for package in wanted}
    owners = {slot: package.name for package in wanted if (slot := book.slot(package.name, package.version)) is not None}
    for name, version in sorted(installed.items()):
        slot = book.slot(name, version)
        if name not in names and slot in owners and not _coexists_already(owners[slot], wanted, installed, book):
            other = owners[slot]
            because = f"an environment can hold only one of {name} and {other}"
            if book.shares_files(slot):
                because = f"it owns the same files as {other}, and each overwrites the other"
            yield PipAction(name=name, version=version, action="remove", because=(because,), installed=version)


def _coexists_already(owner: str, wanted: Iterable[PipAction], installed: Mapping[str, str], book: Book) -> bool:
    """True for a kept package that shares the environment with its rivals already; never for frameworks and CUDA libraries."""
    if book.framework_of(owner) is not None or book.component(owner) is not None:
        return False
    return any(package.name == owner and _compare(installed.get(owner), package.version, None) == "keep" for package in wanted)


def apt_actions(wanted: Iterable[AptAction], installed: Mapping[str, str]) -> tuple[AptAction, ...]:
    """Decide the action of each wanted apt package."""
    actions = []
    for package in wanted:
        present = installed.get(package.name)
        action = "install" if present is None else "keep" if present == package.version else "upgrade"
        actions.append(replace(package, action=action, installed=present))
    return tuple(actions)
