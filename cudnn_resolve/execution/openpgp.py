"""Which keys a keyring file holds; enough of OpenPGP (RFC 4880, sections 4.2 and 12.2) to know one again, and no more."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator

_PUBLIC_KEY, _PUBLIC_SUBKEY = 6, 14


def key_ids(content: bytes) -> tuple[str, ...]:
    """The last eight digits of each primary key, upper case; empty for what is no keyring to its end. Text in armour is read, too.

    A key of another version than 4 is one, too: its name here is `other`.
    """
    found = []
    try:
        for block in _blocks(content):
            at = 0
            for tag, body, after in _spans(block):
                at = after
                if tag == _PUBLIC_KEY:
                    found.append(_fingerprint(body)[-8:] if body[:1] == b"\x04" else "other")
            if at != len(block):  # what follows might be a key
                return ()
    except (IndexError, ValueError, binascii.Error):
        return ()
    return tuple(found)


def without_key(content: bytes, end: str) -> bytes:
    """A keyring less the keys whose fingerprint ends so, with everything that belongs to them; the rest byte for byte."""
    kept, leaves, at = bytearray(), False, 0
    for tag, body, after in _spans(content):
        if tag == _PUBLIC_KEY:
            leaves = body[:1] == b"\x04" and _fingerprint(body).endswith(end)
        if not leaves:
            kept += content[at:after]
        at = after
    return bytes(kept) + content[at:]


def _blocks(content: bytes) -> Iterator[bytes]:
    """The keyring as it is, or each of its blocks in armour without that."""
    if not content.lstrip().startswith(b"-----BEGIN PGP"):
        yield content
        return
    for part in content.split(b"-----BEGIN PGP")[1:]:
        lines = [line.strip() for line in part.splitlines()[1:]]
        begin = lines.index(b"") if b"" in lines else 0  # headers end with an empty line
        end = next((at for at, line in enumerate(lines) if line.startswith(b"-----END")), len(lines))
        yield base64.b64decode(b"".join(line for line in lines[begin:end] if not line.startswith(b"=")))


def _spans(content: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Tag and body of each packet, and where it ends."""
    at = 0
    while at < len(content):
        head = content[at]
        if not head & 0x80:
            return
        if head & 0x40:
            tag, first = head & 0x3F, content[at + 1]
            if first < 192:
                size, start = first, at + 2
            elif first < 224:
                size, start = ((first - 192) << 8) + content[at + 2] + 192, at + 3
            elif first == 255:
                size, start = int.from_bytes(content[at + 2 : at + 6], "big"), at + 6
            else:
                return
        else:
            tag, width = (head >> 2) & 0x0F, head & 3
            if width == 3:
                return
            count = (1, 2, 4)[width]
            size, start = int.from_bytes(content[at + 1 : at + 1 + count], "big"), at + 1 + count
        at = start + size
        yield tag, content[start:at], at


def _fingerprint(body: bytes) -> str:
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()  # noqa: S324 - what OpenPGP fixes for version 4
