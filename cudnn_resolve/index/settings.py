"""What the door to indexes is set to: one value, made from the configuration of pip or uv and the command line."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from cudnn_resolve.index.address import Login, Origin, joined_login, origin_of

PIP = "pip"
UV = "uv"
ALL = ":all:"


class Patience(NamedTuple):
    """How long is waited, in seconds."""

    connect: float = 10.0
    read: float = 15.0
    """For the next byte."""
    answer: float = 30.0
    """For a whole answer; the longer the answer, the more (`bounds.LEAST_RATE`)."""


class Proxy(NamedTuple):
    """A way to hosts that cannot be reached directly."""

    scheme: str
    """Of the addresses that it serves: `http`, `https` or `all`."""
    url: str
    """Its address without credentials: http, https or SOCKS."""
    login: Login | None = None


class IndexAddress(Struct, frozen=True, kw_only=True):
    """One index in the usual form."""

    url: str
    """Without credentials: `file:` or http(s)."""
    said_by: str
    """Where it was read: `PIP_INDEX_URL`, `/etc/pip.conf`, `--index-url`."""
    name: str | None = None
    """As uv's configuration names it."""
    login: Login | None = None


class Settings(Struct, frozen=True, kw_only=True):
    """Where packages come from and how it is spoken to."""

    indexes: tuple[IndexAddress, ...] = ()
    """In the order in which they are asked under uv's rule."""
    assigned: tuple[tuple[str, IndexAddress], ...] = ()
    """Packages (normalized) that one index serves alone: `[tool.uv.sources]`."""
    find_links: tuple[str, ...] = ()
    """Folders and pages of links; addresses without credentials."""
    logins: tuple[tuple[str, Login], ...] = ()
    """Credentials of pages of links: the address, and who asks."""
    rule: str = PIP
    """`pip`: all indexes together, the best version wins; `uv`: the first index that has the name."""
    exclude_newer: str | None = None
    """ISO 8601 time in UTC; files uploaded later do not count."""
    no_binary: frozenset[str] = frozenset()
    """Names of packages whose wheels do not count, or `:all:`."""
    only_binary: frozenset[str] = frozenset()
    """Names of packages whose source archives do not count, or `:all:`."""
    constraints: tuple[tuple[str, str], ...] = ()
    """Files that limit what pip or uv installs, by path or address, each with where it was named: `PIP_CONSTRAINT`, `/etc/pip.conf`."""
    certificate: str | None = None
    client_certificate: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    """`host` or `host:port`, whose certificates are not checked."""
    proxies: tuple[Proxy, ...] = ()
    no_proxy: tuple[str, ...] = ()
    netrc: str | None = None
    """Path of the netrc file."""
    keyring: bool = False
    """True where the `keyring` program may be asked."""
    retries: int = 4
    backoff: float = 0.25
    """Seconds before the first new try."""
    patience: Patience = Patience()
    notes: tuple[str, ...] = ()
    """What the user should hear about this configuration."""

    def proxies_for(self, url: str) -> dict[str, str]:
        """The proxy for an address, credentials included, as requests takes it; empty where there is none."""
        origin = origin_of(url)
        if not _bypasses(origin, self.no_proxy):
            for proxy in self.proxies:
                if proxy.scheme in (origin.scheme, "all"):
                    return {origin.scheme: joined_login(proxy.url, proxy.login)}
        return {}

    def trusts(self, origin: Origin) -> bool:
        """True where the certificate of an origin need not be checked."""
        return any(_is_host(origin, host) for host in self.trusted_hosts)


def _is_host(origin: Origin, text: str) -> bool:
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        return False
    return parts.hostname == origin.host and port in (None, origin.port)


def _bypasses(origin: Origin, no_proxy: tuple[str, ...]) -> bool:
    for entry in no_proxy:
        if entry == "*" or _is_host(origin, entry):
            return True
        domain = entry.lstrip("*").lstrip(".").lower()
        if domain and origin.host.endswith(f".{domain}"):
            return True
    return False


def is_loopback(host: str) -> bool:
    """True for this very machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
