"""A package index on the loopback interface: real pages over small real wheels, and every fault that a server can have.

    with IndexServer() as index:
        index.add_wheel("demo", "1.0", requires=["other>=2"])
        index.fail("/simple/demo/", status(503), times=2)
        settings = index.settings()

What it serves can be changed while it runs. It remembers what was asked (`index.asked`).
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import json
import socket
import ssl
import struct
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, unquote

from packaging.utils import canonicalize_name

from cudnn_resolve.index.settings import IndexAddress, Patience, Settings

CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"


@dataclass
class Served:
    """One file of the index."""

    filename: str
    body: bytes
    metadata: bytes | None
    requires_python: str | None = None
    yanked: str | None = None
    uploaded: str = "2024-01-01T00:00:00.000000Z"
    sha256: str | None = None
    """What the page says, where that is not the truth."""

    @property
    def digest(self) -> str:
        return self.sha256 or hashlib.sha256(self.body).hexdigest()


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass
class Reply:
    """One answer before it goes out; a fault may change it."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pause: float = 0.0
    """Seconds before the first byte."""
    drip: float = 0.0
    """Seconds between two bytes of the body."""
    cut: int | None = None
    """The connection ends after so many bytes of the body."""
    is_reset: bool = False
    """It ends with a reset rather than politely."""


Fault = Callable[[Reply, "IndexServer"], None]


def status(code: int, **headers: str) -> Fault:
    """Another status, with `retry_after="1"` and the like."""

    def change(reply: Reply, _: IndexServer) -> None:
        reply.status, reply.body = code, b"no"
        reply.headers = {"Content-Length": "2", **{key.replace("_", "-"): value for key, value in headers.items()}}

    return change


def stall() -> Fault:
    """Nothing comes until the server ends."""

    def change(reply: Reply, _: IndexServer) -> None:
        reply.pause = 60.0

    return change


def drip(seconds: float) -> Fault:
    """One byte at a time."""

    def change(reply: Reply, _: IndexServer) -> None:
        reply.drip = seconds

    return change


def cut(after: int, *, is_reset: bool = False) -> Fault:
    """The connection ends in the middle of the body."""

    def change(reply: Reply, _: IndexServer) -> None:
        reply.cut, reply.is_reset = after, is_reset

    return change


def body(content: bytes, kind: str | None = None, **headers: str) -> Fault:
    """Another body, with its right length unless `content_length` says something else."""

    def change(reply: Reply, _: IndexServer) -> None:
        reply.status, reply.body = 200, content
        reply.headers["Content-Length"] = str(len(content))
        if kind:
            reply.headers["Content-Type"] = kind
        reply.headers.update({key.replace("_", "-").title(): value for key, value in headers.items()})

    return change


def redirect(location: str, code: int = 302) -> Fault:
    """On to another address."""

    def change(reply: Reply, _: IndexServer) -> None:
        reply.status, reply.body = code, b""
        reply.headers = {"Location": location, "Content-Length": "0"}

    return change


class IndexServer:
    """An index with files of its own; see the module."""

    def __init__(self, *, form: str = "html", metadata_beside: bool = False, ranges: bool = True, tls: bool = False) -> None:
        self.form = form
        """`html`, `json`, or `both` (whatever the client prefers)."""
        self.metadata_beside = metadata_beside
        """PEP 658."""
        self.ranges = ranges
        self.suffix_ranges = True
        self.heads = True
        self.packs = False
        """Pages come as gzip to those who take it."""
        self.etags = False
        self.cache_control: str | None = None
        self.delay = 0.0
        """Seconds before each answer."""
        self.login: tuple[str, str] | None = None
        self.asked: list[Asked] = []
        self.files: dict[str, dict[str, Served]] = {}
        self.others: dict[str, tuple[str, bytes]] = {}
        """Path to media type and body of anything else."""
        self._faults: list[tuple[str, Fault, list[int]]] = []
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_suffix(".key"))
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> IndexServer:  # noqa: PYI034 - nothing inherits from it
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def root(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """Address of the index, for `--index-url`."""
        return f"{self.root}/simple"

    def settings(self, **changes: Any) -> Settings:
        """Settings that ask this index alone, and give up soon."""
        made: dict[str, Any] = {
            "indexes": (IndexAddress(url=self.url, source="a test"),),
            "patience": Patience(connect=2.0, read=0.4, answer=0.8),
            "retries": 2,
            "backoff": 0.01,
        }
        return Settings(**{**made, **changes})

    def add_wheel(
        self,
        name: str,
        version: str,
        *,
        requires: Iterable[str] = (),
        extras: Iterable[str] = (),
        tag: str = "py3-none-any",
        members: Mapping[str, bytes] | None = None,
        metadata_first: bool = False,
        **said: Any,
    ) -> Served:
        """The wheel, served from now on; `requires_python`, `yanked`, `uploaded` and `sha256` are what the page says of it."""
        metadata = metadata_text(name, version, requires=requires, extras=extras, requires_python=said.get("requires_python"))
        filename = f"{name.replace('-', '_')}-{version}-{tag}.whl"
        content = build_wheel(name, version, metadata, members or {}, metadata_first=metadata_first, tag=tag)
        return self.add(name, Served(filename, content, metadata, **said))

    def add_sdist(
        self, name: str, version: str, *, requires: Iterable[str] = (), form: str = "2.2", dynamic: Sequence[str] = (), **said: Any
    ) -> Served:
        """The source archive, served from now on."""
        metadata = metadata_text(name, version, requires=requires, form=form, dynamic=dynamic)
        top = f"{name.replace('-', '_')}-{version}"
        archive = build_sdist({f"{top}/PKG-INFO": metadata, f"{top}/setup.py": b"raise SystemExit"})
        return self.add(name, Served(f"{top}.tar.gz", archive, None, **said))

    def add(self, name: str, file: Served) -> Served:
        """Any file, served from now on under a name."""
        self.files.setdefault(canonicalize_name(name), {})[file.filename] = file
        return file

    def fail(self, path: str, fault: Fault, times: int | None = None) -> None:
        """From now on, answers to paths that begin with `path` have the fault, the next `times` of them or all."""
        self._faults.append((path, fault, [times if times is not None else 1 << 30]))

    def heal(self) -> None:
        """Ends all faults."""
        self._faults.clear()

    def paths(self, method: str = "GET") -> list[str]:
        """What was asked for, in order."""
        return [one.path for one in self.asked if one.method == method]

    # the answers

    def answer(self, asked: Asked) -> Reply:
        """What goes out for a request, faults included."""
        with self._lock:
            self.asked.append(asked)
        reply = self._right(asked)
        reply.pause = max(reply.pause, self.delay)
        with self._lock:
            for path, fault, left in self._faults:
                if asked.path.startswith(path) and left[0] > 0:
                    left[0] -= 1
                    fault(reply, self)
                    break
        return reply

    def tunnel(self, asked: Asked) -> bool:
        """Whether a tunnel is dug, as a proxy does; remembers who wanted one."""
        with self._lock:
            self.asked.append(asked)
        return self.login is None or asked.headers.get("proxy-authorization") == basic(*self.login)

    def wait(self, seconds: float) -> bool:
        """True after that time; False where the server ended before."""
        return not self._ended.wait(seconds)

    def _right(self, asked: Asked) -> Reply:
        if self.login and asked.headers.get("authorization") != basic(*self.login):
            return Reply(401, b"who?", {"WWW-Authenticate": 'Basic realm="index"', "Content-Length": "4"})
        parts = unquote(asked.path.partition("?")[0]).strip("/").split("/")
        if asked.path in self.others:
            kind, content = self.others[asked.path]
            return self._page(asked, kind, content)
        if len(parts) == 2 and parts[0] == "simple" and parts[1] in self.files:
            is_json = self.form == "json" or (self.form == "both" and "json" in asked.headers.get("accept", "").split(";")[0])
            kind = "application/vnd.pypi.simple.v1+json" if is_json else "text/html"
            return self._page(asked, kind, (self.json_page if is_json else self.html_page)(parts[1]))
        if len(parts) == 3 and parts[0] == "files" and parts[1] in self.files:
            return self._file(asked, parts[1], parts[2])
        return Reply(404, b"none", {"Content-Length": "4"})

    def _page(self, asked: Asked, kind: str, content: bytes) -> Reply:
        headers = {"Content-Type": kind}
        if self.cache_control:
            headers["Cache-Control"] = self.cache_control
        if self.etags:
            headers["ETag"] = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            if asked.headers.get("if-none-match") == headers["ETag"]:
                return Reply(304, b"", headers)
        if self.packs and "gzip" in asked.headers.get("accept-encoding", ""):
            content = gzip.compress(content, 1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return Reply(200, content, {**headers, "Content-Length": str(len(content))})

    def _file(self, asked: Asked, name: str, filename: str) -> Reply:
        file = self.files[name].get(filename)
        if file is None and self.metadata_beside and filename.endswith(".metadata"):
            beside = self.files[name].get(filename.removesuffix(".metadata"))
            if beside and beside.metadata is not None:
                return Reply(200, beside.metadata, {"Content-Length": str(len(beside.metadata))})
        if file is None:
            return Reply(404, b"none", {"Content-Length": "4"})
        if asked.method == "HEAD" and not self.heads:
            return Reply(405, b"", {"Content-Length": "0"})
        reply = self._part(asked.headers.get("range"), file.body)
        reply.headers.update({"ETag": f'"{file.digest}"'} if self.etags else {})
        return reply

    def _part(self, wanted: str | None, content: bytes) -> Reply:
        if not wanted or not self.ranges:
            return Reply(200, content, {"Content-Length": str(len(content))})
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        if not first and not self.suffix_ranges:
            return Reply(501, b"", {"Content-Length": "0"})
        start = int(first) if first else max(0, len(content) - int(last))
        end = min(int(last), len(content) - 1) if first and last else len(content) - 1
        if start >= len(content):
            return Reply(416, b"", {"Content-Length": "0", "Content-Range": f"bytes */{len(content)}"})
        part = content[start : end + 1]
        return Reply(206, part, {"Content-Length": str(len(part)), "Content-Range": f"bytes {start}-{end}/{len(content)}"})

    def html_page(self, name: str) -> bytes:
        """The page of a package, PEP 503."""
        lines = ["<!DOCTYPE html>", "<html><body>", f"<h1>Links for {name}</h1>"]
        for file in self.files[name].values():
            attributes = [f'href="../../files/{name}/{quote(file.filename)}#sha256={file.digest}"']
            if file.requires_python:
                attributes.append(f'data-requires-python="{escape(file.requires_python)}"')
            if file.yanked is not None:
                attributes.append(f'data-yanked="{escape(file.yanked)}"')
            if self.metadata_beside and file.metadata is not None:
                attributes.append(f'data-core-metadata="sha256={hashlib.sha256(file.metadata).hexdigest()}"')
            lines.append(f"<a {' '.join(attributes)}>{escape(file.filename)}</a><br/>")
        return "\n".join([*lines, "</body></html>"]).encode()

    def json_page(self, name: str) -> bytes:
        """The page of a package, PEP 691 and 700."""
        files = []
        for file in self.files[name].values():
            one: dict[str, Any] = {
                "filename": file.filename,
                "url": f"../../files/{name}/{quote(file.filename)}",
                "hashes": {"sha256": file.digest},
                "size": len(file.body),
                "upload-time": file.uploaded,
                "yanked": file.yanked if file.yanked is not None else False,
            }
            if file.requires_python:
                one["requires-python"] = file.requires_python
            if self.metadata_beside and file.metadata is not None:
                one["core-metadata"] = {"sha256": hashlib.sha256(file.metadata).hexdigest()}
            files.append(one)
        return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": files}).encode()


def basic(user: str, password: str) -> str:
    """The header that says who asks."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def metadata_text(
    name: str,
    version: str,
    *,
    requires: Iterable[str] = (),
    extras: Iterable[str] = (),
    requires_python: str | None = None,
    form: str = "2.2",
    dynamic: Sequence[str] = (),
) -> bytes:
    """A METADATA or PKG-INFO file."""
    lines = [f"Metadata-Version: {form}", f"Name: {name}", f"Version: {version}"]
    lines += [f"Dynamic: {one}" for one in dynamic]
    lines += [f"Requires-Python: {requires_python}"] if requires_python else []
    lines += [f"Requires-Dist: {one}" for one in requires]
    lines += [f"Provides-Extra: {one}" for one in extras]
    return ("\n".join(lines) + "\n\nRequires-Dist: not-a-header\n").encode()


def build_wheel(
    name: str, version: str, metadata: bytes, members: Mapping[str, bytes], *, metadata_first: bool = False, tag: str = "py3-none-any"
) -> bytes:
    """An installable wheel."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    described = {f"{info}/METADATA": metadata, f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()}
    code = {f"{stem.lower()}/__init__.py": f"__version__ = {version!r}\n".encode(), **members}
    content = {**described, **code} if metadata_first else {**code, **described}
    record = "".join(f"{path},sha256={_record_digest(raw)},{len(raw)}\n" for path, raw in content.items()) + f"{info}/RECORD,,\n"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, raw in {**content, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), raw, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def build_sdist(members: Mapping[str, bytes]) -> bytes:
    """A source archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for path, raw in members.items():
            info = tarfile.TarInfo(path)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return stream.getvalue()


def _record_digest(raw: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Passes bytes on until the source ends."""
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a client that goes away is what the tests are about."""


def _handler(index: IndexServer) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - one class, which closes over its index
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            """One answer."""
            headers = {key.lower(): value for key, value in self.headers.items()}
            reply = index.answer(Asked(self.command, self.path, headers))
            if reply.pause and not index.wait(reply.pause):
                self.close_connection = True
                return
            self.send_response(reply.status)
            for key, value in reply.headers.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self._send(reply)

        do_HEAD = do_GET  # noqa: N815 - a name of http.server

        def do_CONNECT(self) -> None:
            """A tunnel to that address."""
            headers = {key.lower(): value for key, value in self.headers.items()}
            self.close_connection = True
            if not index.tunnel(Asked(self.command, self.path, headers)):
                self.send_error(407)
                return
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port))) as far:
                self.send_response(200)
                self.end_headers()
                self.wfile.flush()
                back = threading.Thread(target=_pump, args=(far, self.connection), daemon=True)
                back.start()
                _pump(self.connection, far)

        def _send(self, reply: Reply) -> None:
            if reply.drip:
                for number in range(len(reply.body)):
                    self.wfile.write(reply.body[number : number + 1])
                    self.wfile.flush()
                    if not index.wait(reply.drip):
                        break
                return
            self.wfile.write(reply.body[: reply.cut])
            self.wfile.flush()
            if reply.cut is not None:
                self.close_connection = True
                if reply.is_reset:
                    time.sleep(0.02)  # what was sent arrives first
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    return Handler
