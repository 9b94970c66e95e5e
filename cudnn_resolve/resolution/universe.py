"""The universe of a resolution: one kind for each sort of package, which makes the candidates and knows their needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request, Target
from cudnn_resolve.requirement.target import accepts
from cudnn_resolve.resolution.age_limit import age_needs
from cudnn_resolve.resolution.build import Builds, Libraries
from cudnn_resolve.resolution.candidate import (
    BuildCandidate,
    Candidate,
    Fact,
    Kind,
    LazyList,
    Need,
    PipCandidate,
    SlotCandidate,
    WheelCandidate,
)
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.cuda import CudaRuntimes
from cudnn_resolve.resolution.cudnn import CudnnLibraries
from cudnn_resolve.resolution.framework import Frameworks, target_need
from cudnn_resolve.resolution.installed import InstalledFrameworks
from cudnn_resolve.resolution.key import (
    ARCH,
    CUDA_LIMIT,
    CUDNN_LIMIT,
    DRIVER,
    GLIBC,
    INDEX,
    PYTHON,
    ROOT,
    UPLOAD_LIMIT,
    CudaKey,
    CudnnKey,
    FrameworkKey,
    GpuKey,
    InstalledKey,
    Key,
    LibrariesKey,
    PipKey,
    SlotKey,
)
from cudnn_resolve.resolution.model import Failure, Rejection
from cudnn_resolve.resolution.package import PipPackages, companion_needs, file_needs, line_need
from cudnn_resolve.resolution.search_memory import SearchMemory


class Slots(Kind[SlotKey, SlotCandidate]):
    """Slots: the only candidate is the owner that the first need names, so that another owner finds none."""

    def __init__(self) -> None:
        super().__init__()
        self._owned: Callable[[SlotKey, str], tuple[SlotCandidate]] = cache(lambda key, owner: (SlotCandidate(key=key, version=owner),))

    def candidates(self, key: SlotKey, needs: Sequence[Need]) -> Iterable[SlotCandidate]:
        """The owner that the first need names."""
        return self._owned(key, needs[0].owner or "")


class FactCandidates(Kind[Key, Fact[Any]]):
    """Facts of the machine and limits of the user: one candidate each."""

    def __init__(self, machine: Machine, request: Request) -> None:
        super().__init__()
        root = {True: "root", False: "no root", None: "unknown"}[machine.root]
        glibc = ".".join(map(str, machine.glibc)) if machine.glibc else "unknown"
        driver = machine.user_driver
        facts: list[Fact[Any]] = [
            Fact(key=DRIVER, value=driver, version=str(driver or ("none" if machine.driver_absent else "unknown"))),
            Fact(key=PYTHON, value=machine.python, version=machine.python_full or "unknown"),
            Fact(key=ARCH, value=machine.arch, version=machine.arch),
            Fact(key=GLIBC, value=machine.glibc, version=glibc),
            Fact(key=ROOT, value=machine.root, version=root),
            Fact(key=INDEX, value=None, version="the configured index"),
            Fact(key=CUDA_LIMIT, value=request.cuda, version=request.cuda.text if request.cuda else "any"),
            Fact(key=CUDNN_LIMIT, value=request.cudnn, version=request.cudnn.text if request.cudnn else "any"),
            Fact(key=UPLOAD_LIMIT, value=None, version="--exclude-newer"),
            *(Fact(key=GpuKey(number), value=gpu.capability, version=gpu.label) for number, gpu in enumerate(machine.gpus)),
        ]
        self.by_key = {fact.key: fact for fact in facts}

    def candidates(self, key: Key, needs: Sequence[Need]) -> Iterable[Fact[Any]]:  # noqa: ARG002
        """The fact."""
        return (self.by_key[key],)


class Universe:
    """Candidates and needs for one request on one machine."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.book = context.book
        self.machine = context.machine
        self.request = context.request
        self.installed = InstalledFrameworks(context)
        self.packages = PipPackages(context)
        runtimes = CudaRuntimes(context)
        self.builds = Builds(context, self.packages, runtimes, self.installed)
        self._facts = FactCandidates(context.machine, context.request)
        self._kinds: dict[type[Key], Kind[Any, Any]] = {
            FrameworkKey: Frameworks(self.builds),
            LibrariesKey: Libraries(self.builds),
            CudaKey: runtimes,
            CudnnKey: CudnnLibraries(context, self.installed),
            PipKey: self.packages,
            InstalledKey: self.installed,
            SlotKey: Slots(),
        }
        self.memory = SearchMemory()
        self._needs: Callable[[Candidate], LazyList[Need]] = cache(self._make_needs)
        self.machine_filter = MachineFilter(self)

    def _kind(self, key: Key) -> Kind[Any, Any]:
        return self._kinds.get(type(key), self._facts)

    def candidates(self, key: Key, needs: Sequence[Need]) -> Iterable[Any]:
        """Candidates of a package, best first, not yet filtered by the needs."""
        return self._kind(key).ordered(key, needs)

    def unordered(self, key: Key, needs: Sequence[Need] = ()) -> Iterable[Any]:
        """The same candidates in the order in which they are made."""
        return self._kind(key).candidates(key, needs)

    def root_needs(self, companions: Iterable[str]) -> list[Need]:
        """Needs of the request, and of installed companions that move along."""
        lines = (line for line in self.request.requirements if not line.constraint and self.context.metadata.applies(line.requirement))
        return [
            *(target_need(target, self.book) for target in self.request.targets),
            *(line_need(line, self.context) for line in lines),
            *companion_needs(self.context, companions),
            *age_needs(self.context, self.newest),
        ]

    def accepted(self, target: Target) -> Iterator[BuildCandidate]:
        """Builds that a target accepts, best first."""
        candidates = self.unordered(FrameworkKey(target.framework))
        return (candidate for candidate in candidates if accepts(target, candidate.build, self.book))

    def newest(self, target: Target) -> Build | None:
        """The first build that a target accepts and the machine allows."""
        return next((candidate.build for candidate in self.accepted(target) if not self.machine_filter.rejections(candidate)), None)

    def needs(self, candidate: Candidate) -> Iterator[Need]:
        """Needs of a candidate, facts first, so that one that does not suit the machine is dropped early.

        Computed lazily and once: a search returns to the same candidates, and compares needs by identity.
        """
        return iter(self._needs(candidate))

    def _make_needs(self, candidate: Candidate) -> LazyList[Need]:
        if isinstance(candidate, WheelCandidate):
            return LazyList(self.with_held(self.builds.wheel_needs(candidate)))
        return LazyList(self.with_held(self._kind(candidate.key).needs(candidate)))

    def with_held(self, needs: Iterable[Need]) -> Iterator[Need]:
        """Add to each need those of installed frameworks on the same package."""
        held = self.installed.held
        for need in needs:
            yield from held.get(need.key, ())
            yield need

    def fact(self, key: Key) -> Candidate | None:
        """The candidate of a fact; None for any other package."""
        return self._facts.by_key.get(key)

    def allows(self, need: Need) -> bool:
        """False if a fact or a limit does not meet a need."""
        fact = self.fact(need.key)
        return fact is None or need.test(fact)


class MachineFilter:
    """What the machine alone rejects, known before a search: a package of which no release has a file that could work.

    It checks the candidates that the root needs allow, and the requirements of their wheels in turn. The first candidate without a
    rejection ends the check, so a request with an answer costs next to nothing.
    """

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._rejections: dict[int, list[Rejection]] = {}
        self._first_allowed: Callable[[Key], tuple[Candidate | None, list[Rejection]]] = cache(self._find_first_allowed)
        self._by_test: dict[object, list[Rejection]] = {}
        """Rejections of required packages by the test of the need: hundreds of builds have the same requirements."""

    def failure(self, needs: Sequence[Need]) -> Failure | None:
        """The failure of a request if the machine rejects every allowed release of some package."""
        by_key: dict[Key, list[Need]] = {}
        for need in needs:
            if isinstance(need.key, (FrameworkKey, PipKey)):
                by_key.setdefault(need.key, []).append(need)
        for key, of_key in by_key.items():
            rejections = self.rejections_of_package(key, of_key)
            if rejections:
                unique = {(id(rejection.candidate), rejection.about): rejection for rejection in rejections}  # builds share requirements
                return Failure(rejections=tuple(unique.values()), causes=(), rounds=0)
        return None

    def rejections_of_package(self, key: Key, needs: Sequence[Need]) -> list[Rejection]:
        """Rejections of the candidates that the needs allow; empty if one of them has none, or if there is no candidate."""
        found: list[Rejection] = []
        for candidate in self._universe.unordered(key, needs):
            if all(need.test(candidate) for need in needs):
                rejections = self.rejections(candidate)
                if not rejections:
                    return []
                found += rejections
        return found

    def rejections(self, candidate: Candidate) -> list[Rejection]:
        """Rejections of a candidate: a fact, or for a framework's build a rejected required package; empty if it is allowed."""
        known = self._rejections.get(id(candidate))
        if known is None:
            need = self._unmet_need(candidate)
            if need is not None:
                known = [Rejection(candidate, need)]
            else:
                known = self._rejections_of_requirements(candidate) if isinstance(candidate, BuildCandidate) else []
            self._rejections[id(candidate)] = known
        return known

    def all_rejections(self) -> Iterator[Rejection]:
        """Rejections of every candidate checked so far."""
        for rejections in self._rejections.values():
            yield from rejections

    def _unmet_need(self, candidate: Candidate) -> Need | None:
        """First need of a candidate that a fact does not meet."""
        if isinstance(candidate, BuildCandidate):
            needs = self._universe.needs(candidate)
        elif isinstance(candidate, PipCandidate) and candidate.release is not None:
            needs = file_needs(self._universe.context, candidate.release, f"{candidate.release.package} {candidate.release.text}")
        else:
            return None
        return next((need for need in needs if not self._universe.allows(need)), None)

    def _rejections_of_requirements(self, candidate: BuildCandidate) -> list[Rejection]:
        """Rejections of the first package that a build's wheel requires and of which every release is rejected."""
        wheel = self._universe.packages.wheel_of(candidate.build)
        for need in self._universe.needs(wheel) if wheel is not None else ():
            rejections = self._rejections_under(need) if isinstance(need.key, PipKey) else []
            if rejections:
                return rejections
        return []

    def _rejections_under(self, need: Need) -> list[Rejection]:
        """Rejections of the releases that a need allows; empty if one of them has none, or if there is no release."""
        found = self._by_test.get(need.test_key)
        if found is None:
            found = []
            # Most needs allow a release that fits; the newest, which a need may exclude, are read only if none does.
            if not any(need.test(candidate) and not self.rejections(candidate) for candidate in self._universe.unordered(need.key)):
                allowed, rejections = self._first_allowed(need.key)
                found = rejections if allowed is None else self.rejections_of_package(need.key, [need])
            if need.test_key is not None:
                self._by_test[need.test_key] = found
        return found

    def _find_first_allowed(self, key: Key) -> tuple[Candidate | None, list[Rejection]]:
        """The first candidate of a package without a rejection, and the rejections of those before it."""
        found: list[Rejection] = []
        for candidate in self._universe.unordered(key):
            rejections = self.rejections(candidate)
            if not rejections:
                return candidate, found
            found += rejections
        return None, found
