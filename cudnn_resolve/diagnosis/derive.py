"""What follows from several symptoms together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.model import Match
from cudnn_resolve.diagnosis.weigh import Suspect

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book


def features_of(matches: Iterable[Match]) -> frozenset[str]:
    """What the log says of the machine."""
    return frozenset(one.symptom.feature for one in matches if one.symptom.feature)


def derive(found: dict[str, Suspect], matches: list[Match], features: frozenset[str], book: Book) -> dict[str, Suspect]:
    """The suspects with what their fields together say."""
    return found
