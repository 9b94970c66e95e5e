"""The loader part of a plan: a file in site-packages that loads the NVIDIA wheels' libraries before a framework asks for them.

A framework that opens `libcudnn.so.8` by its bare name gets the copy that the process has loaded already (dlopen(3): an object of
the same soname is not loaded twice). So the libraries are loaded by their full paths at the moment when the framework is imported.
Setting LD_LIBRARY_PATH at that moment would have no effect: the loader reads it when the process starts (ld.so(8)).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.cudnn_files import FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudnn_resolve.locking.model import Environment
    from cudnn_resolve.planning.model import PipAction

MODULE = "_cudnn_resolve_preload"
"""Name of the module in site-packages; `MODULE.pth` beside it imports it at start."""

IMPORT_NAMES = {
    "tensorflow": "tensorflow",
    "torch": "torch",
    "jax": "jax",
    "onnxruntime": "onnxruntime",
    "ctranslate2": "ctranslate2",
    "cupy": "cupy",
    "paddlepaddle": "paddle",
    "mxnet": "mxnet",
}
"""Framework to the module whose import starts the loading."""


def import_name(distribution: str) -> str | None:
    """The module of a framework's distribution, `onnxruntime` for `onnxruntime-gpu`; None for any other package."""
    plain = {"jaxlib": "jax", "tf-nightly": "tensorflow", "tf-nightly-gpu": "tensorflow"}.get(distribution, distribution)
    return next((module for name, module in IMPORT_NAMES.items() if plain == name or plain.startswith(f"{name}-")), None)


LIBRARIES = (
    *("libcudart.so", "libnvJitLink.so", "libnvrtc.so", "libcublasLt.so", "libcublas.so", "libcufft.so", "libcurand.so"),
    *("libcusparse.so", "libcusolver.so", "libcupti.so", "libnccl.so", "libnvToolsExt.so", "libcudnn"),
)
"""Beginnings of the names of what is loaded, in an order in which each finds what it needs."""

_SOURCE = '''"""Loads the CUDA libraries of this environment's NVIDIA wheels when one of these is imported: {names}.

Made by cudnn-resolve. Delete this file and {module}.pth to undo it.
"""
import sys

NAMES = {tuple!r}
APART = {apart!r}  # their cuDNN lies in a folder of its own
LIBRARIES = (
{libraries}
)


def load(asked=None):
    import ctypes
    import os

    site = os.path.dirname(os.path.abspath(__file__))
    folders = [os.path.join(site, "nvidia")]
    if asked in APART:
        folders.append(os.path.join(site, "{folder}", "nvidia"))
    found = []
    for here in folders:
        last = here == folders[-1]
        for root in sorted(os.listdir(here)) if os.path.isdir(here) else ():
            folder = os.path.join(here, root, "lib")
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                rank = [number for number, start in enumerate(LIBRARIES) if name.startswith(start)]
                if rank and ".so" in name and (last or not name.startswith("libcudnn")):
                    mode = ctypes.RTLD_LOCAL if last and asked in APART else ctypes.RTLD_GLOBAL
                    found.append((rank[0], len(name), os.path.join(folder, name), mode))
    waiting = [(path, mode) for _, _, path, mode in sorted(found)]
    while waiting:
        left = []
        for path, mode in waiting:
            try:
                ctypes.CDLL(path, mode=mode)
            except OSError:
                left.append((path, mode))
        if len(left) == len(waiting):
            return
        waiting = left


class Finder(object):
    waiting = [names for names in (NAMES, APART) if names]

    def find_spec(self, name, path=None, target=None):
        for names in [one for one in self.waiting if name in one]:
            self.waiting.remove(names)
            if not self.waiting and self in sys.meta_path:
                sys.meta_path.remove(self)
            load(name)
        return None


sys.meta_path.insert(0, Finder())
'''


_WORD = re.compile(r"'([A-Za-z_][A-Za-z0-9_.]{0,63})'", re.ASCII)
_FRAMEWORK = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,60}", re.ASCII)


def check_frameworks(names: tuple[str, ...]) -> None:
    """Reject what is not a framework's name: names become part of a program, and a lock may come from anywhere. Raises InputError."""
    for name in names:
        if not _FRAMEWORK.fullmatch(name):
            raise InputError(f"{name[:80]!r} is no framework that libraries could be loaded for", code="preload-invalid")


def preload_source(frameworks: tuple[str, ...], apart: tuple[str, ...] = ()) -> str:
    """The source of the module for these frameworks; runs on Python 3.6 and newer, costs nothing until one of them is imported.

    `apart` are those whose cuDNN lies in the folder: NVIDIA's names and symbols have versions of their own in each major, so that the one
    in the environment stays as it is for the others.
    """
    check_frameworks((*frameworks, *apart))
    names = tuple(IMPORT_NAMES.get(name, name) for name in frameworks)
    own = tuple(IMPORT_NAMES.get(name, name) for name in apart)
    quoted = [f'"{name}"' for name in LIBRARIES]
    libraries = "\n".join(f"    {', '.join(some)}," for some in (quoted[:7], quoted[7:]))
    parts = {
        "libraries": libraries,
        "names": ", ".join(dict.fromkeys((*names, *own))),
        "tuple!r": repr(names),
        "apart!r": repr(own),
        "folder": FOLDER,
        "module": MODULE,
    }
    text = _SOURCE
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


def preloaded_names(source: str) -> tuple[list[str], list[str]] | None:
    """The modules that a preload which is there is for, and those of them whose cuDNN lies in the folder; None for another text."""
    names, apart = (re.search(rf"^{name} = \(([^()\n]{{0,2000}})\)", source, re.MULTILINE) for name in ("NAMES", "APART"))
    return None if names is None else (_WORD.findall(names[1]), _WORD.findall(apart[1] if apart else ""))


def preload_pth() -> str:
    """The line of the `.pth` file that imports the module at start."""
    return f"import {MODULE}\n"


def preload_files(environment: Sequence[Environment]) -> dict[str, str]:
    """Name and content of the files that a plan writes into site-packages for the loader; empty where it needs none."""
    names = {kind: tuple(name for one in environment if one.kind == kind for name in one.value.split()) for kind in ("preload", "folder")}
    if not any(names.values()):
        return {}
    return {f"{MODULE}.py": preload_source(names["preload"], names["folder"]), f"{MODULE}.pth": preload_pth()}


def folder_actions(environment: Sequence[Environment]) -> tuple[PipAction, ...]:
    """The library wheels that must be in the folder."""
    from cudnn_resolve.planning.model import PipAction  # what detects needs no plan

    wheels = (one.wheel for one in environment if one.wheel is not None)
    return tuple(PipAction(name=one.name, version=one.version, index=one.index, file=one.file) for one in wheels)
