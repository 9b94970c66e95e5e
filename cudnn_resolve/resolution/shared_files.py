"""Packages of a set that install the same files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.resolution.fault import Fault, JudgedFramework


def shared_slots(book: Book, packages: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Packages by the slot of the files that several of them install."""
    slots: dict[str, list[str]] = {}
    for name in sorted(packages):
        slot = book.slot(name)
        if slot is not None and book.shares_files(slot):
            slots.setdefault(slot, []).append(name)
    return {slot: names for slot, names in slots.items() if len(names) > 1}


def shared_file_faults(book: Book, packages: Mapping[str, str], frameworks: Sequence[JudgedFramework]) -> Iterator[Fault]:
    """Faults of libraries for two majors of CUDA and of two unlike builds of a framework; a note on any others."""
    for names in shared_slots(book, packages).values():
        sharing = [framework for framework in frameworks if framework.package in names]
        is_unlike = len({(framework.version, framework.build and framework.build.cuda) for framework in sharing}) > 1
        each = " and ".join(f"{name} {packages[name]}" for name in names)
        component = book.component(names[-1])
        folder = component.lib_dir if component is not None else "a folder"
        effect = "the one installed last has overwritten the other, and removing either removes them from both"
        yield Fault(
            kind="files",
            severity="error" if is_unlike or component is not None else "info",
            text=f"{each} install the same files: {effect}",
            because=f"it shares {folder} with {', '.join(f'{name} {packages[name]}' for name in names[:-1])}",
            package=names[-1],
            frameworks=tuple(framework.package for framework in sharing),
        )
