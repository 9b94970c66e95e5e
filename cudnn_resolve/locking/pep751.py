"""PEP 751 as packaging knows it: what it accepts is a lock."""

from __future__ import annotations

import sys
from typing import Any

from cudnn_resolve.errors import InputError, WorldError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OLDEST = "26"
"""The packaging that brought `packaging.pylock`."""


def require() -> None:
    """Nothing; WorldError where the packaging that is installed knows no locks."""
    try:
        from packaging import pylock  # noqa: F401 - to see whether it is there
    except ImportError:
        raise WorldError(
            f"reading and writing locks needs packaging {OLDEST} or newer",
            code="packaging-too-old",
            hint="pip install -U packaging; where the old one must stay, run cudnn-resolve from a virtual environment of its own",
        ) from None


def check(text: str, where: str) -> dict[str, Any]:
    """The tables of a lock.

    InputError with the dotted path of the fault where it is none; WorldError where the packaging that is installed knows no locks.
    """
    require()
    from packaging import pylock

    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not TOML: {_shown(error)}", code="lock-invalid", context=where) from None
    try:
        pylock.Pylock.from_dict(raw)
    except pylock.PylockUnsupportedVersionError as error:
        raise InputError(
            f"{where} is a lock of a newer form: {_shown(error)}",
            code="lock-version",
            context=where,
            hint="a newer cudnn-resolve may read it",
        ) from None
    except pylock.PylockValidationError as error:
        place = f"{where}: {error.context}" if error.context else where
        raise InputError(f"the lock is not valid: {str(error.message)[:300]}", code="lock-invalid", context=place) from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        # What its checks let through and a constructor behind them did not expect.
        raise InputError(f"the lock is not valid: {_shown(error)}", code="lock-invalid", context=where) from None
    return raw


def _shown(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:300]
