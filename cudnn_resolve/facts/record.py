"""RECORD, the list of the files of an installed package, as its wheel brought it."""

from __future__ import annotations

from collections.abc import Iterator


def record_rows(text: str) -> Iterator[tuple[str, str, int | None]]:
    """Path, sum and size in bytes of each file, as far as they are said; what no reader of CSV understands ends the list.

    Sample line: `nvidia/cudnn/lib/libcudnn.so.9,sha256=PmNdPHPnQzAvuAS…,104664`. Source: PEP 376 and PEP 427.
    """
    from csv import Error, reader  # most commands read no such list

    try:
        for row in reader(text.splitlines()):
            path, said, size = row if len(row) == 3 else (*row, "", "", "")[:3]
            if path and "\0" not in path:
                yield path, said, int(size) if size.isdecimal() and len(size) < 16 else None
    except Error:
        return
