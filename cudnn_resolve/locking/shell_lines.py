"""What a shell's lines install: the cells of a notebook, and a Dockerfile with the image that it starts from.

What is not understood is said; nothing is run.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.conda import read_specs
from cudnn_resolve.locking.install_lines import Installs, words_of
from cudnn_resolve.locking.listing import Listed, Open, Reading, dicts, texts

_PROGRAM = re.compile(r"(?:.*/)?(pip|python|\{sys\.executable\}|conda|mamba|micromamba|apt|apt-get|uv|poetry|pdm|pipenv)[\d.]*")
_ABOUT = re.compile(r"cudnn|cuda|torch|tensorflow|\bjax|nvidia", re.IGNORECASE)
_FETCHING = frozenset(
    {"wget", "curl", "dpkg", "yum", "dnf", "microdnf", "apk", "zypper", "sh", "bash", "cp", "ln", "tar", "pip-sync", "make"}
)
"""Programs that could bring libraries; of others nothing is said."""
_LOCKS = {"uv": "uv.lock", "poetry": "poetry.lock", "pdm": "pdm.lock", "pipenv": "Pipfile.lock"}
_BEFORE = re.compile(r"\w+=.*|--\w+=.*")
"""What stands before a program: variables, and options of RUN."""
_WORDS_BEFORE = frozenset({"if", "elif", "while", "until", "then", "do", "else", "{", "!", "-E"})
_WRAPPERS = {
    "sudo": {"-u", "-g", "-h", "-p", "-C", "-T", "--user", "--group"}, "env": {"-u", "-C", "--unset", "--chdir"}, "time": {"-f", "-o"},
    "nice": {"-n"}, "nohup": set(), "exec": {"-a"}, "command": set(),
}  # fmt: skip
"""Programs that run another one, and their options with a value."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "su"})
_DEEPEST = 3
"""Shells in shells that are followed."""
_LONGEST_LINE = 100_000
_LONGEST_TEXT = 400_000
"""Characters of all lines of a file, with the values of variables in their places."""
_WORTH = re.compile(r"pip|uv|conda|mamba|poetry|pdm|apt", re.IGNORECASE)
"""What a line has in it that this module could follow."""
_ENDS = re.compile(r"[();|&]+")
_REDIRECTS = re.compile(r"[();|&<>]*[<>][();|&<>]*")
_INSTALLER = re.compile(r"(?<!\w)(?:pip[\d.]*|uv|conda|mamba|micromamba|poetry|pdm|pipenv)(?![\w/])", re.IGNORECASE)
_INSTALLING = re.compile(r"(?<![\w/.-])(?:install|add|sync)(?![\w/.-])")
_NO_INSTALL = frozenset({"config", "list", "search", "clean", "init", "activate", "deactivate", "info", "remove", "uninstall"})
"""Commands of conda that install nothing."""


def run_line(text: str, installs: Installs, line: int | None, depth: int = 0) -> None:
    """Carry out what one line of a shell installs; what could install and is not understood is a gap."""
    reading = installs.reading
    if len(text) > _LONGEST_LINE:
        reading.gap(f"not followed: a line of {len(text)} characters")
        return
    if not (_WORTH.search(text) or _ABOUT.search(text)):  # splitting takes a while
        return
    try:
        words = words_of(text)
    except ValueError:
        if _ABOUT.search(text) or _could_install(text):
            reading.gap(f"not understood: {text.strip()[:60]}")
        return
    command: list[str] = []
    others: list[str] = []
    for word in (*words, ";"):
        if _ENDS.fullmatch(word):
            others += () if _run(command, installs, line, depth) else command
            command = []
        else:
            command.append(word)
    if _could_install(" ".join(others)):  # `$(which pip) install numpy`: no command alone says it
        reading.gap(f"not followed: {text.strip()[:80]}")


def _could_install(text: str) -> bool:
    """True where a text names an installer, and after it a command that installs."""
    found = _INSTALLER.search(text)
    return found is not None and _INSTALLING.search(text, found.end()) is not None


def _run(words: list[str], installs: Installs, line: int | None, depth: int) -> bool:
    """Carry out one command; False where nothing is known of it."""
    words = _arguments(words)
    program, rest = _program(words)
    if _carried_out(program, rest, installs, line, depth):
        return True
    text = " ".join(words)
    if _could_install(text) or (program in _FETCHING and _ABOUT.search(" ".join(rest))):
        installs.reading.gap(f"not followed: {text[:80]}")
        return True
    return False


def _carried_out(program: str, rest: list[str], installs: Installs, line: int | None, depth: int) -> bool:
    if program == "pip" or (program == "uv" and rest[:1] == ["add"]):
        return _pip(rest, installs, line)
    if program in ("conda", "mamba", "micromamba"):
        return _conda(rest, installs, line, depth)
    if program in ("apt", "apt-get"):
        _apt(rest, installs.reading)
        return True
    if program in _LOCKS and rest[:1] in (["sync"], ["install"]):
        installs.reading.gap(f"`{program} {rest[0]}` installs what {_LOCKS[program]} holds: check that file, too")
        return True
    if program in _LOCKS and rest[:1] in (["python"], ["tool"], ["self"]):  # what they bring is in no environment of the project
        return True
    at = next((at for at, word in enumerate(rest) if re.fullmatch(r"-[a-z]*c", word)), len(rest))
    if program in _SHELLS and at + 1 < len(rest) and depth < _DEEPEST:
        run_line(rest[at + 1], installs, line, depth + 1)
        return True
    return False


def _arguments(words: list[str]) -> list[str]:
    """The words without what is redirected: `torch>=2` without quotes writes the file `=2`, and `2>&1` names no package."""
    kept: list[str] = []
    left = iter(words)
    for word in left:
        if not _REDIRECTS.fullmatch(word):
            kept.append(word)
            continue
        if kept and re.fullmatch(r"\d", kept[-1]):
            kept.pop()
        if "(" in word or "(" in next(left, ""):  # the output of another command
            break
    return kept


def _program(words: list[str]) -> tuple[str, list[str]]:
    """The program that a command runs, `pip` however it is called, and its arguments."""
    words = _unwrapped(words)
    if not words:
        return "", []
    first = words[0]
    found = _PROGRAM.fullmatch(first)
    program, rest = (found[1] if found else first.rpartition("/")[2]), words[1:]
    if program in ("python", "{sys.executable}"):
        at = next((at for at, word in enumerate(rest) if not re.fullmatch(r"-[BEIOSsuv]+", word)), 0)
        if rest[at : at + 1] == ["-m"] and len(rest) > at + 1:
            program, rest = rest[at + 1], rest[at + 2 :]
    if program == "uv" and rest[:1] == ["pip"]:
        program, rest = "pip", rest[1:]
    return program, rest


def _unwrapped(words: list[str]) -> list[str]:
    """A command without what stands before its program: keywords of the shell, variables, programs that run it."""
    at = 0
    while at < len(words):
        options = _WRAPPERS.get(words[at])
        if options is not None:
            at += 1
            while at < len(words) and words[at].startswith("-"):
                at += 2 if words[at] in options else 1
        elif words[at] in _WORDS_BEFORE or _BEFORE.fullmatch(words[at]):
            at += 1
        else:
            break
    return words[at:]


def _pip(words: Sequence[str], installs: Installs, line: int | None) -> bool:
    unknown = next((word for word in words if re.search(r"\$\w|\$\{|\{\w+\}", word)), None)
    if unknown is not None:
        installs.reading.gap(f"not understood: {unknown[:60]}")
    return installs.pip([word for word in words if word != unknown], line)


def _conda(words: list[str], installs: Installs, line: int | None, depth: int) -> bool:
    command, rest = next(((word, words[at + 1 :]) for at, word in enumerate(words) if not word.startswith("-")), ("", []))
    if command == "run" and depth < _DEEPEST:
        at = 0
        while at < len(rest) and rest[at].startswith("-"):
            at += 2 if rest[at] in ("-n", "--name", "-p", "--prefix", "--cwd") else 1
        return _run(rest[at:], installs, line, depth + 1)
    if command == "env" or (command in ("create", "install", "update") and {"-f", "--file"} & set(rest)):
        installs.reading.gap(f"not followed: conda {' '.join(words)[:60]}: check that file, too")
        return True
    if command not in ("install", "create", "update"):
        return command in _NO_INSTALL
    specs, channels, words_left = [], [], iter(rest)
    for word in words_left:
        if word in ("-c", "--channel", "-n", "--name", "-p", "--prefix"):
            value = next(words_left, "")
            channels += [value] if word in ("-c", "--channel") else []
        elif not word.startswith("-"):
            specs.append(word)
    read_specs(specs, installs, dict.fromkeys(specs, line) if line is not None else {}, channels)
    return True


_APT_CUDA = re.compile(r"cuda-(?:toolkit|runtime|libraries|libraries-dev|cudart|minimal-build)-(\d{1,2})-(\d)(?:=.*)?")
_APT_CUDNN = re.compile(r"(?:lib)?cudnn(\d)(?:-cuda-\d+)?(?:=(\d+(?:\.\d+){1,3}).*)?")
_APT_PYTHON = re.compile(r"python(3\.\d{1,2})(?:=.*)?")


def _apt(words: Sequence[str], reading: Reading) -> None:
    if "install" not in words:
        return
    for word in words[words.index("install") + 1 :]:
        if found := _APT_CUDA.fullmatch(word):
            reading.on("apt", cuda=f"{found[1]}.{found[2]}")
        elif found := _APT_CUDNN.fullmatch(word):
            reading.on("apt", cudnn=found[2] or found[1])
        elif found := _APT_PYTHON.fullmatch(word):
            reading.on("apt", python=found[1])
        elif word.partition("=")[0] in ("cuda", "nvidia-cuda-toolkit", "nvidia-cudnn", "cudnn"):
            reading.gap(f"the version of the apt package {word.partition('=')[0]} is not known")


# ---- notebooks

_MAGIC = re.compile(r"\s*(?:!{1,2}|%)\s*(\S.*)|\s*((?:pip|conda|mamba)\s+(?:install|uninstall)\s.*)")
_CALL = re.compile(r"[\"']pip3?[\"']\s*,\s*[\"']install[\"']")
_SAID = re.compile(r"\s*(?:#.*|raise\b.*|print\(\s*f?(?:\"[^\"']*\"|'[^\"']*')\s*\)\s*)")
"""A line of Python that names an installer and runs none."""
_SHELL_CELL = re.compile(r"%%(?:bash|sh|script\s+(?:ba)?sh|shell|capture)\b")


def read_notebook(found: dict[str, Any], reading: Reading) -> Iterator[Listed]:
    """What the cells of a notebook install, in their order."""
    installs = Installs(reading)
    left = _LONGEST_TEXT
    for cell in dicts(found.get("cells")) or [one for sheet in dicts(found.get("worksheets")) for one in dicts(sheet.get("cells"))]:
        if cell.get("cell_type") != "code":
            continue
        source = cell.get("source", cell.get("input"))
        text = "".join(texts(source)) if isinstance(source, list) else str(source or "")
        lines = _joined(text)
        in_shell = bool(lines) and _SHELL_CELL.match(lines[0]) is not None and "capture" not in lines[0]
        for line in lines[1:] if in_shell else lines:
            magic = None if in_shell else _MAGIC.fullmatch(line)
            if in_shell or magic is not None:
                command = line if magic is None else magic[1] or magic[2]
                left -= len(command)
                if left >= 0:
                    run_line(command, installs, None)
                else:
                    reading.gap(f"not followed: lines of a shell after {_LONGEST_TEXT} characters of them")
            elif _could_install(line) and not _SAID.fullmatch(line):
                reading.gap(f"not followed: {line.strip()[:80]}")
        if (found_call := _CALL.search(text)) and "\n" in found_call[0]:
            reading.gap(f"not followed: {' '.join(found_call[0].split())[:80]}")
    reading.partial = True
    reading.note("a notebook runs on what its machine has already: `check --facts` judges that")
    yield from installs.rows()


def _joined(text: str) -> list[str]:
    return re.sub(r"\\[ \t]*\n", " ", text).split("\n")


# ---- Dockerfiles


class _Step(NamedTuple):
    line: int
    name: str
    rest: str


class _Stage(NamedTuple):
    image: str
    steps: list[_Step]


def read_dockerfile(text: str, reading: Reading) -> Iterator[Listed]:
    """What the last stage of a Dockerfile holds: its image, where that is known, and what its lines install."""
    stages, names = _stages(text, reading)
    written: dict[str, _Step] = {}
    reading.open = _beside(reading.open, written, reading.where)
    chain, image = [len(stages) - 1], stages[-1].image
    while image in names and names[image] < chain[-1]:
        chain.append(names[image])
        image = stages[chain[-1]].image
    installs = Installs(reading)
    _start(image, installs)
    for number in reversed(chain):
        for step in stages[number].steps:
            if step.name == "WRITE":
                path, _, text = step.rest.partition("\n")
                written[path] = _Step(step.line, path, text)
            else:
                _carry_out(step, installs)
    reading.partial = True
    yield from installs.rows()


def _beside(open_: Open | None, written: Mapping[str, _Step], where: str) -> Open:
    """Look for a file of the image in the Dockerfile, which may write it, and then beside it."""
    left = 10 * _LONGEST_TEXT

    def read(name: str, base: str | None) -> tuple[str, str]:
        nonlocal left
        if found := written.get(name):
            text = "\n" * found.line + found.rest  # its lines have the numbers that they have in the Dockerfile
            left -= len(text)
            if left < 0:
                raise InputError("too much is read from here-documents", code="unreadable")
            return where, text
        if open_ is None:
            raise InputError("no other file is read", code="unreadable")
        try:
            return open_(name.lstrip("/"), base)
        except InputError:
            return open_(name.rpartition("/")[2], base)

    return read


def _stages(text: str, reading: Reading) -> tuple[list[_Stage], dict[str, int]]:
    """The stages, and their numbers by name; variables have their default values."""
    left = _LONGEST_TEXT
    stages: list[_Stage] = []
    names: dict[str, int] = {}
    known: dict[str, str] = {}
    for step in _steps(text):
        if step.name == "WRITE" and stages:
            stages[-1].steps.append(step)
            continue
        rest = _expanded(step.rest, known, min(left, _LONGEST_LINE))
        if rest is None:
            reading.gap(f"not followed: line {step.line} ({step.name[:20]} and more than {min(left, _LONGEST_LINE)} characters)")
            continue
        left -= len(rest)
        if step.name == "FROM":
            words = [word for word in rest.split() if not word.startswith("--")]
            if len(words) == 3 and words[1].upper() == "AS":
                names.setdefault(words[2], len(stages))
            stages.append(_Stage(words[0] if words else "", []))
        elif step.name in ("ARG", "ENV"):
            _set(rest, known, keep=step.name == "ARG")
        elif stages:
            stages[-1].steps.append(_Step(step.line, step.name, rest))
    return stages or [_Stage("", [])], names


def _set(text: str, known: dict[str, str], *, keep: bool) -> None:
    pairs = re.findall(r"([A-Za-z_]\w*)=(?:\"([^\"]*)\"|'([^']*)'|(\S*))", text)
    for name, *values in pairs:
        if not (keep and name in known and not any(values)):
            known[name] = next(filter(None, values), "")
    if not pairs and len(words := text.split(maxsplit=1)) == 2:
        known[words[0]] = words[1]


_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::-([^}]*))?\}|([A-Za-z_]\w*))")


def _expanded(text: str, known: dict[str, str], longest: int) -> str | None:
    """The text with the variables that are known, once: what is in them is not looked into again; None where it gets too long."""
    parts: list[str] = []
    size, at = len(text), 0
    for found in _VARIABLE.finditer(text) if size <= longest else ():
        value = known.get(found[1] or found[3], found[2] or found[0])[:1000]
        parts += text[at : found.start()], value
        size, at = size + len(value) - len(found[0]), found.end()
        if size > longest:
            break
    return "".join((*parts, text[at:])) if size <= longest else None


def _steps(text: str) -> Iterator[_Step]:
    """Instructions with their lines: continuations joined, comments gone, each line of a here-document a step of its own.

    The here-document of COPY or ADD is a step WRITE: the path of its file, and below that the text.
    """
    lines = iter(enumerate(text.split("\n"), start=1))
    for number, line in lines:
        held = line.strip()
        if not held or held.startswith("#"):
            continue
        parts = []
        while held.endswith("\\"):
            parts.append(held[:-1])
            held = next((one.strip() for _, one in lines if one.strip() and not one.strip().startswith("#")), "")
        words = " ".join((*parts, held)).split(maxsplit=1)
        name, rest = words[0].upper(), words[1] if len(words) > 1 else ""
        document = re.search(r"<<-?\s*[\"']?(\w+)[\"']?", rest) if name in ("RUN", "COPY", "ADD") else None
        yield _Step(number, name, rest)
        if document is not None and name == "RUN":
            yield from _document(lines, document[1])
        elif document is not None:
            yield _Step(number, "WRITE", "\n".join((rest.split()[-1], *_until(document[1], lines))))


def _until(end: str, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    """The lines of a here-document as they stand there."""
    return (line for _, line in takewhile(lambda one: one[1].strip() != end, lines))


def _document(lines: Iterator[tuple[int, str]], end: str) -> Iterator[_Step]:
    """The lines of a here-document, continuations joined."""
    held: list[str] = []
    first = 0
    for number, line in lines:
        if line.strip() == end:
            break
        first = first if held else number
        held.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield _Step(first, "RUN", " ".join(held))
            held = []
    if held:
        yield _Step(first, "RUN", " ".join(held))


def _carry_out(step: _Step, installs: Installs) -> None:
    if step.name == "RUN":
        text = re.sub(r"^(?:--\S+\s+)+", "", step.rest)
        if text.startswith("["):
            try:
                text = shlex.join(texts(json.loads(text)))
            except (ValueError, RecursionError):
                installs.reading.gap(f"not understood: RUN {text[:60]}")
                return
        run_line(text, installs, step.line)
    elif step.name in ("COPY", "ADD") and (found := re.search(r"--from=(\S+)", step.rest)):
        installs.reading.gap(f"not followed: {step.name} --from={found[1][:40]}")


_CUDA_IMAGE = re.compile(r"(\d+\.\d+(?:\.\d+)?)-(?:cudnn(\d?)-)?(base|runtime|devel)-([a-z]+)([\d.]+)")
_TORCH_IMAGE = re.compile(r"(\d+\.\d+(?:\.\d+)?)-cuda(\d+\.\d+)-cudnn(\d)-(?:runtime|devel)")
_TENSORFLOW_IMAGE = re.compile(r"(\d+\.\d+\.\d+)(-gpu)?(?:-jupyter)?")
_CODENAMES = {
    "buster": "debian10", "bullseye": "debian11", "bookworm": "debian12", "trixie": "debian13",
    "focal": "ubuntu20.04", "jammy": "ubuntu22.04", "noble": "ubuntu24.04",
}  # fmt: skip
_PYTHONS = {
    "ubuntu18.04": "3.6", "ubuntu20.04": "3.8", "ubuntu22.04": "3.10", "ubuntu24.04": "3.12",
    "debian10": "3.7", "debian11": "3.9", "debian12": "3.11", "debian13": "3.13",
}  # fmt: skip
"""The Python of a distribution's own; source: their package archives."""
_CUDNN_OF = {  # by CUDA and the major; source: the Dockerfiles of NVIDIA's CUDA images, NV_CUDNN_VERSION
    "10.0/7": "7.6.5.32", "10.1/7": "7.6.5.32", "10.2/7": "7.6.5.32", "10.1/8": "8.0.5.39", "11.0.3/8": "8.0.5.39",
    "11.1.1/8": "8.0.5.39", "11.2.0/8": "8.1.1.33", "11.2.1/8": "8.1.1.33", "11.2.2/8": "8.1.1.33", "11.3.0/8": "8.2.0.53",
    "11.3.1/8": "8.2.1.32", "11.4.0/8": "8.2.4.15", "11.4.1/8": "8.2.4.15", "11.4.2/8": "8.2.4.15", "11.4.3/8": "8.2.4.15",
    "11.5.0/8": "8.3.3.40", "11.5.1/8": "8.3.3.40", "11.5.2/8": "8.3.3.40", "11.6.0/8": "8.4.0.27", "11.6.1/8": "8.4.0.27",
    "11.6.2/8": "8.4.0.27", "11.7.0/8": "8.5.0.96", "11.7.1/8": "8.5.0.96", "11.8.0/8": "8.9.6.50", "12.0.0/8": "8.8.0.121",
    "12.0.1/8": "8.8.0.121", "12.1.0/8": "8.9.0.131", "12.1.1/8": "8.9.0.131", "12.2.2/8": "8.9.6.50", "12.3.2/9": "9.0.0.312",
    "12.4.1/9": "9.1.0.70", "12.5.1/9": "9.2.1.18", "12.6.0/9": "9.3.0.75", "12.6.1/9": "9.3.0.75", "12.6.2/9": "9.5.0.50",
    "12.6.3/9": "9.5.1.17", "12.8.0/9": "9.7.0.66", "12.8.1/9": "9.8.0.87", "12.9.0/9": "9.9.0.52", "12.9.1/9": "9.10.2.21",
    "13.0.0/9": "9.12.0.46",
}  # fmt: skip


def _start(image: str, installs: Installs) -> None:
    """What an image holds before the first line."""
    reading = installs.reading
    name, _, tag = image.partition("@")[0].rpartition(":") if ":" in image.rpartition("/")[2] else (image.partition("@")[0], "", "latest")
    short = "/".join(name.split("/")[-2:])
    if short == "nvidia/cuda" and (found := _CUDA_IMAGE.fullmatch(tag)):
        _of_cuda(found, reading)
    elif short == "pytorch/pytorch" and (found := _TORCH_IMAGE.fullmatch(tag)):
        for row in reading.row("torch", found[1] + ("" if found[1].count(".") > 1 else ".0"), variants=(f"cu{found[2].replace('.', '')}",)):
            installs.put(row)
    elif short == "tensorflow/tensorflow" and (found := _TENSORFLOW_IMAGE.fullmatch(tag)):
        for row in reading.row("tensorflow", found[1], cuda=None if found[2] else "cpu"):
            installs.put(row)
        reading.on("apt", of="tensorflow" if found[2] else None)
    elif name.rpartition("/")[2] in ("ubuntu", "debian", "python"):
        _of_distribution(name.rpartition("/")[2], tag, reading)
    elif image != "scratch" and name.rpartition("/")[2] not in ("miniconda3", "micromamba", "miniforge3", "mambaforge"):
        reading.gap(f"what the image {image[:80] or '?'} holds is not known: `cudnn-resolve check` inside it says")


def _of_cuda(found: re.Match[str], reading: Reading) -> None:
    cuda, major, kind, name, release = found.groups()
    release = f"{release[:2]}.{release[2:]}" if name == "ubuntu" and "." not in release else release
    os = {"ubi": "rhel", "rockylinux": "rocky", "oraclelinux": "ol"}.get(name, name) + release
    cudnn = None
    if major is not None:
        major = major or "9"
        cudnn = _CUDNN_OF.get(f"{cuda}/{major}", major)
    reading.on("apt", os=os, python=_PYTHONS.get(os), cuda=cuda if kind != "base" else None, cudnn=cudnn)


def _of_distribution(name: str, tag: str, reading: Reading) -> None:
    parts = tag.split("-")
    os = next((_CODENAMES[part] for part in parts if part in _CODENAMES), None)
    if name == "python":
        version = parts[0] if re.fullmatch(r"3\.\d+(\.\d+)?", parts[0]) else None
        reading.on("apt", os=os, python=version)
        return
    os = os or (f"{name}{parts[0]}" if re.fullmatch(r"\d+(\.\d+)?", parts[0]) else None)
    reading.on("apt", os=os, python=_PYTHONS.get(os or ""))
