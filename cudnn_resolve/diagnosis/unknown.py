"""A failure of unknown cause: the lines that say why the run ended, what kind of failure it is, and what its remedies need to know."""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from itertools import dropwhile
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.diagnosis.model import Evidence, Finding, Match
from cudnn_resolve.diagnosis.removed_name import removed_values
from cudnn_resolve.matrix.row import RemovedName
from cudnn_resolve.matrix.symptom import Clue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudnn_resolve.diagnosis.match import Reader
    from cudnn_resolve.matrix.book import Book

_UNKNOWN, _NAMED = 0.5, 0.8
"""Confidence of a failure of unknown cause, and of a name that is known to be of another release."""
_SPOKEN_OF = (("cudnn", "cuDNN"), ("cuda", "CUDA"), ("cuinit", "CUDA"), ("driver", "driver"), ("gpu", "GPU"), ("memory", "memory"))
"""Words of a failure, and the part of the stack that they mention."""
_PIN_NAME = re.compile(r"'|[<>=].*")
"""What a quoted requirement has beside the name."""
_MOST = 3
_FAR = 60
"""Lines after which a call of a traceback belongs to another error."""
_SHOWN = 300
_BEFORE = 3
"""Lines between a statement and the error that it raises."""
_HEAD = (
    r"^\s{0,8}(?:\[rank ?\d{1,5}\](?:\[[^\]]{0,30}\])?:|\([\w ]{1,40}pid=\d{1,9}[^)]{0,40}\)|[\w./-]{1,60} {0,20}\|"
    r"|(?:#\d{1,4} )?\d{1,6}\.\d{1,4}(?= )) {0,4}"
)
"""Writer before the message of a line."""
_EXCEPTION = r"(?:E {1,24})?(?P<name>[\w.]{1,80}(?:Error|Exception|Exit|Interrupt|Failed|Failure|NotFound))(?::|$)"
_OF_CODE = r"(?:^|: )(?:Attribute|Import|ModuleNotFound|Name|Syntax|Type)Error: "
"""Errors of Python code, also where a server that runs the code repeats them."""
_OF_GPU = r"(?i)\b(?:cuda|cudnn|cublas|nccl|nvml|gpu|nvidia|tensorrt|hip|rocm|xla|pjrt|ptxas|nvrtc)\b|cu(?:dnn|blas|da)[A-Z_]"
_ASKED_OF_GPU = r"(?i)\bKeyError: '(?:cuda|cudnn|nvidia|nccl)"
_DENIAL = "not a failure of the GPU stack: "
_NATIVE = (
    r"(?i)\(core dumped\)|segmentation fault|^Aborted\b|terminate called|^Fatal Python error|^LLVM ERROR|access violation"
    r"|\bsignal (?:6|11)\b|\bSIG(?:SEGV|ABRT)\b|0xC0000005|-1073741819|\b(?:code|status)[ :=]{1,3}(?:134|139|-6|-11)\b"
)
_BUILD = (
    r"make(?:\[\d{1,2}\])?: \*\*\* |ninja: build stopped|^nvcc fatal|Failed (?:building wheel|to build)|^\s{0,8}CMake Error"
    r"|fatal error [A-Z]{1,4}\d{4}:|compilation terminated|Could not build wheels|Error (?:compiling objects|building extension)"
    r"|errors? detected in the compilation|CMake build failed|subprocess-exited|\['ninja'"
)
_OF_CUDA = r"(?i)nvcc|\.cuh?\b|cuda"
_PACKAGE = re.compile(r"[\\/](?:site|dist)-packages[\\/](?:[^\\/]{1,100}\.egg[\\/])?(?P<package>[A-Za-z_]\w{0,60})(?:[\\/]|\.py\b)")
_STANDARD = re.compile(
    r"[\\/]lib(?:64)?[\\/]python\d\.\d{1,2}[\\/](?!site-packages|dist-packages)|<frozen |[\\/]Lib[\\/](?!site-packages)[\w\\/]{1,80}\.py"
    r"|\.p(?:yx|xd|xi)$"
)
_QUOTED = "context-quoted-error"
_SETUP = re.compile(r"[\\/](?:pip-(?:install|req-build|build-env)-|setuptools[\\/]|builds-v0[\\/])|(?:^|[\\/])setup\.py$")
"""Files of a package that is being built, and of what builds it."""
_MODULE = re.compile(
    r"No module named '?(?P<missing>[A-Za-z_]\w{0,60}\b)(?P<part>\.[\w.]{1,100})?'?"
    r"|cannot import name '?[\w.]{1,80}'? from (?:partially initialized module )?'(?P<origin>[A-Za-z_]\w{0,60})[\w.]{0,100}'"
    r"(?P<unlocated> \(unknown location\))?"
    r"|module '(?P<owner>[A-Za-z_]\w{0,60})[\w.]{0,100}' has no attribute"
)
_FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "paddle", "mxnet", "cupy", "numpy", "nvidia", "onnxruntime")
"""Beginnings of names that only a plan may change."""
_PLANNED = ("torch", "tensorflow", "jax")
_SOURCES = re.compile(r"\bimport (?P<name>[A-Za-z_]\w{0,60}) from(?: its source directory|$)")
"""Words of a package that is imported from its sources."""
_COMPILED = re.compile(r"['.]_(?:C|ext|core|cuda|cpp|lib)\b")
"""Names of compiled modules, which only a built package has."""
_PLAIN_NAME = re.compile(r"(?!-)[\w./\\~-]{1,200}")


class Unknown(Struct, frozen=True, kw_only=True):
    """A failure of unknown cause."""

    finding: Finding
    features: frozenset[str] = frozenset()
    """Its kind, and what the log shows of it."""
    values: Mapping[str, str] = MappingProxyType({})
    """Fields of its remedies."""


def careful_summary(summary: str, evidence: Iterable[Evidence]) -> str:
    """The sentence without its denial if its lines speak of the GPU."""
    is_of_gpu = summary.startswith(_DENIAL) and any(re.search(_OF_GPU, line.text) for line in evidence)
    return summary.removeprefix(_DENIAL) if is_of_gpu else summary


def mentioned_in(text: str) -> str:
    """Parts of the GPU stack that a line mentions."""
    low = text.casefold()
    return " and ".join(dict.fromkeys(name for word, name in _SPOKEN_OF if word in low))


def unknown_failure(died: Match, reader: Reader, book: Book, removed: Iterable[RemovedName] | None = None) -> Unknown:
    """The failure that ended a run, with the line that says why.

    `died`: the line at which the run ended, which may only pass on what failed before. `removed`: names of other releases, by default
    those of the tables.
    """
    last = _telling(died, reader)
    shown, imported = _text(last, reader), _imported(last, reader)
    text = re.sub(_HEAD, "", shown)
    folded, clues, cause = text.casefold(), book.rows(Clue), book.causes()["unrecognised"]
    told = {value for clue in clues if clue.tells == "error_kind" for word, value in clue.values.items() if word in folded}
    kind = _kind(died, last, text, reader, is_told=bool(told))
    frames = _frames(reader, last.line)
    packages = _packages(text, frames, imported)
    values: dict[str, str] = {}
    features: set[str] = set()
    if kind == "python-failure":
        asked = removed_values(text, book.rows(RemovedName) if removed is None else removed, packages, imported)
        values, features = _of_python(text, frames, packages, clues, asked)
        features = features | (told - {"name-asked"} or told)
    if kind == "build-failure":
        features |= {"build-of-cuda"} if re.search(_OF_CUDA, f"{text} {died.text}") else set()
        features |= told or ({"build-untold"} if reader.matches["context-built"] else {"build-untold", "build-unnamed"})
    if any(file == "setup.py" or "pip-req-build-" in file for file, _, _ in frames[-1:]):  # of a directory, not of an index
        values["build_asked"] = "."
    script = next((file for file, _, scope in frames if scope == "<module>" and is_own(file)), None)
    values["program"] = shlex.quote(script) if script and _PLAIN_NAME.fullmatch(script) else "PROGRAM"
    if any("python2" in file for file, _, _ in frames):
        features.add("python-2")
    named, is_in_own = () if "value-none" in told else packages, bool(frames) and is_own(frames[-1][0])
    return Unknown(
        finding=Finding(
            cause=cause.id,
            severity=cause.severity,
            summary=_summary_of_name(values, features, last.line) or _summary(kind, text, last.line, named, reader.lines, is_own=is_in_own),
            evidence=(Evidence(source="log", line=last.line, text=shown),),
            confidence=_NAMED if "name-removed" in features else _UNKNOWN,
        ),
        features=frozenset({kind, *features}),
        values=values,
    )


def _summary_of_name(values: Mapping[str, str], features: Collection[str], line: int) -> str | None:
    """The sentence for a name that another release has, or a module that a build needs; None if the failure is not of that kind."""
    if "needed" in values:
        return f"{_DENIAL}the build of a package needs {values['needed']} (line {line}), and does not find it"
    if "name-removed" not in features:
        return None
    name = values["removed_name"]
    if "removed_from" not in values:
        return f"{_DENIAL}{name} (line {line}) has another place in the installed release"
    since = "is only in {} and newer" if "name-newer" in features else "is not in {} and newer"
    return f"{_DENIAL}{name} (line {line}) {since.format(values['removed_from'])}"


def _imported(last: Match, reader: Reader) -> str:
    """Module of the import statement that an error ended, in the lines before it."""
    near = [match for match in reader.of("context-import") if 0 < last.line - match.line <= _BEFORE]
    return str(near[-1].fields["module"]) if near else ""


def _summary(kind: str, text: str, line: int, packages: Sequence[str], lines: int, *, is_own: bool) -> str:
    """What is known of the failure, in one sentence."""
    if kind == "python-failure":
        where = " in the program's own code" if is_own else f" that concerns {packages[0]}" if packages else ""
        return f"not recognised, and by its wording not a failure of the GPU stack: an error of Python code (line {line}){where}"
    if kind == "passed-on":
        return f"not recognised: line {line} only says that something before it failed, which this log does not show"
    if kind == "build-failure":
        return f"not recognised: a build failed, and line {line} is its first error"
    if kind == "crash":
        return f"not recognised: the program crashed in native code (line {line}), and the log does not say in which library"
    mentioned = mentioned_in(text)
    if mentioned:
        return f"not recognised: the failure (line {line}) mentions {mentioned} in unknown wording"
    return f"not recognised: the log shows a failure (line {line}), and none of its {lines} lines tells a cause that is known here"


def _telling(died: Match, reader: Reader) -> Match:
    """The line that says why a run ended: `died` itself, unless it only passes on an earlier failure."""
    passing = {match.line for match in reader.of("context-passed-on")}
    compiler = [match for match in reader.of("context-compiler-error") if match.line not in passing]
    if any(match.line == died.line for match in compiler):
        return compiler[0]
    if died.line not in passing and not re.search(_BUILD, died.text):
        return died
    before = [match for match in reader.of("context-died") if match.line < died.line and match.line not in passing]
    named = [match for match in before if "last" in match.fields and not re.search(_BUILD, match.text)]
    if compiler and (re.search(_BUILD, died.text) or not named):
        return compiler[0]
    # It passes on the failure before it, or one that pip or uv quotes.
    return (named or reader.of(_QUOTED) or before or [died])[-1]


def _kind(died: Match, last: Match, text: str, reader: Reader, *, is_told: bool) -> str:
    """The kind of a failure, as a feature of remedies. `is_told`: its words are those of an error of Python code."""
    if last.symptom.id == "context-compiler-error" or (re.search(_BUILD, died.text) and last.symptom.id != _QUOTED):
        return "build-failure"
    if re.search(_NATIVE, text):
        return "crash"
    if text.startswith("E: "):
        return "apt-failure"
    if last is died and any(match.line == died.line for match in reader.of("context-passed-on")):
        return "passed-on"
    is_told &= re.search(_ASKED_OF_GPU, text) is None
    if (re.match(_EXCEPTION, text) or re.search(_OF_CODE, text)) and (is_told or not re.search(_OF_GPU, text)):
        return "python-failure"
    return "plain-failure"


def _text(match: Match, reader: Reader) -> str:
    """A line, with the next one if its message only starts there."""
    if match.shown.endswith(":"):
        detail = next((other for other in reader.of("context-detail") if other.line == match.line), None)
        if detail is not None and len(detail.text) > len(match.shown):
            return detail.text[:_SHOWN]
    return match.shown


def _frames(reader: Reader, line: int) -> list[tuple[str, str, str]]:
    """File, line and function of the calls before an error, the innermost last."""
    near = [match for match in reader.of("context-frame") if line - _FAR < match.line < line]
    return [(match.fields["file"], match.fields.get("at", ""), match.fields.get("scope", "")) for match in near]


def is_own(file: str) -> bool:
    """True for a file of the program itself: of no package or its build, and not of Python's library."""
    return not any(shape.search(file) for shape in (_PACKAGE, _STANDARD, _SETUP)) and not file.startswith("<")


def _packages(text: str, frames: Sequence[tuple[str, str, str]], imported: str) -> list[str]:
    """Packages that an error concerns: the one that message or statement names, then those whose code raised it, the innermost first."""
    found = _MODULE.search(text)
    named = [found["missing"] if found["part"] else found["origin"] or found["owner"]] if found else []
    named += [imported.partition(".")[0]] if not found and "cannot import name" in text else []
    raised = [hit["package"] for file, _, _ in reversed(frames) if (hit := _PACKAGE.search(file))]
    names = (name for name in dict.fromkeys((*named, *raised)) if name and name.isascii())
    return [name for name in names if not keyword.iskeyword(name)][:_MOST]


def _caller(frames: Sequence[tuple[str, str, str]], pin: str, names: Mapping[str, str]) -> str | None:
    """The distribution whose code asked `pin`, or Python, for a name; None if the program itself did, a framework, or an unknown one."""
    for file, _, _ in reversed(frames):
        hit = _PACKAGE.search(file)
        if hit is None and is_own(file):
            return None
        distribution = names.get(hit["package"].casefold()) if hit is not None else None
        if hit is not None and (distribution or hit["package"]).replace("_", "-").casefold() != _PIN_NAME.sub("", pin).replace("_", "-"):
            return None if hit["package"].startswith(_FRAMEWORKS) else distribution
    return None


def _of_python(
    text: str,
    frames: Sequence[tuple[str, str, str]],
    packages: Sequence[str],
    clues: Iterable[Clue],
    asked: tuple[dict[str, str], set[str]],
) -> tuple[dict[str, str], set[str]]:
    """Fields and features for the remedies of an error of Python code; `asked` are those of a name of another release."""
    names = next((clue.values for clue in clues if clue.tells == "distribution"), {})
    own = [(file, at) for file, at, _ in frames if at and is_own(file)]
    values, features = asked
    if features:
        caller = _caller(frames, values.get("removed_pin", ""), names)
        known = {"caller": caller} if caller is not None else {}
        known |= dict(zip(("own_file", "own_at"), own[-1], strict=True)) if own else {}
        return values | known, features | ({"caller-known"} if caller is not None else set())
    if (sources := _sources(text, frames)) is not None:
        return dict(zip(("module", "checkout"), sources, strict=True)), {"source-checkout"}
    values, features = _of_other_error(text, own, packages, names, is_build=any(_SETUP.search(file) for file, _, _ in frames))
    called = list(dropwhile(lambda frame: not _PACKAGE.search(frame[0]), frames))  # from the first call in a package on
    is_run = any("runpy" in file for file, _, _ in frames) or any(is_own(file) for file, _, _ in called)
    is_import = [scope for _, _, scope in called[:1]] == ["<module>"] and not is_run
    return values, features | ({"import-raised"} if is_import and "package-raised" in features else set())


def _sources(text: str, frames: Sequence[tuple[str, str, str]]) -> tuple[str, str] | None:
    """The package that Python imports from its sources, where it has no compiled modules, and their directory."""
    said, found = _SOURCES.search(text), _MODULE.search(text)
    module = said["name"] if said else (found["part"] and found["missing"]) or found["origin"] if found else None
    if not module or not frames or not is_own(frames[-1][0]):
        return None
    place = re.fullmatch(rf"(.{{1,200}})[\\/]{module}[\\/](?:[\w\\/]{{1,100}}[\\/])?\w{{1,60}}\.py", frames[-1][0])
    is_built = said or module.startswith(_FRAMEWORKS) or _COMPILED.search(text)
    return (module, place[1]) if place is not None and is_built else None


def _of_other_error(
    text: str, own: Sequence[tuple[str, str]], packages: Sequence[str], names: Mapping[str, str], *, is_build: bool
) -> tuple[dict[str, str], set[str]]:
    """The same for an error that asks for no name of another release; `is_build`: the code is that of a package's build."""
    values: dict[str, str] = {}
    features: set[str] = set()
    found = _MODULE.search(text)
    if found and found["missing"] and (is_build or not found["part"]):
        known = names.get(found["missing"].casefold())
        # A name of the program's own may be a stranger's on the index.
        features.add(f"{'build' if is_build else 'module'}-{'unknown' if known is None else 'missing'}")
        values |= {"needed": found["missing"]} if is_build else {}
        values |= {"distribution": known} if known is not None else {}
        if found["missing"] in _PLANNED and not is_build:
            features = {"module-framework"}
            values = {"framework": found["missing"]} | dict.fromkeys(("targets", "same_targets"), f"-f {found['missing']}")
    elif packages:
        called = {name: names.get(name.casefold()) for name in packages}
        values["packages"] = " ".join(dict.fromkeys(known or name for name, known in called.items()))
        values["raiser"] = values["packages"].partition(" ")[0]
        features |= {"package-raised", "name-asked"} if found and found["part"] else {"package-raised"}
        movable = [known for name, known in called.items() if not name.startswith(_FRAMEWORKS)]
        # An unknown name may be a stranger's on the index.
        if movable and None not in movable:
            values["raised"] = " ".join(dict.fromkeys(str(known) for known in movable))
    if found and found["unlocated"]:
        features.add("import-unlocated")
        values["module"] = found["origin"]
    if own and not (found and found["missing"] and not found["part"]):
        values["own_file"], values["own_at"] = own[-1]
    if not features and not own:
        features.add("calls-untold")
    return values, features
