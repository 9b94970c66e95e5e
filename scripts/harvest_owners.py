#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.10"
# dependencies = ["cudnn-resolve", "packaging>=23.1", "pip", "requests>=2.31", "tomli>=2; python_version < '3.11'"]
# ///
"""Find packages that install the same files with different content, and those missing from matrices/package/slot.toml.

Compares the wheels of the newest releases for x86_64, with --oldest also those of the oldest: the names and checksums of their files, read
by range requests, so that no wheel is downloaded whole. Licences and other files without code do not count.

Exit: 0 every collision is known; 1 one is not; 2 something could not be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations

from harvest_cache import DEFAULT_CACHE
from harvest_command import INDEX_HELP
from harvest_index import Index, IndexFailure, configured_index, remote_archive
from harvest_progress import progress
from harvest_table import Span, releases

from cudnn_resolve.host.tables import open_book

_RAPIDS = (
    *("rmm", "librmm", "cudf", "libcudf", "pylibcudf", "dask-cudf", "cuml", "libcuml", "raft-dask", "pylibraft", "libraft", "cuvs"),
    *("libcuvs", "cugraph", "libcugraph", "pylibcugraph", "nx-cugraph", "kvikio", "libkvikio", "ucxx", "libucxx", "cucim", "cuspatial"),
)
FAMILIES: tuple[tuple[str, ...], ...] = (
    ("opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless"),
    ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12"),
    ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "tf-nightly-cpu"),
    ("tensorflow-text", "tensorflow-text-nightly"),
    ("keras", "keras-nightly", "tf-keras", "tf-keras-nightly"),
    ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-training", "ort-nightly", "ort-nightly-gpu"),
    ("onnx", "onnx-weekly"),
    ("cuda-python", "cuda-bindings", "cuda-core", "cuda-pathfinder"),
    ("cutensor-cu11", "cutensor-cu12", "cutensor-cu13"),
    ("cutensornet-cu11", "cutensornet-cu12", "cutensornet-cu13"),
    ("custatevec-cu11", "custatevec-cu12", "custatevec-cu13"),
    ("tensorrt-libs", "tensorrt-cu12-libs", "tensorrt-cu13-libs"),
    ("tensorrt-bindings", "tensorrt-cu12-bindings", "tensorrt-cu13-bindings"),
    ("xgboost", "xgboost-cpu"),
    ("triton", "triton-nightly", "pytorch-triton"),
    ("pynvml", "nvidia-ml-py", "nvidia-ml-py3"),
    ("pillow", "pillow-simd"),
    ("transformer-engine-cu12", "transformer-engine-cu13"),
    ("nvidia-dali-cuda110", "nvidia-dali-cuda120", "nvidia-dali-cuda130"),
    ("nvidia-nvimgcodec-cu11", "nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13"),
    ("nvidia-libnvcomp-cu11", "nvidia-libnvcomp-cu12", "nvidia-libnvcomp-cu13"),
    ("nvidia-nvcomp-cu11", "nvidia-nvcomp-cu12", "nvidia-nvcomp-cu13"),
    ("nvidia-cudss-cu12", "nvidia-cudss-cu13"),
    ("nvidia-cusparselt-cu12", "nvidia-cusparselt-cu13"),
    ("nvidia-nvjpeg2k-cu11", "nvidia-nvjpeg2k-cu12", "nvidia-nvjpeg2k-cu13"),
    ("nvidia-nvtiff-cu11", "nvidia-nvtiff-cu12", "nvidia-nvtiff-cu13"),
    *(tuple(f"{name}-cu{major}" for major in (11, 12, 13)) for name in _RAPIDS),
)
"""Packages that may overwrite one another."""
_WITHOUT_CODE = ("license", "licence", "copying", "notice", "readme", "py.typed", "authors")


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code of the program."""
    parser = argparse.ArgumentParser(prog="harvest_owners", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--index-url", metavar="URL", help=INDEX_HELP)
    parser.add_argument("--oldest", action="store_true", help="also compare the oldest release of each package")
    options = parser.parse_args(argv)
    index = Index(options.index_url or configured_index(), DEFAULT_CACHE)
    book = open_book(())
    failures = unknown = 0
    for family in progress(FAMILIES, "families", len(FAMILIES)):
        found: dict[str, dict[str, int]] = {}
        for name in family:
            try:
                found |= _files(index, name, oldest=options.oldest)
            except IndexFailure as error:  # noqa: PERF203 - the others are still read
                print(f"harvest: {name}: {error}", file=sys.stderr)
                failures += "404" not in str(error)
        for one, two in combinations(found, 2):
            first, second = one.partition(" ")[0], two.partition(" ")[0]
            shared = [path for path in found[one] if path in found[two]]
            differing = [path for path in shared if found[one][path] != found[two][path]]
            if first == second or not differing:
                continue
            slot = book.slot(first, one.partition(" ")[2])
            known = slot is not None and slot == book.slot(second, two.partition(" ")[2])
            unknown += not known
            print(f"{'known' if known else 'NEW'}: {one} and {two}: {len(differing)} of {len(shared)} files differ, such as {differing[0]}")
    return 2 if failures else int(unknown > 0)


def _files(index: Index, name: str, *, oldest: bool) -> dict[str, dict[str, int]]:
    """Return `NAME VERSION` to the code files of its wheel with their checksums."""
    found = releases(name, index.files(name), Span())
    served = [(release, wheel) for release in found if (wheel := release.best_wheel("x86_64")) is not None]
    out = {}
    for release, wheel in dict.fromkeys((served[0], served[-1]) if oldest and served else served[-1:]):
        with remote_archive(index, wheel.file) as archive:
            out[f"{name} {release.version}"] = dict(_members(archive.infolist()))
    return out


def _members(infos: Sequence[object]) -> Iterator[tuple[str, int]]:
    for info in infos:
        path, checksum = str(getattr(info, "filename", "")), int(getattr(info, "CRC", 0))
        file = path.rpartition("/")[2].lower()
        if file and ".dist-info/" not in path and not file.startswith(_WITHOUT_CODE) and file != "__init__.py":
            yield path, checksum


if __name__ == "__main__":
    sys.exit(main())
