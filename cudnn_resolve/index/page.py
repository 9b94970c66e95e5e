"""Pages of package indexes, HTML and JSON, sorted by version; the files of a version are decoded when somebody looks at them.

Sources: PEP 503 (HTML), 592 (yanked), 658 and 714 (metadata beside the file), 691 (JSON), 700 (size, upload time).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from cudnn_resolve.index import address, filename
from cudnn_resolve.requirement.source import File

HTML = "html"
JSON = "json"
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"

_LONGEST_LINK = 32768
_BETWEEN = b"\0"
_ANCHOR = re.compile(rb"<[aA](?=\s)")
_HREF = re.compile(rb"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_TAG = re.compile(rb"""(?:[^>"']|"[^"]*"|'[^']*')*""")
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'<>`]+))?""")
_BASE = re.compile(rb"<base(?=\s)([^<>]{0,4096})", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{0,31});")
_ENTITIES = {"&gt;": ">", "&lt;": "<", "&amp;": "&", "&quot;": '"', "&#39;": "'", "&#43;": "+"}
_DIGEST_SIZES = {"md5": 32, "sha1": 40, "sha224": 56, "sha256": 64, "sha384": 96, "sha512": 128, "blake2b": 128}
_HEX = re.compile(r"[0-9a-f]+")
_JSON_KEYS = ("filename", "url", "hashes", "requires-python", "size", "upload-time", "yanked", "core-metadata", "dist-info-metadata")


class PageError(ValueError):
    """A page that cannot be read; says why."""


class Shelf(NamedTuple):
    """What one page offers of one package."""

    form: str
    """HTML or JSON: what the blocks are."""
    base: str
    """Address that relative links start from, without credentials."""
    versions: Sequence[str]
    """PEP 440, newest first, each once."""
    blocks: Sequence[bytes]
    """The files of each version, undecoded."""
    skipped: int = 0
    """How many files were of no use: foreign names, bad versions, forms that nobody installs any more."""


def read_page(body: bytes, kind: str, base: str, name: str) -> Shelf:
    """What a page at `base`, of the media type `kind`, offers of a package; PageError where it is no page."""
    return _read_json(body, base, name) if "json" in kind.lower() else _read_html(body, base, name)


def _read_html(body: bytes, base: str, name: str) -> Shelf:
    if b"<!--" in body:
        body = _without_comments(body)
    first = _ANCHOR.search(body)
    found = _BASE.search(body, 0, first.start() if first else len(body))
    if found and (href := _href(found[1])):
        try:
            base = address.joined(base, _text(href))
        except ValueError:
            raise PageError("has a base address that is none") from None
    if first is None and b"<" not in body:
        raise PageError("is no HTML")
    groups: dict[str, list[bytes]] = {}
    skipped = 0
    pieces = _ANCHOR.split(body)
    del pieces[0]
    known: dict[bytes, str | None] = {}
    for piece in pieces:
        href = _href(piece)
        if href is None:
            continue
        last = href.partition(b"#")[0].rpartition(b"/")[2]
        wheel = last[-4:] == b".whl"
        start = b"-".join(last.split(b"-", 2)[:2]) if wheel else last
        if wheel and start in known and last.count(b"-") == 4:  # most links of a page: as the one before
            version = known[start]
        else:
            version = filename.version_in(_file_of(last), name)
            if wheel and last.count(b"-") == 4:
                known[start] = version
        if version is None:
            skipped += 1
            continue
        end = piece.find(b"</", 0, _LONGEST_LINK)
        groups.setdefault(version, []).append(piece[: end if end >= 0 else _LONGEST_LINK])
    order = group_newest_first(groups)
    blocks = [_BETWEEN.join(link.replace(b"\0", b"") for same in spellings for link in groups[same]) for spellings in order]
    return Shelf(HTML, base, [spellings[0] for spellings in order], blocks, skipped)


def _read_json(body: bytes, base: str, name: str) -> Shelf:
    try:
        page = json.loads(body)
    except (ValueError, RecursionError):
        raise PageError("is no JSON") from None
    files = page.get("files") if isinstance(page, dict) else None
    meta = page.get("meta") if isinstance(page, dict) else None
    if not isinstance(files, list):
        raise PageError("is JSON without a list of files")
    version_of_form = meta.get("api-version") if isinstance(meta, dict) else None
    if isinstance(version_of_form, str) and not version_of_form.startswith("1."):
        raise PageError(f"has the form {address.shown(version_of_form)}, which this program does not know")
    groups: dict[str, list[dict[str, Any]]] = {}
    skipped = 0
    for one in files:
        file = one.get("filename") if isinstance(one, dict) else None
        version = filename.version_in(file, name) if isinstance(file, str) else None
        if version is None:
            skipped += 1
        else:
            groups.setdefault(version, []).append({key: one[key] for key in _JSON_KEYS if key in one})
    order = group_newest_first(groups)
    dump = json.JSONEncoder(separators=(",", ":")).encode
    blocks = [dump([file for same in spellings for file in groups[same]]).encode("utf-8", "replace") for spellings in order]
    return Shelf(JSON, base, [spellings[0] for spellings in order], blocks, skipped)


def files_of(shelf: Shelf, number: int, origin: str | None) -> tuple[File, ...]:
    """The files of the version with that place in `shelf.versions`; `origin` is the index that they come from."""
    block = shelf.blocks[number]
    made = _html_files(block, shelf.base) if shelf.form == HTML else _json_files(block, shelf.base)
    return tuple(file._replace(origin=origin) for file in made)


def _html_files(block: bytes, base: str) -> Iterator[File]:
    for piece in block.split(_BETWEEN):
        end = _TAG.match(piece)
        attributes: dict[str, str] = {}
        for found in _ATTRIBUTE.finditer(piece[: end.end() if end else None].decode("utf-8", "replace")):
            value = found[2] or ""
            attributes.setdefault(found[1].lower(), _unescaped(value[1:-1] if value[:1] in ('"', "'") else value))
        link, _, fragment = attributes.get("href", "").strip().partition("#")
        try:
            url = address.joined(base, link)
        except ValueError:
            continue
        core = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata"))
        yield File(
            filename=unquote(link.partition("?")[0].rpartition("/")[2]),
            url=url,
            hashes=_hashes(dict(_pairs(fragment))),
            requires_python=attributes.get("data-requires-python") or None,
            yanked=attributes.get("data-yanked"),
            metadata=None if core in (None, "false") else _hashes(dict(_pairs(core or ""))),
        )


def _json_files(block: bytes, base: str) -> Iterator[File]:
    for one in json.loads(block):
        link = one.get("url")
        if not isinstance(link, str):
            continue
        try:
            url = address.joined(base, link)
        except ValueError:
            continue
        core = one.get("core-metadata", one.get("dist-info-metadata"))
        yanked = one.get("yanked")
        size = one.get("size")
        yield File(
            filename=one["filename"],
            url=url,
            hashes=_hashes(one.get("hashes")),
            size=size if isinstance(size, int) and size >= 0 else None,
            requires_python=_word(one.get("requires-python")),
            yanked=yanked if isinstance(yanked, str) else "" if yanked else None,
            uploaded=_word(one.get("upload-time")),
            metadata=_hashes(core) if isinstance(core, dict) else {} if core is True else None,
        )


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _pairs(fragment: str) -> Iterator[tuple[str, str]]:
    for part in fragment.split("&"):
        key, equals, value = part.partition("=")
        if equals:
            yield key, value


def _hashes(value: object) -> dict[str, str]:
    """The digests among the values of a mapping; what is no digest of its algorithm is left out."""
    if not isinstance(value, dict):
        return {}
    found = {}
    for key, digest in value.items():
        if isinstance(key, str) and isinstance(digest, str) and len(digest) == _DIGEST_SIZES.get(key.lower()):
            if _HEX.fullmatch(digest.lower()):
                found[key.lower()] = digest.lower()
    return found


def group_newest_first(versions: Iterable[str]) -> list[list[str]]:
    """The spellings of each version, newest version first."""
    from packaging.version import InvalidVersion, Version

    grouped: dict[Version, list[str]] = {}
    for text in versions:
        try:
            grouped.setdefault(Version(text), []).append(text)
        except (InvalidVersion, ValueError):  # noqa: PERF203 - raised for hardly any
            continue
    return [grouped[version] for version in sorted(grouped, reverse=True)]


def _href(piece: bytes) -> bytes | None:
    """What the link of an anchor says; `piece` is what follows `<a`."""
    if piece[:7] == b' href="':
        return piece[7 : piece.find(b'"', 7)]
    found = _HREF.search(piece, 0, _LONGEST_LINK)
    return None if found is None else (found[1] or found[2] or found[3] or b"").strip()


def _file_of(last: bytes) -> str:
    return unquote(_text(last).partition("?")[0])


def _text(raw: bytes) -> str:
    return _unescaped(raw.decode("utf-8", "replace"))


def _unescaped(text: str) -> str:
    return _ENTITY.sub(_character, text) if "&" in text else text


def _character(found: re.Match[str]) -> str:
    known = _ENTITIES.get(found[0])
    if known is not None:
        return known
    from html import unescape

    return unescape(found[0])


def _without_comments(body: bytes) -> bytes:
    kept = []
    at = 0
    while (start := body.find(b"<!--", at)) >= 0:
        kept.append(body[at:start])
        end = body.find(b"-->", start + 4)
        at = end + 3 if end >= 0 else len(body)
    kept.append(body[at:])
    return b"".join(kept)
