"""LD_LIBRARY_PATH changed inside a running notebook kernel, whose loader has read it already: findings from facts alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cudnn_resolve.diagnosis.machine import Machine, fact
from cudnn_resolve.diagnosis.model import Finding, Remedy

_WHY = "the loader reads LD_LIBRARY_PATH once, when a process starts"


def _changed_in_kernel(machine: Machine) -> Iterator[Finding]:
    """What the kernel's loader does not know of."""
    for problem in machine.facts.problems:
        if problem.what == "loader.kernel.added":
            copy = next((one for one in machine.cudnn if one.path and one.soname and one.path in problem.why.split(", ")), None)
            load = f", as `import ctypes; ctypes.CDLL('{copy.path}/libcudnn.so.{copy.soname}', mode=ctypes.RTLD_GLOBAL)`" if copy else ""
            yield Finding(
                cause="lib_not_on_path",
                severity="warning",
                summary=f"LD_LIBRARY_PATH was set to {problem.why} inside the running kernel, which does not search there: {_WHY}",
                evidence=(fact("loader", f"not known to the kernel: {problem.why}"),),
                remedy=(
                    Remedy(text=f"in the first cell, before a framework is imported, load the libraries by their paths{load}"),
                    Remedy(text='or set it where the kernel is started: in the "env" of its kernel.json, or in the shell before `jupyter`'),
                ),
                confidence=0.9,
            )
        elif problem.what == "loader.kernel.removed":
            yield Finding(
                cause="ld_path_shadowing",
                severity="warning",
                summary=f"{problem.why} was taken out of LD_LIBRARY_PATH inside the running kernel, which still searches there: {_WHY}",
                evidence=(fact("loader", f"still known to the kernel: {problem.why}"),),
                remedy=(Remedy(text="start the kernel anew without it: take it out of the environment that `jupyter` is started in"),),
                confidence=0.9,
            )


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (_changed_in_kernel,)
