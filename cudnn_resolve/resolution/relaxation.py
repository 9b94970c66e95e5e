"""Relaxations: the nearest changes that make a request satisfiable, found by solving again with one thing changed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.extra import CPU
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request, Target
from cudnn_resolve.requirement.target import accepted_builds
from cudnn_resolve.resolution.assemble import versions_after
from cudnn_resolve.resolution.condition import without_line, without_target
from cudnn_resolve.resolution.installed import has_other_cuda
from cudnn_resolve.resolution.key import GLIBC, PYTHON, UPLOAD_LIMIT, GpuKey, InstalledKey
from cudnn_resolve.resolution.model import Relaxation
from cudnn_resolve.resolution.open_request import Budget, OpenRequest
from cudnn_resolve.resolution.proposal import OPTIONS, command, new_environment, result
from cudnn_resolve.resolution.relaxation_driver import other_drivers
from cudnn_resolve.resolution.relaxation_trials import Trials
from cudnn_resolve.resolution.release import parse_version, row_version
from cudnn_resolve.resolution.strategies import PYTHONS

ALL_ROUNDS = 4000
"""Steps of all searches for relaxations together."""
PYTHON_ROUNDS = 2000
"""Steps of the searches on all other Pythons together."""
MOST = 8
"""Largest number of relaxations shown."""


def relaxations(trials: Trials) -> tuple[Relaxation, ...]:
    """Changes that would work, nearest first."""
    request = replace(trials.request, budget=Budget(ALL_ROUNDS))
    kinds: tuple[Callable[[Trials], Iterator[Relaxation]], ...] = (
        _separate_from_installed,
        _break_installed,
        _without_options,
        _one_of_contradicting,
        _other_versions,
        _without_extras,
        _without_lines,
        _other_pythons,
        _separate_targets,
        _fewer_gpus,
        other_drivers,
        _newer_glibc,
    )
    found: list[Relaxation] = []
    for number, kind in enumerate(kinds):
        progress = f"looking for alternatives: {number} of {len(kinds)} kinds of changes tried, {len(found)} found"
        found += kind(replace(trials, request=_with_progress(request, progress)))
    wants_cpu = any(is_cpu_only(trials.book, target) for target in request.targets)
    if wants_cpu or all(relaxation.distance >= 5 for relaxation in found):
        found += _cpu_builds(replace(trials, request=request))
    found.sort(key=lambda relaxation: relaxation.distance)
    return tuple(dict.fromkeys(found))[:MOST]


def _with_progress(request: OpenRequest, text: str) -> OpenRequest:
    """The request, whose searches report a fixed progress text."""
    progress = request.progress
    return request if progress is None else replace(request, progress=lambda _: progress(lambda: text))


def _without_options(trials: Trials) -> Iterator[Relaxation]:
    """The request without one of its options."""
    request = trials.request
    changes = [
        (option.flag, option.without.format(option.value(request)), option.dropped(request))
        for option in reversed(OPTIONS)
        if option.without is not None and option.subject in trials.core
    ]
    if UPLOAD_LIMIT in trials.core:
        changes.append(("--exclude-newer", "without --exclude-newer", replace(request, source=None)))
    for number, (flag, change, changed) in enumerate(changes):
        yield from trials.relaxation(change, changed, number // 4, line=command(request, change={flag: None}))


def wanted_version(book: Book, target: Target) -> str | None:
    """The version that a target is about: the newest release that it accepts, otherwise the one that it names."""
    versions = [row_version(build.version) for build in accepted_builds(target, book)]
    if versions:
        return str(max(versions))
    named = (part.version.removesuffix(".*") for part in target.specifier)
    valid = [text for text in named if parse_version(text) is not None]  # `===` takes any text
    return min(valid, default=None)  # older packaging keeps no order of specifiers


def contradicts(book: Book, target: Target) -> bool:
    """True for a target that was requested more than once, if each request has a build but all together have none."""
    return len(target.parts) > 1 and not accepted_builds(target, book) and all(accepted_builds(part, book) for part in target.parts)


def _one_of_contradicting(trials: Trials) -> Iterator[Relaxation]:
    """One of several contradicting requests for a framework."""
    for target in (target for target in trials.request.targets if contradicts(trials.book, target)):
        for part in target.parts:
            others = [other for other in target.parts if other.text != part.text]
            in_files = [other for other in others if other.origin is not None]
            if len(in_files) > 1:
                continue  # a relaxation changes one line of a file or of the command
            change = f"{part.text} without {' and '.join(dict.fromkeys(other.text for other in others))}"
            if in_files:
                change = f"edit {in_files[0].origin}: without `{in_files[0].text}`"
            yield from trials.relaxation(change, _with_target(trials.request, target, part), 0)


def _with_target(request: OpenRequest, target: Target, replacement: Target) -> OpenRequest:
    """The request with one target replaced."""
    return replace(request, targets=tuple(replacement if other is target else other for other in request.targets))


def _other_versions(trials: Trials) -> Iterator[Relaxation]:
    """For each target of the core: another build of the release that it names, and the nearest newer and older release."""
    for target in (target for target in trials.request.targets if target in trials.core):
        wanted = wanted_version(trials.book, target)
        if wanted is None or not target.specifier or contradicts(trials.book, target):
            continue
        wanted = wanted.partition("+")[0]  # `<` and `>` take no local version
        if any("+" in part.version for part in target.specifier):
            same = _pinned(target, wanted)
            change = f"{_edit(target)}{same.text} instead of {target.text} (another build of the same release)"
            yield from trials.relaxation(change, _with_target(trials.request, target, same), 1)
        yield from _nearest_release(trials, target, wanted, ">", "newer")
        yield from _nearest_release(trials, target, wanted, "<", "older")


def _nearest_release(trials: Trials, target: Target, wanted: str, operator: str, word: str) -> Iterator[Relaxation]:
    """The nearest release of a target on one side of the wanted version."""
    request = trials.request
    other = replace(target, specifier=SpecifierSet(f"{operator}{wanted}"), text=f"{target.framework}{operator}{wanted}")
    found = trials.try_request(_with_target(request, target, other), nearest_to={target.framework: wanted})
    if found is None:
        return
    version = found.builds[request.targets.index(target)].version
    pinned = _pinned(target, version)
    # The result of the proposed command, because `nearest_to` also changes the order of other packages.
    found = trials.try_request(_with_target(request, target, pinned)) or found
    yield Relaxation(
        change=f"{_edit(target)}{pinned.text} instead of {target.text} (the nearest {word} release that fits)",
        result=result(found),
        command=command(request, tuple(pinned.text if other is target else other.text for other in request.targets)),
        distance=1 if _major_minor(version) == _major_minor(wanted) else 2,
    )


def _pinned(target: Target, version: str) -> Target:
    """The target pinned to a release: `jax[cuda12]==0.4.30`."""
    extras = f"[{','.join(target.extras)}]" if target.extras else ""
    text = f"{target.package or target.framework}{extras}=={version}"
    return replace(target, specifier=SpecifierSet(f"=={version}"), text=text)


def _edit(target: Target) -> str:
    """Prefix of a change to a target that is in a file, which a command cannot change."""
    return f"edit {target.origin}: " if target.origin is not None else ""


def _without_extras(trials: Trials) -> Iterator[Relaxation]:
    """A target without its extras, so that they select no build."""
    for target in trials.request.targets:
        if target in trials.core and target.extras:
            text = f"{target.package or target.framework}{target.specifier}"
            changed = _with_target(trials.request, target, replace(target, extras=(), text=text))
            yield from trials.relaxation(f"{_edit(target)}{text} instead of {target.text}", changed, 1)


def _major_minor(version: str) -> tuple[int, ...]:
    parsed = parse_version(version)
    return parsed.release[:2] if parsed else ()


def _other_pythons(trials: Trials) -> Iterator[Relaxation]:
    """The nearest older and the nearest newer Python, in a new environment."""
    current = trials.machine.python
    if PYTHON not in trials.core or current is None:
        return
    trials = replace(trials, request=replace(trials.request, budget=Budget(PYTHON_ROUNDS)))
    older = sorted((python for python in PYTHONS if python < current), reverse=True)
    newer = sorted(python for python in PYTHONS if python > current)
    nearest = {}
    for candidates in (older, newer):
        for python in candidates:
            change = {"python": python, "python_full": f"{python[0]}.{python[1]}", "pip": {}, "requires": {}}
            found = None if trials.is_in_vain(change) else trials.try_other_environment(**change)
            if found is not None:
                nearest[python] = found
                break
    for python, found in nearest.items():
        text = f"{python[0]}.{python[1]}"
        is_newest = len(nearest) == 1 and python < current  # `apply` then chooses it by itself
        yield Relaxation(
            change=f"Python {text} instead of {trials.machine.python_full}, in a separate environment",
            result=result(found),
            command=new_environment(trials.request, python_version=None if is_newest else text)
            or command(trials.request, change={"--python-version": text, "--python": None}),
            distance=2 + (abs(python[1] - current[1]) > 1),
        )


def _separate_targets(trials: Trials) -> Iterator[Relaxation]:
    """One target in a separate environment."""
    request = trials.request
    if len(request.targets) < 2:
        return
    constraints = tuple(line for line in request.requirements if line.constraint)
    for target in reversed(request.targets):
        rest = without_target(request, target)
        alone = replace(request, targets=(replace(target, origin=None, hashes=()),), requirements=constraints, unevaluated=None)
        first, second = trials.try_request(rest), trials.try_request(alone, pip={}, requires={})
        if first is not None and second is not None:
            change = f"{target.text} in a separate environment: two {'locks' if request.verb == 'lock' else 'plans'} instead of one"
            yield Relaxation(
                change=f"{change}; edit {target.origin}: without it" if target.origin is not None else change,
                result=f"{result(first)}; separately: {result(second)}",
                command=" && ".join(_separate_commands(rest, alone, target.framework)),
                distance=3,
            )
            return


def _separate_commands(rest: Request, alone: Request, name: str) -> tuple[str, str]:
    """Commands for two environments instead of one; requirements from files stay in the first."""
    without_files: dict[str, str | None] = {"--requirement": None, "--group": None}
    alone = replace(alone, context=(*alone.context, *alone.settings))
    if rest.verb == "lock":
        return command(rest), command(alone, change={**without_files, "--output": f"pylock.{name}.toml"})
    separate = new_environment(alone, change=without_files)
    if separate is None:
        separate = command(replace(alone, verb="plan"), change={**without_files, "--python": None})
    return command(replace(rest, verb="plan")), separate


def _separate_from_installed(trials: Trials) -> Iterator[Relaxation]:
    """A new environment, if installed frameworks are part of the conflict."""
    installed = _conflicting_installed(trials)
    found = trials.try_other_environment(pip={}, requires={}) if installed else None
    if found is not None:
        wishes = " and ".join(target.text for target in trials.request.targets)
        yield Relaxation(
            change=f"{wishes} in a separate environment; {' and '.join(installed.values())} stays where it is",
            result=result(found),
            command=new_environment(trials.request) or _described_environment(trials.machine, trials.request),
            distance=0,
        )


def _described_environment(machine: Machine, request: OpenRequest) -> str:
    """The plan for a new environment on the same machine with the same Python."""
    options: dict[str, str | None] = {"--python": None, "--facts": None, "--python-version": machine.python_full}
    if machine.driver is not None:
        options["--driver"] = str(machine.driver)
    if machine.glibc is not None:
        options["--glibc"] = f"{machine.glibc[0]}.{machine.glibc[1]}"
    if machine.os is not None:
        options["--os"] = machine.os
    given = {name for name, _ in request.context}
    change = {name: value for name, value in options.items() if name not in given or value is None}
    line = command(replace(request, verb="plan"), change=change)
    gpus = [gpu.label.partition(" (")[0] for gpu in machine.gpus] if "--gpu" not in given else []
    words = [word for gpu in gpus for word in ("--gpu", gpu)]
    return f"{line} {shlex.join(words)}" if words else line


def _break_installed(trials: Trials) -> Iterator[Relaxation]:
    """Installed frameworks that may stop working."""
    book, request = trials.book, trials.request
    conflicting = _conflicting_installed(trials)
    if not conflicting:
        return
    every = [name for name in book.frameworks() if any(package in trials.machine.pip for package in book.distributions(name))]
    for names in (conflicting, every):
        found = trials.try_request(replace(request, allow_break=request.allow_break.union(names)))
        if found is None:
            continue
        after = versions_after(book, found)
        broken = [
            framework
            for framework in found.unrequested
            if framework.may_break and (framework.broken_by(after) is not None or has_other_cuda(framework, found.builds))
        ]
        words = [word for framework in broken for word in ("--allow-break", framework.framework)]
        yield Relaxation(
            change=f"{' '.join(words)}: {' and '.join(framework.who for framework in broken)} may stop working",
            result=result(found),
            command=f"{command(request)} {shlex.join(words)}",
            distance=8,
        )
        return


def _conflicting_installed(trials: Trials) -> dict[str, str]:
    """Installed frameworks of the core, by name: `torch 2.6.0`."""
    book, pip = trials.book, trials.machine.pip
    names = sorted(subject.framework for subject in trials.core if isinstance(subject, InstalledKey))
    return {name: " and ".join(f"{package} {pip[package]}" for package in book.distributions(name) if package in pip) for name in names}


def _fewer_gpus(trials: Trials) -> Iterator[Relaxation]:
    """All GPUs of a machine but one."""
    gpus = trials.machine.gpus
    for number, gpu in enumerate(gpus if len(gpus) > 1 else ()):
        others = tuple(other for other in gpus if other is not gpu)
        found = trials.try_request(trials.request, gpus=others) if GpuKey(number) in trials.core else None
        if found is not None:
            yield Relaxation(
                change=f"without {gpu.label}: hide it with CUDA_VISIBLE_DEVICES",
                result=f"{result(found)} on {' and '.join(other.label for other in others)}",
                command=command(trials.request, change={"--gpu": others[0].label.partition(" (")[0]}),
                distance=3,
            )


def _without_lines(trials: Trials) -> Iterator[Relaxation]:
    """The request without one of its requirement lines."""
    request = trials.request
    for line in (line for line in request.requirements if line in trials.core):
        positional = ("", line.text)  # given on the command line, in no file
        change = f"without `{line.text}`" if positional in request.context else f"edit {line.origin}: without `{line.text}`"
        shorter = command(replace(request, context=tuple(option for option in request.context if option != positional)))
        yield from trials.relaxation(change, without_line(request, line), 1, line=shorter)


def _newer_glibc(trials: Trials) -> Iterator[Relaxation]:
    """A newer distribution."""
    found = trials.try_request(trials.request, glibc=None) if GLIBC in trials.core else None
    if found is not None and GLIBC in found.pins:
        floors = (reason.floor for reason in found.pins[GLIBC].reasons)
        needed = ".".join(map(str, max(floor for floor in floors if isinstance(floor, tuple))))
        yield Relaxation(
            change=f"a distribution with glibc {needed} or newer (a container, for example)",
            result=result(found),
            command=command(trials.request, change={"--glibc": needed}),
            distance=4,
        )


def _cpu_builds(trials: Trials) -> Iterator[Relaxation]:
    """CPU builds, as an explicit choice."""
    request = trials.request
    if request.device != "cpu":
        change = {"--device": "cpu", "--gpu": None, "--driver": None, "--cuda": None, "--cudnn": None}
        distance = 0 if any(is_cpu_only(trials.book, target) for target in request.targets) else 9
        changed = replace(request, device="cpu", cuda=None, cudnn=None)
        yield from trials.relaxation("--device cpu: use CPU builds", changed, distance, line=command(request, change=change))


def is_cpu_only(book: Book, target: Target) -> bool:
    """True for a target that only CPU builds match: `torch==2.6.0+cpu`."""
    builds = accepted_builds(target, book)
    return CPU not in target.extras and bool(builds) and all(build.cuda is None for build in builds)
