"""Remedies for a set of packages: the smallest change that fixes it, judged before it is proposed, for the tool that made the set."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.diagnosis.judged import packages_in
from cudnn_resolve.diagnosis.model import Finding, Remedy
from cudnn_resolve.errors import first_few
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.package_faults import judge_subject
from cudnn_resolve.operations.package_set import LIVE, Subject
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request, RequirementLine, Target
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.fault import Fault, JudgedFramework, Judgement
from cudnn_resolve.resolution.model import Resolution
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.release import version_within
from cudnn_resolve.resolution.strategies import attempt

_ROUNDS = 2000
_SHOWN = 4
"""Number of pins named in a text; a command names all."""


def remedies(subject: Subject, book: Book, machine: Machine, judgement: Judgement, findings: Iterable[Finding]) -> Iterator[Remedy]:
    """Remedies for a broken set: the same frameworks on other libraries, else another plan; none if nothing breaks."""
    errors = [fault for fault in judgement.faults if fault.severity == "error"]
    error_findings = [finding for finding in findings if finding.severity == "error"]
    if not (errors or error_findings):
        return
    known = [framework for framework in judgement.frameworks if framework.build is not None]
    if not known:
        if errors and all(fault.kind == "cpu" for fault in errors):
            releases = (f"{framework.framework}=={framework.version.partition('+')[0]}" for framework in judgement.frameworks)
            words = " ".join(f"-f {shlex.quote(release)}" for release in releases)
            yield Remedy(text="lock the GPU builds", command=f"cudnn-resolve lock {words}")
        return
    words = " ".join(f"-f {shlex.quote(f'{framework.package}=={framework.version}')}" for framework in known)
    if errors and all(fault.kind in ("machine", "wheel") for fault in errors):
        yield Remedy(text="see what works on that machine instead", command=f"cudnn-resolve plan {words}")
        return
    faulty = {name for finding in error_findings for name in packages_in(finding)}
    faulty |= {name for fault in errors for name in (fault.package, *fault.frameworks)}
    companions = sorted(name for name in faulty & subject.packages.keys() if book.companion_of(name) is not None)
    words = " ".join((words, *companions))
    wanted = _resolve_again(subject, book, machine, known, companions)
    if wanted is None:
        what = "these versions cannot share an environment" if len(known) > 1 else "this release does not fit here"
        text = f"{what}: see what works instead"
        yield Remedy(text=text, command=f"cudnn-resolve plan {words}")
        return
    limits = _limits(errors)
    wanted |= {name: version for name, limit in limits.items() if (version := version_within(limit)) is not None}
    changes = smallest_change(subject, book, machine, wanted, faulty)
    if changes:
        pins = {name: str(limits.get(name) or f"=={version}") for name, version in changes.items()}
        yield edit(subject, pins, held=_is_excluded(known, book, machine, changes))
    if errors:
        yield Remedy(text="lock these frameworks with libraries that fit all of them", command=f"cudnn-resolve lock {words}")


def _resolve_again(
    subject: Subject, book: Book, machine: Machine, frameworks: Iterable[JudgedFramework], companions: Iterable[str]
) -> dict[str, str] | None:
    """Versions of a resolution for the same frameworks; None if they cannot share an environment."""
    targets = tuple(
        Target(
            text=f"{framework.package}=={framework.version}",
            framework=framework.framework,
            specifier=SpecifierSet(f"=={framework.version}"),
            package=framework.package,
        )
        for framework in frameworks
    )
    request = Request(
        targets=targets,
        requirements=tuple(RequirementLine(text=name, origin=subject.name) for name in companions),
        channel="pip",
        preferences=dict(subject.packages),
        variant_indexes=any("+" in target.text for target in targets),
        verb="lock",
    )
    answer = attempt(book, replace(machine, pip={}, requires={}), request, rounds=_ROUNDS)
    return {pin.name: pin.version for pin in answer.pip if pin.version is not None} if isinstance(answer, Resolution) else None


def _limits(errors: Iterable[Fault]) -> dict[str, SpecifierSet]:
    """What the frameworks require of packages whose releases are not in the tables."""
    limits: dict[str, SpecifierSet] = {}
    for fault in errors:
        if fault.wants is not None:
            limits[fault.package] = limits.get(fault.package, SpecifierSet()) & SpecifierSet(fault.wants)
    return limits


def smallest_change(
    subject: Subject, book: Book, machine: Machine, wanted: Mapping[str, str], faulty: Iterable[str] = ()
) -> Mapping[str, str]:
    """The fewest of the wanted versions with which nothing breaks, judged again; empty if even all of them do not help.

    Libraries and `faulty` packages are tried first, then everything that differs.
    """
    faulty = set(faulty)

    def works_with(pins: Mapping[str, str]) -> bool:
        unfit = tuple(name for name in subject.unfit if name not in pins)
        requires = {name: lines for name, lines in subject.requires.items() if name not in pins}  # the others are of old versions
        after = replace(subject, packages={**subject.packages, **pins}, requires=requires, unfit=unfit)
        judgement, findings = judge_subject(after, book, machine, None)
        return "error" not in {*(fault.severity for fault in judgement.faults), *(finding.severity for finding in findings)}

    different = {name: version for name, version in wanted.items() if subject.packages.get(name) != version}
    likely = {name: version for name, version in different.items() if book.component(name) is not None or name in faulty}
    if works_with({}):  # the problem is not one of versions
        return {}
    changes = next((pins for pins in (likely, different) if pins and works_with(pins)), {})
    for name in list(changes):
        fewer = {other: version for other, version in changes.items() if other != name}
        if fewer and works_with(fewer):
            changes = fewer
    return changes


def _is_excluded(frameworks: Iterable[JudgedFramework], book: Book, machine: Machine, changes: Mapping[str, str]) -> bool:
    """True if the metadata of a framework excludes one of the changes, so that no tool resolves to it by itself."""
    context = Context(book, machine, OpenRequest(targets=()))
    return any(
        not requirement.specifier.contains(version, prereleases=True)
        for framework in frameworks
        if framework.build is not None
        for requirement, _ in context.requirements_of(framework.build)
        if (version := changes.get(canonicalize_name(requirement.name))) is not None
    )


def edit(subject: Subject, pins: Mapping[str, str], *, held: bool = False) -> Remedy:
    """Instructions for the tool that wrote the file: put pins into it, given as specifiers by package.

    `held` if wheels declare other versions, so that an override or `--no-deps` is needed.
    """
    kind, place = subject.kind, _place(subject, pins)
    requirements = [f"{name}{limit}" for name, limit in pins.items()]
    shown = first_few(requirements, _SHOWN)
    words, all_pins = shlex.join(requirements), ", ".join(requirements)
    if conda := subject.conda & pins.keys():
        return _edit_conda(subject, pins, conda)
    if kind in _TOOLS:
        return _edit_project(subject, pins, shown, held=held)
    if kind == "requirements file":
        without_check = "; install with `uv pip sync` or `pip install --no-deps -r`" if held else ""
        return Remedy(text=f"in {place}: {all_pins}{without_check}")
    no_deps = "--no-deps " if held or kind == LIVE else ""
    if kind in ("notebook", "Dockerfile"):
        line = f"%pip install {no_deps}{words}" if kind == "notebook" else f"RUN pip install {no_deps}{words}"
        return Remedy(text=f"after the last line of {os.path.basename(subject.name)} that installs: {line}")
    if kind == "environment.yml":
        separately = " in a separate `pip install --no-deps`, since the wheels declare other versions" if held else ""
        return Remedy(text=f"in {place}, below `pip:`: {all_pins}{separately}")
    if kind == "conda-lock.yml":
        return Remedy(text=f"in the environment.yml that it is made from, below `pip:`: {all_pins}", command="conda-lock lock")
    instead = " instead" if pins.keys() & subject.packages.keys() else ""
    return Remedy(text=f"install {shown}{instead}", command=f"pip install --no-deps {words}")


_PIXI_TABLES = "[pypi-options] of pixi.toml, or [tool.pixi.pypi-options] of pyproject.toml"
_TOOLS = {
    "uv.lock": ("uv", "add", "[tool.uv] of pyproject.toml: override-dependencies = [{texts}]"),
    "poetry.lock": ("poetry", "add", None),
    "pdm.lock": ("pdm", "add", "[tool.pdm.resolution] of pyproject.toml: overrides = {{ {entries} }}"),
    "Pipfile.lock": ("pipenv", "install", None),
    "pixi.lock": ("pixi", "add --pypi", f"{_PIXI_TABLES}: dependency-overrides = {{{{ {{entries}} }}}}"),
}
"""The tool that writes a lock of a project, its command that pins a package, and where it overrides what wheels declare, if it can."""


def _edit_project(subject: Subject, pins: Mapping[str, str], shown: str, *, held: bool) -> Remedy:
    """Change of a project; if wheels declare other versions, with an override if the tool supports it."""
    tool, add, override = _TOOLS[subject.kind]
    requirements = [f"{name}{limit}" for name, limit in pins.items()]
    words = shlex.join(requirements)
    if not held:
        return Remedy(text=f"pin {shown} in the project", command=f"{tool} {add} {words}")
    if override is None:
        return Remedy(
            text=f"{tool} cannot lock versions that the wheels do not allow: install {shown} on top of what it installs",
            command=f"{tool} run pip install --no-deps {words}",
        )
    texts, entries = ", ".join(map(repr, requirements)), ", ".join(f'{name} = "{limit}"' for name, limit in pins.items())
    absent = [f"{name}{limit}" for name, limit in pins.items() if name not in subject.packages]
    command = f"{tool} {add} {shlex.join(absent)}" if absent else f"{tool} lock"  # an override alone installs nothing
    return Remedy(text=f"in {override.format(texts=texts, entries=entries)}", command=command)


def _edit_conda(subject: Subject, pins: Mapping[str, str], conda: Iterable[str]) -> Remedy:
    """Change of packages that conda installs, in its syntax, and of those that pip installs with them."""
    own = [f"{name}{pins[name]}" for name in sorted(conda)]
    others = [f"{name}{limit}" for name, limit in pins.items() if name not in conda]
    shown = ", ".join(own) + (f", and with pip {', '.join(others)}" if others else "")
    kind = subject.kind
    if kind == "environment.yml":
        return Remedy(text=f"in {_place(subject, pins)}: {shown}", command=f"conda env update -f {shlex.quote(subject.name)}")
    if kind == "conda-lock.yml":
        return Remedy(text=f"in the environment.yml that it is made from: {shown}", command="conda-lock lock")
    tool = "pixi add" if kind == "pixi.lock" else "conda install"
    return Remedy(text=f"pin {shown}", command=f"{tool} {shlex.join(own)}")


def _place(subject: Subject, pins: Iterable[str]) -> str:
    """The file, with the lines of the pins."""
    name = os.path.basename(subject.name)
    lines = sorted({subject.lines[package] for package in pins if package in subject.lines})
    if not lines:
        return name
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))} of {name}"
