"""The preload: a module in site-packages that loads the NVIDIA wheels' libraries before a framework opens them.

A framework that opens `libcudnn.so.8` by its bare name gets the copy that is already loaded (dlopen(3): an object with the same
soname is not loaded twice). So the preload loads the libraries by full path when the framework is imported. Setting LD_LIBRARY_PATH at
that point would have no effect: the loader reads it at process start (ld.so(8)).
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
"""Name of the module in site-packages; `MODULE.pth` next to it imports it when Python starts."""

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
"""Framework to the module whose import triggers the preload."""


def import_name(distribution: str) -> str | None:
    """Return the module of a framework's distribution, `onnxruntime` for `onnxruntime-gpu`; None for any other package."""
    framework = {"jaxlib": "jax", "tf-nightly": "tensorflow", "tf-nightly-gpu": "tensorflow"}.get(distribution, distribution)
    return next((module for name, module in IMPORT_NAMES.items() if framework == name or framework.startswith(f"{name}-")), None)


LIBRARIES = (
    *("libcudart.so", "libnvJitLink.so", "libnvrtc.so", "libcublasLt.so", "libcublas.so", "libcufft.so", "libcurand.so"),
    *("libcusparse.so", "libcusolver.so", "libcupti.so", "libnccl.so", "libnvToolsExt.so", "libcudnn"),
)
"""Prefixes of the libraries to load, dependencies before their users."""

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
    """Raise InputError for an invalid framework name: names become part of a program, and a lock may come from anywhere."""
    for name in names:
        if not _FRAMEWORK.fullmatch(name):
            raise InputError(f"{name[:80]!r} is not a valid framework name", code="preload-invalid")


def preload_source(frameworks: tuple[str, ...], folder_frameworks: tuple[str, ...] = ()) -> str:
    """Return the source of the module for these frameworks.

    It runs on Python 3.6 and newer, and costs nothing until one of them is imported. The cuDNN of `folder_frameworks` is in the separate
    folder. Both can be loaded at once, because NVIDIA's library and symbol names differ between cuDNN majors.
    """
    check_frameworks((*frameworks, *folder_frameworks))
    names = tuple(IMPORT_NAMES.get(name, name) for name in frameworks)
    apart = tuple(IMPORT_NAMES.get(name, name) for name in folder_frameworks)
    quoted = [f'"{name}"' for name in LIBRARIES]
    libraries = "\n".join(f"    {', '.join(line)}," for line in (quoted[:7], quoted[7:]))
    fields = {
        "libraries": libraries,
        "names": ", ".join(dict.fromkeys((*names, *apart))),
        "tuple!r": repr(names),
        "apart!r": repr(apart),
        "folder": FOLDER,
        "module": MODULE,
    }
    source = _SOURCE
    for name, value in fields.items():
        source = source.replace(f"{{{name}}}", value)
    return source


def preloaded_names(source: str) -> tuple[list[str], list[str]] | None:
    """Return the modules of a preload, those with the NVIDIA wheels' cuDNN and those with the folder's; None for any other source."""
    names, apart = (re.search(rf"^{name} = \(([^()\n]{{0,2000}})\)", source, re.MULTILINE) for name in ("NAMES", "APART"))
    return None if names is None else (_WORD.findall(names[1]), _WORD.findall(apart[1] if apart else ""))


def preload_pth() -> str:
    """Return the content of the `.pth` file that imports the module when Python starts."""
    return f"import {MODULE}\n"


def preload_files(environment: Sequence[Environment]) -> dict[str, str]:
    """Return the names and contents of the preload's files; empty if the plan needs no preload."""
    preload, folder = frameworks_of(environment, "preload"), frameworks_of(environment, "folder")
    if not (preload or folder):
        return {}
    return {f"{MODULE}.py": preload_source(preload, folder), f"{MODULE}.pth": preload_pth()}


def frameworks_of(environment: Sequence[Environment], kind: str) -> tuple[str, ...]:
    """Return the frameworks of the `preload` or `folder` entries."""
    return tuple(name for entry in environment if entry.kind == kind for name in entry.value.split())


def folder_actions(environment: Sequence[Environment]) -> tuple[PipAction, ...]:
    """Return the library wheels that belong into the separate folder."""
    from cudnn_resolve.planning.model import PipAction  # detection imports this module and needs no plan

    wheels = (entry.wheel for entry in environment if entry.wheel is not None)
    return tuple(PipAction(name=wheel.name, version=wheel.version, index=wheel.index, file=wheel.file) for wheel in wheels)
