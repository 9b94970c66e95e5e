"""Verdicts: what is found of an environment, or of something like one, on a machine."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cudnn_resolve.diagnosis.model import Finding


class CheckedFramework(Struct, frozen=True, kw_only=True):
    """One framework, and what is known of it."""

    name: str
    version: str
    status: Literal["runs", "breaks", "unknown"]


class Verdict(Struct, frozen=True, kw_only=True):
    """What was found of one thing on one machine."""

    what: str
    machine: str
    status: Literal["runs", "breaks", "unknown"]
    """`unknown` where nothing wrong was found and not everything was judged."""
    frameworks: tuple[CheckedFramework, ...] = ()
    findings: tuple[Finding, ...] = ()
    judged: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
