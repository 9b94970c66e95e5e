"""Options that a conflict may name, and texts of relaxations: the command of a changed request, and its result."""

from __future__ import annotations

import shlex
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from cudnn_resolve.requirement.model import Limit, Request
from cudnn_resolve.resolution.key import CUDA_LIMIT, CUDNN_LIMIT, LimitKey
from cudnn_resolve.resolution.model import Resolution

R = TypeVar("R", bound=Request)


class Option(NamedTuple):
    """An option that controls the resolution."""

    flag: str
    field: str
    """Its field of a request."""
    what: str
    """The wish, in conflicts; `{}` is its value."""
    without: str | None
    """The change that drops it, in relaxations; None if another one is proposed."""
    limit: LimitKey | None = None
    """The limit that it sets."""

    @property
    def subject(self) -> LimitKey | str:
        """What its condition is about: the limit that it sets, otherwise the option itself."""
        return self.limit or self.flag

    def value(self, request: Request) -> str | None:
        """Value in a request, empty for a switch; None if it has its default."""
        value = getattr(request, self.field)
        if value == getattr(_BARE, self.field):
            return None
        return value.text if isinstance(value, Limit) else value if isinstance(value, str) else ""

    def dropped(self, request: R) -> R:
        """The request with its default."""
        return replace(request, **{self.field: getattr(_BARE, self.field)})


OPTIONS = (
    Option("--channel", "channel", "CUDA libraries from {} only", "without --channel {}"),
    Option("--device", "device", "CPU builds", None),
    Option(
        *("--no-variant-indexes", "variant_indexes", "the configured index only"),
        "without --no-variant-indexes: use the indexes that the matrix names for variants",
    ),
    Option(
        *("--driver-policy", "driver_policy", "a driver at least as new as the toolkit's own"),
        "--driver-policy minor: rely on NVIDIA's minor-version compatibility",
    ),
    Option(
        *("--strict-pins", "strict_pins", "the pins of every wheel as declared"),
        "without --strict-pins: widen the pins on NVIDIA's wheels to the ranges that their ABI allows",
    ),
    Option("--cuda", "cuda", "CUDA {}", "without --cuda {!r}", CUDA_LIMIT),
    Option("--cudnn", "cudnn", "cuDNN {}", "without --cudnn {!r}", CUDNN_LIMIT),
)
"""Least often the cause of a conflict first."""
_BARE = Request(targets=())
"""Every option at its default."""
_DESCRIBING = frozenset({"--facts", "--driver", "--gpu", "--python-version", "--platform", "--glibc", "--os", "--machine"})


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
    options: dict[str, str | None] = {option.flag: value for option in OPTIONS if (value := option.value(request)) is not None}
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
