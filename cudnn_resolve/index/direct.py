"""Packages referred to by location: a wheel or source archive at a URL or path, or the folder of a project."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import IndexUnavailableError, InputError
from cudnn_resolve.index import filename
from cudnn_resolve.index.address import is_remote, path_of, url_of
from cudnn_resolve.index.download import digest_of
from cudnn_resolve.index.metadata_reader import read_file
from cudnn_resolve.masking import redacted, shown
from cudnn_resolve.matrix.toml import decode, texts
from cudnn_resolve.requirement.source import Direct, File, Metadata, Offer

if TYPE_CHECKING:
    from cudnn_resolve.index.client import IndexClient

_MOST_PYPROJECT = 8 << 20


def read_direct(client: IndexClient, reference: str) -> Direct:
    """The package at a URL or path: `https://host/demo-1.0-py3-none-any.whl#sha256=...`, `./demo`, `file:///...`.

    Raise InputError if it is unusable, IndexUnavailableError if it cannot be downloaded.
    """
    place, _, fragment = reference.partition("#")
    pairs = (part.partition("=") for part in fragment.split("&"))
    sha256 = next((value.lower() for key, _, value in pairs if key == "sha256"), None)
    if is_remote(place):
        return _remote(client, place, sha256)
    try:
        path = path_of(place)
    except ValueError as error:
        raise InputError(f"{shown(place)} {error}", code="reference-invalid") from None
    return _project(path) if os.path.isdir(path) else _local(path, sha256)


def _remote(client: IndexClient, url: str, sha256: str | None) -> Direct:
    try:
        file_name = unquote(urlsplit(url).path.rpartition("/")[2])
    except ValueError as error:
        raise InputError(f"{shown(url)} is not a URL: {error}", code="reference-invalid") from None
    name, version = _name_and_version(file_name, url)
    if client.offline and sha256 is None:
        raise IndexUnavailableError(f"{shown(url)} must be downloaded to know its hash, which --offline forbids", code="offline")
    if sha256 is None or not file_name.endswith(".whl"):
        file, metadata = _downloaded(client, url, file_name, name, sha256)
        client.keep_metadata(file, metadata)
    else:
        file = File(filename=file_name, url=redacted(url), hashes={"sha256": sha256})
        found = client.metadata(name, replace(file, url=url))
        if found is None:
            raise IndexUnavailableError(f"{shown(url)} is not in the cache, and --offline forbids to download it", code="offline")
        metadata = found
    return Direct(name=name, url=file.url, offer=Offer(version=version, files=(file,)), metadata=metadata)


def _downloaded(client: IndexClient, url: str, file_name: str, name: str, sha256: str | None) -> tuple[File, Metadata]:
    """Size, hash and metadata of a file that is downloaded for them."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
        hashes = {"sha256": sha256} if sha256 else {}
        path = client.fetch(File(filename=file_name, url=url, hashes=hashes), folder)
        file = File(filename=file_name, url=redacted(url), hashes={"sha256": digest_of(path)}, size=os.stat(path).st_size)
        return file, _metadata(path, file_name, name)


def _local(path: str, sha256: str | None) -> Direct:
    file_name = os.path.basename(path)
    name, version = _name_and_version(file_name, path)
    try:
        digest, size = digest_of(path), os.stat(path).st_size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", code="input-unreadable") from None
    if sha256 and digest != sha256:
        raise InputError(f"{path} has the sha256 {digest}, expected {sha256}", code="file-hash")
    file = File(filename=file_name, url=url_of(path), hashes={"sha256": digest}, size=size)
    return Direct(name=name, url=file.url, offer=Offer(version=version, files=(file,)), metadata=_metadata(path, file_name, name))


def _metadata(path: str, file_name: str, name: str) -> Metadata:
    try:
        return read_file(path, file_name, name)
    except ValueError as error:
        raise InputError(f"{file_name[:200]} {error}", code="metadata-invalid", context=path) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", code="input-unreadable") from None


def _name_and_version(file_name: str, where: str) -> tuple[str, str]:
    """Package and version in the name of a file; the package's name ends where the version starts."""
    stem = next((file_name[: -len(end)] for end in (".whl", *filename.SDIST_ENDINGS) if file_name.endswith(end)), None)
    words = stem.split("-") if stem else []
    for count in range(1, len(words)):
        name = canonicalize_name("-".join(words[:count]))
        version = filename.version_in(file_name, name)
        if version is not None and (file_name.endswith(".whl") or words[count][:1].isdigit()):
            return name, version
    raise InputError(f"{shown(where)} is not a wheel, source archive or folder", code="reference-invalid")


def _project(path: str) -> Direct:
    """A project, as far as its pyproject.toml describes it without a build."""
    file = os.path.join(path, "pyproject.toml")
    try:
        with open(file, "rb") as stream:
            table: Any = decode(stream.read(_MOST_PYPROJECT).decode("utf-8")).get("project")
    except FileNotFoundError:
        hint = "write a pyproject.toml with a [project] table, or build a wheel and use that"
        raise InputError(f"{path} has no pyproject.toml", code="project-invalid", hint=hint) from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", code="input-unreadable") from None
    except ValueError as error:
        raise InputError(f"{file} is not TOML: {error}", code="project-invalid") from None
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise InputError(f"{file} has no [project] table with a name", code="project-invalid", hint="build a wheel and use that")
    dynamic = [field for field in texts(table.get("dynamic")) if field in ("dependencies", "optional-dependencies")]
    if dynamic:
        hint = "write them into [project], or build a wheel and use that: python -m build --wheel"
        raise InputError(f"{file} leaves its {' and '.join(dynamic)} to its build", code="project-dynamic", hint=hint)
    version = table.get("version")
    is_known = isinstance(version, str) and filename.is_version(version)
    name = canonicalize_name(table["name"])
    metadata = Metadata(
        requires=(*texts(table.get("dependencies")), *_optional(table.get("optional-dependencies"))),
        requires_python=table["requires-python"] if isinstance(table.get("requires-python"), str) else None,
        extras=tuple(canonicalize_name(extra) for extra in table.get("optional-dependencies") or () if isinstance(extra, str)),
        guessed=None if is_known else "only its build knows its version",
    )
    offer = Offer(version=str(version) if is_known else "0", files=())
    return Direct(name=name, url=url_of(path), offer=offer, metadata=metadata, folder=path)


def _optional(table: object) -> tuple[str, ...]:
    if not isinstance(table, Mapping):
        return ()
    return tuple(_for_extra(requirement, extra) for extra, listed in table.items() for requirement in texts(listed))


def _for_extra(requirement: str, extra: str) -> str:
    """A requirement of an extra, as METADATA writes it."""
    condition = f'extra == "{canonicalize_name(extra)}"'
    body, semicolon, marker = requirement.partition(";")
    return f"{body.strip()} ; ({marker.strip()}) and {condition}" if semicolon else f"{body.strip()} ; {condition}"
