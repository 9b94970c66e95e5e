"""What will fail on a machine before it fails: every check of its facts.

An error is said only of what cannot work by a rule of the matrix; what works although it is not as declared is a note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis import machine_cudnn, machine_driver, machine_kernel, machine_package, machine_pair, machine_wheel
from cudnn_resolve.diagnosis.machine import machine_of

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Finding
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book


def diagnose_facts(facts: Facts, book: Book) -> list[Finding]:
    """Every finding of the facts, unsorted."""
    machine = machine_of(facts, book)
    rooms = (machine_driver, machine_cudnn, machine_wheel, machine_package, machine_pair, machine_kernel)
    return [finding for room in rooms for check in room.CHECKS for finding in check(machine)]
