"""What is installed against what is wanted, whether a resolution wants it or a lock: one action for each package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from cudnn_resolve.planning.model import AptAction, PipAction

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cudnn_resolve.matrix.book import Book


def pip_actions(
    wanted: Sequence[PipAction], installed: Mapping[str, str], book: Book, *, gpu: Mapping[str, bool], relaid: Collection[str] = ()
) -> tuple[PipAction, ...]:
    """Compare the packages that are wanted with those that are installed.

    The wanted packages come back with their actions, followed by the installed ones that must make room for them. `gpu` says which of
    them are frameworks, and whether a build for GPUs is meant; `relaid` names those whose files are written again in any case.
    """
    removed = tuple(_removals(wanted, installed, book))
    slots = {slot: one.name for one in removed if (slot := book.slot(one.name)) is not None and book.shares_files(slot)}
    out = []
    for one in wanted:
        here = installed.get(one.name)
        bare = _bare_variant(one, book, gpu=gpu[one.name]) if one.name in gpu else None
        found = replace(one, action=_compare(here, one.version, bare), installed=here)
        if found.action == "keep":
            found = _kept(found, slots.get(book.slot(one.name) or ""), relaid=one.name in relaid)
        out.append(found)
    return (*out, *removed)


def _kept(action: PipAction, removed: str | None, *, relaid: bool) -> PipAction:
    """Turn *keep* into a reinstallation where another removal deletes the files or the user asked for it."""
    if not (removed or relaid):
        return replace(action, version=action.installed or action.version)
    because = f"{removed} owns the same files and is removed, which takes them away" if removed else "its files are laid anew, asked for"
    return replace(action, action="install", reinstall=True, because=(because, *action.because))


def _compare(here: str | None, wanted: str, bare: str | None) -> str:
    """The action for a package; `bare` is the variant that the default index serves under the version without a local part."""
    if here is None:
        return "install"
    if here == wanted:
        return "keep"
    try:
        old, new = Version(here), Version(wanted)
    except InvalidVersion:
        return "upgrade"
    if old == new:
        return "keep"
    if old.public == new.public:
        # The default index serves a variant under its bare version: 2.6.0 there and 2.6.0+cu124 of the variant's index are one build.
        return "keep" if bare is not None and (old.local or bare) == (new.local or bare) else "upgrade"
    return "upgrade" if new > old else "downgrade"


def _bare_variant(wanted: PipAction, book: Book, *, gpu: bool) -> str | None:
    """The variant that the default index serves under the bare version of a framework."""
    framework = book.framework_of(wanted.name)
    public = wanted.version.partition("+")[0]
    builds = book.framework(framework).builds if framework is not None else ()
    found = (one for one in builds if one.package == wanted.name and one.version == public and one.index == "default")
    return next((one.variant for one in found if (one.cuda is not None) == gpu), None)


def _removals(wanted: Iterable[PipAction], installed: Mapping[str, str], book: Book) -> Iterator[PipAction]:
    """Installed packages that a wanted one excludes, most of them because they own the same files."""
    names = {one.name for one in wanted}
    owners = {slot: one.name for one in wanted if (slot := book.slot(one.name, one.version)) is not None}
    for name, version in sorted(installed.items()):
        slot = book.slot(name, version)
        if name not in names and slot in owners and not _was_so(owners[slot], wanted, installed, book):
            other = owners[slot]
            because = f"it cannot stand beside {other}: one environment holds one of them"
            if book.shares_files(slot):
                because = f"it owns the same files as {other}; the two overwrite one another"
            yield PipAction(name=name, version=version, action="remove", because=(because,), installed=version)


def _was_so(owner: str, wanted: Iterable[PipAction], installed: Mapping[str, str], book: Book) -> bool:
    """True where a package that stays has others of its kind beside it already; of frameworks and CUDA libraries one goes."""
    if book.framework_of(owner) is not None or book.component(owner) is not None:
        return False
    return any(one.name == owner and _compare(installed.get(owner), one.version, None) == "keep" for one in wanted)


def apt_actions(wanted: Iterable[AptAction], installed: Mapping[str, str]) -> tuple[AptAction, ...]:
    """Compare the apt packages that are wanted with those that are installed."""
    return tuple(
        replace(one, action=_apt_action(installed.get(one.name), one.version), installed=installed.get(one.name)) for one in wanted
    )


def _apt_action(here: str | None, wanted: str) -> str:
    return "install" if here is None else "keep" if here == wanted else "upgrade"
