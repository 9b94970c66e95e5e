"""How each framework starts: the libraries that it opens until it has cuDNN, in its order, and what its files say of it."""

from __future__ import annotations

import re
from collections.abc import Callable

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
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.planning.preload import LIBRARIES, MODULE, import_name, preloaded_names
from cudnn_resolve.probe.loader import Loading
from cudnn_resolve.probe.python import Distribution, TargetEnvironment

_JAX_PLUGIN = r"jax-cuda(\d{2})-plugin"


class Open(Struct, frozen=True, kw_only=True):
    """A library that is opened by its path."""

    path: str
    required: bool = True
    """False where the framework goes on without it."""


class Search(Struct, frozen=True, kw_only=True):
    """A library that is searched for by name, the first name that is found."""

    names: tuple[str, ...]
    by: tuple[str, ...]
    """Beginnings of the names of the libraries that may make the call; the first that is there makes it."""


class Question(Struct, frozen=True, kw_only=True):
    """What a module of a framework can be asked in a child, cheaply."""

    directory: str
    """Put on the import path first."""
    module: str
    cuda: str
    """Function that returns the encoded CUDA that it was built with."""
    cudnn: str
    """The same for cuDNN."""


class Reading(Struct, frozen=True, kw_only=True):
    """One framework as its files describe it; None = they do not say."""

    name: str
    version: str
    variant: str | None = None
    cuda_built: str | None = None
    cudnn_built: str | None = None
    steps: tuple[Open | Search, ...] = ()
    """Empty for a build that loads no cuDNN."""
    question: Question | None = None
    """Where a module knows more than the files say."""
    preload: str | None = None
    """The file that makes this environment's interpreter open NVIDIA's wheels first, where the framework is one of those it is for."""
    preloaded: frozenset[str] = frozenset()
    """The libraries that it opens."""


class FrameworkFiles:
    """The files of one distribution."""

    def __init__(self, host: Host, environment: TargetEnvironment, loading: Loading, distribution: Distribution) -> None:
        self.host = host
        self.environment = environment
        self.distribution = distribution
        self.loading = loading

    def path(self, *parts: str) -> str:
        """Path of a file beside the distribution."""
        return "/".join((self.distribution.location.rstrip("/"), *parts))

    def text(self, *parts: str) -> str:
        """A file's text, "" where there is none."""
        return self.host.read_text(self.path(*parts)) or ""

    def has(self, *parts: str) -> bool:
        """True where there is such a file."""
        return self.host.stat(self.path(*parts)) is not None

    def find(self, folder: str, begin: str) -> str | None:
        """Path of the first library in a folder whose name begins so, `onnxruntime_pybind11_state`."""
        names = self.loading.names(self.path(folder))
        return next((self.path(folder, name) for name in sorted(names) if name.startswith(begin) and ".so" in name), None)

    def needs(self, path: str | None) -> tuple[str, ...]:
        """What a library needs; empty where there is none."""
        return self.loading.needs(path) if path else ()

    def below_sites(self, *parts: str, begin: str) -> tuple[str, ...]:
        """Paths of libraries in a folder below every directory of the import path, in its order."""
        folders = ["/".join((site, *parts)) for site in self.environment.site_packages]
        return tuple(f"{folder}/{name}" for folder in folders for name in sorted(self.loading.names(folder)) if name.startswith(begin))


class Preload(Struct, frozen=True, kw_only=True):
    """The preload that `apply` left in an environment: what it opens before a framework asks for it, and for the import of what."""

    path: str
    names: frozenset[str]
    steps: tuple[Open, ...]
    apart: frozenset[str]
    """Modules whose cuDNN lies in a folder of its own."""
    steps_apart: tuple[Open, ...]


def find_preload(host: Host, environment: TargetEnvironment, loading: Loading) -> Preload | None:
    """Find the preload of an environment; None where there is none, or nothing runs it at start."""
    for site in environment.site_packages:
        names = loading.names(site)
        if f"{MODULE}.py" not in names or f"{MODULE}.pth" not in names:
            continue
        found = preloaded_names(host.read_text(f"{site}/{MODULE}.py") or "")
        if found is not None:
            beside = _preloaded_libraries(f"{site}/nvidia", loading)
            own = [*(path for path in beside if "/libcudnn" not in path), *_preloaded_libraries(f"{site}/{FOLDER}/nvidia", loading)]
            return Preload(
                path=f"{site}/{MODULE}.py",
                names=frozenset(found[0]),
                steps=tuple(Open(path=path, required=False) for path in beside),
                apart=frozenset(found[1]),
                steps_apart=tuple(Open(path=path, required=False) for path in own),
            )
    return None


def with_preload(reading: Reading, preload: Preload | None) -> Reading:
    """Add what is opened before; unchanged for a framework that the preload is not for, or that loads no cuDNN."""
    module = import_name(reading.name)
    if preload is None or not reading.steps or module not in preload.names | preload.apart:
        return reading
    # What fails at first, because something that it needs comes later, is tried again: twice is as often as it takes.
    first = preload.steps_apart if module in preload.apart else preload.steps
    return replace(reading, steps=(*first, *first, *reading.steps), preload=preload.path, preloaded=frozenset(one.path for one in first))


def _preloaded_libraries(place: str, loading: Loading) -> list[str]:
    """Paths in the order in which the preload opens them."""
    found = []
    for root in sorted(loading.names(place)):
        folder = f"{place}/{root}/lib"
        for name in loading.names(folder):
            rank = next((number for number, begin in enumerate(LIBRARIES) if name.startswith(begin)), None)
            if rank is not None and ".so" in name:
                found.append((rank, len(name), f"{folder}/{name}"))
    return [path for _, _, path in sorted(found)]


def read_framework(files: FrameworkFiles) -> Reading | None:
    """What is known of the framework behind a distribution; None where it is no framework, or only a part of one."""
    reader = next((reader for name, reader in _READERS if name.fullmatch(files.distribution.name)), None)
    return reader(files) if reader is not None else None


def _reading(
    files: FrameworkFiles, variant: str | None, cuda: str | None = None, cudnn: str | None = None, steps: tuple[Open | Search, ...] = ()
) -> Reading:
    own = files.distribution
    return Reading(
        name=own.name, version=own.version, variant=variant, cuda_built=known_version(cuda), cudnn_built=known_version(cudnn), steps=steps
    )


def _torch(files: FrameworkFiles) -> Reading:
    constants = parse_constants(files.text("torch", "version.py"))
    cuda = text_of(constants, "cuda")
    label = local_label(text_of(constants, "__version__") or files.distribution.version)
    if not files.has("torch/lib/libtorch_cuda.so") or cuda is None:
        other = text_of(constants, "hip") or text_of(constants, "rocm")
        return _reading(files, label or (None if other or not constants else "cpu"))
    required = required_cudnn(files.distribution.requires)
    steps = (*_torch_preloads(files, cuda), Open(path=files.find("torch", "_C.") or files.path("torch/_C.so")))
    variant = label if label and label.startswith("cu") else label_of_cuda(cuda)
    return _reading(files, variant, cuda, _torch_cudnn(files, required), steps)


def _torch_cudnn(files: FrameworkFiles, required: Required | None) -> str | None:
    """The cuDNN that its wheel pins, or the one that lies in it: that is what it was compiled against."""
    if required is not None and required.exact:
        return required.version.text
    bundled = files.find("torch/lib", "libcudnn.so") or files.find("torch/lib", "libcudnn-")
    name = parse_name(files.host.realpath(bundled).rpartition("/")[2]) if bundled else None
    if name is not None and name.version is not None:
        return name.version.text
    return cudnn_of_needs(files.needs(files.path("torch/lib/libtorch_cuda.so")))


def _torch_preloads(files: FrameworkFiles, cuda: str) -> tuple[Open, ...]:
    """What `import torch` opens before its own libraries: libtorch_global_deps, and in newer ones NVIDIA's wheels one by one."""
    first = Open(path=files.path("torch/lib/libtorch_global_deps.so"), required=False)
    if "_preload_cuda_deps()" not in files.text("torch", "__init__.py"):
        return (first,)
    found = [first]
    for folder, begin in (("cublas", "libcublasLt.so."), ("cublas", "libcublas.so."), ("cudnn", "libcudnn.so.")):
        paths = [
            *files.below_sites("nvidia", folder, "lib", begin=begin),
            *files.below_sites("nvidia", f"cu{cuda.partition('.')[0]}", "lib", begin=begin),
        ]
        if not paths:  # torch stops at the first that is missing, and goes on without
            break
        found.append(Open(path=paths[0], required=False))
    return tuple(found)


def _tensorflow(files: FrameworkFiles) -> Reading:
    package = "tensorflow_core" if files.has("tensorflow_core/python/platform/build_info.py") else "tensorflow"
    constants = parse_constants(files.text(package, "python/platform/build_info.py"))
    inner = constants.get("build_info")
    info = {**constants, **(inner if isinstance(inner, dict) else {})}
    if info.get("is_cuda_build") is not True:
        return _reading(files, "cpu" if info.get("is_cuda_build") is False else None)
    cuda = text_of(info, "cuda_version") or text_of(info, "cuda_version_number")
    # Releases that do not say it, up to 2.0, know of no other than cuDNN 7.
    cudnn = text_of(info, "cudnn_version") or text_of(info, "cudnn_version_number") or "7"
    major = cudnn.partition(".")[0]
    steps = (
        Open(path=files.path(package, "python/_pywrap_tensorflow_internal.so")),
        Search(names=(f"libcudnn.so.{major}",), by=("libtensorflow_framework.so", "_pywrap_tensorflow_internal")),
    )
    return _reading(files, "gpu", cuda, cudnn, steps)


def _onnxruntime(files: FrameworkFiles) -> Reading:
    provider = files.find("onnxruntime/capi", "libonnxruntime_providers_cuda.so")
    if provider is None:
        return _reading(files, "cpu")
    cuda = text_of(parse_constants(files.text("onnxruntime/capi/build_and_package_info.py")), "cuda_version")
    binding = files.find("onnxruntime/capi", "onnxruntime_pybind11_state") or files.path("onnxruntime/capi/onnxruntime_pybind11_state.so")
    shared = files.path("onnxruntime/capi/libonnxruntime_providers_shared.so")
    steps = (
        Open(path=binding),
        Open(path=shared, required=False),
        Open(path=provider),
    )
    needs = files.needs(provider)
    return _reading(files, "gpu", cuda or runtime_of_needs(needs), cudnn_of_needs(needs), steps)


def _ctranslate2(files: FrameworkFiles) -> Reading:
    module = files.find("ctranslate2", "_ext.")
    bundled = files.find("ctranslate2.libs", "libcudnn")
    name = parse_name(bundled.rpartition("/")[2]) if bundled else None
    if module is None:
        return _reading(files, None)
    if name is None:
        return _reading(files, None, steps=(Open(path=module),))
    return _reading(files, "gpu", None, name.numbers, (Open(path=module),))


def _cupy(files: FrameworkFiles) -> Reading:
    name = files.distribution.name
    module = files.find("cupy_backends/cuda/libs", "cudnn.")
    wheel = parse_cupy_wheel(files.text("cupy/.data/_wheel.json"))
    label = name.removeprefix("cupy-") if name.startswith("cupy-cuda") else None
    cuda = cuda_of_label(label) or (wheel.cuda or "").removesuffix(".x") or None
    if module is None:
        return _reading(files, label, cuda)
    steps = (*_cupy_preloads(files, wheel.cuda, wheel.cudnn, wheel.files), Open(path=module))
    return _reading(files, label, cuda, wheel.cudnn or cudnn_of_needs(files.needs(module)), steps)


def _cupy_preloads(files: FrameworkFiles, cuda: str | None, cudnn: str | None, names: tuple[str, ...]) -> tuple[Open | Search, ...]:
    """The libraries that cupy opens first: those that its own installer put into the home directory, else by their full name."""
    home = files.host.environ.get("HOME", "").rstrip("/")
    root = files.host.environ.get("CUPY_CUDA_LIB_PATH") or f"{home}/.cupy/cuda_lib"
    steps: list[Open | Search] = []
    for name in names:
        places = [f"{root}/{cuda}/cudnn/{cudnn}/{folder}/{name}" for folder in ("lib", "lib64")]
        there = next((path for path in places if files.host.stat(path) is not None), None)
        steps.append(Open(path=there or name, required=False))
    return tuple(steps)


def _jax(files: FrameworkFiles) -> Reading | None:
    """One answer for all distributions of JAX, under the name jax; under jaxlib where that is alone."""
    name = files.distribution.name
    if name != "jax" and not (name == "jaxlib" and files.environment.distribution("jax") is None):
        return None
    plugins = [one for one in files.environment.distributions if re.fullmatch(_JAX_PLUGIN, one.name)]
    if plugins:
        return _jax_plugin(files, max(plugins, key=lambda one: one.name))
    jaxlib = files.environment.distribution("jaxlib")
    label = local_label(jaxlib.version) if jaxlib else None
    built = jaxlib_label(label) if label else None
    if jaxlib is None or built is None:
        return _reading(files, "cpu" if jaxlib else None)
    inside = FrameworkFiles(files.host, files.environment, files.loading, jaxlib)
    cuda, cudnn = built
    modules = (inside.find("jaxlib/cuda", "_versions"), inside.find("jaxlib", "xla_extension"))
    steps: list[Open | Search] = [Open(path=path) for path in modules if path]
    if cudnn is not None:
        steps.append(Search(names=(f"libcudnn.so.{cudnn.partition('.')[0]}",), by=("_versions", "xla_extension")))
    return _reading(files, _jax_variant(files, cuda, cudnn), cuda, cudnn, tuple(steps))


def _jax_variant(files: FrameworkFiles, cuda: str, cudnn: str | None) -> str:
    """The name of the extra that installs such a jaxlib."""
    major = cuda.partition(".")[0]
    if cudnn is None:
        return f"cuda{cuda.replace('.', '')}"
    if files.environment.distribution(f"nvidia-cudnn-cu{major}") is not None:
        return f"cuda{major}_pip"
    return "cuda12_local" if major == "12" else f"cuda{major}_cudnn{cudnn.replace('.', '')}"


def _jax_plugin(files: FrameworkFiles, plugin: Distribution) -> Reading:
    inside = FrameworkFiles(files.host, files.environment, files.loading, plugin)
    major = plugin.name.removeprefix("jax-cuda").removesuffix("-plugin")
    required = required_cudnn(plugin.requires)
    preloaded = cudnn_preloaded_by_jax(inside.text(f"jax_plugins/xla_cuda{major}/__init__.py"))
    wheels = inside.below_sites("nvidia/cudnn/lib", begin=preloaded) if preloaded else ()
    soname = preloaded or (f"libcudnn.so.{required.version.major}" if required else "libcudnn.so.9")
    module = inside.path(f"jax_cuda{major}_plugin/_versions.so")
    steps: tuple[Open | Search, ...] = (Open(path=module), Search(names=(soname,), by=("_versions",)))
    steps = (*(Open(path=path, required=False) for path in wheels[:1]), *steps)
    pip = files.environment.distribution(f"nvidia-cudnn-cu{major}") is not None
    variant = f"cuda{major}" if pip else f"cuda{major}_local"
    reading = _reading(files, variant, major, required.version.text if required else None, steps)
    own = f"jax_cuda{major}_plugin._versions"
    question = Question(directory=plugin.location, module=own, cuda="cuda_runtime_build_version", cudnn="cudnn_build_version")
    return replace(reading, question=question)


def _paddle(files: FrameworkFiles) -> Reading:
    constants = parse_constants(files.text("paddle/version/__init__.py"))
    cuda, cudnn = text_of(constants, "cuda_version"), text_of(constants, "cudnn_version")
    if cuda is None or cudnn is None:
        return _reading(files, "cpu" if constants else None)
    module = next((path for path in (files.find("paddle/base", "libpaddle"), files.find("paddle/fluid", "libpaddle")) if path), None)
    module = module or files.find("paddle/fluid", "core_avx")
    if module is None:
        return _reading(files, label_of_cuda(cuda), cuda, cudnn)
    flag = files.host.environ.get("FLAGS_cudnn_dir")
    names = (*((f"{flag}/libcudnn.so",) if flag else ()), "libcudnn.so", f"libcudnn.so.{cudnn.partition('.')[0]}")
    steps = (Open(path=module), Search(names=names, by=("libphi_core", "libphi", "libpaddle", "core_avx")))
    return _reading(files, label_of_cuda(cuda), cuda, cudnn, steps)


def _mxnet(files: FrameworkFiles) -> Reading:
    label = files.distribution.name.removeprefix("mxnet-") if files.distribution.name.startswith("mxnet-cu") else None
    label = label.removesuffix("mkl") if label else None
    library = files.find("mxnet", "libmxnet.so")
    needs = files.needs(library)
    cuda = cuda_of_label(label) or runtime_of_needs(needs)
    if library is None or cuda is None:
        return _reading(files, "cpu" if library else None)
    steps = (Open(path=library),) if cudnn_of_needs(needs) else ()
    return _reading(files, label, cuda, cudnn_of_needs(needs), steps)


_READERS: tuple[tuple[re.Pattern[str], Callable[[FrameworkFiles], Reading | None]], ...] = (
    (re.compile(r"torch"), _torch),
    (re.compile(r"tensorflow(-gpu|-cpu)?|tf-nightly(-gpu)?"), _tensorflow),
    (re.compile(r"jax|jaxlib"), _jax),
    (re.compile(r"onnxruntime(-gpu)?"), _onnxruntime),
    (re.compile(r"ctranslate2"), _ctranslate2),
    (re.compile(r"cupy(-.+)?"), _cupy),
    (re.compile(r"paddlepaddle(-gpu)?"), _paddle),
    (re.compile(r"mxnet(-.+)?"), _mxnet),
)
"""Distribution names to what reads their files."""
