"""The nearest changes that would make a request satisfiable, found by solving again with one thing changed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from cudnn_resolve.errors import UsageError
from cudnn_resolve.requirement.derive import accepts
from cudnn_resolve.requirement.extra import CPU
from cudnn_resolve.requirement.machine import forward_rows
from cudnn_resolve.resolution.assemble import versions_after
from cudnn_resolve.resolution.attempt import PYTHONS, attempt
from cudnn_resolve.resolution.installed import broken_by, is_apart
from cudnn_resolve.resolution.key import CUDA_LIMIT, CUDNN_LIMIT, DRIVER, GLIBC, PYTHON, GpuKey, InstalledKey
from cudnn_resolve.resolution.model import Failure, Relaxation, Resolution
from cudnn_resolve.resolution.opened import Budget
from cudnn_resolve.resolution.proposal import command, result
from cudnn_resolve.resolution.release import parse_version
from cudnn_resolve.version import CudaVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request, Target
    from cudnn_resolve.resolution.condition import Subject
    from cudnn_resolve.resolution.opened import OpenRequest

ROUNDS = 1500
"""Steps after which the search for one way out is given up: a way that is hard to find is not a near one."""
ALL_ROUNDS = 4000
"""Steps of the searches for all ways out together."""
PYTHON_ROUNDS = 2000
"""Steps of the searches on all other Pythons together."""
MOST = 8
"""Relaxations that are shown."""


Least = tuple["Machine", "OpenRequest"]
"""The wishes and facts of a conflict that cannot hold together, and nothing else."""


def relaxations(book: Book, machine: Machine, request: OpenRequest, core: frozenset[Subject], least: Least) -> tuple[Relaxation, ...]:
    """What would work, nearest first; `core` names the wishes and facts that cannot hold together, `least` is those alone."""
    request = replace(request, budget=Budget(ALL_ROUNDS))
    found = [
        *_fresh(book, machine, request, core),
        *_broken(book, machine, request, core),
        *_options(book, machine, request, core),
        *_one_of_two(book, machine, request),
        *_versions(book, machine, request, core),
        *_without_extras(book, machine, request, core),
        *_extras(book, machine, request, core),
        *_pythons(book, machine, request, core, least),
        *_separate(book, machine, request),
        *_gpus(book, machine, request, core),
        *_drivers(book, machine, request, core, least),
        *_glibc(book, machine, request, core),
    ]
    without_gpu = any(is_cpu_only(book, target) for target in request.targets)
    if without_gpu or not found or all(relaxation.distance >= 5 for relaxation in found):
        found += _cpu(book, machine, request)
    found.sort(key=lambda relaxation: relaxation.distance)
    return tuple(dict.fromkeys(found))[:MOST]


def _tried(book: Book, machine: Machine, request: OpenRequest, near: dict[str, str] | None = None) -> Resolution | Failure:
    """Try a changed request for a bounded number of steps."""
    return attempt(book, machine, request, near, ROUNDS)


def _options(book: Book, machine: Machine, request: OpenRequest, core: frozenset[Subject]) -> Iterator[Relaxation]:
    """One of the user's own options left out."""
    changes: list[tuple[str, str, OpenRequest, dict[str, str | None]]] = []
    if "strict-pins" in core:
        text = "without --strict-pins: read the pins of NVIDIA's wheels as the ranges that their ABI allows"
        changes.append(("strict-pins", text, replace(request, strict_pins=False), {"--strict-pins": None}))
    if "variant-indexes" in core:
        text = "without --no-variant-indexes: take variants from the indexes that the matrix names for them"
        changes.append(("variant-indexes", text, replace(request, variant_indexes=True), {"--no-variant-indexes": None}))
    if "driver-policy" in core:
        text = "--driver-policy minor: rely on NVIDIA's minor-version compatibility"
        changes.append(("driver-policy", text, replace(request, driver_policy="minor"), {"--driver-policy": None}))
    if CUDA_LIMIT in core and request.cuda is not None:
        changes.append(("cuda", f"without --cuda {request.cuda.text!r}", replace(request, cuda=None), {"--cuda": None}))
    if CUDNN_LIMIT in core and request.cudnn is not None:
        changes.append(("cudnn", f"without --cudnn {request.cudnn.text!r}", replace(request, cudnn=None), {"--cudnn": None}))
    if "channel" in core:
        text = f"CUDA libraries not from {request.channel} only"
        changes.append(("channel", text, replace(request, channel="auto"), {"--channel": None}))
    if "exclude-newer" in core:
        changes.append(("exclude-newer", "without --exclude-newer", replace(request, source=None), {"--exclude-newer": None}))
    for number, (_, text, changed, options) in enumerate(changes):
        found = _tried(book, machine, changed)
        if isinstance(found, Resolution):
            yield Relaxation(change=text, result=result(found), command=command(request, change=options), distance=number // 4)


def wanted_version(book: Book, target: Target) -> str | None:
    """The version that a target is about: the newest release that it accepts, else the one that it names."""
    versions = [
        version
        for build in book.framework(target.framework).builds
        if accepts(target, build, book) and (version := parse_version(build.version)) is not None
    ]
    if versions:
        return str(max(versions))
    named = [one.version.removesuffix(".*") for one in target.specifier]
    return named[0] if named else None


def contradicts(book: Book, target: Target) -> bool:
    """True for a target that was asked for more than once, in ways that no build meets together though each has one."""

    def is_met(one: Target) -> bool:
        return any(accepts(one, build, book) for build in book.framework(target.framework).builds)

    return len(target.parts) > 1 and not is_met(target) and all(map(is_met, target.parts))


def _one_of_two(book: Book, machine: Machine, request: OpenRequest) -> Iterator[Relaxation]:
    """One of the wishes for a framework that contradict each other."""
    for target in (one for one in request.targets if contradicts(book, one)):
        for part in target.parts:
            others = [one for one in target.parts if one.text != part.text]
            lines = [one for one in others if one.origin is not None]
            found = None
            if len(lines) < 2:  # a change is one line of a file, or of the command
                changed = replace(request, targets=tuple(part if one is target else one for one in request.targets))
                found = _tried(book, machine, changed)
            if isinstance(found, Resolution):
                change = f"{part.text} without {' and '.join(dict.fromkeys(one.text for one in others))}"
                if lines:
                    change = f"edit {lines[0].origin}: without `{lines[0].text}`"
                yield Relaxation(change=change, result=result(found), command=command(changed), distance=0)


def _versions(book: Book, machine: Machine, request: OpenRequest, core: frozenset[Subject]) -> Iterator[Relaxation]:
    """The nearest newer and the nearest older release of each target."""
    for target in request.targets:
        if target not in core:
            continue
        wanted = wanted_version(book, target)
        if wanted is None or not target.specifier or contradicts(book, target):
            continue
        wanted = wanted.partition("+")[0]  # `<` and `>` take no local part
        for operator, word in ((">", "newer"), ("<", "older")):
            other = replace(target, specifier=SpecifierSet(f"{operator}{wanted}"), text=f"{target.framework}{operator}{wanted}")
            changed = replace(request, targets=tuple(other if one is target else one for one in request.targets))
            found = _tried(book, machine, changed, near={target.framework: wanted})
            if not isinstance(found, Resolution):
                continue
            build = found.builds[request.targets.index(target)]
            inside = f"[{','.join(target.extras)}]" if target.extras else ""
            text = f"{target.package or target.framework}{inside}=={build.version}"
            exact = replace(target, specifier=SpecifierSet(f"=={build.version}"), text=text)
            again = _tried(book, machine, replace(request, targets=tuple(exact if one is target else one for one in request.targets)))
            found = again if isinstance(again, Resolution) else found  # what the command gives: a search near a release orders others, too
            texts = tuple(text if one is target else one.text for one in request.targets)
            line = command(request, texts)
            distance = 1 if _minor(build.version) == _minor(wanted) else 2
            change = f"{text} instead of {target.text} (the nearest {word} release that fits)"
            if target.origin is not None:  # the command cannot say what stands in a file
                change = f"edit {target.origin}: {change}"
            yield Relaxation(change=change, result=result(found), command=line, distance=distance)


def _without_extras(book: Book, machine: Machine, request: OpenRequest, core: frozenset[Subject]) -> Iterator[Relaxation]:
    """A target without its extras, whose build is then free."""
    for target in request.targets:
        if target not in core or not target.extras:
            continue
        text = f"{target.package or target.framework}{target.specifier}"
        changed = replace(request, targets=tuple(replace(one, extras=(), text=text) if one is target else one for one in request.targets))
        found = _tried(book, machine, changed)
        if isinstance(found, Resolution):
            where = f"edit {target.origin}: " if target.origin is not None else ""
            yield Relaxation(change=f"{where}{text} instead of {target.text}", result=result(found), command=command(changed), distance=1)


def _minor(version: str) -> tuple[int, ...]:
    parsed = parse_version(version)
    return parsed.release[:2] if parsed else ()


def _pythons(book: Book, machine: Machine, request: OpenRequest, core: frozenset[Subject], least: Least) -> Iterator[Relaxation]:
    """The nearest older and the nearest newer Python, in a fresh environment."""
    if PYTHON not in core or machine.python is None:
        return
    request = replace(request, budget=Budget(PYTHON_ROUNDS))
    here = machine.python
    older = sorted((one for one in PYTHONS if one < here), reverse=True)
    newer = sorted(one for one in PYTHONS if one > here)
    for candidates in (older, newer):
        for python in candidates:
            text = f"{python[0]}.{python[1]}"
            change = {"python": python, "python_full": text, "pip": {}, "requires": {}}
            if _is_in_vain(book, request, least, change):
                continue
            found = _elsewhere(book, replace(machine, **change), request)
            if isinstance(found, Resolution):
                distance = 2 + (abs(python[1] - here[1]) > 1)
                yield Relaxation(
                    change=f"Python {text} instead of {machine.python_full}, in an environment of its own",
                    result=result(found),
                    command=command(request, change={"--python-version": text, "--python": None}),
                    distance=distance,
                )
                break


def _is_in_vain(book: Book, request: OpenRequest, least: Least, change: dict[str, Any]) -> bool:
    """True where the conflict is there after a change of the machine, too, by what little of the request it needs."""
    machine, part = least
    if request.unsettled is not None or (len(part.targets), len(part.extras)) == (len(request.targets), len(request.extras)):
        return False  # other targets may be asked for there, or the whole is as quickly tried as the part
    found = _tried(book, replace(machine, **change), replace(part, budget=request.budget))
    return isinstance(found, Failure) and not found.exhausted


def _elsewhere(book: Book, machine: Machine, request: OpenRequest) -> Resolution | Failure | None:
    """A try on a machine where other targets may be asked for; None where none is."""
    try:
        return _tried(book, machine, request.unsettled or request)
    except UsageError:
        return None


def _separate(book: Book, machine: Machine, request: OpenRequest) -> Iterator[Relaxation]:
    """One target in an environment of its own."""
    if len(request.targets) < 2:
        return
    for target in reversed(request.targets):
        rest = replace(request, targets=tuple(one for one in request.targets if one is not target))
        constraints = tuple(one for one in request.extras if one.constraint)
        alone = replace(request, targets=(replace(target, origin=None, hashes=()),), extras=constraints, unsettled=None)
        first, second = _tried(book, machine, rest), _tried(book, replace(machine, pip={}, requires={}), alone)
        if isinstance(first, Resolution) and isinstance(second, Resolution):
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
    return command(replace(rest, verb="plan")), command(replace(alone, verb="plan"), change={**less, "--python": None})


def _fresh(book: Book, machine: Machine, request: OpenRequest, core: frozenset[Subject]) -> Iterator[Relaxation]:
    """An environment of its own, where installed frameworks stand in the way."""
    there = _in_the_way(machine, book, core)
    if not there:
        return
    found = _elsewhere(book, replace(machine, pip={}, requires={}), request)
    if isinstance(found, Resolution):
        wish = " and ".join(target.text for target in request.targets)
        yield Relaxation(
            change=f"{wish} in an environment of its own, and {' and '.join(there.values())} where it is",
            result=result(found),
            command=_in_new_environment(machine, request),
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


def _broken(book: Book, machine: Machine, request: OpenRequest, core: frozenset[Subject]) -> Iterator[Relaxation]:
    """Installed frameworks given up."""
    there = _in_the_way(machine, book, core)
    every = [name for name in book.frameworks() if any(one in machine.pip for one in book.distributions(name))] if there else ()
    for names in (there, every) if there else ():
        found = _tried(book, machine, replace(request, allow_break=request.allow_break.union(names)))
        if not isinstance(found, Resolution):
            continue
        after = versions_after(book, found)
        gone = [one for one in found.unasked if one.may_break and (broken_by(one, after) is not None or is_apart(one, found.builds))]
        more = [word for one in gone for word in ("--allow-break", one.framework)]
        who = " and ".join(one.who for one in gone)
        yield Relaxation(
            change=f"{' '.join(more)}: {who} may stop working",
            result=result(found),
            command=f"{command(request)} {shlex.join(more)}",
            distance=8,
        )
        return


def _in_the_way(machine: Machine, book: Book, core: frozenset[Subject]) -> dict[str, str]:
    """The installed frameworks among the conditions of a conflict: `torch 2.6.0` by name."""
    out = {}
    for name in sorted(one.framework for one in core if isinstance(one, InstalledKey)):
        out[name] = " and ".join(f"{one} {machine.pip[one]}" for one in book.distributions(name) if one in machine.pip)
    return out


def _gpus(book: Book, machine: Machine, request: OpenRequest, core: frozenset[Subject]) -> Iterator[Relaxation]:
    """Fewer GPUs of a machine with several."""
    if len(machine.gpus) < 2 or not any(isinstance(one, GpuKey) for one in core):
        return
    for number, gpu in enumerate(machine.gpus):
        others = tuple(one for one in machine.gpus if one is not gpu)
        found = _tried(book, replace(machine, gpus=others), request)
        if GpuKey(number) in core and isinstance(found, Resolution):
            named = " and ".join(one.label for one in others)
            yield Relaxation(
                change=f"without {gpu.label}: hide it with CUDA_VISIBLE_DEVICES",
                result=f"{result(found)} on {named}",
                command=command(request, change={"--gpu": others[0].label.partition(" (")[0]}),
                distance=3,
            )


def _drivers(book: Book, machine: Machine, request: OpenRequest, core: frozenset[Subject], least: Least) -> Iterator[Relaxation]:
    """The oldest driver that would do, and the forward-compatibility package where the cards allow one."""
    if DRIVER not in core or machine.driver is None:
        return
    floors = [floor for major in range(9, 20) if (floor := book.floor(major)) is not None]
    known = sorted({*floors, *(row.driver for row in book.minimums())})
    newer = [one for one in known if one > machine.driver]
    older = [one for one in reversed(known) if one < machine.driver]
    for word, candidates in (("newer", newer), ("older", _of_last_branches(book, machine, older))):

        def tried(driver: DriverVersion) -> Resolution | None:
            change = {"driver": driver, "native_cuda": book.native_cuda(driver)}
            if _is_in_vain(book, request, least, change):
                return None
            found = _tried(book, replace(machine, **change), request)
            return found if isinstance(found, Resolution) else None

        driver, found = _first_that_works(candidates, tried)
        if driver is None or found is None:
            continue
        what = f"driver {driver} or newer" if word == "newer" else f"a driver of branch R{driver.major}"
        yield Relaxation(
            change=f"{what} instead of {machine.driver}, which only the machine's administrator can install",
            result=result(found),
            command=command(request, change={"--driver": str(driver)}),
            distance=5,
        )
        if word == "newer":
            yield from _forward(book, machine, found)


def _first_that_works(
    drivers: Sequence[DriverVersion], tried: Callable[[DriverVersion], Resolution | None]
) -> tuple[DriverVersion | None, Resolution | None]:
    """The first driver with which there is a plan, and that plan, found in steps that double: a search that fails may take seconds.

    What works with one driver works with those behind it, but for the last ones, which may no longer know a card.
    """
    known: dict[int, Resolution | None] = {}

    def at(place: int) -> Resolution | None:
        if place not in known:
            known[place] = tried(drivers[place])
        return known[place]

    below, above = -1, 0
    while above < len(drivers) and at(above) is None:
        below, above = above, above + (above - below) * 2
    if above >= len(drivers):
        step = max(1, (len(drivers) - below) // 4)
        above = next((place for place in range(len(drivers) - 1, below, -step) if at(place) is not None), -1)
        if above < 0:
            return None, None
    while above - below > 1:
        middle = (above + below) // 2
        below, above = (below, middle) if at(middle) is not None else (middle, above)
    return drivers[above], at(above)


def _of_last_branches(book: Book, machine: Machine, older: list[DriverVersion]) -> list[DriverVersion]:
    """Of older drivers those of branches that still support every GPU, where the installed one does not."""
    rows = [book.architecture(gpu.capability) for gpu in machine.gpus if gpu.capability is not None]
    lasts = [row.driver_last for row in rows if row is not None and row.driver_last is not None]
    if not lasts or machine.driver is None or machine.driver.major <= min(lasts):
        return []
    return [driver for driver in older if driver.major <= min(lasts)]


def _extras(book: Book, machine: Machine, request: OpenRequest, core: frozenset[Subject]) -> Iterator[Relaxation]:
    """A line of a requirements file left out."""
    for extra in request.extras:
        if extra not in core:
            continue
        rest = tuple(one for one in request.extras if one is not extra)
        found = _tried(book, machine, replace(request, extras=rest))
        if isinstance(found, Resolution):
            spoken = ("", extra.text)  # it stands on the command line, in no file
            yield Relaxation(
                change=f"without `{extra.text}`" if spoken in request.context else f"edit {extra.origin}: without `{extra.text}`",
                result=result(found),
                command=command(replace(request, context=tuple(one for one in request.context if one != spoken))),
                distance=1,
            )


def _forward(book: Book, machine: Machine, found: Resolution) -> Iterator[Relaxation]:
    if machine.driver is None or found.cuda is None:
        return
    needed = CudaVersion(found.cuda)
    for row in forward_rows(book, machine.driver, machine.gpus):
        if row.cuda.line == needed.line:
            yield Relaxation(
                change=f"apt package {row.package}, a newer user-mode driver beside the installed one (forward compatibility: "
                f"data-center GPUs on branch R{row.base})",
                result=result(replace(found, driver_min=None)),
                command=f"apt-get install {row.package}",
                distance=4,
            )
            return


def _glibc(book: Book, machine: Machine, request: OpenRequest, core: frozenset[Subject]) -> Iterator[Relaxation]:
    """A newer distribution."""
    if GLIBC not in core:
        return
    found = _tried(book, replace(machine, glibc=None), request)
    if isinstance(found, Resolution) and GLIBC in found.pins:
        floors = (reason.floor for reason in found.pins[GLIBC].reasons)
        needed = ".".join(map(str, max(floor for floor in floors if isinstance(floor, tuple))))
        yield Relaxation(
            change=f"a distribution with glibc {needed} or newer (a container, for example)",
            result=result(found),
            command=command(request, change={"--glibc": needed}),
            distance=4,
        )


def _cpu(book: Book, machine: Machine, request: OpenRequest) -> list[Relaxation]:
    """No GPU at all, said as such."""
    found = _tried(book, machine, replace(request, device="cpu", cuda=None, cudnn=None))
    if request.device == "cpu" or isinstance(found, Failure):
        return []
    text = "--device cpu: builds without GPU"
    change = {"--device": "cpu", "--gpu": None, "--driver": None, "--cuda": None, "--cudnn": None}
    distance = 0 if any(is_cpu_only(book, target) for target in request.targets) else 9
    return [Relaxation(change=text, result=result(found), command=command(request, change=change), distance=distance)]


def is_cpu_only(book: Book, target: Target) -> bool:
    """True for a target that builds without GPU meet and no other: `torch==2.6.0+cpu`."""
    builds = [build for build in book.framework(target.framework).builds if accepts(target, build, book)]
    return CPU not in target.extras and bool(builds) and all(build.cuda is None for build in builds)
