"""What a lock remembers of its request: read from an old lock as settings, written into a new one."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import UsageError
from cudnn_resolve.host.files import folder_of
from cudnn_resolve.locking.file import relative_path
from cudnn_resolve.locking.model import Lock, LockedRequest
from cudnn_resolve.operations.options import LockRequest, declared
from cudnn_resolve.operations.settings import MACHINE, project_settings, with_settings
from cudnn_resolve.requirement.model import Request, RequirementLine

FILES = ("requirement", "constraint", "group")
"""Options that name files."""
_STATED = (
    *("python_version", "driver", "gpu", "packages", "glibc", "os", "index_strategy", "exclude_newer", "no_binary", "only_binary"),
    *("pre", "no_variant_indexes"),
)
"""Options that decide what comes out, and that do not depend on where this is."""


def with_memory(request: LockRequest, remembered: Mapping[str, Any] | None) -> LockRequest:
    """The request over the project's settings over what an old lock remembers; UsageError where they contradict each other.

    `platform` is then the first of the platforms.
    """
    own, old = project_settings(), remembered or {}
    if "python" in own or "facts" in own:  # a machine is named: nothing of another one is remembered
        old = {name: value for name, value in old.items() if name not in MACHINE}
    below = {**old, **own}
    named = below.pop("platform", below.pop("platforms", ()))
    several = (named,) if isinstance(named, str) else tuple(named)
    platforms = request.platforms or (() if request.python or request.facts or request.given else several)
    if len({one.endswith(("aarch64", "arm64")) for one in platforms}) < len(platforms):
        raise UsageError("--platform names one architecture twice", code="usage-platform", hint="one lock holds each architecture once")
    request = replace(request, platforms=platforms, platform=platforms[0] if platforms else None)
    return with_settings(request, below)


def remembered(lock: Lock, path: str, request: LockRequest) -> dict[str, Any]:
    """What a lock remembers of its request, as settings below those of the project.

    Who names on the command line what he wants names all of it: frameworks, files and limits of the lock do not count then.
    UsageError where the lock leads to files elsewhere.
    """
    if lock.tool is None:
        return {}
    asked = lock.tool.request
    out: dict[str, Any] = {
        "driver-policy": asked.driver_policy,
        "device": asked.device if asked.device == "cpu" else None,
        "channel": asked.channel,
        "strict-pins": asked.strict_pins,
    }
    if not (request.framework or request.packages or request.requirement or request.group):
        folder = os.path.dirname(path)
        out.update({"framework": list(asked.direct_targets), "cuda": asked.cuda, "cudnn": asked.cudnn})
        out.update({name: [_from(folder, value, name) for value in values] for name, values in asked.files.items() if name in FILES})
    if "platform" in asked.options:
        out["platforms"] = list(asked.options["platform"])
    for option in (declared(LockRequest)[name] for name in _STATED):
        values = asked.options.get(option.key, ())
        if values and (option.key != "packages" or "framework" in out):
            out[option.key] = values == ("true",) if option.is_flag else list(values) if option.is_list else values[0]
    return {name: value for name, value in out.items() if value is not None}


def _from(folder: str, value: str, name: str) -> str:
    """A file as the lock names it, seen from here; a dependency group without a file is one of the project beside the lock.

    UsageError for one that lies neither in the folder of the lock nor in the working directory: a lock comes from others, too.
    """
    file, colon, group = value.rpartition(":") if name == "group" else (value, "", "")
    where = os.path.join(folder, file or "pyproject.toml")
    roots = (folder_of(os.path.join(folder, "x")), folder_of(".", is_folder=True))
    if not any(f"{folder_of(where)}/".startswith(f"{root.rstrip('/')}/") for root in roots):
        raise UsageError(
            f"the lock was made with --{name} {value}, which leads out of its folder and of this one",
            code="lock-file-outside",
            hint=f"if that is meant, say so again: --{name} FILE",
        )
    return f"{where}{colon}{group}" if name == "group" else where


def asked_of(options: LockRequest, request: Request, base: str) -> LockedRequest:
    """What a lock in the folder `base` remembers of its request."""
    stated = {"platform": tuple(sorted(options.platforms))}
    for name in _STATED:
        value = getattr(options, name)
        stated[name.replace("_", "-")] = value if isinstance(value, tuple) else ("true",) if value is True else (value,) if value else ()
    files = {name: tuple(_to(base, one, name) for one in getattr(options, name) if one != "-") for name in FILES}
    return LockedRequest(
        targets=tuple(one.text if one.marker is None else f"{one.text}; {one.marker}" for one in (*request.targets, *request.conditional)),
        direct_targets=options.framework,
        requirements=tuple(dict.fromkeys(_required(one, request, base) for one in request.requirements)),
        files={name: values for name, values in files.items() if values},
        cuda=options.cuda,
        cudnn=options.cudnn,
        driver_policy=options.driver_policy or "minor",
        device=options.device or "gpu",
        channel=options.channel or "auto",
        strict_pins=options.strict_pins,
        options={name: values for name, values in stated.items() if values},
    )


def _required(extra: RequirementLine, request: Request, base: str) -> str:
    """A further requirement as a lock in the folder `base` remembers it; a project of the user's by its place, whatever its version."""
    direct = request.direct.get(canonicalize_name(Requirement(extra.text).name))
    if direct is not None and not extra.constraint:
        return f"{direct.name} @ {relative_path(base, direct.folder) if direct.folder is not None else direct.url}"
    return f"-c {extra.text}" if extra.constraint else extra.text


def _to(base: str, value: str, name: str) -> str:
    """A file that an option names, as a lock in the folder `base` names it."""
    file, colon, group = value.rpartition(":") if name == "group" else (value, "", "")
    if name == "group" and not colon:
        file = "pyproject.toml"
    where = os.path.join(folder_of(file), os.path.basename(file))
    shown = relative_path(base, where)
    return f"{shown}:{group}" if name == "group" else shown
