"""The nearest changes that would make a request satisfiable, found by solving again with one thing changed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from cudnn_resolve.requirement.extra import CPU
from cudnn_resolve.requirement.target import accepts
from cudnn_resolve.resolution.assemble import versions_after
from cudnn_resolve.resolution.attempt import PYTHONS
from cudnn_resolve.resolution.condition import without_line, without_target
from cudnn_resolve.resolution.installed import broken_by, is_apart
from cudnn_resolve.resolution.key import CUDA_LIMIT, CUDNN_LIMIT, GLIBC, PYTHON, GpuKey, InstalledKey
from cudnn_resolve.resolution.model import Relaxation
from cudnn_resolve.resolution.open_request import Budget
from cudnn_resolve.resolution.other_driver import other_drivers
from cudnn_resolve.resolution.proposal import command, new_environment, result
from cudnn_resolve.resolution.release import parse_version
from cudnn_resolve.resolution.trials import Trials

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request, Target
    from cudnn_resolve.resolution.condition import Subject
    from cudnn_resolve.resolution.open_request import OpenRequest

ALL_ROUNDS = 4000
"""Steps of the searches for all ways out together."""
PYTHON_ROUNDS = 2000
"""Steps of the searches on all other Pythons together."""
MOST = 8
"""Relaxations that are shown."""


def relaxations(trials: Trials) -> tuple[Relaxation, ...]:
    """What would work, nearest first."""
    request = replace(trials.request, budget=Budget(ALL_ROUNDS))
    ways = (_fresh, _broken, _options, _one_of_two, _versions, _without_extras, _extras, _pythons, _separate, _gpus, other_drivers, _glibc)
    found: list[Relaxation] = []
    for number, way in enumerate(ways):
        said = f"what would work instead: {number} of {len(ways)} kinds of changes are tried, {len(found)} found"
        found += way(replace(trials, request=_saying(request, said)))
    without_gpu = any(is_cpu_only(trials.book, target) for target in request.targets)
    if without_gpu or not found or all(relaxation.distance >= 5 for relaxation in found):
        found += _cpu(replace(trials, request=request))
    found.sort(key=lambda relaxation: relaxation.distance)
    return tuple(dict.fromkeys(found))[:MOST]


def _saying(request: OpenRequest, said: str) -> OpenRequest:
    """The request, of whose searches that is heard."""
    tell = request.tell
    return request if tell is None else replace(request, tell=lambda _: tell(lambda: said))


def _options(trials: Trials) -> Iterator[Relaxation]:
    """One of the user's own options left out."""
    request = trials.request
    changes: dict[Subject, tuple[str, dict[str, Any], str]] = {
        "strict-pins": (
            "without --strict-pins: read the pins of NVIDIA's wheels as the ranges that their ABI allows",
            {"strict_pins": False},
            "--strict-pins",
        ),
        "variant-indexes": (
            "without --no-variant-indexes: take variants from the indexes that the matrix names for them",
            {"variant_indexes": True},
            "--no-variant-indexes",
        ),
        "driver-policy": (
            "--driver-policy minor: rely on NVIDIA's minor-version compatibility",
            {"driver_policy": "minor"},
            "--driver-policy",
        ),
        CUDA_LIMIT: (f"without --cuda {request.cuda.text!r}" if request.cuda else "", {"cuda": None}, "--cuda"),
        CUDNN_LIMIT: (f"without --cudnn {request.cudnn.text!r}" if request.cudnn else "", {"cudnn": None}, "--cudnn"),
        "channel": (f"CUDA libraries not from {request.channel} only", {"channel": "auto"}, "--channel"),
        "exclude-newer": ("without --exclude-newer", {"source": None}, "--exclude-newer"),
    }
    of_core = [change for about, change in changes.items() if about in trials.core and change[0]]
    for number, (text, fields, option) in enumerate(of_core):
        line = command(request, change={option: None})
        yield from trials.way(text, replace(request, **fields), number // 4, line=line)


def wanted_version(book: Book, target: Target) -> str | None:
    """The version that a target is about: the newest release that it accepts, else the one that it names."""
    versions = [
        version
        for build in book.framework(target.framework).builds
        if accepts(target, build, book) and (version := parse_version(build.version)) is not None
    ]
    if versions:
        return str(max(versions))
    named = [name for one in target.specifier if parse_version(name := one.version.removesuffix(".*")) is not None]  # `===` takes any text
    return min(named, default=None)  # older releases of `packaging` keep no order


def contradicts(book: Book, target: Target) -> bool:
    """True for a target that was asked for more than once, in ways that no build meets together though each has one."""
    return len(target.parts) > 1 and not has_build(book, target) and all(has_build(book, part) for part in target.parts)


def has_build(book: Book, target: Target) -> bool:
    """True where the tables know a build that a target accepts."""
    return any(accepts(target, build, book) for build in book.framework(target.framework).builds)


def _one_of_two(trials: Trials) -> Iterator[Relaxation]:
    """One of the wishes for a framework that contradict each other."""
    for target in (one for one in trials.request.targets if contradicts(trials.book, one)):
        for part in target.parts:
            others = [one for one in target.parts if one.text != part.text]
            lines = [one for one in others if one.origin is not None]
            if len(lines) > 1:
                continue  # a change is one line of a file, or of the command
            change = f"{part.text} without {' and '.join(dict.fromkeys(one.text for one in others))}"
            if lines:
                change = f"edit {lines[0].origin}: without `{lines[0].text}`"
            yield from trials.way(change, _with_target(trials.request, target, part), 0)


def _with_target(request: OpenRequest, target: Target, other: Target) -> OpenRequest:
    """The request with another wish in the place of one."""
    return replace(request, targets=tuple(other if one is target else one for one in request.targets))


def _versions(trials: Trials) -> Iterator[Relaxation]:
    """The same release in another build for each target that names one, and the nearest newer and the nearest older release."""
    book, request = trials.book, trials.request
    for target in (one for one in request.targets if one in trials.core):
        wanted = wanted_version(book, target)
        if wanted is None or not target.specifier or contradicts(book, target):
            continue
        wanted = wanted.partition("+")[0]  # `<` and `>` take no local part
        if any("+" in one.version for one in target.specifier):
            same = _pinned(target, wanted)
            change = f"{_edit(target)}{same.text} instead of {target.text} (another build of the same release)"
            yield from trials.way(change, _with_target(request, target, same), 1)
        for operator, word in ((">", "newer"), ("<", "older")):
            other = replace(target, specifier=SpecifierSet(f"{operator}{wanted}"), text=f"{target.framework}{operator}{wanted}")
            found = trials.of(_with_target(request, target, other), near={target.framework: wanted})
            if found is None:
                continue
            build = found.builds[request.targets.index(target)]
            exact = _pinned(target, build.version)
            found = trials.of(_with_target(request, target, exact)) or found  # as the command gives: a search near a release orders others
            line = command(request, tuple(exact.text if one is target else one.text for one in request.targets))
            change = f"{exact.text} instead of {target.text} (the nearest {word} release that fits)"
            distance = 1 if _minor(build.version) == _minor(wanted) else 2
            yield Relaxation(change=f"{_edit(target)}{change}", result=result(found), command=line, distance=distance)


def _pinned(target: Target, version: str) -> Target:
    """The target for one release: `jax[cuda12]==0.4.30`."""
    extras = f"[{','.join(target.extras)}]" if target.extras else ""
    text = f"{target.package or target.framework}{extras}=={version}"
    return replace(target, specifier=SpecifierSet(f"=={version}"), text=text)


def _edit(target: Target) -> str:
    """Where a target must be changed that stands in a file: the command cannot say it."""
    return f"edit {target.origin}: " if target.origin is not None else ""


def _without_extras(trials: Trials) -> Iterator[Relaxation]:
    """A target without its extras, whose build is then free."""
    for target in trials.request.targets:
        if target in trials.core and target.extras:
            text = f"{target.package or target.framework}{target.specifier}"
            changed = _with_target(trials.request, target, replace(target, extras=(), text=text))
            yield from trials.way(f"{_edit(target)}{text} instead of {target.text}", changed, 1)


def _minor(version: str) -> tuple[int, ...]:
    parsed = parse_version(version)
    return parsed.release[:2] if parsed else ()


def _pythons(trials: Trials) -> Iterator[Relaxation]:
    """The nearest older and the nearest newer Python, in a fresh environment."""
    here = trials.machine.python
    if PYTHON not in trials.core or here is None:
        return
    trials = replace(trials, request=replace(trials.request, budget=Budget(PYTHON_ROUNDS)))
    older = sorted((one for one in PYTHONS if one < here), reverse=True)
    newer = sorted(one for one in PYTHONS if one > here)
    nearest = {}
    for candidates in (older, newer):
        for python in candidates:
            change = {"python": python, "python_full": f"{python[0]}.{python[1]}", "pip": {}, "requires": {}}
            found = None if trials.is_in_vain(change) else trials.elsewhere(**change)
            if found is not None:
                nearest[python] = found
                break
    for python, found in nearest.items():
        text = f"{python[0]}.{python[1]}"
        alone = len(nearest) == 1 and python < here  # then it is the newest that works, which `apply` takes by itself
        yield Relaxation(
            change=f"Python {text} instead of {trials.machine.python_full}, in an environment of its own",
            result=result(found),
            command=new_environment(trials.request, python_version=None if alone else text)
            or command(trials.request, change={"--python-version": text, "--python": None}),
            distance=2 + (abs(python[1] - here[1]) > 1),
        )


def _separate(trials: Trials) -> Iterator[Relaxation]:
    """One target in an environment of its own."""
    request = trials.request
    if len(request.targets) < 2:
        return
    for target in reversed(request.targets):
        rest = without_target(request, target)
        constraints = tuple(one for one in request.requirements if one.constraint)
        alone = replace(request, targets=(replace(target, origin=None, hashes=()),), requirements=constraints, unsettled=None)
        first, second = trials.of(rest), trials.of(alone, pip={}, requires={})
        if first is not None and second is not None:
            what = f"{target.text} in an environment of its own: two {'locks' if request.verb == 'lock' else 'plans'} instead of one"
            yield Relaxation(
                change=f"{what}; edit {target.origin}: without it" if target.origin is not None else what,
                result=f"{result(first)}; apart: {result(second)}",
                command=" && ".join(_apart(rest, alone, target.framework)),
                distance=3,
            )
            return


def _apart(rest: Request, alone: Request, name: str) -> tuple[str, str]:
    """The commands for two environments instead of one; what files ask for stays in the first."""
    less: dict[str, str | None] = {"--requirement": None, "--group": None}
    alone = replace(alone, context=(*alone.context, *alone.settings))
    if rest.verb == "lock":
        return command(rest), command(alone, change={**less, "--output": f"pylock.{name}.toml"})
    apart = new_environment(alone, less=less) or command(replace(alone, verb="plan"), change={**less, "--python": None})
    return command(replace(rest, verb="plan")), apart


def _fresh(trials: Trials) -> Iterator[Relaxation]:
    """An environment of its own, where installed frameworks stand in the way."""
    there = _in_the_way(trials)
    found = trials.elsewhere(pip={}, requires={}) if there else None
    if found is not None:
        wish = " and ".join(target.text for target in trials.request.targets)
        yield Relaxation(
            change=f"{wish} in an environment of its own, and {' and '.join(there.values())} where it is",
            result=result(found),
            command=new_environment(trials.request) or _in_new_environment(trials.machine, trials.request),
            distance=0,
        )


def _in_new_environment(machine: Machine, request: OpenRequest) -> str:
    """The plan for the same machine and a new environment with the same Python."""
    change: dict[str, str | None] = {"--python": None, "--facts": None, "--python-version": machine.python_full}
    if machine.driver is not None:
        change["--driver"] = str(machine.driver)
    if machine.glibc is not None:
        change["--glibc"] = f"{machine.glibc[0]}.{machine.glibc[1]}"
    if machine.os is not None:
        change["--os"] = machine.os
    gpus = [gpu.label.partition(" (")[0] for gpu in machine.gpus]
    said = {name for name, _ in request.context}
    words = command(
        replace(request, verb="plan"), change={name: value for name, value in change.items() if name not in said or value is None}
    )
    more = [word for gpu in gpus if "--gpu" not in said for word in ("--gpu", gpu)]
    return f"{words} {shlex.join(more)}" if more else words


def _broken(trials: Trials) -> Iterator[Relaxation]:
    """Installed frameworks given up."""
    book, request = trials.book, trials.request
    there = _in_the_way(trials)
    every = [name for name in book.frameworks() if any(one in trials.machine.pip for one in book.distributions(name))] if there else ()
    for names in (there, every) if there else ():
        found = trials.of(replace(request, allow_break=request.allow_break.union(names)))
        if found is None:
            continue
        after = versions_after(book, found)
        gone = [one for one in found.unrequested if one.may_break and (broken_by(one, after) is not None or is_apart(one, found.builds))]
        more = [word for one in gone for word in ("--allow-break", one.framework)]
        yield Relaxation(
            change=f"{' '.join(more)}: {' and '.join(one.who for one in gone)} may stop working",
            result=result(found),
            command=f"{command(request)} {shlex.join(more)}",
            distance=8,
        )
        return


def _in_the_way(trials: Trials) -> dict[str, str]:
    """The installed frameworks among the conditions of a conflict: `torch 2.6.0` by name."""
    book, pip = trials.book, trials.machine.pip
    names = sorted(one.framework for one in trials.core if isinstance(one, InstalledKey))
    return {name: " and ".join(f"{one} {pip[one]}" for one in book.distributions(name) if one in pip) for name in names}


def _gpus(trials: Trials) -> Iterator[Relaxation]:
    """Fewer GPUs of a machine with several."""
    every = trials.machine.gpus
    for number, gpu in enumerate(every if len(every) > 1 else ()):
        others = tuple(one for one in every if one is not gpu)
        found = trials.on(gpus=others) if GpuKey(number) in trials.core else None
        if found is not None:
            yield Relaxation(
                change=f"without {gpu.label}: hide it with CUDA_VISIBLE_DEVICES",
                result=f"{result(found)} on {' and '.join(one.label for one in others)}",
                command=command(trials.request, change={"--gpu": others[0].label.partition(" (")[0]}),
                distance=3,
            )


def _extras(trials: Trials) -> Iterator[Relaxation]:
    """A line of a requirements file left out."""
    request = trials.request
    for extra in (one for one in request.requirements if one in trials.core):
        spoken = ("", extra.text)  # it stands on the command line, in no file
        change = f"without `{extra.text}`" if spoken in request.context else f"edit {extra.origin}: without `{extra.text}`"
        line = command(replace(request, context=tuple(one for one in request.context if one != spoken)))
        yield from trials.way(change, without_line(request, extra), 1, line=line)


def _glibc(trials: Trials) -> Iterator[Relaxation]:
    """A newer distribution."""
    found = trials.on(glibc=None) if GLIBC in trials.core else None
    if found is not None and GLIBC in found.pins:
        floors = (reason.floor for reason in found.pins[GLIBC].reasons)
        needed = ".".join(map(str, max(floor for floor in floors if isinstance(floor, tuple))))
        yield Relaxation(
            change=f"a distribution with glibc {needed} or newer (a container, for example)",
            result=result(found),
            command=command(trials.request, change={"--glibc": needed}),
            distance=4,
        )


def _cpu(trials: Trials) -> Iterator[Relaxation]:
    """No GPU at all, said as such."""
    request = trials.request
    if request.device != "cpu":
        change = {"--device": "cpu", "--gpu": None, "--driver": None, "--cuda": None, "--cudnn": None}
        distance = 0 if any(is_cpu_only(trials.book, target) for target in request.targets) else 9
        changed = replace(request, device="cpu", cuda=None, cudnn=None)
        yield from trials.way("--device cpu: builds without GPU", changed, distance, line=command(request, change=change))


def is_cpu_only(book: Book, target: Target) -> bool:
    """True for a target that builds without GPU meet and no other: `torch==2.6.0+cpu`."""
    builds = [build for build in book.framework(target.framework).builds if accepts(target, build, book)]
    return CPU not in target.extras and bool(builds) and all(build.cuda is None for build in builds)
