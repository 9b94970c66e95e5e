"""Parse saved outputs of nvidia-smi, in each of its formats, to objects as a facts file holds them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.driver_output import known_answer, parse_banner

FactsObject = dict[str, Any]
"""An object as a facts file holds it."""

DRIVER = re.compile(r"^(\d{2,4}(?:\.\d{1,3}){1,3})$")
CUDA_LINE = re.compile(r"^(\d{1,2}\.\d{1,2})(?![\d])")
"""First two numbers of a CUDA release."""


def known(value: Mapping[str, Any]) -> FactsObject:
    """The object without unknown values."""
    return {key: inner for key, inner in value.items() if inner is not None}


def first_match(pattern: re.Pattern[str] | str, text: str | None) -> str | None:
    """First group of the first match in a text; None without a match."""
    found = re.search(pattern, text or "")
    return found[1] if found else None


def driver_of(text: str) -> FactsObject | None:
    """Driver in the header of nvidia-smi, plain or `-q`."""
    banner = parse_banner(text)
    driver = {"version": banner.driver and banner.driver.text, "cuda": banner.cuda and str(banner.cuda)}
    return driver if any(driver.values()) else None


_ROW = re.compile(r"\s*\d{1,3}\s+(\S+(?: \S+)*)\s+(?:On|Off|N/A|WDDM|TCC|MCDM)\s*")
_BUS = re.compile(r"\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\b")
_MEMORY = re.compile(r"\d{1,9}MiB\s*/\s*(\d{1,9})MiB")
_LISTED = re.compile(r"(?:GPU models and configuration *:\s*)?GPU \d{1,3}: (.+?)(?:\s+\(UUID: (GPU-[0-9A-Za-z-]{1,80})\))?")


def table_gpus(text: str) -> list[FactsObject] | None:
    """Cards in the table of a plain nvidia-smi: a line with name and bus, the next one with the memory."""
    gpus: list[FactsObject] = []
    in_row = False
    for line in text.splitlines():
        cells = line.strip().split("|")
        row = _ROW.fullmatch(cells[1][:200]) if len(cells) > 2 and _BUS.match(cells[2]) else None
        if row:
            gpus.append({"name": row[1]})
        elif in_row and (memory := _MEMORY.search(line)):
            gpus[-1]["memory_mib"] = int(memory[1])
        in_row = row is not None
    return gpus or None


def listed_gpus(text: str) -> list[FactsObject] | None:
    """Cards of `nvidia-smi -L`: `GPU 0: Tesla T4 (UUID: GPU-…)`."""
    matches = (_LISTED.fullmatch(line.strip()) for line in text.splitlines())
    return [{"name": match[1], "uuid": match[2]} for match in matches if match] or None


def read_query(text: str) -> FactsObject:
    """`nvidia-smi -q`: a section for each card, with its memory as `FB Memory Usage`, `Total : 15360 MiB`."""
    gpus: list[FactsObject] = []
    section = ""
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if re.match(r"GPU [0-9A-Fa-f]{4,8}:", line):
            gpus.append({})
        elif not value:
            section = key
        elif gpus and key == "Product Name":
            gpus[-1]["name"] = known_answer(value)
        elif gpus and key == "GPU UUID":
            gpus[-1]["uuid"] = known_answer(value)
        elif gpus and key == "Total" and section == "FB Memory Usage":
            gpus[-1]["memory_mib"] = mib(value)
    return {"driver": driver_of(text), "gpus": [known(gpu) for gpu in gpus] or None}


def read_xml(text: str) -> FactsObject:
    """`nvidia-smi -q -x`; raise InputError if it is not XML, or declares entities, which nvidia-smi does not."""
    from xml.etree import ElementTree as ET

    try:
        log = None if "<!ENTITY" in text else ET.fromstring(text[text.index("<") :])  # noqa: S314 - without entities it cannot expand
    except (ET.ParseError, ValueError, LookupError) as error:
        raise InputError(f"the output of nvidia-smi -q -x cannot be read: {error}", code="facts-invalid") from None
    if log is None:
        raise InputError("the output of nvidia-smi -q -x cannot be read: it declares entities", code="facts-invalid")
    gpus = []
    for gpu in log.iter("gpu"):
        memory = mib(gpu.findtext("fb_memory_usage/total"))
        gpus.append(
            known({"name": known_answer(gpu.findtext("product_name")), "uuid": known_answer(gpu.findtext("uuid")), "memory_mib": memory})
        )
    driver = {"version": first_match(DRIVER, log.findtext("driver_version")), "cuda": first_match(CUDA_LINE, log.findtext("cuda_version"))}
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
_CELLS = {  # of a table without a header
    "driver": re.compile(r"\d{3}(?:\.\d{2,3}){1,2}"),
    "memory.total [MiB]": re.compile(r"\d{3,8} MiB"),
    "compute_capability": re.compile(r"\d{1,2}\.\d"),
    "uuid": re.compile(r"GPU-[0-9a-f-]{8,80}"),
    "name": re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|GRID|TITAN|Orin|A100|H100) ?\S.{0,60}"),
}
_MOST_ROWS = 64


def read_csv(lines: list[str]) -> FactsObject | None:
    """`nvidia-smi --query-gpu=name,driver_version,... --format=csv`, also with `noheader`; None for another text.

    Without a header, columns are recognised by their content, and every line must name a card or a driver.
    """
    if not 1 <= len(lines) <= _MOST_ROWS:
        return None
    table = [[cell.strip() for cell in line.split(",")] for line in lines]
    header = table[0]
    if set(header) & _FIELDS.keys() and all(map(_FIELD.fullmatch, header)):
        rows = [dict(zip(header, row, strict=False)) for row in table[1:]]
    else:
        rows = [{name: cell for cell in row for name, sign in _CELLS.items() if sign.fullmatch(cell)} for row in table]
        if not all("name" in row or "driver" in row for row in rows):
            return None
    gpus: list[FactsObject] = []
    driver = None
    for row in rows:
        values = {_FIELDS.get(name, name): known_answer(cell) for name, cell in row.items()}
        memory = values.get("memory.total [MiB]") or ""
        driver = driver or first_match(DRIVER, values.get("driver"))
        gpu = {key: values.get(key) for key in ("name", "uuid", "compute_capability")}
        gpus.append(known({**gpu, "memory_mib": mib(memory if memory.endswith("MiB") else f"{memory} MiB")}))
    return {"driver": {"version": driver}, "gpus": [gpu for gpu in gpus if gpu.get("name") or gpu.get("compute_capability")] or None}


def mib(text: str | None) -> int | None:
    """Number of a size in MiB, `15360 MiB`; None for another text."""
    found = re.fullmatch(r"(\d{1,9}) MiB", (text or "").strip())
    return int(found[1]) if found else None
