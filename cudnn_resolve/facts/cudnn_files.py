"""File names, headers and packages of cuDNN: the files of a release, and the release of files.

The parts, and the names by which they are opened, were read from the libraries of 8.5, 8.9, 9.1, 9.20 and 9.28 (their string tables and
LD_DEBUG=libs), 2026-11-21.
"""

from __future__ import annotations

import re

from msgspec import Struct

from cudnn_resolve.version import CudnnVersion

FOLDER = "_cudnn_resolve_libraries"
"""Folder in site-packages for a second cuDNN, since one wheel owns `nvidia/cudnn`."""
_NAME = re.compile(r"libcudnn(?:_([a-z0-9_]{1,60}))?(-[0-9a-f]{8})?\.so(?:\.(\d{1,3}(?:\.\d{1,4}){0,3}))?")
_APT = r"libcudnn(\d{1,2})(?:-jit)?(?:-cuda-(\d{1,2}))?"
_APT_VERSION = r"(?:\d+:)?(\d{1,3}(?:\.\d{1,4}){2,3})-[^+]*(?:\+cuda(\d{1,2}(?:\.\d{1,2})?))?.*"
_WHEEL = r"nvidia-cudnn(?:-jit)?(?:-cu(\d{2})(\d)?)?"
_CONDA = r"((?:lib)?cudnn(?:-jit)?)-(\d{1,3}(?:\.\d{1,4}){1,3})-([^-]+)\.json"
_CONDA_CUDA = r"cuda(\d{1,2})(?:\.?(\d))?"
_DEFINE = r"(?m)^#define\s+CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s+(\d{1,4})\b"

NEWEST_KNOWN = 9
"""Newest major version whose parts are known."""
_PARTS_8 = ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train")
_PARTS_9 = ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled")
_ENGINES = "engines_tensor_ir"


class LibraryName(Struct, frozen=True, kw_only=True):
    """Parsed file name of a library of cuDNN."""

    file: str
    part: str
    """`ops` for `libcudnn_ops.so.9`; "" for libcudnn itself."""
    numbers: str | None
    """`9.1.0` for `libcudnn.so.9.1.0`; None for `libcudnn.so`."""
    mangled: bool
    """Whether a wheel repair tool added a hash to the name, `libcudnn-74a4c495.so.9.1.0`."""

    @property
    def soname(self) -> int | None:
        """9 for `libcudnn.so.9.1.0`; None if the name has no number."""
        return int(self.numbers.partition(".")[0]) if self.numbers else None

    @property
    def version(self) -> CudnnVersion | None:
        """Release in the name, if it has three numbers or more; else None."""
        return CudnnVersion(self.numbers) if self.numbers and self.numbers.count(".") >= 2 else None


class Package(Struct, frozen=True, kw_only=True):
    """A package that contains cuDNN."""

    name: str
    version: CudnnVersion
    soname: int
    cuda: str | None
    """CUDA that it is built for, `12` or `12.2`; None = not stated."""

    @property
    def jit(self) -> bool:
        """Whether it is the variant without precompiled engines."""
        return "-jit" in self.name


class Opening(Struct, frozen=True, kw_only=True):
    """A library that a part of cuDNN opens by name at run time."""

    by: str
    """Part that opens it; "" for libcudnn itself."""
    part: str
    """Part that is opened; "" if it is not a part of cuDNN."""
    names: tuple[str, ...]
    """Names that are tried, in order."""
    expected: bool = True
    """False if the release does not contain it, so that the copy of another release may be opened."""


def parse_name(file: str) -> LibraryName | None:
    """Parse a file name such as `libcudnn_ops_infer.so.8.9.7`; None if it is not a library of cuDNN."""
    found = _NAME.fullmatch(file)
    if found is None:
        return None
    return LibraryName(file=file, part=found[1] or "", numbers=found[3], mangled=found[2] is not None)


def parts_of(version: CudnnVersion, *, jit: bool = False) -> tuple[str, ...]:
    """Sub-libraries of a release besides libcudnn itself; empty for an unknown major.

    A later minor than any known has those of the newest. Source: member lists of the wheels and redistributable archives; 9.21 added
    the tensor engines, 9.22 the extensions.
    """
    if version.major == 8:
        return _PARTS_8
    if version.major != 9:
        return ()
    later = [part for part, first in ((_ENGINES, 21), ("ext", 22)) if version.minor >= first]
    return tuple(part for part in (*_PARTS_9, *later) if not (jit and part == "engines_precompiled"))


def openings_of(version: CudnnVersion) -> tuple[Opening, ...]:
    """Libraries that the parts of a release open by name, in order of use.

    cuDNN 9 tries the full version first (`libcudnn_ops.so.9.1.0`, `.9.1`, `.9`), cuDNN 8 only `.so.8`.
    """
    parts = own = parts_of(version)
    if version.major < 9:
        return tuple(Opening(by="", part=part, names=(f"libcudnn_{part}.so.{version.major}",)) for part in parts)
    if version.major == 9 and version.minor in (19, 20):
        parts = (*parts, _ENGINES)  # these two look for it without containing it
    openings = []
    for part in parts:
        by = "graph" if part == "heuristic" or part.startswith("engines") else ""
        openings.append(Opening(by=by, part=part, names=_names(part, version), expected=part in own))
    return tuple(openings)


def companions_of(version: CudnnVersion, cuda: int | None) -> tuple[Opening, ...]:
    """CUDA libraries that the parts of a release open by name on use; empty if the CUDA major is unknown."""
    if cuda is None or version.major < 8:
        return ()
    nvrtc = f"libnvrtc.so.{'11.2' if cuda == 11 else cuda}"
    blas = f"libcublasLt.so.{cuda}"
    if version.major == 8:
        names = (f"libcublas.so.{cuda}", blas, nvrtc) if cuda >= 11 else ()
        return tuple(Opening(by="ops_infer", part="", names=(name,)) for name in names)
    return (Opening(by="graph", part="", names=(nvrtc,)), Opening(by="adv", part="", names=(blas,)))


def parse_header(text: str) -> CudnnVersion | None:
    """Release that cudnn_version.h (before cuDNN 8: cudnn.h) defines, `#define CUDNN_MAJOR 8` and so on; None if it defines none."""
    numbers = dict(re.findall(_DEFINE, text))
    if not {"MAJOR", "MINOR", "PATCHLEVEL"} <= numbers.keys():
        return None
    return CudnnVersion(f"{int(numbers['MAJOR'])}.{int(numbers['MINOR'])}.{int(numbers['PATCHLEVEL'])}")


def apt_package(name: str, version: str) -> Package | None:
    """Runtime package, such as `libcudnn8` `8.9.7.29-1+cuda12.2` or `libcudnn9-cuda-12` `9.8.0.87-1`; None for another package."""
    named, numbered = re.fullmatch(_APT, name), re.fullmatch(_APT_VERSION, version)
    if named is None or numbered is None:
        return None
    return Package(name=name, version=CudnnVersion(numbered[1]), soname=int(named[1]), cuda=named[2] or numbered[2])


def wheel_package(name: str, version: str) -> Package | None:
    """Wheel, such as `nvidia-cudnn-cu12` (early ones: `-cu117`) `9.1.0.70`; None for another distribution."""
    named = re.fullmatch(_WHEEL, name)
    release = _release(version)
    if named is None or release is None:
        return None
    cuda = f"{named[1]}.{named[2]}" if named[2] else named[1]
    return Package(name=name, version=release, soname=release.major, cuda=cuda)


def conda_package(file: str) -> Package | None:
    """Package of a file in conda-meta, `cudnn-8.9.7.29-hbc23b4c_3.json` or `libcudnn-9.3.0.75-0.json`; None for another file."""
    found = re.fullmatch(_CONDA, file)
    release = _release(found[2]) if found else None
    if found is None or release is None:
        return None
    cuda = re.search(_CONDA_CUDA, found[3])
    return Package(name=found[1], version=release, soname=release.major, cuda=cuda[1] if cuda else None)


def _names(part: str, version: CudnnVersion) -> tuple[str, ...]:
    numbers = version.parts[:3]
    stem = f"libcudnn_{part}.so"
    longer = (".".join(map(str, numbers[:count])) for count in range(len(numbers), 0, -1))
    return (*(f"{stem}.{number}" for number in longer), stem)


def _release(text: str) -> CudnnVersion | None:
    """Numbers of a package version, without what a packager added; None if it has none."""
    found = re.match(r"\d{1,3}(?:\.\d{1,4}){1,3}", text)
    return CudnnVersion(found[0]) if found else None
