"""Packages released as pairs: torch with torchvision and torchaudio, jax with jaxlib and its plugins. Findings from facts alone."""

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
"""Their compiled code links to the torch release that their metadata names."""
_LOOKS = (0, 5, 3)
"""First jaxlib that compares a plugin's release with its own; older ones load any."""
_PLUGIN = r"jax-cuda\d{2}-plugin"
_LOCAL = r"(?:cu(\d{2,3})|cpu)$"


def _torch_pairs(machine: Inspection) -> Iterator[Finding]:
    """Torch extensions built for another torch, or for another CUDA."""
    torch = machine.pip.get("torch")
    for name in _TORCH:
        version = machine.pip.get(name)
        if version is None or torch is None:
            continue
        wanted = next((requirement for requirement in _requires(machine, name) if requirement.name == "torch"), None)
        if wanted is None or _takes(wanted, torch):
            yield from _variants(machine, torch, name, version)
            continue
        summary = f"{name} {version} is built for torch{wanted.specifier}, but torch {torch} is installed"
        if _is_patch(str(wanted.specifier), torch):
            summary, severity, confidence = f"{summary}, which is of the same minor release", "info", 0.6
        else:
            severity, confidence = "error", 0.93
        yield finding(_CAUSE, severity, confidence, summary, *machine.pip_facts(name, "torch"))


def _variants(machine: Inspection, torch: str, name: str, version: str) -> Iterator[Finding]:
    """Torch and an extension of matching releases, but different CUDA majors, or one without CUDA."""
    built = next((framework.cuda for framework in machine.installed if framework.name == "torch"), None)
    ours, theirs = _cuda_of(torch) or (str(built.major) if built else None), _cuda_of(version)
    if not ours or theirs is None or ours == theirs:
        return
    without = theirs == "0"
    difference = "without CUDA: its operators do not run on the GPU" if without else f"for CUDA {theirs}: its import fails"
    summary = f"torch {torch} is built for CUDA {ours}, but {name} {version} {difference}"
    yield finding(_CAUSE, "warning" if without else "error", 0.9, summary, *machine.pip_facts(name, "torch"))


def _jax_pairs(machine: Inspection) -> Iterator[Finding]:
    """Jaxlib outside the range of jax, and CUDA plugins of another release than jaxlib, which then ignores them."""
    jax, jaxlib = machine.pip.get("jax"), machine.pip.get("jaxlib")
    if jaxlib is None:
        return
    evidence = machine.pip_facts("jax", "jaxlib")
    wanted = next((requirement for requirement in _requires(machine, "jax") if requirement.name == "jaxlib"), None) if jax else None
    if jax is not None and _release(jaxlib)[:3] > _release(jax)[:3]:
        summary = f"jaxlib {jaxlib} is newer than jax {jax}: importing jax fails"
        yield finding(_CAUSE, "error", 0.94, summary, *evidence)
    elif wanted is not None and not _takes(wanted, jaxlib):
        summary = f"jax {jax} needs jaxlib{wanted.specifier}, but jaxlib {jaxlib} is installed"
        yield finding(_CAUSE, "error", 0.94, summary, *evidence)
    for name, version in machine.pip.items():
        if not re.fullmatch(_PLUGIN, name):
            continue
        looks = _release(jaxlib) >= _LOOKS
        taken = (
            any(requirement.name == name and _takes(requirement, version) for requirement in _requires(machine, "jax", extras=True))
            if jax
            else False
        )
        if _release(version) != _release(jaxlib) and (looks or not taken):
            what = "which ignores it: JAX runs on the CPU" if looks else f"and jax {jax or ''} does not take it".replace("  ", " ")
            summary = f"{name} {version} does not match jaxlib {jaxlib}, {what}"
            yield finding(_CAUSE, "error", 0.9, summary, *machine.pip_facts(name), *evidence)
        for requirement in _requires(machine, name):
            other = machine.pip.get(requirement.name)
            if requirement.name.endswith("-pjrt") and other is not None and not _takes(requirement, other):
                summary = f"{name} {version} needs {requirement.name}{requirement.specifier}, but {requirement.name} {other} is installed"
                yield finding(_CAUSE, "warning", 0.85, summary, *machine.pip_facts(name, requirement.name))


def _takes(requirement: Requirement, version: str) -> bool:
    """True where a version is within a requirement; a build of one's own (`2.6.0a0+nv25.1`) may be named with its local part."""
    specifier = requirement.specifier
    return within(str(specifier), version) or any(limit.version == version for limit in specifier if limit.operator in ("==", "==="))


def _requires(machine: Inspection, name: str, *, extras: bool = False) -> Iterator[Requirement]:
    """What the installed wheel requires, without extras or with all: by its own metadata, else as the matrix has it."""
    lines = machine.facts.packages.requires.get(name)
    if lines is None:
        lines = machine.book.requires(name, machine.pip[name].partition("+")[0]).get(machine.arch, ())
    for requirement in filter(None, map(parse_requirement, lines)):
        if extras or requirement.marker is None or "extra" not in str(requirement.marker):
            yield requirement


def _is_patch(specifier: str, version: str) -> bool:
    """True if both releases have the same minor version: 2.0.0 and 2.0.1, or two nightly builds, nearly always share an ABI."""
    pinned = re.match(r"==\s{0,3}(\d{1,4}\.\d{1,4})(?!\d)", specifier)
    return pinned is not None and _release(version)[:2] == _release(pinned[1])[:2]


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, as jaxlib compares them."""
    numbers = re.match(r"\d{1,9}(?:\.\d{1,9}){0,7}", version)
    return tuple(int(part) for part in numbers[0].split(".")) if numbers else ()


def _cuda_of(version: str) -> str | None:
    """CUDA major in a local version, `0` for a CPU build, None if unknown."""
    found = re.fullmatch(_LOCAL, version.partition("+")[2])
    if found is None:
        return None
    return found[1][:-1] if found[1] else "0"


_OF_TENSORFLOW = ("tf-keras", "tensorflow-text")
"""Packages built for one minor release of TensorFlow, with the same version numbers."""


def _tensorflow_pairs(machine: Inspection) -> Iterator[Finding]:
    """Packages built for another minor release of TensorFlow, and Keras 2 with a TensorFlow that needs Keras 3."""
    tensorflow = machine.pip.get("tensorflow")
    if tensorflow is None:
        return
    for name in _OF_TENSORFLOW:
        version = machine.pip.get(name)
        if version is not None and _release(version)[:2] != _release(tensorflow)[:2]:
            minor = ".".join(map(str, _release(version)[:2]))
            summary = f"{name} {version} is built for TensorFlow {minor}, but tensorflow {tensorflow} is installed"
            yield finding(_CAUSE, "error", 0.9, summary, *machine.pip_facts(name, "tensorflow"))
    keras = machine.pip.get("keras")
    if keras is not None and _release(tensorflow)[:2] >= (2, 16) and _release(keras)[:1] < (3,):
        summary = f"tensorflow {tensorflow} needs Keras 3, but keras {keras} is installed: tf.keras cannot be imported"
        yield finding(_CAUSE, "error", 0.9, summary, *machine.pip_facts("keras", "tensorflow"))


CHECKS: Checks = (_torch_pairs, _jax_pairs, _tensorflow_pairs)
