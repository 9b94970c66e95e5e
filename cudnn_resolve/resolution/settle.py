"""Targets with markers to those that hold on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.markers import Marker, UndefinedEnvironmentName

from cudnn_resolve.errors import UsageError
from cudnn_resolve.record import replace
from cudnn_resolve.requirement.derive import merged
from cudnn_resolve.resolution.environment import marker_environment

if TYPE_CHECKING:
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request


def settle(request: Request, machine: Machine) -> Request:
    """The request with the targets that are for this machine; its Python is known.

    UsageError where none is left, and no other package is asked for.
    """
    if not request.conditional:
        return request
    environment = marker_environment(machine)
    held = [one for one in request.conditional if one.marker is None or _holds(one.marker, environment)]
    targets = merged((*request.targets, *held))
    if not targets and not any(not extra.constraint for extra in request.extras):
        first = request.conditional[0]
        raise UsageError(
            f"no framework is asked for on {environment['platform_machine']} with Python {environment['python_version']}: "
            f"the marker of `{first.text}` does not hold there, `{first.marker}`",
            code="no-target",
            context=first.origin,
            hint="name one with -f, or another machine with --platform and --python-version",
        )
    return replace(request, targets=targets, conditional=())


def _holds(marker: str, environment: dict[str, str]) -> bool:
    try:
        return Marker(marker).evaluate({**environment, "extra": ""})
    except UndefinedEnvironmentName:
        return False
