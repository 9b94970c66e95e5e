"""Pages of package indexes, HTML and JSON, sorted by version; the files of a version are decoded when somebody looks at them.

Sources: PEP 503 (HTML), 592 (yanked), 658 and 714 (metadata beside the file), 691 (JSON), 700 (size, upload time).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from cudnn_resolve.index import address, filename
from cudnn_resolve.index.order import newest_first
from cudnn_resolve.requirement.source import File

HTML = "html"
JSON = "json"
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"

_LONGEST_LINK = 32768
_ANCHOR = re.compile(rb"<[aA](?=\s)")
_LINK = re.compile(rb"""<a href="(?:[^"#<>]*/)?(?:([^"/#<>-]+-[^"/#<>-]+)-[^"/#<>-]+-[^"/#<>-]+-[^"/#<>-]+\.whl|([^"/#<>]+))["#]|<[aA]\s""")
"""An anchor: of a wheel in the usual form (what comes before the first tag), of another file (its name), or any other."""
_HREF = re.compile(rb"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_TAG = re.compile(r"""[^>"']*(?:(?:"[^"]*"|'[^']*')[^>"']*)*""")
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
    for version, start, end, count in _runs(body, name):
        if version is None:
            skipped += count
        else:
            groups.setdefault(version, []).append(body[start:end])
    order = newest_first(groups)
    blocks = [b"".join(run for same in spellings for run in groups[same]) for spellings in order]
    return Shelf(HTML, base, [spellings[0] for spellings in order], blocks, skipped)


def names_on(body: bytes) -> frozenset[str]:
    """The packages (normalized) that files on a page may belong to: a page of links speaks of many, and is not read for others."""
    found: set[str] = set()
    last: bytes | None = None
    for link in _LINK.finditer(body):
        wheel, other = link.groups()
        if wheel is not None:
            project = wheel.partition(b"-")[0]
            if project != last:
                last = project
                found.add(filename.normalize(_file_of(project)))
        else:
            end = body.find(b"<a", link.start() + 2, link.start() + _LONGEST_LINK)
            href = other or _href(body[link.start() + 2 : end if end >= 0 else link.start() + _LONGEST_LINK])
            found.update(filename.projects_in(_file_of(href)) if href else ())
    return frozenset(found)


def _runs(body: bytes, name: str) -> Iterator[tuple[str | None, int, int, int]]:
    """Stretches of neighbouring links to one version, None where they are of no use: where each starts and ends, and how many links it has.

    A page lists the wheels of a version one after another, up to a hundred of them: what a version costs is paid once for each stretch.
    """
    last: bytes | None = None
    version: str | None = None
    start = count = 0
    for found in _LINK.finditer(body):
        wheel, other = found.groups()
        if wheel is not None and wheel == last:
            count += 1
            continue
        if count:
            yield version, start, found.start(), count
        last, start, count = wheel, found.start(), 1
        if wheel is not None and b"&" not in wheel:
            version = filename.version_of_stem(unquote(wheel), name)
        else:
            last = None
            href = wheel or other
            if href is not None and b"%" not in href and b"&" not in href and b"?" not in href:
                version = filename.version_in(href.decode("utf-8", "replace"), name)
            else:
                end = body.find(b"<a", start + 2, start + _LONGEST_LINK)
                link = _href(body[start + 2 : end if end >= 0 else start + _LONGEST_LINK])
                version = filename.version_in(_file_of(link), name) if link else None
    if count:
        yield version, start, len(body), count


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
    order = newest_first(groups)
    dump = json.JSONEncoder(separators=(",", ":")).encode
    blocks = [dump([file for same in spellings for file in groups[same]]).encode("utf-8", "replace") for spellings in order]
    return Shelf(JSON, base, [spellings[0] for spellings in order], blocks, skipped)


def files_of(shelf: Shelf, number: int, origin: str | None) -> tuple[File, ...]:
    """The files of the version with that place in `shelf.versions`; `origin` is the index that they come from."""
    block = shelf.blocks[number]
    return tuple(_html_files(block, shelf.base, origin) if shelf.form == HTML else _json_files(block, shelf.base, origin))


def _html_files(block: bytes, base: str, origin: str | None) -> Iterator[File]:
    pieces = _ANCHOR.split(block)
    for piece in pieces[1:]:
        text = piece[:_LONGEST_LINK].decode("utf-8", "replace")
        end = _TAG.match(text)
        attributes: dict[str, str] = {}
        for key, value in _ATTRIBUTE.findall(text, 0, end.end() if end else len(text)):
            attributes.setdefault(key.lower(), _unescaped(value[1:-1] if value[:1] in ('"', "'") else value))
        link, _, fragment = attributes.get("href", "").strip().partition("#")
        try:
            url = address.joined(base, link)
        except ValueError:
            continue
        core = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata"))
        yield File(
            unquote(link.partition("?")[0].rpartition("/")[2]),
            url,
            _hashes_in(fragment),
            None,
            attributes.get("data-requires-python") or None,
            attributes.get("data-yanked"),
            attributes.get("data-upload-time") or None,
            origin,
            None if core in (None, "false") else _hashes_in(core or ""),
        )


def _json_files(block: bytes, base: str, origin: str | None) -> Iterator[File]:
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
            origin=origin,
            metadata=_hashes(core) if isinstance(core, dict) else {} if core is True else None,
        )


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _hashes_in(text: str) -> dict[str, str]:
    """The digests in `sha256=...&...`."""
    if not text or "=" not in text:
        return {}
    if text[:7] == "sha256=" and len(text) == 71 and _HEX.fullmatch(text, 7):
        return {"sha256": text[7:]}
    return _hashes({key: value for key, _, value in (part.partition("=") for part in text.split("&"))})


def _hashes(value: object) -> dict[str, str]:
    """The digests among the values of a mapping; what is no digest of its algorithm is left out."""
    if not isinstance(value, dict):
        return {}
    found = {}
    for key, digest in value.items():
        is_pair = isinstance(key, str) and isinstance(digest, str) and len(digest) == _DIGEST_SIZES.get(key.lower())
        if is_pair and _HEX.fullmatch(digest.lower()):
            found[key.lower()] = digest.lower()
    return found


def _href(piece: bytes) -> bytes | None:
    """What the link of an anchor says; `piece` is what follows `<a`."""
    found = _HREF.search(piece, 0, _LONGEST_LINK)
    return None if found is None else (found[1] or found[2] or found[3] or b"").strip()


def _file_of(link: bytes) -> str:
    """The name of the file that a link leads to."""
    return unquote(_text(link).partition("#")[0].partition("?")[0].rpartition("/")[2])


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
