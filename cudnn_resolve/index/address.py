"""URLs of indexes and files, and the credentials in them."""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from cudnn_resolve.masking import redacted

_PORTS = {"http": 80, "https": 443}


class Login(NamedTuple):
    """A user name and a password; its `repr` hides the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"


class Origin(NamedTuple):
    """Scheme, host and port of a URL."""

    scheme: str
    host: str
    port: int


def split_login(url: str) -> tuple[str, Login | None]:
    """The URL without credentials, and the credentials that it held."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return redacted(url), None
    userinfo, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    user, _, password = userinfo.partition(":")
    return urlunsplit(parts._replace(netloc=host)), Login(unquote(user), unquote(password))


def joined_login(url: str, login: Login | None) -> str:
    """The URL with credentials in it."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{quote(login.user, safe='')}:{quote(login.password, safe='')}@{rest}" if login else url


def origin_of(url: str) -> Origin:
    """Origin of an http or https URL; raise ValueError for anything else."""
    parts = urlsplit(url)
    port = parts.port
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("is not an http or https URL")
    return Origin(parts.scheme, parts.hostname, port or _PORTS[parts.scheme])


def is_local(url: str) -> bool:
    """Whether it is a `file:` URL or a plain path."""
    return url.startswith("file:") or "://" not in url


def is_remote(url: str) -> bool:
    """Whether it is an http or https URL."""
    return url[:8].lower().startswith(("http://", "https://"))


def path_of(url: str) -> str:
    """Absolute path behind a `file:` URL or a path with `~`; raise ValueError for one on another machine."""
    if not url.startswith("file:"):
        return os.path.abspath(os.path.expanduser(url))
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ValueError("names a file on another machine")
    path = unquote(parts.path, errors="surrogateescape")
    if "\0" in path:
        raise ValueError("holds a zero byte")
    return os.path.normpath(path)


def url_of(path: str) -> str:
    """The `file:` URL of a path."""
    return "file://" + quote(os.path.abspath(path), errors="surrogateescape")


def joined(base: str, link: str) -> str:
    """URL of a link on a page, without credentials and fragment.

    Raise ValueError if it is invalid, or if a page from the network links to a file on this machine.
    """
    if link.startswith(("https://", "http://")) and "[" not in link:
        return redacted(link) if "@" in link or "#" in link else link
    url = redacted(urljoin(base, link))
    urlsplit(url)  # raises ValueError for an unbalanced bracket
    if not is_remote(url) and not (url.startswith("file:") and base.startswith("file:")):
        raise ValueError("is not the URL of a file")
    return url
