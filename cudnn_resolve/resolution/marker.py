"""PEP 508 markers evaluated for the target machine."""

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
"""Error code: no target applies to the machine."""
MARKER_ERRORS = (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError)
"""Raised by packaging for invalid, incomparable (before 26 also `os_name > "1"`) and malicious markers."""


def marker_environment(machine: Machine) -> dict[str, str]:
    """PEP 508 variables of the target, not of the running interpreter."""
    major, minor = machine.python or (3, 11)
    full = machine.python_full or ""
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


def apply_markers(request: OpenRequest, machine: Machine) -> OpenRequest:
    """Keep the conditional targets that apply to a machine whose Python is known.

    UsageError with the code `NO_TARGET` if no target is left, InputError for a marker that compares incomparable values.
    """
    if not request.conditional:
        return request
    environment = marker_environment(machine)
    absent = tuple(target for target in request.conditional if not holds(target, environment))
    targets = merge_targets((*request.targets, *(target for target in request.conditional if target not in absent)))
    if not targets:
        first = request.conditional[0]
        raise UsageError(
            f"no framework is asked for on {environment['platform_machine']} with Python {environment['python_version']}: "
            f"the marker of `{first.text}` is false there: `{first.marker}`",
            code=NO_TARGET,
            context=first.origin,
            hint="name a framework with -f, or another machine with --platform and --python-version",
        )
    return replace(request, targets=targets, conditional=(), absent=absent, unevaluated=request)


def applies(requirement: Requirement, environment: Mapping[str, str], extras: Iterable[str] = ()) -> bool:
    """True if a requirement applies without extras or with one of them; a marker that cannot be evaluated is false."""
    return requirement.marker is None or any(is_true(requirement.marker, environment, extra) for extra in ("", *extras))


def is_true(marker: Marker, environment: Mapping[str, str], extra: str) -> bool:
    """Evaluate a marker with an extra, or with none (""); False if it cannot be evaluated."""
    try:
        return marker.evaluate({**environment, "extra": extra})
    except MARKER_ERRORS:
        return False


def holds(target: Target, environment: Mapping[str, str]) -> bool:
    """True if a target applies in an environment; InputError if its marker compares incomparable values."""
    if target.marker is None:
        return True
    try:
        return Marker(target.marker).evaluate({**environment, "extra": ""})
    except UndefinedComparison as error:
        raise InputError(
            f"the marker of `{target.text}` cannot be evaluated: {error}", code="requirements-invalid", context=target.origin
        ) from None
    except MARKER_ERRORS:
        return False
