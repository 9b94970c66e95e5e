"""A lock, what it changes, and what is wrong with one, as mappings for `--format json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cudnn_resolve.locking.model import because_of, files_of, marker_text, name_of, version_of
from cudnn_resolve.locking.proof import proofs
from cudnn_resolve.report.json import some

if TYPE_CHECKING:
    from cudnn_resolve.locking.change import Change
    from cudnn_resolve.locking.model import Difference, Lock, Tool
    from cudnn_resolve.planning.model import Plan

SCHEMA = "cudnn-resolve/lock/1"
_STACK = ("platform", "driver_min", "compute_capabilities", "cuda", "cudnn", "cudnn_soname", "frameworks", "overrides", "environment")
_APT = ("name", "version", "repository")


def encode_lock(lock: Lock, changes: Iterable[Change], path: str | None, text: str | None = None) -> dict[str, Any]:
    """A lock that was made, ready for `json.dumps`; with its `text` where it was not written to the file `path`."""
    tool = lock.tool
    return {
        "schema": SCHEMA,
        "status": "ok",
        "path": path,
        **({"text": text} if text is not None else {}),
        **(_tool(tool) if tool is not None else {}),
        "packages": [
            {
                "name": one.name,
                "version": version_of(one),
                "marker": marker_text(one.marker),
                "index": one.index,
                "files": [name_of(file) for file in files_of(one)],
                "because": list(because_of(one)),
            }
            for one in lock.packages
        ],
        "changes": [one._asdict() for one in changes],
        "conflict": None,
    }


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "targets": list(tool.asked.targets),
        "python": tool.python,
        "matrix": tool.matrix,
        "driver_policy": tool.asked.driver_policy,
        "platforms": [{**some(one, *_STACK), "apt": [some(apt, *_APT) for apt in one.apt]} for one in tool.stacks],
    }


def encode_conflict(plan: Plan) -> dict[str, Any]:
    """That there is no lock, and why."""
    from cudnn_resolve.report.plan_json import encode_plan

    return {
        "schema": SCHEMA,
        "status": "unsatisfiable",
        "path": None,
        "targets": list(plan.targets),
        "conflict": encode_plan(plan, {})["conflict"],
    }


def encode_check(lock: Lock, found: Iterable[Difference]) -> dict[str, Any]:
    """Whether a lock is current, every way in which it is not, and the records of tests that it passed."""
    differences = [some(one, "what", "locked", "now", "because") for one in found]
    proven = [{**one.record, "fits": one.fits, "because": one.because} for one in proofs(lock)]
    return {"schema": SCHEMA, "status": "outdated" if differences else "current", "differences": differences, "proven": proven}
