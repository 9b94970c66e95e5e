"""Which requirements a Linux machine can be asked for, and how that is said shortest."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from packaging.markers import Marker
from packaging.utils import canonicalize_name

ARCHITECTURES = ("x86_64", "aarch64")


@functools.cache
def on_linux(marker: str, dropped: frozenset[str]) -> str | None:
    """A marker that says the same of the machines in ENVIRONMENTS, shorter if there is one; empty if it always holds, None if never.

    It never holds, too, where only a dropped extra makes it hold.
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
    return next((one for one in shorter if _truths(one, ("", *extras)) == plain), marker)


def _truths(marker: str, extras: Sequence[str]) -> list[bool]:
    """Whether the marker holds, machine by machine, each without an extra and with each of `extras`."""
    if not marker:
        return [True] * (len(ENVIRONMENTS) * len(extras))
    parsed = Marker(marker)
    return [parsed.evaluate({**one, "extra": extra}) for one in ENVIRONMENTS for extra in extras]


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
"""The machines that the program may be asked about: Linux, CPython from 3.6 on."""
