"""Every file that is to be installed, on this disk and verified, before anything changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution.wheel import Wheel, read_wheel, wrong_hash
from cudnn_resolve.host import disk
from cudnn_resolve.host.archive import Archive, bad_wheel, is_entry_points
from cudnn_resolve.host.run_tool import run_tool
from cudnn_resolve.requirement.source import Contents

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.host.run_tool import Tooling
    from cudnn_resolve.planning.model import PipAction

STRONG = ("sha256", "sha384", "sha512", "sha3_256", "sha3_384", "sha3_512", "blake2b")
"""Algorithms that a file can be known by."""


_MOST_PROGRAMS = 2
"""Lists of programs that are read of a wheel: it may have one, and whoever has two is refused."""


class Download(Protocol):
    """Brings the file of an address into a folder."""

    def __call__(self, file: Any, folder: str, progress: Any) -> str:
        """The path of the file in the folder."""
        ...


def check_known(packages: tuple[PipAction, ...], unpinned: tuple[str, ...] = (), *, trusted: bool) -> None:
    """Reject a package whose file, or the hash to know it by, nobody knows; raises WorldError."""
    sources = [package for package in packages if package.file is not None and not package.file.is_wheel]
    if sources:
        raise WorldError(
            f"{', '.join(package.pin for package in sources[:4])} can only be had as source, which would have to be built",
            code="source-only",
            hint=f"build a wheel first, `pip wheel --no-deps {sources[0].pin} -w wheels`, and add `--find-links wheels`",
        )
    unknown = [package.pin for package in packages if package.file is None or not strong(package.file.hashes)]
    if unpinned and (trusted or not unknown):
        raise WorldError(
            f"the plan leaves the versions of {', '.join(unpinned[:6])} open",
            code="unpinned",
            hint="plan with the index: leave --offline out",
        )
    if not unknown or trusted:
        return
    names = ", ".join(unknown[:4]) + (f" and {len(unknown) - 4} more" if len(unknown) > 4 else "")
    raise WorldError(
        f"nobody has said which files these are: {names}",
        code="no-hashes",
        hint="plan with the index (without --offline), or say --no-hashes to install what the index gives under these versions",
    )


def strong(hashes: Mapping[str, str]) -> tuple[str, str] | None:
    """The algorithm and digest that a file is known by; None where there is none that counts."""
    return next(((name, hashes[name].lower()) for name in STRONG if hashes.get(name)), None)


def fetch(package: PipAction, folder: str, environment: Environment, download: Download, progress: Any) -> Wheel:
    """The wheel of a package, in the folder, with the promised hash and nothing suspicious in it; WorldError where it is not so."""
    file = package.file
    assert file is not None, "found by its name before"
    filename = str(file.filename)
    if "/" in filename or filename in ("", ".", "..") or "\0" in filename:
        raise bad_wheel(filename, "its name is no file name")
    known = strong(file.hashes)
    path = f"{folder}/{filename}"
    if disk.kind(path) != "file" or known is None or disk.digest(path, known[0]) != known[1]:
        path = download(file, folder, progress)
    sha256 = disk.digest(path, "sha256")
    if known is not None:
        found = sha256 if known[0] == "sha256" else disk.digest(path, known[0])
        if found != known[1]:
            disk.remove(path)
            raise wrong_hash(filename, known[0], known[1], found)
    return read_wheel(path, package.name, package.version, sha256, environment)


def download_by_name(package: PipAction, folder: str, environment: Environment, tooling: Tooling, environ: Mapping[str, str]) -> str:
    """The path of the wheel that the target's pip finds under this version, where nothing is known but its name; WorldError where none."""
    if environment.pip is None:
        raise WorldError(
            f"{package.pin}: files without hashes are fetched by pip, which is not there", code="no-pip", hint="plan with the index"
        )
    apart = f"{folder}/{package.name}"
    disk.make_folder(apart)
    source = () if package.index is None else ("--find-links" if package.page else "--index-url", package.index)
    words = ("download", "--no-deps", "--only-binary", ":all:", "--dest", apart, *source, "--", package.pin)
    result = run_tool((environment.python, "-I", "-B", "-m", "pip", *words), tooling, env=environ)
    names = disk.names_in(apart)
    if not result.ok or len(names) != 1:
        raise WorldError(f"{package.pin} could not be had: {result.why()}", code="download", context=tooling.log)
    disk.move(f"{apart}/{names[0]}", f"{folder}/{names[0]}")
    disk.remove_empty(apart)
    return f"{folder}/{names[0]}"


def local_members(file: Any) -> Contents | None:
    """What is in a wheel on this disk; None for one that is elsewhere."""
    path = unquote(urlsplit(file.url).path, errors="surrogateescape")
    if not file.url.startswith("file:") or not disk.is_regular(path):
        return None
    with Archive(path) as archive:
        members = archive.members()
        programs = [member.name for member in members if is_entry_points(member.name)]
        return Contents(
            names=tuple(member.name for member in members),
            unpacked=sum(member.size for member in members),
            programs=tuple(archive.text(name) or "" for name in programs[:_MOST_PROGRAMS]),
            checksums=tuple(member.checksum for member in members),
            links=tuple(member.name for member in members if member.is_link),
        )


def download_local(file: Any, folder: str, progress: Any) -> str:
    """The file of a `file://` address in the folder; WorldError where it is not there."""
    parts = urlsplit(file.url)
    path = unquote(parts.path, errors="surrogateescape")
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path.startswith("/"):
        raise WorldError(f"{file.filename} cannot be fetched from here: {parts.scheme}", code="download", context=file.url)
    if not disk.is_regular(path):
        raise WorldError(f"{file.filename} is not where the plan says", code="download", context=path, hint="plan again")
    target = f"{folder}/{file.filename}"
    disk.copy_file(path, target)
    progress(disk.size_of(target))
    return target
