"""HTML pages of indexes (PEP 503): the links of one package, or of many. Only an anchor that is looked at is parsed as HTML.

Grouping 10,000 links by the text of their addresses takes 40 ms; `html.parser` takes 700 ms for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote

from cudnn_resolve.index.address import joined
from cudnn_resolve.index.filename import projects_in
from cudnn_resolve.index.page import HTML, Page, PageError, PageFile, grouped

_LONGEST_LINK = 32768
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_ANCHOR = re.compile(rb"<a(?=\s)", re.IGNORECASE)
_BASE = re.compile(rb"<base\s[^<>]{0,4096}>", re.IGNORECASE)
_HREF = re.compile(rb"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)


class LinkPage:
    """An HTML page: of one package, or of links to files of many."""

    def __init__(self, body: bytes, base: str) -> None:
        body = _COMMENT.sub(b"", body)
        if b"<" not in body:
            raise PageError("is no HTML")
        first = _ANCHOR.search(body)
        found = _BASE.search(body, 0, first.start() if first else len(body))
        tag = _tag(found[0]) if found else {}
        try:
            base = joined(base, tag.get("href", ""))
        except ValueError:
            raise PageError("has a base address that is none") from None
        self.base = base
        self._anchors: dict[str, list[tuple[str, bytes]]] = {}
        self._count = 0
        for anchor in _anchors(body):
            filename = _file_of(anchor)
            self._count += 1
            for project in dict.fromkeys(projects_in(filename)):
                self._anchors.setdefault(project, []).append((filename, anchor))

    def of(self, name: str) -> Page:
        """What the page offers of a package."""
        groups, _ = grouped(self._anchors.get(name, ()), name)
        blocks = [b"".join(group) for group in groups.values()]
        skipped = self._count - sum(map(len, groups.values()))
        return Page(form=HTML, base=self.base, versions=list(groups), blocks=blocks, skipped=skipped)

    @property
    def projects(self) -> frozenset[str]:
        """The packages (normalized) that its files may belong to."""
        return frozenset(self._anchors)


def _anchors(body: bytes) -> Iterator[bytes]:
    """What stands from the beginning of each link to that of the next."""
    starts = [found.start() for found in _ANCHOR.finditer(body)]
    for start, end in zip(starts, [*starts[1:], len(body)], strict=False):
        yield body[start : min(end, start + _LONGEST_LINK)]


def html_files(block: bytes) -> Iterator[PageFile]:
    """The files that anchors lead to."""
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
    """The attributes of the tag that a text begins with, the first of a name; none where the tag does not end."""
    parser = _Tag()
    parser.feed(raw.decode("utf-8", "replace"))
    return parser.attributes or {}


def _file_of(anchor: bytes) -> str:
    """The name of the file that an anchor leads to; empty where it leads nowhere."""
    found = _HREF.search(anchor)
    link = (found[1] or found[2] or found[3] or b"").decode("utf-8", "replace").strip() if found else ""
    if "&" in link:
        link = unescape(link)
    name = link.partition("#")[0].partition("?")[0].rpartition("/")[2]
    return unquote(name) if "%" in name else name


def _pairs(text: str) -> dict[str, str]:
    """The digests in `sha256=...&...`."""
    return {key: value for key, _, value in (part.partition("=") for part in text.split("&"))} if "=" in text else {}
