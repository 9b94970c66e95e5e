"""Names of hosts: in natural order, and many of them as ranges."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

_NUMBER = re.compile(r"(\d+)")
_LAST_NUMBER = re.compile(r"(.*?)(\d{1,18})(\D*)")


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """Sort key that places `node2` before `node10`."""
    parts = _NUMBER.split(name[:200])
    return tuple((text, int(number or 0)) for text, number in zip(parts[::2], [*parts[1::2], ""], strict=True))


def in_order(hosts: Iterable[str]) -> tuple[str, ...]:
    """Host names in natural order."""
    return tuple(sorted(hosts, key=natural))


def ranges(hosts: Sequence[str]) -> str:
    """Abbreviated list of host names: `node[001-128,130], login1`."""
    numbers_of: dict[tuple[str, str, int], list[int]] = {}
    for host in in_order(hosts):
        match = _LAST_NUMBER.fullmatch(host)
        if match is None:
            numbers_of[host, "", -1] = []
            continue
        head, digits, tail = match.groups()
        numbers_of.setdefault((head, tail, len(digits) if digits[0] == "0" else 0), []).append(int(digits))
    return ", ".join(_range(head, tail, width, numbers) for (head, tail, width), numbers in numbers_of.items())


def _range(head: str, tail: str, width: int, numbers: list[int]) -> str:
    """Names that share head and tail; `width` is that of zero-padded numbers, -1 for a name without a number."""
    if width < 0:
        return head
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), key=lambda item: item[1] - item[0])]
    texts = [f"{run[0]:0{width}d}" if len(run) == 1 else f"{run[0]:0{width}d}-{run[-1]:0{width}d}" for run in runs]
    return f"{head}{texts[0]}{tail}" if len(numbers) == 1 else f"{head}[{','.join(texts)}]{tail}"
