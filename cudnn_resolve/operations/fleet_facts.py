"""Many machines in their classes: their facts from files in folders, or from the hosts of an inventory."""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from cudnn_resolve.errors import CudnnResolveError, InputError, UsageError, WorldError
from cudnn_resolve.facts.codec import LIMIT_BYTES, FactsFile, from_mapping, parse_object
from cudnn_resolve.facts.model import Facts, Packages
from cudnn_resolve.fleet.classes import Classes
from cudnn_resolve.fleet.model import ClassAnswer, FleetAnswer, FleetClass, HostFault, HostReport
from cudnn_resolve.host import disk
from cudnn_resolve.host.pool import spread
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.listener import SILENT, WAITING, Listener
from cudnn_resolve.operations.machine_facts import facts_of_text, read_facts, refuse_other_systems
from cudnn_resolve.operations.options import FleetRequest
from cudnn_resolve.operations.question import share
from cudnn_resolve.operations.results import Result

_UUID = re.compile(rb'("uuid"\s*:\s*)"([A-Za-z0-9-]{1,80})"')
_NOTE = re.compile(rb'"([A-Za-z0-9._-]{1,80})"')
_NAME = re.compile(rb"[A-Za-z0-9._-]{1,80}")
_GAP = re.compile(rb'\s*[{,]\s*"([^"\\]{0,100})"\s*:\s*')
_END = re.compile(rb"\s*\{?\s*\}\s*")
_LABEL = re.compile(rb"[ \t]*([A-Za-z0-9][A-Za-z0-9._-]{0,99}):(?: |(?=\r?\n)|$)")
"""What `srun --label`, pdsh and clush write before each line of a host."""
_LONG = 1024
_MOST_BYTES = 16 << 20
"""Text whose meaning is kept; what is different on every host would fill the memory."""
_MOST_KNOWN, _MOST_FORMS = 2000, 8
"""Whole files that are known again by all but the names in them, and the places of names that files of one length have."""
_NODES = 20_000
_KEYS = frozenset(FactsFile.__struct_fields__)


_WHOLE = ("plan", "doctor")
"""Verbs for which counts what is installed."""


class FleetResult(FleetAnswer, Result, frozen=True, kw_only=True):
    """What `fleet` returns: an answer for each class of hosts."""

    def to_json(self) -> dict[str, Any]:
        """The object that `fleet VERB --format json` prints."""
        from cudnn_resolve.report.fleet import encode

        return encode(self)


def classes_of(request: FleetRequest, book: Book, listener: Listener = SILENT) -> tuple[tuple[FleetClass, ...], tuple[HostFault, ...]]:
    """The hosts in their classes, and those of which nothing is known; an error where that is all of them."""
    found = Classes(book, whole=request.verb in _WHOLE, policy=request.driver_policy, diagnosed=request.verb == "doctor")
    faults = []
    for number, one in enumerate(hosts(request, book, listener), start=1):
        if number % 500 == 0:
            listener.tell(f"facts of {number} hosts")
        try:
            if one.facts is not None:
                refuse_other_systems(one.facts)
                found.add(one.name, one.facts)
        except CudnnResolveError as error:
            faults.append(HostFault(host=one.name, why=str(error)))
        if one.fault is not None:
            faults.append(HostFault(host=one.name, why=one.fault))
    made = found.made()
    if not made and faults:
        first = faults[0]
        kind = WorldError if request.inventory else InputError
        raise kind(f"none of {len(faults)} hosts says what it is; {first.host}: {first.why}", code="facts-empty")
    return made, tuple(faults)


def by_class(
    work: Callable[[tuple[FleetClass, FleetRequest]], ClassAnswer], tasks: Sequence[tuple[FleetClass, FleetRequest]], listener: Listener
) -> tuple[ClassAnswer, ...]:
    """The answer for each class; those of several are computed in child processes, one for each processor."""
    done: dict[str, ClassAnswer] = {}
    announce([group for group, _ in tasks], listener)
    here = copy_context()
    here.run(share)
    for (group, _), answer in spread(work, tasks, share) if len(tasks) >= _SEVERAL else ((one, here.run(work, one)) for one in tasks):
        done[group.name] = answer
        listener.state(group.name, answer.status)
    return tuple(done[group.name] for group, _ in tasks)


def refused(group: FleetClass, error: InputError | WorldError) -> ClassAnswer:
    """What is said of a class for which an error stands; the others have their answers all the same."""
    said = "; ".join(map(str.strip, str(error).splitlines()))
    return ClassAnswer(group=group, status="failed" if isinstance(error, WorldError) else "no", message=said)


def notes_of(answers: Iterable[ClassAnswer]) -> tuple[str, ...]:
    """What was noted of any class, said once for all."""
    return tuple(sorted({note for one in answers for note in one.notes}))


def announce(classes: Iterable[FleetClass], listener: Listener) -> None:
    """Say which classes are about to be worked on."""
    listener.tell("working on the classes")
    for one in classes:
        listener.state(one.name, WAITING)


_SEVERAL = 4


def hosts(request: FleetRequest, book: Book, listener: Listener = SILENT) -> Iterator[HostReport]:
    """What each host says of itself; one that says nothing that can be read is reported with the reason, and stops nobody."""
    if bool(request.inventory) == bool(request.from_folder):
        hint = "-i INVENTORY asks the hosts; --from FOLDER reads facts that they wrote"
        raise UsageError("which hosts are meant is not said, or said twice", code="usage-contradiction", hint=hint)
    if request.inventory:
        yield from _from_inventory(request, listener)
        return
    seen: set[str] = set()
    for one in _from_files(request.from_folder, book):
        name = one.name
        while name in seen:  # two folders may have files of the same name
            name += "+"
        seen.add(name)
        yield replace(one, name=name)


def _from_inventory(request: FleetRequest, listener: Listener) -> Iterator[HostReport]:
    """The facts of each host, or why there are none."""
    from cudnn_resolve.host.playbook import HostAnswer, Play, run_play

    found: list[HostReport] = []

    def hear(answer: HostAnswer) -> None:
        listener.state(answer.host, answer.state, "facts")
        try:
            facts = from_mapping(dict(answer.result["facts"]), answer.host) if answer.state == "ok" else None
        except (CudnnResolveError, KeyError, TypeError, ValueError) as error:
            found.append(HostReport(name=answer.host, fault=f"its facts cannot be read: {error}"))
            return
        fault = None if facts is not None else answer.message or answer.state
        found.append(HostReport(name=answer.host, facts=facts, fault=fault))

    run_play(Play(module="cudnn_facts", words={"python": request.python} if request.python else {}), request.inventory, request.limit, hear)
    yield from found


def _from_files(places: Iterable[str], book: Book) -> Iterator[HostReport]:
    reader = _Reader(book)
    for place in places:
        if not disk.is_folder(place):
            yield from reader.reports(place)
            continue
        names = sorted(name for name in disk.names_in(place) if not name.startswith("."))
        if not names:
            raise InputError(f"the folder {place} holds no facts", code="facts-empty", hint="a file for each machine")
        for name in names:
            yield from reader.reports(os.path.join(place, name))


class _Names(NamedTuple):
    """Where names stand in a facts file that are others on each host of a kind."""

    places: tuple[tuple[int, int], ...]
    note: int | None
    """The number of the one that is the note of the file."""

    def around(self, raw: bytes) -> bytes:
        """What stands around them, in short."""
        starts, ends = (0, *(end for _, end in self.places)), (*(start for start, _ in self.places), len(raw))
        return sha256(b"".join(raw[start:end] for start, end in zip(starts, ends, strict=True))).digest()


class _Reader:
    """Reads facts files as `--facts` does.

    Hosts of one kind say the same but for a few names, and a whole file is known again by what stands around these. Of others each part,
    `"packages": {...}`, is read once and known by its text from then on. Of 10,000 files most of the time would go into reading the same
    lists of packages otherwise.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._parts: dict[tuple[str, bytes], Any] = {}
        self._held = 0
        self._split = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._known: dict[tuple[_Names, bytes], Facts] = {}
        self._names: dict[int, dict[_Names, None]] = {}
        """Where names stood in files of that length."""

    def reports(self, path: str) -> Iterator[HostReport]:
        """The host of a file, or the several that a list of Kubernetes' nodes has."""
        name = os.path.splitext(os.path.basename(path))[0]
        try:
            yield from self._read(path, name)
        except (CudnnResolveError, OSError) as error:
            yield HostReport(name=name, fault=f"{error}")

    def _read(self, path: str, name: str) -> Iterator[HostReport]:
        raw = disk.content(path, LIMIT_BYTES) if disk.is_regular(path) else None
        facts = self._joined(raw) if raw is not None and raw.startswith(b"{") else None
        if facts is not None:
            yield HostReport(name=name, facts=facts)
            return
        parts = _labelled(raw) if raw is not None else {}
        for label, text in parts.items():
            yield from self._labelled_host(label, text)
        nodes = _nodes(raw) if raw is not None and not parts else []
        if not nodes and not parts:
            yield HostReport(name=name, facts=read_facts(path, self._book))
        for number, node in enumerate(nodes, start=1):
            own = _name_of(node) or f"{name}-{number}"
            try:
                yield HostReport(name=own, facts=facts_of_text(json.dumps(node), own, self._book))
            except CudnnResolveError as error:
                yield HostReport(name=own, fault=f"{error}")

    def _labelled_host(self, label: str, text: bytes) -> Iterator[HostReport]:
        """One host of the output of `srun --label`, whose number or name stands before each of its lines."""
        try:
            facts = self._joined(text) or facts_of_text(text.decode("utf-8", "replace"), label, self._book)
            yield HostReport(name=label, facts=facts)
        except CudnnResolveError as error:
            said = text.decode("utf-8", "replace").strip()
            yield HostReport(name=label, fault=f"{error}" if said.startswith("{") else f"no facts: {said[:300] or 'nothing was written'}")

    def _joined(self, raw: bytes) -> Facts | None:
        """The facts of a file that `detect` wrote, put together of its parts; None for another file, and for a faulty one."""
        for names in self._names.get(len(raw), ()):
            known = self._known.get((names, names.around(raw)))
            if known is not None and all(_NAME.fullmatch(raw, start, end) for start, end in names.places):
                return known if names.note is None else replace(known, note=raw[slice(*names.places[names.note])].decode())
        try:
            entries = self._entries(raw)
            if entries is None or not entries.keys() <= _KEYS:
                return None
            made = {name: self._part(name, raw[place]) for name, place in entries.items()}
        except (CudnnResolveError, msgspec.MsgspecError, ValueError, RecursionError):
            return None
        made.pop("schema", None)
        facts = Facts(**made)
        self._keep(raw, entries, facts)
        return facts

    def _keep(self, raw: bytes, entries: Mapping[str, slice], facts: Facts) -> None:
        """Know a file again on which only names are others."""
        gpus, note = entries.get("gpus", slice(0, 0)), entries.get("note", slice(0, 0))
        of_host = _NOTE.fullmatch(raw, note.start, note.stop)
        places = sorted([*(one.span(2) for one in _UUID.finditer(raw, gpus.start, gpus.stop)), *([of_host.span(1)] if of_host else ())])
        names = _Names(tuple(places), places.index(of_host.span(1)) if of_host else None)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
            self._names.clear()
        forms = self._names.setdefault(len(raw), {})
        if names in forms or len(forms) < _MOST_FORMS:  # each of them is tried on every file of that length
            forms[names] = None
            self._known[names, names.around(raw)] = facts

    def _entries(self, raw: bytes) -> dict[str, slice] | None:
        """Where the entries of an object stand; None where one of them was lost, because its key stands twice."""
        found, place = {}, 0
        for name, value in self._split.decode(raw).items():
            text, gap = bytes(value), _GAP.match(raw, place)
            if gap is None or gap[1] != name.encode() or not raw.startswith(text, gap.end()):
                return None
            place = gap.end() + len(text)
            found[name] = slice(gap.end(), place)
        return found if _END.fullmatch(raw, place) else None

    def _part(self, name: str, text: bytes) -> Any:
        """One entry of a facts file as facts have it."""
        text = _UUID.sub(rb"\1null", text) if name == "gpus" else text
        key = name, text if len(text) < _LONG else sha256(text).digest()
        if key not in self._parts:
            made = self._packages(text) if name == "packages" else getattr(_alone(name, text), name, None)
            self._held += 0 if name == "packages" else len(text)
            if self._held > _MOST_BYTES:
                self._parts.clear()
                self._held = len(text)
            self._parts[key] = made
        return self._parts[key]

    def _packages(self, text: bytes) -> Packages:
        """The lists of packages, each of which may be that of another host."""
        entries = self._entries(text)
        if entries is None:
            raise InputError("a list of packages stands twice", code="facts-invalid")
        lists = {}
        for name, place in entries.items():
            value = text[place]
            key = f"packages.{name}", sha256(value).digest()
            if key not in self._parts:
                self._parts[key] = getattr(_alone("packages", b'{"%b":%b}' % (name.encode(), value)).packages, name, None)
                self._held += len(value)
            if name in Packages.__struct_fields__:
                lists[name] = self._parts[key]
        return Packages(**lists)


def _alone(name: str, text: bytes) -> Facts:
    """The facts of a file that has one entry only."""
    return from_mapping(parse_object(f'{{"{name}":{text.decode()}}}', name), name)


def _labelled(raw: bytes) -> dict[str, bytes]:
    """The outputs of several hosts, told apart by what stands before each line: `12: {`, `node7: {`; nothing where the text is none."""
    if _LABEL.match(raw) is None:
        return {}
    found: dict[str, list[bytes]] = {}
    for line in raw.splitlines(keepends=True):
        label = _LABEL.match(line)
        if label is not None:
            found.setdefault(label[1].decode(), []).append(line[label.end() :])
        if len(found) > _NODES or (label is None and line.strip()):
            return {}
    made = {f"task{label}" if label.isdigit() else label: b"".join(lines) for label, lines in found.items()}
    return made if all(map(str.isdigit, found)) or any(map(_is_object, made.values())) else {}


def _is_object(text: bytes) -> bool:
    """True for one whole JSON object."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.MsgspecError, RecursionError):
        return False


def _nodes(raw: bytes) -> list[dict[str, Any]]:
    """The nodes of `kubectl get nodes -o json`; nothing where the text is something else, or a single node."""
    if b'"apiVersion"' not in raw[:4096] or b'"items"' not in raw:
        return []
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return []
    items = found.get("items") if isinstance(found, dict) else None
    return [one for one in items[:_NODES] if isinstance(one, dict)] if isinstance(items, list) else []


def _name_of(node: dict[str, Any]) -> str | None:
    metadata = node.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name[:200] if isinstance(name, str) and name else None
