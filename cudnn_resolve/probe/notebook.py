"""The notebook kernel that started this program, and the LD_LIBRARY_PATH that its loader still uses."""

from __future__ import annotations

import re

from msgspec.structs import replace

from cudnn_resolve.facts.model import Facts, Problem
from cudnn_resolve.host.protocol import Host

_KERNELS = ("ipykernel_launcher", "ipykernel", "colab_kernel_launcher")
_ANCESTORS = 12
_ENVIRON_BYTES = 4 << 20
_LIBRARY = r"lib(?:cu[a-z]|nv|nccl).{0,60}\.so(?:\.|$)"
_NAME = "LD_LIBRARY_PATH"


def kernel_above(host: Host) -> int | None:
    """Process id of the notebook kernel above this program (`!cudnn-resolve …`), or None."""
    pid = "self"
    for _ in range(_ANCESTORS):
        text = host.read_text(f"/proc/{pid}/stat", 4096)
        fields = text.rpartition(")")[2].split() if text else []
        if len(fields) < 2 or not fields[1].isdigit() or int(fields[1]) < 2:
            return None
        pid = fields[1]
        if _is_kernel(host, pid):
            return int(pid)
    return None


def with_kernel_paths(host: Host, facts: Facts) -> Facts:
    """Add a problem if LD_LIBRARY_PATH was changed inside the running kernel.

    The loader reads it once, when a process starts: later changes by `os.environ` or `%env` only affect programs that the kernel starts,
    possibly this one. Directories without CUDA libraries make no difference and are left out.
    """
    pid = "self" if _is_kernel(host, "self") else kernel_above(host)
    block = host.read_text(f"/proc/{pid}/environ", _ENVIRON_BYTES) if pid is not None else None
    if block is None:
        return facts
    before = _directories(next((entry.partition("=")[2] for entry in block.split("\0") if entry.startswith(f"{_NAME}=")), ""))
    now = _directories(host.environ.get(_NAME, ""))
    added = [path for path in now if path not in before and _has_libraries(host, path)]
    removed = [path for path in before if path not in now and _has_libraries(host, path)]
    changes = (("added", added), ("removed", removed))
    problems = tuple(Problem(what=f"loader.kernel.{change}", why=", ".join(paths)) for change, paths in changes if paths)
    return replace(facts, problems=(*facts.problems, *problems))


def _is_kernel(host: Host, pid: str) -> bool:
    words = (host.read_text(f"/proc/{pid}/cmdline", 65536) or "").split("\0")
    return any(word in _KERNELS or word.rpartition("/")[2].removesuffix(".py") in _KERNELS for word in words)


def _directories(path: str) -> list[str]:
    return list(dict.fromkeys(entry.rstrip("/") for entry in re.split("[:;]", path) if entry.startswith("/")))


def _has_libraries(host: Host, directory: str) -> bool:
    return any(re.match(_LIBRARY, name) for name in host.list_dir(directory))
