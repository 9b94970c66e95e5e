"""The text of a `pylock.toml` to a lock, whoever wrote it: ours, pip's or uv's; nothing in it is believed before it was looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

from packaging.version import Version

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.check_pylock import parse_toml, validated
from cudnn_resolve.locking.model import TOOL, Lock, path_name
from cudnn_resolve.locking.tool_table import read_tool
from cudnn_resolve.masking import redacted

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
    left out, and `notes` says so. WorldError where the installed packaging does not know locks.
    """
    try:
        raw = parse_toml(text, where)
        validated(raw, where)
    except InputError as error:
        from cudnn_resolve.locking.foreign import not_a_pylock

        raise not_a_pylock(text, where) or error from None
    if len(raw["packages"]) > PACKAGES:
        raise InputError(f"the lock has more than {PACKAGES} packages", code="lock-invalid", context=f"{where}: packages")
    cleaner = _Cleaner(where)
    packages = [cleaner.package(one, f"packages[{number}]") for number, one in enumerate(raw["packages"])]
    ours = raw.pop("tool", {}).get(TOOL)
    order = sorted(packages, key=lambda one: (one["name"], Version(one.get("version", "0")), one.get("marker", "")))
    return Lock(
        file=validated({**raw, "packages": order}, where),
        tool=read_tool(ours, where) if ours is not None else None,
        notes=(*_of_version(raw["lock-version"], where), *cleaner.notes()),
    )


def _of_version(version: str, where: str) -> Iterator[str]:
    if Version(version) > Version("1.0"):
        yield f"{where} is a lock of the form {version[:20]}, of which 1.0 is known here: what that adds is not read"


class _Cleaner:
    """Checks the valid entries of one file, brings them into one form, and remembers where it left credentials out."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._levelled: list[str] = []

    def notes(self) -> Iterator[str]:
        """What should be known of the file."""
        if self._levelled:
            more = f" and {len(self._levelled) - 1} more" if len(self._levelled) > 1 else ""
            yield f"{self._where}: {self._levelled[0]}{more} had credentials, which do not belong into a lock; they were left out"

    def package(self, raw: dict[str, Any], at: str) -> dict[str, Any]:
        """The entry, checked; InputError where it holds what no lock should."""
        out = {key: value for key, value in raw.items() if key not in ("tool", "attestation-identities") and value != []}
        if "wheels" in out:
            out["wheels"] = sorted(
                (self._file(one, f"{at}.wheels[{number}]") for number, one in enumerate(out["wheels"])), key=lambda one: str(one["name"])
            )
        for kind in ("sdist", "archive"):
            if kind in out:
                out[kind] = self._file(out[kind], f"{at}.{kind}", named=kind == "sdist")
        for kind in ("directory", "vcs"):
            if kind in out:
                out[kind] = self._place(out[kind], f"{at}.{kind}")
        index = self._index(out.pop("index", ""), f"{at}.index")
        dependencies = sorted(self._dependencies(out.pop("dependencies", ())), key=lambda one: (one["name"], one.get("version", "")))
        because = self._because(raw.get("tool", {}).get(TOOL, {}), f"{at}.tool.{TOOL}.because")
        return {
            **out,
            **({"index": index} if index else {}),
            **({"dependencies": dependencies} if dependencies else {}),
            **({"tool": {TOOL: {"because": because}}} if because else {}),
        }

    def _index(self, index: str, at: str) -> str | None:
        """The address of an index without credentials; it informs and decides nothing: what is none is ignored."""
        try:
            return self._url(index, at) if index else None
        except InputError:
            return None

    def _dependencies(self, raw: Sequence[dict[str, Any]]) -> Iterator[dict[str, str]]:
        """They inform and decide nothing: what has no name is ignored."""
        for one in raw:
            if isinstance(one.get("name"), str):
                yield {key: one[key] for key in ("name", "version") if isinstance(one.get(key), str)}

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
        """The place of a file, a folder or a repository; empty fields are ignored."""
        out = {key: value for key, value in raw.items() if value != "" and value is not False}
        commit = raw.get("commit-id")
        if commit is not None and not _DIGEST.fullmatch(commit):
            raise self._fault(f"{commit[:80]!r} is not the id of a commit", f"{at}.commit-id")
        if "url" in out:
            out["url"] = self._url(out["url"], f"{at}.url", _SCHEMES if commit is None else _VCS_SCHEMES)
        for key in ("path", "subdirectory"):
            if key in out and (not out[key].isprintable() or out[key].startswith(("\\\\", "//"))):
                raise self._fault(f"{out[key][:120]!r} is not a path to a file", f"{at}.{key}")
        return out

    def _url(self, url: str, at: str, schemes: Sequence[str] = _SCHEMES) -> str:
        """The address without credentials; InputError for one that is none or of another kind."""
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = None
        if parts is None or parts.scheme not in schemes or not (parts.netloc or parts.scheme == "file") or not url.isprintable():
            shown = re.sub(r"//[^/@]*@", "//", url[:120])
            raise self._fault(f"{shown!r} is not an address that packages come from ({', '.join(schemes)})", at)
        if "@" in parts.netloc and parts.scheme in _SCHEMES:
            self._levelled.append(at)
            return redacted(url)
        return url

    def _because(self, ours: object, at: str) -> list[str]:
        found = ours.get("because", []) if isinstance(ours, dict) else None
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self._fault("not a list of texts", at)
        return found

    def _fault(self, message: str, at: str) -> InputError:
        return InputError(f"the lock is not valid: {message}", code="lock-invalid", context=f"{self._where}: {at}")


def _utc(moment: datetime) -> datetime:
    """The time in UTC, in whole seconds; one without a zone is in UTC."""
    aware = (moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)).replace(microsecond=0)
    try:
        return aware.astimezone(timezone.utc)
    except OverflowError:
        return aware.replace(tzinfo=timezone.utc)
