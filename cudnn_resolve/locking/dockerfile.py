"""What a Dockerfile installs, on the image that it starts from; what is not understood is said, and nothing is run."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.install_lines import Installs
from cudnn_resolve.locking.listing import Listed, Reading
from cudnn_resolve.locking.shell_lines import LONGEST_LINE, LONGEST_TEXT, run_line, take_settings
from cudnn_resolve.matrix.toml import texts
from cudnn_resolve.requirement.file import Reader


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
    files = _Files(reading.open, reading.where)
    reading.open = files.read
    chain, image = [len(stages) - 1], stages[-1].image
    while image in names and names[image] < chain[-1]:
        chain.append(names[image])
        image = stages[chain[-1]].image
    installs = Installs(reading)
    _start(image, installs)
    for number in reversed(chain):
        for step in stages[number].steps:
            files.take(step)
            _carry_out(step, installs)
    reading.partial = True
    yield from installs.rows()


_BIND = re.compile(r"--mount=(?=\S*\btype=bind\b)(?=\S*\b(?:source|src)=([^,\s]+))(?=\S*\b(?:target|dst|destination)=([^,\s]+))")
_UPWARDS = ("", "../", "../../", "../../../")
"""From the folder of the Dockerfile to that of the build, which is not written in it."""


class _Files:
    """The files of the image that are known: those that the Dockerfile writes, and those that it copies from beside it."""

    def __init__(self, open_: Reader | None, where: str) -> None:
        self._open = open_
        self._where = where
        self._folder = "/"
        self._written: dict[str, _Step] = {}
        self._copied: list[tuple[str, str]] = []
        """Path in the image, and beside the Dockerfile, of a file or a folder; the last one first."""
        self._left = 10 * LONGEST_TEXT

    def take(self, step: _Step) -> None:
        """Note what a step does to the files."""
        if step.name == "WRITE":
            path, _, text = step.rest.partition("\n")
            self._written[path] = _Step(step.line, path, text)
        elif step.name == "WORKDIR":
            self._folder = posixpath.join(self._folder, step.rest.strip("\"'"))
        elif step.name in ("COPY", "ADD") and "--from=" not in step.rest:
            *sources, target = [word.strip("\"',[]") for word in step.rest.split() if not word.startswith("--")] or [""]
            for source in sources:
                own = posixpath.join(target, posixpath.basename(source))
                self._copy(source, target)
                self._copy(source, own)
        elif step.name == "RUN":
            for source, target in _BIND.findall(step.rest):
                self._copy(source, target)

    def _copy(self, source: str, target: str) -> None:
        self._copied.insert(0, (self._path(target), posixpath.normpath(source.lstrip("/") or ".")))

    def _path(self, name: str) -> str:
        return posixpath.normpath(posixpath.join(self._folder, name))

    def read(self, name: str, base: str | None) -> tuple[str, str]:
        """The path beside the Dockerfile and the text of a file; InputError where it is not known."""
        if found := self._written.get(name):
            text = "\n" * found.line + found.rest  # its lines have the numbers that they have in the Dockerfile
            self._left -= len(text)
            if self._left < 0:
                raise InputError("too much is read from here-documents", code="unreadable")
            return self._where, text
        if self._open is None:
            raise InputError("no other file is read", code="unreadable")
        path = self._path(name)
        places = [posixpath.join(own, path[len(target) :].strip("/")).rstrip("/") for target, own in self._copied if _is_in(path, target)]
        if base is not None and base != self._where:  # a file that another one names, beside it
            places.insert(0, name)
        for place in dict.fromkeys((*places, name.lstrip("/"), name.rpartition("/")[2])):
            for up in _UPWARDS:
                with suppress(InputError):
                    return self._open(up + place, base)
        raise InputError("no such file lies beside the Dockerfile, nor where the build may start", code="unreadable")


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _stages(text: str, reading: Reading) -> tuple[list[_Stage], dict[str, int]]:
    """The stages, and their numbers by name; variables have their default values."""
    left = LONGEST_TEXT
    stages: list[_Stage] = []
    names: dict[str, int] = {}
    known = dict(_platform(reading.arch))
    for step in _steps(text):
        if step.name == "WRITE" and stages:
            stages[-1].steps.append(step)
            continue
        rest = _expanded(step.rest, known, min(left, LONGEST_LINE))
        if rest is None:
            reading.gap(f"not followed: line {step.line} ({step.name[:20]} and more than {min(left, LONGEST_LINE)} characters)")
            continue
        left -= len(rest)
        if step.name == "FROM":
            words = [word for word in rest.split() if not word.startswith("--")]
            if len(words) == 3 and words[1].upper() == "AS":
                names.setdefault(words[2], len(stages))
            stages.append(_Stage(words[0] if words else "", []))
        elif step.name in ("ARG", "ENV"):
            _set(rest, known, keep=step.name == "ARG")
            if stages:
                stages[-1].steps.append(_Step(step.line, "ENV", rest))
        elif stages:
            stages[-1].steps.append(_Step(step.line, step.name, rest))
    return stages or [_Stage("", [])], names


def _platform(arch: str) -> Iterator[tuple[str, str]]:
    """The variables that BuildKit sets."""
    name = {"x86_64": "amd64", "aarch64": "arm64"}.get(arch, arch)
    for of in ("TARGET", "BUILD"):
        yield from ((f"{of}PLATFORM", f"linux/{name}"), (f"{of}OS", "linux"), (f"{of}ARCH", name))


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


_INSTALLERS_ALONE = re.compile(r"--from=\S+(?:\s+--\S+)*(?:\s+/(?:\S*/)?uvx?)+\s+\S+$")
"""What is copied are programs that install, and bring no package themselves."""


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
    elif step.name in ("CMD", "ENTRYPOINT") and re.search(r"\buv\W+run\b", step.rest):
        run_line(" ".join(re.findall(r"[^\s\"',\[\]]+", step.rest)), installs, step.line)
    elif step.name == "ENV":
        take_settings(step.rest, installs.reading)
    elif step.name in ("COPY", "ADD") and (found := re.search(r"--from=(\S+)", step.rest)) and not _INSTALLERS_ALONE.search(step.rest):
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
