"""PEP 508 variables of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudnn_resolve.requirement.machine import Machine


def marker_environment(machine: Machine) -> dict[str, str]:
    """PEP 508 variables of the target, not of the interpreter that runs this."""
    major, minor = machine.python or (3, 11)
    full = machine.python_full or f"{major}.{minor}.0"
    if full.count(".") < 2:
        full = f"{major}.{minor}.0"
    return {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": machine.arch or "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": f"{major}.{minor}",
        "sys_platform": "linux",
    }
