"""What each framework's files say of it, and how it comes to load cuDNN: the libraries that it opens, in its order, and by whose call."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec.structs import replace

from cudnn_resolve.facts.cudnn_files import parse_name
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
from cudnn_resolve.probe.environment import Distribution
from cudnn_resolve.probe.framework_shelf import CTYPES, Open, Question, Reading, Seek, Shelf

_JAX_PLUGIN = re.compile(r"jax-cuda(\d{2})-plugin")


def read_framework(shelf: Shelf) -> Reading | None:
    """What is known of the framework behind a distribution; None where it is no framework, or only a part of one."""
    name = shelf.distribution.name
    for begin, reader in _READERS:
        if name == begin or name.startswith(f"{begin}-"):
            return reader(shelf)
    return None


def _reading(
    shelf: Shelf, variant: str | None, cuda: str | None = None, cudnn: str | None = None, steps: tuple[Open | Seek, ...] = ()
) -> Reading:
    own = shelf.distribution
    return Reading(
        name=own.name, version=own.version, variant=variant, cuda_built=known_version(cuda), cudnn_built=known_version(cudnn), steps=steps
    )


def _torch(shelf: Shelf) -> Reading | None:
    if shelf.distribution.name != "torch":
        return None
    constants = parse_constants(shelf.text("torch", "version.py"))
    cuda = text_of(constants, "cuda")
    label = local_label(text_of(constants, "__version__") or shelf.distribution.version)
    if not shelf.has("torch/lib/libtorch_cuda.so") or cuda is None:
        other = text_of(constants, "hip") or text_of(constants, "rocm")
        return _reading(shelf, label or (None if other or not constants else "cpu"))
    required = required_cudnn(shelf.distribution.requires)
    steps = (*_torch_preloads(shelf, cuda), Open(path=shelf.find("torch", "_C.") or shelf.path("torch/_C.so")))
    variant = label if label and label.startswith("cu") else label_of_cuda(cuda)
    return _reading(shelf, variant, cuda, _torch_cudnn(shelf, required), steps)


def _torch_cudnn(shelf: Shelf, required: Required | None) -> str | None:
    """The cuDNN that its wheel pins, or the one that lies in it: that is what it was compiled against."""
    if required is not None and required.exact:
        return required.version.text
    bundled = shelf.find("torch/lib", "libcudnn.so") or shelf.find("torch/lib", "libcudnn-")
    name = parse_name(shelf.host.realpath(bundled).rpartition("/")[2]) if bundled else None
    if name is not None and name.version is not None:
        return name.version.text
    return cudnn_of_needs(shelf.needs(shelf.path("torch/lib/libtorch_cuda.so")))


def _torch_preloads(shelf: Shelf, cuda: str) -> tuple[Open, ...]:
    """What `import torch` opens before its own libraries: libtorch_global_deps, and in newer ones NVIDIA's wheels one by one."""
    first = Open(path=shelf.path("torch/lib/libtorch_global_deps.so"), by=CTYPES, required=False)
    if "_preload_cuda_deps()" not in shelf.text("torch", "__init__.py"):
        return (first,)
    found = [first]
    for folder, begin in (("cublas", "libcublasLt.so."), ("cublas", "libcublas.so."), ("cudnn", "libcudnn.so.")):
        paths = [
            *shelf.below_sites("nvidia", folder, "lib", begin=begin),
            *shelf.below_sites("nvidia", f"cu{cuda.partition('.')[0]}", "lib", begin=begin),
        ]
        if not paths:  # torch stops at the first that is missing, and goes on without
            break
        found.append(Open(path=paths[0], by=CTYPES, required=False))
    return tuple(found)


def _tensorflow(shelf: Shelf) -> Reading | None:
    if shelf.distribution.name not in ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tf-nightly", "tf-nightly-gpu"):
        return None
    package = "tensorflow_core" if shelf.has("tensorflow_core/python/platform/build_info.py") else "tensorflow"
    constants = parse_constants(shelf.text(package, "python/platform/build_info.py"))
    inner = constants.get("build_info")
    info = {**constants, **(inner if isinstance(inner, dict) else {})}
    if info.get("is_cuda_build") is not True:
        return _reading(shelf, "cpu" if info.get("is_cuda_build") is False else None)
    cuda = text_of(info, "cuda_version") or text_of(info, "cuda_version_number")
    # Releases that do not say it, up to 2.0, know of no other than cuDNN 7.
    cudnn = text_of(info, "cudnn_version") or text_of(info, "cudnn_version_number") or "7"
    major = cudnn.partition(".")[0]
    steps = (
        Open(path=shelf.path(package, "python/_pywrap_tensorflow_internal.so")),
        Seek(names=(f"libcudnn.so.{major}",), by=("libtensorflow_framework.so", "_pywrap_tensorflow_internal")),
    )
    return _reading(shelf, "gpu", cuda, cudnn, steps)


def _onnxruntime(shelf: Shelf) -> Reading | None:
    if shelf.distribution.name not in ("onnxruntime", "onnxruntime-gpu"):
        return None
    provider = shelf.find("onnxruntime/capi", "libonnxruntime_providers_cuda.so")
    if provider is None:
        return _reading(shelf, "cpu")
    cuda = text_of(parse_constants(shelf.text("onnxruntime/capi/build_and_package_info.py")), "cuda_version")
    binding = shelf.find("onnxruntime/capi", "onnxruntime_pybind11_state") or shelf.path("onnxruntime/capi/onnxruntime_pybind11_state.so")
    shared = shelf.path("onnxruntime/capi/libonnxruntime_providers_shared.so")
    steps = (
        Open(path=binding),
        Open(path=shared, by="onnxruntime_pybind11_state", required=False),
        Open(path=provider, by="onnxruntime_pybind11_state"),
    )
    needs = shelf.needs(provider)
    return _reading(shelf, "gpu", cuda or runtime_of_needs(needs), cudnn_of_needs(needs), steps)


def _ctranslate2(shelf: Shelf) -> Reading | None:
    if shelf.distribution.name != "ctranslate2":
        return None
    module = shelf.find("ctranslate2", "_ext.")
    bundled = shelf.find("ctranslate2.libs", "libcudnn")
    name = parse_name(bundled.rpartition("/")[2]) if bundled else None
    if module is None:
        return _reading(shelf, None)
    if name is None:
        return _reading(shelf, None, steps=(Open(path=module),))
    return _reading(shelf, "gpu", None, name.numbers, (Open(path=module),))


def _cupy(shelf: Shelf) -> Reading | None:
    name = shelf.distribution.name
    module = shelf.find("cupy_backends/cuda/libs", "cudnn.")
    wheel = parse_cupy_wheel(shelf.text("cupy/.data/_wheel.json"))
    label = name.removeprefix("cupy-") if name.startswith("cupy-cuda") else None
    cuda = cuda_of_label(label) or (wheel.cuda or "").removesuffix(".x") or None
    if module is None:
        return _reading(shelf, label, cuda)
    steps = (*_cupy_preloads(shelf, wheel.cuda, wheel.cudnn, wheel.files), Open(path=module))
    return _reading(shelf, label, cuda, wheel.cudnn or cudnn_of_needs(shelf.needs(module)), steps)


def _cupy_preloads(shelf: Shelf, cuda: str | None, cudnn: str | None, files: tuple[str, ...]) -> tuple[Open | Seek, ...]:
    """The libraries that cupy opens first: those that its own installer put into the home directory, else by their full name."""
    home = shelf.host.environ.get("HOME", "").rstrip("/")
    root = shelf.host.environ.get("CUPY_CUDA_LIB_PATH") or f"{home}/.cupy/cuda_lib"
    steps: list[Open | Seek] = []
    for file in files:
        places = [f"{root}/{cuda}/cudnn/{cudnn}/{folder}/{file}" for folder in ("lib", "lib64")]
        there = next((path for path in places if shelf.host.stat(path) is not None), None)
        steps.append(Open(path=there or file, by=CTYPES, required=False))
    return tuple(steps)


def _jax(shelf: Shelf) -> Reading | None:
    """One answer for all distributions of JAX, under the name jax; under jaxlib where that is alone."""
    name = shelf.distribution.name
    if name != "jax" and not (name == "jaxlib" and shelf.environment.distribution("jax") is None):
        return None
    plugins = [one for one in shelf.environment.distributions if _JAX_PLUGIN.fullmatch(one.name)]
    if plugins:
        return _jax_plugin(shelf, max(plugins, key=lambda one: one.name))
    jaxlib = shelf.environment.distribution("jaxlib")
    label = local_label(jaxlib.version) if jaxlib else None
    built = jaxlib_label(label) if label else None
    if jaxlib is None or built is None:
        return _reading(shelf, "cpu" if jaxlib else None)
    inside = Shelf(shelf.host, shelf.environment, shelf.loading, jaxlib)
    cuda, cudnn = built
    modules = (inside.find("jaxlib/cuda", "_versions"), inside.find("jaxlib", "xla_extension"))
    steps: list[Open | Seek] = [Open(path=path) for path in modules if path]
    if cudnn is not None:
        steps.append(Seek(names=(f"libcudnn.so.{cudnn.partition('.')[0]}",), by=("_versions", "xla_extension")))
    return _reading(shelf, _jax_variant(shelf, cuda, cudnn), cuda, cudnn, tuple(steps))


def _jax_variant(shelf: Shelf, cuda: str, cudnn: str | None) -> str:
    """The name of the extra that installs such a jaxlib."""
    major = cuda.partition(".")[0]
    if cudnn is None:
        return f"cuda{cuda.replace('.', '')}"
    if shelf.environment.distribution(f"nvidia-cudnn-cu{major}") is not None:
        return f"cuda{major}_pip"
    return "cuda12_local" if major == "12" else f"cuda{major}_cudnn{cudnn.replace('.', '')}"


def _jax_plugin(shelf: Shelf, plugin: Distribution) -> Reading:
    inside = Shelf(shelf.host, shelf.environment, shelf.loading, plugin)
    major = plugin.name.removeprefix("jax-cuda").removesuffix("-plugin")
    required = required_cudnn(plugin.requires)
    preloaded = cudnn_preloaded_by_jax(inside.text(f"jax_plugins/xla_cuda{major}/__init__.py"))
    wheels = inside.below_sites("nvidia/cudnn/lib", begin=preloaded) if preloaded else ()
    soname = preloaded or (f"libcudnn.so.{required.version.major}" if required else "libcudnn.so.9")
    module = inside.path(f"jax_cuda{major}_plugin/_versions.so")
    steps: tuple[Open | Seek, ...] = (Open(path=module), Seek(names=(soname,), by=("_versions",)))
    steps = (*(Open(path=path, by=CTYPES, required=False) for path in wheels[:1]), *steps)
    pip = shelf.environment.distribution(f"nvidia-cudnn-cu{major}") is not None
    variant = f"cuda{major}" if pip else f"cuda{major}_local"
    reading = _reading(shelf, variant, major, required.version.text if required else None, steps)
    own = f"jax_cuda{major}_plugin._versions"
    question = Question(directory=plugin.location, module=own, cuda="cuda_runtime_build_version", cudnn="cudnn_build_version")
    return replace(reading, question=question)


def _paddle(shelf: Shelf) -> Reading | None:
    if shelf.distribution.name not in ("paddlepaddle", "paddlepaddle-gpu"):
        return None
    constants = parse_constants(shelf.text("paddle/version/__init__.py"))
    cuda, cudnn = text_of(constants, "cuda_version"), text_of(constants, "cudnn_version")
    if cuda is None or cudnn is None:
        return _reading(shelf, "cpu" if constants else None)
    module = next((path for path in (shelf.find("paddle/base", "libpaddle"), shelf.find("paddle/fluid", "libpaddle")) if path), None)
    module = module or shelf.find("paddle/fluid", "core_avx")
    if module is None:
        return _reading(shelf, label_of_cuda(cuda), cuda, cudnn)
    flag = shelf.host.environ.get("FLAGS_cudnn_dir")
    names = (*((f"{flag}/libcudnn.so",) if flag else ()), "libcudnn.so", f"libcudnn.so.{cudnn.partition('.')[0]}")
    steps = (Open(path=module), Seek(names=names, by=("libphi_core", "libphi", "libpaddle", "core_avx")))
    return _reading(shelf, label_of_cuda(cuda), cuda, cudnn, steps)


def _mxnet(shelf: Shelf) -> Reading | None:
    label = shelf.distribution.name.removeprefix("mxnet-") if shelf.distribution.name.startswith("mxnet-cu") else None
    label = label.removesuffix("mkl") if label else None
    library = shelf.find("mxnet", "libmxnet.so")
    needs = shelf.needs(library)
    cuda = cuda_of_label(label) or runtime_of_needs(needs)
    if library is None or cuda is None:
        return _reading(shelf, "cpu" if library else None)
    steps = (Open(path=library, by=CTYPES),) if cudnn_of_needs(needs) else ()
    return _reading(shelf, label, cuda, cudnn_of_needs(needs), steps)


_READERS: tuple[tuple[str, Callable[[Shelf], Reading | None]], ...] = (
    ("torch", _torch),
    ("tensorflow", _tensorflow),
    ("tf", _tensorflow),
    ("jax", _jax),
    ("jaxlib", _jax),
    ("onnxruntime", _onnxruntime),
    ("ctranslate2", _ctranslate2),
    ("cupy", _cupy),
    ("paddlepaddle", _paddle),
    ("mxnet", _mxnet),
)
"""Beginnings of distribution names; `jax-cuda12-plugin` comes to the reader of jax, which passes it over."""
