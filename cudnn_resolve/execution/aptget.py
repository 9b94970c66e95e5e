"""The apt part: real apt-get, simulated first, with exactly the planned versions, and nothing removed that the plan does not name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cudnn_resolve.errors import WorldError
from cudnn_resolve.facts.system import parse_os_release
from cudnn_resolve.host import disk
from cudnn_resolve.host.protocol import Host, which
from cudnn_resolve.host.run_tool import Tooling, ToolResult, run_tool
from cudnn_resolve.planning.tool_input import APT_NAME, APT_VERSION

if TYPE_CHECKING:
    from cudnn_resolve.execution.task import Task
    from cudnn_resolve.planning.model import AptAction

KEYRING = "usr/share/keyrings/cuda-archive-keyring.gpg"
"""Where the key of NVIDIA's repositories lies, below apt's root; the package `cuda-keyring` has it there too, so that the two never
contradict one another."""
_KEYS = ("7FA2AF80", "3BF863CC", "8793F200")
"""Ends of the keys with which NVIDIA signed until April 2022 (revoked since), signs now, and signs for Debian 13. Source: NVIDIA's notice
on rotated repository keys."""
_TIMEOUT_SECONDS = 120.0
_OPTIONS = ("-y", "-q", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0", "-o", "APT::Install-Suggests=0", "-o", "DPkg::Lock::Timeout=60")
_LINE = re.compile(r"^(Inst|Remv|Purg) (\S+)(?: \[([^\]]*)\])?(?: \((\S+))?", re.MULTILINE)
_UNFINISHED = re.compile(r"extended_states\.[A-Za-z0-9]{6}", re.ASCII)
_UNSIGNED = re.compile(r"(NO_PUBKEY|EXPKEYSIG|REVKEYSIG|KEYEXPIRED|is not signed|signatures couldn't be verified|were invalid)")


class Simulation(Struct, frozen=True, kw_only=True):
    """What apt-get says that it would do."""

    install: Mapping[str, str]
    """Package to version, further ones that come along included."""
    remove: tuple[str, ...]


class Apt(Struct, frozen=True, kw_only=True):
    """How apt is called on this machine."""

    host: Host
    program: str
    sudo: tuple[str, ...]
    """What stands before commands that need root: nothing, or `sudo -n`."""
    environ: Mapping[str, str]

    def argv(self, *words: str, root: bool = True) -> tuple[str, ...]:
        """A command; environment variables that apt must see are handed through sudo."""
        if not (root and self.sudo):
            return words
        handed = [f"{name}={self.environ[name]}" for name in ("APT_CONFIG", "DEBIAN_FRONTEND") if name in self.environ]
        return (*self.sudo, *(("env", *handed) if handed else ()), *words)

    def has(self, program: str) -> bool:
        """Return whether a program is on the PATH that commands of this apt see."""
        return which(self.host, program) is not None

    def run(self, tooling: Tooling, *words: str) -> ToolResult:
        """What became of a command that changes something; it is never torn off in the middle."""
        return run_tool(self.argv(*words), tooling, env=self.environ, outlives=True)

    def ask(self, *words: str) -> tuple[bool, str]:
        """Whether a command that changes nothing ended well, and what it said."""
        result = self.host.run(list(words), timeout_seconds=_TIMEOUT_SECONDS, env=self.environ)
        return result.ok, f"{result.stdout}\n{result.stderr}"


def dpkg(apt: Apt, tooling: Tooling, *words: str) -> ToolResult:
    """What became of a call of dpkg, with the options that apt itself gives to it, so that both speak of one system."""
    ok, text = apt.ask("apt-config", "dump", "--format", "%v%n", "DPkg::Options")
    options = [line.strip() for line in text.splitlines() if ok]
    options = [option for option in options if re.fullmatch(r"--[a-z-]+(?:=[^\s;|&]{1,400})?", option)]
    return apt.run(tooling, "dpkg", *options, *words)


def find_apt(host: Host) -> Apt | None:
    """How apt is called; None where there is no apt-get, or no root for it."""
    program = which(host, "apt-get")
    if program is None:
        return None
    environ = {**host.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "NEEDRESTART_MODE": "l"}
    if disk.is_root():
        return Apt(host=host, program=program, sudo=(), environ=environ)
    sudo = which(host, "sudo")
    if sudo is not None and host.run([sudo, "-n", "true"], timeout_seconds=10).ok:
        return Apt(host=host, program=program, sudo=(sudo, "-n"), environ=environ)
    return None


def require_apt(task: Task, host: Host) -> Apt:
    """How apt is called; WorldError with the commands for an administrator where this user cannot."""
    found = find_apt(host)
    if found is not None:
        return found
    if which(host, "apt-get") is None:
        raise WorldError(
            "this system has no apt-get, and the plan needs packages of the system: " + ", ".join(one.name for one in task.apt),
            code="no-apt",
            hint="nothing was changed; for packages in RPM form these are the commands:\n  " + "\n  ".join(rpm_commands(task, host))
            if which(host, "dnf") or which(host, "rpm")
            else "use --channel pip",
        )
    raise WorldError(
        "the packages of the system need root, and this user has none",
        code="needs-root",
        hint="hand these commands to an administrator, then run it again:\n  " + "\n  ".join(administrator_commands(task)),
    )


def administrator_commands(task: Task) -> list[str]:
    """The commands that bring the apt part about, for somebody who has root."""
    out = []
    for one in task.repositories:
        place = f"/etc/apt/sources.list.d/{one.list_name}"
        out += [
            f"curl -fsSL {shlex.quote(one.key_url)} | gpg --dearmor | sudo tee /{KEYRING} >/dev/null",
            f"gpg --show-keys /{KEYRING}  # must show {one.fingerprint}",
            f"echo {shlex.quote(one.entry(f'/{KEYRING}').strip())} | sudo tee {place}",
        ]
    out.append("sudo apt-get update")
    out.append(shlex.join(["sudo", "apt-get", "install", "-y", "--no-install-recommends", *_pins(task.apt)]))
    out.append(shlex.join(["sudo", "apt-mark", "hold", *(one.name for one in task.apt)]))
    return out


def _pins(packages: Iterable[AptAction]) -> list[str]:
    return [f"{one.name}={one.version}" for one in packages]


def update(apt: Apt, tooling: Tooling) -> None:
    """Update the lists of packages; WorldError where a repository cannot be reached, or is not signed by a known key."""
    result = apt.run(tooling, apt.program, "update", "-q", "-o", "APT::Update::Error-Mode=any")
    text = "\n".join(result.tail)
    if result.ok and not _UNSIGNED.search(text):
        return
    if any(key in text for key in _KEYS) or "NO_PUBKEY" in text:
        raise WorldError(
            "a repository is signed by a key that this system does not know, or that was revoked",
            code="apt-key",
            context=tooling.log,
            hint="NVIDIA's installation guide says how to install its present key",
        )
    raise WorldError(f"apt-get update failed: {result.why()}", code="apt-update", context=tooling.log)


def simulate(apt: Apt, packages: Sequence[AptAction], held: Iterable[str]) -> Simulation:
    """What apt-get would do for these packages; WorldError where it refuses, or would remove or hold back what nobody named."""
    ok, text = apt.ask(apt.program, "-s", *_install_words(packages, held))
    if not ok:
        raise WorldError(f"apt-get cannot do this: {_reason(text)}", code="apt-refuses", hint="nothing was changed")
    install: dict[str, str] = {}
    remove: list[str] = []
    for what, name, _, version in _LINE.findall(text):
        if what == "Inst":
            install[name.partition(":")[0]] = version
        else:
            remove.append(name.partition(":")[0])
    unnamed = [name for name in remove if name not in {one.name for one in packages}]
    if unnamed:
        raise WorldError(
            f"apt-get would remove {', '.join(unnamed)}, which the plan does not name",
            code="apt-removes",
            hint="nothing was changed; remove them yourself if you do not need them, or use --channel pip",
        )
    return Simulation(install=install, remove=tuple(remove))


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E:")]
    unmet = [line for line in lines if "Depends:" in line or "Conflicts:" in line or "Breaks:" in line]
    return "; ".join([*errors[:3], *unmet[:3]])[:600] or "no reason given"


def _install_words(packages: Sequence[AptAction], held: Iterable[str], *more: str) -> tuple[str, ...]:
    """The installation of exactly these versions; a held package moves only where the plan names that very package."""
    names = {one.name for one in packages}
    moved = ("--allow-change-held-packages",) if names & set(held) else ()
    down = ("--allow-downgrades",) if any(one.installed is not None for one in packages) else ()
    return ("install", *more, *_OPTIONS, *moved, *down, *_pins(packages))


def install(apt: Apt, packages: Sequence[AptAction], held: Iterable[str], tooling: Tooling) -> ToolResult:
    """What became of the installation of exactly these versions."""
    return apt.run(tooling, apt.program, *_install_words(packages, held, "-o", "Dpkg::Options::=--force-confold"))


def download(apt: Apt, packages: Sequence[AptAction], held: Iterable[str], tooling: Tooling) -> None:
    """Fetch every .deb into apt's own cache, its hash checked against the signed lists; WorldError where one cannot be had."""
    result = apt.run(tooling, apt.program, *_install_words(packages, held, "--download-only"))
    if not result.ok:
        raise WorldError(f"apt-get could not fetch the packages: {result.why()}", code="apt-download", context=tooling.log)


def download_size(apt: Apt, pin: str) -> int | None:
    """Bytes of the .deb of `name=version`, as the signed lists say; None where no repository has it."""
    ok, text = apt.ask(apt.program, "download", "--print-uris", "-q", pin)
    found = re.search(r"^'[^'\n]+' \S+ ([0-9]{1,15})(?: |$)", text, re.MULTILINE) if ok else None
    return int(found[1]) if found else None


def marked(apt: Apt, how: Literal["hold", "auto"]) -> set[str]:
    """Names of packages that are held, or that came along with others and that `apt-get autoremove` may take away with them."""
    ok, text = apt.ask("apt-mark", f"show{how}")
    return {line.strip() for line in text.splitlines() if APT_NAME.fullmatch(line.strip())} if ok else set()


def installed_versions(apt: Apt) -> dict[str, str]:
    """Installed packages and their versions, as dpkg has them."""
    return {name: version for name, status, version in _rows(apt) if status == "i" and APT_VERSION.fullmatch(version)}


def present_packages(apt: Apt) -> set[str]:
    """Names of packages of which any file may be there, half installed ones too."""
    return {name for name, status, _ in _rows(apt) if status not in "nc"}


def half_installed(apt: Apt) -> set[str]:
    """Names of packages that a dpkg which was killed was just unpacking or removing."""
    return {name for name, status, _ in _rows(apt) if status == "H"}


def _rows(apt: Apt) -> Iterator[tuple[str, str, str]]:
    """Name, state and version of every package that dpkg knows; the state is the second letter that `dpkg -l` shows."""
    ok, text = apt.ask("dpkg-query", *_admin(apt), "-W", "-f", "${db:Status-Abbrev}\t${Package}\t${Version}\n")
    for line in text.splitlines() if ok else ():
        status, _, rest = line.partition("\t")
        name, _, version = rest.partition("\t")
        if len(status) > 1 and APT_NAME.fullmatch(name):
            yield name, status[1], version


def archives(apt: Apt) -> str:
    """The folder into which apt fetches packages."""
    return configured(apt, "Dir::Cache::archives/d", "/var/cache/apt/archives")


def configured(apt: Apt, what: str, default: str) -> str:
    """A path of apt's configuration; `what` ends in `/d` for a folder and in `/f` for a file."""
    ok, text = apt.ask("apt-config", "shell", "FOUND", what)
    found = re.search(r"^FOUND='(/[^'\n]*)'$", text, re.MULTILINE) if ok else None
    return found[1].rstrip("/") if found else default


def deb_files(versions: Mapping[str, str], folder: str) -> dict[str, str]:
    """Package to the name of its file in the folder, of those that have one there."""
    out = {}
    names = disk.names_in(folder)
    for name, version in versions.items():
        wanted = re.compile(re.escape(f"{name}_{version.replace(':', '%3a')}_") + r"[a-z0-9]+\.deb", re.ASCII)
        found = [one for one in names if wanted.fullmatch(one) and disk.kind(f"{folder}/{one}") == "file"]
        if found:
            out[name] = found[0]
    return out


def _admin(apt: Apt) -> tuple[str, ...]:
    """Where apt's dpkg keeps its state, for a program that does not ask apt."""
    folder, _, name = configured(apt, "Dir::State::status/f", "").rpartition("/")
    return ("--admindir", folder) if name == "status" else ()


def unfinished_files(apt: Apt) -> tuple[str, ...]:
    """Files that an apt which was killed left beside its own list of marks."""
    folder = configured(apt, "Dir::State/d", "/var/lib/apt")
    return tuple(f"{folder}/{name}" for name in disk.names_in(folder) if _UNFINISHED.fullmatch(name))


def purge(apt: Apt, names: Sequence[str], tooling: Tooling) -> ToolResult:
    """What became of the removal of packages, half installed ones too."""
    return dpkg(apt, tooling, "--force-remove-reinstreq", "--purge", *names)


def forget_unfinished(apt: Apt, before: Iterable[str], tooling: Tooling) -> None:
    """Remove what a kill left half written, except for what was there before."""
    gone = set(unfinished_files(apt)) - set(before)
    if gone:
        apt.run(tooling, "rm", "-f", "--", *sorted(gone))


_REBUILDS = ("rhel", "centos", "rocky", "almalinux", "ol")
"""Systems that take NVIDIA's packages for Red Hat Enterprise Linux."""
_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)


def rpm_name(name: str, version: str) -> str:
    """The RPM package of an apt package, `libcudnn8-8.9.7.29-1.cuda12.2` for `libcudnn8` `8.9.7.29-1+cuda12.2`."""
    renamed = re.sub(r"-dev(?=-|$)", "-devel", name)
    return f"{renamed}-{version.replace('+', '.')}"


def rpm_commands(task: Task, host: Host) -> list[str]:
    """What brings the system's packages of a task about on this system, for a shell; NVIDIA's repository first."""
    names = [rpm_name(one.name, one.version) for one in task.apt]
    system = _system(host)
    known = []
    if system is not None:
        place = f"https://developer.download.nvidia.com/compute/cuda/repos/{system}/$(uname -m | sed s/aarch64/sbsa/)/cuda-{system}.repo"
        known = [f'sudo curl -fsSLo /etc/yum.repos.d/cuda-{system}.repo "{place}"']
    return [*known, shlex.join(["sudo", "dnf", "install", *names]), shlex.join(["sudo", "dnf", "versionlock", "add", *names])]


def _system(host: Host) -> str | None:
    """How NVIDIA calls this system in the addresses of its repositories: `rhel9`, `fedora41`, `amzn2023`; None where that is not known."""
    said = parse_os_release(host.read_text("/etc/os-release") or host.read_text("/usr/lib/os-release") or "")
    name = "rhel" if said.get("ID") in _REBUILDS else said.get("ID", "")
    major = said.get("VERSION_ID", "").partition(".")[0]
    return f"{name}{major}" if name in ("rhel", "fedora", "amzn") and _NUMBER.fullmatch(major) else None
