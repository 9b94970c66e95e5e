"""What to do about a finding: rows of the tables with their fields filled, and plans for this machine where a stack is concerned."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from cudnn_resolve.diagnosis.fitting import is_of_system
from cudnn_resolve.diagnosis.model import Finding, Remedy
from cudnn_resolve.diagnosis.place import missing, place_values, wheel_component
from cudnn_resolve.diagnosis.planned import is_known, is_possible, planned, repeated
from cudnn_resolve.diagnosis.release import release_values, wanted_of
from cudnn_resolve.diagnosis.specifier import is_version, requirements_of
from cudnn_resolve.diagnosis.system import system_values
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.matrix.library import Library
from cudnn_resolve.version import Capability, CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Match
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.model import Request

_FREE = frozenset(
    {
        "gpu_arch_too_new_for_build",
        "gpu_arch_too_old_for_build",
        "driver_too_old",
        "ptx_too_new",
        "cpu_only_build",
        "cudnn_major_mismatch",
        "framework_pkg_mismatch",
        "pip_wheel_unavailable_for_python",
        "cudnn_too_new_for_framework",
    }
)
"""Causes that the installed version itself may be at fault for: any version of the framework will do."""
_BY_BUILD = frozenset({"cpu_only_build", "cudnn_major_mismatch"})
"""Of these, those that another build of the same version, or other libraries, may mend: the version stays where it can."""
_OLD_NAMES = {
    **dict.fromkeys(("bool", "object", "int", "float", "complex", "str", "typeDict", "long", "unicode"), "1.24"),
    "asscalar": "1.23",
}
"""Names that NumPy had until that release; the others went with 2.0."""
_NEWER_PROTOBUF = ("older than the linked gencode", "'builder'", "'runtime_version'", "Gencode/Runtime")
"""What messages say where the installed protobuf is older than the code that was generated."""
_PUBLISHED = {
    **{
        name: name.replace("_", "-")
        for name in ("torch_scatter", "torch_sparse", "torch_cluster", "flash_attn", "causal_conv1d", "mamba_ssm")
    },
    **{name: name for name in ("xformers", "mmcv", "deepspeed", "vllm")},
    "selective_scan": "mamba-ssm",
}
"""Extensions that are built against torch, under the names that they are published with; what has another owner there is not named."""
_CUDA_KEYS = ("A4B469963BF863CC", "3BF863CC", "F60F4B3D7FA2AF80", "7FA2AF80")


class Situation(Struct, frozen=True, kw_only=True):
    """What remedies are filled with."""

    features: frozenset[str] = frozenset()
    frameworks: tuple[tuple[str, str], ...] = ()
    """Name and version, those of the log before those of the machine."""
    capabilities: tuple[Capability, ...] = ()
    driver: str | None = None
    facts: Facts | None = None
    python: str | None = None
    wishes: Request | None = None
    """How the user wants plans made."""
    matches: Mapping[str, tuple[Match, ...]] = field(default_factory=dict)
    """The matches behind the finding of each cause."""


def remedies(findings: Iterable[Finding], situation: Situation, book: Book) -> list[Finding]:
    """The findings, each with what to do; a plan is made for the first one, which is the one to mend."""
    out = []
    first = True
    for one in findings:
        own = tuple(each for remedy in one.remedy for each in _here(remedy, situation, book, tried=first))
        every = {remedy.command or remedy.text: remedy for remedy in (*_of(one, situation, book, tried=first), *reversed(own))}
        rest = tuple(remedy for remedy in every.values() if remedy not in own)
        out.append(replace(one, remedy=_begun((*own, *rest))))
        first = first and one.severity == "info"
    return out


def _begun(every: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """The remedies, the first of which is no "or": what stood before it in the table may have been left out."""
    first = replace(every[0], text=every[0].text.removeprefix("or ")) if every else None
    return every if first is None else (first, *every[1:])


def _here(remedy: Remedy, situation: Situation, book: Book, *, tried: bool) -> Iterator[Remedy]:
    """A remedy for this environment and this user."""
    if remedy.command is None:
        yield remedy
    elif tried and remedy.command.startswith("cudnn-resolve apply -f ") and situation.facts is not None:
        yield from planned(remedy.text, remedy.command, situation.facts, book, situation.wishes)
    else:
        yield replace(remedy, command=repeated(_plainly(remedy.command, situation.facts), situation.wishes))


def _of(finding: Finding, situation: Situation, book: Book, *, tried: bool) -> Iterator[Remedy]:
    if finding.severity == "info":
        return
    matches = situation.matches.get(finding.cause, ())
    values = _values(finding, matches, situation, book)
    features = situation.features | _features(matches, situation) | _at_fault(matches, situation.facts)
    vague = []
    for row in book.helps():
        if row.cause != finding.cause or any(one not in features for one in row.needs) or any(one in features for one in row.unless):
            continue
        text, command = _filled(row.text, values), _filled(row.command, values) if row.command is not None else None
        if text is None or (row.command is not None and command is None):
            continue
        if command is None:
            yield Remedy(text=text)
        elif not is_known(command):
            vague.append(Remedy(text=f"{text} (FRAMEWORK: the one that the program uses)", command=command))
        elif tried and command.startswith("cudnn-resolve apply -f ") and situation.facts is not None:
            same = command.replace(values["targets"], values["same_targets"])
            stays = same != command and is_possible(same, situation.facts, book, situation.wishes)
            brings = frozenset(shlex.split(values.get("wheel", ""))) if finding.cause == "cuda_runtime_missing" else frozenset()
            yield from planned(text, same if stays else command, situation.facts, book, situation.wishes, brings=brings)
        else:
            yield Remedy(text=text, command=repeated(_plainly(command, situation.facts), situation.wishes))
    if not finding.remedy:
        yield from vague


def _plainly(command: str, facts: Facts | None) -> str:
    """Without `sudo` where the user is root already: containers have none."""
    return command.replace("sudo ", "") if facts is not None and facts.root else command


def _filled(template: str, values: Mapping[str, str]) -> str | None:
    """A command with its fields; braces that are no field of ours (`$(…)`, `{{`) stay."""
    out = []
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        return template
    for text, name, _, _ in parts:
        out.append(text)
        if name is not None:
            if name not in values:
                return None
            out.append(values[name])
    return "".join(out)


def _at_fault(matches: Iterable[Match], facts: Facts | None) -> set[str]:
    """What is at fault where other remedies help then: the system, for which there are no wheels, or a library of the driver."""
    matches = list(matches)
    found = {"other-system"} if is_of_system(matches, facts) else set()
    return found | {"driver-library" for one in matches if one.symptom.id == "libcuda-in-wsl"}


def _features(matches: Iterable[Match], situation: Situation) -> set[str]:
    found = {name.partition("-")[0] if name.startswith("tensorflow") else name for name, _ in situation.frameworks}
    matches = list(matches)
    # What the strongest line is about has remedies of its own.
    found |= {match.symptom.feature for match in matches[:1] if match.symptom.feature}
    for match in matches:
        if match.symptom.framework:
            found.add(match.symptom.framework)
        text = match.text.lower()
        if "tensorflow" in text or "cuda_dnn.cc" in text:
            found.add("tensorflow")
        if "xla" in text or "jax" in text:
            found.add("jax")
        if str(match.fields.get("key", "")).upper() in _CUDA_KEYS:
            found.add("nvidia-cuda-key")
        if "alias" in match.fields:
            found.add("numpy-too-new")
        if "gencode" in match.fields or any(word in match.text for word in _NEWER_PROTOBUF):
            found.add("protobuf-too-old")
        api, has = match.fields.get("built"), match.fields.get("found")
        new = match.symptom.id.startswith("numpy-") and not (isinstance(api, int) and isinstance(has, int) and api > has)
        if new and ("numpy 1.x" in text or "_array_api" in text or "not available" in text or "expected 96" in text or "2.0" in text):
            found.add("numpy-too-new")
    numpy = (or_none(situation.facts.packages.pip) or {}).get("numpy") if situation.facts else None
    if numpy and numpy.split(".")[0].isdigit() and int(numpy.split(".")[0]) >= 2:
        found.add("numpy-too-new")
    return found


def _values(finding: Finding, matches: Iterable[Match], situation: Situation, book: Book) -> dict[str, str]:
    matches = list(matches)
    python = shlex.quote(situation.python) if situation.python else "python"
    values: dict[str, str] = {"python": python}
    for match in matches:
        for name, value in match.fields.items():
            values.setdefault(name, _shown(value))
    wanted = [one.fields[name] for one in matches for name in ("built", "least") if isinstance(one.fields.get(name), CudnnVersion)]
    built = max(wanted[:2], default=None)
    if built is not None:
        values["built"], values["next"] = f"{built.major}.{built.minor}", str(built.major + 1)
    alias = next((one.fields["alias"] for one in matches if "alias" in one.fields), None)
    values["numpy_before"] = _OLD_NAMES.get(alias or "", "2")
    values |= _library_values(matches, situation, book)
    if "needs" in values:
        values.setdefault("package", values["needs"])
    values |= _extension_values(values.pop("extension", None), situation.facts)
    for name in ("package", "requirement", "key"):
        if name in values:
            values[name] = shlex.quote(values[name])
    values |= place_values(matches, situation.facts, python, book)
    values |= release_values(matches, situation.facts, book)
    values |= system_values(matches, situation.facts, book)
    toolkit = next(_toolkits(situation, book), None)
    if toolkit is not None:
        values["toolkit"] = toolkit
    targets = _targets(finding.cause, matches, situation, book, free=finding.cause in _FREE)
    values["targets"] = " ".join(f"-f {shlex.quote(one)}" for one in targets) or "-f FRAMEWORK"
    same = _targets(finding.cause, matches, situation, book, free=False) if finding.cause in _BY_BUILD else targets
    values["same_targets"] = " ".join(f"-f {shlex.quote(one)}" for one in same) or values["targets"]
    values["framework"] = targets[0].split("=")[0] if targets else "FRAMEWORK"
    return values


def _is_cuda_13(matches: Iterable[Match], beside: set[str], situation: Situation) -> bool:
    """True where what is installed, or what the log names, is built for CUDA 13 and nothing is for CUDA 12."""
    pip = (or_none(situation.facts.packages.pip) or {}) if situation.facts is not None else {}
    told = [*(one.text for one in matches), *(name for name, _ in situation.frameworks), *pip]
    of = {major for major in ("12", "13") if f"cu{major}" in beside or any(re.search(rf"cu(?:da)?{major}(?!\d)", one) for one in told)}
    return of == {"13"}


def _extension_values(module: str | None, facts: Facts | None) -> dict[str, str]:
    """The extension that is to be built again, in the version that is installed; nothing for one that no index has under its name."""
    name = _PUBLISHED.get(module or "")
    version = (or_none(facts.packages.pip) or {}).get(name or "") if facts is not None else None
    if name is None or version is None or not is_version(version):
        return {}
    return {"extension_name": name, "extension": shlex.quote(f"{name}=={version.partition('+')[0]}")}


def _library_values(matches: list[Match], situation: Situation, book: Book) -> dict[str, str]:
    """The wheels of the libraries that are missing, and the majors of cuDNN."""
    values = {}
    pip = (or_none(situation.facts.packages.pip) or {}) if situation.facts is not None else {}
    beside = {_suffix(name) for name in pip if book.component(name) is not None} | set(_built_for(situation, book))
    libraries = list(missing(matches))
    wheels = dict.fromkeys(wheel for one in libraries if (wheel := _wheel(one, beside, book)) and one.family != "cudnn")
    if wheels:
        values["wheel"] = shlex.join(wheels)
    declared = _declared(situation.facts, libraries, book) if situation.facts is not None else []
    if declared:
        values["declared"] = shlex.join(declared)
    values["nvcc"] = "nvidia-cuda-nvcc" if _is_cuda_13(matches, beside, situation) else "nvidia-cuda-nvcc-cu12"
    majors = [one.major for one in libraries if one.family == "cudnn" and one.major is not None]
    built = [one.fields["built"].major for one in matches if isinstance(one.fields.get("built"), CudnnVersion)]
    wanted = (majors or built)[:1]
    known = {build.cuda_major for build in book.cudnn_builds() if build.wheel and build.version.major in wanted}
    suffix = next((one for one in (*sorted(beside), "cu12", "cu13", "cu11") if one.removeprefix("cu") in map(str, known)), None)
    if known or not wanted:  # of cuDNN 7 and older there are no wheels
        values["cudnn_wheel"] = f"nvidia-cudnn-{suffix or 'cu12'}"
    if majors:
        values["major"] = str(majors[0])
    owner = next((one.owner for one in (or_none(situation.facts.cudnn) or ()) if one.owner in pip), None) if situation.facts else None
    if owner is not None:
        values["package"] = f"{owner}=={pip[owner]}"
    return values


def _declared(facts: Facts, libraries: Iterable[Library], book: Book) -> list[str]:
    """NVIDIA's wheels that installed packages require and that are not there, where one of them carries a library that is missed."""
    pip = or_none(facts.packages.pip) or {}
    lines = (line for each in facts.packages.requires.values() for line in each)
    lacking = {one.name: f"{one.name}{one.specifier}" for one in requirements_of(lines, facts) if _is_lacking(one.name, pip)}
    rows = (book.component(name) for name in lacking)
    carried = {row.library.lower() for row in rows if row is not None}
    missed = {wheel_component(one) for one in libraries}
    return list(lacking.values()) if missed & carried or not missed else []


def _is_lacking(name: str, pip: Mapping[str, str]) -> bool:
    return name.startswith("nvidia-") and name not in pip


def _built_for(situation: Situation, book: Book) -> Iterator[str]:
    """The CUDA of the frameworks at hand, as NVIDIA's wheels are named after it."""
    for name, version in situation.frameworks:
        framework = book.framework_of(name)
        for build in book.framework(framework).builds if framework else ():
            if build.cuda is not None and build.package == name and build.version == version.partition("+")[0] and build.index == "default":
                yield f"cu{build.cuda.major}"


def _toolkits(situation: Situation, book: Book) -> Iterator[str]:
    """The CUDA that PyTorch at hand was built with, for which extensions are to be compiled."""
    for name, version in situation.frameworks:
        public, _, local = version.partition("+")
        if name == "torch" and (told := re.fullmatch(r"cu(\d{2})(\d)", local)):
            yield f"{told[1]}.{told[2]}"
        for build in book.framework("torch").builds if name == "torch" and not local else ():
            if build.version == public and build.cuda is not None and build.index == "default":
                yield f"{build.cuda.major}.{build.cuda.minor}"


def _shown(value: Any) -> str:
    return str(getattr(value, "file", value))


def _wheel(library: Library, beside: set[str], book: Book) -> str | None:
    """The wheel that carries a library of that name: of the CUDA major whose wheels are installed, where several have that name."""
    component = wheel_component(library)
    found = [
        one.package
        for major in (12, 13, 11)
        for one in book.components(major)
        if one.library.lower() == component and _is_soname(book, library, major)
    ]
    return next((one for one in found if _suffix(one) in beside), next(iter(found), None))


def _suffix(package: str) -> str:
    """`cu12` of nvidia-cublas-cu12; nothing for the packages of CUDA 13."""
    last = package.rpartition("-")[2]
    return last if last.startswith("cu") and last[2:].isdigit() else ""


def _is_soname(book: Book, library: Library, major: int) -> bool:
    soname = book.soname(library.component, CudaVersion(f"{major}.0"))
    return library.major in (None, major) if soname is None else library.version is None or soname == library.file


def _targets(cause: str, matches: Iterable[Match], situation: Situation, book: Book, *, free: bool) -> list[str]:
    """The frameworks to plan for: those that the messages name, else those that are installed or that the log shows.

    `free`: in any version, else in the one that is told.
    """
    named = [one.symptom.framework for one in matches if one.symptom.framework]
    told = {framework: version for name, version in reversed(situation.frameworks) if (framework := book.framework_of(name))}
    asked = [framework for name in named if (framework := _framework(name, book))]
    chosen = _meant(cause, matches, told, book) or list(dict.fromkeys((*asked, *told))) or _guess(matches)
    out = []
    for framework in chosen[:4]:
        package = next((name for name, _ in situation.frameworks if book.framework_of(name) == framework), framework)
        version = told.get(framework)
        out.append(f"{_plain(package, framework)}=={version.partition('+')[0]}" if version and not free else _plain(package, framework))
    return out


def _meant(cause: str, matches: Iterable[Match], told: Mapping[str, str], book: Book) -> list[str]:
    """The one framework that a finding about packages is about, where it can be told: the others there have no part in it."""
    matches = list(matches)
    if cause == "framework_pkg_mismatch":
        return [one for one in _guess(matches) if one in told]
    wanted = wanted_of(matches) if cause in ("pip_wheel_unavailable_for_python", "pip_pin_unavailable") else None
    framework = book.framework_of(wanted.name) if wanted is not None else None
    return [framework] if framework is not None else []


def _plain(package: str, framework: str) -> str:
    return framework if package in ("pytorch", "jaxlib") or package.startswith(("jax-", "jax_")) else package


def _framework(name: str, book: Book) -> str | None:
    try:
        return book.framework(name).name
    except KeyError:
        return None


def _guess(matches: Iterable[Match]) -> list[str]:
    """The framework whose files the messages name."""
    words = {
        "onnxruntime": "onnxruntime-gpu",
        "tensorflow": "tensorflow",
        "stream_executor": "tensorflow",
        "cuda_dnn.cc": "tensorflow",
        "jax": "jax",
        "cupy": "cupy",
        "paddle": "paddlepaddle-gpu",
        "ctranslate2": "ctranslate2",
        "whisper": "ctranslate2",
        "mxnet": "mxnet",
        "torch": "torch",
        "_zn3c10": "torch",
        "_zn2at": "torch",
    }
    for match in matches:
        text = match.text.lower()
        for word, framework in words.items():
            if word in text:
                return [framework]
    return []
