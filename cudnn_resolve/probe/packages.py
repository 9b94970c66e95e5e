"""Installed packages of the system, and the linker cache."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from cudnn_resolve.facts.dpkg import debian_arch, parse_status
from cudnn_resolve.facts.ldconfig import CacheEntry, parse_cache
from cudnn_resolve.facts.model import Problem
from cudnn_resolve.host.port import Host

_STATUS = "/var/lib/dpkg/status"
_CACHE = "/etc/ld.so.cache"
_LIMIT_BYTES = 64 << 20
_MATTERS = re.compile(
    r"lib(?:cu(?:blas|da|dnn|fft|inj|pti|rand|solver|sparse|tensor|file)|nv(?:JitLink|ToolsExt|blas|cuvid|idia|infer|jpeg|rtc|shmem|vm)"
    r"|nccl|npp|tensorrt|z\.so)"
)
_HELD = re.compile(r"(?:lib)?(?:cuda|cudnn|cublas|nccl|nvinfer|nvidia|tensorrt)")


def find_apt(host: Host, arch: str | None) -> tuple[Mapping[str, str], str, tuple[Problem, ...]]:
    """Installed apt packages, how they were learnt, and a problem for each that matters and is held back.

    Empty on a system that has no dpkg.
    """
    text = host.read_text(_STATUS, _LIMIT_BYTES)
    if text is None:
        return MappingProxyType({}), f"there is no {_STATUS}", ()
    packages = parse_status(text, debian_arch(arch))
    held = sorted(name for name in packages.held if _HELD.match(name))
    problems = tuple(
        Problem(what=name, why=f"is held at {packages.versions[name]} (apt-mark hold): apt does not change it") for name in held
    )
    return packages.versions, _STATUS, problems


def find_cache(host: Host, arch: str | None) -> tuple[tuple[CacheEntry, ...], tuple[Problem, ...]]:
    """The linker cache without entries of other architectures; a problem where there is one that cannot be read."""
    raw = host.read_bytes(_CACHE, 0, _LIMIT_BYTES)
    if raw is None:
        return (), ()
    entries = parse_cache(raw)
    if entries is None:
        return (), (Problem(what=_CACHE, why="is not a linker cache of a known form; run ldconfig"),)
    return tuple(entry for entry in entries if arch is None or entry.arch in (arch, None)), ()


def relevant(entries: tuple[CacheEntry, ...]) -> tuple[str, ...]:
    """Paths of the cached libraries that matter here: CUDA, cuDNN, driver, and what cuDNN needs."""
    return tuple(dict.fromkeys(entry.path for entry in entries if _MATTERS.match(entry.name)))
