"""Packages that are named by where they are: a wheel or source archive at an address or path, or the folder of a project."""

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
    """The package at an address or path, `https://host/demo-1.0-py3-none-any.whl#sha256=...`, `./demo`, `file:///...`.

    InputError for what is there but cannot be used, IndexUnavailableError where it cannot be had.
    """
    place, _, fragment = reference.partition("#")
    wanted = next((value.lower() for key, _, value in (part.partition("=") for part in fragment.split("&")) if key == "sha256"), None)
    if is_remote(place):
        return _remote(client, place, wanted)
    try:
        path = path_of(place)
    except ValueError as error:
        raise InputError(f"{shown(place)} {error}", code="reference-invalid") from None
    return _project(path) if os.path.isdir(path) else _local(path, wanted)


def _remote(client: IndexClient, url: str, wanted: str | None) -> Direct:
    import tempfile

    try:
        file_name = unquote(urlsplit(url).path.rpartition("/")[2])
    except ValueError as error:
        raise InputError(f"{shown(url)} is no address: {error}", code="reference-invalid") from None
    name, version = _name_and_version(file_name, url)
    if client.offline and wanted is None:
        raise IndexUnavailableError(f"{shown(url)} is needed to know its hash, and this is offline", code="offline")
    if wanted is None or not file_name.endswith(".whl"):
        with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
            hashes = {"sha256": wanted} if wanted else {}
            path = client.fetch([File(filename=file_name, url=url, hashes=hashes)], folder)[0]
            file = File(filename=file_name, url=redacted(url), hashes={"sha256": digest_of(path)}, size=os.stat(path).st_size)
            said = _said(path, file_name, name)
            client.keep_metadata(file, said)
    else:
        file = File(filename=file_name, url=redacted(url), hashes={"sha256": wanted})
        found = client.metadata(name, replace(file, url=url))
        if found is None:
            raise IndexUnavailableError(f"{shown(url)} is not in the cache, and this is offline", code="offline")
        said = found
    return Direct(name=name, url=file.url, offer=Offer(version=version, files=(file,)), metadata=said)


def _local(path: str, wanted: str | None) -> Direct:
    file_name = os.path.basename(path)
    name, version = _name_and_version(file_name, path)
    try:
        digest, size = digest_of(path), os.stat(path).st_size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", code="input-unreadable") from None
    if wanted and digest != wanted:
        raise InputError(f"{path} has the sha256 {digest}, and {wanted} was asked for", code="file-hash")
    file = File(filename=file_name, url=url_of(path), hashes={"sha256": digest}, size=size)
    return Direct(name=name, url=file.url, offer=Offer(version=version, files=(file,)), metadata=_said(path, file_name, name))


def _said(path: str, file_name: str, name: str) -> Metadata:
    try:
        return read_file(path, file_name, name)
    except ValueError as error:
        raise InputError(f"{file_name[:200]} {error}", code="metadata-invalid", context=path) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", code="input-unreadable") from None


def _name_and_version(file_name: str, where: str) -> tuple[str, str]:
    """Name and version in the name of a file; the name ends where the version begins."""
    stem = next((file_name[: -len(end)] for end in (".whl", *filename.SDIST_ENDINGS) if file_name.endswith(end)), None)
    words = stem.split("-") if stem else []
    for count in range(1, len(words)):
        name = canonicalize_name("-".join(words[:count]))
        version = filename.version_in(file_name, name)
        if version is not None and (file_name.endswith(".whl") or words[count][:1].isdigit()):
            return name, version
    raise InputError(f"{shown(where)} is neither a wheel nor a source archive, nor a folder", code="reference-invalid")


def _project(path: str) -> Direct:
    """What the pyproject.toml of a folder says, as far as it is said without a build."""
    file = os.path.join(path, "pyproject.toml")
    try:
        with open(file, "rb") as stream:
            table: Any = decode(stream.read(_MOST_PYPROJECT).decode("utf-8")).get("project")
    except FileNotFoundError:
        hint = "write a pyproject.toml with a [project] table, or build a wheel and name that"
        raise InputError(f"{path} has no pyproject.toml", code="project-invalid", hint=hint) from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", code="input-unreadable") from None
    except ValueError as error:
        raise InputError(f"{file} is not TOML: {error}", code="project-invalid") from None
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise InputError(f"{file} has no [project] table with a name", code="project-invalid", hint="build a wheel and name that")
    dynamic = [one for one in texts(table.get("dynamic")) if one in ("dependencies", "optional-dependencies")]
    if dynamic:
        hint = "write them into [project], or build a wheel and name that: python -m build --wheel"
        raise InputError(f"{file} leaves its {' and '.join(dynamic)} to its build", code="project-dynamic", hint=hint)
    version = table.get("version")
    known = isinstance(version, str) and filename.is_version(version)
    name = canonicalize_name(table["name"])
    said = Metadata(
        requires=(*texts(table.get("dependencies")), *_optional(table.get("optional-dependencies"))),
        requires_python=table["requires-python"] if isinstance(table.get("requires-python"), str) else None,
        extras=tuple(canonicalize_name(one) for one in table.get("optional-dependencies") or () if isinstance(one, str)),
        guessed=None if known else "its version is known to its build only",
    )
    offer = Offer(version=str(version) if known else "0", files=())
    return Direct(name=name, url=url_of(path), offer=offer, metadata=said, folder=path)


def _optional(table: object) -> tuple[str, ...]:
    if not isinstance(table, Mapping):
        return ()
    return tuple(_for_extra(one, extra) for extra, many in table.items() for one in texts(many))


def _for_extra(requirement: str, extra: str) -> str:
    """A requirement that counts for an extra, as METADATA writes it."""
    condition = f'extra == "{canonicalize_name(extra)}"'
    body, semicolon, marker = requirement.partition(";")
    return f"{body.strip()} ; ({marker.strip()}) and {condition}" if semicolon else f"{body.strip()} ; {condition}"
