"""What /etc/os-release says."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def parse_os_release(text: str) -> Mapping[str, str]:
    r"""The assignments of an os-release file, quotes and backslashes resolved; lines that are none are passed over.

    Sample: `VERSION_ID="22.04"`. Source: os-release(5).
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and key.replace("_", "").isalnum() and key.isascii():
            found[key] = _unquoted(value)
    return MappingProxyType(found)


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        quote, value = value[0], value[1:-1]
        if quote == "'":
            return value
    letters = iter(value)
    return "".join(next(letters, "") if letter == "\\" else letter for letter in letters)
