"""Addresses without the credentials in them: before anything is said, kept or written."""

from __future__ import annotations

import re
from urllib.parse import quote

_LOGIN = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*:)?//)[^/?#]*@")
"""A name and a password before the host of an address. A password may hold an `@` that nobody quoted: all up to the last one goes."""
_LOGIN_IN_TEXT = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://|(?<![\w:/])//)[^/?#\s\"'<>]{0,1000}@")
_SECRET_QUERY = re.compile(r"([?&][^=&#]*(?:token|secret|password|passwd|signature|sig|key|credential)[^=&#]*=)[^&#\s]*", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]")


def without_logins(text: str, instead: str = "") -> str:
    """`text` with `instead` where names and passwords stood before the hosts of addresses."""
    return _LOGIN_IN_TEXT.sub(lambda found: found[1] + instead, text) if "@" in text else text


def redacted(url: str) -> str:
    """`url` without user name, password and fragment: as it may be shown, kept and written into a lock."""
    url = url.partition("#")[0]
    found = _LOGIN.match(url)
    return without_logins(url) if found is None else found[1] + url[found.end() :]


def shown(url: str) -> str:
    """`url` as a message may show it: `redacted`, nothing secret in its query, printable, at most 300 characters."""
    text = _UNPRINTABLE.sub(lambda found: quote(found[0].encode("utf-8", "replace")), _SECRET_QUERY.sub(r"\1...", redacted(url)))
    return text if len(text) <= 300 else f"{text[:200]}...{text[-97:]}"
