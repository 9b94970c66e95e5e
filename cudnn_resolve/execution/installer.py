"""The installer, pip or uv: how it is called so that it lays down exactly the files that were verified, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from packaging.utils import parse_wheel_filename

from cudnn_resolve.errors import UsageError, WorldError
from cudnn_resolve.host import disk
from cudnn_resolve.host.tool import Tooling, ToolResult, run_tool

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.wheel import Wheel

Name = Literal["pip", "uv"]
_UV_KEPT = ("UV_CACHE_DIR", "UV_LINK_MODE", "UV_NO_CACHE", "UV_CONCURRENT_INSTALLS")
"""What a user may say to uv that changes how it works, but not what it installs or where."""


def choose_installer(wanted: str, environment: Environment) -> Name:
    """The installer: what was asked for, else uv wherever there is one, else the environment's pip.

    UsageError where the one that was asked for is not there, WorldError where there is none at all.
    """
    if wanted == "uv" and environment.uv is None:
        raise UsageError("--installer uv: there is no uv", code="no-uv", hint="install it (`pip install uv`), or leave the option out")
    if wanted == "pip" and environment.pip is None:
        hint = f"`{environment.python} -m ensurepip` installs it; or say --installer uv"
        raise UsageError(f"--installer pip: {environment.python} has no pip", code="no-pip", hint=hint)
    if environment.uv is not None and wanted != "pip":
        return "uv"
    if environment.pip is not None:
        return "pip"
    raise WorldError(
        f"{environment.python} has no pip, and there is no uv",
        code="no-installer",
        hint=f"`{environment.python} -m ensurepip` installs pip; or install uv, as the extra `cudnn-resolve[uv]` does",
    )


def install_wheels(
    installer: Name, wheels: Sequence[Wheel], environment: Environment, tooling: Tooling, environ: Mapping[str, str], *, managed: bool
) -> ToolResult:
    """What became of the installer; it gets pins with hashes and the folder of the verified files, and no index."""
    folder = os.path.dirname(wheels[0].path)
    pins = f"{os.path.dirname(folder)}/pins.txt"
    disk.write_whole(pins, "".join(f"{_pin(wheel)} --hash=sha256:{wheel.sha256}\n" for wheel in wheels).encode())
    words = ("install", "--no-deps", "--no-index", "--find-links", folder, "--require-hashes", "-r", pins)
    broken = ("--break-system-packages",) if managed else ()
    if installer == "uv":
        assert environment.uv is not None
        argv = (environment.uv, "pip", *words, "--python", environment.python, *_UV_WORDS, *broken)
    else:
        argv = (environment.python, "-I", "-B", *_pip(wheels), *words, *_PIP_WORDS, *broken)
    return run_tool(argv, tooling, env=environment_for(environ))


_PIP_WORDS = ("--no-input", "--disable-pip-version-check", "--no-color", "--no-cache-dir")
_UV_WORDS = ("--no-config", "--offline", "--no-build", "--color", "never", "--no-progress")


def _pip(wheels: Sequence[Wheel]) -> tuple[str, ...]:
    """How pip is run; one that is itself replaced has left already, and its own wheel can be run as it is."""
    own = next((wheel.path for wheel in wheels if wheel.name == "pip"), None)
    return ("-m", "pip") if own is None else (f"{own}/pip",)


def _pin(wheel: Wheel) -> str:
    name, version, _, _ = parse_wheel_filename(os.path.basename(wheel.path))
    return f"{name}=={version}"


def environment_for(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for an installer: nothing in it says where packages come from or go to."""
    out = {name: value for name, value in environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON")) or name in _UV_KEPT}
    return {
        **out,
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_WARN_SCRIPT_LOCATION": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_PROGRESS_BAR": "off",
    }
