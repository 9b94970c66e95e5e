"""Source archives: when one may stand in for a wheel that there is not.

Compiled code from before a Python's release will not build for it: its C API, distutils and the build tools of that day are gone. An
archive of pure Python does, however old it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

RELEASED: Mapping[tuple[int, int], str] = MappingProxyType(
    {
        (3, 6): "2016-12-23",
        (3, 7): "2018-06-27",
        (3, 8): "2019-10-14",
        (3, 9): "2020-10-05",
        (3, 10): "2021-10-04",
        (3, 11): "2022-10-24",
        (3, 12): "2023-10-02",
        (3, 13): "2024-10-07",
        (3, 14): "2025-10-07",
    }
)
"""Day of the final release of each Python. Source: the release schedules, PEP 494, 537, 569, 596, 619, 664, 693, 719 and 745."""


def is_older(uploaded: str | None, python: tuple[int, int] | None) -> bool:
    """True for a file from before a Python, both known; a Python after all of the list counts as the last of it."""
    if uploaded is None or python is None or python < min(RELEASED):
        return False
    return uploaded[:10] < RELEASED[min(python, max(RELEASED))]


def is_compiled(tags: Iterable[str]) -> bool:
    """True where a compressed wheel tag is for a platform, not for any."""
    return any(tag != "sdist" and not tag.endswith("any") for tag in tags)
