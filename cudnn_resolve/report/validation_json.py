"""A validation as the object that `validate --format json` prints."""

from __future__ import annotations

from typing import Any

from cudnn_resolve.validation.model import Check, Validation, VisibleGpu


def encode_validation(validation: Validation) -> dict[str, Any]:
    """The JSON form of a validation."""
    return {
        "schema": "cudnn-resolve/validate/1",
        "status": validation.status,
        "checks": [_check(check) for check in validation.checks],
        "gpus": [_gpu(gpu) for gpu in validation.gpus],
        "driver": validation.driver,
        "frameworks": dict(validation.frameworks),
        "loaded": dict(validation.loaded),
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "framework": check.framework,
        "status": check.status,
        "expected": check.expected,
        "observed": check.observed,
        "detail": check.detail,
        "seconds": None if check.seconds is None else round(check.seconds, 6),
        "gpu": check.gpu,
        "output": list(check.output),
    }


def _gpu(gpu: VisibleGpu) -> dict[str, Any]:
    return {"index": gpu.index, "name": gpu.name, "uuid": gpu.uuid, "compute_capability": gpu.compute_capability}
