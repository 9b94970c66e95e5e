"""Texts of relaxations: the command of a changed request, and its result."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from cudnn_resolve.requirement.model import Limit, Request
from cudnn_resolve.resolution.model import Resolution

R = TypeVar("R", bound=Request)


OPTIONS: Mapping[str, str] = {
    "--cuda": "cuda",
    "--cudnn": "cudnn",
    "--channel": "channel",
    "--driver-policy": "driver_policy",
    "--device": "device",
    "--strict-pins": "strict_pins",
    "--no-variant-indexes": "variant_indexes",
}
"""Command-line options that control the resolution, each with its field of a request."""
_BARE = Request(targets=())
"""Every option at its default."""
_DESCRIBING = frozenset({"--facts", "--driver", "--gpu", "--python-version", "--platform", "--glibc", "--os", "--machine"})


def option_value(request: Request, flag: str) -> str | None:
    """Value of an option in a request, empty for a switch; None if it has its default."""
    value = getattr(request, OPTIONS[flag])
    if value == getattr(_BARE, OPTIONS[flag]):
        return None
    return value.text if isinstance(value, Limit) else value if isinstance(value, str) else ""


def without_option(request: R, flag: str) -> R:
    """The request with the default of an option."""
    return replace(request, **{OPTIONS[flag]: getattr(_BARE, OPTIONS[flag])})


def command(
    request: Request, targets: tuple[str, ...] | None = None, *, change: dict[str, str | None] | None = None, bare: bool = False
) -> str:
    """The command line of a request, with other targets or with options changed (None: removed).

    `apply` becomes `plan` for a described machine. `bare`: targets without `-f`.
    """
    change = dict(change or {})
    words = ["cudnn-resolve", "plan" if request.verb == "apply" and _is_described(request, change) else request.verb]
    for number, target in enumerate(request.targets):
        text = targets[number] if targets is not None else target.text
        if target.origin is None or "--requirement" in change:
            words += [text] if bare else ["-f", text]
    if bare:  # positional words go together
        words += [text for name, text in request.context if not name]
    in_context = {name for name, _ in request.context}
    options: dict[str, str | None] = {flag: value for flag in OPTIONS if (value := option_value(request, flag)) is not None}
    options.update({name: value for name, value in change.items() if name not in in_context})
    pairs = [(name, value) for name, value in options.items() if value is not None]
    context = [(name, value) for name, value in request.context if name or not bare]
    pairs += [(name, change.get(name, value) or "") for name, value in context if change.get(name, value) is not None]
    for name, value in pairs:
        words += [word for word in (name, value) if word]
    return shlex.join(words)


def _is_described(request: Request, change: dict[str, str | None]) -> bool:
    """True for a command about a machine that options describe; a new environment may have any Python of this machine."""
    names = {name for name, value in (*request.context, *change.items()) if change.get(name, value) is not None}
    return bool(names & (_DESCRIBING - {"--python-version"} if "--env" in names else _DESCRIBING))


def new_environment(request: Request, *, python_version: str | None = None, change: dict[str, str | None] | None = None) -> str | None:
    """The command that makes a new environment for a request; None for a lock and for a described machine.

    `python_version` is needed if `apply` might choose another one.
    """
    env = next((value for name, value in request.context if name == "--env"), "DIR")
    change = {**(change or {}), "--python": None, "--python-version": python_version, "--env": env}
    if request.verb == "lock" or _is_described(request, change):
        return None
    return command(replace(request, verb="apply"), change=change, bare=True)


def result(found: Resolution) -> str:
    """One-line summary of a resolution."""
    parts = [f"{build.package} {build.wheel_version}" for build in found.builds]
    if found.cuda:
        parts.append(f"CUDA {found.cuda}")
    if found.cudnn:
        parts.append(f"cuDNN {found.cudnn}")
    if found.driver_min:
        parts.append(f"driver >= {found.driver_min}")
    return ", ".join(parts)
