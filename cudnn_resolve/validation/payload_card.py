"""Ask the driver's own libraries about one GPU: whether it can be used at all, how fast it could be, and who else is on it.

Tells `card`, an object whose keys are left out where nobody answers. Python 3.6 grammar, standard library only.
"""

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

ATTRIBUTES = {"multiprocessors": 16, "clock_khz": 13, "major": 75, "minor": 76, "mode": 20}
"""CUdevice_attribute in cuda.h."""
SM_CLOCK = 1
NVML = "ask NVML"
TOO_SMALL = 7
THROTTLES = ((0x4, "the power limit"), (0x8, "hardware"), (0x20, "heat"), (0x40, "heat"), (0x80, "the power supply"))
"""Bits of NVML's clock throttle reasons that mean that the card is slower than it could be; source: nvml.h."""
KINDS_OF_ARGUMENTS = {"p": ctypes.c_void_p, "i": ctypes.c_int, "n": ctypes.c_size_t}
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
"""The same of the driver; an address on the card is as wide as a pointer."""


def function_of(library: "Any", name: str, prototypes: "dict[str, str]") -> "Any":
    """Find a function of a library that takes what its prototype says and nothing else; AttributeError where the library has none."""
    function = getattr(library, name)
    function.argtypes = [KINDS_OF_ARGUMENTS[letter] for letter in prototypes[name]]
    return function


class Card:
    """The memory of one GPU, by the driver's own library."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        # The context that CUDA's runtime inside cuDNN uses as well.
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)

    def ask(self, name: str, *arguments: "Any") -> int:
        """Call the driver and return the status; AttributeError where it has no such function."""
        return int(function_of(self.driver, name, DRIVER_PROTOTYPES)(*arguments))

    def knows(self, name: str, *arguments: "Any") -> bool:
        """True where the driver has the function and it succeeds: for what one can do without."""
        try:
            return self.ask(name, *arguments) == 0
        except AttributeError:
            return False

    def call(self, name: str, *arguments: "Any") -> None:
        """Call a function of the driver; RuntimeError where it does not succeed."""
        status = self.ask(name, *arguments)
        if status != 0:
            words = ctypes.c_char_p()
            self.knows("cuGetErrorName", status, ctypes.byref(words))
            raise RuntimeError("{}: {} ({})".format(name, (words.value or b"error").decode("ascii", "replace"), status))

    def allocate(self, size: int) -> "ctypes.c_void_p":
        """Allocate so many bytes on the card."""
        pointer = ctypes.c_void_p()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), max(size, 1))
        return pointer

    def store(self, content: bytes) -> "ctypes.c_void_p":
        """Copy bytes to the card."""
        pointer = self.allocate(len(content))
        self.call("cuMemcpyHtoD_v2", pointer, content, len(content))
        return pointer

    def fetch(self, pointer: "ctypes.c_void_p", size: int) -> bytes:
        """Copy bytes from the card, once it has computed them."""
        self.call("cuCtxSynchronize")
        content = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", content, pointer, size)
        return content.raw

    def free(self, pointers: "Sequence[ctypes.c_void_p]") -> None:
        """Free memory."""
        for pointer in pointers:
            self.call("cuMemFree_v2", pointer)


def run(_question: "dict[str, Any]", tell: "Any") -> None:
    """Tell what the first visible GPU is."""
    tell("step", "open the driver's library and make a context")
    card = Card()
    answer = {}  # type: dict[str, Any]
    for name, attribute in ATTRIBUTES.items():
        value = ctypes.c_int()
        if card.knows("cuDeviceGetAttribute", ctypes.byref(value), attribute, card.device):
            answer[name] = value.value
    tell("step", "write to the card's memory and read it back")
    content = bytes(bytearray(range(256))) * 4096
    pointer = card.store(content)
    answer["memory"] = card.fetch(pointer, len(content)) == content
    card.free([pointer])
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if card.knows("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)):
        answer.update(free_mib=free.value >> 20, total_mib=total.value >> 20)
    tell("card", answer)
    tell("step", NVML)
    identity = (ctypes.c_ubyte * 16)()
    if card.knows("cuDeviceGetUuid", ctypes.byref(identity), card.device):
        answer.update(surroundings(bytes(bytearray(identity)).hex()))
    tell("card", answer)


def surroundings(digits: str) -> "dict[str, Any]":
    """Ask NVML for the load and the clocks of the card with that UUID; nothing where there is no NVML."""
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
        found["throttled"] = sorted({words for bit, words in THROTTLES if bits.value & bit})
    for function in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses"):
        count = ctypes.c_uint(0)
        # Asked for none of them, it says how many there are. The context of this process is one.
        if ask(function, handle, ctypes.byref(count), None) in (0, TOO_SMALL):
            found["others"] = max(count.value - 1, 0)
            break
    return found
