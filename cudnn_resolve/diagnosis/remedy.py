"""Remedies of findings: rows of the tables with their fields filled, and plans for this machine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import Formatter

from msgspec.structs import replace

from cudnn_resolve.diagnosis.apt import apt_values
from cudnn_resolve.diagnosis.derive_pip import is_of_system
from cudnn_resolve.diagnosis.library_path import listed_in, missing, path_values, place_of
from cudnn_resolve.diagnosis.log_stack import (
    cuda_named,
    cuda_of_driver,
    cudnn_beside,
    driver_of,
    fitting,
    image_of,
    python_line,
    pythons_of,
    served,
    texts,
    version_features,
)
from cudnn_resolve.diagnosis.model import Case, Finding, Match, Remedy
from cudnn_resolve.diagnosis.pip_release import pip_values, wanted_of
from cudnn_resolve.diagnosis.plan_remedy import is_known, is_possible, on_windows, repeated, tried_plan
from cudnn_resolve.diagnosis.remedy_stack import KnownStack
from cudnn_resolve.diagnosis.specifier import is_version, within
from cudnn_resolve.diagnosis.unknown import Unknown
from cudnn_resolve.diagnosis.weigh import FINDING
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.version import CudaVersion, CudnnVersion

_WANTED = re.compile(r"\bcuDNN (\d{1,2})\.(?:\*|x|\d)", re.IGNORECASE)
_WANTED_CUDA = re.compile(r"\band CUDA (\d{1,2})\.\*")
"""ONNX Runtime's wording for the cuDNN and CUDA that it needs."""
_INSTALLER = "conda"
"""Prints messages about frameworks, but is not one."""
_OTHER = "other-program"
"""Feature of a program that is not a framework of the tables: plans do not apply to it."""
_FIRST_WITHOUT_MINOR = 11
"""First CUDA major whose libraries work for all its minors."""
_BESIDE_TORCH = ("torchvision", "torchaudio")
_NAMES, _NEXT = "names-of-another-release", 3
"""Symptom of a name that another release has, and its distance from the call that asks for it."""
_FAMILIES = ("torch", "tensorflow", "keras", "jax", "triton")
_PLAN = "cudnn-resolve apply -f "
"""Prefix of a command that can be tried as a plan."""
_OURS = ("cudnn-resolve apply ", "cudnn-resolve plan ")
_ELSEWHERE = {
    "windows": "cudnn-resolve plans for Linux only: on Windows use pip as described on the framework's installation page, or WSL 2",
    "macos": "cudnn-resolve plans for Linux only, and there is no CUDA for macOS",
}
"""Shown instead of a plan on systems without plans."""
_LINUX = frozenset({"wsl", "docker", "hosted-notebook"})
_OF_GPU = frozenset({"gpu_arch_too_new_for_build", "gpu_arch_too_old_for_build"})
_WHICH_GPU = "nvidia-smi --query-gpu=name,compute_cap --format=csv"
_OF_MACHINE = frozenset({"driver_too_old", "ptx_too_new"}) | _OF_GPU
"""Causes whose plan is a build for the GPU or driver in the log."""
_OLDEST_PYTHON = (3, 6)
"""Oldest Python with wheels of NVIDIA's libraries, and with plans."""


class Remedies:
    """Remedies for the findings of one case."""

    def __init__(
        self, case: Case, matches: Mapping[str, tuple[Match, ...]], unknown: Unknown | None = None, *, is_here: bool = True
    ) -> None:
        self.case, self.book = case, case.book
        self.unknown = unknown
        """The failure of unknown cause, if the log shows nothing else."""
        self.matches = matches
        """Matches of each cause's finding."""
        self.facts = case.facts if is_here else None
        """Facts that plans are made for; None without facts, or if the log is of another machine."""
        self.stack = KnownStack(case, self.facts, is_here=is_here)
        system = "windows" if self._is_windows() else "macos" if "macos" in case.features else None
        self.elsewhere = _ELSEWHERE[system] if system and not case.features & _LINUX else None
        """Why no plan can be made for this system; None if one can."""

    def all(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings with their remedies; a plan is made only for the first one, which is to be fixed first."""
        out: list[Finding] = []
        tried = True
        for finding in findings:
            if finding.severity == "info" and not (self._is_likely(finding) and not out):
                out.append(finding)
                continue
            own = tuple(each for remedy in finding.remedy for each in self._adapted(remedy, tried=tried))
            every = {remedy.command or remedy.text: remedy for remedy in (*self._of(finding, tried=tried), *reversed(own))}
            rest = tuple(remedy for remedy in every.values() if remedy not in own)
            out.append(replace(finding, remedy=_begun(tuple(self._possible((*own, *rest))))))
            tried = tried and finding.severity == "info"
        return out

    def _is_likely(self, finding: Finding) -> bool:
        """True for a note that is the best explanation of a log: a cause that the program has not survived."""
        is_known = finding.cause != "unrecognised" or (self.unknown is None and finding.confidence > FINDING / 100)
        return self.case.facts is None and finding.cause != "harmless" and is_known and finding.confidence >= FINDING / 100

    def _possible(self, every: Iterable[Remedy]) -> Iterable[Remedy]:
        """Drop plans where none can be made; if nothing else is left, keep the first of them without its command."""
        if self.elsewhere is None:
            return every
        plans = [remedy for remedy in every if remedy.command is not None and remedy.command.startswith(_OURS)]
        others = [remedy for remedy in every if remedy not in plans]
        return others or [Remedy(text=f"{remedy.text} ({self.elsewhere})") for remedy in plans[:1]]

    def _adapted(self, remedy: Remedy, *, tried: bool, brings: frozenset[str] = frozenset()) -> Iterator[Remedy]:
        """Adapt a remedy to this environment and user; try it if it is a plan."""
        facts, wishes = self.facts, self.case.wishes
        if remedy.command is None:
            yield remedy
        elif tried and remedy.command.startswith(_PLAN) and facts is not None:
            yield from tried_plan(remedy.text, remedy.command, facts, self.book, wishes, brings=brings)
        else:
            root = self.case.facts is not None and self.case.facts.root  # containers have no `sudo`
            command = remedy.command.replace("sudo ", "") if root else remedy.command
            if self.case.facts is None:
                command = command.replace("'", '"') if self._is_windows() else command  # cmd.exe knows no other quotes
                command += f" --python {self.stack.python}" if command.startswith(_OURS) and "/" in self.stack.python else ""
            yield replace(remedy, command=repeated(command, wishes))

    def _is_windows(self) -> bool:
        return "\\" in self.stack.python or ("windows" in self.case.features and not self.case.features & _LINUX)

    def _of(self, finding: Finding, *, tried: bool) -> Iterator[Remedy]:
        """Remedies of the tables for a finding."""
        matches = self.matches.get(finding.cause, ())
        values = self._values(finding, matches)
        features = self.case.features | self._features(matches)
        features |= {"python-found"} if {"line", "old_line"} & values.keys() else set()
        features |= {"importer"} & values.keys()
        if self.unknown is not None and finding.cause == self.unknown.finding.cause:
            features, values = features | self.unknown.features, {**values, **self.unknown.values}
        is_open = is_offered = is_mended = False
        for row in self.book.helps():
            if (
                row.cause != finding.cause
                or any(feature not in features for feature in row.needs)
                or any(feature in features for feature in row.unless)
            ):
                continue
            text, command = _filled(row.text, values), _filled(row.command, values) if row.command is not None else None
            if text is None or (row.command is not None and command is None):
                continue
            if command is not None and not is_known(command):
                is_alternative = is_offered and text.startswith("or ")
                is_open = is_open or not (
                    is_alternative or finding.cause.startswith("pip_") or _OTHER in features or self._is_of_another(matches)
                )
                continue
            is_offered, is_mended = True, is_mended or "| grep " not in (command or "")  # which asks, and mends nothing
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
            text = "the log does not show which framework is used: run this in the program's environment, where it is detected"
            yield Remedy(text=text, command="cudnn-resolve doctor LOG")

    def _of_told(self, cause: str, plan: Remedy, values: Mapping[str, str]) -> Iterator[Remedy]:
        """A plan for a machine known only from its log: compared with the builds of the tables that fit it."""
        case, framework = self.case, _framework(values["framework"], self.book)
        line = python_line(case)
        if framework is None or (line is not None and line < _OLDEST_PYTHON) or "jetson" in case.features:
            return
        machine_code = cause == "gpu_arch_too_new_for_build"
        is_limited = cause in _OF_GPU or driver_of(case) is not None or cuda_of_driver(case) is not None
        if cause in _OF_GPU and not case.context.capabilities:
            if self._is_windows():
                yield Remedy(text="find the GPU's compute capability: a build must have code for it", command=_WHICH_GPU)
                return
        elif cause in _OF_MACHINE and is_limited and (found := served(framework, case, machine_code=machine_code)) is not None:
            if found.build is None:
                text = f"no known build of {found.title} runs on {found.known}"
                ways = "use NVIDIA's container, compile it on this machine, or change one of these"
                yield Remedy(text=f"{text}: {ways}")
                return
            plan = replace(plan, text=f"{plan.text}: for {found.known}, {found.text}")
        if self._is_windows():
            # Plans are for Linux only, but the indexes of some frameworks also have wheels for Windows.
            is_install = (plan.command or "").startswith(_OURS[0])
            same = (plan.command or "").replace(values["targets"], values["same_targets"])
            tries = (same, plan.command or "") if is_install else ()
            made = (self._wheels_for_windows(framework, command, values, machine_code=machine_code) for command in tries)
            chosen = next((choice for choice in made if choice is not None), None)
            if chosen is None:
                yield plan  # kept without its command if nothing else helps
                return
            build, wheels = chosen
            plans = on_windows(plan, self.stack.python, wheels, pythons_of(build, case.book) if line is None else [])
            yield from (adapted for plan in plans for adapted in self._adapted(plan, tried=False))
            return
        if "hosted-notebook" in case.features:
            plan = replace(plan, text=f"{plan.text} (in a notebook cell, prefixed with `!`; then restart the session)")
        yield from self._adapted(plan, tried=False)

    def _wheels_for_windows(self, framework: str, plan: str, values: Mapping[str, str], *, machine_code: bool) -> tuple[Build, str] | None:
        """Newest or requested build of a framework, and pip's arguments for it, if it is on an index other than the default."""
        cudnn = int(values["major"]) if values.get("major", "").isdigit() else None
        builds = fitting(framework, self.case, machine_code=machine_code, cudnn=cudnn)
        builds = [build for build in builds if build.cuda and build.cuda.major in self.stack.majors] or builds
        wanted = re.search(r"-f \W?[\w.-]+(?:==|>=)([\w.]+)", plan)
        version = wanted[1] if wanted else builds[0].version if builds else ""
        build = next((build for build in builds if build.version == version and build.index != "default"), None)
        if build is None:
            return None
        index = self.book.index(build.index)
        option = "-f" if index.kind == "find-links" else "--index-url"
        # Companions are built for one release of PyTorch.
        named = [name for name in _BESIDE_TORCH if name == "torchvision" or any(name in text for text in texts(self.case))]
        beside = "".join(f" {name}" for name in named) if framework == "torch" else ""
        return build, f"{build.package}=={build.wheel_version or build.version}{beside} {option} {index.url}"

    # --- features and fields of remedy rows ---

    def _features(self, matches: Sequence[Match]) -> set[str]:
        """Features of a finding's lines beyond its cause."""
        framework = self._of_traceback(matches)
        named = [framework] if framework else [name for name, _ in self.stack.frameworks]
        found = {name.partition("-")[0] if name.startswith("tensorflow") else name for name in named}
        # The subject of the strongest line may have its own remedies.
        found |= {match.symptom.feature for match in matches[:1] if match.symptom.feature}
        found |= {match.symptom.framework for match in matches if match.symptom.framework}
        found |= {value for match in matches for value in self._clues("feature", match)}
        libraries = list(missing(matches))
        if any(library.family in ("cudnn", "cuda") for library in libraries):
            found.add("cuda-library")
        wanted = [library.major for library in libraries if library.family == "cudnn" and library.major is not None]
        found |= {framework for name in tuple(found) if (framework := self.book.framework_of(name))}
        wanted += [match.fields["built"].major for match in matches if isinstance(match.fields.get("built"), CudnnVersion)]
        if wanted and max(wanted) < min(build.version.major for build in self.book.cudnn_builds() if build.wheel):
            found.add("no-cudnn-wheel")
        nameless = any(library.family == "cudnn" and library.major is None and not library.windows for library in libraries)
        is_located = any(map(listed_in, matches)) or any(place_of(library, self.case.facts, self.book) for library in libraries)
        if (nameless or "no-cudnn-wheel" in found) and not is_located:
            found.add("not-in-wheels")
        if self.stack.pip and not self.stack.nccl_wheels()[1:]:
            found.add("one-nccl")
        if any(match.symptom.id == "context-cuda-conda" for match in self.case.matches):
            found.add("conda-cuda")
        if is_of_system(matches, self.case.facts):
            found.add("other-system")
        if within(">=2", self.stack.pip.get("numpy")):
            found.add("numpy-too-new")
        if self._is_of_another(matches):
            found.add(_OTHER)
        if any("built" in match.fields for match in matches):
            found.discard("versions-untold")
        return found | set(version_features(matches, self.stack.majors, self.stack.python))

    def _clues(self, tells: str, match: Match) -> Iterator[str]:
        """Values that the clues of the tables read in one message."""
        for clue in self.book.clues():
            if clue.tells != tells or (clue.symptoms and match.symptom.id not in clue.symptoms):
                continue
            if clue.field is None:
                folded = match.text.casefold()
                yield from (value for word, value in clue.values.items() if word in folded or word == "*")
            elif clue.field in match.fields:
                text = str(match.fields[clue.field]).casefold()
                yield from (value for word, value in clue.values.items() if word in (text, "*"))

    def _of_traceback(self, matches: Sequence[Match]) -> str | None:
        """Framework of the last frame in the traceback before a finding."""
        line = max((match.line for match in matches), default=0)
        frames = sorted((frame for frame in self.case.frames if frame.line <= line), key=lambda frame: frame.line) or self.case.frames
        named = [value for frame in frames for value in self._clues("traceback", frame)]
        return named[-1] if named else None

    def _importer(self, matches: Sequence[Match]) -> str | None:
        """Package whose code asked another one for a name that it does not have, unless it is a framework or a part of one."""
        asked = next((match for match in matches[:1] if match.symptom.id == _NAMES), None)
        calls = (frame for frame in self.case.frames if "-packages" in frame.text)
        near = [frame for frame in calls if asked is not None and 0 < asked.line - frame.line <= _NEXT]
        name = str(max(near, key=lambda frame: frame.line).fields.get("frame", "")) if near else ""
        is_of_framework = _framework(name, self.book) is not None or any(name.startswith(each) for each in _FAMILIES)
        return shlex.quote(name) if name and not is_of_framework else None

    def _is_of_another(self, matches: Sequence[Match]) -> bool:
        """True if the traceback is of a framework that the tables do not know, so that plans do not apply."""
        printed_by = (match.symptom.framework for match in matches[:1] if match.symptom.framework not in (None, _INSTALLER))
        named = self._of_traceback(matches) or next(printed_by, None)
        return named is not None and self.book.framework_of(named) is None and _framework(named, self.book) is None

    def _values(self, finding: Finding, matches: Sequence[Match]) -> dict[str, str]:
        """Known fields of commands and texts."""
        values: dict[str, str] = {"python": self.stack.python}
        for match in matches:
            for name, value in match.fields.items():
                values.setdefault(name, str(getattr(value, "file", value)))
        wanted = [
            match.fields[name] for match in matches for name in ("built", "least") if isinstance(match.fields.get(name), CudnnVersion)
        ]
        built = max(wanted[:2], default=None)
        if built is not None:
            values["exact"] = ".".join(map(str, built.parts[:3]))
            values["built"], values["next"] = f"{built.major}.{built.minor}", str(built.major + 1)
        values["numpy_before"] = next((value for match in matches for value in self._clues("numpy_before", match)), "2")
        values |= {name: value for match in matches for name in ("numpy_range", "gpgkey") for value in self._clues(name, match)}
        values["rpm_tool"] = next((value for match in matches for value in self._clues("rpm_tool", match)), "dnf")
        importer = self._importer(matches)
        if importer is not None:
            values["importer"] = importer
        values["pip"] = "%pip" if "notebook" in self.case.features else f"{self.stack.python} -m pip"
        values["image"] = image_of(self.case.matches)
        architectures = ";".join(map(str, dict.fromkeys(self.case.context.capabilities)))
        values["for_gpu"] = f"TORCH_CUDA_ARCH_LIST={shlex.quote(architectures)} " if architectures else ""
        # Fields of a message take precedence over derived ones.
        values = self.stack.library_values(matches) | values
        if "needs" in values:
            values.setdefault("package", values["needs"])
        values["extension_told"] = next((value for match in matches for value in self._clues("extension_name", match)), "NAME")
        values.pop("extension", None)
        values |= self._extension_values(matches) | self.stack.nccl_values()
        for name in ("package", "requirement", "key"):
            if name in values:
                values[name] = shlex.quote(values[name])
        values |= path_values(matches, self.case.facts, self.stack.python, self.book)
        values |= pip_values(matches, self.case.facts, self.book)
        values |= apt_values(matches, self.case.facts, self.book)
        toolkit = self.stack.toolkit()
        if toolkit is not None:
            values["toolkit"] = toolkit
        values |= self._target_values(finding.cause, matches)
        return values | self._cuda_values(matches, values)

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

    def _cuda_values(self, matches: Sequence[Match], values: Mapping[str, str]) -> dict[str, str]:
        """Fields for the CUDA and cuDNN that the program needs: as the messages name them, else those of the known build."""
        framework = self.book.framework_of(values["framework"])
        builds = [build for build in self.case.context.builds if framework and self.book.framework_of(build.package) == framework]
        asked = next((hit[1] for match in matches for hit in _WANTED_CUDA.finditer(match.text)), None)
        named = cuda_named(missing(matches)) or asked or (str(max(self.stack.majors)) if len(self.stack.majors) == 1 else None)
        if named is None and builds and builds[0].cuda is not None:
            named = builds[0].cuda.line if builds[0].cuda.major < _FIRST_WITHOUT_MINOR else str(builds[0].cuda.major)
        major = values.get("major") or next((hit[1] for match in matches for hit in _WANTED.finditer(match.text)), None)
        if major is None and builds and builds[0].cudnn is not None:
            major = str(builds[0].cudnn.major)
        cuda = f"CUDA {named}" if named else "the CUDA that it was built with"
        cudnn = f"cuDNN {major}" if major else "the cuDNN that the program was built with"
        found = {"the_cuda": cuda, "the_cudnn": cudnn, "the_libraries": cuda}
        found["to_driver"] = self._driver_wanted(builds[0].cuda if builds else None, named)
        tensorflow = re.match(r"\d+\.\d+", self.case.context.version("tensorflow") or "")
        found["tf_keras"] = shlex.quote(f"tf-keras~={tensorflow[0]}.0") if tensorflow else "tf-keras"
        if self._needs_cudnn(framework, matches):
            found["the_libraries"] = f"{cuda} and {cudnn}"
        if named is not None:
            found["cuda_named"] = named
            beside = cudnn_beside(framework, named, self.book) if framework else None
            found["conda_cuda"] = f"cudatoolkit={named}" + (f" cudnn={beside}" if beside is not None else "")
        return found

    def _driver_wanted(self, built: CudaVersion | None, named: str | None) -> str:
        """Wording for the oldest driver that the program's CUDA needs; empty if unknown, or if the log shows one that is new enough."""
        cuda = built or (CudaVersion(named) if named else None)
        oldest = (self.book.floor(cuda.major) or self.book.toolkit_driver(cuda)) if cuda is not None else None
        current = driver_of(self.case)
        return f" to {oldest} or newer" if oldest is not None and (current is None or current < oldest) else ""

    def _needs_cudnn(self, framework: str | None, matches: Iterable[Match]) -> bool:
        """True if the finding's lines name cuDNN, or builds of the framework were made with it."""
        builds = self.book.framework(framework).builds if framework is not None else ()
        return any(library.family == "cudnn" for library in missing(matches)) or any(build.cudnn is not None for build in builds)

    def _extension_values(self, matches: Iterable[Match]) -> dict[str, str]:
        """The extension to rebuild, in its installed version; nothing for one that no index has under that name."""
        name = next((value for match in matches for value in self._clues("extension_name", match)), "")
        version = self.stack.pip.get(name)
        if version is None or not is_version(version):
            return {}
        return {"extension_name": name, "extension": shlex.quote(f"{name}=={version.partition('+')[0]}")}

    def _targets(self, cause: str, matches: Sequence[Match], *, free: bool) -> list[str]:
        """Frameworks to plan for: those that the messages name, else installed ones or those in the log.

        `free`: in any version, else in the known one.
        """
        if self._is_of_another(matches):
            return []
        frameworks = self.stack.frameworks
        versions = {framework: version for name, version in reversed(frameworks) if (framework := self.book.framework_of(name))}
        named = [*(match.symptom.framework for match in matches), self._of_traceback(matches)]
        asked = [framework for name in named if (framework := _framework(name, self.book))]
        lines = {match.line for match in matches}
        beside = (match for match in self.case.matches if match.line in lines)  # which show more of a long line
        guess = [value for match in (*matches, *beside) for value in self._clues("framework", match)][:1]
        chosen = (
            self._meant(cause, matches, [name for name in guess if name in versions]) or list(dict.fromkeys((*asked, *versions))) or guess
        )
        out = []
        for framework in chosen[:4]:
            package = next((name for name, _ in frameworks if self.book.framework_of(name) == framework), framework)
            plain = framework if package in ("pytorch", "jaxlib") or package.startswith(("jax-", "jax_")) else package
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


def _framework(name: str | None, book: Book) -> str | None:
    try:
        return book.framework(name).name if name else None
    except KeyError:
        return None


def _begun(every: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """Remove a leading "or" from the first remedy, whose predecessor may have been left out."""
    first = replace(every[0], text=every[0].text.removeprefix("or ")) if every else None
    return every if first is None else (first, *every[1:])


def _filled(template: str, values: Mapping[str, str]) -> str | None:
    """Fill the fields of a command; None if one is unknown. Other braces (`$(…)`, `{{`) stay."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        return template
    if any(name is not None and name not in values for _, name, _, _ in parts):
        return None
    return "".join(text + (values[name] if name is not None else "") for text, name, _, _ in parts)
