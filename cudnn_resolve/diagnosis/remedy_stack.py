"""The GPU stack that a remedy changes: interpreter, packages, frameworks and CUDA, from the facts or else from the log."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from cudnn_resolve.diagnosis.context import build_of
from cudnn_resolve.diagnosis.fitting_build import OLDEST_PYTHON
from cudnn_resolve.diagnosis.library_path import declared_of, missing, suffix_of, wheel_component, wheels_of
from cudnn_resolve.diagnosis.log_stack import (
    FIRST_IN_CONDA,
    cuda_majors,
    cuda_of_driver,
    driver_of,
    interpreter,
    python_line,
)
from cudnn_resolve.diagnosis.model import Case, Match, of_symptom, values_of
from cudnn_resolve.diagnosis.remedy_machine import runs_on_windows
from cudnn_resolve.diagnosis.specifier import is_version, requirements_of
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.version import CudaVersion, CudnnVersion

_MADE_FOR = re.compile(
    r"(?:\+cu|-cu|cuda[- ]?(?:version:? ?)?|cublas(?:Lt)?(?:64_|\.so\.)|cudart64_|libcudart\.so\.)(1[1-3])(?!\d{3})", re.IGNORECASE
)
"""CUDA major of a library or build in a log."""
_FIRST_FOR_CUDA_12 = CudnnVersion("8.8")
"""Oldest cuDNN that was built for CUDA 12; frameworks built with an older one use CUDA 11."""
_DRIVE = re.compile(r"['\"]?[A-Za-z]:[/\\]")
_OF_DEBIAN = "/usr/lib/cuda"
"""Toolkit of Debian's packages, whose nvcc is in /usr/bin."""
_LAST_PYTHON_WITH_CUDA_11 = (3, 7)
"""Newest Python for which all releases of TensorFlow and JAX use CUDA 11 or older."""


def _preload(files: Iterable[str]) -> str:
    """Python that loads libraries of wheels into a running interpreter, where LD_LIBRARY_PATH no longer has an effect; empty for none."""
    names = ", ".join(map(repr, dict.fromkeys(files)))
    return names and (
        "import ctypes, glob, site; [ctypes.CDLL(file, ctypes.RTLD_GLOBAL) for place in site.getsitepackages() "
        f"for name in [{names}] for file in glob.glob(place + '/nvidia/*/lib/' + name)]"
    )


def major_built(match: Match) -> Iterator[str]:
    """Major of the cuDNN with which a program was compiled, if a message names it alone."""
    built = str(match.fields.get("built", ""))
    if (match.symptom.cause or "").startswith("cudnn_") and built.isdigit():
        yield built


def words_of(matches: Iterable[Match]) -> dict[str, str]:
    """Fields of messages as text, those of the first message first; without words that a program would take for an option."""
    found: dict[str, str] = {}
    for match in matches:
        for name, value in match.fields.items():
            text = str(getattr(value, "file", value))
            if not text.startswith("-"):
                found.setdefault(name, text)
    return found


def release_values(framework: str | None, matches: Iterable[Match], book: Book) -> dict[str, str]:
    """The newest 1.x of TensorFlow that was built for the cuDNN that is loaded, and for the CUDA of builds with that of the message."""
    both = [match.fields for match in matches if isinstance(match.fields.get("found"), CudnnVersion)][:1]
    rows = [row for row in book.framework("tensorflow").builds if row.version.startswith("1.") and row.cudnn is not None]
    if framework != "tensorflow" or not both:
        return {}
    loaded, built = both[0]["found"], both[0].get("built")
    same = {row.cuda for row in rows if isinstance(built, CudnnVersion) and row.cudnn and built.serves(row.cudnn)}
    fitting = [row for row in rows if row.cudnn and loaded.serves(row.cudnn) and row.cuda in (same or {row.cuda})]
    if not fitting:
        return {}
    newest = max(fitting, key=lambda row: tuple(int(part) for part in re.findall(r"\d+", row.version)))
    return {"for_found": f"{newest.package}=={newest.version}"}


def is_signed_by_another(matches: Sequence[Match], case: Case) -> bool:
    """True if a program that is no framework signs a message, on its line or beside it."""
    lines = {match.line for match in of_symptom(case.matches, "context-other-program")}
    return any(abs(match.line - line) <= 1 for match in matches[:1] for line in lines)


def cuda_served(case: Case) -> CudaVersion | str | None:
    """Newest CUDA that the driver of log or facts has itself."""
    driver, here = driver_of(case), or_none(case.facts.driver) if case.facts is not None else None
    told = cuda_of_driver(case) or (here.cuda if here is not None else None)
    return told or (case.book.native_cuda(driver) if driver is not None else None)


def last_of(major: str, book: Book) -> str:
    """Wording for the last release of a cuDNN major that gets no more; empty for the newest major."""
    versions = [build.version for build in book.cudnn_builds()]
    own = [version for version in versions if str(version.major) == major]
    return f" ({'.'.join(map(str, max(own).parts[:3]))} is its last release)" if own and max(own).major < max(versions).major else ""


class KnownStack:
    """The stack of one case."""

    def __init__(self, case: Case, *, is_here: bool) -> None:
        self.case, self.book = case, case.book
        self.facts = case.facts if is_here else None
        """Facts that plans are made for; None without facts, or if the log is of another machine."""
        self.pip = (or_none(case.facts.packages.pip) or {}) if case.facts is not None else {}
        # A log of another machine says nothing about the packages installed here.
        self.frameworks = tuple(framework for framework in case.context.frameworks if is_here or self.pip.get(framework[0]) != framework[1])
        own = case.facts.python.path if case.facts is not None else None
        self.python = shlex.quote(own) if own else (interpreter(case) if case.facts is None else None) or "python"
        is_posix = "/" in self.python and not _DRIVE.match(self.python)
        self.is_windows = not is_posix and ("\\" in self.python or runs_on_windows(case.features))
        self.torch = next((version for name, version in self.frameworks if name == "torch"), None)
        """Version of PyTorch, if known."""
        self.majors = cuda_majors(case, case.book)
        """CUDA majors of the log, if it shows them."""

    @staticmethod
    def _compiler_wheel(line: tuple[int, int] | None, *, is_cuda_13: bool) -> dict[str, str]:
        """Field for the wheel with ptxas and libdevice, if the Python may have a framework for its CUDA."""
        if line is not None and line <= _LAST_PYTHON_WITH_CUDA_11:
            return {}
        return {"nvcc_wheel": "nvidia-cuda-nvcc" if is_cuda_13 else "nvidia-cuda-nvcc-cu12"}

    def library_values(self, matches: Sequence[Match]) -> dict[str, str]:
        """Fields for wheels of missing libraries, and for cuDNN's major."""
        values = {}
        beside = {suffix_of(name) for name in self.pip if self.book.component(name) is not None} | self._cuda_of_frameworks()
        libraries = list(missing(matches))
        versioned = {wheel_component(library) for library in libraries if library.major is not None}
        libraries = [library for library in libraries if library.major is not None or wheel_component(library) not in versioned]
        beside |= {"cu13"} if "" in beside else set()
        beside = beside or {f"cu{major}" for major in self.majors if len(self.majors) == 1}
        beside = beside or {f"cu{major}" for match in matches for major in _MADE_FOR.findall(match.text)} or self._cuda_of_log()
        beside = beside or self._cuda_of_machine()
        line = python_line(self.case) if self.case.facts is None else None
        is_old = bool(self.majors and max(self.majors) < 11) or (line is not None and line < OLDEST_PYTHON)
        found = dict.fromkeys(wheels_of(library, beside, self.book) for library in libraries if library.family != "cudnn" and not is_old)
        wheels = [wheel for wheel in found if wheel]
        if wheels and all(len(wheel) == 1 for wheel in wheels):
            values["wheel"] = shlex.join(wheel[0] for wheel in wheels)
        elif wheels:
            values["wheels_by_cuda"] = ", ".join(" or ".join(wheel) for wheel in wheels)
        if preload := _preload(library.file for library in libraries if library.version and not library.windows):
            values["preload"] = preload
        declared = declared_of(self.case.facts, libraries, self.book) if self.case.facts is not None else []
        if declared:
            values["declared"] = shlex.join(declared)
        values |= self._compiler_wheel(line, is_cuda_13=self._is_cuda_13(matches, beside))
        majors = [library.major for library in libraries if library.family == "cudnn" and library.major is not None]
        built = [built.major for built in values_of(matches, "built", CudnnVersion)]
        wanted = (majors or built)[:1]
        if built and "preload" not in values:
            values["preload"] = _preload([f"libcudnn.so.{built[0]}"])
        known = {str(build.cuda_major) for build in self.book.cudnn_builds() if build.wheel and build.version.major in wanted}
        # There are no wheels of cuDNN 7 and older; later ones depend on the CUDA major, and a wheel for another would not load.
        fitting = [suffix for suffix in sorted(beside) if suffix[2:] in known or (suffix and not wanted)] or sorted(
            f"cu{major}" for major in known
        )
        if fitting and not is_old:  # there are no wheels for an old program
            values |= self._cudnn_wheels(fitting, matches, is_sure=len(known) == 1 or bool(beside))
        if majors:
            values["major"] = str(majors[0])
            cuda = {int(suffix[2:]) for suffix in beside if suffix[2:].isdigit()}
            cuda = cuda or ({12} if "hosted-notebook" in self.case.features else set())  # what they come with
            rows = (
                build for build in self.book.cudnn_builds() if build.version.major == majors[0] and (not cuda or build.cuda_major in cuda)
            )
            packages = {build.apt.package for build in rows if build.apt.package}
            if len(packages) == 1:
                values["apt_cudnn"] = packages.pop()
        copies = (or_none(self.case.facts.cudnn) or ()) if self.case.facts else ()
        owner = next((copy.owner for copy in copies if copy.owner in self.pip), None)
        if owner is not None:
            values["package"] = f"{owner}=={self.pip[owner]}"
        return values

    def _cudnn_wheels(self, fitting: Sequence[str], matches: Sequence[Match], *, is_sure: bool) -> dict[str, str]:
        """Fields for the cuDNN wheel, or for the candidates if the CUDA is unknown: a known environment is asked first."""
        if is_sure:
            return {"cudnn_wheel": f"nvidia-cudnn-{fitting[0]}"}
        either = " or ".join(f"nvidia-cudnn-{suffix}" for suffix in fitting)
        if self.case.facts is not None:
            return {"cudnn_wheels": either}
        releases = list(values_of(matches, "built", CudnnVersion))
        likely = "cu11" if releases and min(releases) < _FIRST_FOR_CUDA_12 else "cu12"
        return {"cudnn_likely": f"nvidia-cudnn-{likely if likely in fitting else fitting[-1]}", "cudnn_either": either}

    def tensorflow_values(self) -> dict[str, str]:
        """Requirements of the packages that follow the release of TensorFlow."""
        release = re.match(r"\d+\.\d+", self.case.context.version("tensorflow") or self.pip.get("tensorflow-cpu", ""))
        if release is None:
            return {"tf_keras": "tf-keras"}
        return {name.replace("-", "_"): shlex.quote(f"{name}~={release[0]}.0") for name in ("tf-keras", "tensorflow-text")}

    def nccl_wheels(self) -> list[str]:
        """Installed NCCL wheels, which contain the same files."""
        return [name for name in self.pip if name.startswith("nvidia-nccl")]

    def nccl_values(self) -> dict[str, str]:
        """Of two NCCL wheels, the one that a package requires, and the other."""
        facts, there = self.case.facts, self.nccl_wheels()
        if facts is None:
            return {}
        every = (line for lines in facts.packages.requires.values() for line in lines)
        wanted = {requirement.name for requirement in requirements_of(every, facts)} & set(there)
        others = [shlex.quote(name) for name in there if name not in wanted]
        if len(wanted) != 1 or not others or not is_version(self.pip[kept := wanted.pop()]):
            return {}
        return {"nccl": shlex.quote(f"{kept}=={self.pip[kept]}"), "nccl_other": " ".join(others)}

    def _is_cuda_13(self, matches: Iterable[Match], beside: set[str]) -> bool:
        """True if installed packages, or those in the log, are for CUDA 13 and none is for CUDA 12."""
        texts = [*(match.text for match in matches), *(name for name, _ in self.frameworks), *self.pip]
        of = {
            major for major in ("12", "13") if f"cu{major}" in beside or any(re.search(rf"cu(?:da)?{major}(?!\d)", text) for text in texts)
        }
        return of == {"13"}

    def _cuda_of_frameworks(self) -> set[str]:
        """CUDA of the known frameworks, as a suffix of NVIDIA's wheels."""
        builds = (build_of(name, version, self.book) for name, version in self.frameworks)
        return {f"cu{build.cuda.major}" for build in builds if build is not None and build.cuda is not None}

    def _cuda_of_log(self) -> set[str]:
        """CUDA of all packages named in the log, if it is one; else the only one that its driver runs."""
        named = {f"cu{major}" for major in values_of(of_symptom(self.case.matches, "context-cuda-major"), "of")}
        if named:
            return named if len(named) == 1 else set()
        most = [cuda.major for cuda in values_of(of_symptom(self.case.matches, "context-smi-table"), "cuda", CudaVersion)]
        return {"cu11"} if most and min(most) == 11 else set()

    def _cuda_of_machine(self) -> set[str]:
        """CUDA of this machine's toolkit, if there is one; else the only one that its driver runs."""
        if self.facts is None:
            return set()
        majors = {toolkit.version.partition(".")[0] for toolkit in or_none(self.facts.cuda_toolkits) or () if toolkit.version}
        driver = or_none(self.facts.driver)
        if not majors and driver is not None and (driver.cuda or "").startswith("11."):
            return {"cu11"}
        return {f"cu{major}" for major in majors} if len(majors) == 1 else set()

    def toolkit(self) -> str | None:
        """CUDA that the known PyTorch was built with, for compiling extensions."""
        version = self.torch or ""
        local = re.fullmatch(r"cu(\d{2})(\d)", version.partition("+")[2])
        build = build_of("torch", version, self.book) if not local and "+" not in version else None
        return f"{local[1]}.{local[2]}" if local else build.cuda.line if build and build.cuda else None

    def toolkit_values(self, built: str | None) -> dict[str, str]:
        """Fields of the toolkit for a build's CUDA: `toolkit_home` is the installed one of its release, or of its major version."""
        label = {"toolkit_label": f"cuda-{built}.0"} if built is not None and CudaVersion(built) >= FIRST_IN_CONDA else {}
        values = {"toolkit": built, **label} if built is not None else {}
        there = or_none(self.case.facts.cuda_toolkits) or () if self.case.facts is not None else ()
        homes = [(f"{each.version}.", each.path) for each in there if each.source not in ("pip", "conda") and each.path != _OF_DEBIAN]
        starts = (f"{built}.", f"{built.partition('.')[0]}.") if built is not None else ("",)
        home = next((path for start in starts for version, path in homes if path and version.startswith(start)), None)
        return values if home is None else {**values, "toolkit_home": shlex.quote(home)}
