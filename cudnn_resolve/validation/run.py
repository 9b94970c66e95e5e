"""Validate an environment: load every framework, compute on every GPU, and collect the checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.model import Driver, Facts, Unknown, or_none
from cudnn_resolve.host.background import Later, gather
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.validation.against_lock import PinnedEnvironment, judge_against, with_preload_hint
from cudnn_resolve.validation.answers import ChildReport
from cudnn_resolve.validation.children import SLOWEST, ChildRunner, Progress, processes_at_once, programs_on
from cudnn_resolve.validation.companions import InstalledCompanion, companions_of, judge_companion, judge_on_gpu, not_tested
from cudnn_resolve.validation.judge_loading import judge_library, judge_loading, judge_order
from cudnn_resolve.validation.judge_numbers import WRONG, judge_cases
from cudnn_resolve.validation.judge_speed import judge_card, judge_speed, speed_limits
from cudnn_resolve.validation.judge_usage import judge_usage
from cudnn_resolve.validation.loaded import library_name, loaded_libraries
from cudnn_resolve.validation.model import Check, Subject, Validation, VisibleGpu, gpus_of, subjects_of
from cudnn_resolve.version import Capability

_MOST_LIBRARIES = 4
_NO_FRAMEWORK_HINT = "--python selects another environment; `cudnn-resolve plan -f torch` shows what a framework needs"


class ValidationOptions(Struct, frozen=True, kw_only=True):
    """What to validate."""

    frameworks: tuple[str, ...] = ()
    """Names of frameworks as in the matrix; empty selects all that are installed."""
    gpu: int | None = None
    """Index of one GPU; None selects all."""
    require_gpu: bool = False
    pinned: PinnedEnvironment | None = None
    """Lock or plan to compare with."""
    companions: bool = True
    """Test companions of frameworks, such as torchvision."""
    everything: bool = False
    """Test every type in every layout, instead of each class once per type."""


def validate(host: Host, facts: Facts, options: ValidationOptions, book: Book, progress: Progress = lambda _text: None) -> Validation:
    """Check the frameworks and cuDNN in the environment that the facts describe."""
    wanted = [one for one in subjects_of(facts) if not options.frameworks or _framework_of(one.name, book) in options.frameworks]
    subjects = tuple(_with_cudnn_built(subject, book) for subject in wanted)
    gpus = tuple(gpu for gpu in gpus_of(facts) if options.gpu is None or gpu.index == options.gpu)
    libraries = libraries_of(facts, subjects)
    companions = companions_of(facts, options.frameworks) if options.companions else ()
    runner = ChildRunner(
        host=host,
        python=facts.python.path or host.python,
        progress=_numbered(progress, len(subjects), len(libraries), len(companions), len(gpus)),
        everything=options.everything,
        at_once=processes_at_once(host),
    )
    run = Run(
        runner=runner,
        facts=with_real_paths(host, facts),
        options=options,
        book=book,
        subjects=subjects,
        libraries=libraries,
        companions=companions,
        gpus=gpus,
    )
    # All GPUs compute from the start, while this thread loads. Timings follow: one framework at a time on each GPU, with nothing else.
    computing = [Later(partial(run.compute, gpu)) for gpu in gpus]
    load_checks, loaded = run.load()
    computed = [later.result() for later in computing]
    timed = gather([partial(run.time, gpu, *results) for gpu, results in zip(gpus, computed, strict=True)], len(gpus))
    checks = [*_machine(facts, subjects, gpus, options, host.environ), *load_checks]
    for (gpu_checks, _), timings in zip(computed, timed, strict=True):
        checks += [*gpu_checks, *timings]
    return Validation(
        checks=tuple(checks),
        gpus=gpus,
        driver=facts.driver.version if isinstance(facts.driver, Driver) else None,
        frameworks=MappingProxyType({subject.name: subject.installed.version for subject in subjects}),
        loaded=MappingProxyType(_loaded_versions(loaded)),
    )


class Run(Struct, frozen=True, kw_only=True):
    """What is tested: everything is loaded in children of its own, and computes on every GPU."""

    runner: ChildRunner
    facts: Facts
    options: ValidationOptions
    book: Book
    subjects: tuple[Subject, ...]
    libraries: tuple[str, ...]
    companions: tuple[InstalledCompanion, ...]
    gpus: tuple[VisibleGpu, ...]

    def load(self) -> tuple[list[Check], list[ChildReport]]:
        """Load frameworks alone and in pairs, companions and libraries; the checks, and the reports of frameworks and libraries."""
        reports = self.runner.load(self.subjects)
        pinned = self.options.pinned
        checks = self._not_installed()
        for subject, report in zip(self.subjects, reports, strict=True):
            own = judge_loading(subject, report, self.facts, has_gpu=bool(self.gpus), is_asked=bool(self.options.frameworks))
            checks += [with_preload_hint(check, pinned, subject) if pinned else check for check in own]
        if pinned is not None:
            checks += judge_against(pinned, self.facts, self.subjects, reports)
        checks += self._orders(checks)
        checks += self._companions(reports)
        opened = {path: self.runner.library(path) for path in self.libraries}
        for path, report in opened.items():
            checks += judge_library(f"cudnn/{library_label(path, self.libraries)}", report, self.facts)
        return checks, [*reports, *opened.values()]

    def _not_installed(self) -> list[Check]:
        """Fail each requested framework that is not installed."""
        installed = {_framework_of(subject.name, self.book) for subject in self.subjects}
        return [
            Check(
                id=f"{name}/import",
                framework=name,
                status="failed",
                expected=f"{name} is installed",
                observed=f"it is not installed in {_where(self.facts)}",
                detail=f"`cudnn-resolve plan -f {name}` shows what it needs",
            )
            for name in self.options.frameworks
            if name not in installed
        ]

    def _orders(self, checks: Sequence[Check]) -> list[Check]:
        """Load pairs of those that load alone: a failure alone would only repeat itself."""
        broken = {
            check.framework for check in checks if check.status == "failed" or (check.status == "skipped" and check.id.endswith("/import"))
        }
        sound = [subject for subject in self.subjects if not subject.is_cpu_build and subject.name not in broken]
        return [judge_order(pair, report, self.facts) for pair, report in self.runner.orders(sound)]

    def _companions(self, reports: Sequence[ChildReport]) -> list[Check]:
        """Try the companions of frameworks that load."""
        dead = {
            _framework_of(subject.name, self.book)
            for subject, report in zip(self.subjects, reports, strict=True)
            if not report.last("imported", list)
        }
        able = [installed for installed in self.companions if installed.companion.beside not in dead]
        tried = dict(zip(able, gather([partial(self.runner.companion, one) for one in able], self.runner.at_once), strict=True))
        checks: list[Check] = []
        for installed in self.companions:
            if installed in tried:
                checks += judge_companion(installed, tried[installed], self.facts, has_gpu=bool(self.gpus))
            else:
                checks += not_tested(installed)
        return checks

    # --- on each GPU ---

    def compute(self, gpu: VisibleGpu) -> tuple[list[Check], ChildReport]:
        """Check one GPU and compute on it; the checks, ordered for the search of a fault, and what the driver reports of it."""
        prefix = self._prefix(gpu)
        report = self.runner.card(gpu)
        card = judge_card(f"{prefix}card", report, gpu.index)
        if card.status == "failed":
            return [card], report
        subjects = [subject for subject in self.subjects if not subject.is_cpu_build]
        tasks: list[tuple[bool, Callable[[], list[Check]]]] = [
            *((False, partial(self._compute_bare, path, gpu, prefix)) for path in self.libraries),
            *((subject.module in SLOWEST, partial(self._compute_with, subject, gpu, prefix)) for subject in subjects),
            *((one.companion.is_framework, partial(self._run_companion, one, gpu, prefix)) for one in self.companions),
        ]
        order = sorted(range(len(tasks)), key=lambda index: not tasks[index][0])  # the slowest start first
        at_once = min(max(self.runner.at_once // len(self.gpus), 1), programs_on(report, self.runner.host.environ))
        done = dict(zip(order, gather([tasks[index][1] for index in order], at_once), strict=True))
        return [card, *(check for index in sorted(done) for check in done[index])], report

    def _prefix(self, gpu: VisibleGpu) -> str:
        return f"gpu{gpu.index}/" if len(self.gpus) > 1 else ""

    def time(self, gpu: VisibleGpu, computed: Sequence[Check], card: ChildReport) -> list[Check]:
        """Time the frameworks that have computed on a GPU, one after the other."""
        is_slice = "MIG" in (gpu.visible or "").upper() or " MIG " in (gpu.name or "")
        architecture = self.book.architecture(Capability.parse(gpu.compute_capability)) if gpu.compute_capability else None
        limits = speed_limits(card, architecture, self.book.peak(gpu.name) if gpu.name else None, is_slice=is_slice)
        types = self.runner.types_timed(gpu)
        passed = {check.framework for check in computed if check.status == "passed"}
        checks: list[Check] = []
        for subject in self.subjects:
            report = self.runner.timed(subject, gpu) if subject.name in passed else None
            if report is not None:
                checks += judge_speed(f"{self._prefix(gpu)}{subject.name}/speed", subject.name, report, limits, gpu.index, types)
        return checks

    def _compute_bare(self, path: str, gpu: VisibleGpu, prefix: str) -> list[Check]:
        name = f"{prefix}cudnn/{library_label(path, self.libraries)}/"
        return list(judge_cases(name, None, self.runner.bare(path, gpu), gpu.index))

    def _compute_with(self, subject: Subject, gpu: VisibleGpu, prefix: str) -> list[Check]:
        name = f"{prefix}{subject.name}/"
        runs = self.runner.computed(subject, gpu)
        checks = list(judge_cases(name, subject.name, runs, gpu.index))
        if any(check.id == f"{name}start" for check in checks):
            return checks
        return [*checks, judge_usage(f"{name}cudnn-used", subject.name, runs, gpu.index)]

    def _run_companion(self, installed: InstalledCompanion, gpu: VisibleGpu, prefix: str) -> list[Check]:
        return list(judge_on_gpu(installed, self.runner.companion(installed, gpu), gpu, prefix))


def library_label(path: str, libraries: tuple[str, ...]) -> str:
    """Short name of a libcudnn, `libcudnn.so.9`; with a number if several share it."""
    name = path.rpartition("/")[2]
    same_name = [other for other in libraries if other.rpartition("/")[2] == name]
    return name if len(same_name) == 1 else f"{name}#{same_name.index(path) + 1}"


def _numbered(progress: Progress, subjects: int, libraries: int, companions: int, gpus: int) -> Progress:
    """Number the steps: each framework is loaded alone and after each other one, and on each GPU computes and is timed."""
    total = subjects**2 + libraries + companions + gpus * (libraries + 2 * subjects + companions)
    numbers = count(1)
    return lambda text: progress(f"step {next(numbers)} of at most {total}: {text}")


def with_real_paths(host: Host, facts: Facts) -> Facts:
    """Add the resolved paths of cuDNN copies and LD_LIBRARY_PATH: a process sees only those."""
    known = or_none(facts.cudnn) or ()
    paths = {copy.path for copy in known}
    resolved = [replace(copy, path=real) for copy in known if copy.path and (real := host.realpath(copy.path)) not in paths]
    if resolved:
        facts = replace(facts, cudnn=(*known, *resolved))
    if isinstance(facts.loader, Unknown):
        return facts
    directories = facts.loader.ld_library_path
    both = dict.fromkeys((*directories, *(host.realpath(path) for path in directories if path)))
    return replace(facts, loader=replace(facts.loader, ld_library_path=tuple(both)))


def _framework_of(name: str, book: Book) -> str:
    """Framework in a distribution, by its name in the matrix."""
    return book.framework_of(name) or name


def _with_cudnn_built(subject: Subject, book: Book) -> Subject:
    """Add the cuDNN of the build from the matrix, if all builds of the release agree and the matrix is more precise."""
    installed = subject.installed
    framework, version = book.framework_of(installed.name), installed.version.partition("+")[0]
    builds = book.framework(framework).builds if framework else ()
    known = {
        build.cudnn.text
        for build in builds
        if build.cudnn and (build.package, build.version) == (installed.name, version) and installed.variant in (None, build.variant)
    }
    if len(known) != 1:
        return subject
    cudnn, stated = known.pop(), installed.cudnn_built
    if stated is not None and ("." in stated or stated != cudnn.partition(".")[0]):
        return subject
    return replace(subject, installed=replace(installed, cudnn_built=cudnn))


def libraries_of(facts: Facts, subjects: Sequence[Subject]) -> tuple[str, ...]:
    """List each libcudnn that a framework would load, or if there is none, each complete copy found."""
    paths = [load.path for subject in subjects if (load := subject.installed.would_load) and load.path]
    if not paths:
        copies = or_none(facts.cudnn) or ()
        paths = [f"{copy.path}/libcudnn.so.{copy.soname}" for copy in copies if copy.path and copy.soname and copy.complete]
    return tuple(dict.fromkeys(paths))[:_MOST_LIBRARIES]


def _machine(
    facts: Facts, subjects: Sequence[Subject], gpus: Sequence[VisibleGpu], options: ValidationOptions, environ: Mapping[str, str]
) -> list[Check]:
    """Check that there is something to test, and a GPU to test it on."""
    checks = []
    if not gpus:
        checks.append(
            Check(
                id="gpu",
                status="failed" if options.require_gpu else "skipped",
                expected="an NVIDIA GPU visible to programs" if options.gpu is None else f"GPU {options.gpu}",
                observed=_no_gpu(facts, options, environ),
                detail="nothing can be computed; loading, paths and versions are checked all the same",
            )
        )
    if not subjects and not options.frameworks:
        observed = f"none is installed in {_where(facts)}"
        checks.append(Check(id="frameworks", status="skipped", observed=observed, detail=_NO_FRAMEWORK_HINT))
    return checks


def _where(facts: Facts) -> str:
    return facts.python.prefix or facts.python.path or "this environment"


def _no_gpu(facts: Facts, options: ValidationOptions, environ: Mapping[str, str]) -> str:
    if isinstance(facts.gpus, Unknown):
        visible = environ.get("CUDA_VISIBLE_DEVICES")
        return "the GPUs could not be detected" if visible is None else f"CUDA_VISIBLE_DEVICES={visible!r} leaves no GPU visible"
    hidden = sum(gpu.hidden for gpu in facts.gpus)
    if options.gpu is not None and len(facts.gpus) > hidden:
        return f"programs see {len(facts.gpus) - hidden}, numbered from 0"
    if hidden:
        return f"CUDA_VISIBLE_DEVICES hides {hidden} of {len(facts.gpus)}: programs see none"
    return "no NVIDIA driver" if facts.driver is None else "no GPU"


def _loaded_versions(reports: Sequence[ChildReport]) -> dict[str, str]:
    """Map kinds of libraries to the version that was loaded; all versions if processes differ."""
    found: dict[str, list[str]] = {}
    for report in reports:
        loaded = loaded_libraries(report)
        pairs = [(library_name(path), version) for path, version in loaded.libraries.items()]
        pairs += [("cudnn", cudnn.release.text) for cudnn in loaded.cudnns if cudnn.release]
        for kind, version in pairs:
            if version is not None and version not in found.setdefault(kind, []):
                found[kind].append(version)
    return {kind: ", ".join(versions) for kind, versions in sorted(found.items()) if versions}


def with_causes(validation: Validation, explain: Callable[[str], str]) -> Validation:
    """Add known causes to failures, and lack of GPU memory; `explain` returns "" for an unknown text.

    A judge that has given more detail than a failed import has seen the cause itself.
    """
    checks = []
    short = {
        check.gpu: check for check in validation.checks if check.gpu is not None and check.id.endswith("card") and check.status == "warning"
    }
    for check in validation.checks:
        is_open = check.status == "failed" and (not check.detail or check.id.endswith("/import"))
        why = explain("\n".join([check.observed or "", *check.output])) if is_open else ""
        # Few failures on a full GPU mention memory. Lack of it ends a computation, but never makes its result wrong.
        ended = check.status == "failed" and not (check.observed or "").startswith(WRONG)
        card = short.get(check.gpu) if ended and check.gpu is not None else None
        room = f"perhaps for lack of memory: {card.observed} on the GPU" if card is not None else ""
        checks.append(replace(check, detail="; ".join(filter(None, [check.detail, why, room]))))
    return replace(validation, checks=tuple(checks))
