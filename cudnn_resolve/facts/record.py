"""RECORD, the list of the files of an installed package."""

from __future__ import annotations

from collections.abc import Iterator


def record_hash(sha256: bytes) -> str:
    """A digest as RECORD writes it, `sha256=PmNdPHPnQzAvuAS…`."""
    from base64 import urlsafe_b64encode  # most commands hash nothing

    return f"sha256={urlsafe_b64encode(sha256).rstrip(b'=').decode()}"


def record_rows(text: str) -> Iterator[tuple[str, str, int | None]]:
    """Path, hash and size in bytes of each file, as far as they are given; a line that is not CSV ends the list.

    Sample line: `nvidia/cudnn/lib/libcudnn.so.9,sha256=PmNdPHPnQzAvuAS…,104664`. Source: PEP 376 and PEP 427.
    """
    from csv import Error, reader  # most commands read no RECORD

    try:
        for row in reader(text.splitlines()):
            path, digest, size = row if len(row) == 3 else (*row, "", "", "")[:3]
            if path and "\0" not in path:
                yield path, digest, int(size) if size.isdecimal() and len(size) < 16 else None
    except Error:
        return
