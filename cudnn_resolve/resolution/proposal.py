"""A way out in words: the command of a changed request, and what it gives."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.resolution.model import Resolution

_STATED = frozenset({"--facts", "--driver", "--gpu", "--python-version", "--platform", "--glibc", "--os", "--machine"})


def command(
    request: Request, targets: tuple[str, ...] | None = None, *, change: dict[str, str | None] | None = None, bare: bool = False
) -> str:
    """The command line of a request, with other targets or with single options changed (None: left out).

    A command that changes an environment is not proposed for a machine that is only stated: a plan is. `bare`: targets without `-f`.
    """
    change = dict(change or {})
    words = ["cudnn-resolve", "plan" if request.verb == "apply" and _is_stated(request, change) else request.verb]
    for number, target in enumerate(request.targets):
        text = targets[number] if targets is not None else target.text
        if target.origin is None or "--requirement" in change:
            words += [text] if bare else ["-f", text]
    if bare:  # words of their own stand together
        words += [text for name, text in request.context if not name]
    options = _choices(request)
    options.update({name: value for name, value in change.items() if not any(name == one for one, _ in request.context)})
    pairs = [(name, value) for name, value in options.items() if value is not None]
    context = [(name, value) for name, value in request.context if name or not bare]
    pairs += [(name, change.get(name, value) or "") for name, value in context if change.get(name, value) is not None]
    for name, value in pairs:
        words += [word for word in (name, value) if word]
    return shlex.join(words)


def _is_stated(request: Request, change: dict[str, str | None]) -> bool:
    """True where the command would be about a machine that is only stated; a new environment may have any Python of this one."""
    said = {name for name, value in (*request.context, *change.items()) if change.get(name, value) is not None}
    return bool(said & (_STATED - {"--python-version"} if "--env" in said else _STATED))


def new_environment(request: Request, *, python_version: str | None = None, less: dict[str, str | None] | None = None) -> str | None:
    """The command that makes an environment for a request; None where that is not possible: of a lock, and for a machine that is stated.

    `python_version` is said where `apply` might choose another one.
    """
    env = next((value for name, value in request.context if name == "--env"), "DIR")
    change = {**(less or {}), "--python": None, "--python-version": python_version, "--env": env}
    if request.verb == "lock" or _is_stated(request, change):
        return None
    return command(replace(request, verb="apply"), change=change, bare=True)


def _choices(request: Request) -> dict[str, str | None]:
    """The options of a request that say how to choose."""
    options: dict[str, str | None] = {}
    if request.cuda is not None:
        options["--cuda"] = request.cuda.text
    if request.cudnn is not None:
        options["--cudnn"] = request.cudnn.text
    if request.channel != "auto":
        options["--channel"] = request.channel
    if request.driver_policy != "minor":
        options["--driver-policy"] = request.driver_policy
    if request.device != "gpu":
        options["--device"] = request.device
    if request.strict_pins:
        options["--strict-pins"] = ""
    if not request.variant_indexes:
        options["--no-variant-indexes"] = ""
    return options


def result(found: Resolution) -> str:
    """A resolution in one line."""
    parts = [f"{build.package} {build.wheel_version}" for build in found.builds]
    if found.cuda:
        parts.append(f"CUDA {found.cuda}")
    if found.cudnn:
        parts.append(f"cuDNN {found.cudnn}")
    if found.driver_min:
        parts.append(f"driver >= {found.driver_min}")
    return ", ".join(parts)
