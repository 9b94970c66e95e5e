"""What a log tells of its machine: GPUs, frameworks and the cuDNN copies that its paths and package lists name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.diagnosis.specifier import is_version, within
from cudnn_resolve.diagnosis.whole import faults_of, is_outer_alone
from cudnn_resolve.facts.model import or_none
from cudnn_resolve.matrix.library import Library
from cudnn_resolve.version import Capability, CodeTarget, CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Match
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build

NEWEST = Capability(10, 0)
"""From here on a GPU is newer than what most builds hold code for."""
OLDEST = Capability(7, 5)
"""Below this a GPU is older than what the newest builds hold code for."""

_WANTS = ("cudnn_missing", "cudnn_too_old_for_framework", "lib_not_on_path", "pip_pin_unavailable", "pip_wheel_unavailable_for_python")
"""Causes whose lines name a cuDNN that is wanted, not one that is there."""
_ASKS = ("noise-pip-notice", "pip-cudnn-other-major")
"""Symptoms whose lines name both."""
_SHOWS = (("context-cudnn-package", "context-upgraded"), ("pip-cudnn-other-major",))
"""Symptoms that name a cuDNN that is there; and those that do it as what was found."""


class Present(Struct, frozen=True, kw_only=True):
    """A cuDNN that the log shows: a file that was opened or listed, a package, a version."""

    major: int
    version: CudnnVersion | None
    match: Match | None
    """The line that shows it; None where the facts do."""
    path: str | None = None
    wheel: bool = False
    """True where it is in a pip wheel."""
    broken: str | None = None
    """Why it is not one whole release, where the facts know that."""


class Context(Struct, frozen=True, kw_only=True):
    """The machine as the log shows it."""

    capabilities: tuple[Capability, ...] = ()
    frameworks: tuple[tuple[str, str], ...] = ()
    """Name as printed (lower case) and version."""
    builds: tuple[Build, ...] = ()
    """The builds of the matrix that those versions are."""
    cudnn: tuple[Present, ...] = ()
    cards: tuple[str, ...] = ()
    driver: str | None = None

    def version(self, name: str) -> str | None:
        """The version of a framework that the log names."""
        return next((version for one, version in self.frameworks if one == name), None)


class Case(Struct, frozen=True, kw_only=True):
    """Everything that a log shows."""

    matches: tuple[Match, ...]
    features: frozenset[str]
    context: Context
    book: Book
    facts: Facts | None = None


def context_of(matches: Iterable[Match], book: Book, facts: Facts | None = None) -> Context:
    """The context of a log, on the machine of the facts where it is known."""
    matches = list(matches)
    frameworks = tuple(dict.fromkeys((*_frameworks(matches), *(_installed(facts, book) if facts is not None else ()))))
    cards = tuple(dict.fromkeys(one.fields["card"] for one in matches if "card" in one.fields))
    wanted = {one.line for one in matches if one.symptom.cause in _WANTS or one.symptom.id in _ASKS}
    return Context(
        capabilities=(*_capabilities(matches, cards, book), *(_gpus(facts) if facts is not None else ())),
        frameworks=frameworks,
        builds=tuple(_builds(frameworks, book)),
        cudnn=(
            *_present([one for one in matches if one.line not in wanted or one.symptom.id in _ASKS]),
            *(_copies(facts, book) if facts is not None else ()),
        ),
        cards=cards,
        driver=next((str(one.fields[name]) for one in matches for name in ("driver", "driver2") if name in one.fields), None),
    )


def speaking(matches: Iterable[Match], context: Context, book: Book) -> tuple[Match, ...]:
    """The matches that mean something for the releases at hand; one of a framework that is there only outside its versions says nothing."""
    known: dict[str, list[str]] = {}
    for name, version in context.frameworks:
        known.setdefault(name, []).append(version)
        framework = book.framework_of(name)
        if framework is not None and framework != name:
            known.setdefault(framework, []).append(version)
    return tuple(one for one in matches if _is_meant(one, known))


def _is_meant(match: Match, known: dict[str, list[str]]) -> bool:
    """True also where no release is known: then the message itself is the better witness."""
    symptom = match.symptom
    if symptom.versions is None or symptom.framework is None:
        return True
    versions = [one for one in known.get(symptom.framework, ()) if is_version(one)]
    return not versions or any(within(symptom.versions, one) for one in versions)


def _frameworks(matches: list[Match]) -> Iterable[tuple[str, str]]:
    for one in matches:
        if one.symptom.id in ("context-framework", "context-framework-of-model"):
            name = one.fields["package"].lower().replace("_", "-")
            yield ("torch" if name == "pytorch" else name), one.fields["version"].rstrip(".-+")


def _builds(frameworks: tuple[tuple[str, str], ...], book: Book) -> Iterable[Build]:
    for name, version in frameworks:
        framework = book.framework_of(name)
        if framework is None:
            continue
        public, _, local = version.partition("+")
        found = [one for one in book.framework(framework).builds if one.version == public and one.cuda is not None]
        exact = [one for one in found if local and one.variant == local]
        chosen = exact or [one for one in found if one.index == "default"] or found
        yield from chosen[:1]


def _capabilities(matches: list[Match], cards: tuple[str, ...], book: Book) -> Iterable[Capability]:
    for one in matches:
        value = one.fields.get("capability")
        if isinstance(value, CodeTarget):
            yield value.capability
    for card in cards:
        found = book.card(card)
        if found is not None:
            yield found.capability


def _present(matches: list[Match]) -> Iterable[Present]:
    for one in matches:
        library = one.fields.get("present")
        if isinstance(library, Library) and library.family == "cudnn" and library.major is not None:
            yield Present(major=library.major, version=_full(library.version), match=one, wheel="site-packages" in one.text)
        for name in ("wheel", "apt", "version", "found"):
            value = one.fields.get(name)
            if isinstance(value, CudnnVersion) and one.symptom.id in _SHOWS[name == "found"]:
                yield Present(major=value.major, version=value, match=one, wheel=name == "wheel")
        if one.symptom.id == "context-cudnn-package" and isinstance(one.fields.get("major"), int) and one.fields["major"] < 20:
            yield Present(major=one.fields["major"], version=None, match=one)


def _copies(facts: Facts, book: Book) -> Iterable[Present]:
    for copy in or_none(facts.cudnn) or ():
        version = _full(copy.version)
        major = copy.soname if copy.soname is not None else version.major if version else None
        if major is not None and not is_outer_alone(copy):
            broken = "; ".join(faults_of(copy, book)) or None
            yield Present(major=major, version=version, match=None, path=copy.path, wheel=copy.source == "pip", broken=broken)


def _gpus(facts: Facts) -> Iterable[Capability]:
    for gpu in or_none(facts.gpus) or ():
        if gpu.compute_capability:
            try:
                yield Capability.parse(gpu.compute_capability)
            except ValueError:
                continue


def _installed(facts: Facts, book: Book) -> Iterable[tuple[str, str]]:
    for name, version in (or_none(facts.packages.pip) or {}).items():
        if book.framework_of(name) is not None:
            yield name, version


def _full(text: str | None) -> CudnnVersion | None:
    return CudnnVersion(text) if text and text.count(".") >= 1 else None
