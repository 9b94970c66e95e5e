"""Warnings about where the packages of a plan come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudnn_resolve.planning.model import Warning
from cudnn_resolve.resolution.release_catalog import catalog_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.planning.model import PipAction
    from cudnn_resolve.resolution.model import PipPin, Resolution
    from cudnn_resolve.resolution.offers import Offers
    from cudnn_resolve.resolution.open_request import OpenRequest

_MOST_LISTED = 3
"""Packages that a warning names; it counts the others."""


def overlay_warnings(book: Book) -> tuple[Warning, ...]:
    """One warning per table laid over the shipped matrix, because answers may rest on its rows."""
    return tuple(Warning(code="overlay", message=remark) for remark in book.remarks)


def origin_warnings(resolution: Resolution, request: OpenRequest, book: Book, pip: tuple[PipAction, ...]) -> Iterator[Warning]:
    """Warn of unreachable variant indexes, incomplete metadata, withdrawn releases and names that several indexes serve."""
    changed = {action.name for action in pip if action.action not in ("keep", "remove")}
    for name, why in sorted(resolution.unreached.items()):
        if name in changed:
            yield _unreachable(resolution, book, name, why)
    for name, why in sorted(resolution.guessed.items()):
        yield Warning(code="requirements-guessed", message=f"the requirements of {name} may be incomplete: {why}")
    changed_pins = [pin for pin in resolution.pip if pin.name in changed]
    yield from _yanked(changed_pins)
    yield from _same_build(resolution, changed)
    yield from _excluded_by_marker(resolution)
    if request.source is not None:
        offers = catalog_of(book, resolution.machine, request).offers
        yield from _several_indexes(changed_pins, offers)
        yield from _left_out(changed_pins, offers)


def _unreachable(resolution: Resolution, book: Book, name: str, why: str) -> Warning:
    pin = next(pin for pin in resolution.pip if pin.name == name)
    address = book.index(pin.index).url if pin.index is not None else "its index"
    remains = resolution.remains
    fallback = f"--no-variant-indexes, which gives {remains.result}; " if remains is not None else ""
    return Warning(
        code="index-unreachable",
        message=f"{name} {pin.version} is served only by {address}, which does not answer here ({why}): it is planned from the matrix, "
        f"without its files. Alternatives: {fallback}a network that reaches it; or a mirror named in a row of your own (--matrix)",
    )


def _yanked(pins: list[PipPin]) -> Iterator[Warning]:
    """Withdrawn releases that are installed because something pins them."""
    for pin in pins:
        if pin.file is not None and pin.file.yanked is not None:
            why = f": {pin.file.yanked}" if pin.file.yanked else ""
            message = f"{pin.name} {pin.version} was withdrawn by its authors{why}; it is installed because it is pinned"
            yield Warning(code="yanked", message=message)


def _same_build(resolution: Resolution, changed: set[str]) -> Iterator[Warning]:
    """Builds that are requested by local version and come from the configured index, which serves them under the bare version."""
    for target, build in zip(resolution.request.targets, resolution.builds, strict=True):
        pins = (specifier.version for specifier in target.specifier if specifier.operator in ("==", "===") and "+" in specifier.version)
        is_bare = "+" not in build.wheel_version and build.index == "default"
        if next(pins, None) is not None and is_bare and build.package in changed:
            yield Warning(
                code="same-build",
                message=f"{target.text} is {build.package} {build.wheel_version} on the configured index: the same build under its bare "
                "version, and installed from there",
            )


def _excluded_by_marker(resolution: Resolution) -> Iterator[Warning]:
    """Requested frameworks whose markers exclude this environment."""
    for target in resolution.request.absent:
        yield Warning(code="marker", message=f"{target.text} from {target.origin} does not apply to this environment: {target.marker}")


def _several_indexes(pins: list[PipPin], offers: Offers) -> Iterator[Warning]:
    """Packages taken from another index than the first that serves their name: publishing there decides what is installed."""
    found = []
    for pin in pins:
        origins = offers.origins(pin.name) if pin.index is None else ()
        origin = pin.file.origin if pin.file is not None else None
        if len(origins) > 1 and origin is not None and origin != origins[0]:
            found.append(f"{pin.name} {pin.version} comes from {origin} although {origins[0]} serves {pin.name}, too")
    if found:
        more = f"; and {len(found) - _MOST_LISTED} more packages" if len(found) > _MOST_LISTED else ""
        yield Warning(
            code="several-indexes",
            message=f"{'; '.join(found[:_MOST_LISTED])}{more}: the best version across all indexes wins; "
            "--index-strategy first-index takes each package from the first index that serves it",
        )


def _left_out(pins: list[PipPin], offers: Offers) -> Iterator[Warning]:
    """Releases that the user's settings exclude, in one warning."""
    found = [f"{pin.name}: {', '.join(texts)}" for pin in pins if (texts := offers.left_out(pin.name))]
    if found:
        more = f"; and of {len(found) - _MOST_LISTED} more packages" if len(found) > _MOST_LISTED else ""
        yield Warning(code="left-out", message=f"excluded by your settings: {'; '.join(found[:_MOST_LISTED])}{more}")
