"""Refine the suspicion that a library is missing, where the log itself lists the file, or the package that contains it."""

from __future__ import annotations

import re

from cudnn_resolve.diagnosis.context import FILES_LISTED, build_of, is_listing
from cudnn_resolve.diagnosis.library_path import carries, command_of, is_default, missing, shown_at, wheel_component
from cudnn_resolve.diagnosis.log_stack import majors_of
from cudnn_resolve.diagnosis.model import Case, Match, Suspect, Suspects, of_symptom, values_of
from cudnn_resolve.facts.driver_output import is_compat
from cudnn_resolve.matrix.library_name import Library, library_of

_OF_NO_USE = r"/stubs/|/i[3-6]86-|/lib32/|/overlay2/|/flatpak/|^/tmp/"
"""Paths of files that programs do not load: linker stubs, and those of other systems."""
_NOT_THERE = (
    r"(?i)cannot access|ENOENT|no such file|\bremoved |unable to|failed to|cannot open|not found|\s0 [A-Z][a-z]{2} {1,2}\d"
    r"|skipping incompatible"
)
"""Wording that reports a missing, empty or unfit file."""
_PROVIDER = "onnxruntime"
BARE = ("tensorflow", "jax", "jaxlib")
"""Frameworks whose wheels include cuDNN only with the CUDA extra, which a version does not show."""
_NAMED_BY_CUDA, _MOST_OF_CUDA = ("cudart", "cublas", "cublasLt"), 4
"""Libraries whose name tells the CUDA they are of, and how many of CUDA's a list has that is not of a few only."""
_LINKED = "cuda-link-name"
_LIBCUDA_LISTED = "libcuda-listed"
_SHOWS = ("context-cuda-listed", "context-cuda-listdir", "context-cuda-names", "context-tensorrt-names")
"""Symptoms of a library that a log shows as a file."""
_ASKED = r"(?i)\b(?:requires?|requirement (?!already)|collecting|downloading|uninstall\w{0,4}|found existing|no matching|could not find)\b"
"""pip's wording for a wheel that is not installed yet, or no longer."""


def explain_unnamed(found: Suspects, case: Case) -> None:
    """ONNX Runtime or TensorFlow cannot load CUDA or cuDNN and names none: what is installed decides which one it lacks."""
    causes = ("cuda_runtime_missing", "cudnn_missing", "lib_not_on_path")
    bases = [found[cause] for cause in causes if cause in found and _is_unnamed(found[cause], case)]
    base = max(bases, key=lambda suspect: suspect.weight, default=None)
    if base is None or any(missing([match for suspect in found.values() for match in suspect.matches])):
        return
    is_provider = base.cause != "lib_not_on_path"
    who = "ONNX Runtime's CUDA provider" if is_provider else "TensorFlow"
    if "cudnn-nowhere" in case.features:
        found.supersede(base, "cudnn_missing", 10, f"{who} needs cuDNN, and the log shows a search that finds none on the disk")
        return
    releases = [version for name, version in case.context.frameworks if name.startswith(_PROVIDER)] if is_provider else []
    # A release that the tables lack needs the cuDNN of the first one of its line.
    lines = [".".join((*version.split(".")[:2], "0")) for version in releases]
    own = [build for version in (*releases, *lines) if (build := build_of("onnxruntime-gpu", version, case.book)) is not None]
    own = own if is_provider else [build for build in case.context.builds if build.package.startswith("tensorflow")]
    others = [build for build in case.context.builds if build.package not in BARE and build not in own]
    needed = {build.cudnn.major for build in own if build.cudnn is not None}
    there = {copy.major for copy in case.context.cudnn} | {build.cudnn.major for build in others if build.cudnn is not None}
    cuda, (majors, components, shown) = {build.cuda.major for build in own if build.cuda is not None}, _cuda_listed(case)
    by_file = any("present" in match.fields for match in shown)
    asked = [match.text for match in of_symptom(case.matches, "context-files-listed" if by_file else "context-wheels-listed")]
    if cuda and majors and not cuda & majors:
        text = f"{who} needs CUDA {max(cuda)}, but the libraries that the log lists are of CUDA {max(majors)}"
        found.supersede(base, "cuda_runtime_missing", 10, text, shown[:1])
    elif needed and there and not needed & there:
        text = f"{who} needs cuDNN {max(needed)}, but cuDNN {max(there)} is installed"
        found.supersede(base, "cudnn_major_mismatch", 10, text, [copy.match for copy in case.context.cudnn[:1]])
    elif not there and len(components) >= _MOST_OF_CUDA and any("cudnn" in text or not by_file for text in asked):
        text = f"{who} needs cuDNN, and the log lists the libraries of CUDA without one"
        found.supersede(base, "cudnn_missing", 10, text, shown[:1])


def _is_unnamed(base: Suspect, case: Case) -> bool:
    """True if TensorFlow, or the provider of ONNX Runtime, fails without naming a library."""
    if base.cause == "lib_not_on_path":
        return case.facts is None and all(match.symptom.id == "tf-cannot-dlopen" for match in base.matches)
    return any(_PROVIDER in match.text for match in base.matches)


def _cuda_listed(case: Case) -> tuple[set[int], set[str], list[Match]]:
    """Majors of the CUDA libraries that the log lists as files or wheels, their names, and the lines."""
    majors: set[int] = set()
    names: set[str] = set()
    shown = []
    for match in case.matches:
        library = match.fields.get("present")
        if isinstance(library, Library) and library.family == "cuda" and match.symptom.id in ("context-cuda-listed", "context-cuda-names"):
            if library.component in _NAMED_BY_CUDA:
                majors |= majors_of(library, case.book)
            names.add(library.component)
            shown.append(match)
        elif match.symptom.id == "context-cuda-wheel" and not re.search(_ASKED, match.text):
            majors |= {int(major) for major in re.findall(r"[-_]cu(\d\d)$", str(match.fields["cudapackage"]))}
            names.add(str(match.fields["cudawheel"]))
            shown.append(match)
    return majors, names, shown


def find_listed(found: Suspects, case: Case) -> None:
    """CUDA or driver libraries that are not found although the log shows the file, or the wheel that contains it."""
    causes = ["cuda_runtime_missing", "driver_incomplete"]
    if not any(of_symptom(case.matches, _LIBCUDA_LISTED)):
        causes.append("driver_not_loaded")
    for cause in causes:
        lacking = found[cause]
        listed = _listed(lacking, case)
        if listed is not None:
            library, place, match = listed
            told = "that the program uses does not search there" if " (libc6" in match.text else "does not search there"
            who = "linker" if lacking.matches[0].symptom.id == _LINKED else "loader"
            text = f"{library.file} is needed but not found, although the log shows it{place}: the {who} {told}"
            found.add("lib_not_on_path", lacking, 6, text, [match, command_of(match, case.matches)])
            break


def _listed(lacking: Suspect, case: Case) -> tuple[Library, str, Match] | None:
    """A missing library, its location according to the log, and the line that shows it."""
    names = (f"lib{name}.so" for name in values_of(of_symptom(lacking.matches, _LINKED), "linkname"))
    linked = [library for name in names if (library := library_of(name)) is not None]
    wanted = list(dict.fromkeys([*missing(lacking.matches), *linked]))
    lines = {match.line for match in lacking.matches}
    # Of an object that is linked to the library, the loader has already searched the rpath; ctypes searches no object's.
    by_ctypes = any("OSError: " in match.text for match in lacking.matches)
    matches = [match for match in case.matches if match.line not in lines and (by_ctypes or match.symptom.id != "context-rpath")]
    shown = {library.file for match in matches for library in wanted if _shown_in(match, library, case) is not None}
    # If a versioned file is nowhere, an unversioned name that exists is not what the program failed on.
    is_nowhere = any(library.version is not None and library.file not in shown for library in wanted)
    for match in matches if shown else ():
        for library in wanted:
            place = _shown_in(match, library, case)
            if library in linked and getattr(match.fields.get("present"), "file", None) != library.file:
                continue  # the linker takes no other name
            if place is not None and (library.version is not None or not is_nowhere):
                return library, place, match
    return None


def _shown_in(match: Match, library: Library, case: Case) -> str | None:
    """Wording for where a log line shows a CUDA library; None if it does not."""
    shown = match.fields.get("present")
    if match.symptom.id in _SHOWS and isinstance(shown, Library):
        if shown.file != library.file and not shown.file.startswith(f"{library.file}."):
            return None
        place = str(match.fields.get("place") or shown_at(match, case.matches))
        is_searched_anyway = library.family not in ("cuda", "cudnn") and is_default(place)
        if place and (re.search(_OF_NO_USE, f"{place}/") or is_compat(place) or is_searched_anyway):
            return None
        is_listed = is_listing(match.text, shown, is_asked=FILES_LISTED in case.features)
        is_there = not re.search(_NOT_THERE, match.text) if "place" in match.fields else is_listed
        return (f" in {place}" if place else "") if is_there else None
    if match.symptom.id == "context-rpath" and library.family == "cuda" and library.version is not None:
        return f", by an rpath, in {match.fields['place']}" if carries(library, match.fields["linkedcuda"].major, case.book) else None
    if match.symptom.id == "context-cuda-wheel" and not library.windows and not re.search(_ASKED, match.text):
        package = match.fields["cudapackage"].lower().replace("_", "-")
        row = case.book.component(package)
        if row is not None and row.library.lower() == wheel_component(library) and carries(library, row.cuda_major, case.book):
            return f" in the wheel {package} {match.fields['cudawheelversion']}"
    if match.symptom.id == "context-tensorrt-wheel" and library.family == "tensorrt" and library.major == match.fields["trtwheel"].major:
        return f" in the wheel tensorrt-libs {match.fields['trtwheel']}"
    if match.symptom.id == "context-cuda-conda" and library.family == "cuda" and not re.search(_ASKED, match.text):
        version = match.fields["condaversion"]
        return f" in the conda package cudatoolkit {version}" if version.major in majors_of(library, case.book) else None
    return None
