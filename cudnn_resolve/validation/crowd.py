"""How many children may run side by side: by the processors and the memory of the machine, and by the memory of a card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from cudnn_resolve.host.port import Host
from cudnn_resolve.validation.child import Told

MOST = 4
"""More would wait for the same disk."""
PROCESS_MIB, PROGRAM_MIB = 4 << 10, 4 << 10
"""What a child with a framework is given of the machine's memory, and of a card's, where several run at a time."""
EXCLUSIVE = (1, 3)
"""CU_COMPUTEMODE_EXCLUSIVE of old drivers, and CU_COMPUTEMODE_EXCLUSIVE_PROCESS."""
GREEDY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"XLA_PYTHON_CLIENT_PREALLOCATE": ("true", "1"), "TF_FORCE_GPU_ALLOW_GROWTH": ("false", "0")}
)
"""Variables of the user, which are left as they are, with which a program takes most of a card."""
_THREADS = re.compile(r"^Cpus_allowed:\s*([0-9a-f,]{1,4000})$", re.MULTILINE)
_FREE = re.compile(r"^MemAvailable:\s*([0-9]{1,15}) kB$", re.MULTILINE)


def processes_at_once(host: Host) -> int:
    """How many children that import frameworks this machine has processors and memory for; two where it does not say."""
    threads, memory = (host.read_text(path) or "" for path in ("/proc/self/status", "/proc/meminfo"))
    allowed, free = _THREADS.search(threads), _FREE.search(memory)
    if allowed is None or free is None:
        return 2
    processors = int(allowed[1].replace(",", "") or "1", 16).bit_count()
    # To import is work for one processor, and some of it waits for the disk.
    return max(1, min(max(2, processors // 2), (int(free[1]) >> 10) // PROCESS_MIB, MOST))


def programs_on(looked: Told, environ: Mapping[str, str]) -> int:
    """How many programs may be on a card at a time, by what it told of itself; one where it told nothing of its memory.

    One, too, on a card that administrators keep for one process at a time, and where the user has JAX or TensorFlow take all memory.
    """
    answer = looked.last("card")
    facts = answer if isinstance(answer, dict) else {}
    free = facts.get("free_mib")
    if facts.get("mode") in EXCLUSIVE or any(environ.get(name, "").lower() in words for name, words in GREEDY.items()):
        return 1
    return max(1, free // PROGRAM_MIB) if isinstance(free, int) and 0 < free < 1 << 24 else 1
