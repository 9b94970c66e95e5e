"""A release years older than what it is put beside is no way out of a conflict.

Releases of before bounds were written down allow any framework: vLLM 0.2.5 of 2023 takes every PyTorch. A package that is asked for by
its bare name is meant as it is today, so that such a release is taken only by a user who names it, or beside frameworks of its time, or
beside another package that the user holds to a release of that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.resolution.candidate import Need
from cudnn_resolve.resolution.key import pip_key
from cudnn_resolve.resolution.open_request import opened
from cudnn_resolve.resolution.package import python_need
from cudnn_resolve.resolution.release import parse_requirement, parse_version, specifier

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.model import Target
    from cudnn_resolve.requirement.source import Source
    from cudnn_resolve.resolution.candidate import PipCandidate
    from cudnn_resolve.resolution.context import Context
    from cudnn_resolve.resolution.model import PipPin, Resolution
    from cudnn_resolve.resolution.release import Release

_PASSED_OVER_DAYS = 365
"""So much newer is the newest release for the Python; a package that is seldom released is not meant."""
_APART_DAYS = 2 * 365
"""So much newer are the frameworks."""


def age_needs(context: Context, newest: Callable[[Target], Build | None]) -> Iterator[Need]:
    """For each package that is asked for by its bare name, the need for a release of the time of its frameworks.

    `newest` gives the first build that a target accepts and the machine allows.
    """
    names = list(_bare(context))
    frameworks = [newest(target) for target in context.request.targets] if names else []
    required = {canonicalize_name(one.name) for build in frameworks if build is not None for one, _ in context.requirements_of(build)}
    days = [day for build in frameworks if build is not None and (day := _built(context.book, build)) is not None]
    if not days or len(days) < len(frameworks):
        return
    beside = min([*days, *_held(context)])
    for name in names:
        if name not in required:  # a framework's own bound says of what time it is meant: TensorFlow 2.10 wants the gast of 2020
            yield _need(context, name, beside)


def years_old(resolution: Resolution, book: Book) -> Iterator[str]:
    """Packages of a plan that nobody bounds and that are years older than the frameworks, although the index has newer ones for the Python.

    What is asked for by its bare name is of its time; what only others require may not be, where no newer release fits the rest.
    """
    source, days = opened(resolution.request).source, [_built(book, build) for build in resolution.builds]
    known = [day for day in days if day is not None]
    if source is None or not known or len(known) < len(days):
        return
    for pin in resolution.pip:
        day = _read(pin.file.uploaded) if pin.file is not None else None
        comes = pin.build is None and resolution.machine.pip.get(pin.name) != pin.version
        if comes and day is not None and (min(known) - day).days > _APART_DAYS and not _is_bounded(pin):
            newest = _newest(source, pin.name, resolution.machine.python_full)
            if newest is not None and (newest - day).days > _PASSED_OVER_DAYS:
                yield f"{pin.name} {pin.version} of {day:%Y-%m}"


def _is_bounded(pin: PipPin) -> bool:
    """True where a requirement keeps newer releases out, or may do so."""
    bounds = [parse_requirement(reason.text) for reason in pin.reasons if " is that " not in reason.because]
    return any(one is None or any(part.operator not in (">=", ">", "!=") for part in one.specifier) for one in bounds)


def _newest(source: Source, name: str, python: str | None) -> date | None:
    """The day of the newest final release for a Python; None where no index says it."""
    try:
        listing = source.listing(name)
    except IndexUnavailableError:
        return None
    for offer in listing.offers if listing is not None else ():
        version = parse_version(offer.version)
        if version is None or version.is_prerelease:
            continue
        files = [one for one in offer.files if one.yanked is None and one.uploaded]
        if any(python is None or (spec := specifier(one.requires_python or "")) is None or spec.contains(python) for one in files):
            return _read(files[0].uploaded)
    return None


def _held(context: Context) -> Iterator[date]:
    """Days of the newest releases that the user admits of packages of which there is a newer one."""
    for extra in context.request.requirements:
        one = parse_requirement(extra.text)
        name = canonicalize_name(one.name) if one is not None and one.specifier and context.metadata.applies(extra.text) else None
        if one is None or name is None or name in context.request.direct or context.book.framework_of(name) is not None:
            continue
        releases = list(_usable(context, name))
        newest = next((other for other in releases if one.specifier.contains(other.version)), None)
        day = _day(context.book, newest) if newest is not None and newest is not releases[0] else None
        if day is not None:
            yield day


def _need(context: Context, name: str, beside: date) -> Need:
    newest = next((one for one in _usable(context, name) if python_need(context, one, name) is None), None)
    last = _day(context.book, newest) if newest is not None else None

    def test(other: PipCandidate) -> bool:
        day = _day(context.book, other.release) if other.release is not None and last is not None else None
        return day is None or last is None or (last - day).days <= _PASSED_OVER_DAYS or (beside - day).days <= _APART_DAYS

    because = f"a release years older than the frameworks beside it is taken only where it is asked for, as `{name}==VERSION`"
    return Need(pip_key(name), test, f"{name} of no more than two years before {beside:%Y-%m}", because)


def _usable(context: Context, name: str) -> Iterator[Release]:
    """The final releases of a package that were not withdrawn, newest first."""
    return (one for one in context.releases.of(name) if not one.version.is_prerelease and not one.yanked)


def _bare(context: Context) -> Iterator[str]:
    """Packages that the user names without a release, where neither they nor a framework are installed or locked."""
    there = {*context.machine.pip, *context.request.preferences, *context.request.direct, *context.constraints}
    if any(name in there for target in context.request.targets for name in context.book.framework(target.framework).packages):
        return
    asked: dict[str, bool] = {}
    for extra in context.request.requirements:
        one = parse_requirement(extra.text)
        if one is not None and context.metadata.applies(extra.text):
            name = canonicalize_name(one.name)
            asked[name] = asked.get(name, True) and not one.specifier and not one.url
    yield from (name for name, bare in asked.items() if bare and name not in there and context.book.framework_of(name) is None)


def _day(book: Book, release: Release) -> date | None:
    """The day of upload, as the index says it, else the tables."""
    said = next((file.uploaded for file in release.offer.files if file.uploaded), None) if release.offer is not None else None
    return _read(said) or _in_table(book, release.package, release.text.partition("+")[0])


def _built(book: Book, build: Build) -> date | None:
    return _read(build.date) or _in_table(book, build.package, build.version)


def _in_table(book: Book, package: str, version: str) -> date | None:
    row = book.release(package, version)
    return _read(row.date) if row is not None else None


def _read(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text[:10]) if text else None
    except ValueError:
        return None
