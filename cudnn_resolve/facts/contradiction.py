"""Contradictions within the facts, without the matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from cudnn_resolve.facts.model import CudnnCopy, Driver, Facts, InstalledFramework, Problem, Unknown
from cudnn_resolve.version import CudaVersion, CudnnVersion

_TOKENS = r"\d+(?:\.\d+)+|/[^\s:;,)]+"


def conflicts(facts: Facts) -> tuple[Problem, ...]:
    """Facts that contradict each other, each with its consequence."""
    problems = list(_driver(facts.driver))
    if not isinstance(facts.frameworks, Unknown):
        for framework in facts.frameworks:
            problems.extend(_cudnn(framework))
            problems.extend(_cuda(framework, facts.driver))
    if not isinstance(facts.cudnn, Unknown):
        problems.extend(_copy(copy) for copy in facts.cudnn if copy.complete is False or copy.problems)
    return tuple(problems)


def covers(problem: Problem, conflict: Problem) -> bool:
    """Whether a reported problem is the same as a conflict: it names the same versions and paths."""
    tokens = _tokens(f"{conflict.what} {conflict.why}")
    return problem == conflict or (bool(tokens) and tokens <= _tokens(f"{problem.what} {problem.why}"))


@lru_cache(maxsize=1024)
def _tokens(text: str) -> frozenset[str]:
    """Versions and paths in a text; cached, since hundreds of problems are compared with hundreds of conflicts."""
    return frozenset(re.findall(_TOKENS, text))


def is_wrong(framework: InstalledFramework) -> bool:
    """Whether the framework would load a cuDNN that its build cannot use, or none although it needs one."""
    return next(_cudnn(framework), None) is not None


def _driver(driver: Driver | Unknown | None) -> Iterator[Problem]:
    if isinstance(driver, Driver) and driver.version and driver.kernel_module and driver.version != driver.kernel_module:
        releases = f"the library is {driver.version}, the loaded kernel module {driver.kernel_module}"
        yield Problem(what="driver", why=f"{releases}: CUDA fails until a reboot or a matching library")


def _cudnn(framework: InstalledFramework) -> Iterator[Problem]:
    load, built = framework.would_load, framework.cudnn_built
    if load is None or not built:
        return
    what = f"{framework.name} {framework.version}"
    if load.version and not CudnnVersion(load.version).serves(CudnnVersion(built)):
        where = f" from {load.path}" if load.path else ""
        yield Problem(what=what, why=f"built with cuDNN {built}, would load {load.version}{where}")
    elif not load.version and not load.path:
        yield Problem(what=what, why=f"built with cuDNN {built}, would find none")


def _cuda(framework: InstalledFramework, driver: Driver | Unknown | None) -> Iterator[Problem]:
    cuda, built = driver.cuda if isinstance(driver, Driver) else None, framework.cuda_built
    if cuda and built and CudaVersion(built).major > CudaVersion(cuda).major:
        why = f"built for CUDA {built}, the driver supports CUDA up to {cuda}"
        yield Problem(what=f"{framework.name} {framework.version}", why=why)


def _copy(copy: CudnnCopy) -> Problem:
    what = f"cuDNN {copy.version or copy.soname or '?'}" + (f" in {copy.path}" if copy.path else "")
    return Problem(what=what, why="; ".join(copy.problems) or "some of its libraries are missing or of another release")
