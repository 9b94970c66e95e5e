"""The text of a `pylock.toml` to a lock, whoever wrote it: ours, pip's or uv's; nothing in it is believed before it was looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.version import Version

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.file import level
from cudnn_resolve.locking.merge import order
from cudnn_resolve.locking.model import TOOL, Dependency, Lock, LockedDirectory, LockedFile, LockedPackage, LockedVcs
from cudnn_resolve.locking.pep751 import check
from cudnn_resolve.locking.tool import read_tool

LIMIT_BYTES = 64 * 1024 * 1024
"""Largest lock that is read; a file with ten thousand wheels has four megabytes."""
PACKAGES = 50_000
_SCHEMES = ("https", "http", "file")
_VCS_SCHEMES = (*_SCHEMES, "ssh", "git")
_DIGEST = re.compile(r"[0-9a-fA-F]{16,256}", re.ASCII)
_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")


def read(text: str, where: str = "pylock.toml") -> Lock:
    """The lock in a text; `where` names its file in messages.

    InputError with the dotted path of the fault where it is none, or where it holds what no lock should. Credentials in addresses are
    left out, and `notes` says so. WorldError where the installed packaging knows no locks.
    """
    raw = check(text, where)
    if len(raw["packages"]) > PACKAGES:
        raise InputError(f"the lock has more than {PACKAGES} packages", code="lock-invalid", context=f"{where}: packages")
    reader = _Reader(where)
    packages = [reader.package(one, f"packages[{number}]") for number, one in enumerate(raw["packages"])]
    ours = raw.get("tool", {}).get(TOOL)
    return Lock(
        packages=tuple(sorted(packages, key=order)),
        requires_python=raw.get("requires-python"),
        environments=tuple(raw.get("environments", ())),
        default_groups=tuple(raw.get("default-groups", ())),
        created_by=raw["created-by"],
        tool=read_tool(ours, where) if ours is not None else None,
        notes=tuple(reader.notes()),
    )


class _Reader:
    """Reads the entries of one file, and remembers from which addresses it left credentials out."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._levelled: list[str] = []

    def notes(self) -> Iterator[str]:
        if self._levelled:
            more = f" and {len(self._levelled) - 1} more" if len(self._levelled) > 1 else ""
            yield f"{self._where}: {self._levelled[0]}{more} had credentials, which do not belong into a lock; they were left out"

    def package(self, raw: Mapping[str, Any], at: str) -> LockedPackage:
        wheels = [self._file(one, f"{at}.wheels[{number}]") for number, one in enumerate(raw.get("wheels", ()))]
        version = raw.get("version")
        return LockedPackage(
            name=raw["name"],
            version=str(Version(version)) if version is not None else None,
            marker=raw.get("marker"),
            requires_python=raw.get("requires-python"),
            dependencies=tuple(sorted(self._dependencies(raw.get("dependencies", ())), key=lambda one: (one.name, one.version or ""))),
            index=self._index(raw.get("index"), f"{at}.index"),
            wheels=tuple(sorted(wheels)),
            sdist=self._file(raw["sdist"], f"{at}.sdist") if "sdist" in raw else None,
            archive=self._file(raw["archive"], f"{at}.archive") if "archive" in raw else None,
            directory=self._directory(raw["directory"], f"{at}.directory") if "directory" in raw else None,
            vcs=self._vcs(raw["vcs"], f"{at}.vcs") if "vcs" in raw else None,
            because=_because(raw, at, self._where),
        )

    def _index(self, index: str | None, at: str) -> str | None:
        """The address of an index without credentials; it informs and decides nothing: what is none is passed over."""
        try:
            return self._url(index, at) if index else None
        except InputError:
            return None

    def _dependencies(self, raw: Sequence[Mapping[str, Any]]) -> Iterator[Dependency]:
        """They inform and decide nothing: what has no name is passed over."""
        for one in raw:
            name, version = one.get("name"), one.get("version")
            if isinstance(name, str):
                yield Dependency(name, version if isinstance(version, str) else None)

    def _file(self, raw: Mapping[str, Any], at: str) -> LockedFile:
        url = self._url(raw["url"], f"{at}.url") if raw.get("url") else None
        path = self._path(raw["path"], f"{at}.path") if raw.get("path") else None
        name = raw.get("name") or (path or unquote(urlsplit(url or "").path)).replace("\\", "/").rpartition("/")[2]
        if not _NAME.fullmatch(name) or name in (".", ".."):
            raise self._fault(f"{name[:80]!r} is no name of a file", f"{at}.name")
        uploaded = raw.get("upload-time")
        size = raw.get("size")
        if size is not None and size < 0:
            raise self._fault(f"a file has no {size} bytes", f"{at}.size")
        return LockedFile(
            name=name,
            hashes=self._hashes(raw["hashes"], f"{at}.hashes"),
            url=url,
            path=path,
            size=size,
            uploaded=_utc(uploaded) if uploaded is not None else None,
            subdirectory=self._path(raw["subdirectory"], f"{at}.subdirectory") if raw.get("subdirectory") else None,
        )

    def _hashes(self, raw: Mapping[str, Any], at: str) -> tuple[tuple[str, str], ...]:
        for name, digest in raw.items():
            if not _DIGEST.fullmatch(digest):
                raise self._fault(f"{digest[:80]!r} is no hexadecimal digest", f"{at}.{name[:40]}")
        return tuple(sorted((name.lower(), digest.lower()) for name, digest in raw.items()))

    def _directory(self, raw: Mapping[str, Any], at: str) -> LockedDirectory:
        return LockedDirectory(
            path=self._path(raw["path"], f"{at}.path"),
            editable=bool(raw.get("editable", False)),
            subdirectory=self._path(raw["subdirectory"], f"{at}.subdirectory") if raw.get("subdirectory") else None,
        )

    def _vcs(self, raw: Mapping[str, Any], at: str) -> LockedVcs:
        commit = raw["commit-id"]
        if not _DIGEST.fullmatch(commit):
            raise self._fault(f"{commit[:80]!r} is no id of a commit", f"{at}.commit-id")
        return LockedVcs(
            type=raw["type"],
            commit=commit,
            url=self._url(raw["url"], f"{at}.url", _VCS_SCHEMES) if raw.get("url") else None,
            path=self._path(raw["path"], f"{at}.path") if raw.get("path") else None,
            requested=raw.get("requested-revision"),
            subdirectory=self._path(raw["subdirectory"], f"{at}.subdirectory") if raw.get("subdirectory") else None,
        )

    def _url(self, url: str, at: str, schemes: Sequence[str] = _SCHEMES) -> str:
        """The address without credentials; InputError for one that is none or of another kind."""
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = None
        if parts is None or parts.scheme not in schemes or not (parts.netloc or parts.scheme == "file") or not url.isprintable():
            shown = re.sub(r"//[^/@]*@", "//", url[:120])
            raise self._fault(f"{shown!r} is no address from which packages come ({', '.join(schemes)})", at)
        if "@" in parts.netloc and parts.scheme in _SCHEMES:
            self._levelled.append(at)
            return level(url)
        return url

    def _path(self, path: str, at: str) -> str:
        if not path.isprintable() or path.startswith(("\\\\", "//")):
            raise self._fault(f"{path[:120]!r} is no path to a file", at)
        return path

    def _fault(self, message: str, at: str) -> InputError:
        return InputError(f"the lock is not valid: {message}", code="lock-invalid", context=f"{self._where}: {at}")


def _because(raw: Mapping[str, Any], at: str, where: str) -> tuple[str, ...]:
    ours = raw.get("tool", {}).get(TOOL, {})
    found = ours.get("because", []) if isinstance(ours, Mapping) else None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InputError("the lock is not valid: not a list of texts", code="lock-invalid", context=f"{where}: {at}.tool.{TOOL}.because")
    return tuple(found)


def _utc(moment: datetime) -> str:
    """The time as a lock writes it; one without a zone is in UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    try:
        aware = aware.astimezone(timezone.utc)
    except OverflowError:
        aware = aware.replace(tzinfo=timezone.utc)
    return aware.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
