"""The smallest change that mends a set of packages, judged again before it is proposed, in the words of the tool that made the set."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.diagnosis.model import Finding, Remedy
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.faults import found_in, names_of
from cudnn_resolve.operations.package_set import LIVE, Subject
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request, RequirementLine, Target
from cudnn_resolve.resolution.attempt import attempt
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.fault import Fault, JudgedFramework, Judgement
from cudnn_resolve.resolution.model import Resolution
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.release import version_within

_ROUNDS = 2000
_SHOWN = 4
"""Pins that a text names; a command names all."""


def mends(subject: Subject, book: Book, machine: Machine, found: Judgement, seen: Iterable[Finding]) -> Iterator[Remedy]:
    """What mends the set: the same frameworks on other libraries, else what a conflict proposes; nothing where nothing breaks."""
    errors = [one for one in found.faults if one.severity == "error"]
    known = [one for one in found.frameworks if one.build is not None]
    if not (errors or any(one.severity == "error" for one in seen)):
        return
    if not known:
        released = (f"{one.framework}=={one.version.partition('+')[0]}" for one in found.frameworks)
        if errors and all(one.kind == "cpu" for one in errors):
            words = " ".join(f"-f {shlex.quote(text)}" for text in released)
            yield Remedy(text="lock the builds for a GPU", command=f"cudnn-resolve lock {words}")
        return
    words = " ".join(f"-f {shlex.quote(f'{one.package}=={one.version}')}" for one in known)
    if errors and all(one.kind in ("machine", "wheel") for one in errors):
        yield Remedy(text="what would work on that machine instead", command=f"cudnn-resolve plan {words}")
        return
    about = {name for one in seen if one.severity == "error" for name in names_of(one)}
    names = about | {name for one in errors for name in (one.package, *one.frameworks)}
    companions = sorted(name for name in names & subject.packages.keys() if book.companion_of(name) is not None)
    wanted = _resolved(subject, book, machine, known, companions)
    words = " ".join((words, *companions))
    if wanted is None:
        yield Remedy(text="these versions cannot share an environment: see what would work instead", command=f"cudnn-resolve plan {words}")
        return
    limits = _limits(errors)
    wanted |= {name: version for name, limit in limits.items() if (version := version_within(limit)) is not None}
    changes = smallest(subject, book, machine, wanted, names)
    if changes:
        pins = {name: str(limits.get(name) or f"=={version}") for name, version in changes.items()}
        yield edit(Edit(subject=subject, pins=pins, held=_held(known, book, machine, changes)))
    if errors:
        yield Remedy(text="lock these frameworks on libraries that serve them all", command=f"cudnn-resolve lock {words}")


def _resolved(
    subject: Subject, book: Book, machine: Machine, known: Iterable[JudgedFramework], companions: Iterable[str]
) -> dict[str, str] | None:
    """The versions of a search for the same frameworks; None where they cannot share an environment."""
    targets = tuple(
        Target(
            text=f"{one.package}=={one.version}", framework=one.framework, specifier=SpecifierSet(f"=={one.version}"), package=one.package
        )
        for one in known
    )
    request = Request(
        targets=targets,
        requirements=tuple(RequirementLine(text=name, origin=subject.name) for name in companions),
        channel="pip",
        preferences=dict(subject.packages),
        variant_indexes=any("+" in one.version for one in known),
        verb="lock",
    )
    answer = attempt(book, replace(machine, pip={}, requires={}), request, rounds=_ROUNDS)
    return {pin.name: pin.version for pin in answer.pip if pin.version is not None} if isinstance(answer, Resolution) else None


def _limits(errors: Iterable[Fault]) -> dict[str, SpecifierSet]:
    """What the frameworks want of packages whose releases the tables do not list."""
    found: dict[str, SpecifierSet] = {}
    for one in errors:
        if one.wants is not None:
            found[one.package] = found.get(one.package, SpecifierSet()) & SpecifierSet(one.wants)
    return found


def smallest(subject: Subject, book: Book, machine: Machine, wanted: Mapping[str, str], faulty: Iterable[str] = ()) -> Mapping[str, str]:
    """The fewest of the wanted versions with which nothing breaks any more, judged again; none where all of them do not mend it.

    Libraries and packages that are `faulty` are tried first, all that differ only where those do not do.
    """
    faulty = set(faulty)

    def serve(some: Mapping[str, str]) -> bool:
        unfit = tuple(name for name in subject.unfit if name not in some)
        requires = {name: lines for name, lines in subject.requires.items() if name not in some}  # these are of what was there
        after = replace(subject, packages={**subject.packages, **some}, requires=requires, unfit=unfit)
        found, seen = found_in(after, book, machine, None)
        return "error" not in {*(one.severity for one in found.faults), *(one.severity for one in seen)}

    different = {name: version for name, version in wanted.items() if subject.packages.get(name) != version}
    likely = {name: version for name, version in different.items() if book.component(name) is not None or name in faulty}
    if serve({}):  # what is wrong is no matter of versions
        return {}
    changes = next((some for some in (likely, different) if some and serve(some)), {})
    for name in list(changes):
        fewer = {other: version for other, version in changes.items() if other != name}
        if fewer and serve(fewer):
            changes = fewer
    return changes


def _held(known: Iterable[JudgedFramework], book: Book, machine: Machine, changes: Mapping[str, str]) -> bool:
    """True where the metadata of a framework excludes one of the changes, so that no tool resolves to it by itself."""
    context = Context(book, machine, OpenRequest(targets=()))
    return any(
        not requirement.specifier.contains(version, prereleases=True)
        for one in known
        if one.build is not None
        for requirement, _ in context.requirements_of(one.build)
        if (version := changes.get(canonicalize_name(requirement.name))) is not None
    )


class Edit(Struct, frozen=True, kw_only=True):
    """Pins to be put into a set of packages."""

    subject: Subject
    pins: Mapping[str, str]
    """Package to the specifier of the versions that serve."""
    held: bool = False
    """True where wheels declare other versions, which only an override or an installer that does not look leaves."""


def edit(asked: Edit) -> Remedy:
    """The change in the words of the tool that wrote the file."""
    pins = [f"{name}{limit}" for name, limit in asked.pins.items()]
    shown = ", ".join(pins[:_SHOWN]) + (f" and {len(pins) - _SHOWN} more" if len(pins) > _SHOWN else "")
    kind, words, every = asked.subject.kind, shlex.join(pins), ", ".join(pins)
    conda = asked.subject.conda & asked.pins.keys()
    if conda:
        return _of_conda(asked, conda)
    if kind in _ADDS:
        return _of_project(asked, pins, shown)
    if kind == "requirements file":
        unchecked = "; install with `uv pip sync` or `pip install --no-deps -r`" if asked.held else ""
        return Remedy(text=f"in {_place(asked)}: {every}{unchecked}")
    deps = "--no-deps " if asked.held or kind == LIVE else ""
    if kind in ("notebook", "Dockerfile"):
        line = f"%pip install {deps}{words}" if kind == "notebook" else f"RUN pip install {deps}{words}"
        return Remedy(text=f"after the last line of {os.path.basename(asked.subject.name)} that installs: {line}")
    if kind == "environment.yml":
        apart = " in a `pip install --no-deps` of their own, for pip refuses them beside what the wheels declare" if asked.held else ""
        return Remedy(text=f"in {_place(asked)}, below `pip:`: {every}{apart}")
    if kind == "conda-lock.yml":
        return Remedy(text=f"in the environment.yml that it is made from, below `pip:`: {every}", command="conda-lock lock")
    instead = " in their place" if asked.pins.keys() & asked.subject.packages.keys() else ""
    return Remedy(text=f"install {shown}{instead}", command=f"pip install --no-deps {words}")


_ADDS = {
    "uv.lock": "uv add {}",
    "poetry.lock": "poetry add {}",
    "pdm.lock": "pdm add {}",
    "Pipfile.lock": "pipenv install {}",
    "pixi.lock": "pixi add --pypi {}",
}
"""The command of a tool that pins a package of the project."""


def _of_project(asked: Edit, pins: list[str], shown: str) -> Remedy:
    """The change of a project; what wheels declare is overridden where the tool has a word for that."""
    kind, words = asked.subject.kind, shlex.join(pins)
    if not asked.held:
        return Remedy(text=f"pin {shown} in the project", command=_ADDS[kind].format(words))
    entries = ", ".join(f'{name} = "{limit}"' for name, limit in asked.pins.items())
    absent = [f"{name}{limit}" for name, limit in asked.pins.items() if name not in asked.subject.packages]
    add = _ADDS[kind].format(shlex.join(absent)) if absent else None  # what is overridden must be asked for by somebody
    if kind == "uv.lock":
        overrides = ", ".join(f"{one!r}" for one in pins)
        return Remedy(text=f"in [tool.uv] of pyproject.toml: override-dependencies = [{overrides}]", command=add or "uv lock")
    if kind == "pdm.lock":
        return Remedy(text=f"in [tool.pdm.resolution] of pyproject.toml: overrides = {{ {entries} }}", command=add or "pdm lock")
    if kind == "pixi.lock":
        place = "[pypi-options] of pixi.toml, or [tool.pixi.pypi-options] of pyproject.toml"
        return Remedy(text=f"in {place}: dependency-overrides = {{ {entries} }}", command=add or "pixi lock")
    tool = "poetry" if kind == "poetry.lock" else "pipenv"
    return Remedy(
        text=f"{tool} cannot lock what the wheels do not declare: install {shown} over what it installs",
        command=f"{tool} run pip install --no-deps {words}",
    )


def _of_conda(asked: Edit, conda: Iterable[str]) -> Remedy:
    """The change of packages that conda installs, in its spelling; what pip installs beside them goes along."""
    own = [f"{name}{asked.pins[name]}" for name in sorted(conda)]
    rest = [f"{name}{limit}" for name, limit in asked.pins.items() if name not in conda]
    more = f", and with pip {', '.join(rest)}" if rest else ""
    shown = ", ".join(own) + more
    kind = asked.subject.kind
    if kind == "environment.yml":
        return Remedy(text=f"in {_place(asked)}: {shown}", command=f"conda env update -f {shlex.quote(asked.subject.name)}")
    if kind == "conda-lock.yml":
        return Remedy(text=f"in the environment.yml that it is made from: {shown}", command="conda-lock lock")
    tool = "pixi add" if kind == "pixi.lock" else "conda install"
    return Remedy(text=f"pin {shown}", command=f"{tool} {shlex.join(own)}")


def _place(asked: Edit) -> str:
    """The lines of a file where the pins stand."""
    name = os.path.basename(asked.subject.name)
    places = ", ".join(str(line) for line in sorted({asked.subject.lines[one] for one in asked.pins if one in asked.subject.lines}))
    return f"line{'s' if ', ' in places else ''} {places} of {name}" if places else name
