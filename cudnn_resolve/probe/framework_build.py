"""Builds of frameworks: what their files say, and which libraries each opens until it has cuDNN, in its own order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.cudnn_files import FOLDER, parse_name
from cudnn_resolve.facts.framework_files import (
    Required,
    cuda_of_label,
    cudnn_of_needs,
    cudnn_preloaded_by_jax,
    jaxlib_label,
    known_version,
    label_of_cuda,
    local_label,
    parse_constants,
    parse_cupy_wheel,
    required_cudnn,
    runtime_of_needs,
    text_of,
)
from cudnn_resolve.facts.model import InstalledFramework
from cudnn_resolve.planning.preload import LIBRARIES, MODULE, import_name, preloaded_names
from cudnn_resolve.probe.loader import DynamicLoader
from cudnn_resolve.probe.python import Distribution

_JAX_PLUGIN = r"jax-cuda(\d{2})-plugin"


class Open(Struct, frozen=True, kw_only=True):
    """Opens a library by its path."""

    path: str
    required: bool = True
    """False if the framework goes on without it."""


class Search(Struct, frozen=True, kw_only=True):
    """Searches for a library by name; the first name found counts."""

    names: tuple[str, ...]
    by: tuple[str, ...]
    """Name prefixes of the libraries that may make the call; the first one loaded makes it."""


class FrameworkBuild(Struct, frozen=True, kw_only=True):
    """One framework by its files, and the libraries that it opens until it has cuDNN."""

    framework: InstalledFramework
    steps: tuple[Open | Search, ...] = ()
    """Empty for a build without cuDNN."""
    version_module: tuple[str, str] | None = None
    """Directory and name of a module that knows the versions of the build better than the files, if there is one."""
    preload: str | None = None
    """File that makes this environment's interpreter open NVIDIA's wheels first, if that applies to this framework."""
    preloaded: frozenset[str] = frozenset()
    """Libraries that it opens."""


class FrameworkFiles:
    """Files of one distribution."""

    def __init__(self, loader: DynamicLoader, distribution: Distribution) -> None:
        self.loader = loader
        self.host = loader.host
        self.environment = loader.environment
        self.distribution = distribution

    def path(self, *parts: str) -> str:
        """Path of a file beside the distribution."""
        return "/".join((self.distribution.location.rstrip("/"), *parts))

    def text(self, *parts: str) -> str:
        """Content of a file, or ""."""
        return self.host.read_text(self.path(*parts)) or ""

    def has(self, *parts: str) -> bool:
        """True if the file exists."""
        return self.host.stat(self.path(*parts)) is not None

    def find(self, folder: str, prefix: str) -> str | None:
        """Path of the first library in a folder with that name prefix, `onnxruntime_pybind11_state`."""
        names = self.loader.names(self.path(folder))
        return next((self.path(folder, name) for name in sorted(names) if name.startswith(prefix) and ".so" in name), None)

    def needs(self, path: str | None) -> tuple[str, ...]:
        """DT_NEEDED of a library; empty without one."""
        return self.loader.needs(path) if path else ()

    def below_sites(self, *parts: str, prefix: str) -> tuple[str, ...]:
        """Paths of libraries in a folder below every directory of the import path, in its order."""
        folders = ["/".join((site, *parts)) for site in self.environment.site_packages]
        return tuple(f"{folder}/{name}" for folder in folders for name in sorted(self.loader.names(folder)) if name.startswith(prefix))


class Preload(Struct, frozen=True, kw_only=True):
    """The preload that `apply` left in an environment."""

    path: str
    steps: Mapping[str, tuple[Open, ...]]
    """Module to the libraries that are opened before its import."""


def find_preload(loader: DynamicLoader) -> Preload | None:
    """Find the preload of an environment; None if there is none, or nothing runs it at start."""
    for site in loader.environment.site_packages:
        names = loader.names(site)
        if f"{MODULE}.py" not in names or f"{MODULE}.pth" not in names:
            continue
        modules = preloaded_names(loader.host.read_text(f"{site}/{MODULE}.py") or "")
        if modules is not None:
            shared = _preloaded_libraries(f"{site}/nvidia", loader)
            own_cudnn = _preloaded_libraries(f"{site}/{FOLDER}/nvidia", loader)
            apart = [*(path for path in shared if "/libcudnn" not in path), *own_cudnn]
            steps, steps_apart = (tuple(Open(path=path, required=False) for path in paths) for paths in (shared, apart))
            return Preload(path=f"{site}/{MODULE}.py", steps={**dict.fromkeys(modules[0], steps), **dict.fromkeys(modules[1], steps_apart)})
    return None


def with_preload(build: FrameworkBuild, preload: Preload | None) -> FrameworkBuild:
    """Add preloaded libraries to a framework that uses cuDNN and has a preload."""
    first = preload.steps.get(import_name(build.framework.name) or "") if preload is not None else None
    if preload is None or first is None or not build.steps:
        return build
    # A library that fails at first, for lack of a later one, is opened again: twice suffices.
    return replace(build, steps=(*first, *first, *build.steps), preload=preload.path, preloaded=frozenset(step.path for step in first))


def _preloaded_libraries(directory: str, loader: DynamicLoader) -> list[str]:
    """Paths in the order in which the preload opens them."""
    found = []
    for root in sorted(loader.names(directory)):
        folder = f"{directory}/{root}/lib"
        for name in loader.names(folder):
            rank = next((number for number, prefix in enumerate(LIBRARIES) if name.startswith(prefix)), None)
            if rank is not None and ".so" in name:
                found.append((rank, len(name), f"{folder}/{name}"))
    return [path for _, _, path in sorted(found)]


def read_framework(files: FrameworkFiles) -> FrameworkBuild | None:
    """Read the framework in a distribution; None if it has none, or only part of one."""
    reader = next((reader for name, reader in _READERS if name.fullmatch(files.distribution.name)), None)
    return reader(files) if reader is not None else None


def _build(
    files: FrameworkFiles, variant: str | None, cuda: str | None = None, cudnn: str | None = None, steps: tuple[Open | Search, ...] = ()
) -> FrameworkBuild:
    name, version = files.distribution.name, files.distribution.version
    cuda_built, cudnn_built = known_version(cuda), known_version(cudnn)
    framework = InstalledFramework(name=name, version=version, variant=variant, cuda_built=cuda_built, cudnn_built=cudnn_built)
    return FrameworkBuild(framework=framework, steps=steps)


_CUDA_PARTS = ("libtorch_cuda.so", "libc10_cuda.so")
"""Libraries of PyTorch's CUDA builds: since 1.5, and since 1.0 (the wheels of 1.0.0, 1.1.0 and 1.4.0)."""


def _torch(files: FrameworkFiles) -> FrameworkBuild:
    constants = parse_constants(files.text("torch", "version.py"))
    cuda = text_of(constants, "cuda")
    label = local_label(text_of(constants, "__version__") or files.distribution.version)
    if cuda is None or not any(files.has(f"torch/lib/{name}") for name in _CUDA_PARTS):
        other = text_of(constants, "hip") or text_of(constants, "rocm")
        return _build(files, label or (None if other or not constants else "cpu"))
    required = required_cudnn(files.distribution.requires)
    steps = (*_torch_preloads(files, cuda), Open(path=files.find("torch", "_C.") or files.path("torch/_C.so")))
    variant = label if label and label.startswith("cu") else label_of_cuda(cuda)
    return _build(files, variant, cuda, _torch_cudnn(files, required), steps)


def _torch_cudnn(files: FrameworkFiles, required: Required | None) -> str | None:
    """The cuDNN it was compiled against: the one that its wheel pins, or bundles."""
    if required is not None and required.exact:
        return required.version.text
    bundled = files.find("torch/lib", "libcudnn.so") or files.find("torch/lib", "libcudnn-")
    name = parse_name(files.host.realpath(bundled).rpartition("/")[2]) if bundled else None
    if name is not None and name.version is not None:
        return name.version.text
    return cudnn_of_needs(files.needs(files.path("torch/lib/libtorch_cuda.so")))


def _torch_preloads(files: FrameworkFiles, cuda: str) -> tuple[Open, ...]:
    """Libraries that `import torch` opens before its own: libtorch_global_deps, and in newer releases NVIDIA's wheels one by one."""
    first = Open(path=files.path("torch/lib/libtorch_global_deps.so"), required=False)
    if "_preload_cuda_deps()" not in files.text("torch", "__init__.py"):
        return (first,)
    found = [first]
    for folder, prefix in (("cublas", "libcublasLt.so."), ("cublas", "libcublas.so."), ("cudnn", "libcudnn.so.")):
        paths = [
            *files.below_sites("nvidia", folder, "lib", prefix=prefix),
            *files.below_sites("nvidia", f"cu{cuda.partition('.')[0]}", "lib", prefix=prefix),
        ]
        if not paths:  # torch stops preloading at the first missing one
            break
        found.append(Open(path=paths[0], required=False))
    return tuple(found)


def _tensorflow(files: FrameworkFiles) -> FrameworkBuild:
    package = "tensorflow_core" if files.has("tensorflow_core/python/platform/build_info.py") else "tensorflow"
    constants = parse_constants(files.text(package, "python/platform/build_info.py"))
    inner = constants.get("build_info")
    info = {**constants, **(inner if isinstance(inner, dict) else {})}
    if info.get("is_cuda_build") is not True:
        return _build(files, "cpu" if info.get("is_cuda_build") is False else None)
    cuda = text_of(info, "cuda_version") or text_of(info, "cuda_version_number")
    # Releases up to 2.0 do not state it; they were all built with cuDNN 7.
    cudnn = text_of(info, "cudnn_version") or text_of(info, "cudnn_version_number") or "7"
    major = cudnn.partition(".")[0]
    steps = (
        Open(path=files.path(package, "python/_pywrap_tensorflow_internal.so")),
        Search(names=(f"libcudnn.so.{major}",), by=("libtensorflow_framework.so", "_pywrap_tensorflow_internal")),
    )
    return _build(files, "gpu", cuda, cudnn, steps)


def _onnxruntime(files: FrameworkFiles) -> FrameworkBuild:
    provider = files.find("onnxruntime/capi", "libonnxruntime_providers_cuda.so")
    if provider is None:
        return _build(files, "cpu")
    cuda = text_of(parse_constants(files.text("onnxruntime/capi/build_and_package_info.py")), "cuda_version")
    binding = files.find("onnxruntime/capi", "onnxruntime_pybind11_state") or files.path("onnxruntime/capi/onnxruntime_pybind11_state.so")
    shared = files.path("onnxruntime/capi/libonnxruntime_providers_shared.so")
    steps = (
        Open(path=binding),
        Open(path=shared, required=False),
        Open(path=provider),
    )
    needs = files.needs(provider)
    return _build(files, "gpu", cuda or runtime_of_needs(needs), cudnn_of_needs(needs), steps)


def _ctranslate2(files: FrameworkFiles) -> FrameworkBuild:
    module = files.find("ctranslate2", "_ext.")
    bundled = files.find("ctranslate2.libs", "libcudnn")
    name = parse_name(bundled.rpartition("/")[2]) if bundled else None
    if module is None:
        return _build(files, None)
    if name is None:
        return _build(files, None, steps=(Open(path=module),))
    return _build(files, "gpu", None, name.numbers, (Open(path=module),))


def _cupy(files: FrameworkFiles) -> FrameworkBuild:
    name = files.distribution.name
    module = files.find("cupy_backends/cuda/libs", "cudnn.")
    wheel = parse_cupy_wheel(files.text("cupy/.data/_wheel.json"))
    label = name.removeprefix("cupy-") if name.startswith("cupy-cuda") else None
    cuda = cuda_of_label(label) or (wheel.cuda or "").removesuffix(".x") or None
    if module is None:
        return _build(files, label, cuda)
    steps = (*_cupy_preloads(files, wheel.cuda, wheel.cudnn, wheel.files), Open(path=module))
    return _build(files, label, cuda, wheel.cudnn or cudnn_of_needs(files.needs(module)), steps)


def _cupy_preloads(files: FrameworkFiles, cuda: str | None, cudnn: str | None, names: tuple[str, ...]) -> tuple[Open | Search, ...]:
    """Libraries that CuPy opens first: by path if its own installer put them into the home directory, else by full name."""
    home = files.host.environ.get("HOME", "").rstrip("/")
    root = files.host.environ.get("CUPY_CUDA_LIB_PATH") or f"{home}/.cupy/cuda_lib"
    steps: list[Open | Search] = []
    for name in names:
        paths = [f"{root}/{cuda}/cudnn/{cudnn}/{folder}/{name}" for folder in ("lib", "lib64")]
        installed = next((path for path in paths if files.host.stat(path) is not None), None)
        steps.append(Open(path=installed or name, required=False))
    return tuple(steps)


def _jax(files: FrameworkFiles) -> FrameworkBuild | None:
    """One build for all distributions of JAX, named jax, or jaxlib if that is installed alone."""
    name = files.distribution.name
    if name != "jax" and not (name == "jaxlib" and files.environment.distribution("jax") is None):
        return None
    plugins = [distribution for distribution in files.environment.distributions if re.fullmatch(_JAX_PLUGIN, distribution.name)]
    if plugins:
        return _jax_plugin(files, max(plugins, key=lambda plugin: plugin.name))
    jaxlib = files.environment.distribution("jaxlib")
    label = local_label(jaxlib.version) if jaxlib else None
    built = jaxlib_label(label) if label else None
    if jaxlib is None or built is None:
        return _build(files, "cpu" if jaxlib else None)
    inside = FrameworkFiles(files.loader, jaxlib)
    cuda, cudnn = built
    modules = (inside.find("jaxlib/cuda", "_versions"), inside.find("jaxlib", "xla_extension"))
    steps: list[Open | Search] = [Open(path=path) for path in modules if path]
    if cudnn is not None:
        steps.append(Search(names=(f"libcudnn.so.{cudnn.partition('.')[0]}",), by=("_versions", "xla_extension")))
    return _build(files, _jax_variant(files, cuda, cudnn), cuda, cudnn, tuple(steps))


def _jax_variant(files: FrameworkFiles, cuda: str, cudnn: str | None) -> str:
    """Name of the extra that installs such a jaxlib."""
    major = cuda.partition(".")[0]
    if cudnn is None:
        return f"cuda{cuda.replace('.', '')}"
    if files.environment.distribution(f"nvidia-cudnn-cu{major}") is not None:
        return f"cuda{major}_pip"
    return "cuda12_local" if major == "12" else f"cuda{major}_cudnn{cudnn.replace('.', '')}"


def _jax_plugin(files: FrameworkFiles, plugin: Distribution) -> FrameworkBuild:
    inside = FrameworkFiles(files.loader, plugin)
    major = plugin.name.removeprefix("jax-cuda").removesuffix("-plugin")
    required = required_cudnn(plugin.requires)
    preloaded = cudnn_preloaded_by_jax(inside.text(f"jax_plugins/xla_cuda{major}/__init__.py"))
    wheels = inside.below_sites("nvidia/cudnn/lib", prefix=preloaded) if preloaded else ()
    soname = preloaded or (f"libcudnn.so.{required.version.major}" if required else "libcudnn.so.9")
    module = inside.path(f"jax_cuda{major}_plugin/_versions.so")
    steps: tuple[Open | Search, ...] = (Open(path=module), Search(names=(soname,), by=("_versions",)))
    steps = (*(Open(path=path, required=False) for path in wheels[:1]), *steps)
    pip = files.environment.distribution(f"nvidia-cudnn-cu{major}") is not None
    variant = f"cuda{major}" if pip else f"cuda{major}_local"
    build = _build(files, variant, major, required.version.text if required else None, steps)
    return replace(build, version_module=(plugin.location, f"jax_cuda{major}_plugin._versions"))


def _paddle(files: FrameworkFiles) -> FrameworkBuild:
    constants = parse_constants(files.text("paddle/version/__init__.py"))
    cuda, cudnn = text_of(constants, "cuda_version"), text_of(constants, "cudnn_version")
    if cuda is None or cudnn is None:
        return _build(files, "cpu" if constants else None)
    module = next((path for path in (files.find("paddle/base", "libpaddle"), files.find("paddle/fluid", "libpaddle")) if path), None)
    module = module or files.find("paddle/fluid", "core_avx")
    if module is None:
        return _build(files, label_of_cuda(cuda), cuda, cudnn)
    flag = files.host.environ.get("FLAGS_cudnn_dir")
    names = (*((f"{flag}/libcudnn.so",) if flag else ()), "libcudnn.so", f"libcudnn.so.{cudnn.partition('.')[0]}")
    steps = (Open(path=module), Search(names=names, by=("libphi_core", "libphi", "libpaddle", "core_avx")))
    return _build(files, label_of_cuda(cuda), cuda, cudnn, steps)


def _mxnet(files: FrameworkFiles) -> FrameworkBuild:
    label = files.distribution.name.removeprefix("mxnet-") if files.distribution.name.startswith("mxnet-cu") else None
    label = label.removesuffix("mkl") if label else None
    library = files.find("mxnet", "libmxnet.so")
    needs = files.needs(library)
    cuda = cuda_of_label(label) or runtime_of_needs(needs)
    if library is None or cuda is None:
        return _build(files, "cpu" if library else None)
    steps = (Open(path=library),) if cudnn_of_needs(needs) else ()
    return _build(files, label, cuda, cudnn_of_needs(needs), steps)


_READERS: tuple[tuple[re.Pattern[str], Callable[[FrameworkFiles], FrameworkBuild | None]], ...] = (
    (re.compile(r"torch"), _torch),
    (re.compile(r"tensorflow(-gpu|-cpu)?|tf-nightly(-gpu)?"), _tensorflow),
    (re.compile(r"jax|jaxlib"), _jax),
    (re.compile(r"onnxruntime(-gpu)?"), _onnxruntime),
    (re.compile(r"ctranslate2"), _ctranslate2),
    (re.compile(r"cupy(-.+)?"), _cupy),
    (re.compile(r"paddlepaddle(-gpu)?"), _paddle),
    (re.compile(r"mxnet(-.+)?"), _mxnet),
)
"""Patterns of distribution names, and readers of their files."""
