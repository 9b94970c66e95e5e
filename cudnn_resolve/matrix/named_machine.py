"""gpu/place.toml: cloud machine types and other named machines, and the lookup by name."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta

from cudnn_resolve.matrix.column import Count, Driver, Identifier, Line, Text
from cudnn_resolve.matrix.row import Row


class Place(Row, frozen=True, kw_only=True):
    """gpu/place.toml: machine type of a cloud, or another machine that people refer to by name."""

    identity = ("name",)
    name: Text
    match: Annotated[tuple[Text, ...], Meta(min_length=1)]
    """Patterns of its names: `g5.*`."""
    gpu: Text
    """Name of the card."""
    count: Count = 1
    arch: Identifier = "x86_64"
    driver: Driver | None = None
    os: Identifier | None = None
    python: Line | None = None


def find(places: Iterable[Place], name: str) -> Place | None:
    """Return the place with a name such as `g5.xlarge`, ignoring case; None if there is none."""
    folded = name.strip().casefold()
    places = tuple(places)
    for place in places:
        if folded == place.name.casefold():
            return place
    return next((place for place in places if any(fnmatchcase(folded, pattern) for pattern in place.match)), None)
