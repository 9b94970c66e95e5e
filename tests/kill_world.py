"""A world to kill `apply` in: the real command line, a lock of wheels on a loopback index, and if wanted apt in a root of its own.

The root is an overlay over this machine's (mounted in a mount namespace of the process that makes it, so the machine never sees it): real
apt-get, real dpkg, a signed repository on disk with NVIDIA's names that is not known yet, an older cuDNN that is held, and a list
without a key that stands in the way.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.apply_world import NEW, ROOT, ApplyWorld
from tests.apt_world import AptWorld
from tests.index_server import IndexServer, Served

OLD_DEB = "8.9.6.50-1+cuda12.2"
NEW_DEB = "8.9.7.29-1+cuda12.2"
DEBS = {"libcudnn8": NEW_DEB, "libcudnn8-dev": NEW_DEB, "libcudnn9-cuda-12": "9.3.0.75-1", "cuda-libraries-12-2": "12.2.2-1"}
_NUMBERED = re.compile(r"(\.disabled-by-cudnn-resolve-)[0-9]+$")
"""A second apply has another number."""
PINS = {**NEW, "tensorflow": "2.18.0"}  # which takes the place of tensorflow-gpu
_STALE = "deb https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/ /\n"
_UNTOLD = re.compile(
    r"var/(?:log|cache|tmp)/|var/lib/apt/(?:lists|periodic|mirrors)/|var/lib/dpkg/(?:lock|triggers/|tmp\.ci/|available|[a-z-]+-old$)"
    r"|etc/(?:ld\.so\.cache|[^/]*-)$|tmp/|root/|run/|dev/|proc/|home/|work/"
)
"""Logs, caches, backups and the scratch folder of apt and dpkg, and what this machine does beside."""
_CLONE_NEWNS, _MS_PRIVATE_REC, _MNT_DETACH = 0x20000, (1 << 18) | (1 << 14), 2


class KillWorld(ApplyWorld):
    """An environment, and a system where `apt` is said, that the command line changes; `served` is the index of the wheels."""

    def __init__(self, base: Path, installer: str, served: IndexServer, *, apt: bool = False, pins: Mapping[str, str] = PINS) -> None:
        super().__init__(base, installer)
        self.served = served
        self.pins = pins
        self.lock = base / "project" / "pylock.toml"
        self.system = System(base) if apt else None

    def build(self, *, modules: int = 24) -> None:
        """Everything, and the root where there is one."""
        for name in self.pins.keys() - NEW.keys():
            self.wheel(name, self.pins[name], modules)
        super().build(modules=modules)
        packages = []
        for name, version in self.pins.items():
            path = self.wheels / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
            file = self.served.add(name, Served(path.name, path.read_bytes(), None))
            url = f"{self.served.root}/files/{name}/{path.name}"
            packages.append(
                f'[[packages]]\nname = "{name}"\nversion = "{version}"\nindex = "{self.served.url}"\n'
                f'wheels = [{{name = "{path.name}", url = "{url}", size = {len(file.body)}, hashes = {{sha256 = "{file.digest}"}}}}]\n'
            )
        apt = ", ".join(f'{{name = "{name}", version = "{version}", repository = "standin"}}' for name, version in DEBS.items())
        tool = (
            '[tool.cudnn-resolve]\nschema = 1\ntargets = ["torch"]\n'
            f'python = "{sys.version_info[0]}.{sys.version_info[1]}"\nplatforms = ["linux_{os.uname().machine}"]\n'
            'frameworks = [{name = "torch", version = "2.6.0", variant = "cu124"}]\n'
            f"apt = [{apt if self.system else ''}]\n"
            'environment = [{kind = "preload", value = "torch", why = "a test"}]\n'
        )
        self.lock.parent.mkdir()
        self.lock.write_text("\n".join(['lock-version = "1.0"\ncreated-by = "a test"\n', *packages, tool]))
        if self.system is not None:
            self.system.build()

    def reset(self) -> None:
        super().reset()
        if self.system is not None:
            self.system.reset()

    def start(self, verb: str, *more: str) -> subprocess.Popen[str]:
        """`apply LOCK` or `apply --VERB`, in a session of its own."""
        words = [str(self.lock), "--installer", self.installer] if verb == "apply" else [f"--{verb}"]
        if self.system is not None:
            words += ["--matrix", str(self.system.tables)]
        argv = [sys.executable, "-m", "cudnn_resolve", "apply", "--python", self.python, "-q", "--yes", *words, *more]
        environ = {**self.environ(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"}
        inside = ["chroot", str(self.system.root)] if self.system is not None else []
        return subprocess.Popen(
            [*inside, *argv],
            env=environ,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Nothing; the program and everything that it started is dead, apt and dpkg too."""
        for _ in range(200):
            found = [one for one in _processes() if self._is_ours(one, process.pid)]
            for one in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            if not found:
                return
            time.sleep(0.002)
        raise RuntimeError("something does not die")

    def _is_ours(self, pid: int, session: int) -> bool:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if fields[0] in "ZX":
                return False
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            return int(fields[3]) == session or f"XDG_STATE_HOME={self.state}\0".encode() in environ
        except OSError:
            return False

    def planned(self) -> dict[str, str]:
        """What counts of the environment, with the lists of files less what holds times, and of the system."""
        found = super().planned()
        for path in self.site.glob("*.dist-info/RECORD"):
            rows = [row for row in path.read_text().splitlines() if ".pyc," not in row and "uv_cache.json" not in row]
            found[str(path.relative_to(self.venv))] = hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()
        return {**found, **(self.system.differences() if self.system is not None else {})}

    def former(self) -> dict[str, str]:
        """Every file of the environment, and what the system has become."""
        return {**super().former(), **(self.system.differences() if self.system is not None else {})}


class System:
    """An overlay over this machine's root with an apt world in it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = base / "root"
        self.tables = base / "tables"
        self._before = base / "before"
        self._layers = base / "layers"
        self._prepared = self._layers / "prepared"
        self._upper = self._layers / "upper"
        self._below = "/"
        _unshare()

    def build(self) -> None:
        """The repository, and the root as it is before an apply."""
        self.base.chmod(0o755)  # apt reads the repository as a user of its own
        for folder in (self.root, self._before, self._layers):
            folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", str(self._layers)], check=True)  # layers may not lie in one another
        world = AptWorld(self.base / "apt")
        for version in (OLD_DEB, NEW_DEB):
            files = {f"usr/lib/x86_64-linux-gnu/libcudnn{part}.so.8": f"{part} {version}\n" * 9000 for part in range(40)}
            world.package("libcudnn8", version, files=files)
            world.package("libcudnn8-dev", version, depends=f"libcudnn8 (= {version})")
        world.package(
            "libcudnn9-cuda-12", "9.3.0.75-1", files={f"usr/lib/x86_64-linux-gnu/libcudnn{n}.so.9": "9" * 9000 for n in range(40)}
        )
        world.package("cuda-libraries-12-2", "12.2.2-1", depends="cuda-cudart-12-2 (>= 12.2.140)")
        world.package("cuda-cudart-12-2", "12.2.140-1")
        world.keyring = Path("/usr/share/keyrings/cuda-archive-keyring.gpg")
        repository = world.unknown()
        world.publish()
        self.tables.mkdir()
        (self.tables / "apt").mkdir()
        release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
        name = f"{release['ID']}{release['VERSION_ID']}".replace('"', "")
        (self.tables / "apt" / "repository.toml").write_text(
            f'origin = "authored"\nrepository = [{{ os = "{name}", name = "standin", arch = "{os.uname().machine}", '
            f'url = "{repository.url}", key_file = "standin.pub", key = "{repository.fingerprint}", source = "a" }}]\n'
            '[source.a]\nwhere = "a test"\nread = "2026-11-21"\n'
        )
        self._mount(self._prepared)
        self._prepare(world)
        self._unmount(self.root)
        self._below = f"{self._prepared}:/"
        self._overlay(self._before, f"lowerdir={self._below}")

    def _prepare(self, world: AptWorld) -> None:
        """An older cuDNN that is held, half of it by itself; then the repository is forgotten."""
        lists = self.root / "etc/apt/sources.list.d"
        for path in (self.root / "etc/apt/sources.list", *lists.iterdir()):
            path.unlink(missing_ok=True)
        (lists / "standin.list").write_text(f"deb [trusted=yes] file:{world.repository} ./\n")
        for words in (
            "apt-get update -q",
            f"apt-get install -y -q --no-install-recommends libcudnn8-dev={OLD_DEB} libcudnn8={OLD_DEB}",
            "apt-mark auto libcudnn8",
            "apt-mark hold libcudnn8",
        ):
            done = subprocess.run(["chroot", str(self.root), *words.split()], capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
        (lists / "standin.list").unlink()
        (lists / "cuda.list").write_text(_STALE)
        shutil.rmtree(self.root / "var/lib/apt/lists")

    def reset(self) -> None:
        """The root is as it was before."""
        self._unmount(self.root)
        self._mount(self._upper)

    def _mount(self, upper: Path) -> None:
        work = self._layers / "work"
        for folder in (upper, work):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        self._overlay(self.root, f"lowerdir={self._below},upperdir={upper},workdir={work}")
        for path in (str(self.base), "/proc", "/dev"):
            subprocess.run(["mount", "--rbind" if path == "/dev" else "--bind", path, f"{self.root}{path}"], check=True)

    def _overlay(self, where: Path, options: str) -> None:
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(where)], check=True)

    def _unmount(self, where: Path) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        while where.is_mount():
            library.umount2(str(where).encode(), _MNT_DETACH)

    def differences(self) -> dict[str, str]:
        """Path to content of what is not as it was before; packages and marks instead of dpkg's and apt's own files."""
        found: dict[str, str] = {}
        self._compare("", found)
        for name, read in (("var/lib/dpkg/status", _stanzas), ("var/lib/apt/extended_states", _stanzas)):
            old, new = read(self._before / name), read(self.root / name)
            if name.endswith("extended_states"):
                there = _stanzas(self.root / "var/lib/dpkg/status")
                old, new = ({key: value for key, value in one.items() if key in there} for one in (old, new))
            found.pop(name, None)
            found |= {f"{name}: {key}": new.get(key, "gone") for key in {*old, *new} if old.get(key) != new.get(key)}
        return found

    def _compare(self, folder: str, found: dict[str, str]) -> None:
        """Only folders that the upper layer holds can differ."""
        upper, old, new = (root / folder for root in (self._upper, self._before, self.root))
        gone = {path.name for path in old.iterdir()} - {path.name for path in new.iterdir()} if old.is_dir() else set()
        names = {path.name for path in upper.iterdir()} | gone
        for name in sorted(names):
            path = f"{folder}/{name}".lstrip("/")
            if _UNTOLD.match(path) or _UNTOLD.match(f"{path}/"):
                continue
            if (new / name).is_dir() and not (new / name).is_symlink():
                if not (old / name).is_dir():
                    found[f"{path}/"] = "a new folder"
                self._compare(path, found)
                continue
            before, now = _content(old / name), _content(new / name)
            if before != now:
                found[_NUMBERED.sub(r"\1N", path)] = now


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    if path.is_dir():
        return "a folder"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "gone"


def _stanzas(path: Path) -> dict[str, str]:
    """Package to its stanza; one that is not installed at all does not count."""
    out = {}
    for text in path.read_text().split("\n\n") if path.exists() else ():
        name = re.search(r"^Package: (.*)$", text, re.MULTILINE)
        if name and "not-installed" not in text and "Auto-Installed: 0" not in text:
            out[name[1]] = json.dumps(sorted(text.strip().splitlines()))
    return out


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _unshare() -> None:
    """Nothing; mounts of this process are its own from now on, and go with it."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_CLONE_NEWNS) or library.mount(b"none", b"/", None, _MS_PRIVATE_REC, None):
        raise OSError(ctypes.get_errno(), "no mount namespace of its own can be had")
