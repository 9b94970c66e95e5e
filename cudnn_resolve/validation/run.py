"""Validate an environment: load every framework, compute on every card, and collect the checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.model import Driver, Facts, Unknown
from cudnn_resolve.host.background import Later, gather
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.validation.against_lock import Pinned, judge_against, with_mend
from cudnn_resolve.validation.answers import Told
from cudnn_resolve.validation.bench import COMPILES, PAYLOADS, Bench, Progress, processes_at_once, programs_on
from cudnn_resolve.validation.companions import Found, companions_of, judge_companion, judge_on_gpu, untried
from cudnn_resolve.validation.judge_loading import judge_library, judge_loading, judge_order, library_name, seen_in
from cudnn_resolve.validation.judge_numbers import WRONG, judge_cases
from cudnn_resolve.validation.judge_speed import Pace, judge_card, judge_speed, pace_of
from cudnn_resolve.validation.judge_usage import judge_usage
from cudnn_resolve.validation.model import Check, Subject, Validation, VisibleGpu, gpus_of, subjects_of
from cudnn_resolve.version import Capability

_MOST_LIBRARIES = 4
_NAME_ONE = "--python names another environment; `cudnn-resolve plan -f torch` says what a framework takes"


class Wish(Struct, frozen=True, kw_only=True):
    """What the user wants tested."""

    frameworks: tuple[str, ...] = ()
    """Names of frameworks as the matrix has them; none = all that are installed."""
    gpu: int | None = None
    """Number of one GPU; None = every one."""
    require_gpu: bool = False
    pinned: Pinned | None = None
    """A lock or a plan to compare everything with."""
    companions: bool = True
    """What goes with frameworks, as torchvision, is tested, too."""
    everything: bool = False
    """Every type in every layout, instead of each class with each type once."""


def validate(host: Host, facts: Facts, wish: Wish, book: Book, progress: Progress = lambda _text: None) -> Validation:
    """Check the frameworks and cuDNN in the environment that the facts describe."""
    wanted = [one for one in subjects_of(facts) if not wish.frameworks or _framework_of(one.name, book) in wish.frameworks]
    subjects = tuple(_completed(one, book) for one in wanted)
    gpus = tuple(one for one in gpus_of(facts) if wish.gpu is None or one.index == wish.gpu)
    python = facts.python.path or host.python
    libraries = libraries_of(facts, subjects)
    facts = with_real_places(host, facts)
    companions = companions_of(facts, wish.frameworks) if wish.companions else ()
    counted = _counted(progress, len(subjects), len(libraries), len(companions), len(gpus))
    bench = Bench(host=host, python=python, progress=counted, everything=wish.everything, at_once=processes_at_once(host))
    run = CardRun(bench=bench, subjects=subjects, libraries=libraries, companions=companions, book=book)
    # Every card works from the start, side by side, while it is seen what loads; times are taken behind that, of one framework
    # at a time on each card, while none loads for that card.
    quiet: Future[bool] = Future()
    working = [Later(partial(run.on_card, gpu, f"gpu{gpu.index}/" if len(gpus) > 1 else "", quiet, len(gpus))) for gpu in gpus]
    checks = [*_machine(facts, subjects, gpus, wish, host.environ)]
    there = {_framework_of(one.name, book) for one in subjects}
    checks += [_not_installed(name, facts) for name in wish.frameworks if name not in there]
    try:
        told = bench.load(subjects)
        for subject, one in zip(subjects, told, strict=True):
            loading = judge_loading(subject, one, facts, has_gpu=bool(gpus), is_asked=bool(wish.frameworks))
            checks += [with_mend(check, wish.pinned, subject) if wish.pinned else check for check in loading]
        if wish.pinned is not None:
            checks += judge_against(wish.pinned, facts, subjects, told)
        unloaded = [one for one in checks if one.status == "failed" or (one.status == "skipped" and one.id.endswith("/import"))]
        broken = {one.framework for one in unloaded}
        # What fails alone fails in company, too: that is said once.
        whole = [one for one in subjects if not one.is_cpu_build and one.name not in broken]
        checks += [judge_order(pair, one, facts) for pair, one in bench.orders(whole)]
        dead = {_framework_of(subject.name, book) for subject, one in zip(subjects, told, strict=True) if not one.last("imported", list)}
        able = [one for one in companions if one.companion.beside not in dead]
        tried = dict(zip(able, gather([partial(bench.companion, one) for one in able], bench.at_once), strict=True))
        opened = {path: bench.library(path) for path in libraries}
        quiet.set_result(True)
    finally:
        if not quiet.done():  # they need not wait for what never comes
            quiet.set_result(False)
    for found in companions:
        checks += judge_companion(found, tried[found], facts, has_gpu=bool(gpus)) if found in tried else untried(found)
    for path, one in opened.items():
        checks += judge_library(f"cudnn/{run.label(path)}", one, facts)
    for later in working:
        checks += later.result()
    driver = facts.driver.version if isinstance(facts.driver, Driver) else None
    return Validation(
        checks=tuple(checks),
        gpus=gpus,
        driver=driver,
        frameworks=MappingProxyType({one.name: one.installed.version for one in subjects}),
        loaded=MappingProxyType(_loaded([*told, *opened.values()])),
    )


def _counted(progress: Progress, subjects: int, libraries: int, companions: int, gpus: int) -> Progress:
    """Hears of each step that begins, with its number; each framework is loaded alone and behind each other one, and timed on each card."""
    total = subjects**2 + libraries + companions + gpus * (libraries + 2 * subjects + companions)
    begun = count(1)
    return lambda text: progress(f"step {next(begun)} of at most {total}: {text}")


def with_real_places(host: Host, facts: Facts) -> Facts:
    """Add the real paths of copies of cuDNN and of LD_LIBRARY_PATH to the facts: a process knows no others."""
    known = () if isinstance(facts.cudnn, Unknown) else facts.cudnn
    paths = {one.path for one in known}
    copies = [replace(one, path=real) for one in known if one.path and (real := host.realpath(one.path)) not in paths]
    if copies:
        facts = replace(facts, cudnn=(*known, *copies))
    if isinstance(facts.loader, Unknown):
        return facts
    led = facts.loader.ld_library_path
    places = dict.fromkeys((*led, *(host.realpath(path) for path in led if path)))
    return replace(facts, loader=replace(facts.loader, ld_library_path=tuple(places)))


class CardRun(Struct, frozen=True, kw_only=True):
    """What is computed on every card, with which libraries and frameworks."""

    bench: Bench
    subjects: tuple[Subject, ...]
    libraries: tuple[str, ...]
    companions: tuple[Found, ...]
    book: Book

    def on_card(self, gpu: VisibleGpu, prefix: str, quiet: Future[bool], cards: int) -> list[Check]:
        """Check one card: the card itself, each cuDNN, each framework; take times once nothing else loads, which `quiet` tells."""
        looked = self.bench.card(gpu)
        checks = [judge_card(f"{prefix}card", looked, gpu.index)]
        if checks[0].status == "failed":
            return checks
        is_slice = "MIG" in (gpu.visible or "").upper() or " MIG " in (gpu.name or "")
        architecture = self.book.architecture(Capability.parse(gpu.compute_capability)) if gpu.compute_capability else None
        pace = pace_of(looked, architecture, self.book.peak(gpu.name) if gpu.name else None, is_slice=is_slice)
        at_once = min(max(self.bench.at_once // cards, 1), programs_on(looked, self.bench.host.environ))
        able = [one for one in self.subjects if not one.is_cpu_build and one.module in PAYLOADS]
        works = [(False, partial(self._bare, path, gpu, prefix)) for path in self.libraries]
        works += [(one.module in COMPILES, partial(self._computed, one, gpu, prefix)) for one in able]
        works += [(one.companion.is_framework, partial(self._tried, one, gpu, prefix)) for one in self.companions]
        # What takes longest begins first; what is told stays in the order in which one would look for a fault.
        order = sorted(range(len(works)), key=lambda index: not works[index][0])
        done = dict(zip(order, gather([works[index][1] for index in order], at_once), strict=True))
        checks += [check for index in sorted(done) for check in done[index]]
        if not quiet.result():
            return checks
        sound = [one for one in able if any(check.framework == one.name and check.status == "passed" for check in checks)]
        timed = gather([partial(self._timed, one, gpu, prefix, pace) for one in sound], at_once)
        return [*checks, *(check for group in timed for check in group)]

    def _bare(self, path: str, gpu: VisibleGpu, prefix: str) -> list[Check]:
        return list(judge_cases(f"{prefix}cudnn/{self.label(path)}/", None, self.bench.bare(path, gpu), gpu.index))

    def _tried(self, found: Found, gpu: VisibleGpu, prefix: str) -> list[Check]:
        return list(judge_on_gpu(found, self.bench.companion(found, gpu), gpu, prefix))

    def label(self, path: str) -> str:
        """A short name for a libcudnn, `libcudnn.so.9`; with a number behind it where several have one name."""
        name = path.rpartition("/")[2]
        alike = [one for one in self.libraries if one.rpartition("/")[2] == name]
        return name if len(alike) == 1 else f"{name}#{alike.index(path) + 1}"

    def _computed(self, subject: Subject, gpu: VisibleGpu, prefix: str) -> list[Check]:
        name = f"{prefix}{subject.name}/"
        runs = self.bench.computed(subject, gpu)
        checks = list(judge_cases(name, subject.name, runs, gpu.index))
        if any(check.id == f"{name}start" for check in checks):
            return checks
        return [*checks, judge_usage(f"{name}cudnn-used", subject.name, runs, gpu.index)]

    def _timed(self, subject: Subject, gpu: VisibleGpu, prefix: str, pace: Pace) -> list[Check]:
        told = self.bench.timed(subject, gpu)
        if told is None:
            return []
        types = self.bench.types_timed(gpu)
        return list(judge_speed(f"{prefix}{subject.name}/speed", subject.name, told, pace, gpu.index, types))


def _framework_of(name: str, book: Book) -> str:
    """The framework in a distribution, by its name in the matrix."""
    return book.framework_of(name) or name


def _completed(subject: Subject, book: Book) -> Subject:
    """Add the cuDNN that a framework was built with by the matrix, where all builds of its release agree and say more than it does."""
    seen = subject.installed
    framework, version = book.framework_of(seen.name), seen.version.partition("+")[0]
    builds = [one for one in book.framework(framework).builds if one.package == seen.name and one.version == version] if framework else []
    known = {one.cudnn.text for one in builds if one.cudnn and seen.variant in (None, one.variant)}
    told, own = next(iter(known), ""), seen.cudnn_built
    if len(known) != 1 or (own is not None and (own.count(".") > 0 or own != told.partition(".")[0])):
        return subject
    return replace(subject, installed=replace(seen, cudnn_built=told))


def libraries_of(facts: Facts, subjects: Sequence[Subject]) -> tuple[str, ...]:
    """List each libcudnn that a framework would load; where there is none, each complete copy that was found."""
    paths = [one.installed.would_load.path for one in subjects if one.installed.would_load and one.installed.would_load.path]
    if not paths and not isinstance(facts.cudnn, Unknown):
        paths = [f"{copy.path}/libcudnn.so.{copy.soname}" for copy in facts.cudnn if copy.path and copy.soname and copy.complete]
    return tuple(dict.fromkeys(paths))[:_MOST_LIBRARIES]


def _machine(facts: Facts, subjects: Sequence[Subject], gpus: Sequence[VisibleGpu], wish: Wish, environ: Mapping[str, str]) -> list[Check]:
    """Check that there is something to test, and something to test it on."""
    checks = []
    if not gpus:
        checks.append(
            Check(
                id="gpu",
                status="failed" if wish.require_gpu else "skipped",
                expected="an NVIDIA GPU that programs see" if wish.gpu is None else f"GPU {wish.gpu}",
                observed=_no_gpu(facts, wish, environ),
                detail="nothing can be computed; what loads, from where and in which version is checked all the same",
            )
        )
    if not subjects and not wish.frameworks:
        checks.append(Check(id="frameworks", status="skipped", observed=f"none is installed in {_where(facts)}", detail=_NAME_ONE))
    return checks


def _not_installed(name: str, facts: Facts) -> Check:
    """Fail a framework that was asked for and is not installed."""
    return Check(
        id=f"{name}/import",
        framework=name,
        status="failed",
        expected=f"{name} is installed",
        observed=f"it is not installed in {_where(facts)}",
        detail=f"`cudnn-resolve plan -f {name}` says what it takes",
    )


def _where(facts: Facts) -> str:
    return facts.python.prefix or facts.python.path or "this environment"


def _no_gpu(facts: Facts, wish: Wish, environ: Mapping[str, str]) -> str:
    if isinstance(facts.gpus, Unknown):
        visible = environ.get("CUDA_VISIBLE_DEVICES")
        return "nobody could be asked for GPUs" if visible is None else f"CUDA_VISIBLE_DEVICES={visible!r} leaves none that programs see"
    hidden = [gpu for gpu in facts.gpus if gpu.hidden]
    if wish.gpu is not None and len(facts.gpus) > len(hidden):
        return f"programs see {len(facts.gpus) - len(hidden)}, numbered from 0"
    if hidden:
        return f"CUDA_VISIBLE_DEVICES hides {len(hidden)} of {len(facts.gpus)}: programs see none"
    return "no NVIDIA driver" if facts.driver is None else "no GPU"


def _loaded(told: Sequence[Told]) -> dict[str, str]:
    """Map kinds of libraries to the version that was seen; where processes differ, to all versions."""
    found: dict[str, list[str]] = {}
    for one in told:
        seen = seen_in(one)
        pairs = [(library_name(path), version) for path, version in seen.libraries.items()]
        pairs += [("cudnn", cudnn.release.text) for cudnn in seen.cudnns if cudnn.release]
        for kind, version in pairs:
            if version is not None and version not in found.setdefault(kind, []):
                found[kind].append(version)
    return {kind: ", ".join(versions) for kind, versions in sorted(found.items()) if versions}


def with_causes(validation: Validation, explain: Callable[[str], str]) -> Validation:
    """Add the cause to each failure whose words tell one, and the lack of memory; `explain` answers "" for what it does not know.

    Where the judge has said more than that an import failed, it has seen the cause itself.
    """
    checks = []
    short = {one.gpu: one for one in validation.checks if one.gpu is not None and one.id.endswith("card") and one.status == "warning"}
    for check in validation.checks:
        open_ = check.status == "failed" and (not check.detail or check.id.endswith("/import"))
        why = explain("\n".join([check.observed or "", *check.output])) if open_ else ""
        # Few of the failures that come of a full card speak of memory. Too little room ends a computation; it does not make it wrong.
        ended = check.status == "failed" and not (check.observed or "").startswith(WRONG)
        card = short.get(check.gpu) if ended and check.gpu is not None else None
        room = f"perhaps for lack of memory: {card.observed} on the card" if card is not None else ""
        checks.append(replace(check, detail="; ".join(filter(None, [check.detail, why, room]))))
    return replace(validation, checks=tuple(checks))
