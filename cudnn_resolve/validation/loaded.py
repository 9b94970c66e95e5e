"""Libraries that a child held after importing its frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cudnn_resolve.validation.answers import ChildReport, CudnnAnswer, one_line
from cudnn_resolve.version import CudnnVersion


class LoadedLibraries(Struct, frozen=True, kw_only=True):
    """Libraries in a child's process, and what its frameworks reported about them."""

    cudnns: tuple[CudnnAnswer, ...]
    libraries: Mapping[str, str | None]
    """Path to version."""
    imported: Mapping[str, tuple[str, float]]
    """Module to its version and the duration of its import in seconds."""
    built: Mapping[str, Mapping[str, Any]]
    """Module to its own description of its build."""
    opened: Mapping[str, str]
    """Module to the way in which it opened cuDNN."""
    unopened: Mapping[str, str]
    """Module to the reason why it could not."""

    @property
    def cudnn_directories(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """For each loaded major of cuDNN: directory to the names of the files loaded from it."""
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        for path in self.libraries:
            directory, _, name = path.rpartition("/")
            if name.startswith("libcudnn"):
                major = name.partition(".so.")[2].partition(".")[0]
                directories = found.setdefault(major, {})
                directories[directory] = (*directories.get(directory, ()), name)
        return found

    @property
    def cudnn_names(self) -> list[str]:
        """Names of all loaded cuDNN files."""
        return [name for directories in self.cudnn_directories.values() for names in directories.values() for name in names]

    def homes(self, version: CudnnVersion) -> str:
        """Directories from which a cuDNN was loaded."""
        return " and ".join(self.cudnn_directories.get(str(version.major), {}))

    def cudnn_for(self, built: CudnnVersion | None) -> CudnnAnswer | None:
        """The libcudnn used by a framework built with `built`: the one of that major, else any."""
        same_major = [cudnn for cudnn in self.cudnns if built and cudnn.release and cudnn.release.major == built.major]
        return next(iter((*same_major, *self.cudnns)), None)


def loaded_libraries(report: ChildReport) -> LoadedLibraries:
    """Collect what a child reported about the libraries in its process."""
    # A child that ended before it could ask the libraries for their versions has reported their paths.
    libraries = report.last("libraries", dict[str, str | None]) or dict.fromkeys(report.last("mapped", list[str]) or ())
    return LoadedLibraries(
        cudnns=tuple({cudnn.path: cudnn for cudnn in report.values("cudnn", CudnnAnswer)}.values()),
        libraries={path: version for path, version in libraries.items() if path.startswith("/")},
        imported={name: (one_line(version, 60), seconds) for name, version, seconds in report.values("imported", tuple[str, str, float])},
        built=dict(report.values("built", tuple[str, dict[str, Any]])),
        opened={name: one_line(how) for name, how in report.values("opened", tuple[str, str])},
        unopened={name: one_line(why) for name, why in report.values("unopened", tuple[str, str])},
    )


def library_name(path: str) -> str:
    """Library name without prefix and suffix, `cublas` for `/usr/lib/libcublas.so.12`."""
    return path.rpartition("/")[2].removeprefix("lib").partition(".so")[0]
