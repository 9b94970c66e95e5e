"""Requests: the options of each command as frozen values, one base for each group that several commands share.

A field has the name of its option. What is empty was not said, and the project's settings may say it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.facts.assume import Assumptions
from cudnn_resolve.facts.model import Facts

_BARE = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


class MachineOptions(Struct, frozen=True, kw_only=True):
    """Which machine and environment."""

    python: str | None = None
    """Path or name of the interpreter; None = the active environment's, else the running one."""
    facts: str | None = None
    """A facts file; `-` is standard input."""
    given: Facts | None = None
    """The same as a value."""


class StatedOptions(MachineOptions, frozen=True, kw_only=True):
    """Single facts stated by hand, and the tables that they are held against."""

    driver: str | None = None
    gpu: tuple[str, ...] = ()
    python_version: str | None = None
    platform: str | None = None
    glibc: str | None = None
    os: str | None = None
    matrix: tuple[str, ...] = ()
    """Folders with further or changed rows, the last one on top."""
    project_matrix: tuple[str, ...] = ()
    """Such folders below those, which the project's settings name: no option, and no part of it leads to root."""

    @property
    def assumptions(self) -> Assumptions:
        """The stated facts, as `assume` takes them."""
        return Assumptions(
            driver=self.driver,
            gpus=self.gpu,
            python_version=self.python_version,
            platform=self.platform,
            glibc=self.glibc,
            os=self.os,
        )


class Options(StatedOptions, frozen=True, kw_only=True):
    """Everything that commands which resolve have in common."""

    framework: tuple[str, ...] = ()
    """PEP 508 requirements, in the order of the command line."""
    packages: tuple[str, ...] = ()
    """Requirements as pip and uv take them: frameworks among them are targets, the others join as lines of a file would."""
    requirement: tuple[str, ...] = ()
    constraint: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    """Dependency groups, `NAME` or `PATH:NAME`."""
    cuda: str | None = None
    """A PEP 440 specifier; a bare `12.4` means `==12.4.*`."""
    cudnn: str | None = None
    prefer: Literal["installed", "newest"] | None = None
    driver_policy: Literal["minor", "strict"] | None = None
    device: Literal["gpu", "cpu"] | None = None
    """None = not said: a GPU is meant, and a CPU answer must say so."""
    pre: bool = False
    strict_pins: bool = False
    channel: Literal["auto", "pip", "apt"] | None = None
    index_url: str | None = None
    """None = whatever the target's pip or uv configuration says."""
    extra_index_url: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    index_strategy: Literal["first-index", "best-match"] | None = None
    """None = that of the configuration that names the indexes."""
    exclude_newer: str | None = None
    """An ISO 8601 date or time."""
    no_binary: tuple[str, ...] = ()
    only_binary: tuple[str, ...] = ()
    no_variant_indexes: bool = False
    offline: bool = False
    allow_break: tuple[str, ...] = ()
    """Installed frameworks that may stop working; `lock` does not take it."""
    reinstall_package: tuple[str, ...] = ()
    """Installed packages whose files are laid down again; `plan` and `apply` alone take it."""

    @property
    def names_targets(self) -> bool:
        """True where it says what is wanted itself."""
        return bool(self.framework or self.packages or self.requirement or self.group or self.reinstall_package)

    @property
    def repeated(self) -> tuple[tuple[str, str], ...]:
        """Options of one command alone, which the same command repeats when it is proposed."""
        return ()


class PlanRequest(Options, frozen=True, kw_only=True):
    """What `plan` is asked."""

    lock: str | None = None
    """A lock instead of targets."""


class WhyRequest(Options, frozen=True, kw_only=True):
    """What `why` is asked."""

    package: str = ""
    lock: str | None = None
    """A lock instead of targets; None = `./pylock.toml` where nothing is asked for, if it is there."""


class LockRequest(Options, frozen=True, kw_only=True):
    """What `lock` is asked."""

    platforms: tuple[str, ...] = ()
    """Every platform that the lock is for; empty = this machine's."""
    output: str | None = None
    """The lock; None = `pylock.toml`, `-` = none is read or written."""
    check: bool = False
    no_facts: bool = False
    upgrade: bool = False
    upgrade_package: tuple[str, ...] = ()

    @property
    def repeated(self) -> tuple[tuple[str, str], ...]:
        """What is said of the old lock."""
        return (*((("--upgrade", ""),) if self.upgrade else ()), *(("--upgrade-package", name) for name in self.upgrade_package))


def _written(value: object) -> object:
    """A value as a journal may hold it: an address without its login, which belongs in netrc, a keyring or pip's configuration."""
    from cudnn_resolve.requirement.file import without_login

    return without_login(value) if isinstance(value, str) else value


_OF_ONE_RUN = ("lock", "has_targets", "dry_run", "force", "restart", "words", "given", "project_matrix")
"""Fields of `ApplyRequest` that a later run finds out or is told by itself."""


class ApplyRequest(Options, frozen=True, kw_only=True):
    """What `apply` is asked."""

    lock: str | None = None
    has_targets: bool = False
    """True where the caller himself names what he wants, and not only the project's settings."""
    dry_run: bool = False
    force: bool = False
    """Put back what a stopped `apply` replaced although others changed the environment meanwhile."""
    installer: Literal["auto", "pip", "uv"] = "auto"
    no_hashes: bool = False
    break_system_packages: bool = False
    no_validate: bool = False
    restart: bool = False
    words: tuple[str, ...] = ()
    """The words of a command line that asks for the same, for `--resume`."""

    def again(self) -> tuple[str, ...]:
        """The words of a command line that asks for the same; how it is spoken and asked about is left to that."""
        words: list[str] = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in _OF_ONE_RUN or value is None or value is False:
                continue
            if name == "packages":
                words += [str(_written(one)) for one in value]
                continue
            option = "--" + name.replace("_", "-")
            words += (
                [option] if value is True else [f"{option}={_written(one)}" for one in (value if isinstance(value, tuple) else [value])]
            )
        return (*words, *([self.lock] if self.lock else []))


class DoctorRequest(Options, frozen=True, kw_only=True):
    """What `doctor` is asked."""

    log: str | None = None
    """A log file, `-` for standard input; None = the machine alone is judged."""
    no_facts: bool = False


class ValidateRequest(MachineOptions, frozen=True, kw_only=True):
    """What `validate` is asked."""

    framework: tuple[str, ...] = ()
    """Names; empty = all that are installed."""
    gpu: int | None = None
    full: bool = False
    require_gpu: bool = False
    lock: str | None = None
    plan: str | None = None
    record: str | None = None


class CheckRequest(MachineOptions, frozen=True, kw_only=True):
    """What `check` is asked."""


class CleanRequest(Struct, frozen=True, kw_only=True):
    """What `clean` is asked."""

    all: bool = False
    """Also what an undo would need, and the caches."""
    dry_run: bool = False


class MatrixRequest(Struct, frozen=True, kw_only=True):
    """What `matrix` is asked."""

    action: Literal["list", "show", "check"] = "list"
    name: str | None = None
    which: str | None = None
    matrix: tuple[str, ...] = field(default=())


O = TypeVar("O", bound=MachineOptions)  # noqa: E741 - the usual letter for options


def normalized(request: O) -> O:
    """The request with its limits and times in one form; UsageError for one that cannot be."""
    said = {name: getattr(request, name) for name in request.__struct_fields__}
    changed: dict[str, Any] = {name: _specifier(f"--{name}", said[name]) for name in ("cuda", "cudnn") if said.get(name) is not None}
    if said.get("exclude_newer") is not None:
        changed["exclude_newer"] = _time("--exclude-newer", said["exclude_newer"])
    for name in ("python", "facts", "output"):
        _path("-o" if name == "output" else f"--{name}", said.get(name))
    return replace(request, **changed)


def contradictions(request: MachineOptions) -> Iterator[tuple[str, str, str, str]]:
    """Pairs of options that contradict each other, why, and what to do."""
    hint = "leave one of them out"
    if request.facts and request.python:
        yield "--facts", "--python", "a facts file describes its own interpreter", f"{hint}, or say --python-version X.Y"
    for name, option in (("python_version", "--python-version"), ("platform", "--platform"), ("platforms", "--platform")):
        if request.python and getattr(request, name, None):
            yield "--python", option, f"{option} plans for a fresh environment on another machine", hint
    if isinstance(request, Options) and request.device == "cpu":
        for name in ("gpu", "cuda", "cudnn"):
            if getattr(request, name):
                yield "--device cpu", f"--{name}", "CPU builds use no GPU, CUDA or cuDNN", hint


def _path(option: str, text: str | None) -> None:
    if text is not None and (not text or "\0" in text):
        raise UsageError(f"{option} names no file", code="usage-path", hint=f"give a path after {option}")


def _time(option: str, text: str) -> str:
    """The time as ISO 8601 in UTC: a day means the end of that day."""
    from datetime import datetime, timedelta, timezone

    try:
        time = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(f"{option} {text!r} is no date", code="option-time", hint=f"such as {option} 2025-06-30") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    if _DAY.fullmatch(text.strip()):
        time += timedelta(days=1)
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _specifier(option: str, text: str) -> str:
    """A PEP 440 specifier for what the user wrote; a bare version means its whole line."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    written = text.strip()
    if _BARE.fullmatch(written):
        written = f"=={written}.*"
    try:
        clauses = len(SpecifierSet(written))
    except InvalidSpecifier:
        clauses = 0
    if not clauses:
        raise UsageError(
            f"{option} {text!r} is not a version specifier", code="option-specifier", hint=f"such as {option} 12.4 or {option} '>=12,<13'"
        )
    return written
