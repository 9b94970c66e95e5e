"""The objects that `--format json` prints, as types; `scripts/schema.py` makes the JSON Schemas of `docs/schema/` from them.

A document takes the fields that it declares from a value. Fields may be added, but never change their meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import CheckedFramework, Comparison, Finding, Moved, Remedy, Verdict
from cudnn_resolve.errors import CudnnResolveError
from cudnn_resolve.execution.model import Done, Execution, Status, Trouble
from cudnn_resolve.locking.change import Change
from cudnn_resolve.locking.model import Difference, Environment, Framework, Lock, because_of, files_of, marker_text, name_of, version_of
from cudnn_resolve.locking.proof import Proof, proofs
from cudnn_resolve.planning.model import AptAction, Plan, Stack, Warning
from cudnn_resolve.report.encode_json import encoded
from cudnn_resolve.resolution.model import AptPin, Cause, Override, Range
from cudnn_resolve.validation import model as validation
from cudnn_resolve.validation.model import Validation

if TYPE_CHECKING:
    from cudnn_resolve.execution.journal import PastApply

D = TypeVar("D", bound=Struct)
FACTS = Annotated[Any, Meta(extra_json_schema={"$ref": "detect.json"})]
PLAN_OBJECT = Annotated[Any, Meta(extra_json_schema={"anyOf": [{"$ref": "plan.json"}, {"type": "null"}]})]
Texts = tuple[str, ...]
_OMITTED_IF_EMPTY = frozenset({"overlays", "ranges"})


def from_value(kind: type[D], value: object, **extra: Any) -> D:
    """Make a document from the attributes of a value; `extra` adds or replaces fields."""
    fields = {}
    for name, key in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        content = extra.get(name, getattr(value, name, UNSET))
        if content is not UNSET and (content or name not in _OMITTED_IF_EMPTY):
            fields[key] = content
    return msgspec.convert(fields, kind, from_attributes=True)


def document(kind: type[Struct], value: object, **extra: Any) -> dict[str, Any]:
    """Make a document and convert it to an object for `json.dumps`."""
    return encoded(from_value(kind, value, **extra))


class FileDocument(Struct, frozen=True, kw_only=True):
    """A file of a package."""

    filename: str = field(name="name")
    url: str
    size: int | None
    hashes: dict[str, str]


class PipDocument(Struct, frozen=True, kw_only=True):
    """What happens to a pip package."""

    name: str
    version: str
    action: Literal["install", "upgrade", "downgrade", "keep", "remove"]
    index: str | None
    because: Texts
    installed: str | None
    file: FileDocument | None


class StepDocument(Struct, frozen=True, kw_only=True):
    """One step of a plan."""

    id: str
    kind: str
    argv: Texts | None
    why: str
    needs_root: bool


class RelaxationDocument(Struct, frozen=True, kw_only=True):
    """A change that would make the request satisfiable, and the command with that change."""

    change: str
    result: str
    command: str


class ConflictDocument(Struct, frozen=True, kw_only=True):
    """Why no consistent choice exists, and what would work, smallest change first."""

    message: str
    causes: tuple[Cause, ...]
    relaxations: tuple[RelaxationDocument, ...]


class PlanDocument(Struct, frozen=True, kw_only=True):
    """`plan --format json`: the ordered steps, or the conflict."""

    schema: Literal["cudnn-resolve/plan/1"] = "cudnn-resolve/plan/1"
    status: Literal["ok", "unsatisfiable"]
    targets: Texts
    facts: FACTS
    stack: Stack | None
    pip: tuple[PipDocument, ...]
    unpinned: Texts
    apt: tuple[AptAction, ...]
    overrides: tuple[Override, ...]
    environment: tuple[Environment, ...]
    steps: tuple[StepDocument, ...]
    warnings: tuple[Warning, ...]
    conflict: ConflictDocument | None
    proven: tuple[dict[str, Any], ...] | UnsetType = UNSET
    command: str | UnsetType | None = UNSET
    ranges: tuple[Range, ...] | UnsetType = UNSET
    """For a picture: the versions that each party allows."""


def encode_plan(plan: Plan, facts: dict[str, Any], **extra: Any) -> dict[str, Any]:
    """Encode a plan with its facts, which are encoded already."""
    proven = UNSET if plan.proven is None else tuple({**_record(proof), "here": proof.is_of(plan.facts)} for proof in plan.proven)
    status = "ok" if plan.is_satisfiable else "unsatisfiable"
    return {**document(PlanDocument, plan, status=status, facts=None, proven=proven, **extra), "facts": facts}


def _record(proof: Proof) -> dict[str, Any]:
    return {**proof.record, "fits": proof.fits, "because": proof.because}


class PlatformDocument(Struct, frozen=True, kw_only=True):
    """The stack of a lock on one platform."""

    platform: str
    driver_min: str | None
    compute_capabilities: Texts
    cuda: str | None
    cudnn: str | None
    cudnn_soname: int | None
    frameworks: tuple[Framework, ...]
    apt: tuple[AptPin, ...]
    overrides: tuple[Override, ...]
    environment: tuple[Environment, ...]


class PackageDocument(Struct, frozen=True, kw_only=True):
    """A package of a lock."""

    name: str
    version: str | None
    marker: str | None
    index: str | None
    files: Texts
    because: Texts


class LockDocument(Struct, frozen=True, kw_only=True):
    """`lock --format json`: the new lock, or the conflict."""

    schema: Literal["cudnn-resolve/lock/1"] = "cudnn-resolve/lock/1"
    status: Literal["ok", "unsatisfiable"]
    path: str | None
    text: str | UnsetType = UNSET
    targets: Texts | UnsetType = UNSET
    python: str | UnsetType = UNSET
    matrix: str | UnsetType | None = UNSET
    driver_policy: str | UnsetType = UNSET
    platforms: tuple[PlatformDocument, ...] | UnsetType = UNSET
    packages: tuple[PackageDocument, ...] | UnsetType = UNSET
    changes: tuple[Change, ...] | UnsetType = UNSET
    conflict: ConflictDocument | None = None
    warnings: Texts | UnsetType = UNSET
    ranges: tuple[Range, ...] | UnsetType = UNSET


def encode_lock(lock: Lock, **extra: Any) -> dict[str, Any]:
    """Encode a new lock; `extra` are fields that it lacks, such as its path."""
    if lock.tool is not None:
        extra |= {
            "targets": lock.tool.request.targets,
            "python": lock.tool.python,
            "matrix": lock.tool.matrix,
            "driver_policy": lock.tool.request.driver_policy,
            "platforms": tuple(from_value(PlatformDocument, stack) for stack in lock.tool.stacks),
        }
    packages = tuple(
        PackageDocument(
            name=package.name,
            version=version_of(package),
            marker=marker_text(package.marker),
            index=package.index,
            files=tuple(name_of(file) for file in files_of(package)),
            because=because_of(package),
        )
        for package in lock.packages
    )
    return document(LockDocument, None, status="ok", packages=packages, **extra)


class DifferenceDocument(Struct, frozen=True, kw_only=True):
    """One difference between the lock and the present, or the machine."""

    what: str
    locked: str
    now: str
    because: str | None


class LockCheckDocument(Struct, frozen=True, kw_only=True):
    """`lock --check --format json`: every way in which a lock is not current, and its validation records."""

    schema: Literal["cudnn-resolve/lock/1"] = "cudnn-resolve/lock/1"
    status: Literal["current", "outdated"]
    differences: tuple[DifferenceDocument, ...]
    proven: tuple[dict[str, Any], ...]
    overlays: Texts | UnsetType = UNSET


def encode_check(lock: Lock, differences: Sequence[Difference], overlays: Texts = ()) -> dict[str, Any]:
    """Encode the result of `lock --check`."""
    proven = tuple(_record(proof) for proof in proofs(lock))
    status = "outdated" if differences else "current"
    return document(LockCheckDocument, None, status=status, differences=tuple(differences), proven=proven, overlays=overlays)


class ApplyDocument(Struct, frozen=True, kw_only=True):
    """`apply --format json`: the outcome, and the plan."""

    schema: Literal["cudnn-resolve/apply/1"] = "cudnn-resolve/apply/1"
    status: Status | Literal["unsatisfiable"]
    plan: PLAN_OBJECT
    id: int | UnsetType | None = UNSET
    installed: Texts | UnsetType = UNSET
    removed: Texts | UnsetType = UNSET
    steps: tuple[Done, ...] | UnsetType = UNSET
    differences: Texts | UnsetType = UNSET
    left: Texts | UnsetType = UNSET
    notes: Texts | UnsetType = UNSET
    use: Texts | UnsetType = UNSET
    restart: str | UnsetType | None = UNSET
    error: Trouble | UnsetType | None = UNSET
    log: str | UnsetType | None = UNSET
    kept_bytes: int | UnsetType | None = UNSET


def encode_apply(done: Execution | None, plan: dict[str, Any] | None = None) -> dict[str, Any]:
    """Encode an execution, None if the request is unsatisfiable, with its plan, which is encoded already."""
    if done is None:
        return document(ApplyDocument, None, status="unsatisfiable", plan=plan)
    steps = tuple(Done(what=step.what, seconds=round(step.seconds, 3)) for step in done.steps)
    return document(ApplyDocument, done, plan=plan, steps=steps, error=done.trouble)


class PastDocument(Struct, frozen=True, kw_only=True):
    """An earlier `apply`."""

    id: int
    at: str
    state: str
    targets: Texts
    changes: Texts
    can_undo: bool
    log: str | None


class HistoryDocument(Struct, frozen=True, kw_only=True):
    """`apply --history --format json`: every `apply` of an environment, newest first."""

    schema: Literal["cudnn-resolve/apply-history/1"] = "cudnn-resolve/apply-history/1"
    applies: tuple[PastDocument, ...]


def history(applies: Sequence[PastApply], undoable: Sequence[int], *, is_running: bool = False) -> tuple[PastDocument, ...]:
    """Describe every `apply` of an environment, newest first; `is_running`: the last one has not ended."""
    return tuple(
        PastDocument(
            id=past.id,
            at=past.begin.at,
            state=_past_state(past, is_running=is_running and past is applies[-1]),
            targets=past.begin.targets,
            changes=(
                *(_past_change(*row) for row in past.begin.install),
                *(f"- {name}" for name in past.begin.remove),
                *(f"{_past_change(*row)} (apt)" for row in _past_system_changes(past)),
            ),
            can_undo=past.id in undoable,
            log=past.log,
        )
        for past in reversed(applies)
    )


def _past_state(past: PastApply, *, is_running: bool) -> str:
    """The state in a user's terms."""
    if is_running and past.state in ("begun", "changing", "reverting"):
        return "at work"
    reverted = past.last("revert")
    if past.state == "reverted" and reverted is not None and reverted.get("why") == "undo":
        return "undone"
    return {"begun": "interrupted", "changing": "interrupted", "dropped": "failed before a change"}.get(past.state, past.state)


def _past_system_changes(past: PastApply) -> Iterator[tuple[str, str, str | None]]:
    """Name, new and old version of the system packages that it changed, as far as the journal is readable."""
    record = past.last("apt") or {}
    packages, along = record.get("packages"), record.get("along")
    rows = [tuple(row) for row in packages if isinstance(row, list)] if isinstance(packages, list) else []
    rows += [(name, *row) for name, row in along.items() if isinstance(row, list)] if isinstance(along, dict) else []
    yield from (row for row in rows if len(row) == 3 and row[1] != row[2])


def _past_change(name: str, version: str, before: str | None) -> str:
    return f"+ {name} {version}" if before is None else f"{name} {before} -> {version}"


class CheckDocument(Struct, frozen=True, kw_only=True):
    """One check of a validation, and its result."""

    id: str
    framework: str | None
    status: validation.Status
    expected: str | None
    observed: str | None
    detail: str
    seconds: float | None
    gpu: int | None
    output: Texts


class GpuDocument(Struct, frozen=True, kw_only=True):
    """One GPU that the validation was to use."""

    index: int
    name: str | None
    uuid: str | None
    compute_capability: str | None


class ValidateDocument(Struct, frozen=True, kw_only=True):
    """`validate --format json`: the checks, and what they ran on."""

    schema: Literal["cudnn-resolve/validate/1"] = "cudnn-resolve/validate/1"
    status: Literal["passed", "failed", "skipped"]
    checks: tuple[CheckDocument, ...]
    gpus: tuple[GpuDocument, ...]
    driver: str | None
    frameworks: dict[str, str]
    loaded: dict[str, str]
    ranges: tuple[Range, ...] | UnsetType = UNSET


def encode_validation(validation: Validation) -> dict[str, Any]:
    """Encode a validation."""
    checks = tuple(check if check.seconds is None else replace(check, seconds=round(check.seconds, 6)) for check in validation.checks)
    frameworks, loaded = dict(validation.frameworks), dict(validation.loaded)
    return document(ValidateDocument, validation, checks=checks, frameworks=frameworks, loaded=loaded)


class DoctorDocument(Struct, frozen=True, kw_only=True):
    """`doctor --format json`: the findings, most likely cause first."""

    schema: Literal["cudnn-resolve/doctor/1"] = "cudnn-resolve/doctor/1"
    findings: tuple[Finding, ...]
    overlays: Texts | UnsetType = UNSET
    ranges: tuple[Range, ...] | UnsetType = UNSET


class VerdictDocument(Struct, frozen=True, kw_only=True):
    """The verdict on one environment, lock or list."""

    what: str
    machine: str | None
    status: Literal["runs", "breaks", "unknown"]
    frameworks: tuple[CheckedFramework, ...]
    findings: tuple[Finding, ...]
    remedy: tuple[Remedy, ...]
    """Fixes for everything that breaks, smallest change first."""
    judged: Texts
    not_judged: Texts
    complaints: Texts
    """Declared requirements of installed packages that are not met, as `pip check` reports them; not part of the verdict."""
    ranges: tuple[Range, ...] | UnsetType = UNSET
    """For a picture: the versions that each party allows."""


class ComparisonDocument(Struct, frozen=True, kw_only=True):
    """What the change from one list to another does to a machine."""

    machine: str | None
    before: Literal["runs", "breaks", "unknown"]
    after: Literal["runs", "breaks", "unknown"]
    frameworks_before: tuple[CheckedFramework, ...]
    frameworks_after: tuple[CheckedFramework, ...]
    appeared: tuple[Finding, ...]
    """Findings of the new list only."""
    gone: tuple[Finding, ...]
    """Findings of the old list only."""
    packages: tuple[Moved, ...]


class VerdictsDocument(Struct, frozen=True, kw_only=True):
    """`check --format json`: a verdict for each file, or for the environment."""

    schema: Literal["cudnn-resolve/check/1"] = "cudnn-resolve/check/1"
    verdicts: tuple[VerdictDocument, ...]
    changes: tuple[ComparisonDocument, ...] | UnsetType = UNSET
    """With `--diff`: one for each machine; the verdicts are those on the new list."""


def encode_verdicts(verdicts: Sequence[Verdict], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Encode the result of `check`."""
    documents = tuple(from_value(VerdictDocument, verdict) for verdict in verdicts)
    return document(VerdictsDocument, None, verdicts=documents, changes=tuple(map(_comparison, comparisons)) or UNSET)


def _comparison(comparison: Comparison) -> ComparisonDocument:
    before, after = comparison.before, comparison.after
    return ComparisonDocument(
        machine=after.machine,
        before=before.status,
        after=after.status,
        frameworks_before=before.frameworks,
        frameworks_after=after.frameworks,
        appeared=comparison.appeared,
        gone=comparison.gone,
        packages=comparison.moved,
    )


class ReasonDocument(Struct, frozen=True, kw_only=True):
    """One requirement in a chain, and the reasons for the package that declares it."""

    text: str = field(name="wants")
    because: str
    parent: str | None = field(name="by")
    obeyed: bool
    links: tuple[ReasonDocument, ...] = field(name="reasons")


class WhyDocument(Struct, frozen=True, kw_only=True):
    """`why --format json`: the chain of reasons for a package, or for its absence."""

    schema: Literal["cudnn-resolve/why/1"] = "cudnn-resolve/why/1"
    package: str
    chosen: str | None
    absence: str | None
    links: tuple[ReasonDocument, ...] = field(name="reasons")
    ranges: tuple[Range, ...] | UnsetType = UNSET
    overlays: Texts | UnsetType = UNSET


class ErrorFields(Struct, frozen=True, kw_only=True):
    """What went wrong, where, and what to do next."""

    code: str
    message: str
    context: str | None
    hint: str | None


class ErrorDocument(Struct, frozen=True, kw_only=True):
    """What every command prints with `--format json` instead of its own document if it ends with an error."""

    schema: Literal["cudnn-resolve/error/1"] = "cudnn-resolve/error/1"
    status: Literal["error"] = "error"
    exit_code: Annotated[int, Meta(ge=1, le=5)]
    error: ErrorFields


def encode_error(error: CudnnResolveError) -> dict[str, Any]:
    """Encode an error."""
    return document(ErrorDocument, None, exit_code=int(error.exit_code), error=from_value(ErrorFields, error))
