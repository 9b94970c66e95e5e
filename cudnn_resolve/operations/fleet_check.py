"""`fleet check`: verdicts on locks for every class of hosts, and changes since an earlier run."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from cudnn_resolve.errors import InputError
from cudnn_resolve.fleet.drift import by_host, changed, earlier
from cudnn_resolve.fleet.model import ClassAnswer, FleetClass, Outcome
from cudnn_resolve.host import disk
from cudnn_resolve.host.files import read_bounded
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.select import select
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.fleet_classes import FleetResult, announce, classes_of
from cudnn_resolve.operations.fleet_lock import judged, lock_name
from cudnn_resolve.operations.listener import Listener
from cudnn_resolve.operations.lock_file import lock_text
from cudnn_resolve.operations.options import LOCK_NAMES, FleetRequest
from cudnn_resolve.operations.question import gather_book
from cudnn_resolve.requirement.machine import machine_of

_EARLIER_BYTES = 256 << 20
_SHOWN = 4
"""Number of differing packages to name per host."""
_BEST_FIRST = ("ok", "unknown", "no", "failed")


def check(request: FleetRequest, listener: Listener) -> FleetResult:
    """Verdict on the lock of each class, hosts with other packages, and with `since` the facts that changed."""
    book = gather_book(request)
    locks = {path: lock_text(path) for path in _paths(request.packages)}
    since = request.since
    before = None if since is None else earlier(read_bounded(since, _EARLIER_BYTES, "earlier answer"), since)
    classes, faults = classes_of(request, book, listener)
    answers = []
    announce(classes, listener)
    for group in classes:
        answers.append(_check_class(group, locks, book))
        listener.state(group.name, answers[-1].status)
    changes = None if before is None else tuple(changed(before, classes))
    return FleetResult(verb=request.verb, classes=tuple(answers), faults=faults, changes=changes, is_strict=request.strict)


def _paths(words: Sequence[str]) -> tuple[str, ...]:
    """The named locks, those in named folders, or by default those in the current folder; InputError if there is none."""
    paths: list[str] = []
    for word in words or (".",):
        if not disk.is_folder(word):
            paths.append(word)
            continue
        names = sorted(name for name in disk.names_in(word) if LOCK_NAMES.fullmatch(name))
        paths += [name if word == "." else os.path.join(word, name) for name in names]
    if not paths:
        hint = "`cudnn-resolve fleet lock` writes one for each class; or name one: fleet check LOCK"
        raise InputError(f"there is no lock in {', '.join(words) or 'this folder'}", code="lock-missing", hint=hint)
    return tuple(dict.fromkeys(paths))


def _check_class(group: FleetClass, locks: Mapping[str, str], book: Book) -> ClassAnswer:
    """Verdict on the lock that is named after the class, else on the one that fits it best."""
    own = [path for path in locks if os.path.basename(path) == lock_name(group)]
    answers = [judged(group, path, locks[path], book) for path in own or locks]
    best = min(answers, key=lambda answer: _BEST_FIRST.index(answer.status))
    if best.status == "no" and len(answers) > 1:
        best = replace(best, message=f"none of {len(answers)} locks fits these hosts; {best.lock}: {best.message}")
    path = best.lock or ""
    return replace(best, outcomes=tuple(_differing_hosts(group, path, locks[path], book)))


def _differing_hosts(group: FleetClass, path: str, text: str, book: Book) -> Iterator[Outcome]:
    """Hosts on which packages of the lock are missing or have other versions."""
    chosen = select(read(text, path), machine_of(group.facts, book)).chosen
    pins = {f"packages.pip.{entry.package.name}": str(entry.package.version) for entry in chosen}
    for name, host in by_host((group,)).items():
        wrong = {fact: version for fact, version in pins.items() if host.knows(fact) and host.get(fact) != version}
        texts = [f"{fact.removeprefix('packages.pip.')} {host.get(fact)} instead of {version}" for fact, version in wrong.items()]
        if texts and all(host.get(fact) == "none" for fact in pins):
            yield Outcome(host=name, status="empty", detail="no package of the lock is installed")
        elif texts:
            more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
            yield Outcome(host=name, status="differs", detail="; ".join(texts[:_SHOWN]) + more)
