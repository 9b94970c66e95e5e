"""Facts against a resolution: what to install, change, keep and remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from cudnn_resolve.planning.model import AptAction, PipAction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.resolution.model import PipPin, Reason, Resolution


def pip_actions(resolution: Resolution, book: Book) -> tuple[PipAction, ...]:
    """What happens to each pip package of the resolution, and to those that must make room for them."""
    installed = resolution.machine.pip
    out = [_pip_action(pin, installed, book) for pin in resolution.pip if pin.version is not None]
    removed = tuple(_removals(resolution, book))
    slots = {book.slot(one.name): one.name for one in removed}
    anew = resolution.request.anew
    return (*(_laid_again(one, slots.get(book.slot(one.name) or ""), asked=one.name in anew) for one in out), *removed)


def _laid_again(action: PipAction, other: str | None, *, asked: bool = False) -> PipAction:
    """The action, or where it keeps a package whose files go with a removed one or are to be laid anew, its installation."""
    if action.action != "keep" or not (other or asked):
        return action
    because = f"{other} owns the same files and is removed, which takes them away" if other else "its files are laid anew, asked for"
    return replace(action, action="install", reinstall=True, because=(because, *action.because))


def unpinned(resolution: Resolution) -> tuple[str, ...]:
    """Packages that are needed and that the matrix does not list: the installer chooses their versions."""
    return tuple(sorted(pin.name for pin in resolution.pip if pin.version is None))


def _pip_action(pin: PipPin, installed: Mapping[str, str], book: Book) -> PipAction:
    here = installed.get(pin.name)
    version = pin.version or ""
    action = _compare(here, version, pin, book)
    if action == "keep" and here is not None:
        version = here
    row = book.index(pin.index) if pin.index is not None else None
    return PipAction(
        name=pin.name,
        version=version,
        action=action,
        index=row.url if row is not None else None,
        page=row is not None and row.kind == "find-links",
        because=reasons(pin.reasons),
        installed=here,
        file=pin.file,
        direct=pin.direct,
    )


def _compare(here: str | None, wanted: str, pin: PipPin, book: Book) -> str:
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
        bare = _default_variant(pin, old.public, book)
        return "keep" if bare is not None and (old.local or bare) == (new.local or bare) else "upgrade"
    return "upgrade" if new > old else "downgrade"


def _default_variant(pin: PipPin, version: str, book: Book) -> str | None:
    """The variant that the configured index serves under the bare version of a framework."""
    if pin.build is None:
        return None
    builds = book.framework(pin.build.framework).builds
    found = (one for one in builds if one.package == pin.name and one.version == version and one.index == "default")
    return next((one.variant for one in found if (one.cuda is None) == (pin.build.cuda is None)), None)


def _removals(resolution: Resolution, book: Book) -> Iterator[PipAction]:
    """Installed packages that own the same files as a pinned one."""
    pinned = {pin.name for pin in resolution.pip}
    owners = {slot: pin.name for pin in resolution.pip if (slot := book.slot(pin.name)) is not None}
    for name, version in sorted(resolution.machine.pip.items()):
        slot = book.slot(name)
        if name in pinned or slot is None or slot not in owners:
            continue
        because = f"it owns the same files as {owners[slot]}; the two overwrite one another"
        yield PipAction(name=name, version=version, action="remove", index=None, because=(because,), installed=version)


def reasons(all_of: tuple[Reason, ...]) -> tuple[str, ...]:
    """The reasons behind a pin, each once."""
    out = []
    for reason in all_of:
        text = reason.text if reason.because == "asked for" else f"{reason.text}: {reason.because}"
        if reason.because == "asked for":
            text = f"{reason.text}, asked for"
        out.append(text)
    return tuple(dict.fromkeys(out))


def apt_actions(resolution: Resolution) -> tuple[AptAction, ...]:
    """What happens to each apt package of the resolution."""
    out = []
    for pin in resolution.apt:
        here = resolution.machine.apt.get(pin.name)
        action = "install" if here is None else "keep" if here == pin.version else "upgrade"
        out.append(AptAction(name=pin.name, version=pin.version, repository=pin.repository, action=action, because=pin.because))
    return tuple(out)
