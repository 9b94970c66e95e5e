"""The user's defaults: `[tool.cudnn-resolve]` of pyproject.toml, over it `CUDNN_RESOLVE_*` variables, and a request over both."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.operations.options import Declared, MachineOptions, Options, contradictions, declared, normalized

PREFIX = "CUDNN_RESOLVE_"
MACHINE = ("machine", "driver", "gpu", "python-version", "platform", "platforms", "glibc", "os")
"""Stated facts: of no use where another machine is named, or where this very machine is changed or diagnosed."""
_OTHER_VARIABLES = ("DEBUG", "TEST_")
"""Beginnings of variables that are no settings."""
_FILES = ("requirement", "constraint", "find-links", "group", "facts", "python", "matrix")
"""Settings that name files, relative to the pyproject.toml that they stand in."""
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")

_Text = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]*$")]
O = TypeVar("O", bound=MachineOptions)  # noqa: E741 - the usual letter for options

KEYS: Mapping[str, Declared] = {
    one.key: one
    for one in declared(Options).values()
    if one.name not in ("packages", "given", "ranges", "project_matrix", "reinstall_package", "env", "kernel")
}
"""The options of commands that resolve, by their names as settings; what is asked for each time is none."""


def _kind(one: Declared) -> Any:
    """The type of a setting: that of its option, or nothing."""
    value: Any = Literal[one.choices] if one.choices else bool if one.is_flag else tuple[_Text, ...] if one.is_list else _Text
    several = value | tuple[_Text, ...] if one.name == "platform" else value
    return Annotated[several | None, Meta(description=one.help)]


Settings = msgspec.defstruct(
    "Settings",
    [(one.name, _kind(one), None) for one in KEYS.values()],
    namespace={"__doc__": "Settings of cudnn-resolve, each with the meaning of the option of its name; paths are relative to this file."},
    frozen=True,
    kw_only=True,
    rename="kebab",
    omit_defaults=True,
    forbid_unknown_fields=True,
)


def project_settings() -> dict[str, Any]:
    """The settings of the project that this is called in, under the variables of this process; keys as in pyproject.toml.

    The folders that a project's own file names as `matrix` are those of `project-matrix`: whoever fetches a project did not choose them.
    InputError names every wrong key at once.
    """
    from cudnn_resolve.host.settings import environment, project_table

    found = project_table(".")
    below = _checked(found[1], f"{found[0]}: [tool.cudnn-resolve]", os.path.dirname(found[0])) if found is not None else {}
    if "matrix" in below:
        below["project-matrix"] = below.pop("matrix")
    return {**below, **_checked(dict(_variables(environment())), "the environment", None)}


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """The settings among the variables; an empty one says nothing."""
    for name, text in environ.items():
        word = name.removeprefix(PREFIX)
        if word == name or not text or word.startswith(_OTHER_VARIABLES):
            continue
        key = word.lower().replace("_", "-")
        yield key, _read(text, KEYS[key]) if key in KEYS else text


def _read(text: str, option: Declared) -> Any:
    """The value that a variable means: lists are separated by blanks, as a shell does it."""
    if option.is_flag:
        word = text.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else text
    if option.is_list or option.name == "platform":
        try:
            return shlex.split(text)
        except ValueError:
            return text
    return text


def _checked(found: dict[str, Any], where: str, base: str | None) -> dict[str, Any]:
    faults = [f"{key}: {message}" for key, value in found.items() if (message := _fault(key, value))]
    if faults:
        unknown = any(key not in KEYS for key in found)
        hint = f"the settings are {', '.join(KEYS)}" if unknown else None
        raise InputError("; ".join(faults), code="settings-invalid", context=where, hint=hint)
    return {key: _placed(key, value, base) if base and key in _FILES else value for key, value in found.items()}


def _fault(key: str, value: object) -> str | None:
    """What is wrong with one setting, None where nothing is."""
    from cudnn_resolve.matrix.toml import quote

    if key not in KEYS:
        import difflib

        near = difflib.get_close_matches(key[:60], KEYS, n=1)
        return "is not a setting" + (f"; did you mean {near[0]}?" if near else "")
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


def _placed(key: str, value: Any, base: str) -> Any:
    """The files of a setting as they are seen from here."""
    from cudnn_resolve.host.files import absolute, exists, folder_of

    here = folder_of(".", is_folder=True)
    if not isinstance(value, str):
        return [_placed(key, one, base) for one in value]
    if key == "group":
        file, colon, name = value.rpartition(":")
        return value if base == here else f"{os.path.join(base, file if colon else 'pyproject.toml')}:{name}"
    bare = key == "python" and "/" not in value and not exists(os.path.join(base, value))
    if "://" in value or value.startswith("file:") or value == "-" or bare or (base == here and key != "matrix"):
        return value
    return absolute(value, os.path.join(base, "pyproject.toml"))


def this_machine(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for what changes or diagnoses this machine: what they say of a target elsewhere does not count."""
    return {name: value for name, value in settings.items() if name not in (*MACHINE, "facts")}


def with_settings(request: O, settings: Mapping[str, Any] | None = None) -> O:
    """The request over settings, its limits and times in one form.

    A list that was said replaces the settings' list. UsageError where options contradict each other or cannot be.
    """
    _refuse(request, None)
    below = {name.replace("-", "_"): value for name, value in _left(request, settings or {}).items()}
    changed: dict[str, Any] = {}
    for name in request.__struct_fields__:
        if name in below and not getattr(request, name):
            one = isinstance(below[name], str) and declared(type(request))[name].is_list
            changed[name] = (below[name],) if one else tuple(below[name]) if isinstance(below[name], list) else below[name]
    if isinstance(changed.get("platform"), tuple):
        changed["platform"] = _one_platform(changed["platform"])
    made = replace(request, **changed)
    if changed:
        _refuse(made, "the options together with the project's settings")
    return normalized(made)


def _left(request: MachineOptions, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a request leaves standing: what it says of the machine or the device takes the place of all they say of it."""

    def says(*names: str) -> bool:
        return any(getattr(request, name, None) for name in names)

    dropped: set[str] = set()
    if says("python", "facts", "given"):
        dropped.update((*MACHINE, "python", "facts"))
    if says("python_version", "platform", "platforms"):
        dropped.update(("python", "facts"))
    if says("env"):  # a new environment needs not have the Python of the project's
        dropped.add("python")
    if says("packages"):  # who names what he wants names all of it
        dropped.add("framework")
    if getattr(request, "device", None) == "cpu":
        dropped.update(("gpu", "cuda", "cudnn"))
    elif says("gpu", "cuda", "cudnn"):
        dropped.add("device")
    return {name: value for name, value in settings.items() if name not in dropped}


def _one_platform(names: tuple[str, ...]) -> str | None:
    if len(names) > 1:
        raise UsageError(
            f"the project's settings name {len(names)} platforms, and this is for one",
            code="usage-platform",
            hint=f"say which, as --platform {names[0]}; `cudnn-resolve lock` takes them all",
        )
    return names[0] if names else None


def _refuse(request: MachineOptions, context: str | None) -> None:
    for one, other, why, hint in contradictions(request):
        if context and one == "--device cpu":  # limits of a project that are there for its GPU machines
            continue
        raise UsageError(f"{one} and {other} contradict each other: {why}", code="usage-contradiction", context=context, hint=hint)
