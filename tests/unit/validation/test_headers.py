"""What is called by ctypes, held against NVIDIA's own headers in the wheels on the index (network); of each a few blocks are fetched."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

import pytest

from cudnn_resolve.validation import payload_card, payload_cudnn, payload_load
from cudnn_resolve.validation.children import EXCLUSIVE

CUDNN = (
    ("nvidia-cudnn-cu11", "8.5.0.96"),
    ("nvidia-cudnn-cu12", "8.9.7.29"),
    ("nvidia-cudnn-cu12", "9.0.0.312"),
    ("nvidia-cudnn-cu12", "9.10.2.21"),
    ("nvidia-cudnn-cu13", "9.28.0.42"),
)
DRIVER = (("nvidia-cuda-runtime-cu11", "11.8.89"), ("nvidia-cuda-runtime-cu12", "12.9.79"), ("nvidia-cuda-runtime", "13.0.96"))
NVML = (("nvidia-nvml-dev-cu12", "12.9.79"),)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
ENUM = re.compile(r"typedef\s+enum\s*\w*\s*\{([^}]*)\}[\w\s]*;")
STRUCT = re.compile(r"struct\s+(\w+)\s*\{([^}]*)\}[\w\s]*;")
PROTOTYPE = re.compile(r"\b(\w+)\s+(?:CUDNNWINAPI|CUDAAPI|DECLDIR|tCU\w*|)\s*((?:t?cudnn|cu|nvml)[A-Z]\w*)\s*\(([^;{}()]*)\)\s*;")
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]+)$", re.MULTILINE)


class Headers:
    """The declarations of some headers."""

    def __init__(self, text: str) -> None:
        text = COMMENT.sub(" ", text).replace("\\\n", " ")
        self.macros = dict(MACRO.findall(text))
        self.prototypes: dict[str, str] = {}
        for _, name, arguments in PROTOTYPE.findall(text):
            self.prototypes.setdefault(name.removeprefix("t"), letters_of(arguments))
        self.enums = dict(pair for body in ENUM.findall(text) for pair in values_of(body))
        self.structs = dict(STRUCT.findall(text))

    def number(self, name: str) -> int:
        """The value of an enumerator or a macro."""
        return self.enums[name] if name in self.enums else int(self.macros[name].strip("() ").rstrip("ULul"), 0)


def letters_of(arguments: str) -> str:
    """What a prototype takes, in the letters of the payload."""
    found = ""
    for argument in arguments.split(",") if arguments.strip() not in ("", "void") else []:
        if "*" in argument or "[" in argument or re.search(r"(Descriptor|Handle|Device)_t\b|CUcontext|CUdeviceptr", argument):
            found += "p"
        else:
            found += "n" if re.search(r"\bsize_t\b", argument) else "i"
    return found


def values_of(body: str) -> list[tuple[str, int]]:
    """The enumerators of one enumeration; those that are computed of others are left out."""
    found, following = [], 0
    for word in filter(None, map(str.strip, body.split(","))):
        name, _, value = word.partition("=")
        plain = value.strip().rstrip("uU")
        if plain and not re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", plain):
            continue
        number = int(plain, 0) if plain else following
        found.append((name.split()[0], number))
        following = number + 1
    return found


@cache
def index() -> Any:
    """The configured package index."""
    import tempfile

    import harvest_index

    return harvest_index.Index(harvest_index.configured_index(), tempfile.gettempdir())


@cache
def headers(project: str, version: str) -> Headers:
    """All headers of a wheel."""
    import harvest_index

    files = index().files(project)
    file = next(one for one in files if one.name.split("-")[1] == version and "x86_64" in one.name)
    with harvest_index.remote_archive(index(), file) as archive:
        names = [one for one in archive.namelist() if re.search(r"/include/(cudnn\w*|cuda|nvml)\.h$", one)]
        # Newer ones stand there twice, under a name with the major and as a link to it.
        return Headers("\n".join(archive.read(one).decode("utf-8", "replace") for one in names if not re.search(r"_v\d+\.h$", one)))


@pytest.mark.network
@pytest.mark.parametrize("wheel", CUDNN, ids="-".join)
def test_every_function_of_cudnn_takes_what_it_is_given(wheel: tuple[str, str]) -> None:
    told = headers(*wheel)

    assert {name: told.prototypes.get(name) for name in payload_cudnn.PROTOTYPES} == payload_cudnn.PROTOTYPES
    assert told.macros["CUDNN_MAJOR"] == wheel[1][0]
    parts = [f"cudnn{part}VersionCheck" for part in payload_load.CHECKS[int(wheel[1][0])]]
    made = [f"cudnnCreate{kind}Descriptor" for kind in payload_load.DESCRIPTORS]
    assert {name: told.prototypes.get(name) for name in (*parts, *made)} == {**dict.fromkeys(parts, ""), **dict.fromkeys(made, "p")}


@pytest.mark.network
@pytest.mark.parametrize("wheel", CUDNN, ids="-".join)
def test_every_number_that_is_given_to_cudnn_is_its_own(wheel: tuple[str, str]) -> None:
    told, ours = headers(*wheel), payload_cudnn

    names = {
        "CUDNN_DATA_FLOAT": ours.FLOAT,
        "CUDNN_DATA_DOUBLE": ours.DOUBLE,
        "CUDNN_DATA_HALF": ours.HALF,
        "CUDNN_TENSOR_NCHW": ours.NCHW,
        "CUDNN_TENSOR_NHWC": ours.NHWC,
        "CUDNN_CROSS_CORRELATION": ours.CROSS_CORRELATION,
        "CUDNN_DEFAULT_MATH": ours.DEFAULT_MATH,
        "CUDNN_FMA_MATH": ours.FMA_MATH,
        "CUDNN_DETERMINISTIC": ours.DETERMINISTIC,
        "CUDNN_STATUS_SUCCESS": 0,
        "CUDNN_CONVOLUTION_FWD_ALGO_COUNT": len(ours.ALGORITHMS["Forward"]),
        "CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT": len(ours.ALGORITHMS["BackwardData"]),
        "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT": len(ours.ALGORITHMS["BackwardFilter"]),
        # Those that add in any order come last.
        "CUDNN_CONVOLUTION_BWD_DATA_ALGO_0": ours.ALGORITHMS["BackwardData"][-1],
        "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0": ours.ALGORITHMS["BackwardFilter"][-2],
        "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3": ours.ALGORITHMS["BackwardFilter"][-1],
    }
    assert {name: told.number(name) for name in names} == names
    assert all(sorted(numbers) == list(range(len(numbers))) for numbers in ours.ALGORITHMS.values())
    if wheel[1] < "9":
        assert {told.number(f"CUDNN_STATUS_{name}") for name in ("ARCH_MISMATCH", "NOT_SUPPORTED")} == set(ours.REFUSALS)
        assert told.number("CUDNN_STATUS_BAD_PARAM") == ours.BAD_PARAM
        return
    # Of a thousand each, and those that are faults among the refusals are what their names say.
    refusals = {name: number for name, number in told.enums.items() if name.startswith("CUDNN_STATUS_NOT_SUPPORTED")}
    assert {number // 1000 for number in refusals.values()} == {3}
    assert {name for name, number in refusals.items() if number in ours.BROKEN} == {
        "CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER",
        "CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART",
        "CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE",
        "CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING",
    }
    assert told.number("CUDNN_STATUS_BAD_PARAM") == 2000


@pytest.mark.network
@pytest.mark.parametrize("wheel", CUDNN, ids="-".join)
@pytest.mark.parametrize("name", ["FwdAlgoPerf", "BwdDataAlgoPerf", "BwdFilterAlgoPerf"])
def test_the_answer_of_the_heuristics_is_laid_out_as_it_is_read(wheel: tuple[str, str], name: str) -> None:
    told = headers(*wheel)
    body = next(text for struct, text in told.structs.items() if struct == f"cudnnConvolution{name}Struct")
    kinds = {"float": ctypes.c_float, "size_t": ctypes.c_size_t, "int": ctypes.c_int}
    rows = []
    for row in filter(None, map(str.strip, body.split(";"))):
        match = re.fullmatch(r"(\w+)\s+(\w+)\s*(?:\[(\d+)\])?", row)
        assert match is not None, row
        # What is no plain type is an enumeration.
        kind: Any = kinds.get(match[1], ctypes.c_int)
        rows.append((match[2].lower(), kind * int(match[3]) if match[3] else kind))
    theirs = type("Theirs", (ctypes.Structure,), {"_fields_": rows})

    renamed = {"mathtype": "math"}
    ours = payload_cudnn.Perf
    assert [renamed.get(row[0], row[0]) for row in rows] == [row[0] for row in ours._fields_]
    assert ctypes.sizeof(theirs) == ctypes.sizeof(ours)
    assert [getattr(theirs, row[0]).offset for row in rows] == [getattr(ours, row[0]).offset for row in ours._fields_]


@pytest.mark.network
@pytest.mark.parametrize("wheel", DRIVER, ids="-".join)
def test_every_function_of_the_driver_takes_what_it_is_given(wheel: tuple[str, str]) -> None:
    told = headers(*wheel)

    # What has a second form goes by its plain name in the header, which a macro makes the second.
    plain = {name: name.removesuffix("_v2") for name in payload_card.DRIVER_PROTOTYPES}
    assert {name: told.prototypes.get(plain[name]) for name in plain} == payload_card.DRIVER_PROTOTYPES
    second = {name for name in plain if name.endswith("_v2")}
    assert {name for name in plain if re.search(r"_v2\)?\s*$", told.macros.get(plain[name], ""))} >= second
    attributes = {
        "MULTIPROCESSOR_COUNT": payload_card.ATTRIBUTES["multiprocessors"],
        "CLOCK_RATE": payload_card.ATTRIBUTES["clock_khz"],
        "COMPUTE_MODE": payload_card.ATTRIBUTES["mode"],
    }
    assert {name: told.number(f"CU_DEVICE_ATTRIBUTE_{name}") for name in attributes} == attributes
    assert told.number("CU_COMPUTEMODE_EXCLUSIVE_PROCESS") in EXCLUSIVE


@pytest.mark.network
@pytest.mark.parametrize("wheel", NVML, ids="-".join)
def test_every_number_that_is_given_to_nvml_is_its_own(wheel: tuple[str, str]) -> None:
    told = headers(*wheel)

    assert told.number("NVML_CLOCK_SM") == payload_card.SM_CLOCK
    assert told.number("NVML_ERROR_INSUFFICIENT_SIZE") == payload_card.TOO_SMALL
    reasons = ("SwPowerCap", "HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")
    values = [told.macros[f"nvmlClocksThrottleReason{one}"].strip() for one in reasons]
    # The newer headers give the old names to new ones.
    values = [told.macros.get(value, value).strip() for value in values]
    assert [int(value.rstrip("UL"), 16) for value in values] == [bit for bit, _ in payload_card.THROTTLES]
    for name in (
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetComputeRunningProcesses",
    ):
        assert name in told.prototypes, name
