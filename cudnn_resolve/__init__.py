"""Plan GPU deep-learning environments that load and run: driver, CUDA, cuDNN and frameworks solved together.

The functions take the command line's options as keywords and return typed results: values with attributes, whose `to_json()` is what
`--format json` prints and which a notebook draws. Failures raise `CudnnResolveError`. Modules are imported on first use.
"""

from __future__ import annotations

from cudnn_resolve._version import __version__

TYPE_CHECKING = False  # importing `typing` for it would take longer than everything here
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from typing_extensions import Unpack

    from cudnn_resolve.errors import CudnnResolveError, IndexUnavailableError, InputError, MatrixError, UsageError, WorldError
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.operations.apply import ApplyResult, HistoryResult
    from cudnn_resolve.operations.bundle import BundleResult
    from cudnn_resolve.operations.check import CheckResult
    from cudnn_resolve.operations.doctor import DoctorResult
    from cudnn_resolve.operations.fleet_classes import FleetResult
    from cudnn_resolve.operations.keywords import (
        ApplyWords,
        BundleWords,
        CheckWords,
        DoctorWords,
        FleetWords,
        LockWords,
        Path,
        Paths,
        PlanWords,
        Texts,
        WhyWords,
    )
    from cudnn_resolve.operations.lock import LockCheckResult, LockResult
    from cudnn_resolve.operations.matrix import MatrixCheckResult, MatrixFrameworkResult, MatrixListResult, MatrixStackResult
    from cudnn_resolve.operations.plan import LockMisfitError, PlanResult
    from cudnn_resolve.operations.results import FactsResult
    from cudnn_resolve.operations.validate import ValidationResult
    from cudnn_resolve.operations.why import WhyResult

del TYPE_CHECKING

_LAZY = {
    **dict.fromkeys(("CudnnResolveError", "IndexUnavailableError", "InputError", "MatrixError", "UsageError", "WorldError"), "errors"),
    "Facts": "facts.model",
    "LockMisfitError": "operations.plan",
    **dict.fromkeys(("ApplyResult", "HistoryResult"), "operations.apply"),
    "BundleResult": "operations.bundle",
    "CheckResult": "operations.check",
    "DoctorResult": "operations.doctor",
    "FleetResult": "operations.fleet_classes",
    **dict.fromkeys(("LockCheckResult", "LockResult"), "operations.lock"),
    **dict.fromkeys(("MatrixCheckResult", "MatrixFrameworkResult", "MatrixListResult", "MatrixStackResult"), "operations.matrix"),
    "PlanResult": "operations.plan",
    "WhyResult": "operations.why",
    "FactsResult": "operations.results",
    "ValidationResult": "operations.validate",
}
"""Public types by module; a module is imported on first access to one of its types."""

__all__ = (
    "ApplyResult",
    "BundleResult",
    "CheckResult",
    "CudnnResolveError",
    "DoctorResult",
    "Facts",
    "FactsResult",
    "FleetResult",
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
    "bundle",
    "check",
    "detect",
    "doctor",
    "fleet_check",
    "fleet_detect",
    "fleet_lock",
    "fleet_plan",
    "history",
    "load_ipython_extension",
    "lock",
    "matrix_check",
    "matrix_list",
    "matrix_show",
    "plan",
    "validate",
    "why",
)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"cudnn_resolve.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def detect(*, python: Path | None = None, facts: Path | Facts | Mapping[str, Any] | None = None) -> FactsResult:
    """Facts of this machine and of the environment of `python` (default: the active one, else this one).

    With `facts`, those of a facts file, or of an object like the one that this function returns, checked and completed.
    """
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import MachineOptions

    return call(api.detect, MachineOptions, {"python": python, "facts": facts})


def plan(framework: Texts = (), *, lock: Path | None = None, **options: Unpack[PlanWords]) -> PlanResult:
    """Plan for one or several frameworks, such as `tensorflow==2.15`, or for a `lock`; its `status` is `ok` or `unsatisfiable`.

    Each keyword means what the option of that name means; None leaves it unset: `packages`, `requirement`, `constraint`, `group`,
    `cuda`, `cudnn`, `python`, `facts`, `driver`, `gpu`, `python_version`, `platform`, `glibc`, `os`, `prefer`, `driver_policy`, `device`,
    `pre`, `strict_pins`, `channel`, `allow_break`, `reinstall_package`, `env`, `kernel`, `matrix`, `index_url`, `extra_index_url`,
    `find_links`, `index_strategy`, `exclude_newer`, `no_binary`, `only_binary`, `no_variant_indexes`, `offline`. `facts` is a facts file,
    or what `detect` returned on the target machine.
    """
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import PlanRequest

    return call(api.plan, PlanRequest, {"framework": framework, "lock": lock}, options)


def lock(
    framework: Texts = (), *, output: Path | None = None, check: bool = False, **options: Unpack[LockWords]
) -> LockResult | LockCheckResult:
    """Write a lock; its `status` is `ok` or `unsatisfiable`. With `check`, say what is wrong with the existing lock.

    The file is `pylock.toml`, or `output`; with `-` nothing is written, and the result holds the `text`. With `check` the `status` is
    `current` or `outdated`. The keywords are those of `plan`, except `prefer`, `allow_break` and `reinstall_package`; `platform` may be
    several, and there are `no_facts`, `upgrade` and `upgrade_package`.
    """
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import LockRequest

    named = {"framework": framework, "output": output, "check": check}
    return call(api.check_lock, LockRequest, named, options) if check else call(api.lock, LockRequest, named, options)


def apply(
    framework: Texts = (), *, lock: Path | None = None, dry_run: bool = False, undo: bool | int = False, **options: Unpack[ApplyWords]
) -> ApplyResult:
    """Turn the environment into the planned one, or into that of a `lock`; a notebook shows the result as a table.

    Does not ask. `status` is `done`, `nothing`, `reverted`, `broken`, `undone`, `interrupted`, `dry-run` or `unsatisfiable`; an error is
    raised if the apply could not start. `undo` is a number from `history()`, or True for the last apply; it takes no targets. The keywords
    are those of `plan` that do not describe another machine, `python_version` with `env`, and `installer`, `no_hashes`,
    `break_system_packages`, `no_validate`, `restart`, `bundle_dir`. A `lock` may be a bundle.
    """
    from cudnn_resolve import api
    from cudnn_resolve.cli.printing import progress
    from cudnn_resolve.operations.apply import Interaction
    from cudnn_resolve.operations.keywords import call, undo_number
    from cudnn_resolve.operations.options import ApplyRequest

    named = {"framework": framework, "lock": lock, "dry_run": dry_run}
    with progress() as listener:
        interaction = Interaction(listener=listener)
        if undo is False or undo is None:
            return call(lambda request: api.apply(request, interaction), ApplyRequest, named, options)
        number = undo_number(undo, {**named, **options})
        return call(lambda request: api.undo(request, number, interaction), ApplyRequest, named, options)


def bundle(
    output: Path,
    framework: Texts = (),
    *,
    lock: Path | None = None,
    add: bool = False,
    check: bool = False,
    **options: Unpack[BundleWords],
) -> BundleResult:
    """Make a bundle of a lock or of targets in the folder or `.tar` file `output`; with `check`, verify the existing one.

    `add` extends an existing bundle. The keywords are those of `lock`, `platform` may be several, and there is `sbom`.
    """
    from cudnn_resolve import api
    from cudnn_resolve.cli.printing import progress
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import BundleRequest

    named = {"framework": framework, "lock": lock, "output": output, "add": add, "check": check}
    with progress() as listener:
        return call(lambda request: api.bundle(request, listener), BundleRequest, named, options)


def history(*, python: Path | None = None) -> HistoryResult:
    """Every `apply` of the environment, newest first, with the number that `apply(undo=...)` takes."""
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import MachineOptions

    return call(lambda request: api.history(request.python), MachineOptions, {"python": python})


def check(*what: Path, strict: bool = False, **options: Unpack[CheckWords]) -> CheckResult:
    """Verdict on package lists (locks, requirements files, lists), or on an environment if none is given.

    The machine is this one, or that of `facts`, `driver`, `gpu`, `python_version`, `platform`, `glibc` and `os`. With `strict`, unknown
    counts as broken. Further keywords are `python` and `matrix`.
    """
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import CheckRequest

    return call(api.check, CheckRequest, {"what": [str(path) for path in what], "strict": strict}, options)


def doctor(log: Path | None = None, *, no_facts: bool = False, **options: Unpack[DoctorWords]) -> DoctorResult:
    """Findings from a log file, from the machine, or from both together, most likely cause first.

    `no_facts` judges the log alone; `facts` describe the machine that wrote it. Further keywords are `python`, `driver`, `gpu`,
    `python_version`, `platform`, `glibc`, `os` and `matrix`.
    """
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import DoctorRequest

    return call(api.doctor, DoctorRequest, {"log": log, "no_facts": no_facts}, options)


def validate(  # noqa: PLR0913 - the options of the command line
    framework: Texts = (),
    *,
    python: Path | None = None,
    gpu: int | None = None,
    full: bool = False,
    require_gpu: bool = False,
    lock: Path | None = None,
    plan: Path | None = None,
    record: Path | None = None,
) -> ValidationResult:
    """Run the frameworks (default: all installed) and cuDNN, and check the results; `status` is `passed`, `failed` or `skipped`.

    Uses every GPU, or the one with the given number. `lock` is a lock whose pins must hold, `plan` a plan in JSON that must have been
    applied, `record` a lock into which passed checks are written as well.
    """
    named = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import ValidateRequest

    return call(api.validate, ValidateRequest, named)


def why(package: str, framework: Texts = (), **options: Unpack[WhyWords]) -> WhyResult:
    """Chain of reasons behind a package of the plan, or behind its absence; the keywords are those of `plan`."""
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import WhyRequest

    return call(api.why, WhyRequest, {"package": package, "framework": framework}, options)


def fleet_detect(*, inventory: Paths = (), from_folder: Paths = ()) -> FleetResult:
    """Classes of many machines with their facts, like `fleet detect`.

    The machines are the hosts of an Ansible `inventory`, or those whose facts lie in the folders or files of `from_folder`.
    """
    return _fleet("detect", {"inventory": inventory, "from_folder": from_folder})


def fleet_plan(framework: Texts = (), **options: Unpack[FleetWords]) -> FleetResult:
    """A plan for each class of many machines; the keywords are those of `fleet_detect`, and the targets and limits of `plan`."""
    return _fleet("plan", {"framework": framework}, options)


def fleet_lock(framework: Texts = (), *, output: Path | None = None, one_lock: bool = False, **options: Unpack[FleetWords]) -> FleetResult:
    """A lock for each class of many machines, in the folder `output`; with `one_lock` a single lock for all, in the file `output`.

    If no lock fits all machines, `one` names the fewest hosts that stand in the way, and what would change that.
    """
    return _fleet("lock", {"framework": framework, "output": output, "one_lock": one_lock}, options)


def fleet_check(
    *locks: Path, since: Path | None = None, strict: bool = False, inventory: Paths = (), from_folder: Paths = ()
) -> FleetResult:
    """Verdict on the lock of each class of many machines, and hosts whose packages differ from it.

    `locks` are files, or folders of them (default: the current one). `since` is an earlier output of `fleet detect --format json`;
    the result then lists `changes`. With `strict`, changes and unknown verdicts count as broken.
    """
    packages = [str(path) for path in locks]
    return _fleet("check", {"packages": packages, "since": since, "strict": strict, "inventory": inventory, "from_folder": from_folder})


def _fleet(verb: str, named: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> FleetResult:
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import FleetRequest

    return call(api.fleet, FleetRequest, {**named, "verb": verb}, options)


def matrix_list(*, matrix: Paths = ()) -> MatrixListResult:
    """The frameworks and packages in the tables, like `matrix list`."""
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import MatrixRequest

    return call(lambda request: api.matrix_list(request).value(), MatrixRequest, {"matrix": matrix})


def matrix_show(name: str, which: str | None = None, *, matrix: Paths = ()) -> MatrixFrameworkResult | MatrixStackResult:
    """Table rows of a framework, or of one of its releases or a version range: Pythons, CUDA, cuDNN, drivers, GPUs.

    `name` may also be `cudnn`, `cuda`, `driver` or `gpu`, and `which` a version, a driver or a card.
    """
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import MatrixRequest

    named = {"name": name, "which": which, "matrix": matrix}
    return call(lambda request: api.matrix_show(request).value(), MatrixRequest, named)


def matrix_check(*, matrix: Paths = ()) -> MatrixCheckResult:
    """Every fault in the tables, and in the folders laid over them."""
    from cudnn_resolve import api
    from cudnn_resolve.operations.keywords import call
    from cudnn_resolve.operations.options import MatrixRequest

    return call(api.check_matrix, MatrixRequest, {"matrix": matrix})


def load_ipython_extension(shell: Any) -> None:
    """Register `%cudnn` and `%%cudnn_run` in a notebook: `%load_ext cudnn_resolve`."""
    from cudnn_resolve.cli.magic import load

    load(shell)
