"""Looks at one GPU through the driver's own libraries: can it be used at all, how fast could it be, and who else is on it.

Tells `card`, an object whose keys are left out where nobody answers. Python 3.6 grammar, standard library only.
"""

import ctypes
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MULTIPROCESSORS, CLOCK_KHZ, MAJOR, MINOR, MODE = 16, 13, 75, 76, 20
SM_CLOCK = 1
NVML = "ask NVML"
TOO_SMALL = 7
THROTTLES = ((0x4, "the power limit"), (0x8, "hardware"), (0x20, "heat"), (0x40, "heat"), (0x80, "the power supply"))
"""Bits of NVML's clock throttle reasons that mean that the card is slower than it could be; source: nvml.h."""


def run(_question: "dict[str, Any]", tell: "Any") -> None:
    """Tells what the first GPU is that is visible."""
    sibling = sys.modules["payload_run"].sibling
    tell("step", "open the driver's library and make a context")
    card = sibling("payload_cudnn").Card()
    device = ctypes.c_int()
    card.call("cuDeviceGet", ctypes.byref(device), 0)
    answer = {}  # type: dict[str, Any]
    numbers = {"multiprocessors": MULTIPROCESSORS, "clock_khz": CLOCK_KHZ, "major": MAJOR, "minor": MINOR, "mode": MODE}
    for name, attribute in numbers.items():
        value = ctypes.c_int()
        if card.knows("cuDeviceGetAttribute", ctypes.byref(value), attribute, device):
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
    if card.knows("cuDeviceGetUuid", ctypes.byref(identity), device):
        answer.update(surroundings(bytes(bytearray(identity)).hex()))
    tell("card", answer)


def surroundings(digits: str) -> "dict[str, Any]":
    """What NVML knows of the load and the clocks of the card with that UUID; nothing where there is no NVML."""
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


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
