"""Errors of requests to an index, before the client says which index and package they concern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FORBIDDEN = "index-forbidden"
"""Code of an HTTP 403 to a request without credentials: storage services answer so for files that they do not have."""
_TRY_AGAIN = -3
"""`EAI_AGAIN` of getaddrinfo."""


class FetchError(Exception):
    """A request without a usable answer: why, in words, without credentials."""

    def __init__(self, why: str, *, code: str = "index-unavailable", hint: str | None = None, status: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.code = code
        self.hint = hint
        self.status = status


class TransientError(FetchError):
    """A failure that another try may mend."""

    response: Any = None
    """The answer with a transient status, whose Retry-After counts."""


def too_large(limit: int) -> FetchError:
    """The error of an answer with more than `limit` bytes."""
    return FetchError(f"its answer is larger than {limit >> 20} MB", code="index-too-large")


def fetch_error(error: Exception) -> FetchError:
    """What an exception of requests or urllib3 says, in words."""
    chain = list(_chain(error, set()))
    names = {kind.__name__ for one in chain for kind in type(one).__mro__}
    own = next((one for one in chain if isinstance(one, FetchError)), None)
    if own is not None:
        return own
    if "SSLCertVerificationError" in names:
        why = next((one.verify_message for one in chain if hasattr(one, "verify_message")), "certificate")
        hint = "name the certificates to trust as for pip: PIP_CERT, REQUESTS_CA_BUNDLE or SSL_CERT_FILE"
        return FetchError(f"its certificate is not trusted ({why})", code="index-certificate", hint=hint)
    tunnel = next((str(one) for one in chain if "Tunnel connection failed" in str(one)), None)
    if tunnel:
        return FetchError(f"the proxy refuses ({tunnel[-60:].strip()!a})", code="index-proxy")
    if "SOCKS support" in str(error):
        hint = "install PySocks beside cudnn-resolve, or name an http proxy"
        return FetchError("a SOCKS proxy needs the package PySocks", code="index-proxy", hint=hint)
    lookup = next((one for one in chain if type(one).__name__ == "gaierror"), None)
    if lookup is not None:
        kind = TransientError if getattr(lookup, "errno", 0) == _TRY_AGAIN else FetchError
        return kind("the name of its host is not known", code="index-unreachable")
    if "SSLError" in names:
        reason = next((why for one in chain if isinstance(why := getattr(one, "reason", None), str)), "TLS")
        return TransientError(f"no secure connection ({reason})", code="index-tls")
    return _connection_error(chain, names)


def _connection_error(chain: list[BaseException], names: set[str]) -> FetchError:
    if "ConnectionRefusedError" in names:
        return TransientError("the connection is refused", code="index-unreachable")
    if any(isinstance(one, TimeoutError) for one in chain):
        return TransientError("it does not answer in time", code="index-stalled")
    broken = next((one for one in chain if isinstance(one, ConnectionError)), None)
    if broken is not None:
        return TransientError(f"the connection broke off ({type(broken).__name__})", code="index-reset")
    garbage = next((type(one).__name__ for one in chain if any(kind.__name__ == "HTTPException" for kind in type(one).__mro__)), None)
    if garbage and "IncompleteRead" not in names:
        return TransientError(f"what it answers is not HTTP ({garbage})", code="index-garbage")
    if "ProtocolError" in names:
        return TransientError("its answer ends too early", code="index-truncated")
    if any(isinstance(one, ValueError) for one in chain):
        return FetchError(f"its address cannot be used ({type(chain[0]).__name__})", code="index-address")
    system = next((one.strerror for one in chain if isinstance(one, OSError) and one.strerror), None)
    return FetchError(system or type(chain[0]).__name__, code="index-unreachable")


def _chain(error: object, seen: set[int]) -> Iterator[BaseException]:
    """An exception and everything that is wrapped in it, outermost first."""
    if isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        yield error
        for inner in (*error.args, getattr(error, "reason", None), error.__cause__, error.__context__):
            yield from _chain(inner, seen)
