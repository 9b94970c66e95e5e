"""The request of a lock: stored in a new lock, and read from an old one as settings."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import UsageError
from cudnn_resolve.host.files import folder_of
from cudnn_resolve.locking.locked_file import relative_path
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
"""Options that decide the result and do not depend on this machine."""


def with_lock_settings(request: LockRequest, from_lock: Mapping[str, Any] | None) -> LockRequest:
    """Complete a request by the project's settings, and these by the settings of an old lock; UsageError for contradictions.

    `platform` becomes the first of the platforms.
    """
    of_project, of_lock = project_settings(), from_lock or {}
    if "python" in of_project or "facts" in of_project:  # they select a machine, which replaces that of the lock
        of_lock = {name: value for name, value in of_lock.items() if name not in MACHINE}
    settings = {**of_lock, **of_project}
    named = settings.pop("platform", settings.pop("platforms", ()))
    default_platforms = (named,) if isinstance(named, str) else tuple(named)
    selects_machine = request.python or request.facts or request.given
    platforms = request.platforms or (() if selects_machine else default_platforms)
    if len({platform.endswith(("aarch64", "arm64")) for platform in platforms}) < len(platforms):
        raise UsageError("--platform names one architecture twice", code="usage-platform", hint="a lock holds each architecture once")
    request = replace(request, platforms=platforms, platform=platforms[0] if platforms else None)
    return with_settings(request, settings)


def settings_from(lock: Lock, path: str, request: LockRequest) -> dict[str, Any]:
    """Settings stored in a lock, of lower precedence than those of the project.

    Targets on the command line replace the frameworks, files and limits of the lock. UsageError if the lock refers to files elsewhere.
    """
    if lock.tool is None:
        return {}
    locked = lock.tool.request
    settings: dict[str, Any] = {
        "driver-policy": locked.driver_policy,
        "device": locked.device if locked.device == "cpu" else None,
        "channel": locked.channel,
        "strict-pins": locked.strict_pins,
    }
    if not (request.framework or request.packages or request.requirement or request.group):
        folder = os.path.dirname(path)
        settings.update({"framework": list(locked.direct_targets), "cuda": locked.cuda, "cudnn": locked.cudnn})
        files = {name: values for name, values in locked.files.items() if name in FILES}
        settings.update({name: [_path_from_lock(folder, value, name) for value in values] for name, values in files.items()})
    if "platform" in locked.options:
        settings["platforms"] = list(locked.options["platform"])
    for option in (declared(LockRequest)[name] for name in _STATED):
        values = locked.options.get(option.key, ())
        if values and (option.key != "packages" or "framework" in settings):
            settings[option.key] = values == ("true",) if option.is_flag else list(values) if option.is_list else values[0]
    return {name: value for name, value in settings.items() if value is not None}


def _path_from_lock(folder: str, value: str, option: str) -> str:
    """Path of a file in a lock, relative to the working folder; a group without a file belongs to the project beside the lock.

    UsageError for a file outside of the lock's folder and the working folder: the lock may come from somebody else.
    """
    file, colon, group = value.rpartition(":") if option == "group" else (value, "", "")
    where = os.path.join(folder, file or "pyproject.toml")
    roots = (folder_of(os.path.join(folder, "x")), folder_of(".", is_folder=True))
    if not any(f"{folder_of(where)}/".startswith(f"{root.rstrip('/')}/") for root in roots):
        raise UsageError(
            f"the lock was made with --{option} {value}, which is outside of its folder and of the working folder",
            code="lock-file-outside",
            hint=f"to use it, say so: --{option} FILE",
        )
    return f"{where}{colon}{group}" if option == "group" else where


def locked_request(options: LockRequest, request: Request, base: str) -> LockedRequest:
    """The request as stored in a lock in the folder `base`."""
    stated = {"platform": tuple(sorted(options.platforms))}
    for name in _STATED:
        value = getattr(options, name)
        stated[name.replace("_", "-")] = value if isinstance(value, tuple) else ("true",) if value is True else (value,) if value else ()
    files = {option: tuple(_path_in_lock(base, value, option) for value in getattr(options, option) if value != "-") for option in FILES}
    targets = (*request.targets, *request.conditional)
    return LockedRequest(
        targets=tuple(target.text if target.marker is None else f"{target.text}; {target.marker}" for target in targets),
        direct_targets=options.framework,
        requirements=tuple(dict.fromkeys(_requirement_in_lock(extra, request, base) for extra in request.requirements)),
        files={option: values for option, values in files.items() if values},
        cuda=options.cuda,
        cudnn=options.cudnn,
        driver_policy=options.driver_policy or "minor",
        device=options.device or "gpu",
        channel=options.channel or "auto",
        strict_pins=options.strict_pins,
        options={name: values for name, values in stated.items() if values},
    )


def _requirement_in_lock(extra: RequirementLine, request: Request, base: str) -> str:
    """A requirement as stored in a lock in the folder `base`; a local project by its path, whatever its version."""
    direct = request.direct.get(canonicalize_name(Requirement(extra.text).name))
    if direct is not None and not extra.constraint:
        return f"{direct.name} @ {relative_path(base, direct.folder) if direct.folder is not None else direct.url}"
    return f"-c {extra.text}" if extra.constraint else extra.text


def _path_in_lock(base: str, value: str, option: str) -> str:
    """Path of a file relative to a lock in the folder `base`."""
    file, colon, group = value.rpartition(":") if option == "group" else (value, "", "")
    if option == "group" and not colon:
        file = "pyproject.toml"
    path = relative_path(base, os.path.join(folder_of(file), os.path.basename(file)))
    return f"{path}:{group}" if option == "group" else path
