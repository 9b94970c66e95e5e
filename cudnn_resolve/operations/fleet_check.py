"""`fleet check`: the committed locks held against every class of hosts, and what changed since an earlier run."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from cudnn_resolve.errors import InputError
from cudnn_resolve.fleet.drift import by_host, changed, earlier
from cudnn_resolve.fleet.model import ClassAnswer, FleetClass, Outcome
from cudnn_resolve.host import disk
from cudnn_resolve.host.files import read_bounded
from cudnn_resolve.locking.read_pylock import LIMIT_BYTES as LOCK_BYTES
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.select import select
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.fleet_facts import FleetResult, announce, classes_of
from cudnn_resolve.operations.fleet_lock import judged, lock_name
from cudnn_resolve.operations.listener import Listener
from cudnn_resolve.operations.options import LOCK_NAMES, FleetRequest
from cudnn_resolve.operations.question import gather_book
from cudnn_resolve.requirement.machine import machine_of

_EARLIER_BYTES = 256 << 20
_NAMED = 4
"""Packages of a host that are named where they are not as the lock has them."""


def check(request: FleetRequest, listener: Listener) -> FleetResult:
    """The verdict on the lock of each class, hosts whose packages are others, and with `since` the facts that changed."""
    book = gather_book(request)
    locks = {path: read_bounded(path, LOCK_BYTES, "lock") for path in _paths(request.packages)}
    since = request.since
    before = None if since is None else earlier(read_bounded(since, _EARLIER_BYTES, "earlier answer"), since)
    classes, faults = classes_of(request, book, listener)
    answers = []
    announce(classes, listener)
    for one in classes:
        answers.append(_checked(one, locks, book))
        listener.state(one.name, answers[-1].status)
    changes = None if before is None else tuple(changed(before, classes))
    return FleetResult(verb=request.verb, classes=tuple(answers), faults=faults, changes=changes, is_strict=request.strict)


def _paths(words: Sequence[str]) -> tuple[str, ...]:
    """The locks that are meant: those that are named, those of a folder, else those of this one; InputError where there is none."""
    found: list[str] = []
    for word in words or (".",):
        if not disk.is_folder(word):
            found.append(word)
            continue
        names = sorted(name for name in disk.names_in(word) if LOCK_NAMES.fullmatch(name))
        found += [name if word == "." else os.path.join(word, name) for name in names]
    if not found:
        hint = "`cudnn-resolve fleet lock` writes one for each class; or name one: fleet check LOCK"
        raise InputError(f"there is no lock in {', '.join(words) or 'this folder'}", code="lock-missing", hint=hint)
    return tuple(dict.fromkeys(found))


def _checked(one: FleetClass, locks: Mapping[str, str], book: Book) -> ClassAnswer:
    """The verdict on the lock that is named after the class; else on the one that serves it best."""
    own = [path for path in locks if os.path.basename(path) == lock_name(one)]
    ranked = sorted((judged(one, path, locks[path], book) for path in own or locks), key=lambda each: _ORDER.index(each.status))
    best = ranked[0]
    if best.status == "no" and len(ranked) > 1:
        best = replace(best, message=f"none of {len(ranked)} locks is for these hosts; of {best.lock}: {best.message}")
    return replace(best, outcomes=tuple(_otherwise(one, best.lock or "", locks[best.lock or ""], book)))


_ORDER = ("ok", "unknown", "no", "failed")


def _otherwise(one: FleetClass, path: str, text: str, book: Book) -> Iterator[Outcome]:
    """Hosts on which packages of the lock are installed in other versions, or not at all."""
    machine = machine_of(one.facts, book)
    pins = {f"packages.pip.{each.package.name}": str(each.package.version) for each in select(read(text, path), machine).chosen}
    for name, host in by_host((one,)).items():
        wrong = [(fact, version) for fact, version in pins.items() if host.knows(fact) and host.get(fact) != version]
        texts = [f"{fact.removeprefix('packages.pip.')} {host.get(fact)} instead of {version}" for fact, version in wrong]
        if texts and all(host.get(fact) == "none" for fact in pins):
            yield Outcome(host=name, status="empty", detail="nothing of the lock is installed")
        elif texts:
            more = f"; and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
            yield Outcome(host=name, status="differs", detail="; ".join(texts[:_NAMED]) + more)
