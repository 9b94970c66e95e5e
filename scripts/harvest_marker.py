"""Markers of requirements reduced to what matters on Linux."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from packaging.markers import Marker
from packaging.utils import canonicalize_name

ARCHITECTURES = ("x86_64", "aarch64")


@functools.cache
def on_linux(marker: str, dropped: frozenset[str]) -> str | None:
    """Return an equivalent marker for the machines in ENVIRONMENTS, shorter if possible; "" if it always holds, None if never.

    A marker that only a dropped extra satisfies counts as never.
    """
    named = re.findall(r"""extra\s*[=!]=\s*["']([^"']+)["']|["']([^"']+)["']\s*[=!]=\s*extra""", marker)
    extras = sorted({canonicalize_name(extra) for pair in named for extra in pair if extra} - dropped)
    plain = _truths(marker, ("", *extras))
    if not any(plain):
        return None
    machines = ["", *(f'platform_machine == "{arch}"' for arch in ARCHITECTURES)]
    shorter = [
        " and ".join(filter(None, (machine, f'extra == "{extra}"' if extra else ""))) for extra in ("", *extras) for machine in machines
    ]
    return next((candidate for candidate in shorter if _truths(candidate, ("", *extras)) == plain), marker)


def _truths(marker: str, extras: Sequence[str]) -> list[bool]:
    """Evaluate the marker on each machine with each of the extras."""
    if not marker:
        return [True] * (len(ENVIRONMENTS) * len(extras))
    parsed = Marker(marker)
    return [parsed.evaluate({**machine, "extra": extra}) for machine in ENVIRONMENTS for extra in extras]


ENVIRONMENTS: tuple[dict[str, str], ...] = tuple(
    {
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": arch,
        "platform_release": "6.1.0",
        "platform_version": "",
        "python_version": f"3.{minor}",
        "python_full_version": f"3.{minor}.{micro}",
        "implementation_name": "cpython",
        "implementation_version": f"3.{minor}.{micro}",
        "platform_python_implementation": "CPython",
    }
    for arch in ARCHITECTURES
    for minor in range(6, 21)
    for micro in (0, 1, 4, 99)
)
"""Supported machines: Linux, CPython from 3.6 on."""
