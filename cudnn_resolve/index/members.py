"""The files in a wheel, out of its directory, and its programs: what would be written, before anything is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudnn_resolve.index.refusal import Refusal
from cudnn_resolve.index.transport import Transport
from cudnn_resolve.index.wheel import LARGEST_DIRECTORY, TAIL_BYTES, Part, WheelError, read_contents
from cudnn_resolve.requirement.source import Contents

if TYPE_CHECKING:
    from cudnn_resolve.requirement.source import File


def members_of(file: File, transport: Transport) -> Contents | None:
    """What is in the wheel; None where its server gives no parts of files, or the wheel is damaged."""
    try:
        answer = transport.ask(file.url, {"Range": f"bytes=-{TAIL_BYTES}"}, limit=TAIL_BYTES, wanted=TAIL_BYTES)
        total = answer.headers.get("content-range", "").rpartition("/")[2]
        if answer.status != 206 or not (total.isascii() and total.isdigit() and len(total) < 16):
            return None
        part = Part(int(total), answer.body, lambda start, count: _read(file, transport, start, count))
        return read_contents(part)
    except (Refusal, WheelError):
        return None


def _read(file: File, transport: Transport, start: int, count: int) -> bytes:
    if count > LARGEST_DIRECTORY:
        raise WheelError("has a directory of unbelievable size")
    part = transport.ask(file.url, {"Range": f"bytes={start}-{start + count - 1}"}, limit=count, wanted=count)
    if part.status != 206 or len(part.body) != count:
        raise WheelError("gives another part than was asked for")
    return part.body
