"""Asks the driver's own libraries; runs as a program of its own and prints one JSON line.

Each library is asked in a forked child with a time limit: one that hangs or crashes costs its own answers and nothing else. What
it had said until then counts. Python 3.6 grammar, standard library only.

    python payload_driver.py SECONDS [DIRECTORY...]

The directories, if there are any, replace those below.
"""

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

MOST_GPUS = 256
MOST_BYTES = 1 << 20
MARK = "cudnn-resolve-answer "


def ask_nvml(places: "list[str]", tell: "Tell") -> None:
    """Tells `path`, `cuda` (encoded), `driver`, `gpu` (one for each), `gpus` (their number) and `error`."""
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
    text = ctypes.create_string_buffer(96)
    if called(nvml, ["nvmlSystemGetDriverVersion"], text, ctypes.c_uint(80)) == 0:
        tell("driver", words(text.value))
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
    """What NVML says of one device; what it does not say is left out."""
    gpu = {}  # type: dict[str, Any]
    text = ctypes.create_string_buffer(128)
    if called(nvml, ["nvmlDeviceGetName"], handle, text, ctypes.c_uint(96)) == 0:
        gpu["name"] = words(text.value)
    text = ctypes.create_string_buffer(128)
    if called(nvml, ["nvmlDeviceGetUUID"], handle, text, ctypes.c_uint(96)) == 0:
        gpu["uuid"] = words(text.value)
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
        text = ctypes.create_string_buffer(128)
        if called(nvml, ["nvmlDeviceGetUUID"], instance, text, ctypes.c_uint(96)) == 0:
            found.append(words(text.value))
    return found


def nvml_error(nvml: "ctypes.CDLL", status: int) -> str:
    """NVML's own words for a status."""
    try:
        function = nvml.nvmlErrorString
        function.restype = ctypes.c_char_p
        return words(function(status) or b"")
    except AttributeError:
        return ""


def ask_libcuda(places: "list[str]", tell: "Tell") -> None:
    """Tells `path`, `cuda` (encoded), `gpu` (one for each visible one), `count` and `error`."""
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
    """Path of the file that this process has mapped for a library `libcuda.so.1`, links resolved; None if it is not seen."""
    stem = name[: name.index(".so") + 3]
    try:
        with open("/proc/self/maps", errors="replace") as lines:
            paths = [line.rstrip("\n").split(None, 5)[5:] for line in lines]
    except OSError:
        return None
    return next((path[0] for path in paths if path and os.path.basename(path[0]).startswith(stem)), None)


def words(raw: bytes) -> str:
    """Bytes of a library as text without control characters."""
    text = raw.decode("utf-8", "replace")[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in text).strip()


def start(ask: "Callable[[list[str], Tell], None]", places: "list[str]") -> "tuple[int, int]":
    """A forked child that asks: its process id and the pipe on which it tells, one JSON list `[key, value]` a line."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(write_end)
        return child, read_end
    try:
        os.close(read_end)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # whatever the library prints is not our answer
            os.dup2(nowhere, stream)

        def tell(key: str, value: "Any") -> None:
            os.write(write_end, (json.dumps([key, value]) + "\n").encode("ascii"))

        try:
            ask(places, tell)
        except Exception as error:
            tell("failed", "{}: {}".format(type(error).__name__, error))
    finally:
        os._exit(0)


def gather(children: "dict[str, tuple[int, int]]", seconds: float) -> "dict[str, dict[str, Any]]":
    """What every child told until it ended or its time was over, and how it ended."""
    pieces = dict.fromkeys(children, b"")
    pipes = {pipe: name for name, (_, pipe) in children.items()}
    deadline = time.monotonic() + seconds
    while pipes:
        ready, _, _ = select.select(list(pipes), [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for pipe in ready:
            piece = os.read(pipe, 65536)
            pieces[pipes[pipe]] += piece
            if not piece or len(pieces[pipes[pipe]]) > MOST_BYTES:
                del pipes[pipe]
    answers = {}
    for name, (child, pipe) in children.items():
        answers[name] = understood(pieces[name])
        answers[name]["ended"] = end(child, 0.0 if pipe in pipes else 1.0)
    return answers


def end(child: int, grace_seconds: float) -> str:
    """How a child ended: `exit`, the name of a signal, or `time` where it had to be killed after the grace."""
    deadline = time.monotonic() + grace_seconds
    status = None
    while status is None and time.monotonic() <= deadline:
        status = waited(child)
        if status is None:
            time.sleep(0.002)
    if status is None:
        os.kill(child, signal.SIGKILL)
        for _ in range(50):  # and no longer: a process that hangs in the kernel does not even die
            if waited(child) is not None:
                break
            time.sleep(0.002)
        return "time"
    if not os.WIFSIGNALED(status):
        return "exit"
    try:
        return signal.Signals(os.WTERMSIG(status)).name
    except ValueError:
        return "signal {}".format(os.WTERMSIG(status))


def waited(child: int) -> "int | None":
    """The wait status of a child that has ended, or None."""
    ended, status = os.waitpid(child, os.WNOHANG)
    return status if ended else None


def understood(raw: bytes) -> "dict[str, Any]":
    """The told pairs as one dictionary; `gpu` and `lost` collect in lists. A line that broke off is left out."""
    answer = {"gpus": [], "lost": []}  # type: dict[str, Any]
    for line in raw.decode("ascii", "replace").split("\n")[:-1]:
        key, value = json.loads(line)
        if key == "gpu":
            answer["gpus"].append(value)
        elif key == "lost":
            answer["lost"].append(value)
        else:
            answer[key] = value
    return answer


def main() -> None:
    """Prints the answers of both libraries as one JSON line."""
    if "ctypes" not in sys.modules:
        print("\n" + MARK + json.dumps({"failed": "this Python was built without ctypes"}))
        return
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass
    directories = sys.argv[2:] or LIBRARY_DIRECTORIES
    children = {
        "nvml": start(ask_nvml, places_of("libnvidia-ml.so.1", directories)),
        "libcuda": start(ask_libcuda, places_of("libcuda.so.1", directories)),
    }
    answers = gather(children, float(sys.argv[1]))
    print("\n" + MARK + json.dumps(answers))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
