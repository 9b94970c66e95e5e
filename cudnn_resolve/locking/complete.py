"""The files that a lock will hold, and what is yet to be known of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.locking.file import hashes_of
from cudnn_resolve.locking.merge import Answer
from cudnn_resolve.locking.model import files_of, name_of
from cudnn_resolve.requirement.source import Offer
from cudnn_resolve.resolution.tag import Target, fit

if TYPE_CHECKING:
    from cudnn_resolve.locking.model import Lock
    from cudnn_resolve.requirement.source import File
    from cudnn_resolve.resolution.model import PipPin, Resolution


def incomplete(answers: Iterable[Answer], old: Lock | None) -> tuple[dict[str, File], list[File]]:
    """Files whose size the old lock knows, by their addresses; and files that lack a size or a hash still."""
    known: dict[str, File] = {}
    open_: dict[str, File] = {}
    sizes = _sizes(old) if old is not None else {}
    for file in (file for answer in answers for pin in answer.resolution.pip for file in _files(pin, answer.resolution)):
        hashes = hashes_of(file)
        size = next((sizes[file.filename, one] for one in hashes.items() if (file.filename, one) in sizes), None)
        if file.size is None and size is not None:
            known[file.url] = replace(file, size=size)
        elif file.size is None or not hashes:
            open_[file.url] = file
    return known, list(open_.values())


def completed(answers: Sequence[Answer], known: Mapping[str, File]) -> list[Answer]:
    """The answers with all that is known of their files, by their addresses."""
    return [replace(one, resolution=replace(one.resolution, pip=tuple(_pin(pin, known) for pin in one.resolution.pip))) for one in answers]


def _pin(pin: PipPin, known: Mapping[str, File]) -> PipPin:
    if pin.offer is None or not any(file.url in known for file in pin.offer.files):
        return pin
    offer = Offer(version=pin.offer.version, files=tuple(known.get(file.url, file) for file in pin.offer.files))
    return replace(pin, offer=offer, file=known.get(pin.file.url, pin.file) if pin.file is not None else None)


def _files(pin: PipPin, resolution: Resolution) -> Iterator[File]:
    """The files of a pin that a lock would hold for its platform."""
    machine = resolution.machine
    target = Target(machine.python, machine.free_threaded, machine.arch, None)
    for file in pin.offer.files if pin.offer is not None else ():
        if file is pin.file or (file.is_wheel and fit((file.tag,), target).glibc is not None):
            yield file


def _sizes(lock: Lock) -> dict[tuple[str, tuple[str, str]], int]:
    """Name and digest to size, of the files of a lock."""
    files = (file for package in lock.packages for file in files_of(package))
    return {(name_of(file), digest): file.size for file in files if file.size is not None for digest in file.hashes.items()}
