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
_DRIVERS_OWN = re.compile(
    r"/usr/lib/wsl/|/usr/local/nvidia/|/driver/|^/usr/lib\d{0,2}(?:/[\w-]{1,40}-linux-gnu)?[/-]nvidia[\w.-]{0,40}/(?:current/)?$"
)
"""Directories through which the system, containers, notebooks and WSL lend the driver."""
_IN_WHEEL_OF = {"cublaslt": "cublas", "cufftw": "cufft", "cusolvermg": "cusolver", "nvjitlink": "nvjitlink"}
_BEFORE = "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
_EVERY_WHEEL = (
    'import glob, site; print(":".join(d for s in [*site.getsitepackages(), site.getusersitepackages()] '
    'for d in sorted(glob.glob(s + "/nvidia/*/lib"))))'
)


def place_values(matches: Iterable[Match], facts: Facts | None, python: str, book: Book) -> dict[str, str]:
    """Fields for commands.

    `away` takes other copies off the loader's path where there are any, `on_path` puts the library's directory there, `wheels_on_path`
    those of all wheels.
    """
    every = f"export LD_LIBRARY_PATH=\"$({python} -c '{_EVERY_WHEEL}'){_BEFORE}\""
    places = dict.fromkeys(place for library in missing(matches) if (place := place_of(library, facts, book)))
    wheels = any("/site-packages/nvidia/" in one for one in places)
    exact = f"export LD_LIBRARY_PATH={':'.join(map(shlex.quote, places))}{_BEFORE}" if places and not wheels else None
    values = {"wheels_on_path": every, "on_path": exact or every}
    away = _away(facts)
    return values if away is None else values | {"away": away}


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
    gone = {one.what.removeprefix("packages.pip.") for one in facts.problems if one.why.startswith("removed: ")}
    for name in or_none(facts.packages.pip) or {}:
        row = book.component(name)
        site = _site(facts)
        if name in gone:
            continue
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


def _away(facts: Facts | None) -> str | None:
    """LD_LIBRARY_PATH without the directories of CUDA and cuDNN, of which what has nothing to do with them and the driver stay.

    None where nothing on it is of CUDA, or is known to be the driver's own.
    """
    plain = "unset LD_LIBRARY_PATH"
    if facts is None or isinstance(facts.loader, Unknown):
        return plain
    copies = {one.path for one in or_none(facts.cudnn) or () if one.path}
    entries = [one for one in facts.loader.ld_library_path if one]
    kept = [one for one in entries if _lends_driver(one, facts) or not (one in copies or _GPU_WORDS.search(one))]
    if len(kept) == len(entries):
        return None
    return f"export LD_LIBRARY_PATH={':'.join(map(shlex.quote, kept))}" if kept else plain


def _lends_driver(directory: str, facts: Facts) -> bool:
    """True for a directory of the driver's own libraries, which no program may lose; a compat directory has those of another driver."""
    if "compat" in directory:
        return False
    loader = facts.loader
    known = () if isinstance(loader, Unknown) else (one.rpartition("/") for one in loader.ldconfig)
    lends = any(file.startswith("libcuda.so") and place == directory.rstrip("/") for place, _, file in known)
    return _DRIVERS_OWN.search(f"{directory.rstrip('/')}/") is not None or (lends and _GPU_WORDS.search(directory) is not None)
