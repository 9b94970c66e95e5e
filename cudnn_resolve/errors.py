"""User-facing errors, each kind with its exit code.

    CudnnResolveError          what went wrong, where, and what to do next
    ├── UsageError             2  the command line is wrong
    │   └── ContradictionError 2  options that exclude each other
    ├── InputError             2  a file that the user named is wrong
    │   └── MatrixError        2  a matrix table or overlay is wrong
    └── WorldError             3  the machine, the disk or the network refused
        └── IndexUnavailableError  3  a package index did not answer, or its answer is unusable

A request without a solution is a value (`resolution.Conflict`), not an exception.
This module imports nothing from the rest of the package.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Exit status of the process."""

    OK = 0
    """Done, or nothing to do."""
    NO = 1
    """The answer is no: unsatisfiable, out of date, failed, findings of severity error."""
    USAGE = 2
    """The command line or an input file is wrong."""
    WORLD = 3
    """The machine, the disk or the network refused."""
    REVERTED = 4
    """`apply` failed and put everything back."""
    BROKEN = 5
    """`apply` failed and could not put everything back."""


class CudnnResolveError(Exception):
    """A failure that is explained to the user.

    `code` is a stable kebab-case word; `context` says where (file, row, option); `hint` is the next thing to do.
    """

    exit_code: ExitCode = ExitCode.WORLD

    def __init__(self, message: str, *, code: str, context: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.context = context
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the constructor, whose keyword arguments `Exception` would drop."""
        return _unpickle, (type(self), self.args), self.__dict__

    def __str__(self) -> str:
        lines = [self.message]
        if self.context:
            lines.append(f"  in: {self.context}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


def _unpickle(kind: type[CudnnResolveError], args: tuple[Any, ...]) -> CudnnResolveError:
    """Create an error without its attributes, which pickle restores afterwards."""
    return kind.__new__(kind, *args)


class UsageError(CudnnResolveError):
    """The command line is wrong."""

    exit_code = ExitCode.USAGE


class ContradictionError(UsageError):
    """Options that exclude each other, or that make no sense together."""

    def __init__(self, message: str, *, context: str | None = None, hint: str | None = "leave one of them out") -> None:
        super().__init__(message, code="usage-contradiction", context=context, hint=hint)


class InputError(CudnnResolveError):
    """A file that the user named is missing, unreadable or malformed."""

    exit_code = ExitCode.USAGE


class MatrixError(InputError):
    """A matrix table is malformed or breaks a rule; `faults` holds one line per fault: file, row and field."""

    def __init__(self, message: str, *, faults: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, code="matrix-invalid", hint=hint)
        self.faults = faults

    def __str__(self) -> str:
        lines = [self.message, *(f"  {fault}" for fault in self.faults)]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class WorldError(CudnnResolveError):
    """The machine, the disk or the network refused."""


class IndexUnavailableError(WorldError):
    """A package index did not answer, refused, or sent an unusable answer."""


def out_of_memory() -> WorldError:
    """Error for a process that was refused memory or another thread."""
    hint = "free memory, or raise the limit of this process: `ulimit -v`, `ulimit -u`, or the limits of the container or job"
    return WorldError("not enough memory: the system gave this process no more", code="memory", hint=hint)


def did_you_mean(names: Iterable[object]) -> str:
    """Hint that suggests near matches; "" without any."""
    suggestions = " or ".join(map(str, names))
    return f"did you mean {suggestions}?" if suggestions else ""


def first_few(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """List at most so many names in a message, and count the rest: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def mib(count: int) -> str:
    """Format a number of bytes in MiB or GiB."""
    if count >= 1 << 30:
        return f"{count / (1 << 30):.1f} GiB"
    return f"{count / (1 << 20):.{0 if count >= 10 << 20 else 2}f} MiB"


def first_line(error: BaseException) -> str:
    """The first line of an error's text, at most 300 characters."""
    return (str(error) or type(error).__name__).splitlines()[0][:300]
