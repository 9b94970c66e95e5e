"""Where copies of cuDNN lie: every directory that a loader might be led to, and those in which people put it by hand."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_resolve.host.port import Host
from cudnn_resolve.probe.environment import TargetEnvironment

_BUNDLES = ("torch/lib", "paddle/libs", "mxnet", "cupy/.data/lib", "onnxruntime/capi", "tensorflow", "jaxlib/cuda")
"""Directories of wheels that bring libraries of their own, below site-packages."""
_BELOW = ("", "/lib", "/lib64", "/cuda/lib64", "/cuda/lib", "/cudnn/lib", "/cudnn/lib64", "/nvidia/cudnn/lib")
"""Where the libraries lie below a directory made by hand: NVIDIA's archives of several years, and an unpacked wheel."""
_VARIABLES = ("CUDNN_PATH", "CUDNN_HOME", "CUDNN_ROOT", "CUDNN_ROOT_DIR", "CUDNN_LIB_DIR", "CUDNN_LIBRARY_PATH", "CUDNN_LIBRARY")


def find_directories(host: Host, environment: TargetEnvironment) -> tuple[str, ...]:
    """Directories that may hold cuDNN, each once as it is first named: what the loader searches first, then the other places."""
    found: dict[str, None] = {}
    steps = (
        _library_path(environment),
        _site_packages(host, environment),
        _prefix(host, environment),
        _cache(environment),
        _toolkits(host, environment),
        _system(environment),
        _by_hand(host),
        _cupy(host),
    )
    for step in steps:
        for directory in step:
            if directory.startswith("/"):
                found.setdefault(directory.rstrip("/") or "/")
    return tuple(found)


def _library_path(environment: TargetEnvironment) -> Iterator[str]:
    yield from environment.ld_library_path


def _site_packages(host: Host, environment: TargetEnvironment) -> Iterator[str]:
    """NVIDIA's wheels, wheels with libraries of their own, and what a wheel repair tool added beside a package."""
    for site in environment.site_packages:
        yield f"{site}/nvidia/cudnn/lib"
        for name in host.list_dir(f"{site}/nvidia"):
            yield f"{site}/nvidia/{name}/lib"
        for bundle in _BUNDLES:
            yield f"{site}/{bundle}"
        for name in host.list_dir(site):
            if name.endswith(".libs"):
                yield f"{site}/{name}"


def _prefix(host: Host, environment: TargetEnvironment) -> Iterator[str]:
    """A conda environment, or whatever else has its libraries beside its Python."""
    prefix = environment.prefix.rstrip("/")
    if prefix:
        yield f"{prefix}/lib"
        for target in host.list_dir(f"{prefix}/targets"):
            yield f"{prefix}/targets/{target}/lib"


def _cache(environment: TargetEnvironment) -> Iterator[str]:
    for entry in environment.ldconfig:
        if entry.name.startswith("libcudnn"):
            yield entry.path.rpartition("/")[0]


def _toolkits(host: Host, environment: TargetEnvironment) -> Iterator[str]:
    for root in environment.cuda_directories:
        yield f"{root}/lib64"
        yield f"{root}/lib"
        for target in host.list_dir(f"{root}/targets"):
            yield f"{root}/targets/{target}/lib"


def _system(environment: TargetEnvironment) -> Iterator[str]:
    arch = environment.arch or "x86_64"
    yield f"/usr/lib/{arch}-linux-gnu"
    yield from ("/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib", "/usr/local/cuda/lib64")


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
