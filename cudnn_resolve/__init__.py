"""Plan GPU deep-learning environments that load and run: driver, CUDA, cuDNN and frameworks solved together.

The functions take the words of the command line's options and return typed results: values with attributes, whose `to_json()` is what
`--format json` prints and which a notebook draws. What goes wrong is a `CudnnResolveError`. Nothing is imported before it is needed.
"""

from __future__ import annotations

from cudnn_resolve._version import __version__

TYPE_CHECKING = False  # that of `typing`, which takes longer to import than everything here
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from typing import Any, Literal

    from cudnn_resolve.errors import CudnnResolveError, IndexUnavailableError, InputError, MatrixError, UsageError, WorldError
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.operations.apply import ApplyResult, HistoryResult
    from cudnn_resolve.operations.check import CheckResult
    from cudnn_resolve.operations.doctor import DoctorResult
    from cudnn_resolve.operations.lock import LockCheckResult, LockResult
    from cudnn_resolve.operations.matrix import MatrixCheckResult, MatrixFrameworkResult, MatrixListResult, MatrixStackResult
    from cudnn_resolve.operations.plan import LockMisfitError, PlanResult
    from cudnn_resolve.operations.results import FactsResult
    from cudnn_resolve.operations.validate import ValidationResult
    from cudnn_resolve.operations.why import WhyResult

    Path = str | PathLike[str]
del TYPE_CHECKING

_LATER = {
    **dict.fromkeys(("CudnnResolveError", "IndexUnavailableError", "InputError", "MatrixError", "UsageError", "WorldError"), "errors"),
    "Facts": "facts.model",
    "LockMisfitError": "operations.plan",
    **dict.fromkeys(("ApplyResult", "HistoryResult"), "operations.apply"),
    "CheckResult": "operations.check",
    "DoctorResult": "operations.doctor",
    **dict.fromkeys(("LockCheckResult", "LockResult"), "operations.lock"),
    **dict.fromkeys(("MatrixCheckResult", "MatrixFrameworkResult", "MatrixListResult", "MatrixStackResult"), "operations.matrix"),
    "PlanResult": "operations.plan",
    "WhyResult": "operations.why",
    "FactsResult": "operations.results",
    "ValidationResult": "operations.validate",
}
"""Public types, each with its module, which is imported when the type is first asked for."""

__all__ = (
    "ApplyResult",
    "CheckResult",
    "CudnnResolveError",
    "DoctorResult",
    "Facts",
    "FactsResult",
    "HistoryResult",
    "IndexUnavailableError",
    "InputError",
    "LockCheckResult",
    "LockMisfitError",
    "LockResult",
    "MatrixCheckResult",
    "MatrixError",
    "MatrixFrameworkResult",
    "MatrixListResult",
    "MatrixStackResult",
    "PlanResult",
    "UsageError",
    "ValidationResult",
    "WhyResult",
    "WorldError",
    "__version__",
    "apply",
    "check",
    "detect",
    "doctor",
    "history",
    "lock",
    "matrix_check",
    "matrix_list",
    "matrix_show",
    "plan",
    "validate",
    "why",
)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"cudnn_resolve.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def detect(*, python: Path | None = None, facts: Path | Facts | Mapping[str, Any] | None = None) -> FactsResult:
    """The facts of this machine and of the environment of `python` (default: the active one, else this one).

    With `facts`, those of a facts file or of an object like the one that this function gives, checked and completed.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(api.detect, options.MachineOptions, words)


def plan(  # noqa: PLR0913 - the options of the command line
    framework: str | Sequence[str] = (),
    *,
    packages: str | Sequence[str] = (),
    requirement: Path | Sequence[Path] = (),
    cuda: str | None = None,
    cudnn: str | None = None,
    python: Path | None = None,
    facts: Path | Facts | Mapping[str, Any] | None = None,
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
    matrix: Path | Sequence[Path] = (),
    index_url: str | None = None,
    extra_index_url: str | Sequence[str] = (),
    find_links: Path | Sequence[Path] = (),
    constraint: Path | Sequence[Path] = (),
    group: str | Sequence[str] = (),
    index_strategy: Literal["first-index", "best-match"] | None = None,
    exclude_newer: str | None = None,
    no_binary: str | Sequence[str] = (),
    only_binary: str | Sequence[str] = (),
    pre: bool = False,
    no_variant_indexes: bool = False,
    offline: bool = False,
    reinstall_package: str | Sequence[str] = (),
    lock: Path | None = None,
) -> PlanResult:
    """The plan for one framework or several, such as `tensorflow==2.15`, or for a `lock`; its `status` is `ok` or `unsatisfiable`.

    Every word means what the option of that name means, None that nothing is said. `facts` is a facts file, or what `detect` gave
    on the machine that is meant.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(api.plan, options.PlanRequest, words)


def lock(  # noqa: PLR0913 - the options of the command line
    framework: str | Sequence[str] = (),
    *,
    packages: str | Sequence[str] = (),
    requirement: Path | Sequence[Path] = (),
    cuda: str | None = None,
    cudnn: str | None = None,
    python: Path | None = None,
    facts: Path | Facts | Mapping[str, Any] | None = None,
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
    matrix: Path | Sequence[Path] = (),
    index_url: str | None = None,
    extra_index_url: str | Sequence[str] = (),
    find_links: Path | Sequence[Path] = (),
    constraint: Path | Sequence[Path] = (),
    group: str | Sequence[str] = (),
    index_strategy: Literal["first-index", "best-match"] | None = None,
    exclude_newer: str | None = None,
    no_binary: str | Sequence[str] = (),
    only_binary: str | Sequence[str] = (),
    pre: bool = False,
    no_variant_indexes: bool = False,
    offline: bool = False,
    output: Path | None = None,
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
    from cudnn_resolve.operations import options

    if check:
        return api.call(api.check_lock, options.LockRequest, words)
    return api.call(api.lock, options.LockRequest, words)


def apply(  # noqa: PLR0913 - the options of the command line
    framework: str | Sequence[str] = (),
    *,
    lock: Path | None = None,
    packages: str | Sequence[str] = (),
    requirement: Path | Sequence[Path] = (),
    cuda: str | None = None,
    cudnn: str | None = None,
    python: Path | None = None,
    driver: str | None = None,
    gpu: str | Sequence[str] = (),
    prefer: Literal["installed", "newest"] | None = None,
    driver_policy: Literal["minor", "strict"] | None = None,
    device: Literal["gpu", "cpu"] | None = None,
    strict_pins: bool = False,
    channel: Literal["auto", "pip", "apt"] | None = None,
    allow_break: str | Sequence[str] = (),
    matrix: Path | Sequence[Path] = (),
    index_url: str | None = None,
    extra_index_url: str | Sequence[str] = (),
    find_links: Path | Sequence[Path] = (),
    constraint: Path | Sequence[Path] = (),
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
    nothing could be begun, an error is raised. `undo` is a number of `history()`, or True for the last one; it takes no targets.
    """
    words = dict(locals())
    del words["undo"]
    from cudnn_resolve import api
    from cudnn_resolve.cli.progress import Progress
    from cudnn_resolve.operations import options
    from cudnn_resolve.operations.apply import Interaction

    interaction = Interaction(reporter=Progress())
    if undo is False or undo is None:
        return api.call(lambda request: api.apply(request, interaction), options.ApplyRequest, words)
    number = api.undo_number(undo, words)
    return api.call(lambda request: api.undo(request, number, interaction), options.ApplyRequest, words)


def history(*, python: Path | None = None) -> HistoryResult:
    """Every `apply` of the environment, the newest first, with the number that `apply(undo=...)` takes."""
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(lambda request: api.history(request.python), options.MachineOptions, words)


def check(*, python: Path | None = None) -> CheckResult:
    """The verdict on the files of the environment of `python` (default: the active one, else this one): are they what was installed."""
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import CheckRequest

    return api.call(api.check, CheckRequest, words)


def doctor(  # noqa: PLR0913 - the options of the command line
    log: Path | None = None,
    *,
    facts: Path | Facts | Mapping[str, Any] | None = None,
    no_facts: bool = False,
    python: Path | None = None,
    driver: str | None = None,
    gpu: str | Sequence[str] = (),
    python_version: str | None = None,
    platform: str | None = None,
    glibc: str | None = None,
    os: str | None = None,
    matrix: Path | Sequence[Path] = (),
) -> DoctorResult:
    """The findings of a log file, of the machine, or of both together, the most likely cause first.

    `no_facts` judges the log alone; `facts` are those of the machine that it comes from.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(api.doctor, options.DoctorRequest, words)


def validate(  # noqa: PLR0913 - the options of the command line
    framework: str | Sequence[str] = (),
    *,
    python: Path | None = None,
    gpu: int | None = None,
    full: bool = False,
    require_gpu: bool = False,
    lock: Path | None = None,
    plan: Path | None = None,
    record: Path | None = None,
) -> ValidationResult:
    """The checks of the frameworks (default: all that are installed) and of cuDNN at work; `status` is `passed`, `failed` or `skipped`.

    Every GPU is used, or the one whose number is given. `lock` is a lock that must hold, `plan` a plan in JSON that must have been
    carried out, `record` a lock that also takes in what passed.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(api.validate, options.ValidateRequest, words)


def why(  # noqa: PLR0913 - the options of the command line
    package: str,
    framework: str | Sequence[str] = (),
    *,
    packages: str | Sequence[str] = (),
    requirement: Path | Sequence[Path] = (),
    cuda: str | None = None,
    cudnn: str | None = None,
    python: Path | None = None,
    facts: Path | Facts | Mapping[str, Any] | None = None,
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
    matrix: Path | Sequence[Path] = (),
    index_url: str | None = None,
    extra_index_url: str | Sequence[str] = (),
    find_links: Path | Sequence[Path] = (),
    constraint: Path | Sequence[Path] = (),
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
    from cudnn_resolve.operations import options

    return api.call(api.why, options.WhyRequest, words)


def matrix_list(*, matrix: Path | Sequence[Path] = ()) -> MatrixListResult:
    """The frameworks and packages that the tables know.

    The functions are called as the commands are, `matrix list`, `matrix show` and `matrix check`.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(api.matrix_list, options.MatrixRequest, words)


def matrix_show(name: str, which: str | None = None, *, matrix: Path | Sequence[Path] = ()) -> MatrixFrameworkResult | MatrixStackResult:
    """What the tables say of a framework, or of one release or range of it: Pythons, CUDA, cuDNN, drivers, GPUs.

    `cudnn`, `cuda`, `driver` and `gpu` may stand in the place of a framework, a version, a driver or a card being `which`.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(api.matrix_show, options.MatrixRequest, words)


def matrix_check(*, matrix: Path | Sequence[Path] = ()) -> MatrixCheckResult:
    """Every fault of the tables, and of the folders that lie over them."""
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(api.check_matrix, options.MatrixRequest, words)
