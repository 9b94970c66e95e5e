"""Import frameworks, let each open its cuDNN, and tell which libraries the process then holds, from where, in which versions.

Tells, in this order: `step` before whatever may crash; for each framework `imported` and `built`; `opened` (how cuDNN came);
`cudnn` (its own answers); `libraries` (path to version); `compiler`. Nothing needs a GPU. Python 3.6, standard library only.
"""

import ctypes
import glob
import os
import re
import struct
import sys
import time

from cudnn_resolve.validation.payload import quietly

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

LIBRARY = re.compile(
    r"lib(cudnn|cublasLt|cublas|cudart|cufft|curand|cusolver|cusparse|nvrtc|nvJitLink|nccl|cuda|nvidia-ml)(?:[_-][\w.-]*)?\.so(?:\.|$)"
)
CUDNN = re.compile(r"libcudnn(?:-[0-9a-f]{6,})?\.so(?:\.|$)")
"""libcudnn itself: `libcudnn.so.9`, or as a wheel renames it `libcudnn-74a4c495.so.9.1.0`."""
CHECKS = {
    8: ["OpsInfer", "OpsTrain", "CnnInfer", "CnnTrain", "AdvInfer", "AdvTrain"],
    9: ["Graph", "Ops", "Cnn", "Adv"],
}
DESCRIPTORS = ["Tensor", "Convolution", "RNN"]
"""Each is made by another part of cuDNN, which is loaded for it; none needs a GPU."""
DRIVER = re.compile(r"lib(cuda|cudadebugger|nvcuvid|nvoptix|nvidia-[a-z0-9-]+|(GLX|EGL|vdpau)_nvidia)\.so")
"""Libraries that only a driver brings."""
MISSING = re.compile(r"(lib[\w.+-]+\.so[.\d]*): cannot open shared object file")
COMPILES = "libnvrtc compiles a program"
ENGINES = ["engines_precompiled", "engines_runtime_compiled", "heuristic"]
NEIGHBOURS = ("libcublasLt.so.*", "libcublas.so.*", "libnvrtc.so.*")
"""What cuDNN needs of CUDA."""


def run(question: "dict[str, Any]", tell: "Any") -> None:
    """Tell of all frameworks of the question, one after the other in one process, or of one libcudnn alone."""
    for framework in question["frameworks"]:
        load(framework, tell)
    if question.get("library"):
        tell("step", "open {}".format(question["library"]))
        for neighbour in neighbours(question["library"]):
            quietly(ctypes.CDLL, neighbour, ctypes.RTLD_GLOBAL)
        ctypes.CDLL(question["library"])
    tell("mapped", mapped())
    for framework in question["frameworks"]:
        planned = framework.get("would_load")
        # Some open cuDNN only once they see a GPU; theirs is then opened as the loader would find it.
        if planned and not any(soname_of(one) == soname_of(planned) for one in cudnn_paths()):
            tell("step", "open {}".format(planned))
            try:
                ctypes.CDLL(planned)
                tell("opened", [framework["module"], "by path"])
            except OSError as error:
                tell("unopened", [framework["module"], str(error)[:1000]])
    for path in cudnn_paths():
        ask_cudnn(path, tell)
    tell("libraries", {one: version_of(one, tell) for one in mapped()})
    # Last, for it calls what else may crash: newer ones open the driver's library.
    for path in cudnn_paths()[:1]:
        compile_for(path, tell)


def load(framework: "dict[str, Any]", tell: "Any") -> None:
    """Import one framework, ask what it was built with, and let it open cuDNN."""
    name = framework["module"]
    part = sys.modules["cudnn_resolve.validation.payload_" + name].Framework
    tell("step", "import {}".format(name))
    before = time.monotonic()
    module = __import__(name)
    tell("imported", [name, str(getattr(module, "__version__", "")), time.monotonic() - before])
    tell("step", "ask {} what it was built with".format(name))
    tell("built", [name, quietly(part.built, module) or {}])
    tell("step", "{} opens cuDNN".format(name))
    try:
        how = part.opens(module, framework)
    except Exception as error:
        tell("unopened", [name, "{}: {}".format(type(error).__name__, str(error)[:1000])])
    else:
        if how:
            tell("opened", [name, how])


def neighbours(path: str) -> "list[str]":
    """Find the libraries of CUDA in wheels beside the one that holds this libcudnn, which a framework has in the process by then."""
    folder = os.path.join(os.path.dirname(path), "..", "..", "*", "lib")
    return [found for pattern in NEIGHBOURS for found in sorted(glob.glob(os.path.join(folder, pattern)))]


# --- what the process holds ---


def mapped() -> "list[str]":
    """List the paths of the CUDA libraries that this process has mapped, links resolved."""
    found = set()
    with open("/proc/self/maps", errors="surrogateescape") as lines:
        for line in lines:
            path = line.rstrip("\n").split(None, 5)[5:]
            if path and path[0].startswith("/") and LIBRARY.match(os.path.basename(path[0])):
                found.add(path[0].encode("utf-8", "backslashreplace").decode("utf-8"))
    return sorted(found)


def cudnn_paths() -> "list[str]":
    """List every libcudnn that the process holds, without its parts."""
    return [path for path in mapped() if CUDNN.match(os.path.basename(path))]


def soname_of(path: str) -> str:
    """The major in a file name, `9` for libcudnn.so.9.1.0."""
    return os.path.basename(path).partition(".so.")[2].partition(".")[0]


def handle_of(path: str) -> "Any":
    """The library as the process already holds it; nothing is loaded for this."""
    return ctypes.CDLL(path, mode=getattr(os, "RTLD_NOLOAD", 4) | getattr(os, "RTLD_LAZY", 1))


def ask_cudnn(path: str, tell: "Any") -> None:
    """Tell what cuDNN answers about itself, and make it load the parts that a first convolution loads."""
    library = handle_of(path)
    answer = {"path": path, "checks": {}, "descriptors": {}}  # type: dict[str, Any]
    if soname_of(path) == "8" and not has_driver():
        answer["engines"] = open_parts(path, tell)
    tell("step", "cudnnGetVersion()")
    number = size_of(library, "cudnnGetVersion")
    answer["version"] = cudnn_text(number) if number else None
    cuda = size_of(library, "cudnnGetCudartVersion")
    answer["cuda"] = cuda_text(cuda) if cuda else None
    tell("cudnn", answer)
    major = number // 10000 if number and number >= 90000 else (number or 0) // 1000
    for part in CHECKS.get(major, []) if not any(answer.get("engines", {}).values()) else []:
        function = getattr(library, "cudnn{}VersionCheck".format(part), None)
        if function is not None:
            tell("mapped", mapped())
            tell("step", "cudnn{}VersionCheck()".format(part))
            answer["checks"][part] = int(function())
    for part in DESCRIPTORS:
        function = getattr(library, "cudnnCreate{}Descriptor".format(part), None)
        if function is not None:
            tell("step", "cudnnCreate{}Descriptor()".format(part))
            answer["descriptors"][part] = int(function(ctypes.byref(ctypes.c_void_p())))
    tell("cudnn", answer)
    if major >= 9:
        answer["engines"] = open_engines(major, tell)
    tell("cudnn", answer)


def open_engines(major: int, tell: "Any") -> "dict[str, str]":
    """Map engine libraries, which the first convolution would load, to why they cannot be opened; "" where they can."""
    graph = next((path for path in mapped() if os.path.basename(path).startswith("libcudnn_graph.so.{}".format(major))), None)
    if graph is None:
        return {}
    names = ["libcudnn_{}.so.{}".format(part, major) for part in ENGINES]
    return {name: why_closed(name, graph, tell) for name in names}


def open_parts(path: str, tell: "Any") -> "dict[str, str]":
    """Map parts of cuDNN 8 to why they cannot be opened; "" where they can.

    Without a driver, some releases (8.5, 8.6) end the process when they open a part themselves: its initialization looks for libcuda.so
    in vain, and cuDNN takes that error for its own. A part that is open already is not initialized again.
    """
    names = ["libcudnn_{}.so.8".format(part) for part in ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train")]
    return {name: why_closed(name, path, tell) for name in names if found_in(places_for(path), name)}


def has_driver() -> bool:
    """True where the loader finds the library that every driver brings."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def why_closed(name: str, asker: str, tell: "Any") -> str:
    """Say why a library cannot be opened that another one would look for; "" where it can.

    It is searched for as the loader does it for cuDNN's libraries, whose RUNPATH is their own directory.
    """
    places = places_for(asker)
    path = found_in(places, name)
    if path is None:
        return "is in none of {}".format(", ".join(places))
    tell("step", "open {}".format(name))
    try:
        ctypes.CDLL(path)
    except OSError as error:
        return (missing_besides(path, set()) if of_driver(error) else None) or str(error)[:1000]
    return ""


def places_for(asker: str, *runpath: str) -> "list[str]":
    """List the directories in which the loader looks for what a library needs, before those of the system."""
    home = os.path.dirname(asker)
    entries = [entry.replace("$ORIGIN", home).replace("${ORIGIN}", home) for entry in runpath or ("$ORIGIN",)]
    return [entry for entry in (*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *entries) if entry]


def found_in(places: "list[str]", name: str) -> "str | None":
    """Find the first file of that name."""
    return next((os.path.join(place, name) for place in places if os.path.exists(os.path.join(place, name))), None)


def of_driver(error: OSError) -> bool:
    """True where the loader misses a library that the driver brings."""
    missing = MISSING.search(str(error))
    return missing is not None and DRIVER.match(missing.group(1)) is not None


def missing_besides(path: str, seen: "set[str]") -> "str | None":
    """Say what a library needs that is missing besides libraries of the driver: the loader names only the first that it misses."""
    seen.add(path)
    needed, runpath = dynamic_of(path)
    for name in needed:
        there = found_in(places_for(path, *runpath), name) or name
        if DRIVER.match(name) or there in seen:
            continue
        try:
            ctypes.CDLL(there)
        except OSError as error:
            why = str(error)[:1000] if not of_driver(error) else missing_besides(there, seen) if os.path.isabs(there) else None
            if why:
                return why
    return None


def dynamic_of(path: str) -> "tuple[list[str], list[str]]":
    """Read the names that a library needs (DT_NEEDED) and its RUNPATH, of a 64-bit little-endian ELF file."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return [], []
        at, size, count = struct.unpack_from("<Q14xHH", head, 32)
        file.seek(at)
        table = file.read(size * count)
        # Kind, offset in the file, address and size of each segment.
        rows = [struct.unpack_from("<I4xQQ8xQ", table, size * index) for index in range(count)]
        dynamic = next(row for row in rows if row[0] == 2)
        file.seek(dynamic[1])
        content = file.read(dynamic[3])
        tags = [struct.unpack_from("<qQ", content, offset) for offset in range(0, len(content) - 15, 16)]
        address = next(value for tag, value in tags if tag == 5)
        length = next(value for tag, value in tags if tag == 10)
        home = next(row for row in rows if row[0] == 1 and row[2] <= address < row[2] + row[3])
        file.seek(home[1] + address - home[2])
        names = file.read(length)

    def texts(*kinds: int) -> "list[str]":
        return [names[value : names.find(b"\0", value)].decode("utf-8", "replace") for tag, value in tags if tag in kinds]

    return texts(1), [entry for text in texts(15, 29) for entry in text.split(":")]


def size_of(library: "Any", name: str) -> "int | None":
    """Call a function without arguments that returns as a size_t; None where there is no such function."""
    function = getattr(library, name, None)
    if function is None:
        return None
    function.restype = ctypes.c_size_t
    return int(function())


def version_of(path: str, tell: "Any") -> "str | None":
    """Ask a CUDA library for its version; None where it cannot be asked without a GPU."""
    kind = LIBRARY.match(os.path.basename(path))
    asker = ASKERS.get(kind.group(1)) if kind else None
    if asker is None:
        return None
    tell("step", "ask {} for its version".format(os.path.basename(path)))
    version = quietly(lambda: answered_version(handle_of(path), *asker))
    return str(version) if version else None


def answered_version(library: "Any", function: str, form: str) -> str:
    """The version that a function tells as three properties, as a pair, or as one encoded number; ValueError where it fails."""
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
    return cuda_text(numbers[0]) if form == "cuda" else encoded(numbers[0], 10000) if form == "nccl" else dotted(numbers)


def encoded(number: int, wide_from: int) -> str:
    """Decode major, minor and patch; numbers from `wide_from` on have four digits behind the major, those before have three."""
    step = 10000 if number >= wide_from else 1000
    return dotted([number // step, number % step // 100, number % 100])


def cuda_text(number: int) -> str:
    """The version behind CUDA's number: 12040 is 12.4."""
    return dotted([number // 1000, number % 1000 // 10])


def cudnn_text(number: int) -> str:
    """The version behind cuDNN's number: 90100 is 9.1.0, 8904 is 8.9.4."""
    return encoded(number, 90000)


def dotted(numbers: "Any") -> str:
    """`9.1.0` from (9, 1, 0)."""
    return ".".join(str(int(number)) for number in numbers)


ASKERS = {
    **{kind: (kind + "GetProperty", "properties") for kind in ("cublas", "cufft", "curand", "cusolver", "cusparse")},
    "cudart": ("cudaRuntimeGetVersion", "cuda"),
    "nccl": ("ncclGetVersion", "nccl"),
    "nvrtc": ("nvrtcVersion", "pair"),
    "nvJitLink": ("nvJitLinkVersion", "pair"),
}
"""Library to the function that tells its version, and in which form."""


# --- libnvrtc, the compiler that cuDNN's engines call at a first convolution ---

NAMES = {11: ("libnvrtc.so.11.2", "libnvrtc.so.11.1", "libnvrtc.so.11.0")}
"""Those of CUDA 11, whose names did not change with its releases; of a later CUDA the major alone stands behind the dot."""
PROGRAM = b'extern "C" __global__ void one(float *x) { x[0] = 1.0f; }'


def compile_for(path: str, tell: "Any") -> None:
    """Tell whether libnvrtc compiles, of the CUDA that this cuDNN was built with; up to 7 it calls none."""
    library = handle_of(path)
    number, cuda = size_of(library, "cudnnGetVersion"), size_of(library, "cudnnGetCudartVersion")
    if number and cuda and number >= 8000:
        tell("step", COMPILES)
        tell("compiler", ask_compiler(cuda // 1000, path, mapped()))
        tell("libraries", {one: version_of(one, tell) for one in mapped()})


def ask_compiler(cuda: int, cudnn: str, mapped: "Sequence[str]") -> "dict[str, Any]":
    """Find libnvrtc of that major of CUDA for a cuDNN: `how` it was found, `why` it was not, and the `status` of a compilation."""
    names = NAMES.get(cuda, ("libnvrtc.so.{}".format(cuda),))
    found = {"name": names[0], "how": "", "path": "", "why": "it is nowhere that the loader looks", "status": None}  # type: dict[str, Any]
    for how, path in places(names, cudnn, mapped):
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            found["why"] = str(error)[:500]
            continue
        found.update(how=how, path=path, why="", status=compiled(library))
        break
    return found


def places(names: "Sequence[str]", cudnn: str, mapped: "Sequence[str]") -> "Iterator[tuple[str, str]]":
    """List places for libnvrtc: in the process; as the loader does it for cuDNN, whose wheels name two folders; in other wheels."""
    for path in mapped:
        if os.path.basename(path) in names or os.path.basename(path).startswith(tuple(name + "." for name in names)):
            yield "loaded", path
    for place in places_for(cudnn, "$ORIGIN", "$ORIGIN/../../nvrtc/lib"):
        for name in names:
            if os.path.exists(os.path.join(place, name)):
                yield "found", os.path.join(place, name)
    for name in names:
        yield "found", name
    for name in names:
        for path in sorted(glob.glob(os.path.join(glob.escape(os.path.dirname(cudnn)), "..", "..", "*", "lib", name))):
            yield "wheel", path


def compiled(library: "Any") -> int:
    """Compile a program and return the status, 0 where it is done. Its built-in functions, which are another library, come for this."""
    program = ctypes.c_void_p()
    status = int(library.nvrtcCreateProgram(ctypes.byref(program), PROGRAM, b"one.cu", ctypes.c_int(0), None, None))
    if status == 0:
        status = int(library.nvrtcCompileProgram(program, ctypes.c_int(0), None))
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return status
