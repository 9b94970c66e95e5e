"""Settings: `[tool.cudnn-resolve]` in pyproject.toml, overridden by `CUDNN_RESOLVE_*` variables, and these by a request."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from cudnn_resolve.errors import InputError, UsageError, did_you_mean
from cudnn_resolve.operations.options import FACTS, Declared, MachineOptions, Options, declared, normalized, refuse_contradictions

PREFIX = "CUDNN_RESOLVE_"
MACHINE = (*(name.replace("_", "-") for name in FACTS), "platforms")
"""Settings that state facts: ignored if another machine is named, or if this machine is changed or diagnosed."""
_OTHER_VARIABLES = ("DEBUG", "TEST_")
"""Prefixes of variables that are not settings."""
_FILES = ("requirement", "constraint", "find-links", "group", "facts", "python", "matrix")
"""Settings that name files, relative to their pyproject.toml."""
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")

_Text = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]*$")]
O = TypeVar("O", bound=MachineOptions)  # noqa: E741 - the usual letter for options

KEYS: Mapping[str, Declared] = {
    option.key: option
    for option in declared(Options).values()
    if option.is_option and option.name not in ("packages", "reinstall_package", "env", "kernel")
}
"""Options of resolving commands by their names as settings; options that are chosen for each run are no settings."""


def _type_of(option: Declared) -> Any:
    """Type of a setting: that of its option, or None."""
    value: Any = Literal[option.choices] if option.choices else bool if option.is_flag else tuple[_Text, ...] if option.is_list else _Text
    value_or_list = value | tuple[_Text, ...] if option.name == "platform" else value
    return Annotated[value_or_list | None, Meta(description=option.help)]


Settings = msgspec.defstruct(
    "Settings",
    [(option.name, _type_of(option), None) for option in KEYS.values()],
    namespace={"__doc__": "Settings of cudnn-resolve, each like the option of the same name; paths are relative to this file."},
    frozen=True,
    kw_only=True,
    rename="kebab",
    omit_defaults=True,
    forbid_unknown_fields=True,
)


def project_settings() -> dict[str, Any]:
    """Settings of the project in the current folder, overridden by environment variables; keys as in pyproject.toml.

    The `matrix` folders of a project become `project-matrix`: whoever downloads a project did not choose them. InputError lists every
    invalid setting.
    """
    from cudnn_resolve.host.settings import environment, project_table

    table = project_table()
    of_project = {}
    if table is not None:
        path, values = table
        of_project = _checked(values, f"{path}: [tool.cudnn-resolve]", os.path.dirname(path))
    if "matrix" in of_project:
        of_project["project-matrix"] = of_project.pop("matrix")
    return {**of_project, **_checked(dict(_variables(environment())), "the environment", None)}


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Settings among the environment variables; an empty variable counts as unset."""
    for variable, text in environ.items():
        name = variable.removeprefix(PREFIX)
        if name == variable or not text or name.startswith(_OTHER_VARIABLES):
            continue
        key = name.lower().replace("_", "-")
        yield key, _parsed(text, KEYS[key]) if key in KEYS else text


def _parsed(text: str, option: Declared) -> Any:
    """Value of a variable: lists are split as by a shell; a malformed value is returned as it is, and rejected later."""
    if option.is_flag:
        word = text.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else text
    if option.is_list or option.name == "platform":
        try:
            return shlex.split(text)
        except ValueError:
            return text
    return text


def _checked(values: dict[str, Any], where: str, base: str | None) -> dict[str, Any]:
    """Validate settings, and resolve their paths against the folder `base`."""
    faults = [f"{key}: {message}" for key, value in values.items() if (message := _fault(key, value))]
    if faults:
        has_unknown = any(key not in KEYS for key in values)
        hint = f"the settings are {', '.join(KEYS)}" if has_unknown else None
        raise InputError("; ".join(faults), code="settings-invalid", context=where, hint=hint)
    return {key: _located(key, value, base) if base and key in _FILES else value for key, value in values.items()}


def _fault(key: str, value: object) -> str | None:
    """Error message for an invalid setting."""
    from cudnn_resolve.matrix.toml import quote

    if key not in KEYS:
        from difflib import get_close_matches

        suggestion = did_you_mean(get_close_matches(key[:60], KEYS, n=1))
        return f"is not a setting; {suggestion}" if suggestion else "is not a setting"
    option = KEYS[key]
    try:
        if value is not None:
            msgspec.convert({key: value}, Settings)
            return None
    except msgspec.ValidationError:
        pass
    if option.choices:
        return f"{quote(value)} is not one of {', '.join(option.choices)}"
    if option.is_flag:
        return f"{quote(value)} is not true or false"
    if option.is_list or key == "platform":
        return f"{quote(value)} is not a {'text or a ' if key == 'platform' else ''}list of texts"
    return f"{quote(value)} is not a text" + ("; write it in quotes" if isinstance(value, (int, float)) else "")


def _located(key: str, value: Any, base: str) -> Any:
    """Resolve the paths of a setting against the folder `base` of its pyproject.toml."""
    from cudnn_resolve.host.files import absolute, exists, folder_of

    here = folder_of(".", is_folder=True)
    if not isinstance(value, str):
        return [_located(key, item, base) for item in value]
    if key == "group":
        file, colon, name = value.rpartition(":")
        return value if base == here else f"{os.path.join(base, file if colon else 'pyproject.toml')}:{name}"
    is_url = "://" in value or value.startswith("file:")
    is_command = key == "python" and "/" not in value and not exists(os.path.join(base, value))
    if is_url or value == "-" or is_command or (base == here and key != "matrix"):
        return value
    return absolute(value, os.path.join(base, "pyproject.toml"))


def for_this_machine(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those about another machine, for commands that change or diagnose this one."""
    return {name: value for name, value in settings.items() if name not in (*MACHINE, "facts")}


def with_settings(request: O, settings: Mapping[str, Any] | None = None) -> O:
    """Fill unset fields of a request from settings, and normalize its limits and times.

    A list in the request replaces that of the settings. UsageError for options that exclude each other or are invalid.
    """
    refuse_contradictions(request)
    defaults = {name.replace("-", "_"): value for name, value in _applicable(request, settings or {}).items()}
    changed: dict[str, Any] = {}
    for name in request.__struct_fields__:
        if name not in defaults or getattr(request, name):
            continue
        value = defaults[name]
        if isinstance(value, list):
            value = tuple(value)
        elif isinstance(value, str) and declared(type(request))[name].is_list:
            value = (value,)
        changed[name] = value
    if isinstance(changed.get("platform"), tuple):
        changed["platform"] = _only_platform(changed["platform"])
    completed = replace(request, **changed)
    if changed:
        refuse_contradictions(completed, "the options together with the project's settings")
    return normalized(completed)


def _applicable(request: MachineOptions, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that the request does not supersede: its options about machine or device replace all settings about them."""

    def has(*names: str) -> bool:
        return any(getattr(request, name, None) for name in names)

    dropped: set[str] = set()
    if has("python", "facts", "given"):
        dropped.update((*MACHINE, "python", "facts"))
    if has("python_version", "platform", "platforms"):
        dropped.update(("python", "facts"))
    if has("env"):  # a new environment may have another Python than the project's
        dropped.add("python")
    if has("packages"):  # targets named by the user are complete
        dropped.add("framework")
    if getattr(request, "device", None) == "cpu":
        dropped.update(("gpu", "cuda", "cudnn"))
    elif has("gpu", "cuda", "cudnn"):
        dropped.add("device")
    return {name: value for name, value in settings.items() if name not in dropped}


def _only_platform(names: tuple[str, ...]) -> str | None:
    if len(names) > 1:
        raise UsageError(
            f"the project's settings name {len(names)} platforms, but this command takes one",
            code="usage-platform",
            hint=f"choose one, such as --platform {names[0]}; `cudnn-resolve lock` takes all of them",
        )
    return names[0] if names else None
