"""Parse pages of package indexes, HTML and JSON, and group their files by version; files are decoded on demand.

Sources: PEP 503 (HTML), 592 (yanked), 658 and 714 (metadata beside the file), 691 (JSON), 700 (size, upload time).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from html import unescape
from html.parser import HTMLParser
from itertools import islice
from typing import Annotated, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from cudnn_resolve.index import address
from cudnn_resolve.index.filename import newest_first, projects_in, version_in
from cudnn_resolve.masking import shown
from cudnn_resolve.requirement.source import File

T = TypeVar("T")
HTML = "html"
FILES = "files"
MOST_FILES = 200_000
"""Bound on the files of one page; the longest known pages, of nightly builds, have a quarter of that."""
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"

_DIGEST_SIZES = {"md5": 32, "sha1": 40, "sha224": 56, "sha256": 64, "sha384": 96, "sha512": 128, "blake2b": 128}
_HEX = re.compile(r"[0-9a-f]+")


class PageError(ValueError):
    """A page that cannot be read."""


class Page(Struct, frozen=True, kw_only=True):
    """Files of one package on one page."""

    form: str
    """Encoding of the blocks: `HTML` anchors, or `FILES` in JSON, as an index lists them."""
    base: str
    """Base URL of relative links, without credentials."""
    versions: list[str]
    """PEP 440 versions, newest first, each once."""
    blocks: list[memoryview]
    """The files of each version, undecoded: in a page from the cache, parts of its entry, of which most are never looked at."""


class PageFile(Struct, rename="kebab", omit_defaults=True):
    """A file as a JSON page lists it."""

    filename: str
    url: str
    hashes: dict[str, str] = {}
    requires_python: str | None = None
    size: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] | None = None
    yanked: bool | str | None = None
    upload_time: str | None = None
    core_metadata: bool | dict[str, str] | None = None
    dist_info_metadata: bool | dict[str, str] | None = None


class _Meta(Struct, rename="kebab", frozen=True):
    api_version: str = "1.0"


class _JsonPage(Struct):
    files: list[msgspec.Raw]
    meta: msgspec.Raw = msgspec.Raw(b"{}")


class _Name(Struct):
    """The fields without which a file is unusable."""

    filename: str
    url: str


_JSON = msgspec.json.Decoder(_JsonPage)
_NAME = msgspec.json.Decoder(_Name)
_FILES = msgspec.json.Decoder(list[PageFile])
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_page(body: bytes, kind: str, base: str, name: str) -> Page:
    """Files of a package on a page with URL `base` and media type `kind`; raise PageError if it is not a page."""
    if "json" in kind.lower():
        return page_of_files(_read_json(body), base, name)
    return LinkPage(body, base).of(name)


def page_of_files(files: Iterable[tuple[str, bytes | msgspec.Raw]], base: str, name: str) -> Page:
    """Page with those of the files, given by name and as JSON, that belong to a package."""
    groups = grouped(files, name)
    return Page(form=FILES, base=base, versions=list(groups), blocks=[memoryview(b"[%b]" % b",".join(group)) for group in groups.values()])


def files_of(page: Page, number: int, origin: str | None) -> tuple[File, ...]:
    """Files of the version at index `number` of `page.versions`; `origin` is the URL of the index."""
    block = page.blocks[number]
    listed = html_files(bytes(block)) if page.form == HTML else _json_files(block)
    return tuple(file for entry in listed if (file := _file(entry, page.base, origin)))


def _file(listed: PageFile, base: str, origin: str | None) -> File | None:
    try:
        url = address.joined(base, listed.url)
    except ValueError:
        return None
    core = listed.core_metadata if listed.core_metadata is not None else listed.dist_info_metadata
    yanked = listed.yanked
    return File(
        listed.filename,
        url,
        _hashes(listed.hashes),
        listed.size,
        listed.requires_python or None,
        yanked if isinstance(yanked, str) else "" if yanked else None,
        listed.upload_time or None,
        origin,
        _hashes(core) if isinstance(core, dict) else {} if core else None,
    )


def grouped(files: Iterable[tuple[str, T]], name: str) -> dict[str, list[T]]:
    """Files of each version of a package, newest first; files without a version are dropped."""
    groups: dict[str, list[T]] = {}
    for filename, file in files:
        version = version_in(filename, name)
        if version is not None:
            groups.setdefault(version, []).append(file)
    return {same[0]: [file for text in same for file in groups[text]] for same in newest_first(groups)}


def _read_json(body: bytes) -> Iterator[tuple[str, msgspec.Raw]]:
    """Name and text of each file that a JSON page lists; most files are never decoded further."""
    try:
        page = _JSON.decode(body)
    except msgspec.ValidationError:
        raise PageError("is JSON without a list of files") from None
    except _UNDECODABLE:
        raise PageError("is not JSON") from None
    if len(page.files) > MOST_FILES:
        raise PageError(f"lists more than {MOST_FILES} files")
    try:
        version = msgspec.json.decode(page.meta, type=_Meta).api_version
    except _UNDECODABLE:
        version = _Meta().api_version
    if not version.startswith("1."):
        raise PageError(f"has API version {shown(version)}, which this program does not support")
    for file in page.files:
        try:
            yield _NAME.decode(file).filename, file
        except _UNDECODABLE:  # noqa: PERF203 - it costs nothing where nothing is wrong
            continue


def _json_files(block: memoryview) -> Iterable[PageFile]:
    """Files in JSON; of values of types that PEP 691 does not allow, what is usable."""
    try:
        return _FILES.decode(block)
    except _UNDECODABLE:
        pass
    try:
        return [file for value in msgspec.json.decode(block) if (file := _usable(value))]
    except _UNDECODABLE:
        return ()


def _usable(value: object) -> PageFile | None:
    """A file with those of its fields that have the right type; None without a valid name and URL."""
    if not isinstance(value, dict):
        return None
    kept = {}
    for field in msgspec.structs.fields(PageFile):
        if field.encode_name in value:
            try:
                kept[field.name] = msgspec.convert(value[field.encode_name], field.type)
            except msgspec.ValidationError:
                if field.name == "hashes" and isinstance(value["hashes"], dict):
                    kept["hashes"] = {key: digest for key, digest in value["hashes"].items() if isinstance(digest, str)}
    return PageFile(**kept) if "filename" in kept and "url" in kept else None


def _hashes(digests: Mapping[str, str]) -> dict[str, str]:
    """Digests that are well-formed for their algorithm."""
    return {
        key.lower(): digest.lower()
        for key, digest in digests.items()
        if len(digest) == _DIGEST_SIZES.get(key.lower()) and _HEX.fullmatch(digest.lower())
    }


_LONGEST_LINK = 32768
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_ANCHOR = re.compile(rb"<a(?=\s)", re.IGNORECASE)
_BASE = re.compile(rb"<base\s[^<>]{0,4096}>", re.IGNORECASE)
_HREF = re.compile(rb"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)


class LinkPage:
    """An HTML page of one package, or of links to files of many."""

    def __init__(self, body: bytes, base: str) -> None:
        body = _COMMENT.sub(b"", body)
        if b"<" not in body:
            raise PageError("is not HTML")
        first = _ANCHOR.search(body)
        found = _BASE.search(body, 0, first.start() if first else len(body))
        tag = _tag(found[0]) if found else {}
        try:
            base = address.joined(base, tag.get("href", ""))
        except ValueError:
            raise PageError("has an invalid base URL") from None
        self.base = base
        self._anchors: dict[str, list[tuple[str, bytes]]] = {}
        for anchor in _anchors(body):
            filename = _file_of(anchor)
            for project in dict.fromkeys(projects_in(filename)):
                self._anchors.setdefault(project, []).append((filename, anchor))

    def of(self, name: str) -> Page:
        """Files of a package on the page."""
        groups = grouped(self._anchors.get(name, ()), name)
        return Page(form=HTML, base=self.base, versions=list(groups), blocks=[memoryview(b"".join(group)) for group in groups.values()])


def _anchors(body: bytes) -> Iterator[bytes]:
    """Text from the start of each link to the start of the next."""
    starts = [found.start() for found in islice(_ANCHOR.finditer(body), MOST_FILES + 1)]
    if len(starts) > MOST_FILES:
        raise PageError(f"lists more than {MOST_FILES} files")
    for start, end in zip(starts, [*starts[1:], len(body)], strict=False):
        yield body[start : min(end, start + _LONGEST_LINK)]


def html_files(block: bytes) -> Iterator[PageFile]:
    """Files that anchors link to."""
    for anchor in _anchors(block):
        tag = _tag(anchor)
        link, _, fragment = tag.get("href", "").strip().partition("#")
        if not link:
            continue
        core = tag.get("data-core-metadata", tag.get("data-dist-info-metadata", "false"))
        yield PageFile(
            filename=unquote(link.partition("?")[0].rpartition("/")[2]),
            url=link,
            hashes=_pairs(fragment),
            requires_python=tag.get("data-requires-python"),
            yanked=tag.get("data-yanked"),
            upload_time=tag.get("data-upload-time"),
            core_metadata=core != "false" and (_pairs(core) or True),
        )


class _Tag(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.attributes: dict[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.attributes is None and tag in ("a", "base"):
            self.attributes = {key: value or "" for key, value in reversed(attrs)}


def _tag(raw: bytes) -> Mapping[str, str]:
    """Attributes of the tag at the start of a text, the first of each name; empty if the tag does not end."""
    parser = _Tag()
    parser.feed(raw.decode("utf-8", "replace"))
    return parser.attributes or {}


def _file_of(anchor: bytes) -> str:
    """Name of the file that an anchor links to; empty if it links to nothing."""
    found = _HREF.search(anchor)
    link = (found[1] or found[2] or found[3] or b"").decode("utf-8", "replace").strip() if found else ""
    if "&" in link:
        link = unescape(link)
    name = link.partition("#")[0].partition("?")[0].rpartition("/")[2]
    return unquote(name) if "%" in name else name


def _pairs(text: str) -> dict[str, str]:
    """Digests in `sha256=...&...`."""
    return {key: value for key, _, value in (part.partition("=") for part in text.split("&"))} if "=" in text else {}
