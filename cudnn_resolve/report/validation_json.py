"""A validation as the object that `validate --format json` prints."""

from __future__ import annotations

from typing import Any

from cudnn_resolve.report.json import plain
from cudnn_resolve.validation.model import Check, Validation

_HERE_ONLY = ("group", "visible")
"""Fields that only the text and the run itself need."""


def encode_validation(validation: Validation) -> dict[str, Any]:
    """The JSON form of a validation."""
    return {
        "schema": "cudnn-resolve/validate/1",
        "status": validation.status,
        "checks": [_check(check) for check in validation.checks],
        "gpus": [_told(gpu) for gpu in validation.gpus],
        "driver": validation.driver,
        "frameworks": dict(validation.frameworks),
        "loaded": dict(validation.loaded),
    }


def _check(check: Check) -> dict[str, Any]:
    return {**_told(check), "seconds": None if check.seconds is None else round(check.seconds, 6)}


def _told(value: object) -> dict[str, Any]:
    return {name: one for name, one in plain(value).items() if name not in _HERE_ONLY}
