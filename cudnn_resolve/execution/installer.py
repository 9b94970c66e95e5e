"""The installer, pip or uv: how it is called so that it lays down exactly the files that were verified, and nothing else.

uv also fetches, where it can: into its own cache, by a lock of exactly the planned files, laid out in a folder of ours first. So nothing is
fetched or unpacked twice. What was laid out is then moved into the environment, where both lie on one file system; else uv installs it
once more, out of its cache. Where uv cannot do it (an old uv, an index with credentials that only we know), the files are fetched by
ourselves as for pip.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace
from packaging.utils import parse_wheel_filename

from cudnn_resolve.errors import UsageError, WorldError
from cudnn_resolve.execution.fetch import strong
from cudnn_resolve.execution.journal import STAGING
from cudnn_resolve.execution.wheel import Wheel
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.bundle import own_pip
from cudnn_resolve.host.installed_files import verify_files
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.run_tool import Tooling, ToolResult, run_tool

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.host.protocol import Host
    from cudnn_resolve.planning.model import PipAction


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
    """What became of the installer; it gets pins with hashes and the folder of the verified files, and no index.

    uv gets a cache of its own, too: what is in the user's may have been damaged, and would be laid down in the place of what was verified.
    """
    folder = os.path.dirname(wheels[0].path)
    beside = os.path.dirname(folder)
    pins = f"{beside}/pins.txt"
    disk.write_whole(pins, "".join(f"{_pin(wheel)} --hash=sha256:{wheel.sha256}\n" for wheel in wheels).encode())
    words: tuple[str, ...] = ("install", "--no-deps", "--no-index", "--find-links", folder, "--require-hashes", "-r", pins)
    folder = environment.scheme["purelib"]
    if folder.endswith(f"/{FOLDER}"):
        words, managed = (*words, "--target", folder), False
    broken = ("--break-system-packages",) if managed else ()
    if installer == "uv":
        assert environment.uv is not None
        own = ("--cache-dir", f"{beside}/{STAGING}")
        argv = (environment.uv, "pip", *words, "--python", environment.python, *_UV_WORDS, *own, *broken)
        result = run_tool(argv, tooling, env=_words_of_user(environ))
        disk.remove_tree(f"{beside}/{STAGING}")
        return result
    argv = (environment.python, "-I", "-B", *_pip(wheels, environment, beside), *words, *_PIP_WORDS, *broken)
    return run_tool(argv, tooling, env=environment_for(environ))


_PIP_FOLDER = re.compile(r"pip-(\d{1,4})\.(\d{1,4})[0-9.]*\.(?:dist|egg)-info", re.ASCII)
_PIP_WORDS = ("--no-input", "--disable-pip-version-check", "--no-color", "--no-cache-dir")
_UV_WORDS = ("--no-config", "--offline", "--no-build", "--color", "never", "--no-progress")


def _pip(wheels: Sequence[Wheel], environment: Environment, folder: str) -> tuple[str, ...]:
    """How pip is run; one that is itself replaced has left already, and its own wheel can be run as it is.

    One from before pip 20.3 knows no tag such as manylinux_2_28: where a wheel has one, it is the pip that comes with our own Python.
    """
    own = next((wheel.path for wheel in wheels if wheel.name == "pip"), None)
    if own is None and any("manylinux_" in wheel.path for wheel in wheels) and _is_old(environment.pip or ""):
        name, content = own_pip() or ("", b"")
        own = f"{folder}/{name}" if content else None
        if own is not None:
            disk.write_whole(own, content)
    return ("-m", "pip") if own is None else (f"{own}/pip",)


def _is_old(folder: str) -> bool:
    """True for a folder of a pip from before 20.3."""
    names = (_PIP_FOLDER.fullmatch(name) for name in disk.names_in(os.path.dirname(folder)))
    return any((int(found[1]), int(found[2])) < (20, 3) for found in names if found is not None)


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


LOCK = "pylock.toml"
OWN_LOCK = ".lock"
"""What uv holds while it works in a folder."""
_UV_SECONDS = 10.0
_WORDS = ("--no-deps", "--no-config", "--no-build", "--color", "never", "--no-progress", "--preview")


_OURS = re.compile(
    r"pylock|unexpected argument|invalid value|unrecognized|failed to (?:download|fetch|extract|install)|error sending request|"
    r"unauthorized|forbidden|hash mismatch|offline",
    re.IGNORECASE,
)
"""What uv says where it cannot read the lock, cannot get a file, or has in its cache what a power failure left of one: we fetch it then,
or can say better what is wrong with it."""


_CAREFUL = (0, 11, 15)
"""The first uv that makes no program outside of the folder of programs, whatever a wheel calls it (GHSA-4gg8-gxpx-9rph)."""
_UV_VERSION = re.compile(r"uv (\d{1,4})\.(\d{1,4})\.(\d{1,4})", re.ASCII)


def is_careful(host: Host, uv: str) -> bool:
    """True for a uv that lays down nothing outside of the folder that it is told, so that what it brings can be looked at there."""
    found = _UV_VERSION.match(host.run([uv, "--version"], timeout_seconds=_UV_SECONDS).stdout)
    return found is not None and tuple(map(int, found.groups())) >= _CAREFUL


def can_lock(packages: tuple[PipAction, ...], environment: Environment) -> bool:
    """True where every package is a wheel with a hash, and the environment is laid out as any folder would be."""
    if environment.packages != (_site(environment.prefix, environment),):
        return False
    return all(package.file is not None and strong(package.file.hashes) and package.file.is_wheel for package in packages)


def stage(
    packages: tuple[PipAction, ...], folder: str, environment: Environment, tooling: Tooling, environ: Mapping[str, str]
) -> tuple[Wheel, ...] | None:
    """The packages as uv lays them out, fetched and verified; None where uv cannot do that. WorldError where it refuses one of them."""
    path = f"{folder}/{LOCK}"
    staging = f"{folder}/{STAGING}"
    disk.write_whole(path, _text(packages).encode())
    skipped: list[str] = []

    def listen(line: str) -> None:
        if "Skipping unsafe file name" in line:  # it leaves that out of a wheel: we fetch the wheel then, and refuse it
            skipped.append(line)
        if tooling.on_line is not None:
            tooling.on_line(line)

    told = replace(tooling, on_line=listen)
    result = _run(path, environment, told, {**environ, "RUST_LOG": "uv_extract=warn"}, "--prefix", staging)
    if skipped or not result.ok:
        disk.remove_tree(staging)
    if skipped:
        return None
    if not result.ok:
        said = "\n".join(result.tail)
        if "No space left on device" in said or "os error 28" in said:
            hint = "make room where uv has its cache and where the journals are; nothing was changed"
            raise WorldError("uv: no space left on device", code="disk-full", context=tooling.log, hint=hint)
        if result.returncode is None or result.returncode < 0 or _OURS.search(said):
            return None
        raise WorldError(f"uv refuses: {result.why()}", code="installer-failed", context=tooling.log, hint="nothing was changed")
    site = _site(staging, environment)
    infos = {name.lower(): name for name in disk.names_in(site) if name.endswith(".dist-info")}
    found = [infos.get(_info(package)) for package in packages]
    disk.remove(f"{staging}/{OWN_LOCK}")
    paths = [f"{environment.prefix}{one[len(staging) :]}" for one in disk.files_below(staging)]
    folders = [f"{environment.prefix}{one[len(staging) :]}" for one in disk.folders_below(staging)]
    if None in found or verify_files(LinuxHost(), (site,)).damages:  # links share their content with uv's cache, and so its damage
        disk.remove_tree(staging)
        return None
    wheels = [
        Wheel(
            path="",
            name=package.name,
            version=package.version,
            sha256=package.file.hashes.get("sha256", "") if package.file else "",
            paths=(),
            info=f"{environment.scheme['purelib']}/{info}",
            unpacked=0,
        )
        for package, info in zip(packages, found, strict=True)
    ]
    return (replace(wheels[0], paths=tuple(paths), folders=tuple(folders)), *wheels[1:])


def _site(prefix: str, environment: Environment) -> str:
    """Where packages lie below a prefix that is laid out as any is."""
    return f"{prefix}/lib/python{'.'.join(environment.version.split('.')[:2])}/site-packages"


def forget(name: str, folder: str, environment: Environment, tooling: Tooling, environ: Mapping[str, str]) -> None:
    """Remove a package that is refused from uv's cache, if uv fetched it: the next `apply` would not be told what is wrong with it."""
    if environment.uv is not None and disk.kind(f"{folder}/{LOCK}") is not None:
        argv = (environment.uv, "cache", "clean", "--no-config", "--color", "never", "--", name)
        run_tool(argv, tooling, env={**_words_of_user(environ), "UV_LOCK_TIMEOUT": "10"})


def can_move(folder: str, environment: Environment) -> bool:
    """True where what was staged can be renamed into the environment, and folders there do not hand their group on to new ones."""
    if any(disk.mode_of(place) & stat.S_ISGID for place in environment.roots):
        return False
    return all(disk.can_rename(f"{folder}/{STAGING}", place) for place in (environment.prefix, environment.scheme["purelib"]))


def move_staged(folder: str, environment: Environment) -> ToolResult:
    """What became of moving what was staged into the environment: it is what uv would lay down there, file by file."""
    began = clock.seconds()
    disk.move_tree(f"{folder}/{STAGING}", environment.prefix, environment.roots)
    return ToolResult(returncode=0, seconds=clock.seconds() - began)


def install_staged(folder: str, environment: Environment, tooling: Tooling, environ: Mapping[str, str], *, managed: bool) -> ToolResult:
    """What became of the installation of what was staged, from uv's cache alone."""
    broken = ("--break-system-packages",) if managed else ()
    return _run(f"{folder}/{LOCK}", environment, tooling, environ, "--offline", *broken)


def _run(path: str, environment: Environment, tooling: Tooling, environ: Mapping[str, str], *more: str) -> ToolResult:
    assert environment.uv is not None
    argv = (environment.uv, "pip", "install", "-r", path, "--python", environment.python, *_WORDS, *more)
    return run_tool(argv, tooling, env=_words_of_user(environ))


def _words_of_user(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for uv, without what would make it fetch everything twice, or leave links into its cache."""
    out = environment_for(environ)
    out.pop("UV_NO_CACHE", None)
    if out.get("UV_LINK_MODE") == "symlink":
        del out["UV_LINK_MODE"]
    return out


def _info(package: PipAction) -> str:
    """The name of its `.dist-info`, as wheels are called."""
    assert package.file is not None, "see `can_lock`"
    name, version = package.file.filename.split("-")[:2]
    return f"{name}-{version}.dist-info".lower()


def _text(packages: tuple[PipAction, ...]) -> str:
    """A lock (PEP 751) of these files; JSON strings are TOML strings."""
    lines = ['lock-version = "1.0"', 'created-by = "cudnn-resolve"']
    for package in packages:
        file = package.file
        assert file is not None, "see `can_lock`"
        algorithm, digest = strong(file.hashes) or ("", "")
        wheel = f"name = {json.dumps(file.filename)}, url = {json.dumps(file.url)}, hashes = {{{algorithm} = {json.dumps(digest)}}}"
        lines += ["", "[[packages]]", f"name = {json.dumps(package.name)}", f"version = {json.dumps(package.version)}"]
        lines += [f"index = {json.dumps(file.origin)}"] if file.origin else []
        lines.append(f"wheels = [{{{wheel}}}]")
    return "\n".join(lines) + "\n"
