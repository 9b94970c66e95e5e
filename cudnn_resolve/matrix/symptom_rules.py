"""Rules of the symptom tables: what one row alone cannot show to be wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from string import Formatter
from typing import Any

from cudnn_resolve.matrix.anchor import key_of
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.message import expand, fields_of
from cudnn_resolve.matrix.position import Fault

DERIVED = frozenset(
    {
        *("cpu-machine", "tf-cpu-on-windows", "other-framework-works", "gpu-newer", "gpu-older", "gpu-ampere", "gpu-named"),
        *(
            "build-drops-old",
            "build-lacks-new",
            "docker",
            "wsl",
            "docker-or-wsl",
            "composed",
            "windows",
            "no-driver",
            "driver-seen",
            "driver-idle",
            "hosted-notebook",
        ),
        *("numpy-too-new", "other-system", "no-cudnn-wheel", "tensorflow", "jax", "torch", "ctranslate2", "onnxruntime"),
        *("cuda-library", "not-in-wheels", "one-nccl"),
        *("old-cuda", "cuda-11", "bare-name", "library-older", "unix", "old-toolkit", "part-of-system"),
    }
)
"""Features that the program works out from fields and facts; the others come of rows with `feature`."""
FIELDS = frozenset(
    {
        *("python", "targets", "framework", "wheel", "cudnn_wheel", "declared", "major", "built", "next"),
        *("away", "on_path", "wheels_on_path", "nccl", "nccl_other"),
        *("name", "wanted", "nearest", "nearest_here", "outside", "renamed", "same", "here", "line", "index", "from_index"),
        *(
            "nvcc_wheel",
            "cudnn_wheels",
            "wheels_by_cuda",
            "together",
            "newest",
            "newest_of_any",
            "in_the_way",
            "archive",
            "keyring",
            "switched_off",
            "old_line",
            "driver_packages",
            "gpgkey",
            "the_cudnn",
            "the_cuda",
            "apt_cudnn",
            "cuda_named",
            "cudnn_named",
            "exact",
            "extension_told",
            "image",
        ),
    }
)
"""Fields of remedies that the program works out: see `diagnosis/remedy`, `place`, `release` and `system`."""
_NO_REMEDY = frozenset({"harmless"})


def samples_found(book: Book) -> Iterator[Fault]:
    """Every sample of a symptom is found by one of its patterns."""
    for line, row in _lines(book, "symptom"):
        for number, sample in enumerate(row.sample):
            text = " ".join(part.strip() for part in sample.splitlines())
            if not any(re.search(expand(pattern), text) or re.search(expand(pattern), sample) for pattern in row.pattern):
                yield line.fault(f"sample[{number}]", "is not found by the patterns")


def anchors_hold(book: Book) -> Iterator[Fault]:
    """Every sample holds an anchor of its symptom, and anchors are in lower case."""
    for line, row in _lines(book, "symptom"):
        for number, sample in enumerate(row.sample):
            if not any(anchor in sample.lower() for anchor in row.anchor):
                yield line.fault("anchor", f"none of them is in sample[{number}], so that its line is passed over")
        for anchor in row.anchor:
            if anchor != anchor.lower():
                yield line.fault("anchor", f"{anchor!r} is not in lower case")


def lines_chosen(book: Book) -> Iterator[Fault]:
    """Every anchor has a word in it; but what tells of the machine may be found where something else is, too."""
    for line, row in _lines(book, "symptom"):
        bare = [one for one in row.anchor if key_of(one) is None]
        if bare and row.role != "context":
            yield line.fault("anchor", f"{bare[0]!r} has no word of three letters")


def causes_known(book: Book) -> Iterator[Fault]:
    """Every cause that a row names has a row of its own, and every cause has a remedy."""
    known = book.causes()
    helped = {row.cause for row in book.helps()}
    for line, row in _lines(book, "symptom"):
        if row.cause is not None and row.cause not in known:
            yield line.fault("cause", f"{row.cause} is no [[cause]]")
        if row.cause is None and row.role not in ("context", "harmless"):
            yield line.fault("cause", f"is missing: the row {row.role} nothing")
    for line, row in _lines(book, "remedy"):
        if row.cause not in known:
            yield line.fault("cause", f"{row.cause} is no [[cause]]")
    for line, row in _lines(book, "cause"):
        for other in (*row.explains, *row.confused):
            if other not in known:
                yield line.fault("explains", f"{other} is no [[cause]]")
        if row.id not in helped and row.id not in _NO_REMEDY:
            yield line.fault("id", f"{row.id} has no [[remedy]]")


def sentences_filled(book: Book) -> Iterator[Fault]:
    """A summary names fields that its patterns have."""
    for line, row in _lines(book, "symptom"):
        fields = {name for pattern in row.pattern for name in (*fields_of(pattern), *re.compile(expand(pattern)).groupindex)}
        for _, name, _, _ in Formatter().parse(row.summary or ""):
            if name is not None and name not in fields:
                yield line.fault("summary", f"{{{name}}} is no field of the patterns")
        for comparison in row.when:
            words = [word for word in comparison.split() if word != "major"]
            if words[0] not in fields:
                yield line.fault("when", f"{words[0]} is no field of the patterns")


def features_known(book: Book) -> Iterator[Fault]:
    """What a row needs, or is not for, is something that another row or the program can tell."""
    told = {value for row in book.clues() if row.tells == "feature" for value in row.values.values()}
    known = {row.feature for _, row in _lines(book, "symptom") if row.feature} | told | DERIVED
    for array in ("symptom", "remedy"):
        for line, row in _lines(book, array):
            for feature in (*row.needs, *row.unless):
                if feature not in known:
                    yield line.fault("needs" if feature in row.needs else "unless", f"{feature} is a feature that nothing tells")


def remedies_filled(book: Book) -> Iterator[Fault]:
    """A remedy names fields that the program works out or that a pattern has: one with another field would never be told."""
    known = FIELDS | {row.tells for row in book.clues()}
    known |= {name for _, row in _lines(book, "symptom") for pattern in row.pattern for name in re.compile(expand(pattern)).groupindex}
    for line, row in _lines(book, "remedy"):
        for column in ("text", "command"):
            try:
                names = [name for _, name, _, _ in Formatter().parse(getattr(row, column) or "") if name is not None]
            except ValueError:
                continue  # braces of a shell
            for name in names:
                if name not in known:
                    yield line.fault(column, f"{{{name}}} is a field that nothing tells")


def versions_of_something(book: Book) -> Iterator[Fault]:
    """Versions are those of a framework that the row names."""
    for line, row in _lines(book, "symptom"):
        if row.versions is not None and row.framework is None:
            yield line.fault("versions", "are of nothing: the row names no framework")


def ids_unique(book: Book) -> Iterator[Fault]:
    """No two files hold a symptom or a cause of one name."""
    for array in ("symptom", "cause"):
        seen: dict[str, str] = {}
        for line, row in _lines(book, array):
            if row.id in seen and seen[row.id] != line.file:
                yield line.fault("id", f"{row.id} is in {seen[row.id]} already")
            seen[row.id] = line.file


def _lines(book: Book, array: str) -> Iterator[tuple[Any, Any]]:
    for name in book.names():
        if name.startswith("symptom/"):
            for line in book.placed(name, array):
                yield line, line.row


RULES: tuple[Callable[[Book], Iterable[Fault]], ...] = (
    samples_found,
    anchors_hold,
    lines_chosen,
    causes_known,
    sentences_filled,
    features_known,
    remedies_filled,
    versions_of_something,
    ids_unique,
)
