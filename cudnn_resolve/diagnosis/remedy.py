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
from cudnn_resolve.diagnosis.place import carries, missing, place_values, wheel_component
from cudnn_resolve.diagnosis.planned import is_known, is_possible, planned, repeated
from cudnn_resolve.diagnosis.release import release_values, wanted_of
from cudnn_resolve.diagnosis.specifier import is_version, requirements_of, within
from cudnn_resolve.diagnosis.system import system_values
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.library import Library
from cudnn_resolve.version import CudnnVersion

_SITE = re.compile(r"(?:^|[\s\"'(=])(/[^\s\"':<>~]{1,200})/lib(?:64)?/python3\.\d{1,2}/site-packages/")
"""The packages of an environment, whose interpreter is then known; not those of the system's own."""
_MADE_FOR = re.compile(
    r"(?:\+cu|-cu|cuda[- ]?(?:version:? ?)?|cublas(?:Lt)?(?:64_|\.so\.)|cudart64_|libcudart\.so\.)(1[1-3])(?!\d{3})", re.IGNORECASE
)
"""The CUDA that a library or a build in a log is of."""
_INSTALLER = "conda"
"""Prints messages about frameworks, and is none."""
_OTHER = "other-program"
"""The feature of a log of a program that is no framework of the tables: no plan would concern it."""
_PLAN = "cudnn-resolve apply -f "
"""Begins a command that can be tried as a plan."""


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
        told = case.facts.python.path if case.facts is not None else self._interpreter()
        self.python = shlex.quote(told or "python")

    def all(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings, each with what to do; a plan is made for the first one, which is the one to mend."""
        out = []
        tried = True
        for one in findings:
            own = tuple(each for remedy in one.remedy for each in self._adapted(remedy, tried=tried))
            every = {remedy.command or remedy.text: remedy for remedy in (*self._of(one, tried=tried), *reversed(own))}
            rest = tuple(remedy for remedy in every.values() if remedy not in own)
            out.append(replace(one, remedy=_begun((*own, *rest))))
            tried = tried and one.severity == "info"
        return out

    def _interpreter(self) -> str | None:
        """The interpreter whose packages the tracebacks of the log name last."""
        frames = sorted(self.case.frames, key=lambda one: one.line)
        places = [said[1] for one in frames if (said := _SITE.search(one.text))]
        # Packages of the user's own directory are those of an interpreter that is elsewhere.
        found = [one for one in places if not one.startswith("/usr") and not one.endswith("/.local")]
        return f"{found[-1]}/bin/python" if found else None

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
            if self.case.facts is None and self.python != "python" and command.startswith(("cudnn-resolve apply ", "cudnn-resolve plan ")):
                command += f" --python {self.python}"
            yield replace(remedy, command=repeated(command, wishes))

    def _of(self, finding: Finding, *, tried: bool) -> Iterator[Remedy]:
        """The remedies that the tables have for a finding."""
        if finding.severity == "info":
            return
        matches = self.matches.get(finding.cause, ())
        values = self._values(finding, matches)
        features = self.case.features | self._features(matches)
        vague = []
        for row in self.book.helps():
            if row.cause != finding.cause or any(one not in features for one in row.needs) or any(one in features for one in row.unless):
                continue
            text, command = _filled(row.text, values), _filled(row.command, values) if row.command is not None else None
            if text is None or (row.command is not None and command is None):
                continue
            if command is not None and not is_known(command):
                if _OTHER in features or self._is_of_another(matches):
                    continue
                vague.append(Remedy(text=f"{text} (FRAMEWORK: the one that the program uses)", command=command))
                continue
            brings: frozenset[str] = frozenset()
            if command is not None and tried and command.startswith(_PLAN) and self.facts is not None:
                same = command.replace(values["targets"], values["same_targets"])
                stays = same != command and is_possible(same, self.facts, self.book, self.case.wishes)
                command = same if stays else command
                brings = frozenset(shlex.split(values.get("wheel", ""))) if finding.cause == "cuda_runtime_missing" else brings
            yield from self._adapted(Remedy(text=text, command=command), tried=tried, brings=brings)
        if not finding.remedy:
            yield from vague

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
        wanted = [one.major for one in missing(matches) if one.family == "cudnn" and one.major is not None]
        wanted += [one.fields["built"].major for one in matches if isinstance(one.fields.get("built"), CudnnVersion)]
        if wanted and max(wanted) < min(build.version.major for build in self.book.cudnn_builds() if build.wheel):
            found.add("no-cudnn-wheel")
        if is_of_system(matches, self.case.facts):
            found.add("other-system")
        if within(">=2", self.pip.get("numpy")):
            found.add("numpy-too-new")
        return found

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
            values["built"], values["next"] = f"{built.major}.{built.minor}", str(built.major + 1)
        values["numpy_before"] = next((value for match in matches for value in self._clues("numpy_before", match)), "2")
        # What a message states is not overwritten by what is worked out.
        values = self._library_values(matches) | values
        if "needs" in values:
            values.setdefault("package", values["needs"])
        values.pop("extension", None)
        values |= self._extension_values(matches)
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
        beside = {_suffix(name) for name in self.pip if self.book.component(name) is not None} | self._built_for()
        libraries = list(missing(matches))
        told = {wheel_component(one) for one in libraries if one.major is not None}
        libraries = [one for one in libraries if one.major is not None or wheel_component(one) not in told]
        beside |= {"cu13"} if "" in beside else set()
        beside = beside or {f"cu{major}" for one in matches for major in _MADE_FOR.findall(one.text)} or self._of_log()
        found = dict.fromkeys(_wheels(one, beside, self.book) for one in libraries if one.family != "cudnn")
        wheels = [one for one in found if one]
        if wheels and all(len(one) == 1 for one in wheels):
            values["wheel"] = shlex.join(one[0] for one in wheels)
        elif wheels:
            values["wheels_by_cuda"] = ", ".join(" or ".join(one) for one in wheels)
        declared = _declared(self.case.facts, libraries, self.book) if self.case.facts is not None else []
        if declared:
            values["declared"] = shlex.join(declared)
        values["nvcc_wheel"] = "nvidia-cuda-nvcc" if self._is_cuda_13(matches, beside) else "nvidia-cuda-nvcc-cu12"
        majors = [one.major for one in libraries if one.family == "cudnn" and one.major is not None]
        built = [one.fields["built"].major for one in matches if isinstance(one.fields.get("built"), CudnnVersion)]
        wanted = (majors or built)[:1]
        known = {str(build.cuda_major) for build in self.book.cudnn_builds() if build.wheel and build.version.major in wanted}
        # Of cuDNN 7 and older there are no wheels; of others the CUDA decides, and a wheel of another one would not load.
        fitting = [one for one in sorted(beside) if one[2:] in known or (one and not wanted)] or sorted(f"cu{one}" for one in known)
        if fitting and (len(known) == 1 or beside):
            values["cudnn_wheel"] = f"nvidia-cudnn-{fitting[0]}"
        elif fitting:
            values["cudnn_wheels"] = " or ".join(f"nvidia-cudnn-{one}" for one in fitting)
        if majors:
            values["major"] = str(majors[0])
        copies = (or_none(self.case.facts.cudnn) or ()) if self.case.facts else ()
        owner = next((one.owner for one in copies if one.owner in self.pip), None)
        if owner is not None:
            values["package"] = f"{owner}=={self.pip[owner]}"
        return values

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
        guess = [value for match in matches for value in self._clues("framework", match)][:1]
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


def _declared(facts: Facts, libraries: Iterable[Library], book: Book) -> list[str]:
    """NVIDIA's wheels that installed packages require and that are not there, where one of them carries a library that is missed."""
    pip = or_none(facts.packages.pip) or {}
    required = requirements_of((line for lines in facts.packages.requires.values() for line in lines), facts)
    lacking = {one.name: f"{one.name}{one.specifier}" for one in required if one.name.startswith("nvidia-") and one.name not in pip}
    carried = {row.library.lower() for name in lacking if (row := book.component(name)) is not None}
    missed = {wheel_component(one) for one in libraries}
    return list(lacking.values()) if missed & carried or not missed else []


def _wheels(library: Library, beside: set[str], book: Book) -> tuple[str, ...]:
    """The wheels that carry a library of that name: the one for the CUDA whose wheels are installed or named, where that is told."""
    component = wheel_component(library)
    rows = (one for major in (12, 13, 11) for one in book.components(major) if carries(library, major, book))
    found = dict.fromkeys(one.package for one in rows if one.library.lower() == component)
    fitting = tuple(one for one in found if _suffix(one) in beside or (not _suffix(one) and "cu13" in beside))
    return fitting or tuple(found)


def _suffix(package: str) -> str:
    """`cu12` of nvidia-cublas-cu12; nothing for the packages of CUDA 13."""
    last = package.rpartition("-")[2]
    return last if last.startswith("cu") and last[2:].isdigit() else ""
