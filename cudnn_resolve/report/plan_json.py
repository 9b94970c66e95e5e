"""A plan as the mapping that the contract fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudnn_resolve.report.json import plain, some

if TYPE_CHECKING:
    from cudnn_resolve.planning.model import PipAction, Plan
    from cudnn_resolve.requirement.source import File
    from cudnn_resolve.resolution.model import Conflict

SCHEMA = "cudnn-resolve/plan/1"
_PIP = ("name", "version", "action", "index", "because", "installed")
_STEP = ("id", "kind", "argv", "why", "needs_root")
_RELAXATION = ("change", "result", "command")


def encode_plan(plan: Plan, facts: dict[str, Any]) -> dict[str, Any]:
    """The plan with its facts, already encoded, ready for `json.dumps`."""
    return {
        "schema": SCHEMA,
        "status": "ok" if plan.is_satisfiable else "unsatisfiable",
        "targets": list(plan.targets),
        "facts": facts,
        "stack": plain(plan.stack),
        "pip": [_pip(one) for one in plan.pip],
        "unpinned": list(plan.unpinned),
        "apt": plain(plan.apt),
        "overrides": plain(plan.overrides),
        "environment": plain(plan.environment),
        "steps": [some(one, *_STEP) for one in plan.steps],
        "warnings": plain(plan.warnings),
        "conflict": _conflict(plan.conflict) if plan.conflict else None,
        **({"proven": [_proven(one) for one in plan.proven]} if plan.proven is not None else {}),
    }


def _pip(action: PipAction) -> dict[str, Any]:
    return {**some(action, *_PIP), "file": _file(action.file) if action.file is not None else None}


def _proven(one: Any) -> dict[str, Any]:
    return {**one.record, "fits": one.because is None, "because": one.because, "here": one.here}


def _file(file: File) -> dict[str, Any]:
    return {"name": file.filename, "url": file.url, "size": file.size, "hashes": dict(file.hashes)}


def _conflict(conflict: Conflict) -> dict[str, Any]:
    return {
        "message": conflict.message,
        "causes": plain(conflict.causes),
        "relaxations": [some(one, *_RELAXATION) for one in conflict.relaxations],
    }
