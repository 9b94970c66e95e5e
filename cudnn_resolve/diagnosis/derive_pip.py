"""Refine causes of pip and uv: a version that the index does not have, or wheels for another Python or system."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from cudnn_resolve.diagnosis.logged_install import installation
from cudnn_resolve.diagnosis.model import Case, Match, Suspect, Suspects, of_symptom, values_of
from cudnn_resolve.diagnosis.pip_release import (
    MANYLINUX,
    PYTHON_LINES,
    PythonLine,
    Wanted,
    has_only_stubs,
    is_elsewhere,
    listed_in,
    lists_releases,
    only_index,
    other_index,
    own_line,
    parse,
    parse_file,
    python_tags,
    releases_within,
    shown,
    version_of,
    wanted_of,
)
from cudnn_resolve.diagnosis.specifier import within
from cudnn_resolve.facts.model import Facts, Platform
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import WheelRelease
from cudnn_resolve.matrix.symptom import Clue

_PYTHON, _PIN = "pip_wheel_unavailable_for_python", "pip_pin_unavailable"
_LISTED, _LOCAL, _ANOTHER = "pip-versions-listed", "pip-local-pin", "pip-another-python"
_VAGUE = ("pip-no-matching", _ANOTHER)
"""Symptoms that say less than a list of versions."""
_NOTICE, _MAJOR, _TOLD = "pip-cudnn-other-major", "cudnn_major_mismatch", 92
_OF_CONDA = "conda-name"
"""Clue whose words are names of packages that only conda has."""
_OTHERS, _NOT_OURS = "unrecognised", 60
_SHORT = 5
"""Length up to which another name that differs by a letter is no slip."""
_OF_STACK = (
    r"nvidia|cuda|cudnn|cu1[0-9]|torch|tensor|jax|paddle|mxnet|cupy|gpu|onnx|triton|nccl|rapids|cudf|vllm|xformers|flash|deepspeed|python$"
)
"""Names of packages in or near the GPU stack."""
_OPEN = frozenset({"pip-versions-none", "pip-no-matching", "uv-wheel", "uv-python", "uv-none-compatible", "pip-wheel-file"})
"""Symptoms that leave open whether the Python version or the system is the reason."""
_GLIBC_CAUSE, _OF_OLD_TAGS = "glibc_too_old", (2, 17)
"""Cause, and the newest glibc of wheels that also have tags without its version, which all but very old pips know."""
_OF_FIRST_TAGS = (2, 5)
"""The newest glibc of wheels with the first tag, manylinux1, which pip knows from 8.1 on."""
_OF_NEWER_PIP = "ERROR: Could not find a version"
"""Message of a pip that knows manylinux2010; older ones print it without the level."""
_NO_GLIBC = frozenset({"windows", "macos", "arm-cpu"})
_OLD_SYSTEM = r"\.(?:el[67]|amzn2)\b"
_GLIBC = r"manylinux_(\d{1,2})_(\d{1,3})_"
_SYSTEMS = {"linux": "Linux", "windows": "Windows", "darwin": "macOS"}
_DECIDED = 91
"""Weight of a conclusion from two sources, which leaves nothing open."""
_Key = tuple[tuple[int, ...], str]
"""Numbers of a version, and its text."""


def interpret_pip_versions(found: Suspects, case: Case) -> None:
    """Locate the requested version in pip's list of versions."""
    ignored = " ".join(match.text for match in of_symptom(case.matches, _ANOTHER))
    for match in of_symptom(case.matches, _LISTED):
        verdict = _of_stubs(match, case.book) or _of_old_pip(match, case) or _verdict(match, ignored)
        if verdict is not None and verdict[0] == _PYTHON and verdict[1] < _DECIDED and (of_glibc := _of_glibc(match, case)) is not None:
            verdict = of_glibc
            found.pop(_PYTHON, None)
        if verdict is not None:
            cause, weight, summary = verdict
            matches = tuple(dict.fromkeys((match, *found[cause].matches)))
            found[cause] = Suspect(cause=cause, weight=weight, matches=matches, summary=summary)
    if set(found) == {_MAJOR} and all(match.symptom.id == _NOTICE for match in found[_MAJOR].matches):
        # Next to a failure it may concern another framework; alone it is what pip reports.
        found[_MAJOR] = replace(found[_MAJOR], weight=_TOLD)


def compare_index(found: Suspects, case: Case) -> None:
    """A release that the named index has for no Python is missing because of the index."""
    python, pin = found[_PYTHON], found[_PIN]
    is_vague = python.weight < _DECIDED and all(match.symptom.id in _VAGUE for match in python.matches)
    if is_vague and any(match.symptom.id in (_LISTED, _LOCAL) for match in pin.matches):
        found.pop(_PYTHON, None)  # the list or the CUDA in the pin decides; what pip ignored may be releases of another package
    matches = tuple(dict.fromkeys((*found[_PYTHON].matches, *pin.matches)))
    wanted = wanted_of(matches)
    if wanted is None:
        return
    done = installation(case.matches, case.book)
    only = only_index(wanted, done, case.book)
    if only is not None and any("from versions: none" in match.text for match in matches):
        summary = f"pip looks only into {only}, which does not have {wanted.name}"
    elif (other := other_index(wanted, done, case.book)) is not None:
        first = f"the index for {other.asked} does not have it" if other.is_known else f"no index for {other.asked} is known"
        summary = f"{first}: the builds of {wanted.text} are for {_listed(other.variants)}"
    else:
        return
    found.pop(_PYTHON, None)
    found[_PIN] = Suspect(cause=_PIN, weight=_DECIDED, matches=matches, summary=summary)


def dismiss_unrelated_pins(found: Suspects, case: Case) -> None:
    """An unavailable version of a package unrelated to the GPU is not a cause in the GPU stack."""
    pin = found[_PIN]
    asked = [str(requirement) for requirement in values_of(pin.matches, "requirement")]
    names = [re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-") for requirement in asked]
    if not names or any(re.search(_OF_STACK, name) or case.book.is_harvested(name) for name in names):
        return
    summary = f"unrelated to the GPU: the configured index does not have {asked[0].rstrip(',.:')}"
    del found[_PIN]
    found[_OTHERS] = replace(pin, cause=_OTHERS, weight=min(pin.weight, _NOT_OURS), summary=summary)


def name_misspelt(found: Suspects, case: Case) -> None:
    """A package that the index does not have at all is one of conda, or a known one with a slip of the pen in its name."""
    python = found[_PYTHON]
    match = next(of_symptom(python.matches, "pip-versions-none"), None)
    if match is None:
        return
    name = re.split(r"[^\w.-]", str(match.fields["requirement"]))[0].lower().replace("_", "-")
    names = {*case.book.packages(), *(each for one in case.book.frameworks() for each in case.book.distributions(one))}
    meant = next((known for known in sorted(names) if _is_slip(name, known)), None)
    is_of_conda = any(name in clue.values for clue in case.book.rows(Clue) if clue.id == _OF_CONDA)
    if not is_of_conda and (meant is None or name in names or case.book.companion_of(name)):
        return
    if is_of_conda:
        summary = f"{name} is a package of conda, which pip's index does not have"
    else:
        summary = f"the index has no {name}: correct the name, probably to {meant}, in the command or the file of requirements"
    del found[_PYTHON]
    found[_OTHERS] = replace(python, cause=_OTHERS, summary=summary)


def _is_slip(name: str, known: str) -> bool:
    """True if names differ by one letter, or by two that changed places."""
    at = next((at for at, (one, other) in enumerate(zip(name, known, strict=False)) if one != other), min(len(name), len(known)))
    one, other = name[at:], known[at:]
    differ = one[1:] == other[1:] or one[1:] == other or one == other[1:] or (one[:2] == other[1::-1] and one[2:] == other[2:])
    return name != known and len(known) > _SHORT and differ and (one[:1] + other[:1]).isalpha()


def _of_glibc(match: Match, case: Case) -> tuple[str, float, str] | None:
    """Cause, weight and summary if glibc, and not Python, may be why a list ends before the requested release."""
    wanted, facts, listed = parse(match.fields["requirement"]), case.facts, listed_in(match)
    limit = _glibc_of_list(wanted, listed, own_python([match], case), case.book) if wanted is not None else None
    if wanted is None or limit is None or case.features & _NO_GLIBC or (facts is not None and facts.platform.system != "linux"):
        return None
    needed, is_sure = limit
    told = next((each.fields["ownglibc"] for each in case.matches if "ownglibc" in each.fields), None)
    own = told if facts is None else facts.platform.glibc
    if _numbers(needed) <= _OF_OLD_TAGS or (own is not None and _numbers(own) >= _numbers(needed)):
        return None
    if is_sure or own is not None or any(re.search(_OLD_SYSTEM, each.text) for each in case.matches):
        summary = f"{wanted.text} has wheels for glibc {needed} and newer, of which pip takes none: the system's glibc, or pip, is too old"
        return _GLIBC_CAUSE, 90, summary
    return _PYTHON, 90, f"{wanted.text} is newer than the last release for this Python, or for a glibc older than {needed}, {listed[-1]}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _of_stubs(match: Match, book: Book) -> tuple[str, float, str] | None:
    """Cause, weight and summary if a list has only releases without content."""
    wanted = parse(match.fields["requirement"])
    if wanted is None or not has_only_stubs([match]):
        return None
    pairs = (pair for release in releases_within(wanted, book) for pair in python_tags(release.tags, release.requires_python))
    pythons = sorted({line for line, _ in pairs})
    made = f"its wheels are for 64-bit Pythons {shown(pythons)}" if pythons else "it has wheels for other Pythons"
    return _PYTHON, 90, f"the index has only empty stubs of {wanted.name} for this Python: {made}"


def _glibc_of_list(wanted: Wanted, offered: Iterable[str], own: PythonLine | None, book: Book) -> tuple[str, bool] | None:
    """The glibc that a release after those of a list needs, if that may be why the list ends, and whether Python cannot be."""
    rows = {version: row for row in book.releases(wanted.name) if not row.yanked and (version := version_of(row.version))}
    pythons = {version: {line for line, _ in python_tags(row.tags, row.requires_python)} for version, row in rows.items()}
    listed = [version for text in offered if (version := version_of(text)) is not None and pythons.get(version)]
    aims = [version for version in rows if within(wanted.specifier, str(version))]
    if not listed or not aims or (last := max(listed)) >= min(aims):
        return None
    every = [own] if own else [line for line in PYTHON_LINES if all(line in pythons[version] for version in listed)]
    # A Python that has older releases too would have listed them.
    lines = [line for line in every if not any(line in pythons[version] for version in rows if version < min(listed))] or every
    old = [version for version in rows if version > last and not version.is_prerelease and _glibc(rows[version]) <= _glibc(rows[last])]
    held = [line for line in lines if any(line in pythons[aim] for aim in aims) and not any(line in pythons[version] for version in old)]
    return (".".join(map(str, min(_glibc(rows[aim]) for aim in aims))), held == lines) if held else None


def is_for_newer_pip(match: Match, case: Case) -> bool:
    """True if a list of a pip before 19.0 lacks a release, because its wheels, unlike those listed, only have newer tags (PEP 571)."""
    wanted, listed = parse(str(match.fields.get("requirement", ""))), set(listed_in(match))
    if wanted is None or not wanted.is_pin or wanted.local or _OF_NEWER_PIP in match.text or case.features & _NO_GLIBC:
        return False
    rows = {row.version: row for row in case.book.releases(wanted.name) if not row.yanked}
    row = rows.get(wanted.version or "")
    newest = max((_glibc(rows[version]) for version in listed if version in rows), default=None)
    return row is not None and row.version not in listed and newest == _OF_FIRST_TAGS and _glibc(row) > _OF_FIRST_TAGS


def _of_old_pip(match: Match, case: Case) -> tuple[str, float, str] | None:
    """Cause, weight and summary if a list goes beyond a release that it lacks; where it ends before it, Python is as likely."""
    wanted = parse(match.fields["requirement"])
    if wanted is None or not is_for_newer_pip(match, case) or all(within(f"<{wanted.version}", text) for text in listed_in(match)):
        return None
    return _PYTHON, _DECIDED, f"the index has {wanted.text}, but this pip is too old for its wheels' tags (manylinux2010: 19.0 or newer)"


def _glibc(row: WheelRelease) -> tuple[int, int]:
    """The oldest glibc of a release's wheels for x86_64; (0, 0) without a limit."""
    hits = (hit for tag in row.tags for hit in re.finditer(MANYLINUX, tag) if hit[3] == "x86_64")
    return min(((int(hit[1]), int(hit[2])) for hit in hits), default=(0, 0))


def _verdict(match: Match, ignored: str) -> tuple[str, float, str] | None:
    """Cause, weight and summary for a requested version that is not in a list; `ignored`: releases for another Python."""
    requirement = match.fields["requirement"]
    wanted = parse(requirement)
    offered = listed_in(match)
    versions = sorted(filter(None, map(_key, offered)))
    if requirement.lower().startswith(("nvidia-", "tensorrt")):
        return _PIN, 92, f"the configured index does not have {requirement}, only other versions"
    if not versions:
        return None
    low, high = versions[0][1], versions[-1][1]
    key = _key(wanted.version or "") if wanted is not None else None
    if wanted is None or key is None:
        return _PYTHON, 80, f"no release for this Python ({low} to {high}) matches {requirement}"
    if wanted.local and versions[0][0] <= key[0] <= versions[-1][0]:
        is_there = any(within(wanted.specifier, version) for version in offered)
        summary = f"the configured index does not have {requirement}: builds with +{wanted.local} are on another index"
        return _PIN, 92 if is_there else 84, summary
    if any(within(wanted.specifier, version) for version in offered):
        return _PYTHON, 66, f"the index lists {wanted.text}, but without a wheel for this Python or system"
    if wanted.is_pin and re.search(rf"[\s;]{re.escape(wanted.version or '')} Requires-Python", ignored):
        return _PYTHON, 92, f"{requirement} requires another Python"
    if ".dev" in requirement and any(".dev" in version for version in offered):
        return _PIN, 84, f"the configured index no longer has {requirement}: nightly builds are removed after some weeks"
    return _by_range(wanted, requirement, versions)


def _by_range(wanted: Wanted, requirement: str, versions: list[_Key]) -> tuple[str, float, str]:
    """Cause, weight and summary by where a requested version is among those of a list."""
    low, high = versions[0][1], versions[-1][1]
    least, most = _bounds(wanted)
    posts = [text for numbers, text in versions if least is not None and numbers == least[0] and ".post" in f"{text}{requirement}"]
    if wanted.is_pin and posts:
        return _PIN, 86, f"the configured index has {posts[-1]} in place of {requirement}"
    what = f"{requirement} is" if wanted.is_pin else f"{requirement} asks for a release"
    if least is not None and least[0] >= versions[-1][0]:
        return _PYTHON, 90, f"{what} newer than the last release for this Python, {high}"
    if most is not None and most[0] <= versions[0][0]:
        return _PYTHON, 90, f"{what} older than the first release for this Python, {low}"
    return _PIN, 80, f"{requirement} is not among the releases of the configured index, {low} to {high}"


def _bounds(wanted: Wanted) -> tuple[_Key | None, _Key | None]:
    """Lowest and highest requested release; a pin is both."""
    bounds = [(operator, _key(version)) for operator, version in re.findall(r"(===?|~=|>=|<=|!=|<|>)([\w.+!*-]{1,40})", wanted.specifier)]
    least = [key for operator, key in bounds if key is not None and operator in ("==", "===", "~=", ">=", ">")]
    most = [key for operator, key in bounds if key is not None and operator in ("==", "===", "~=", "<=", "<")]
    return max(least, default=None), min(most, default=None)


def _key(text: str) -> _Key | None:
    """Comparable numbers of a version; a pre-release counts as its release."""
    numbers = re.match(r"\d{1,6}(?:\.\d{1,6}){0,5}", text)
    return (tuple(int(part) for part in numbers[0].split(".")), text) if numbers else None


def interpret_wheel_tags(found: Suspects, case: Case) -> None:
    """Decide whether Python or system is why no wheel fits, by message, file name, facts and matrix."""
    suspect = found[_PYTHON]
    if suspect.summary is not None or not suspect.matches or suspect.matches[0].symptom.id not in _OPEN:
        return
    summary, is_sure = _of_file(suspect.matches, case) or _of_releases(suspect.matches, case) or (None, False)
    if summary is not None:
        found[_PYTHON] = replace(suspect, summary=summary, weight=max(suspect.weight, _DECIDED) if is_sure else suspect.weight)
    if is_sure and _PIN in found and wanted_of(found[_PIN].matches) == wanted_of(suspect.matches):
        del found[_PIN]  # the index has the release, for another Python


def is_of_system(matches: Iterable[Match], facts: Facts | None) -> bool:
    """True if the wheels are for another system, so that another Python would not help."""
    files = (parse_file(str(match.fields.get("wheel", ""))) for match in matches)
    elsewhere = any(file is not None and is_elsewhere(file.platform, facts) for file in files)
    return elsewhere or any(of_symptom(matches, "uv-platform", "uv-wheel-elsewhere"))


def _of_file(matches: Sequence[Match], case: Case) -> tuple[str, bool] | None:
    """Wording for what a wheel file was built for, by its name, and whether that is decisive."""
    file = next(values_of(matches, "wheel", str), "")
    wanted = parse_file(file)
    if wanted is None:
        return None
    lines = sorted({line for line, _ in python_tags([f"{wanted.tag}-{wanted.platform}"])})
    made = " and ".join(part for part in (f"Python {shown(lines)}" if lines else "", _system_of(wanted.platform)) if part)
    own = own_python(matches, case)
    another = bool(own and lines and own not in lines and not ("abi3" in wanted.tag and lines[0] <= own))
    here = [f"Python {own[0]}.{own[1]}"] if own and another else []
    if case.facts is not None and is_elsewhere(wanted.platform, case.facts):
        here.append(_here(case.facts.platform))
    if here:
        return f"{file} is built for {made}, but this is {' and '.join(here)}", True
    return (f"{file} is built for {made}, but this is another Python or another system", False) if made else None


def _of_releases(matches: Sequence[Match], case: Case) -> tuple[str, bool] | None:
    """Wording for the wheels of a release, by the matrix, and whether that is decisive."""
    wanted, own = wanted_of(matches), own_python(matches, case)
    releases = releases_within(wanted, case.book) if wanted is not None else []
    if wanted is None or own is None or not releases:
        return None
    pairs = [pair for release in releases for pair in python_tags(release.tags, release.requires_python)]
    fits = [platform for line, platform in pairs if line == own]
    if not fits:
        lines = sorted({line for line, _ in pairs})
        summary = f"{wanted.text} has no wheel for Python {own[0]}.{own[1]}: its wheels are for Python {shown(lines)}"
        return (summary, True) if lines else None
    of = f"{wanted.text} has wheels for Python {own[0]}.{own[1]}"
    if case.facts is None:
        return f"{of}: they do not fit this system, or the index lacks them", False
    if not any(_suits(platforms, case.facts) for platforms in fits):
        return f"{of}, but none for {_here(case.facts.platform)}", True
    return f"{of} and this system: the configured index does not have them, or could not be reached", False


def is_bits_open(matches: Sequence[Match], case: Case) -> bool:
    """True if the Python of the messages has wheels, or only stubs: then its processor or the index is the question.

    So it is if pip is offered nothing, and the messages do not say for which Python.
    """
    wanted, own = wanted_of(matches), own_python(matches, case)
    if own is None and any("from versions: none" in match.text for match in matches):
        return True
    tags = [pair for release in (releases_within(wanted, case.book) if wanted else ()) for pair in python_tags(release.tags)]
    is_offered = lists_releases(matches)  # so that the processor is not the question
    return has_only_stubs(matches) or (not is_offered and any(line == own for line, _ in tags))


def own_python(matches: Iterable[Match], case: Case) -> PythonLine | None:
    """Python of the messages or the facts, else the only one in the log."""
    own = own_line(matches, case.facts)
    seen = {own_line([match], None) for match in of_symptom(case.matches, "context-python")}
    return own or (seen.pop() if len(seen) == 1 else None)


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if words[1:] else words[0]


def _system_of(platform: str) -> str:
    """Name of a platform tag's system; empty for `any`."""
    if platform == "any":
        return ""
    name = "Windows" if platform.startswith("win") else "macOS" if platform.startswith("macosx") else "Linux"
    arch = next((name for name in ("x86_64", "aarch64", "amd64", "arm64", "ppc64le", "i686") if platform.endswith(name)), None)
    return f"{name} on {arch}" if arch else name


def _here(platform: Platform) -> str:
    system = _SYSTEMS.get(platform.system or "", platform.system or "this system")
    arch, glibc = f" on {platform.arch}" if platform.arch else "", f" (glibc {platform.glibc})" if platform.glibc else ""
    return f"{system}{arch}{glibc}"


def _suits(platforms: str, facts: Facts) -> bool:
    """True if one of the platform tags, separated by dots, may match this system."""
    own = _numbers(facts.platform.glibc or "999")
    tags = [tag for tag in platforms.split(".") if not is_elsewhere(tag, facts)]
    least = [re.match(_GLIBC, tag) for tag in tags]
    return any(glibc is None or own >= (int(glibc[1]), int(glibc[2])) for glibc in least)
