"""What comes after a failure: a program that went on, and one that came to a good end, has outlived it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.weigh import Suspect, summary_of
from cudnn_resolve.record import replace

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Match
    from cudnn_resolve.matrix.symptom import Cause

_END, _EPOCH, _WORKS = "context-good-end", "context-epoch", "gpu-works"
_IN_USE = frozenset({"out_of_memory", "bad_input", "hardware_fault"})
"""Causes whose failures come from a GPU that is in use: a program that goes on after them did not merely do without it."""
_EPOCHS = 3
"""So many lines of further epochs show that a training goes on; one may be of another rank, or be what was about to fail."""
_SURE = 0.6


def outlived(
    ranked: Iterable[Suspect], latest: Mapping[str, Sequence[Match]], features: frozenset[str], causes: Mapping[str, Cause]
) -> list[Suspect]:
    """The suspects, those after whose last line the program went on with less weight and severity, and with the line that shows it.

    Where the log does not show that a GPU is at work nothing is taken from a GPU that was not found: that program went on without it.
    """
    out = []
    for one in ranked:
        last = max(latest[match.symptom.id][-1].line for match in (*one.matches, *one.effects))
        used = _WORKS in features or one.cause in _IN_USE
        end = next((match for match in latest.get(_END, ()) if match.line > last), None)
        epochs = [match for match in latest.get(_EPOCH, ()) if match.line > last]
        if not used or (end is None and len(epochs) < _EPOCHS):
            out.append(one)
            continue
        shown = end or epochs[-1]
        how = "the program came to a good end" if end else "the training goes on"
        said = f"{summary_of(one, causes[one.cause])}; yet after it {how} (line {shown.line})"
        severity = "info" if end and _WORKS in features else "warning"
        weight = min(one.weight, 100 * _SURE)
        out.append(replace(one, summary=said, weight=weight, severity=severity, effects=(*one.effects, shown)))
    return out
