"""Fingerprints that change with an environment, the machine, this program or its tables; from file status, without reading the files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable

from cudnn_resolve.host.linux import LinuxHost

_TERMINAL_VARIABLES = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "COLORTERM", "FORCE_COLOR", "NO_COLOR"})
_SESSION_PREFIXES = ("JPY_", "SSH_", "TMUX", "STY", "WINDOW", "TERM", "CLICOLOR", "VTE_", "GPG_", "DBUS_", "XDG_SESSION", "XDG_RUNTIME")
"""Variables that differ between terminals or kernels and do not matter to an environment."""
_CONTENTS = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/driver/nvidia/version",
    "/sys/module/nvidia/version",
    "/proc/driver/nvidia/params",
)
_STATES = (
    *("/etc/os-release", "/etc/ld.so.cache", "/etc/nv_tegra_release", "/.dockerenv"),
    *("/var/lib/dpkg/status", "/usr/local", "/usr/local/cuda", "/usr/local/cuda/version.json", "/usr/lib/wsl/lib"),
    *("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"),
)
"""Paths that change with the driver, the C library, system packages and the linker cache."""
_LOADER_FOLDER = "/etc/ld.so.conf.d"
_DEVICE_FOLDERS = ("/dev", "/proc/driver/nvidia/gpus")
_DEVICE_PREFIXES = ("nvidia", "nvhost", "nvmap", "dxg", "0")
"""Prefixes of the names of relevant devices and GPUs."""
_LARGEST = 1 << 20
_MACHINE = LinuxHost({})


def of_machine() -> bytes:
    """Changes with the driver, GPUs, C library, system packages, variables, and the libraries on LD_LIBRARY_PATH."""
    variables = os.environ.items()
    library_path = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    parts = [
        (os.geteuid(), os.getegid()),
        sorted((key, value) for key, value in variables if key not in _TERMINAL_VARIABLES and not key.startswith(_SESSION_PREFIXES)),
        [_content(path) for path in _CONTENTS],
        [_state(path) for path in _STATES],
        [[name for name in _MACHINE.list_dir(folder) if name.startswith(_DEVICE_PREFIXES)] for folder in _DEVICE_FOLDERS],
        _states_in(_LOADER_FOLDER),
        [_states_in(folder, ".so") for folder in library_path],
    ]
    return digest(map(repr, parts))


def of_environment(prefix: str, *, passing: Collection[str] = ()) -> bytes | None:
    """Changes when a file of a virtual environment is written, added or removed; None if more than its folder matters.

    Sizes, times and inodes are compared, without compiled modules and files whose name is in `passing`. More matters if system packages
    are visible, or a folder elsewhere is on the import path or linked to.
    """
    settings = _content(f"{prefix}/pyvenv.cfg").decode("utf-8", "replace").lower()
    if "home" not in settings or "include-system-site-packages=true" in "".join(settings.split()):
        return None
    files, links = _files(prefix, passing)
    if any(os.path.isdir(link) and os.path.realpath(link) != f"{prefix}/lib" for link in links):
        return None
    if any(_leads_elsewhere(path) for path in (*files, *links) if path.endswith((".pth", ".egg-link"))):
        return None
    return digest(sorted([*_rows(files), *(f"{link} {_state(link)}" for link in links)]))


def of_program() -> bytes:
    """Changes with the modules and tables of this program."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    tables = f"{os.path.dirname(package)}/matrices"  # of a checkout
    files, _ = _files(package)
    return digest([*sorted(_rows(files)), of_tables(tables).hex()])


def of_tables(path: str) -> bytes:
    """Changes with the tables in a folder and its immediate subfolders; links are followed, as for reading tables."""
    here = [f"{path}/{name}" for name in _MACHINE.list_dir(path)]
    below = [f"{folder}/{name}" for folder in here if os.path.isdir(folder) for name in _MACHINE.list_dir(folder)]
    return digest(sorted(f"{file} {_state(file)}" for file in (*here, *below) if file.endswith(".toml")))


def digest(rows: Iterable[str]) -> bytes:
    """One checksum of all rows."""
    return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogateescape")).digest()


def _files(folder: str, passing: Collection[str] = ()) -> tuple[dict[str, str], list[str]]:
    """Files below a folder with their status, without those whose name is in `passing`, and links; unreadable folders count as files."""
    files: dict[str, str] = {}
    links: list[str] = []
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    name = entry.name
                    if entry.is_symlink():
                        links.append(entry.path)
                    elif entry.is_dir(follow_symlinks=False):
                        if name != "__pycache__":
                            waiting.append(entry.path)
                    elif not name.endswith(".pyc") and name not in passing:
                        status = entry.stat(follow_symlinks=False)
                        files[entry.path] = f"{status.st_size} {status.st_mtime_ns} {status.st_ino} {status.st_mode}"
        except OSError as error:
            files[here] = str(error.errno)
    return files, links


def _rows(files: dict[str, str]) -> list[str]:
    return [f"{path} ({status})" for path, status in files.items()]


def _leads_elsewhere(path: str) -> bool:
    """Whether a path configuration file adds a folder to the import path."""
    lines = (line.strip() for line in _content(path).decode("utf-8", "replace").splitlines())
    return path.endswith(".egg-link") or any(line and not line.startswith(("#", "import ", "import\t")) for line in lines)


def _states_in(folder: str, containing: str = "") -> list[tuple[str, tuple[object, ...]]]:
    """Status of each file in a folder whose name contains a text."""
    return [(name, _state(f"{folder}/{name}")) for name in _MACHINE.list_dir(folder) if containing in name]


def _state(path: str) -> tuple[object, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return os.path.realpath(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _content(path: str) -> bytes:
    return _MACHINE.read_bytes(path, 0, _LARGEST) or b""
