"""What a server, or the way to it, said no with; the client makes an error of it that names index and package."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudnn_resolve.index.address import Origin

FORBIDDEN = "index-forbidden"
"""Code of a refusal to somebody who gave no credentials and was not asked for any: storage answers so for what it does not have."""


class Refusal(Exception):  # noqa: N818 - what a server or the way to it said, in words; the client makes an error of it
    """A request that got no usable answer: why, in words, without credentials."""

    def __init__(self, why: str, *, code: str = "index-unavailable", hint: str | None = None, status: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.code = code
        self.hint = hint
        self.status = status


class TransientRefusal(Refusal):
    """One that may pass."""

    pause: float | None = None
    """Seconds that the server asks to wait."""


def refusal_of(error: Exception, proxy: Origin | None) -> Refusal | None:
    """What an exception of a connection says, in words; None for one that is no matter of connections."""
    found = _of_connection(error) or _of_system(error)
    if found is not None and proxy is not None:
        found.why += f" (through the proxy {proxy.scheme}://{proxy.host}:{proxy.port})"
        found.hint = found.hint or "check HTTPS_PROXY and PIP_PROXY"
    return found


def _of_connection(error: Exception) -> Refusal | None:
    from http.client import HTTPException, IncompleteRead

    if isinstance(error, TimeoutError):
        slow = "slowly" in str(error)
        return TransientRefusal("its answer comes too slowly" if slow else "it does not answer in time", code="index-stalled")
    if isinstance(error, IncompleteRead):
        return TransientRefusal("its answer ends too early", code="index-truncated")
    if isinstance(error, ConnectionRefusedError):
        return TransientRefusal("the connection is refused", code="index-unreachable")
    if isinstance(error, ConnectionError):
        return TransientRefusal(f"the connection broke off ({type(error).__name__})", code="index-reset")
    if isinstance(error, HTTPException):
        return TransientRefusal(f"what it answers is not HTTP ({type(error).__name__})", code="index-garbage")
    return None


def _of_system(error: Exception) -> Refusal | None:
    import socket
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return Refusal(
            f"its certificate is not trusted ({error.verify_message})",
            code="index-certificate",
            hint="name the certificates to trust as for pip: PIP_CERT, REQUESTS_CA_BUNDLE or SSL_CERT_FILE",
        )
    if isinstance(error, ssl.SSLError):
        return TransientRefusal(f"no secure connection ({error.reason or 'TLS'})", code="index-tls")
    if isinstance(error, socket.gaierror):
        again = error.errno == socket.EAI_AGAIN
        return (TransientRefusal if again else Refusal)("the name of its host is not known", code="index-unreachable")
    if isinstance(error, OSError) and "Tunnel connection failed" in str(error):
        return Refusal(f"the proxy refuses ({str(error)[-60:].strip()!a})", code="index-proxy")
    if isinstance(error, OSError):
        return Refusal(error.strerror or type(error).__name__, code="index-unreachable")
    if isinstance(error, ValueError):
        return Refusal(f"its address cannot be used ({type(error).__name__})", code="index-address")
    return None
