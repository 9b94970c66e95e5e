"""Where packages come from: options and the target's configuration to a source of packages."""

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
from cudnn_resolve.index.config import Options as IndexOptions
from cudnn_resolve.index.config import read_settings
from cudnn_resolve.index.settings import Settings
from cudnn_resolve.masking import shown
from cudnn_resolve.operations.listener import Listener
from cudnn_resolve.operations.options import Options
from cudnn_resolve.operations.request import Wishes, wishes_of
from cudnn_resolve.requirement.file import Reference
from cudnn_resolve.requirement.model import RequirementLine
from cudnn_resolve.requirement.source import Contents, Direct, File

if TYPE_CHECKING:
    from cudnn_resolve.index.session import IndexSession

_RULES = {"first-index": "uv", "best-match": "pip"}


def open_packages(settings: Settings, listener: Listener, *, offline: bool) -> IndexClient:
    """The indexes of the settings."""
    began = clock.seconds()

    def progress(requests: int, received: int, what: str) -> None:
        rate = received / 1e6 / max(clock.seconds() - began, 0.1)
        listener.tell(f"{requests} requests, {received / 1e6:.1f} MB, {rate:.1f} MB/s; waiting for {what}")

    return IndexClient(settings, cache_folder=cache_folder(), offline=offline, progress=progress)


def settings_of(options: Options, wishes: Wishes, facts: Facts) -> Settings:
    """Where packages come from, and with which credentials: what the options, the files and the target's configuration say."""
    path, version = facts.python.path, ".".join((facts.python.version or "").split(".")[:2])
    prefix = os.path.dirname(os.path.dirname(path)) if path and os.path.isabs(path) else None  # None for a machine elsewhere
    site = (os.path.join(prefix, "lib", f"python{version}", "site-packages"),) if prefix and version else ()
    return read_settings(_said(options, wishes), environment(), prefix=prefix, import_path=site)


def _said(options: Options, wishes: Wishes) -> IndexOptions:
    """What the command line says, and below it what requirements files say."""

    def of(option: str) -> Iterator[str]:
        return (one.value for one in wishes.settings if one.option == option)

    return IndexOptions(
        index_url=options.index_url or next(of("--index-url"), None),
        extra_index_urls=(*options.extra_index_url, *of("--extra-index-url")),
        find_links=(*options.find_links, *of("--find-links")),
        no_index=any(True for _ in of("--no-index")),
        trusted_hosts=tuple(of("--trusted-host")),
        rule=_RULES.get(options.index_strategy or ""),
        exclude_newer=options.exclude_newer,
        no_binary=(*options.no_binary, *of("--no-binary")),
        only_binary=(*options.only_binary, *of("--only-binary")),
    )


def direct_of(wishes: Wishes, source: IndexClient) -> tuple[tuple[Direct, ...], tuple[RequirementLine, ...]]:
    """What is behind the archives and folders that the wishes name, and the requirement that each of them is.

    InputError for one that cannot be used, IndexUnavailableError for one that cannot be had.
    """
    found, extras = [], []
    for reference in wishes.references:
        one = _direct(reference, source)
        inside = f"[{','.join(reference.extras)}]" if reference.extras else ""
        marker = f"; {reference.marker}" if reference.marker else ""
        found.append(one)
        extras.append(RequirementLine(text=f"{one.name}{inside}=={one.offer.version}{marker}", origin=reference.origin))
    return tuple(found), tuple(extras)


def _direct(reference: Reference, source: IndexClient) -> Direct:
    from cudnn_resolve.index.direct import read_direct

    place = reference.place
    scheme = place.partition("://")[0].lower() if "://" in place[:24] else ""
    if scheme not in ("", "http", "https", "file"):
        raise InputError(
            f"{shown(place)} cannot be read: {scheme} is no way to a wheel or an archive",
            code="reference-scheme",
            context=reference.origin,
            hint="name a wheel or a source archive by https://… or by its path; a checkout by its folder",
        )
    local = not is_remote(place) and not place.startswith("file:")
    where = absolute(place, reference.base) if local else place
    try:
        read = read_direct(source, where)
    except InputError as error:
        raise InputError(error.message, code=error.code, context=error.context or reference.origin, hint=error.hint) from None
    if reference.name is not None and canonicalize_name(reference.name) != read.name:
        raise InputError(f"`{reference.name}` is asked for, and {read.name} is there", code="reference-name", context=reference.origin)
    return replace(read, editable=reference.editable)


@contextmanager
def fetching(request: Options, facts: Facts, addresses: Iterable[str]) -> Iterator[_Fetching]:
    """How what is behind these addresses is fetched while this lasts; a session is paid for once something is asked of an index."""
    none = request.offline or all(map(is_local, addresses))
    found = _Fetching(None if none else settings_of(request, wishes_of(request), facts))
    try:
        yield found
    finally:
        found.close()


def _session(settings: Settings) -> IndexSession:
    from cudnn_resolve.index.session import IndexSession

    return IndexSession(settings)


class _Fetching:
    """Files of indexes, and of folders on this disk, which need not be copied."""

    def __init__(self, settings: Settings | None) -> None:
        self._session = None if settings is None else Once(lambda: _session(settings))

    @property
    def is_online(self) -> bool:
        """True where indexes may be asked."""
        return self._session is not None

    def close(self) -> None:
        """Close the connections."""
        if self._session is not None and self._session.was_asked:
            self._session.value().close()

    def members(self, file: File) -> Contents | None:
        """What is in a wheel; None where they cannot be had without the wheel."""
        from cudnn_resolve.execution.fetch import local_members

        if is_local(file.url):
            return local_members(file)
        if self._session is None:
            return None
        from cudnn_resolve.index.remote_wheel import members_of

        return members_of(self._session.value(), file)

    def __call__(self, file: File, folder: str, progress: Callable[[int], None]) -> str:
        """The path of the file in the folder."""
        from cudnn_resolve.execution.fetch import download_local

        if is_local(file.url):
            return download_local(file, folder, progress)
        if self._session is None:
            raise WorldError(f"{file.filename} is not on this disk", code="offline", hint="leave --offline out")
        from cudnn_resolve.index.download import Downloads

        before = 0

        def told(name: str, there: int, total: int | None) -> None:
            nonlocal before
            del name, total
            progress(there - before)
            before = there

        return Downloads(self._session.value()).fetch(file, folder, told, resume=True)
