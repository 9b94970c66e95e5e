"""Where packages come from: the command line over the configuration of the target's pip or uv."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

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
    """What the command line says; what it leaves out comes from pip or uv."""

    index_url: str | None = None
    extra_index_urls: Sequence[str] = ()
    find_links: Sequence[str] = ()
    no_index: bool = False
    trusted_hosts: Sequence[str] = ()
    """`host` or `host:port`, whose certificates are not checked."""
    rule: str | None = None
    """`pip` or `uv`: whose rule over several indexes."""
    exclude_newer: str | None = None
    """A date or a time, RFC 3339."""
    no_binary: Sequence[str] = ()
    only_binary: Sequence[str] = ()


_DEFAULT = IndexAddress(url="", source="")
"""Stands for pip's own index, which is looked for only where it counts."""


class _Places(NamedTuple):
    indexes: list[IndexAddress]
    main: int
    """Which of them `--index-url` takes the place of."""
    find_links: list[str]
    rule: str


def read_settings(
    options: Options,
    environ: Mapping[str, str],
    *,
    prefix: str | None,
    import_path: Iterable[str] = (),
    directory: str = ".",
    system: str = "/etc",
) -> Settings:
    """The settings of the target: `prefix` and `import_path` are those of its interpreter, `directory` is where uv looks for a project.

    `system` is the folder of the machine's own configuration.

    UsageError for an option that cannot be; what is wrong in a configuration file is a note.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    pip, pip_notes = read_pip_config(environ, prefix, home, system)
    uv = read_uv_config(environ, home, directory, system)
    notes = [*pip_notes, *uv.notes]
    uses_uv = uv.says_where and not any(key in pip for key in ("index-url", "extra-index-url", "find-links", "no-index"))
    places = _of_uv(uv, environ) if uses_uv else _of_pip(pip)
    logins: list[tuple[str, Login]] = []
    links_only = options.no_index or _no_index(pip, uv, uses_uv=uses_uv)
    indexes = _with_options(places, options, import_path, no_index=links_only)
    if not indexes and not links_only:
        notes.append("no pip says which index is the default one: name one with --index-url")
    links = [_link(text, logins) for text in (*options.find_links, *places.find_links)]
    trusted = (*options.trusted_hosts, *(pip["trusted-host"].words if "trusted-host" in pip else ()))
    _warn_of_plain_http(indexes, trusted, notes, uses_uv=uses_uv)
    timeout = _number(pip.get("timeout") or pip.get("default-timeout"), 15.0)
    return Settings(
        indexes=tuple(indexes),
        assigned=_assigned(uv, environ, notes) if uses_uv else (),
        find_links=tuple(dict.fromkeys(links)),
        logins=tuple(logins),
        rule=options.rule or places.rule,
        exclude_newer=_moment(options, pip, uv, uses_uv=uses_uv, notes=notes),
        no_binary=_names(options.no_binary) or _binary("no-binary", pip, uv, uses_uv=uses_uv),
        only_binary=_names(options.only_binary) or _binary("only-binary", pip, uv, uses_uv=uses_uv),
        constraints=tuple(_constraints(pip, environ)),
        certificate=_certificate(pip, environ),
        client_certificate=pip["client-cert"].text if "client-cert" in pip else environ.get("SSL_CLIENT_CERT") or None,
        trusted_hosts=(*trusted, *uv.options.get("allow-insecure-host", ())),
        proxies=_proxies(pip, environ),
        no_proxy=tuple(part.strip() for part in _either(environ, "no_proxy").split(",") if part.strip()),
        netrc=environ.get("NETRC") or os.path.join(home, ".netrc"),
        keyring=uv.options.get("keyring-provider") == "subprocess" if uses_uv else _pip_keyring(pip),
        retries=int(_number(pip.get("retries"), 4.0, most=20.0)),
        patience=Patience(read=timeout, answer=max(30.0, 2 * timeout)),
        notes=tuple(notes),
    )


def own_settings(options: Options, environ: Mapping[str, str]) -> Settings:
    """The settings of the interpreter that runs this program."""
    return read_settings(options, environ, prefix=sys.prefix, import_path=sys.path)


def _constraints(pip: Mapping[str, Value], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The files of limits that the environment hands to pip and uv; NVIDIA's containers pin their packages in this way."""
    if "constraint" in pip:
        yield from ((word, pip["constraint"].source) for word in pip["constraint"].words)
    yield from ((word, "UV_CONSTRAINT") for word in environ.get("UV_CONSTRAINT", "").split())


def _of_pip(pip: Mapping[str, Value]) -> _Places:
    main, extra, links = (pip.get(key) for key in ("index-url", "extra-index-url", "find-links"))
    indexes = [_index(main.text.strip(), main.source) if main else _DEFAULT]
    if extra:
        indexes.extend(_index(url, extra.source) for url in extra.words)
    return _Places(indexes, 0, links.words if links else [], PIP)


def _of_uv(uv: UvConfig, environ: Mapping[str, str]) -> _Places:
    indexes = [_uv_index(index, environ) for index in uv.indexes if not index.is_explicit]
    indexes.append(_uv_index(uv.default, environ) if uv.default else _DEFAULT)
    strategy = uv.options.get("index-strategy")
    return _Places(indexes, len(indexes) - 1, list(uv.find_links), _STRATEGIES.get(strategy, UV) if isinstance(strategy, str) else UV)


def _assigned(uv: UvConfig, environ: Mapping[str, str], notes: list[str]) -> tuple[tuple[str, IndexAddress], ...]:
    """The packages that uv's configuration takes from one index alone."""
    named = {index.name: index for index in (*uv.indexes, *([uv.default] if uv.default else [])) if index.name}
    made = []
    for package, name in uv.assigned.items():
        if name in named:
            made.append((canonicalize_name(package), _uv_index(named[name], environ)))
        else:
            notes.append(f"uv's configuration takes {shown(package)} from the index {shown(name)}, which it does not define")
    return tuple(made)


def _warn_of_plain_http(indexes: Iterable[IndexAddress], trusted: Sequence[str], notes: list[str], *, uses_uv: bool) -> None:
    """Notes the indexes that pip leaves out unless it is told to trust them."""
    trusting = Settings(trusted_hosts=tuple(trusted))
    for index in indexes:
        if index.url.startswith("http:") and not uses_uv:
            origin = origin_of(index.url)
            if not is_loopback(origin.host) and not trusting.trusts(origin):
                notes.append(f"pip leaves out {shown(index.url)}, which is not https, unless trusted-host names {origin.host}")


def _uv_index(index: UvIndex, environ: Mapping[str, str]) -> IndexAddress:
    made = _index(index.url, index.source, index.name)
    if index.name and made.login is None:
        word = re.sub(r"[^A-Z0-9]", "_", index.name.upper())
        user, password = environ.get(f"UV_INDEX_{word}_USERNAME", ""), environ.get(f"UV_INDEX_{word}_PASSWORD", "")
        if user or password:
            return IndexAddress(url=made.url, source=made.source, name=made.name, login=Login(user, password))
    return made


def _with_options(places: _Places, options: Options, import_path: Iterable[str], *, no_index: bool) -> list[IndexAddress]:
    if no_index:
        return []
    extra = [_index(url, "--extra-index-url") for url in options.extra_index_urls]
    configured = list(places.indexes)
    if options.index_url:
        configured[places.main] = _index(options.index_url, "--index-url")
    elif configured[places.main] is _DEFAULT:
        found = pip_config.default_index(import_path)
        configured[places.main : places.main + 1] = [IndexAddress(url=found[0], source=found[1])] if found else []
    made = [*extra, *configured] if places.rule == UV else [*configured, *extra]
    return list({one.url.rstrip("/"): one for one in reversed(made)}.values())[::-1]


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
        if any(one.isspace() or not one.isprintable() for one in url):
            raise ValueError  # noqa: TRY301 - as for any other odd address
    except ValueError:
        hint = "https://, http:// or file://"
        raise UsageError(f"{shown(url)} is not the address of an index", code="index-address", context=source, hint=hint) from None


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


def _no_index(pip: Mapping[str, Value], uv: UvConfig, *, uses_uv: bool) -> bool:
    return uv.options.get("no-index") is True if uses_uv else "no-index" in pip and pip["no-index"].is_true


def _number(value: Value | None, default: float, most: float = _LONGEST_TIMEOUT) -> float:
    try:
        return min(most, max(0.0, float(value.text))) if value else default
    except ValueError:
        return default


def _names(words: Iterable[str]) -> frozenset[str]:
    """Names of packages as pip's --no-binary takes them: commas, `:all:`, and `:none:` that empties what stands before."""
    found: set[str] = set()
    for word in words:
        for name in word.split(","):
            if name.strip() == ":none:":
                found.clear()
            elif name.strip():
                found.add(ALL if name.strip() == ALL else canonicalize_name(name.strip()))
    return frozenset(found)


def _binary(key: str, pip: Mapping[str, Value], uv: UvConfig, *, uses_uv: bool) -> frozenset[str]:
    if not uses_uv:
        return _names(pip[key].words) if key in pip else frozenset()
    word = "no-binary" if key == "no-binary" else "no-build"
    return frozenset({ALL}) if uv.options.get(word) is True else _names(uv.options.get(f"{word}-package", ()))


def _certificate(pip: Mapping[str, Value], environ: Mapping[str, str]) -> str | None:
    if "cert" in pip:
        return os.path.expanduser(pip["cert"].text)
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        if environ.get(variable):
            return environ[variable]
    return None


def _either(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _proxies(pip: Mapping[str, Value], environ: Mapping[str, str]) -> tuple[Proxy, ...]:
    """UsageError for a proxy that cannot be used: going past it is not what was asked for."""
    texts = [("all", pip["proxy"].text, pip["proxy"].source)] if "proxy" in pip else []
    texts += [(scheme, _either(environ, f"{scheme}_proxy"), f"{scheme.upper()}_PROXY") for scheme in ("https", "http", "all")]
    made = []
    for scheme, text, source in texts:
        if not text.strip():
            continue
        url, login = split_login(text.strip() if "://" in text else f"http://{text.strip()}")
        try:
            if urlsplit(url).scheme.lower() not in _PROXY_SCHEMES or not urlsplit(url).hostname or urlsplit(url).port == 0:
                raise ValueError  # noqa: TRY301 - as for a port that is no number
        except ValueError:
            hint = "http://host:port, https://host:port or socks5h://host:port"
            raise UsageError(f"{shown(url)} is not the address of a proxy", code="proxy-address", context=source, hint=hint) from None
        made.append(Proxy(scheme, url.rstrip("/"), login))
    return tuple(made)


def _pip_keyring(pip: Mapping[str, Value]) -> bool:
    return "keyring-provider" not in pip or pip["keyring-provider"].text.strip() != "disabled"


def _moment(options: Options, pip: Mapping[str, Value], uv: UvConfig, *, uses_uv: bool, notes: list[str]) -> str | None:
    """The time after which uploads do not count, ISO 8601 in UTC."""
    if options.exclude_newer:
        found = moment(options.exclude_newer)
        if found is None:
            raise UsageError(
                f"--exclude-newer {shown(options.exclude_newer)} is no date", code="bad-date", hint="2024-01-31 or 2024-01-31T12:00:00Z"
            )
        return found
    configured: Any = uv.options.get("exclude-newer") if uses_uv else pip["uploaded-prior-to"].text if "uploaded-prior-to" in pip else None
    if configured is None:
        return None
    found = moment(str(configured))
    if found is None:
        notes.append(f"{shown(str(configured))} is not a date that can be used to leave out newer releases")
    return found


def _six_digits(found: re.Match[str]) -> str:
    """A fraction of a second as every Python reads it."""
    return f".{found[1][:6]:0<6}"


def moment(text: str) -> str | None:
    """A date (the end of it), a time or a span before now (`P3D`, `2 weeks`) as ISO 8601 in UTC, to the microsecond; None for others."""
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
