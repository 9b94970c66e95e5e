"""Directories that may hold cuDNN, the packages that own its copies, and whether the files are still those of the package."""

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
"""Directories of wheels with bundled libraries, below site-packages."""
_BELOW = ("", "/lib", "/lib64", "/cuda/lib64", "/cuda/lib", "/cudnn/lib", "/cudnn/lib64", "/nvidia/cudnn/lib")
"""Library directories below a manual installation: NVIDIA's archives of several years, and an unpacked wheel."""
_VARIABLES = ("CUDNN_PATH", "CUDNN_HOME", "CUDNN_ROOT", "CUDNN_ROOT_DIR", "CUDNN_LIB_DIR", "CUDNN_LIBRARY_PATH", "CUDNN_LIBRARY")

WHEEL_DIRECTORY = "nvidia/cudnn/lib"
_BUNDLERS = {"torch": "torch", "paddle": "paddlepaddle", "mxnet": "mxnet", "cupy": "cupy", "onnxruntime": "onnxruntime"}
"""Top-level directory in site-packages to the name prefix of the distributions that own it."""


def find_directories(host: Host, environment: TargetEnvironment) -> tuple[str, ...]:
    """List directories that may hold cuDNN: the loader's search path first, then other usual places."""
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
        # Added beside a package by a wheel repair tool.
        yield from (f"{site}/{name}" for name in names if name.endswith(".libs"))
    # A conda environment, or any other that has its libraries beside its Python.
    prefix = environment.prefix.rstrip("/")
    if prefix:
        yield f"{prefix}/lib"
        yield from _below_targets(host, prefix)
    yield from (entry.path.rpartition("/")[0] for entry in environment.ldconfig if entry.name.startswith("libcudnn"))
    for root in environment.cuda_directories:
        yield from (f"{root}/lib64", f"{root}/lib", *_below_targets(host, root))
    yield f"/usr/lib/{environment.arch or 'x86_64'}-linux-gnu"
    yield from ("/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib", "/usr/local/cuda/lib64")
    yield from _manual_directories(host)
    yield from _cupy(host)


def _below_targets(host: Host, root: str) -> list[str]:
    return [f"{root}/targets/{target}/lib" for target in host.list_dir(f"{root}/targets")]


def _manual_directories(host: Host) -> Iterator[str]:
    """`/opt/cudnn-8.9/lib`, `/usr/local/cudnn/lib64`, `~/cudnn/lib`, and variables that name a directory or a library."""
    home = host.environ.get("HOME", "").rstrip("/")
    roots = [f"/opt/{name}" for name in host.list_dir("/opt")]
    roots += [f"/usr/local/{name}" for name in host.list_dir("/usr/local") if "cudnn" in name.lower()]
    if home:
        roots += [f"{home}/{name}" for name in host.list_dir(home) if name.lower().startswith(("cudnn", "cuda"))]
    for variable in _VARIABLES:
        path = host.environ.get(variable, "").rstrip("/")
        if path:
            roots.append(path.rpartition("/")[0] if ".so" in path.rpartition("/")[2] else path)
    for root in roots:
        for below in _BELOW:
            yield f"{root}{below}"


def _cupy(host: Host) -> Iterator[str]:
    """Target of `cupyx.tools.install_library`: `~/.cupy/cuda_lib/<CUDA>/cudnn/<cuDNN>/lib`."""
    home = host.environ.get("HOME", "").rstrip("/")
    root = host.environ.get("CUPY_CUDA_LIB_PATH") or (f"{home}/.cupy/cuda_lib" if home else "")
    if not root:
        return
    for cuda in host.list_dir(root):
        for version in host.list_dir(f"{root}/{cuda}/cudnn"):
            yield f"{root}/{cuda}/cudnn/{version}/lib"
            yield f"{root}/{cuda}/cudnn/{version}/lib64"


# --- owners ---


class Owner(Struct, frozen=True, kw_only=True):
    """Owner of the libraries in a directory."""

    source: Source
    name: str | None = None
    """`nvidia-cudnn-cu12`; None if unknown."""
    package: Package | None = None
    """None if the owner is not a cuDNN package but, for example, a framework."""
    changed: tuple[str, ...] = ()
    """Files that differ from the package's."""
    removed: tuple[str, ...] = ()
    """Libraries of the package that are missing."""

    @property
    def label(self) -> str:
        """Name and version, for messages."""
        return f"{self.name} {self.package.version}" if self.package else (self.name or "nobody")


def find_owners(host: Host, environment: TargetEnvironment, directory: str, soname: int) -> tuple[Owner, ...]:
    """List every package that claims the copy with this soname in `directory` (links resolved).

    More than one means a broken environment: wheels for two CUDA majors own the same paths.
    """
    for step in (_wheels, _bundlers, _conda, _apt):
        found = tuple(owner for owner in step(host, environment, directory) if owner.package is None or owner.package.soname == soname)
        if found:
            return found
    return ()


def choose_owner(owners: tuple[Owner, ...], version: CudnnVersion | None, cuda: str | None) -> Owner:
    """Choose the owner whose records and version agree best with the library's own answers."""

    def disagreement(owner: Owner) -> tuple[bool, int, bool]:
        package = owner.package
        wrong_version = package is not None and version is not None and not same_release(package.version, version)
        wrong_cuda = package is not None and None not in (package.cuda, cuda) and package.cuda != cuda
        return wrong_version, len(owner.changed) + len(owner.removed), wrong_cuda

    return min(owners, key=disagreement, default=Owner(source="other"))


def same_release(left: CudnnVersion, right: CudnnVersion) -> bool:
    """True if the first three numbers are equal: libraries do not report the fourth."""
    return (*left.parts, 0, 0)[:3] == (*right.parts, 0, 0)[:3]


def _wheels(host: Host, environment: TargetEnvironment, directory: str) -> Iterator[Owner]:
    for distribution in environment.distributions:
        package = wheel_package(distribution.name, distribution.version)
        if package is None or host.realpath(f"{distribution.location}/{WHEEL_DIRECTORY}") != directory:
            continue
        changed, removed = _compare(host, distribution)
        yield Owner(source="pip", name=distribution.name, package=package, changed=changed, removed=removed)


def _compare(host: Host, distribution: Distribution) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Libraries whose size differs from the wheel's RECORD, and those that are missing."""
    changed, removed = [], []
    for path, _, size in record_rows(host.read_text(f"{distribution.metadata}/RECORD") or ""):
        if path.startswith(f"{WHEEL_DIRECTORY}/libcudnn") and size is not None:
            stat = host.stat(f"{distribution.location}/{path}")
            if stat is None:
                removed.append(path.rpartition("/")[2])
            elif stat.size != size:
                changed.append(path.rpartition("/")[2])
    return tuple(changed), tuple(removed)


def _bundlers(host: Host, environment: TargetEnvironment, directory: str) -> Iterator[Owner]:
    """Frameworks that bundle the libraries: in their own directory, or in the `.libs` beside it."""
    for site in environment.site_packages:
        inside = directory.removeprefix(f"{host.realpath(site).rstrip('/')}/")
        if inside == directory:
            continue
        top = inside.partition("/")[0]
        prefix = _BUNDLERS.get(top) or (top.removesuffix(".libs").replace("_", "-").lower() if top.endswith(".libs") else None)
        names = [distribution.name for distribution in environment.distributions if prefix and distribution.name.startswith(prefix)]
        names.sort(key=lambda name: (name != prefix, name))
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
    """Directories of a package's libraries; without its file list, those that NVIDIA's packages use."""
    debian = debian_arch(arch) or "amd64"
    for name in (f"{package}:{debian}", package):
        listed = host.read_text(f"/var/lib/dpkg/info/{name}.list")
        if listed is not None:
            files = (line.rpartition("/") for line in listed.splitlines() if "/libcudnn" in line)
            return {host.realpath(folder) for folder, _, _ in files}
    return {host.realpath(f"/usr/lib/{arch or 'x86_64'}-linux-gnu")}
