"""PEP 751 as packaging knows it: what it accepts is a lock."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from cudnn_resolve.errors import InputError, WorldError
from cudnn_resolve.matrix.toml import decode

if TYPE_CHECKING:
    from packaging.pylock import Pylock

OLDEST = "26"
"""The packaging that brought `packaging.pylock`."""


def require() -> None:
    """Raise WorldError where the installed packaging does not know locks."""
    logging.getLogger("packaging.pylock").addHandler(logging.NullHandler())  # what it warns of is a note of `read`
    try:
        from packaging import pylock  # noqa: F401 - to see whether it is there
    except ImportError:
        raise WorldError(
            f"reading and writing locks needs packaging {OLDEST} or newer",
            code="packaging-too-old",
            hint="pip install -U packaging; where the old one must stay, run cudnn-resolve from a virtual environment of its own",
        ) from None


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The tables of a text; InputError where it is not TOML."""
    try:
        return decode(text)
    except ValueError as error:
        raise InputError(f"{where} is not TOML: {shown(error)}", code="lock-invalid", context=where) from None


def validated(raw: dict[str, Any], where: str) -> Pylock:
    """The lock in these tables.

    InputError with the dotted path of the fault where it is not valid; WorldError where the installed packaging does not know locks.
    """
    require()
    from packaging import pylock

    try:
        return pylock.Pylock.from_dict(raw)
    except pylock.PylockUnsupportedVersionError as error:
        raise InputError(
            f"{where} is a lock of a newer form: {shown(error)}",
            code="lock-version",
            context=where,
            hint="a newer cudnn-resolve may read it",
        ) from None
    except pylock.PylockValidationError as error:
        place = f"{where}: {error.context}" if error.context else where
        raise InputError(f"the lock is not valid: {str(error.message)[:300]}", code="lock-invalid", context=place) from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        # What its checks let through and a constructor behind them did not expect.
        raise InputError(f"the lock is not valid: {shown(error)}", code="lock-invalid", context=where) from None


def shown(error: BaseException) -> str:
    """The first line of what an error says, as much of it as a message can hold."""
    return (str(error) or type(error).__name__).splitlines()[0][:300]
