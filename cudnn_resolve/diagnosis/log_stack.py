"""The stack that a log states: interpreter, Python, CUDA and driver."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.library_path import has_part_of_system, missing, place_listed
from cudnn_resolve.diagnosis.model import Case, Match, of_symptom, values_of
from cudnn_resolve.matrix.library_name import Library
from cudnn_resolve.version import CudaVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.pip_release import PythonLine
    from cudnn_resolve.matrix.book import Book

_POSIX = r"(?:^|[\s\"'(=])((?:~|\.{0,2})/[^\s\"':<>]{1,200}?|~)/lib(?:64)?/python(\d)\.(\d{1,2})/(site|dist)-packages/"
"""Packages of an environment, which determine its interpreter."""
_SHORTENED = r"\.\.\.|…|\*"
"""How people leave out, or mask, a part of a path."""
_TOOL = r"/(?:pypoetry/venv|pipx/venvs/(?:poetry|pdm|pip|virtualenv|pipenv|hatch)|uv/tools/(?:poetry|pdm|hatch))$"
"""Environment of a tool that installs into others."""
_BUILD = r"/pip-build-env-[^/]+/(?:overlay|normal)$|/builds-v0/[^/]+$|^/tmp/tmp\w+/\.venv$"
"""Environment in which pip, uv or Poetry builds a package, removed afterwards."""
_LINE = re.compile(
    r"/lib(?:64)?/python(\d)\.(\d{1,2})/(?:site|dist)-packages/|^Python (?:version: )?(\d)\.(\d{1,2})\.\d{1,2}\S{0,8} (?:\(|\|)"
)
"""The same without the interpreter's place, and what the interpreter prints at its start, or PyTorch of it."""
_WINDOWS_LINE = re.compile(r"\\Python(3)(\d{1,2})(?:-\d\d)?\\", re.IGNORECASE)
"""Folder names of Python for Windows, and of pip's user packages."""
_WINDOWS = r"(?i)([A-Za-z]:[\\/][^\"'<>|:*?&;$%^`!\n]{1,200}?)\\lib\\site-packages\\"
_OF_CONDA = r"(?i)\\(?:envs\\[^\\]+|installer_files\\env)$"
_SCRIPT = r'File "((?!/usr|/bin|/snap)/[^\s"<>]{1,200}/bin)/[\w.-]{1,60}", line \d'
"""Program that pip installs beside the interpreter of its environment."""
_INSTALLED = r"(?i).*(?:python|conda|mamba|forge|pylib).*|runtime|py\d.*"
"""Usual folders of installations on Windows, with `python.exe` in them as in conda's environments; others are virtual environments."""
_VENV = r"(?i)(?:[\w-]{1,30}[_-])?(?:v|virtual)?-?env[\w.-]{0,20}"
"""Names of virtual environments, also of those that contain `python`."""
_TEXT = r"(?i)(?:\+cu|[-_/]cu(?:da)?|cuda[- /]?(?:version:? ?)?|runtime api version:? )(\d{1,2})\.?(\d)(?!\d)"
"""CUDA in the name of a build, of a directory or of a table: `+cu118`, `_cu112`, `cuda-11.8`, `CUDA Version: 12.2`."""
_OF_BUILD = re.compile(r"(?:\+cu|[-_/]cu|/cuda[-/])(9|1\d)\.?(\d)(?!\d|-download)")
"""The same without what tells of the driver."""
_IMAGE = (
    r"(?<=\s)(?:[a-z0-9][\w.-]{0,80}(?::\d{1,5})?/){1,4}[\w.-]{1,80}(?::[\w.-]{1,80})?(?=\s|$)"
    r"|(?<=\s)[a-z][\w.-]{1,60}:[\w.-]{1,80}(?=\s|$)"
)
_OPTION = re.compile(r"\s--?(?!-|(?:[itd]{1,3}|rm|init|privileged|detach|interactive|tty|read-only|nv)\s)[\w-]{1,40}\s$")
"""Option with a value in a command that starts a container."""
_FAR = 80
"""Characters of a path before the directory of a Python that name the tool which it is of."""
FIRST_IN_CONDA = CudaVersion("11.3")
"""Oldest CUDA whose toolkit is a single package of NVIDIA's conda channel."""
_CUDNN_IN_CONDA = frozenset({"5.1", "6.0", "7.0", "7.1", "7.3", "7.6"})
"""Releases of cuDNN 7 and older in conda's channels."""
_CUDA_IN_CONDA = frozenset({"7.5", "8.0", "9.0", "9.2", "10.0", "10.1", "10.2"})
"""Releases of CUDA before 11 in conda's channels."""
_LIBRARIES_OF_THEIR_OWN = 10
"""First CUDA major whose libraries have version numbers of their own; before, `libcublas.so.8.0` is of CUDA 8.0."""
_NUMBERED_AS_CUDA = ("cudart", "cublas", "cublasLt", "nvrtc")
"""Libraries whose names contain the CUDA major."""
_LAUNCHER = r"(?:^|[A-Z]:\\[^>]{0,120}> ?)(py(?: -3(?:\.\d{1,2})?)?) -m pip install "
"""Launcher of Windows in a command of the log."""


def texts(case: Case) -> Iterator[str]:
    """Known lines of the log, traceback frames first, in order."""
    yield from (frame.text for frame in sorted(case.frames, key=lambda frame: frame.line))
    yield from (match.text for match in case.matches)


def interpreter(case: Case) -> str | None:
    """Interpreter of the packages named last in the log, quoted for a shell; else Python by version; else None."""
    every = list(texts(case))
    frames = every[: len(case.frames)]
    for lines in (frames, every):
        posix = [found for line in lines for found in re.finditer(_POSIX, line)]
        # System and per-user packages belong to an interpreter elsewhere.
        own = [hit for hit in posix if not re.search(rf"^/usr|^/nix/store/|/\.local$|{_TOOL}|{_BUILD}", hit[1]) and hit[4] == "site"]
        if own:
            # A shortened path is no command, but the log may have the whole one elsewhere.
            folder, tail = own[-1][1], re.split(_SHORTENED, own[-1][1])[-1]
            if tail != folder:
                hits = (hit for line in every for hit in re.finditer(_POSIX, line) if hit.groups()[1:3] == own[-1].groups()[1:3])
                whole = [hit[1] for hit in hits if hit[1].endswith(tail) and not re.search(_SHORTENED, hit[1])]
                if not whole:
                    continue
                folder = max(whole, key=len)
            place = f"{folder}/bin/python"
            return place if place.startswith("~") and shlex.quote(place[1:]) == place[1:] else shlex.quote(place)
        found = [hit[1] for text in lines for hit in re.finditer(_WINDOWS, text) if "\\pip-build-env-" not in hit[1]]
        if found:
            place = _of_windows(found[-1])
            return f'"{place}"' if " " in place else place
    scripts = [hit[1] for text in every for hit in re.finditer(_SCRIPT, text) if not re.search(rf"/\.local/|{_TOOL}|{_BUILD}", hit[0])]
    if scripts:
        return shlex.quote(f"{scripts[-1]}/python")
    launched = [hit[1] for text in every for hit in re.finditer(_LAUNCHER, text)]
    if launched:
        return launched[-1]
    line = python_line(case) if "windows" not in case.features or case.features & {"wsl", "docker"} else None
    return f"python{line[0]}.{line[1]}" if line and not any(re.search(_WINDOWS, text) or "\\" in text for text in every) else None


def _of_windows(folder: str) -> str:
    name = folder.rpartition("\\")[2]
    of_conda = re.search(_OF_CONDA, folder) is not None
    is_named = name.startswith(".") or re.fullmatch(_VENV, name) is not None
    is_installed = of_conda or (re.fullmatch(_INSTALLED, name) is not None and not is_named)
    return f"{folder}\\python.exe" if is_installed else f"{folder}\\Scripts\\python.exe"


def python_line(case: Case) -> PythonLine | None:
    """The only Python version whose packages the log names."""
    hits = (hit for text in texts(case) for shape in (_LINE, _WINDOWS_LINE) for hit in shape.finditer(text))
    own = (hit for hit in hits if not re.search(_TOOL, hit.string[max(0, hit.start() - _FAR) : hit.start()]))
    lines = {(int(major), int(minor)) for major, minor in (filter(None, hit.groups()) for hit in own)}
    return next(iter(lines)) if len(lines) == 1 else None


def cuda_majors(case: Case, book: Book) -> frozenset[int]:
    """CUDA majors consistent with libraries, builds and directories in the log; empty if unknown or contradictory."""
    named = values_of(of_symptom(case.matches, "context-cuda-major"), "of")
    libraries = [
        value for match in case.matches for value in match.fields.values() if isinstance(value, Library) and value.family == "cuda"
    ]
    left = [frozenset((int(major),)) for major in named] + [found for library in libraries if (found := majors_of(library, book))]
    if left:
        return frozenset.intersection(*left)
    lines = (match.text for match in of_symptom(case.matches, "context-cuda-named"))
    majors = frozenset(major for text in lines for hit in re.finditer(_TEXT, text) if 8 <= (major := int(hit[1])) <= 13)
    return majors if len(majors) == 1 else frozenset()


def majors_of(library: Library, book: Book) -> frozenset[int]:
    """CUDA majors that have a library of that name."""
    if library.version is None:
        return frozenset()
    if library.major is None or library.component == "cudart" or (library.major < _LIBRARIES_OF_THEIR_OWN and "." in library.version):
        return frozenset((library.major,)) if library.major else frozenset()
    if library.windows:
        is_of_cuda = library.component in _NUMBERED_AS_CUDA and library.major > 10
        return frozenset((library.major,)) if is_of_cuda else frozenset()
    rows = ((release.cuda.major, book.soname(library.component, CudaVersion(release.line))) for release in book.cuda_releases())
    return frozenset(major for major, soname in rows if soname == library.file)


def compilers(case: Case) -> list[CudaVersion]:
    """CUDA of each nvcc that prints its version in the log."""
    return list(values_of(of_symptom(case.matches, "context-nvcc"), "nvcc"))


def toolkit_without(cudnn: Collection[int], case: Case) -> int | None:
    """Major version of the CUDA toolkit in a log for which no cuDNN of these major versions was built."""
    toolkit = next(iter(compilers(case)), None)
    if toolkit is None or not cudnn:
        return None
    is_built = any(build.soname in cudnn and build.cuda_major == toolkit.major for build in case.book.cudnn_builds())
    return None if is_built else toolkit.major


def cuda_named(libraries: Iterable[Library]) -> str | None:
    """CUDA of the missing libraries, as exactly as their names show: `10.1` for cudart64_101.dll, `12` for libcudart.so.12."""
    versions = [
        (library.component == "cudart", library.version)
        for library in libraries
        if library.family == "cuda"
        and library.version
        and (
            library.component in _NUMBERED_AS_CUDA
            or (library.major or 99) < _LIBRARIES_OF_THEIR_OWN
            or library.version == "10.0"  # CUDA 10.0's own; those of later CUDA 10 releases end in .so.10
        )
    ]
    if not versions:
        return None
    _, version = max(versions)
    major = int(version.partition(".")[0])
    return version if major < 11 else str(major)


def is_in_conda(cuda: str) -> bool:
    """False for a CUDA before 11 of which conda's channels have no cudatoolkit."""
    return int(cuda.partition(".")[0]) > 10 or cuda in _CUDA_IN_CONDA


def cudnn_beside(framework: str, cuda: str, book: Book) -> str | None:
    """The cuDNN of a framework's builds for that CUDA: only the major for CUDA 11 and later, or if conda lacks the minor version."""
    major = cuda.partition(".")[0]
    builds = (build for build in book.framework(framework).builds if build.cuda is not None and build.cudnn is not None)
    fitting = [build for build in builds if build.cuda and (build.cuda.line == cuda if "." in cuda else str(build.cuda.major) == major)]
    majors = {build.cudnn.major for build in fitting if build.cudnn}
    if len(majors) != 1:
        return None
    newest = max(build.cudnn for build in fitting if build.cudnn)
    minor = f"{newest.major}.{newest.minor}" if len(newest.parts) > 1 else ""
    return minor if int(major) < 11 and minor in _CUDNN_IN_CONDA else str(newest.major)


def driver_of(case: Case) -> DriverVersion | None:
    """Driver version in the log."""
    fields = (match.fields for match in case.matches if match.symptom.role == "context")
    values = (shown.get(name) for shown in fields for name in ("driver", "driver2", "driver3", "driver4"))
    versions = {value for value in values if isinstance(value, DriverVersion)}
    return versions.pop() if len(versions) == 1 else None


def cuda_of_driver(case: Case) -> CudaVersion | None:
    """Newest CUDA of the driver according to the log: from nvidia-smi's table, or PyTorch's `10010`."""
    names = {"context-smi-table": "cuda", "torch-driver-too-old": "found"}
    versions = (match.fields.get(names[match.symptom.id]) for match in case.matches if match.symptom.id in names)
    return min((version for version in versions if isinstance(version, CudaVersion)), default=None)


def toolkit_named(case: Case) -> CudaVersion | None:
    """The only CUDA, with its minor version, that the log's compiler, directories and names of builds show."""
    there = {nvcc.line for nvcc in compilers(case)}
    there = there or {f"{hit[1]}.{hit[2]}" for text in texts(case) for hit in _OF_BUILD.finditer(text)}
    return CudaVersion(there.pop()) if len(there) == 1 else None


def image_of(matches: Iterable[Match]) -> str:
    """Image in a container's start command in the log, else a placeholder."""
    for match in of_symptom(matches, "context-container-start"):
        hits = re.finditer(_IMAGE, match.text)
        images = (hit[0] for hit in hits if not _OPTION.search(match.text, max(0, hit.start() - 45), hit.start()))
        if (image := next(images, None)) is not None:
            return shlex.quote(image)
    return "IMAGE"


def version_features(matches: Sequence[Match], majors: Collection[int], python: str) -> Iterator[str]:
    """Features derived from versions in the log: CUDA, Python, and the older of two drivers."""
    libraries = [library for library in missing(matches) if not library.windows]
    is_sought = any(match.symptom.feature == "torch-preload" for match in matches)  # under any version
    if majors and max(majors) < 11:
        yield "old-listed" if any(map(place_listed, matches)) else "old-cuda"
    if len(majors) == 1:
        yield f"cuda-{max(majors)}"
    if libraries and not is_sought and all(library.version is None and library.family in ("cuda", "cudnn") for library in libraries):
        yield "bare-name"
    if any(match.fields["kernel"] > match.fields["dso"] for match in matches if "dso" in match.fields):
        yield "library-older"
    if any(isinstance(match.fields.get("built"), CudaVersion) and match.fields["built"] < FIRST_IN_CONDA for match in matches):
        yield "old-toolkit"
    if has_part_of_system(matches):
        yield "part-of-system"
    if python != "python":
        yield "windows" if "\\" in python else "unix"


def known_framework(name: str | None, book: Book) -> str | None:
    """The framework of the tables with that name; None if there is none."""
    return book.framework_named(name) if name else None
