"""What a reader should know of where the packages of a plan come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudnn_resolve.planning.model import Warning
from cudnn_resolve.resolution.open_request import opened
from cudnn_resolve.resolution.releases import catalog_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.planning.model import PipAction
    from cudnn_resolve.resolution.model import Resolution
    from cudnn_resolve.resolution.offers import Offers

_NAMED = 3
"""Packages that a warning names one by one."""


def overlay_warnings(book: Book) -> tuple[Warning, ...]:
    """The tables that lie over the shipped ones: whose rows an answer rests on is said in it."""
    return tuple(Warning(code="overlay", message=remark) for remark in book.remarks)


def origin_warnings(resolution: Resolution, book: Book, pip: tuple[PipAction, ...]) -> Iterator[Warning]:
    """Variants whose index does not answer, names that several indexes serve, source archives whose requirements may not be all."""
    changed = {one.name for one in pip if one.action not in ("keep", "remove")}
    for name, why in sorted(resolution.unreached.items()):
        if name in changed:
            yield _unreached(resolution, book, name, why)
    for name, why in sorted(resolution.guessed.items()):
        yield Warning(code="requirements-guessed", message=f"what {name} requires may not be all: {why}")
    yield from _yanked(resolution, changed)
    yield from _same_build(resolution, changed)
    yield from _unmarked(resolution)
    request = opened(resolution.request)
    if request.source is not None:
        offers = catalog_of(book, resolution.machine, request).offers
        yield from _several(resolution, offers, changed)
        yield from _left_out(resolution, offers, changed)


def _yanked(resolution: Resolution, changed: set[str]) -> Iterator[Warning]:
    """Releases that were withdrawn and are taken because somebody pins them."""
    for pin in resolution.pip:
        if pin.name in changed and pin.file is not None and pin.file.yanked is not None:
            why = f": {pin.file.yanked}" if pin.file.yanked else ""
            yield Warning(
                code="yanked", message=f"{pin.name} {pin.version} was withdrawn by its authors{why}; it is taken because it is pinned"
            )


def _same_build(resolution: Resolution, changed: set[str]) -> Iterator[Warning]:
    """Builds that are asked for by their local version and taken from the configured index, which has them under the bare one."""
    for target, build in zip(resolution.request.targets, resolution.builds, strict=True):
        local = next((one.version for one in target.specifier if one.operator in ("==", "===") and "+" in one.version), None)
        if local is not None and "+" not in build.wheel_version and build.index == "default" and build.package in changed:
            yield Warning(
                code="same-build",
                message=f"{target.text} is {build.package} {build.wheel_version} on the configured index, the same build under its bare "
                "version, and is taken from there",
            )


def _unmarked(resolution: Resolution) -> Iterator[Warning]:
    """Frameworks that are asked for and not for this environment."""
    for target in resolution.request.absent:
        yield Warning(code="marker", message=f"{target.text} of {target.origin} is not for this environment: {target.marker}")


def _unreached(resolution: Resolution, book: Book, name: str, why: str) -> Warning:
    pin = next(pin for pin in resolution.pip if pin.name == name)
    address = book.index(pin.index).url if pin.index is not None else "its index"
    remains = resolution.remains
    instead = f"--no-variant-indexes, which gives {remains.result}; " if remains is not None else ""
    return Warning(
        code="index-unreachable",
        message=f"{name} {pin.version} is on {address} alone, which does not answer here ({why}): it is planned from the matrix, without "
        f"its files. What remains: {instead}a network that reaches it, or a mirror named in a row of your own (--matrix)",
    )


def _several(resolution: Resolution, offers: Offers, changed: set[str]) -> Iterator[Warning]:
    """Names of the first index that come from another one: whoever may publish there decides what is installed."""
    found = []
    for pin in resolution.pip:
        origins = offers.origins(pin.name) if pin.name in changed and pin.index is None else ()
        taken = pin.file.origin if pin.file is not None else None
        if len(origins) > 1 and taken is not None and taken != origins[0]:
            found.append(f"{pin.name} {pin.version} from {taken}, which {origins[0]} has, too")
    if found:
        more = f"; and {len(found) - _NAMED} more packages" if len(found) > _NAMED else ""
        yield Warning(
            code="several-indexes",
            message=f"{'; '.join(found[:_NAMED])}{more}: the best version of all indexes wins, whoever offers it; "
            "--index-strategy first-index takes each name from the first index that has it",
        )


def _left_out(resolution: Resolution, offers: Offers, changed: set[str]) -> Iterator[Warning]:
    """What the user's settings left out, in one line."""
    found = [f"{pin.name}: {', '.join(said)}" for pin in resolution.pip if pin.name in changed and (said := offers.left_out(pin.name))]
    if found:
        more = f"; and of {len(found) - _NAMED} more packages" if len(found) > _NAMED else ""
        yield Warning(code="left-out", message=f"left out by your settings: {'; '.join(found[:_NAMED])}{more}")
