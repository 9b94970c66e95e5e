"""The frameworks of an environment, each with what the facts and the matrix know of its build."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.facts.model import Facts, InstalledFramework, Unknown, WouldLoad, or_none
from cudnn_resolve.resolution.release import declared
from cudnn_resolve.version import CodeTarget, CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build

CPU_PACKAGES = frozenset({"tensorflow-cpu", "paddlepaddle", "onnxruntime"})
"""Packages without CUDA, of which the one with CUDA has another name."""

_RELEASE = re.compile(r"\d{1,6}\.\d{1,6}(?:\.\d{1,6})?")


class Installed(Struct, frozen=True, kw_only=True):
    """One framework that is installed."""

    name: str
    version: str
    cuda: CudaVersion | None = None
    cudnn: CudnnVersion | None = None
    others: tuple[tuple[CudaVersion | None, CudnnVersion | None], ...] = ()
    """CUDA and cuDNN of further builds that it can be, where neither the facts nor its version say which."""
    targets: tuple[CodeTarget, ...] = ()
    delivery: str = "none"
    would_load: WouldLoad | None = None
    requires: tuple[str, ...] = ()
    is_cpu: bool = False
    """True for a build that is known to have no CUDA in it."""
    is_wheel: bool = False
    """True where it may well be the wheel that the tables know, as far as the facts say."""

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"


def installed_of(facts: Facts, book: Book) -> tuple[Installed, ...]:
    """The frameworks of these facts; from the package list alone where nobody looked into their files."""
    pip = or_none(facts.packages.pip) or {}
    told = {one.name: one for one in (() if isinstance(facts.frameworks, Unknown) else facts.frameworks)}
    out = []
    for name in dict.fromkeys((*told, *(one for one in pip if book.framework_of(one) is not None))):
        version = told[name].version if name in told else pip[name]
        out.append(_installed(facts, book, name, version, told.get(name)))
    return tuple(out)


def _installed(facts: Facts, book: Book, name: str, version: str, told: InstalledFramework | None) -> Installed:
    told_cuda, told_cudnn = _cuda(told.cuda_built if told else None), _cudnn(told.cudnn_built if told else None)
    builds = [one for one in _builds(book, name, version, told.variant if told else None) if _is_for(one, facts)]
    alike = [one for one in builds if _is_built_so(one, told_cuda, told_cudnn)]
    is_other = bool(builds) and not alike  # another build of that version, of which the tables know nothing
    builds = alike or builds
    build = builds[0] if builds else None
    is_cpu = _is_cpu(name, version, told, or_none(facts.packages.pip) or {})
    cuda = told_cuda or (build.cuda if build and not is_cpu else None)
    pip = or_none(facts.packages.pip) or {}
    if (
        name in ("jax", "jaxlib")
        and not any(one.startswith(("jax-cuda", "jax-rocm")) for one in pip)
        and "+cuda" not in pip.get("jaxlib", "")
    ):
        cuda, build = None, None
    arch = facts.platform.arch
    targets = () if build is None else build.targets_aarch64 if arch == "aarch64" and build.targets_aarch64 else build.targets
    return Installed(
        name=name,
        version=version,
        cuda=cuda,
        cudnn=_finer(told_cudnn, build.cudnn if build and not is_other and not is_cpu else None),
        others=() if told_cuda is not None else tuple((one.cuda, one.cudnn) for one in builds[1:]),
        targets=targets if cuda is not None else (),
        is_wheel=build is not None and not is_other and not is_cpu and facts.platform.system in (None, "linux"),
        delivery=build.delivery if build else "none",
        would_load=told.would_load if told else None,
        requires=facts.packages.requires.get(name) or _declared(book, facts, builds, name, version),
        is_cpu=is_cpu,
    )


def _builds(book: Book, name: str, version: str, variant: str | None) -> list[Build]:
    """The builds that it can be, the likeliest first."""
    framework = book.framework_of(name)
    if framework is None:
        return []
    public, _, local = version.partition("+")
    every = [one for one in book.framework(framework).builds if one.package == name]
    found = [one for one in every if one.version == public] or _of_same_minor(every, public)
    exact = [
        one for one in found if (variant and one.variant == variant) or (local and one.variant == local) or one.wheel_version == version
    ]
    if (local and not exact) or variant == "cpu":
        return [one for one in exact if one.cuda is None]
    some = exact or found
    return sorted(some, key=lambda one: one.index != "default" or one.cuda is None)


def _of_same_minor(every: list[Build], public: str) -> list[Build]:
    """For a patch release that the tables do not have: the builds of another one of its minor, where all of them are alike."""
    minor = public.split(".")[:2]
    near = [one for one in every if one.version.split(".")[:2] == minor] if _RELEASE.fullmatch(public) else []
    kinds: dict[str, set[tuple[object, ...]]] = {}
    for one in near:
        kinds.setdefault(one.version, set()).add((one.variant, one.index, one.cuda, one.cudnn, one.delivery))
    alike = all(kind == kinds[near[0].version] for kind in kinds.values())
    return [one for one in near if one.version == near[0].version] if near and alike else []


def _is_for(build: Build, facts: Facts) -> bool:
    """False for a build that is for another architecture."""
    arch = facts.platform.arch
    return arch is None or arch in (build.arch or (arch,))


def _is_built_so(build: Build, cuda: CudaVersion | None, cudnn: CudnnVersion | None) -> bool:
    """True where a build has the CUDA and the cuDNN that a framework says of itself, as far as it does."""
    if cuda is not None and (build.cuda is None or build.cuda.parts[: min(2, len(cuda.parts))] != cuda.parts[:2]):
        return False
    return cudnn is None or build.cudnn is None or cudnn.major == build.cudnn.major


def _finer(told: CudnnVersion | None, known: CudnnVersion | None) -> CudnnVersion | None:
    """What it was built with: as it says itself, or more exactly where the tables know the same major."""
    return known if told is None or (known is not None and len(told.parts) == 1) else told


def _declared(book: Book, facts: Facts, builds: list[Build], name: str, version: str) -> tuple[str, ...]:
    """What the wheel of that version requires, extras apart, as far as the matrix knows it; where it may be one of several, what all do."""
    package = book.package(name)
    public, _, local = version.partition("+")
    release = next((one for one in package.releases if one.version == public), None) if package else None
    arch = facts.platform.arch or "x86_64"
    harvested = (release.requires or {}).get(arch) or (release.requires or {}).get("x86_64") if release else None
    python = "".join(("cp", *(facts.python.version or "").split(".")[:2]))
    fit = [one for one in builds if arch in (one.arch or (arch,)) and (python in (one.pythons or (python,)) or python == "cp")]
    some = [declared(one.requires, one.requires_like, harvested) or () for one in (fit if local else fit[:1])]
    first, *others = some or [() if local else harvested or ()]
    plain = [{_plain(line) for line in lines} for lines in others]
    return tuple(line for line in first if "extra ==" not in line and all(_plain(line) in one for one in plain))


def _plain(line: str) -> str:
    """A requirement without its marker."""
    return line.partition(";")[0].strip()


def _is_cpu(name: str, version: str, told: InstalledFramework | None, pip: object) -> bool:
    if told is not None and told.variant is not None:
        return told.variant == "cpu"
    if version.endswith("+cpu") or name in CPU_PACKAGES:
        return True
    packages = dict(pip)  # type: ignore[call-overload]
    plain = not any(one.startswith(("jax-cuda", "jax-rocm")) for one in packages) and "+cuda" not in packages.get("jaxlib", "")
    return name == "jaxlib" and plain


def _cuda(text: str | None) -> CudaVersion | None:
    try:
        return CudaVersion(text) if text else None
    except ValueError:
        return None


def _cudnn(text: str | None) -> CudnnVersion | None:
    try:
        return CudnnVersion(text) if text and ("." in text or len(text) < 3) else None
    except ValueError:
        return None
