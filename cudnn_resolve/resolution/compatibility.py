"""What hardware, driver and CUDA allow one another: NVIDIA's rules over the matrix, each as a need with its reason.

Sources: CUDA Compatibility guide (minor-version and forward compatibility), CUDA C++ Programming Guide (binary and PTX
compatibility), cuDNN support matrix. The figures are the matrix's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.resolution.candidate import Fact, Need
from cudnn_resolve.resolution.key import CUDNN_LIMIT, DRIVER, GpuKey, LimitKey
from cudnn_resolve.version import Capability, CudaVersion, CudnnVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build, CudnnBuild
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Limit


def driver_minimum(book: Book, cuda: CudaVersion, policy: str) -> tuple[DriverVersion | None, str]:
    """The oldest driver for a CUDA runtime under a policy, and the rule that says so; None where the matrix does not know.

    `minor`: from CUDA 11 on any driver from the floor of the major; before that, and under `strict`, the toolkit's own driver.
    """
    floor = book.floor(cuda.major)
    if policy == "minor" and floor is not None:
        return floor, f"CUDA {cuda.major}.x runs from driver {floor} on (minor-version compatibility)"
    own = book.toolkit_driver(cuda)
    if own is None:
        return floor, f"CUDA {cuda.major}.x runs from driver {floor} on"
    return own, f"CUDA {cuda.line} was made for driver {own}" + ("" if floor is None else " (strict policy)")


def driver_need(book: Book, cuda: CudaVersion, policy: str, who: str) -> Need | None:
    """The need for a driver that runs this CUDA runtime."""
    minimum, rule = driver_minimum(book, cuda, policy)
    if minimum is None:
        return None
    return at_least(minimum, f"{who}: {rule}")


def at_least(minimum: DriverVersion, because: str) -> Need:
    """The need for a driver that is at least this new."""
    return Need(
        DRIVER,
        lambda candidate: candidate.value is None or candidate.value >= minimum,
        f"driver >= {minimum}",
        because,
        floor=minimum,
    )


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


def library_needs(book: Book, machine: Machine, cuda: CudaVersion, who: str, *, any_minor: bool = False) -> Iterator[Need]:
    """The needs that CUDA libraries of one release have for each GPU; with `any_minor` those of every later release of its major, too."""
    for number, gpu in enumerate(machine.gpus):
        if gpu.capability is None:
            continue
        first, last = cuda_span(book, gpu.capability)
        known = str(cuda.major) if any_minor else cuda.line
        if first is not None and (cuda.major < first.major if any_minor else cuda < CudaVersion(first.line)):
            yield refused(number, f"a GPU that CUDA {known} knows", f"{who}: {gpu.label} is first known to CUDA {first.line}")
        if last is not None and CudaVersion(cuda.line) > CudaVersion(last.line):
            yield refused(number, f"a GPU that CUDA {cuda.line} still knows", f"{who}: CUDA {last.line} is the last for {gpu.label}")


def card_driver_needs(book: Book, machine: Machine) -> Iterator[Need]:
    """The needs for a driver that knows each GPU: from the branch that introduced it to the last that supports it."""
    for gpu in machine.gpus:
        row = book.architecture(gpu.capability) if gpu.capability is not None else None
        if row is None:
            continue
        if row.driver_first is not None:
            own = book.toolkit_driver(row.cuda_first)
            first = own if own is not None and own.major == row.driver_first else DriverVersion(str(row.driver_first))
            yield at_least(first, f"{gpu.label} is first known to driver branch R{row.driver_first}")
        if row.driver_last is not None:
            last = row.driver_last
            yield Need(
                DRIVER,
                lambda candidate, last=last: candidate.value is None or candidate.value.major <= last,  # type: ignore[misc]
                f"driver of branch R{last} or older",
                f"R{last} is the last branch that supports {gpu.label}",
            )


def refused(number: int, text: str, because: str) -> Need:
    """A need that a GPU of this machine is known not to meet."""
    return Need(GpuKey(number), lambda candidate: candidate.value is None, text, because)


def code_needs(book: Book, machine: Machine, build: Build, who: str) -> Iterator[Need]:
    """The needs that a framework's own GPU code has: machine code for each GPU, or PTX and a driver that may compile it."""
    for number, gpu in enumerate(machine.gpus):
        if gpu.capability is None:
            continue
        if build.capability_first is not None and gpu.capability < build.capability_first:
            text = f"a GPU of compute capability {build.capability_first} or newer"
            yield refused(number, text, f"{who} is compiled for it; {gpu.label} is older")
            continue
        if build.capability_last is not None and gpu.capability > build.capability_last:
            text = f"a GPU of compute capability {build.capability_last} or older"
            yield refused(number, text, f"{who} is compiled for it, without PTX; {gpu.label} is newer")
            continue
        targets = build.code_on(machine.arch)
        if not targets:
            continue
        fitting = [target for target in targets if target.runs_on(gpu.capability)]
        if any(target.kind == "cubin" for target in fitting):
            continue
        compiled = ", ".join(map(str, targets))
        if not fitting:
            yield refused(number, f"one of {compiled}", f"{who} has code for these only, none that {gpu.label} runs")
            continue
        own = book.toolkit_driver(build.cuda) if build.cuda else None
        if own is not None:
            yield at_least(own, f"{who} has only PTX for {gpu.label}; to compile it the driver must be as new as CUDA {build.cuda}")


def jetson_needs(book: Book, machine: Machine, cuda: CudaVersion, who: str) -> Iterator[Need]:
    """The needs of a build that no JetPack brings: a GPU that runs what is made for Arm servers."""
    for number, gpu in enumerate(machine.gpus):
        row = book.architecture(gpu.capability) if gpu.capability is not None else None
        if row is None or not row.tegra or (row.server_arm is not None and cuda >= row.server_arm):
            continue
        after = f" before CUDA {row.server_arm}" if row.server_arm is not None else ""
        yield refused(
            number,
            "a GPU that runs builds for Arm servers (SBSA)",
            f"{who} is built for these; {gpu.label}{after} takes NVIDIA's own builds for its JetPack, with the CUDA and cuDNN of JetPack, "
            "and where such a build is installed, it is kept",
        )


def cudnn_hardware(book: Book, machine: Machine, build: CudnnBuild) -> Iterator[Need]:
    """The needs of a cuDNN for GPUs: machine code for each of them."""
    who = f"cuDNN {build.version} for CUDA {build.cuda_major}"
    for number, gpu in enumerate(machine.gpus):
        if gpu.capability is None or not build.capability:
            continue
        if any(one.major == gpu.capability.major and one.minor <= gpu.capability.minor for one in build.capability):
            continue
        known = ", ".join(map(str, build.capability))
        architecture = book.architecture(gpu.capability)
        jetson = architecture is not None and architecture.server_arm is not None and machine.arch == "aarch64"
        if jetson and architecture is not None and architecture.cudnn_first is not None and build.version >= architecture.cudnn_first:
            continue  # the code of a Jetson is in the files for aarch64 alone, and rows are read in those for x86_64
        last = f"; cuDNN {architecture.cudnn_last} is the last" if architecture and architecture.cudnn_last else ""
        yield refused(number, f"compute capability {known}", f"{who} has code for these only, none for {gpu.label}{last}")


def limit_need(key: LimitKey, what: str, versions: Sequence[str], because: str) -> Need:
    """The need that the user's limit allows a CUDA or a cuDNN, in one of the forms that its version may be written in."""

    def test(candidate: Fact[Limit]) -> bool:
        return candidate.value is None or allows(candidate.value, *versions)

    return Need(key, test, f"{what} allowed", because)


def cudnn_limit(version: CudnnVersion, who: str) -> Need:
    """The need that the user's limit on cuDNN allows this version."""
    return limit_need(CUDNN_LIMIT, f"cuDNN {version}", cudnn_forms(version), f"{who} is that cuDNN")


def cudnn_forms(version: CudnnVersion) -> tuple[str, str]:
    """Return `9.3.0.75` and `9.3.0`."""
    return str(version), ".".join(map(str, version.parts[:3]))


def allows(limit: Limit, *versions: str) -> bool:
    """True where a limit admits one of some versions."""
    return any(limit.specifier.contains(one, prereleases=True) for one in versions)


def same_sonames(book: Book, built: CudaVersion, runtime: CudaVersion, libraries: Iterable[str]) -> str | None:
    """None where the runtime carries every library under the name that code built with `built` asks for; else what differs."""
    for library in libraries:
        wanted, found = book.soname(library, built), book.soname(library, runtime)
        if wanted and wanted != found:
            return f"it loads {wanted}, CUDA {runtime.line} has {found or 'no such library'}"
    return None


LIBRARIES = ("cudart", "cublas", "cufft", "curand", "cusolver", "cusparse")
"""Libraries whose names decide whether a CUDA runtime serves a framework that loads them from outside."""
