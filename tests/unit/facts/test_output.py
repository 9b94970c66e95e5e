"""Outputs of other programs taken for facts: what each says, what stays unknown, and what harm a damaged one does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.codec import encode
from cudnn_resolve.facts.model import UNKNOWN, Facts
from cudnn_resolve.operations.machine_facts import read_facts
from tests.program import shipped

OUTPUTS = Path(__file__).parents[2] / "outputs"


def facts_of(name: str) -> Facts:
    return read_facts(str(OUTPUTS / name), shipped())


def written(tmp_path: Path, text: str) -> Facts:
    path = tmp_path / "output.txt"
    path.write_text(text, encoding="utf-8", errors="replace")
    return read_facts(str(path), shipped())


@pytest.mark.parametrize(
    ("name", "platform", "python", "driver", "gpus"),
    [
        ("nvidia-smi.txt", {}, None, {"version": "460.32.03", "cuda": "11.2"}, [("A100-SXM4-40GB", "8.0"), ("NVIDIA A100-SXM...", "8.0")]),
        ("nvidia-smi-615.txt", {}, None, {"version": "615.36", "cuda": "13.3"}, [("NVIDIA A10G", "8.6"), ("NVIDIA RTX 6000 ...", "8.9")]),
        ("nvidia-smi-q.txt", {}, None, {"version": "450.66", "cuda": "11.0"}, [("GeForce GTX 1080", "6.1")]),
        ("nvidia-smi-q-x.xml", {}, None, {"version": "550.54.15", "cuda": "12.4"}, [("Tesla T4", "7.5")]),
        ("nvidia-smi-L.txt", {}, None, None, [("NVIDIA A100-SXM4-80GB", "8.0")]),
        (
            "torch-collect-env.txt",
            {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"},
            "3.10.12",
            {"version": "535.129.03"},
            [("NVIDIA GeForce RTX 3090", "8.6")] * 2,
        ),
        (
            "vllm-collect-env.txt",
            {"system": "linux", "arch": "x86_64", "distribution": "rocky", "release": "8.7", "glibc": "2.28"},
            "3.11.6",
            {"version": "535.216.01"},
            [("NVIDIA H20", "9.0")],
        ),
        (
            "tf_env.txt",
            {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"},
            "3.10.12",
            {"version": "535.104.05", "cuda": "12.2"},
            [("Tesla T4", "7.5")],
        ),
        ("jax-environment-info.txt", {"arch": "x86_64"}, "3.10.12", {"version": "550.127.05", "cuda": "12.4"}, [("NVIDIA A10G", "8.6")]),
        (
            "cudnn-collect-env.txt",
            {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "24.04", "glibc": "2.39"},
            "3.12.3",
            {"version": "570.124.06"},
            [("NVIDIA H100 80GB HBM3", "9.0")],
        ),
        ("conda-info.json", {"system": "linux", "arch": "x86_64", "glibc": "2.31"}, None, {"cuda": "12.2"}, None),
        (
            "kubernetes-node.json",
            {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04"},
            None,
            {"version": "525.105.17"},
            [("NVIDIA-A100-SXM4-40GB", "8.0")] * 2,
        ),
    ],
)
def test_machine(name: str, platform: dict[str, str], python: str | None, driver: dict[str, str] | None, gpus: Any) -> None:
    facts = encode(facts_of(name))
    assert facts.get("platform", {}) == platform
    assert facts.get("python", {}).get("version") == python
    assert facts.get("driver") == driver
    assert [(gpu["name"], gpu["compute_capability"]) for gpu in facts.get("gpus", ())] == (gpus or [])


def test_unknown_stays_unknown() -> None:
    facts = facts_of("nvidia-smi.txt")
    assert facts.cudnn is facts.cuda_toolkits is facts.frameworks is facts.packages.pip is UNKNOWN
    assert facts.sources["driver.version"] == facts.sources["gpus"] == "nvidia-smi"


def test_memory_and_uuid() -> None:
    for name, memory in (("nvidia-smi.txt", 40536), ("nvidia-smi-q.txt", 8119), ("nvidia-smi-q-x.xml", 15360)):
        gpus = facts_of(name).gpus
        assert isinstance(gpus, tuple)
        assert gpus[0].memory_mib == memory
    listed = facts_of("nvidia-smi-L.txt").gpus
    assert isinstance(listed, tuple)
    assert listed[0].uuid == "GPU-5a8d6e2c-0000-1111-2222-333344445555"


def test_packages_are_told_to_be_some_of_them() -> None:
    facts = facts_of("torch-collect-env.txt")
    assert facts.packages.pip == {"numpy": "1.26.3", "torch": "2.1.2+cu121", "torchvision": "0.16.2+cu121", "triton": "2.1.0"}
    assert [one.what for one in facts.problems] == ["packages.pip"]
    (torch,) = encode(facts)["frameworks"]
    assert (torch["name"], torch["version"], torch["variant"], torch["cuda_built"]) == ("torch", "2.1.2+cu121", "cu121", "12.1")


def test_copies_of_cudnn() -> None:
    (copy,) = encode(facts_of("torch-collect-env.txt"))["cudnn"]
    assert copy["version"] == "8.9.7"
    assert (copy["soname"], copy["path"], copy["parts"]) == (8, "/usr/lib/x86_64-linux-gnu", ["adv_infer", "ops_infer"])
    (copy,) = encode(facts_of("tf_env.txt"))["cudnn"]
    assert (copy["version"], copy["path"]) == ("8.9.4", "/usr/local/cuda-12.2/targets/x86_64-linux/lib")


def test_report_as_json() -> None:
    text = (OUTPUTS / "cudnn-collect-env.txt").read_text(encoding="utf-8")
    report: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if line.startswith("===="):
            section = report.setdefault(line.strip("= "), {})
        elif " : " in line:
            key, _, value = line.partition(" : ")
            section[key.strip()] = value
    from cudnn_resolve.facts.codec import from_mapping
    from cudnn_resolve.facts.output import read_json_output

    found = read_json_output(report)
    assert found is not None
    expected, facts = encode(facts_of("cudnn-collect-env.txt")), encode(from_mapping(found))
    assert facts.pop("sources").keys() == expected.pop("sources").keys()
    assert facts == expected


def test_escapes_and_other_line_ends(tmp_path: Path) -> None:
    text = (OUTPUTS / "nvidia-smi.txt").read_text(encoding="utf-8")
    altered = written(tmp_path, "\ufeff\x1b[1m" + text.replace("\n", "\x1b[0m\r\n"))
    assert altered == facts_of("nvidia-smi.txt")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<nvidia_smi_log>\n<driver_version>550", "cannot be read"),
        ('<!DOCTYPE x [<!ENTITY a "b">]>\n<nvidia_smi_log></nvidia_smi_log>', "declares entities"),
        ("<nvidia_smi_log>\n</nvidia_smi_log>", "says nothing about a machine"),
        (json.dumps({"apiVersion": "v1", "kind": "List", "items": [{"kind": "Node"}, {"kind": "Node"}]}), "a list of 2 nodes"),
        (json.dumps({"virtual_pkgs": []}), "says nothing about a machine"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "could not reach the driver"),
        ("No devices were found\n", "found no GPU"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "do not match"),
        (json.dumps({"apiVersion": "v1", "kind": "List", "items": 5}), "a list of 0 nodes"),
    ],
)
def test_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        written(tmp_path, text)


@given(name=st.sampled_from(sorted(path.name for path in OUTPUTS.iterdir())), data=st.data())
def test_damaged_outputs_do_no_harm(name: str, data: st.DataObject) -> None:
    """A text cut, repeated and overwritten anywhere leads to facts or to InputError."""
    from cudnn_resolve.facts.codec import from_mapping, parse_object
    from cudnn_resolve.facts.output import read_json_output, read_output

    text = (OUTPUTS / name).read_text(encoding="utf-8")
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 60)))
        text = text[:start] + data.draw(st.one_of(st.text(max_size=20), st.sampled_from(("\0", "9" * 5000, text[:200])))) + text[end:]
    try:
        found = read_output(text)
        if found is None:
            found = read_json_output(parse_object(text, "it"))
        if found is not None:
            encode(from_mapping(found))
    except InputError:
        pass


def test_labels_that_are_numbers_and_lines_made_to_hurt(tmp_path: Path) -> None:
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/cuda.driver-version.full": 550.54, "nvidia.com/gpu.count": 1}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels}}
    assert encode(written(tmp_path, json.dumps(node)))["driver"] == {"version": "550.54"}
    slow = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15   CUDA Version: 12.4 |\n" + ("|  0 a" + " " * 4000 + "x\n") * 2000
    assert written(tmp_path, slow).gpus is UNKNOWN


@pytest.mark.parametrize("place", ["NVIDIA-SMI 550.", "Driver Version: 550."])
def test_a_version_of_thousands_of_digits_is_none(place: str, tmp_path: Path) -> None:
    text = (OUTPUTS / "jax-environment-info.txt").read_text(encoding="utf-8").replace(place, f"{place}{'9' * 5000}.")
    assert encode(written(tmp_path, text))["python"] == {"version": "3.10.12"}


@pytest.mark.parametrize("name", sorted(one.name for one in OUTPUTS.iterdir() if one.name != "windows-collect-env.txt"))
def test_as_windows_writes_it(name: str, tmp_path: Path) -> None:
    text = (OUTPUTS / name).read_text(encoding="utf-8").replace("\n", "\r\n")
    for codec in ("utf-16", "utf-8-sig"):
        (tmp_path / name).write_bytes(text.encode(codec))
        assert read_facts(str(tmp_path / name), shipped()) == facts_of(name)


@pytest.mark.parametrize(
    ("text", "driver", "gpus"),
    [
        (
            "name, driver_version, memory.total [MiB], compute_cap" + "\nTesla T4, 550.54.15, 15360 MiB, 7.5" * 2,
            "550.54.15",
            [("Tesla T4", "7.5", 15360)] * 2,
        ),
        ("NVIDIA A100-SXM4-40GB, 535.104.05, 40960 MiB\n", "535.104.05", [("NVIDIA A100-SXM4-40GB", "8.0", 40960)]),
        (
            "index, name, uuid, driver_version, memory.total [MiB]\n0, NVIDIA H100 80GB HBM3, GPU-7a4c0a2e-11, [N/A], [Not Supported]\n",
            None,
            [("NVIDIA H100 80GB HBM3", "9.0", None)],
        ),
        ("driver_version\n570.86.10\n", "570.86.10", None),
        ("Tesla T4\n", None, [("Tesla T4", "7.5", None)]),
    ],
)
def test_a_table_of_nvidia_smi(text: str, driver: str | None, gpus: Any, tmp_path: Path) -> None:
    facts = encode(written(tmp_path, text))
    assert facts.get("driver", {}).get("version") == driver
    assert [(one["name"], one["compute_capability"], one["memory_mib"]) for one in facts.get("gpus", ())] == (gpus or [])


@pytest.mark.parametrize("text", ["numpy, 1.26\n", "name\n", "a, b\nTesla T4, 7.5\n"])
def test_another_table_is_none(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        written(tmp_path, text)
