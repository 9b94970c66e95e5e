"""Wheels whose files were overwritten or removed by another wheel: RECORD against what is on disk."""

from __future__ import annotations

import base64
import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.model import Facts, Problem, or_none
from cudnn_resolve.host.port import Host, is_dir

_MOST_FILES = 4000
_RECORD_BYTES = 4 << 20
_MOST_SUMMED_BYTES = 512 << 20
"""Of one environment, a second or two; the smallest files first."""
_PIECE_BYTES = 4 << 20


class _Claim(Struct, frozen=True, kw_only=True):
    """RECORD entry of one file."""

    size: int
    sum: str
    """`sha256=…`, as RECORD writes it."""


def with_overwritten(host: Host, facts: Facts, packages: Iterable[str]) -> Facts:
    """Add a problem for each of these packages whose files are no longer its own.

    Sizes are compared first: an environment of several gigabytes is looked through in milliseconds. The sum of a file is asked only where
    two wheels wrote it and both say the same size, up to a bound.
    """
    pip = or_none(facts.packages.pip) or {}
    wanted = {name: pip[name] for name in packages if name in pip}
    if not wanted:
        return facts
    found = [problem for site in _sites(host, facts) for problem in _problems(host, site, wanted)]
    return replace(facts, problems=(*facts.problems, *found)) if found else facts


def _sites(host: Host, facts: Facts) -> list[str]:
    prefix, version = facts.python.prefix, facts.python.version
    if not prefix or not version:
        return []
    line = ".".join(version.split(".")[:2])
    places = (
        f"{prefix}/lib/python{line}/site-packages",
        f"{prefix}/lib64/python{line}/site-packages",
        f"{prefix}/local/lib/python{line}/dist-packages",
    )
    return list(dict.fromkeys(host.realpath(place) for place in places if is_dir(host, place)))


def _problems(host: Host, site: str, wanted: Mapping[str, str]) -> Iterator[Problem]:
    owners: dict[str, dict[str, _Claim]] = {}
    for name, path, claim in _claims(host, site, wanted):
        owners.setdefault(path, {})[name] = claim
    lost: dict[str, list[str]] = {}
    gone: dict[str, list[str]] = {}
    checked: dict[str, int] = {}
    winners: dict[str, str] = {}
    left = _MOST_SUMMED_BYTES
    for path, claims in sorted(owners.items(), key=lambda one: (min(claim.size for claim in one[1].values()), one[0])):
        seen = host.stat(f"{site}/{path}")
        sum_now: str | None = None
        if seen is not None and len({one.sum for one in claims.values() if one.size == seen.size}) > 1 and seen.size <= left:
            left -= seen.size
            sum_now = _sum(host, f"{site}/{path}", seen.size)
        for name, claim in claims.items():
            checked[name] = checked.get(name, 0) + 1
            if seen is None and not path.endswith(".py"):
                gone.setdefault(name, []).append(path)
            elif seen is not None and not _is_own(claim, seen.size, sum_now):
                lost.setdefault(name, []).append(path)
                others = [other for other, its in claims.items() if other != name and _is_own(its, seen.size, sum_now)]
                if others:
                    winners[name] = others[-1]
    for name, paths in lost.items():
        by = f" by {winners[name]}" if name in winners else ""
        why = f"{len(paths)} of {checked[name]} files, such as {min(paths)}, are not those that {name} {wanted[name]} installed"
        yield Problem(what=f"packages.pip.{name}", why=f"overwritten{by}: {why}")
    yield from _removed(gone, checked, wanted)


def _claims(host: Host, site: str, wanted: Mapping[str, str]) -> Iterator[tuple[str, str, _Claim]]:
    """Package, file and RECORD entry of each library and module."""
    for name, version in wanted.items():
        for path, claim in _record(host, site, name, version):
            if path.endswith((".so", ".pyd", ".py")) or ".so." in path:
                yield name, path, claim


def _removed(gone: Mapping[str, list[str]], checked: Mapping[str, int], wanted: Mapping[str, str]) -> Iterator[Problem]:
    for name, paths in gone.items():
        why = f"{len(paths)} of {checked[name]} files that {name} {wanted[name]} installed are not there, such as {min(paths)}"
        yield Problem(what=f"packages.pip.{name}", why=f"removed: {why}")


def _is_own(claim: _Claim, size: int, sum_now: str | None) -> bool:
    """True where a file matches the entry, as far as it was compared."""
    return claim.size == size and (sum_now is None or not claim.sum.startswith("sha256=") or claim.sum == sum_now)


def _sum(host: Host, path: str, size: int) -> str | None:
    """Hash of a file as RECORD writes it; None where it cannot be read."""
    digest = hashlib.sha256()
    for offset in range(0, size, _PIECE_BYTES):
        piece = host.read_bytes(path, offset, _PIECE_BYTES)
        if not piece:
            return None
        digest.update(piece)
    return "sha256=" + base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _record(host: Host, site: str, name: str, version: str) -> Iterator[tuple[str, _Claim]]:
    """RECORD of a wheel."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    text = host.read_text(f"{site}/{folder}/RECORD", _RECORD_BYTES)
    if text is None:
        return
    try:
        for row in list(csv.reader(text.splitlines()))[:_MOST_FILES]:
            if len(row) == 3 and row[2].isascii() and row[2].isdigit() and len(row[2]) < 16 and not row[0].startswith(("/", "..")):
                yield row[0], _Claim(size=int(row[2]), sum=row[1].rstrip("="))
    except csv.Error:
        return
