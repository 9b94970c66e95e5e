"""Stages faults with a real cuDNN and without touching it: directories of hard links, and environments that are mostly links."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

PARTS = (
    *("torch/lib", "onnxruntime/capi"),
    *("jaxlib", "jax_plugins/xla_cuda12", "jax_plugins/xla_cuda13", "jax_cuda12_plugin", "jax_cuda13_plugin"),
)
"""Folders whose libraries lead to NVIDIA's by their own place: they must be folders of the copy, too."""


def view(source: Path, target: Path, *, without: Iterable[str] = (), only: Iterable[str] = ()) -> Path:
    """A directory with the libraries of another one; parts are named as in `libcudnn_cnn.so.9`: `cnn`."""
    target.mkdir(parents=True, exist_ok=True)
    left, kept = {f"libcudnn_{part}" for part in without}, {f"libcudnn_{part}" for part in only}
    for file in sorted(source.iterdir()):
        stem = file.name.partition(".")[0]
        if stem not in left and (not kept or stem in kept):
            _same(file, target / file.name)
    return target


def environment(
    site: Path, target: Path, *, cudnn: Path | None = None, without: Iterable[str] = (), instead: Mapping[str, Path] | None = None
) -> Path:
    """A folder for PYTHONPATH with everything of `site`; its cuDNN lacks the parts `without`, and has files from elsewhere `instead`.

    `cudnn`: where the libraries of cuDNN are below `site`. A library finds others from its own path, not from where a link leads, but a
    linked folder on the way leads there: folders on the way are made anew, files in them are links.
    """
    home = cudnn or Path("nvidia/cudnn/lib")
    for name in (str(home), *PARTS):
        if (site / name).is_dir():
            _open(site, target, Path(name))
    _fill(site, target)
    folder = target / home
    for part in without:
        for file in list(folder.glob(f"libcudnn_{part}.so*")):
            file.unlink()
    for file in list(folder.iterdir()):
        real = file.resolve()
        file.unlink()
        _same(real, file)
    for name, source in (instead or {}).items():
        (folder / name).unlink(missing_ok=True)
        _same(source, folder / name)
    return target


def _same(source: Path, target: Path) -> None:
    """The same file under another name: a process does not see where it comes from, as it does with a link that leads to another."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copy2(source, target)


def _open(site: Path, target: Path, folder: Path) -> None:
    """Makes a folder and those above it real, with links to what is in them."""
    for part in reversed([folder, *folder.parents]):
        (target / part).mkdir(parents=True, exist_ok=True)
    _fill(site / folder, target / folder)
    for part in list(folder.parents)[:-1]:
        _fill(site / part, target / part)


def _fill(source: Path, target: Path) -> None:
    """Links to everything that is not there yet."""
    for one in source.iterdir():
        if one.name != "__pycache__" and not os.path.lexists(target / one.name):
            (target / one.name).symlink_to(one.resolve())


def cudnn_folder(site: Path) -> Path | None:
    """Where the libraries of cuDNN are below site-packages."""
    found = sorted(site.glob("nvidia/*/lib/libcudnn.so.*"))
    return found[0].parent.relative_to(site) if found else None
