"""CTranslate2: compute what it uses cuDNN for, the two convolutions at the beginning of a speech model, which is written here.

The model has the shape of Whisper's encoder. Its one layer adds nothing (its weights are 0), so that what comes out is the second
convolution's result, normalized. Source of the format: CTranslate2's model_spec.py, binary version 6. Python 3.6, standard library only.
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
"""Name, outputs and inputs of the products of one layer, in widths."""
WORDS = ["<a>", "<b>", "<c>"]


def text(words: str) -> bytes:
    """Write a text as the format has it."""
    content = words.encode("utf-8") + b"\0"
    return struct.pack("<H", len(content)) + content


def variable(name: str, kind: int, shape: "Sequence[int]", numbers: "Sequence[float]") -> bytes:
    """Write a named array; no shape means a single number."""
    content = struct.pack("<{}{}".format(len(numbers), LETTERS[kind]), *numbers)
    head = text(name) + struct.pack("<B", len(shape)) + b"".join(struct.pack("<I", length) for length in shape)
    return head + struct.pack("<BI", kind, len(content)) + content


def model(case: "dict[str, Any]") -> bytes:
    """Write the whole model."""
    width, frames = case["filters"], case["shapes"]["y"][1]
    rows = []

    def add(name: str, shape: "Sequence[int]", numbers: "Any") -> None:
        size = 1
        for length in shape:
            size *= length
        rows.append(variable(name, FLOAT32, shape, numbers if isinstance(numbers, list) else [float(numbers)] * size))

    def norm(name: str) -> None:
        add(name + "/gamma", (width,), 1)
        add(name + "/beta", (width,), 0)

    for name, given in (("conv1", "w"), ("conv2", "v")):
        add("encoder/{}/weight".format(name), case["shapes"][given], case[given])
        add("encoder/{}/bias".format(name), (width,), 0)
    add("encoder/position_encodings/encodings", (frames, width), 0)
    add("decoder/position_encodings/encodings", (frames, width), 0)
    for side in ("encoder", "decoder"):
        for name, out, inner in LAYER if side == "encoder" else LAYER + CROSS:
            add("{}/layer_0/{}/weight".format(side, name), (out * width, inner * width), 0)
            add("{}/layer_0/{}/bias".format(side, name), (out * width,), 0)
        for name in ("self_attention", "ffn") if side == "encoder" else ("self_attention", "attention", "ffn"):
            norm("{}/layer_0/{}/layer_norm".format(side, name))
        norm(side + "/layer_norm")
    add("decoder/embeddings/weight", (len(WORDS), width), 0)
    add("decoder/projection/weight", (len(WORDS), width), 0)
    rows += [variable(side + "/num_heads", INT16, (), [HEADS]) for side in ("encoder", "decoder")]
    flags = (("activation", 3), ("alibi", 0), ("alibi_use_positive_positions", 1), ("pre_norm", 1), ("scale_embeddings", 0))
    rows += [variable("decoder/" + name, INT8, (), [value]) for name, value in (*flags, ("start_from_zero_embedding", 0))]
    head = struct.pack("<I", VERSION) + text("WhisperSpec") + struct.pack("<II", REVISION, len(rows))
    return head + b"".join(rows) + struct.pack("<I", 0)


class Framework(Base):
    """CTranslate2 on one device."""

    def open(self) -> None:
        """See whether it has cuDNN: a build with it is linked against it, and from 4.6.3 on there is none."""
        self.has_cudnn = bool(cudnn_paths())

    def encoder(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Run the encoder."""
        kind, device = case["type"], "cpu" if self.is_cpu else "cuda"
        if kind not in self.lib.get_supported_compute_types(device):
            raise Unsupported("CTranslate2 does not compute {} on this device".format(kind))
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
            answer["own"] = "CTranslate2 {} has convolutions of its own".format(self.lib.__version__)
        return answer

    def fetch(self, tensor: "Any") -> "Any":
        """Bring a tensor back."""
        return self.numpy.array(tensor)

    def write(self, folder: str, name: str, content: "Any") -> None:
        """Write a file of JSON beside the model."""
        with open(os.path.join(folder, name), "w") as file:
            json.dump(content, file)
