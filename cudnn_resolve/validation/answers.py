"""What a child tells, as values. An answer of another form is none: whatever runs in the child can write to the same pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert

from cudnn_resolve.version import CudnnVersion

_MOST_LETTERS = 400
T = TypeVar("T")


class Told(Struct, frozen=True, kw_only=True):
    """What one child told, and how it ended."""

    events: tuple[tuple[str, Any], ...] = ()
    """Key and value, in order."""
    failure: str = ""
    """How it ended where it did not end well: `crashed (SIGSEGV)`; empty where it told everything."""
    output: tuple[str, ...] = ()
    """The last lines of what it and its libraries printed."""

    def every(self, key: str, kind: type[T]) -> Iterator[T]:
        """The values of that type told under a key, in order."""
        for name, value in self.events:
            if name == key:
                try:
                    yield convert(value, kind)
                except (ValidationError, RecursionError):
                    continue

    def last(self, key: str, kind: type[T]) -> T | None:
        """The last value of that type told under a key; None where there is none."""
        return next(reversed(list(self.every(key, kind))), None)

    @property
    def step(self) -> str:
        """What it was about to do when it ended; "" where it said nothing."""
        return (self.last("step", str) or "")[:200]

    @property
    def ending(self) -> str:
        """How it ended, and in what."""
        return f"{self.step}: {self.failure}" if self.step and self.failure else self.failure


def cudnn_of(text: object) -> CudnnVersion | None:
    """A version of cuDNN; None for what cannot be one."""
    try:
        return CudnnVersion(text) if isinstance(text, str) else None
    except ValueError:
        return None


class CudnnAnswer(Struct, frozen=True):
    """What one libcudnn said of itself."""

    path: str
    version: str | None = None
    checks: dict[str, int] = {}
    """Part to the status of its version check; 0 is good."""
    descriptors: dict[str, int] = {}
    """Kind to the status with which one was made."""
    engines: dict[str, str] = {}
    """Library to why it cannot be opened; "" where it can."""

    @property
    def release(self) -> CudnnVersion | None:
        """Its version; None where it tells none that could be one."""
        return cudnn_of(self.version)

    @property
    def faults(self) -> list[str]:
        """Each part or descriptor that it does not take for its own, with the status that it answered."""
        return [f"{part} {status}" for part, status in {**self.checks, **self.descriptors}.items() if status != 0]


class CompilerAnswer(Struct, frozen=True):
    """How libnvrtc was found, and whether it compiles."""

    name: str = ""
    how: str = ""
    path: str = ""
    why: str = ""
    status: int | None = None


class CardAnswer(Struct, frozen=True):
    """What the driver and NVML say of a card; None where they do not."""

    memory: bool = False
    """True where its memory holds what is written."""
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
    """What came out of one case: tensors, or why there are none."""

    id: str
    y: list[Any] | None = None
    dx: list[Any] | None = None
    dw: list[Any] | None = None
    seconds: float | None = None
    error: str | None = None
    unsupported: str | None = None
    own: str | None = None
    """Why no cuDNN is to be expected."""
    forward_only: bool = False
    cudnn: dict[str, int] = {}
    """Function of cuDNN that computes to how often its log shows it."""
    logged: bool = False
    """True where cuDNN kept a log."""


class WitnessAnswer(Struct, frozen=True):
    """What a witness saw of one case."""

    how: str = ""
    names: list[Any] = []
    why: str = ""
    cut: int = 0


class SpeedAnswer(Struct, frozen=True):
    """How long the work of one type took, or why there is no time."""

    type: str
    seconds: float | None = None
    cpu_seconds: float | None = None
    error: str | None = None
    unsupported: str | None = None


def cases_in(told: Told) -> dict[str, CaseAnswer]:
    """What was told of each case, by its id."""
    return {answer.id: answer for answer in told.every("case", CaseAnswer)}


def one_line(text: str, most: int = _MOST_LETTERS) -> str:
    """A text in one line of at most so many letters, without control characters."""
    flat = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "?" for letter in flat)[:most]


def few(words: Sequence[str], most: int = 4, between: str = ", ") -> str:
    """List at most so many of the words, and count the others."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return f"{between.join(words[:most])}{more}"
