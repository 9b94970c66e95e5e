"""Where copies of cuDNN lie, which package brought each, and whether the files are still those that it brought."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from cudnn_resolve.facts.cudnn_files import FOLDER, Package, apt_package, conda_package, wheel_package
from cudnn_resolve.facts.model import UNKNOWN, Source
from cudnn_resolve.facts.record import record_rows
from cudnn_resolve.facts.system import debian_arch
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.probe.python import Distribution, TargetEnvironment
from cudnn_resolve.version import CudnnVersion

_BUNDLES = ("torch/lib", "paddle/libs", "mxnet", "cupy/.data/lib", "onnxruntime/capi", "tensorflow", "jaxlib/cuda")
"""Directories of wheels that bring libraries of their own, below site-packages."""
_BELOW = ("", "/lib", "/lib64", "/cuda/lib64", "/cuda/lib", "/cudnn/lib", "/cudnn/lib64", "/nvidia/cudnn/lib")
"""Where the libraries lie below a directory made by hand: NVIDIA's archives of several years, and an unpacked wheel."""
_VARIABLES = ("CUDNN_PATH", "CUDNN_HOME", "CUDNN_ROOT", "CUDNN_ROOT_DIR", "CUDNN_LIB_DIR", "CUDNN_LIBRARY_PATH", "CUDNN_LIBRARY")

WHEEL_DIRECTORY = "nvidia/cudnn/lib"
_BUNDLERS = {"torch": "torch", "paddle": "paddlepaddle", "mxnet": "mxnet", "cupy": "cupy", "onnxruntime": "onnxruntime"}
"""First directory below site-packages to the beginning of the names of the distributions that own it."""


def find_directories(host: Host, environment: TargetEnvironment) -> tuple[str, ...]:
    """List directories that may hold cuDNN: those that the loader searches, then the other usual places."""
    found = (directory.rstrip("/") or "/" for directory in _directories(host, environment) if directory.startswith("/"))
    return tuple(dict.fromkeys(found))


def _directories(host: Host, environment: TargetEnvironment) -> Iterator[str]:
    yield from environment.ld_library_path
    for site in environment.site_packages:
        yield f"{site}/{WHEEL_DIRECTORY}"
        names = host.list_dir(site)
        if FOLDER in names:
            yield f"{site}/{FOLDER}/{WHEEL_DIRECTORY}"
        yield from (f"{site}/nvidia/{name}/lib" for name in host.list_dir(f"{site}/nvidia"))
        yield from (f"{site}/{bundle}" for bundle in _BUNDLES)
        # What a wheel repair tool added beside a package.
        yield from (f"{site}/{name}" for name in names if name.endswith(".libs"))
    # A conda environment, or whatever else has its libraries beside its Python.
    prefix = environment.prefix.rstrip("/")
    if prefix:
        yield f"{prefix}/lib"
        yield from _below_targets(host, prefix)
    yield from (entry.path.rpartition("/")[0] for entry in environment.ldconfig if entry.name.startswith("libcudnn"))
    for root in environment.cuda_directories:
        yield from (f"{root}/lib64", f"{root}/lib", *_below_targets(host, root))
    yield f"/usr/lib/{environment.arch or 'x86_64'}-linux-gnu"
    yield from ("/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib", "/usr/local/cuda/lib64")
    yield from _by_hand(host)
    yield from _cupy(host)


def _below_targets(host: Host, root: str) -> list[str]:
    return [f"{root}/targets/{target}/lib" for target in host.list_dir(f"{root}/targets")]


def _by_hand(host: Host) -> Iterator[str]:
    """`/opt/cudnn-8.9/lib`, `/usr/local/cudnn/lib64`, `~/cudnn/lib`, and what a variable names (a library, too)."""
    home = host.environ.get("HOME", "").rstrip("/")
    roots = [f"/opt/{name}" for name in host.list_dir("/opt")]
    roots += [f"/usr/local/{name}" for name in host.list_dir("/usr/local") if "cudnn" in name.lower()]
    if home:
        roots += [f"{home}/{name}" for name in host.list_dir(home) if name.lower().startswith(("cudnn", "cuda"))]
    for variable in _VARIABLES:
        named = host.environ.get(variable, "").rstrip("/")
        if named:
            roots.append(named.rpartition("/")[0] if ".so" in named.rpartition("/")[2] else named)
    for root in roots:
        for below in _BELOW:
            yield f"{root}{below}"


def _cupy(host: Host) -> Iterator[str]:
    """Where `cupyx.tools.install_library` puts it: `~/.cupy/cuda_lib/<CUDA>/cudnn/<cuDNN>/lib`."""
    home = host.environ.get("HOME", "").rstrip("/")
    root = host.environ.get("CUPY_CUDA_LIB_PATH") or (f"{home}/.cupy/cuda_lib" if home else "")
    if not root:
        return
    for cuda in host.list_dir(root):
        for version in host.list_dir(f"{root}/{cuda}/cudnn"):
            yield f"{root}/{cuda}/cudnn/{version}/lib"
            yield f"{root}/{cuda}/cudnn/{version}/lib64"


# --- who brought it ---


class Owner(Struct, frozen=True, kw_only=True):
    """Who brought the libraries in a directory."""

    source: Source
    name: str | None = None
    """`nvidia-cudnn-cu12`; None = nobody that is known."""
    package: Package | None = None
    """None where the owner is no package of cuDNN, but for example a framework."""
    changed: tuple[str, ...] = ()
    """Files that differ from those of the package."""
    removed: tuple[str, ...] = ()
    """Libraries of the package that are missing."""

    @property
    def label(self) -> str:
        """Name and version, for messages."""
        return f"{self.name} {self.package.version}" if self.package else (self.name or "nobody")


def find_owners(host: Host, environment: TargetEnvironment, directory: str, soname: int) -> tuple[Owner, ...]:
    """Find every package that claims the copy with this soname in `directory` (links resolved).

    More than one is a fault of the environment: wheels for two CUDA majors own the same paths.
    """
    for step in (_wheels, _bundlers, _conda, _apt):
        found = tuple(one for one in step(host, environment, directory) if one.package is None or one.package.soname == soname)
        if found:
            return found
    return ()


def choose_owner(owners: tuple[Owner, ...], version: CudnnVersion | None, cuda: str | None) -> Owner:
    """Choose the owner whose records and version agree best with what the library says."""

    def disagreement(owner: Owner) -> tuple[bool, int, bool]:
        package = owner.package
        wrong_version = package is not None and version is not None and not same_release(package.version, version)
        wrong_cuda = package is not None and None not in (package.cuda, cuda) and package.cuda != cuda
        return wrong_version, len(owner.changed) + len(owner.removed), wrong_cuda

    return min(owners, key=disagreement, default=Owner(source="other"))


def same_release(one: CudnnVersion, other: CudnnVersion) -> bool:
    """True where the first three numbers are equal: libraries do not tell the fourth."""
    return (*one.parts, 0, 0)[:3] == (*other.parts, 0, 0)[:3]


def _wheels(host: Host, environment: TargetEnvironment, directory: str) -> Iterator[Owner]:
    for distribution in environment.distributions:
        package = wheel_package(distribution.name, distribution.version)
        if package is None or host.realpath(f"{distribution.location}/{WHEEL_DIRECTORY}") != directory:
            continue
        changed, removed = _compare(host, distribution)
        yield Owner(source="pip", name=distribution.name, package=package, changed=changed, removed=removed)


def _compare(host: Host, distribution: Distribution) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of libraries whose size differs from the wheel's RECORD, and of those that are missing."""
    changed, removed = [], []
    for path, _, size in record_rows(host.read_text(f"{distribution.metadata}/RECORD") or ""):
        if path.startswith(f"{WHEEL_DIRECTORY}/libcudnn") and size is not None:
            there = host.stat(f"{distribution.location}/{path}")
            if there is None:
                removed.append(path.rpartition("/")[2])
            elif there.size != size:
                changed.append(path.rpartition("/")[2])
    return tuple(changed), tuple(removed)


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
