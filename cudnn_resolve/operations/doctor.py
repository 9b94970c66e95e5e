"""`doctor`: findings from a log, from the machine, or from both together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cudnn_resolve.diagnosis.diagnose import diagnose as weigh
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import Diagnosis
from cudnn_resolve.diagnosis.normalize_log import decoded
from cudnn_resolve.errors import ContradictionError, InputError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.files import STDIN, read_log
from cudnn_resolve.listener import SILENT, Listener
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.machine_facts import gather_facts
from cudnn_resolve.operations.options import DoctorRequest
from cudnn_resolve.operations.question import gather_book
from cudnn_resolve.operations.request import request_without_targets
from cudnn_resolve.operations.results import Result, recast

if TYPE_CHECKING:
    from cudnn_resolve.resolution.model import Range

_UNPACKERS = {
    b"\x1f\x8b": "zcat",
    b"BZh91AY&SY": "bzcat",
    b"\xfd7zXZ\0": "xzcat",
    b"\x28\xb5\x2f\xfd": "zstdcat",
    b"PK\x03\x04": "unzip -p",
}
"""Unpacking program by the first bytes of a compressed file."""
_CONTROLS = frozenset(map(chr, (*range(1, 32), 127))) - frozenset("\1\2\4\a\b\t\n\v\f\r\x0e\x0f\x1b")
"""Control characters that no text contains, unlike zeros of a sparse file, cursor movements, and those of prompts and terminals."""


class DoctorResult(Diagnosis, Result, frozen=True, kw_only=True):
    """Result of `doctor`: the findings, most likely cause first."""

    overlays: tuple[str, ...] = ()
    """Remarks on tables that override the shipped ones."""
    ranges: tuple[Range, ...] = ()
    """Versions that the frameworks of the machine allow, with the installed ones, if requested."""

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `doctor --format json`."""
        from cudnn_resolve.report.document import DoctorDocument, document

        return document(DoctorDocument, self)


def diagnose(request: DoctorRequest, listener: Listener = SILENT) -> DoctorResult:
    """Findings, most likely cause first."""
    _refuse_contradictions(request)
    book = gather_book(request)
    if request.framework:  # reports a wrong name now, before the log is read
        from cudnn_resolve.requirement.target import parse_target

        for text in request.framework:
            parse_target(text, book)
    reader = Reader(book.symptoms()).read(_chunks(request.log, listener)) if request.log is not None else None
    facts = None if request.no_facts else _facts(request, book)
    diagnosis = weigh(reader, facts, book, request_without_targets(request))
    if facts is None or not request.ranges:
        return recast(DoctorResult, diagnosis, overlays=book.remarks)
    from cudnn_resolve.operations.verdict import ranges_of_facts

    return recast(DoctorResult, diagnosis, overlays=book.remarks, ranges=ranges_of_facts(facts, book))


def _chunks(path: str, listener: Listener) -> Iterator[bytes]:
    """Read a log in chunks, and tell how much has been read, for a file also how long the rest will take.

    InputError for a compressed or binary file.
    """
    began, read, size = clock.seconds(), 0, 0 if path == STDIN else disk.size_of(path)
    for chunk in read_log(path):
        if not read:
            _refuse_binary(path, chunk[:4096])
        yield chunk
        read += len(chunk)
        rate = read / max(clock.seconds() - began, 0.001)
        left = int(max(size - read, 0) / rate)
        total, time = (f" of {size / 1e6:.0f}", f", {left // 60}:{left % 60:02} left") if size else ("", "")
        listener.tell(f"reading the log: {read / 1e6:.0f}{total} MB, {rate / 1e6:.0f} MB/s{time}")


def _refuse_binary(path: str, head: bytes) -> None:
    unpacker = next((program for magic, program in _UNPACKERS.items() if head.startswith(magic)), None)
    if unpacker:
        hint = f"unpack it first, for example with {unpacker}; `-` reads standard input"
        raise InputError(f"the log {path} is compressed", code="input-encoding", hint=hint)
    text = decoded(head).replace("\0", "")
    if sum(character in _CONTROLS for character in text) > max(8, len(text) // 20):
        raise InputError(f"the log {path} is not text", code="input-encoding", hint="give the text that the program printed")


def _refuse_contradictions(request: DoctorRequest) -> None:
    if request.log is None and request.no_facts:
        raise ContradictionError("--no-facts without a log leaves nothing to judge", hint="name a log, or `-`")
    if request.no_facts and request.facts is not None:
        raise ContradictionError("--no-facts cannot be combined with --facts: it judges the log alone")
    if request.log == "-" and request.facts == "-":
        raise ContradictionError("the log and the facts cannot both come from standard input", hint=None)


def _facts(request: DoctorRequest, book: Book) -> Facts:
    """Facts; for this machine including files overwritten by other wheels, and the notebook kernel."""
    facts = gather_facts(request, book)
    if request.facts is not None or request.given is not None or request.assumptions.elsewhere:
        return facts
    from cudnn_resolve.host.installed_files import with_overwritten
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.operations.damaged_files import stack_packages
    from cudnn_resolve.probe.notebook import with_kernel_paths

    host = LinuxHost()
    facts = with_kernel_paths(host, facts)
    return with_overwritten(host, facts, stack_packages(facts, book))
