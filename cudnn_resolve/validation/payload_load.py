"""Imports frameworks, lets each open its cuDNN, and tells which libraries the process then holds, from where, in which versions.

Tells, in this order: `step` before whatever may crash; for each framework `imported` and `built`; `opened` (how cuDNN came);
`cudnn` (its own answers); `libraries` (path to version) at the end. Nothing needs a GPU. Python 3.6 grammar, standard library only.
"""

import ctypes
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run(question: "dict[str, Any]", tell: "Any") -> None:
    """Tells of all frameworks of the question, one after the other in one process."""
    for framework in question["frameworks"]:
        load(framework, tell)
    if question.get("library"):
        tell("step", "open {}".format(question["library"]))
        for neighbour in sys.modules["payload_run"].sibling("payload_cudnn").neighbours(question["library"]):
            library().quietly(lambda path: ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL), neighbour)
        ctypes.CDLL(question["library"])
    tell("mapped", library().mapped())
    for framework in question["frameworks"]:
        planned = framework.get("would_load")
        # Some open cuDNN only once they see a GPU; theirs is then opened as the loader would find it.
        if planned and not any(library().soname_of(one) == library().soname_of(planned) for one in library().cudnn_paths()):
            tell("step", "open {}".format(planned))
            try:
                ctypes.CDLL(planned)
                tell("opened", [framework["module"], "by path"])
            except OSError as error:
                tell("unopened", [framework["module"], str(error)[:1000]])
    for path in library().cudnn_paths():
        library().ask_cudnn(path, tell)
    tell("libraries", {one: library().version_of(one, tell) for one in library().mapped()})
    # Last, for it calls what else may crash: newer ones open the driver's library.
    for path in library().cudnn_paths()[:1]:
        library().compile_for(path, tell)


def library() -> "Any":
    """The payload that knows libraries."""
    return sys.modules["payload_run"].sibling("payload_library")


def load(framework: "dict[str, Any]", tell: "Any") -> None:
    """Imports one framework, asks what it was built with, and lets it open cuDNN."""
    name = framework["module"]
    tell("step", "import {}".format(name))
    before = time.monotonic()
    module = __import__(name)
    tell("imported", [name, str(getattr(module, "__version__", "")), time.monotonic() - before])
    tell("step", "ask {} what it was built with".format(name))
    tell("built", [name, library().quietly(BUILT.get(name, nothing), module) or {}])
    opener = OPENERS.get(name)
    if opener is None:
        return
    tell("step", "{} opens cuDNN".format(name))
    try:
        how = opener(module, framework)
    except Exception as error:
        tell("unopened", [name, "{}: {}".format(type(error).__name__, str(error)[:1000])])
    else:
        if how:
            tell("opened", [name, how])


# --- what a framework was built with: {"cuda": "12.4", "cudnn": "9.1.0"}, a key left out where it does not say ---


def nothing(_module: "Any") -> "dict[str, Any]":
    """A framework that says nothing of it."""
    return {}


def torch_built(module: "Any") -> "dict[str, Any]":
    """PyTorch's own words."""
    built = {"cuda": module.version.cuda, "device": "cuda" if module.version.cuda else "cpu"}
    if getattr(module.version, "hip", None):
        built["device"] = "rocm"
    compiled = import_named("torch._C").__dict__["_cudnn"].getCompileVersion() if built["cuda"] else None
    if compiled:
        built["cudnn"] = library().dotted(compiled)
    return built


def tensorflow_built(module: "Any") -> "dict[str, Any]":
    """TensorFlow's own words; of cuDNN it knows the major only."""
    info = module.sysconfig.get_build_info()
    if not info.get("is_cuda_build"):
        return {"device": "cpu"}
    return {"device": "cuda", "cuda": info.get("cuda_version"), "cudnn": info.get("cudnn_version")}


def jax_built(_module: "Any") -> "dict[str, Any]":
    """JAX's own words, from the module of versions in its CUDA plugin, or in an older jaxlib itself."""
    versions = jax_versions()
    if versions is None:
        return {"device": "cpu"}
    built = {"device": "cuda"}
    for key, name in (("cuda", "cuda_runtime_build_version"), ("cudnn", "cudnn_build_version")):
        number = library().quietly(lambda one, name=name: int(getattr(one, name)()), versions)
        if number:
            built[key] = library().cuda_text(number) if key == "cuda" else library().cudnn_text(number)
    return built


def jax_versions() -> "Any":
    """The module of versions; None in a build for the CPU."""
    for name in ("jax_cuda13_plugin._versions", "jax_cuda12_plugin._versions", "jaxlib.cuda._versions"):
        module = library().quietly(import_named, name)
        if module is not None:
            return module
    return None


def import_named(name: str) -> "Any":
    """The module of a dotted name."""
    return __import__(name, fromlist=["_"])


def onnxruntime_built(module: "Any") -> "dict[str, Any]":
    """ONNX Runtime's own words: whether it has the CUDA provider, and from 1.21 on for which CUDA."""
    if "CUDAExecutionProvider" not in module.get_available_providers():
        return {"device": "cpu"}
    return {"device": "cuda", "cuda": getattr(module, "cuda_version", None) or None}


def cupy_built(module: "Any") -> "dict[str, Any]":
    """CuPy's own words."""
    built = {"device": "cuda"}
    number = library().quietly(lambda one: int(one.cuda.runtime.CUDA_VERSION), module) or library().quietly(
        lambda one: int(one.cuda.get_build_version()), module
    )
    if number:
        built["cuda"] = library().cuda_text(number)
    cudnn = library().quietly(lambda one: int(one.cuda.cudnn.get_build_version()), module)
    if cudnn and cudnn > 0:
        built["cudnn"] = library().cudnn_text(cudnn)
    return built


def paddle_built(module: "Any") -> "dict[str, Any]":
    """PaddlePaddle's own words."""
    if not module.is_compiled_with_cuda():
        return {"device": "cpu"}
    return {"device": "cuda", "cuda": str(module.version.cuda()), "cudnn": str(module.version.cudnn())}


def mxnet_built(module: "Any") -> "dict[str, Any]":
    """MXNet's own words."""
    return {"device": "cuda" if module.runtime.Features().is_enabled("CUDA") else "cpu"}


BUILT = {
    "torch": torch_built,
    "tensorflow": tensorflow_built,
    "jax": jax_built,
    "onnxruntime": onnxruntime_built,
    "cupy": cupy_built,
    "paddle": paddle_built,
    "mxnet": mxnet_built,
}


# --- how a framework is brought to open its cuDNN without a GPU; what comes back says how, None where it did not ---


def torch_opens(module: "Any", _framework: "dict[str, Any]") -> "str | None":
    """PyTorch's comparison of the loaded release with its own, which it makes before the first convolution."""
    return "torch.backends.cudnn.version()" if module.backends.cudnn.version() else None


def tensorflow_opens(module: "Any", framework: "dict[str, Any]") -> "str | None":
    """TensorFlow opens cuDNN by name from its own library once it sees a GPU: here it does so for another reason."""
    name = framework.get("soname")
    if not name:
        return None
    before = set(library().mapped())
    try:
        module.load_op_library(name)
    except Exception:
        if set(library().mapped()) == before:
            raise
    return "TensorFlow's own loader"


def jax_opens(_module: "Any", framework: "dict[str, Any]") -> "str | None":
    """JAX's plugin opens NVIDIA's wheels by path when it starts; its module of versions asks the library that came."""
    if framework.get("plugin"):
        plugin = import_named("jax_plugins." + framework["plugin"])
        preload = getattr(plugin, "_load_nvidia_libraries", None) or getattr(plugin, "_load", None)
        if preload is not None:
            library().quietly(lambda _one: preload(), None)
    versions = jax_versions()
    if versions is None:
        return None
    versions.cudnn_get_version()
    return "cudnn_get_version() of its plugin"


def onnxruntime_opens(module: "Any", _framework: "dict[str, Any]") -> "str | None":
    """ONNX Runtime's CUDA provider is a library that needs cuDNN; loaded as a session would load it."""
    folder = os.path.join(os.path.dirname(module.__file__), "capi")
    provider = os.path.join(folder, "libonnxruntime_providers_cuda.so")
    if not os.path.exists(provider):
        return None
    # The provider itself cannot be opened outside of a session, and a session without a driver ends the process. It names no
    # directories: what it needs is searched for as any name is.
    needed = [name for name in library().dynamic_of(provider)[0] if library().LIBRARY.match(name)]
    try:
        for name in needed:
            ctypes.CDLL(name)
    except OSError:
        if not hasattr(module, "preload_dlls"):
            raise
        module.preload_dlls()
        for name in needed:
            ctypes.CDLL(name)
        return "onnxruntime.preload_dlls()"
    return "what its CUDA provider needs"


def cupy_opens(_module: "Any", _framework: "dict[str, Any]") -> "str | None":
    """CuPy's binding of cuDNN is linked against it."""
    import_named("cupy_backends.cuda.libs.cudnn")
    return "its binding of cuDNN"


OPENERS = {
    "torch": torch_opens,
    "tensorflow": tensorflow_opens,
    "jax": jax_opens,
    "onnxruntime": onnxruntime_opens,
    "cupy": cupy_opens,
}


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
