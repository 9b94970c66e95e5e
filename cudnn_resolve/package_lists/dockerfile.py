"""Simulate what a Dockerfile installs on its base image. Unsupported lines are reported, and nothing is executed."""

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
from cudnn_resolve.facts.distribution import CODENAMES, SYSTEM_PYTHON
from cudnn_resolve.matrix.toml import texts
from cudnn_resolve.package_lists.install_lines import SimulatedInstalls
from cudnn_resolve.package_lists.model import ListedPackage, ReadContext
from cudnn_resolve.package_lists.shell_lines import LONGEST_LINE, LONGEST_TEXT, note_settings, run_line
from cudnn_resolve.requirement.file import Reader


class _Step(NamedTuple):
    """One instruction with its line number."""

    line: int
    name: str
    rest: str


class _Stage(NamedTuple):
    """One stage of the build."""

    image: str
    steps: list[_Step]


def read_dockerfile(text: str, context: ReadContext) -> Iterator[ListedPackage]:
    """Packages in the last stage of a Dockerfile: of its base image, if that is known, and of its install lines."""
    stages, names = _stages(text, context)
    files = _ImageFiles(context.open, context.where)
    context.open = files.read
    chain, image = [len(stages) - 1], stages[-1].image
    while image in names and names[image] < chain[-1]:
        chain.append(names[image])
        image = stages[chain[-1]].image
    installs = SimulatedInstalls(context)
    _start(image, installs)
    for number in reversed(chain):
        for step in stages[number].steps:
            files.apply(step)
            _run_step(step, installs)
    context.partial = True
    yield from installs.packages()


_BIND = re.compile(r"--mount=(?=\S*\btype=bind\b)(?=\S*\b(?:source|src)=([^,\s]+))(?=\S*\b(?:target|dst|destination)=([^,\s]+))")
_PARENTS = ("", "../", "../../", "../../../")
"""From the folder of the Dockerfile to the build context, which a Dockerfile does not name."""


class _ImageFiles:
    """Known files of the image: those that the Dockerfile writes, and those that it copies from the build context."""

    def __init__(self, open_: Reader | None, where: str) -> None:
        self._open = open_
        self._where = where
        self._folder = "/"
        self._written: dict[str, _Step] = {}
        self._copied: list[tuple[str, str]] = []
        """Paths of files and folders in the image and in the build context, latest first."""
        self._left = 10 * LONGEST_TEXT
        """Characters of here-documents that may still be read."""

    def apply(self, step: _Step) -> None:
        """Record what a step does to the files."""
        if step.name == "WRITE":
            path, _, text = step.rest.partition("\n")
            self._written[path] = _Step(step.line, path, text)
        elif step.name == "WORKDIR":
            self._folder = posixpath.join(self._folder, step.rest.strip("\"'"))
        elif step.name in ("COPY", "ADD") and "--from=" not in step.rest:
            *sources, target = [word.strip("\"',[]") for word in step.rest.split() if not word.startswith("--")] or [""]
            for source in sources:
                self._copy(source, target)
                self._copy(source, posixpath.join(target, posixpath.basename(source)))
        elif step.name == "RUN":
            for source, target in _BIND.findall(step.rest):
                self._copy(source, target)

    def _copy(self, source: str, target: str) -> None:
        self._copied.insert(0, (self._path(target), posixpath.normpath(source.lstrip("/") or ".")))

    def _path(self, name: str) -> str:
        return posixpath.normpath(posixpath.join(self._folder, name))

    def read(self, name: str, base: str | None) -> tuple[str, str]:
        """Path in the build context and text of a file; raises InputError if it is unknown."""
        if found := self._written.get(name):
            text = "\n" * found.line + found.rest  # its lines keep their numbers in the Dockerfile
            self._left -= len(text)
            if self._left < 0:
                raise InputError("the here-documents are too long", code="unreadable")
            return self._where, text
        if self._open is None:
            raise InputError("other files are not read", code="unreadable")
        path = self._path(name)
        places = [posixpath.join(own, path[len(target) :].strip("/")).rstrip("/") for target, own in self._copied if _is_in(path, target)]
        if base is not None and base != self._where:  # a file beside the one that includes it
            places.insert(0, name)
        for place in dict.fromkeys((*places, name.lstrip("/"), name.rpartition("/")[2])):
            for parent in _PARENTS:
                with suppress(InputError):
                    return self._open(parent + place, base)
        raise InputError("no such file beside the Dockerfile or in the folders above it", code="unreadable")


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _stages(text: str, context: ReadContext) -> tuple[list[_Stage], dict[str, int]]:
    """The stages, and their numbers by name, with variables at their default values."""
    left = LONGEST_TEXT
    stages: list[_Stage] = []
    names: dict[str, int] = {}
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(context.arch, context.arch)
    buildkit = {"PLATFORM": f"linux/{arch}", "OS": "linux", "ARCH": arch}
    variables = {f"{prefix}{name}": value for prefix in ("TARGET", "BUILD") for name, value in buildkit.items()}
    for step in _steps(text):
        if step.name == "WRITE" and stages:
            stages[-1].steps.append(step)
            continue
        rest = _expanded(step.rest, variables, min(left, LONGEST_LINE))
        if rest is None:
            context.gap(f"not followed: line {step.line} ({step.name[:20]} with more than {min(left, LONGEST_LINE)} characters)")
            continue
        left -= len(rest)
        if step.name == "FROM":
            words = [word for word in rest.split() if not word.startswith("--")]
            if len(words) == 3 and words[1].upper() == "AS":
                names.setdefault(words[2], len(stages))
            stages.append(_Stage(words[0] if words else "", []))
        elif step.name in ("ARG", "ENV"):
            _assign(rest, variables, keep=step.name == "ARG")
            if stages:
                stages[-1].steps.append(_Step(step.line, "ENV", rest))
        elif stages:
            stages[-1].steps.append(_Step(step.line, step.name, rest))
    return stages or [_Stage("", [])], names


def _assign(text: str, variables: dict[str, str], *, keep: bool) -> None:
    """Set variables; `keep`: one without a value keeps the one that it has."""
    pairs = re.findall(r"([A-Za-z_]\w*)=(?:\"([^\"]*)\"|'([^']*)'|(\S*))", text)
    for name, *values in pairs:
        if not (keep and name in variables and not any(values)):
            variables[name] = next(filter(None, values), "")
    if not pairs and len(words := text.split(maxsplit=1)) == 2:
        variables[words[0]] = words[1]


_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::-([^}]*))?\}|([A-Za-z_]\w*))")


def _expanded(text: str, variables: dict[str, str], longest: int) -> str | None:
    """The text with known variables replaced once, not recursively; None if it becomes too long."""
    parts: list[str] = []
    size, at = len(text), 0
    for found in _VARIABLE.finditer(text) if size <= longest else ():
        value = variables.get(found[1] or found[3], found[2] or found[0])[:1000]
        parts += text[at : found.start()], value
        size, at = size + len(value) - len(found[0]), found.end()
        if size > longest:
            break
    return "".join((*parts, text[at:])) if size <= longest else None


def _steps(text: str) -> Iterator[_Step]:
    """Instructions without continuations and comments; each line of a RUN's here-document is another step.

    The here-document of COPY or ADD becomes a step WRITE: the path of the file, then its text on further lines.
    """
    lines = iter(enumerate(text.split("\n"), start=1))
    for number, line in lines:
        instruction = line.strip()
        if not instruction or instruction.startswith("#"):
            continue
        parts = []
        while instruction.endswith("\\"):
            parts.append(instruction[:-1])
            instruction = next((other.strip() for _, other in lines if other.strip() and not other.strip().startswith("#")), "")
        words = " ".join((*parts, instruction)).split(maxsplit=1)
        name, rest = words[0].upper(), words[1] if len(words) > 1 else ""
        document = re.search(r"<<-?\s*[\"']?(\w+)[\"']?", rest) if name in ("RUN", "COPY", "ADD") else None
        yield _Step(number, name, rest)
        if document is not None and name == "RUN":
            yield from _document_commands(lines, document[1])
        elif document is not None:
            yield _Step(number, "WRITE", "\n".join((rest.split()[-1], *_document_text(lines, document[1]))))


def _document_text(lines: Iterator[tuple[int, str]], end: str) -> Iterator[str]:
    return (line for _, line in takewhile(lambda numbered: numbered[1].strip() != end, lines))


def _document_commands(lines: Iterator[tuple[int, str]], end: str) -> Iterator[_Step]:
    """The commands of a here-document, with continuations joined."""
    parts: list[str] = []
    first = 0
    for number, line in lines:
        if line.strip() == end:
            break
        first = first if parts else number
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield _Step(first, "RUN", " ".join(parts))
            parts = []
    if parts:
        yield _Step(first, "RUN", " ".join(parts))


_ONLY_INSTALLERS = re.compile(r"--from=\S+(?:\s+--\S+)*(?:\s+/(?:\S*/)?uvx?)+\s+\S+$")
"""Copies programs that install packages, but no packages."""


def _run_step(step: _Step, installs: SimulatedInstalls) -> None:
    if step.name == "RUN":
        text = re.sub(r"^(?:--\S+\s+)+", "", step.rest)
        if text.startswith("["):
            try:
                text = shlex.join(texts(json.loads(text)))
            except (ValueError, RecursionError):
                installs.context.gap(f"not understood: RUN {text[:60]}")
                return
        run_line(text, installs, step.line)
    elif step.name in ("CMD", "ENTRYPOINT") and re.search(r"\buv\W+run\b", step.rest):
        run_line(" ".join(re.findall(r"[^\s\"',\[\]]+", step.rest)), installs, step.line)
    elif step.name == "ENV":
        note_settings(step.rest, installs.context)
    elif step.name in ("COPY", "ADD") and (found := re.search(r"--from=(\S+)", step.rest)) and not _ONLY_INSTALLERS.search(step.rest):
        installs.context.gap(f"not followed: {step.name} --from={found[1][:40]}")


_CUDA_IMAGE = re.compile(r"(\d+\.\d+(?:\.\d+)?)-(?:cudnn(\d?)-)?(base|runtime|devel)-([a-z]+)([\d.]+)")
_TORCH_IMAGE = re.compile(r"(\d+\.\d+(?:\.\d+)?)-cuda(\d+\.\d+)-cudnn(\d)-(?:runtime|devel)")
_TENSORFLOW_IMAGE = re.compile(r"(\d+\.\d+\.\d+)(-gpu)?(?:-jupyter)?")
_CUDNN_OF = {  # by CUDA and cuDNN major; source: NV_CUDNN_VERSION in the Dockerfiles of NVIDIA's CUDA images
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


def _start(image: str, installs: SimulatedInstalls) -> None:
    """Add what the base image contains."""
    context = installs.context
    path, _, tag = image.partition("@")[0].rpartition(":") if ":" in image.rpartition("/")[2] else (image.partition("@")[0], "", "latest")
    repository, name = "/".join(path.split("/")[-2:]), path.rpartition("/")[2]
    if repository == "nvidia/cuda" and (found := _CUDA_IMAGE.fullmatch(tag)):
        _start_cuda(found, context)
    elif repository == "pytorch/pytorch" and (found := _TORCH_IMAGE.fullmatch(tag)):
        version = found[1] if found[1].count(".") > 1 else f"{found[1]}.0"
        for package in context.package("torch", version, variants=(f"cu{found[2].replace('.', '')}",)):
            installs.pin(package)
    elif repository == "tensorflow/tensorflow" and (found := _TENSORFLOW_IMAGE.fullmatch(tag)):
        for package in context.package("tensorflow", found[1], cuda=None if found[2] else "cpu"):
            installs.pin(package)
        context.update_base("apt", of="tensorflow" if found[2] else None)
    elif name in ("ubuntu", "debian", "python"):
        _start_distribution(name, tag, context)
    elif image != "scratch" and name not in ("miniconda3", "micromamba", "miniforge3", "mambaforge"):
        context.gap(f"the content of the image {image[:80] or '?'} is unknown: run `cudnn-resolve check` inside it")


def _start_cuda(found: re.Match[str], context: ReadContext) -> None:
    cuda, major, kind, name, release = found.groups()
    release = f"{release[:2]}.{release[2:]}" if name == "ubuntu" and "." not in release else release
    os = {"ubi": "rhel", "rockylinux": "rocky", "oraclelinux": "ol"}.get(name, name) + release
    cudnn = None
    if major is not None:
        major = major or "9"
        cudnn = _CUDNN_OF.get(f"{cuda}/{major}", major)
    context.update_base("apt", os=os, python=SYSTEM_PYTHON.get(os), cuda=cuda if kind != "base" else None, cudnn=cudnn)


def _start_distribution(name: str, tag: str, context: ReadContext) -> None:
    parts = tag.split("-")
    os = next((release for release, codename in CODENAMES.items() if codename in parts), None)
    if name == "python":
        version = parts[0] if re.fullmatch(r"3\.\d+(\.\d+)?", parts[0]) else None
        context.update_base("apt", os=os, python=version)
        return
    os = os or (f"{name}{parts[0]}" if re.fullmatch(r"\d+(\.\d+)?", parts[0]) else None)
    context.update_base("apt", os=os, python=SYSTEM_PYTHON.get(os or ""))
