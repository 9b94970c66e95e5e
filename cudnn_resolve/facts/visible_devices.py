"""Which GPUs `CUDA_VISIBLE_DEVICES` leaves visible."""

from __future__ import annotations

import re
from collections.abc import Sequence

_INDEX = re.compile(r"\s*(-?\d+)")


def visible_devices(value: str, uuids: Sequence[str | None], instances: Sequence[Sequence[str]] = ()) -> tuple[bool, ...]:
    """For each GPU, is it visible under that value of the variable; `instances` are the UUIDs of each GPU's MIG instances.

    Indices and UUIDs or their unique beginnings (`GPU-5a8d`, `MIG-…`) in a comma-separated list; the first entry that names no
    device ends it, an entry named twice leaves nothing visible, and the empty text hides all. Indices count in the order in which
    `uuids` come, which is CUDA's own only under CUDA_DEVICE_ORDER=PCI_BUS_ID or on equal cards.
    Source: CUDA C++ Programming Guide, CUDA environment variables.
    """
    chosen: list[int] = []
    named: list[str] = []
    for entry in value.split(","):
        index = _position(entry.strip(), uuids, instances)
        if index is None:
            break
        word = entry.strip().lower() if not entry.strip()[:1].isdigit() else str(index)
        if word in named:
            return (False,) * len(uuids)
        named.append(word)
        chosen.append(index)
    return tuple(index in chosen for index in range(len(uuids)))


def _position(entry: str, uuids: Sequence[str | None], instances: Sequence[Sequence[str]]) -> int | None:
    """The GPU that one entry names, or None."""
    number = _INDEX.match(entry)
    if number:
        index = int(number[1])
        return index if 0 <= index < len(uuids) else None
    if entry.upper().startswith("GPU-"):
        fits = [index for index, uuid in enumerate(uuids) if uuid and uuid.lower().startswith(entry.lower())]
        return fits[0] if len(fits) == 1 else None
    if entry.upper().startswith("MIG-GPU-"):  # before R470: MIG-GPU-<uuid>/<instance>/<compute instance>
        return _position(entry[4:].partition("/")[0], uuids, ())
    if entry.upper().startswith("MIG-"):
        fits = [index for index, inner in enumerate(instances) if any(one.lower().startswith(entry.lower()) for one in inner)]
        return fits[0] if len(fits) == 1 else None
    return None
