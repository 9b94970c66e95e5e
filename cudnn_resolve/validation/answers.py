"""Typed events of a child process. Malformed values are dropped: anything running in the child can write to the same pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert

from cudnn_resolve.validation.case import Case
from cudnn_resolve.version import CudnnVersion, parsed

T = TypeVar("T")


class ChildReport(Struct, frozen=True, kw_only=True):
    """Events that one child emitted, and how it ended."""

    events: tuple[tuple[str, Any], ...] = ()
    """Key and value, in order."""
    failure: str = ""
    """Abnormal end, `crashed (SIGSEGV)`; empty if the child finished."""
    output: tuple[str, ...] = ()
    """Last lines that it and its libraries printed."""

    def values(self, key: str, kind: type[T]) -> Iterator[T]:
        """Yield the values of that type emitted under a key, in order."""
        for name, value in self.events:
            if name == key:
                try:
                    yield convert(value, kind)
                except (ValidationError, RecursionError):
                    continue

    def last(self, key: str, kind: type[T]) -> T | None:
        """Last value of that type emitted under a key, or None."""
        return next(reversed(list(self.values(key, kind))), None)

    @property
    def step(self) -> str:
        """Step that it had begun when it ended; "" if it announced none."""
        return (self.last("step", str) or "")[:200]

    @property
    def ending(self) -> str:
        """Failure with the step in which it happened."""
        return f"{self.step}: {self.failure}" if self.step and self.failure else self.failure


CaseRun = tuple[Sequence[Case], ChildReport]
"""Cases given to one child, and its report."""


def cudnn_of(text: object) -> CudnnVersion | None:
    """Parse a cuDNN version; None for anything else."""
    return parsed(CudnnVersion, text) if isinstance(text, str) else None


class CudnnAnswer(Struct, frozen=True):
    """Self-description of one libcudnn."""

    path: str
    version: str | None = None
    checks: dict[str, int] = {}
    """Part to the status of its version check; 0 is good."""
    descriptors: dict[str, int] = {}
    """Descriptor kind to the status of its creation."""
    engines: dict[str, str] = {}
    """Library to the reason why it cannot be opened; "" if it can."""

    @property
    def release(self) -> CudnnVersion | None:
        """Its version, or None if it reports none that is valid."""
        return cudnn_of(self.version)

    @property
    def faults(self) -> list[str]:
        """Parts and descriptors that it rejects, each with its status."""
        return [f"{part} {status}" for part, status in {**self.checks, **self.descriptors}.items() if status != 0]


class CompilerAnswer(Struct, frozen=True):
    """How libnvrtc was found, and whether it compiles."""

    name: str = ""
    how: str = ""
    path: str = ""
    why: str = ""
    status: int | None = None


class CardAnswer(Struct, frozen=True):
    """Answers of the driver and NVML about a GPU; None if they give none."""

    memory: bool = False
    """True if its memory returns what was written."""
    mode: int | None = None
    multiprocessors: int | None = None
    clock_khz: float | None = None
    free_mib: int | None = None
    total_mib: int | None = None
    others: int | None = None
    clock_mhz: float | None = None
    most_mhz: float | None = None
    throttled: tuple[str, ...] = ()


class CaseAnswer(Struct, frozen=True):
    """Result of one case: tensors, or the reason for their absence."""

    id: str
    y: list[Any] | None = None
    dx: list[Any] | None = None
    dw: list[Any] | None = None
    seconds: float | None = None
    error: str | None = None
    unsupported: str | None = None
    own: str | None = None
    """Why no use of cuDNN is expected."""
    forward_only: bool = False
    cudnn: dict[str, int] = {}
    """Computing functions of cuDNN to the number of calls in its log."""
    logged: bool = False
    """True if cuDNN wrote a log."""


class WitnessAnswer(Struct, frozen=True):
    """Observation of one case by a profiler or other witness."""

    how: str = ""
    names: list[Any] = []
    why: str = ""
    cut: int = 0


class SpeedAnswer(Struct, frozen=True):
    """Time of the workload in one type, or the reason for its absence."""

    type: str
    seconds: float | None = None
    cpu_seconds: float | None = None
    error: str | None = None
    unsupported: str | None = None


def cases_in(report: ChildReport) -> dict[str, CaseAnswer]:
    """Map case ids to their answers."""
    return {answer.id: answer for answer in report.values("case", CaseAnswer)}


def one_line(text: str, most: int = 400) -> str:
    """Collapse a text to one line of at most `most` characters, without control characters."""
    flat = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "?" for letter in flat)[:most]
