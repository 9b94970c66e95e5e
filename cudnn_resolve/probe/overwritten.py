"""Wheels whose files another wheel wrote over: what RECORD says of each file against what is on disk."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping

from cudnn_resolve.facts.model import Facts, Problem, or_none
from cudnn_resolve.host.port import Host, is_dir
from cudnn_resolve.record import replace

_MOST_FILES = 4000
_RECORD_BYTES = 4 << 20


def with_overwritten(host: Host, facts: Facts, packages: Iterable[str]) -> Facts:
    """The facts, with a problem for each of these packages whose files are not its own any more.

    Sizes are compared, not hashes: an environment of several gigabytes is looked through in milliseconds, and two builds of a library
    are hardly ever of one size.
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
    owners: dict[str, dict[str, int]] = {}
    for name, version in wanted.items():
        for path, size in _record(host, site, name, version):
            owners.setdefault(path, {})[name] = size
    lost: dict[str, list[str]] = {}
    checked: dict[str, int] = {}
    winners: dict[str, str] = {}
    for path, sizes in owners.items():
        if not path.endswith((".so", ".pyd", ".py")) and ".so." not in path:
            continue
        seen = host.stat(f"{site}/{path}")
        for name, size in sizes.items():
            checked[name] = checked.get(name, 0) + 1
            if seen is not None and seen.size != size:
                lost.setdefault(name, []).append(path)
                for other, its in sizes.items():
                    if other != name and its == seen.size:
                        winners[name] = other
    for name, paths in lost.items():
        by = f" by {winners[name]}" if name in winners else ""
        yield Problem(
            what=f"packages.pip.{name}",
            why=f"overwritten{by}: {len(paths)} of {checked[name]} files, such as {paths[0]}, are not of the size that "
            f"{name} {wanted[name]} installed",
        )


def _record(host: Host, site: str, name: str, version: str) -> Iterator[tuple[str, int]]:
    """Path and size of each file that a wheel installed."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    text = host.read_text(f"{site}/{folder}/RECORD", _RECORD_BYTES)
    if text is None:
        return
    try:
        for row in list(csv.reader(text.splitlines()))[:_MOST_FILES]:
            if len(row) == 3 and row[2].isascii() and row[2].isdigit() and len(row[2]) < 16 and not row[0].startswith(("/", "..")):
                yield row[0], int(row[2])
    except csv.Error:
        return
