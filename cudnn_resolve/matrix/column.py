"""Column types: constraints that msgspec checks, and a description of valid values for messages.

`extra` holds what msgspec cannot express: the name of a check in `matrix.value`, `single` if a bare value may stand for a list of one,
`empty` if a string may be empty, and `written` for the required spelling of a version.
"""

from typing import Annotated, Literal

from msgspec import Meta

from cudnn_resolve.version import Capability, CodeTarget, CudaVersion, CudnnVersion, DriverVersion

LONGEST_TEXT = 4000
"""Most characters in one value."""
LONGEST_LIST = 20000
"""Most entries in one list."""

_DAY = r"^\d{4}-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?$"
_COMPARISON = r"^(?:major )?[a-z_]\w{0,29} (?:<|<=|==|!=|>=|>|above|below|among|within) (?:major )?[\w.]{1,60}$"
_LINE = Meta(pattern=r"^\d{1,2}\.\d{1,2}$", description="a CUDA line such as 12.4")
_APT_FIELDS = "a string with the fields {major}, {minor} and {release}"

Text = Annotated[str, Meta(max_length=LONGEST_TEXT, description="a string")]
Lines = Annotated[str, Meta(description=f"a string of at most {LONGEST_TEXT} characters", extra={"check": "lines"})]
Day = Annotated[str, Meta(pattern=_DAY, description="a date such as 2026-11-21", extra={"check": "day"})]
Count = Annotated[int, Meta(ge=0, lt=10**9, description="a whole number, 0 or more")]
Percent = Annotated[int, Meta(ge=0, le=100, description="a whole number from 0 to 100")]
Number = Annotated[Annotated[int, Meta(ge=0, lt=10**9)] | Annotated[float, Meta(ge=0, lt=10**9)], Meta(description="a number, 0 or more")]
Version = Annotated[str, Meta(description="a version such as 2.15.0", extra={"check": "version"})]
Specifier = Annotated[str, Meta(description="a version specifier such as '>=2.1,<3'", extra={"check": "specifier", "empty": True})]
Requirement = Annotated[str, Meta(description="a requirement such as 'numpy<2'", extra={"check": "requirement"})]
BranchNumber = Annotated[int, Meta(ge=100, le=9999, description="a driver branch such as 535 or 'R535'", extra={"check": "branch"})]
Url = Annotated[str, Meta(pattern=r"^(?:https?|file)://[^\s\"'<>]+$", description="a URL that starts with https://, http:// or file://")]
Directory = Annotated[
    str, Meta(pattern=r"^(?!/)(?!(?:.*/)?\.\.(?:/|$))[^\\]*$", description="a path below site-packages", extra={"empty": True})
]
PackageName = Annotated[
    str, Meta(pattern=r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$", description="a normalized package name such as nvidia-cudnn-cu12")
]
Identifier = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._+:/-]*[A-Za-z0-9+])?$", description="an id made of letters, digits and . _ + : / -"),
]
Comparison = Annotated[str, Meta(pattern=_COMPARISON, description="a comparison such as 'found < built'")]
Glibc = Annotated[str, Meta(pattern=r"^\d{1,2}\.\d{1,3}$", description="a glibc version such as 2.17")]
PythonTag = Annotated[str, Meta(pattern=r"^(?:cp|pp|py)\d{1,3}t?$", description="a Python tag such as cp311")]
Line = Annotated[str, _LINE]
AptText = Annotated[str, Meta(pattern=r"^(?:[^{}]|\{(?:major|minor|release)\})+$", description=_APT_FIELDS)]
Pattern = Annotated[str, Meta(description="a regular expression with fields such as {found:cudnn}", extra={"check": "pattern"})]
Arch = Literal["x86_64", "aarch64", "ppc64le"]
Tags = Annotated[
    tuple[Text, ...], Meta(description="a list of wheel tags such as 'cp312 cp313-manylinux_2_28_x86_64'", extra={"check": "tags"})
]
MetadataIds = Annotated[
    Count | Annotated[dict[Arch, Count], Meta(min_length=1)],
    Meta(description="the id of a [[metadata]] entry, or one id for each architecture"),
]

CudaLine = Annotated[CudaVersion, Meta(description="a CUDA line such as 12.4", extra={"written": r"\d{1,2}\.\d{1,2}"})]
Cuda = Annotated[CudaVersion, Meta(description="a CUDA version such as 12.4 or 12.4.1")]
Cudnn = Annotated[CudnnVersion, Meta(description="a cuDNN version such as 9.3.0.75")]
Driver = Annotated[DriverVersion, Meta(description="a driver version such as 535.104.05")]
ComputeCapability = Annotated[
    Capability,
    Meta(description="a compute capability such as 7.5", extra={"written": r"\d{1,2}\.\d"}, extra_json_schema={"type": "string"}),
]
GpuCode = Annotated[
    CodeTarget,
    Meta(
        description="GPU code such as sm_75 or compute_80",
        extra={"written": r"(?:sm|compute)_\d{2,3}[af]?"},
        extra_json_schema={"type": "string"},
    ),
]

SINGLE = Meta(extra={"single": True}, extra_json_schema={"type": ["array", "string"]})
"""Marks a list that may be written as a single bare value."""
Sources = Annotated[tuple[Identifier, ...], SINGLE]
