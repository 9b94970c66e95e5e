"""Facts stated on the command line, which override those of the machine."""

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.facts.distribution import glibc_of, refuse_unknown_release, split_os
from cudnn_resolve.facts.model import UNKNOWN, CudnnCopy, Driver, Facts, Gpu, Packages, Python, Toolkit, Unknown, architecture
from cudnn_resolve.version import Capability, DriverVersion, parsed

Row = TypeVar("Row", Toolkit, CudnnCopy)

_PYTHON = r"(?a)[23]\.\d{1,3}(?:\.\d{1,3}(?:(?:a|b|rc)\d{1,3})?)?(t?)"
_PLATFORM = r"(?a)(linux|manylinux_(\d{1,2})_(\d{1,3})|manylinux1|manylinux2010|manylinux2014)_(x86_64|amd64|aarch64|arm64)"
_GLIBC = r"(?a)2\.\d{1,3}"
_OLD_MANYLINUX = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}  # PEP 513, 571, 599
_DRIVER_MAJORS = (100, 1999)
"""Range of driver branches: 340 supports no relevant CUDA, 615 is the newest of 2026, and there is room above."""
_NEWEST_BARE_MAJOR = 20
"""Highest major of a capability written as a bare number (`75`, `120`); `980` and `1080` are cards."""


class Assumptions(Struct, frozen=True, kw_only=True):
    """Overrides of single facts; None and () = not stated."""

    driver: str | None = None
    gpus: tuple[str, ...] = ()
    """Names or compute capabilities of cards."""
    python_version: str | None = None
    platform: str | None = None
    """`linux_x86_64`, or with a C library `manylinux_2_28_x86_64`."""
    glibc: str | None = None
    os: str | None = None
    """Distribution and release, `ubuntu22.04`."""
    machine: str | None = None
    """A well-known machine, whose facts these override: `g5.xlarge`."""

    @property
    def elsewhere(self) -> bool:
        """Whether the plan is for a fresh environment on another machine."""
        return self.python_version is not None or self.platform is not None or self.machine is not None


def assume(facts: Facts, stated: Assumptions, card: Callable[[str], Gpu]) -> Facts:
    """Override facts by those stated, with the options as `sources`; a stated Python or platform implies a fresh environment.

    `card` returns the GPU of a name, and raises UsageError for an unknown one. Raise UsageError (exit 2) for an impossible driver,
    version or platform.
    """
    if stated.python_version is not None or stated.platform is not None:
        facts = fresh_environment(facts)
    if stated.platform is not None:
        facts = _with_platform(facts, stated.platform)
    if stated.os is not None:
        facts = _with_os(facts, stated.os)
    if stated.glibc is not None:
        if not re.fullmatch(_GLIBC, stated.glibc):
            raise UsageError(
                f"--glibc {stated.glibc!r} is not a version of the GNU C library", code="option-glibc", hint="for example 2.35"
            )
        facts = _with_source(replace(facts, platform=replace(facts.platform, glibc=stated.glibc)), "--glibc", "platform.glibc")
    if stated.python_version is not None:
        facts = _with_source(replace(facts, python=python_of(stated.python_version)), "--python-version", "python.version")
    if stated.driver is not None:
        facts = _with_source(
            replace(_forget(facts, "driver"), driver=Driver(version=_driver_of(stated.driver))), "--driver", "driver.version"
        )
    if stated.gpus:
        gpus = tuple(_gpu_of(text, card) for text in stated.gpus)
        facts = _with_source(replace(_forget(facts, "gpus"), gpus=gpus), "--gpu", "gpus")
    return facts


def fresh_environment(facts: Facts) -> Facts:
    """The machine with a new, empty environment of an unspecified Python.

    Copies of libraries in the old environment are dropped.
    """
    prefix = facts.python.prefix
    return replace(
        _forget(facts, "python", "packages.pip", "packages.requires", "frameworks"),
        python=Python(),
        packages=Packages(pip=MappingProxyType({}), apt=facts.packages.apt),
        frameworks=(),
        cuda_toolkits=_outside(facts.cuda_toolkits, prefix),
        cudnn=_outside(facts.cudnn, prefix),
    )


def _outside(rows: tuple[Row, ...] | Unknown, prefix: str | None) -> tuple[Row, ...] | Unknown:
    """Rows that are outside of any Python environment."""
    if isinstance(rows, Unknown):
        return rows
    inside = None if prefix is None else prefix.rstrip("/") + "/"
    return tuple(row for row in rows if row.source not in ("pip", "conda") and not (inside and row.path and row.path.startswith(inside)))


def _forget(facts: Facts, *names: str) -> Facts:
    """Drop the sources and problems of the named facts, nested ones included."""

    def is_kept(fact: str) -> bool:
        return not any(fact == name or fact.startswith((f"{name}.", f"{name}[")) for name in names)

    return replace(
        facts,
        sources=MappingProxyType({fact: how for fact, how in facts.sources.items() if is_kept(fact)}),
        problems=tuple(problem for problem in facts.problems if is_kept(problem.what)),
    )


def _with_source(facts: Facts, option: str, *names: str) -> Facts:
    """Record the option as the source of the named facts."""
    return replace(facts, sources=MappingProxyType({**facts.sources, **dict.fromkeys(names, option)}))


def _with_platform(facts: Facts, text: str) -> Facts:
    found = re.fullmatch(_PLATFORM, text.strip().lower())
    if found is None:
        raise UsageError(
            f"--platform {text!r} is not a platform that can be planned for",
            code="option-platform",
            hint="linux_x86_64, linux_aarch64, or with the C library's version manylinux_2_28_x86_64",
        )
    arch = architecture(found[4])
    glibc = f"{found[2]}.{found[3]}" if found[2] else _OLD_MANYLINUX.get(found[1])
    moved = facts.platform.arch not in (None, arch)
    if moved:  # everything found there was built for another processor
        facts = replace(
            _forget(facts, "cuda_toolkits", "cudnn", "loader", "packages.apt"),
            cuda_toolkits=UNKNOWN,
            cudnn=UNKNOWN,
            loader=UNKNOWN,
            packages=replace(facts.packages, apt=UNKNOWN),
        )
    platform = replace(facts.platform, system="linux", arch=arch, glibc=glibc or facts.platform.glibc)
    learnt = ("platform.system", "platform.arch", *(("platform.glibc",) if glibc else ()))
    return _with_source(replace(facts, platform=platform), "--platform", *learnt)


def _with_os(facts: Facts, text: str) -> Facts:
    distribution, release = split_os(text)
    refuse_unknown_release(text, distribution, release)
    old = facts.platform
    facts = _with_source(facts, "--os", "platform.distribution", "platform.release")
    if (old.distribution, old.release) == (distribution, release) and old.glibc is not None:
        return facts
    glibc = glibc_of(distribution, release)
    stated = facts.sources.get("platform.glibc") == "--platform"
    if stated:
        glibc = old.glibc
    platform = replace(old, system="linux", distribution=distribution, release=release, glibc=glibc)
    if glibc is not None and not stated:
        facts = _with_source(facts, "--os", "platform.glibc")
    return replace(facts, platform=platform)


def python_of(text: str) -> Python:
    """Python of a stated version; raise UsageError if it is not a version."""
    found = re.fullmatch(_PYTHON, text.strip())
    if found is None:
        raise UsageError(
            f"--python-version {text!r} is not a Python version", code="option-python-version", hint="for example 3.11 or 3.11.13"
        )
    return Python(version=text.strip().removesuffix("t"), free_threaded=True if found[1] else None)


def _driver_of(text: str) -> str:
    version = parsed(DriverVersion, text.strip()) if text.isascii() else None
    if version is None or not _DRIVER_MAJORS[0] <= version.major <= _DRIVER_MAJORS[1] or len(version.parts) > 3:
        cuda = version is not None and 7 <= version.major < 30
        hint = "the driver's version is meant, not its CUDA version: nvidia-smi prints both, the driver's looks like 550.54.15"
        raise UsageError(
            f"--driver {text!r} is not a version of the NVIDIA driver", code="option-driver", hint=hint if cuda else "for example 550.54.15"
        )
    return version.text


def _gpu_of(text: str, card: Callable[[str], Gpu]) -> Gpu:
    word = text.strip()
    if word.casefold() in ("", "none", "no", "cpu"):
        raise UsageError(
            f"--gpu {text!r} names no GPU", code="option-gpu", hint="for a machine without one, ask for CPU builds: --device cpu"
        )
    try:
        capability = Capability.parse(word)
    except ValueError:
        return card(word)
    is_card = not word.isascii() or (word.isdigit() and capability.major > _NEWEST_BARE_MAJOR)
    return card(word) if is_card else Gpu(compute_capability=str(capability))
