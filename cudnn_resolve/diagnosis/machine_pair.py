"""Packages that are made for one another: torch with torchvision and torchaudio, jax with jaxlib and its plugins. From facts alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.requirements import Requirement

from cudnn_resolve.diagnosis.machine import Checks, Inspection, finding
from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.diagnosis.specifier import within
from cudnn_resolve.resolution.release import parse_requirement

_CAUSE = "framework_pkg_mismatch"
_TORCH = ("torchvision", "torchaudio", "torchtext")
"""Their wheels hold code that is linked with the torch that their metadata names."""
_LOOKS = (0, 5, 3)
"""The first jaxlib that holds the release of a plugin against its own; those before load what is there."""
_PLUGIN = r"jax-cuda\d{2}-plugin"
_LOCAL = r"(?:cu(\d{2,3})|cpu)$"


def _torch_pairs(machine: Inspection) -> Iterator[Finding]:
    """Extensions of torch that were made for another torch, or for another CUDA."""
    torch = machine.pip.get("torch")
    for name in _TORCH:
        version = machine.pip.get(name)
        if version is None or torch is None:
            continue
        wanted = next((one for one in _requires(machine, name) if one.name == "torch"), None)
        if wanted is None or _takes(wanted, torch):
            yield from _variants(machine, torch, name, version)
            continue
        said = f"{name} {version} is made for torch{wanted.specifier}, and torch {torch} is installed"
        if _is_patch(str(wanted.specifier), torch):
            said, severity, confidence = f"{said}, which is of the same minor release", "info", 0.6
        else:
            severity, confidence = "error", 0.93
        yield finding(_CAUSE, severity, confidence, said, *machine.pip_facts(name, "torch"))


def _variants(machine: Inspection, torch: str, name: str, version: str) -> Iterator[Finding]:
    """A torch and an extension of one release, of two CUDA majors, or of which one has no CUDA."""
    built = next((one.cuda for one in machine.installed if one.name == "torch"), None)
    ours, theirs = _cuda_of(torch) or (str(built.major) if built else None), _cuda_of(version)
    if not ours or theirs is None or ours == theirs:
        return
    without = theirs == "0"
    told = "without CUDA: its operators do not run on the GPU" if without else f"for CUDA {theirs}: it refuses to be imported"
    said = f"torch {torch} is built for CUDA {ours} and {name} {version} {told}"
    yield finding(_CAUSE, "warning" if without else "error", 0.9, said, *machine.pip_facts(name, "torch"))


def _jax_pairs(machine: Inspection) -> Iterator[Finding]:
    """Jaxlib outside what jax takes, and CUDA plugins of another release than jaxlib, which leaves them out then."""
    jax, jaxlib = machine.pip.get("jax"), machine.pip.get("jaxlib")
    if jaxlib is None:
        return
    shown = machine.pip_facts("jax", "jaxlib")
    wanted = next((one for one in _requires(machine, "jax") if one.name == "jaxlib"), None) if jax else None
    if jax is not None and _release(jaxlib)[:3] > _release(jax)[:3]:
        said = f"jaxlib {jaxlib} is installed, which is newer than jax {jax}: jax refuses to be imported"
        yield finding(_CAUSE, "error", 0.94, said, *shown)
    elif wanted is not None and not _takes(wanted, jaxlib):
        said = f"jax {jax} wants jaxlib{wanted.specifier}, and jaxlib {jaxlib} is installed"
        yield finding(_CAUSE, "error", 0.94, said, *shown)
    for name, version in machine.pip.items():
        if not re.fullmatch(_PLUGIN, name):
            continue
        looks = _release(jaxlib) >= _LOOKS
        taken = any(one.name == name and _takes(one, version) for one in _requires(machine, "jax", extras=True)) if jax else False
        if _release(version) != _release(jaxlib) and (looks or not taken):
            what = "which leaves it out: JAX runs on the CPU" if looks else f"and jax {jax or ''} does not take it".replace("  ", " ")
            said = f"{name} {version} is not of the release of jaxlib {jaxlib}, {what}"
            yield finding(_CAUSE, "error", 0.9, said, *machine.pip_facts(name), *shown)
        for one in _requires(machine, name):
            other = machine.pip.get(one.name)
            if one.name.endswith("-pjrt") and other is not None and not _takes(one, other):
                said = f"{name} {version} wants {one.name}{one.specifier}, and {one.name} {other} is installed"
                yield finding(_CAUSE, "warning", 0.85, said, *machine.pip_facts(name, one.name))


def _takes(requirement: Requirement, version: str) -> bool:
    """True where a version is within a requirement; a build of one's own (`2.6.0a0+nv25.1`) may be named with its local part."""
    specifier = requirement.specifier
    return within(str(specifier), version) or any(one.version == version for one in specifier if one.operator in ("==", "==="))


def _requires(machine: Inspection, name: str, *, extras: bool = False) -> Iterator[Requirement]:
    """What the installed wheel requires, without extras or with all: by its own metadata, else as the matrix has it."""
    lines = machine.facts.packages.requires.get(name)
    if lines is None:
        lines = machine.book.requires(name, machine.pip[name].partition("+")[0]).get(machine.arch, ())
    for requirement in filter(None, map(parse_requirement, lines)):
        if extras or requirement.marker is None or "extra" not in str(requirement.marker):
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
    found = re.fullmatch(_LOCAL, version.partition("+")[2])
    if found is None:
        return None
    return found[1][:-1] if found[1] else "0"


_OF_TENSORFLOW = ("tf-keras", "tensorflow-text")
"""Packages that are made for one minor release of TensorFlow and follow its numbers."""


def _tensorflow_pairs(machine: Inspection) -> Iterator[Finding]:
    """Packages made for another minor release of TensorFlow, and Keras 2 where TensorFlow takes Keras 3 alone."""
    tensorflow = machine.pip.get("tensorflow")
    if tensorflow is None:
        return
    for name in _OF_TENSORFLOW:
        version = machine.pip.get(name)
        if version is not None and _release(version)[:2] != _release(tensorflow)[:2]:
            minor = ".".join(map(str, _release(version)[:2]))
            said = f"{name} {version} is made for TensorFlow {minor}, and tensorflow {tensorflow} is installed"
            yield finding(_CAUSE, "error", 0.9, said, *machine.pip_facts(name, "tensorflow"))
    keras = machine.pip.get("keras")
    if keras is not None and _release(tensorflow)[:2] >= (2, 16) and _release(keras)[:1] < (3,):
        said = f"tensorflow {tensorflow} takes Keras 3, and keras {keras} is installed: tf.keras cannot be imported"
        yield finding(_CAUSE, "error", 0.9, said, *machine.pip_facts("keras", "tensorflow"))


CHECKS: Checks = (_torch_pairs, _jax_pairs, _tensorflow_pairs)
