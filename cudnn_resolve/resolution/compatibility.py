"""NVIDIA's compatibility rules between hardware, driver and CUDA, each as a need with its reason.

Sources: CUDA Compatibility guide (minor-version and forward compatibility), CUDA C++ Programming Guide (binary and PTX
compatibility), cuDNN support matrix. The figures are the matrix's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.resolution.candidate import MachineProblem, Need, known_mismatch
from cudnn_resolve.resolution.key import CUDA_LIMIT, CUDNN_LIMIT, DRIVER, GpuKey, LimitKey
from cudnn_resolve.version import Capability, CudaVersion, CudnnVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build, CudnnBuild
    from cudnn_resolve.requirement.machine import Machine, MachineGpu
    from cudnn_resolve.requirement.model import Limit

LIBRARIES = ("cudart", "cublas", "cufft", "curand", "cusolver", "cusparse")
"""Libraries whose sonames decide whether a CUDA runtime works for a framework that loads them from outside."""


def driver_needs(book: Book, cuda: CudaVersion, policy: str, who: str) -> Iterator[Need]:
    """Need for a driver that runs a CUDA runtime under a policy; none if the matrix knows no such driver.

    `minor`: from CUDA 11 on any driver from the floor of the major; before that, and under `strict`, the toolkit's own driver.
    """
    floor, own = book.floor(cuda.major), book.toolkit_driver(cuda)
    if floor is not None and policy == "minor":
        yield at_least(floor, f"{who}: CUDA {cuda.major}.x needs driver {floor} or newer (minor-version compatibility)")
    elif own is not None:
        rule = f"CUDA {cuda.line} was released with driver {own}" + ("" if floor is None else " (strict policy)")
        yield at_least(own, f"{who}: {rule}")
    elif floor is not None:
        yield at_least(floor, f"{who}: CUDA {cuda.major}.x needs driver {floor} or newer")


def at_least(minimum: DriverVersion, because: str, problem: MachineProblem = "driver") -> Need:
    """Need for a driver of at least this version."""
    text = f"driver >= {minimum}"
    return Need(DRIVER, lambda driver: driver.value is None or driver.value >= minimum, text, because, floor=minimum, problem=problem)


def _at_most(branch: int, because: str) -> Need:
    """Need for a driver of at most this branch."""
    text = f"driver of branch R{branch} or older"
    return Need(DRIVER, lambda driver: driver.value is None or driver.value.major <= branch, text, because, problem="driver")


def cuda_span(book: Book, gpu: Capability) -> tuple[CudaVersion | None, CudaVersion | None]:
    """First and last CUDA whose libraries run on a GPU, both inclusive; None = no bound or unknown.

    The first is that of the oldest architecture of the same major, whose machine code the GPU runs.
    """
    own = book.architecture(gpu)
    family = [
        row.cuda_first
        for row in book.architectures()
        if row.capability.major == gpu.major and row.capability.minor <= gpu.minor and row.tegra == (own.tegra if own else False)
    ]
    return (min(family) if family else None), (own.cuda_last if own else None)


def _known_gpus(machine: Machine) -> Iterator[tuple[int, MachineGpu, Capability]]:
    """Number, GPU and compute capability of each GPU whose capability is known."""
    for number, gpu in enumerate(machine.gpus):
        if gpu.capability is not None:
            yield number, gpu, gpu.capability


def library_needs(book: Book, machine: Machine, cuda: CudaVersion, who: str, *, any_minor: bool = False) -> Iterator[Need]:
    """Needs of the CUDA libraries of a release on each GPU; with `any_minor` only those that every later release of its major has."""
    for number, gpu, capability in _known_gpus(machine):
        first, last = cuda_span(book, capability)
        if first is not None and (cuda.major < first.major if any_minor else cuda < CudaVersion(first.line)):
            version = cuda.major if any_minor else cuda.line
            because = f"{who}: {gpu.label} needs CUDA {first.line} or newer"
            yield _too_new(number, f"a GPU that CUDA {version} supports", because)
        if last is not None and CudaVersion(cuda.line) > CudaVersion(last.line):
            because = f"{who}: CUDA {last.line} is the last to support {gpu.label}"
            yield _too_old(number, f"a GPU that CUDA {cuda.line} still supports", because)


def card_driver_needs(book: Book, machine: Machine) -> Iterator[Need]:
    """Needs for a driver that supports each GPU: from the branch that introduced it to the last one with it."""
    for _, gpu, capability in _known_gpus(machine):
        row = book.architecture(capability)
        if row is None:
            continue
        if row.driver_first is not None:
            own = book.toolkit_driver(row.cuda_first)
            first = own if own is not None and own.major == row.driver_first else DriverVersion(str(row.driver_first))
            yield at_least(first, f"{gpu.label} is supported from driver branch R{row.driver_first} on")
        if row.driver_last is not None:
            yield _at_most(row.driver_last, f"R{row.driver_last} is the last branch that supports {gpu.label}")


def _too_old(number: int, text: str, because: str) -> Need:
    return known_mismatch(GpuKey(number), text, because, "gpu-too-old")


def _too_new(number: int, text: str, because: str) -> Need:
    return known_mismatch(GpuKey(number), text, because, "gpu-too-new")


def code_needs(book: Book, machine: Machine, build: Build, who: str) -> Iterator[Need]:
    """Needs of a framework's own GPU code: machine code for each GPU, or PTX and a driver that can compile it."""
    for number, gpu, capability in _known_gpus(machine):
        if build.capability_first is not None and capability < build.capability_first:
            text = f"a GPU of compute capability {build.capability_first} or newer"
            yield _too_old(number, text, f"{who} has code for these only; {gpu.label} is older")
            continue
        if build.capability_last is not None and capability > build.capability_last:
            text = f"a GPU of compute capability {build.capability_last} or older"
            yield _too_new(number, text, f"{who} has code for these only, without PTX; {gpu.label} is newer")
            continue
        targets = build.code_on(machine.arch)
        if not targets:
            continue
        fitting = [target for target in targets if target.runs_on(capability)]
        if not fitting:
            text = f"a GPU that runs one of {', '.join(map(str, targets))}"
            refuse = _too_old if capability < min(target.capability for target in targets) else _too_new
            yield refuse(number, text, f"{who} has code for these only, none that {gpu.label} runs")
        elif not any(target.kind == "cubin" for target in fitting):
            own = book.toolkit_driver(build.cuda) if build.cuda else None
            if own is not None:
                because = f"{who} has only PTX for {gpu.label}, and compiling it takes a driver as new as CUDA {build.cuda}"
                yield at_least(own, because, "ptx")


def jetson_needs(book: Book, machine: Machine, cuda: CudaVersion, who: str) -> Iterator[Need]:
    """Needs of a build that does not come with JetPack: a GPU that runs builds for Arm servers."""
    for number, gpu, capability in _known_gpus(machine):
        row = book.architecture(capability)
        if row is None or not row.tegra or (row.server_arm is not None and cuda >= row.server_arm):
            continue
        before = f" before CUDA {row.server_arm}" if row.server_arm is not None else ""
        yield _too_new(
            number,
            "a GPU that runs builds for Arm servers (SBSA)",
            f"{who} is built for these; {gpu.label}{before} needs NVIDIA's own builds for its JetPack, with JetPack's CUDA and cuDNN; "
            "an installed one is kept",
        )


def cudnn_hardware(book: Book, machine: Machine, build: CudnnBuild) -> Iterator[Need]:
    """Needs of a cuDNN: machine code for each GPU."""
    who = f"cuDNN {build.version} for CUDA {build.cuda_major}"
    for number, gpu, capability in _known_gpus(machine):
        if not build.capability:
            continue
        if any(supported.major == capability.major and supported.minor <= capability.minor for supported in build.capability):
            continue
        architecture = book.architecture(capability)
        is_jetson = architecture is not None and architecture.server_arm is not None and machine.arch == "aarch64"
        if is_jetson and architecture is not None and architecture.cudnn_first is not None and build.version >= architecture.cudnn_first:
            continue  # only the aarch64 files have code for Jetson, and the rows were read from those for x86_64
        last = f"; cuDNN {architecture.cudnn_last} is the last that does" if architecture and architecture.cudnn_last else ""
        refuse = _too_old if capability < min(build.capability) else _too_new
        text = f"compute capability {', '.join(map(str, build.capability))}"
        yield refuse(number, text, f"{who} does not support {gpu.label}{last}")


def limit_need(key: LimitKey, what: str, versions: Sequence[str], because: str) -> Need:
    """Need that the user's limit allows a CUDA or a cuDNN, given the spellings of its version."""
    text = f"--{key.subject} to allow {what}"
    return Need(key, lambda limit: limit.value is None or allows(limit.value, *versions), text, because)


def cuda_limit(cuda: CudaVersion, releases: Sequence[str], because: str) -> Need:
    """Need that the user's limit on CUDA allows a line or one of its releases."""
    return limit_need(CUDA_LIMIT, f"CUDA {cuda.line}", (cuda.line, *releases), because)


def cudnn_limit(version: CudnnVersion, because: str) -> Need:
    """Need that the user's limit on cuDNN allows a version."""
    return limit_need(CUDNN_LIMIT, f"cuDNN {version}", cudnn_spellings(version), because)


def cudnn_spellings(version: CudnnVersion) -> tuple[str, str]:
    """`9.3.0.75` and `9.3.0`."""
    return str(version), ".".join(map(str, version.parts[:3]))


def allows(limit: Limit, *versions: str) -> bool:
    """True if a limit allows one of some versions."""
    return any(limit.specifier.contains(version, prereleases=True) for version in versions)


def soname_mismatch(book: Book, built: CudaVersion, runtime: CudaVersion, libraries: Iterable[str]) -> str | None:
    """First library that the runtime lacks under the soname that code built with `built` loads; None if it has all."""
    for library in libraries:
        wanted, found = book.soname(library, built), book.soname(library, runtime)
        if wanted and wanted != found:
            return f"it loads {wanted}, CUDA {runtime.line} has {found or 'no such library'}"
    return None
