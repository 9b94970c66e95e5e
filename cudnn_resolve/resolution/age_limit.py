"""Age limit: a release years older than its frameworks is no way out of a conflict.

Releases from before bounds were written down allow any framework: vLLM 0.2.5 of 2023 allows every PyTorch. A package requested by its
bare name is meant as it is today, so such a release is chosen only if the user names it, or next to frameworks of its time, or next to
another package that the user limits to a release of that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date

from packaging.utils import canonicalize_name

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.model import Target
from cudnn_resolve.requirement.source import Source
from cudnn_resolve.resolution.candidate import Need, PipCandidate
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.key import pip_key
from cudnn_resolve.resolution.model import PipPin, Resolution
from cudnn_resolve.resolution.package import python_need
from cudnn_resolve.resolution.release import Release, parse_requirement, parse_specifier, parse_version

_BEHIND_NEWEST_DAYS = 365
"""A release this close to the newest one is never too old; some packages are seldom released."""
_BEHIND_FRAMEWORKS_DAYS = 2 * 365


def age_needs(context: Context, newest: Callable[[Target], Build | None]) -> Iterator[Need]:
    """For each package requested by its bare name, the need for a release of its frameworks' time.

    `newest` returns the first build that a target accepts and the machine allows.
    """
    names = list(_bare_names(context))
    builds = [newest(target) for target in context.request.targets] if names else []
    required = {
        canonicalize_name(requirement.name) for build in builds if build is not None for requirement, _ in context.requirements_of(build)
    }
    dates = _build_dates(context.book, builds)
    if not dates:
        return
    reference = min([*dates, *_limited_dates(context)])
    for name in names:
        if name not in required:  # a framework's own bound can mean an older release: TensorFlow 2.10 needs the gast of 2020
            yield _age_need(context, name, reference)


def years_old(resolution: Resolution, source: Source, book: Book) -> Iterator[str]:
    """Unbounded packages of a plan that are years older than the frameworks, although the index has newer ones for the Python.

    The age limit covers packages requested by their bare names; packages that only others require may be old if no newer release fits.
    """
    dates = _build_dates(book, resolution.builds)
    for pin in resolution.pip if dates else ():
        uploaded = _parse_date(pin.file.uploaded) if pin.file is not None else None
        is_new = pin.build is None and resolution.machine.pip.get(pin.name) != pin.version
        if is_new and uploaded is not None and (min(dates) - uploaded).days > _BEHIND_FRAMEWORKS_DAYS and not _is_bounded(pin):
            newest = _newest_upload(source, pin.name, resolution.machine.python_full)
            if newest is not None and (newest - uploaded).days > _BEHIND_NEWEST_DAYS:
                yield f"{pin.name} {pin.version} of {uploaded:%Y-%m}"


def _is_bounded(pin: PipPin) -> bool:
    """True if a requirement excludes newer releases, or may do so."""
    requirements = [parse_requirement(reason.text) for reason in pin.reasons if not reason.restates]
    return any(
        requirement is None or any(part.operator not in (">=", ">", "!=") for part in requirement.specifier) for requirement in requirements
    )


def _newest_upload(source: Source, name: str, python: str | None) -> date | None:
    """Upload date of the newest final release for a Python; None if no index gives it."""
    try:
        listing = source.listing(name)
    except IndexUnavailableError:
        return None
    for offer in listing.offers if listing is not None else ():
        version = parse_version(offer.version)
        if version is None or version.is_prerelease:
            continue
        files = [file for file in offer.files if file.yanked is None and file.uploaded]
        specifiers = (parse_specifier(file.requires_python or "") for file in files)
        if any(python is None or specifier is None or specifier.contains(python) for specifier in specifiers):
            return _parse_date(files[0].uploaded)
    return None


def _limited_dates(context: Context) -> Iterator[date]:
    """Dates of the newest releases that the user allows, of packages with a newer one."""
    for line in context.request.requirements:
        specifier = line.requirement.specifier
        if not specifier or not context.metadata.applies(line.requirement):
            continue
        if line.name in context.request.direct or context.book.framework_of(line.name) is not None:
            continue
        releases = list(_final_releases(context, line.name))
        newest = next((release for release in releases if specifier.contains(release.version)), None)
        released = _release_date(context.book, newest) if newest is not None and newest is not releases[0] else None
        if released is not None:
            yield released


def _age_need(context: Context, name: str, reference: date) -> Need:
    newest = next((release for release in _final_releases(context, name) if python_need(context, release, name) is None), None)
    newest_date = _release_date(context.book, newest) if newest is not None else None

    def test(candidate: PipCandidate) -> bool:
        if candidate.release is None or newest_date is None:
            return True
        released = _release_date(context.book, candidate.release)
        if released is None or (newest_date - released).days <= _BEHIND_NEWEST_DAYS:
            return True
        return (reference - released).days <= _BEHIND_FRAMEWORKS_DAYS

    because = f"a release years older than its frameworks is used only on request, as `{name}==VERSION`"
    return Need(pip_key(name), test, f"{name} at most two years older than {reference:%Y-%m}", because)


def _final_releases(context: Context, name: str) -> Iterator[Release]:
    """Final releases of a package that are not yanked, newest first."""
    return (release for release in context.releases.of(name) if not release.version.is_prerelease and not release.details.yanked)


def _bare_names(context: Context) -> Iterator[str]:
    """Packages requested without a version, for a request whose frameworks are neither installed nor locked."""
    fixed = {*context.machine.pip, *context.request.preferences, *context.request.direct, *context.constraints}
    if any(name in fixed for target in context.request.targets for name in context.book.framework(target.framework).packages):
        return
    is_bare: dict[str, bool] = {}
    for line in context.request.requirements:
        if context.metadata.applies(line.requirement):
            is_bare[line.name] = is_bare.get(line.name, True) and not line.requirement.specifier and not line.requirement.url
    yield from (name for name, bare in is_bare.items() if bare and name not in fixed and context.book.framework_of(name) is None)


def _release_date(book: Book, release: Release) -> date | None:
    """Upload date from the index, otherwise from the tables."""
    uploaded = next((file.uploaded for file in release.offer.files if file.uploaded), None) if release.offer is not None else None
    return _parse_date(uploaded) or _table_date(book, release.package, release.text.partition("+")[0])


def _build_dates(book: Book, builds: Sequence[Build | None]) -> list[date]:
    """Dates of builds; none unless all are known."""
    known = (_parse_date(build.date) or _table_date(book, build.package, build.version) for build in builds if build is not None)
    dates = [released for released in known if released is not None]
    return dates if len(dates) == len(builds) else []


def _table_date(book: Book, package: str, version: str) -> date | None:
    row = book.release(package, version)
    return _parse_date(row.date) if row is not None else None


def _parse_date(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text[:10]) if text else None
    except ValueError:
        return None
