"""Which package brought a copy of cuDNN, and whether the files are still those that it brought."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from cudnn_resolve.facts.cudnn_files import Package, apt_package, conda_package, parse_record, wheel_package
from cudnn_resolve.facts.dpkg import debian_arch
from cudnn_resolve.facts.model import UNKNOWN
from cudnn_resolve.host.port import Host
from cudnn_resolve.probe.environment import Distribution, TargetEnvironment
from cudnn_resolve.version import CudnnVersion

WHEEL_DIRECTORY = "nvidia/cudnn/lib"
_BUNDLERS = {"torch": "torch", "paddle": "paddlepaddle", "mxnet": "mxnet", "cupy": "cupy", "onnxruntime": "onnxruntime"}
"""First directory below site-packages to the beginning of the names of the distributions that own it."""


class Owner(Struct, frozen=True, kw_only=True):
    """Who brought the libraries in a directory."""

    source: str
    """`pip`, `apt`, `conda` or `other`."""
    name: str | None = None
    """`nvidia-cudnn-cu12`; None = nobody that is known."""
    package: Package | None = None
    """None where the owner is no package of cuDNN, but for example a framework."""
    strange: tuple[str, ...] = ()
    """Files that are not those which the package brought."""
    gone: tuple[str, ...] = ()
    """Libraries that it brought and that are not there any more."""

    @property
    def label(self) -> str:
        """Name and version, for messages."""
        return f"{self.name} {self.package.version}" if self.package else (self.name or "nobody")


def find_owners(host: Host, environment: TargetEnvironment, directory: str, soname: int) -> tuple[Owner, ...]:
    """Everybody who claims the copy with this soname in `directory` (links resolved); empty where nobody does.

    More than one is a fault of the environment: wheels for two CUDA majors own the same paths.
    """
    for step in (_wheels, _bundlers, _conda, _apt):
        found = tuple(one for one in step(host, environment, directory) if one.package is None or one.package.soname == soname)
        if found:
            return found
    return ()


def choose_owner(owners: tuple[Owner, ...], version: CudnnVersion | None, cuda: str | None) -> Owner:
    """The owner whose files lie there: the one whose records and version agree best with what the library says."""

    def disagreement(owner: Owner) -> tuple[bool, int, bool]:
        package = owner.package
        wrong_version = package is not None and version is not None and not same_release(package.version, version)
        wrong_cuda = package is not None and None not in (package.cuda, cuda) and package.cuda != cuda
        return wrong_version, len(owner.strange) + len(owner.gone), wrong_cuda

    return min(owners, key=disagreement, default=Owner(source="other"))


def same_release(one: CudnnVersion, other: CudnnVersion) -> bool:
    """True where the first three numbers are equal: libraries do not tell the fourth."""
    return (*one.parts, 0, 0)[:3] == (*other.parts, 0, 0)[:3]


def _wheels(host: Host, environment: TargetEnvironment, directory: str) -> Iterator[Owner]:
    for distribution in environment.distributions:
        package = wheel_package(distribution.name, distribution.version)
        if package is None or host.realpath(f"{distribution.location}/{WHEEL_DIRECTORY}") != directory:
            continue
        strange, gone = _compare(host, distribution)
        yield Owner(source="pip", name=distribution.name, package=package, strange=strange, gone=gone)


def _compare(host: Host, distribution: Distribution) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of libraries of another size than the wheel recorded, and of those that are gone."""
    record = parse_record(host.read_text(f"{distribution.metadata}/RECORD") or "")
    strange, gone = [], []
    for path, size in record.items():
        if path.startswith(f"{WHEEL_DIRECTORY}/libcudnn"):
            there = host.stat(f"{distribution.location}/{path}")
            if there is None:
                gone.append(path.rpartition("/")[2])
            elif there.size != size:
                strange.append(path.rpartition("/")[2])
    return tuple(strange), tuple(gone)


def _bundlers(host: Host, environment: TargetEnvironment, directory: str) -> Iterator[Owner]:
    """A framework whose wheel holds the libraries: below its own directory, or in the `.libs` beside it."""
    for site in environment.site_packages:
        inside = directory.removeprefix(f"{host.realpath(site).rstrip('/')}/")
        if inside == directory:
            continue
        first = inside.partition("/")[0]
        begin = _BUNDLERS.get(first) or (first.removesuffix(".libs").replace("_", "-").lower() if first.endswith(".libs") else None)
        names = [one.name for one in environment.distributions if begin and one.name.startswith(begin)]
        names.sort(key=lambda name: (name != begin, name))
        yield Owner(source="pip", name=names[0] if names else None)


def _conda(host: Host, environment: TargetEnvironment, directory: str) -> Iterator[Owner]:
    prefix = environment.prefix.rstrip("/")
    if not prefix or not directory.startswith(f"{host.realpath(prefix)}/"):
        return
    for file in host.list_dir(f"{prefix}/conda-meta"):
        package = conda_package(file)
        if package is not None:
            yield Owner(source="conda", name=package.name, package=package)


def _apt(host: Host, environment: TargetEnvironment, directory: str) -> Iterator[Owner]:
    if environment.apt is UNKNOWN:
        return
    installed: Mapping[str, str] = environment.apt
    for name, version in installed.items():
        package = apt_package(name, version)
        if package is not None and directory in _apt_directories(host, name, environment.arch):
            yield Owner(source="apt", name=name, package=package)


def _apt_directories(host: Host, package: str, arch: str | None) -> set[str]:
    """Directories of a package's libraries; where its list is not there, those that NVIDIA's packages use."""
    debian = debian_arch(arch) or "amd64"
    for name in (f"{package}:{debian}", package):
        listed = host.read_text(f"/var/lib/dpkg/info/{name}.list")
        if listed is not None:
            files = (line.rpartition("/") for line in listed.splitlines() if "/libcudnn" in line)
            return {host.realpath(folder) for folder, _, _ in files}
    return {host.realpath(f"/usr/lib/{arch or 'x86_64'}-linux-gnu")}
