"""Packages that are made for one another: torch with torchvision and torchaudio, jax with jaxlib and its plugins. From facts alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.machine import Machine, fact
from cudnn_resolve.diagnosis.model import Evidence, Finding
from cudnn_resolve.diagnosis.specifier import within

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_TORCH = ("torchvision", "torchaudio", "torchtext")
"""Their wheels hold code that is linked with the torch that their metadata names."""
_PLUGIN = re.compile(r"jax-cuda\d{2}-plugin")
_JAX = ("jax", "jaxlib")
_LOCAL = re.compile(r"(?:cu(\d{2,3})|cpu)$")


def _torch_pairs(machine: Machine) -> Iterator[Finding]:
    """Extensions of torch that were made for another torch, or for another CUDA."""
    torch = machine.pip.get("torch")
    for name in _TORCH if torch else ():
        version = machine.pip.get(name)
        if version is None or torch is None:
            continue
        wanted = next((one for one in _requires(machine, name) if one.name == "torch"), None)
        if wanted is not None and not _takes(wanted, torch):
            near = _is_patch(str(wanted.specifier), torch)
            yield Finding(
                cause="framework_pkg_mismatch",
                severity="info" if near else "error",
                summary=f"{name} {version} is made for torch{wanted.specifier}, and torch {torch} is installed"
                + (", which is of the same minor release" if near else ""),
                evidence=_pips(machine, name, "torch"),
                confidence=0.6 if near else 0.93,
            )
        else:
            yield from _variants(machine, torch, name, version)


def _variants(machine: Machine, torch: str, name: str, version: str) -> Iterator[Finding]:
    """A torch and an extension of one release, of two CUDA majors, or of which one has no CUDA."""
    ours, theirs = _cuda_of(torch), _cuda_of(version)
    if not ours or theirs is None or ours == theirs:
        return
    without = theirs == "0"
    yield Finding(
        cause="framework_pkg_mismatch",
        severity="warning" if without else "error",
        summary=f"torch {torch} is built for CUDA {ours} and {name} {version} "
        + ("without CUDA: its operators do not run on the GPU" if without else f"for CUDA {theirs}: it refuses to be imported"),
        evidence=_pips(machine, name, "torch"),
        confidence=0.9,
    )


def _jax_pairs(machine: Machine) -> Iterator[Finding]:
    """Jaxlib outside what jax takes, and CUDA plugins of another release than jaxlib, which leaves them out then."""
    jax, jaxlib = machine.pip.get("jax"), machine.pip.get("jaxlib")
    if jaxlib is None:
        return
    wanted = next((one for one in _requires(machine, "jax") if one.name == "jaxlib"), None) if jax else None
    newer = jax is not None and _release(jaxlib)[:3] > _release(jax)[:3]
    if newer or (wanted is not None and not _takes(wanted, jaxlib)):
        yield Finding(
            cause="framework_pkg_mismatch",
            severity="error",
            summary=f"jaxlib {jaxlib} is installed, which is newer than jax {jax}: jax refuses to be imported"
            if newer
            else f"jax {jax} wants jaxlib{wanted.specifier if wanted else ''}, and jaxlib {jaxlib} is installed",
            evidence=_pips(machine, *_JAX),
            confidence=0.94,
        )
    for name, version in machine.pip.items():
        if not _PLUGIN.fullmatch(name):
            continue
        if _release(version) != _release(jaxlib):
            yield Finding(
                cause="framework_pkg_mismatch",
                severity="error",
                summary=f"{name} {version} is not of the release of jaxlib {jaxlib}, which leaves it out: JAX runs on the CPU",
                evidence=_pips(machine, name, *_JAX),
                confidence=0.9,
            )
        for one in _requires(machine, name):
            other = machine.pip.get(one.name)
            if one.name.endswith("-pjrt") and other is not None and not _takes(one, other):
                yield Finding(
                    cause="framework_pkg_mismatch",
                    severity="warning",
                    summary=f"{name} {version} wants {one.name}{one.specifier}, and {one.name} {other} is installed",
                    evidence=_pips(machine, name, one.name),
                    confidence=0.85,
                )


def _takes(requirement: Requirement, version: str) -> bool:
    """True where a version is within a requirement; a build of one's own (`2.6.0a0+nv25.1`) may be named with its local part."""
    specifier = str(requirement.specifier)
    return within(specifier, version) or any(one.version == version for one in requirement.specifier if one.operator in ("==", "==="))


def _requires(machine: Machine, name: str) -> Iterator[Requirement]:
    """What the installed wheel requires without extras: by its own metadata, else as the matrix has it."""
    from packaging.requirements import InvalidRequirement, Requirement

    version = machine.pip[name].partition("+")[0]
    lines = machine.facts.packages.requires.get(name)
    if lines is None:
        package = machine.book.package(name)
        release = next((one for one in package.releases if one.version == version), None) if package else None
        known = (release.requires or {}) if release else {}
        lines = known.get(machine.facts.platform.arch or "x86_64", ())
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or "extra" not in str(requirement.marker):
            yield requirement


def _is_patch(specifier: str, version: str) -> bool:
    """True where the pinned release is of the same minor one: 2.0.0 and 2.0.1, or the builds of two nights, nearly always have one ABI."""
    pinned = re.match(r"==\s{0,3}(\d{1,4}\.\d{1,4})(?!\d)", specifier)
    return pinned is not None and _release(version)[:2] == _release(pinned[1])[:2]


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, as jaxlib compares them."""
    numbers = re.match(r"\d{1,9}(?:\.\d{1,9}){0,7}", version)
    return tuple(int(part) for part in numbers[0].split(".")) if numbers else ()


def _cuda_of(version: str) -> str | None:
    """CUDA's major in a local version, `0` for none of it; None where the version does not tell."""
    found = _LOCAL.fullmatch(version.partition("+")[2])
    if found is None:
        return None
    return found[1][:-1] if found[1] else "0"


def _pips(machine: Machine, *names: str) -> tuple[Evidence, ...]:
    return tuple(fact("packages.pip", f"{name} {machine.pip[name]}") for name in names if name in machine.pip)


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (_torch_pairs, _jax_pairs)
