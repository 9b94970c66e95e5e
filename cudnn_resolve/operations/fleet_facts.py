"""Facts of many hosts: from files, or from the hosts of an Ansible inventory."""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from cudnn_resolve.errors import ContradictionError, CudnnResolveError
from cudnn_resolve.facts.codec import LIMIT_BYTES, FactsFile, from_mapping, parse_object
from cudnn_resolve.facts.model import Facts, Packages
from cudnn_resolve.fleet.model import HostFacts, HostFault
from cudnn_resolve.host import disk
from cudnn_resolve.listener import Listener
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.machine_facts import facts_files, facts_of_text, read_facts
from cudnn_resolve.operations.options import FleetRequest

_UUID = re.compile(rb'("uuid"\s*:\s*)"([A-Za-z0-9-]{1,80})"')
_KEY = re.compile(rb'\s*[{,]\s*"([^"\\]{0,100})"\s*:\s*')
_END = re.compile(rb"\s*\{?\s*\}\s*")
_LABEL = re.compile(rb"[ \t]*([A-Za-z0-9][A-Za-z0-9._-]{0,99}):(?: |(?=\r?\n)|$)")
"""Prefix of each line in the output of `srun --label`, pdsh and clush, which names the host."""
_CACHE_BYTES = 16 << 20
"""Limit on the texts of cached values: those that differ on every host would fill the memory."""
_MAX_NODES = 20_000
_KEYS = frozenset(FactsFile.__struct_fields__)


def hosts(request: FleetRequest, book: Book, listener: Listener) -> Iterator[HostFacts | HostFault]:
    """Facts of each host; a host without readable facts is reported with the reason, and does not affect the others."""
    if bool(request.inventory) == bool(request.from_folder):
        hint = "-i INVENTORY asks the hosts; --from FOLDER reads facts that they wrote"
        raise ContradictionError("name the hosts, by either -i or --from", hint=hint)
    if request.inventory:
        yield from _from_inventory(request, listener)
        return
    names: set[str] = set()
    reader = _Reader(book)
    for report in (report for place in request.from_folder for path in facts_files(place) for report in reader.reports(path)):
        name = report.host
        while name in names:  # two folders may have files of the same name
            name += "+"
        names.add(name)
        yield replace(report, host=name)


def _from_inventory(request: FleetRequest, listener: Listener) -> Iterator[HostFacts | HostFault]:
    """Facts of each host of the inventory, or why there are none."""
    from cudnn_resolve.host.playbook import HostAnswer, Play, run_play

    reports: list[HostFacts | HostFault] = []

    def on_answer(answer: HostAnswer) -> None:
        listener.state(answer.host, answer.state, "facts")
        if answer.state != "ok":
            reports.append(HostFault(host=answer.host, why=answer.message or answer.state))
            return
        try:
            reports.append(HostFacts(host=answer.host, facts=from_mapping(dict(answer.result["facts"]), answer.host)))
        except (CudnnResolveError, KeyError, TypeError, ValueError) as error:
            reports.append(HostFault(host=answer.host, why=f"its facts cannot be read: {error}"))

    play = Play(module="cudnn_facts", words={"python": request.python} if request.python else {})
    run_play(play, request.inventory, request.limit, on_answer)
    yield from reports


class _Reader:
    """Reads facts files like `--facts`, and decodes an entry that several share, such as `"packages": {...}`, once.

    Without this, 3000 files would take 10 s instead of 0.5 s, mostly for the same lists of packages.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._values: dict[tuple[str, bytes], Any] = {}
        self._bytes = 0
        self._decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def reports(self, path: str) -> Iterator[HostFacts | HostFault]:
        """The host of a file, or several in a Kubernetes node list or in labelled output."""
        name = os.path.splitext(os.path.basename(path))[0]
        try:
            yield from self._read(path, name)
        except (CudnnResolveError, OSError) as error:
            yield HostFault(host=name, why=f"{error}")

    def _read(self, path: str, name: str) -> Iterator[HostFacts | HostFault]:
        raw = (disk.content(path, LIMIT_BYTES) if disk.is_regular(path) else None) or b""
        facts = self._decode(raw) if raw.startswith(b"{") else None
        if facts is not None:
            yield HostFacts(host=name, facts=facts)
            return
        outputs = _labelled_outputs(raw)
        for label, text in outputs.items():
            yield self._labelled_host(label, text)
        nodes = [] if outputs else _nodes(raw)
        if not nodes and not outputs:
            yield HostFacts(host=name, facts=read_facts(path, self._book))
        for number, node in enumerate(nodes, start=1):
            node_name = _name_of(node) or f"{name}-{number}"
            try:
                yield HostFacts(host=node_name, facts=facts_of_text(json.dumps(node), node_name, self._book))
            except CudnnResolveError as error:
                yield HostFault(host=node_name, why=f"{error}")

    def _labelled_host(self, label: str, text: bytes) -> HostFacts | HostFault:
        """A host in the output of `srun --label`."""
        try:
            facts = self._decode(text) or facts_of_text(text.decode("utf-8", "replace"), label, self._book)
            return HostFacts(host=label, facts=facts)
        except CudnnResolveError as error:
            output = text.decode("utf-8", "replace").strip()
            return HostFault(host=label, why=f"{error}" if output.startswith("{") else f"no facts: {output[:300] or 'no output'}")

    def _decode(self, raw: bytes) -> Facts | None:
        """Facts of a file that `detect` wrote, from cached entries; None for another or a malformed file."""
        try:
            entries = self._split(raw)
            if not entries.keys() <= _KEYS:
                return None
            values = {name: self._value(name, _UUID.sub(rb"\1null", text) if name == "gpus" else text) for name, text in entries.items()}
        except (CudnnResolveError, msgspec.MsgspecError, ValueError, RecursionError):
            return None
        values.pop("schema", None)
        return Facts(**values)

    def _split(self, raw: bytes) -> dict[str, bytes]:
        """The values of an object as they are written; ValueError if a key is repeated, since the decoder drops one of them."""
        values, place = {}, 0
        for name, value in self._decoder.decode(raw).items():
            text, key = bytes(value), _KEY.match(raw, place)
            if key is None or key[1] != name.encode() or not raw.startswith(text, key.end()):
                raise ValueError(f"{name} is repeated")
            place = key.end() + len(text)
            values[name] = text
        if not _END.fullmatch(raw, place):
            raise ValueError("a key is repeated")
        return values

    def _value(self, path: str, text: bytes) -> Any:
        """Decode a value of a facts file, or take it from the cache; of the lists of packages each may come from another host."""
        key = path, sha256(text).digest()
        if key not in self._values:
            if path == "packages":
                lists = {name: part for name, part in self._split(text).items() if name in Packages.__struct_fields__}
                value: Any = Packages(**{name: self._value(f"packages.{name}", part) for name, part in lists.items()})
            else:
                value = _decode_alone(path, text)
            self._bytes += len(text)
            if self._bytes > _CACHE_BYTES:
                self._values.clear()
                self._bytes = len(text)
            self._values[key] = value
        return self._values[key]


def _decode_alone(path: str, text: bytes) -> Any:
    """The value at a path such as `packages.pip` of a facts file that holds nothing else."""
    names = path.split(".")
    start = "".join(f'{{"{name}":' for name in names)
    value: Any = from_mapping(parse_object(f"{start}{text.decode()}{'}' * len(names)}", path), path)
    for name in names:
        value = getattr(value, name, None)
    return value


def _labelled_outputs(raw: bytes) -> dict[str, bytes]:
    """Outputs of several hosts by the label before each line, `12: {` or `node7: {`; empty for other texts."""
    if _LABEL.match(raw) is None:
        return {}
    lines_by_label: dict[str, list[bytes]] = {}
    for line in raw.splitlines(keepends=True):
        label = _LABEL.match(line)
        if label is not None:
            lines_by_label.setdefault(label[1].decode(), []).append(line[label.end() :])
        if len(lines_by_label) > _MAX_NODES or (label is None and line.strip()):
            return {}
    outputs = {f"task{label}" if label.isdigit() else label: b"".join(lines) for label, lines in lines_by_label.items()}
    is_labelled = all(map(str.isdigit, lines_by_label)) or any(map(_is_object, outputs.values()))
    return outputs if is_labelled else {}


def _is_object(text: bytes) -> bool:
    """True for one complete JSON object."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.MsgspecError, RecursionError):
        return False


def _nodes(raw: bytes) -> list[dict[str, Any]]:
    """Nodes in the output of `kubectl get nodes -o json`; empty for other texts, and for a single node."""
    if b'"apiVersion"' not in raw[:4096] or b'"items"' not in raw:
        return []
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return []
    items = value.get("items") if isinstance(value, dict) else None
    return [item for item in items[:_MAX_NODES] if isinstance(item, dict)] if isinstance(items, list) else []


def _name_of(node: dict[str, Any]) -> str | None:
    metadata = node.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name[:200] if isinstance(name, str) and name else None
