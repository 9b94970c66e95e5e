"""`matrix check --live`: a sample of rows held against what the package index says today.

Rows of three kinds are drawn: releases of a package, builds of a framework on the default index, and evidence, for which the wheel is
read again where it is small. An index goes on: a release that was withdrawn since, and a wheel that was added, are told as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import IndexUnavailableError, WorldError
from cudnn_resolve.evidence.wheel import WheelDamage, summary
from cudnn_resolve.host import clock
from cudnn_resolve.host.libraries import wheel_evidence
from cudnn_resolve.host.settings import environment
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.index.config import Options, own_settings
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.position import Fault, Placed
from cudnn_resolve.matrix.row import Build, Plain, WheelRelease
from cudnn_resolve.matrix.wheel_content import WheelEvidence
from cudnn_resolve.operations.listener import SILENT, Listener, pace
from cudnn_resolve.operations.matrix import LiveReport
from cudnn_resolve.requirement.source import File, Offer
from cudnn_resolve.resolution.release import parse_version

LARGEST_WHEEL_BYTES = 48 << 20
"""Wheels beyond are not read again."""
_ARCHITECTURES = ("x86_64", "aarch64")
_ROW_TYPES: dict[str, type[Plain]] = {"wheel": WheelRelease, "framework": Build, "evidence": WheelEvidence}


class _Drawn(Struct, frozen=True, kw_only=True):
    """A row, and the package and release that it speaks of."""

    placed: Placed[Any]
    package: str
    version: str
    compare: Callable[[_Drawn, Offer, IndexClient], Iterator[str]]


def open_client(index_url: str | None) -> IndexClient:
    """The index that is named, or that this interpreter's pip or uv is configured for; what it says is never taken from a cache."""
    return IndexClient(own_settings(Options(index_url=index_url), environment()))


def compare(book: Book, client: IndexClient, count: int, seed: str, listener: Listener = SILENT) -> LiveReport:
    """Compare `count` rows; the same ones for a seed and the same tables."""
    began = clock.seconds()
    drawn = _draw(book, count, random.Random(seed))  # noqa: S311 - a sample
    client.expect(dict.fromkeys(one.package for one in drawn))
    faults: list[Fault] = []
    unread: list[str] = []

    for number, one in enumerate(drawn):
        listener.tell(f"{pace(number, len(drawn), 'rows', began)}; {one.package} {one.version}")
        try:
            faults.extend(one.placed.fault("", f"{one.package} {one.version}: {text}") for text in _differences(one, client))
        except (IndexUnavailableError, WorldError, _UnreadError) as error:
            unread.append(f"{one.package} {one.version}: {error}")
    return LiveReport(rows=len(drawn) - len(unread), faults=tuple(faults), unread=tuple(unread))


class _UnreadError(Exception):
    """A wheel that was not read; the text says why."""


def _draw(book: Book, count: int, dice: random.Random) -> list[_Drawn]:
    """Rows of the three kinds in turn, each from a table drawn before, so that a long table counts no more than a short one."""
    tables = {kind: sorted(name for name in book.names() if name.startswith(f"{kind}/")) for kind in ("wheel", "framework", "evidence")}
    drawn: dict[tuple[str, int], _Drawn] = {}
    for number in range(count * 4):
        if len(drawn) == count:
            break
        kind = ("wheel", "framework", "evidence")[number % 3]
        if not tables[kind]:
            continue
        name = dice.choice(tables[kind])
        package = name.partition("/")[2]
        rows = book.placed(_ROW_TYPES[kind], package)
        if not rows:
            continue
        placed: Placed[Any] = dice.choice(rows)
        if kind == "framework":
            if placed.row.index != "default":
                continue
            package = placed.row.package or book.framework(package).packages[0]
        row = placed.row
        version = row.version if kind != "framework" else row.wheel_version or row.version
        if isinstance(version, tuple):
            version = dice.choice(version)
        how = {"wheel": _release, "framework": _build, "evidence": _evidence}[kind]
        drawn.setdefault((f"{name} {version}", placed.position), _Drawn(placed=placed, package=package, version=version, compare=how))
    return list(drawn.values())


def _differences(one: _Drawn, client: IndexClient) -> Iterator[str]:
    listing = client.listing(one.package)
    if listing is None or not listing.offers:
        if listing is not None and listing.is_partial:
            raise _UnreadError("the index could not be asked")
        yield "the index does not have the package"
        return
    wanted = parse_version(one.version)
    offer = next((offer for offer in listing.offers if parse_version(offer.version) == wanted), None)
    if offer is None:
        yield "the index does not have the release"
        return
    yield from one.compare(one, offer, client)


def _build(one: _Drawn, offer: Offer, client: IndexClient) -> Iterator[str]:  # noqa: ARG001 - as the others
    yield from _withdrawal(offer, said=one.placed.row.yanked)


def _withdrawal(offer: Offer, *, said: bool) -> Iterator[str]:
    withdrawn = all(file.yanked is not None for file in offer.files)
    if withdrawn != said:
        yield (
            "the index has withdrawn it, the row does not say so" if withdrawn else "the row says that it is withdrawn, the index does not"
        )


def _release(one: _Drawn, offer: Offer, client: IndexClient) -> Iterator[str]:
    row = one.placed.row
    yield from _withdrawal(offer, said=row.yanked)
    said = {_plain_specifier(file.requires_python) for file in offer.files} - {""}
    if _plain_specifier(row.requires_python) not in (said or {""}):
        yield f"Requires-Python is {row.requires_python or 'empty'} in the row, {' or '.join(sorted(said)) or 'empty'} on the index"
    known = {key for tag in row.tags for key in _wheels_of(tag)}
    there = {key for file in offer.files if file.is_wheel for key in _wheels_of(file.tag)}
    if missing := sorted(known - there):
        yield f"the index does not have its wheel {missing[0]}"
    if added := sorted(there - known):
        yield f"the index has a wheel that the row does not know, {added[0]}"
    for arch, requires in (row.requires or {}).items():
        file = _speaker(offer.files, arch)
        stated = client.metadata(one.package, file) if file is not None else None
        if stated is not None and row.requires is not None:
            yield from _requirements(requires, stated.requires)
            return


def _plain_specifier(text: str | None) -> str:
    try:
        return str(SpecifierSet((text or "").replace(" ", "")))
    except InvalidSpecifier:
        return ""


def _wheels_of(tag: str) -> Iterator[str]:
    """Interpreter, ABI and architecture of each wheel for Linux that a compressed tag stands for."""
    if tag.count("-") != 2:
        return
    interpreters, abis, platforms = tag.split("-")
    for platform in platforms.split("."):
        arch = next((arch for arch in _ARCHITECTURES if platform.endswith(f"_{arch}")), None)
        if platform == "any" or (arch is not None and platform.startswith(("manylinux", "linux"))):
            yield f"{interpreters}-{abis}-{arch or 'any'}"


def _speaker(files: Sequence[File], arch: str) -> File | None:
    """The wheel of the newest Python for an architecture."""

    def rank(file: File) -> tuple[int, ...]:
        digits = file.tag.partition("-")[0].partition(".")[0].lstrip("cpy")
        return (file.tag.endswith(arch), int(digits[:1] or 0), int(digits[1:]) if digits[1:].isdigit() else 0, -len(file.tag.split("-")[1]))

    served = [file for file in files if any(key.endswith(("-any", f"-{arch}")) for key in _wheels_of(file.tag)) and file.is_wheel]
    return max(served, key=rank, default=None)


def _requirements(row: Iterable[str], metadata: Iterable[str]) -> Iterator[str]:
    """What only one of them requires, whatever its marker; those with an extra are not looked at, for a table keeps some of them only."""
    known, stated = _without_extras(row), _without_extras(metadata)
    if more := sorted(known - stated):
        yield f"the row requires {more[0]}, its metadata does not"
    if more := sorted({one for one in stated - known if not _is_marked(one, metadata)}):
        yield f"its metadata requires {more[0]}, the row does not"


def _without_extras(lines: Iterable[str]) -> set[str]:
    return {_plain(one) for line in lines if (one := _parsed(line)) is not None and "extra" not in str(one.marker or "")}


def _is_marked(plain: str, lines: Iterable[str]) -> bool:
    """True where each line that says it has a marker: a table leaves out what no Linux needs."""
    return all(one.marker is not None for line in lines if (one := _parsed(line)) is not None and _plain(one) == plain)


def _plain(one: Requirement) -> str:
    return f"{canonicalize_name(one.name)}{one.specifier}"


def _parsed(line: str) -> Requirement | None:
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


def _evidence(one: _Drawn, offer: Offer, client: IndexClient) -> Iterator[str]:
    row = one.placed.row
    arch = row.arch[0] if row.arch else _ARCHITECTURES[0]
    file = _speaker(offer.files, arch)
    if file is None:
        yield f"the index has no wheel for {arch}"
        return
    (file,) = client.completed([file])
    if file.size is None or file.size > LARGEST_WHEEL_BYTES:
        raise _UnreadError(
            f"its wheel has {(file.size or 0) >> 20} MB and is not read again" if file.size else "the size of its wheel is not known"
        )
    try:
        found: dict[str, Any] = client.read_downloaded(file, lambda path: summary(wheel_evidence(path)))
    except WheelDamage as error:
        raise _UnreadError(str(error)) from None
    for key in ("cuda", "needs", "frameworks", "same_line", "code"):
        kept = getattr(row, key)
        plain: Any = [str(part) for part in kept] if isinstance(kept, tuple) else str(kept) if key == "cuda" and kept else kept
        if (plain or None) != (found[key] or None):
            yield f"{key} of {arch} is {found[key] or 'nothing'} in the wheel, {plain or 'nothing'} in the row"
