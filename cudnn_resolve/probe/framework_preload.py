"""The preload that `apply` left in an environment: what it opens before a framework asks for it."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.host.port import Host
from cudnn_resolve.planning.preload import IMPORT_NAMES, LIBRARIES, MODULE
from cudnn_resolve.probe.environment import TargetEnvironment
from cudnn_resolve.probe.framework_shelf import CTYPES, Open, Reading
from cudnn_resolve.probe.loader import Loading

_NAMES = re.compile(r"^NAMES = \(([^)\n]{0,2000})\)$", re.MULTILINE)
_ONE = re.compile(r"'(\w{1,64})'", re.ASCII)


class Preload(Struct, frozen=True, kw_only=True):
    """What is opened, and for the import of what."""

    path: str
    names: frozenset[str]
    steps: tuple[Open, ...]


def find_preload(host: Host, environment: TargetEnvironment, loading: Loading) -> Preload | None:
    """The preload of an environment; None where there is none, or nothing runs it at start."""
    for site in environment.site_packages:
        names = loading.names(site)
        if f"{MODULE}.py" not in names or f"{MODULE}.pth" not in names:
            continue
        found = _NAMES.search(host.read_text(f"{site}/{MODULE}.py") or "")
        if found is not None:
            steps = tuple(Open(path=path, by=CTYPES, required=False) for path in _libraries(site, loading))
            return Preload(path=f"{site}/{MODULE}.py", names=frozenset(_ONE.findall(found[1])), steps=steps)
    return None


def with_preload(reading: Reading, preload: Preload | None) -> Reading:
    """The reading with what is opened before; unchanged for a framework that the preload is not for, or that loads no cuDNN."""
    if preload is None or not reading.steps or _module(reading.name) not in preload.names:
        return reading
    # What fails at first, because something that it needs comes later, is tried again: twice is as often as it takes.
    steps = (*preload.steps, *preload.steps, *reading.steps)
    return replace(reading, steps=steps, preload=preload.path, preloaded=frozenset(one.path for one in preload.steps))


def _module(name: str) -> str | None:
    """The module whose import starts the loading, of a distribution's name: `onnxruntime` for `onnxruntime-gpu`."""
    plain = "jax" if name == "jaxlib" else name
    return next((module for framework, module in IMPORT_NAMES.items() if plain == framework or plain.startswith(f"{framework}-")), None)


def _libraries(site: str, loading: Loading) -> list[str]:
    """Paths in the order in which they are opened."""
    found = []
    for root in sorted(loading.names(f"{site}/nvidia")):
        folder = f"{site}/nvidia/{root}/lib"
        for name in loading.names(folder):
            rank = next((number for number, begin in enumerate(LIBRARIES) if name.startswith(begin)), None)
            if rank is not None and ".so" in name:
                found.append((rank, len(name), f"{folder}/{name}"))
    return [path for _, _, path in sorted(found)]
