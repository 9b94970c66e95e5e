"""What computed a case, where cuDNN's own log says nothing: names of operations and kernels, out of profilers and compiled programs.

Which of these names are cuDNN's is judged by whoever asked. Python 3.6 grammar, standard library only.
"""

import contextlib
import glob
import json
import os
import re
import shutil
import sys
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

TELLING = re.compile(r"conv|cudnn|gemm|rnn|lstm|winograd|grad|fprop|im2col|im2vol|vol2col|triton|cutlass|xmma|fft|nvjet", re.IGNORECASE)
"""Some of this stands in the name of whatever computes a convolution."""
RANKS = (
    re.compile(r"cudnn|fprop|dgrad|wgrad|xmma|cutlass|implicit|winograd|convolve|fft[123]d_", re.IGNORECASE),
    re.compile(r"slow_conv|thnn|mkldnn|nnpack|miopen|depthwise|im2col|im2vol|vol2col|triton|^convolution$|Provider:", re.IGNORECASE),
    re.compile(r"conv|gemm|nvjet", re.IGNORECASE),
)
"""What whoever judges needs first: what looks like cuDNN's kernels, then what stands in for them, then what is told of them."""
TARGET = re.compile(r'custom_call_target="([^"\n]{1,120})"')
FUSION = re.compile(r'kind"?: ?"(__[^"\n]{1,120})"')
PLAIN = re.compile(r"= [^=\n]{1,400}? (convolution)\(")
PART = re.compile(r"libcudnn_\w{1,40}(-[0-9a-f]{1,16})?\.so[.0-9]{0,20}$")
PRINTABLE = re.compile(rb"[\x20-\x7e]{4,2000}")
MOST_NAMES = 60
MOST_LETTERS = 160
MOST_BYTES = 64 << 20


def answer(how: str, names: "Iterable[str]") -> "dict[str, Any]":
    """What is told: who was asked, the names that say something, what says most first, and how many of them were left out."""
    found = sorted({str(name)[:MOST_LETTERS] for name in names if TELLING.search(str(name))})
    ranked = [[name for name in found if rank_of(name) == rank] for rank in range(len(RANKS) + 1)]
    # Of each rank some, so that a crowd of one does not hide another.
    first = [name for rank in ranked for name in rank[: MOST_NAMES // (len(RANKS) + 1)]]
    told = first + [name for rank in ranked for name in rank if name not in first]
    return {"how": how, "names": told[:MOST_NAMES], "cut": max(len(told) - MOST_NAMES, 0)}


def rank_of(name: str) -> int:
    """The number of the first rank that the name is of."""
    return next((rank for rank, pattern in enumerate(RANKS) if pattern.search(name)), len(RANKS))


def hlo_names(text: str) -> "list[str]":
    """The library calls of a compiled XLA program, and `convolution` where it holds one that is no call."""
    found = {match.group(1) for pattern in (TARGET, FUSION, PLAIN) for match in pattern.finditer(text[:MOST_BYTES])}
    return sorted(found)


def torch_names(torch: "Any", once: "Callable[[], Any]", device: str) -> "list[str]":
    """What PyTorch's profiler saw: its operations, and on a GPU the kernels."""
    profiler, on_gpu = getattr(torch, "profiler", None), device == "cuda"
    if profiler is not None and hasattr(profiler, "profile") and hasattr(profiler, "ProfilerActivity"):
        kinds = profiler.ProfilerActivity
        seen = profiler.profile(activities=[kinds.CPU, kinds.CUDA] if on_gpu else [kinds.CPU])
    else:
        seen = torch.autograd.profiler.profile(use_cuda=on_gpu)
    with seen:
        once()
        if on_gpu:
            torch.cuda.synchronize()
    return [str(one.key) for one in seen.key_averages()]


def tensorflow_names(tensorflow: "Any", once: "Callable[[], Any]") -> "list[str]":
    """What TensorFlow's profiler wrote of operations and kernels; of its files only the texts in them are read."""
    folder = tempfile.mkdtemp(prefix="cudnn-resolve-")
    try:
        tensorflow.profiler.experimental.start(folder)
        try:
            once()
        finally:
            tensorflow.profiler.experimental.stop()
        names = set()  # type: set[str]
        for path in glob.glob(os.path.join(glob.escape(folder), "**", "*.xplane.pb"), recursive=True):
            with open(path, "rb") as file:
                names.update(found.decode("ascii") for found in PRINTABLE.findall(file.read(MOST_BYTES)))
        return sorted(names)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def paddle_names(paddle: "Any", once: "Callable[[], Any]", device: str) -> "list[str]":
    """What PaddlePaddle's profiler saw: its operations, and on a GPU the kernels; a time stands behind each name, which is cut off."""
    profiler = paddle.profiler
    targets = [profiler.ProfilerTarget.CPU] + ([profiler.ProfilerTarget.GPU] if device != "cpu" else [])
    folder = tempfile.mkdtemp(prefix="cudnn-resolve-")
    path = os.path.join(folder, "trace.json")
    try:
        with profiler.Profiler(targets=targets, on_trace_ready=lambda seen: seen.export(path, format="json")):
            once()
        with open(path, encoding="utf-8", errors="replace") as file:
            events = json.loads(file.read(MOST_BYTES)).get("traceEvents") or []
        return sorted({str(event["name"]).partition("[")[0] for event in events if isinstance(event, dict) and event.get("name")})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def mxnet_names(mxnet: "Any", once: "Callable[[], Any]") -> "list[str]":
    """What MXNet 1 says of it: its convolutions are cuDNN's where it was built with it, and it warns of each that is not.

    Source: src/operator/nn/convolution.cu of MXNet 1.9.1.
    """
    if not mxnet.runtime.Features().is_enabled("CUDNN"):
        return ["MXNet: built without cuDNN"]
    warned = [line for line in printed_by(once).splitlines() if "not supported by cudnn" in line]
    if warned:
        return ["MXNet: " + line.rpartition("] ")[2].rpartition(": ")[2] for line in warned]
    return ["MXNet: built with cuDNN, and no warning that it was not used"] if str(mxnet.__version__).startswith("1.") else []


def printed_by(once: "Callable[[], Any]") -> str:
    """What libraries print to standard error meanwhile; it is printed there afterwards all the same."""
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            once()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            content = file.read(1 << 20)
            os.write(2, content)
    return content.decode("utf-8", "replace")


def parts() -> "set[str]":
    """The parts of cuDNN that this process holds; those that compute come with the first convolution."""
    with open("/proc/self/maps", errors="surrogateescape") as lines:
        return {match.group(0) for line in lines for match in [PART.search(line.rstrip())] if match}


def onnxruntime_names(path: str) -> "list[str]":
    """Provider and operation of each node in a profile that ONNX Runtime wrote; the file is gone afterwards."""
    try:
        with open(path, encoding="utf-8") as file:
            events = json.loads(file.read(MOST_BYTES))
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)
    rows = [event.get("args") or {} for event in events if isinstance(event, dict)]
    return sorted({"{}:{}".format(row["provider"], row["op_name"]) for row in rows if "provider" in row and "op_name" in row})


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
