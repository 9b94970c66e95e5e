"""Ask the driver's libraries about one GPU: whether it works, how fast it can be, and what else runs on it.

Emits `card`, an object without the keys that stay unanswered. Python 3.6 grammar, standard library only.
"""

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

ATTRIBUTES = {"multiprocessors": 16, "clock_khz": 13, "mode": 20}
"""CUdevice_attribute in cuda.h."""
SM_CLOCK = 1
NVML = "ask NVML"
TOO_SMALL = 7
THROTTLES = ((0x4, "the power limit"), (0x8, "hardware"), (0x20, "heat"), (0x40, "heat"), (0x80, "the power supply"))
"""NVML's clock throttle reasons that slow a GPU down; source: nvml.h."""
ARGUMENT_TYPES = {"p": ctypes.c_void_p, "i": ctypes.c_int, "n": ctypes.c_size_t}
DRIVER_PROTOTYPES = {
    "cuInit": "i",
    "cuDeviceGet": "pi",
    "cuDevicePrimaryCtxRetain": "pi",
    "cuCtxSetCurrent": "p",
    "cuCtxSynchronize": "",
    "cuGetErrorName": "ip",
    "cuMemAlloc_v2": "pn",
    "cuMemFree_v2": "p",
    "cuMemcpyHtoD_v2": "ppn",
    "cuMemcpyDtoH_v2": "ppn",
    "cuMemGetInfo_v2": "pp",
    "cuDeviceGetAttribute": "pii",
    "cuDeviceGetUuid": "pi",
}
"""Argument types of the driver functions in use; an address on the GPU is as wide as a pointer."""


def prototyped(library: "Any", name: str, prototypes: "dict[str, str]") -> "Any":
    """Function of a library with its argument types set; AttributeError if the library lacks it."""
    function = getattr(library, name)
    function.argtypes = [ARGUMENT_TYPES[letter] for letter in prototypes[name]]
    return function


class Card:
    """Memory of one GPU, through the driver's own library."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        # The context that the CUDA runtime inside cuDNN uses, too.
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)

    def status_of(self, name: str, *arguments: "Any") -> int:
        """Status of a driver call; AttributeError if there is no such function."""
        return int(prototyped(self.driver, name, DRIVER_PROTOTYPES)(*arguments))

    def succeeds(self, name: str, *arguments: "Any") -> bool:
        """True if the driver has an optional function and it succeeds."""
        try:
            return self.status_of(name, *arguments) == 0
        except AttributeError:
            return False

    def call(self, name: str, *arguments: "Any") -> None:
        """Call the driver; RuntimeError if it fails."""
        status = self.status_of(name, *arguments)
        if status != 0:
            words = ctypes.c_char_p()
            self.succeeds("cuGetErrorName", status, ctypes.byref(words))
            raise RuntimeError("{}: {} ({})".format(name, (words.value or b"error").decode("ascii", "replace"), status))

    def allocate(self, size: int) -> "ctypes.c_void_p":
        """Allocate GPU memory, in bytes."""
        pointer = ctypes.c_void_p()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), max(size, 1))
        return pointer

    def store(self, content: bytes) -> "ctypes.c_void_p":
        """Copy bytes to the GPU."""
        pointer = self.allocate(len(content))
        self.call("cuMemcpyHtoD_v2", pointer, content, len(content))
        return pointer

    def fetch(self, pointer: "ctypes.c_void_p", size: int) -> bytes:
        """Wait for the GPU and copy bytes from it."""
        self.call("cuCtxSynchronize")
        content = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", content, pointer, size)
        return content.raw

    def free(self, pointers: "Sequence[ctypes.c_void_p]") -> None:
        """Free memory."""
        for pointer in pointers:
            self.call("cuMemFree_v2", pointer)


def run(_question: "dict[str, Any]", emit: "Any") -> None:
    """Describe the first visible GPU."""
    emit("step", "open the driver's library and make a context")
    card = Card()
    answer = {}  # type: dict[str, Any]
    for name, attribute in ATTRIBUTES.items():
        value = ctypes.c_int()
        if card.succeeds("cuDeviceGetAttribute", ctypes.byref(value), attribute, card.device):
            answer[name] = value.value
    emit("step", "write to the GPU's memory and read it back")
    content = bytes(bytearray(range(256))) * 4096
    pointer = card.store(content)
    answer["memory"] = card.fetch(pointer, len(content)) == content
    card.free([pointer])
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if card.succeeds("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)):
        answer.update(free_mib=free.value >> 20, total_mib=total.value >> 20)
    emit("card", answer)
    emit("step", NVML)
    identity = (ctypes.c_ubyte * 16)()
    if card.succeeds("cuDeviceGetUuid", ctypes.byref(identity), card.device):
        answer.update(load_and_clocks(bytes(bytearray(identity)).hex()))
    emit("card", answer)


def load_and_clocks(digits: str) -> "dict[str, Any]":
    """Load and clocks of the GPU with that UUID, from NVML; empty without NVML."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return {}

    def ask(name: str, *arguments: "Any") -> "int | None":
        function = getattr(nvml, name, None)
        return None if function is None else int(function(*arguments))

    uuid = "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    handle = ctypes.c_void_p()
    if ask("nvmlInit_v2") != 0 or ask("nvmlDeviceGetHandleByUUID", uuid.encode("ascii"), ctypes.byref(handle)) != 0:
        return {}
    found = {}  # type: dict[str, Any]
    for name, function in (("clock_mhz", "nvmlDeviceGetClockInfo"), ("most_mhz", "nvmlDeviceGetMaxClockInfo")):
        value = ctypes.c_uint()
        if ask(function, handle, SM_CLOCK, ctypes.byref(value)) == 0:
            found[name] = value.value
    bits = ctypes.c_ulonglong()
    if ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle, ctypes.byref(bits)) == 0:
        found["throttled"] = sorted({reason for bit, reason in THROTTLES if bits.value & bit})
    for function in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses"):
        count = ctypes.c_uint(0)
        # With room for none it returns their number, which includes this process.
        if ask(function, handle, ctypes.byref(count), None) in (0, TOO_SMALL):
            found["others"] = max(count.value - 1, 0)
            break
    return found
