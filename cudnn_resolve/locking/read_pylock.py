"""Parse a `pylock.toml` of any program; nothing in it is trusted until it has been checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

from packaging.version import Version

from cudnn_resolve.errors import InputError, first_few
from cudnn_resolve.locking.model import TOOL, Lock, path_name
from cudnn_resolve.locking.pep751 import parse_pylock
from cudnn_resolve.locking.tool_table import read_tool
from cudnn_resolve.masking import redacted
from cudnn_resolve.matrix.toml import parse_toml

LIMIT_BYTES = 64 * 1024 * 1024
"""Largest lock to read; a file with ten thousand wheels has four megabytes."""
PACKAGES = 50_000
"""Most entries of a lock."""
_SCHEMES = ("https", "http", "file")
_VCS_SCHEMES = (*_SCHEMES, "ssh", "git")
_DIGEST = re.compile(r"[0-9a-fA-F]{16,256}", re.ASCII)
_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")


def read(text: str, where: str = "pylock.toml") -> Lock:
    """Parse a lock; `where` is the name of its file in messages.

    Raises InputError with the dotted path of the fault if it is invalid or contains what no lock should; WorldError if the installed
    packaging does not support locks. Credentials in URLs are removed, which is noted.
    """
    try:
        raw = parse_toml(text, where)
        parse_pylock(raw, where)
    except InputError as error:
        from cudnn_resolve.package_lists.read_list import not_a_pylock

        raise not_a_pylock(text, where) or error from None
    if len(raw["packages"]) > PACKAGES:
        raise InputError(f"the lock has more than {PACKAGES} packages", code="lock-invalid", context=f"{where}: packages")
    cleaner = _Cleaner(where)
    packages = [cleaner.package(entry, f"packages[{number}]") for number, entry in enumerate(raw["packages"])]
    tool = raw.pop("tool", {}).get(TOOL)
    order = sorted(packages, key=lambda entry: (entry["name"], Version(entry.get("version", "0")), entry.get("marker", "")))
    return Lock(
        file=parse_pylock({**raw, "packages": order}, where),
        tool=read_tool(tool, where) if tool is not None else None,
        notes=tuple(cleaner.notes(raw["lock-version"])),
    )


class _Cleaner:
    """Check and normalize the entries of one file, removing credentials."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._with_credentials: list[str] = []

    def notes(self, version: str) -> Iterator[str]:
        """Remarks on the file, of that version of the format."""
        if Version(version) > Version("1.0"):
            yield f"{self._where} has lock version {version[:20]}; only the features of version 1.0 are read"
        if self._with_credentials:
            yield f"{self._where}: removed the credentials of {first_few(self._with_credentials, 1)}; a lock should not contain any"

    def package(self, raw: dict[str, Any], at: str) -> dict[str, Any]:
        """Normalize an entry; raises InputError if it contains what no lock should."""
        out = {key: value for key, value in raw.items() if key not in ("tool", "attestation-identities") and value != []}
        if "wheels" in out:
            wheels = (self._file(wheel, f"{at}.wheels[{number}]") for number, wheel in enumerate(out["wheels"]))
            out["wheels"] = sorted(wheels, key=lambda wheel: str(wheel["name"]))
        for kind in ("sdist", "archive"):
            if kind in out:
                out[kind] = self._file(out[kind], f"{at}.{kind}", named=kind == "sdist")
        for kind in ("directory", "vcs"):
            if kind in out:
                out[kind] = self._place(out[kind], f"{at}.{kind}")
        index = self._index(out.pop("index", ""), f"{at}.index")
        dependencies = sorted(_dependencies(out.pop("dependencies", ())), key=lambda one: (one["name"], one.get("version", "")))
        because = self._because(raw.get("tool", {}).get(TOOL, {}), f"{at}.tool.{TOOL}.because")
        return {
            **out,
            **({"index": index} if index else {}),
            **({"dependencies": dependencies} if dependencies else {}),
            **({"tool": {TOOL: {"because": because}}} if because else {}),
        }

    def _index(self, index: str, at: str) -> str | None:
        """The URL of an index; an invalid one is ignored, since it is informational."""
        try:
            return self._url(index, at) if index else None
        except InputError:
            return None

    def _file(self, raw: dict[str, Any], at: str, *, named: bool = True) -> dict[str, Any]:
        out = self._place(raw, at)
        name = raw.get("name") or path_name(raw.get("path"), raw.get("url"))
        if not _NAME.fullmatch(name) or name in (".", ".."):
            raise self._fault(f"{name[:80]!r} is not a file name", f"{at}.name")
        if raw.get("size", 0) < 0:
            raise self._fault(f"a file cannot have {raw['size']} bytes", f"{at}.size")
        for algorithm, digest in raw["hashes"].items():
            if not _DIGEST.fullmatch(digest):
                raise self._fault(f"{digest[:80]!r} is not a hexadecimal digest", f"{at}.hashes.{algorithm[:40]}")
        out["hashes"] = {algorithm.lower(): digest.lower() for algorithm, digest in sorted(raw["hashes"].items())}
        if "upload-time" in out:
            out["upload-time"] = _utc(out["upload-time"])
        return {**out, "name": name} if named else out

    def _place(self, raw: dict[str, Any], at: str) -> dict[str, Any]:
        """Normalize the place of a file, folder or repository; empty fields are dropped."""
        out = {key: value for key, value in raw.items() if value != "" and value is not False}
        commit = raw.get("commit-id")
        if commit is not None and not _DIGEST.fullmatch(commit):
            raise self._fault(f"{commit[:80]!r} is not a commit id", f"{at}.commit-id")
        if "url" in out:
            out["url"] = self._url(out["url"], f"{at}.url", _SCHEMES if commit is None else _VCS_SCHEMES)
        for key in ("path", "subdirectory"):
            if key in out and (not out[key].isprintable() or out[key].startswith(("\\\\", "//"))):
                raise self._fault(f"{out[key][:120]!r} is not a path to a file", f"{at}.{key}")
        return out

    def _url(self, url: str, at: str, schemes: Sequence[str] = _SCHEMES) -> str:
        """Remove credentials from a URL; raises InputError if it is invalid or has another scheme."""
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = None
        if parts is None or parts.scheme not in schemes or not (parts.netloc or parts.scheme == "file") or not url.isprintable():
            shown = re.sub(r"//[^/@]*@", "//", url[:120])
            raise self._fault(f"{shown!r} is not a URL of a package ({', '.join(schemes)})", at)
        if "@" in parts.netloc and parts.scheme in _SCHEMES:
            self._with_credentials.append(at)
            return redacted(url)
        return url

    def _because(self, table: object, at: str) -> list[str]:
        found = table.get("because", []) if isinstance(table, dict) else None
        if not isinstance(found, list) or not all(isinstance(reason, str) for reason in found):
            raise self._fault("not a list of strings", at)
        return found

    def _fault(self, message: str, at: str) -> InputError:
        return InputError(f"the lock is not valid: {message}", code="lock-invalid", context=f"{self._where}: {at}")


def _dependencies(raw: Sequence[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Names and versions of dependencies; those without a name are ignored, since all of them are informational."""
    for dependency in raw:
        if isinstance(dependency.get("name"), str):
            yield {key: dependency[key] for key in ("name", "version") if isinstance(dependency.get(key), str)}


def _utc(moment: datetime) -> datetime:
    """The time in UTC in whole seconds; one without a zone is taken as UTC."""
    aware = (moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)).replace(microsecond=0)
    try:
        return aware.astimezone(timezone.utc)
    except OverflowError:
        return aware.replace(tzinfo=timezone.utc)
