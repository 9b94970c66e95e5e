"""Where the loader looks: what to take out of LD_LIBRARY_PATH, and which directory on disk holds a library that is not found."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.whole import faults_of
from cudnn_resolve.facts.model import Facts, Unknown, or_none
from cudnn_resolve.matrix.library import Library
from cudnn_resolve.version import CudaVersion

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Match
    from cudnn_resolve.matrix.book import Book

_GPU_WORDS = re.compile(r"cuda|cudnn|nvidia|tensorrt|nvjitlink|cublas|cusparse", re.IGNORECASE)
_DRIVERS_OWN = re.compile(r"/usr/lib/wsl/|/usr/local/nvidia/|/driver/")
"""Directories through which containers and WSL lend the driver."""
_IN_WHEEL_OF = {"cublaslt": "cublas", "cufftw": "cufft", "cusolvermg": "cusolver", "nvjitlink": "nvjitlink"}
_BEFORE = "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
_EVERY_WHEEL = (
    'import glob, site; print(":".join(d for s in [*site.getsitepackages(), site.getusersitepackages()] '
    'for d in sorted(glob.glob(s + "/nvidia/*/lib"))))'
)


def place_values(matches: Iterable[Match], facts: Facts | None, python: str, book: Book) -> dict[str, str]:
    """Fields for commands.

    `away` takes other copies off the loader's path, `on_path` puts the library's directory there, `wheels_on_path` those of all wheels.
    """
    every = f"export LD_LIBRARY_PATH=\"$({python} -c '{_EVERY_WHEEL}'){_BEFORE}\""
    places = dict.fromkeys(place for library in missing(matches) if (place := place_of(library, facts, book)))
    wheels = any("/site-packages/nvidia/" in one for one in places)
    exact = f"export LD_LIBRARY_PATH={':'.join(map(shlex.quote, places))}{_BEFORE}" if places and not wheels else None
    return {"away": _away(facts), "wheels_on_path": every, "on_path": exact or every}


def missing(matches: Iterable[Match]) -> Iterator[Library]:
    """The libraries that messages speak of."""
    for match in matches:
        library = match.fields.get("lib")
        if isinstance(library, Library):
            yield library


def place_of(library: Library, facts: Facts | None, book: Book) -> str | None:
    """A directory on disk that has a library of that very name, as far as the facts tell; None for parts that are missing from it."""
    if facts is None or library.windows:
        return None
    if library.family == "cudnn":
        same = [one for one in or_none(facts.cudnn) or () if library.major is not None and one.soname == library.major]
        return next((one.path for one in same if not faults_of(one, book)), None)
    if library.family != "cuda":
        return None
    component = wheel_component(library)
    for name in or_none(facts.packages.pip) or {}:
        row = book.component(name)
        site = _site(facts)
        if row is not None and row.library.lower() == component and site and _names(library, row.cuda_major, book):
            return f"{site}/{row.lib_dir}"
    return None  # of a toolkit nobody knows which libraries were installed


def wheel_component(library: Library) -> str:
    """The library after which the wheel is named that carries it: cublasLt comes with cublas."""
    name = library.component.lower()
    return _IN_WHEEL_OF.get(name, "npp" if name.startswith("npp") else name)


def _names(library: Library, cuda_major: int, book: Book) -> bool:
    soname = book.soname(library.component, CudaVersion(f"{cuda_major}.0"))
    return library.major in (None, cuda_major) if soname is None else library.version is None or soname == library.file


def _site(facts: Facts) -> str | None:
    prefix, version = facts.python.prefix, facts.python.version
    if not prefix or not version or prefix == "/usr":
        return None
    return f"{prefix}/lib/python{'.'.join(version.split('.')[:2])}/site-packages"


def _away(facts: Facts | None) -> str:
    """LD_LIBRARY_PATH without the directories of CUDA and cuDNN; what has nothing to do with them stays."""
    plain = "unset LD_LIBRARY_PATH"
    if facts is None or isinstance(facts.loader, Unknown):
        return plain
    copies = {one.path for one in or_none(facts.cudnn) or () if one.path}
    entries = [one for one in facts.loader.ld_library_path if one]
    kept = [one for one in entries if _DRIVERS_OWN.search(f"{one}/") or not (one in copies or _GPU_WORDS.search(one))]
    if not kept or len(kept) == len(entries):
        return plain
    return f"export LD_LIBRARY_PATH={':'.join(map(shlex.quote, kept))}"
