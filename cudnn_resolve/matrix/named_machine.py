"""gpu/place.toml: machine types of clouds and other places that people name, and which one a name means."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta

from cudnn_resolve.matrix.column import Count, Driver, Identifier, Line, Text
from cudnn_resolve.matrix.row import Row


class Place(Row, frozen=True, kw_only=True):
    """gpu/place.toml: a machine type of a cloud, or another place that people name."""

    identity = ("name",)
    name: Text
    match: Annotated[tuple[Text, ...], Meta(min_length=1)]
    """What a name of it looks like: `g5.*`."""
    gpu: Text
    """Name of the card."""
    count: Count = 1
    arch: Identifier = "x86_64"
    driver: Driver | None = None
    os: Identifier | None = None
    python: Line | None = None


def find(places: Iterable[Place], name: str) -> Place | None:
    """The place of that name, letter case apart: `g5.xlarge`; None for one that is not among them."""
    folded = name.strip().casefold()
    rows = tuple(places)
    named = (one for one in rows if folded == one.name.casefold())
    return next(named, None) or next((one for one in rows if any(fnmatchcase(folded, shape) for shape in one.match)), None)
