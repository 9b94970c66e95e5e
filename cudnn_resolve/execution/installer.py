"""Call pip or uv so that it installs exactly the verified files and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from packaging.utils import parse_wheel_filename

from cudnn_resolve.errors import UsageError, WorldError
from cudnn_resolve.execution.journal import STAGING
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.host import disk
from cudnn_resolve.host.bundle import own_pip
from cudnn_resolve.host.run_tool import Tooling, ToolResult, run_tool

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.installable_wheel import Wheel


Installer = Literal["pip", "uv"]
_UV_SETTINGS = ("UV_CACHE_DIR", "UV_LINK_MODE", "UV_NO_CACHE", "UV_CONCURRENT_INSTALLS")
"""Variables that change how uv works, but not what it installs or where; the user's values are kept."""
_PIP_OPTIONS = ("--no-input", "--disable-pip-version-check", "--no-color", "--no-cache-dir")
_UV_OPTIONS = ("--no-config", "--offline", "--no-build", "--color", "never", "--no-progress")
_PIP_INFO = re.compile(r"pip-(\d{1,4})\.(\d{1,4})[0-9.]*\.(?:dist|egg)-info", re.ASCII)


def choose_installer(wanted: str, environment: Environment) -> Installer:
    """Return the installer to use: the requested one, else uv if there is one, else the environment's pip.

    Raises UsageError if the requested one is missing, WorldError if there is none at all.
    """
    if wanted == "uv" and environment.uv is None:
        raise UsageError("--installer uv: uv is not installed", code="no-uv", hint="install it (`pip install uv`), or drop the option")
    if wanted == "pip" and environment.pip is None:
        hint = f"`{environment.python} -m ensurepip` installs it; or use --installer uv"
        raise UsageError(f"--installer pip: {environment.python} has no pip", code="no-pip", hint=hint)
    if environment.uv is not None and wanted != "pip":
        return "uv"
    if environment.pip is not None:
        return "pip"
    raise WorldError(
        f"{environment.python} has no pip, and there is no uv",
        code="no-installer",
        hint=f"`{environment.python} -m ensurepip` installs pip; the extra `cudnn-resolve[uv]` installs uv",
    )


def install_wheels(
    installer: Installer, wheels: Sequence[Wheel], environment: Environment, tooling: Tooling, *, managed: bool
) -> ToolResult:
    """Install wheels from the folder of verified files, by pins with hashes and without an index.

    uv gets an empty cache: the user's may hold damaged files, which it would install instead of the verified ones.
    """
    wheel_folder = os.path.dirname(wheels[0].path)
    work_folder = os.path.dirname(wheel_folder)
    pins = f"{work_folder}/pins.txt"
    disk.write_whole(pins, "".join(f"{_pin(wheel)} --hash=sha256:{wheel.sha256}\n" for wheel in wheels).encode())
    words: tuple[str, ...] = ("install", "--no-deps", "--no-index", "--find-links", wheel_folder, "--require-hashes", "-r", pins)
    target = environment.scheme["purelib"]
    if target.endswith(f"/{FOLDER}"):
        words = (*words, "--target", target)
    elif managed:
        words = (*words, "--break-system-packages")
    if installer == "pip":
        argv = (environment.python, "-I", "-B", *_pip_command(wheels, environment, work_folder), *words, *_PIP_OPTIONS)
        return run_tool(argv, tooling, env=installer_environ(tooling.environ))
    assert environment.uv is not None
    cache = f"{work_folder}/{STAGING}"
    argv = (environment.uv, "pip", *words, "--python", environment.python, *_UV_OPTIONS, "--cache-dir", cache)
    result = run_tool(argv, tooling, env=uv_environ(tooling.environ))
    disk.remove_tree(cache)
    return result


def _pip_command(wheels: Sequence[Wheel], environment: Environment, folder: str) -> tuple[str, ...]:
    """Arguments that run pip; a wheel of pip runs unpacked if pip itself is replaced, because the installed one has left already.

    pip before 20.3 does not know tags such as manylinux_2_28: for wheels with one, the pip bundled with our own Python is used.
    """
    wheel = next((wheel.path for wheel in wheels if wheel.name == "pip"), None)
    if wheel is None and any("manylinux_" in wheel.path for wheel in wheels) and _is_old(environment.pip or ""):
        bundled = own_pip()
        if bundled is not None:
            name, content = bundled
            wheel = f"{folder}/{name}"
            disk.write_whole(wheel, content)
    return ("-m", "pip") if wheel is None else (f"{wheel}/pip",)


def _is_old(pip: str) -> bool:
    """True for the package folder of a pip before 20.3."""
    infos = (_PIP_INFO.fullmatch(name) for name in disk.names_in(os.path.dirname(pip)))
    return any((int(info[1]), int(info[2])) < (20, 3) for info in infos if info is not None)


def _pin(wheel: Wheel) -> str:
    name, version, _, _ = parse_wheel_filename(os.path.basename(wheel.path))
    return f"{name}=={version}"


def installer_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for an installer, without any that say where packages come from or go to."""
    kept = {name: value for name, value in environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON")) or name in _UV_SETTINGS}
    return {
        **kept,
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_WARN_SCRIPT_LOCATION": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_PROGRESS_BAR": "off",
    }


def uv_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for uv, without settings that make it fetch everything twice or leave links into its cache."""
    kept = installer_environ(environ)
    kept.pop("UV_NO_CACHE", None)
    if kept.get("UV_LINK_MODE") == "symlink":
        del kept["UV_LINK_MODE"]
    return kept
