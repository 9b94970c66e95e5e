"""What `--format json` prints, as types: the JSON Schemas of `docs/schema/` are made of them.

A document takes from a value the fields that it names. Fields may be added, and never change meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import CheckedFramework, Comparison, Finding, Moved, Remedy
from cudnn_resolve.errors import CudnnResolveError
from cudnn_resolve.execution.model import Done, Execution, Status, Trouble
from cudnn_resolve.locking.change import Change
from cudnn_resolve.locking.model import Difference, Environment, Framework, Lock, because_of, files_of, marker_text, name_of, version_of
from cudnn_resolve.locking.proof import Proof, proofs
from cudnn_resolve.planning.model import AptAction, Plan, Stack, Warning
from cudnn_resolve.report.json import encoded
from cudnn_resolve.resolution.model import AptPin, Cause, Override, Range
from cudnn_resolve.validation import model as validation
from cudnn_resolve.validation.model import Validation

D = TypeVar("D", bound=Struct)
FACTS = Annotated[Any, Meta(extra_json_schema={"$ref": "detect.json"})]
PLAN_OBJECT = Annotated[Any, Meta(extra_json_schema={"anyOf": [{"$ref": "plan.json"}, {"type": "null"}]})]
Texts = tuple[str, ...]


_SPARED = frozenset({"overlays", "ranges"})
"""Fields that are left out where there is nothing to say."""


def taken(kind: type[D], value: object, **more: Any) -> D:
    """The document of a value: `more` are fields that it does not have."""
    said = {name: more.get(name, getattr(value, name, UNSET)) for name in kind.__struct_fields__}
    keys = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    told = {keys[name]: one for name, one in said.items() if one is not UNSET and (one or name not in _SPARED)}
    return msgspec.convert(told, kind, from_attributes=True)


def document(kind: type[Struct], value: object, **more: Any) -> dict[str, Any]:
    """The document of a value as an object of JSON."""
    return encoded(taken(kind, value, **more))


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
    """One thing to do."""

    id: str
    kind: str
    argv: Texts | None
    why: str
    needs_root: bool


class RelaxationDocument(Struct, frozen=True, kw_only=True):
    """A change that would make the request satisfiable, and the command that has it."""

    change: str
    result: str
    command: str


class ConflictDocument(Struct, frozen=True, kw_only=True):
    """Why there is no consistent choice, and what would work, the nearest first."""

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
    """Where a picture was asked for: the versions that each party allows."""


def encode_plan(plan: Plan, facts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The plan with its facts, already encoded, ready for `json.dumps`; `more` are fields that it does not have."""
    proven = UNSET if plan.proven is None else tuple({**_record(one), "here": one.is_of(plan.facts)} for one in plan.proven)
    status = "ok" if plan.is_satisfiable else "unsatisfiable"
    return {**document(PlanDocument, plan, status=status, facts=None, proven=proven, **more), "facts": facts}


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
    """`lock --format json`: the lock that was made, or the conflict."""

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


def encode_lock(lock: Lock, **more: Any) -> dict[str, Any]:
    """A lock that was made, ready for `json.dumps`; `more` are fields that it does not have."""
    tool = lock.tool
    if tool is not None:
        platforms = tuple(taken(PlatformDocument, one) for one in tool.stacks)
        more |= {"targets": tool.asked.targets, "python": tool.python, "matrix": tool.matrix, "platforms": platforms}
        more["driver_policy"] = tool.asked.driver_policy
    packages = tuple(
        PackageDocument(
            name=one.name,
            version=version_of(one),
            marker=marker_text(one.marker),
            index=one.index,
            files=tuple(name_of(file) for file in files_of(one)),
            because=because_of(one),
        )
        for one in lock.packages
    )
    return document(LockDocument, None, status="ok", packages=packages, **more)


class DifferenceDocument(Struct, frozen=True, kw_only=True):
    """One thing that is no longer as the lock has it, or not here as it needs it."""

    what: str
    locked: str
    now: str
    because: str | None


class LockCheckDocument(Struct, frozen=True, kw_only=True):
    """`lock --check --format json`: every way in which a lock is not current, and the records of tests that it passed."""

    schema: Literal["cudnn-resolve/lock/1"] = "cudnn-resolve/lock/1"
    status: Literal["current", "outdated"]
    differences: tuple[DifferenceDocument, ...]
    proven: tuple[dict[str, Any], ...]
    overlays: Texts | UnsetType = UNSET


def encode_check(lock: Lock, found: Sequence[Difference], overlays: Texts = ()) -> dict[str, Any]:
    """Whether a lock is current, every way in which it is not, and the records of tests that it passed."""
    proven = tuple(_record(one) for one in proofs(lock))
    status = "outdated" if found else "current"
    return document(LockCheckDocument, None, status=status, differences=tuple(found), proven=proven, overlays=overlays)


class ApplyDocument(Struct, frozen=True, kw_only=True):
    """`apply --format json`: what became of it, and the plan."""

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
    """The execution, None where there is no plan, with the plan that it carried out."""
    if done is None:
        return document(ApplyDocument, None, status="unsatisfiable", plan=plan)
    steps = tuple(Done(what=one.what, seconds=round(one.seconds, 3)) for one in done.steps)
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
    """`apply --history --format json`: every `apply` of an environment, the newest first."""

    schema: Literal["cudnn-resolve/apply-history/1"] = "cudnn-resolve/apply-history/1"
    applies: tuple[PastDocument, ...]


class CheckDocument(Struct, frozen=True, kw_only=True):
    """One thing that was tried and judged."""

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
    """One GPU that was to be used."""

    index: int
    name: str | None
    uuid: str | None
    compute_capability: str | None


class ValidateDocument(Struct, frozen=True, kw_only=True):
    """`validate --format json`: the checks, and what they were about."""

    schema: Literal["cudnn-resolve/validate/1"] = "cudnn-resolve/validate/1"
    status: Literal["passed", "failed", "skipped"]
    checks: tuple[CheckDocument, ...]
    gpus: tuple[GpuDocument, ...]
    driver: str | None
    frameworks: dict[str, str]
    loaded: dict[str, str]
    ranges: tuple[Range, ...] | UnsetType = UNSET


def encode_validation(found: Validation) -> dict[str, Any]:
    """The JSON form of a validation."""
    checks = tuple(one if one.seconds is None else replace(one, seconds=round(one.seconds, 6)) for one in found.checks)
    return document(ValidateDocument, found, checks=checks, frameworks=dict(found.frameworks), loaded=dict(found.loaded))


class DoctorDocument(Struct, frozen=True, kw_only=True):
    """`doctor --format json`: the findings, the most likely cause first."""

    schema: Literal["cudnn-resolve/doctor/1"] = "cudnn-resolve/doctor/1"
    findings: tuple[Finding, ...]
    overlays: Texts | UnsetType = UNSET
    ranges: tuple[Range, ...] | UnsetType = UNSET


class VerdictDocument(Struct, frozen=True, kw_only=True):
    """What is said of one thing that was checked."""

    what: str
    machine: str | None
    status: Literal["runs", "breaks", "unknown"]
    frameworks: tuple[CheckedFramework, ...]
    findings: tuple[Finding, ...]
    remedy: tuple[Remedy, ...]
    """What mends all that breaks together, the smallest change first."""
    judged: Texts
    not_judged: Texts
    complaints: Texts
    """What `pip check` says besides: packages that declare of one another what is not met. It is no part of the verdict."""
    ranges: tuple[Range, ...] | UnsetType = UNSET
    """For a picture."""


class ComparisonDocument(Struct, frozen=True, kw_only=True):
    """What the step from one list to another does to a machine."""

    machine: str | None
    before: Literal["runs", "breaks", "unknown"]
    after: Literal["runs", "breaks", "unknown"]
    frameworks_before: tuple[CheckedFramework, ...]
    frameworks_after: tuple[CheckedFramework, ...]
    appeared: tuple[Finding, ...]
    """Findings that the new list has and the old one has not."""
    gone: tuple[Finding, ...]
    packages: tuple[Moved, ...]


class VerdictsDocument(Struct, frozen=True, kw_only=True):
    """`check --format json`: a verdict for each thing that was named."""

    schema: Literal["cudnn-resolve/check/1"] = "cudnn-resolve/check/1"
    verdicts: tuple[VerdictDocument, ...]
    changes: tuple[ComparisonDocument, ...] | UnsetType = UNSET
    """With `--diff`, for each machine; the verdicts are those on the new list."""


def changed(one: Comparison) -> ComparisonDocument:
    """What a change does to a machine, as a document has it."""
    return ComparisonDocument(
        machine=one.after.machine,
        before=one.before.status,
        after=one.after.status,
        frameworks_before=one.before.frameworks,
        frameworks_after=one.after.frameworks,
        appeared=one.appeared,
        gone=one.gone,
        packages=one.moved,
    )


class ReasonDocument(Struct, frozen=True, kw_only=True):
    """One requirement in a chain, and the reasons behind the package that brought it."""

    text: str = field(name="wants")
    because: str
    parent: str | None = field(name="by")
    obeyed: bool
    links: tuple[ReasonDocument, ...] = field(name="reasons")


class WhyDocument(Struct, frozen=True, kw_only=True):
    """`why --format json`: the chain of reasons behind a package, or behind its absence."""

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
    """What every verb prints with `--format json` in the place of its own document where it ends with an error."""

    schema: Literal["cudnn-resolve/error/1"] = "cudnn-resolve/error/1"
    status: Literal["error"] = "error"
    exit_code: Annotated[int, Meta(ge=1, le=5)]
    error: ErrorFields


def encode_error(error: CudnnResolveError) -> dict[str, Any]:
    """The object of an error."""
    return document(ErrorDocument, None, exit_code=int(error.exit_code), error=taken(ErrorFields, error))
