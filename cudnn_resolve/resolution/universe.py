"""The universe of one resolution: which candidates a package has, best first, and what each candidate needs.

| package           | its candidates                                                               |
| ----------------- | ---------------------------------------------------------------------------- |
| driver, gpu:N, python, arch, glibc, os, index, limit:* | the one fact, or limit, of this request |
| framework:NAME    | the builds of a framework                                                    |
| libraries:NAME    | the channels through which a build's CUDA libraries may come                 |
| cuda, cudnn       | CUDA lines and cuDNN builds, each through one channel; all frameworks share one |
| cuda:system, cudnn:system | those of the system, for a framework beside installed ones        |
| pip:NAME          | releases of a pip package; pip:NAME[extra] the same with an extra            |
| installed:NAME    | an installed framework that nobody asked for and that works                  |
| slot:FILES        | the package that owns these files; two of them never meet in one environment |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.requirement.derive import derive
from cudnn_resolve.requirement.extra import CPU, added, fixes_build
from cudnn_resolve.resolution import framework, package, runtime
from cudnn_resolve.resolution.bound import bound_needs
from cudnn_resolve.resolution.hopeless import Look
from cudnn_resolve.resolution.kept import Kept
from cudnn_resolve.resolution.model import Candidate
from cudnn_resolve.resolution.release import SDIST, Release, parse_requirement, specifier
from cudnn_resolve.resolution.shelf import shelf_of
from cudnn_resolve.resolution.standing import Standing, apt_needs, hold_needs, standing_frameworks

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Need, Request, Target
    from cudnn_resolve.resolution.opened import OpenRequest


class Budget:
    """Steps that are left to all the searches for one answer together."""

    def __init__(self, left: int) -> None:
        self.left = left


class Universe:
    """Candidates and needs for one request on one machine."""

    def __init__(
        self,
        book: Book,
        machine: Machine,
        request: OpenRequest,
        *,
        near: dict[str, str] | None = None,
        wishes: Mapping[str, Sequence[SpecifierSet]] | None = None,
        closed: bool = False,
    ) -> None:
        self.book = book
        self.machine = machine
        self.request = request
        self.near = near or {}
        """Framework to the version whose neighbours are tried first (for relaxations)."""
        self.wishes = wishes or {}
        """Library wheel to specifiers that packages will have for it which are decided after it: its releases are ordered by them, too."""
        self.closed = closed
        """True where a package that the cache knows is one of the releases whose requirements it knows.

        Else it may be left to the installer, or be a release that the tables know though nobody knows what it requires.
        """
        self.is_cut = False
        """True once `closed` left a candidate out."""
        self.budget: Budget | None = None
        """None = each search has its own bound alone."""
        self.shelf = shelf_of(book, machine, request)
        self.chosen: dict[str, Candidate] = {}
        """What the running solve has pinned; only ever used to order candidates."""
        self._candidates: dict[str, Kept[Candidate]] = {}
        self.bad: dict[tuple[str, str], bool] = {}
        """Releases that are to be avoided, as far as that was asked."""
        self.pinning: dict[int, bool] = {}
        """Builds, by identity, that pin their CUDA libraries, as far as that was asked."""
        self._only_bad: bool | None = None
        self._made: dict[tuple[object, ...], Candidate] = {}
        self._needs: dict[int, Kept[Need]] = {}
        self._orders: dict[tuple[object, ...], Kept[Candidate]] = {}
        self.constraints = constraints(request)
        """Package to its constraints (`-c`): the text of each, and its specifier."""
        self._facts = _facts(machine, request)
        self.look = Look(self)
        """What the machine forbids."""

    @cached_property
    def unasked(self) -> tuple[Standing, ...]:
        """Installed frameworks that the request does not name."""
        return standing_frameworks(self)

    @cached_property
    def standing(self) -> tuple[Standing, ...]:
        """Those of them that must go on working."""
        return tuple(one for one in self.unasked if one.works and not one.may_break)

    @cached_property
    def _holds(self) -> dict[str, tuple[Need, ...]]:
        return hold_needs(self)

    def candidates(self, name: str, needs: Sequence[Need]) -> Iterable[Candidate]:
        """Candidates of a package, best first, not yet held against the needs."""
        found = self.unordered(name, needs)
        kind = name.partition(":")[0]
        if kind not in ("cuda", "cudnn", "pip"):
            return found
        line = self.chosen["cuda"].version if "cuda" in self.chosen else None
        key = (name, line, *map(id, needs))
        order = self._orders.get(key)
        if order is None:
            arrange = package.ordered if kind == "pip" else runtime.ordered
            order = self._orders[key] = Kept(iter(arrange(self, found, needs)))
        return order

    def allows(self, release: Release) -> bool:
        """True where the user's constraints admit a release."""
        return all(spec.contains(release.version, prereleases=True) for _, spec in self.constraints.get(release.package, ()))

    def wheels_first(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """The same candidates, those that would be built from source last; but what is installed or locked keeps its place."""
        late = []
        for candidate in candidates:
            release = candidate.payload
            if not isinstance(release, Release) or release.build is not None or release.tags != SDIST or self._is_kept(release):
                yield candidate
            else:
                late.append(candidate)
        yield from late

    def needs_wheel(self, candidate: Candidate) -> bool:
        """True for a candidate that would be built from source although it is of compiled code: any wheel that may be taken is better."""
        release = candidate.payload
        if not isinstance(release, Release) or release.build is not None or release.tags != SDIST or self._is_kept(release):
            return False
        return self.shelf.is_compiled(release.package)

    def _is_kept(self, release: Release) -> bool:
        kept = self.machine.pip.get(release.package), self.request.preferences.get(release.package)
        return release.package in self.request.direct or release.text in kept

    def unordered(self, name: str, needs: Sequence[Need]) -> Iterable[Candidate]:
        """The same in the order in which they were made."""
        kind, _, rest = name.partition(":")
        if name in self._facts:
            return (self._facts[name],)
        if kind == "libraries":
            return tuple(framework.library_candidates(self, name, needs))
        if kind == "installed":
            return (self.once((name,), Candidate(name=name, version="installed", kind="fact", payload=rest)),)
        if kind == "slot":
            owner = str(needs[0].payload)
            return (self.once((name, owner), Candidate(name=name, version=owner, kind="slot", payload=owner)),)
        found = self._candidates.get(name)
        if found is None:
            found = self._candidates[name] = Kept(self._make(name, kind, rest))
        return found

    def root_needs(self, companions: Iterable[str]) -> list[Need]:
        """What must hold whatever is chosen: the user's words, and that installed packages move along."""
        return [*derive(self.request, self.book, self.shelf.applies), *package.companion_needs(self, companions)]

    def needs(self, candidate: Candidate) -> Iterator[Need]:
        """What a candidate needs, facts first, so that a candidate that does not suit the machine is dropped early.

        Worked out as far as it is asked for, and once: a search comes back to the same candidates, and equal needs are one object.
        """
        kept = self._needs.get(id(candidate))
        if kept is None:
            kept = self._needs[id(candidate)] = Kept(self.with_holds(self._needs_of(candidate)))
        return iter(kept)

    def with_holds(self, needs: Iterable[Need]) -> Iterator[Need]:
        """The needs, and with each what installed frameworks need of the same package."""
        for need in needs:
            yield from self._holds.get(need.name, ())
            yield need

    def _needs_of(self, candidate: Candidate) -> Iterator[Need]:
        if candidate.kind == "framework":
            return framework.framework_needs(self, candidate)
        if candidate.kind == "libraries":
            return framework.library_needs(self, candidate)
        if candidate.kind == "cuda":
            return runtime.cuda_needs(self, candidate)
        if candidate.kind == "cudnn":
            held = apt_needs(self, candidate.payload) if candidate.channel == "apt" else ()
            return chain(held, runtime.cudnn_needs(self, candidate))
        if candidate.kind != "pip":
            return iter(())
        if candidate.extras:
            return package.package_needs(self, candidate)
        its_own = framework.build_needs if candidate.payload.build is not None else package.package_needs
        return chain(bound_needs(self, candidate.payload), its_own(self, candidate))

    def fact(self, name: str) -> Candidate | None:
        """The one candidate of a fact; None for any other package of the universe."""
        return self._facts.get(name)

    def target_of(self, framework: str) -> Target | None:
        """The target that asks for a framework; None where nobody does."""
        return next((one for one in self.request.targets if one.framework == framework), None)

    def device_of(self, framework: str) -> str:
        """The device that builds of a framework are wanted for, `gpu` or `cpu`."""
        target = self.target_of(framework)
        return CPU if target is not None and CPU in target.extras else self.request.device

    def fixes_by_extra(self, framework: str) -> bool:
        """True where the user asks for a GPU build of a framework by an extra."""
        target = self.target_of(framework)
        return target is not None and any(fixes_build(self.book, framework, extra) for extra in target.extras)

    def added_extras(self, framework: str) -> tuple[str, ...]:
        """The extras that the user asks for with a framework and that only bring packages."""
        target = self.target_of(framework)
        return added(self.book, target) if target is not None else ()

    def holds(self, framework: str) -> bool:
        """True where the environment has a distribution of the framework and what is installed is preferred."""
        packages = self.book.framework(framework).packages
        return self.request.prefer == "installed" and any(name in self.machine.pip for name in packages)

    def only_bad_cudnn(self) -> bool:
        """True where every cuDNN that the user's limit allows is to be avoided."""
        if self._only_bad is None:
            limit = self.request.cudnn
            allowed = [one for one in self.book.cudnn_builds() if limit is None or limit.specifier.contains(str(one.version))]
            spec = [row.versions for name in _CUDNN_NAMES for row in self.book.advisories(name) if row.action == "avoid"]
            bad = [one for one in allowed if any(_in(text, str(one.version)) for text in spec)]
            self._only_bad = bool(allowed) and len(bad) == len(allowed)
        return self._only_bad

    def once(self, key: tuple[object, ...], candidate: Candidate) -> Candidate:
        """The candidate that was made first for the key."""
        return self._made.setdefault(key, candidate)

    def candidate_of(self, release: Release, extras: tuple[str, ...] = ()) -> Candidate:
        """The candidate of a release."""
        name = package.name_of(release.package, extras)
        return self.once(
            (name, id(release)),
            Candidate(name=name, version=release.text, kind="pip", payload=release, channel="pip", extras=extras, index=release.index),
        )

    def build_candidate(self, build: Build) -> Candidate | None:
        """The pip candidate of a framework's build."""
        for release in self.shelf.releases(build.package):
            if release.build is build:
                return self.candidate_of(release)
        return None

    def _make(self, name: str, kind: str, rest: str) -> Iterator[Candidate]:
        if kind == "framework":
            yield from framework.framework_candidates(self, rest)
        elif kind == "pip":
            yield from package.package_candidates(self, rest)
        elif kind == "cuda":
            yield from runtime.cuda_candidates(self, name)
        elif kind == "cudnn":
            yield from runtime.cudnn_candidates(self, name)


_CUDNN_NAMES = ("cudnn", "nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")


def _in(text: str, version: str) -> bool:
    spec = specifier(text)
    return spec is not None and spec.contains(version, prereleases=True)


def constraints(request: Request) -> dict[str, tuple[tuple[str, SpecifierSet], ...]]:
    """The constraints of a request by the package that they limit."""
    out: dict[str, tuple[tuple[str, SpecifierSet], ...]] = {}
    for extra in request.extras:
        requirement = parse_requirement(extra.text) if extra.constraint else None
        if requirement is not None:
            name = canonicalize_name(requirement.name)
            out[name] = (*out.get(name, ()), (f"{extra.text} ({extra.origin})", requirement.specifier))
    return out


def _facts(machine: Machine, request: Request) -> dict[str, Candidate]:
    """A candidate for each fact; payload None = unknown."""

    def fact(name: str, payload: object, version: str) -> Candidate:
        return Candidate(name=name, version=version, kind="fact", payload=payload)

    python = machine.python_full or "unknown"
    glibc = ".".join(map(str, machine.glibc)) if machine.glibc else "unknown"
    out = [
        fact("driver", machine.driver, str(machine.driver or ("none" if machine.driver_absent else "unknown"))),
        fact("python", machine.python, python),
        fact("arch", machine.arch, machine.arch),
        fact("glibc", machine.glibc, glibc),
        fact("os", machine.os, machine.os or "unknown"),
        fact("root", machine.root, {True: "root", False: "no root", None: "unknown"}[machine.root]),
        fact("index", None, "the configured index"),
        fact("limit:cuda", request.cuda, request.cuda.text if request.cuda else "any"),
        fact("limit:cudnn", request.cudnn, request.cudnn.text if request.cudnn else "any"),
    ]
    out += [fact(f"gpu:{number}", gpu.capability, gpu.label) for number, gpu in enumerate(machine.gpus)]
    return {candidate.name: candidate for candidate in out}
