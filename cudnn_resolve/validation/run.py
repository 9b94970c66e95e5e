"""The whole validation: what is tested on this machine, in which children, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType

from cudnn_resolve.facts.model import Driver, Facts, Unknown
from cudnn_resolve.host.later import Later
from cudnn_resolve.host.port import Host
from cudnn_resolve.record import dataclass
from cudnn_resolve.validation.child import Told, run_payload
from cudnn_resolve.validation.loading import judge_loading, seen_in
from cudnn_resolve.validation.model import Check, TestedGpu, Validation
from cudnn_resolve.validation.subject import Subject, environment_of, gpus_of, subjects_of

LOAD_SECONDS = 120.0
"""For an import with all its libraries; on a cold network disk TensorFlow takes a minute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What is to be tested."""

    frameworks: tuple[str, ...] = ()
    """Names of distributions or modules; none = all that are installed."""
    gpu: int | None = None
    """Number of one GPU; None = every one."""
    require_gpu: bool = False


Progress = Callable[[str], None]


def validate(host: Host, facts: Facts, wish: Wish, progress: Progress = lambda _text: None) -> Validation:
    """The checks of the frameworks and of cuDNN in the environment that the facts describe, judged."""
    subjects = tuple(one for one in subjects_of(facts) if not wish.frameworks or {one.name, one.module} & {*wish.frameworks})
    gpus = tuple(one for one in gpus_of(facts) if wish.gpu is None or one.index == wish.gpu)
    bench = Bench(host=host, facts=facts, python=facts.python.path or host.python, progress=progress)
    told = bench.load(subjects)
    checks = [*_machine(facts, subjects, gpus, wish)]
    for subject, one in zip(subjects, told, strict=True):
        checks += judge_loading(subject, one, facts, has_gpu=bool(gpus))
    driver = facts.driver.version if isinstance(facts.driver, Driver) else None
    return Validation(
        checks=tuple(checks),
        gpus=gpus,
        driver=driver,
        frameworks=MappingProxyType({one.name: one.installed.version for one in subjects}),
        loaded=MappingProxyType(_loaded(told)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Where the children run."""

    host: Host
    facts: Facts
    python: str
    progress: Progress

    def load(self, subjects: Sequence[Subject]) -> tuple[Told, ...]:
        """What the processes hold in which each framework is alone; two at a time."""
        return in_pairs([partial(self._load_one, one) for one in subjects])

    def _load_one(self, subject: Subject) -> Told:
        self.progress(f"loading {subject.name}")
        question = {"payload": "payload_load", "frameworks": [subject.question]}
        return run_payload(self.host, self.python, question, env=environment_of(self.host.environ), seconds=LOAD_SECONDS)


def in_pairs(calls: Sequence[Callable[[], Told]]) -> tuple[Told, ...]:
    """The values of the calls in their order, two of which run at any time."""
    found: list[Told] = []
    for index in range(0, len(calls), 2):
        later = [Later(call) for call in calls[index : index + 2]]
        found += [one.value() for one in later]
    return tuple(found)


def _machine(facts: Facts, subjects: Sequence[Subject], gpus: Sequence[TestedGpu], wish: Wish) -> list[Check]:
    """Whether there is something to test, and something to test it on."""
    checks = []
    if not gpus:
        checks.append(
            Check(
                id="gpu",
                status="failed" if wish.require_gpu else "skipped",
                expected="an NVIDIA GPU that programs see" if wish.gpu is None else f"GPU {wish.gpu}",
                observed=_no_gpu(facts, wish),
                detail="nothing can be computed; what loads, from where and in which version is checked all the same",
            )
        )
    if not subjects:
        where = facts.python.prefix or facts.python.path or "this environment"
        wanted = f" of {', '.join(wish.frameworks)}" if wish.frameworks else ""
        checks.append(Check(id="frameworks", status="skipped", observed=f"none{wanted} is installed in {where}"))
    return checks


def _no_gpu(facts: Facts, wish: Wish) -> str:
    if isinstance(facts.gpus, Unknown):
        return "nobody could be asked for GPUs"
    hidden = [gpu for gpu in facts.gpus if gpu.hidden]
    if wish.gpu is not None and len(facts.gpus) > len(hidden):
        return f"programs see {len(facts.gpus) - len(hidden)}, numbered from 0"
    if hidden:
        return f"CUDA_VISIBLE_DEVICES hides {len(hidden)} of {len(facts.gpus)}: programs see none"
    return "no NVIDIA driver" if facts.driver is None else "no GPU"


def _loaded(told: Sequence[Told]) -> dict[str, str]:
    """Kind of library to the version that was seen; where processes differ, all versions."""
    found: dict[str, list[str]] = {}
    for one in told:
        seen = seen_in(one)
        pairs = [(path.rpartition("/")[2].removeprefix("lib").partition(".so")[0], version) for path, version in seen.libraries.items()]
        pairs += [("cudnn", seen.cudnn.text)] if seen.cudnn else []
        for kind, version in pairs:
            if version is not None and version not in found.setdefault(kind, []):
                found[kind].append(version)
    return {kind: ", ".join(versions) for kind, versions in sorted(found.items()) if versions}
