"""A release that pip or uv did not find: the nearest available one, its current name, and the Python that it has wheels for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.diagnosis.logged_install import ONE_INDEX, Installation, of_ended_index, parent_of
from cudnn_resolve.diagnosis.model import Match, values_of
from cudnn_resolve.diagnosis.specifier import within
from cudnn_resolve.facts.distribution import OLDEST_OF_UV
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Index, WheelRelease
from cudnn_resolve.resolution.tag import TargetPython, serves_python

if TYPE_CHECKING:
    from packaging.version import Version

PythonLine = tuple[int, int]
"""Major and minor version of a Python."""
_LIMIT = r"(?:===?|~=|>=|<=|!=|<|>)[\w.+!*-]{1,40}"
_REQUIREMENT = (
    r"([A-Za-z0-9](?:[\w.-]{0,78}[A-Za-z0-9])?)(\[[\w,. -]{1,60}\])?"
    rf"(?:(===?|~=|>=|<=|!=|<|>)([\w.+!*-]{{1,60}})((?:,{_LIMIT}){{0,6}}))?"
)
_WHEEL = r"([A-Za-z0-9][\w.]{0,79})-(\d[\w.+!]{0,59})(?:-\d[\w.]{0,20})?-([\w.]{1,80})-([\w.]{1,80})-([\w.]{1,200})\.whl"
_TAG = r"cp(\d)(\d{1,2})(?!\d)"
_PYTHON = r"(\d)\.(\d{1,2})"
_BARE = r"(3)(\d{1,2})"
_NONE_AT_ALL = r"from versions: (?:none)?\)|No matching distribution found for [\w.-]{1,80}(?:\[[\w,-]{1,80}\])?(?: \(|$)"
"""Wording of pip for a package of which it takes no release."""
_ONLY = rf"\bonly ([A-Za-z0-9][\w.-]{{0,79}})((?:,?{_LIMIT}){{1,6}}) (?:is|are) available"
_SUFFIX = r"-cu(\d\d)$"
_VARIANT = r"/(cu\d{2,3})/?$"
"""CUDA that an index is for, as the last part of its URL."""
MANYLINUX = r"manylinux_(\d{1,2})_(\d{1,3})_(\w{3,10})"
_RECENT = 6
"""Number of newest releases of a package without a requested version, all of which must have wheels for a Python."""
_YEAR_OF_MINOR, _SETTLED = 2012, 2
"""Year minus minor version of the Python of the autumn before, and the month from which most packages have wheels for it."""
_OF_NVIDIA, _PLACEHOLDERS = ("nvidia-", "tensorrt", "pytorch-quantization"), re.compile(r"(?:0\.0\.1(?:\.dev\d)?(?:, |$))+")
_STUBS = re.compile(r"torch==0\.1\.2(?:\.post\d)?|nvidia-[\w-]+==20\d\d\..*")
"""Releases without content, which any Python is offered."""
PYTHON_LINES = tuple((3, minor) for minor in range(15, 5, -1))
_ALIAS, _SINCE = "tensorflow-gpu", ">=2.12"
"""Another name of TensorFlow, and the releases since which nothing is under it."""


class Wanted(Struct, frozen=True, kw_only=True):
    """The requested release."""

    name: str
    operator: str | None = None
    version: str | None = None
    extras: str = ""
    """As written: `[cuda12]`."""
    more: str = ""
    """Further limits: `,<2.5`."""
    platform: str = "any"
    """The platform tag of a wheel file, `win_amd64`."""
    tag: str = ""
    """The Python and ABI tags of a wheel file, `cp38-cp38`."""
    is_file: bool = False
    """True for a wheel file, which may be for another Python."""

    @property
    def text(self) -> str:
        """Requirement for pip."""
        return f"{self.name}{self.extras}{self.limits}"

    @property
    def limits(self) -> str:
        """Limits on the version as requested, `==2.4.0+cu118`; empty without any."""
        return f"{self.operator}{self.version}{self.more}" if self.version else ""

    @property
    def specifier(self) -> str:
        """Limits on the public version; empty without any."""
        return f"{self.operator}{(self.version or '').partition('+')[0]}{self.more}" if self.version else ""

    @property
    def is_pin(self) -> bool:
        """True for a single release, `==2.4.0`, rather than a range."""
        return self.operator in ("==", "===") and not self.more and "*" not in (self.version or "")

    @property
    def local(self) -> str:
        """The local part of the version, `cu118` of `2.4.0+cu118`."""
        return (self.version or "").partition("+")[2]


class OtherIndex(Struct, frozen=True, kw_only=True):
    """A named index without the requested release, and those that have it."""

    asked: str
    """CUDA of the named index, `cu131`."""
    is_known: bool
    """True if that index exists."""
    variants: tuple[str, ...]
    """CUDA of the indexes that have the release, oldest first."""
    url: str
    """The one of these with the nearest CUDA that is not newer."""


def pip_values(matches: Iterable[Match], facts: Facts | None, own: PythonLine | None, book: Book, done: Installation) -> dict[str, str]:
    """Fields of commands that messages, matrix and the install command `done` provide; `own` is the current Python.

    `by_name`: what pip installs instead of a wheel file, `by_name_untold` if the tables do not know it; `wanted`: the requirement;
    `nearest`: the one to request instead (`nearest_major`: it is of another major release); `renamed`: the same under its name for that
    CUDA; `same`: any release for this Python; `line`: a Python with wheels (`old_line`: one that only conda still has); `python_range`:
    all of them; `python_64`: one of them, if possible the current one; `index`: options for the index with that build; `packages`: all
    requirements of the command; `in_file`: wording for its files; `other_index`: option for an index that has the release, unlike the
    named one (`packages_there`: for it); `for_glibc`, `on_nvidia`: for old glibc, NVIDIA's index.
    """
    matches = list(matches)
    if (wanted := wanted_of(matches)) is None:
        return {}
    values: dict[str, str] = {"name": shlex.quote(wanted.name), "wanted": shlex.quote(wanted.text)}
    is_listed = lists_releases(matches)
    nearest = _nearest(wanted, _offered(wanted, matches, own, book))
    another = bool(wanted.local) and nearest != (wanted.version or "").partition("+")[0]  # a release without a known build for that CUDA
    is_bare = wanted.name.startswith(_OF_NVIDIA) and any(map(_PLACEHOLDERS.fullmatch, values_of(matches, "versions", str)))
    values |= {"on_nvidia": values["wanted"]} if is_bare else {}
    if nearest is not None and nearest != wanted.version and not another and not is_bare:
        pin = "tensorflow" if wanted.name == _ALIAS and within(_SINCE, nearest) else shlex.quote(f"{wanted.name}{wanted.extras}=={nearest}")
        if not wanted.is_pin and not wanted.is_file:
            values["outside"] = pin
        else:
            here = "nearest_major" if _is_ported(wanted, nearest) else "nearest_here"
            values |= {"nearest": pin} | ({here: pin, "for_glibc": pin} if is_listed else {here: pin} if own is not None else {})
    renamed = _renamed(wanted, own, book)
    if renamed is not None and renamed not in values_of(matches, "requirement"):  # refused too
        values["renamed"] = shlex.quote(renamed)
        values = {name: value for name, value in values.items() if name not in ("nearest", "nearest_here", "nearest_major", "outside")}
    # If there is none at all for this Python, requesting it again is in vain.
    if wanted.version is None and not has_only_stubs(matches) and not any(re.search(_NONE_AT_ALL, match.text) for match in matches):
        values["same"] = values["wanted"]
    line = None if wanted.platform == "linux_aarch64" or is_elsewhere(wanted.platform, facts) else _line(wanted, matches, own, book)
    if line is not None and line != own:
        values["line" if line >= OLDEST_OF_UV else "old_line"] = ".".join(map(str, line))
        values["with_old"] = " 'protobuf<3.21'" if wanted.name.startswith("tensorflow") else ""
    if known := sorted(_known(wanted, book)):
        plain = wanted.name.removesuffix("-gpu")
        values["for_macos"] = "" if plain == wanted.name else f". On macOS, which has no CUDA, install {plain} instead"
        values["python_range"] = shown(known)
        values["python_64"] = ".".join(map(str, own if own in known else known[len(known) // 2]))
    if wanted.is_file:
        values |= _file_values(wanted, book)
    elif (arm := _arm(wanted, book)) is not None:
        values["arm"] = arm
    ended = {} if is_listed or wanted.version else of_ended_index(wanted.name, max(known, default=(0, 0)), own, done, book)
    return values | _index_values(wanted, matches, done, book) | ended


def _arm(wanted: Wanted, book: Book) -> str | None:
    """Wording for the aarch64 wheels of a framework that has them for x86_64 alone, or mostly; None for others."""
    if book.framework_of(wanted.name) is None:
        return None
    every = releases_within(wanted, book) if wanted.version else [release for release in book.releases(wanted.name) if not release.yanked]
    platforms = [(release.version, {tag.rpartition("-")[2] for tag in release.tags}) for release in every]
    of = {arch: [version for version, tags in platforms if any(arch in tag for tag in tags)] for arch in ("x86_64", "aarch64")}
    if 2 * len(of["aarch64"]) >= len(of["x86_64"]) or (wanted.version and of["aarch64"]):
        return None
    if not of["aarch64"]:
        return f"there are no wheels of {wanted.text} for aarch64"
    return f"wheels of {wanted.name} for aarch64 begin with release {of['aarch64'][0]}"


def _file_values(wanted: Wanted, book: Book) -> dict[str, str]:
    """Fields for a wheel file: the requirement with which pip itself takes a file of that release.

    If the tables do not know the release, it may be of no index, or of another one than the file. Indexes have no `linux_aarch64`
    files (theirs are `manylinux`): such a file, as NVIDIA's for JetPack, fits the Python in its name alone.
    """
    if wanted.platform == "linux_aarch64":
        line = re.match(r"cp([23])(\d{1,2})-", wanted.tag)
        return {"file_python": f"{line[1]}.{line[2]}"} if line is not None else {}
    index, public = _index(wanted, book), (wanted.version or "").partition("+")[0]
    asked = replace(wanted, version=public)
    if index is not None:
        return {"by_name": f"{shlex.quote(wanted.text)} {index}"}
    if releases_within(asked, book):
        return {"by_name": shlex.quote(asked.text)}
    return {"by_name_untold": shlex.quote(asked.text)} if public == wanted.version and "dev" not in public else {}


def _index_values(wanted: Wanted, matches: Iterable[Match], done: Installation, book: Book) -> dict[str, str]:
    """Fields for the packages and indexes of the command, and for an index or a release that serves."""
    index, only, other = _index(wanted, book), only_index(wanted, done, book), other_index(wanted, done, book)
    is_asked = any(package.startswith(wanted.name) for package in done.packages)
    place = f"in {' and '.join(done.files)}" if done.files else "where it stands, such as in requirements.txt"
    in_file = f", and change its pin {place}" if done.files or (wanted.is_pin and not is_asked and done.feature is None) else ""
    values = {"packages": done.arguments(wanted.text, wanted.name), "in_file": in_file}
    values["from_index"] = done.indexes() or (f" {index}" if index else "")
    if index is not None:
        values["index"] = index
    if only is not None:
        values["only_index"] = shlex.quote(only)
    if other is not None:
        values["other_index"] = f"--index-url {shlex.quote(other.url)}"
        asked = wanted.text if wanted.local and done.files else values["packages"]
        values["packages_there"] = re.sub(r"\+cu\d{2,3}", "", asked)  # the index has them under its own suffix
    if (fitting := _for_glibc(wanted, matches, book)) is not None:
        values["for_glibc"] = shlex.quote(f"{wanted.name}{wanted.extras}=={fitting}")
    return values


def other_index(wanted: Wanted, done: Installation, book: Book) -> OtherIndex | None:
    """The indexes that have the requested release, if the command names others, for one CUDA each, and none of them does."""
    asked = [hit[1] for url in done.urls if (hit := re.search(_VARIANT, url))]
    if not asked or len(asked) != len(done.urls):
        return None
    urls = {
        hit[1]: book.index(index).url
        for version, _, index in _indexed(wanted.name, book)
        if index != "default" and within(wanted.specifier, version) and (hit := re.search(_VARIANT, book.index(index).url))
    }
    variants = tuple(sorted(urls, key=lambda variant: int(variant[2:])))
    if not variants or set(asked) & set(variants):
        return None
    older = [variant for variant in variants if int(variant[2:]) <= int(asked[0][2:])]
    is_known = any(row.url.rstrip("/").endswith(f"/{asked[0]}") for row in book.rows(Index))
    if not is_known and wanted.local in asked:  # an index of old builds, which may well have it
        return None
    return OtherIndex(asked=asked[0], is_known=is_known, variants=variants, url=urls[older[-1] if older else variants[0]])


def only_index(wanted: Wanted, done: Installation, book: Book) -> str | None:
    """The index that is searched alone although it is for other packages, while the default index has the requested one."""
    served = {name for row in book.rows(Index) for name in row.serves if any(url.startswith(parent_of(row.url)) for url in done.urls)}
    is_alone = done.is_known and len(done.options) == 2 and done.options[0] in ONE_INDEX
    return done.urls[0] if is_alone and wanted.name not in served and book.is_harvested(wanted.name) else None


def is_file_of_extension(matches: Iterable[Match], book: Book) -> bool:
    """True for a wheel file whose version names a PyTorch, which no index has under that version."""
    wanted = wanted_of(matches)
    return wanted is not None and wanted.is_file and bool(wanted.local) and _index(wanted, book) is None


def _for_glibc(wanted: Wanted, matches: Iterable[Match], book: Book) -> str | None:
    """Newest release with a wheel for the glibc and processor that a message states as a platform tag."""
    own = next((hit for match in matches if "glibc" in match.fields and (hit := re.search(MANYLINUX, match.text))), None)
    if own is None:
        return None

    def runs(tag: str) -> bool:
        least = re.search(MANYLINUX, tag)
        return least is not None and least[3] == own[3] and (int(least[1]), int(least[2])) <= (int(own[1]), int(own[2]))

    found = (row for row in book.releases(wanted.name) if not row.yanked and _is_final(row) and any(map(runs, row.tags)))
    versions = (version for release in found if (version := version_of(release.version)) is not None)
    return str(newest) if (newest := max(versions, default=None)) is not None else None


def parse(text: str) -> Wanted | None:
    """Parse a requirement in a message; None if invalid."""
    found = re.match(_REQUIREMENT, text.strip().rstrip(".,;:"))
    if found is None:
        return None
    version = found[4].rstrip(".,;") if found[4] else None
    extras, more = (found[2] or "").replace(" ", ""), found[5] if version and version == found[4] else ""
    return Wanted(name=found[1].lower().replace("_", "-"), operator=found[3], version=version, extras=extras, more=more)


def parse_file(text: str) -> Wanted | None:
    """Parse the name of a wheel file; None if invalid."""
    file = re.fullmatch(_WHEEL, text)
    if file is None:
        return None
    name, tag = file[1].lower().replace("_", "-"), f"{file[3]}-{file[4]}"
    return Wanted(name=name, operator="==", version=file[2], platform=file[5], tag=tag, is_file=True)


def is_elsewhere(platform: str, facts: Facts | None) -> bool:
    """True for the platform tag of another system or processor, which no Python accepts here."""
    if platform == "any" or facts is None:
        return False
    system, arch = facts.platform.system, facts.platform.arch
    of = "windows" if platform.startswith("win") else "darwin" if platform.startswith("macosx") else "linux"
    named = next((name for name in ("x86_64", "amd64", "aarch64", "arm64", "ppc64le", "i686") if platform.endswith(name)), None)
    same = {"amd64": "x86_64", "arm64": "aarch64"}
    return (system is not None and of != system) or bool(arch and named and same.get(named, named) != same.get(arch, arch))


def wanted_of(matches: Iterable[Match]) -> Wanted | None:
    """The request, by the first message that names it."""
    for match in matches:
        for name in ("requirement", "wheel", "package"):
            text, release = match.fields.get(name), match.fields.get("release")
            found = (parse_file if name == "wheel" else parse)(text) if isinstance(text, str) else None
            if found is not None:
                return replace(found, operator="==", version=release) if isinstance(release, str) and found.version is None else found
    return None


def own_line(matches: Iterable[Match], facts: Facts | None) -> PythonLine | None:
    """Python of the messages, else of the facts."""
    for match in matches:
        for name in ("python", "tag"):
            text = str(match.fields.get(name, ""))
            if found := re.match(_PYTHON, text) or re.match(_TAG, text) or re.fullmatch(_BARE, text):
                return int(found[1]), int(found[2])
    found = re.match(_PYTHON, facts.python.version or "") if facts is not None else None
    return (int(found[1]), int(found[2])) if found else None


def _offered(wanted: Wanted, matches: list[Match], own: PythonLine | None, book: Book) -> list[str]:
    """Releases that the index has for this Python: as listed in the message, else known to the matrix within its limits."""
    for match in matches:
        if lists_releases((match,)):
            return listed_in(match)
    if own is None and not wanted.is_pin:
        return []
    releases = (release for release in book.releases(wanted.name) if not release.yanked and release.tags != ("sdist",))
    versions = [release.version for release in releases if own is None or any(_serves(tag, own) for tag in release.tags)]
    limits = [hit[2] for match in matches for hit in re.finditer(_ONLY, match.text) if hit[1].lower().replace("_", "-") == wanted.name]
    return [version for version in versions if all(within(limit, version) for limit in limits)]


def lists_releases(matches: Iterable[Match]) -> bool:
    """True if pip lists the releases that it knows."""
    return any(True for _ in values_of(matches, "versions", str))


def listed_in(match: Match) -> list[str]:
    """Releases that pip lists, without stubs."""
    wanted = parse(str(match.fields.get("requirement", "")))
    name, every = wanted.name if wanted is not None else "", re.split(r"[,\s]+", str(match.fields.get("versions", "")))[:2000]
    return [version for version in every if version and not _STUBS.fullmatch(f"{name}=={version}")]


def has_only_stubs(matches: Iterable[Match]) -> bool:
    """True if pip lists releases, none of which has content."""
    return any(lists_releases((match,)) and not listed_in(match) for match in matches)


def shown(lines: Sequence[PythonLine]) -> str:
    """Wording for Pythons in order: `3.6 to 3.8`."""
    words = [f"{line[0]}.{line[1]}" for line in lines]
    return " and ".join(words) if len(words) <= 2 else f"{words[0]} to {words[-1]}"


def _is_ported(wanted: Wanted, nearest: str) -> bool:
    """True if code for the wanted release has to be changed for the nearest one: another major release, except of PyTorch."""
    majors = [int(version.partition(".")[0]) for version in (wanted.version or "0", nearest) if version[:1].isdigit()]
    return 0 < majors[0] < majors[-1] and not wanted.name.startswith("torch")


def _nearest(wanted: Wanted, offered: Iterable[str]) -> str | None:
    """Release that shares the most leading numbers with the requested one; of those the first after it, else the last before it.

    None if the request is available: then the release is not the problem.
    """
    aim = version_of(wanted.version)
    final = {version: found for version in offered if (found := version_of(version)) is not None and not found.is_prerelease}
    if not wanted.is_pin and any(within(wanted.specifier, version) for version in final):
        return None
    versions = {version: found for version, found in final.items() if found.local is None}
    if aim is None or not versions:
        return None

    def shared(version: str) -> int:
        pairs = zip(versions[version].release, aim.release, strict=False)
        return next((place for place, (left, right) in enumerate(pairs) if left != right), len(aim.release))

    later = [version for version in versions if versions[version].release >= aim.release]
    after = min(later, key=lambda version: (-shared(version), versions[version]), default=None)
    before = max(
        (version for version in versions if version not in later), key=lambda version: (shared(version), versions[version]), default=None
    )
    if after is None or before is None:
        return after or before
    return before if shared(before) > shared(after) else after


def version_of(text: str | None) -> Version | None:
    """The version of a text that may be none, `2.1.*` as 2.1."""
    from cudnn_resolve.resolution.release import parse_version

    return parse_version(text.removesuffix(".*")) if text else None


def _renamed(wanted: Wanted, own: PythonLine | None, book: Book) -> str | None:
    """Current name of TensorFlow, or of an NVIDIA wheel: those for CUDA 13 have no suffix `-cu13`, older ones have their CUDA suffix."""
    rest = wanted.limits
    if wanted.name == _ALIAS and (not rest or (wanted.operator in ("==", ">=", "~=", ">") and within(_SINCE, wanted.version))):
        lines = _known(replace(wanted, name="tensorflow"), book)
        return f"tensorflow{wanted.extras}{rest if own is None or not lines or own in lines else ''}"
    if not wanted.name.startswith("nvidia-"):
        return None
    suffix = re.search(_SUFFIX, wanted.name)
    if suffix and book.component(wanted.name) is None:
        bare = wanted.name.removesuffix(suffix[0])
        return f"{bare}{rest}" if book.component(bare) is not None else None
    if not suffix and wanted.version and (major := version_of(wanted.version)) is not None:
        other = f"{wanted.name}-cu{major.major}"
        known = book.component(wanted.name)
        if known is not None and major.major < known.cuda_major and book.component(other) is not None:
            return f"{other}{rest}"
    return None


def _line(wanted: Wanted, matches: list[Match], own: PythonLine | None, book: Book) -> PythonLine | None:
    """Python with wheels of it that is nearest to the current one."""
    lines = set(_told(matches)) or _known(wanted, book)
    if lists_releases(matches):
        lines = lines - {own}  # the index lists other releases for it, as those of another system
    if not lines or own in lines:
        return None
    # A Python that was new at the time lacks wheels of the other packages of that time.
    days = [release.date for release in releases_within(wanted, book) if release.date]
    lines = {line for line in lines if not days or line[1] <= _settled(max(days))} or lines
    lines = {line for line in lines if line >= OLDEST_OF_UV} or lines
    if own is None:
        return sorted(lines)[len(lines) // 2 if days or len(lines) < 3 else (len(lines) - 1) // 2]
    return min(lines, key=lambda line: (abs(line[1] - own[1]) + 100 * abs(line[0] - own[0]), line))


def _settled(day: str) -> int:
    """Minor version of the newest Python that was out for at least four months on that day: each is released in October."""
    year, month = int(day[:4]), int(day[5:7])
    return year - _YEAR_OF_MINOR - (month < _SETTLED)


def _told(matches: Iterable[Match]) -> Iterator[PythonLine]:
    """Pythons named in messages: `only found wheels … with … tags: cp38, cp39`, or `not in '>=3.9'`."""
    for text in (*values_of(matches, "tags", str), *values_of(matches, "wheel", str)):
        yield from ((int(hit[1]), int(hit[2])) for hit in re.finditer(_TAG, text))
    for wants in values_of(matches, "wants", str):
        yield from (line for line in PYTHON_LINES if within(wants, f"{line[0]}.{line[1]}.9"))


def releases_within(wanted: Wanted, book: Book) -> list[WheelRelease]:
    """Known releases with wheels that match the request; pre-releases only if one is requested."""
    releases = book.releases(wanted.name) if wanted.version is not None else ()
    found = [row for row in releases if not row.yanked and row.tags != ("sdist",) and within(wanted.specifier, row.version)]
    return [release for release in found if _is_final(release)] or found


def _is_final(release: WheelRelease) -> bool:
    version = version_of(release.version)
    return version is not None and not version.is_prerelease


def _known(wanted: Wanted, book: Book) -> set[PythonLine]:
    releases = releases_within(wanted, book)
    if wanted.version is None:
        final = (release for release in book.releases(wanted.name) if not release.yanked and _is_final(release))
        newest = sorted(final, key=lambda release: str(release.date))[-_RECENT:]
        every = [{line for line, _ in python_tags(release.tags, release.requires_python)} for release in newest]
        return set.intersection(*every) if every else set()
    return {line for release in releases for line, _ in python_tags(release.tags, release.requires_python)}


def python_tags(tags: Iterable[str], requires: str | None = None) -> Iterator[tuple[PythonLine, str]]:
    """Every CPython of wheels with these tags, with their platforms, within the release's Python limits."""
    lines = [line for line in PYTHON_LINES if requires is None or within(requires, f"{line[0]}.{line[1]}.99")]
    for tag in tags:
        platform = tag.rpartition("-")[2]
        yield from ((line, platform) for line in lines if _serves(tag, line))


def _serves(tag: str, line: PythonLine) -> bool:
    """True if a wheel with that tag is for that Python."""
    pythons, _, rest = tag.partition("-")
    return serves_python(pythons, rest.partition("-")[0], TargetPython(line, False, "", None))


def _index(wanted: Wanted, book: Book) -> str | None:
    """Options for the index with a build of that local version, `+cu118`."""
    asked = ((wanted.version or "").partition("+")[0], wanted.local)
    rows = (row for row in _indexed(wanted.name, book) if row[:2] == asked and row[2] != "default") if wanted.local else ()
    index = next((book.index(row[2]) for row in rows), None)
    if index is None:
        return None
    return f"{'--find-links' if index.kind == 'find-links' else '--extra-index-url'} {shlex.quote(index.url)}"


def _indexed(name: str, book: Book) -> Iterator[tuple[str, str, str]]:
    """Release, local version and index of each known build of a package."""
    for build in book.builds_of(name):
        yield build.version, build.variant, build.index
    for release in book.extra_releases(name):
        public, _, local = release.version.partition("+")
        yield public, local, release.index
