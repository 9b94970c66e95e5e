"""What apt and dpkg said, as commands: the set of packages at one version, the key of a repository, the package in the way."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Match
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book

_EQUAL = re.compile(r"= ?([0-9][\w.+~:-]{0,60})$")
_URL = re.compile(r"(?:https?|file|copy|mirror\+\w{1,10}):/[\w./:+~-]{1,200}")
_REPO = re.compile(r"/compute/cuda/repos/([a-z]{2,12}\d{2,4})/(x86_64|sbsa|aarch64|cross-linux-sbsa)")


def system_values(matches: Iterable[Match], facts: Facts | None, book: Book) -> dict[str, str]:
    """Fields for commands, as far as the messages give them.

    `together` names packages with the version that they agree on, `newest` any release of the wanted major, `in_the_way` the package that
    owns the file and `archive` what could not be unpacked over it, `keyring` the address of NVIDIA's package with the key, `switched_off`
    the command that leaves a repository out.
    """
    values: dict[str, str] = {}
    for match in matches:
        found = {name: str(value) for name, value in match.fields.items()}
        values.update({name: value for name, value in _of(found).items() if name not in values})
    for match in matches:
        address = _URL.search(match.text)
        if address is None:
            continue
        keyring = _keyring(match.text, facts, book)
        if keyring is not None:
            values.setdefault("keyring", keyring)
        values.setdefault("switched_off", _switched_off(address[0]))
    return values


def _of(found: dict[str, str]) -> dict[str, str]:
    values = {}
    needs, relation, dependent = found.get("needs"), found.get("relation", ""), found.get("dependent")
    equal = _EQUAL.search(relation)
    if needs and equal:
        with_it = f"{dependent}={equal[1]}" if dependent and dependent.startswith(needs) else dependent
        values["together"] = shlex.join([f"{needs}={equal[1]}", *([with_it] if with_it else [])])
    package, version = found.get("package"), found.get("version")
    if package and version and version[0].isdigit():
        values["newest"] = shlex.quote(f"{package}={version.split('.')[0]}.*")
    if package and "archive" in found:
        values["archive"] = shlex.quote(found["archive"])
    if package:
        values["in_the_way"] = shlex.quote(package)
    return values


def _keyring(text: str, facts: Facts | None, book: Book) -> str | None:
    """The package with the key, of the repository that the message names, else of the one for this distribution."""
    named = _REPO.search(text)
    arch = named[2] if named else None
    for one in book.repositories():
        if one.keyring and ((named and f"/{named[1]}/{arch}/" in one.url) or (not named and _is_here(one.os, facts) and "nvidia" in text)):
            return shlex.quote(f"{one.url}{one.keyring}")
    return None


def _is_here(name: str, facts: Facts | None) -> bool:
    return facts is not None and name == f"{facts.platform.distribution}{facts.platform.release}"


def _switched_off(url: str) -> str:
    """Every list line with that address as a comment."""
    plain = re.sub(r"([.*\[\]^$\\])", r"\\\1", url)
    edit = rf"\|{plain}|s/^deb/# deb/"
    return f"sudo find /etc/apt -name '*.list' -exec sed -i {shlex.quote(edit)} {{}} +"
