"""PEP 751 as `packaging.pylock` implements it: what it accepts is a lock."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from cudnn_resolve.errors import InputError, WorldError, first_line

if TYPE_CHECKING:
    from packaging.pylock import Pylock

_OLDEST = "26"
"""First version of packaging with `packaging.pylock`."""


def require_pylock() -> None:
    """Raise WorldError if the installed packaging does not support locks."""
    logging.getLogger("packaging.pylock").addHandler(logging.NullHandler())  # its warnings are notes of `read`
    try:
        from packaging import pylock  # noqa: F401 - to see whether it is there
    except ImportError:
        raise WorldError(
            f"reading and writing locks needs packaging {_OLDEST} or newer",
            code="packaging-too-old",
            hint="pip install -U packaging; if the old one must stay, run cudnn-resolve from its own virtual environment",
        ) from None


def parse_pylock(raw: dict[str, Any], where: str) -> Pylock:
    """Convert the tables of a lock.

    Raises InputError with the dotted path of the fault if they are invalid; WorldError if packaging does not support locks.
    """
    require_pylock()
    from packaging import pylock

    try:
        return pylock.Pylock.from_dict(raw)
    except pylock.PylockUnsupportedVersionError as error:
        raise InputError(
            f"{where} has a newer lock format: {first_line(error)}",
            code="lock-version",
            context=where,
            hint="a newer cudnn-resolve may support it",
        ) from None
    except pylock.PylockValidationError as error:
        place = f"{where}: {error.context}" if error.context else where
        raise InputError(f"the lock is not valid: {str(error.message)[:300]}", code="lock-invalid", context=place) from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        # Passed the checks of packaging, but not a constructor behind them.
        raise InputError(f"the lock is not valid: {first_line(error)}", code="lock-invalid", context=where) from None
