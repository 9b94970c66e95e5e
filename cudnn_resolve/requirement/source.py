"""Interface to package indexes and the values it returns; `index/` implements it.

A resolution is given a source, which does all the reading; the resolution itself has no side effects.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field


class IndexLocation(Struct, frozen=True):
    """An index that the matrix names for a variant."""

    url: str
    kind: str
    """`simple`: an index with the simple API; `find-links`: a single page of links."""


class File(Struct, frozen=True):
    """A file of a release, from an index, a folder or a direct reference."""

    filename: str = field(name="name")
    url: str
    """URL without credentials; `file://` for a local file."""
    hashes: Mapping[str, str]
    """Algorithm to hexadecimal digest; empty if the index gives none."""
    size: int | None = None
    """Bytes."""
    requires_python: str | None = None
    yanked: str | None = None
    """Reason for yanking, possibly empty; None = not yanked."""
    uploaded: str | None = None
    """ISO 8601 time of the upload, in UTC."""
    origin: str | None = None
    """URL of the index that lists it, without credentials; None for a folder or a direct reference."""
    metadata: Mapping[str, str] | None = None
    """Hashes of the separately served METADATA file (PEP 658), possibly empty; None = not served."""

    @property
    def is_wheel(self) -> bool:
        """True for a wheel, False for a source archive."""
        return self.filename.endswith(".whl")

    @property
    def tag(self) -> str:
        """Compressed tag set, `cp311-cp311-manylinux_2_28_x86_64`; `sdist` for a source archive."""
        if not self.is_wheel:
            return "sdist"
        parts = self.filename[:-4].rsplit("-", 3)
        return "-".join(parts[1:]) if len(parts) == 4 else "unknown-none-unknown"


class Contents(Struct, frozen=True, kw_only=True):
    """Contents of a wheel, read before it is unpacked."""

    names: tuple[str, ...]
    """Members, without folders."""
    unpacked: int
    """Unpacked size in bytes."""
    programs: str = ""
    """Text of its `entry_points.txt`."""
    checksums: tuple[int, ...] = ()
    """CRC-32 of each member."""
    links: tuple[str, ...] = ()
    """Members that are symbolic links."""


class Offer:
    """A release of a package on the indexes; compared by identity."""

    __slots__ = ("_files", "version")

    def __init__(self, version: str, files: tuple[File, ...] | Callable[[], tuple[File, ...]]) -> None:
        self.version = version
        """PEP 440 version as its files spell it."""
        self._files = files

    @property
    def files(self) -> tuple[File, ...]:
        """Files of the release, decoded on first use: most releases of a long page are never used."""
        if not isinstance(self._files, tuple):
            self._files = self._files()
        return self._files


class Listing(Struct, frozen=True, kw_only=True, eq=False):
    """Every release of a package that the indexes offer and the user's settings allow."""

    name: str
    offers: Sequence[Offer]
    """Newest first, by PEP 440. Empty if no index has the package."""
    is_partial: bool = False
    """True if, offline, an index is not in the cache: it may offer more."""
    only_prereleases: bool = False
    """True if there is no final release."""
    origins: tuple[str, ...] = ()
    """URLs of the indexes that have the package, if the best version of several indexes wins."""
    left_out: tuple[str, ...] = ()
    """Descriptions of what settings excluded: `12 releases newer than 2024-01-01`."""


class Metadata(Struct, frozen=True):
    """Metadata of a file."""

    requires: tuple[str, ...]
    """Requires-Dist lines."""
    requires_python: str | None
    extras: tuple[str, ...]
    """Provided extras."""
    guessed: str | None = None
    """Why this may be incomplete: the build of a source archive could change it."""


class DirectUrl(Struct, frozen=True, kw_only=True):
    """Location of a direct reference: the URL of an archive, or the folder of a project."""

    url: str
    """URL as given, without credentials; `file://` for a folder."""
    folder: str | None = None
    """Path of the project's folder; None for an archive."""
    editable: bool = False


class Direct(DirectUrl, frozen=True, kw_only=True, eq=False):
    """A direct reference and the release found there."""

    name: str
    """Normalized."""
    offer: Offer
    """The release; a folder has no files."""
    metadata: Metadata

    @property
    def place(self) -> DirectUrl:
        """The location alone."""
        return DirectUrl(url=self.url, folder=self.folder, editable=self.editable)


class Source(Protocol):
    """Package indexes."""

    offline: bool
    """True to answer from the cache alone."""
    notes: list[str]
    """Notes for the user."""

    @property
    def exclude_newer(self) -> str | None:
        """ISO 8601 time from which on uploads are ignored; None = no limit."""

    def listing(self, name: str, place: IndexLocation | None = None) -> Listing | None:
        """Releases of a package (normalized name) on the configured indexes, or on the index at `place`.

        None if unknown: offline, and not in the cache. `IndexUnavailableError` if an index does not answer.
        """

    def metadata(self, name: str, file: File) -> Metadata | None:
        """Metadata of a file; None if unknown: offline, and not in the cache."""

    def prefetch(self, names: Iterable[str]) -> None:
        """Start to request the pages of packages; return at once."""

    def prefetch_metadata(self, name: str, file: File) -> None:
        """Start to request the metadata of a file; return at once."""

    def completed(self, files: Sequence[File]) -> list[File]:
        """Add sizes and hashes that the index does not give, as far as that takes no download."""
