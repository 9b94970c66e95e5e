"""A framework started in a simulated process: the libcudnn that comes, its parts, and what would be missing."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from cudnn_resolve.facts.cudnn_files import openings_of, parse_name
from cudnn_resolve.facts.loader_rules import Loaded, Missing, Process
from cudnn_resolve.probe.framework_shelf import CTYPES, PYTHON, Open, Reading, Seek
from cudnn_resolve.probe.loader import PLACEHOLDER, Loading
from cudnn_resolve.version import CudnnVersion


class Outcome(Struct, frozen=True, kw_only=True):
    """What starting a framework led to."""

    process: Process
    library: Loaded | None
    """libcudnn itself; None where it was not found or not reached."""
    fault: Missing | None = None
    """What stopped it."""

    @property
    def lacks_driver(self) -> bool:
        """True where it needs a library of the driver that this machine has not."""
        return any(one.path.startswith(PLACEHOLDER) for one in self.process.objects)


class Parts(Struct, frozen=True, kw_only=True):
    """The sub-libraries that a libcudnn would open, by part."""

    found: Mapping[str, Loaded]
    missing: tuple[str, ...]
    """Names of those that are not found, `libcudnn_ops.so.9`."""
    faults: tuple[Missing, ...]
    """Libraries that those which are found need in turn, and that are not."""


def start(loading: Loading, reading: Reading, *, library_path: bool = True) -> Outcome:
    """The framework started as its files say, on a machine whose driver is there."""
    process = loading.process(library_path=library_path, driver=True)
    for step in reading.steps:
        fault = _seek(process, step) if isinstance(step, Seek) else _open(loading, process, step)
        if fault is not None:
            return Outcome(process=process, library=None, fault=fault)
    library = next((one for one in process.objects if _is_libcudnn(one.name)), None)
    return Outcome(process=process, library=library)


def open_parts(process: Process, library: Loaded, release: CudnnVersion) -> Parts:
    """The parts that libcudnn of a release opens by name, each from where the loader finds it then."""
    found: dict[str, Loaded] = {"": library}
    missing, faults = [], []
    for opening in openings_of(release):
        asker = found.get(opening.by)
        if asker is None:
            continue
        answers = [process.open(name, asker) for name in opening.names]
        first = next((one for one in answers if isinstance(one, Loaded)), None)
        if first is not None:
            found[opening.part] = first
        elif opening.expected:
            fault = next((one for one in answers if isinstance(one, Missing) and one.name not in opening.names), None)
            missing.append(f"libcudnn_{opening.part}.so.{release.major}")
            faults += [fault] if fault else []
    del found[""]
    return Parts(found=found, missing=tuple(missing), faults=tuple(faults))


def _is_libcudnn(file: str) -> bool:
    name = parse_name(file)
    return name is not None and name.part == ""


def _open(loading: Loading, process: Process, step: Open) -> Missing | None:
    """Opens a library; the fault where the framework cannot go on without it."""
    opened = process.open(step.path, _caller(loading, process, step.by))
    return opened if step.required and isinstance(opened, Missing) else None


def _seek(process: Process, step: Seek) -> Missing | None:
    """Opens the first name that is found; the fault of the first name where none is."""
    caller = next((one for begin in step.by for one in process.objects if one.name.startswith(begin)), process.program)
    answers = []
    for name in step.names:
        answers.append(process.open(name, caller))
        if isinstance(answers[-1], Loaded):
            return None
    return next((one for one in answers if isinstance(one, Missing)), None)


def _caller(loading: Loading, process: Process, by: str) -> Loaded:
    """The object whose code calls the loader."""
    if by == CTYPES:
        return loading.opener(process)
    begin = "libpython" if by == PYTHON else by
    return next((one for one in process.objects if one.name.startswith(begin)), process.program)
