"""Settings of the index client: one value, made from the configuration of pip or uv and the command line."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from cudnn_resolve.index.address import Login, Origin, joined_login, origin_of

PIP = "pip"
UV = "uv"
ALL = ":all:"


class Patience(NamedTuple):
    """Timeouts in seconds."""

    connect: float = 10.0
    read: float = 15.0
    """Until the next byte."""
    answer: float = 30.0
    """For a whole response; longer responses get more (`bounds.LEAST_RATE`)."""


class Proxy(NamedTuple):
    """A proxy for one scheme."""

    scheme: str
    """Scheme of the URLs that it serves: `http`, `https` or `all`."""
    url: str
    """URL without credentials: http, https or SOCKS."""
    login: Login | None = None


class IndexAddress(Struct, frozen=True, kw_only=True):
    """An index with the simple repository API."""

    url: str
    """Without credentials: `file:` or http(s)."""
    source: str
    """Origin of the setting: `PIP_INDEX_URL`, `/etc/pip.conf`, `--index-url`."""
    name: str | None = None
    """Name in uv's configuration."""
    login: Login | None = None


class Settings(Struct, frozen=True, kw_only=True):
    """Indexes and other sources of packages, and how to talk to them."""

    indexes: tuple[IndexAddress, ...] = ()
    """In the order in which uv's rule asks them."""
    assigned: tuple[tuple[str, IndexAddress], ...] = ()
    """Packages (normalized) that come from one index only: `[tool.uv.sources]`."""
    find_links: tuple[str, ...] = ()
    """Folders and pages of links; URLs without credentials."""
    logins: tuple[tuple[str, Login], ...] = ()
    """Credentials of pages of links, by URL."""
    rule: str = PIP
    """`pip`: the best version of all indexes; `uv`: the first index that has the package."""
    exclude_newer: str | None = None
    """ISO 8601 time in UTC; files uploaded later are excluded."""
    no_binary: frozenset[str] = frozenset()
    """Packages whose wheels are excluded, or `:all:`."""
    only_binary: frozenset[str] = frozenset()
    """Packages whose source archives are excluded, or `:all:`."""
    constraints: tuple[tuple[str, str], ...] = ()
    """Constraint files of pip or uv, by path or URL, each with the origin of the setting: `PIP_CONSTRAINT`, `/etc/pip.conf`."""
    certificate: str | None = None
    client_certificate: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    """`host` or `host:port`, whose certificates are not checked."""
    proxies: tuple[Proxy, ...] = ()
    no_proxy: str = ""
    """Comma-separated domains, as the variable of that name lists them."""
    netrc: str | None = None
    """Path of the netrc file."""
    keyring: bool = False
    """Whether the `keyring` program may be used."""
    retries: int = 4
    backoff: float = 0.25
    """Seconds before the first retry."""
    patience: Patience = Patience()
    notes: tuple[str, ...] = ()
    """Notes for the user about this configuration."""

    def proxies_for(self, url: str) -> dict[str, str]:
        """The proxy for a URL, credentials included, as requests takes it; empty if there is none."""
        from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # slow to import; requests has done so

        origin = origin_of(url)
        # urllib's function knows neither `*` among other entries nor `*.domain`, and takes an IPv6 address without brackets.
        entries = [entry.strip().replace("[", "").replace("]", "") for entry in self.no_proxy.split(",")]
        listed = "*" if "*" in entries else ",".join(entry.removeprefix("*") for entry in entries)
        if not proxy_bypass_environment(f"{origin.host}:{origin.port}", {"no": listed}):
            for proxy in self.proxies:
                if proxy.scheme in (origin.scheme, "all"):
                    return {origin.scheme: joined_login(proxy.url, proxy.login)}
        return {}

    def trusts(self, origin: Origin) -> bool:
        """Whether the certificate of an origin need not be checked."""
        return any(_is_host(origin, host) for host in self.trusted_hosts)


def _is_host(origin: Origin, text: str) -> bool:
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        return False
    return parts.hostname == origin.host and port in (None, origin.port)


def is_loopback(host: str) -> bool:
    """Whether a host name means this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
