"""Sources of packages: the command line, over the configuration of the target's pip or uv."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import UsageError
from cudnn_resolve.index import pip_config
from cudnn_resolve.index.address import Login, is_local, is_remote, origin_of, path_of, split_login, url_of
from cudnn_resolve.index.pip_config import Value, read_pip_config
from cudnn_resolve.index.settings import ALL, PIP, UV, IndexAddress, Patience, Proxy, Settings, is_loopback
from cudnn_resolve.index.uv_config import UvConfig, UvIndex, read_uv_config
from cudnn_resolve.masking import shown

_STRATEGIES = {"first-index": UV, "unsafe-first-match": UV, "unsafe-best-match": PIP}
_PROXY_SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")
_LONGEST_TIMEOUT = 600.0
_AGO = r"(?i)P(\d{1,5})([DWM])|(\d{1,5})\s*(hour|day|week|month)s?(?:\s+ago)?"
_FRACTION = r"\.(\d+)"
_DAYS = {"hour": 1 / 24, "d": 1, "day": 1, "w": 7, "week": 7, "m": 30, "month": 30}


class Options(NamedTuple):
    """Options of the command line; what is missing comes from the configuration of pip or uv."""

    index_url: str | None = None
    extra_index_urls: Sequence[str] = ()
    find_links: Sequence[str] = ()
    no_index: bool = False
    trusted_hosts: Sequence[str] = ()
    """`host` or `host:port`, whose certificates are not checked."""
    rule: str | None = None
    """`pip` or `uv`: the rule for several indexes."""
    exclude_newer: str | None = None
    """A date or a time, RFC 3339."""
    no_binary: Sequence[str] = ()
    only_binary: Sequence[str] = ()


_DEFAULT = IndexAddress(url="", source="")
"""Stands for pip's default index, whose URL is looked up only if it is needed."""


def read_settings(
    options: Options,
    environ: Mapping[str, str],
    *,
    prefix: str | None,
    import_path: Iterable[str] = (),
    directory: str = ".",
    system: str = "/etc",
) -> Settings:
    """Settings of the target, whose interpreter has `prefix` and `import_path`; uv looks for a project from `directory`.

    `system` is the folder of the machine's configuration. Raise UsageError for an invalid option; faults of configuration files become
    notes.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    pip, pip_notes = read_pip_config(environ, prefix, home, system)
    uv = read_uv_config(environ, home, directory, system)
    notes = [*pip_notes, *uv.notes]
    uses_uv = uv.names_indexes and not any(key in pip for key in ("index-url", "extra-index-url", "find-links", "no-index"))
    configured = _of_uv(uv, environ, notes) if uses_uv else _of_pip(pip)
    no_index = uv.options.get("no-index") is True if uses_uv else _value(pip, "no-index").is_true
    no_index = no_index or options.no_index
    main = len(configured.indexes) - 1 if uses_uv else 0  # --index-url replaces it
    indexes = [] if no_index else _with_options(configured, main, options, import_path)
    if not indexes and not no_index:
        notes.append("no pip was found that has a default index: name one with --index-url")
    logins: list[tuple[str, Login]] = []
    links = [_link(text, logins) for text in (*options.find_links, *configured.find_links)]
    trusted = (*options.trusted_hosts, *_value(pip, "trusted-host").words)
    if not uses_uv:
        notes.extend(_plain_http_notes(indexes, trusted))
    timeout = _number(pip.get("timeout") or pip.get("default-timeout"), 15.0)
    return replace(
        configured,
        indexes=tuple(indexes),
        find_links=tuple(dict.fromkeys(links)),
        logins=tuple(logins),
        rule=options.rule or configured.rule,
        exclude_newer=_exclude_newer(options, configured.exclude_newer, notes),
        no_binary=_names(options.no_binary) or configured.no_binary,
        only_binary=_names(options.only_binary) or configured.only_binary,
        constraints=tuple(_constraints(pip, environ)),
        certificate=_certificate(pip, environ),
        client_certificate=_value(pip, "client-cert").text or environ.get("SSL_CLIENT_CERT") or None,
        trusted_hosts=(*trusted, *uv.options.get("allow-insecure-host", ())),
        proxies=_proxies(pip, environ),
        no_proxy=_variable(environ, "no_proxy").replace("*.", "."),
        netrc=environ.get("NETRC") or os.path.join(home, ".netrc"),
        retries=int(_number(pip.get("retries"), 4.0, most=20.0)),
        patience=Patience(read=timeout, answer=max(30.0, 2 * timeout)),
        notes=tuple(notes),
    )


def own_settings(options: Options, environ: Mapping[str, str]) -> Settings:
    """Settings of the interpreter that runs this program."""
    return read_settings(options, environ, prefix=sys.prefix, import_path=sys.path)


def _value(pip: Mapping[str, Value], key: str) -> Value:
    """An option of pip, empty if it is not set."""
    return pip.get(key, Value("", ""))


def _constraints(pip: Mapping[str, Value], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Constraint files of pip and uv; NVIDIA's containers pin their packages with these."""
    constraint = _value(pip, "constraint")
    yield from ((word, constraint.source) for word in constraint.words)
    yield from ((word, "UV_CONSTRAINT") for word in environ.get("UV_CONSTRAINT", "").split())


def _of_pip(pip: Mapping[str, Value]) -> Settings:
    """What pip's configuration says, as written."""
    main, extra = pip.get("index-url"), _value(pip, "extra-index-url")
    return Settings(
        rule=PIP,
        indexes=(
            _index(main.text.strip(), main.source) if main else _DEFAULT,
            *(_index(url, extra.source) for url in extra.words),
        ),
        find_links=tuple(_value(pip, "find-links").words),
        no_binary=_names(_value(pip, "no-binary").words),
        only_binary=_names(_value(pip, "only-binary").words),
        exclude_newer=_value(pip, "uploaded-prior-to").text or None,
        keyring=_value(pip, "keyring-provider").text.strip() != "disabled",
    )


def _of_uv(uv: UvConfig, environ: Mapping[str, str], notes: list[str]) -> Settings:
    """What uv's configuration says, as written."""

    def names(key: str) -> frozenset[str]:
        return frozenset({ALL}) if uv.options.get(key) is True else _names(uv.options.get(f"{key}-package", ()))

    indexes = [_uv_index(index, environ) for index in uv.indexes if not index.is_explicit]
    indexes.append(_uv_index(uv.default, environ) if uv.default else _DEFAULT)
    strategy, exclude_newer = uv.options.get("index-strategy"), uv.options.get("exclude-newer")
    return Settings(
        rule=_STRATEGIES.get(strategy, UV) if isinstance(strategy, str) else UV,
        indexes=tuple(indexes),
        find_links=uv.find_links,
        no_binary=names("no-binary"),
        only_binary=names("no-build"),
        exclude_newer=None if exclude_newer is None else str(exclude_newer),
        keyring=uv.options.get("keyring-provider") == "subprocess",
        assigned=_assigned(uv, environ, notes),
    )


def _assigned(uv: UvConfig, environ: Mapping[str, str], notes: list[str]) -> tuple[tuple[str, IndexAddress], ...]:
    """Packages that uv's configuration takes from one index only."""
    named = {index.name: index for index in (*uv.indexes, *([uv.default] if uv.default else [])) if index.name}
    assigned = []
    for package, name in uv.assigned.items():
        if name in named:
            assigned.append((canonicalize_name(package), _uv_index(named[name], environ)))
        else:
            notes.append(f"uv's configuration assigns {shown(package)} to the index {shown(name)}, which it does not define")
    return tuple(assigned)


def _plain_http_notes(indexes: Iterable[IndexAddress], trusted: Sequence[str]) -> Iterator[str]:
    """Notes on indexes that pip ignores unless it is told to trust them."""
    trusting = Settings(trusted_hosts=tuple(trusted))
    for index in indexes:
        if index.url.startswith("http:"):
            origin = origin_of(index.url)
            if not is_loopback(origin.host) and not trusting.trusts(origin):
                yield f"pip ignores {shown(index.url)}, which is not https, unless trusted-host names {origin.host}"


def _uv_index(index: UvIndex, environ: Mapping[str, str]) -> IndexAddress:
    address = _index(index.url, index.source, index.name)
    if index.name and address.login is None:
        word = re.sub(r"[^A-Z0-9]", "_", index.name.upper())
        user, password = environ.get(f"UV_INDEX_{word}_USERNAME", ""), environ.get(f"UV_INDEX_{word}_PASSWORD", "")
        if user or password:
            return replace(address, login=Login(user, password))
    return address


def _with_options(configured: Settings, main: int, options: Options, import_path: Iterable[str]) -> list[IndexAddress]:
    """The configured indexes with those of the options, each once, in the order of the rule; `main` is that of the main one."""
    extra = [_index(url, "--extra-index-url") for url in options.extra_index_urls]
    indexes = list(configured.indexes)
    if options.index_url:
        indexes[main] = _index(options.index_url, "--index-url")
    elif indexes[main] is _DEFAULT:
        default = pip_config.default_index(import_path)
        indexes[main : main + 1] = [IndexAddress(url=default[0], source=default[1])] if default else []
    ordered = [*extra, *indexes] if configured.rule == UV else [*indexes, *extra]
    return list({index.url.rstrip("/"): index for index in reversed(ordered)}.values())[::-1]


def _index(text: str, source: str, name: str | None = None) -> IndexAddress:
    url, login = split_login(text)
    if is_local(url):
        try:
            url = url_of(path_of(url))
        except ValueError as error:
            raise UsageError(f"the index {shown(url)} {error}", code="index-address", context=source) from None
    else:
        _check(url, source)
    return IndexAddress(url=url.partition("#")[0].rstrip("/"), source=source, name=name, login=login)


def _check(url: str, source: str) -> None:
    try:
        origin_of(url)
        if any(char.isspace() or not char.isprintable() for char in url):
            raise ValueError  # noqa: TRY301 - as for any other invalid URL
    except ValueError:
        hint = "https://, http:// or file://"
        raise UsageError(f"{shown(url)} is not the URL of an index", code="index-address", context=source, hint=hint) from None


def _link(text: str, logins: list[tuple[str, Login]]) -> str:
    url, login = split_login(text)
    if is_remote(url):
        _check(url, "find-links")
        if login:
            logins.append((url, login))
        return url.partition("#")[0]
    try:
        return url_of(path_of(url))
    except ValueError as error:
        raise UsageError(f"{shown(url)} {error}", code="index-address", context="find-links") from None


def _number(value: Value | None, default: float, most: float = _LONGEST_TIMEOUT) -> float:
    try:
        return min(most, max(0.0, float(value.text))) if value else default
    except ValueError:
        return default


def _names(words: Iterable[str]) -> frozenset[str]:
    """Package names as in pip's --no-binary: comma-separated, with `:all:`, and `:none:`, which clears those before it."""
    names: set[str] = set()
    for word in words:
        for name in word.split(","):
            if name.strip() == ":none:":
                names.clear()
            elif name.strip():
                names.add(ALL if name.strip() == ALL else canonicalize_name(name.strip()))
    return frozenset(names)


def _certificate(pip: Mapping[str, Value], environ: Mapping[str, str]) -> str | None:
    named = os.path.expanduser(_value(pip, "cert").text)
    return named or next(filter(None, map(environ.get, ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"))), None)


def _variable(environ: Mapping[str, str], name: str) -> str:
    """A variable that may be written in lower or upper case."""
    return environ.get(name) or environ.get(name.upper()) or ""


def _proxies(pip: Mapping[str, Value], environ: Mapping[str, str]) -> tuple[Proxy, ...]:
    """Proxies for all schemes; raise UsageError for an invalid one, since bypassing it is not what the user asked for."""
    proxy = _value(pip, "proxy")
    texts = [("all", proxy.text, proxy.source)]
    texts += [(scheme, _variable(environ, f"{scheme}_proxy"), f"{scheme.upper()}_PROXY") for scheme in ("https", "http", "all")]
    proxies = []
    for scheme, text, source in texts:
        if not text.strip():
            continue
        url, login = split_login(text.strip() if "://" in text else f"http://{text.strip()}")
        try:
            if urlsplit(url).scheme.lower() not in _PROXY_SCHEMES or not urlsplit(url).hostname or urlsplit(url).port == 0:
                raise ValueError  # noqa: TRY301 - as for an invalid port
        except ValueError:
            hint = "http://host:port, https://host:port or socks5h://host:port"
            raise UsageError(f"{shown(url)} is not the URL of a proxy", code="proxy-address", context=source, hint=hint) from None
        proxies.append(Proxy(scheme, url.rstrip("/"), login))
    return tuple(proxies)


def _exclude_newer(options: Options, configured: str | None, notes: list[str]) -> str | None:
    """Time after which uploads are excluded, ISO 8601 in UTC; raise UsageError for an invalid option."""
    if options.exclude_newer:
        time = moment(options.exclude_newer)
        if time is None:
            hint = "2024-01-31 or 2024-01-31T12:00:00Z"
            raise UsageError(f"--exclude-newer {shown(options.exclude_newer)} is not a date", code="bad-date", hint=hint)
        return time
    if configured is None:
        return None
    time = moment(configured)
    if time is None:
        notes.append(f"the configured limit on upload times is ignored: {shown(configured)} is not a date")
    return time


def _six_digits(fraction: re.Match[str]) -> str:
    """A fraction of a second in the form that Python 3.10 can read."""
    return f".{fraction[1][:6]:0<6}"


def moment(text: str) -> str | None:
    """The end of a date, a time, or a span before now (`P3D`, `2 weeks`), as ISO 8601 in UTC with microseconds; None if invalid."""
    from datetime import datetime, timedelta, timezone

    text = text.strip()
    ago = re.fullmatch(_AGO, text)
    try:
        if ago:
            days = int(ago[1] or ago[3]) * _DAYS[(ago[2] or ago[4]).lower()]
            return (datetime.now(timezone.utc) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            when = datetime.fromisoformat(text).replace(tzinfo=timezone.utc) + timedelta(days=1)
        else:
            when = datetime.fromisoformat(re.sub(_FRACTION, _six_digits, re.sub(r"[Zz]$", "+00:00", text)))
            when = when.replace(tzinfo=timezone.utc) if when.tzinfo is None else when.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
