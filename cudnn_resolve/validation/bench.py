"""Start the children of a validation: which question goes to which interpreter, with which variables, for how long, how many at a time.

What a child told is collected, and how it ended, and its last lines.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.host.background import gather
from cudnn_resolve.host.protocol import CommandResult, Host
from cudnn_resolve.validation.answers import CardAnswer, Told, one_line
from cudnn_resolve.validation.case import ENCODER, LEAST_CAPABILITY, Case, Type, bare_cases, framework_cases
from cudnn_resolve.validation.companions import Found
from cudnn_resolve.validation.judge_numbers import unanswered
from cudnn_resolve.validation.judge_speed import FIRST, FURTHER, NARROW
from cudnn_resolve.validation.judge_speed import question as speed_question
from cudnn_resolve.validation.judge_usage import MUST_USE
from cudnn_resolve.validation.model import Subject, VisibleGpu, environment_of
from cudnn_resolve.validation.payload import MARK

LOAD_SECONDS = 120.0
"""For an import with all its libraries; on a cold network disk TensorFlow takes a minute."""
CASES_SECONDS = 300.0
"""For all cases of one framework; the first use of a card that is newer than the build compiles for minutes."""
SPEED_SECONDS = 180.0
"""For the times of one framework, with its wait for its turn."""
COMPANION_SECONDS = 240.0
"""For a companion with its work; torch.compile starts a compiler for each kernel."""
CARD_SECONDS = 60.0
"""For a context; without the persistence mode the driver wakes every card of the machine first."""
MOST_RESTARTS = 3
"""The most further children in which the rest of the cases is tried after one ended its child."""
PAYLOADS = frozenset({"torch", "tensorflow", "jax", "cupy", "onnxruntime", "ctranslate2", "paddle", "mxnet"})
CHANNELS_FIRST = frozenset({"onnxruntime", "mxnet", "cupy"})
"""Frameworks for which the other layout is the exception."""
WITHOUT_SWITCH = frozenset({"cupy", "ctranslate2", "mxnet"})
"""Frameworks that cannot be told to leave TF32 alone; the libraries below them can."""
SWITCH_OF_ONNXRUNTIME = re.compile(r"0\.|1\.1?[0-7]\.|1\.[89]\.")
"""Its releases up to 1.17, whose CUDA provider has no such switch either."""
TIMED = frozenset({"torch", "tensorflow", "jax", "cupy", "onnxruntime", "paddle"})
COMPILES = frozenset({"jax", "tensorflow"})
"""Frameworks that take longest: they compile for each case, or load for long."""

MOST = 4
"""More would wait for the same disk."""
PROCESS_MIB, PROGRAM_MIB = 4 << 10, 4 << 10
"""What a child with a framework is given of the machine's memory, and of a card's, where several run at a time."""
EXCLUSIVE = (1, 3)
"""CU_COMPUTEMODE_EXCLUSIVE of old drivers, and CU_COMPUTEMODE_EXCLUSIVE_PROCESS."""
GREEDY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"XLA_PYTHON_CLIENT_PREALLOCATE": ("true", "1"), "TF_FORCE_GPU_ALLOW_GROWTH": ("false", "0")}
)
"""Variables of the user, which are left as they are, with which a program takes most of a card."""
_THREADS = re.compile(r"^Cpus_allowed:\s*([0-9a-f,]{1,4000})$", re.MULTILINE)
_FREE = re.compile(r"^MemAvailable:\s*([0-9]{1,15}) kB$", re.MULTILINE)

Progress = Callable[[str], None]
Run = tuple[tuple[Case, ...], Told]


class Bench(Struct, frozen=True, kw_only=True):
    """Where and how children run."""

    host: Host
    python: str
    progress: Progress
    device: str = "gpu"
    """`cpu` where the tests prove the mathematics of a payload."""
    everything: bool = False
    """Every case instead of the default ones."""
    at_once: int = 2
    """The most children that import frameworks at a time."""

    def load(self, subjects: Sequence[Subject]) -> tuple[Told, ...]:
        """Load each framework in a process of its own."""
        return tuple(gather([partial(self._loaded, (one,)) for one in subjects], self.at_once))

    def orders(self, subjects: Sequence[Subject]) -> tuple[tuple[tuple[Subject, Subject], Told], ...]:
        """Load each pair of frameworks in one process, in both orders."""
        pairs = [pair for one, two in combinations(subjects, 2) for pair in ((one, two), (two, one))]
        return tuple(zip(pairs, gather([partial(self._loaded, pair) for pair in pairs], self.at_once), strict=True))

    def library(self, path: str) -> Told:
        """Open one libcudnn and nothing else."""
        self.progress(f"loading {path}")
        question = {"payload": "payload_load", "frameworks": [], "library": path}
        return self._child(question, seconds=LOAD_SECONDS)

    def _loaded(self, subjects: tuple[Subject, ...]) -> Told:
        self.progress(f"loading {' then '.join(one.name for one in subjects)}")
        question = {"payload": "payload_load", "frameworks": [one.question for one in subjects]}
        return self._child(question, seconds=LOAD_SECONDS * len(subjects))

    def companion(self, found: Found, gpu: VisibleGpu | None = None) -> Told:
        """Load one companion of a framework and have it do its jobs, on a GPU or on the processor."""
        self.progress(f"trying {found.name}" + _on(gpu))
        question = {"payload": "payload_companion", "module": found.companion.module, "jobs": found.jobs(gpu)}
        return self._child({**question, "device": "cuda" if gpu else "cpu"}, gpu=gpu, seconds=COMPANION_SECONDS)

    def card(self, gpu: VisibleGpu) -> Told:
        """Ask the driver about a card."""
        return self._child({"payload": "payload_card"}, gpu=gpu, seconds=CARD_SECONDS)

    def bare(self, path: str, gpu: VisibleGpu | None) -> tuple[Run, ...]:
        """Compute with one libcudnn alone."""
        self.progress(f"computing with {path} alone" + _on(gpu))
        cases = _able(bare_cases(), gpu)
        return self._cases({"payload": "payload_cudnn", "library": path}, cases, gpu)

    def computed(self, subject: Subject, gpu: VisibleGpu | None) -> tuple[Run, ...]:
        """Compute with one framework."""
        self.progress(f"computing with {subject.name}" + _on(gpu))
        cases = _able(cases_for(subject.module, everything=self.everything), gpu)
        return self._cases(self._question(subject), cases, gpu, **_variables(subject))

    def timed(self, subject: Subject, gpu: VisibleGpu | None) -> Told | None:
        """Time one framework; None where nothing can be timed with it.

        Those of one card start side by side, for starting takes longest, and take their times in turn, while none of them starts.
        """
        if subject.module not in TIMED:
            return None
        self.progress(f"timing {subject.name}" + _on(gpu))
        question = {**self._question(subject), "speed": speed_question(self.types_timed(gpu)), "turn": gpu.index if gpu else 0}
        return self._child(question, gpu=gpu, seconds=SPEED_SECONDS, **_variables(subject))

    def types_timed(self, gpu: VisibleGpu | None) -> tuple[Type, ...]:
        """The types in which a card is timed."""
        further = () if self.device == "cpu" else (*NARROW, *(FURTHER if self.everything else ()))
        return tuple(type_ for type_ in (*FIRST, *further) if _has(gpu, type_))

    def _question(self, subject: Subject) -> dict[str, Any]:
        return {"payload": f"payload_{subject.module}", "device": self.device, **subject.question}

    def _cases(self, question: dict[str, Any], cases: tuple[Case, ...], gpu: VisibleGpu | None, **more: str) -> tuple[Run, ...]:
        """Run all cases; those behind one that ended the child are tried in another."""
        found: list[Run] = []
        rest = cases
        while rest and len(found) <= MOST_RESTARTS:
            asked = {**question, "log": True, "cases": [case.question for case in rest], "witness": watched(rest)}
            told = self._child(asked, gpu=gpu, seconds=CASES_SECONDS, **more)
            found.append((rest, told))
            rest = unanswered(rest, told)
        return tuple(found)

    def _child(self, question: dict[str, Any], *, seconds: float, gpu: VisibleGpu | None = None, **more: str) -> Told:
        return run_payload(self.host, self.python, question, env=environment_of(self.host.environ, gpu, **more), seconds=seconds)


def cases_for(module: str, *, everything: bool = False) -> tuple[Case, ...]:
    """Choose the cases for a framework."""
    if module == "ctranslate2":
        return (ENCODER,)
    cases = framework_cases(everything=everything)
    if everything or module not in CHANNELS_FIRST:
        return cases
    turned = tuple(replace(case, layout="nchw") for case in cases)
    extra = [case for case in cases if case.layout == "nhwc" and case.name in ("conv2d", "conv2d-wide")] if module == "onnxruntime" else []
    return (*turned, *extra)


def watched(cases: Sequence[Case]) -> list[str]:
    """Choose one case of each class and type that must be cuDNN's work: who computed it is asked where cuDNN's log does not say.

    What a library has for one type it may lack for another.
    """
    first: dict[tuple[str, str], str] = {}
    for case in cases:
        if case.name in MUST_USE:
            first.setdefault((case.name, case.type), case.id)
    return list(first.values())


def _on(gpu: VisibleGpu | None) -> str:
    return f" on GPU {gpu.index}" if gpu else ""


def _able(cases: Sequence[Case], gpu: VisibleGpu | None) -> tuple[Case, ...]:
    """The cases whose type the card has; all where its capability is not known."""
    return tuple(case for case in cases if _has(gpu, case.type))


def _has(gpu: VisibleGpu | None, type_: str) -> bool:
    """True where a card computes with the type itself, and where that is not known."""
    capability = gpu.compute_capability if gpu else None
    if capability is None or "." not in capability:
        return True
    return LEAST_CAPABILITY.get(type_, (0, 0)) <= tuple(int(part) for part in capability.split("."))


def _variables(subject: Subject) -> dict[str, str]:
    older = subject.module == "onnxruntime" and SWITCH_OF_ONNXRUNTIME.match(subject.installed.version) is not None
    return {"NVIDIA_TF32_OVERRIDE": "0"} if older or subject.module in WITHOUT_SWITCH else {}


def processes_at_once(host: Host) -> int:
    """Count the children with a framework for which this machine has processors and memory; two where it does not say."""
    threads, memory = (host.read_text(path) or "" for path in ("/proc/self/status", "/proc/meminfo"))
    allowed, free = _THREADS.search(threads), _FREE.search(memory)
    if allowed is None or free is None:
        return 2
    processors = int(allowed[1].replace(",", "") or "1", 16).bit_count()
    # To import is work for one processor, and some of it waits for the disk.
    return max(1, min(max(2, processors // 2), (int(free[1]) >> 10) // PROCESS_MIB, MOST))


def programs_on(looked: Told, environ: Mapping[str, str]) -> int:
    """Count the programs for which a card has memory; one where it told nothing of its memory.

    One, too, on a card that administrators keep for one process at a time, and where the user has JAX or TensorFlow take all memory.
    """
    card = looked.last("card", CardAnswer) or CardAnswer()
    if card.mode in EXCLUSIVE or any(environ.get(name, "").lower() in words for name, words in GREEDY.items()):
        return 1
    return max(1, card.free_mib // PROGRAM_MIB) if card.free_mib and 0 < card.free_mib < 1 << 24 else 1


# ---- one child

_ROOM = "cudnn_resolve.validation"
FOLDERS = [os.path.dirname(__file__)]
"""Where payloads lie."""
START = f"""import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import importlib, json, types
question, folders, parts = json.loads(sys.stdin.read())
for package in ("cudnn_resolve", "{_ROOM}"):
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = folders
writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
for part in parts:
    importlib.import_module("{_ROOM}." + part)
sys.dont_write_bytecode = writes
question["payload"] = "{_ROOM}." + question["payload"]
sys.modules["{_ROOM}.payload"].main(question)
"""
"""Imports payloads alone, under empty packages: what this package itself needs is not there in the target's interpreter."""
MEMORY_MIB = 16 << 10
"""What one child may hold of the machine's memory; a framework with its libraries holds 1 to 4 GiB."""
_MOST_LINES = 12
_MOST_TOLD = 50_000
_NOISE = ("Unable to register cu", "TF-TRT Warning", "oneDNN custom operations", "rebuild TensorFlow with the appropriate compiler flags")
"""What TensorFlow always says."""


def run_payload(
    host: Host, python: str, question: Mapping[str, Any], *, env: Mapping[str, str], seconds: float, memory_mib: int = MEMORY_MIB
) -> Told:
    """Run the payload that the question names; it may crash, hang, print without end or take all memory, and is stopped then."""
    text = program_text({**question, "memory_mib": memory_mib})
    result = host.run([python, "-c", START], timeout_seconds=seconds, env=env, input=text, memory_limit_mib=2 * memory_mib)
    events = tuple(_events(result.stdout))
    return Told(events=events, failure=_failure(result, events, seconds), output=last_lines(result.stderr))


def program_text(question: Mapping[str, Any]) -> str:
    """Write what a child that runs START reads: the question, where payloads lie, and which of them answer it."""
    parts = ["payload", question["payload"], *(f"payload_{one['module']}" for one in question.get("frameworks", ()))]
    return json.dumps([question, FOLDERS, parts])


def _events(text: str) -> Iterator[tuple[str, Any]]:
    """Read the lines that carry our mark; every other line comes from a library."""
    count = 0
    for line in text.split("\n"):
        if not line.startswith(MARK) or count == _MOST_TOLD:
            continue
        try:
            told = json.loads(line[len(MARK) :])
        except (ValueError, RecursionError):
            continue
        if isinstance(told, list) and len(told) == 2 and isinstance(told[0], str):
            count += 1
            yield told[0], told[1]


def _failure(result: CommandResult, events: tuple[tuple[str, Any], ...], seconds: float) -> str:
    keys = {key for key, _ in events}
    failed = next((value for key, value in events if key == "failed"), None)
    if "memory" in keys:
        limit = next(value for key, value in events if key == "memory")
        return f"held more than {limit} MiB of memory and was stopped"
    if result.timed_out:
        return f"did not end within {seconds:g} s and was stopped"
    if failed is not None:
        return one_line(str(failed), 1000)
    if result.ok and "end" in keys:
        return ""
    return one_line(result.why() or "ended before it had told everything", 1000)


def last_lines(text: str) -> tuple[str, ...]:
    """Keep the last lines that say something, each shortened and without control characters."""
    lines = [one_line(line) for line in text[-200_000:].splitlines() if line.strip()]
    told = [line for line in lines if not any(noise in line for noise in _NOISE)]
    return tuple(told[-_MOST_LINES:])
