"""URLs without credentials: masked before they are shown, stored or written."""

from __future__ import annotations

import re
from urllib.parse import quote

_LOGIN = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*:)?//)[^/?#]*@")
"""User name and password before the host of a URL. A password may contain an unquoted `@`: everything up to the last one goes."""
_LOGIN_IN_TEXT = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://|(?<![\w:/])//)[^/?#\s\"'<>]{0,1000}@")
_SECRET_QUERY = re.compile(r"([?&][^=&#]*(?:token|secret|password|passwd|signature|sig|key|credential)[^=&#]*=)[^&#\s]*", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]")


def without_logins(text: str, instead: str = "") -> str:
    """Replace user names and passwords in the URLs of a text by `instead`."""
    return _LOGIN_IN_TEXT.sub(lambda found: found[1] + instead, text) if "@" in text else text


def redacted(url: str) -> str:
    """Drop user name, password and fragment from a URL, so that it may be shown, stored and written into a lock."""
    url = url.partition("#")[0]
    found = _LOGIN.match(url)
    return without_logins(url) if found is None else found[1] + url[found.end() :]


def shown(url: str) -> str:
    """URL for a message: `redacted`, without secrets in its query, printable, at most 300 characters."""
    without_secrets = _SECRET_QUERY.sub(r"\1...", redacted(url))
    text = _UNPRINTABLE.sub(lambda found: quote(found[0].encode("utf-8", "replace")), without_secrets)
    return text if len(text) <= 300 else f"{text[:200]}...{text[-97:]}"
