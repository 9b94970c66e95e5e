"""Let uv fetch and unpack the planned files into a staging folder, before the environment is touched.

uv fetches into its own cache, by a lock of exactly these files, so nothing is fetched or unpacked twice. The staged files are moved into
the environment if both are on one file system; otherwise uv installs them once more from its cache. If uv cannot stage them (an old uv, an
index whose credentials only this program knows), the caller fetches the files itself, as for pip.
"""

from __future__ import annotations

import json
import re
import stat
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.fetch import strong
from cudnn_resolve.execution.installable_wheel import Wheel
from cudnn_resolve.execution.installer import uv_environ
from cudnn_resolve.execution.journal import STAGING
from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.installed_files import verify_files
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.run_tool import Tooling, ToolResult, run_tool

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.host.protocol import Host
    from cudnn_resolve.planning.model import PipAction

UV_LOCK = ".lock"
"""Lock file that uv leaves in a folder that it installs into."""
_PYLOCK = "pylock.toml"
_VERSION_SECONDS = 10.0
_OPTIONS = ("--no-deps", "--no-config", "--no-build", "--color", "never", "--no-progress", "--preview")
_FETCH_INSTEAD = re.compile(
    r"pylock|unexpected argument|invalid value|unrecognized|failed to (?:download|fetch|extract|install)|error sending request|"
    r"unauthorized|forbidden|hash mismatch|offline",
    re.IGNORECASE,
)
"""Errors of a uv that cannot read the lock, cannot fetch a file, or has a file in its cache that a power failure damaged: fetching the
files ourselves works, or gives a better message."""
_SAFE_VERSION = (0, 11, 15)
"""First uv that never writes a script outside of the scripts folder, whatever a wheel names it (GHSA-4gg8-gxpx-9rph)."""
_VERSION = re.compile(r"uv (\d{1,4})\.(\d{1,4})\.(\d{1,4})", re.ASCII)


def writes_safely(host: Host, uv: str) -> bool:
    """Return whether this uv writes nothing outside of its target, so that files can be checked after it unpacked them there."""
    found = _VERSION.match(host.run([uv, "--version"], timeout_seconds=_VERSION_SECONDS).stdout)
    return found is not None and tuple(map(int, found.groups())) >= _SAFE_VERSION


def can_stage(packages: tuple[PipAction, ...], environment: Environment) -> bool:
    """Return whether every package is a wheel with a hash, and the environment has the folders of any other prefix."""
    if environment.packages != (_site(environment.prefix, environment),):
        return False
    return all(package.file is not None and strong(package.file.hashes) and package.file.is_wheel for package in packages)


def stage(packages: tuple[PipAction, ...], folder: str, environment: Environment, tooling: Tooling) -> tuple[Wheel, ...] | None:
    """Let uv fetch, verify and unpack packages below a journal's folder; None if it cannot, WorldError if it refuses one.

    Only the first wheel lists paths and folders: those of all of them.
    """
    lock, staging = f"{folder}/{_PYLOCK}", f"{folder}/{STAGING}"
    disk.write_whole(lock, _pylock(packages).encode())
    skipped: list[str] = []

    def on_line(line: str) -> None:
        if "Skipping unsafe file name" in line:  # uv omits that member; we fetch such a wheel ourselves, and refuse it
            skipped.append(line)
        if tooling.on_line is not None:
            tooling.on_line(line)

    watched = replace(tooling, on_line=on_line, environ={**tooling.environ, "RUST_LOG": "uv_extract=warn"})
    result = _install(lock, environment, watched, "--prefix", staging)
    if skipped or not result.ok:
        disk.remove_tree(staging)
        if not skipped:
            _refuse_fatal(result, tooling.log)
        return None
    site = _site(staging, environment)
    infos = {name.lower(): name for name in disk.names_in(site) if name.endswith(".dist-info")}
    found = [infos.get(_info_name(package)) for package in packages]
    disk.remove(f"{staging}/{UV_LOCK}")
    paths = [f"{environment.prefix}{path[len(staging) :]}" for path in disk.files_below(staging)]
    folders = [f"{environment.prefix}{path[len(staging) :]}" for path in disk.folders_below(staging)]
    if None in found or verify_files(LinuxHost(), (site,)).damages:  # hard links share damage with uv's cache
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


def _refuse_fatal(result: ToolResult, log: str) -> None:
    """Raise WorldError for a failure of uv that fetching the files ourselves would not avoid."""
    output = "\n".join(result.tail)
    if "No space left on device" in output or "os error 28" in output:
        hint = "free some space where uv has its cache and where the journals are; nothing was changed"
        raise WorldError("uv: no space left on device", code="disk-full", context=log, hint=hint)
    if result.returncode is not None and result.returncode >= 0 and not _FETCH_INSTEAD.search(output):
        raise WorldError(f"uv refuses: {result.why()}", code="installer-failed", context=log, hint="nothing was changed")


def _site(prefix: str, environment: Environment) -> str:
    """Folder of packages below a prefix with the usual layout."""
    return f"{prefix}/lib/python{'.'.join(environment.version.split('.')[:2])}/site-packages"


def clean_cache(name: str, folder: str, environment: Environment, tooling: Tooling) -> None:
    """Remove a refused package from uv's cache if uv was tried, so that the next `apply` reports its fault again."""
    if environment.uv is not None and disk.kind(f"{folder}/{_PYLOCK}") is not None:
        argv = (environment.uv, "cache", "clean", "--no-config", "--color", "never", "--", name)
        run_tool(argv, tooling, env={**uv_environ(tooling.environ), "UV_LOCK_TIMEOUT": "10"})


def can_move(folder: str, environment: Environment) -> bool:
    """Return whether staged files can be renamed into the environment, whose folders must not pass their group on to new ones."""
    if any(disk.mode_of(root) & stat.S_ISGID for root in environment.roots):
        return False
    return all(disk.can_rename(f"{folder}/{STAGING}", target) for target in (environment.prefix, environment.scheme["purelib"]))


def move_staged(folder: str, environment: Environment) -> ToolResult:
    """Move the staged files into the environment, where uv would write the same."""
    began = clock.seconds()
    disk.move_tree(f"{folder}/{STAGING}", environment.prefix, environment.roots)
    return ToolResult(returncode=0, seconds=clock.seconds() - began)


def install_staged(folder: str, environment: Environment, tooling: Tooling, *, managed: bool) -> ToolResult:
    """Install what was staged once more, from uv's cache alone."""
    options = ("--offline", "--break-system-packages") if managed else ("--offline",)
    return _install(f"{folder}/{_PYLOCK}", environment, tooling, *options)


def _install(lock: str, environment: Environment, tooling: Tooling, *options: str) -> ToolResult:
    assert environment.uv is not None
    argv = (environment.uv, "pip", "install", "-r", lock, "--python", environment.python, *_OPTIONS, *options)
    return run_tool(argv, tooling, env=uv_environ(tooling.environ))


def _info_name(package: PipAction) -> str:
    """Lower-case name of its `.dist-info`."""
    assert package.file is not None, "see `can_stage`"
    name, version = package.file.filename.split("-")[:2]
    return f"{name}-{version}.dist-info".lower()


def _pylock(packages: tuple[PipAction, ...]) -> str:
    """A lock (PEP 751) of these files; every JSON string is a valid TOML string."""
    lines = ['lock-version = "1.0"', 'created-by = "cudnn-resolve"']
    for package in packages:
        file = package.file
        assert file is not None, "see `can_stage`"
        algorithm, digest = strong(file.hashes) or ("", "")
        wheel = f"name = {json.dumps(file.filename)}, url = {json.dumps(file.url)}, hashes = {{{algorithm} = {json.dumps(digest)}}}"
        lines += ["", "[[packages]]", f"name = {json.dumps(package.name)}", f"version = {json.dumps(package.version)}"]
        lines += [f"index = {json.dumps(file.origin)}"] if file.origin else []
        lines.append(f"wheels = [{{{wheel}}}]")
    return "\n".join(lines) + "\n"
