"""Facts out of what people have at hand: outputs of nvidia-smi, environment reports of frameworks, JSON of conda and Kubernetes.

Which program wrote a text is recognised by its content. What it does not say stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.cudnn_files import parse_name
from cudnn_resolve.facts.framework_files import cuda_of_label, local_label
from cudnn_resolve.facts.nvidia import parse_banner

Told = dict[str, Any]
"""An object as a facts file holds it."""

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LONGEST_LINE = 4096
_ARCHITECTURE = re.compile(r"\b(x86_64|amd64|aarch64|arm64)\b")
_GLIBC = re.compile(r"with-glibc(\d\.\d{1,3})")
_PYTHON = re.compile(r"([23]\.\d{1,3}(?:\.\d{1,3})?(?:(?:a|b|rc)\d{1,3})?)")
_DISTRIBUTIONS = {  # PRETTY_NAME of os-release, to its ID
    "ubuntu": "ubuntu", "debian gnu/linux": "debian", "red hat enterprise linux": "rhel", "red hat enterprise linux server": "rhel",
    "centos linux": "centos", "centos stream": "centos", "rocky linux": "rocky",
    "almalinux": "almalinux", "oracle linux server": "ol", "amazon linux": "amzn", "fedora": "fedora", "fedora linux": "fedora",
    "suse linux enterprise server": "sles", "opensuse leap": "opensuse-leap",
}  # fmt: skip
_RELEASE = re.compile(r"([a-z][a-z /]*?)(?: release)?\s+(\d{1,4}(?:\.\d{1,3}){0,2})")
_DRIVER = re.compile(r"^(\d{2,4}(?:\.\d{1,3}){1,3})$")
_LINE = re.compile(r"^(\d{1,2}\.\d{1,2})(?![\d])")
"""A CUDA release, its first two numbers."""
_SOME_PACKAGES = "it lists some of the installed packages, not all"


def told(text: str) -> Told | None:
    """The facts file that an output stands for; None where none of the known programs wrote the text.

    InputError (exit 2) where one did, and nothing of a machine can be learnt from it.
    """
    text = _ESCAPES.sub("", text.removeprefix("\ufeff")).replace("\r", "")
    lines = [line[:_LONGEST_LINE].rstrip() for line in text.splitlines()]
    for words, meaning in _FAILURES.items():
        if any(line.startswith(words) for line in lines[:20]):
            message = f"the output of nvidia-smi says that {meaning}"
            raise InputError(message, code="facts-empty", hint="`cudnn-resolve doctor FILE` judges it as a log")
    for sign, program, read in _PROGRAMS:
        if any(sign.search(line) for line in lines):
            return _named(read(text if read is _smi_xml else "\n".join(lines)), program)
    rows = _smi_rows([line.strip() for line in lines if line.strip()])
    return _named(rows, "nvidia-smi --query-gpu") if rows is not None else None


_FAILURES = {
    "NVIDIA-SMI has failed": "it could not reach the driver",
    "No devices were found": "the driver sees no GPU",
    "Failed to initialize NVML": "the driver and its libraries do not go together",
}
"""How nvidia-smi says that it cannot say anything."""


def told_by_json(found: Mapping[str, Any]) -> Told | None:
    """The same of a decoded JSON object: of conda, Kubernetes or cudnn.collect_env."""
    if isinstance(found.get("virtual_pkgs"), list):
        return _named(_conda(found), "conda info --json")
    if found.get("kind") in ("Node", "NodeList", "List") and "apiVersion" in found:
        return _named(_node(found), "Kubernetes node")
    if isinstance(found.get("GPU / Driver"), dict):
        pairs = [(str(key), str(value)) for one in found.values() if isinstance(one, dict) for key, value in one.items()]
        return _named(_cudnn_report(pairs), "cudnn.collect_env --json")
    return None


def _named(found: Told, program: str) -> Told:
    """The facts with the program as their source; unknown ones (None, and objects of nothing else) left out."""
    facts = {key: _known(value) if isinstance(value, dict) else value for key, value in found.items() if value is not None}
    facts = {key: value for key, value in facts.items() if value != {}}
    if not facts.keys() - {"problems", "packages"} and not facts.get("packages"):
        raise InputError(
            f"the output of {program} says nothing about a machine",
            code="facts-empty",
            hint="`cudnn-resolve detect` asks the machine itself",
        )
    names = (f"{key}.{inner}" for key, value in facts.items() if isinstance(value, dict) for inner in value)
    return {**facts, "sources": dict.fromkeys((*names, *(key for key in facts if isinstance(facts[key], list))), program)}


def _known(value: Mapping[str, Any]) -> Told:
    return {key: one for key, one in value.items() if one is not None}


# ---- pieces that several outputs share


def _os(text: str) -> Told:
    """Distribution and release of a PRETTY_NAME, `Ubuntu 22.04.4 LTS` or `Rocky Linux 8.9 (Green Obsidian)`."""
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


def _arch(text: str) -> str | None:
    found = _ARCHITECTURE.search(text)
    return found[1] if found else None


def _first(pattern: re.Pattern[str], text: str | None) -> str | None:
    found = pattern.search(text or "")
    return found[1] if found else None


def _pairs(lines: Iterable[str], between: str = ":") -> Iterator[tuple[str, str]]:
    """Keys and values of lines such as `Nvidia driver version: 550.54.15`."""
    for line in lines:
        key, colon, value = line.partition(between)
        if colon:
            yield key.strip(), value.strip()


def _driver(text: str) -> Told | None:
    """The driver in the head of nvidia-smi, plain or `-q`."""
    banner = parse_banner(text)
    driver = {"version": banner.driver and banner.driver.text, "cuda": banner.cuda and str(banner.cuda)}
    return driver if any(driver.values()) else None


_ROW = re.compile(r"\s*\d{1,3}\s+(\S+(?: \S+)*)\s+(?:On|Off|N/A|WDDM|TCC|MCDM)\s*")
_BUS = re.compile(r"\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\b")
_MEMORY = re.compile(r"\d{1,9}MiB\s*/\s*(\d{1,9})MiB")
_LISTED = re.compile(r"(?:GPU models and configuration *:\s*)?GPU \d{1,3}: (.+?)(?:\s+\(UUID: (GPU-[0-9A-Za-z-]{1,80})\))?")


def _table_gpus(text: str) -> list[Told] | None:
    """The cards in the table of a plain nvidia-smi: a line with name and bus, the next one with the memory."""
    gpus: list[Told] = []
    open_row = False
    for line in text.splitlines():
        cells = line.strip().split("|")
        row = _ROW.fullmatch(cells[1][:200]) if len(cells) > 2 and _BUS.match(cells[2]) else None
        if row:
            gpus.append({"name": row[1]})
        elif open_row and (memory := _MEMORY.search(line)):
            gpus[-1]["memory_mib"] = int(memory[1])
        open_row = row is not None
    return gpus or None


def _listed_gpus(text: str) -> list[Told] | None:
    """The cards of `nvidia-smi -L`: `GPU 0: Tesla T4 (UUID: GPU-…)`."""
    found = (_LISTED.fullmatch(line.strip()) for line in text.splitlines())
    return [{"name": one[1], "uuid": one[2]} for one in found if one] or None


_TABLE = re.compile(r"(\S+)\s+(\d\S*)(?:\s.*)?")


def _pip_rows(lines: Iterable[str]) -> dict[str, str]:
    """Packages of `pip list` or `pip freeze`: `numpy  1.26.4` or `numpy==1.26.4`."""
    found = (_TABLE.fullmatch(line.strip().replace("==", " ")) for line in lines)
    return {one[1]: one[2] for one in found if one}


def _framework(name: str, version: str | None, cuda: str | None = None) -> list[Told] | None:
    """The framework that wrote the report."""
    if version is None or not version[:1].isdigit():
        return None
    label = local_label(version)
    return [{"name": name, "version": version, **_known({"variant": label, "cuda_built": cuda or cuda_of_label(label)})}]


def _copies(paths: Iterable[str]) -> list[Told] | None:
    """Copies of cuDNN, one for each folder and major: `/usr/lib/x86_64-linux-gnu/libcudnn_ops.so.9.2.1`."""
    copies: dict[tuple[str, int], Told] = {}
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


def _some(packages: Mapping[str, str]) -> Told:
    """Packages of a report that names those that matter to its framework."""
    return {"packages": {"pip": dict(packages)}, "problems": [{"what": "packages.pip", "why": _SOME_PACKAGES}]} if packages else {}


# ---- nvidia-smi


def _smi_query(text: str) -> Told:
    """`nvidia-smi -q`: a section for each card, and in it the memory as `FB Memory Usage`, `Total : 15360 MiB`."""
    gpus: list[Told] = []
    section = ""
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if re.match(r"GPU [0-9A-Fa-f]{4,8}:", line):
            gpus.append({})
        elif not value:
            section = key
        elif gpus and key == "Product Name":
            gpus[-1]["name"] = _answer(value)
        elif gpus and key == "GPU UUID":
            gpus[-1]["uuid"] = _answer(value)
        elif gpus and key == "Total" and section == "FB Memory Usage":
            gpus[-1]["memory_mib"] = _mib(value)
    return {"driver": _driver(text), "gpus": [_known(gpu) for gpu in gpus] or None}


def _smi_xml(text: str) -> Told:
    """`nvidia-smi -q -x`; InputError for what is no XML, or declares entities, which nvidia-smi does not."""
    from xml.etree import ElementTree as ET

    try:
        log = None if "<!ENTITY" in text else ET.fromstring(text[text.index("<") :])  # noqa: S314 - without entities nothing grows
    except (ET.ParseError, ValueError, LookupError) as error:
        raise InputError(f"the output of nvidia-smi -q -x cannot be read: {error}", code="facts-invalid") from None
    if log is None:
        raise InputError("the output of nvidia-smi -q -x cannot be read: it declares entities", code="facts-invalid")
    gpus = []
    for gpu in log.iter("gpu"):
        memory = _mib(gpu.findtext("fb_memory_usage/total"))
        gpus.append(_known({"name": _answer(gpu.findtext("product_name")), "uuid": _answer(gpu.findtext("uuid")), "memory_mib": memory}))
    driver = {"version": _first(_DRIVER, log.findtext("driver_version")), "cuda": _first(_LINE, log.findtext("cuda_version"))}
    return {"driver": driver, "gpus": gpus or None}


_FIELDS = {
    "name": "name",
    "gpu_name": "name",
    "driver_version": "driver",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "compute_cap": "compute_capability",
}
_FIELD = re.compile(r"[a-z0-9_.]{1,60}(?: \[(?:MiB|W|%|MHz|C|us)\])?")
_CELLS = {  # of a table without a head
    "driver": re.compile(r"\d{3}(?:\.\d{2,3}){1,2}"),
    "memory.total [MiB]": re.compile(r"\d{3,8} MiB"),
    "compute_capability": re.compile(r"\d{1,2}\.\d"),
    "uuid": re.compile(r"GPU-[0-9a-f-]{8,80}"),
    "name": re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|GRID|TITAN|Orin|A100|H100) ?\S.{0,60}"),
}
_MOST_ROWS = 64


def _smi_rows(lines: list[str]) -> Told | None:
    """`nvidia-smi --query-gpu=name,driver_version,... --format=csv`, also with `noheader`; None for another text.

    Without a head a column is known by what stands in it, and every line has to name a card or a driver.
    """
    if not 1 <= len(lines) <= _MOST_ROWS:
        return None
    table = [[cell.strip() for cell in line.split(",")] for line in lines]
    head = table[0]
    if set(head) & _FIELDS.keys() and all(map(_FIELD.fullmatch, head)):
        rows = [dict(zip(head, row, strict=False)) for row in table[1:]]
    else:
        rows = [{name: cell for cell in row for name, sign in _CELLS.items() if sign.fullmatch(cell)} for row in table]
        if not all("name" in row or "driver" in row for row in rows):
            return None
    gpus: list[Told] = []
    driver = None
    for row in rows:
        said = {_FIELDS.get(name, name): _answer(cell) for name, cell in row.items()}
        memory = said.get("memory.total [MiB]") or ""
        driver = driver or _first(_DRIVER, said.get("driver"))
        gpu = {key: said.get(key) for key in ("name", "uuid", "compute_capability")}
        gpus.append(_known({**gpu, "memory_mib": _mib(memory if memory.endswith("MiB") else f"{memory} MiB")}))
    return {"driver": {"version": driver}, "gpus": [gpu for gpu in gpus if gpu.get("name") or gpu.get("compute_capability")] or None}


def _answer(text: str | None) -> str | None:
    """What nvidia-smi says, None for its ways to say nothing."""
    unknown = ("", "N/A", "[N/A]", "[Not Supported]", "[Unknown Error]", "Requested functionality has been deprecated")
    return None if text is None or text in unknown else text


def _mib(text: str | None) -> int | None:
    found = re.fullmatch(r"(\d{1,9}) MiB", (text or "").strip())
    return int(found[1]) if found else None


# ---- environment reports of frameworks


def _torch_report(text: str) -> Told:
    """`python -m torch.utils.collect_env`, also as vLLM prints it."""
    said = dict(reversed(list(_pairs(text.splitlines()))))  # the first of a key counts
    python = _first(_PYTHON, said.get("Python version"))
    version, cuda = said.get("PyTorch version"), _first(_LINE, said.get("CUDA used to build PyTorch"))
    runtime = _first(_LINE, said.get("CUDA runtime version"))
    listed = re.findall(r"^\[pip3?\] (\S+==\S+)", text, re.MULTILINE)
    packages = _pip_rows(listed)
    if version and version[:1].isdigit():
        packages.setdefault("torch", version)
    platform = said.get("Python platform", "")
    return {
        "platform": {
            "system": _system(platform),
            **_os(said.get("OS", "")),
            "arch": _arch(platform) or _arch(said.get("OS", "")),
            "glibc": _first(_GLIBC, platform),
        },
        "python": {"version": python},
        "driver": {"version": _first(_DRIVER, said.get("Nvidia driver version"))},
        "gpus": _listed_gpus(text),
        "cuda_toolkits": [{"version": runtime}] if runtime else None,
        "cudnn": _copies(re.findall(r"^(?:cuDNN version *: *)?(/\S*libcudnn\S*)$", text, re.MULTILINE)),
        "frameworks": _framework("torch", version, cuda),
        **_some(packages),
    }


def _sections(text: str) -> dict[str, list[str]]:
    """Lines below headings such as `== check pips =======`, by the words of the heading."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        heading = re.fullmatch(r"==+ (\S.*?) *==+", line)
        if heading:
            lines = found.setdefault(heading[1], [])
        else:
            lines.append(line)
    return found


def _tensorflow_report(text: str) -> Told:
    """`tf_env.txt` of TensorFlow's tf_env_collect.sh."""
    sections = _sections(text)
    said = dict(_pairs((*sections.get("check python", ()), *sections.get("check os platform", ()))))
    packages = _pip_rows(sections.get("check pips", ()))
    version = _first(re.compile(r"^tf\.version\.VERSION = (\S+)", re.MULTILINE), text)
    pretty = _first(re.compile(r"'PRETTY_NAME': '([^']{1,80})'"), said.get("freedesktop os release"))
    old = re.match(r"\('([^']{1,40})', '(\d[\d.]*)'", said.get("linux distribution", ""))
    path = _first(re.compile(r"^LD_LIBRARY_PATH (/\S+)$", re.MULTILINE), text)
    name = next((one for one in ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf_nightly") if one in packages), "tensorflow")
    return {
        "platform": {
            "system": _system(said.get("os platform", "")),
            **_os(pretty or (f"{old[1]} {old[2]}" if old else "")),
            "arch": _arch(said.get("machine", "")) or _arch(said.get("os platform", "")),
            "glibc": _first(_GLIBC, said.get("os platform")),
        },
        "python": {"version": _first(_PYTHON, said.get("python version"))},
        "driver": _driver(text),
        "gpus": _table_gpus(text),
        "cudnn": _copies(line for title in ("cuda libs", "cuda libs ") for line in sections.get(title, ())),
        "frameworks": _framework(name, version),
        "loader": {"ld_library_path": path.split(":")} if path else None,
        **_some(packages),
    }


def _jax_report(text: str) -> Told:
    """`jax.print_environment_info()`, with nvidia-smi below it where that ran."""
    said = dict(reversed(list(_pairs(text.splitlines()))))
    packages = {name: said[name] for name in ("jax", "jaxlib", "numpy") if said.get(name, "")[:1].isdigit()}
    return {
        "platform": {"arch": _arch(said.get("platform", ""))},
        "python": {"version": _first(_PYTHON, said.get("python"))},
        "driver": _driver(text),
        "gpus": _table_gpus(text),
        "frameworks": _framework("jax", packages.get("jax")),
        **_some(packages),
    }


def _cudnn_report(pairs: Iterable[tuple[str, str]]) -> Told:
    """`python -m cudnn.collect_env` of NVIDIA's cuDNN frontend: lines such as `Driver version : 550.54.15`, or its JSON."""
    pairs = [(key.strip(), value.strip()) for key, value in pairs]
    said = dict(pairs)
    gpus: list[Told] = []
    for key, value in pairs:
        if re.fullmatch(r"GPU \d{1,3} \(.{1,40}\)", key):
            # "H100 | SM90 | 132 SMs | 79.1 GiB" where torch was asked, "H100, 9.0, 81559 MiB, 550.54.15" of nvidia-smi
            name, *rest = re.split(r" \| |, ", value)
            capability = next((one.replace("SM", "sm_") for one in rest if re.fullmatch(r"SM\d{2,3}|\d{1,2}\.\d", one)), None)
            memory = next((_mib(one) for one in rest if one.endswith("MiB")), None)
            gpus.append(_known({"name": name, "compute_capability": capability, "memory_mib": memory}))
    names = re.compile(r"(?:nvidia-|cuda-|cudnn|torch|triton|transformer-engine|flashinfer|onnxruntime|jax|tensorrt|numpy|ninja)[a-z0-9-]*")
    packages = {key: value.split()[0] for key, value in pairs if names.fullmatch(key) and re.match(r"\d", value)}
    packages.pop("cudnn-frontend", None)
    executable = said.get("Python executable", "")
    return {
        "platform": {
            **_os(said.get("OS", "")),
            "arch": _arch(said.get("Platform", "")),
            "glibc": _first(re.compile(r"^glibc (\d\.\d{1,3})$"), said.get("libc")),
        },
        "python": {"version": _first(_PYTHON, said.get("Python")), "path": executable if executable.startswith("/") else None},
        "driver": {"version": _first(_DRIVER, said.get("Driver version"))},
        "gpus": gpus or None,
        "frameworks": _framework("torch", said.get("torch"), _first(_LINE, said.get("torch.version.cuda"))),
        **_some(packages),
    }


# ---- conda and Kubernetes


def _conda(found: Mapping[str, Any]) -> Told:
    """`conda info --json`: its virtual packages; the Python in it is conda's own, and no other environment's."""
    rows = [row for row in found["virtual_pkgs"] if isinstance(row, list) and len(row) == 3]
    virtual = {str(name): (str(version), str(build)) for name, version, build in rows}
    arch = {"linux-64": "x86_64", "linux-aarch64": "aarch64"}.get(str(found.get("platform")))
    capability = next((one for one in virtual.get("__cuda_arch", ()) if re.fullmatch(r"sm_\d{2,3}|\d{1,2}\.\d", one)), None)
    return {
        "platform": {
            "system": "linux" if arch else None,
            "arch": arch,
            "glibc": _first(re.compile(r"^(\d\.\d{1,3})$"), virtual.get("__glibc", ("", ""))[0]),
        },
        "driver": {"cuda": _first(_LINE, virtual.get("__cuda", ("", ""))[0])},
        "gpus": [{"compute_capability": capability}] if capability else None,
    }


_LABEL = "nvidia.com/"


def _node(found: Mapping[str, Any]) -> Told:
    """A Kubernetes node with the labels of GPU Feature Discovery; InputError for a list of several nodes."""
    if found["kind"] != "Node":
        listed = found.get("items")
        items = [one for one in listed if isinstance(one, dict) and one.get("kind") == "Node"] if isinstance(listed, list) else []
        if len(items) != 1:
            raise InputError(
                f"a list of {len(items)} nodes is not one machine",
                code="facts-several",
                hint="state one: `kubectl get node NAME -o json`",
            )
        found = items[0]
    labels = {key: str(value) for key, value in _object(found, "metadata", "labels").items()}
    info = _object(found, "status", "nodeInfo")
    old = (labels.get(f"{_LABEL}cuda.driver.{part}") for part in ("major", "minor", "rev"))
    driver = labels.get(f"{_LABEL}cuda.driver-version.full") or ".".join(str(part) for part in old if part)
    name = re.sub(r"-(?:SHARED|MIG-.*)$", "", str(labels.get(f"{_LABEL}gpu.product") or ""))
    major, minor = labels.get(f"{_LABEL}gpu.compute.major"), labels.get(f"{_LABEL}gpu.compute.minor")
    memory, count = str(labels.get(f"{_LABEL}gpu.memory")), str(labels.get(f"{_LABEL}gpu.count"))
    gpu = {
        "name": name or None,
        "compute_capability": f"{major}.{minor}" if major and minor else None,
        "memory_mib": int(memory) if re.fullmatch(r"\d{1,9}", memory) else None,
    }
    return {
        "platform": {**_os(str(info.get("osImage", ""))), "arch": _arch(str(info.get("architecture", "")))},
        "driver": {"version": _first(_DRIVER, driver)},
        "gpus": [_known(gpu)] * (int(count) if re.fullmatch(r"[1-9]\d?", count) else 1) if name or major else None,
    }


def _object(found: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """The object below those keys; an empty one where there is none."""
    for name in names:
        inner = found.get(name)
        found = inner if isinstance(inner, dict) else {}
    return found


_PROGRAMS: tuple[tuple[re.Pattern[str], str, Callable[[str], Told]], ...] = tuple(
    (re.compile(sign), program, read)
    for sign, program, read in (
        (r"<nvidia_smi_log>", "nvidia-smi -q -x", _smi_xml),
        (r"^#+ cuDNN frontend environment report", "cudnn.collect_env", lambda text: _cudnn_report(_pairs(text.splitlines(), " : "))),
        (r"^PyTorch version *: ", "torch.utils.collect_env", _torch_report),
        (r"^== check (?:python|os platform|pips) =", "tf_env_collect.sh", _tensorflow_report),
        (r"^jaxlib: +\d", "jax.print_environment_info()", _jax_report),
        (r"^=+ ?NVSMI LOG ?=+$", "nvidia-smi -q", _smi_query),
        (r"NVIDIA-SMI \d.* Version: ", "nvidia-smi", lambda text: {"driver": _driver(text), "gpus": _table_gpus(text)}),
        (r"^GPU \d{1,3}: .+ \(UUID: GPU-", "nvidia-smi -L", lambda text: {"gpus": _listed_gpus(text)}),
    )
)
"""Programs by a line that each prints and no other: reports before nvidia-smi, which some of them hold."""
