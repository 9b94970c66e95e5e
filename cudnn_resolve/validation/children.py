"""Children of a validation: what each is asked, its environment, its time limit, and how many run at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.host.background import gather
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.validation.answers import CardAnswer, CaseRun, ChildReport
from cudnn_resolve.validation.case import ENCODER, LEAST_CAPABILITY, Case, Type, bare_cases, framework_cases
from cudnn_resolve.validation.child import run_payload
from cudnn_resolve.validation.companions import InstalledCompanion
from cudnn_resolve.validation.judge_numbers import unanswered
from cudnn_resolve.validation.judge_speed import FIRST, FURTHER, NARROW, speed_question
from cudnn_resolve.validation.judge_usage import MUST_USE
from cudnn_resolve.validation.model import Subject, VisibleGpu, environment_of

LOAD_SECONDS = 120.0
"""Import with all libraries; on a cold network disk TensorFlow takes a minute."""
CASES_SECONDS = 300.0
"""All cases of one framework; the first use of a GPU newer than the build compiles for minutes."""
SPEED_SECONDS = 180.0
"""Timing of one framework."""
COMPANION_SECONDS = 240.0
"""A companion with its jobs; torch.compile starts a compiler for each kernel."""
CARD_SECONDS = 60.0
"""Creation of a context; without persistence mode the driver first wakes every GPU of the machine."""
MOST_RESTARTS = 3
"""Further children that try the remaining cases after one ended its child."""
CHANNELS_FIRST = frozenset({"onnxruntime", "mxnet", "cupy"})
"""Frameworks for which the other layout is the exception."""
WITHOUT_TF32_SWITCH = frozenset({"cupy", "ctranslate2", "mxnet"})
"""Frameworks in which TF32 can only be disabled through the libraries below them."""
ONNXRUNTIME_WITHOUT_TF32_SWITCH = re.compile(r"0\.|1\.1?[0-7]\.|1\.[89]\.")
"""Releases up to 1.17, whose CUDA provider has no such option."""
TIMED = frozenset({"torch", "tensorflow", "jax", "cupy", "onnxruntime", "paddle"})
SLOWEST = frozenset({"jax", "tensorflow"})
"""Frameworks that take longest: they compile each case, or take long to load."""

MOST_PROCESSES = 4
"""More would wait for the same disk."""
PROCESS_MIB = 4 << 10
"""Main memory reserved for each child that imports a framework."""
PROGRAM_MIB = 4 << 10
"""GPU memory reserved for each child that computes."""
EXCLUSIVE = (1, 3)
"""CU_COMPUTEMODE_EXCLUSIVE of old drivers, and CU_COMPUTEMODE_EXCLUSIVE_PROCESS."""
GREEDY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"XLA_PYTHON_CLIENT_PREALLOCATE": ("true", "1"), "TF_FORCE_GPU_ALLOW_GROWTH": ("false", "0")}
)
"""User settings, left untouched, with which a program reserves most of a GPU's memory."""
_THREADS = re.compile(r"^Cpus_allowed:\s*([0-9a-f,]{1,4000})$", re.MULTILINE)
_FREE = re.compile(r"^MemAvailable:\s*([0-9]{1,15}) kB$", re.MULTILINE)

Progress = Callable[[str], None]


class ChildRunner(Struct, frozen=True, kw_only=True):
    """Runs children in the target interpreter."""

    host: Host
    python: str
    progress: Progress
    device: str = "gpu"
    """`cpu` in tests that check the arithmetic of a payload."""
    everything: bool = False
    """Run every case instead of the default ones."""
    at_once: int = 2
    """Maximum number of concurrent children that import frameworks."""

    def load(self, subjects: Sequence[Subject]) -> tuple[ChildReport, ...]:
        """Load each framework in its own process."""
        return tuple(gather([partial(self._load, (subject,)) for subject in subjects], self.at_once))

    def orders(self, subjects: Sequence[Subject]) -> tuple[tuple[tuple[Subject, Subject], ChildReport], ...]:
        """Load each pair of frameworks in one process, in both orders."""
        pairs = [pair for first, second in combinations(subjects, 2) for pair in ((first, second), (second, first))]
        return tuple(zip(pairs, gather([partial(self._load, pair) for pair in pairs], self.at_once), strict=True))

    def library(self, path: str) -> ChildReport:
        """Open one libcudnn alone."""
        self.progress(f"loading {path}")
        question = {"payload": "payload_load", "frameworks": [], "library": path}
        return self._run(question, seconds=LOAD_SECONDS)

    def _load(self, subjects: tuple[Subject, ...]) -> ChildReport:
        self.progress(f"loading {' then '.join(subject.name for subject in subjects)}")
        question = {"payload": "payload_load", "frameworks": [subject.question for subject in subjects]}
        return self._run(question, seconds=LOAD_SECONDS * len(subjects))

    def companion(self, installed: InstalledCompanion, gpu: VisibleGpu | None = None) -> ChildReport:
        """Run the jobs of one companion, on a GPU or on the CPU."""
        self.progress(f"testing {installed.name}" + _on(gpu))
        question = {"payload": "payload_companion", "module": installed.companion.module, "jobs": installed.jobs(gpu)}
        return self._run({**question, "device": "cuda" if gpu else "cpu"}, gpu=gpu, seconds=COMPANION_SECONDS)

    def card(self, gpu: VisibleGpu) -> ChildReport:
        """Ask the driver about a GPU."""
        return self._run({"payload": "payload_card"}, gpu=gpu, seconds=CARD_SECONDS)

    def bare(self, path: str, gpu: VisibleGpu | None) -> tuple[CaseRun, ...]:
        """Compute with one libcudnn alone."""
        self.progress(f"computing with {path} alone" + _on(gpu))
        cases = [case for case in bare_cases() if _supports(gpu, case.type)]
        return self._cases({"payload": "payload_cudnn", "library": path}, cases, gpu)

    def computed(self, subject: Subject, gpu: VisibleGpu | None) -> tuple[CaseRun, ...]:
        """Compute with one framework."""
        self.progress(f"computing with {subject.name}" + _on(gpu))
        cases = [case for case in cases_for(subject.module, everything=self.everything) if _supports(gpu, case.type)]
        return self._cases(self._question(subject), cases, gpu, **_variables(subject))

    def timed(self, subject: Subject, gpu: VisibleGpu | None) -> ChildReport | None:
        """Time one framework; None if it has nothing to time. Nothing else may run on the GPU."""
        if subject.module not in TIMED:
            return None
        self.progress(f"timing {subject.name}" + _on(gpu))
        question = {**self._question(subject), "speed": speed_question(self.types_timed(gpu))}
        return self._run(question, gpu=gpu, seconds=SPEED_SECONDS, **_variables(subject))

    def types_timed(self, gpu: VisibleGpu | None) -> tuple[Type, ...]:
        """Types to time on a GPU."""
        further = () if self.device == "cpu" else (*NARROW, *(FURTHER if self.everything else ()))
        return tuple(type_ for type_ in (*FIRST, *further) if _supports(gpu, type_))

    def _question(self, subject: Subject) -> dict[str, Any]:
        return {"payload": f"payload_{subject.module}", "device": self.device, **subject.question}

    def _cases(self, question: dict[str, Any], cases: Sequence[Case], gpu: VisibleGpu | None, **more: str) -> tuple[CaseRun, ...]:
        """Run all cases; if one ends its child, another child runs the rest."""
        runs: list[CaseRun] = []
        rest = tuple(cases)
        while rest and len(runs) <= MOST_RESTARTS:
            asked = {**question, "log": True, "cases": [case.question for case in rest], "witness": watched(rest)}
            report = self._run(asked, gpu=gpu, seconds=CASES_SECONDS, **more)
            runs.append((rest, report))
            rest = unanswered(rest, report)
        return tuple(runs)

    def _run(self, question: dict[str, Any], *, seconds: float, gpu: VisibleGpu | None = None, **more: str) -> ChildReport:
        return run_payload(self.host, self.python, question, env=environment_of(self.host.environ, gpu, **more), seconds=seconds)


def cases_for(module: str, *, everything: bool = False) -> tuple[Case, ...]:
    """Cases for a framework."""
    if module == "ctranslate2":
        return (ENCODER,)
    cases = framework_cases(everything=everything)
    if everything or module not in CHANNELS_FIRST:
        return cases
    channels_first = tuple(replace(case, layout="nchw") for case in cases)
    extra = [case for case in cases if case.layout == "nhwc" and case.name in ("conv2d", "conv2d-wide")] if module == "onnxruntime" else []
    return (*channels_first, *extra)


def watched(cases: Sequence[Case]) -> list[str]:
    """Choose one case of each class and type expected to use cuDNN: a witness observes it if cuDNN's log is silent.

    Types are observed separately because a library may support only some of them.
    """
    first: dict[tuple[str, str], str] = {}
    for case in cases:
        if case.name in MUST_USE:
            first.setdefault((case.name, case.type), case.id)
    return list(first.values())


def _on(gpu: VisibleGpu | None) -> str:
    return f" on GPU {gpu.index}" if gpu else ""


def _supports(gpu: VisibleGpu | None, type_: str) -> bool:
    """True if a GPU has native arithmetic in the type, or if its capability is unknown."""
    capability = gpu.compute_capability if gpu else None
    if capability is None or "." not in capability:
        return True
    return LEAST_CAPABILITY.get(type_, (0, 0)) <= tuple(int(part) for part in capability.split("."))


def _variables(subject: Subject) -> dict[str, str]:
    is_old_onnxruntime = subject.module == "onnxruntime" and ONNXRUNTIME_WITHOUT_TF32_SWITCH.match(subject.installed.version) is not None
    return {"NVIDIA_TF32_OVERRIDE": "0"} if is_old_onnxruntime or subject.module in WITHOUT_TF32_SWITCH else {}


def processes_at_once(host: Host) -> int:
    """Number of framework children that fit this machine's processors and memory; two if either is unknown."""
    threads, memory = (host.read_text(path) or "" for path in ("/proc/self/status", "/proc/meminfo"))
    allowed, free = _THREADS.search(threads), _FREE.search(memory)
    if allowed is None or free is None:
        return 2
    processors = int(allowed[1].replace(",", "") or "1", 16).bit_count()
    # An import occupies one processor, and partly waits for the disk.
    return max(1, min(max(2, processors // 2), (int(free[1]) >> 10) // PROCESS_MIB, MOST_PROCESSES))


def programs_on(report: ChildReport, environ: Mapping[str, str]) -> int:
    """Number of programs that fit a GPU's memory; one if its memory is unknown.

    Also one if administrators limit the GPU to one process, or if the user lets JAX or TensorFlow reserve all memory.
    """
    card = report.last("card", CardAnswer) or CardAnswer()
    if card.mode in EXCLUSIVE or any(environ.get(name, "").lower() in words for name, words in GREEDY.items()):
        return 1
    return max(1, card.free_mib // PROGRAM_MIB) if card.free_mib and 0 < card.free_mib < 1 << 24 else 1
