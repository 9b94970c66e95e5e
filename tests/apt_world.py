"""A system of its own for apt: its own directories, its own dpkg database, and a signed repository on disk with NVIDIA's names."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cudnn_resolve.execution.environment import ask_environment
from cudnn_resolve.execution.journal_store import Journals
from cudnn_resolve.execution.task import Task, Work
from cudnn_resolve.host.environment_mutex import hold
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.planning.model import AptAction, AptRepository
from tests.gpg_home import gpg_home

NEEDED = ("apt-get", "apt-mark", "apt-config", "dpkg", "dpkg-deb", "gpg", "gpgv")


def missing_tools() -> list[str]:
    """Programs that these tests need and that this machine lacks."""
    return [name for name in NEEDED if shutil.which(name) is None]


class AptWorld:
    """A root directory for apt, and repositories beside it; `like` gives its keys and a copy of its repository."""

    def __init__(self, base: Path, *, like: AptWorld | None = None) -> None:
        self.base = base
        self.root = base / "root"
        self.repository = base / "repository"
        self.keyring = self.root / "usr/share/keyrings/cuda-archive-keyring.gpg"
        self._like = like  # its keys go with it
        self.gnupg: Path = gpg_home(self) if like is None else like.gnupg
        for folder in (
            "etc/apt/apt.conf.d",
            "etc/apt/preferences.d",
            "etc/apt/sources.list.d",
            "etc/apt/trusted.gpg.d",
            "usr/share/keyrings",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/lib/dpkg/triggers",
            "var/log/apt",
        ):
            (self.root / folder).mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").touch()
        if like is None:
            self.repository.mkdir()
        else:
            shutil.copytree(like.repository, self.repository)
        self.config = base / "apt.conf"
        self.config.write_text(
            f'Dir "{self.root}/";\nDir::State::status "{self.root}/var/lib/dpkg/status";\nAPT::Sandbox::User "root";\n'
            f'DPkg::Options {{ "--root={self.root}"; "--force-not-root"; "--force-script-chrootless"; "--log={base}/dpkg.log"; }};\n'
            'APT::Architecture "amd64";\nAcquire::Languages "none";\nDebug::NoLocking "true";\n'
        )
        self.key: str = self.make_key("NVIDIA stand-in") if like is None else like.key

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "APT_CONFIG": str(self.config), "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}

    def make_key(self, name: str) -> str:
        """The fingerprint of a key of that name, made where there is none yet."""
        if f":{name}:" not in self._gpg("--list-keys", "--with-colons"):
            self._gpg("--batch", "--passphrase", "", "--quick-generate-key", name, "ed25519", "sign", "never")
        listed = self._gpg("--list-keys", "--with-colons", name)
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))

    def _gpg(self, *words: str, data: bytes | None = None) -> str:
        done = subprocess.run(["gpg", "--homedir", str(self.gnupg), *words], input=data, capture_output=True, check=True)
        return done.stdout.decode("utf-8", "replace")

    def export(self, key: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._gpg("--yes", "--output", str(path), "--export", key)

    def package(
        self,
        name: str,
        version: str,
        *,
        depends: str = "",
        conflicts: str = "",
        files: dict[str, str] | None = None,
        folder: Path | None = None,
    ) -> Path:
        """A .deb in the repository (or in another folder)."""
        where = folder or self.repository
        tree = self.base / "build" / f"{name}-{version}"
        shutil.rmtree(tree, ignore_errors=True)
        (tree / "DEBIAN").mkdir(parents=True)
        architecture = "amd64"
        control = f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: a test\nDescription: a stand-in\n"
        control += f"Depends: {depends}\n" if depends else ""
        control += f"Conflicts: {conflicts}\n" if conflicts else ""
        (tree / "DEBIAN/control").write_text(control)
        for path, text in (files or {f"usr/lib/x86_64-linux-gnu/{name}.txt": version}).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        where.mkdir(exist_ok=True)
        target = where / f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", str(tree), str(target)], check=True, capture_output=True)
        return target

    def publish(self, key: str | None = None) -> None:
        """Writes the lists of the repository and signs them."""
        stanzas = []
        for deb in sorted(self.repository.glob("*.deb")):
            control = subprocess.run(["dpkg-deb", "-f", str(deb)], check=True, capture_output=True, text=True).stdout.strip()
            content = deb.read_bytes()
            stanzas.append(f"{control}\nFilename: ./{deb.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n")
        packages = "\n".join(stanzas).encode()
        (self.repository / "Packages").write_bytes(packages)
        (self.repository / "Packages.gz").write_bytes(gzip.compress(packages))
        rows = []
        for name in ("Packages", "Packages.gz"):
            content = (self.repository / name).read_bytes()
            rows.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}")
        release = (
            "Origin: NVIDIA\nLabel: NVIDIA CUDA\nArchitectures: amd64 all\nDate: Sat, 21 Nov 2026 00:00:00 UTC\nSHA256:\n"
            + "\n".join(rows)
            + "\n"
        )
        (self.repository / "InRelease").unlink(missing_ok=True)
        self._gpg(
            "--yes", "--local-user", key or self.key, "--output", str(self.repository / "InRelease"), "--clearsign", data=release.encode()
        )

    def entry(self, *, signed: bool = True) -> str:
        """The line of sources.list."""
        option = f"[signed-by={self.keyring}] " if signed else ""
        return f"deb {option}file:{self.repository} ./\n"

    def know(self) -> None:
        """The repository and its key are known, as the system's own."""
        self.export(self.key, self.keyring)
        (self.root / "etc/apt/sources.list.d/cuda-standin.list").write_text(self.entry())

    def unknown(self, key: str | None = None) -> AptRepository:
        """The repository as the matrix describes it, with its public key beside its packages; `key` publishes another one."""
        path = self.repository / "standin.pub"
        self._gpg("--yes", "--armor", "--output", str(path), "--export", key or self.key)
        return AptRepository(name="standin", url=f"{self.repository.as_uri()}/", key_url=path.as_uri(), fingerprint=self.key)

    def tear(self, name: str, *, renamed: int = 0) -> None:
        """Lets dpkg be killed while it unpacks the third file of that package; `renamed` of them are in their place by then."""
        tool, folder = self.base / "bin" / "dpkg-deb", self.root / "usr/lib/x86_64-linux-gnu"
        tool.parent.mkdir(exist_ok=True)
        real = shutil.which("dpkg-deb")
        tool.write_text(
            f"""#!/bin/sh
case "$1 $2" in "--fsys-tarfile "*/{name}_*)
    rm -- "$0"  # once
    {real} "$@" | head -c {4 * 512 + 2 * 1024 + 512}  # four folders, two files, and what stands before the third one
    cd {folder}
    tries=0
    until [ "$(ls | grep -c dpkg-new)" = 3 ] || [ $tries -gt 3000 ]; do sleep 0.01; tries=$((tries + 1)); done
    for one in $(ls | grep dpkg-new | head -n {renamed}); do mv "$one" "${{one%.dpkg-new}}"; done
    kill -9 $PPID
    exit 1
esac
exec {real} "$@"
"""
        )
        tool.chmod(0o755)
        with self.config.open("a") as file:
            file.write(f'DPkg::Path "{tool.parent}:{os.environ["PATH"]}:/usr/sbin:/sbin";\n')

    def apt(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(words),
            env={**self.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            check=False,
        )

    def installed(self) -> dict[str, str]:
        """Package to version and state."""
        done = self.apt("dpkg-query", f"--admindir={self.root}/var/lib/dpkg", "-W", "-f", "${Package} ${Version} ${Status}\n")
        return {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in done.stdout.splitlines() if "not-installed" not in line}

    def automatic(self) -> list[str]:
        """Packages that count as having come along with others."""
        return self.apt("apt-mark", "showauto").stdout.split()

    def files(self) -> dict[str, str]:
        """Files of packages and of apt's configuration, with their content's sums."""
        out = {}
        for folder in ("usr", "etc"):
            for path in sorted((self.root / folder).rglob("*")):
                if path.is_file():
                    out[str(path.relative_to(self.root))] = hashlib.sha256(path.read_bytes()).hexdigest()
        return out


def work_on(world: AptWorld, tmp_path: Path) -> Work:
    host = LinuxHost(environ=world.environ)
    environment = ask_environment(host, sys.executable)
    taken = hold(str(tmp_path))
    assert taken is not None
    return Work(host=host, journals=Journals(environment, str(tmp_path / "state")), hold=taken)


def task_for(*pairs: tuple[str, str], repositories: tuple[AptRepository, ...] = ()) -> Task:
    apt = tuple(AptAction(name=name, version=version, repository="ubuntu2204") for name, version in pairs)
    return Task(targets=("tensorflow==2.15",), apt=apt, repositories=repositories)
