"""The driver as put together from what several witnesses say; the libraries themselves are asked in tests/functional."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from cudnn_resolve.facts.model import UNKNOWN, Driver, Gpu, Problem, Unknown
from cudnn_resolve.host.child import MARK, payload_path
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.probe.driver import find_driver
from cudnn_resolve.probe.driver_sources import DriverSources, ask_libraries
from cudnn_resolve.probe.gpu import GPU_STEPS, find_gpus
from tests.fake_host import FakeHost

ABSENT: dict[str, Any] = {
    "gpus": [],
    "lost": [],
    "tried": [["libcuda.so.1", "libcuda.so.1: cannot open shared object file: No such file or directory"]],
    "ended": "exit",
}
ABSENT_NVML = {**ABSENT, "tried": [["libnvidia-ml.so.1", "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"]]}
MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
UUID = "GPU-00000000-0000-0000-0000-00000000000a"
BANNER = "| NVIDIA-SMI 550.54.15     Driver Version: 550.54.15     CUDA Version: 12.4     |\n"
QUERY = f"{UUID}, 550.54.15, 15360, 7.5, Tesla T4\n"
CARD = {
    "/sys/bus/pci/devices/0000:00:04.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:00:04.0/class": "0x030200\n",
    "/sys/bus/pci/devices/0000:00:04.0/device": "0x1eb8\n",
    "/sys/bus/pci/devices/0000:00:05.0/vendor": "0x1af4\n",
    "/sys/bus/pci/devices/0000:00:05.0/class": "0x020000\n",
}
NO_CARD = {path: text for path, text in CARD.items() if ":05.0" in path}


def loaded(name: str, **told: Any) -> dict[str, Any]:
    path = told.pop("path", f"/usr/lib64/{name}.550.54.15")
    return {"gpus": [], "lost": [], "tried": [], "place": f"{name}.1", "path": path, "ended": "exit", **told}


class Machine:
    """A machine with given libraries, files and an nvidia-smi; `asked` is what was run."""

    def __init__(
        self,
        files: Mapping[str, str] | None = None,
        nvml: Mapping[str, Any] = ABSENT_NVML,
        libcuda: Mapping[str, Any] = ABSENT,
        smi: tuple[CommandResult, ...] = (),
        environ: Mapping[str, str] | None = None,
        answer: CommandResult | None = None,
    ) -> None:
        native = CommandResult(returncode=0, stdout=f"noise\n{MARK}{json.dumps({'nvml': nvml, 'libcuda': libcuda})}\n")
        replies = list(smi)

        def programs(argv: tuple[str, ...]) -> CommandResult | None:
            if payload_path("probe/payload_library.py") in argv:
                return answer or native
            return replies.pop(0) if replies else None

        executables = ["/usr/bin/nvidia-smi"] if smi else []
        self.host = FakeHost(files, environ={"PATH": "/usr/bin", **(environ or {})}, programs=programs, executables=executables)
        self.evidence = DriverSources(self.host, *ask_libraries(self.host))
        self.driver, self.sources, self._driver_problems = find_driver(self.evidence)
        self.gpus, self.gpu_source, self._gpu_problems = find_gpus(self.evidence, self.driver)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._driver_problems + self._gpu_problems

    @property
    def asked_smi(self) -> bool:
        return any("nvidia-smi" in argv[0] for argv in self.host.asked)

    def said(self, what: str) -> str:
        (problem,) = [one for one in self.problems if one.what == what]
        return problem.why


def test_the_order_is_the_documented_one() -> None:
    assert [name for name, _ in GPU_STEPS] == ["NVML", "libcuda", "nvidia-smi", "/proc/driver/nvidia/gpus"]


def test_no_driver_and_no_card_on_the_bus_is_certainly_no_gpu() -> None:
    machine = Machine(NO_CARD)

    assert (machine.driver, machine.gpus, machine.problems) == (None, (), ())


@pytest.mark.parametrize("files", [{}, {**NO_CARD, "/dev/dxg": ""}, {**NO_CARD, "/proc/device-tree/model": "NVIDIA Jetson AGX Orin"}])
def test_a_gpu_that_is_not_on_the_bus_is_not_ruled_out(files: dict[str, str]) -> None:
    machine = Machine(files)

    assert machine.driver is None
    assert machine.gpus is UNKNOWN


def test_driver_libraries_without_a_card_on_the_bus_are_no_gpu() -> None:
    machine = Machine(NO_CARD, libcuda=loaded("libcuda.so", error=[999, "CUDA_ERROR_UNKNOWN"]))

    assert machine.driver is not None
    assert machine.gpus == ()


def test_a_card_without_a_driver_is_a_problem_and_its_gpu_unknown() -> None:
    machine = Machine(CARD)

    assert machine.driver is None
    assert machine.gpus is UNKNOWN
    assert "0000:00:04.0 (10de:1eb8)" in machine.said("NVIDIA driver")


def test_other_cards_are_none_of_our_business() -> None:
    amd = {path: text.replace("0x10de", "0x1002") for path, text in CARD.items()}

    assert Machine(amd).gpus == ()


def test_a_complete_answer_leaves_nvidia_smi_alone() -> None:
    gpu = {"name": "Tesla T4", "uuid": UUID, "capability": [7, 5], "memory": 15360 << 20}
    machine = Machine(
        {"/proc/driver/nvidia/version": MODULE},
        nvml=loaded("libnvidia-ml.so", cuda=12040, driver="550.54.15", count=1, gpus=[gpu]),
        libcuda=loaded("libcuda.so", cuda=12040, count=1, gpus=[gpu]),
        smi=(CommandResult(returncode=0, stdout=BANNER),),
    )

    assert machine.driver == Driver(version="550.54.15", cuda="12.4", kernel_module="550.54.15")
    assert not machine.asked_smi


def test_nvidia_smi_fills_in_what_the_libraries_leave_open() -> None:
    machine = Machine(
        {"/proc/driver/nvidia/version": MODULE},
        nvml=loaded("libnvidia-ml.so", ended="SIGSEGV"),
        libcuda=loaded("libcuda.so", ended="SIGSEGV"),
        smi=(CommandResult(returncode=0, stdout=BANNER), CommandResult(returncode=0, stdout=QUERY)),
    )

    assert machine.driver == Driver(version="550.54.15", cuda="12.4", kernel_module="550.54.15")
    assert machine.gpus == (Gpu(name="Tesla T4", compute_capability="7.5", memory_mib=15360, uuid=UUID),)
    assert machine.sources["driver.cuda"] == "nvidia-smi (/usr/bin/nvidia-smi)"
    assert machine.gpu_source == "nvidia-smi"


def test_an_old_nvidia_smi_is_asked_again_for_less() -> None:
    machine = Machine(
        {"/proc/driver/nvidia/version": MODULE},
        smi=(
            CommandResult(returncode=0, stdout=BANNER),
            CommandResult(returncode=2, stdout='Field "compute_cap" is not a valid field to query.\n'),
            CommandResult(returncode=0, stdout=f"{UUID}, 550.54.15, 15360, Tesla T4\n"),
        ),
    )

    assert machine.gpus == (Gpu(name="Tesla T4", memory_mib=15360, uuid=UUID),)


def test_a_failing_nvidia_smi_is_quoted() -> None:
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    machine = Machine({"/proc/driver/nvidia/version": MODULE}, smi=(CommandResult(returncode=9, stdout=words),))

    assert machine.driver == Driver(version="550.54.15", kernel_module="550.54.15")
    assert machine.said("nvidia-smi") == words.strip()
    assert machine.gpus is UNKNOWN


def test_a_hanging_nvidia_smi_is_named() -> None:
    machine = Machine({"/proc/driver/nvidia/version": MODULE}, smi=(CommandResult(timed_out=True),))

    assert machine.said("nvidia-smi") == "did not answer in time and was stopped"


def test_a_kernel_module_without_libraries_is_a_container_without_its_gpu() -> None:
    machine = Machine({"/proc/driver/nvidia/version": MODULE})

    assert machine.driver == Driver(version="550.54.15", kernel_module="550.54.15")
    assert machine.gpus is UNKNOWN
    assert "container" in machine.said("libcuda.so.1")


def test_the_windows_driver_of_wsl_needs_no_kernel_module() -> None:
    machine = Machine(
        {"/dev/dxg": ""},
        nvml=loaded("libnvidia-ml.so", path="/usr/lib/wsl/lib/libnvidia-ml.so.1", cuda=12040, driver="551.61", count=0),
        libcuda=loaded("libcuda.so", path="/usr/lib/wsl/lib/libcuda.so.1", cuda=12040, error=[100, "CUDA_ERROR_NO_DEVICE"]),
    )

    assert machine.driver == Driver(version="551.61", cuda="12.4")
    assert [problem.what for problem in machine.problems] == ["cuInit"]


def test_a_card_without_its_kernel_module_is_not_taken_for_none() -> None:
    card = {"vendor": "0x10de\n", "class": "0x030000\n", "device": "0x2684\n"}
    machine = Machine(
        {f"/sys/bus/pci/devices/0000:01:00.0/{name}": text for name, text in card.items()},
        nvml=loaded("libnvidia-ml.so", path="/usr/lib/libnvidia-ml.so.1", error=[9, "Driver Not Loaded"]),
        libcuda=loaded("libcuda.so", path="/usr/lib/libcuda.so.1", cuda=12040, error=[100, "CUDA_ERROR_NO_DEVICE"]),
    )

    assert machine.gpus is UNKNOWN


def test_wsl_without_an_nvidia_card_has_no_driver() -> None:
    assert Machine({"/dev/dxg": ""}).driver is None


JETSON = {
    "/etc/nv_tegra_release": "# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref, EABI: aarch64\n",
    "/proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  35.4.1  Release Build\n",
    "/dev/nvhost-gpu": "",
}


def test_a_jetson_has_a_cuda_but_no_driver_version() -> None:
    orin = {"name": "Orin", "uuid": UUID, "capability": [8, 7], "memory": 30697 << 20}
    machine = Machine(
        JETSON, libcuda=loaded("libcuda.so", path="/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1.1", cuda=11040, count=1, gpus=[orin])
    )

    assert machine.driver == Driver(cuda="11.4")
    assert machine.gpus == (Gpu(name="Orin", compute_capability="8.7", memory_mib=30697, uuid=UUID),)
    assert machine.said("driver").startswith("Jetson Linux 35.4.1 on NVIDIA Jetson AGX Orin Developer Kit")


def test_a_jetson_whose_libraries_say_nothing_is_still_one() -> None:
    machine = Machine(JETSON, libcuda={**ABSENT, "ended": "SIGSEGV"})

    assert machine.driver == Driver()
    assert machine.sources["driver"] == "Jetson Linux 35.4.1 (/etc/nv_tegra_release)"
    assert machine.gpus is UNKNOWN


def test_without_anybody_to_ask_a_library_file_leaves_it_unknown() -> None:
    crashed = CommandResult(signal="SIGKILL")

    nothing = Machine(answer=crashed)
    something = Machine({"/usr/lib/x86_64-linux-gnu/libcuda.so.1": ""}, answer=crashed)

    assert nothing.driver is None
    assert something.driver is UNKNOWN
    assert "could not be asked: the process that asks crashed (SIGKILL)" in something.said("libcuda.so.1")
    assert something.gpus is UNKNOWN


def test_an_interpreter_without_ctypes_is_a_reason() -> None:
    machine = Machine(
        {"/usr/lib64/libnvidia-ml.so.1": ""},
        answer=CommandResult(returncode=0, stdout=MARK + '{"failed": "this Python was built without ctypes"}\n'),
    )

    assert machine.said("libcuda.so.1") == "could not be asked: this Python was built without ctypes"


def test_a_missing_dependency_of_a_library_is_not_its_absence() -> None:
    broken = {**ABSENT, "tried": [["libcuda.so.1", "libother.so.2: cannot open shared object file: No such file or directory"]]}
    machine = Machine(libcuda=broken)

    assert machine.said("libcuda.so.1") == "cannot be loaded: libother.so.2: cannot open shared object file: No such file or directory"
    assert machine.driver is UNKNOWN


@pytest.mark.parametrize(
    ("status", "words"), [(803, "different releases"), (804, "forward-compatibility"), (999, "device files"), (719, "status 719")]
)
def test_a_failing_start_of_cuda_is_explained(status: int, words: str) -> None:
    machine = Machine(
        {"/proc/driver/nvidia/version": MODULE},
        nvml=loaded("libnvidia-ml.so", driver="550.54.15", count=0),
        libcuda=loaded("libcuda.so", cuda=12040, error=[status, ""]),
    )

    assert words in machine.said("cuInit")


def test_gpus_are_completed_by_uuid_whatever_their_order() -> None:
    other = "GPU-00000000-0000-0000-0000-00000000000b"
    machine = Machine(
        {"/proc/driver/nvidia/version": MODULE},
        nvml=loaded(
            "libnvidia-ml.so", cuda=11040, driver="470.57.02", count=2, gpus=[{"name": "K80", "uuid": UUID}, {"name": "T4", "uuid": other}]
        ),
        libcuda=loaded(
            "libcuda.so",
            count=2,
            gpus=[
                {"uuid": other, "capability": [7, 5], "memory": 15360 << 20, "name": "T4"},
                {"uuid": UUID, "capability": [3, 7], "memory": 11441 << 20, "name": "K80"},
            ],
        ),
    )

    assert not isinstance(machine.gpus, Unknown)
    assert [(gpu.name, gpu.compute_capability) for gpu in machine.gpus] == [("K80", "3.7"), ("T4", "7.5")]


def test_gpus_without_uuids_are_completed_by_position() -> None:
    machine = Machine(
        {"/proc/driver/nvidia/version": MODULE},
        nvml=loaded("libnvidia-ml.so", cuda=11040, driver="470.57.02", count=1, gpus=[{"name": "K80"}]),
        libcuda=loaded("libcuda.so", count=1, gpus=[{"capability": [3, 7], "memory": 11441 << 20}]),
    )

    assert machine.gpus == (Gpu(name="K80", compute_capability="3.7", memory_mib=11441),)


def test_hidden_gpus_are_read_from_the_variable_where_libcuda_fails() -> None:
    gpus = [{"name": "A", "uuid": UUID, "capability": [8, 0], "memory": 1 << 34}, {"name": "B", "capability": [8, 0], "memory": 1 << 34}]
    machine = Machine(
        {"/proc/driver/nvidia/version": MODULE},
        nvml=loaded("libnvidia-ml.so", cuda=12040, driver="550.54.15", count=2, gpus=gpus),
        libcuda=loaded("libcuda.so", cuda=12040, error=[999, "CUDA_ERROR_UNKNOWN"]),
        environ={"CUDA_VISIBLE_DEVICES": "1"},
    )

    assert not isinstance(machine.gpus, Unknown)
    assert [gpu.hidden for gpu in machine.gpus] == [True, False]
