"""Import frameworks, let each open its cuDNN, and report which libraries the process then holds, from where, in which versions.

Emits, in this order: `step` before anything that may crash; for each framework `imported` and `built`; `opened` (how cuDNN was opened);
`cudnn` (its own answers); `libraries` (path to version); `compiler`. No GPU is needed. Python 3.6, standard library only.
"""

import ctypes
import glob
import os
import re
import struct
import sys
import time

from cudnn_resolve.validation.payload import error_text, try_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

LIBRARY = re.compile(
    r"lib(cudnn|cublasLt|cublas|cudart|cufft|curand|cusolver|cusparse|nvrtc|nvJitLink|nccl|cuda|nvidia-ml)(?:[_-][\w.-]*)?\.so(?:\.|$)"
)
CUDNN = re.compile(r"libcudnn(?:-[0-9a-f]{6,})?\.so(?:\.|$)")
"""libcudnn itself: `libcudnn.so.9`, or `libcudnn-74a4c495.so.9.1.0` as renamed in a wheel."""
PARTS_8 = ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train")
CHECKS = {8: [part.title().replace("_", "") for part in PARTS_8], 9: ["Graph", "Ops", "Cnn", "Adv"]}
"""Parts with a version check, `cudnnOpsInferVersionCheck`, by major."""
DESCRIPTORS = ["Tensor", "Convolution", "RNN"]
"""Each is created by another part of cuDNN, which gets loaded; none needs a GPU."""
DRIVER = re.compile(r"lib(cuda|cudadebugger|nvcuvid|nvoptix|nvidia-[a-z0-9-]+|(GLX|EGL|vdpau)_nvidia)\.so")
"""Libraries that only a driver provides."""
MISSING = re.compile(r"(lib[\w.+-]+\.so[.\d]*): cannot open shared object file")
COMPILES = "libnvrtc compiles a program"
ENGINES = ["engines_precompiled", "engines_runtime_compiled", "heuristic"]
CUDA_LIBRARIES = ("libcublasLt.so.*", "libcublas.so.*", "libnvrtc.so.*")
"""CUDA libraries that cuDNN needs."""


def run(question: "dict[str, Any]", emit: "Any") -> None:
    """Load all frameworks of the question in one process, one after the other, or one libcudnn alone."""
    for framework in question["frameworks"]:
        load(framework, emit)
    if question.get("library"):
        emit("step", "open {}".format(question["library"]))
        for library in cuda_libraries_beside(question["library"]):
            try_call(ctypes.CDLL, library, ctypes.RTLD_GLOBAL)
        ctypes.CDLL(question["library"])
    emit("mapped", mapped())
    for framework in question["frameworks"]:
        planned = framework.get("would_load")
        # Some frameworks open cuDNN only once they see a GPU; their cuDNN is then opened as the loader would find it.
        if planned and not any(soname_of(path) == soname_of(planned) for path in cudnn_paths()):
            emit("step", "open {}".format(planned))
            try:
                ctypes.CDLL(planned)
                emit("opened", [framework["module"], "by path"])
            except OSError as error:
                emit("unopened", [framework["module"], str(error)[:1000]])
    for path in cudnn_paths():
        describe_cudnn(path, emit)
    emit_libraries(emit)
    # Last, since newer releases open the driver's library, which may crash.
    for path in cudnn_paths()[:1]:
        compile_for(path, emit)


def emit_libraries(emit: "Any") -> None:
    """Emit path and version of every CUDA library in the process."""
    emit("libraries", {path: version_of(path, emit) for path in mapped()})


def load(framework: "dict[str, Any]", emit: "Any") -> None:
    """Import one framework, ask what it was built with, and make it open cuDNN."""
    name = framework["module"]
    part = sys.modules["cudnn_resolve.validation.payload_" + name].Framework
    emit("step", "import {}".format(name))
    before = time.monotonic()
    module = __import__(name)
    emit("imported", [name, str(getattr(module, "__version__", "")), time.monotonic() - before])
    emit("step", "ask {} what it was built with".format(name))
    emit("built", [name, try_call(part.built, module) or {}])
    emit("step", "{} opens cuDNN".format(name))
    try:
        how = part.opens(module, framework)
    except Exception as error:
        emit("unopened", [name, error_text(error, 1000)])
    else:
        if how:
            emit("opened", [name, how])


def cuda_libraries_beside(path: str) -> "list[str]":
    """CUDA libraries in wheels beside the one with this libcudnn; a framework has them in the process by then."""
    folder = os.path.join(glob.escape(os.path.dirname(path)), "..", "..", "*", "lib")
    return [found for pattern in CUDA_LIBRARIES for found in sorted(glob.glob(os.path.join(folder, pattern)))]


# --- libraries in the process ---


def mapped() -> "list[str]":
    """Paths of the CUDA libraries mapped into this process, links resolved."""
    found = set()
    with open("/proc/self/maps", errors="surrogateescape") as lines:
        for line in lines:
            path = line.rstrip("\n").split(None, 5)[5:]
            if path and path[0].startswith("/") and LIBRARY.match(os.path.basename(path[0])):
                found.add(path[0].encode("utf-8", "backslashreplace").decode("utf-8"))
    return sorted(found)


def cudnn_paths() -> "list[str]":
    """Paths of every libcudnn in the process, without its parts."""
    return [path for path in mapped() if CUDNN.match(os.path.basename(path))]


def soname_of(path: str) -> str:
    """Major version in a file name, `9` for libcudnn.so.9.1.0."""
    return os.path.basename(path).partition(".so.")[2].partition(".")[0]


def loaded_library(path: str) -> "Any":
    """Handle of a library that the process already holds; loads nothing."""
    return ctypes.CDLL(path, mode=getattr(os, "RTLD_NOLOAD", 4) | getattr(os, "RTLD_LAZY", 1))


def describe_cudnn(path: str, emit: "Any") -> None:
    """Emit cuDNN's answers about itself, and make it load the parts that a first convolution loads."""
    library = loaded_library(path)
    answer = {"path": path, "checks": {}, "descriptors": {}}  # type: dict[str, Any]
    if soname_of(path) == "8" and try_call(ctypes.CDLL, "libcuda.so.1") is None:
        answer["engines"] = open_parts(path, emit)
    emit("step", "cudnnGetVersion()")
    number = call_size_t(library, "cudnnGetVersion")
    answer["version"] = cudnn_text(number) if number else None
    emit("cudnn", answer)
    major = int((answer["version"] or "0").partition(".")[0])
    for part in CHECKS.get(major, []) if not any(answer.get("engines", {}).values()) else []:
        function = getattr(library, "cudnn{}VersionCheck".format(part), None)
        if function is not None:
            emit("mapped", mapped())
            emit("step", "cudnn{}VersionCheck()".format(part))
            answer["checks"][part] = int(function())
    for part in DESCRIPTORS:
        function = getattr(library, "cudnnCreate{}Descriptor".format(part), None)
        if function is not None:
            emit("step", "cudnnCreate{}Descriptor()".format(part))
            answer["descriptors"][part] = int(function(ctypes.byref(ctypes.c_void_p())))
    emit("cudnn", answer)
    if major >= 9:
        answer["engines"] = open_engines(major, emit)
    emit("cudnn", answer)


def open_engines(major: int, emit: "Any") -> "dict[str, str]":
    """Open the engine libraries that the first convolution would load; map each to the reason why it cannot be opened, or ""."""
    graph = next((path for path in mapped() if os.path.basename(path).startswith("libcudnn_graph.so.{}".format(major))), None)
    if graph is None:
        return {}
    names = ["libcudnn_{}.so.{}".format(part, major) for part in ENGINES]
    return {name: why_unopenable(name, graph, emit) for name in names}


def open_parts(path: str, emit: "Any") -> "dict[str, str]":
    """Open the parts of cuDNN 8; map each to the reason why it cannot be opened, or "".

    Without a driver, some releases (8.5, 8.6) abort when they open a part themselves: its initialization looks for libcuda.so in vain, and
    cuDNN mistakes that error for its own. A part that is already open is not initialized again.
    """
    names = ["libcudnn_{}.so.8".format(part) for part in PARTS_8]
    return {name: why_unopenable(name, path, emit) for name in names if find_file(search_path(path), name)}


def why_unopenable(name: str, requester: str, emit: "Any") -> str:
    """Open a library as another one would; the reason why that fails, or "".

    The search is that of the loader for cuDNN's libraries, whose RUNPATH is their own directory.
    """
    directories = search_path(requester)
    path = find_file(directories, name)
    if path is None:
        return "is in none of {}".format(", ".join(directories))
    emit("step", "open {}".format(name))
    try:
        ctypes.CDLL(path)
    except OSError as error:
        return (missing_dependency(path, set()) if is_driver_missing(error) else None) or str(error)[:1000]
    return ""


def search_path(requester: str, *runpath: str) -> "list[str]":
    """Directories that the loader searches for a library's dependencies before those of the system."""
    home = os.path.dirname(requester)
    entries = [entry.replace("$ORIGIN", home).replace("${ORIGIN}", home) for entry in runpath or ("$ORIGIN",)]
    return [entry for entry in (*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *entries) if entry]


def find_file(directories: "list[str]", name: str) -> "str | None":
    """First file of that name."""
    return next((path for path in (os.path.join(directory, name) for directory in directories) if os.path.exists(path)), None)


def is_driver_missing(error: OSError) -> bool:
    """True if the loader misses a library that the driver provides."""
    missing = MISSING.search(str(error))
    return missing is not None and DRIVER.match(missing.group(1)) is not None


def missing_dependency(path: str, seen: "set[str]") -> "str | None":
    """The loader's error about a missing dependency other than the driver's libraries: by itself it names only the first one missing."""
    seen.add(path)
    needed, runpath = dynamic_section(path)
    for name in needed:
        target = find_file(search_path(path, *runpath), name) or name
        if DRIVER.match(name) or target in seen:
            continue
        try:
            ctypes.CDLL(target)
        except OSError as error:
            if not is_driver_missing(error):
                return str(error)[:1000]
            why = missing_dependency(target, seen) if os.path.isabs(target) else None
            if why:
                return why
    return None


def dynamic_section(path: str) -> "tuple[list[str], list[str]]":
    """DT_NEEDED and RUNPATH of a 64-bit little-endian ELF file."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return [], []
        offset, size, count = struct.unpack_from("<Q14xHH", head, 32)
        file.seek(offset)
        table = file.read(size * count)
        # Type, file offset, address and size of each segment.
        rows = [struct.unpack_from("<I4xQQ8xQ", table, size * index) for index in range(count)]
        dynamic = next(row for row in rows if row[0] == 2)
        file.seek(dynamic[1])
        content = file.read(dynamic[3])
        tags = [struct.unpack_from("<qQ", content, start) for start in range(0, len(content) - 15, 16)]
        address = next(value for tag, value in tags if tag == 5)
        length = next(value for tag, value in tags if tag == 10)
        home = next(row for row in rows if row[0] == 1 and row[2] <= address < row[2] + row[3])
        file.seek(home[1] + address - home[2])
        names = file.read(length)

    def strings(*kinds: int) -> "list[str]":
        return [names[value : names.find(b"\0", value)].decode("utf-8", "replace") for tag, value in tags if tag in kinds]

    return strings(1), [entry for text in strings(15, 29) for entry in text.split(":")]


def call_size_t(library: "Any", name: str) -> "int | None":
    """Call a function without arguments that returns a size_t; None if there is no such function."""
    function = getattr(library, name, None)
    if function is None:
        return None
    function.restype = ctypes.c_size_t
    return int(function())


def version_of(path: str, emit: "Any") -> "str | None":
    """Version of a CUDA library by its own answer; None if it cannot be asked without a GPU."""
    kind = LIBRARY.match(os.path.basename(path))
    asker = VERSION_FUNCTIONS.get(kind.group(1)) if kind else None
    if asker is None:
        return None
    emit("step", "ask {} for its version".format(os.path.basename(path)))
    version = try_call(lambda: reported_version(loaded_library(path), *asker))
    return str(version) if version else None


def reported_version(library: "Any", function: str, form: str) -> str:
    """Version returned as three properties, as a pair, or as one encoded number; ValueError on failure."""
    ask, values = getattr(library, function), [ctypes.c_int(-1) for _ in range(3)]
    if form == "properties":
        failed = any(ask(which, ctypes.byref(value)) for which, value in enumerate(values))
    elif form == "pair":
        failed, values = ask(ctypes.byref(values[0]), ctypes.byref(values[1])), values[:2]
    else:
        failed = ask(ctypes.byref(values[0])) or values[0].value <= 0
    if failed:
        raise ValueError(function)
    numbers = [value.value for value in values]
    # NCCL's numbers: 2708 is 2.7.8, 22105 is 2.21.5.
    return cuda_text(numbers[0]) if form == "cuda" else decode_version(numbers[0], 10000) if form == "nccl" else dotted(numbers)


def decode_version(number: int, wide_from: int) -> str:
    """Decode major, minor and patch; the major is followed by four digits from `wide_from` on, and by three below."""
    step = 10000 if number >= wide_from else 1000
    return dotted([number // step, number % step // 100, number % 100])


def cuda_text(number: int) -> str:
    """Decode a CUDA version: 12040 is 12.4."""
    return dotted([number // 1000, number % 1000 // 10])


def cudnn_text(number: int) -> str:
    """Decode a cuDNN version: 90100 is 9.1.0, 8904 is 8.9.4."""
    return decode_version(number, 90000)


def dotted(numbers: "Any") -> str:
    """Join numbers with dots: (9, 1, 0) is `9.1.0`."""
    return ".".join(str(int(number)) for number in numbers)


VERSION_FUNCTIONS = {
    **{kind: (kind + "GetProperty", "properties") for kind in ("cublas", "cufft", "curand", "cusolver", "cusparse")},
    "cudart": ("cudaRuntimeGetVersion", "cuda"),
    "nccl": ("ncclGetVersion", "nccl"),
    "nvrtc": ("nvrtcVersion", "pair"),
    "nvJitLink": ("nvJitLinkVersion", "pair"),
}
"""Library to its version function, and the form of the answer."""


# --- libnvrtc, the compiler that cuDNN's engines call on a first convolution ---

NVRTC_NAMES = {11: ("libnvrtc.so.11.2", "libnvrtc.so.11.1", "libnvrtc.so.11.0")}
"""Names in CUDA 11, which did not follow its releases; later ones contain only the major."""
NVRTC_PROGRAM = b'extern "C" __global__ void one(float *x) { x[0] = 1.0f; }'


def compile_for(path: str, emit: "Any") -> None:
    """Emit whether libnvrtc of the CUDA that this cuDNN was built with compiles; cuDNN up to 7 does not use it."""
    library = loaded_library(path)
    number, cuda = call_size_t(library, "cudnnGetVersion"), call_size_t(library, "cudnnGetCudartVersion")
    if number and cuda and number >= 8000:
        emit("step", COMPILES)
        emit("compiler", find_compiler(cuda // 1000, path, mapped()))
        emit_libraries(emit)


def find_compiler(cuda: int, cudnn: str, loaded: "Sequence[str]") -> "dict[str, Any]":
    """Find libnvrtc of a CUDA major for a cuDNN: `how` it was found or `why` it was not, and the `status` of a compilation."""
    names = NVRTC_NAMES.get(cuda, ("libnvrtc.so.{}".format(cuda),))
    found = {"name": names[0], "how": "", "path": "", "why": "the loader does not find it", "status": None}  # type: dict[str, Any]
    for how, path in compiler_places(names, cudnn, loaded):
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            found["why"] = str(error)[:500]
            continue
        found.update(how=how, path=path, why="", status=compile_status(library))
        break
    return found


def compiler_places(names: "Sequence[str]", cudnn: str, loaded: "Sequence[str]") -> "Iterator[tuple[str, str]]":
    """Candidates for libnvrtc: loaded ones, those that the loader finds for cuDNN (whose wheels name two folders), other wheels."""
    for path in loaded:
        if os.path.basename(path) in names or os.path.basename(path).startswith(tuple(name + "." for name in names)):
            yield "loaded", path
    for directory in search_path(cudnn, "$ORIGIN", "$ORIGIN/../../nvrtc/lib"):
        for name in names:
            if os.path.exists(os.path.join(directory, name)):
                yield "found", os.path.join(directory, name)
    for name in names:
        yield "found", name
    for name in names:
        for path in sorted(glob.glob(os.path.join(glob.escape(os.path.dirname(cudnn)), "..", "..", "*", "lib", name))):
            yield "wheel", path


def compile_status(library: "Any") -> int:
    """Compile a program and return the status, 0 on success. This also loads libnvrtc-builtins, which is another library."""
    program = ctypes.c_void_p()
    status = int(library.nvrtcCreateProgram(ctypes.byref(program), NVRTC_PROGRAM, b"one.cu", ctypes.c_int(0), None, None))
    if status == 0:
        status = int(library.nvrtcCompileProgram(program, ctypes.c_int(0), None))
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return status
