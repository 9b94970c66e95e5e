"""What tells that neither an environment nor the machine was changed: numbers of their files, without reading them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable

from cudnn_resolve.host.linux import LinuxHost

_OF_TERMINAL = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "COLORTERM", "FORCE_COLOR", "NO_COLOR"})
_OF_SESSION = ("JPY_", "SSH_", "TMUX", "STY", "WINDOW", "TERM", "CLICOLOR", "VTE_", "GPG_", "DBUS_", "XDG_SESSION", "XDG_RUNTIME")
"""Variables that differ from one terminal or kernel to the next and say nothing about an environment."""
_READ = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/driver/nvidia/version",
    "/sys/module/nvidia/version",
    "/proc/driver/nvidia/params",
)
_SEEN = (
    *("/etc/os-release", "/etc/ld.so.cache", "/etc/nv_tegra_release", "/.dockerenv"),
    *("/var/lib/dpkg/status", "/usr/local", "/usr/local/cuda", "/usr/local/cuda/version.json", "/usr/lib/wsl/lib"),
    *("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"),
)
"""What changes with the driver, the C library, packages of the system and the cache of the loader."""
_LOADER = "/etc/ld.so.conf.d"
_NAMED = ("/dev", "/proc/driver/nvidia/gpus")
_DEVICES = ("nvidia", "nvhost", "nvmap", "dxg", "0")
"""How the names of devices and GPUs begin that count."""
_LARGEST = 1 << 20
_MACHINE = LinuxHost({})


def of_machine() -> bytes:
    """What changes when the driver, the GPUs, the C library, packages of the system, variables or the libraries that they lead to do."""
    parts: list[object] = [os.geteuid(), os.getegid()]
    parts += sorted((key, value) for key, value in os.environ.items() if key not in _OF_TERMINAL and not key.startswith(_OF_SESSION))
    parts += [_content(path) for path in _READ] + [_state(path) for path in _SEEN]
    parts += [[name for name in _MACHINE.list_dir(path) if name.startswith(_DEVICES)] for path in _NAMED]
    parts += [[(name, _state(f"{_LOADER}/{name}")) for name in _MACHINE.list_dir(_LOADER)]]
    led = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    parts += [sorted((name, _state(f"{path}/{name}")) for name in _MACHINE.list_dir(path) if ".so" in name) for path in led]
    return digest(map(repr, parts))


def of_environment(prefix: str, *, passing: Collection[str] = ()) -> bytes | None:
    """What changes when a file of a virtual environment is written, comes or goes; None where more than its folder decides.

    Sizes, times and inodes are compared; compiled modules, and files that are called as one of `passing`, do not count. More decides where
    packages of the system are seen, or a folder elsewhere is on the path or linked to.
    """
    settings = _content(f"{prefix}/pyvenv.cfg").decode("utf-8", "replace").lower()
    if "home" not in settings or "".join(settings.split()).count("include-system-site-packages=true"):
        return None
    found, links = _files(prefix, passing)
    if any(os.path.isdir(one) and os.path.realpath(one) != f"{prefix}/lib" for one in links):
        return None
    paths = (*(one.rpartition(" (")[0] for one in found), *links)
    if any(_leads_elsewhere(path) for path in paths if path.endswith((".pth", ".egg-link"))):
        return None
    found += [f"{one} {_state(one)}" for one in links]
    found.sort()
    return digest(found)


def of_program() -> bytes:
    """What changes when a module or a table of this program does."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    tables = f"{os.path.dirname(package)}/matrices"  # of a checkout
    return digest([*sorted(_files(package)[0]), of_tables(tables).hex()])


def of_tables(path: str) -> bytes:
    """What changes when a table in a folder, or in a folder in it, does; links are followed, as tables are read."""
    here = [f"{path}/{name}" for name in _MACHINE.list_dir(path)]
    below = [f"{one}/{name}" for one in here if os.path.isdir(one) for name in _MACHINE.list_dir(one)]
    return digest(sorted(f"{one} {_state(one)}" for one in (*here, *below) if one.endswith(".toml")))


def _files(folder: str, passing: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """A line for each file below a folder that does not bear one of these names, and the links."""
    found, links, waiting = [], [], [folder]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for one in entries:
                    name = one.name
                    if one.is_symlink():
                        links.append(one.path)
                    elif one.is_dir(follow_symlinks=False):
                        if name != "__pycache__":
                            waiting.append(one.path)
                    elif not name.endswith(".pyc") and name not in passing:
                        seen = one.stat(follow_symlinks=False)
                        found.append(f"{one.path} ({seen.st_size} {seen.st_mtime_ns} {seen.st_ino} {seen.st_mode})")
        except OSError as error:
            found.append(f"{here} ({error.errno})")
    return found, links


def _leads_elsewhere(path: str) -> bool:
    """True for a file of paths that puts a folder on the path."""
    lines = (line.strip() for line in _content(path).decode("utf-8", "replace").splitlines())
    return path.endswith(".egg-link") or any(line and not line.startswith(("#", "import ", "import\t")) for line in lines)


def _state(path: str) -> tuple[object, ...]:
    try:
        seen = os.stat(path)
    except OSError:
        return ()
    return os.path.realpath(path), seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def _content(path: str) -> bytes:
    return _MACHINE.read_bytes(path, 0, _LARGEST) or b""


def digest(rows: Iterable[str]) -> bytes:
    """One sum of many rows."""
    return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogateescape")).digest()
