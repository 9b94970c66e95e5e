"""Two copies of one library in a log: parts of cuDNN that are loaded from two directories, an older CUDA library before the wheel's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.diagnosis.weigh import Suspect

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.context import Case
    from cudnn_resolve.diagnosis.model import Match

_LOADED = "context-cudnn-loaded"
_WHEEL = "context-cuda-wheel"
_OLDER = "jax-cuda-older-than-built"
_SHORT = ("cuFFT", "cuRAND", "cuSOLVER", "cuSPARSE")
"""These write 12.1.3 as 12103; cuBLAS writes it as 120103, and CUDA itself 12.2 as 12020."""
_UNDATED = "CUPTI"
"""It has the number of its interface, which is no release."""


def part_loaded(found: dict[str, Suspect], case: Case) -> dict[str, Suspect]:
    """The suspects with the loader's own list understood: parts of one cuDNN that come from two directories."""
    places: dict[int | None, dict[str, dict[str, Match]]] = {}
    for match in case.matches:
        if match.symptom.id == _LOADED:
            library = match.fields["loadedlib"]
            places.setdefault(library.major, {}).setdefault(match.fields["loaded"], {})[library.stem] = match
    for major, directories in places.items():
        stems = [stem for parts in directories.values() for stem in parts]
        # A part that is loaded from both is a second whole copy, which another package may bring for itself.
        if len(directories) > 1 and len(stems) == len(set(stems)):
            fewest = min(directories, key=lambda one: len(directories[one]))
            part = next(iter(directories[fewest].values()))
            name = f"cuDNN {major}" if major is not None else "cuDNN"
            file = part.fields["loadedlib"].file
            text = f"{file} comes from {fewest}, the other parts of {name} from elsewhere: they are of two installations"
            matches = tuple(match for parts in directories.values() for match in parts.values())
            before = found["cudnn_sublibrary_mix"].matches if "cudnn_sublibrary_mix" in found else ()
            found["cudnn_sublibrary_mix"] = Suspect(
                cause="cudnn_sublibrary_mix", weight=86, matches=tuple(dict.fromkeys((part, *matches, *before))), summary=text
            )
    return found


def part_outdated(found: dict[str, Suspect], case: Case) -> dict[str, Suspect]:
    """The suspects with a library that JAX calls too old although its wheel is new enough: an older copy is found first."""
    old = found.get("cuda_runtime_missing")
    match = next((one for one in old.matches if one.symptom.id == _OLDER), None) if old else None
    if old is None or match is None:
        return found
    component, built = match.fields["component"], match.fields["built"]
    loaded, wanted = (_told(component, match.fields[name]) for name in ("found", "built"))
    if old.matches[0] is match:
        said = f"{component} {loaded} is loaded, and JAX was built against {wanted}, which is newer"
        found["cuda_runtime_missing"] = replace(old, summary=said)
    for one in case.matches:
        if component != _UNDATED and one.symptom.id == _WHEEL and _wheel_of(one.fields["cudawheel"]) == component.lower():
            numbers = tuple(int(part) for part in re.findall(r"\d{1,9}", str(one.fields["cudawheelversion"]))[:3])
            if numbers >= _release(component, built):
                text = (
                    f"{component} {loaded} is loaded although its wheel {one.fields['cudawheelversion']} is installed, "
                    "which would serve: an older copy is found first"
                )
                matches = tuple(dict.fromkeys((*old.matches, one)))
                found["ld_path_shadowing"] = Suspect(
                    cause="ld_path_shadowing", weight=min(old.weight + 12, 98), matches=matches, summary=text
                )
                return found
    return found


def _wheel_of(package: str) -> str:
    name = package.lower().replace("_", "-")
    return {"cuda-cupti": "cupti", "cuda-runtime": "cuda"}.get(name, name)


def _told(component: str, encoded: int) -> str:
    """A release as it is written, for what a library says of itself with one number."""
    if component == _UNDATED:
        return f"(number {encoded} of its interface)"
    release = _release(component, encoded)
    return ".".join(map(str, release[:2] if component == "CUDA" else release))


def _release(component: str, encoded: int) -> tuple[int, int, int]:
    if component == "CUDA":
        return encoded // 1000, encoded % 1000 // 10, 0
    unit = 1000 if component in _SHORT else 10_000
    return encoded // unit, encoded % unit // 100, encoded % 100
