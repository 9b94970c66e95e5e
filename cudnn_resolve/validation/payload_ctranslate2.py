"""CTranslate2: its only use of cuDNN, the two convolutions at the beginning of a speech model.

The model is written here, in the shape of Whisper's encoder. Its single layer adds nothing (all weights are 0), so its output is the
second convolution's result, normalized. Source of the format: CTranslate2's model_spec.py, binary version 6. Python 3.6, standard
library only.
"""

import json
import os
import struct
import tempfile

from cudnn_resolve.validation.payload import Unsupported
from cudnn_resolve.validation.payload_framework import Framework as Base
from cudnn_resolve.validation.payload_load import cudnn_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FLOAT32, INT8, INT16 = 0, 1, 2
LETTERS = {FLOAT32: "f", INT8: "b", INT16: "h"}
VERSION, REVISION = 6, 3
HEADS = 2
LAYER = [("self_attention/linear_0", 3, 1), ("self_attention/linear_1", 1, 1), ("ffn/linear_0", 4, 1), ("ffn/linear_1", 1, 4)]
CROSS = [("attention/linear_0", 1, 1), ("attention/linear_1", 2, 1), ("attention/linear_2", 1, 1)]
"""Name, outputs and inputs of the linear layers of one layer, in multiples of its width."""
WORDS = ["<a>", "<b>", "<c>"]


def string(text: str) -> bytes:
    """Encode a string."""
    content = text.encode("utf-8") + b"\0"
    return struct.pack("<H", len(content)) + content


def variable(name: str, kind: int, shape: "Sequence[int]", numbers: "Sequence[float]") -> bytes:
    """Encode a named array; an empty shape means a single number."""
    content = struct.pack("<{}{}".format(len(numbers), LETTERS[kind]), *numbers)
    head = string(name) + struct.pack("<B", len(shape)) + b"".join(struct.pack("<I", length) for length in shape)
    return head + struct.pack("<BI", kind, len(content)) + content


def model(case: "dict[str, Any]") -> bytes:
    """Encode the model."""
    width, frames = case["filters"], case["shapes"]["y"][1]
    rows = []

    def fill(name: str, shape: "Sequence[int]", value: float) -> None:
        size = 1
        for length in shape:
            size *= length
        rows.append(variable(name, FLOAT32, shape, [value] * size))

    def norm(name: str) -> None:
        fill(name + "/gamma", (width,), 1.0)
        fill(name + "/beta", (width,), 0.0)

    for name, given in (("conv1", "w"), ("conv2", "v")):
        rows.append(variable("encoder/{}/weight".format(name), FLOAT32, case["shapes"][given], case[given]))
        fill("encoder/{}/bias".format(name), (width,), 0.0)
    fill("encoder/position_encodings/encodings", (frames, width), 0.0)
    fill("decoder/position_encodings/encodings", (frames, width), 0.0)
    for side in ("encoder", "decoder"):
        for name, out, inner in LAYER if side == "encoder" else LAYER + CROSS:
            fill("{}/layer_0/{}/weight".format(side, name), (out * width, inner * width), 0.0)
            fill("{}/layer_0/{}/bias".format(side, name), (out * width,), 0.0)
        for name in ("self_attention", "ffn") if side == "encoder" else ("self_attention", "attention", "ffn"):
            norm("{}/layer_0/{}/layer_norm".format(side, name))
        norm(side + "/layer_norm")
    fill("decoder/embeddings/weight", (len(WORDS), width), 0.0)
    fill("decoder/projection/weight", (len(WORDS), width), 0.0)
    rows += [variable(side + "/num_heads", INT16, (), [HEADS]) for side in ("encoder", "decoder")]
    flags = (("activation", 3), ("alibi", 0), ("alibi_use_positive_positions", 1), ("pre_norm", 1), ("scale_embeddings", 0))
    rows += [variable("decoder/" + name, INT8, (), [value]) for name, value in (*flags, ("start_from_zero_embedding", 0))]
    head = struct.pack("<I", VERSION) + string("WhisperSpec") + struct.pack("<II", REVISION, len(rows))
    return head + b"".join(rows) + struct.pack("<I", 0)


class Framework(Base):
    """CTranslate2 on one device."""

    def open(self) -> None:
        """Look for cuDNN: builds with it are linked against it, and since 4.6.3 there are none."""
        self.has_cudnn = bool(cudnn_paths())

    def encoder(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Encoder of the model."""
        kind, device = case["type"], "cpu" if self.is_cpu else "cuda"
        if kind not in self.lib.get_supported_compute_types(device):
            raise Unsupported("CTranslate2 does not support {} on this device".format(kind))
        with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
            with open(os.path.join(folder, "model.bin"), "wb") as file:
                file.write(model(case))
            self.write(folder, "config.json", dict.fromkeys(["alignment_heads", "lang_ids", "suppress_ids", "suppress_ids_begin"]))
            self.write(folder, "vocabulary.json", WORDS)
            whisper = self.lib.models.Whisper(folder, device=device, compute_type=kind)
        out = whisper.encode(self.lib.StorageView.from_array(self.array(case, "x")), to_cpu=True)
        if kind != "float32":
            out = out.to(self.lib.DataType.float32)
        answer = {"y": self.listed(out), "forward_only": True}  # type: dict[str, Any]
        if not self.has_cudnn:
            answer["own"] = "CTranslate2 {} has its own convolutions".format(self.lib.__version__)
        return answer

    def fetch(self, tensor: "Any") -> "Any":
        """Copy to NumPy."""
        return self.numpy.array(tensor)

    def write(self, folder: str, name: str, content: "Any") -> None:
        """Write a JSON file beside the model."""
        with open(os.path.join(folder, name), "w") as file:
            json.dump(content, file)
