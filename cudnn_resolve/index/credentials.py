"""Credentials for indexes: from their URLs, from netrc, and from the keyring program if pip or uv may use it."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from netrc import NetrcParseError, netrc
from urllib.parse import urlsplit

from cudnn_resolve.index.address import Login, Origin, origin_of, split_login
from cudnn_resolve.index.settings import Settings

_KEYRING_SECONDS = 20


class Credentials:
    """Credentials by origin: those of one host are never sent to another."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._keyring: dict[tuple[Origin, str | None], Login | None] = {}
        self._netrc = _read_netrc(settings.netrc)
        self._configured: list[tuple[Origin, str, Login]] = []
        indexes = (*settings.indexes, *(index for _, index in settings.assigned))
        logins = [(index.url, index.login) for index in indexes if index.login]
        for url, login in (*logins, *settings.logins):
            with contextlib.suppress(ValueError):
                self._configured.append((origin_of(url), urlsplit(url).path, login))

    def known(self, url: str, *, redirected: bool = False) -> Login | None:
        """Credentials to send unasked: those of the index that shares the longest path with `url`, else netrc's.

        The `default` entry of a netrc file is for hosts that the user names, not for those of redirects.
        """
        try:
            origin = origin_of(url)
        except ValueError:
            return None
        path = urlsplit(url).path
        configured = [(_shared_folders(path, base), login) for host, base, login in self._configured if host == origin]
        if not configured:
            return self._keyring.get((origin, None)) or self._of_netrc(origin.host, redirected=redirected)
        login = max(configured, key=lambda match: match[0])[1]
        if login.password:
            return login
        return self._keyring.get((origin, login.user)) or self._of_netrc(origin.host, redirected=redirected) or login

    def after_refusal(self, url: str, refused: Login | None) -> Login | None:
        """Credentials of the keyring; None if there are none or they were just refused."""
        if not self._settings.keyring:
            return None
        origin = origin_of(url)
        user = refused.user if refused and not refused.password else None
        with self._lock:
            key = (origin, user)
            if key not in self._keyring:
                index = next((index.url for index in self._settings.indexes if _is_at(index.url, origin)), None)
                services = [service for service in (index, origin.host) if service]
                self._keyring[key] = next((login for service in services if (login := _ask_keyring(service, user))), None)
            login = self._keyring[key]
        return None if login == refused else login

    def places(self) -> str:
        """Places that are searched for credentials, in words."""
        keyring = ["the keyring"] if self._settings.keyring else []
        return ", ".join(["the URL of the index", self._settings.netrc or "~/.netrc", *keyring])

    def _of_netrc(self, host: str, *, redirected: bool) -> Login | None:
        return self._netrc.get(host) or (None if redirected else self._netrc.get("default"))


def _shared_folders(path: str, base: str) -> int:
    """Number of leading folders that two paths share."""
    pairs = zip(path.split("/"), base.rstrip("/").split("/"), strict=False)
    return next((number for number, (folder, other) in enumerate(pairs) if folder != other), base.rstrip("/").count("/") + 1)


def _is_at(url: str, origin: Origin) -> bool:
    try:
        return origin_of(url) == origin
    except ValueError:
        return False


def _read_netrc(path: str | None) -> dict[str, Login]:
    """Logins by host; `default` is the one for any other host."""
    try:
        hosts = netrc(path).hosts if path else {}
    except (OSError, NetrcParseError, UnicodeDecodeError):
        return {}
    return {host: Login(user or "", password or "") for host, (user, _, password) in hosts.items()}


def _ask_keyring(service: str, user: str | None) -> Login | None:
    """Ask the keyring program, without letting it prompt the user."""
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
