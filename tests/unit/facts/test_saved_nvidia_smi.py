from __future__ import annotations

import pytest

from cudnn_resolve.facts.driver_output import OLD_QUERY_FIELDS, parse_banner, parse_query

UUID = "GPU-5a8d6e2c-0000-1111-2222-333344445555"
BANNER = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
"""
NEW_BANNER = """| NVIDIA-SMI 615.36.01              KMD Version: 615.36.01         CUDA UMD Version: 13.3     |
"""
LONG = """Driver Version                            : 535.104.05
CUDA Version                              : 12.2
"""


@pytest.mark.parametrize(
    ("text", "driver", "library", "cuda"),
    [
        (BANNER, "550.54.15", "550.54.15", "12.4"),
        (NEW_BANNER, "615.36.01", "615.36.01", "13.3"),
        (LONG, "535.104.05", "None", "12.2"),
        ("| NVIDIA-SMI 535.1.2  Driver Version: 535.1.2  CUDA Version: N/A |", "535.1.2", "535.1.2", "None"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "None", "None", "None"),
        ("", "None", "None", "None"),
    ],
)
def test_both_generations_of_the_banner_are_read(text: str, driver: str, library: str, cuda: str) -> None:
    found = parse_banner(text)

    assert (str(found.driver), str(found.library), str(found.cuda)) == (driver, library, cuda)


def test_the_query_gives_each_gpu() -> None:
    found = parse_query(f"{UUID}, 550.54.15, 15360, 7.5, Tesla T4\n{UUID[:-1]}6, 550.54.15, 81559, 9.0, NVIDIA H100, PCIe\n")

    assert [(gpu.name, gpu.compute_capability, gpu.memory_mib, driver) for gpu, driver in found] == [
        ("Tesla T4", "7.5", 15360, "550.54.15"),
        ("NVIDIA H100, PCIe", "9.0", 81559, "550.54.15"),
    ]
    assert found[0][0].uuid == UUID


def test_an_old_one_is_asked_for_less() -> None:
    ((found, _),) = parse_query(f"{UUID}, 470.57.02, 11441, Tesla K80\n", OLD_QUERY_FIELDS)

    assert (found.name, found.compute_capability, found.memory_mib) == ("Tesla K80", None, 11441)


def test_what_it_does_not_know_is_none() -> None:
    ((found, driver),) = parse_query(f"{UUID}, 550..1, [Not Supported], nonsense, [Unknown Error]\n")

    assert (driver, found.memory_mib, found.compute_capability, found.name) == (None, None, None, None)


@pytest.mark.parametrize("text", ["", "No devices were found\n", 'Field "compute_cap" is not a valid field to query.\n', "GPU-1, 2\n"])
def test_other_lines_are_passed_over(text: str) -> None:
    assert parse_query(text) == ()
