"""What fills a remedy: the fields of its commands and sentences, and the features that choose between the rows of a cause."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from cudnn_resolve.diagnosis.apt import apt_values, is_of_legacy_list
from cudnn_resolve.diagnosis.derive_pip import is_bits_open, is_for_newer_pip, is_of_system, own_python
from cudnn_resolve.diagnosis.library_path import missing, own_values, path_values, place_listed, place_of
from cudnn_resolve.diagnosis.log_stack import (
    compilers,
    cuda_named,
    cudnn_beside,
    image_of,
    is_in_conda,
    known_framework,
    python_line,
    toolkit_named,
    version_features,
)
from cudnn_resolve.diagnosis.logged_install import build_values, for_pip, installation
from cudnn_resolve.diagnosis.model import Case, Finding, Match, of_symptom, values_of
from cudnn_resolve.diagnosis.pip_release import Wanted, is_file_of_extension, lists_releases, pip_values, releases_within, wanted_of
from cudnn_resolve.diagnosis.remedy_driver import driver_wanted
from cudnn_resolve.diagnosis.remedy_machine import LINUX, NOT_PYTHON, machine_features, machine_values, system_values
from cudnn_resolve.diagnosis.remedy_stack import (
    KnownStack,
    cuda_served,
    is_signed_by_another,
    last_of,
    major_built,
    release_values,
    words_of,
)
from cudnn_resolve.diagnosis.removed_name import importer_values, removed_values
from cudnn_resolve.diagnosis.specifier import is_version, within
from cudnn_resolve.diagnosis.torch_package import extension_values, is_of_pair, pair_command, torch_version
from cudnn_resolve.diagnosis.unknown import is_own
from cudnn_resolve.matrix.library_name import library_of
from cudnn_resolve.matrix.row import RemovedName
from cudnn_resolve.matrix.symptom import Clue
from cudnn_resolve.version import CudaVersion, CudnnVersion

_WANTED = re.compile(r"\bcuDNN (\d{1,2})\.(?:\*|x|\d)", re.IGNORECASE)
_WANTED_CUDA = re.compile(r"\band CUDA (\d{1,2})\.\*")
"""ONNX Runtime's wording for the cuDNN and CUDA that it needs."""
_FIRST_WITHOUT_MINOR = 11
"""First CUDA major whose libraries work for all its minors."""
_CONDA = frozenset({"torch", "tensorflow", "jax", "cupy"})
"""Frameworks with CUDA builds on conda-forge."""
_NO_FIELDS = frozenset({"feature", "error_kind", "framework", "traceback", "distribution", "extension_name", "numpy_before"})
"""What clues tell that does not fill a field of its name by itself."""
_REQUIRED_BY = re.compile(
    r"required by [^)\n]{0,300}?-packages/(?!torch/|tensorflow/|jaxlib/|paddle/|onnxruntime/|cupy|nvidia/)([A-Za-z][\w.-]{1,60})"
)
"""File of a package, other than a framework, that wants a newer C library."""
_BINDINGS = re.compile(r"\bbut (?:cuDNN )?([4-7])(?:\.\d| is )")
"""A cuDNN that has a branch of Torch 7's bindings, in the sentence of a finding."""
_LISTED_PYTHON = re.compile(r"(?<=[='|,])>=3\.(\d{1,2}),<3\.\d{1,2}\.0a0")
"""A Python for which conda has a build of a package, in its list of conflicts."""
_BY_FIELD = (
    *("other-index", "only-index", "importer", "conda-python", "torch-asked", "gpgkey", "gpgkey-legacy", "apt-other-release"),
    *("bindings", "importer-conda", "extra-package", "unpack", "rpm-key", "holder", "libcuda-dir"),
    *("module-branch", "kept-branch", "old-branch", "old-part-branch"),
)
"""Features of findings that have the field of the same name."""
_OWN_LIMIT = frozenset(
    {"attention-kind", "attention-limit", "bfloat16-limit", "compiler-limit", "card-limit", "encoder-limit", "dnn-limit"}
    | {"compiler-new", "compiled-here", "profiler"}
)
"""What fails on an old GPU whatever the build, or is compiled there; each has remedies of its own."""
_NOT_OF_WHEELS = frozenset({"conda-library", "extension-cuda-open", "extension-other-cuda", "toolkit-wanted", "bare-name", "own-module"})
"""What is missing there is not what wheels beside a framework bring."""
_PINS_TORCH = frozenset({"vllm", "xformers"})
"""Extensions whose releases each require one PyTorch, and so one CUDA."""
_OF_CONDA = r"(?i)conda|mamba|miniforge|[\\/]envs[\\/]"
_NEXT = 3
"""Lines between an error and the call that it is of."""
_LAST_WITH_CUDA_IN_TORCH = (3, 6)
"""Newest Python for which every wheel of PyTorch contains the CUDA libraries."""
_OF_JETPACK_4 = ("10.0", "10.2")
"""CUDA of JetPack 4."""
_OPENED_LATE = frozenset({"cufft", "curand", "nvtoolsext", "nvtx"})
_NO_JETSON = frozenset({"no-jetson", "windows", "wsl", "macos", "hosted-notebook"}) | (NOT_PYTHON - {"native-program"})
"""With any of these features the machine is no Jetson."""
_INSTALLER = "conda"
"""Prints messages about frameworks, but is not one."""
OTHER = "other-program"
"""Feature of a program that is not a framework of the tables: plans do not apply to it."""


class RemedyFields:
    """Fields and features of the findings of one case."""

    def __init__(self, case: Case, stack: KnownStack) -> None:
        self.case, self.book, self.stack = case, case.book, stack
        self.done = installation(case.matches, case.book)  # as far as the log shows it

    def features(self, matches: Sequence[Match], values: Mapping[str, str]) -> set[str]:
        """Features of a finding's lines beyond its cause."""
        found = self._of_lines(matches) | set(machine_features(self.case, matches))
        holds = {
            "conda-named": values["framework"] in _CONDA,
            "conda-torch": values["framework"] == "torch",
            "toolkit-found": "toolkit_home" in values,
            "python-found": bool({"line", "old_line"} & values.keys()),
            "log-alone": self.case.facts is None,
            "unnamed": values["framework"] == "FRAMEWORK",
            "index-known": "index" in values,
            "arch-asked": "arch_first" in values and not self.stack.is_windows,
            "gpu-told": "gpu_cuda" in values,
            "ptx-before-12": "ptx_cuda" in values,
            "system-known": bool({"system_package", "python_library"} & values.keys()),
            "name-removed": "removed_name" in values,
            "program-named": "cuda_build" in values,
            "toolkit-other": "cuda_there" in values,
            "other-listed": "cuda_there" in values and "files-listed" in self.case.features,
            "pin-asked": (asked := wanted_of(matches)) is not None and any(name.startswith(asked.name) for name in self.done.packages),
            "pip-old": any(is_for_newer_pip(match, self.case) for match in matches),
            "wheel-file": (wanted := wanted_of(matches)) is not None and wanted.is_file,
            "pin-of-linux": (wanted and self._is_pin_of_linux(wanted, matches)) or (self.stack.is_windows and "nvidia-index" in found),
            "glibc-extension": "glibc_needs" in values,
            "libstdcxx-conda": "libstdcxx" in found and "no-conda" not in found,
            "arm-lacks": ("arm" in values or "ctranslate2" in found) and "arm-cpu" in self.case.features,
            "machine-open": "arm" in values and self._is_machine_open(matches),
            "own-limit": bool(found & _OWN_LIMIT),
            "library-other": bool((found | self.case.features) & _NOT_OF_WHEELS),
            "driver-in-container": "driver-package" in found and "in-container" in self.case.features,
            "extension-release": "extension_release" in values,
            "torch-pair-done": "torch-pair" in found and "torch_pair" in values,
            "torch-elsewhere": self.stack.is_windows or "jetson" in self.case.features,
        }
        holds["other-system"] = holds["arm-lacks"]
        holds |= {name: name.replace("-", "_") in values for name in _BY_FIELD}
        return found | {feature for feature, is_held in holds.items() if is_held}

    def _is_machine_open(self, matches: Sequence[Match]) -> bool:
        """True if pip takes no release of a package, and neither a known Python nor the log's machine explains it."""
        is_known = self.case.facts is not None or not self.case.features.isdisjoint(_NO_JETSON | {"arm-cpu"})
        is_any = (wanted := wanted_of(matches)) is not None and wanted.version is None
        is_open = is_any or own_python(matches, self.case) is None or is_bits_open(matches, self.case)
        return is_open and not is_known and not lists_releases(matches)

    def _is_pin_of_linux(self, wanted: Wanted, matches: Sequence[Match]) -> bool:
        """True for a pin that PyTorch for Linux brings: on Windows, or if a command asked for a release that only Linux has."""
        is_brought = wanted.is_pin and (wanted.name == "triton" or (wanted.name.startswith("nvidia-") and not wanted.is_file))
        is_asked = any(name.startswith(wanted.name) for name in self.done.packages) and not self._is_system_known()
        return is_brought and (self.stack.is_windows or (lists_releases(matches) and is_asked and bool(releases_within(wanted, self.book))))

    def _of_lines(self, matches: Sequence[Match]) -> set[str]:
        framework = self._of_traceback(matches)
        named = [framework] if framework else [name for name, _ in self.stack.frameworks]
        found = {name.partition("-")[0] if name.startswith("tensorflow") else name for name in named}
        # The subject of the strongest line may have its own remedies.
        found |= {match.symptom.feature for match in matches[:1] if match.symptom.feature}
        found |= {"host-allocation"} if "driver-allocation" in found else set()
        found |= {match.symptom.framework for match in matches if match.symptom.framework}
        found |= {value for match in matches for value in self._clues("feature", match)}
        libraries = list(missing(matches))
        found |= {"cuda-library" for library in libraries if library.family in ("cudnn", "cuda")}
        wanted = [library.major for library in libraries if library.family == "cudnn" and library.major is not None]
        found |= {framework for name in tuple(found) if (framework := self.book.framework_of(name))}
        wanted += [built.major for built in values_of(matches, "built", CudnnVersion)]
        wanted += [int(value) for match in matches for value in (*self._clues("cudnn_of_symbol", match), *major_built(match))]
        if wanted and max(wanted) < min(build.version.major for build in self.book.cudnn_builds() if build.wheel):
            found.add("no-cudnn-wheel")
        nameless = any(library.family == "cudnn" and library.major is None and not library.windows for library in libraries)
        is_located = any(map(place_listed, matches)) or any(place_of(library, self.case.facts, self.book) for library in libraries)
        if (nameless or "no-cudnn-wheel" in found) and not is_located:
            found.add("not-in-wheels")
        if self.stack.pip and not self.stack.nccl_wheels()[1:]:
            found.add("one-nccl")
        if any(of_symptom(self.case.matches, "context-cuda-conda")):
            found.add("conda-cuda")
        found |= {"other-system"} if is_of_system(matches, self.case.facts) else set()
        found |= self._package_features(matches)
        if within(">=2", self.stack.pip.get("numpy")):
            found.add("numpy-too-new")
        if self.is_of_another(matches) or self.case.features & NOT_PYTHON:
            found.add(OTHER)
        if any("built" in match.fields for match in matches):
            found.discard("versions-untold")
        found |= set(version_features(matches, self.stack.majors, self.stack.python))
        return found | set(self._of_jetson(matches, found)) | self._of_own_module(matches)

    def _of_jetson(self, matches: Sequence[Match], found: Collection[str]) -> Iterator[str]:
        """Whether the machine is a Jetson, or may be one by a missing library: before CUDA 11 no other Arm machine had CUDA."""
        features, line = self.case.features, python_line(self.case)
        libraries = [library for library in missing(matches) if not library.windows]
        # Only a PyTorch for JetPack lacks what its wheels otherwise contain.
        is_of_jetpack = "torch" in found and line is not None and line <= _LAST_WITH_CUDA_IN_TORCH
        is_old = "old-cuda" in found or is_of_jetpack
        if "jetson" in features:
            yield "jetson-open"
        elif libraries and self.case.facts is None and features.isdisjoint(_NO_JETSON):
            # PyTorch for x86_64 has CUDA beside it, and opens these libraries after others.
            is_without = "torch" in found and any(library.component in _OPENED_LATE for library in libraries)
            is_system = self._is_without_conda(matches) and any("dist-packages/torch/" in frame.text for frame in self._frames(matches))
            if "arm" in features or is_of_jetpack or cuda_named(libraries) in _OF_JETPACK_4 or (is_without and is_system):
                yield "jetson-open"
            if "arm" in features and is_old:
                yield "jetson"
            if is_of_jetpack:
                yield "jetson-torch"

    def _of_own_module(self, matches: Sequence[Match]) -> set[str]:
        """Whether a library is missing for a compiled module that the program's own file imports, with no package between them."""
        failed = next((match for match in matches[:1] if match.text.lstrip().startswith("ImportError: lib")), None)
        if failed is None or not any(missing([failed])):
            return set()
        calls = [match for match in of_symptom(self.case.matches, "context-frame") if 0 < failed.line - match.line <= _NEXT]
        calls = [match for match in calls if not match.fields["file"].endswith((".pyx", ".pxd", ".pxi"))]  # compiled in a package
        last = max(calls, key=lambda match: match.line, default=None)
        if last is None or not is_own(last.fields["file"]) or any(last.line < frame.line < failed.line for frame in self.case.frames):
            return set()
        return {"own-module"}

    def _is_wanted_by_extension(self, matches: Sequence[Match]) -> bool:
        """True if an extension of PyTorch, which has been imported before it, wants a missing CUDA library."""
        calls = [frame for frame in self._frames(matches) if "-packages/" in frame.text]
        is_of_cuda = any(library.family == "cuda" and not library.windows for library in missing(matches))
        named = set(self._clues("extension_name", calls[-1])) if calls else set()
        return is_of_cuda and (bool(named - _PINS_TORCH) or self._is_of_a_plugin(calls))

    def _is_of_a_plugin(self, calls: Sequence[Match]) -> bool:
        """True if the last call is of a package that the tables do not know, and which vLLM imports after PyTorch."""
        module = str(calls[-1].fields.get("frame", "")) if calls else ""
        is_known = not module or any(self._clues("extension_name", calls[-1])) or self.book.framework_of(module) is not None
        return not is_known and any("/vllm/" in call.text for call in calls)

    def _is_without_conda(self, matches: Sequence[Match]) -> bool:
        """True if the log shows where packages are, and nothing of conda."""
        text = " ".join(match.text for match in (*matches, *self.case.frames, *self.case.matches))
        return bool(re.search(r"-packages/|(?<![\w.])/(?:usr/)?lib[\w/-]{0,40}/libstdc\+\+", text)) and not re.search(_OF_CONDA, text)

    def _is_of_another_cuda(self, matches: Sequence[Match]) -> bool:
        """True if a runtime is missing that is of another CUDA than the toolkit or the framework in the log."""
        wanted = {library.major for library in missing(matches) if library.component == "cudart"}
        there = {nvcc.major for nvcc in compilers(self.case)}
        there |= {build.cuda.major for build in self.case.context.builds if build.cuda is not None}
        return bool(wanted and there) and not wanted & there

    def _package_features(self, matches: Sequence[Match]) -> set[str]:
        """Features of the install command, and of the packages of PyTorch that a finding concerns."""
        name = self._extension(matches)
        is_other = "extension-import" in self.case.features and self._is_of_another_cuda(matches)
        is_open = self.case.facts is None and not is_other and self._is_wanted_by_extension(matches)
        holds = {
            self.done.feature: self.done.feature is not None,
            "versions-listed": any(of_symptom(self.case.matches, "pip-versions-listed")),
            "bits-open": is_bits_open(matches, self.case),
            "file-of-extension": is_file_of_extension(matches, self.book),
            "extension-named": bool(name),
            "extension-other-cuda": is_other,
            "extension-cuda-open": is_open,
            "extension-cuda-asked": is_open and not self._is_of_another_cuda(matches),
            "mmcv": name == "mmcv" and (is_open or not any(missing(matches))),
            "flash-attn": "flash_attn" in " ".join(match.text for match in matches),
            "no-conda": self._is_without_conda(matches),
            "torch-extension": is_open or (self.case.facts is None and any({"frame", "extension"} & one.fields.keys() for one in matches)),
            "extension-told": self.case.facts is None and (bool(name) or "torch-extension" in self.case.features),
        }
        torch = torch_version(matches, self.stack)
        is_pair = self.case.facts is None and is_of_pair(matches)
        holds |= {"torch-pair": is_pair, "torch-told": is_pair and torch is not None}
        return {feature for feature, is_held in holds.items() if feature is not None and is_held}

    def _clues(self, tells: str, match: Match) -> Iterator[str]:
        """Values that the clues of the tables read in one message."""
        return (value for clue in self.book.rows(Clue) if clue.tells == tells for value in _told_by(clue, match))

    def _of_traceback(self, matches: Sequence[Match]) -> str | None:
        """Framework of the last frame in the traceback before a finding."""
        named = [value for frame in self._frames(matches) for value in self._clues("traceback", frame)]
        return named[-1] if named else None

    def _frames(self, matches: Iterable[Match]) -> Sequence[Match]:
        """Traceback lines before a finding, in order; all of them if there are none."""
        line = max((match.line for match in matches), default=0)
        return sorted((frame for frame in self.case.frames if frame.line <= line), key=lambda frame: frame.line) or self.case.frames

    def is_of_another(self, matches: Sequence[Match]) -> bool:
        """True if the traceback is of a framework that the tables do not know, so that plans do not apply."""
        printed_by = (match.symptom.framework for match in matches[:1] if match.symptom.framework not in (None, _INSTALLER))
        named = self._of_traceback(matches) or next(printed_by, None)
        is_signed = named is None and is_signed_by_another(matches, self.case)
        if is_signed or any("tensorflow-inside" in self._clues("feature", match) for match in matches):
            return True
        return named is not None and self.book.framework_of(named) is None and known_framework(named, self.book) is None

    def values(self, finding: Finding, matches: Sequence[Match]) -> dict[str, str]:
        """Known fields of commands and texts."""
        values = words_of(matches) | {"python": self.stack.python}
        shown = (match.fields.get(name) for match in matches for name in ("built", "least"))
        wanted = max([version for version in shown if isinstance(version, CudnnVersion)][:2], default=None)
        if wanted is not None:
            values["built"], values["next"] = f"{wanted.major}.{wanted.minor}", str(wanted.major + 1)
        values["numpy_before"] = next((value for match in matches for value in self._clues("numpy_before", match)), "2")
        values |= {"glibc_from": "", "gxx": ""}
        clues = [clue for clue in self.book.rows(Clue) if clue.tells not in _NO_FIELDS]
        values |= {clue.tells: value for match in matches for clue in clues for value in _told_by(clue, match)}
        values |= system_values(self.case, is_windows=self.stack.is_windows)
        python = None if self.stack.is_windows else self.stack.python
        values["headers_pin"] = f"={values['headers_of']}" if "headers_of" in values else ""
        values |= importer_values(matches, self.case, python)
        if (there := _BINDINGS.search(finding.summary)) is not None:
            values["bindings"] = f"R{there[1]}"
        for match in matches[:1]:
            values |= removed_values(match.text, self.book.rows(RemovedName), imported=match.fields.get("partner", ""))[0]
        values["pip"] = "%pip" if "notebook" in self.case.features else f"{self.stack.python} -m pip"
        values |= self._told_values(matches, values["pip"])
        values["image"] = image_of(self.case.matches)
        values |= build_values(self.case.matches, self.done)
        values |= machine_values(self.case, matches)
        architectures = ";".join(map(str, dict.fromkeys(self.case.context.capabilities)))
        setting = 'set "TORCH_CUDA_ARCH_LIST={}" && ' if self.stack.is_windows else "TORCH_CUDA_ARCH_LIST={} "
        values["for_gpu"] = setting.format(architectures if self.stack.is_windows else shlex.quote(architectures)) if architectures else ""
        # Fields of a message take precedence over derived ones.
        values = self.stack.library_values(matches) | values
        if "needs" in values:
            values.setdefault("package", values["needs"])
        values.pop("extension", None)
        values |= self._extension_values(matches) | self.stack.nccl_values()
        values |= {name: shlex.quote(values[name]) for name in ("package", "requirement", "key", "file") if name in values}
        values |= path_values(matches, self.case.facts, self.stack.python, self.book)
        values |= self._own_values(matches, values["wheels_on_path"])
        asked = pip_values(matches, self.case.facts, own_python(matches, self.case), self.book, self.done)
        if "macos" in self.case.features and asked.get("name") == "tensorflow-gpu":  # ended with 1.1 there
            asked = {"name": asked["name"], "renamed": asked["wanted"].replace("-gpu", "", 1)}
        values |= asked
        if "line" in values:
            values["venv_python"] = f".venv-{values['line']}" + ("\\Scripts\\python" if self.stack.is_windows else "/bin/python")
            values["or_windows"] = "" if self._is_system_known() else f"; on Windows, with .venv-{values['line']}\\Scripts\\python"
        values["install"] = self.done.command(self.stack.python)
        values |= apt_values(matches, self.case.facts, self.book, self.case.matches)
        if isinstance(built_with := next(values_of(matches, "built"), None), CudaVersion):
            values["apt_toolkit"] = f"cuda-toolkit-{built_with.major}-{built_with.minor}"
        toolkit = self.stack.toolkit()
        values |= self.stack.toolkit_values(toolkit)
        values = ({"built": toolkit} if toolkit is not None and finding.cause == "toolkit_build_mismatch" else {}) | values
        values |= self._target_values(finding.cause, matches)
        return values | self._cuda_values(finding.cause, matches, values)

    def _told_values(self, matches: Sequence[Match], pip: str) -> dict[str, str]:
        """Fields that the words of a message give: Python of conda's builds, what needs a newer glibc, how a program gets CUDA, keys."""
        listed = [int(hit[1]) for match in matches for hit in _LISTED_PYTHON.finditer(match.text)]
        needing = next((hit[1] for match in matches for hit in _REQUIRED_BY.finditer(match.text)), None)
        build = next((value for match in matches for value in self._clues("cuda_build", match)), None)
        legacy = (match for match in matches if is_of_legacy_list(match.text))
        told = {
            "major": next((major for match in matches[:1] for major in major_built(match)), None),
            "gpgkey_legacy": next((value for match in legacy for value in self._clues("gpgkey", match)), None),
            "conda_python": f"3.{max(listed)}" if listed else None,
            "glibc_needs": needing,
            "wanted": next((word for word in map(str, values_of(matches, "wanted")) if "XX" in word), None),
            "cuda_build": for_pip(build, python_line(self.case)).replace("PIP", pip) if build is not None else None,
        }
        return {name: value for name, value in told.items() if value is not None}

    def _own_values(self, matches: Sequence[Match], wheels_on_path: str) -> dict[str, str]:
        """Fields for the right copy of a library, which is not a toolkit's cuDNN: in a known Python environment that of its wheels."""
        own = own_values(matches)
        if re.search(r"/cuda(?:-[\d.]+)?/.*cudnn", own.get("own_library", "")):
            return {"own_on_path": wheels_on_path} if "/" in self.stack.python else {}
        return own

    def _is_system_known(self) -> bool:
        """True if facts or the log show the system."""
        shown = LINUX | {"macos", "jetson", "arm", "rpm", "other-system"}
        return self.stack.is_windows or self.case.facts is not None or "/" in self.stack.python or not shown.isdisjoint(self.case.features)

    def _target_values(self, cause: str, matches: Sequence[Match]) -> dict[str, str]:
        """Fields for the frameworks to plan for, in any version and, if that helps too, in the known one."""
        moves = self.book.causes()[cause].version
        targets = self._targets(cause, matches, free=moves != "kept")
        same = self._targets(cause, matches, free=False) if moves == "kept if possible" else targets
        options = " ".join(f"-f {shlex.quote(target)}" for target in targets) or "-f FRAMEWORK"
        return {
            "targets": options,
            "same_targets": " ".join(f"-f {shlex.quote(target)}" for target in same) or options,
            "framework": targets[0].split("=")[0] if targets else "FRAMEWORK",
        }

    def _cuda_values(self, cause: str, matches: Sequence[Match], values: Mapping[str, str]) -> dict[str, str]:
        """Fields for the CUDA and cuDNN that the program needs: as the messages name them, else those of the known build."""
        framework = self.book.framework_of(values["framework"])
        builds = [build for build in self.case.context.builds if framework and self.book.framework_of(build.package) == framework]
        asked = next((hit[1] for match in matches for hit in _WANTED_CUDA.finditer(match.text)), None)
        named = cuda_named(missing(matches)) or asked or (str(max(self.stack.majors)) if len(self.stack.majors) == 1 else None)
        if named is None and builds and builds[0].cuda is not None:
            named = builds[0].cuda.line if builds[0].cuda.major < _FIRST_WITHOUT_MINOR else str(builds[0].cuda.major)
        major = values.get("major") or next((hit[1] for match in matches for hit in _WANTED.finditer(match.text)), None)
        part = library_of(values.get("part", ""))
        if major is None and part is not None and part.family == "cudnn" and part.major is not None:
            major = str(part.major)
        if major is None and builds and builds[0].cudnn is not None:
            major = str(builds[0].cudnn.major)
        shown = named or next((str(nvcc.major) for nvcc in compilers(self.case)), None)
        cuda = f"CUDA {shown}" if shown else "the CUDA that it was built with"
        cudnn = f"cuDNN {major}{last_of(major, self.book)}" if major else "the cuDNN that the program was built with"
        found = {"the_cuda": cuda, "the_cudnn": cudnn, "the_libraries": cuda} | release_values(framework, matches, self.book)
        built = CudaVersion(values["ptx_from"]) if "ptx_from" in values else builds[0].cuda if builds else None
        found["to_driver"] = driver_wanted(self.case, cause, matches, built, named)
        if values.get("ptx_from", "").startswith("12."):
            found["jit_for_ptx"] = shlex.quote(f"nvidia-nvjitlink-cu12>={values['ptx_from']}")
        served = values.get("ptx_cuda") or cuda_served(self.case)
        if served is not None:
            found["cuda_served"] = str(served)
        if "symbol_driver" in values:
            found["to_driver"] = f" to a branch from {values['symbol_driver']} on"
        found |= self.stack.tensorflow_values()
        if self._needs_cudnn(framework, matches):
            found["the_libraries"] = f"{cuda} and {cudnn}"
        if named is None:
            return found
        there, beside = toolkit_named(self.case), cudnn_beside(framework, named, self.book) if framework else None
        found |= {"cuda_there": there.line} if there is not None and named not in (there.line, str(there.major)) else {}
        found |= {"conda_cuda": f"cudatoolkit={named}" + (f" cudnn={beside}" if beside else "")} if is_in_conda(named) else {}
        return found | {"cuda_named": named}

    def _needs_cudnn(self, framework: str | None, matches: Iterable[Match]) -> bool:
        """True if the finding's lines name cuDNN, or builds of the framework were made with it."""
        builds = self.book.framework(framework).builds if framework is not None else ()
        return any(library.family == "cudnn" for library in missing(matches)) or any(build.cudnn is not None for build in builds)

    def _extension(self, matches: Sequence[Match]) -> str:
        """The PyTorch extension that the messages name, else the last one in the traceback; empty if none is known."""
        told = [value for match in matches for value in self._clues("extension_name", match)]
        if not told and self._is_of_a_plugin([frame for frame in self._frames(matches) if "-packages/" in frame.text]):
            return ""
        own = {match.line for match in matches}  # some programs print the error first
        calls = [frame for frame in self._frames(matches) if frame.line not in own] or self.case.frames
        frames = (value for frame in calls for value in self._clues("extension_name", frame))
        return told[0] if told else next(iter(list(frames)[-1:]), "")

    def _extension_values(self, matches: Sequence[Match]) -> dict[str, str]:
        """The extension to rebuild in its installed version, and what belongs to the PyTorch in the log."""
        name, torch = self._extension(matches), torch_version(matches, self.stack)
        values = extension_values(name, torch, self.stack)
        asked = next((asked for asked in map(str, values_of(matches, "asked")) if "+cu" in asked), None)
        if asked is not None and (command := pair_command(asked, self.stack)) is not None:
            values["torch_asked"] = command
        if (frames := self._frames(matches)) and frames[-1].fields.get("frame"):
            values["extension_module"] = str(frames[-1].fields["frame"])
        version = self.stack.pip.get(name)
        if version is not None and is_version(version):
            values |= {"extension_name": name, "extension": shlex.quote(f"{name}=={version.partition('+')[0]}")}
        return values

    def _targets(self, cause: str, matches: Sequence[Match], *, free: bool) -> list[str]:
        """Frameworks to plan for: those that the messages name, else installed ones or those in the log.

        `free`: in any version, else in the known one.
        """
        if self.is_of_another(matches):
            return []
        frameworks = self.stack.frameworks
        versions = {framework: version for name, version in reversed(frameworks) if (framework := self.book.framework_of(name))}
        named = [*(match.symptom.framework for match in matches), self._of_traceback(matches)]
        asked = [framework for name in named if (framework := known_framework(name, self.book))]
        lines = {match.line for match in matches}
        beside = (match for match in self.case.matches if match.line in lines)  # which show more of a long line
        guess = [value for match in (*matches, *beside) for value in self._clues("framework", match)][:1]
        chosen = (
            self._meant(cause, matches, [name for name in guess if name in versions]) or list(dict.fromkeys((*asked, *versions))) or guess
        )
        out = []
        for framework in chosen[:4]:
            package = next((name for name, _ in frameworks if self.book.framework_of(name) == framework), framework)
            # Another CUDA is another package of CuPy.
            is_alias = package in ("pytorch", "jaxlib") or package.startswith(("jax-", "jax_")) or (free and framework == "cupy")
            plain = framework if is_alias else package
            version = versions.get(framework)
            out.append(f"{plain}=={version.partition('+')[0]}" if version and not free else plain)
        return out

    def _meant(self, cause: str, matches: Sequence[Match], guess: list[str]) -> list[str]:
        """The framework that a finding about packages concerns, if known; others are not involved."""
        if cause == "framework_pkg_mismatch":
            return guess
        wanted = wanted_of(matches) if cause in ("pip_wheel_unavailable_for_python", "pip_pin_unavailable") else None
        framework = self.book.framework_of(wanted.name) if wanted is not None else None
        return [framework] if framework is not None else []


def _told_by(clue: Clue, match: Match) -> Iterator[str]:
    """What a clue tells of a message: values of its words in the line, or of those that a field equals."""
    if clue.symptoms and match.symptom.id not in clue.symptoms:
        return
    if not clue.field:
        folded = match.text.casefold()
        yield from (value for word, value in clue.values.items() if word in folded or word == "*")
    for name in match.fields.keys() & set(clue.field):
        text = str(match.fields[name]).casefold()
        yield from (value for word, value in clue.values.items() if word in (text, "*"))
