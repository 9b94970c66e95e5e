"""Read facts from outputs of other programs: nvidia-smi, environment reports of frameworks, JSON of conda and Kubernetes.

The program is recognised by the content of its output. Whatever an output does not state remains unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts import saved_nvidia_smi as smi
from cudnn_resolve.facts.cudnn_files import parse_name
from cudnn_resolve.facts.framework_files import cuda_of_label, local_label
from cudnn_resolve.facts.saved_nvidia_smi import FactsObject, first_match, known

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LONGEST_LINE = 4096
_ARCHITECTURE = re.compile(r"\b(x86_64|amd64|aarch64|arm64)\b")
_GLIBC = re.compile(r"with-glibc(\d\.\d{1,3})")
_PYTHON = re.compile(r"([23]\.\d{1,3}(?:\.\d{1,3})?(?:(?:a|b|rc)\d{1,3})?)")
_DISTRIBUTIONS = {  # ID of os-release by PRETTY_NAME
    "ubuntu": "ubuntu", "debian gnu/linux": "debian", "red hat enterprise linux": "rhel", "red hat enterprise linux server": "rhel",
    "centos linux": "centos", "centos stream": "centos", "rocky linux": "rocky",
    "almalinux": "almalinux", "oracle linux server": "ol", "amazon linux": "amzn", "fedora": "fedora", "fedora linux": "fedora",
    "suse linux enterprise server": "sles", "opensuse leap": "opensuse-leap",
}  # fmt: skip
_RELEASE = re.compile(r"([a-z][a-z /]*?)(?: release)?\s+(\d{1,4}(?:\.\d{1,3}){0,2})")
_SOME_PACKAGES = "it lists some of the installed packages, not all"


def read_output(text: str) -> FactsObject | None:
    """Facts in the output of a known program; None if no known program wrote the text.

    Raise InputError (exit 2) if it says nothing about a machine.
    """
    text = _ESCAPES.sub("", text.removeprefix("\ufeff")).replace("\r", "")
    lines = [line[:_LONGEST_LINE].rstrip() for line in text.splitlines()]
    for words, meaning in _FAILURES.items():
        if any(line.startswith(words) for line in lines[:20]):
            message = f"according to its output, nvidia-smi {meaning}"
            raise InputError(message, code="facts-empty", hint="`cudnn-resolve doctor FILE` analyses it as a log")
    for sign, program, read in _PROGRAMS:
        if any(sign.search(line) for line in lines):
            return _with_sources(read(text if read is smi.read_xml else "\n".join(lines)), program)
    rows = smi.read_csv([line.strip() for line in lines if line.strip()])
    return _with_sources(rows, "nvidia-smi --query-gpu") if rows is not None else None


_FAILURES = {
    "NVIDIA-SMI has failed": "could not reach the driver",
    "No devices were found": "found no GPU",
    "Failed to initialize NVML": "failed because the driver and its libraries do not match",
}
"""First words of nvidia-smi's error messages, and their meaning."""


def read_json_output(found: Mapping[str, Any]) -> FactsObject | None:
    """As `read_output`, for a decoded JSON object: of conda, Kubernetes or cudnn.collect_env."""
    if isinstance(found.get("virtual_pkgs"), list):
        return _with_sources(_conda(found), "conda info --json")
    if found.get("kind") in ("Node", "NodeList", "List") and "apiVersion" in found:
        return _with_sources(_node(found), "Kubernetes node")
    if isinstance(found.get("GPU / Driver"), dict):
        pairs = [(str(key), str(value)) for section in found.values() if isinstance(section, dict) for key, value in section.items()]
        return _with_sources(_cudnn_report(pairs), "cudnn.collect_env --json")
    return None


def _with_sources(found: FactsObject, program: str) -> FactsObject:
    """Add the program as the source of the facts, and drop unknown ones (None, and objects that hold nothing else)."""
    facts = {key: known(value) if isinstance(value, dict) else value for key, value in found.items() if value is not None}
    facts = {key: value for key, value in facts.items() if value != {}}
    if not facts.keys() - {"problems", "packages"} and not facts.get("packages"):
        raise InputError(
            f"the output of {program} says nothing about a machine",
            code="facts-empty",
            hint="run `cudnn-resolve detect` on the machine instead",
        )
    names = (f"{key}.{inner}" for key, value in facts.items() if isinstance(value, dict) for inner in value)
    return {**facts, "sources": dict.fromkeys((*names, *(key for key in facts if isinstance(facts[key], list))), program)}


# ---- shared by several outputs


def _os(text: str) -> FactsObject:
    """Distribution and release in a PRETTY_NAME, `Ubuntu 22.04.4 LTS` or `Rocky Linux 8.9 (Green Obsidian)`."""
    found = _RELEASE.match(text.casefold().strip())
    name = _DISTRIBUTIONS.get(found[1].strip()) if found else None
    if found is None or name is None:
        return {}
    release = ".".join(found[2].split(".")[:2]) if name == "ubuntu" else found[2]
    return {"system": "linux", "distribution": name, "release": release}


def _system(platform: str) -> str | None:
    """`linux`, `windows` or `macos`, as `platform.platform()` begins."""
    found = re.match(r"(Linux|Windows|macOS)-", platform)
    return found[1].lower() if found else None


def _pairs(lines: Iterable[str], between: str = ":") -> Iterator[tuple[str, str]]:
    """Keys and values of lines such as `Nvidia driver version: 550.54.15`."""
    for line in lines:
        key, colon, value = line.partition(between)
        if colon:
            yield key.strip(), value.strip()


_TABLE = re.compile(r"(\S+)\s+(\d\S*)(?:\s.*)?")


def _pip_rows(lines: Iterable[str]) -> dict[str, str]:
    """Packages of `pip list` or `pip freeze`: `numpy  1.26.4` or `numpy==1.26.4`."""
    matches = (_TABLE.fullmatch(line.strip().replace("==", " ")) for line in lines)
    return {match[1]: match[2] for match in matches if match}


def _framework(name: str, version: str | None, cuda: str | None = None) -> list[FactsObject] | None:
    """Row of the framework that wrote the report."""
    if version is None or not version[:1].isdigit():
        return None
    label = local_label(version)
    return [{"name": name, "version": version, **known({"variant": label, "cuda_built": cuda or cuda_of_label(label)})}]


def _copies(paths: Iterable[str]) -> list[FactsObject] | None:
    """Copies of cuDNN by folder and major version, from paths such as `/usr/lib/x86_64-linux-gnu/libcudnn_ops.so.9.2.1`."""
    copies: dict[tuple[str, int], FactsObject] = {}
    for path in paths:
        folder, _, file = path.strip().rpartition("/")
        name = parse_name(file)
        if name is None or name.soname is None or not folder.startswith("/"):
            continue
        copy = copies.setdefault((folder, name.soname), {"path": folder, "soname": name.soname})
        if not name.part and name.version:
            copy["version"] = str(name.version)
        elif name.part:
            copy["parts"] = sorted({*copy.get("parts", ()), name.part})
    return list(copies.values()) or None


def _some(packages: Mapping[str, str]) -> FactsObject:
    """Packages of a report that lists only those relevant to its framework."""
    return {"packages": {"pip": dict(packages)}, "problems": [{"what": "packages.pip", "why": _SOME_PACKAGES}]} if packages else {}


# ---- environment reports of frameworks


def _torch_report(text: str) -> FactsObject:
    """`python -m torch.utils.collect_env`, also as vLLM prints it."""
    values = dict(reversed(list(_pairs(text.splitlines()))))  # the first value of a key counts
    python = first_match(_PYTHON, values.get("Python version"))
    version, cuda = values.get("PyTorch version"), first_match(smi.CUDA_LINE, values.get("CUDA used to build PyTorch"))
    runtime = first_match(smi.CUDA_LINE, values.get("CUDA runtime version"))
    listed = re.findall(r"^\[pip3?\] (\S+==\S+)", text, re.MULTILINE)
    packages = _pip_rows(listed)
    if version and version[:1].isdigit():
        packages.setdefault("torch", version)
    platform = values.get("Python platform", "")
    return {
        "platform": {
            "system": _system(platform),
            **_os(values.get("OS", "")),
            "arch": first_match(_ARCHITECTURE, platform) or first_match(_ARCHITECTURE, values.get("OS", "")),
            "glibc": first_match(_GLIBC, platform),
        },
        "python": {"version": python},
        "driver": {"version": first_match(smi.DRIVER, values.get("Nvidia driver version"))},
        "gpus": smi.listed_gpus(text),
        "cuda_toolkits": [{"version": runtime}] if runtime else None,
        "cudnn": _copies(re.findall(r"^(?:cuDNN version *: *)?(/\S*libcudnn\S*)$", text, re.MULTILINE)),
        "frameworks": _framework("torch", version, cuda),
        **_some(packages),
    }


def _sections(text: str) -> dict[str, list[str]]:
    """Lines below headings such as `== check pips =======`, by the text of the heading."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        heading = re.fullmatch(r"==+ (\S.*?) *==+", line)
        if heading:
            lines = sections.setdefault(heading[1], [])
        else:
            lines.append(line)
    return sections


def _tensorflow_report(text: str) -> FactsObject:
    """`tf_env.txt` of TensorFlow's tf_env_collect.sh."""
    sections = _sections(text)
    values = dict(_pairs((*sections.get("check python", ()), *sections.get("check os platform", ()))))
    packages = _pip_rows(sections.get("check pips", ()))
    version = first_match(r"(?m)^tf\.version\.VERSION = (\S+)", text)
    pretty = first_match(r"'PRETTY_NAME': '([^']{1,80})'", values.get("freedesktop os release"))
    old = re.match(r"\('([^']{1,40})', '(\d[\d.]*)'", values.get("linux distribution", ""))
    path = first_match(r"(?m)^LD_LIBRARY_PATH (/\S+)$", text)
    names = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf_nightly")
    name = next((name for name in names if name in packages), "tensorflow")
    return {
        "platform": {
            "system": _system(values.get("os platform", "")),
            **_os(pretty or (f"{old[1]} {old[2]}" if old else "")),
            "arch": first_match(_ARCHITECTURE, values.get("machine", "")) or first_match(_ARCHITECTURE, values.get("os platform", "")),
            "glibc": first_match(_GLIBC, values.get("os platform")),
        },
        "python": {"version": first_match(_PYTHON, values.get("python version"))},
        "driver": smi.driver_of(text),
        "gpus": smi.table_gpus(text),
        "cudnn": _copies(sections.get("cuda libs", ())),
        "frameworks": _framework(name, version),
        "loader": {"ld_library_path": path.split(":")} if path else None,
        **_some(packages),
    }


def _jax_report(text: str) -> FactsObject:
    """`jax.print_environment_info()`, followed by nvidia-smi if that ran."""
    values = dict(reversed(list(_pairs(text.splitlines()))))
    packages = {name: values[name] for name in ("jax", "jaxlib", "numpy") if values.get(name, "")[:1].isdigit()}
    return {
        "platform": {"arch": first_match(_ARCHITECTURE, values.get("platform", ""))},
        "python": {"version": first_match(_PYTHON, values.get("python"))},
        "driver": smi.driver_of(text),
        "gpus": smi.table_gpus(text),
        "frameworks": _framework("jax", packages.get("jax")),
        **_some(packages),
    }


def _cudnn_report(pairs: Iterable[tuple[str, str]]) -> FactsObject:
    """`python -m cudnn.collect_env` of NVIDIA's cuDNN frontend: lines such as `Driver version : 550.54.15`, or its JSON."""
    pairs = [(key.strip(), value.strip()) for key, value in pairs]
    values = dict(pairs)
    gpus: list[FactsObject] = []
    for key, value in pairs:
        if re.fullmatch(r"GPU \d{1,3} \(.{1,40}\)", key):
            # "H100 | SM90 | 132 SMs | 79.1 GiB" from torch, "H100, 9.0, 81559 MiB, 550.54.15" from nvidia-smi
            name, *rest = re.split(r" \| |, ", value)
            capability = next((part.replace("SM", "sm_") for part in rest if re.fullmatch(r"SM\d{2,3}|\d{1,2}\.\d", part)), None)
            memory = next((smi.mib(part) for part in rest if part.endswith("MiB")), None)
            gpus.append(known({"name": name, "compute_capability": capability, "memory_mib": memory}))
    names = re.compile(r"(?:nvidia-|cuda-|cudnn|torch|triton|transformer-engine|flashinfer|onnxruntime|jax|tensorrt|numpy|ninja)[a-z0-9-]*")
    packages = {key: value.split()[0] for key, value in pairs if names.fullmatch(key) and re.match(r"\d", value)}
    packages.pop("cudnn-frontend", None)
    executable = values.get("Python executable", "")
    return {
        "platform": {
            **_os(values.get("OS", "")),
            "arch": first_match(_ARCHITECTURE, values.get("Platform", "")),
            "glibc": first_match(r"^glibc (\d\.\d{1,3})$", values.get("libc")),
        },
        "python": {"version": first_match(_PYTHON, values.get("Python")), "path": executable if executable.startswith("/") else None},
        "driver": {"version": first_match(smi.DRIVER, values.get("Driver version"))},
        "gpus": gpus or None,
        "frameworks": _framework("torch", values.get("torch"), first_match(smi.CUDA_LINE, values.get("torch.version.cuda"))),
        **_some(packages),
    }


# ---- conda and Kubernetes


def _conda(found: Mapping[str, Any]) -> FactsObject:
    """Virtual packages of `conda info --json`; its Python is conda's own, not that of an environment."""
    rows = [row for row in found["virtual_pkgs"] if isinstance(row, list) and len(row) == 3]
    virtual = {str(name): (str(version), str(build)) for name, version, build in rows}
    arch = {"linux-64": "x86_64", "linux-aarch64": "aarch64"}.get(str(found.get("platform")))
    capability = next((text for text in virtual.get("__cuda_arch", ()) if re.fullmatch(r"sm_\d{2,3}|\d{1,2}\.\d", text)), None)
    return {
        "platform": {
            "system": "linux" if arch else None,
            "arch": arch,
            "glibc": first_match(r"^(\d\.\d{1,3})$", virtual.get("__glibc", ("", ""))[0]),
        },
        "driver": {"cuda": first_match(smi.CUDA_LINE, virtual.get("__cuda", ("", ""))[0])},
        "gpus": [{"compute_capability": capability}] if capability else None,
    }


_LABEL = "nvidia.com/"


def _node(found: Mapping[str, Any]) -> FactsObject:
    """A Kubernetes node with the labels of GPU Feature Discovery; raise InputError for a list of several nodes."""
    if found["kind"] != "Node":
        listed = found.get("items")
        items = [item for item in listed if isinstance(item, dict) and item.get("kind") == "Node"] if isinstance(listed, list) else []
        if len(items) != 1:
            raise InputError(
                f"a list of {len(items)} nodes is not one machine",
                code="facts-several",
                hint="save a single one: `kubectl get node NAME -o json`",
            )
        found = items[0]
    labels = {key: str(value) for key, value in _object(found, "metadata", "labels").items()}
    info = _object(found, "status", "nodeInfo")
    old = (labels.get(f"{_LABEL}cuda.driver.{part}") for part in ("major", "minor", "rev"))
    driver = labels.get(f"{_LABEL}cuda.driver-version.full") or ".".join(filter(None, old))
    name = re.sub(r"-(?:SHARED|MIG-.*)$", "", labels.get(f"{_LABEL}gpu.product", ""))
    major, minor = labels.get(f"{_LABEL}gpu.compute.major"), labels.get(f"{_LABEL}gpu.compute.minor")
    memory, count = labels.get(f"{_LABEL}gpu.memory", ""), labels.get(f"{_LABEL}gpu.count", "")
    gpu = {
        "name": name or None,
        "compute_capability": f"{major}.{minor}" if major and minor else None,
        "memory_mib": int(memory) if re.fullmatch(r"\d{1,9}", memory) else None,
    }
    return {
        "platform": {**_os(str(info.get("osImage", ""))), "arch": first_match(_ARCHITECTURE, str(info.get("architecture", "")))},
        "driver": {"version": first_match(smi.DRIVER, driver)},
        "gpus": [known(gpu)] * (int(count) if re.fullmatch(r"[1-9]\d?", count) else 1) if name or major else None,
    }


def _object(found: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Object below those keys; empty if there is none."""
    for name in names:
        inner = found.get(name)
        found = inner if isinstance(inner, dict) else {}
    return found


_PROGRAMS: tuple[tuple[re.Pattern[str], str, Callable[[str], FactsObject]], ...] = tuple(
    (re.compile(sign), program, read)
    for sign, program, read in (
        (r"<nvidia_smi_log>", "nvidia-smi -q -x", smi.read_xml),
        (r"^#+ cuDNN frontend environment report", "cudnn.collect_env", lambda text: _cudnn_report(_pairs(text.splitlines(), " : "))),
        (r"^PyTorch version *: ", "torch.utils.collect_env", _torch_report),
        (r"^== check (?:python|os platform|pips) =", "tf_env_collect.sh", _tensorflow_report),
        (r"^jaxlib: +\d", "jax.print_environment_info()", _jax_report),
        (r"^=+ ?NVSMI LOG ?=+$", "nvidia-smi -q", smi.read_query),
        (r"NVIDIA-SMI \d.* Version: ", "nvidia-smi", lambda text: {"driver": smi.driver_of(text), "gpus": smi.table_gpus(text)}),
        (r"^GPU \d{1,3}: .+ \(UUID: GPU-", "nvidia-smi -L", lambda text: {"gpus": smi.listed_gpus(text)}),
    )
)
"""Programs by a line that no other prints; reports come before nvidia-smi, whose output some of them contain."""
