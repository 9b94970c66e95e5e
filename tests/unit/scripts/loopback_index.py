"""A package index on this machine, for programs that ask one: pages, wheels by range, and a record of what was asked."""

from __future__ import annotations

import html
import io
import json
import random
import re
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A file of a project."""

    name: str
    data: bytes
    requires_python: str | None = None
    yanked: bool = False
    uploaded: str | None = None
    beside: str | None = None
    """The text of its `.metadata` file."""


@dataclass(kw_only=True)
class LoopbackIndex:
    """What the index holds and how it behaves; `asked` grows while it is asked."""

    projects: dict[str, list[Served]] = field(default_factory=dict)
    json: bool = False
    ranges: bool = True
    stumbles: int = 0
    """So many requests are answered with 503 first."""
    url: str = ""
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    """Path, status and bytes of each answer."""

    def add(self, name: str, requires: Sequence[str] = (), **more: Any) -> None:
        """A wheel of that file name, with that Requires-Dist, or a source archive where `data` is given."""
        project = re.sub(r"[-_.]+", "-", name.split("-", 1)[0]).lower()
        extras = more.pop("extras", ())
        data = more.pop("data", None) or wheel(name, requires, extras=extras, padding=more.pop("padding", 0))
        self.projects.setdefault(project, []).append(Served(name=name, data=data, **more))

    def page(self, project: str) -> tuple[str, bytes]:
        """Content type and body of a project's page."""
        if self.json:
            entries = [
                {
                    "filename": one.name,
                    "url": f"../../files/{one.name}",
                    "hashes": {},
                    **({"requires-python": one.requires_python} if one.requires_python else {}),
                    **({"yanked": "withdrawn"} if one.yanked else {}),
                    **({"upload-time": one.uploaded} if one.uploaded else {}),
                }
                for one in self.projects[project]
            ]
            body = {"meta": {"api-version": "1.1"}, "name": project, "files": entries}
            return "application/vnd.pypi.simple.v1+json", json.dumps(body).encode()
        anchors = [
            f'<a href="../../files/{one.name}#sha256=0"'
            + (f' data-requires-python="{html.escape(one.requires_python)}"' if one.requires_python else "")
            + (' data-yanked="withdrawn"' if one.yanked else "")
            + (f' data-upload-time="{one.uploaded}"' if one.uploaded else "")
            + f">{one.name}</a><br>"
            for one in self.projects[project]
        ]
        return "text/html", ("<!DOCTYPE html><html><body>" + "\n".join(anchors) + "</body></html>").encode()

    def file(self, name: str) -> Served | None:
        """The file of that name."""
        return next((one for files in self.projects.values() for one in files if one.name == name), None)


def wheel(name: str, requires: Sequence[str], *, extras: Sequence[str] = (), padding: int = 0) -> bytes:
    """A wheel with METADATA; `padding` bytes of other members come first, one for each kilobyte."""
    project, version = name.split("-")[:2]
    lines = ["Metadata-Version: 2.1", f"Name: {project}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires] + [f"Provides-Extra: {one}" for one in extras]
    content, noise = io.BytesIO(), random.Random(0)  # noqa: S311 - what does not compress
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(padding // 1024):
            archive.writestr(zipfile.ZipInfo(f"{project}/module_of_a_rather_long_name_{number}.py"), noise.randbytes(1024))
        archive.writestr(f"{project}-{version}.dist-info/METADATA", "\n".join([*lines, "", "A description: not a header."]))
        archive.writestr(f"{project}-{version}.dist-info/RECORD", "")
    return content.getvalue()


@contextmanager
def serving(index: LoopbackIndex) -> Iterator[LoopbackIndex]:
    """The index while it answers at its `url`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = _answer(index, self.path, self.headers.get("Range"))
            index.asked.append((self.path, status, len(body)))
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            with suppress(ConnectionError):  # a client may hang up on what is too much for it
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(index: LoopbackIndex, path: str, span: str | None) -> tuple[int, dict[str, str], bytes]:
    if index.stumbles > 0:
        index.stumbles -= 1
        return 503, {}, b""
    kind, _, name = path.strip("/").partition("/")
    if kind == "simple" and name in index.projects:
        content_type, body = index.page(name)
        return 200, {"Content-Type": content_type}, body
    beside = name.endswith(".metadata")
    served = index.file(name.removesuffix(".metadata")) if kind == "files" else None
    if served is None or (beside and served.beside is None):
        return 404, {}, b"<html>gone</html>"
    data = (served.beside or "").encode() if beside else served.data
    if span is None or not index.ranges:
        return 200, {}, data
    first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", span).groups()  # type: ignore[union-attr]
    start = int(first) if first else len(data) - int(last)
    stop = min(int(last) + 1, len(data)) if first and last else len(data)
    if start < 0 or start >= len(data):
        return 416, {"Content-Range": f"bytes */{len(data)}"}, b""
    return 206, {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}, data[start:stop]
