"""Compare what was seen with a lock or a plan, and make the record of a lock that passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from cudnn_resolve.facts.model import Driver, Facts, Unknown
from cudnn_resolve.validation.answers import Told, cudnn_of, few
from cudnn_resolve.validation.judge_loading import library_name, seen_in
from cudnn_resolve.validation.model import Check, Subject, Validation, VisibleGpu
from cudnn_resolve.version import DriverVersion, same_version

_MOST_NAMED = 6
_MOST_PARTS = 3
"""Of a version that a library tells of itself; the build is known to its package only."""


class PinnedLibrary(Struct, frozen=True, kw_only=True):
    """A library that comes out of one package."""

    name: str
    """As its file is called, without `lib`: `cublas`."""
    package: str
    version: str
    """Of the package, which begins with that of the library."""


class Pinned(Struct, frozen=True, kw_only=True):
    """What a lock or a plan says about the environment that it was made for."""

    packages: Mapping[str, str]
    """Normalized name to version."""
    cudnn: str | None = None
    source: Literal["lock", "plan"] = "lock"
    cudnns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Framework to the cuDNN that it is to load, where that is said of each."""
    libraries: tuple[PinnedLibrary, ...] = ()
    removed: tuple[str, ...] = ()
    """Packages that must not be installed any more."""
    apt: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    driver_min: str | None = None
    preload: tuple[str, ...] = ()
    """Modules whose libraries must be loaded for them, which no installer sets up."""
    mend: str = ""
    """The command that sets that up; "" where none is known."""


def with_mend(check: Check, pinned: Pinned, subject: Subject) -> Check:
    """Name what sets the preload up where a framework that needs it does not find its cuDNN."""
    if check.id != f"{subject.name}/cudnn" or check.status not in ("failed", "warning") or subject.module not in pinned.preload:
        return check
    how = f": `{pinned.mend}` sets it up" if pinned.mend else ""
    told = f"the {pinned.source} has a preload for it, which is missing here{how}"
    return replace(check, detail="; ".join(filter(None, [told, check.detail])))


def judge_against(pinned: Pinned, facts: Facts, subjects: Sequence[Subject], told: Sequence[Told]) -> Iterator[Check]:
    """Compare packages, driver and what every framework loads with the lock or the plan."""
    pip, apt = facts.packages.pip, facts.packages.apt
    wrong: list[str] | str = "nobody could be asked which packages are installed"
    if not isinstance(pip, Unknown):
        wrong = [_wrong(name, pip.get(name), want) for name, want in pinned.packages.items() if not same_version(pip.get(name, ""), want)]
        wrong += [f"{name} {pip[name]} is installed, which the {pinned.source} removes" for name in pinned.removed if name in pip]
    check = _judge_installed(pinned, "packages", pinned.packages, wrong)
    detail = f"`cudnn-resolve apply` brings the environment to what the {pinned.source} says"
    yield replace(check, detail=detail) if check.status == "failed" else check
    if pinned.apt:
        wrong = "dpkg could not be asked which packages are installed"
        if not isinstance(apt, Unknown):
            wrong = [_wrong(name, apt.get(name), version) for name, version in pinned.apt.items() if apt.get(name) != version]
        yield _judge_installed(pinned, "apt", pinned.apt, wrong)
    yield from _judge_driver(pinned, facts)
    for subject, one in zip(subjects, told, strict=True):
        yield from _judge_loaded(pinned, subject, one)


def _judge_installed(pinned: Pinned, kind: Literal["packages", "apt"], wanted: Mapping[str, str], wrong: Sequence[str] | str) -> Check:
    """Check packages of one kind; `wrong` names those that are not as they should be, or says why that is not known."""
    count, name = len(wanted), "apt package" if kind == "apt" else "package"
    expected = {0: f"no {name} in the {pinned.source}", 1: f"the {name} of the {pinned.source}"}
    check = Check(
        id=f"{pinned.source}/{kind}",
        status="skipped" if isinstance(wrong, str) else "failed" if wrong else "passed",
        expected=expected.get(count, f"the {count} {name}s of the {pinned.source}"),
    )
    return replace(check, observed=wrong if isinstance(wrong, str) else few(sorted(wrong), _MOST_NAMED, "; ") or "as it says")


def _wrong(name: str, here: str | None, wanted: str) -> str:
    return f"{name} {wanted} is not installed" if here is None else f"{name} {here} instead of {wanted}"


def _judge_driver(pinned: Pinned, facts: Facts) -> Iterator[Check]:
    """Check that the driver is new enough; there is no check without a driver, or where none is asked for."""
    driver = facts.driver.version if isinstance(facts.driver, Driver) else None
    if driver is None or pinned.driver_min is None:
        return
    try:
        enough = DriverVersion(driver) >= DriverVersion(pinned.driver_min)
    except ValueError:
        return
    yield Check(
        id=f"{pinned.source}/driver",
        status="passed" if enough else "failed",
        expected=f"a driver from {pinned.driver_min} on",
        observed=f"driver {driver}",
        detail="" if enough else "`cudnn-resolve plan` finds what this driver runs",
    )


def _judge_loaded(pinned: Pinned, subject: Subject, told: Told) -> Iterator[Check]:
    """Check that every library in the process of a framework is the pinned one; there is no check where none is pinned."""
    seen = seen_in(told)
    same: list[str] = []
    wrong: list[str] = []
    wanted: list[str] = []
    cudnn = pinned.cudnns.get(subject.name) or pinned.cudnns.get(subject.module) or pinned.cudnn
    release = cudnn_of(cudnn)
    if release is not None:
        numbers = release.parts[:_MOST_PARTS]
        wanted.append(f"cuDNN {cudnn}")
        for one in seen.cudnns:
            if one.release is not None:
                # Of what is inside a wheel, the matrix sometimes knows the beginning only.
                right = one.release.parts[: len(numbers)] == numbers
                (same if right else wrong).append(f"cuDNN {one.release} from {seen.homes(one.release)}")
    for path, version in seen.libraries.items():
        name = library_name(path).casefold()
        pins = [one for one in pinned.libraries if one.name == name and one.name != "cudnn"]
        if not pins or version is None:
            continue
        wanted += [f"{one.package} {one.version}" for one in pins]
        right = any(_begins(one.version, version) for one in pins)
        (same if right else wrong).append(f"{name} {version}" if right else f"{name} {version} from {path.rpartition('/')[0]}")
    if not same and not wrong:
        return
    yield Check(
        id=f"{pinned.source}/{subject.name}",
        framework=subject.name,
        status="failed" if wrong else "passed",
        expected=f"as the {pinned.source} has it: {', '.join(dict.fromkeys(wanted))}",
        observed="; ".join(wrong) if wrong else ", ".join(same),
        detail="another copy is found first: `cudnn-resolve detect` says by which rule" if wrong else "",
    )


def _begins(package: str, library: str) -> bool:
    """True where a library's own version is the beginning of its package's."""
    ours, theirs = (text.partition("+")[0].split(".")[:_MOST_PARTS] for text in (package, library))
    length = min(len(ours), len(theirs))
    return ours[:length] == theirs[:length]


def records_of(validation: Validation, date: str, python: str | None) -> tuple[dict[str, object], ...]:
    """Make a record for each GPU on which everything passed; none where anything failed or nothing was computed."""
    if validation.status != "passed":
        return ()
    return tuple(_record(validation, gpu, date, python) for gpu in validation.gpus)


def _record(validation: Validation, gpu: VisibleGpu, date: str, python: str | None) -> dict[str, object]:
    own = [check for check in validation.checks if check.gpu in (None, gpu.index)]
    fields: dict[str, object | None] = {
        "gpu": gpu.name or "unknown",
        "compute_capability": gpu.compute_capability,
        "driver": validation.driver,
        "date": date,
        "python": python,
        "frameworks": dict(validation.frameworks),
        "loaded": dict(validation.loaded),
        "passed": sum(check.status == "passed" for check in own),
        "skipped": sum(check.status == "skipped" for check in own),
        "warnings": [check.id for check in own if check.status == "warning"],
        "classes": sorted({_class_of(check) for check in own if check.group and check.status == "passed"}),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _class_of(check: Check) -> str:
    """Who computed what, `torch/conv2d-strided`, without the number of a card."""
    words = check.id.split("/")
    words = words[1:] if words[0].startswith("gpu") else words
    return "/".join(words[: 3 if words[0] == "cudnn" else 2])
