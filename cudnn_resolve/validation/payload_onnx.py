"""Writes ONNX models of one operation, byte by byte: the format is a protocol buffer, and no library for it need be there.

Source of the field numbers: onnx.proto of ONNX, version 1.16. Python 3.6 grammar, standard library only.
"""

import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FLOAT, FLOAT16, DOUBLE, BFLOAT16 = 1, 10, 11, 16
IR_VERSION, OPSET = 7, 13
INT, STRING, INTS = 2, 3, 7


def varint(number: int) -> bytes:
    """A number in groups of seven bits."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: "Any") -> bytes:
    """One field: an int as a varint, anything else as bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode("utf-8") if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def attribute(name: str, value: "Any") -> bytes:
    """An attribute of an operation: an int, a text, or a list of ints."""
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, INT)
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, STRING)
    return field(1, name) + b"".join(field(8, one) for one in value) + field(20, INTS)


def value_info(name: str, kind: int, shape: "Sequence[int]") -> bytes:
    """An input or output: its name, type and shape."""
    dims = b"".join(field(1, field(1, length)) for length in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def node(operation: str, inputs: "Sequence[str]", output: "Sequence[str]", attributes: "dict[str, Any]") -> bytes:
    """One operation."""
    out = b"".join(field(1, name) for name in inputs) + b"".join(field(2, name) for name in output)
    out += field(3, operation.lower()) + field(4, operation)
    return out + b"".join(field(5, attribute(name, value)) for name, value in sorted(attributes.items()))


def model(nodes: "Sequence[bytes]", inputs: "Sequence[bytes]", outputs: "Sequence[bytes]") -> bytes:
    """A whole model."""
    graph = b"".join(field(1, one) for one in nodes) + field(2, "check")
    graph += b"".join(field(11, one) for one in inputs) + b"".join(field(12, one) for one in outputs)
    return field(1, IR_VERSION) + field(2, "cudnn-resolve") + field(7, graph) + field(8, field(1, "") + field(2, OPSET))


def packed(numbers: "Sequence[float]") -> bytes:
    """Numbers of single precision as they stand in a tensor."""
    return struct.pack("<{}f".format(len(numbers)), *numbers)


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
