"""Wording for the driver that a program needs: that of its own CUDA for PTX, one of the same major for everything else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cudnn_resolve.diagnosis.log_stack import cuda_of_driver, driver_of, toolkit_named
from cudnn_resolve.diagnosis.model import Case, Match, of_symptom, values_of
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion, parsed

_FIRST_WITH_ERROR = CudaVersion("11.1")
"""CUDA whose driver first says that PTX was compiled with an unsupported toolchain."""
_ONLY_OPEN = ("12.0",)
_CAPABILITIES = (
    dict.fromkeys(("1e", "1f", "21"), "7.5")
    | dict.fromkeys(("22", "24", "25"), "8.6")
    | dict.fromkeys(("26", "27", "28"), "8.9")
    | dict.fromkeys(("2b", "2c", "2d"), _ONLY_OPEN[0])
)
"""Capability of a generation of GPUs by the first digits of their PCI IDs."""


def driver_wanted(case: Case, cause: str, matches: Sequence[Match], built: CudaVersion | None, named: str | None) -> str:
    """Wording for the oldest driver that the program's CUDA needs; empty if unknown, or if log or facts have one that is new enough."""
    required = of_symptom(case.matches, "context-image-requires")
    asked = next(values_of((*matches, *required), "wanted", CudaVersion), None) if cause == "driver_too_old" else None
    if cause == "ptx_too_new" and asked is None:
        is_told = any("unsupported toolchain" in match.text for match in matches)
        if built is None or (is_told and built < _FIRST_WITH_ERROR):
            return _driver_for_ptx(case, is_told=is_told)
    if (card := next((match for match in matches if "pci" in match.fields), None)) is not None:
        return _driver_for_card(case, card)
    cuda = asked or built or (CudaVersion(named) if named else None)
    if cuda is None:
        return _drivers_wanted(case, matches)
    # PTX, and images that ask for a CUDA, need the driver of that release; other programs one of the same major.
    of_release = case.book.toolkit_driver(cuda) if "." in str(cuda) else None
    oldest = of_release if cause == "ptx_too_new" or asked else case.book.floor(cuda.major) or case.book.toolkit_driver(cuda)
    current = driver_of(case) or _installed_driver(case)
    if oldest is None or (current is not None and current >= oldest):
        return ""
    # The releases of a branch have other numbers on Windows.
    is_windows = bool(case.features & {"windows", "wsl"})
    return f" to {str(oldest).partition('.')[0] if is_windows else oldest} or newer"


def _driver_for_card(case: Case, match: Match) -> str:
    """Wording for the driver of the first CUDA that knows a card which a driver refuses."""
    capability = _CAPABILITIES.get(match.fields["pci"])
    row = case.book.architecture(Capability.parse(capability)) if capability is not None else None
    oldest = case.book.toolkit_driver(row.cuda_first) if row is not None else None
    if oldest is None or match.fields["refused"] >= oldest:
        return ""
    return f" to {oldest} or newer{', with its open kernel modules' if capability in _ONLY_OPEN else ''}"


def _installed_driver(case: Case) -> DriverVersion | None:
    driver = or_none(case.facts.driver) if case.facts is not None else None
    return parsed(DriverVersion, driver.version) if driver is not None else None


def _driver_for_ptx(case: Case, *, is_told: bool) -> str:
    """Wording for the driver of the CUDA that a toolkit's directory or name shows; minor-version compatibility does not include PTX."""
    named = toolkit_named(case)
    if named is not None and is_told and named < _FIRST_WITH_ERROR:
        named = None
    oldest = case.book.toolkit_driver(named) if named is not None else None
    if oldest is None or case.features & {"windows", "wsl"}:
        return f" to one made for {f'CUDA {named}' if named else 'the CUDA of the program'} or newer, not only for the same major"
    return f" to {oldest} or newer, for the PTX of CUDA {named}"


def _drivers_wanted(case: Case, matches: Iterable[Match]) -> str:
    """Wording for the oldest driver of each CUDA, for a program whose CUDA is unknown; empty if it may use none of them."""
    is_recent = not case.features & {"windows", "wsl", "before-2019", "before-2018"} and driver_of(case) is None
    if not is_recent or not any("cuda" in match.text.casefold() for match in matches):
        return ""
    newest = cuda_of_driver(case)
    majors = [major for major in (11, 12, 13) if newest is None or major > newest.major]
    floors = [f"{floor} for CUDA {major}" for major in majors if (floor := case.book.floor(major)) is not None]
    return f" to at least {', '.join(floors)}" if floors else ""
