"""Who asks: credentials from an index's address, from netrc, and from the keyring program where pip or uv may ask it."""

from __future__ import annotations

import contextlib
import os
import threading
from urllib.parse import urlsplit

from cudnn_resolve.index.address import Login, Origin, origin_of, split_login
from cudnn_resolve.index.settings import Settings

_KEYRING_SECONDS = 20


class Credentials:
    """Credentials by origin: what belongs to one host is never shown to another."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._asked: dict[tuple[Origin, str | None], Login | None] = {}
        self._netrc: dict[str, Login | None] = {}
        self._own: list[tuple[Origin, str, Login]] = []
        given = [(index.url, index.login) for index in (*settings.indexes, *(one for _, one in settings.assigned)) if index.login]
        for url, login in (*given, *settings.logins):
            with contextlib.suppress(ValueError):
                self._own.append((origin_of(url), urlsplit(url).path, login))

    def known(self, url: str) -> Login | None:
        """Credentials to send at once: of the index that shares the longest path with `url`, else of netrc."""
        try:
            origin = origin_of(url)
        except ValueError:
            return None
        path = urlsplit(url).path
        own = [(_shared(path, base), login) for where, base, login in self._own if where == origin]
        if own:
            login = max(own, key=lambda one: one[0])[1]
            if login.password:
                return login
            return self._asked.get((origin, login.user)) or self._of_netrc(origin.host) or login
        return self._asked.get((origin, None)) or self._of_netrc(origin.host)

    def found(self, url: str, refused: Login | None) -> Login | None:
        """Credentials to try after a refusal: the keyring's; None where there are none or they were just refused."""
        if not self._settings.keyring:
            return None
        origin = origin_of(url)
        user = refused.user if refused and not refused.password else None
        with self._lock:
            key = (origin, user)
            if key not in self._asked:
                base = next((index.url for index in self._settings.indexes if _same(index.url, origin)), None)
                self._asked[key] = next(
                    (login for service in (base, origin.host) if service and (login := _ask_keyring(service, user))), None
                )
            login = self._asked[key]
        return None if login == refused else login

    def looked_for(self, url: str) -> str:
        """Where credentials for an address were looked for, in words."""
        places = ["the address of the index", self._settings.netrc or "~/.netrc"]
        if self._settings.keyring:
            places.append("the keyring")
        del url
        return ", ".join(places)

    def _of_netrc(self, host: str) -> Login | None:
        if not self._settings.netrc:
            return None
        with self._lock:
            if host not in self._netrc:
                self._netrc[host] = _read_netrc(self._settings.netrc, host)
            return self._netrc[host]


def _shared(path: str, base: str) -> int:
    """How many folders two paths share from the top."""
    pairs = zip(path.split("/"), base.rstrip("/").split("/"), strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), base.rstrip("/").count("/") + 1)


def _same(url: str, origin: Origin) -> bool:
    try:
        return origin_of(url) == origin
    except ValueError:
        return False


def _read_netrc(path: str, host: str) -> Login | None:
    if not os.path.isfile(path):
        return None
    import netrc

    try:
        found = netrc.netrc(path).authenticators(host)
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return None
    return Login(found[0] or "", found[2] or "") if found else None


def _ask_keyring(service: str, user: str | None) -> Login | None:
    """What the keyring program has for a service; it is never let ask the user."""
    import subprocess

    service = split_login(service)[0]
    mode = ["get", service, user] if user else ["--mode", "creds", "get", service]
    try:
        done = subprocess.run(
            ["keyring", *mode], stdin=subprocess.DEVNULL, capture_output=True, timeout=_KEYRING_SECONDS, check=False, text=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return None
    if user:
        return Login(user, lines[0])
    return Login(lines[0], lines[1]) if len(lines) > 1 else None
