"""A cursor over decoded JSON that collects every fault with its path, so that a bad file is explained once and whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from cudnn_resolve.version import Capability, Dotted

T = TypeVar("T")

NAME_LIMIT = 200
"""Longest name of a package, card or fact, in characters."""
PATH_LIMIT = 4096
"""Longest path, in characters; Linux has PATH_MAX."""
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_+-]{1,80}")


def kind_of(value: object) -> str:
    """What a decoded JSON value is, in the words of the messages: `text`, `number`, `list`, `object`, `true or false`, `null`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list) else "object"


def step(path: str, key: str | int) -> str:
    """The path one level down: `packages.pip.numpy`, `gpus[0]`; a key that is no plain word is quoted and shortened."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    word = key if _PLAIN_KEY.fullmatch(key) else ascii(key[:60])
    return f"{path}.{word}" if path else word


class Reader:
    """One JSON object on the way to a frozen value; what is wrong with it goes to `faults`, which all readers of a file share.

    Every getter answers None where the key is absent, null, or holds something wrong (which is then a fault).
    """

    __slots__ = ("_faults", "_path", "_value")

    def __init__(self, value: Mapping[str, Any], path: str, faults: list[str]) -> None:
        self._value = value
        self._path = path
        self._faults = faults

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def fault(self, key: str | int | None, message: str) -> None:
        """Record one fault at a key of this object, or at the object itself."""
        path = self._path if key is None else step(self._path, key)
        self._faults.append(f"{path}: {message}" if path else message)

    def _typed(self, key: str, wanted: type[T], words: str) -> T | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            self.fault(key, f"expected {words}, found {kind_of(value)}")
            return None
        return value

    def is_null(self, key: str) -> bool:
        """True where the key is there and says null."""
        return key in self._value and self._value[key] is None

    def text(self, key: str) -> str | None:
        """Free text for people: anything but NUL."""
        value = self._typed(key, str, "text")
        if value is not None and "\0" in value:
            self.fault(key, "holds a NUL character")
            return None
        return value

    def path(self, key: str) -> str | None:
        """A path: anything but NUL, of a length that the system can have."""
        value = self.text(key)
        if value is not None and len(value) > PATH_LIMIT:
            self.fault(key, f"is no path: {len(value)} characters")
            return None
        return value

    def name(self, key: str) -> str | None:
        """A name or version as other programs write it: not empty, short, nothing that a terminal would act on."""
        value = self._typed(key, str, "text")
        if value is None:
            return None
        why = odd_name(value)
        if why:
            self.fault(key, why)
            return None
        return value

    def parsed(self, key: str, parse: Callable[[str], object]) -> str | None:
        """The text under `key` where `parse` accepts it (ValueError = it does not)."""
        value = self.name(key)
        if value is None:
            return None
        if not value.isascii():
            self.fault(key, f"{value!a} is not written in ASCII")
            return None
        try:
            parse(value)
        except ValueError as error:
            self.fault(key, str(error))
            return None
        return value

    def dotted(self, key: str) -> str | None:
        """A version made of numbers and dots, such as `535.104.05`, as it was written."""
        return self.parsed(key, Dotted)

    def capability(self, key: str) -> str | None:
        """A compute capability as `7.5`, also where it is written `sm_75`."""
        value = self.parsed(key, Capability.parse)
        return None if value is None else str(Capability.parse(value))

    def number(self, key: str, *, last: int) -> int | None:
        """A whole number from 0 to `last`."""
        value = self._typed(key, int, "a whole number")
        if value is not None and not 0 <= value <= last:
            self.fault(key, f"expected a whole number from 0 to {last}, found {'less' if value < 0 else 'more'}")
            return None
        return value

    def flag(self, key: str) -> bool | None:
        """True or false."""
        return self._typed(key, bool, "true or false")

    def inner(self, key: str) -> Reader | None:
        """The object under `key`; null is a fault, because it would be neither unknown nor absent."""
        if self.is_null(key):
            self.fault(key, "expected an object, found null (leave the key out for what is unknown)")
            return None
        value = self._typed(key, dict, "an object")
        return None if value is None else Reader(value, step(self._path, key), self._faults)

    def _list(self, key: str) -> list[Any] | None:
        if self.is_null(key):
            self.fault(key, "expected a list, found null (leave the key out for what is unknown, write [] for none)")
            return None
        return self._typed(key, list, "a list")

    def rows(self, key: str) -> Iterator[Reader] | None:
        """A reader for each object of the list under `key`; None where there is no list."""
        found = self._list(key)
        return None if found is None else self._rows(key, found)

    def _rows(self, key: str, found: list[Any]) -> Iterator[Reader]:
        for index, row in enumerate(found):
            path = step(step(self._path, key), index)
            if isinstance(row, dict):
                yield Reader(row, path, self._faults)
            else:
                self._faults.append(f"{path}: expected an object, found {kind_of(row)}")

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of texts without NUL."""
        found = self._list(key)
        if found is None:
            return None
        path = step(self._path, key)
        good = []
        for index, value in enumerate(found):
            if not isinstance(value, str):
                self._faults.append(f"{step(path, index)}: expected text, found {kind_of(value)}")
            elif "\0" in value:
                self._faults.append(f"{step(path, index)}: holds a NUL character")
            else:
                good.append(value)
        return tuple(good)

    def items(self) -> Iterator[str]:
        """The keys of this object that may be names; an odd one is a fault."""
        for key in self._value:
            why = odd_name(key)
            if why:
                self.fault(key, f"the name {why}")
            else:
                yield key


def odd_name(value: str) -> str:
    """Why a text cannot be a name or a version, in words; empty where it can."""
    if not value:
        return "is empty"
    if len(value) > NAME_LIMIT:
        return f"is {len(value)} characters long, more than {NAME_LIMIT}"
    if _UNPRINTABLE.search(value):
        return "holds a control character"
    return ""
