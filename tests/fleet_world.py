"""Hosts on loopback for `fleet`: each is an sshd in a root and a mount namespace of its own, with a Python and a stand-in driver."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.native.build import build_library
from tests.program import Done, run
from tests.small_wheels import write_wheel

CARDS = {
    "a100": ("NVIDIA A100-SXM4-40GB", "8.0", "550.54.15", "12040"),
    "t4": ("Tesla T4", "7.5", "535.183.01", "12020"),
    "v100": ("Tesla V100-SXM2-16GB", "7.0", "470.256.02", "11040"),
    "h100": ("NVIDIA H100 80GB HBM3", "9.0", "560.35.03", "12060"),
}
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


class Kind(Struct, frozen=True, kw_only=True):
    """What a host is."""

    card: str
    python: str = sys.executable
    read_only: bool = False
    """Its /opt."""
    variables: tuple[str, ...] = ()
    """Further ones, `NAME=value`."""
    password: str | None = None
    """People log in as `admin`, and become root by it."""


class Machine:
    """One host: its root, its port and its sshd."""

    def __init__(self, root: Path, kind: Kind, port: int) -> None:
        self.root, self.kind, self.port = root, kind, port
        self.sshd: subprocess.Popen[bytes] | None = None
        self.said: list[str] = []
        """The variables of its programs."""

    def start(self, key: Path) -> None:
        """Make the root and start the sshd in it."""
        for name in ("etc/ssh", "root/.ssh", "opt", "tmp", "run/sshd", "var/empty", "dev", "proc", "usr", "driver", "pybin"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (self.root / name).symlink_to(f"usr/{name}")
        (self.root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n")
        (self.root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
        (self.root / "etc/shadow").write_text("root:*:1::::::\nsshd:*:1::::::\n")
        shutil.copy("/etc/os-release", self.root / "etc/os-release")
        shutil.copy("/etc/ld.so.cache", self.root / "etc/ld.so.cache")
        shutil.copy(key, self.root / "etc/ssh/key")
        shutil.copy(f"{key}.pub", self.root / "root/.ssh/authorized_keys")
        (self.root / "root").chmod(0o700)
        real = Path(os.path.realpath(self.kind.python))
        (self.root / "pybin/python3").symlink_to(real)
        card, capability, driver, cuda = CARDS[self.kind.card]
        self.said = [
            "PATH=/pybin:/usr/bin:/bin",
            "LD_LIBRARY_PATH=/driver",
            f"STANDIN_DRIVER={driver}",
            f"STANDIN_CUDA={cuda}",
            f"STANDIN_GPUS='{card}|{capability}|40960|GPU-{self.port:08d}-0000-0000-0000-000000000000'",
            *self.kind.variables,
        ]
        if self.kind.password is not None:
            self._admit(self.kind.password)
        config = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            "HostKey /etc/ssh/key",
            "PermitRootLogin yes",
            "StrictModes no",
            "UsePAM no",
            "PidFile none",
            "Subsystem sftp internal-sftp",
            "SetEnv " + " ".join(f'"{one}"' for one in self.said),
        ]
        (self.root / "etc/ssh/sshd_config").write_text("\n".join(config).replace("'", "") + "\n")
        base = str(real.parent.parent)  # at the same path: its libraries are found by it
        binds = [("/usr", "usr", True), ("/dev", "dev", False), ("/proc", "proc", False)]
        if base != "/usr":
            (self.root / base.strip("/")).mkdir(parents=True, exist_ok=True)
            binds.append((base, base.strip("/"), True))
        lines = [f"mount --bind '{self.root}' '{self.root}'"]
        for source, target, is_fixed in binds:
            lines.append(f"mount --rbind '{source}' '{self.root}/{target}'")
            if is_fixed:
                lines.append(f"mount -o remount,bind,ro '{self.root}/{target}'")
        if self.kind.read_only:
            lines += [f"mount --bind '{self.root}/opt' '{self.root}/opt'", f"mount -o remount,bind,ro '{self.root}/opt'"]
        lines.append(f"exec chroot '{self.root}' /usr/sbin/sshd -D -f /etc/ssh/sshd_config")
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join(lines)]
        with (self.root / "log").open("wb") as log:
            self.sshd = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)

    def _admit(self, password: str) -> None:
        """Let `admin` in, who becomes root by a password."""
        argv = ["openssl", "passwd", "-6", "-stdin"]
        hashed = subprocess.run(argv, input=password, capture_output=True, text=True, check=True).stdout.strip()
        for name, line in (
            ("passwd", "admin:x:1000:1000::/home/admin:/bin/sh"),
            ("group", "admin:x:1000:"),
            ("shadow", f"admin:{hashed}:19000::::::"),
            ("sudoers", "Defaults lecture=never, passwd_tries=1, env_file=/etc/said\nadmin ALL=(ALL) ALL"),
            ("said", "\n".join(self.said)),
        ):
            with (self.root / "etc" / name).open("a") as stream:
                stream.write(line + "\n")
        (self.root / "etc/sudoers").chmod(0o440)
        (self.root / "etc/pam.d").mkdir()
        (self.root / "etc/pam.d/sudo").write_text("".join(f"{kind} required pam_unix.so\n" for kind in ("auth", "account", "session")))
        shutil.copytree(self.root / "root/.ssh", self.root / "home/admin/.ssh")
        for path in (self.root / "home/admin", *(self.root / "home/admin").rglob("*")):
            os.chown(path, 1000, 1000)

    def wait(self) -> None:
        """Wait until it listens."""
        for _ in range(200):
            with socket.socket() as asking:
                if asking.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.sshd is not None
            assert self.sshd.poll() is None, (self.root / "log").read_text()
            time.sleep(0.05)
        raise AssertionError((self.root / "log").read_text())

    def stop(self) -> None:
        """End the sshd and whatever runs in its root."""
        if self.sshd is not None:
            self.kill()
            self.sshd.kill()
            self.sshd.wait()

    def kill(self) -> int:
        """Kill every program in the root but the sshd that listens, as when the power fails; how many there were."""
        count = 0
        for name in os.listdir("/proc"):
            if name.isdigit() and self.sshd is not None and int(name) != self.sshd.pid:
                try:
                    if os.readlink(os.path.join("/proc", name, "root")) == str(self.root):
                        os.kill(int(name), signal.SIGKILL)
                        count += 1
                except OSError:
                    continue
        return count

    def versions(self, path: str = "opt/dl") -> list[str]:
        """The packages of an environment on it."""
        found = (self.root / path).glob("lib/python3.*/site-packages/*.dist-info")
        return sorted(one.name.removesuffix(".dist-info") for one in found if not one.name.startswith(("pip-", "setuptools-")))


class Fleet:
    """Several machines and the folder of their administrator."""

    def __init__(self, base: Path, kinds: dict[str, Kind]) -> None:
        self.base = base
        self._sockets = tempfile.TemporaryDirectory(prefix="cp-", dir="/tmp")  # the path of a socket has 108 bytes
        base.mkdir(parents=True, exist_ok=True)
        self.key = base / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        libraries = base / "driver"
        for source, soname in (("standin_nvml.c", "libnvidia-ml.so.1"), ("standin_cuda.c", "libcuda.so.1")):
            build_library(source, libraries, soname)
        ports = free_ports(len(kinds) + 1)
        self.closed = ports.pop()
        self.machines = {name: Machine(base / "hosts" / name, kind, port) for (name, kind), port in zip(kinds.items(), ports, strict=True)}
        for one in self.machines.values():
            one.start(self.key)
            for path in libraries.iterdir():
                shutil.copy(path, one.root / "driver" / path.name)
        for one in self.machines.values():
            one.wait()
        become = " ansible_user=admin ansible_become=true"
        lines = [f"{name} ansible_port={one.port}{become if one.kind.password else ''}" for name, one in self.machines.items()]
        common = f"ansible_host=127.0.0.1 ansible_user=root ansible_ssh_private_key_file={self.key}"
        strict = f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={base}/known"
        self.inventory = base / "hosts.ini"
        self.inventory.write_text(
            "\n".join(["[gpu]", *lines, "", "[gpu:vars]", *common.split(), f"ansible_ssh_common_args='{strict}'", ""])
        )

    @property
    def environ(self) -> dict[str, str]:
        own = {"XDG_STATE_HOME": str(self.base / "state"), "XDG_CACHE_HOME": str(self.base / "cache"), "ANSIBLE_HOME": str(self.base / "a")}
        short = {
            "ANSIBLE_SSH_CONTROL_PATH_DIR": self._sockets.name,
            "ANSIBLE_TIMEOUT": "20",
            "ANSIBLE_FORKS": "4",
        }
        return {**os.environ, **own, **short}

    def __call__(self, verb: str, *words: str) -> Done:
        """The command of the administrator."""
        return run("fleet", verb, "-i", str(self.inventory), *words, environ=self.environ, cwd=self.base)

    def stop(self) -> None:
        """End every machine."""
        for one in self.machines.values():
            one.stop()
        self._sockets.cleanup()


def lock(base: Path, *packages: tuple[str, str]) -> None:
    """A lock of freshly made wheels."""
    lines = ['lock-version = "1.0"', 'created-by = "a test"', ""]
    for name, version in packages:
        file = write_wheel(base / "wheels", name, version)
        known = f'{{name = "{file.filename}", path = "wheels/{file.filename}", hashes = {{sha256 = "{file.hashes["sha256"]}"}}}}'
        lines += ["[[packages]]", f'name = "{name}"', f'version = "{version}"', f"wheels = [{known}]", ""]
    (base / "pylock.toml").write_text("\n".join(lines))


def outcomes(done: Done) -> dict[str, str]:
    """What is said of each host."""
    found: dict[str, Any] = json.loads(done.stdout)
    told = {one["host"]: one["status"] for group in found["classes"] for one in group.get("outcomes", ())}
    return {**told, **{one["host"]: "fault" for one in found["faults"]}}


@contextmanager
def processes() -> Iterator[list[bytes]]:
    """The command lines of all processes that are seen meanwhile; whole once it is over."""
    known: set[bytes] = set()
    seen: list[bytes] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for name in filter(str.isdigit, os.listdir("/proc")):
                with suppress(OSError):
                    known.add(Path("/proc", name, "cmdline").read_bytes())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
        seen.extend(known)


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
