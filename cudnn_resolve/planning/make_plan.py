"""Facts and a resolution, or a conflict, to the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.planning.difference import apt_actions, pip_actions
from cudnn_resolve.planning.environment import environment
from cudnn_resolve.planning.model import AptAction, PipAction, Plan, Stack, StackFramework
from cudnn_resolve.planning.origin import overlay_warnings
from cudnn_resolve.planning.step import steps
from cudnn_resolve.planning.unmet_pins import installed_requires, left_overrides, left_pins
from cudnn_resolve.planning.warning import warnings
from cudnn_resolve.resolution.assemble import loaded_cudnn, loads_wheels, versions_after
from cudnn_resolve.resolution.context import constraints
from cudnn_resolve.resolution.installed import broken_by
from cudnn_resolve.resolution.model import Conflict, Refusal, Resolution
from cudnn_resolve.resolution.open_request import opened
from cudnn_resolve.resolution.release import parse_requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.source import Source
    from cudnn_resolve.resolution.model import PipPin, Reason


def make_plan(facts: Facts, outcome: Resolution | Conflict, book: Book, source: Source | None = None) -> Plan:
    """The plan from these facts to the resolution; with the conflict alone where there is none.

    `source` is the one that the resolution was made with: what is worth saying of it becomes a warning.
    """
    targets = (*(target.text for target in outcome.request.targets), *(f"{name} anew" for name in sorted(outcome.request.anew)))
    notes = tuple(source.notes) if source is not None else ()
    if isinstance(outcome, Conflict):
        conflict = Refusal(message=outcome.message, causes=outcome.causes, relaxations=outcome.relaxations)
        return Plan(targets=targets, facts=facts, conflict=conflict, notes=notes, warnings=overlay_warnings(book))
    pip = pip_actions(
        [_wanted(pin, pin.version, book) for pin in outcome.pip if pin.version is not None],
        outcome.machine.pip,
        book,
        gpu={pin.name: pin.build.cuda is not None for pin in outcome.pip if pin.build is not None},
        relaid=outcome.request.anew,
    )
    left = left_pins(outcome.machine, book, pip, installed_requires(outcome, book))
    unpinned = tuple(sorted(pin.name for pin in outcome.pip if pin.version is None))
    apt = apt_actions(
        (AptAction(name=one.name, version=one.version, repository=one.repository, because=one.because) for one in outcome.apt),
        outcome.machine.apt,
    )
    draft = Plan(
        targets=targets,
        facts=facts,
        stack=_stack(outcome, book),
        pip=pip,
        unpinned=unpinned,
        left_open=tuple(_left_open(outcome, unpinned)),
        apt=apt,
        overrides=(*outcome.overrides, *left_overrides(left, outcome.overrides, {pin.name: pin.reasons for pin in outcome.pip})),
        environment=environment(outcome, facts, book),
        sources=_sources(outcome),
        warnings=(
            *overlay_warnings(book),
            *warnings(replace(outcome, request=opened(outcome.request, source)), facts, book, pip, apt, left),
        ),
        notes=notes,
        python=outcome.machine.python_full,
        arch=outcome.machine.arch,
    )
    return replace(draft, steps=steps(draft, outcome.machine, book))


def _wanted(pin: PipPin, version: str, book: Book) -> PipAction:
    row = book.index(pin.index) if pin.index is not None else None
    return PipAction(
        name=pin.name,
        version=version,
        index=row.url if row is not None else None,
        page=row is not None and row.kind == "find-links",
        because=_because(pin.reasons),
        file=pin.file,
        direct=pin.direct.place if pin.direct is not None else None,
    )


def _left_open(resolution: Resolution, unpinned: Iterable[str]) -> Iterator[str]:
    """The packages whose versions the installer chooses, each with everything that is required of it."""
    reasons = {pin.name: pin.reasons for pin in resolution.pip}
    limits = constraints(resolution.request)
    for name in unpinned:
        said = [parse_requirement(reason.text) for reason in reasons.get(name, ())]
        specs = [str(one.specifier) for one in said if one is not None and canonicalize_name(one.name) == name]
        specs += [str(spec) for _, spec in limits.get(name, ())]
        yield f"{name}{SpecifierSet(','.join(filter(None, specs)))}"


def _because(reasons: Iterable[Reason]) -> tuple[str, ...]:
    """The reasons behind a pin, each once."""
    told = (f"{one.text}, asked for" if one.because == "asked for" else f"{one.text}: {one.because}" for one in reasons)
    return tuple(dict.fromkeys(told))


def _sources(resolution: Resolution) -> tuple[str, ...]:
    """The user's own options for indexes; what the configuration says, pip reads by itself."""
    names = ("--index-url", "--extra-index-url", "--find-links")
    return tuple(word for name, value in resolution.request.context if name in names for word in (name, value))


def _stack(resolution: Resolution, book: Book) -> Stack:
    gpu = resolution.request.device == "gpu"
    return Stack(
        driver_min=resolution.driver_min if gpu else None,
        driver_because=resolution.driver_because if gpu else None,
        driver_policy=resolution.request.driver_policy,
        cuda=resolution.cuda,
        cudnn=resolution.cudnn,
        cudnn_soname=resolution.cudnn_soname,
        frameworks=(*_asked(resolution), *_installed(resolution, book)),
        cuda_of_wheels=any(loads_wheels(resolution, build.framework) for build in resolution.builds),
    )


def _asked(resolution: Resolution) -> Iterator[StackFramework]:
    for build in resolution.builds:
        libraries = resolution.channels.get(build.framework, "none")
        libraries = "pip" if libraries == "folder" else libraries
        yield StackFramework.of(build, cudnn=loaded_cudnn(resolution, build), libraries=libraries)


def _installed(resolution: Resolution, book: Book) -> Iterator[StackFramework]:
    """Installed frameworks that nobody asked for and that go on working."""
    after = versions_after(book, resolution)
    for one in resolution.unasked:
        build = one.build
        if build is None or not one.works or broken_by(one, after) is not None:
            continue
        cudnn = str(build.cudnn) if build.cudnn and one.libraries == "bundled" else None
        framework = StackFramework.of(build, cudnn=cudnn, libraries=one.libraries, asked=False)
        yield replace(framework, version=after.get(one.package, one.version))
