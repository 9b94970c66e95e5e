"""What must not stand in a run of `validate` on a GPU; apart from the runs, so that it is tested where there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
_NARROW_VOLUMES = re.compile(r"computed (partly )?without cuDNN: conv3d/b?float16/\w+(, conv3d/b?float16/\w+)*")


def without_cudnn(used: Sequence[Row]) -> list[Row]:
    """The verdicts on who computed that a whole stack must not have.

    Some releases of PyTorch keep volumes of narrow types from a cuDNN that was slow with them; nothing else may do without.
    """
    return [one for one in used if one["status"] != "passed" and not _NARROW_VOLUMES.fullmatch(str(one["observed"]))]


def not_for_lack_of_memory(checks: Sequence[Row]) -> list[Row]:
    """What failed beside a neighbour that holds the memory of the card, and can have failed for something else only.

    Too little room makes no result wrong, and what needs no card is none the worse for it.
    """
    failed = [one for one in checks if one["status"] == "failed"]
    return [one for one in failed if one["gpu"] is None or "wrong numbers" in one["observed"] or "memory" not in _words(one)]


def _words(check: Row) -> str:
    return f"{check['observed']} {check['detail']}".lower()
