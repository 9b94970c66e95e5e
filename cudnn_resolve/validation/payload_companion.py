"""Import one companion of a framework (torchvision, triton, numba, …) and run the smallest jobs that exercise its own code.

Emits `imported`, then for each job `step` and `proof`: numbers with those of a reference, an observation, or why it cannot be tested.
Python 3.6, standard library only.
"""

import contextlib
import math
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import wave

from cudnn_resolve.validation.payload import Unsupported, error_text, import_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

BOXES = [[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 11.0, 11.0], [20.0, 20.0, 30.0, 30.0], [0.0, 0.0, 10.0, 9.0], [21.0, 20.0, 31.0, 30.0]]
SCORES = [0.9, 0.8, 0.7, 0.95, 0.6]
"""Box 3 covers 0.9 of box 0 and 0.61 of box 1; box 2 covers 0.82 of box 4: a threshold of 0.65 leaves 3, 1 and 2, ordered by score."""
SAMPLES = [0, 8192, -16384, 4096, 0, -4096, 16384, -8192]
ADD = """
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)
"""
"""Source of a kernel, which triton reads from a file."""
NO_BACKEND = ("backend", "TorchCodec is required", "FFmpeg")
"""torchaudio's errors without an audio decoder."""
NO_COMPILE = (
    "supported for torch.compile",
    "not supported on Python",
    "yet supported",
    "too old",
    "No working C++ compiler",
    "working triton",
)
"""torch.compile's errors on a Python or GPU that its release does not support."""
C_COMPILERS = [os.environ.get("CC", ""), "gcc", "clang", "cc"]
"""Compilers with which triton builds the launcher of a kernel."""


class Trial:
    """A companion and the device to try it on."""

    def __init__(self, module: "Any", device: str) -> None:
        self.module, self.device = module, device

    def torch(self) -> "Any":
        """PyTorch; Unsupported if it is missing or does not see the device."""
        try:
            torch = import_named("torch")
        except ImportError as error:
            raise Unsupported("it needs torch: {}".format(error)) from error
        if self.device == "cuda" and not torch.cuda.is_available():
            raise Unsupported("torch sees no GPU")
        return torch


def run(question: "dict[str, Any]", emit: "Any") -> None:
    """Import the companion and run its jobs on a device; each emits a proof."""
    name, device = question["module"], question["device"]
    emit("step", "import {}".format(name))
    before = time.monotonic()
    module = import_named(name)
    emit("imported", [name, str(getattr(module, "__version__", "")), time.monotonic() - before])
    for job in question["jobs"]:
        emit("step", job)
        before = time.monotonic()
        try:
            answer = dict(JOBS[job](Trial(module, device)))
        except Unsupported as error:
            answer = {"untested": str(error)[:500]}
        except Exception as error:
            answer = {"error": error_text(error, 3000)}
        emit("proof", dict(answer, job=job, seconds=time.monotonic() - before))


def listed(tensor: "Any") -> "list[float]":
    """Elements of a PyTorch tensor."""
    return [float(number) for number in tensor.detach().cpu().reshape(-1).tolist()]


def need_compiler(names: "list[str]") -> None:
    """Raise Unsupported if a runtime compilation would find no compiler, or no Python headers."""
    if not any(shutil.which(name) for name in names if name):
        raise Unsupported("no compiler ({}) is on PATH".format(", ".join(filter(None, names))))
    headers = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(headers, "Python.h")):
        raise Unsupported("no compiler can use this Python: {} has no Python.h".format(headers))


@contextlib.contextmanager
def caches() -> "Iterator[str]":
    """Temporary folder for compiler caches: nothing old is reused, nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
        # Further threads would be processes that briefly outlive this one.
        os.environ.update(TORCHINDUCTOR_COMPILE_THREADS="1", TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, "inductor"))
        os.environ.update(TRITON_CACHE_DIR=os.path.join(folder, "triton"))
        yield folder


# --- jobs ---


def nms(trial: "Trial") -> "dict[str, Any]":
    """Non-maximum suppression of overlapping boxes."""
    torch = trial.torch()
    boxes, scores = (torch.tensor(numbers, device=trial.device) for numbers in (BOXES, SCORES))
    return {"got": listed(import_named("torchvision.ops").nms(boxes, scores, 0.65)), "wanted": [3, 1, 2]}


def lfilter(trial: "Trial") -> "dict[str, Any]":
    """Filter a signal, in torchaudio's C++ extension if it has one."""
    torch = trial.torch()
    signal = [sample / 32768.0 for sample in SAMPLES]
    wanted = []  # type: list[float]
    for index, sample in enumerate(signal):
        wanted.append(0.25 * sample + (0.25 * signal[index - 1] + 0.5 * wanted[-1] if index else 0.0))
    a, b = (torch.tensor(numbers, device=trial.device) for numbers in ([1.0, -0.5], [0.25, 0.25]))
    got = import_named("torchaudio.functional").lfilter(torch.tensor([signal], device=trial.device), a, b)
    return {"got": listed(got), "wanted": wanted, "within": 1e-5}


def load_wav(trial: "Trial") -> "dict[str, Any]":
    """Load a WAV of eight samples."""
    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
        path = os.path.join(folder, "x.wav")
        with contextlib.closing(wave.open(path, "wb")) as file:
            file.setparams((1, 2, 8000, len(SAMPLES), "NONE", ""))
            file.writeframes(b"".join(sample.to_bytes(2, "little", signed=True) for sample in SAMPLES))
        try:
            got, _rate = trial.module.load(path)
        except (ImportError, RuntimeError, OSError) as error:
            if any(words in str(error) for words in NO_BACKEND):
                raise Unsupported("no audio decoder: {}".format(error)) from error
            raise
    return {"got": listed(got), "wanted": [sample / 32768.0 for sample in SAMPLES], "within": 1e-4}


def ptxas(trial: "Trial") -> "dict[str, Any]":
    """Run triton's bundled assembler."""
    found = [os.path.join(folder, "ptxas") for folder, _, names in os.walk(os.path.dirname(trial.module.__file__)) if "ptxas" in names]
    if not found:
        raise Unsupported("this triton has no ptxas")
    process = subprocess.Popen([found[0], "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = process.communicate(timeout=30)[0].decode("utf-8", "replace").split("\n")
    release = [line for line in lines if "release" in line]
    if process.returncode or not release:
        raise RuntimeError("{} --version: status {}: {}".format(found[0], process.returncode, " ".join(lines)[-500:]))
    return {"seen": release[0]}


def vector_add(trial: "Trial") -> "dict[str, Any]":
    """Compile a kernel and add two vectors."""
    torch = trial.torch()
    need_compiler(C_COMPILERS)
    with caches() as folder:
        with open(os.path.join(folder, "cudnn_resolve_kernel.py"), "w") as file:
            file.write(ADD)
        sys.path.insert(0, folder)
        x = torch.arange(100, device=trial.device, dtype=torch.float32)
        y = 0.5 * x
        out = torch.zeros_like(x)
        import_named("cudnn_resolve_kernel").add[(1,)](x, y, out, 100, BLOCK=128)
        return {"got": listed(out), "wanted": [1.5 * number for number in range(100)], "within": 1e-6}


def compiled(trial: "Trial") -> "dict[str, Any]":
    """Compile a small function with torch.compile; the reference is the same function in Python."""
    torch = trial.torch()
    if not hasattr(torch, "compile"):
        raise Unsupported("this torch has no torch.compile")
    need_compiler([os.environ.get("CXX", ""), "g++"] if trial.device == "cpu" else C_COMPILERS)

    def work(x: "Any", y: "Any") -> "Any":
        return torch.sin(x) * y + (x * x).sum()

    x = torch.arange(32, device=trial.device, dtype=torch.float32) / 16
    wanted = listed(work(x, x + 1))
    with caches():
        try:
            got = listed(torch.compile(work)(x, x + 1))
        except Exception as error:
            if any(words in str(error) for words in NO_COMPILE):
                raise Unsupported(error_text(error, 400)) from error
            raise
    return {"got": got, "wanted": wanted, "within": 1e-4}


def xformers_extension(trial: "Trial") -> "dict[str, Any]":
    """Check that xformers could load its compiled extension: otherwise it only warns."""
    try:
        library = import_named(trial.module.__name__.partition(".")[0] + "._cpp_lib")
    except ImportError as error:
        raise Unsupported("this xformers does not report what it loaded") from error
    why = getattr(library, "_cpp_library_load_exception", None)
    if why is not None:
        raise RuntimeError("its compiled extension does not load: {}".format(str(why) or type(why).__name__))
    return {"seen": "its compiled extension loads"}


def flash_extension(trial: "Trial") -> "dict[str, Any]":
    """Check that importing flash-attn loaded its compiled extension."""
    found = [name for name in sorted(sys.modules) if name.startswith(trial.module.__name__) and name.endswith("_cuda")]
    if not found:
        raise Unsupported("it imported no compiled extension")
    return {"seen": "{} loads".format(found[0])}


def attention(trial: "Trial", name: str) -> "dict[str, Any]":
    """Compute an attention; the reference is PyTorch's own arithmetic in double precision."""
    torch = trial.torch()
    capability = tuple(torch.cuda.get_device_capability())
    if name == "flash_attn.flash_attn_func" and capability < (8, 0):
        raise Unsupported("flash-attn does not support compute capability {}.{}".format(*capability))
    module, _, function = name.rpartition(".")
    compute = getattr(import_named(module), function, None)
    if compute is None:
        raise Unsupported("this release has no {}".format(name))
    shape = (1, 16, 2, 32)  # batch, positions, heads, width
    numbers = torch.arange(1024, device=trial.device, dtype=torch.float32)
    q, k, v = (torch.sin(numbers * step).reshape(shape).half() for step in (0.7, 1.3, 2.9))
    query, key, value = (part.double().permute(0, 2, 1, 3) for part in (q, k, v))
    wanted = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(shape[-1]), -1) @ value
    return {"got": listed(compute(q, k, v)), "wanted": listed(wanted.permute(0, 2, 1, 3)), "within": 5e-3}


def builder(trial: "Trial") -> "dict[str, Any]":
    """Create TensorRT's builder, which opens the GPU and the library of its kernels."""
    made = trial.module.Builder(trial.module.Logger(trial.module.Logger.ERROR))
    if not made:
        raise RuntimeError("tensorrt.Builder returned nothing")
    return {"seen": "the builder is made"}


def njit(trial: "Trial") -> "dict[str, Any]":
    """Compile a loop with LLVM; the reference is the same loop in Python."""

    def work(count: int) -> float:
        total = 0.0
        for number in range(count):
            total += number * number / (number + 1.0)
        return total

    return {"got": [trial.module.njit(work)(100)], "wanted": [work(100)], "within": 1e-12}


def kernel(trial: "Trial") -> "dict[str, Any]":
    """Compile a kernel with NVVM and run it."""
    cuda, numpy = import_named("numba.cuda"), import_named("numpy")
    if not cuda.is_available():
        why = "numba.cuda finds no driver or no libNVVM: {}".format(getattr(cuda, "cuda_error", lambda: None)())
        if trial.module is cuda:
            raise RuntimeError(why)
        raise Unsupported(why)  # numba is often installed for the CPU alone

    def work(numbers: "Any") -> None:
        index = cuda.grid(1)
        if index < numbers.size:
            numbers[index] = 2 * numbers[index] + 1

    numbers = cuda.to_device(numpy.arange(100, dtype="float32"))
    cuda.jit(work)[4, 32](numbers)
    return {"got": numbers.copy_to_host().tolist(), "wanted": [2.0 * number + 1 for number in range(100)]}


JOBS = {
    "nms": nms,
    "lfilter": lfilter,
    "load": load_wav,
    "ptxas": ptxas,
    "vector-add": vector_add,
    "compile": compiled,
    "xformers-extension": xformers_extension,
    "xformers-attention": lambda trial: attention(trial, "xformers.ops.memory_efficient_attention"),
    "flash-extension": flash_extension,
    "flash-attention": lambda trial: attention(trial, "flash_attn.flash_attn_func"),
    "builder": builder,
    "njit": njit,
    "kernel": kernel,
}
"""Jobs by the name that companions.py uses."""
