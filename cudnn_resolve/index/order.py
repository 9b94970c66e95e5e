"""Versions in the order of PEP 440, for thousands of them at once: nearly all are numbers and dots, and need no parser."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_PLAIN = re.compile(r"\d+(?:\.\d+)*")
_FINAL = ((1, "", 0), -1, (1, 0), ())
"""What stands behind the release of a final version: no pre-release, no post-release, no development release, no local part."""

Key = tuple[Any, ...]


def sort_key(version: str) -> Key:
    """A key by which versions are ordered, and equal where PEP 440 says so; ValueError for what is none."""
    if _PLAIN.fullmatch(version):
        return (0, _stripped([int(part) for part in version.split(".")]), *_FINAL)
    from packaging.version import Version

    parsed = Version(version)
    if parsed.pre is not None:
        pre: tuple[int, str, int] = (0, *parsed.pre)
    else:  # 1.0.dev1 comes before 1.0a1, 1.0 and 1.0.post1.dev1 after it
        pre = (-1, "", 0) if parsed.post is None and parsed.dev is not None else (1, "", 0)
    post = -1 if parsed.post is None else parsed.post
    dev = (1, 0) if parsed.dev is None else (0, parsed.dev)
    local = tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parsed.local.split(".")) if parsed.local else ()
    return (parsed.epoch, _stripped(list(parsed.release)), pre, post, dev, local)


def newest_first(versions: Iterable[str]) -> list[list[str]]:
    """The spellings of each version, newest version first; what is no version is left out."""
    grouped: dict[Key, list[str]] = {}
    for text in versions:
        try:
            grouped.setdefault(sort_key(text), []).append(text)
        except ValueError:  # noqa: PERF203 - raised for hardly any
            continue
    return [grouped[key] for key in sorted(grouped, reverse=True)]


def _stripped(numbers: list[int]) -> tuple[int, ...]:
    """The numbers of a release without the zeros at its end, which say nothing."""
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
