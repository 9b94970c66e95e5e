"""The universe of one resolution: it holds a kind for each sort of package, which knows the candidates and what each of them needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cudnn_resolve.requirement.target import accepts
from cudnn_resolve.resolution.age import age_needs
from cudnn_resolve.resolution.build import Builds, Libraries
from cudnn_resolve.resolution.candidate import Candidate, Fact, Kind, LazyList, Need, SlotCandidate, WheelCandidate
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.cuda import CudaRuntimes
from cudnn_resolve.resolution.cudnn import CudnnLibraries
from cudnn_resolve.resolution.framework import Frameworks, target_need
from cudnn_resolve.resolution.hopeless import Look
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
from cudnn_resolve.resolution.lessons import Lessons
from cudnn_resolve.resolution.package import PipPackages, asked_need, companion_needs

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request, Target
    from cudnn_resolve.resolution.open_request import Budget


class Slots(Kind[SlotKey, SlotCandidate]):
    """Slots: the one candidate is the owner that the first need wants, so that another one finds nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._owned: dict[tuple[SlotKey, str], tuple[SlotCandidate]] = {}

    def candidates(self, key: SlotKey, needs: Sequence[Need]) -> Iterable[SlotCandidate]:
        """Return the owner that the first need wants."""
        owner = needs[0].owner or ""
        found = self._owned.get((key, owner))
        if found is None:
            found = self._owned[key, owner] = (SlotCandidate(key=key, version=owner),)
        return found


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
            *(Fact(key=GpuKey(number), value=gpu.capability, version=gpu.label) for number, gpu in enumerate(machine.gpus)),
        ]
        self.by_key = {fact.key: fact for fact in facts}

    def candidates(self, key: Key, needs: Sequence[Need]) -> Iterable[Fact[Any]]:  # noqa: ARG002
        """Return the one fact."""
        return (self.by_key[key],)


class Universe:
    """Candidates and needs for one request on one machine."""

    def __init__(self, context: Context, budget: Budget | None = None) -> None:
        self.context = context
        self.book = context.book
        self.machine = context.machine
        self.request = context.request
        self.budget = budget
        """None = each search has its own bound alone."""
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
        self.lessons = Lessons()
        self._needs: dict[int, LazyList[Need]] = {}
        self.look = Look(self)
        """What the machine forbids."""

    def _kind(self, key: Key) -> Kind[Any, Any]:
        return self._kinds.get(type(key), self._facts)

    def candidates(self, key: Key, needs: Sequence[Need]) -> Iterable[Any]:
        """Return the candidates of a package, best first, not yet held against the needs."""
        return self._kind(key).ordered(key, needs)

    def unordered(self, key: Key, needs: Sequence[Need] = ()) -> Iterable[Any]:
        """Return the same in the order in which they are made."""
        return self._kind(key).candidates(key, needs)

    def root_needs(self, companions: Iterable[str]) -> list[Need]:
        """What must hold whatever is chosen: the user's words, and that installed packages move along."""
        extras = (one for one in self.request.requirements if not one.constraint and self.context.metadata.applies(one.text))
        return [
            *(target_need(target, self.book) for target in self.request.targets),
            *(asked_need(extra, self.context) for extra in extras),
            *companion_needs(self.context, companions),
            *age_needs(self.context, self.newest),
        ]

    def newest(self, target: Target) -> Build | None:
        """The first build that a target accepts and the machine allows."""
        candidates = self.unordered(FrameworkKey(target.framework))
        usable = (one.build for one in candidates if accepts(target, one.build, self.context.book) and not self.look.met(one))
        return next(usable, None)

    def needs(self, candidate: Candidate) -> Iterator[Need]:
        """What a candidate needs, facts first, so that one that does not suit the machine is dropped early.

        Worked out as far as it is asked for, and once: a search comes back to the same candidates, and equal needs are one object.
        """
        found = self._needs.get(id(candidate))
        if found is None:
            if isinstance(candidate, WheelCandidate):
                needs = self.builds.wheel_needs(candidate)
            else:
                needs = self._kind(candidate.key).needs(candidate)
            found = self._needs[id(candidate)] = LazyList(self.with_held(needs))
        return iter(found)

    def with_held(self, needs: Iterable[Need]) -> Iterator[Need]:
        """The needs, and with each what installed frameworks need of the same package."""
        held = self.installed.held
        for need in needs:
            yield from held.get(need.key, ())
            yield need

    def fact(self, key: Key) -> Candidate | None:
        """The one candidate of a fact; None for any other package of the universe."""
        return self._facts.by_key.get(key)
