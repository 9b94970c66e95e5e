"""uv as the one that fetches, too: into its own cache, by a lock of exactly the planned files, laid out in a folder of ours first.

So nothing is fetched or unpacked twice, and what is in uv's cache already is not fetched at all. What was laid out is then moved into
the environment, where both lie on one file system; else uv installs it once more, out of its cache. Where uv cannot do it (an old uv,
an index with credentials that only we know), the files are fetched by ourselves as for pip.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.fetch import strong
from cudnn_resolve.execution.installer import environment_for
from cudnn_resolve.execution.journal import STAGING
from cudnn_resolve.execution.wheel import Wheel
from cudnn_resolve.host import clock, disk
from cudnn_resolve.host.installed_files import verify_files
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.tool import Tooling, ToolResult, run_tool

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.planning.model import PipAction

LOCK = "pylock.toml"
_OWN_LOCK = ".lock"
"""What uv holds while it works in a folder."""
_WORDS = ("--no-deps", "--no-config", "--no-build", "--color", "never", "--no-progress", "--preview")


_OURS = re.compile(
    r"pylock|unexpected argument|invalid value|unrecognized|failed to (?:download|fetch|extract)|error sending request|"
    r"unauthorized|forbidden|hash mismatch|offline",
    re.IGNORECASE,
)
"""What uv says where it cannot read the lock, or cannot get a file: we fetch it then, or can say better what is wrong with it."""


def can_lock(packages: tuple[PipAction, ...], environment: Environment) -> bool:
    """True where every package is a wheel with a hash, and the environment is laid out as any folder would be."""
    short = ".".join(environment.version.split(".")[:2])
    plain = f"{environment.prefix}/lib/python{short}/site-packages"
    if environment.scheme["purelib"] != plain or environment.scheme["platlib"] != plain:
        return False
    return all(package.file is not None and strong(package.file.hashes) and package.file.is_wheel for package in packages)


def stage(
    packages: tuple[PipAction, ...], folder: str, environment: Environment, tooling: Tooling, environ: Mapping[str, str]
) -> tuple[Wheel, ...] | None:
    """The packages as uv lays them out, fetched and verified; None where uv cannot do that. WorldError where it refuses one of them."""
    path = f"{folder}/{LOCK}"
    staging = f"{folder}/{STAGING}"
    disk.write_whole(path, _text(packages).encode())
    result = _run(path, environment, tooling, environ, "--prefix", staging)
    if not result.ok:
        if disk.kind(staging) == "folder":
            disk.remove_tree(staging)
        said = "\n".join(result.tail)
        if "No space left on device" in said or "os error 28" in said:
            hint = "make room where uv has its cache and where the journals are; nothing was changed"
            raise WorldError("uv: no space left on device", code="disk-full", context=tooling.log, hint=hint)
        if result.returncode is None or result.returncode < 0 or _OURS.search(said):
            return None
        raise WorldError(f"uv refuses: {result.why()}", code="installer-failed", context=tooling.log, hint="nothing was changed")
    site = f"{staging}/lib/python{'.'.join(environment.version.split('.')[:2])}/site-packages"
    infos = {name.lower(): name for name in disk.names_in(site) if name.endswith(".dist-info")}
    found = [infos.get(_info(package)) for package in packages]
    disk.remove(f"{staging}/{_OWN_LOCK}")
    paths = [f"{environment.prefix}{one[len(staging) :]}" for one in disk.files_below(staging)]
    folders = [f"{environment.prefix}{one[len(staging) :]}" for one in disk.folders_below(staging)]
    if None in found or verify_files(LinuxHost(), (site,)).damages:  # links share their content with uv's cache, and so its damage
        disk.remove_tree(staging)
        return None
    wheels = []
    for number, (package, info) in enumerate(zip(packages, found, strict=True)):
        wheels.append(
            Wheel(
                path="",
                name=package.name,
                version=package.version,
                sha256=package.file.hashes.get("sha256", "") if package.file else "",
                paths=tuple(paths) if number == 0 else (),
                info=f"{environment.scheme['purelib']}/{info}",
                unpacked=0,
                folders=tuple(folders) if number == 0 else (),
            )
        )
    return tuple(wheels)


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


def unstage(folder: str) -> None:
    """Remove the folder in which uv laid out the packages."""
    if disk.kind(f"{folder}/{STAGING}") == "folder":
        disk.remove_tree(f"{folder}/{STAGING}")


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
