"""The source of packages: indexes and files, from the options and the target's configuration."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import InputError, WorldError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host import clock
from cudnn_resolve.host.background import Once
from cudnn_resolve.host.files import absolute
from cudnn_resolve.host.settings import environment
from cudnn_resolve.host.user_folders import cache_folder
from cudnn_resolve.index.address import is_local, is_remote
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.index.read_settings import Options as IndexOptions
from cudnn_resolve.index.read_settings import read_settings
from cudnn_resolve.index.settings import Settings
from cudnn_resolve.listener import Listener
from cudnn_resolve.masking import shown
from cudnn_resolve.operations.options import Options
from cudnn_resolve.operations.request import Requirements, requirements_of
from cudnn_resolve.requirement.file import Reference
from cudnn_resolve.requirement.model import RequirementLine
from cudnn_resolve.requirement.source import Contents, Direct, File

if TYPE_CHECKING:
    from cudnn_resolve.index.session import IndexSession

_RULES = {"first-index": "uv", "best-match": "pip"}


def open_packages(settings: Settings, listener: Listener, *, offline: bool) -> IndexClient:
    """Client for the indexes in the settings."""
    began = clock.seconds()

    def progress(requests: int, received: int, what: str) -> None:
        rate = received / 1e6 / max(clock.seconds() - began, 0.1)
        listener.tell(f"{requests} requests, {received / 1e6:.1f} MB, {rate:.1f} MB/s; waiting for {what}")

    return IndexClient(settings, cache_folder=cache_folder(), offline=offline, progress=progress)


def settings_of(options: Options, requirements: Requirements, facts: Facts) -> Settings:
    """Index settings and credentials from the options, the requirements files, and the target's configuration."""
    path, version = facts.python.path, facts.python.minor
    prefix = os.path.dirname(os.path.dirname(path)) if path and os.path.isabs(path) else None  # None for another machine
    site = (os.path.join(prefix, "lib", f"python{version}", "site-packages"),) if prefix and version else ()
    return read_settings(_index_options(options, requirements), environment(), prefix=prefix, import_path=site)


def _index_options(options: Options, requirements: Requirements) -> IndexOptions:
    """Index options of the command line, which override or extend those in requirements files."""

    def in_files(option: str) -> Iterator[str]:
        return (setting.value for setting in requirements.settings if setting.option == option)

    return IndexOptions(
        index_url=options.index_url or next(in_files("--index-url"), None),
        extra_index_urls=(*options.extra_index_url, *in_files("--extra-index-url")),
        find_links=(*options.find_links, *in_files("--find-links")),
        no_index=any(True for _ in in_files("--no-index")),
        trusted_hosts=tuple(in_files("--trusted-host")),
        rule=_RULES.get(options.index_strategy or ""),
        exclude_newer=options.exclude_newer,
        no_binary=(*options.no_binary, *in_files("--no-binary")),
        only_binary=(*options.only_binary, *in_files("--only-binary")),
    )


def direct_of(requirements: Requirements, source: IndexClient) -> tuple[tuple[Direct, ...], tuple[RequirementLine, ...]]:
    """Read the referenced archives and folders; also return each as a requirement.

    InputError for an unusable one, IndexUnavailableError for one that cannot be downloaded.
    """
    packages, extras = [], []
    for reference in requirements.references:
        package = _direct(reference, source)
        requested = f"[{','.join(reference.extras)}]" if reference.extras else ""
        marker = f"; {reference.marker}" if reference.marker else ""
        packages.append(package)
        extras.append(RequirementLine(text=f"{package.name}{requested}=={package.offer.version}{marker}", origin=reference.origin))
    return tuple(packages), tuple(extras)


def _direct(reference: Reference, source: IndexClient) -> Direct:
    from cudnn_resolve.index.direct import read_direct

    place = reference.place
    scheme = place.partition("://")[0].lower() if "://" in place[:24] else ""
    if scheme not in ("", "http", "https", "file"):
        raise InputError(
            f"{shown(place)} cannot be read: unsupported URL scheme {scheme}",
            code="reference-scheme",
            context=reference.origin,
            hint="name a wheel or source archive by https://… or its path, and a checkout by its folder",
        )
    is_path = not is_remote(place) and not place.startswith("file:")
    where = absolute(place, reference.base) if is_path else place
    try:
        package = read_direct(source, where)
    except InputError as error:
        raise InputError(error.message, code=error.code, context=error.context or reference.origin, hint=error.hint) from None
    if reference.name is not None and canonicalize_name(reference.name) != package.name:
        raise InputError(f"expected `{reference.name}`, found {package.name}", code="reference-name", context=reference.origin)
    return replace(package, editable=reference.editable)


@contextmanager
def fetching(request: Options, facts: Facts, addresses: Iterable[str]) -> Iterator[_Fetcher]:
    """Fetcher for the files at these addresses; it opens a session only when an index is contacted."""
    is_local_only = request.offline or all(map(is_local, addresses))
    fetcher = _Fetcher(None if is_local_only else settings_of(request, requirements_of(request), facts))
    try:
        yield fetcher
    finally:
        fetcher.close()


def _session(settings: Settings) -> IndexSession:
    from cudnn_resolve.index.session import IndexSession

    return IndexSession(settings)


class _Fetcher:
    """Fetches files of indexes, and of local folders, where they need not be copied."""

    def __init__(self, settings: Settings | None) -> None:
        self._session = None if settings is None else Once(lambda: _session(settings))

    @property
    def is_online(self) -> bool:
        """True if indexes may be contacted."""
        return self._session is not None

    def close(self) -> None:
        """Close the connections."""
        if self._session is not None and self._session.was_asked:
            self._session.value().close()

    def members(self, file: File) -> Contents | None:
        """List the contents of a wheel; None if that needs the whole wheel."""
        from cudnn_resolve.execution.fetch import local_members

        if is_local(file.url):
            return local_members(file)
        if self._session is None:
            return None
        from cudnn_resolve.index.remote_wheel import members_of

        return members_of(self._session.value(), file)

    def __call__(self, file: File, folder: str, progress: Callable[[int], None]) -> str:
        """Fetch a file into the folder, and return its path."""
        from cudnn_resolve.execution.fetch import download_local

        if is_local(file.url):
            return download_local(file, folder, progress)
        if self._session is None:
            raise WorldError(f"{file.filename} is not on this disk", code="offline", hint="leave --offline out")
        from cudnn_resolve.index.download import Downloads

        return Downloads(self._session.value()).fetch(file, folder, progress, resume=True)
