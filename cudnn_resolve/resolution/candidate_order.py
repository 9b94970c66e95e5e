"""The order in which the candidates of each kind are tried: sort keys with named criteria, most important first; smaller is better."""

from __future__ import annotations

from typing import NamedTuple


class BuildOrder(NamedTuple):
    """Sort key of a framework's build, most important criterion first; smaller is better."""

    is_not_installed: bool
    is_other_variant: bool
    """Another variant of its version is installed."""
    unmet: int
    """Requirements of an installed build that the environment does not meet."""
    is_not_locked: bool
    is_vague: bool
    """Its wheel was not read, and that of another build of its version was."""
    version: int
    """Rank of its version, newest first."""
    is_elsewhere: bool
    """Not on the configured index."""
    is_beyond_driver: bool
    """Elsewhere, and for a newer CUDA than the driver supports."""
    uses_system: bool
    """Uses libraries of the system, and another build of its version installs its own (`cuda13-local` next to `cuda12`)."""
    cuda: tuple[int, int]
    """Newest first."""
    place: int


class NearestOrder(NamedTuple):
    """Sort key of a build by its distance from a wanted version; smaller is better."""

    releases_between: int
    newer_first: int
    is_elsewhere: bool
    cuda: tuple[int, int]


class LibraryOrder(NamedTuple):
    """Sort key of a CUDA library wheel's release, most important criterion first; smaller is better."""

    is_not_installed: bool
    is_not_locked: bool
    pins_left: int
    from_chosen_cuda: int
    place: int


class CudaOrder(NamedTuple):
    """Sort key of a CUDA line, most important criterion first; smaller is better."""

    channel: int
    is_not_installed: bool
    is_beyond_driver: bool
    line: tuple[int, int]


class CudnnOrder(NamedTuple):
    """Sort key of a cuDNN, most important criterion first; smaller is better."""

    channel: int
    is_not_in_folder: bool
    """Not the one in the folder for a second cuDNN."""
    version: tuple[int, ...]
    """Newest first."""
    cuda: int
    """Newest first."""
