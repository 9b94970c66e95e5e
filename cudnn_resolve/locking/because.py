"""Why a version was chosen, as far as an entry of a lock says it: wishes, and rules of the matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudnn_resolve.resolution.model import PipPin, Reason, Resolution

_LINE = re.compile(r"^(asked for in .*):\d+$")


def reasons(pin: PipPin, resolution: Resolution) -> Iterator[str]:
    """Why a pin has its version; what other packages merely declare is left out, for their own metadata says it."""
    asked = resolution.pins.get(f"framework:{pin.build.framework}") if pin.build is not None else None
    for reason in asked.reasons if asked is not None else ():
        yield _told(reason)
    for reason in pin.reasons:
        if pin.build is not None and reason.parent_name == f"framework:{pin.build.framework}":
            continue  # that the wheel of a build is the wheel of that build
        if not reason.obeyed or _is_declared(reason):
            continue  # pins that are left are among the overrides
        yield _told(reason)


def _is_declared(reason: Reason) -> bool:
    """True where a package requires this in so many words, or in an extra that is not installed."""
    return reason.because.endswith(f" requires {reason.text}") or not reason.binding or reason.declared is not None


def _told(reason: Reason) -> str:
    """The reason without what changes without meaning, such as the number of a line in a file."""
    because = _LINE.sub(r"\1", reason.because)
    if because.startswith("asked for"):
        return f"{reason.text}, {because}"
    return f"{reason.text}: {because}"
