"""`doctor`: from a log, from the machine, or from both together to the findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cudnn_resolve.diagnosis.diagnose import diagnose as weigh
from cudnn_resolve.diagnosis.log_form import decoded
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import Diagnosis
from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.files import STDIN, read_log
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.listener import SILENT, Listener
from cudnn_resolve.operations.machine_facts import gather_facts
from cudnn_resolve.operations.options import DoctorRequest
from cudnn_resolve.operations.question import gather_book
from cudnn_resolve.operations.request import request_without_targets
from cudnn_resolve.operations.results import Result, recast

if TYPE_CHECKING:
    from cudnn_resolve.resolution.model import Range

_PACKED = {b"\x1f\x8b": "zcat", b"BZh91AY&SY": "bzcat", b"\xfd7zXZ\0": "xzcat", b"\x28\xb5\x2f\xfd": "zstdcat", b"PK\x03\x04": "unzip -p"}
"""How a file begins that is packed, and what unpacks it."""
_CONTROLS = frozenset(map(chr, (*range(1, 32), 127))) - frozenset("\1\2\4\a\b\t\n\v\f\r\x0e\x0f\x1b")
"""Characters that no text has, apart from the zeros of a hole, what moves a cursor and what prompts and terminals write."""


class DoctorResult(Diagnosis, Result, frozen=True, kw_only=True):
    """What `doctor` returns: the findings, the most likely cause first."""

    overlays: tuple[str, ...] = ()
    """Tables that lie over the shipped ones, in words."""
    ranges: tuple[Range, ...] = ()
    """Where they are asked for: what the frameworks of the machine allow, with what is there."""

    def to_json(self) -> dict[str, Any]:
        """The object that `doctor --format json` prints."""
        from cudnn_resolve.report.document import DoctorDocument, document

        return document(DoctorDocument, self)


def diagnose(request: DoctorRequest, listener: Listener = SILENT) -> DoctorResult:
    """The findings, the most likely cause first."""
    _refuse_contradictions(request)
    book = gather_book(request)
    if request.framework:  # a wrong name is said at once
        from cudnn_resolve.requirement.derive import parse_target

        for text in request.framework:
            parse_target(text, book)
    reader = Reader(book.symptoms()).read(_followed(request.log, _text_of(request.log), listener)) if request.log is not None else None
    facts = None if request.no_facts else _facts(request, book)
    found = weigh(reader, facts, book, request_without_targets(request))
    if facts is None or not request.ranges:
        return recast(DoctorResult, found, overlays=book.remarks)
    from cudnn_resolve.operations.verdict import ranges_of_facts

    return recast(DoctorResult, found, overlays=book.remarks, ranges=ranges_of_facts(facts, book))


def _text_of(path: str) -> Iterator[bytes]:
    """The pieces of a log; InputError for what is packed or no text, of which nothing could be said."""
    for number, piece in enumerate(read_log(path)):
        if not number:
            _refuse_no_text(path, piece[:4096])
        yield piece


def _refuse_no_text(path: str, head: bytes) -> None:
    unpacks = next((tool for magic, tool in _PACKED.items() if head.startswith(magic)), None)
    if unpacks:
        raise InputError(
            f"the log {path} is packed", code="input-encoding", hint=f"unpack it first, as with {unpacks}; `-` reads standard input"
        )
    text = decoded(head).replace("\0", "")
    if sum(one in _CONTROLS for one in text) > max(8, len(text) // 20):
        raise InputError(f"the log {path} is not text", code="input-encoding", hint="give the text that the program printed")


def _followed(path: str, pieces: Iterable[bytes], listener: Listener) -> Iterator[bytes]:
    """The pieces of a log; who waits for a long one hears how much is read and, of a file, how long the rest will take."""
    began, read, size = clock.seconds(), 0, 0 if path == STDIN else disk.size_of(path)
    for piece in pieces:
        yield piece
        read += len(piece)
        rate = read / max(clock.seconds() - began, 0.001)
        left = int(max(size - read, 0) / rate)
        of, rest = (f" of {size / 1e6:.0f}", f", {left // 60}:{left % 60:02} left") if size else ("", "")
        listener.tell(f"reading the log: {read / 1e6:.0f}{of} MB, {rate / 1e6:.0f} MB/s{rest}")


def _refuse_contradictions(request: DoctorRequest) -> None:
    if request.log is None and request.no_facts:
        raise UsageError("--no-facts without a log leaves nothing to judge", code="usage-contradiction", hint="name a log, or `-`")
    if request.no_facts and request.facts is not None:
        raise UsageError(
            "--no-facts judges the log alone, and --facts names the machine that it is of",
            code="usage-contradiction",
            hint="leave one of them out",
        )
    if request.log == "-" and request.facts == "-":
        raise UsageError("the log and the facts cannot both come from standard input", code="usage-contradiction")


def _facts(request: DoctorRequest, book: Book) -> Facts:
    """The facts; of this machine with a look at wheels that share files, and at the notebook's kernel."""
    facts = gather_facts(request, book)
    if request.facts is not None or request.given is not None or request.assumptions.elsewhere:
        return facts
    from cudnn_resolve.host.installed_files import with_overwritten
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.operations.damage import stack_packages
    from cudnn_resolve.probe.notebook import with_kernel_paths

    host = LinuxHost()
    facts = with_kernel_paths(host, facts)
    return with_overwritten(host, facts, stack_packages(facts, book))
