"""Markers of requirements (PEP 508) on the target machine: its variables, and the targets that hold there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.requirement.target import merge_targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from packaging.requirements import Requirement

    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Target
    from cudnn_resolve.resolution.open_request import OpenRequest

NO_TARGET = "no-target"
"""Code of the error where no target is for a machine."""
NO_MARKER = (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError)
"""What packaging raises for a marker that is none, compares what cannot be compared (before 26 also `os_name > "1"`), or made to hurt."""


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


def settle(request: OpenRequest, machine: Machine) -> OpenRequest:
    """The request with the targets that are for this machine, whose Python is known.

    UsageError with the code `NO_TARGET` where none is left, InputError for a marker that compares what cannot be compared.
    """
    if not request.conditional:
        return request
    environment = marker_environment(machine)
    absent = tuple(one for one in request.conditional if not holds(one, environment))
    targets = merge_targets((*request.targets, *(one for one in request.conditional if one not in absent)))
    if not targets:
        first = request.conditional[0]
        raise UsageError(
            f"no framework is asked for on {environment['platform_machine']} with Python {environment['python_version']}: "
            f"the marker of `{first.text}` does not hold there, `{first.marker}`",
            code=NO_TARGET,
            context=first.origin,
            hint="name one with -f, or another machine with --platform and --python-version",
        )
    return replace(request, targets=targets, conditional=(), absent=absent, unsettled=request)


def applies(requirement: Requirement, environment: Mapping[str, str], extras: Iterable[str] = ()) -> bool:
    """True where a requirement, one of no extra or of one of these, is for this environment; one that cannot be judged is for none."""
    return requirement.marker is None or any(is_true(requirement.marker, environment, extra) for extra in ("", *extras))


def is_true(marker: Marker, environment: Mapping[str, str], extra: str) -> bool:
    """True where a marker holds in an environment with one extra, or with none; False for one that cannot be judged."""
    try:
        return marker.evaluate({**environment, "extra": extra})
    except NO_MARKER:
        return False


def holds(target: Target, environment: Mapping[str, str]) -> bool:
    """True where a target is for this environment; InputError where its marker compares what cannot be compared."""
    if target.marker is None:
        return True
    try:
        return Marker(target.marker).evaluate({**environment, "extra": ""})
    except UndefinedComparison as error:
        raise InputError(
            f"the marker of `{target.text}` cannot be understood: {error}", code="requirements-invalid", context=target.origin
        ) from None
    except NO_MARKER:
        return False
