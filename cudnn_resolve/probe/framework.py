"""Frameworks of the target environment."""

from __future__ import annotations

from cudnn_resolve.facts.model import CudnnCopy, InstalledFramework, Problem
from cudnn_resolve.host.port import Host
from cudnn_resolve.probe.environment import TargetEnvironment


def find_frameworks(
    host: Host, environment: TargetEnvironment, copies: tuple[CudnnCopy, ...]
) -> tuple[tuple[InstalledFramework, ...], tuple[Problem, ...]]:
    """What the frameworks are and which cuDNN each would load, and what is wrong with that."""
    del host, environment, copies
    return (), ()
