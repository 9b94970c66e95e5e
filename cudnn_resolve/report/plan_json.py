"""A plan as the mapping that the contract fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cudnn_resolve.planning.model import Plan, Proven, Stack
    from cudnn_resolve.requirement.source import File
    from cudnn_resolve.resolution.model import Conflict

SCHEMA = "cudnn-resolve/plan/1"


def encode_plan(plan: Plan, facts: dict[str, Any]) -> dict[str, Any]:
    """The plan with its facts, already encoded, ready for `json.dumps`."""
    return {
        "schema": SCHEMA,
        "status": "ok" if plan.is_satisfiable else "unsatisfiable",
        "targets": list(plan.targets),
        "facts": facts,
        "stack": _stack(plan.stack) if plan.stack else None,
        "pip": [
            {
                "name": one.name,
                "version": one.version,
                "action": one.action,
                "index": one.index,
                "because": list(one.because),
                "installed": one.installed,
                "file": _file(one.file) if one.file is not None else None,
            }
            for one in plan.pip
        ],
        "unpinned": list(plan.unpinned),
        "apt": [
            {
                "name": one.name,
                "version": one.version,
                "repository": one.repository,
                "action": one.action,
                "because": list(one.because),
            }
            for one in plan.apt
        ],
        "overrides": [
            {
                "package": one.package,
                "requested_by": one.requested_by,
                "declared": one.declared,
                "chosen": one.chosen,
                "reason": one.reason,
            }
            for one in plan.overrides
        ],
        "environment": [{"kind": one.kind, "value": one.value, "why": one.why} for one in plan.environment],
        "steps": [
            {
                "id": one.id,
                "kind": one.kind,
                "argv": list(one.argv) if one.argv is not None else None,
                "why": one.why,
                "needs_root": one.needs_root,
            }
            for one in plan.steps
        ],
        "warnings": [{"code": one.code, "message": one.message} for one in plan.warnings],
        "conflict": _conflict(plan.conflict) if plan.conflict else None,
        **({"proven": [_proven(one) for one in plan.proven]} if plan.proven is not None else {}),
    }


def _proven(one: Proven) -> dict[str, Any]:
    return {**one.record, "fits": one.because is None, "because": one.because, "here": one.here}


def _file(file: File) -> dict[str, Any]:
    return {"name": file.filename, "url": file.url, "size": file.size, "hashes": dict(file.hashes)}


def _stack(stack: Stack) -> dict[str, Any]:
    return {
        "driver_min": stack.driver_min,
        "driver_because": stack.driver_because,
        "driver_policy": stack.driver_policy,
        "cuda": stack.cuda,
        "cudnn": stack.cudnn,
        "cudnn_soname": stack.cudnn_soname,
        "frameworks": [
            {
                "name": one.name,
                "version": one.version,
                "variant": one.variant,
                "cuda_built": one.cuda_built,
                "cudnn_built": one.cudnn_built,
                "cudnn": one.cudnn,
                "libraries": one.libraries,
                "asked": one.asked,
            }
            for one in stack.frameworks
        ],
    }


def _conflict(conflict: Conflict) -> dict[str, Any]:
    return {
        "message": conflict.message,
        "causes": [{"what": one.what, "because": one.because} for one in conflict.causes],
        "relaxations": [{"change": one.change, "result": one.result, "command": one.command} for one in conflict.relaxations],
    }
