"""Contradictions within the facts, without the matrix."""

from __future__ import annotations

import re
from functools import lru_cache

from cudnn_resolve.facts.model import CudnnCopy, Driver, Facts, InstalledFramework, Problem, Unknown
from cudnn_resolve.version import CudaVersion, CudnnVersion

_TOKENS = re.compile(r"\d+(?:\.\d+)+|/[^\s:;,)]+")


def conflicts(facts: Facts) -> tuple[Problem, ...]:
    """Find facts that contradict each other, each with its consequence."""
    found = _driver(facts.driver)
    if not isinstance(facts.frameworks, Unknown):
        for framework in facts.frameworks:
            found.extend(_cudnn(framework))
            found.extend(_cuda(framework, facts.driver))
    if not isinstance(facts.cudnn, Unknown):
        found.extend(_copy(copy) for copy in facts.cudnn if copy.complete is False or copy.problems)
    return tuple(found)


def covers(problem: Problem, conflict: Problem) -> bool:
    """True where a reported problem is this very conflict: it names the same versions and paths."""
    tokens = _tokens(f"{conflict.what} {conflict.why}")
    return problem == conflict or (bool(tokens) and tokens <= _tokens(f"{problem.what} {problem.why}"))


@lru_cache(maxsize=1024)
def _tokens(text: str) -> frozenset[str]:
    """Versions and paths in a text; cached, since hundreds of problems are compared with hundreds of conflicts."""
    return frozenset(_TOKENS.findall(text))


def is_wrong(framework: InstalledFramework) -> bool:
    """True where the framework would load a cuDNN that its build cannot use, or none although it needs one."""
    return bool(_cudnn(framework))


def _driver(driver: Driver | Unknown | None) -> list[Problem]:
    if driver is None or isinstance(driver, Unknown) or not driver.version or not driver.kernel_module:
        return []
    if driver.version == driver.kernel_module:
        return []
    why = (
        f"the library is {driver.version}, the loaded kernel module {driver.kernel_module}: CUDA fails until a reboot or a matching library"
    )
    return [Problem(what="driver", why=why)]


def _cudnn(framework: InstalledFramework) -> list[Problem]:
    load = framework.would_load
    if load is None or not framework.cudnn_built:
        return []
    what = f"{framework.name} {framework.version}"
    if not load.version:
        absent = Problem(what=what, why=f"built with cuDNN {framework.cudnn_built}, would find none")
        return [] if load.path else [absent]
    if CudnnVersion(load.version).serves(CudnnVersion(framework.cudnn_built)):
        return []
    why = f"built with cuDNN {framework.cudnn_built}, would load {load.version}" + (f" from {load.path}" if load.path else "")
    return [Problem(what=what, why=why)]


def _cuda(framework: InstalledFramework, driver: Driver | Unknown | None) -> list[Problem]:
    if driver is None or isinstance(driver, Unknown) or not driver.cuda or not framework.cuda_built:
        return []
    if CudaVersion(framework.cuda_built).major <= CudaVersion(driver.cuda).major:
        return []
    why = f"built for CUDA {framework.cuda_built}, the driver supports CUDA up to {driver.cuda}"
    return [Problem(what=f"{framework.name} {framework.version}", why=why)]


def _copy(copy: CudnnCopy) -> Problem:
    what = f"cuDNN {copy.version or copy.soname or '?'}" + (f" in {copy.path}" if copy.path else "")
    return Problem(what=what, why="; ".join(copy.problems) or "some of its libraries are missing or of another release")
