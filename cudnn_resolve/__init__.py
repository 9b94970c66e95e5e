"""Plan GPU deep-learning environments that load and run: driver, CUDA, cuDNN and frameworks solved together.

The functions take the words of the command line's options and return typed results: values with attributes, whose `to_json()` is what
`--format json` prints and which a notebook draws. What goes wrong is a `cudnn_resolve.errors.CudnnResolveError`. Nothing is imported before
it is needed.
"""

from __future__ import annotations

from cudnn_resolve._version import __version__

TYPE_CHECKING = False  # that of `typing`, which takes longer to import than everything here
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.operations.apply import ApplyResult
    from cudnn_resolve.operations.doctor import DoctorResult
    from cudnn_resolve.operations.lock import LockCheckResult, LockResult
    from cudnn_resolve.operations.plan import PlanResult, WhyResult
    from cudnn_resolve.operations.results import FactsResult
    from cudnn_resolve.operations.validate import ValidationResult
del TYPE_CHECKING

__all__ = ("__version__", "apply", "detect", "doctor", "lock", "plan", "validate", "why")


def detect(*, python: str | None = None, facts: str | Facts | Mapping[str, Any] | None = None) -> FactsResult:
    """The facts of this machine and of the environment of `python` (default: the active one, else this one).

    With `facts`, those of a facts file or of an object like the one that this function gives, checked and completed.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import MachineOptions

    return api.call(api.detect, MachineOptions, words)


def plan(  # noqa: PLR0913 - the options of the command line
    framework: str | Sequence[str] = (),
    *,
    requirement: str | Sequence[str] = (),
    cuda: str | None = None,
    cudnn: str | None = None,
    python: str | None = None,
    facts: str | Facts | Mapping[str, Any] | None = None,
    driver: str | None = None,
    gpu: str | Sequence[str] = (),
    python_version: str | None = None,
    platform: str | None = None,
    glibc: str | None = None,
    os: str | None = None,
    prefer: Literal["installed", "newest"] | None = None,
    driver_policy: Literal["minor", "strict"] | None = None,
    device: Literal["gpu", "cpu"] | None = None,
    strict_pins: bool = False,
    channel: Literal["auto", "pip", "apt"] | None = None,
    allow_break: str | Sequence[str] = (),
    matrix: str | Sequence[str] = (),
    index_url: str | None = None,
    extra_index_url: str | Sequence[str] = (),
    find_links: str | Sequence[str] = (),
    constraint: str | Sequence[str] = (),
    group: str | Sequence[str] = (),
    index_strategy: Literal["first-index", "best-match"] | None = None,
    exclude_newer: str | None = None,
    no_binary: str | Sequence[str] = (),
    only_binary: str | Sequence[str] = (),
    pre: bool = False,
    no_variant_indexes: bool = False,
    offline: bool = False,
    reinstall_package: str | Sequence[str] = (),
    lock: str | None = None,
) -> PlanResult:
    """The plan for one framework or several, such as `tensorflow==2.15`, or for a `lock`; its `status` is `ok` or `unsatisfiable`.

    Every word means what the option of that name means, None that nothing is said. `facts` is a facts file, or what `detect` gave
    on the machine that is meant.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import PlanRequest

    return api.call(api.plan, PlanRequest, words)


def lock(  # noqa: PLR0913 - the options of the command line
    framework: str | Sequence[str] = (),
    *,
    requirement: str | Sequence[str] = (),
    cuda: str | None = None,
    cudnn: str | None = None,
    python: str | None = None,
    facts: str | Facts | Mapping[str, Any] | None = None,
    driver: str | None = None,
    gpu: str | Sequence[str] = (),
    python_version: str | None = None,
    platform: str | Sequence[str] = (),
    glibc: str | None = None,
    os: str | None = None,
    driver_policy: Literal["minor", "strict"] | None = None,
    device: Literal["gpu", "cpu"] | None = None,
    strict_pins: bool = False,
    channel: Literal["auto", "pip", "apt"] | None = None,
    matrix: str | Sequence[str] = (),
    index_url: str | None = None,
    extra_index_url: str | Sequence[str] = (),
    find_links: str | Sequence[str] = (),
    constraint: str | Sequence[str] = (),
    group: str | Sequence[str] = (),
    index_strategy: Literal["first-index", "best-match"] | None = None,
    exclude_newer: str | None = None,
    no_binary: str | Sequence[str] = (),
    only_binary: str | Sequence[str] = (),
    pre: bool = False,
    no_variant_indexes: bool = False,
    offline: bool = False,
    output: str | None = None,
    check: bool = False,
    no_facts: bool = False,
    upgrade: bool = False,
    upgrade_package: str | Sequence[str] = (),
) -> LockResult | LockCheckResult:
    """The lock that was written, its `status` is `ok` or `unsatisfiable`; with `check` what is wrong with the one that is there.

    Every word means what the option of that name means, None that nothing is said. The file is `pylock.toml`, or `output`; with `-` none
    is written, and the object holds the `text`. With `check` the `status` is `current` or `outdated`.
    """
    words = dict(locals())
    words["platforms"] = words.pop("platform")
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import LockRequest

    if check:
        return api.call(api.check_lock, LockRequest, words)
    return api.call(api.lock, LockRequest, words)


def apply(  # noqa: PLR0913 - the options of the command line
    framework: str | Sequence[str] = (),
    *,
    lock: str | None = None,
    requirement: str | Sequence[str] = (),
    cuda: str | None = None,
    cudnn: str | None = None,
    python: str | None = None,
    driver: str | None = None,
    gpu: str | Sequence[str] = (),
    prefer: Literal["installed", "newest"] | None = None,
    driver_policy: Literal["minor", "strict"] | None = None,
    device: Literal["gpu", "cpu"] | None = None,
    strict_pins: bool = False,
    channel: Literal["auto", "pip", "apt"] | None = None,
    allow_break: str | Sequence[str] = (),
    matrix: str | Sequence[str] = (),
    index_url: str | None = None,
    extra_index_url: str | Sequence[str] = (),
    find_links: str | Sequence[str] = (),
    constraint: str | Sequence[str] = (),
    group: str | Sequence[str] = (),
    index_strategy: Literal["first-index", "best-match"] | None = None,
    exclude_newer: str | None = None,
    no_binary: str | Sequence[str] = (),
    only_binary: str | Sequence[str] = (),
    pre: bool = False,
    no_variant_indexes: bool = False,
    offline: bool = False,
    installer: Literal["auto", "pip", "uv"] = "auto",
    no_hashes: bool = False,
    break_system_packages: bool = False,
    no_validate: bool = False,
    dry_run: bool = False,
    restart: bool = False,
    undo: bool | int = False,
    reinstall_package: str | Sequence[str] = (),
) -> ApplyResult:
    """What became of turning the environment into the planned one, or into that of a `lock`; a notebook shows it as a table.

    It does not ask. `status` is `done`, `nothing`, `reverted`, `broken`, `undone`, `interrupted`, `dry-run` or `unsatisfiable`; where
    nothing could be begun, an error is raised. `undo` is a number of the history, or True for the last one.
    """
    words = dict(locals())
    del words["undo"]
    from cudnn_resolve import api
    from cudnn_resolve.cli.progress import Progress
    from cudnn_resolve.operations.apply import Interaction
    from cudnn_resolve.operations.options import ApplyRequest

    interaction = Interaction(reporter=Progress())
    if undo is False:
        return api.call(lambda request: api.apply(request, interaction), ApplyRequest, words)
    number = None if undo is True else int(undo)
    return api.call(lambda request: api.undo(request, number, interaction), ApplyRequest, words)


def doctor(  # noqa: PLR0913 - the options of the command line
    log: str | None = None,
    *,
    facts: str | Facts | Mapping[str, Any] | None = None,
    no_facts: bool = False,
    python: str | None = None,
    driver: str | None = None,
    gpu: str | Sequence[str] = (),
    python_version: str | None = None,
    platform: str | None = None,
    glibc: str | None = None,
    os: str | None = None,
    matrix: str | Sequence[str] = (),
) -> DoctorResult:
    """The findings of a log file, of the machine, or of both together, the most likely cause first.

    `no_facts` judges the log alone; `facts` are those of the machine that it comes from.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import DoctorRequest

    return api.call(api.doctor, DoctorRequest, words)


def validate(  # noqa: PLR0913 - the options of the command line
    framework: str | Sequence[str] = (),
    *,
    python: str | None = None,
    gpu: int | None = None,
    full: bool = False,
    require_gpu: bool = False,
    lock: str | None = None,
    plan: str | None = None,
    record: str | None = None,
) -> ValidationResult:
    """The checks of the frameworks (default: all that are installed) and of cuDNN at work; `status` is `passed`, `failed` or `skipped`.

    Every GPU is used, or the one whose number is given. `lock` is a lock that must hold, `plan` a plan in JSON that must have been
    carried out, `record` a lock that also takes in what passed.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import ValidateRequest

    return api.call(api.validate, ValidateRequest, words)


def why(  # noqa: PLR0913 - the options of the command line
    package: str,
    framework: str | Sequence[str] = (),
    *,
    requirement: str | Sequence[str] = (),
    cuda: str | None = None,
    cudnn: str | None = None,
    python: str | None = None,
    facts: str | Facts | Mapping[str, Any] | None = None,
    driver: str | None = None,
    gpu: str | Sequence[str] = (),
    python_version: str | None = None,
    platform: str | None = None,
    glibc: str | None = None,
    os: str | None = None,
    prefer: Literal["installed", "newest"] | None = None,
    driver_policy: Literal["minor", "strict"] | None = None,
    device: Literal["gpu", "cpu"] | None = None,
    strict_pins: bool = False,
    channel: Literal["auto", "pip", "apt"] | None = None,
    matrix: str | Sequence[str] = (),
    index_url: str | None = None,
    extra_index_url: str | Sequence[str] = (),
    find_links: str | Sequence[str] = (),
    constraint: str | Sequence[str] = (),
    group: str | Sequence[str] = (),
    index_strategy: Literal["first-index", "best-match"] | None = None,
    exclude_newer: str | None = None,
    no_binary: str | Sequence[str] = (),
    only_binary: str | Sequence[str] = (),
    pre: bool = False,
    no_variant_indexes: bool = False,
    offline: bool = False,
) -> WhyResult:
    """The chain of reasons behind a package of the plan, or behind its absence."""
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import WhyRequest

    return api.call(api.why, WhyRequest, words)
