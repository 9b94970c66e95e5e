"""What remedies for driver, GPU, containers and memory need from a log: versions, sizes, the started container, the shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.log_stack import compilers, cuda_of_driver, driver_of, image_of
from cudnn_resolve.diagnosis.model import Case, Match, of_symptom, values_of
from cudnn_resolve.diagnosis.specifier import within
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.version import Capability, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.symptom import Cause

_SIZE = r"(\d{1,6}(?:\.\d{1,4})?) ?([KMGT])i?B"
_ASKED = rf"(?i)\b(?:allocate|allocating) (?:of )?(?:{_SIZE}|(\d{{4,16}})(?: ?bytes| \(|$))"
_TOTAL = rf"(?i){_SIZE} total capacity|total capacit?y of {_SIZE}"
_OWN = rf"(?i){_SIZE} (?:already allocated|reserved in total|is allocated by PyTorch)|this process has {_SIZE} memory in use"
_OTHERS = rf"\bProcess \d{{1,9}} has {_SIZE} memory in use"
_UNUSED = rf"(?i){_SIZE} is reserved by PyTorch but unallocated"
_UNITS = {"K": 2**-20, "M": 2**-10, "G": 1.0, "T": 2.0**10}
_OLDEST_CUDA = (8, 0)
"""Oldest CUDA of a known build of a framework."""
_ONE_CUPY = 11
"""First CUDA major with one package of CuPy for all its minors, such as cupy-cuda11x."""
_MUCH = 8.0
"""GiB in one allocation that few GPUs have free beside a model."""
_MOST = 0.9
_OWN_SHARE = 0.6
"""Share of the GPU's memory from which a program's own use is why it is full."""
_FREE_SHARE = 0.1
"""Share reserved in pieces from which another way to reserve it helps."""
_PROMPT = r"(?:[^\n]{0,120}[$#>%!] ?)?(?:sudo )?"
_STARTED = re.compile(_PROMPT + r"(docker|podman|nerdctl) ((?:container )?run)(?= )([^\n]{1,400})$")
_STARTED_IN_SIF = re.compile(_PROMPT + r"(singularity|apptainer) (run|exec|shell)(?= )(.{1,400})$")
_HARMLESS_WORDS = re.compile(r"(?:[\w\s./:=,@+~%*\"'{}-]|\$(?:\(pwd\)|\{\w+\}|(?=\w)))+")
"""A command without anything that starts another one, redirects, or goes on in the next line."""
_CONTAINER = re.compile(r"(?:^|\s)\w{1,32}@([0-9a-f]{12}):[/~]\S{0,80}[#$]")
_POD = re.compile(
    r"(?:(?:^|\s)\w{1,32}@(?=[a-z][a-z0-9.-]{1,60}-(?:[a-z0-9]{5}|\d{1,3}):[/~]\S{0,80}[#$])|\bkubectl exec (?:-[it]{1,2} ){0,2})"
    r"([a-z][a-z0-9.-]{1,70})(?=[: ])"
)
"""Prompt in a pod, whose name ends as its controller made it, or a command in one of the default namespace."""
_UNSUPPORTED = re.compile(r"(?:Unsupported gpu architecture|Value) '(?:compute|sm)_(\d{1,2})(\d)[af]?'(?!.{0,30}'gpu-name)")
_STANDARDS = "C++14 needs CUDA 9.0, C++17 11.0, C++20 12.0"
"""First CUDA whose nvcc compiles a standard."""
_EXPORT = re.compile(r"export((?: [A-Z_]{2,60}=(?:[\w.:+-]{1,80}|\"[\w.:+ -]{1,80}\")){1,3})")
_PUT = re.compile(r"export ([A-Z_]{2,60})=([\w./+-]{1,200}(?::[\w./+-]{1,200}){0,5})(?::\$\1)?")
_JOURNAL = re.compile(r"^[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d [\w.-]{1,60} (ollama|jellyfin|jupyterhub|localai|frigate)\[\d{1,8}\]: ")
"""Prefix of a line of the system's journal that a service wrote."""
_BEFORE_COMMAND = re.compile(r"^([A-Z_]{2,60})=([\w.:=+-]{1,80}) (?=\S)")
"""Variable that a shell, but not that of Windows, sets for one command."""
_SET = re.compile(r'(?<![\w-])set (?:"([A-Z_]{2,60})=([^"]*)"|([A-Z_]{2,60})=(.{1,200}?)(?= ?&& |$))')
"""Setting of a variable in cmd.exe."""
_IN_POWERSHELL = (
    (re.compile(r"\(if not exist (\S+) mkdir \1\)"), r"mkdir -Force \1"),
    (re.compile(r"%(\w{2,40})%"), r"$env:\1"),
    (re.compile(r"(?<![\w-])where (?=/r |\S{1,40}\.dll)"), "where.exe "),
    (re.compile(r" ?&&? "), "; "),
    (re.compile(r"(?<=; )path$"), "$env:PATH"),
)
"""Other parts of commands for cmd.exe, and what Windows PowerShell, in which `where` is another command, has in their place."""
_UNSET = re.compile(r"unset ([A-Z_]{2,60})")
_LINUX_ONLY = r"\$LD_|LD_DEBUG|ldconfig|/proc/|/dev/|systemctl|grep|\$CUDA_"
"""Parts of commands that Windows does not have."""
LINUX = frozenset({"wsl", "docker", "hosted-notebook"})
NOT_PYTHON = frozenset({"java", "r-torch", "r-language", "other-language", "julia", "rust-libtorch", "standalone", "native-program"})
"""Features of programs that take nothing from a Python environment: in other languages, or with a Python of their own."""
_IMAGE = frozenset({"image-system"})
"""Feature of a system that is updated as a whole; its containers are not."""
_NOT_APT = frozenset({"nixos", "other-linux", "macos"}) | _IMAGE
"""Features of systems without apt and dnf."""
_OF_PYTHON = r"\bpip3? |-m pip\b|\bcudnn-resolve (?:apply|plan)\b"
_MACOS, _NOT_MACOS = frozenset({"macos"}), r"\b(?:nvidia-smi|ldconfig|ldd|lspci|dmesg|modprobe|systemctl)\b|/proc/"
"""Parts of commands that macOS does not have."""
_OF_SUDO, _OF_CONDA = r"^sudo ", r"^conda install\b"
_OF_APT = r"\b(?:apt|apt-(?:get|cache|file)|ubuntu-drivers|dpkg|dpkg-query|dnf|akmods)\b"
_FOREIGN = (
    (NOT_PYTHON, _OF_PYTHON),
    (_NOT_APT, _OF_APT),
    (_MACOS, _NOT_MACOS),
    (frozenset({"on-windows"}), _OF_SUDO),
    (frozenset({"in-venv"}), _OF_CONDA),
)
"""Features of a system or environment, and parts of commands that it does not have."""
_KEY_OF_RPM = "rpm's database (sudo rpm --import ADDRESS, or sudo zypper --gpg-auto-import-keys refresh)"
_KEY_OF_APT = "the file that `signed-by` in its list names, readable for all"
_INSIDE = frozenset({"docker", "hosted-notebook", "kubernetes", "singularity"})
"""Features of a place that has no kernel log of its own."""
_MODULE_BRANCH = re.compile(r"\bnvidia_(\d{3})(?:_uvm)?\b")
"""Name of a module on Ubuntu before 18.04, whose packages are named `nvidia-367`."""
_OF_FIELDS = ("lxd", "kmod_stream", "fabric_branch")
"""Fields of messages that are also features."""
_LAST_BRANCHES = frozenset({"340", "390", "470"})
"""Branches of the driver that are the last for some GPUs."""
_PART_BRANCH = re.compile(r"\.so\.(\d{3})\.\d")
"""Branch in the name of a part of the driver."""
_SPLIT = 390
"""First branch whose parts are packages of their own on Ubuntu, such as `libnvidia-compute-390`; before, one was `nvidia-375`."""
_WITH_CUDNN_5 = ("1.2", "1.3")
"""Releases of JavaCPP whose artifacts are for cuDNN 5 and may not name one."""
_PLACED = ("row_bus", "module_release", "mmcv_dir", "mmcv_release", "started_script")
"""Fields of lines that only describe the machine, for commands."""
_OLDEST_OF_CONDA, _NEWEST_OF_CONDA = 9, 11
"""Major versions of CUDA that conda has as `cudatoolkit`."""
_MUCH_HELD = 1024
"""MiB from which a program is why a GPU is full."""
_MOK = (
    (r"\bublue-os\b|\bbazzite\b|\bprojectbluefin\b", "/etc/pki/akmods/certs/akmods-ublue.der"),
    (r"\bakmods?\b|\brpm-ostree\b", "/etc/pki/akmods/certs/public_key.der"),
    (r"\bzypper\b|opensuse|-g0\d-kmp-", "/usr/share/nvidia-pubkeys/*.der"),
    (r"(?<![-:/])\bubuntu\b|\dubuntu\d|\d-generic\b", "/var/lib/shim-signed/mok/MOK.der"),
    (r"\bdebian\b|[+~]deb\d|\.el\d{1,2}\b|\b(?:rhel|centos|rocky|alma)\w{0,5}\d", "/var/lib/dkms/mok.pub"),
)
"""Words of each system, and the key with which it signs the modules that it builds."""
_MOK_UNKNOWN = "/var/lib/shim-signed/mok/MOK.der"
_MOK_ELSE = "; this file is Ubuntu's: elsewhere DKMS has /var/lib/dkms/mok.pub, akmods /etc/pki/akmods/certs/public_key.der"
_SETTING = re.compile(r" ([A-Z_]{2,60})=(?:\"([^\"]*)\"|(\S+))")


def machine_features(case: Case, matches: Sequence[Match]) -> Iterator[str]:
    """Features of a finding: what is known of driver and GPU, and what fills the memory."""
    facts = case.facts
    told = any(isinstance(value, DriverVersion) for match in matches for value in match.fields.values())
    if told or driver_of(case) is not None or cuda_of_driver(case) is not None or (facts is not None and or_none(facts.driver) is not None):
        yield "driver-told"
    if (driver := driver_of(case)) is not None:
        yield "driver-branch"
        if str(driver).partition(".")[0] in _LAST_BRANCHES:
            yield "driver-legacy"
    if (newest := cuda_of_driver(case)) is not None and newest.parts[:2] < _OLDEST_CUDA and "guest" not in case.features:
        yield "driver-beyond"
    if case.features & {"windows", "wsl"}:
        yield "driver-of-windows"
    if len(set(case.context.capabilities)) == 1:
        yield "capability-told"
    if not case.context.capabilities:
        yield "gpu-untold"
    versions = [case.context.version(name) for name in ("tensorflow", "tensorflow-gpu")]
    if "before-2019" in case.features or any(within("<1.14", version) for version in versions):
        yield "growth-in-code"
    fields = {name for match in (*case.matches, *matches) for name in match.fields}
    yield from (name.replace("_", "-") for name in _OF_FIELDS if name in fields)
    yield from _memory(match.text for match in matches if match.symptom.cause == "out_of_memory")


def _branches(matches: Iterable[Match]) -> dict[str, str]:
    """Driver branches that messages name: of a module that does not load, of an older library, of the module beside that, of a part."""
    matches = list(matches)
    values: dict[str, str] = {}
    for hit in (hit for match in matches if match.symptom.cause == "driver_not_loaded" for hit in _MODULE_BRANCH.finditer(match.text)):
        values.setdefault("module_branch", hit[1])
    both = next((match.fields for match in matches if "dso" in match.fields), {})
    kept, old = (str(both.get(name, "")).partition(".")[0] for name in ("kernel", "dso"))
    parts = (_PART_BRANCH.search(str(part)) for part in values_of(matches, "part"))
    if (part := next((hit[1] for hit in parts if hit is not None), None)) is not None:
        values["old_part_branch" if int(part) < _SPLIT else "part_branch"] = part
    return values | ({"kept_branch": kept, "old_branch": old} if kept != old else {})


def machine_values(case: Case, matches: Sequence[Match]) -> dict[str, str]:
    """Fields of commands and sentences: GPU, driver, memory, and the container to start or restart."""
    values = {"start": start_of(case.matches, case.features), "container": "CONTAINER"}
    values["pod"] = next(values_of(matches, "pod"), "POD")
    last = max((match.line for match in matches), default=0)
    before = [match.text for match in sorted(case.matches, key=lambda match: match.line) if match.line <= last]
    for name, shape in (("container", _CONTAINER), ("pod", _POD)):
        values[name] = next((hit[1] for text in reversed(before) for hit in shape.finditer(text)), values[name])
    gpus = set(case.context.capabilities)
    if len(gpus) == 1:
        gpu = gpus.pop()
        arch = str(gpu).replace(".", "")
        virtual = "20" if arch == "21" else arch  # nvcc has no compute_21
        values |= {
            "gpu_capability": str(gpu),
            "gpu_arch": virtual,
            "gpu_gencode": f"arch=compute_{virtual},code=sm_{arch}",
            "gpu_toolkit": "a CUDA toolkit that still supports it",
        }
        row = case.book.architecture(gpu)
        if row is not None:
            values["gpu_cuda"] = row.cuda_first.line
        if row is not None and (newest := row.cuda_last) is not None:
            values |= {
                "gpu_last": newest.line,
                "gpu_toolkit": f"CUDA {newest.line} or older",
                "cupy_last": f"cupy-cuda{newest.line.replace('.', '') if newest.major < _ONE_CUPY else f'{newest.major}x'}",
            }
    for hit in (hit for match in matches for hit in _UNSUPPORTED.finditer(match.text)):
        row = case.book.architecture(Capability(int(hit[1]), int(hit[2])))
        if row is not None:
            values |= {"arch_asked": str(row.capability), "arch_first": row.cuda_first.line}
    nvcc = next((f"it is of CUDA {nvcc.line}; " for nvcc in compilers(case)), "")
    knows = "the message names what it needs" if any("supported on CUDA" in match.text for match in matches) else _STANDARDS
    knows = "nvcc knows {arch_asked} from CUDA {arch_first} on" if "arch_first" in values else knows
    values["compiler"] = nvcc + knows.format_map(values)
    values |= _branches(matches)
    lxd = next((match.fields for match in case.matches if "instance" in match.fields), {})
    values |= {name: str(lxd[name]) for name in ("lxd", "instance") if name in lxd}
    image = next((match.fields for match in of_symptom(case.matches, "container-driver-release")), {})
    values |= {name: str(image[field]) for name, field in (("driver_there", "found"), ("driver_wanted", "wanted")) if field in image}
    values |= {name: str(match.fields[name]) for match in case.matches for name in _PLACED if name in match.fields}
    values |= _holder(case.matches)
    served = cuda_of_driver(case) if "conda-prefix" in case.features else None
    if served is not None and _OLDEST_OF_CONDA <= served.major <= _NEWEST_OF_CONDA:
        values["conda_served"] = f"cudatoolkit={served.line}"
    values["last_branch"] = "; branch 470 is the last for this GPU" if "gpu-kepler" in case.features else ""
    values["java_cuda"] = _of_artifact(next(values_of(case.matches, "java_cuda"), None))
    values["gpu_service"] = "slurmd" if any("gres.conf" in match.text for match in matches) else "nvidia-persistenced"
    driver = driver_of(case)
    if driver is not None:
        values["driver_branch"] = str(driver).partition(".")[0]
        values.setdefault("part_branch", values["driver_branch"])
    sizes = (_asked(match.text) for match in matches)
    asked = max((size for size in sizes if size is not None), default=None)
    return values | ({"asked": f"{asked:.1f} GiB"} if asked is not None else {})


def _of_artifact(name: str | None) -> str:
    """CUDA and cuDNN of a JavaCPP artifact, `10.1-7.6-1.5`; the first ones do not name their cuDNN."""
    if name is None:
        return "as in cuda-10.1-7.6-1.5.2"
    cuda, *named, release = name.split("-")
    cudnn = named or ["5"][: release in _WITH_CUDNN_5]
    return ", cuDNN ".join((f"here CUDA {cuda}", *cudnn))


def _holder(matches: Iterable[Match]) -> dict[str, str]:
    """The program that holds most of the GPU's memory, of those that nvidia-smi lists in the log."""
    listed = [match.fields for match in matches if "mib" in match.fields]
    most = max(listed, key=lambda fields: int(fields["mib"]), default={"mib": "0"})
    if int(most["mib"]) < _MUCH_HELD:
        return {}
    return {"holder": f"{most['process']} (pid {most['pid']}, {most['mib']} MiB)", "pid": most["pid"]}


def system_values(case: Case, *, is_windows: bool) -> dict[str, str]:
    """Fields for the commands of the log's system."""
    is_old = any(re.search(r"\.el[67]\.|\b(?:centos|rhel)[67]/|\[Errno -?\d+\] repomd", match.text) for match in case.matches)
    autoinstall = f"ubuntu-drivers {'autoinstall' if 'before-2019' in case.features else 'install'}"
    is_debian = "debian" in case.features
    shown = "\n".join(match.text for match in case.matches).casefold()
    key = next((file for words, file in _MOK if re.search(words, shown)), None)
    cuda = next(values_of(case.matches, "virtual_cuda"), "12.4")
    return {
        "mok": key or _MOK_UNKNOWN,
        "mok_else": "" if key else _MOK_ELSE,
        "virtual_cuda": cuda if "." in cuda else f"{cuda[:-1]}.{cuda[-1]}",
        "grep": "findstr" if is_windows else "grep -i",
        "driver_install": "apt-get install linux-headers-$(dpkg --print-architecture) nvidia-driver" if is_debian else autoinstall,
        "on_system": "on Debian, with contrib, non-free and (from 12 on) non-free-firmware in its sources" if is_debian else "on Ubuntu",
        "key_place": _KEY_OF_RPM if {"rpm", "other-linux"} & case.features else _KEY_OF_APT,
        "in_build": "RUN " if "docker-build" in case.features else "",
        "rpm": "yum" if is_old else "dnf",
        "packager": ("yum" if is_old else "dnf") if "rpm" in case.features else "apt-get",
        "repoquery": "repoquery" if is_old else "dnf repoquery",
    }


def runs_on_windows(features: Collection[str]) -> bool:
    """True if a log is of Windows itself, not of a Linux in it or of a notebook's host."""
    return "windows" in features and not set(features) & LINUX


def start_of(matches: Iterable[Match], features: Collection[str]) -> str:
    """The command that started the log's container, with the GPU; without a whole, simple one, a command for its image, or `IMAGE`."""
    # Without the feature, a container that got the GPU was a test of another one.
    every = [match for match in matches if "docker-gpus" in features or not re.search(r"--gpus\b|--runtime[ =]nvidia\b", match.text)]
    for match in of_symptom(every, "context-container-start"):
        found = _STARTED.match(match.text) or _STARTED_IN_SIF.match(match.text)
        is_whole = not match.text.endswith("...") and ("singularity" in features or image_of([match]) != "IMAGE")
        if found is None or not is_whole or not _HARMLESS_WORDS.fullmatch(found[3]) or not _is_closed(found[3]):
            continue
        if "docker-gpus" in features:
            return f"{found[1]} {found[2]}{found[3].rstrip()}"
        if "jetson" in features:
            return f"{found[1]} {found[2]} --runtime nvidia{found[3].rstrip()}"
        option = {"podman": "--device nvidia.com/gpu=all", "singularity": "--nv", "apptainer": "--nv"}.get(found[1], "--gpus all")
        return f"{found[1]} {found[2]} {option}{found[3].rstrip()}"
    if "singularity" in features:
        return "singularity exec --nv IMAGE.sif nvidia-smi"
    if "podman" in features and "jetson" not in features:
        return f"podman run --device nvidia.com/gpu=all {image_of(every)}"
    option = "--runtime nvidia" if "jetson" in features else "--gpus all"
    return f"docker run {option} {image_of(every)}"


def _is_closed(words: str) -> bool:
    try:
        return len(shlex.split(words)) > 0
    except ValueError:
        return False


def in_shell(command: str, features: Collection[str], *, windows: bool) -> str:
    """The command in the form that the log's shell has: `set` on Windows, a magic command in a notebook."""
    settings = _EXPORT.fullmatch(command)
    pairs = [(hit[1], hit[2] or hit[3]) for hit in _SETTING.finditer(settings[1])] if settings is not None else []
    unset = _UNSET.fullmatch(command)
    if windows:
        command = re.sub("^sudo (?=nvidia-smi )", "", command)
        pairs += [(unset[1], "")] if unset is not None else []
        command = " && ".join(f'set "{name}={value}"' for name, value in pairs) or _BEFORE_COMMAND.sub(r'set "\1=\2" && ', command)
        return _in_powershell(command) if "powershell" in features else command
    if not set(features) & {"hosted-notebook", "ipython-cell"}:
        return command
    if unset is not None:
        return f"import os; os.environ.pop('{unset[1]}', None)"
    if not pairs:
        return command
    if len(pairs) == 1:
        return f"%env {pairs[0][0]}={pairs[0][1]}"
    return "import os; os.environ.update(" + ", ".join(f"{name}='{value}'" for name, value in pairs) + ")"


def _in_powershell(command: str) -> str:
    def assigned(hit: re.Match[str]) -> str:
        value = (hit[2] or hit[4] or "").replace('"', '`"')
        return f'$env:{hit[1] or hit[3]}="{value}"'

    command = _SET.sub(assigned, command)
    for part, there in _IN_POWERSHELL:
        command = part.sub(there, command)
    return command


def in_service(command: str, matches: Iterable[Match]) -> tuple[str, str] | None:
    """How the service that failed, which sees no variables of a shell, gets a setting: in words, and the command; None for no service."""
    units = {hit[1] for match in matches if (hit := _JOURNAL.match(match.shown))}
    put, taken = _PUT.fullmatch(command), _UNSET.fullmatch(command)
    unit = units.pop() if len(units) == 1 else None
    if unit is None or (put is None and taken is None):
        return None
    line = f"Environment={put[1]}={put[2]}" if put is not None else f"UnsetEnvironment={taken[1] if taken is not None else ''}"
    text = f"{unit} runs as a service: in the file that this opens, write [Service] and {line}, then sudo systemctl restart {unit}"
    return text, f"sudo systemctl edit {unit}"


def is_of_place(command: str, features: Collection[str]) -> bool:
    """False for a command of pip in a program of another language, and for a package manager or a program that the system does not have."""
    names = set(features) - ({"macos"} if set(features) & LINUX else set()) - (_IMAGE if set(features) & _INSIDE else set())
    names |= {"on-windows"} if runs_on_windows(features) else set()
    foreign = [words for some, words in _FOREIGN if some & names]
    return not any(re.search(words, command) for words in foreign)


def question(cause: Cause, features: Collection[str], *, windows: bool, python: str = "python") -> str | None:
    """The command that tells a cause from those that look alike, for the log's system; None if it has none."""
    command = cause.decide
    if windows:
        command = cause.decide_windows or command
        if command is not None and re.search(_LINUX_ONLY, command):
            command = " & ".join(part for part in command.split("; ") if not re.search(_LINUX_ONLY, part))
        command = _in_powershell(command) if command and "powershell" in features else command
    elif command is not None and set(features) & _INSIDE:
        command = "; ".join(part for part in command.split("; ") if not part.startswith("sudo "))
    between = " & " if windows else "; "
    command = between.join(part for part in (command or "").split(between) if is_of_place(part, features))
    if not command:
        return None
    command = re.sub(r"\bpython (?=-)", lambda _: f"{python} ", command)
    command += f" --python {python}" if command.startswith("cudnn-resolve ") and "/" in python else ""
    return f"!{command}" if not windows and set(features) & {"hosted-notebook", "ipython-cell"} else command


def _memory(lines: Iterable[str]) -> Iterator[str]:
    """What the sizes in messages tell: one allocation that is too large, or who has filled the memory."""
    for text in lines:
        asked, total = _asked(text), _largest(_TOTAL, text)
        own, others = _largest(_OWN, text) or 0.0, sum(_sizes(_OTHERS, text))
        if total and own + others > total:  # the program itself, by the number that it has outside its container
            others = 0.0
        if asked is not None and asked >= (_MOST * total if total else _MUCH):
            yield "memory-beyond"
        elif total and own >= _OWN_SHARE * total and others < _FREE_SHARE * total:
            yield "memory-own"
        unused = _largest(_UNUSED, text) or 0.0
        if asked is not None and total and unused > max(asked, _FREE_SHARE * total):
            yield "memory-fragments"


def _asked(text: str) -> float | None:
    """Size of the failed allocation, in GiB."""
    found = re.search(_ASKED, text)
    if found is None:
        return None
    return int(found[3]) / 2**30 if found[3] else float(found[1]) * _UNITS[found[2].upper()]


def _sizes(pattern: str, text: str) -> Iterator[float]:
    for found in re.finditer(pattern, text):
        parts = [part for part in found.groups() if part is not None]
        yield float(parts[0]) * _UNITS[parts[1].upper()]


def _largest(pattern: str, text: str) -> float | None:
    return max(_sizes(pattern, text), default=None)
