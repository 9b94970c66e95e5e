"""Ask NVML, libcuda, copies of cuDNN, or a module of a framework; runs as a program and prints one JSON line.

Each library is asked in its own process, all concurrently, with a time limit: one that hangs or crashes loses only its remaining answers.
cuDNN aborts (SIGABRT) if one of its parts cannot be loaded; the process that asks a copy has its directory first on LD_LIBRARY_PATH, so
that the parts of this copy answer. Python 3.6 grammar, standard library only.

    python payload_library.py driver SECONDS [DIRECTORY...]
    python payload_library.py cudnn '{"seconds": 10, "paths": [], "libraries": ["/opt/cudnn/lib/libcudnn.so.9"]}'
    python payload_library.py module '{"directory": "…", "module": "jax_cuda12_plugin._versions", "calls": ["cudnn_build_version"]}'

The directories, if any, replace those below.
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
except ImportError:  # a Python built without libffi
    ctypes = None  # type: ignore[assignment]

TYPE_CHECKING = False  # importing typing costs more than all else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Emit = Callable[[str, Any], None]

MARK = "cudnn-resolve-answer "
AT_ONCE = 8
MOST_GPUS = 256
MOST_BYTES = 1 << 20
MOST_STDERR = 4096
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
"""Driver directories of containers, notebooks and distributions, tried in this order after the loader's own search."""
CHECKS = {
    8: ["ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train"],
    9: ["graph", "ops", "cnn", "adv"],
}
"""By major: parts with a function `cudnnOpsInferVersionCheck`, which returns 0 if the part is of libcudnn's own release."""


# --- children ---


class Child:
    """A process that asks one library: its answers so far, and its standard error."""

    def __init__(self, ask: "Callable[[int], None]") -> None:
        self.received, self.stderr = b"", b""
        self.answer_pipe, write_end = os.pipe()
        self.stderr_pipe, error_end = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            try:
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, 0)
                os.dup2(nowhere, 1)  # keep the library's output out of our answer
                os.dup2(error_end, 2)
                ask(write_end)
            finally:
                os._exit(0)  # skip the library's exit handlers
        os.close(write_end)
        os.close(error_end)
        self.pipes = [self.answer_pipe, self.stderr_pipe]

    def read(self, pipe: int) -> None:
        """Read what has arrived on one of its pipes."""
        content = os.read(pipe, 65536)
        if pipe == self.answer_pipe:
            self.received += content
        else:
            self.stderr = (self.stderr + content)[-MOST_STDERR:]
        if not content or len(self.received) > MOST_BYTES:
            self.pipes.remove(pipe)
            os.close(pipe)

    def answer(self, grace_seconds: float) -> "dict[str, Any]":
        """Its answers, how it ended (`exit`, a signal, or `time` if it had to be killed), and the end of its standard error."""
        return dict(parse_answers(self.received), ended=how_ended(self.process, grace_seconds), said=self.stderr.decode("utf-8", "replace"))


def emitter(pipe: int) -> "Emit":
    """Function that writes a pair as one line, a JSON list."""
    return lambda key, value: os.write(pipe, (json.dumps([key, value]) + "\n").encode("ascii"))  # type: ignore[return-value]


def parse_answers(raw: bytes) -> "dict[str, Any]":
    """Collect pairs in a dictionary: `gpu` and `lost` as lists, `check` as a table. An incomplete line is left out."""
    pairs = [json.loads(line) for line in raw.decode("ascii", "replace").split("\n")[:-1]]
    answer = {key: value for key, value in pairs if key not in ("gpu", "lost", "check")}
    answer.update({plural: [value for key, value in pairs if key == single] for plural, single in (("gpus", "gpu"), ("lost", "lost"))})
    return dict(answer, checks=dict(value for key, value in pairs if key == "check"))


def how_ended(process: int, grace_seconds: float) -> str:
    """How a process ended: `exit`, the name of a signal, or `time` if it had to be killed after the grace period."""
    deadline = time.monotonic() + grace_seconds
    status, peak = wait_status(process)
    while status is None and time.monotonic() < deadline:
        time.sleep(0.001)
        status, peak = wait_status(process)
    if status is None:
        os.kill(process, signal.SIGKILL)
        for _ in range(50):  # no longer: a process that hangs in the kernel cannot be killed
            if wait_status(process)[0] is not None:
                break
            time.sleep(0.002)
        return "time"
    if not os.WIFSIGNALED(status):
        return "exit"
    names = {int(number): number.name for number in signal.Signals}
    return names.get(os.WTERMSIG(status), "signal {}".format(os.WTERMSIG(status))) + memory_remark(peak)


def memory_remark(peak_mib: int) -> str:
    """Remark on a process that used most of its memory limit, or ""."""
    with contextlib.suppress(ImportError, OSError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        if limit != resource.RLIM_INFINITY and peak_mib * 2 > limit >> 20:
            return ", out of memory: it had taken {} of {} MiB".format(peak_mib, limit >> 20)
    return ""


def wait_status(process: int) -> "tuple[int | None, int]":
    """Wait status of a process, None while it runs; and its peak memory in MiB."""
    done, status, usage = os.wait4(process, os.WNOHANG)
    return (status, usage.ru_maxrss >> 10) if done else (None, 0)


def gather(asks: "dict[str, Callable[[int], None]]", seconds: float) -> "dict[str, dict[str, Any]]":
    """Answers of every child until it ended or the time was up; a child that could not be started has none."""
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


def asking(ask: "Callable[[list[str], Emit], None]", candidates: "list[str]") -> "Callable[[int], None]":
    """Program of a child that asks a driver library itself."""

    def run(pipe: int) -> None:
        emit = emitter(pipe)
        try:
            ask(candidates, emit)
        except Exception as error:
            emit("failed", "{}: {}".format(type(error).__name__, error))

    return run


def asking_copy(path: str, library_paths: "list[str]") -> "Callable[[int], None]":
    """Program of a child that asks a copy of cuDNN: it executes this file again, with the copy's directory on the loader's path."""

    def run(pipe: int) -> None:
        os.set_inheritable(pipe, True)
        environment = dict(os.environ, LD_LIBRARY_PATH=":".join([os.path.dirname(path), *library_paths]))
        argv = [sys.executable, "-I", "-S", os.path.abspath(__file__), "--one", path, str(pipe)]
        os.execve(sys.executable, argv, environment)

    return run


# --- the driver's libraries ---


def ask_nvml(candidates: "list[str]", emit: "Emit") -> None:
    """Emit `path`, `cuda` (encoded), `driver`, `count`, a `gpu` for each, and `error`."""
    nvml = load(candidates, emit)
    if nvml is None:
        return
    number = ctypes.c_int(0)
    if call_first(nvml, ["nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"], ctypes.byref(number)) == 0:
        emit("cuda", number.value)
    status = call_first(nvml, ["nvmlInit_v2", "nvmlInit"])
    if status != 0:
        emit("error", [status, nvml_error(nvml, status)])
        return
    driver = nvml_text(nvml, "nvmlSystemGetDriverVersion")
    if driver is not None:
        emit("driver", driver)
    count = ctypes.c_uint(0)
    status = call_first(nvml, ["nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"], ctypes.byref(count))
    if status != 0:
        emit("error", [status, nvml_error(nvml, status)])
        return
    emit("count", count.value)
    for index in range(min(count.value, MOST_GPUS)):
        handle = ctypes.c_void_p()
        found = ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"]
        status = call_first(nvml, found, ctypes.c_uint(index), ctypes.byref(handle))
        if status == 0:
            emit("gpu", nvml_gpu(nvml, handle))
        else:
            emit("lost", [index, status, nvml_error(nvml, status)])


def nvml_gpu(nvml: "ctypes.CDLL", handle: "ctypes.c_void_p") -> "dict[str, Any]":
    """NVML's description of one device; unknown values are None or left out."""
    gpu = {"name": nvml_text(nvml, "nvmlDeviceGetName", handle), "uuid": nvml_text(nvml, "nvmlDeviceGetUUID", handle)}  # type: dict[str, Any]
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    if call_first(nvml, ["nvmlDeviceGetCudaComputeCapability"], handle, ctypes.byref(major), ctypes.byref(minor)) == 0:
        gpu["capability"] = [major.value, minor.value]
    memory = (ctypes.c_ulonglong * 3)()  # total, free, used
    if call_first(nvml, ["nvmlDeviceGetMemoryInfo"], handle, ctypes.byref(memory)) == 0:
        gpu["memory"] = memory[0]
    current, pending = ctypes.c_uint(0), ctypes.c_uint(0)
    if call_first(nvml, ["nvmlDeviceGetMigMode"], handle, ctypes.byref(current), ctypes.byref(pending)) == 0 and current.value == 1:
        gpu["mig"] = nvml_instances(nvml, handle)
    return gpu


def nvml_instances(nvml: "ctypes.CDLL", handle: "ctypes.c_void_p") -> "list[str]":
    """UUIDs of the MIG instances of one device."""
    most = ctypes.c_uint(0)
    call_first(nvml, ["nvmlDeviceGetMaxMigDeviceCount"], handle, ctypes.byref(most))
    found = []
    for index in range(min(most.value, 16)):
        instance = ctypes.c_void_p()
        if call_first(nvml, ["nvmlDeviceGetMigDeviceHandleByIndex"], handle, ctypes.c_uint(index), ctypes.byref(instance)) != 0:
            continue
        found.append(nvml_text(nvml, "nvmlDeviceGetUUID", instance))
    return [uuid for uuid in found if uuid is not None]


def nvml_text(nvml: "ctypes.CDLL", name: str, *handle: "ctypes.c_void_p") -> "str | None":
    """String written by a function of NVML; None if it fails."""
    text = ctypes.create_string_buffer(128)
    return words(text.value) if call_first(nvml, [name], *handle, text, ctypes.c_uint(96)) == 0 else None


def nvml_error(nvml: "ctypes.CDLL", status: int) -> str:
    """NVML's description of a status."""
    try:
        function = nvml.nvmlErrorString
        function.restype = ctypes.c_char_p
        return words(function(status) or b"")
    except AttributeError:
        return ""


def ask_libcuda(candidates: "list[str]", emit: "Emit") -> None:
    """Emit `path`, `cuda` (encoded), `count`, a `gpu` for each visible one, and `error`."""
    cuda = load(candidates, emit)
    if cuda is None:
        return
    number = ctypes.c_int(0)
    if call_first(cuda, ["cuDriverGetVersion"], ctypes.byref(number)) == 0:
        emit("cuda", number.value)
    status = call_first(cuda, ["cuInit"], ctypes.c_uint(0))
    if status != 0:
        emit("error", [status, cuda_error(cuda, status)])
        return
    count = ctypes.c_int(0)
    status = call_first(cuda, ["cuDeviceGetCount"], ctypes.byref(count))
    if status != 0:
        emit("error", [status, cuda_error(cuda, status)])
        return
    emit("count", count.value)
    for index in range(min(count.value, MOST_GPUS)):
        device = ctypes.c_int(0)
        status = call_first(cuda, ["cuDeviceGet"], ctypes.byref(device), ctypes.c_int(index))
        if status == 0:
            emit("gpu", cuda_gpu(cuda, device))
        else:
            emit("lost", [index, status, cuda_error(cuda, status)])


def cuda_gpu(cuda: "ctypes.CDLL", device: "ctypes.c_int") -> "dict[str, Any]":
    """Description of one device by libcuda; unknown values are left out."""
    gpu = {}  # type: dict[str, Any]
    text = ctypes.create_string_buffer(257)
    if call_first(cuda, ["cuDeviceGetName"], text, ctypes.c_int(256), device) == 0:
        gpu["name"] = words(text.value)
    # 75 and 76: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR in cuda.h
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    if (
        call_first(cuda, ["cuDeviceGetAttribute"], ctypes.byref(major), ctypes.c_int(75), device) == 0
        and call_first(cuda, ["cuDeviceGetAttribute"], ctypes.byref(minor), ctypes.c_int(76), device) == 0
    ):
        gpu["capability"] = [major.value, minor.value]
    size = ctypes.c_size_t(0)
    if call_first(cuda, ["cuDeviceTotalMem_v2", "cuDeviceTotalMem"], ctypes.byref(size), device) == 0:
        gpu["memory"] = size.value
    uuid = (ctypes.c_ubyte * 16)()
    if call_first(cuda, ["cuDeviceGetUuid"], ctypes.byref(uuid), device) == 0:
        digits = bytes(uuid).hex()
        gpu["uuid"] = "GPU-" + "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])
    return gpu


def cuda_error(cuda: "ctypes.CDLL", status: int) -> str:
    """Name of a CUresult, `CUDA_ERROR_NO_DEVICE`."""
    text = ctypes.c_char_p()
    if call_first(cuda, ["cuGetErrorName"], ctypes.c_int(status), ctypes.byref(text)) == 0 and text.value:
        return words(text.value)
    return ""


def call_first(library: "ctypes.CDLL", names: "list[str]", *arguments: "Any") -> int:
    """Call the first of these functions that the library has; its status, or -1 if there is none."""
    for name in names:
        try:
            function = getattr(library, name)
        except AttributeError:
            continue
        return int(function(*arguments))
    return -1


def candidates_for(name: str, directories: "list[str]") -> "list[str]":
    """Candidates for a library: by name alone, as the loader finds it, then in each directory."""
    machine = os.uname().machine
    return [name] + [os.path.join(directory.replace("{machine}", machine), name) for directory in directories]


def load(candidates: "list[str]", emit: "Emit") -> "ctypes.CDLL | None":
    """Load the first candidate that works, or None; emits `path` (the mapped file) and `tried`."""
    tried = []
    for candidate in candidates:
        if candidate.startswith("/") and not os.path.exists(candidate):
            continue
        try:
            library = ctypes.CDLL(candidate)
        except OSError as error:
            tried.append([candidate, str(error)[:300]])
            continue
        emit("tried", tried)
        emit("place", candidate)
        emit("path", mapped(os.path.basename(candidate)) or candidate)
        return library
    emit("tried", tried)
    return None


def mapped(name: str) -> "str | None":
    """File mapped into this process for a library `libcuda.so.1`, links resolved, or None."""
    stem = name[: name.index(".so") + 3]
    with open("/proc/self/maps", errors="surrogateescape") as lines:
        paths = {path for line in lines for path in line.rstrip("\n").split(None, 5)[5:]}
    return min((path for path in paths if os.path.basename(path).startswith(stem)), default=None)


def words(raw: bytes) -> str:
    """Decode a library's string, without control characters."""
    text = raw.decode("utf-8", "replace")[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in text).strip()


# --- cuDNN ---


def ask_cudnn(path: str, emit: "Emit") -> None:
    """Emit `loaded`, `version` and `cuda` (encoded), `asking` and `check` for each part, or `error`."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        emit("error", str(error)[:500])
        return
    emit("loaded", True)
    if os.path.basename(os.path.realpath(path)).partition(".so.")[2].partition(".")[0] == "8":
        open_parts(path)
    version = number(library, "cudnnGetVersion")
    emit("version", version)
    emit("cuda", number(library, "cudnnGetCudartVersion"))
    for part in CHECKS.get(major(version), []):
        function = getattr(library, "cudnn{}VersionCheck".format(part.title().replace("_", "")), None)
        if function is not None:
            emit("asking", part)
            emit("check", [part, int(function())])
    emit("done", True)


def open_parts(path: str) -> None:
    """Open the parts of cuDNN 8 in advance if there is no driver.

    8.5 and 8.6 abort when they open a part themselves: its initialization looks for libcuda.so in vain, and cuDNN mistakes that error for
    its own. A part that is already open is not initialized again.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        for part in CHECKS[8]:
            with contextlib.suppress(OSError):
                ctypes.CDLL(os.path.join(os.path.dirname(os.path.realpath(path)), "libcudnn_{}.so.8".format(part)))


def number(library: "ctypes.CDLL", name: str) -> "int | None":
    """Call a function without arguments that returns a size_t; None if there is no such function."""
    function = getattr(library, name, None)
    if function is None:
        return None
    function.restype = ctypes.c_size_t
    return int(function())


def major(version: "int | None") -> int:
    """Major of an encoded version, 8904 or 90100."""
    if version is None:
        return 0
    return version // 1000 if version < 10000 else version // 10000


def ask_module(question: "dict[str, Any]") -> "dict[str, Any]":
    """Number returned by each function of a framework's module; None if it is missing or fails."""
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
    """Print the answers of all libraries as one JSON line, or ask one copy of cuDNN as a child."""
    command, rest = sys.argv[1], sys.argv[2:]
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if command == "module":
        answer = ask_module(json.loads(rest[0]))
    elif "ctypes" not in sys.modules:
        answer = {"failed": "this Python was built without ctypes"}
    elif command == "--one":
        ask_cudnn(rest[0], emitter(int(rest[1])))
        os._exit(0)
    elif command == "driver":
        directories = rest[1:] or LIBRARY_DIRECTORIES
        asks = {
            "nvml": asking(ask_nvml, candidates_for("libnvidia-ml.so.1", directories)),
            "libcuda": asking(ask_libcuda, candidates_for("libcuda.so.1", directories)),
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
