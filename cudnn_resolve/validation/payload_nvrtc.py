"""Lets in the compiler that cuDNN's engines call at a first convolution, libnvrtc, and has it compile a program: it needs no GPU for that.

Python 3.6 grammar, standard library only.
"""

import ctypes
import glob
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

NAMES = {11: ("libnvrtc.so.11.2", "libnvrtc.so.11.1", "libnvrtc.so.11.0")}
"""Those of CUDA 11, whose names did not change with its releases; of a later CUDA the major alone stands behind the dot."""
PROGRAM = b'extern "C" __global__ void one(float *x) { x[0] = 1.0f; }'


def ask(cuda: int, cudnn: str, mapped: "Sequence[str]") -> "dict[str, Any]":
    """How libnvrtc of that major of CUDA came for a cuDNN in that file, `why` it did not, and the `status` of a compilation."""
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
    """Where libnvrtc is looked for: in the process; as the loader does it for cuDNN, whose wheels name two folders; in other wheels."""
    for path in mapped:
        if os.path.basename(path) in names or os.path.basename(path).startswith(tuple(name + "." for name in names)):
            yield "loaded", path
    home = os.path.dirname(cudnn)
    led = [entry for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry]
    for place in (*led, home, os.path.join(home, "..", "..", "nvrtc", "lib")):
        for name in names:
            if os.path.exists(os.path.join(place, name)):
                yield "found", os.path.join(place, name)
    for name in names:
        yield "found", name
    for name in names:
        for path in sorted(glob.glob(os.path.join(glob.escape(home), "..", "..", "*", "lib", name))):
            yield "wheel", path


def compiled(library: "Any") -> int:
    """The status of a compilation; 0 where it is done. For this it loads its built-in functions, which are another library."""
    program = ctypes.c_void_p()
    status = int(library.nvrtcCreateProgram(ctypes.byref(program), PROGRAM, b"one.cu", ctypes.c_int(0), None, None))
    if status == 0:
        status = int(library.nvrtcCompileProgram(program, ctypes.c_int(0), None))
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return status


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
