"""What the driver's own libraries say: NVML and libcuda, each asked in a child, checked before anybody believes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cudnn_resolve.facts.model import Gpu, Problem
from cudnn_resolve.facts.procfs import library_version
from cudnn_resolve.host.port import Host
from cudnn_resolve.probe.child import answer_of, payload_path
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion

LIBRARY_SECONDS = 10.0
"""How long one library may take; initialising eight GPUs without persistence mode takes several seconds."""

_LIBRARIES = {"nvml": "libnvidia-ml.so.1", "libcuda": "libcuda.so.1"}
_DRIVER = re.compile(r"[0-9]{2,4}(\.[0-9]{1,4}){1,3}")
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_COMPAT = re.compile(r"/(?:cuda[^/]*/compat[^/]*|cuda-compat[^/]*|compat)/")
_MIB = 1 << 20


class Library(Struct, frozen=True, kw_only=True):
    """What one driver library said; None = it did not say."""

    name: str
    """`libcuda.so.1`."""
    path: str | None = None
    """The file that was loaded, links resolved."""
    by_loader: bool = True
    """Found by its name alone, as every program looks for it."""
    absent: bool = False
    """It is nowhere."""
    failure: str = ""
    """How it could not be loaded, hung or crashed, in words; empty where it answered."""
    cuda: CudaVersion | None = None
    driver: DriverVersion | None = None
    error: tuple[int, str] | None = None
    """Status and name of the call that failed."""
    count: int | None = None
    gpus: tuple[Gpu, ...] = ()
    instances: tuple[tuple[str, ...], ...] = ()
    """For each GPU the UUIDs of its MIG instances."""
    problems: tuple[Problem, ...] = ()

    @property
    def file_version(self) -> DriverVersion | None:
        """The driver release in the name of the file."""
        return library_version(self.path) if self.path else None

    @property
    def is_compat(self) -> bool:
        """True for a libcuda of a forward-compatibility package, which is not the driver's own."""
        return self.path is not None and _COMPAT.search(self.path) is not None

    @property
    def is_stub(self) -> bool:
        """True for the toolkit's libcuda to link against, which does nothing."""
        return (self.path is not None and "/stubs/" in self.path) or (self.error is not None and self.error[0] == 34)

    @property
    def complete(self) -> bool:
        """True where it told of every GPU that it counts."""
        return self.count is not None and self.count == len(self.gpus)


class Native(Struct, frozen=True, kw_only=True):
    """The answers of both libraries."""

    nvml: Library
    libcuda: Library


def ask_libraries(host: Host) -> Native:
    """What NVML and libcuda say, both asked at once in one process that forks for each; it knows where they may lie."""
    if not host.python:
        return _unasked("there is no Python to ask with")
    argv = [host.python, "-I", "-S", payload_path("payload_driver.py"), f"{LIBRARY_SECONDS:g}"]
    result = host.run(argv, timeout_seconds=LIBRARY_SECONDS + 5)
    answer = answer_of(result)
    if answer is None:
        return _unasked(f"the process that asks {result.why() or 'gave no answer'}")
    if "failed" in answer:
        return _unasked(str(answer["failed"]))
    return Native(nvml=_library("nvml", answer.get("nvml", {})), libcuda=_library("libcuda", answer.get("libcuda", {})))


def _unasked(why: str) -> Native:
    nvml, libcuda = (Library(name=name, failure=f"could not be asked: {why}") for name in _LIBRARIES.values())
    return Native(nvml=nvml, libcuda=libcuda)


def _library(key: str, answer: Mapping[str, Any]) -> Library:
    """One library's answer, with everything impossible in it taken out and named."""
    name = _LIBRARIES[key]
    problems: list[Problem] = []
    loaded = answer.get("path")
    error = answer.get("error")
    count = answer.get("count")
    if count is not None and not 0 <= count <= 256:
        problems.append(Problem(what=name, why=f"counts {count} GPUs, which cannot be"))
        count = None
    for index, status, words in answer.get("lost", []):
        problems.append(Problem(what=f"GPU {index}", why=f"does not answer {name}: {words or status}"))
    gpus = tuple(_gpu(name, index, one, problems) for index, one in enumerate(answer.get("gpus", [])))
    return Library(
        name=name,
        path=str(loaded) if loaded else None,
        by_loader=not str(answer.get("place", "")).startswith("/"),
        absent=loaded is None and _is_absent(answer),
        failure=_failure(answer),
        cuda=_cuda(name, answer.get("cuda"), problems),
        driver=_driver(name, answer.get("driver"), problems),
        error=(int(error[0]), str(error[1])) if error else None,
        count=count,
        gpus=gpus,
        instances=tuple(tuple(str(uuid) for uuid in one.get("mig", [])) for one in answer.get("gpus", [])),
        problems=tuple(problems),
    )


def _is_absent(answer: Mapping[str, Any]) -> bool:
    """True where every place only said that nothing is there."""
    tried = answer.get("tried")
    return tried is not None and not any(_is_broken(place, message) for place, message in tried)


def _is_broken(place: str, message: str) -> bool:
    """True for a loader's message about a library that is there: `libcuda.so.1: wrong ELF class`, or a missing dependency."""
    return not ("No such file" in message and place.rsplit("/", 1)[-1] in message.partition("No such file")[0])


def _failure(answer: Mapping[str, Any]) -> str:
    if answer.get("ended") == "time":
        return f"did not answer within {LIBRARY_SECONDS:g} s"
    if answer.get("ended", "exit") != "exit":
        return f"crashed ({answer['ended']})"
    if "failed" in answer:
        return f"could not be asked: {answer['failed']}"
    if answer.get("path") is None:
        broken = [message for place, message in answer.get("tried", []) if _is_broken(place, message)]
        return f"cannot be loaded: {broken[0]}" if broken else ""
    return ""


def _cuda(name: str, number: object, problems: list[Problem]) -> CudaVersion | None:
    if number is None or number == 0:
        return None
    version = CudaVersion.from_encoded(number) if isinstance(number, int) else None
    if version is None:
        problems.append(Problem(what=name, why=f"gives {number!r} as its CUDA version, which cannot be"))
    return version


def _driver(name: str, text: object, problems: list[Problem]) -> DriverVersion | None:
    if text is None:
        return None
    if isinstance(text, str) and _DRIVER.fullmatch(text):
        return DriverVersion(text)
    problems.append(Problem(what=name, why=f"gives {text!r} as the driver version, which cannot be"))
    return None


def _gpu(library: str, index: int, told: Mapping[str, Any], problems: list[Problem]) -> Gpu:
    """One GPU; a value that cannot be is None, and said."""
    wrong: list[str] = []
    name = str(told["name"])[:100] if told.get("name") else None
    capability = told.get("capability")
    if capability is not None and not (1 <= capability[0] <= 29 and 0 <= capability[1] <= 9):
        wrong.append(f"compute capability {capability[0]}.{capability[1]}")
        capability = None
    memory = told.get("memory")
    if memory is not None and not 64 * _MIB <= memory <= _MIB * _MIB * 64:
        wrong.append(f"{memory} bytes of memory")
        memory = None
    uuid = told.get("uuid")
    if uuid is not None and not _UUID.fullmatch(uuid):
        wrong.append(f"the UUID {uuid!r}")
        uuid = None
    problems.extend(Problem(what=f"GPU {index}", why=f"{library} gives it {one}, which cannot be") for one in wrong)
    return Gpu(
        name=name,
        compute_capability=str(Capability(*capability)) if capability else None,
        memory_mib=memory // _MIB if memory else None,
        uuid=uuid,
    )
