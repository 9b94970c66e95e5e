"""`matrix check --live`: compare a sample of rows with the package index.

Rows of three kinds are drawn: releases of a package, builds of a framework on the default index, and evidence, for which small wheels
are read again. Indexes change: releases that were withdrawn and wheels that were added since are reported as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import IndexUnavailableError, WorldError
from cudnn_resolve.evidence.wheel import WheelDamage, summary
from cudnn_resolve.host import clock
from cudnn_resolve.host.link_site import wheel_evidence
from cudnn_resolve.host.settings import environment
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.index.read_settings import Options, own_settings
from cudnn_resolve.listener import SILENT, Listener, pace
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build, Plain, WheelRelease
from cudnn_resolve.matrix.row_fault import Fault, Placed
from cudnn_resolve.matrix.wheel_content import WheelEvidence
from cudnn_resolve.operations.matrix import LiveReport
from cudnn_resolve.requirement.source import File, Offer
from cudnn_resolve.resolution.release import parse_requirement, parse_version

LARGEST_WHEEL_BYTES = 48 << 20
"""Larger wheels are not read again."""
_ARCHITECTURES = ("x86_64", "aarch64")
_ROW_TYPES: dict[str, type[Plain]] = {"wheel": WheelRelease, "framework": Build, "evidence": WheelEvidence}


class _Sample(Struct, frozen=True, kw_only=True):
    """A row, with its package and release."""

    placed: Placed[Any]
    package: str
    version: str
    kind: str
    """A key of `_ROW_TYPES`."""


def open_client(index_url: str | None) -> IndexClient:
    """Client for the named index, or the one configured for this interpreter's pip or uv; it uses no cache."""
    return IndexClient(own_settings(Options(index_url=index_url), environment()))


def compare(book: Book, client: IndexClient, count: int, seed: str, listener: Listener = SILENT) -> LiveReport:
    """Compare `count` rows; the seed and the tables decide which."""
    began = clock.seconds()
    samples = _draw(book, count, random.Random(seed))  # noqa: S311 - a sample
    client.prefetch(dict.fromkeys(sample.package for sample in samples))
    faults: list[Fault] = []
    unread: list[str] = []
    for number, sample in enumerate(samples):
        listener.tell(f"{pace(number, len(samples), 'rows', began)}; {sample.package} {sample.version}")
        try:
            faults.extend(sample.placed.fault("", f"{sample.package} {sample.version}: {text}") for text in _differences(sample, client))
        except (IndexUnavailableError, WorldError, _UnreadError) as error:
            unread.append(f"{sample.package} {sample.version}: {error}")
    return LiveReport(rows=len(samples) - len(unread), faults=tuple(faults), unread=tuple(unread))


class _UnreadError(Exception):
    """A row that could not be compared; the text says why."""


def _draw(book: Book, count: int, dice: random.Random) -> list[_Sample]:
    """Draw rows of the three kinds in turn, first a table, then a row, so that long tables count no more than short ones."""
    kinds = tuple(_ROW_TYPES)
    tables = {kind: sorted(name for name in book.names() if name.startswith(f"{kind}/")) for kind in kinds}
    drawn: dict[tuple[str, int], _Sample] = {}
    for number in range(count * 4):
        if len(drawn) == count:
            break
        kind = kinds[number % 3]
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
        sample = _Sample(placed=placed, package=package, version=version, kind=kind)
        drawn.setdefault((f"{name} {version}", placed.position), sample)
    return list(drawn.values())


def _differences(sample: _Sample, client: IndexClient) -> Iterator[str]:
    listing = client.listing(sample.package)
    if listing is None or not listing.offers:
        if listing is not None and listing.is_partial:
            raise _UnreadError("the index could not be reached")
        yield "the index does not have the package"
        return
    wanted = parse_version(sample.version)
    offer = next((offer for offer in listing.offers if parse_version(offer.version) == wanted), None)
    if offer is None:
        yield "the index does not have the release"
        return
    if sample.kind == "evidence":
        yield from _compare_evidence(sample, offer, client)
        return
    is_yanked = sample.placed.row.yanked
    is_withdrawn = all(file.yanked is not None for file in offer.files)
    if is_withdrawn and not is_yanked:
        yield "the index has withdrawn it, but the row does not say so"
    elif is_yanked and not is_withdrawn:
        yield "the row says that it is withdrawn, but the index does not"
    if sample.kind == "wheel":
        yield from _compare_release(sample, offer, client)


def _compare_release(sample: _Sample, offer: Offer, client: IndexClient) -> Iterator[str]:
    row = sample.placed.row
    on_index = {_plain_specifier(file.requires_python) for file in offer.files} - {""}
    if _plain_specifier(row.requires_python) not in (on_index or {""}):
        yield f"Requires-Python is {row.requires_python or 'empty'} in the row, {' or '.join(sorted(on_index)) or 'empty'} on the index"
    known = {key for tag in row.tags for key in _wheels_of(tag)}
    offered = {key for file in offer.files if file.is_wheel for key in _wheels_of(file.tag)}
    if missing := sorted(known - offered):
        yield f"the index does not have its wheel {missing[0]}"
    if added := sorted(offered - known):
        yield f"the index has a wheel that is not in the row, {added[0]}"
    for arch, requires in (row.requires or {}).items():
        file = _newest_wheel(offer.files, arch)
        metadata = client.metadata(sample.package, file) if file is not None else None
        if metadata is not None and row.requires is not None:
            yield from _compare_requirements(requires, metadata.requires)
            return


def _plain_specifier(text: str | None) -> str:
    try:
        return str(SpecifierSet((text or "").replace(" ", "")))
    except InvalidSpecifier:
        return ""


def _wheels_of(tag: str) -> Iterator[str]:
    """Interpreter, ABI and architecture of each Linux wheel in a compressed tag set."""
    if tag.count("-") != 2:
        return
    interpreters, abis, platforms = tag.split("-")
    for platform in platforms.split("."):
        arch = next((arch for arch in _ARCHITECTURES if platform.endswith(f"_{arch}")), None)
        if platform == "any" or (arch is not None and platform.startswith(("manylinux", "linux"))):
            yield f"{interpreters}-{abis}-{arch or 'any'}"


def _newest_wheel(files: Sequence[File], arch: str) -> File | None:
    """The wheel for the newest Python on an architecture."""

    def rank(file: File) -> tuple[int, ...]:
        digits = file.tag.partition("-")[0].partition(".")[0].lstrip("cpy")
        return (file.tag.endswith(arch), int(digits[:1] or 0), int(digits[1:]) if digits[1:].isdigit() else 0, -len(file.tag.split("-")[1]))

    fitting = [file for file in files if any(key.endswith(("-any", f"-{arch}")) for key in _wheels_of(file.tag)) and file.is_wheel]
    return max(fitting, key=rank, default=None)


def _compare_requirements(row: Iterable[str], metadata: Iterable[str]) -> Iterator[str]:
    """Requirements of only one side, whatever their markers; extras are ignored, since a table holds only some of them."""
    in_row, in_metadata = _without_extras(row), _without_extras(metadata)
    required = {_without_marker(requirement) for requirement in in_metadata if requirement.marker is None}
    only_row = {_without_marker(requirement) for requirement in in_row} - {_without_marker(requirement) for requirement in in_metadata}
    only_metadata = required - {_without_marker(requirement) for requirement in in_row}  # with a marker it may not apply to Linux
    if only_row:
        yield f"the row requires {min(only_row)}, its metadata does not"
    if only_metadata:
        yield f"its metadata requires {min(only_metadata)}, the row does not"


def _without_extras(lines: Iterable[str]) -> list[Requirement]:
    """The valid requirements that do not belong to an extra."""
    requirements = (parse_requirement(line) for line in lines)
    return [one for one in requirements if one is not None and "extra" not in str(one.marker or "")]


def _without_marker(requirement: Requirement) -> str:
    return f"{canonicalize_name(requirement.name)}{requirement.specifier}"


def _compare_evidence(sample: _Sample, offer: Offer, client: IndexClient) -> Iterator[str]:
    row = sample.placed.row
    arch = row.arch[0] if row.arch else _ARCHITECTURES[0]
    file = _newest_wheel(offer.files, arch)
    if file is None:
        yield f"the index has no wheel for {arch}"
        return
    (file,) = client.completed([file])
    if file.size is None or file.size > LARGEST_WHEEL_BYTES:
        why = f"its wheel has {file.size >> 20} MB, too many to read it again" if file.size else "the size of its wheel is unknown"
        raise _UnreadError(why)
    try:
        in_wheel: dict[str, Any] = client.read_downloaded(file, lambda path: summary(wheel_evidence(path)))
    except WheelDamage as error:
        raise _UnreadError(str(error)) from None
    for key in ("cuda", "needs", "frameworks", "same_line", "code"):
        in_row: Any = getattr(row, key)
        if isinstance(in_row, tuple):
            in_row = [str(part) for part in in_row]
        elif key == "cuda" and in_row:
            in_row = str(in_row)
        if (in_row or None) != (in_wheel[key] or None):
            yield f"{key} of {arch} is {in_wheel[key] or 'nothing'} in the wheel, {in_row or 'nothing'} in the row"
