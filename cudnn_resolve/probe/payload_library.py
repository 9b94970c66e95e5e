"""Ask NVML, libcuda, copies of cuDNN, or a module of a framework; a program of its own that prints one JSON line.

Each library is asked in a process of its own, all at once, with a time limit: one that hangs or crashes costs its own answers and nothing
else, and what it had said until then counts. cuDNN ends the process (SIGABRT) where a part of it cannot be loaded; the loader of the
process that asks a copy gets its directory first on LD_LIBRARY_PATH, so that the parts of this copy answer. Python 3.6 grammar, standard
library only.

    python payload_library.py driver SECONDS [DIRECTORY...]
    python payload_library.py cudnn '{"seconds": 10, "paths": [], "libraries": ["/opt/cudnn/lib/libcudnn.so.9"]}'
    python payload_library.py module '{"directory": "…", "module": "jax_cuda12_plugin._versions", "calls": ["cudnn_build_version"]}'

The directories, if there are any, replace those below.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time

try:
    import ctypes
except ImportError:  # a Python that was built without libffi
    ctypes = None  # type: ignore[assignment]

TYPE_CHECKING = False  # importing typing costs more than all else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Tell = Callable[[str, Any], None]

MARK = "cudnn-resolve-answer "
AT_ONCE = 8
MOST_GPUS = 256
MOST_BYTES = 1 << 20
MOST_SAID = 4096
LIBRARY_DIRECTORIES = [
    "/usr/lib64-nvidia",  # Colab
    "/usr/local/nvidia/lib64",  # Kaggle, Kubernetes
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",  # WSL
    "/run/nvidia/driver/usr/lib/{machine}-linux-gnu",  # NVIDIA GPU operator
    "/run/nvidia/driver/usr/lib64",
    "/usr/lib/{machine}-linux-gnu",
    "/usr/lib/{machine}-linux-gnu/nvidia/current",  # Debian
    "/usr/lib/{machine}-linux-gnu/tegra",  # Jetson
    "/usr/lib/{machine}-linux-gnu/nvidia",
    "/usr/lib64",
    "/run/opengl-driver/lib",  # NixOS
]
"""Where containers, notebooks and distributions mount the driver, tried in this order after the loader's own search."""
CHECKS = {
    8: ["ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train"],
    9: ["graph", "ops", "cnn", "adv"],
}
"""By the major: the parts that have a function, `cudnnOpsInferVersionCheck`; it answers 0 where the part is of libcudnn's own release."""


# --- children ---


class Child:
    """A process that asks one library: what it told so far, and what it wrote to standard error."""

    def __init__(self, ask: "Callable[[int], None]") -> None:
        self.told, self.said = b"", b""
        self.told_pipe, write_end = os.pipe()
        self.said_pipe, error_end = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            try:
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, 0)
                os.dup2(nowhere, 1)  # whatever the library prints is not our answer
                os.dup2(error_end, 2)
                ask(write_end)
            finally:
                os._exit(0)  # the library's own farewell is not waited for
        os.close(write_end)
        os.close(error_end)
        self.pipes = [self.told_pipe, self.said_pipe]

    def read(self, pipe: int) -> None:
        """Take what has come on one of its pipes."""
        piece = os.read(pipe, 65536)
        if pipe == self.told_pipe:
            self.told += piece
        else:
            self.said = (self.said + piece)[-MOST_SAID:]
        if not piece or len(self.told) > MOST_BYTES:
            self.pipes.remove(pipe)
            os.close(pipe)

    def answer(self, grace_seconds: float) -> "dict[str, Any]":
        """What it told, how it ended (`exit`, a signal, or `time` where it did not end after the grace), and its last words."""
        return dict(understood(self.told), ended=ended(self.process, grace_seconds), said=self.said.decode("utf-8", "replace"))


def teller(pipe: int) -> "Tell":
    """A function that tells a pair as one line, a JSON list."""
    return lambda key, value: os.write(pipe, (json.dumps([key, value]) + "\n").encode("ascii"))  # type: ignore[return-value]


def understood(raw: bytes) -> "dict[str, Any]":
    """The told pairs as one dictionary; `gpu` and `lost` collect in lists, `check` in a table. A line that broke off is left out."""
    told = [json.loads(line) for line in raw.decode("ascii", "replace").split("\n")[:-1]]
    answer = {key: value for key, value in told if key not in ("gpu", "lost", "check")}
    answer.update({many: [value for key, value in told if key == one] for many, one in (("gpus", "gpu"), ("lost", "lost"))})
    return dict(answer, checks=dict(value for key, value in told if key == "check"))


def ended(process: int, grace_seconds: float) -> str:
    """How a process ended: `exit`, the name of a signal, or `time` where it had to be killed after the grace."""
    deadline = time.monotonic() + grace_seconds
    status, peak = waited(process)
    while status is None and time.monotonic() < deadline:
        time.sleep(0.001)
        status, peak = waited(process)
    if status is None:
        os.kill(process, signal.SIGKILL)
        for _ in range(50):  # and no longer: a process that hangs in the kernel does not even die
            if waited(process)[0] is not None:
                break
            time.sleep(0.002)
        return "time"
    if not os.WIFSIGNALED(status):
        return "exit"
    names = {int(one): one.name for one in signal.Signals}
    return names.get(os.WTERMSIG(status), "signal {}".format(os.WTERMSIG(status))) + used_up(peak)


def used_up(peak_mib: int) -> str:
    """Words for a process that had most of the memory that it may have; empty for one that had less."""
    with contextlib.suppress(ImportError, OSError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        if limit != resource.RLIM_INFINITY and peak_mib * 2 > limit >> 20:
            return ", out of memory: it had taken {} of {} MiB".format(peak_mib, limit >> 20)
    return ""


def waited(process: int) -> "tuple[int | None, int]":
    """The wait status of a process that has ended, or None; and the most MiB that it had."""
    done, status, usage = os.wait4(process, os.WNOHANG)
    return (status, usage.ru_maxrss >> 10) if done else (None, 0)


def gather(asks: "dict[str, Callable[[int], None]]", seconds: float) -> "dict[str, dict[str, Any]]":
    """What every child told until it ended or the time was over; one for which no time is left has no answer."""
    deadline = time.monotonic() + seconds
    waiting = list(asks)
    running = {}  # type: dict[str, Child]
    answers = {}
    while (waiting or running) and time.monotonic() < deadline:
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop(0)
            running[name] = Child(asks[name])
        pipes = {pipe: child for child in running.values() for pipe in child.pipes}
        for pipe in select.select(list(pipes), [], [], max(0.0, deadline - time.monotonic()))[0]:
            pipes[pipe].read(pipe)
        for name in [name for name, child in running.items() if not child.pipes]:
            answers[name] = running.pop(name).answer(1.0)
    for name, child in running.items():
        answers[name] = child.answer(0.0)
    return answers


def asking(ask: "Callable[[list[str], Tell], None]", places: "list[str]") -> "Callable[[int], None]":
    """What a child does that asks a library of the driver itself."""

    def run(pipe: int) -> None:
        tell = teller(pipe)
        try:
            ask(places, tell)
        except Exception as error:
            tell("failed", "{}: {}".format(type(error).__name__, error))

    return run


def asking_copy(path: str, library_paths: "list[str]") -> "Callable[[int], None]":
    """What a child does that asks a copy of cuDNN: it becomes another process, whose loader knows the copy's directory."""

    def run(pipe: int) -> None:
        os.set_inheritable(pipe, True)
        environment = dict(os.environ, LD_LIBRARY_PATH=":".join([os.path.dirname(path), *library_paths]))
        argv = [sys.executable, "-I", "-S", os.path.abspath(__file__), "--one", path, str(pipe)]
        os.execve(sys.executable, argv, environment)

    return run


# --- the driver's libraries ---


def ask_nvml(places: "list[str]", tell: "Tell") -> None:
    """Tell `path`, `cuda` (encoded), `driver`, `gpu` (one for each), `gpus` (their number) and `error`."""
    nvml = load(places, tell)
    if nvml is None:
        return
    number = ctypes.c_int(0)
    if called(nvml, ["nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"], ctypes.byref(number)) == 0:
        tell("cuda", number.value)
    status = called(nvml, ["nvmlInit_v2", "nvmlInit"])
    if status != 0:
        tell("error", [status, nvml_error(nvml, status)])
        return
    driver = nvml_text(nvml, "nvmlSystemGetDriverVersion")
    if driver is not None:
        tell("driver", driver)
    count = ctypes.c_uint(0)
    status = called(nvml, ["nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"], ctypes.byref(count))
    if status != 0:
        tell("error", [status, nvml_error(nvml, status)])
        return
    tell("count", count.value)
    for index in range(min(count.value, MOST_GPUS)):
        handle = ctypes.c_void_p()
        found = ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"]
        status = called(nvml, found, ctypes.c_uint(index), ctypes.byref(handle))
        if status == 0:
            tell("gpu", nvml_gpu(nvml, handle))
        else:
            tell("lost", [index, status, nvml_error(nvml, status)])
    tell("done", True)


def nvml_gpu(nvml: "ctypes.CDLL", handle: "ctypes.c_void_p") -> "dict[str, Any]":
    """What NVML says of one device; what it does not say is None or left out."""
    gpu = {"name": nvml_text(nvml, "nvmlDeviceGetName", handle), "uuid": nvml_text(nvml, "nvmlDeviceGetUUID", handle)}  # type: dict[str, Any]
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    if called(nvml, ["nvmlDeviceGetCudaComputeCapability"], handle, ctypes.byref(major), ctypes.byref(minor)) == 0:
        gpu["capability"] = [major.value, minor.value]
    memory = (ctypes.c_ulonglong * 3)()  # total, free, used
    if called(nvml, ["nvmlDeviceGetMemoryInfo"], handle, ctypes.byref(memory)) == 0:
        gpu["memory"] = memory[0]
    current, pending = ctypes.c_uint(0), ctypes.c_uint(0)
    if called(nvml, ["nvmlDeviceGetMigMode"], handle, ctypes.byref(current), ctypes.byref(pending)) == 0 and current.value == 1:
        gpu["mig"] = nvml_instances(nvml, handle)
    return gpu


def nvml_instances(nvml: "ctypes.CDLL", handle: "ctypes.c_void_p") -> "list[str]":
    """UUIDs of the MIG instances of one device."""
    most = ctypes.c_uint(0)
    called(nvml, ["nvmlDeviceGetMaxMigDeviceCount"], handle, ctypes.byref(most))
    found = []
    for index in range(min(most.value, 16)):
        instance = ctypes.c_void_p()
        if called(nvml, ["nvmlDeviceGetMigDeviceHandleByIndex"], handle, ctypes.c_uint(index), ctypes.byref(instance)) != 0:
            continue
        found.append(nvml_text(nvml, "nvmlDeviceGetUUID", instance))
    return [uuid for uuid in found if uuid is not None]


def nvml_text(nvml: "ctypes.CDLL", name: str, *handle: "ctypes.c_void_p") -> "str | None":
    """The text that a function of NVML writes; None where it does not."""
    text = ctypes.create_string_buffer(128)
    return words(text.value) if called(nvml, [name], *handle, text, ctypes.c_uint(96)) == 0 else None


def nvml_error(nvml: "ctypes.CDLL", status: int) -> str:
    """NVML's own words for a status."""
    try:
        function = nvml.nvmlErrorString
        function.restype = ctypes.c_char_p
        return words(function(status) or b"")
    except AttributeError:
        return ""


def ask_libcuda(places: "list[str]", tell: "Tell") -> None:
    """Tell `path`, `cuda` (encoded), `gpu` (one for each visible one), `count` and `error`."""
    cuda = load(places, tell)
    if cuda is None:
        return
    number = ctypes.c_int(0)
    if called(cuda, ["cuDriverGetVersion"], ctypes.byref(number)) == 0:
        tell("cuda", number.value)
    status = called(cuda, ["cuInit"], ctypes.c_uint(0))
    if status != 0:
        tell("error", [status, cuda_error(cuda, status)])
        return
    count = ctypes.c_int(0)
    status = called(cuda, ["cuDeviceGetCount"], ctypes.byref(count))
    if status != 0:
        tell("error", [status, cuda_error(cuda, status)])
        return
    tell("count", count.value)
    for index in range(min(count.value, MOST_GPUS)):
        device = ctypes.c_int(0)
        status = called(cuda, ["cuDeviceGet"], ctypes.byref(device), ctypes.c_int(index))
        if status == 0:
            tell("gpu", cuda_gpu(cuda, device))
        else:
            tell("lost", [index, status, cuda_error(cuda, status)])
    tell("done", True)


def cuda_gpu(cuda: "ctypes.CDLL", device: "ctypes.c_int") -> "dict[str, Any]":
    """What libcuda says of one device; what it does not say is left out."""
    gpu = {}  # type: dict[str, Any]
    text = ctypes.create_string_buffer(257)
    if called(cuda, ["cuDeviceGetName"], text, ctypes.c_int(256), device) == 0:
        gpu["name"] = words(text.value)
    # 75 and 76: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR in cuda.h
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    if (
        called(cuda, ["cuDeviceGetAttribute"], ctypes.byref(major), ctypes.c_int(75), device) == 0
        and called(cuda, ["cuDeviceGetAttribute"], ctypes.byref(minor), ctypes.c_int(76), device) == 0
    ):
        gpu["capability"] = [major.value, minor.value]
    size = ctypes.c_size_t(0)
    if called(cuda, ["cuDeviceTotalMem_v2", "cuDeviceTotalMem"], ctypes.byref(size), device) == 0:
        gpu["memory"] = size.value
    uuid = (ctypes.c_ubyte * 16)()
    if called(cuda, ["cuDeviceGetUuid"], ctypes.byref(uuid), device) == 0:
        digits = bytes(uuid).hex()
        gpu["uuid"] = "GPU-" + "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])
    return gpu


def cuda_error(cuda: "ctypes.CDLL", status: int) -> str:
    """The name of a CUresult, `CUDA_ERROR_NO_DEVICE`."""
    text = ctypes.c_char_p()
    if called(cuda, ["cuGetErrorName"], ctypes.c_int(status), ctypes.byref(text)) == 0 and text.value:
        return words(text.value)
    return ""


def called(library: "ctypes.CDLL", names: "list[str]", *arguments: "Any") -> int:
    """The status of the first of the functions that the library has; -1 where it has none of them."""
    for name in names:
        try:
            function = getattr(library, name)
        except AttributeError:
            continue
        return int(function(*arguments))
    return -1


def places_of(name: str, directories: "list[str]") -> "list[str]":
    """The library by its name alone, as the loader finds it, then in each of the directories."""
    machine = os.uname().machine
    return [name] + [os.path.join(directory.replace("{machine}", machine), name) for directory in directories]


def load(places: "list[str]", tell: "Tell") -> "ctypes.CDLL | None":
    """The library from the first place that gives one, or None; tells `path` (what was mapped) and `tried`."""
    tried = []
    for place in places:
        if place.startswith("/") and not os.path.exists(place):
            continue
        tell("loading", place)
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            tried.append([place, str(error)[:300]])
            continue
        tell("tried", tried)
        tell("place", place)
        tell("path", mapped(os.path.basename(place)) or place)
        return library
    tell("tried", tried)
    return None


def mapped(name: str) -> "str | None":
    """The file that this process has mapped for a library `libcuda.so.1`, links resolved; None if it is not seen."""
    stem = name[: name.index(".so") + 3]
    with open("/proc/self/maps", errors="surrogateescape") as lines:
        paths = {path for line in lines for path in line.rstrip("\n").split(None, 5)[5:]}
    return min((path for path in paths if os.path.basename(path).startswith(stem)), default=None)


def words(raw: bytes) -> str:
    """Bytes of a library as text without control characters."""
    text = raw.decode("utf-8", "replace")[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in text).strip()


# --- cuDNN ---


def ask_cudnn(path: str, tell: "Tell") -> None:
    """Tell `loaded`, `version` and `cuda` (encoded), `asking`, `check`, `mapped`, or `error`."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        tell("error", str(error)[:500])
        return
    tell("loaded", True)
    if os.path.basename(os.path.realpath(path)).partition(".so.")[2].partition(".")[0] == "8":
        open_parts(path)
    version = number(library, "cudnnGetVersion")
    tell("version", version)
    tell("cuda", number(library, "cudnnGetCudartVersion"))
    for part in CHECKS.get(major(version), []):
        function = getattr(library, "cudnn{}VersionCheck".format(part.title().replace("_", "")), None)
        if function is not None:
            tell("asking", part)
            tell("check", [part, int(function())])
    tell("done", True)


def open_parts(path: str) -> None:
    """Open the parts of cuDNN 8 where there is no driver, before they are asked for.

    8.5 and 8.6 end the process when they open a part themselves: its initialization looks for libcuda.so in vain, and cuDNN takes that
    error for its own. A part that is open already is not initialized again.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        for part in CHECKS[8]:
            with contextlib.suppress(OSError):
                ctypes.CDLL(os.path.join(os.path.dirname(os.path.realpath(path)), "libcudnn_{}.so.8".format(part)))


def number(library: "ctypes.CDLL", name: str) -> "int | None":
    """What a function without arguments returns as a size_t; None where the library has no such function."""
    function = getattr(library, name, None)
    if function is None:
        return None
    function.restype = ctypes.c_size_t
    return int(function())


def major(version: "int | None") -> int:
    """The major behind an encoded version: 8904 and 90100."""
    if version is None:
        return 0
    return version // 1000 if version < 10000 else version // 10000


def ask_module(question: "dict[str, Any]") -> "dict[str, Any]":
    """The number that each function of a framework's module returns; None for one that is not there or fails."""
    sys.path.insert(0, question["directory"])
    try:
        module = __import__(question["module"], fromlist=["_"])
    except Exception as error:
        return {"failed": "{}: {}".format(type(error).__name__, str(error)[:300])}
    answer = {}  # type: dict[str, Any]
    for name in question["calls"]:
        answer[name] = None
        with contextlib.suppress(Exception):
            answer[name] = int(getattr(module, name)())
    return answer


def main() -> None:
    """Print the answers of all libraries as one JSON line, or be the process that asks one copy of cuDNN."""
    what, rest = sys.argv[1], sys.argv[2:]
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if what == "module":
        answer = ask_module(json.loads(rest[0]))
    elif "ctypes" not in sys.modules:
        answer = {"failed": "this Python was built without ctypes"}
    elif what == "--one":
        ask_cudnn(rest[0], teller(int(rest[1])))
        os._exit(0)
    elif what == "driver":
        places = rest[1:] or LIBRARY_DIRECTORIES
        asks = {
            "nvml": asking(ask_nvml, places_of("libnvidia-ml.so.1", places)),
            "libcuda": asking(ask_libcuda, places_of("libcuda.so.1", places)),
        }
        answer = gather(asks, float(rest[0]))
    else:
        question = json.loads(rest[0])
        copies = {path: asking_copy(path, question["paths"]) for path in question["libraries"]}
        answer = {"answers": gather(copies, question["seconds"])}
    print("\n" + MARK + json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
