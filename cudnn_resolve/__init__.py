"""Plan GPU deep-learning environments that load and run: driver, CUDA, cuDNN and frameworks solved together.

The functions take the words of the command line's options and return typed results: values with attributes, whose `to_json()` is what
`--format json` prints and which a notebook draws. What goes wrong is a `CudnnResolveError`. Nothing is imported before it is needed.
"""

from __future__ import annotations

from cudnn_resolve._version import __version__

TYPE_CHECKING = False  # that of `typing`, which takes longer to import than everything here
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
    from cudnn_resolve.operations.fleet_facts import FleetResult
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

_LATER = {
    **dict.fromkeys(("CudnnResolveError", "IndexUnavailableError", "InputError", "MatrixError", "UsageError", "WorldError"), "errors"),
    "Facts": "facts.model",
    "LockMisfitError": "operations.plan",
    **dict.fromkeys(("ApplyResult", "HistoryResult"), "operations.apply"),
    "BundleResult": "operations.bundle",
    "CheckResult": "operations.check",
    "DoctorResult": "operations.doctor",
    "FleetResult": "operations.fleet_facts",
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


def plan(framework: Texts = (), *, lock: Path | None = None, **options: Unpack[PlanWords]) -> PlanResult:
    """The plan for one framework or several, such as `tensorflow==2.15`, or for a `lock`; its `status` is `ok` or `unsatisfiable`.

    Every word means what the option of that name means, None that nothing is said: `packages`, `requirement`, `constraint`, `group`,
    `cuda`, `cudnn`, `python`, `facts`, `driver`, `gpu`, `python_version`, `platform`, `glibc`, `os`, `prefer`, `driver_policy`, `device`,
    `pre`, `strict_pins`, `channel`, `allow_break`, `reinstall_package`, `env`, `kernel`, `matrix`, `index_url`, `extra_index_url`,
    `find_links`, `index_strategy`, `exclude_newer`, `no_binary`, `only_binary`, `no_variant_indexes`, `offline`. `facts` is a facts file,
    or what `detect` gave on the machine that is meant.
    """
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import PlanRequest

    return api.call(api.plan, PlanRequest, {"framework": framework, "lock": lock}, options)


def lock(
    framework: Texts = (), *, output: Path | None = None, check: bool = False, **options: Unpack[LockWords]
) -> LockResult | LockCheckResult:
    """The lock that was written, its `status` is `ok` or `unsatisfiable`; with `check` what is wrong with the one that is there.

    The file is `pylock.toml`, or `output`; with `-` none is written, and the object holds the `text`. With `check` the `status` is
    `current` or `outdated`. The words are those of `plan`, but for `prefer`, `allow_break` and `reinstall_package`; `platform` may be
    several, and there are `no_facts`, `upgrade` and `upgrade_package`.
    """
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import LockRequest

    words = {"framework": framework, "output": output, "check": check}
    return api.call(api.check_lock, LockRequest, words, options) if check else api.call(api.lock, LockRequest, words, options)


def apply(
    framework: Texts = (), *, lock: Path | None = None, dry_run: bool = False, undo: bool | int = False, **options: Unpack[ApplyWords]
) -> ApplyResult:
    """What became of turning the environment into the planned one, or into that of a `lock`; a notebook shows it as a table.

    It does not ask. `status` is `done`, `nothing`, `reverted`, `broken`, `undone`, `interrupted`, `dry-run` or `unsatisfiable`; where
    nothing could be begun, an error is raised. `undo` is a number of `history()`, or True for the last one; it takes no targets. The words
    are those of `plan` that speak of no other machine, `python_version` with `env`, and `installer`, `no_hashes`, `break_system_packages`,
    `no_validate`, `restart`, `bundle_dir`. A `lock` may be a bundle.
    """
    from cudnn_resolve import api
    from cudnn_resolve.cli.progress import Progress
    from cudnn_resolve.operations.apply import Interaction
    from cudnn_resolve.operations.options import ApplyRequest

    interaction = Interaction(reporter=Progress())
    words = {"framework": framework, "lock": lock, "dry_run": dry_run}
    if undo is False or undo is None:
        return api.call(lambda request: api.apply(request, interaction), ApplyRequest, words, options)
    number = api.undo_number(undo, {**words, **options})
    return api.call(lambda request: api.undo(request, number, interaction), ApplyRequest, words, options)


def bundle(
    output: Path,
    framework: Texts = (),
    *,
    lock: Path | None = None,
    add: bool = False,
    check: bool = False,
    **options: Unpack[BundleWords],
) -> BundleResult:
    """The bundle that was made of a lock or of targets, in the folder or the `.tar` file `output`; with `check` the one that is there.

    `add` extends one that is there. The words are those of `lock`, `platform` may be several, and there is `sbom`.
    """
    from cudnn_resolve import api
    from cudnn_resolve.cli.progress import Progress
    from cudnn_resolve.operations.apply import Interaction
    from cudnn_resolve.operations.options import BundleRequest

    interaction = Interaction(reporter=Progress())
    words = {"framework": framework, "lock": lock, "output": output, "add": add, "check": check}
    return api.call(lambda request: api.bundle(request, interaction), BundleRequest, words, options)


def history(*, python: Path | None = None) -> HistoryResult:
    """Every `apply` of the environment, the newest first, with the number that `apply(undo=...)` takes."""
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(lambda request: api.history(request.python), options.MachineOptions, words)


def check(*what: Path, strict: bool = False, **options: Unpack[CheckWords]) -> CheckResult:
    """The verdict on files that list packages (locks, requirements, lists), else on an environment.

    The machine is this one, or the one of `facts`, `driver`, `gpu`, `python_version`, `platform`, `glibc` and `os`. With `strict`, what
    is not known counts as broken. Further words are `python` and `matrix`.
    """
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import CheckRequest

    return api.call(api.check, CheckRequest, {"what": [str(one) for one in what], "strict": strict}, options)


def doctor(log: Path | None = None, *, no_facts: bool = False, **options: Unpack[DoctorWords]) -> DoctorResult:
    """The findings of a log file, of the machine, or of both together, the most likely cause first.

    `no_facts` judges the log alone; `facts` are those of the machine that it comes from. Further words are `python`, `driver`, `gpu`,
    `python_version`, `platform`, `glibc`, `os` and `matrix`.
    """
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import DoctorRequest

    return api.call(api.doctor, DoctorRequest, {"log": log, "no_facts": no_facts}, options)


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
    """The checks of the frameworks (default: all that are installed) and of cuDNN at work; `status` is `passed`, `failed` or `skipped`.

    Every GPU is used, or the one whose number is given. `lock` is a lock that must hold, `plan` a plan in JSON that must have been
    carried out, `record` a lock that also takes in what passed.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(api.validate, options.ValidateRequest, words)


def why(package: str, framework: Texts = (), **options: Unpack[WhyWords]) -> WhyResult:
    """The chain of reasons behind a package of the plan, or behind its absence; the words are those of `plan`."""
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import WhyRequest

    return api.call(api.why, WhyRequest, {"package": package, "framework": framework}, options)


def fleet_detect(*, inventory: Paths = (), from_folder: Paths = ()) -> FleetResult:
    """The classes of many machines, with the facts of each, as `fleet detect` gives them.

    The machines are the hosts of an `inventory` of Ansible, or those whose facts lie in the folders or files of `from_folder`.
    """
    return _fleet("detect", dict(locals()))


def fleet_plan(framework: Texts = (), **options: Unpack[FleetWords]) -> FleetResult:
    """A plan for each class of many machines; the words are those of `fleet_detect` and, about what is wanted, those of `plan`."""
    return _fleet("plan", {"framework": framework}, options)


def fleet_lock(framework: Texts = (), *, output: Path | None = None, one_lock: bool = False, **options: Unpack[FleetWords]) -> FleetResult:
    """A lock for each class of many machines, in the folder `output`; with `one_lock` one that fits all, in the file `output`.

    Where there is none that fits all, `one` says the fewest hosts that stand in the way, and what would change that.
    """
    return _fleet("lock", {"framework": framework, "output": output, "one_lock": one_lock}, options)


def fleet_check(
    *locks: Path, since: Path | None = None, strict: bool = False, inventory: Paths = (), from_folder: Paths = ()
) -> FleetResult:
    """The verdict on the lock of each class of many machines, and hosts that have other packages than it.

    `locks` are files or folders of them (default: those here). `since` is what `fleet detect --format json` wrote earlier: `changes` are
    told. With `strict` changes, and what is not known, count as broken.
    """
    words = dict(locals())
    words["packages"] = [str(one) for one in words.pop("locks")]
    return _fleet("check", words)


def _fleet(verb: str, words: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> FleetResult:
    from cudnn_resolve import api
    from cudnn_resolve.operations.options import FleetRequest

    return api.call(api.fleet, FleetRequest, {**words, "verb": verb}, options)


def matrix_list(*, matrix: Paths = ()) -> MatrixListResult:
    """The frameworks and packages that the tables know.

    The functions are called as the commands are, `matrix list`, `matrix show` and `matrix check`.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(lambda request: api.matrix_list(request).value(), options.MatrixRequest, words)


def matrix_show(name: str, which: str | None = None, *, matrix: Paths = ()) -> MatrixFrameworkResult | MatrixStackResult:
    """What the tables say of a framework, or of one release or range of it: Pythons, CUDA, cuDNN, drivers, GPUs.

    `cudnn`, `cuda`, `driver` and `gpu` may stand in the place of a framework, a version, a driver or a card being `which`.
    """
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(lambda request: api.matrix_show(request).value(), options.MatrixRequest, words)


def matrix_check(*, matrix: Paths = ()) -> MatrixCheckResult:
    """Every fault of the tables, and of the folders that lie over them."""
    words = dict(locals())
    from cudnn_resolve import api
    from cudnn_resolve.operations import options

    return api.call(api.check_matrix, options.MatrixRequest, words)


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook `%cudnn` and `%%cudnn_run`: `%load_ext cudnn_resolve`."""
    from cudnn_resolve.cli.magic import load

    load(shell)
