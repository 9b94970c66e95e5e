"""What a log tells of the stack that a remedy is for: its interpreter, its Python, its CUDA, and the builds of the tables that fit them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.diagnosis.place import has_part_of_system, missing
from cudnn_resolve.diagnosis.release import python_tags
from cudnn_resolve.matrix.library import Library
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Case, Match
    from cudnn_resolve.diagnosis.release import PythonLine
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build, WheelRelease

_POSIX = r"(?:^|[\s\"'(=])((?:~|\.{0,2})/[^\s\"':<>]{1,200}?|~)/lib(?:64)?/python(\d)\.(\d{1,2})/(site|dist)-packages/"
"""The packages of an environment, whose interpreter is then known."""
_LINE = re.compile(r"/lib(?:64)?/python(\d)\.(\d{1,2})/(?:site|dist)-packages/")
_WINDOWS_LINE = re.compile(r"\\Python(3)(\d{1,2})(?:-\d\d)?\\", re.IGNORECASE)
"""As the installers of Python for Windows call its folder, and pip that of the user."""
_WINDOWS = r"(?i)([A-Za-z]:\\[^\"'<>|:*?&;$%^`!\n]{1,200}?)\\lib\\site-packages\\"
_VENV = r"(?i)\.?(?:v|virtual)-?env[\w.-]{0,20}"
"""How folders of virtual environments are called, whose interpreter is in another place than that of an installation or of conda."""
_TEXT = r"(?i)(?:\+cu|[-_/]cu(?:da)?|cuda[- /]?(?:version:? ?)?|runtime api version:? )(\d{1,2})\.?(\d)(?!\d)"
"""CUDA in the name of a build, of a directory or of a table: `+cu118`, `_cu112`, `cuda-11.8`, `CUDA Version: 12.2`."""
_IMAGE = (
    r"(?<=\s)(?:[a-z0-9][\w.-]{0,80}(?::\d{1,5})?/){1,4}[\w.-]{1,80}(?::[\w.-]{1,80})?(?=\s|$)"
    r"|(?<=\s)[a-z][\w.-]{1,60}:[\w.-]{1,80}(?=\s|$)"
)
_OPTION = re.compile(r"\s--?(?!-|(?:[itd]{1,3}|rm|init|privileged|detach|interactive|tty|read-only|nv)\s)[\w-]{1,40}\s$")
"""An option whose value stands behind it, when a container is started."""
_OLDEST_PYTHON = (3, 6)
_FIRST_IN_CONDA = CudaVersion("11.3")
"""The oldest CUDA whose toolkit is one package of NVIDIA's conda channel."""
_MINOR_COMPATIBLE = 11
"""From this major of CUDA on a driver runs every minor of the major that it is for."""


class Served(Struct, frozen=True, kw_only=True):
    """The newest build of a framework for what is told, and what was told."""

    build: Build | None
    title: str
    told: str

    @property
    def text(self) -> str:
        """The build in words."""
        one = self.build
        return "" if one is None or one.cuda is None else f"{self.title} {one.version}, built with CUDA {one.cuda.line}"


def texts(case: Case) -> Iterator[str]:
    """The lines of the log that are known, those of tracebacks in their order first."""
    yield from (one.text for one in sorted(case.frames, key=lambda one: one.line))
    yield from (one.text for one in case.matches)


def interpreter(case: Case) -> str | None:
    """The interpreter whose packages the log names last, as a word of a shell; else the Python by its version; None for neither."""
    every = list(texts(case))
    frames = every[: len(case.frames)]
    for lines in (frames, every):
        posix = [found for one in lines for found in re.finditer(_POSIX, one)]
        # Packages of the system and of the user's own directory are those of an interpreter that is elsewhere.
        own = [
            one for one in posix if not one[1].startswith(("/usr", "/nix/store/")) and not one[1].endswith("/.local") and one[4] == "site"
        ]
        if own:
            place = f"{own[-1][1]}/bin/python"
            return place if place.startswith("~") and shlex.quote(place[1:]) == place[1:] else shlex.quote(place)
        found = [one[1] for text in lines for one in re.finditer(_WINDOWS, text)]
        if found:
            place = _of_windows(found[-1])
            return f'"{place}"' if " " in place else place
    line = python_line(case)
    return f"python{line[0]}.{line[1]}" if line and not any(re.search(_WINDOWS, one) or "\\" in one for one in every) else None


def _of_windows(folder: str) -> str:
    name = folder.rpartition("\\")
    is_venv = re.fullmatch(_VENV, name[2]) is not None and not name[0].lower().endswith("\\envs")
    return f"{folder}\\Scripts\\python.exe" if is_venv else f"{folder}\\python.exe"


def python_line(case: Case) -> PythonLine | None:
    """The one Python whose packages the log names."""
    lines = {(int(one[1]), int(one[2])) for text in texts(case) for shape in (_LINE, _WINDOWS_LINE) for one in shape.finditer(text)}
    return next(iter(lines)) if len(lines) == 1 else None


def cuda_majors(case: Case, book: Book) -> frozenset[int]:
    """The majors of CUDA that the libraries, builds and directories of the log leave; empty where they say nothing or disagree."""
    named = [one.fields["of"] for one in case.matches if one.symptom.id == "context-cuda-major"]
    libraries = [value for one in case.matches for value in one.fields.values() if isinstance(value, Library) and value.family == "cuda"]
    left = [frozenset((int(one),)) for one in named] + [found for one in libraries if (found := majors_of(one, book))]
    common = frozenset.intersection(*left) if left else frozenset()
    if left:
        return common
    told = frozenset(
        int(one[1]) for match in case.matches if match.symptom.id == "context-cuda-named" for one in re.finditer(_TEXT, match.text)
    )
    told = frozenset(one for one in told if 8 <= one <= 13)
    return told if len(told) == 1 else frozenset()


def majors_of(library: Library, book: Book) -> frozenset[int]:
    """The majors of CUDA that have a library of that name."""
    if library.version is None:
        return frozenset()
    if library.component == "cudart":
        return frozenset((library.major,)) if library.major else frozenset()
    if library.windows:
        return (
            frozenset((library.major,))
            if library.component in ("cublas", "cublasLt") and library.major and library.major > 10
            else frozenset()
        )
    rows = ((one.cuda.major, book.soname(library.component, CudaVersion(one.line))) for one in book.cuda_releases())
    return frozenset(major for major, soname in rows if soname == library.file)


def toolkit_without(cudnn: Collection[int], case: Case) -> int | None:
    """Major CUDA version of the toolkit that a log shows, if no cuDNN of these major versions was built for it."""
    toolkit = next((one.fields["nvcc"] for one in case.matches if one.symptom.id == "context-nvcc"), None)
    if toolkit is None or not cudnn:
        return None
    is_built = any(one.soname in cudnn and one.cuda_major == toolkit.major for one in case.book.cudnn_builds())
    return None if is_built else toolkit.major


def cuda_named(libraries: Iterable[Library]) -> str | None:
    """The CUDA that the missing libraries are of, as exactly as their names say it: `10.1` of cudart64_101.dll, `12` of libcudart.so.12."""
    versions = [
        (one.component == "cudart", one.version)
        for one in libraries
        if one.family == "cuda" and one.component in ("cudart", "cublas", "cublasLt")
    ]
    found = [one for _, one in sorted((pair for pair in versions if pair[1]), reverse=True) if one]
    if not found:
        return None
    major = int(found[0].partition(".")[0])
    return found[0] if major < 11 else str(major)


def cudnn_beside(framework: str, cuda: str, book: Book) -> str | None:
    """The cuDNN that builds of a framework with that CUDA were made with: major and minor, or the major alone for CUDA 11 and later."""
    major = cuda.partition(".")[0]
    builds = (one for one in book.framework(framework).builds if one.cuda is not None and one.cudnn is not None)
    fitting = [one for one in builds if one.cuda and (one.cuda.line == cuda if "." in cuda else str(one.cuda.major) == major)]
    majors = {one.cudnn.major for one in fitting if one.cudnn}
    if len(majors) != 1:
        return None
    newest = max(one.cudnn for one in fitting if one.cudnn)
    return f"{newest.major}.{newest.minor}" if int(major) < 11 else str(newest.major)


def fitting(framework: str, case: Case, *, machine_code: bool = False, cudnn: int | None = None) -> list[Build]:
    """The builds with CUDA for what the log tells of GPU, driver and Python: the newest first, of one release that of the oldest CUDA.

    `cudnn`: only those with that major of it.
    """
    from cudnn_resolve.resolution.release import parse_version

    book, row = case.book, case.book.framework(framework)
    line, gpus, driver, most = python_line(case), case.context.capabilities, driver_of(case), cuda_of_driver(case)
    releases = {name: {one.version: one for one in package.releases} for name in row.packages if (package := book.package(name))}

    def takes(build: Build, cuda: CudaVersion) -> bool:
        if cudnn is not None and (build.cudnn is None or build.cudnn.major != cudnn):
            return False
        if build.yanked or (line is not None and not _serves_python(build, line, releases.get(build.package, {}))):
            return False
        least = book.floor(cuda.major) or book.toolkit_driver(cuda)
        if driver is not None and least is not None and driver < least:
            return False
        if most is not None and cuda.line != most.line and not (cuda < most or cuda.major == most.major >= _MINOR_COMPATIBLE):
            return False
        return all(_serves_gpu(build, one, machine_code=machine_code) for one in gpus)

    found = [(version, one) for one in row.builds if one.cuda and (version := parse_version(one.version)) and takes(one, one.cuda)]
    found.sort(key=lambda pair: str(pair[1].cuda))
    found.sort(key=lambda pair: pair[0], reverse=True)
    return [one for version, one in found if not version.is_prerelease]


def served(framework: str, case: Case, *, machine_code: bool = False) -> Served | None:
    """The newest of the fitting builds; None where the log tells nothing that they could fit."""
    line, driver, most = python_line(case), driver_of(case), cuda_of_driver(case)
    words = [f"compute capability {one}" for one in dict.fromkeys(case.context.capabilities)]
    words += [f"driver {driver}"] if driver else [f"a driver for CUDA {most.line}"] if most else []
    words += [f"Python {line[0]}.{line[1]}"] if line else []
    if not words:
        return None
    build = next(iter(fitting(framework, case, machine_code=machine_code)), None)
    return Served(build=build, title=case.book.framework(framework).title.removesuffix(" GPU"), told=" and ".join(words))


def driver_of(case: Case) -> DriverVersion | None:
    """The driver that the log shows."""
    fields = (one.fields for one in case.matches if one.symptom.role == "context")
    told = {one[name] for one in fields for name in ("driver", "driver2", "driver3") if isinstance(one.get(name), DriverVersion)}
    return next(iter(told)) if len(told) == 1 else None


def cuda_of_driver(case: Case) -> CudaVersion | None:
    """The newest CUDA that the driver is for, where the log says it: in the table of nvidia-smi, or as PyTorch does, 10010."""
    names = {"context-smi-table": "cuda", "torch-driver-too-old": "found"}
    told = (one.fields.get(names[one.symptom.id]) for one in case.matches if one.symptom.id in names)
    return min((one for one in told if isinstance(one, CudaVersion)), default=None)


def _serves_gpu(build: Build, gpu: Capability, *, machine_code: bool) -> bool:
    targets = [one for one in build.targets if one.kind == "cubin" or not machine_code]
    if build.targets:
        return any(one.runs_on(gpu) for one in targets)
    first, last = build.capability_first, build.capability_last
    return first is not None and gpu >= first and (last is None or gpu <= last)


def _serves_python(build: Build, line: PythonLine, releases: Mapping[str, WheelRelease]) -> bool:
    if line < _OLDEST_PYTHON:
        return False
    if build.pythons:
        return any(one in (f"cp{line[0]}{line[1]}", "py3") for one in build.pythons)
    release = releases.get(build.wheel_version.partition("+")[0] or build.version)
    return release is None or any(found == line for found, _ in python_tags(release.tags, release.requires_python))


def pythons_of(build: Build, book: Book) -> list[PythonLine]:
    """The Pythons that wheels of a build are for, the oldest first; empty where the tables do not say."""
    package = book.package(build.package)
    releases = {one.version: one for one in package.releases} if package is not None else {}
    release = releases.get(build.wheel_version.partition("+")[0] or build.version)
    if not build.pythons and release is None:
        return []
    return [one for minor in range(6, 20) if _serves_python(build, one := (3, minor), releases)]


def image_of(matches: Iterable[Match]) -> str:
    """The image that a container was started of, as its command in the log names it; else a word to fill in."""
    for match in matches:
        if match.symptom.id == "context-container-start":
            text = match.text
            found = next(
                (one[0] for one in re.finditer(_IMAGE, text) if not _OPTION.search(text, max(0, one.start() - 45), one.start())), None
            )
            if found is not None:
                return shlex.quote(found)
    return "IMAGE"


def features_of_numbers(matches: Sequence[Match], majors: Collection[int], python: str) -> Iterator[str]:
    """What numbers in the log tell: the CUDA, the Python, and which of two drivers is the older one."""
    libraries = [one for one in missing(matches) if not one.windows]
    if majors and max(majors) < 11:
        yield "old-cuda"
    if len(majors) == 1:
        yield f"cuda-{max(majors)}"
    if libraries and all(one.version is None and one.family in ("cuda", "cudnn") for one in libraries):
        yield "bare-name"
    if any(one.fields["kernel"] > one.fields["dso"] for one in matches if "dso" in one.fields):
        yield "library-older"
    if any(isinstance(one.fields.get("built"), CudaVersion) and one.fields["built"] < _FIRST_IN_CONDA for one in matches):
        yield "old-toolkit"
    if has_part_of_system(matches):
        yield "part-of-system"
    if python != "python":
        yield "windows" if "\\" in python else "unix"
