"""Import one companion of a framework (torchvision, triton, numba, …) and have it do the least work that proves its own code.

Tells `imported`, then for each job `step` and `proof`: numbers with those of a reference, what was seen, or why nothing could be tested.
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
"""Box 3 covers 0.9 of box 0 and 0.61 of box 1; box 2 covers 0.82 of box 4: at 0.65 there remain 3, 1 and 2, in the order of scores."""
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
"""triton reads the source of a kernel from its file."""
NO_BACKEND = ("backend", "TorchCodec is required", "FFmpeg")
"""What torchaudio says where nothing is installed that decodes audio."""
NO_COMPILE = (
    "supported for torch.compile",
    "not supported on Python",
    "yet supported",
    "too old",
    "No working C++ compiler",
    "working triton",
)
"""What torch.compile says of a Python or a card for which its release has no compiler."""


C_COMPILERS = [os.environ.get("CC", ""), "gcc", "clang", "cc"]
"""What triton builds the start of a kernel with."""


class Trial:
    """A companion and the device on which it is tried."""

    def __init__(self, module: "Any", device: str) -> None:
        self.module, self.device = module, device

    def torch(self) -> "Any":
        """PyTorch, where it is there and sees the device."""
        try:
            torch = import_named("torch")
        except ImportError as error:
            raise Unsupported("it needs torch: {}".format(error)) from error
        if self.device == "cuda" and not torch.cuda.is_available():
            raise Unsupported("torch sees no GPU")
        return torch


def run(question: "dict[str, Any]", tell: "Any") -> None:
    """Import the companion and do its jobs on a device; each tells a proof."""
    name, device = question["module"], question["device"]
    tell("step", "import {}".format(name))
    before = time.monotonic()
    module = import_named(name)
    tell("imported", [name, str(getattr(module, "__version__", "")), time.monotonic() - before])
    for job in question["jobs"]:
        tell("step", job)
        before = time.monotonic()
        try:
            answer = dict(JOBS[job](Trial(module, device)))
        except Unsupported as error:
            answer = {"untested": str(error)[:500]}
        except Exception as error:
            answer = {"error": error_text(error, 3000)}
        tell("proof", dict(answer, job=job, seconds=time.monotonic() - before))


def listed(tensor: "Any") -> "list[float]":
    """The numbers of a tensor of PyTorch."""
    return [float(one) for one in tensor.detach().cpu().reshape(-1).tolist()]


def need_compiler(names: "list[str]") -> None:
    """Refuse where what compiles at run time finds no compiler, or no headers of Python."""
    if not any(shutil.which(name) for name in names if name):
        raise Unsupported("no compiler ({}) is on PATH".format(", ".join(filter(None, names))))
    headers = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(headers, "Python.h")):
        raise Unsupported("no compiler can use this Python: {} has no Python.h".format(headers))


@contextlib.contextmanager
def caches() -> "Iterator[str]":
    """A folder for what is compiled, which leaves nothing behind and takes nothing over."""
    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
        # More threads would be processes that outlive this one for a while.
        os.environ.update(TORCHINDUCTOR_COMPILE_THREADS="1", TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, "inductor"))
        os.environ.update(TRITON_CACHE_DIR=os.path.join(folder, "triton"))
        yield folder


# --- jobs ---


def nms(at: "Trial") -> "dict[str, Any]":
    """Suppress the boxes that others cover."""
    torch = at.torch()
    boxes, scores = (torch.tensor(numbers, device=at.device) for numbers in (BOXES, SCORES))
    return {"got": listed(import_named("torchvision.ops").nms(boxes, scores, 0.65)), "wanted": [3, 1, 2]}


def lfilter(at: "Trial") -> "dict[str, Any]":
    """Filter a signal, which torchaudio does in its C++ extension where it has one."""
    torch = at.torch()
    signal = [one / 32768.0 for one in SAMPLES]
    wanted = []  # type: list[float]
    for index, one in enumerate(signal):
        wanted.append(0.25 * one + (0.25 * signal[index - 1] + 0.5 * wanted[-1] if index else 0.0))
    a, b = (torch.tensor(numbers, device=at.device) for numbers in ([1.0, -0.5], [0.25, 0.25]))
    got = import_named("torchaudio.functional").lfilter(torch.tensor([signal], device=at.device), a, b)
    return {"got": listed(got), "wanted": wanted, "within": 1e-5}


def load_wav(at: "Trial") -> "dict[str, Any]":
    """Load a WAV of eight samples."""
    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
        path = os.path.join(folder, "x.wav")
        with contextlib.closing(wave.open(path, "wb")) as file:
            file.setparams((1, 2, 8000, len(SAMPLES), "NONE", ""))
            file.writeframes(b"".join(one.to_bytes(2, "little", signed=True) for one in SAMPLES))
        try:
            got, _rate = at.module.load(path)
        except (ImportError, RuntimeError, OSError) as error:
            if any(words in str(error) for words in NO_BACKEND):
                raise Unsupported("nothing that decodes audio: {}".format(error)) from error
            raise
    return {"got": listed(got), "wanted": [one / 32768.0 for one in SAMPLES], "within": 1e-4}


def ptxas(at: "Trial") -> "dict[str, Any]":
    """Ask the assembler that triton brings for its version."""
    found = [os.path.join(place, "ptxas") for place, _, names in os.walk(os.path.dirname(at.module.__file__)) if "ptxas" in names]
    if not found:
        raise Unsupported("this triton brings no ptxas")
    asked = subprocess.Popen([found[0], "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = asked.communicate(timeout=30)[0].decode("utf-8", "replace").split("\n")
    release = [line for line in lines if "release" in line]
    if asked.returncode or not release:
        raise RuntimeError("{} --version: status {}: {}".format(found[0], asked.returncode, " ".join(lines)[-500:]))
    return {"seen": release[0]}


def vector_add(at: "Trial") -> "dict[str, Any]":
    """Compile a kernel and add two vectors."""
    torch = at.torch()
    need_compiler(C_COMPILERS)
    with caches() as folder:
        with open(os.path.join(folder, "cudnn_resolve_kernel.py"), "w") as file:
            file.write(ADD)
        sys.path.insert(0, folder)
        x = torch.arange(100, device=at.device, dtype=torch.float32)
        y = 0.5 * x
        out = torch.zeros_like(x)
        import_named("cudnn_resolve_kernel").add[(1,)](x, y, out, 100, BLOCK=128)
        return {"got": listed(out), "wanted": [1.5 * one for one in range(100)], "within": 1e-6}


def compiled(at: "Trial") -> "dict[str, Any]":
    """Compile a small function with torch.compile, against the same function as Python runs it."""
    torch = at.torch()
    if not hasattr(torch, "compile"):
        raise Unsupported("this torch has no torch.compile")
    need_compiler([os.environ.get("CXX", ""), "g++"] if at.device == "cpu" else C_COMPILERS)

    def work(x: "Any", y: "Any") -> "Any":
        return torch.sin(x) * y + (x * x).sum()

    x = torch.arange(32, device=at.device, dtype=torch.float32) / 16
    wanted = listed(work(x, x + 1))
    with caches():
        try:
            got = listed(torch.compile(work)(x, x + 1))
        except Exception as error:
            if any(words in str(error) for words in NO_COMPILE):
                raise Unsupported(error_text(error, 400)) from error
            raise
    return {"got": got, "wanted": wanted, "within": 1e-4}


def xformers_extension(at: "Trial") -> "dict[str, Any]":
    """Ask xformers whether it could load what it has compiled: it only warns where it could not."""
    try:
        library = import_named(at.module.__name__.partition(".")[0] + "._cpp_lib")
    except ImportError as error:
        raise Unsupported("this xformers does not say what it has loaded") from error
    why = getattr(library, "_cpp_library_load_exception", None)
    if why is not None:
        raise RuntimeError("its compiled extension does not load: {}".format(str(why) or type(why).__name__))
    return {"seen": "its compiled extension loads"}


def flash_extension(at: "Trial") -> "dict[str, Any]":
    """See that importing flash-attn has brought its compiled extension in."""
    found = [name for name in sorted(sys.modules) if name.startswith(at.module.__name__) and name.endswith("_cuda")]
    if not found:
        raise Unsupported("it has imported no compiled extension")
    return {"seen": "{} loads".format(found[0])}


def attention(at: "Trial", name: str) -> "dict[str, Any]":
    """Compute an attention, against PyTorch's own arithmetic in double precision."""
    torch = at.torch()
    capability = tuple(torch.cuda.get_device_capability())
    if name == "flash_attn.flash_attn_func" and capability < (8, 0):
        raise Unsupported("flash-attn has nothing for compute capability {}.{}".format(*capability))
    module, _, function = name.rpartition(".")
    compute = getattr(import_named(module), function, None)
    if compute is None:
        raise Unsupported("this release has no {}".format(name))
    shape = (1, 16, 2, 32)  # batch, positions, heads, width
    numbers = torch.arange(1024, device=at.device, dtype=torch.float32)
    q, k, v = (torch.sin(numbers * step).reshape(shape).half() for step in (0.7, 1.3, 2.9))
    one, two, three = (part.double().permute(0, 2, 1, 3) for part in (q, k, v))
    wanted = torch.softmax(one @ two.transpose(-1, -2) / math.sqrt(shape[-1]), -1) @ three
    return {"got": listed(compute(q, k, v)), "wanted": listed(wanted.permute(0, 2, 1, 3)), "within": 5e-3}


def builder(at: "Trial") -> "dict[str, Any]":
    """Make TensorRT's builder, which opens the card and the library of its kernels."""
    made = at.module.Builder(at.module.Logger(at.module.Logger.ERROR))
    if not made:
        raise RuntimeError("tensorrt.Builder gave nothing")
    return {"seen": "the builder is made"}


def njit(at: "Trial") -> "dict[str, Any]":
    """Compile a loop with LLVM, against the same loop as Python runs it."""

    def work(count: int) -> float:
        total = 0.0
        for one in range(count):
            total += one * one / (one + 1.0)
        return total

    return {"got": [at.module.njit(work)(100)], "wanted": [work(100)], "within": 1e-12}


def kernel(at: "Trial") -> "dict[str, Any]":
    """Compile a kernel with NVVM and run it."""
    cuda, numpy = import_named("numba.cuda"), import_named("numpy")
    if not cuda.is_available():
        why = "numba.cuda finds no driver or no libNVVM: {}".format(getattr(cuda, "cuda_error", lambda: None)())
        if at.module is cuda:
            raise RuntimeError(why)
        raise Unsupported(why)  # numba alone is often there for the CPU

    def work(numbers: "Any") -> None:
        index = cuda.grid(1)
        if index < numbers.size:
            numbers[index] = 2 * numbers[index] + 1

    numbers = cuda.to_device(numpy.arange(100, dtype="float32"))
    cuda.jit(work)[4, 32](numbers)
    return {"got": numbers.copy_to_host().tolist(), "wanted": [2.0 * one + 1 for one in range(100)]}


JOBS = {
    "nms": nms,
    "lfilter": lfilter,
    "load": load_wav,
    "ptxas": ptxas,
    "vector-add": vector_add,
    "compile": compiled,
    "xformers-extension": xformers_extension,
    "xformers-attention": lambda at: attention(at, "xformers.ops.memory_efficient_attention"),
    "flash-extension": flash_extension,
    "flash-attention": lambda at: attention(at, "flash_attn.flash_attn_func"),
    "builder": builder,
    "njit": njit,
    "kernel": kernel,
}
"""What proves a companion, by the name under which companions.py asks for it."""
