"""Compare an environment with a lock or a plan, and write the validation record of a lock that passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from cudnn_resolve.errors import first_few
from cudnn_resolve.facts.model import Driver, Facts, Unknown
from cudnn_resolve.validation.answers import ChildReport, cudnn_of
from cudnn_resolve.validation.loaded import library_name, loaded_libraries
from cudnn_resolve.validation.model import Check, Subject, Validation, VisibleGpu
from cudnn_resolve.version import DriverVersion, same_version, versions_agree

_MOST_NAMED = 6


class PinnedLibrary(Struct, frozen=True, kw_only=True):
    """A library provided by one package."""

    name: str
    """Name of its file without `lib`: `cublas`."""
    package: str
    version: str
    """Of the package; the library's version is a prefix of it."""


class PinnedEnvironment(Struct, frozen=True, kw_only=True):
    """Environment that a lock or a plan prescribes."""

    packages: Mapping[str, str]
    """Normalized name to version."""
    cudnn: str | None = None
    source: Literal["lock", "plan"] = "lock"
    cudnns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Framework to the cuDNN that it must load, if specified per framework."""
    libraries: tuple[PinnedLibrary, ...] = ()
    removed: tuple[str, ...] = ()
    """Packages that must no longer be installed."""
    apt: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    driver_min: str | None = None
    preload: tuple[str, ...] = ()
    """Modules whose libraries must be preloaded, which no installer sets up."""
    preload_command: str = ""
    """Command that sets the preload up; "" if unknown."""


def with_preload_hint(check: Check, pinned: PinnedEnvironment, subject: Subject) -> Check:
    """Explain how to set the preload up if a framework that needs it does not find its cuDNN."""
    if check.id != f"{subject.name}/cudnn" or check.status not in ("failed", "warning") or subject.module not in pinned.preload:
        return check
    how = f": `{pinned.preload_command}` sets it up" if pinned.preload_command else ""
    hint = f"the {pinned.source} has a preload for it, which is missing here{how}"
    return replace(check, detail="; ".join(filter(None, [hint, check.detail])))


def judge_against(pinned: PinnedEnvironment, facts: Facts, subjects: Sequence[Subject], reports: Sequence[ChildReport]) -> Iterator[Check]:
    """Compare packages, driver and the libraries loaded by each framework with the lock or plan."""
    pip, apt = facts.packages.pip, facts.packages.apt
    wrong: list[str] | str = "the installed packages are unknown"
    if not isinstance(pip, Unknown):
        wrong = [
            _difference(name, pip.get(name), version)
            for name, version in pinned.packages.items()
            if not same_version(pip.get(name, ""), version)
        ]
        wrong += [f"{name} {pip[name]} is installed, which the {pinned.source} removes" for name in pinned.removed if name in pip]
    check = _judge_installed(pinned, "packages", pinned.packages, wrong)
    detail = f"`cudnn-resolve apply` makes the environment match the {pinned.source}"
    yield replace(check, detail=detail) if check.status == "failed" else check
    if pinned.apt:
        wrong = "the installed apt packages are unknown"
        if not isinstance(apt, Unknown):
            wrong = [_difference(name, apt.get(name), version) for name, version in pinned.apt.items() if apt.get(name) != version]
        yield _judge_installed(pinned, "apt", pinned.apt, wrong)
    yield from _judge_driver(pinned, facts)
    for subject, report in zip(subjects, reports, strict=True):
        yield from _judge_loaded(pinned, subject, report)


def _judge_installed(
    pinned: PinnedEnvironment, kind: Literal["packages", "apt"], wanted: Mapping[str, str], wrong: Sequence[str] | str
) -> Check:
    """Check packages of one kind; `wrong` lists the differences, or is the reason why they are unknown."""
    count, name = len(wanted), "apt package" if kind == "apt" else "package"
    expected = {0: f"no {name} in the {pinned.source}", 1: f"the {name} of the {pinned.source}"}
    return Check(
        id=f"{pinned.source}/{kind}",
        status="skipped" if isinstance(wrong, str) else "failed" if wrong else "passed",
        expected=expected.get(count, f"the {count} {name}s of the {pinned.source}"),
        observed=wrong if isinstance(wrong, str) else first_few(sorted(wrong), _MOST_NAMED, "; ") or "all as pinned",
    )


def _difference(name: str, installed: str | None, wanted: str) -> str:
    return f"{name} {wanted} is not installed" if installed is None else f"{name} {installed} instead of {wanted}"


def _judge_driver(pinned: PinnedEnvironment, facts: Facts) -> Iterator[Check]:
    """Check that the driver is new enough; no check without a driver or a requirement."""
    driver = facts.driver.version if isinstance(facts.driver, Driver) else None
    if driver is None or pinned.driver_min is None:
        return
    enough = DriverVersion(driver) >= DriverVersion(pinned.driver_min)
    yield Check(
        id=f"{pinned.source}/driver",
        status="passed" if enough else "failed",
        expected=f"driver {pinned.driver_min} or newer",
        observed=f"driver {driver}",
        detail="" if enough else "`cudnn-resolve plan` finds versions for this driver",
    )


def _judge_loaded(pinned: PinnedEnvironment, subject: Subject, report: ChildReport) -> Iterator[Check]:
    """Check that every library loaded by a framework is the pinned one; no check if none is pinned."""
    loaded = loaded_libraries(report)
    same: list[str] = []
    wrong: list[str] = []
    wanted: list[str] = []
    cudnn = pinned.cudnns.get(subject.name) or pinned.cudnns.get(subject.module) or pinned.cudnn
    release = cudnn_of(cudnn)
    if release is not None:
        wanted.append(f"cuDNN {cudnn}")
        for answer in loaded.cudnns:
            if answer.release is not None:
                # For a cuDNN inside a wheel the matrix sometimes has only the first parts.
                right = versions_agree(answer.release.text, release.text)
                (same if right else wrong).append(f"cuDNN {answer.release} from {loaded.homes(answer.release)}")
    for path, version in loaded.libraries.items():
        name = library_name(path).casefold()
        pins = [pin for pin in pinned.libraries if pin.name == name and pin.name != "cudnn"]
        if not pins or version is None:
            continue
        wanted += [f"{pin.package} {pin.version}" for pin in pins]
        if any(versions_agree(version, pin.version.partition("+")[0]) for pin in pins):
            same.append(f"{name} {version}")
        else:
            wrong.append(f"{name} {version} from {path.rpartition('/')[0]}")
    if not same and not wrong:
        return
    yield Check(
        id=f"{pinned.source}/{subject.name}",
        framework=subject.name,
        status="failed" if wrong else "passed",
        expected=f"as in the {pinned.source}: {', '.join(dict.fromkeys(wanted))}",
        observed="; ".join(wrong) if wrong else ", ".join(same),
        detail="another copy is found first: `cudnn-resolve detect` names the loader's rule" if wrong else "",
    )


def records_of(validation: Validation, date: str, python: str | None) -> tuple[dict[str, object], ...]:
    """Make a record for each GPU; none if any check failed or nothing was computed."""
    if validation.status != "passed":
        return ()
    return tuple(_record(validation, gpu, date, python) for gpu in validation.gpus)


def _record(validation: Validation, gpu: VisibleGpu, date: str, python: str | None) -> dict[str, object]:
    checks = [check for check in validation.checks if check.gpu in (None, gpu.index)]
    fields: dict[str, object | None] = {
        "gpu": gpu.name or "unknown",
        "compute_capability": gpu.compute_capability,
        "driver": validation.driver,
        "date": date,
        "python": python,
        "frameworks": dict(validation.frameworks),
        "loaded": dict(validation.loaded),
        "passed": sum(check.status == "passed" for check in checks),
        "skipped": sum(check.status == "skipped" for check in checks),
        "warnings": [check.id for check in checks if check.status == "warning"],
        "classes": sorted({_class_of(check) for check in checks if check.group and check.status == "passed"}),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _class_of(check: Check) -> str:
    """Framework and class of a case, `torch/conv2d-strided`, without the GPU's number."""
    words = check.id.split("/")
    words = words[1:] if words[0].startswith("gpu") else words
    return "/".join(words[: 3 if words[0] == "cudnn" else 2])
