"""Check for unknown extras of frameworks, about which pip only warns before it installs the wheel without them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.utils import canonicalize_name

from cudnn_resolve.errors import IndexUnavailableError, UsageError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.model import Target
from cudnn_resolve.requirement.source import Source
from cudnn_resolve.requirement.target import packages_of
from cudnn_resolve.resolution.open_request import OpenRequest

_PLAIN = re.compile(r"[a-z0-9-]+")


def refuse_unknown_extras(book: Book, request: OpenRequest) -> None:
    """Raise UsageError for an extra that no release of a target's framework has, or that is for another accelerator."""
    for target in (*request.targets, *request.conditional):
        for extra in target.extras:
            _refuse_unknown(book, target, extra, request.source)


def _refuse_unknown(book: Book, target: Target, extra: str, source: Source | None) -> None:
    framework = book.framework(target.framework)
    packages = packages_of(target, book)
    name = target.package or framework.name
    context = target.origin or "--framework"
    if extra in framework.other_accelerators:
        raise UsageError(
            f"`{name}[{extra}]` is for another accelerator; only NVIDIA GPUs are supported",
            code="extra-out-of-scope",
            context=context,
            hint=f"ask for `{name}`, or install `{name}[{extra}]` with pip",
        )
    known = frozenset[str]().union(*(book.extras(package) for package in packages))
    if extra in known or (source is not None and any(extra in _newest_extras(source, package) for package in packages)):
        return
    raise UsageError(
        f"no release of {name} has an extra `{extra[:80]}`", code="unknown-extra", context=context, hint=_hint(name, extra, known)
    )


def _newest_extras(source: Source, package: str) -> frozenset[str]:
    """Extras of the newest release on the indexes; none if its metadata cannot be read."""
    listing = source.listing(package)
    wheels = (file for offer in (listing.offers if listing is not None else ()) for file in offer.files if file.is_wheel)
    newest = next(wheels, None)
    try:
        metadata = source.metadata(package, newest) if newest is not None else None
    except IndexUnavailableError:
        return frozenset()
    return frozenset(map(canonicalize_name, metadata.extras)) if metadata is not None else frozenset()


def _hint(name: str, extra: str, known: Iterable[str]) -> str:
    names = sorted(other for other in known if _PLAIN.fullmatch(other))
    if not names:
        return f"{name} has no extras; remove it"
    from difflib import get_close_matches

    near = get_close_matches(extra[:80], names, n=1)
    return (f"did you mean `{near[0]}`? " if near else "") + f"known: {', '.join(names)}"
