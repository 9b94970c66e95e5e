"""What to do about a finding: rows of the tables with their fields filled, and plans for this machine where a stack is concerned."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import Formatter

from msgspec.structs import replace

from cudnn_resolve.diagnosis.context import build_of
from cudnn_resolve.diagnosis.model import Case, Finding, Match, Remedy
from cudnn_resolve.diagnosis.pip import is_of_system
from cudnn_resolve.diagnosis.place import (
    declared_of,
    missing,
    place_of,
    place_values,
    suffix_of,
    wheel_component,
    wheels_of,
)
from cudnn_resolve.diagnosis.planned import is_known, is_possible, on_windows, planned, repeated
from cudnn_resolve.diagnosis.release import release_values, wanted_of
from cudnn_resolve.diagnosis.specifier import is_version, requirements_of, within
from cudnn_resolve.diagnosis.stated import (
    cuda_majors,
    cuda_named,
    cuda_of_driver,
    cudnn_beside,
    driver_of,
    features_of_numbers,
    fitting,
    image_of,
    interpreter,
    python_line,
    pythons_of,
    served,
    texts,
)
from cudnn_resolve.diagnosis.system import system_values
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.version import CudnnVersion

_MADE_FOR = re.compile(
    r"(?:\+cu|-cu|cuda[- ]?(?:version:? ?)?|cublas(?:Lt)?(?:64_|\.so\.)|cudart64_|libcudart\.so\.)(1[1-3])(?!\d{3})", re.IGNORECASE
)
"""The CUDA that a library or a build in a log is of."""
_WANTED = re.compile(r"\bcuDNN (\d{1,2})\.(?:\*|x|\d)", re.IGNORECASE)
_WANTED_CUDA = re.compile(r"\band CUDA (\d{1,2})\.\*")
"""Of cuDNN and CUDA, as ONNX Runtime asks for them."""
_INSTALLER = "conda"
"""Prints messages about frameworks, and is none."""
_OTHER = "other-program"
"""The feature of a log of a program that is no framework of the tables: no plan would concern it."""
_BESIDE_TORCH = ("torchvision", "torchaudio")
_PLAN = "cudnn-resolve apply -f "
"""Begins a command that can be tried as a plan."""
_OURS = ("cudnn-resolve apply ", "cudnn-resolve plan ")
_ELSEWHERE = {
    "windows": "cudnn-resolve plans for Linux alone: on Windows with pip, as the framework's own installation page says, or in WSL",
    "macos": "cudnn-resolve plans for Linux alone, and there is no CUDA for macOS",
}
"""What is said in the place of a plan where none can be made."""
_LINUX = frozenset({"wsl", "docker", "hosted-notebook"})
_OF_GPU = frozenset({"gpu_arch_too_new_for_build", "gpu_arch_too_old_for_build"})
_WHICH_GPU = "nvidia-smi --query-gpu=name,compute_cap --format=csv"
_OF_MACHINE = frozenset({"driver_too_old", "ptx_too_new"}) | _OF_GPU
"""Causes whose plan is a build for a GPU or a driver that the log may tell."""
_OLDEST_PYTHON = (3, 6)
"""Of which there are wheels of NVIDIA's libraries, and plans."""


class Remedies:
    """The remedies for the findings of one case."""

    def __init__(self, case: Case, matches: Mapping[str, tuple[Match, ...]], *, is_here: bool = True) -> None:
        self.case, self.book = case, case.book
        self.matches = matches
        """The matches behind the finding of each cause."""
        self.facts = case.facts if is_here else None
        """Facts that plans are made for; None where there are none, or the log is of another machine."""
        self.pip = (or_none(case.facts.packages.pip) or {}) if case.facts is not None else {}
        # A log of another machine says nothing of what is installed here.
        self.frameworks = tuple(one for one in case.context.frameworks if is_here or self.pip.get(one[0]) != one[1])
        own = case.facts.python.path if case.facts is not None else None
        self.python = shlex.quote(own) if own else (interpreter(case) if case.facts is None else None) or "python"
        self.majors = cuda_majors(case, case.book)
        """The CUDA that the log is of, as far as it tells."""
        system = "windows" if self._is_windows() else "macos" if "macos" in case.features else None
        self.elsewhere = _ELSEWHERE[system] if system and not case.features & _LINUX else None
        """Why no plan can be made for the system of this case; None where one can."""

    def all(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings, each with what to do; a plan is made for the first one, which is the one to mend."""
        out = []
        tried = True
        for one in findings:
            own = tuple(each for remedy in one.remedy for each in self._adapted(remedy, tried=tried))
            every = {remedy.command or remedy.text: remedy for remedy in (*self._of(one, tried=tried), *reversed(own))}
            rest = tuple(remedy for remedy in every.values() if remedy not in own)
            out.append(replace(one, remedy=_begun(tuple(self._possible((*own, *rest))))))
            tried = tried and one.severity == "info"
        return out

    def _possible(self, every: Iterable[Remedy]) -> Iterable[Remedy]:
        """The remedies without plans where none can be made; where there is nothing else, the first of them in words."""
        if self.elsewhere is None:
            return every
        plans = [one for one in every if one.command is not None and one.command.startswith(_OURS)]
        others = [one for one in every if one not in plans]
        return others or [Remedy(text=f"{one.text} ({self.elsewhere})") for one in plans[:1]]

    def _adapted(self, remedy: Remedy, *, tried: bool, brings: frozenset[str] = frozenset()) -> Iterator[Remedy]:
        """A remedy for this environment and this user; tried as a plan where it is one."""
        facts, wishes = self.facts, self.case.wishes
        if remedy.command is None:
            yield remedy
        elif tried and remedy.command.startswith(_PLAN) and facts is not None:
            yield from planned(remedy.text, remedy.command, facts, self.book, wishes, brings=brings)
        else:
            root = self.case.facts is not None and self.case.facts.root  # containers have no `sudo`
            command = remedy.command.replace("sudo ", "") if root else remedy.command
            if self.case.facts is None:
                command = command.replace("'", '"') if self._is_windows() else command  # cmd.exe knows no other quotes
                command += f" --python {self.python}" if command.startswith(_OURS) and "/" in self.python else ""
            yield replace(remedy, command=repeated(command, wishes))

    def _is_windows(self) -> bool:
        return "\\" in self.python or ("windows" in self.case.features and not self.case.features & _LINUX)

    def _of(self, finding: Finding, *, tried: bool) -> Iterator[Remedy]:
        """The remedies that the tables have for a finding."""
        if finding.severity == "info":
            return
        matches = self.matches.get(finding.cause, ())
        values = self._values(finding, matches)
        features = self.case.features | self._features(matches)
        is_open = is_told = is_mended = False
        for row in self.book.helps():
            if row.cause != finding.cause or any(one not in features for one in row.needs) or any(one in features for one in row.unless):
                continue
            text, command = _filled(row.text, values), _filled(row.command, values) if row.command is not None else None
            if text is None or (row.command is not None and command is None):
                continue
            if command is not None and not is_known(command):
                is_alternative = is_told and text.startswith("or ")
                is_open = is_open or not (
                    is_alternative or finding.cause.startswith("pip_") or _OTHER in features or self._is_of_another(matches)
                )
                continue
            is_told, is_mended = True, is_mended or "| grep " not in (command or "")  # which asks, and mends nothing
            if command is not None and command.startswith(_OURS) and self.case.facts is None:
                yield from self._of_told(finding.cause, Remedy(text=text, command=command), values)
                continue
            brings: frozenset[str] = frozenset()
            if command is not None and tried and command.startswith(_PLAN) and self.facts is not None:
                same = command.replace(values["targets"], values["same_targets"])
                stays = same != command and is_possible(same, self.facts, self.book, self.case.wishes)
                command = same if stays else command
                brings = frozenset(shlex.split(values.get("wheel", ""))) if finding.cause == "cuda_runtime_missing" else brings
            yield from self._adapted(Remedy(text=text, command=command), tried=tried, brings=brings)
        if is_open and not is_mended and not finding.remedy:
            text = "which framework it is, the log does not tell: in the environment of the program this finds it, and plans for it"
            yield Remedy(text=text, command="cudnn-resolve doctor LOG")

    def _of_told(self, cause: str, plan: Remedy, values: Mapping[str, str]) -> Iterator[Remedy]:
        """A plan for a machine of which only the log tells: held against the builds that the tables have for what it says."""
        case, framework = self.case, _framework(values["framework"], self.book)
        line = python_line(case)
        if framework is None or (line is not None and line < _OLDEST_PYTHON) or "jetson" in case.features:
            return
        machine_code = cause == "gpu_arch_too_new_for_build"
        is_told = cause in _OF_GPU or driver_of(case) is not None or cuda_of_driver(case) is not None
        if cause in _OF_GPU and not case.context.capabilities:
            if self._is_windows():
                yield Remedy(text="see which GPU it is: a build must have code for its capability", command=_WHICH_GPU)
                return
        elif cause in _OF_MACHINE and is_told and (found := served(framework, case, machine_code=machine_code)) is not None:
            if found.build is None:
                text = f"the tables have no build of {found.title} for {found.told}"
                ways = "NVIDIA's container of it, a build from its sources on this machine, or to change one of these"
                yield Remedy(text=f"{text}: what is left is {ways}")
                return
            plan = replace(plan, text=f"{plan.text}: by what the log tells, {found.text}")
        if self._is_windows():
            # Plans are for Linux; the indexes of some frameworks have wheels for Windows beside those.
            is_install = (plan.command or "").startswith(_OURS[0])
            same = (plan.command or "").replace(values["targets"], values["same_targets"])
            tries = (same, plan.command or "") if is_install else ()
            made = (self._wheels_for_windows(framework, one, values, machine_code=machine_code) for one in tries)
            chosen = next((one for one in made if one is not None), None)
            if chosen is None:
                yield plan  # said in words, where nothing else helps
                return
            build, wheels = chosen
            *firsts, plan = on_windows(plan, self.python, wheels, pythons_of(build, case.book) if line is None else [])
            for first in firsts:
                yield from self._adapted(first, tried=False)
        elif "hosted-notebook" in case.features:
            plan = replace(plan, text=f"{plan.text} (in a cell behind `!`; then start the session again)")
        yield from self._adapted(plan, tried=False)

    def _wheels_for_windows(self, framework: str, plan: str, values: Mapping[str, str], *, machine_code: bool) -> tuple[Build, str] | None:
        """The newest or the wanted build of a framework, and its words for pip, where it is on an index beside the default one."""
        cudnn = int(values["major"]) if values.get("major", "").isdigit() else None
        builds = fitting(framework, self.case, machine_code=machine_code, cudnn=cudnn)
        builds = [one for one in builds if one.cuda and one.cuda.major in self.majors] or builds
        wanted = re.search(r"-f \W?[\w.-]+(?:==|>=)([\w.]+)", plan)
        version = wanted[1] if wanted else builds[0].version if builds else ""
        build = next((one for one in builds if one.version == version and one.index != "default"), None)
        if build is None:
            return None
        index = self.book.index(build.index)
        option = "-f" if index.kind == "find-links" else "--index-url"
        # These are built for one release of it.
        named = [one for one in _BESIDE_TORCH if one == "torchvision" or any(one in text for text in texts(self.case))]
        beside = "".join(f" {one}" for one in named) if framework == "torch" else ""
        return build, f"{build.package}=={build.wheel_version or build.version}{beside} {option} {index.url}"

    # --- what the rows of remedies ask for ---

    def _features(self, matches: Sequence[Match]) -> set[str]:
        """What the lines of a finding tell beyond its cause."""
        framework = self._of_traceback(matches)
        named = [framework] if framework else [name for name, _ in self.frameworks]
        found = {name.partition("-")[0] if name.startswith("tensorflow") else name for name in named}
        # What the strongest line is about has remedies of its own.
        found |= {match.symptom.feature for match in matches[:1] if match.symptom.feature}
        found |= {match.symptom.framework for match in matches if match.symptom.framework}
        found |= {value for match in matches for value in self._clues("feature", match)}
        libraries = list(missing(matches))
        if any(one.family in ("cudnn", "cuda") for one in libraries):
            found.add("cuda-library")
        wanted = [one.major for one in libraries if one.family == "cudnn" and one.major is not None]
        found |= {framework for name in tuple(found) if (framework := self.book.framework_of(name))}
        wanted += [one.fields["built"].major for one in matches if isinstance(one.fields.get("built"), CudnnVersion)]
        if wanted and max(wanted) < min(build.version.major for build in self.book.cudnn_builds() if build.wheel):
            found.add("no-cudnn-wheel")
        nameless = any(one.family == "cudnn" and one.major is None and not one.windows for one in libraries)
        if (nameless or "no-cudnn-wheel" in found) and not any(place_of(one, self.case.facts, self.book) for one in libraries):
            found.add("not-in-wheels")
        if self.pip and not self._nccls()[1:]:
            found.add("one-nccl")
        if is_of_system(matches, self.case.facts):
            found.add("other-system")
        if within(">=2", self.pip.get("numpy")):
            found.add("numpy-too-new")
        if self._is_of_another(matches):
            found.add(_OTHER)
        if any("built" in one.fields for one in matches):
            found.discard("versions-untold")
        return found | set(features_of_numbers(matches, self.majors, self.python))

    def _clues(self, tells: str, match: Match) -> Iterator[str]:
        """What the clues of the tables read in one message."""
        for clue in self.book.clues():
            if clue.tells != tells or (clue.symptoms and match.symptom.id not in clue.symptoms):
                continue
            if clue.field is None:
                folded = match.text.casefold()
                yield from (value for word, value in clue.values.items() if word in folded or word == "*")
            elif clue.field in match.fields:
                told = str(match.fields[clue.field]).casefold()
                yield from (value for word, value in clue.values.items() if word in (told, "*"))

    def _of_traceback(self, matches: Sequence[Match]) -> str | None:
        """The framework whose files the traceback before a finding names last."""
        line = max((match.line for match in matches), default=0)
        frames = sorted((one for one in self.case.frames if one.line <= line), key=lambda one: one.line) or self.case.frames
        named = [value for one in frames for value in self._clues("traceback", one)]
        return named[-1] if named else None

    def _is_of_another(self, matches: Sequence[Match]) -> bool:
        """True where the traceback is of a framework that the tables do not know: no plan would concern it."""
        said = (one.symptom.framework for one in matches[:1] if one.symptom.framework not in (None, _INSTALLER))
        named = self._of_traceback(matches) or next(said, None)
        return named is not None and self.book.framework_of(named) is None and _framework(named, self.book) is None

    def _values(self, finding: Finding, matches: Sequence[Match]) -> dict[str, str]:
        """The fields of commands and texts, as far as they are known."""
        values: dict[str, str] = {"python": self.python}
        for match in matches:
            for name, value in match.fields.items():
                values.setdefault(name, str(getattr(value, "file", value)))
        wanted = [one.fields[name] for one in matches for name in ("built", "least") if isinstance(one.fields.get(name), CudnnVersion)]
        built = max(wanted[:2], default=None)
        if built is not None:
            values["exact"] = ".".join(map(str, built.parts[:3]))
            values["built"], values["next"] = f"{built.major}.{built.minor}", str(built.major + 1)
        values["numpy_before"] = next((value for match in matches for value in self._clues("numpy_before", match)), "2")
        values |= {name: value for match in matches for name in ("numpy_range", "gpgkey") for value in self._clues(name, match)}
        values["image"] = image_of(self.case.matches)
        # What a message states is not overwritten by what is worked out.
        values = self._library_values(matches) | values
        if "needs" in values:
            values.setdefault("package", values["needs"])
        values["extension_told"] = next((value for match in matches for value in self._clues("extension_name", match)), "NAME")
        values.pop("extension", None)
        values |= self._extension_values(matches) | self._nccl_values()
        for name in ("package", "requirement", "key"):
            if name in values:
                values[name] = shlex.quote(values[name])
        values |= place_values(matches, self.case.facts, self.python, self.book)
        values |= release_values(matches, self.case.facts, self.book)
        values |= system_values(matches, self.case.facts, self.book)
        toolkit = self._toolkit()
        if toolkit is not None:
            values["toolkit"] = toolkit
        moves = self.book.causes()[finding.cause].version
        targets = self._targets(finding.cause, matches, free=moves != "kept")
        same = self._targets(finding.cause, matches, free=False) if moves == "kept if possible" else targets
        values["targets"] = " ".join(f"-f {shlex.quote(one)}" for one in targets) or "-f FRAMEWORK"
        values["same_targets"] = " ".join(f"-f {shlex.quote(one)}" for one in same) or values["targets"]
        values["framework"] = targets[0].split("=")[0] if targets else "FRAMEWORK"
        asked = next((one[1] for match in matches for one in _WANTED_CUDA.finditer(match.text)), None)
        named = cuda_named(missing(matches)) or asked or (str(max(self.majors)) if len(self.majors) == 1 else None)
        if named is not None:
            values["cuda_named"] = named
            framework = self.book.framework_of(values["framework"])
            beside = cudnn_beside(framework, named, self.book) if framework else None
            if beside is not None:
                values["cudnn_named"] = beside
        major = values.get("major") or next((one[1] for match in matches for one in _WANTED.finditer(match.text)), None)
        values["the_cudnn"] = f"cuDNN {major}" if major else "the cuDNN that the program was built for"
        values["the_cuda"] = f"CUDA {named}" if named else "the CUDA that it was built for"
        return values

    def _extension_values(self, matches: Iterable[Match]) -> dict[str, str]:
        """The extension that is to be built again, in the version that is installed; nothing for one that no index has under its name."""
        name = next((value for match in matches for value in self._clues("extension_name", match)), "")
        version = self.pip.get(name)
        if version is None or not is_version(version):
            return {}
        return {"extension_name": name, "extension": shlex.quote(f"{name}=={version.partition('+')[0]}")}

    def _library_values(self, matches: Sequence[Match]) -> dict[str, str]:
        """The wheels of the libraries that are missing, and the majors of cuDNN."""
        values = {}
        beside = {suffix_of(name) for name in self.pip if self.book.component(name) is not None} | self._built_for()
        libraries = list(missing(matches))
        told = {wheel_component(one) for one in libraries if one.major is not None}
        libraries = [one for one in libraries if one.major is not None or wheel_component(one) not in told]
        beside |= {"cu13"} if "" in beside else set()
        beside = beside or {f"cu{one}" for one in self.majors if len(self.majors) == 1}
        beside = beside or {f"cu{major}" for one in matches for major in _MADE_FOR.findall(one.text)} or self._of_log()
        beside = beside or self._of_machine()
        line = python_line(self.case) if self.case.facts is None else None
        is_old = bool(self.majors and max(self.majors) < 11) or (line is not None and line < _OLDEST_PYTHON)
        found = dict.fromkeys(wheels_of(one, beside, self.book) for one in libraries if one.family != "cudnn" and not is_old)
        wheels = [one for one in found if one]
        if wheels and all(len(one) == 1 for one in wheels):
            values["wheel"] = shlex.join(one[0] for one in wheels)
        elif wheels:
            values["wheels_by_cuda"] = ", ".join(" or ".join(one) for one in wheels)
        declared = declared_of(self.case.facts, libraries, self.book) if self.case.facts is not None else []
        if declared:
            values["declared"] = shlex.join(declared)
        values["nvcc_wheel"] = "nvidia-cuda-nvcc" if self._is_cuda_13(matches, beside) else "nvidia-cuda-nvcc-cu12"
        majors = [one.major for one in libraries if one.family == "cudnn" and one.major is not None]
        built = [one.fields["built"].major for one in matches if isinstance(one.fields.get("built"), CudnnVersion)]
        wanted = (majors or built)[:1]
        known = {str(build.cuda_major) for build in self.book.cudnn_builds() if build.wheel and build.version.major in wanted}
        # Of cuDNN 7 and older there are no wheels; of others the CUDA decides, and a wheel of another one would not load.
        fitting = [one for one in sorted(beside) if one[2:] in known or (one and not wanted)] or sorted(f"cu{one}" for one in known)
        if is_old:
            pass  # there are no wheels for it
        elif fitting and (len(known) == 1 or beside):
            values["cudnn_wheel"] = f"nvidia-cudnn-{fitting[0]}"
        elif fitting:
            values["cudnn_wheels"] = " or ".join(f"nvidia-cudnn-{one}" for one in fitting)
        if majors:
            values["major"] = str(majors[0])
            cuda = {int(one[2:]) for one in beside if one[2:].isdigit()}
            rows = (one for one in self.book.cudnn_builds() if one.version.major == majors[0] and (not cuda or one.cuda_major in cuda))
            packages = {one.apt.package for one in rows if one.apt.package}
            if len(packages) == 1:
                values["apt_cudnn"] = packages.pop()
        copies = (or_none(self.case.facts.cudnn) or ()) if self.case.facts else ()
        owner = next((one.owner for one in copies if one.owner in self.pip), None)
        if owner is not None:
            values["package"] = f"{owner}=={self.pip[owner]}"
        return values

    def _nccls(self) -> list[str]:
        """The installed wheels of NCCL, which write the same files."""
        return [name for name in self.pip if name.startswith("nvidia-nccl")]

    def _nccl_values(self) -> dict[str, str]:
        """Of two wheels of NCCL the one that a package requires, and the other."""
        facts, there = self.case.facts, self._nccls()
        every = (line for lines in facts.packages.requires.values() for line in lines) if facts is not None else ()
        wanted = {one.name for one in requirements_of(every, facts)} & set(there) if facts is not None else set()
        others = [shlex.quote(one) for one in there if one not in wanted]
        if len(wanted) != 1 or not others or not is_version(self.pip[next(iter(wanted))]):
            return {}
        kept = next(iter(wanted))
        return {"nccl": shlex.quote(f"{kept}=={self.pip[kept]}"), "nccl_other": " ".join(others)}

    def _is_cuda_13(self, matches: Iterable[Match], beside: set[str]) -> bool:
        """True where what is installed, or what the log names, is built for CUDA 13 and nothing is for CUDA 12."""
        told = [*(one.text for one in matches), *(name for name, _ in self.frameworks), *self.pip]
        of = {major for major in ("12", "13") if f"cu{major}" in beside or any(re.search(rf"cu(?:da)?{major}(?!\d)", one) for one in told)}
        return of == {"13"}

    def _built_for(self) -> set[str]:
        """The CUDA of the frameworks at hand, as NVIDIA's wheels are named after it."""
        builds = (build_of(name, version, self.book) for name, version in self.frameworks)
        return {f"cu{one.cuda.major}" for one in builds if one is not None and one.cuda is not None}

    def _of_log(self) -> set[str]:
        """The one CUDA that packages named anywhere in the log are made for; else the only one that its driver runs."""
        named = {f"cu{one.fields['of']}" for one in self.case.matches if one.symptom.id == "context-cuda-major"}
        if named:
            return named if len(named) == 1 else set()
        most = [one.fields["cuda"].major for one in self.case.matches if one.symptom.id == "context-smi-table" and "cuda" in one.fields]
        return {"cu11"} if most and min(most) == 11 else set()

    def _of_machine(self) -> set[str]:
        """The CUDA of this machine's toolkit, where it has one; else the only one that its driver runs."""
        if self.facts is None:
            return set()
        told = {one.version.partition(".")[0] for one in or_none(self.facts.cuda_toolkits) or () if one.version}
        driver = or_none(self.facts.driver)
        if not told and driver is not None and (driver.cuda or "").startswith("11."):
            return {"cu11"}
        return {f"cu{one}" for one in told} if len(told) == 1 else set()

    def _toolkit(self) -> str | None:
        """The CUDA that PyTorch at hand was built with, for which extensions are to be compiled."""
        version = next((version for name, version in self.frameworks if name == "torch"), "")
        told = re.fullmatch(r"cu(\d{2})(\d)", version.partition("+")[2])
        build = build_of("torch", version, self.book) if not told and "+" not in version else None
        return f"{told[1]}.{told[2]}" if told else build.cuda.line if build and build.cuda else None

    def _targets(self, cause: str, matches: Sequence[Match], *, free: bool) -> list[str]:
        """The frameworks to plan for: those that the messages name, else those that are installed or that the log shows.

        `free`: in any version, else in the one that is told.
        """
        if self._is_of_another(matches):
            return []
        frameworks = self.frameworks
        told = {framework: version for name, version in reversed(frameworks) if (framework := self.book.framework_of(name))}
        named = [*(one.symptom.framework for one in matches), self._of_traceback(matches)]
        asked = [framework for name in named if (framework := _framework(name, self.book))]
        lines = {one.line for one in matches}
        beside = (one for one in self.case.matches if one.line in lines)  # which show more of a long line
        guess = [value for match in (*matches, *beside) for value in self._clues("framework", match)][:1]
        chosen = self._meant(cause, matches, [one for one in guess if one in told]) or list(dict.fromkeys((*asked, *told))) or guess
        out = []
        for framework in chosen[:4]:
            package = next((name for name, _ in frameworks if self.book.framework_of(name) == framework), framework)
            plain = framework if package in ("pytorch", "jaxlib") or package.startswith(("jax-", "jax_")) else package
            version = told.get(framework)
            out.append(f"{plain}=={version.partition('+')[0]}" if version and not free else plain)
        return out

    def _meant(self, cause: str, matches: Sequence[Match], guess: list[str]) -> list[str]:
        """The one framework that a finding about packages is about, where it can be told: the others there have no part in it."""
        if cause == "framework_pkg_mismatch":
            return guess
        wanted = wanted_of(matches) if cause in ("pip_wheel_unavailable_for_python", "pip_pin_unavailable") else None
        framework = self.book.framework_of(wanted.name) if wanted is not None else None
        return [framework] if framework is not None else []


def _framework(name: str | None, book: Book) -> str | None:
    try:
        return book.framework(name).name if name else None
    except KeyError:
        return None


def _begun(every: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """The remedies, the first of which is no "or": what stood before it in the table may have been left out."""
    first = replace(every[0], text=every[0].text.removeprefix("or ")) if every else None
    return every if first is None else (first, *every[1:])


def _filled(template: str, values: Mapping[str, str]) -> str | None:
    """A command with its fields, None where one is not known; braces that are no field of ours (`$(…)`, `{{`) stay."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        return template
    if any(name is not None and name not in values for _, name, _, _ in parts):
        return None
    return "".join(text + (values[name] if name is not None else "") for text, name, _, _ in parts)
