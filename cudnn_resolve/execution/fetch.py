"""Fetch and verify the files to install, before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from cudnn_resolve.errors import WorldError, first_few
from cudnn_resolve.execution.installable_wheel import Wheel, read_wheel
from cudnn_resolve.host import disk
from cudnn_resolve.host.run_tool import run_tool
from cudnn_resolve.host.wheel_archive import bad_wheel
from cudnn_resolve.index.remote_wheel import WheelError, open_local, read_contents

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.host.run_tool import Tooling
    from cudnn_resolve.planning.model import PipAction
    from cudnn_resolve.requirement.source import Contents, File

_STRONG = ("sha256", "sha384", "sha512", "sha3_256", "sha3_384", "sha3_512", "blake2b")
"""Hash algorithms strong enough to identify a file."""
_MOST_LISTED = 4


class Download(Protocol):
    """Downloads a file into a folder and returns its path there."""

    def __call__(self, file: File, folder: str, progress: Callable[[int], None]) -> str:
        """Download `file`, calling `progress` with the number of bytes of each part."""
        ...


def check_known(packages: tuple[PipAction, ...], unpinned: tuple[str, ...] = (), *, trusted: bool) -> None:
    """Raise WorldError for packages whose file is unknown, is a source archive, or has no hash to verify it by."""
    sources = [package.pin for package in packages if package.file is not None and not package.file.is_wheel]
    if sources:
        raise WorldError(
            f"only source archives exist for {first_few(sources, _MOST_LISTED)}, and apply builds nothing",
            code="source-only",
            hint=f"build a wheel first, `pip wheel --no-deps {sources[0]} -w wheels`, and add `--find-links wheels`",
        )
    unknown = [package.pin for package in packages if package.file is None or strong(package.file.hashes) is None]
    if unpinned and (trusted or not unknown):
        raise WorldError(
            f"the plan does not pin {first_few(unpinned, _MOST_LISTED)}",
            code="unpinned",
            hint="plan with the index: drop --offline",
        )
    if not unknown or trusted:
        return
    raise WorldError(
        f"no file with a hash is known for {first_few(unknown, _MOST_LISTED)}",
        code="no-hashes",
        hint="plan with the index (without --offline), or install whatever the index serves for these versions with --no-hashes",
    )


def strong(hashes: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the algorithm and digest that identify a file; None if no strong hash is known."""
    return next(((name, hashes[name].lower()) for name in _STRONG if hashes.get(name)), None)


def fetch(package: PipAction, folder: str, environment: Environment, download: Download, progress: Callable[[int], None]) -> Wheel:
    """Fetch the wheel of a package into a folder and verify it; raises WorldError for a wrong hash or a suspicious wheel."""
    file = package.file
    assert file is not None, "found by its name before"
    filename = file.filename
    if "/" in filename or filename in ("", ".", "..") or "\0" in filename:
        raise bad_wheel(filename, "its name is not a file name")
    expected = strong(file.hashes)
    path = f"{folder}/{filename}"
    if disk.kind(path) != "file" or expected is None or disk.digest(path, expected[0]) != expected[1]:
        path = download(file, folder, progress)
    sha256 = disk.digest(path, "sha256")
    if expected is not None:
        found = sha256 if expected[0] == "sha256" else disk.digest(path, expected[0])
        if found != expected[1]:
            disk.remove(path)
            raise wrong_hash(filename, *expected, found)
    return read_wheel(path, package.name, package.version, sha256, environment)


def wrong_hash(filename: str, algorithm: str, expected: str, found: str) -> WorldError:
    """Error for a file whose hash is not the one in the plan."""
    return WorldError(
        f"{filename} is not the file that the plan names: its {algorithm} is {found}, not {expected}",
        code="hash-mismatch",
        hint="nothing was changed; plan again, and if the error persists, report it to the operator of the index",
    )


def download_by_name(package: PipAction, folder: str, environment: Environment, tooling: Tooling) -> str:
    """Download the wheel that the target's pip finds for this version, and return its path; for packages of unknown file."""
    if environment.pip is None:
        raise WorldError(
            f"cannot fetch {package.pin}: files without hashes are fetched by pip, which this environment does not have",
            code="no-pip",
            hint="plan with the index",
        )
    own_folder = f"{folder}/{package.name}"
    disk.make_folder(own_folder)
    source = () if package.index is None else ("--find-links" if package.page else "--index-url", package.index)
    words = ("download", "--no-deps", "--only-binary", ":all:", "--dest", own_folder, *source, "--", package.pin)
    result = run_tool((environment.python, "-I", "-B", "-m", "pip", *words), tooling, env=tooling.environ)
    names = disk.names_in(own_folder)
    if not result.ok or len(names) != 1:
        raise WorldError(f"pip cannot download {package.pin}: {result.why()}", code="download", context=tooling.log)
    disk.move(f"{own_folder}/{names[0]}", f"{folder}/{names[0]}")
    disk.remove_empty(own_folder)
    return f"{folder}/{names[0]}"


def local_members(file: File) -> Contents | None:
    """Return the contents of a wheel on this disk, None for a wheel elsewhere; raises WorldError for a damaged one."""
    path = unquote(urlsplit(file.url).path, errors="surrogateescape")
    if not file.url.startswith("file:") or not disk.is_regular(path):
        return None
    try:
        with open_local(path) as stream:
            return read_contents(stream)
    except WheelError as error:
        raise bad_wheel(path, f"it {error}") from None
    except OSError as error:
        raise bad_wheel(path, f"it cannot be read: {error.strerror}") from None


def download_local(file: File, folder: str, progress: Callable[[int], None]) -> str:
    """Copy the file of a `file://` URL into a folder; raises WorldError if it does not exist."""
    parts = urlsplit(file.url)
    path = unquote(parts.path, errors="surrogateescape")
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path.startswith("/"):
        raise WorldError(f"cannot fetch {file.filename}: unsupported URL scheme {parts.scheme}", code="download", context=file.url)
    if not disk.is_regular(path):
        raise WorldError(f"{file.filename} is missing", code="download", context=path, hint="plan again")
    target = f"{folder}/{file.filename}"
    disk.copy_file(path, target)
    progress(disk.size_of(target))
    return target
