"""What a resolution asks of package indexes, and the values that come back; the room `index/` answers.

A resolution is given its source, which does all the reading: the resolution itself stays without effects.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field


class Place(Struct, frozen=True):
    """An index that the matrix names for a variant, and its form."""

    url: str
    kind: str
    """`simple`: an index in the usual form; `find-links`: one page of links."""


class File(Struct, frozen=True):
    """One file of a release, as an index, a folder or a direct reference offers it."""

    filename: str = field(name="name")
    url: str
    """Where it is, without credentials: an address or a `file://` one."""
    hashes: Mapping[str, str]
    """Algorithm to hexadecimal digest; empty where the index gives none."""
    size: int | None = None
    """Bytes."""
    requires_python: str | None = None
    yanked: str | None = None
    """The reason for its withdrawal, perhaps empty; None = it is not withdrawn."""
    uploaded: str | None = None
    """ISO 8601 time of its upload, in UTC."""
    origin: str | None = None
    """Address of the index that lists it, without credentials; None for a folder or a direct reference."""
    metadata: Mapping[str, str] | None = None
    """Hashes of the METADATA file that is served beside it (PEP 658), perhaps empty; None = not served."""

    @property
    def is_wheel(self) -> bool:
        """True for a wheel; anything else that is offered is a source archive."""
        return self.filename.endswith(".whl")

    @property
    def tag(self) -> str:
        """Its compressed tags, `cp311-cp311-manylinux_2_28_x86_64`; `sdist` for a source archive."""
        if not self.is_wheel:
            return "sdist"
        parts = self.filename[:-4].rsplit("-", 3)
        return "-".join(parts[1:]) if len(parts) == 4 else "unknown-none-unknown"


class Contents(Struct, frozen=True, kw_only=True):
    """What a wheel would lay down, known before it is unpacked."""

    names: tuple[str, ...]
    """Its members, folders left out."""
    unpacked: int
    """Bytes."""
    programs: tuple[str, ...] = ()
    """Its `entry_points.txt`, one for each there is."""
    checksums: tuple[int, ...] = ()
    """The CRC-32 of each member."""
    links: tuple[str, ...] = ()
    """Members that are symbolic links."""


class Offer:
    """One release of a package on the indexes; compared by identity."""

    __slots__ = ("_files", "version")

    def __init__(self, version: str, files: tuple[File, ...] | Callable[[], tuple[File, ...]]) -> None:
        self.version = version
        """As its files write it; PEP 440."""
        self._files = files

    @property
    def files(self) -> tuple[File, ...]:
        """Its files, decoded when they are first looked at: most releases of a long page never are."""
        if not isinstance(self._files, tuple):
            self._files = self._files()
        return self._files


class Listing(Struct, frozen=True, kw_only=True, eq=False):
    """Every release of a package that the indexes offer and the user's settings admit."""

    name: str
    offers: Sequence[Offer]
    """Newest first, by PEP 440; may be worked out as it is walked through. Empty where no index has the package."""
    is_partial: bool = False
    """True where an index could not be asked, offline, and the cache knows nothing of it either: it may offer more."""
    only_prereleases: bool = False
    """True where there is no final release among them."""
    origins: tuple[str, ...] = ()
    """Addresses of the indexes that have it, where the best version of several wins."""
    left_out: tuple[str, ...] = ()
    """What settings left out, in words: `12 releases newer than 2024-01-01`."""


class Metadata(Struct, frozen=True):
    """What one file says of itself."""

    requires: tuple[str, ...]
    """Requires-Dist lines."""
    requires_python: str | None
    extras: tuple[str, ...]
    """Names of its extras."""
    guessed: str | None = None
    """Why this may not be all, in words: for a source archive whose build could change it."""


class DirectUrl(Struct, frozen=True, kw_only=True):
    """The one place of his own that a user takes a package from: an archive at an address, or a project's folder."""

    url: str
    """The address as it was given, without credentials; `file://` for a folder."""
    folder: str | None = None
    """Path of a project's folder, None for an archive."""
    editable: bool = False


class Direct(DirectUrl, frozen=True, kw_only=True, eq=False):
    """A package that the user takes from one place of his own, and what is there."""

    name: str
    """Normalized."""
    offer: Offer
    """The one release that is there; a folder has no files."""
    metadata: Metadata

    @property
    def place(self) -> DirectUrl:
        """The place alone."""
        return DirectUrl(url=self.url, folder=self.folder, editable=self.editable)


class Source(Protocol):
    """Package indexes, asked by a resolution."""

    offline: bool
    """True where only the cache answers."""
    notes: list[str]
    """What was noticed on the way, for the user."""

    @property
    def exclude_newer(self) -> str | None:
        """The time in ISO 8601 from which on uploads do not count; None for no limit."""

    def listing(self, name: str, place: Place | None = None) -> Listing | None:
        """What the configured indexes offer of a package (its normalized name), or the one index at `place`.

        None where that is not known: offline, and nothing about it in the cache. `IndexUnavailableError` where an index does not answer.
        """

    def metadata(self, name: str, file: File) -> Metadata | None:
        """What a file says of itself; None where that is not known: offline, and not in the cache."""

    def expect(self, names: Iterable[str]) -> None:
        """Starts to ask for packages that will be needed; returns at once."""

    def expect_metadata(self, name: str, file: File) -> None:
        """Starts to ask for the metadata of a file; returns at once."""

    def completed(self, files: Sequence[File]) -> list[File]:
        """The files with sizes and hashes that their index does not give, as far as they can be had without downloading anything."""
