"""Call apt-get and dpkg: simulated first, with exactly the planned versions, removing nothing that the plan does not name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.facts.distribution import REBUILDS_OF_RHEL
from cudnn_resolve.facts.system import parse_os_release
from cudnn_resolve.host import disk
from cudnn_resolve.host.protocol import Host, which
from cudnn_resolve.host.run_tool import Tooling, ToolResult, run_tool
from cudnn_resolve.planning.tool_input import APT_NAME, APT_VERSION

if TYPE_CHECKING:
    from cudnn_resolve.execution.task import Task
    from cudnn_resolve.planning.model import AptAction

KEYRING = "usr/share/keyrings/cuda-archive-keyring.gpg"
"""Path of NVIDIA's repository key below apt's root; the package `cuda-keyring` uses the same, so the two cannot contradict each other."""
_NVIDIA_KEYS = ("7FA2AF80", "3BF863CC", "8793F200")
"""Ends of the keys that NVIDIA signed with until April 2022 (revoked since), signs with now, and signs with for Debian 13. Source: NVIDIA's
notice on rotated repository keys."""
_TIMEOUT_SECONDS = 120.0
_OPTIONS = ("-y", "-q", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0", "-o", "APT::Install-Suggests=0", "-o", "DPkg::Lock::Timeout=60")
_SIMULATED = re.compile(r"^(Inst|Remv|Purg) (\S+)(?: \[[^\]]*\])?(?: \((\S+))?", re.MULTILINE)
_UNFINISHED = re.compile(r"extended_states\.[A-Za-z0-9]{6}", re.ASCII)
_UNSIGNED = re.compile(r"(NO_PUBKEY|EXPKEYSIG|REVKEYSIG|KEYEXPIRED|is not signed|signatures couldn't be verified|were invalid)")


class Apt(Struct, frozen=True, kw_only=True):
    """How to call apt on this machine."""

    host: Host
    program: str
    sudo: tuple[str, ...]
    """Prefix of commands that need root: empty or `sudo -n`."""
    environ: Mapping[str, str]
    tooling: Tooling | None
    """Settings of the tools that it runs; None if it is only asked."""

    @property
    def log(self) -> str | None:
        """File to which the output of all that it runs is appended."""
        return self.tooling.log if self.tooling is not None else None

    def run(self, *words: str, cwd: str | None = None) -> ToolResult:
        """Run a command that changes something, as root; it is never interrupted."""
        assert self.tooling is not None, "it is only asked"
        if self.sudo:  # which drops environment variables that apt must see
            variables = [f"{name}={self.environ[name]}" for name in ("APT_CONFIG", "DEBIAN_FRONTEND") if name in self.environ]
            words = (*self.sudo, *(("env", *variables) if variables else ()), *words)
        return run_tool(words, replace(self.tooling, cwd=cwd or self.tooling.cwd), env=self.environ, outlives=True)

    def ask(self, *words: str) -> tuple[bool, str]:
        """Run a command that changes nothing; returns whether it succeeded, and its output."""
        result = self.host.run(list(words), timeout_seconds=_TIMEOUT_SECONDS, env=self.environ)
        return result.ok, f"{result.stdout}\n{result.stderr}"


def dpkg(apt: Apt, *words: str) -> ToolResult:
    """Run dpkg with the options that apt passes to it, so that both work on the same system."""
    ok, text = apt.ask("apt-config", "dump", "--format", "%v%n", "DPkg::Options")
    options = [line.strip() for line in text.splitlines() if ok]
    options = [option for option in options if re.fullmatch(r"--[a-z-]+(?:=[^\s;|&]{1,400})?", option)]
    return apt.run("dpkg", *options, *words)


def find_apt(host: Host, tooling: Tooling | None = None) -> Apt | None:
    """Return how to call apt; None without apt-get or without root."""
    program = which(host, "apt-get")
    if program is None:
        return None
    environ = {**host.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "NEEDRESTART_MODE": "l"}
    if disk.is_root():
        return Apt(host=host, program=program, sudo=(), environ=environ, tooling=tooling)
    sudo = which(host, "sudo")
    if sudo is not None and host.run([sudo, "-n", "true"], timeout_seconds=10).ok:
        return Apt(host=host, program=program, sudo=(sudo, "-n"), environ=environ, tooling=tooling)
    return None


def require_apt(task: Task, host: Host, tooling: Tooling | None = None) -> Apt:
    """Return how to call apt; raises WorldError with commands for an administrator if this user cannot."""
    apt = find_apt(host, tooling)
    if apt is not None:
        return apt
    if which(host, "apt-get") is None:
        hint = "use --channel pip"
        if which(host, "dnf") or which(host, "rpm"):
            hint = "nothing was changed; install the packages as RPMs with these commands:\n  " + "\n  ".join(rpm_commands(task, host))
        names = ", ".join(package.name for package in task.apt)
        raise WorldError(f"the plan needs system packages, but there is no apt-get: {names}", code="no-apt", hint=hint)
    raise WorldError(
        "the system packages need root, and this user is not root",
        code="needs-root",
        hint="hand these commands to an administrator, then repeat the command:\n  " + "\n  ".join(administrator_commands(task)),
    )


def administrator_commands(task: Task) -> list[str]:
    """Return the shell commands that install a task's apt packages, for somebody who has root."""
    commands = []
    for repository in task.repositories:
        source_list = f"/etc/apt/sources.list.d/{repository.list_name}"
        commands += [
            f"curl -fsSL {shlex.quote(repository.key_url)} | gpg --dearmor | sudo tee /{KEYRING} >/dev/null",
            f"gpg --show-keys /{KEYRING}  # must show {repository.fingerprint}",
            f"echo {shlex.quote(repository.entry(f'/{KEYRING}').strip())} | sudo tee {source_list}",
        ]
    pins = (package.pin for package in task.apt)
    names = (package.name for package in task.apt)
    commands.append("sudo apt-get update")
    commands.append(shlex.join(["sudo", "apt-get", "install", "-y", "--no-install-recommends", *pins]))
    commands.append(shlex.join(["sudo", "apt-mark", "hold", *names]))
    return commands


# ---- commands that change something


def update(apt: Apt) -> None:
    """Update the package lists; raises WorldError for an unreachable repository, or one that no known key signs."""
    result = apt.run(apt.program, "update", "-q", "-o", "APT::Update::Error-Mode=any")
    output = "\n".join(result.tail)
    if result.ok and not _UNSIGNED.search(output):
        return
    if any(key in output for key in _NVIDIA_KEYS) or "NO_PUBKEY" in output:
        raise WorldError(
            "a repository is signed with a key that this system does not know or that was revoked",
            code="apt-key",
            context=apt.log,
            hint="install NVIDIA's current key as described in its installation guide",
        )
    raise WorldError(f"apt-get update failed: {result.why()}", code="apt-update", context=apt.log)


def simulate(apt: Apt, packages: Sequence[AptAction], held: Iterable[str]) -> dict[str, str]:
    """Return the versions that apt-get would install, dependencies included.

    Raises WorldError if it refuses, or would remove a package that is not among `packages`.
    """
    ok, output = apt.ask(apt.program, "-s", *_install_words(packages, held))
    if not ok:
        raise WorldError(f"apt-get refuses: {_reason(output)}", code="apt-refuses", hint="nothing was changed")
    install: dict[str, str] = {}
    unnamed: list[str] = []
    named = {package.name for package in packages}
    for action, qualified, version in _SIMULATED.findall(output):
        name = qualified.partition(":")[0]
        if action == "Inst":
            install[name] = version
        elif name not in named:
            unnamed.append(name)
    if unnamed:
        raise WorldError(
            f"apt-get would remove {', '.join(unnamed)}, which the plan does not name",
            code="apt-removes",
            hint="nothing was changed; remove them yourself if you do not need them, or use --channel pip",
        )
    return install


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E:")]
    unmet = [line for line in lines if "Depends:" in line or "Conflicts:" in line or "Breaks:" in line]
    return "; ".join([*errors[:3], *unmet[:3]])[:600] or "no reason given"


def _install_words(packages: Sequence[AptAction], held: Iterable[str], *options: str) -> tuple[str, ...]:
    """Arguments that install exactly these versions; a held package may change only if the plan names it."""
    names = {package.name for package in packages}
    change_held = ("--allow-change-held-packages",) if names & set(held) else ()
    downgrade = ("--allow-downgrades",) if any(package.installed is not None for package in packages) else ()
    return ("install", *options, *_OPTIONS, *change_held, *downgrade, *(package.pin for package in packages))


def install(apt: Apt, packages: Sequence[AptAction], held: Iterable[str]) -> ToolResult:
    """Install exactly these versions."""
    return apt.run(apt.program, *_install_words(packages, held, "-o", "Dpkg::Options::=--force-confold"))


def download(apt: Apt, packages: Sequence[AptAction], held: Iterable[str]) -> None:
    """Download the .deb files into apt's own cache, which checks them against the signed lists; raises WorldError if one fails."""
    result = apt.run(apt.program, *_install_words(packages, held, "--download-only"))
    if not result.ok:
        raise WorldError(f"apt-get could not download the packages: {result.why()}", code="apt-download", context=apt.log)


def purge(apt: Apt, names: Sequence[str]) -> ToolResult:
    """Remove packages, half-installed ones too."""
    return dpkg(apt, "--force-remove-reinstreq", "--purge", *names)


# ---- questions


def download_size(apt: Apt, pin: str) -> int | None:
    """Return the size in bytes of the .deb of `name=version` from the signed lists; None if no repository has it."""
    ok, output = apt.ask(apt.program, "download", "--print-uris", "-q", pin)
    found = re.search(r"^'[^'\n]+' \S+ ([0-9]{1,15})(?: |$)", output, re.MULTILINE) if ok else None
    return int(found[1]) if found else None


def marked(apt: Apt, mark: Literal["hold", "auto"]) -> set[str]:
    """Return the packages that are held, or that were installed as dependencies and `apt-get autoremove` may remove."""
    ok, output = apt.ask("apt-mark", f"show{mark}")
    return {line.strip() for line in output.splitlines() if APT_NAME.fullmatch(line.strip())} if ok else set()


def installed_versions(apt: Apt) -> dict[str, str]:
    """Return the installed packages and their versions."""
    return {name: version for name, status, version in _dpkg_rows(apt) if status == "i" and APT_VERSION.fullmatch(version)}


def present_packages(apt: Apt) -> set[str]:
    """Return the packages that may have files on the disk, half-installed ones too."""
    return {name for name, status, _ in _dpkg_rows(apt) if status not in "nc"}


def half_installed(apt: Apt) -> set[str]:
    """Return the packages that a killed dpkg was unpacking or removing."""
    return {name for name, status, _ in _dpkg_rows(apt) if status == "H"}


def _dpkg_rows(apt: Apt) -> Iterator[tuple[str, str, str]]:
    """Name, status and version of every package that dpkg knows; the status is the second letter in `dpkg -l`."""
    ok, output = apt.ask("dpkg-query", *_admin_option(apt), "-W", "-f", "${db:Status-Abbrev}\t${Package}\t${Version}\n")
    for line in output.splitlines() if ok else ():
        status, _, rest = line.partition("\t")
        name, _, version = rest.partition("\t")
        if len(status) > 1 and APT_NAME.fullmatch(name):
            yield name, status[1], version


def _admin_option(apt: Apt) -> tuple[str, ...]:
    """Option that tells dpkg-query, which does not ask apt, where apt's dpkg keeps its state."""
    folder, _, name = configured(apt, "Dir::State::status/f", "").rpartition("/")
    return ("--admindir", folder) if name == "status" else ()


def configured(apt: Apt, option: str, default: str) -> str:
    """Return a path from apt's configuration; `option` ends in `/d` for a folder and in `/f` for a file."""
    ok, output = apt.ask("apt-config", "shell", "FOUND", option)
    found = re.search(r"^FOUND='(/[^'\n]*)'$", output, re.MULTILINE) if ok else None
    return found[1].rstrip("/") if found else default


def deb_files(versions: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the file names of the packages whose .deb is in a folder."""
    files = {}
    names = disk.names_in(folder)
    for package, version in versions.items():
        wanted = re.compile(re.escape(f"{package}_{version.replace(':', '%3a')}_") + r"[a-z0-9]+\.deb", re.ASCII)
        found = next((name for name in names if wanted.fullmatch(name) and disk.kind(f"{folder}/{name}") == "file"), None)
        if found is not None:
            files[package] = found
    return files


def unfinished_files(apt: Apt) -> tuple[str, ...]:
    """Return the temporary files that a killed apt left next to its list of marks."""
    folder = configured(apt, "Dir::State/d", "/var/lib/apt")
    return tuple(f"{folder}/{name}" for name in disk.names_in(folder) if _UNFINISHED.fullmatch(name))


def remove_unfinished_files(apt: Apt, before: Iterable[str]) -> None:
    """Remove temporary files that a killed apt left, except for those that existed before."""
    new = set(unfinished_files(apt)) - set(before)
    if new:
        apt.run("rm", "-f", "--", *sorted(new))


# ---- RPM: commands only

_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)


def rpm_name(name: str, version: str) -> str:
    """Return the RPM package for an apt package: `libcudnn8-8.9.7.29-1.cuda12.2` for `libcudnn8` `8.9.7.29-1+cuda12.2`."""
    renamed = re.sub(r"-dev(?=-|$)", "-devel", name)
    return f"{renamed}-{version.replace('+', '.')}"


def rpm_commands(task: Task, host: Host) -> list[str]:
    """Return the shell commands that install a task's system packages as RPMs, from NVIDIA's repository."""
    names = [rpm_name(package.name, package.version) for package in task.apt]
    system = _nvidia_system(host)
    commands = []
    if system is not None:
        url = f"https://developer.download.nvidia.com/compute/cuda/repos/{system}/$(uname -m | sed s/aarch64/sbsa/)/cuda-{system}.repo"
        commands.append(f'sudo curl -fsSLo /etc/yum.repos.d/cuda-{system}.repo "{url}"')
    commands.append(shlex.join(["sudo", "dnf", "install", *names]))
    commands.append(shlex.join(["sudo", "dnf", "versionlock", "add", *names]))
    return commands


def _nvidia_system(host: Host) -> str | None:
    """NVIDIA's name for this system in repository URLs: `rhel9`, `fedora41`, `amzn2023`; None if unknown."""
    release = parse_os_release(host.read_text("/etc/os-release") or host.read_text("/usr/lib/os-release") or "")
    name = "rhel" if release.get("ID") in REBUILDS_OF_RHEL else release.get("ID", "")
    major = release.get("VERSION_ID", "").partition(".")[0]
    return f"{name}{major}" if name in ("rhel", "fedora", "amzn") and _NUMBER.fullmatch(major) else None
