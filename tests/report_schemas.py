"""Reports held against the schemas that others publish of their formats (tests/standards)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

STANDARDS = Path(__file__).parent / "standards"
XS = "{http://www.w3.org/2001/XMLSchema}"


@cache
def _sarif() -> Any:
    jsonschema = pytest.importorskip("jsonschema", reason="the extra `dev` brings jsonschema")
    return jsonschema.Draft4Validator(json.loads((STANDARDS / "sarif-2.1.0.schema.json").read_text("utf-8")))


def sarif_faults(text: str) -> list[str]:
    """What of a text is no SARIF 2.1.0."""
    return [f"{error.json_path}: {error.message[:200]}" for error in _sarif().iter_errors(json.loads(text))]


class _Schema:
    """As much of an XSD as the one for JUnit uses: children in any order, attributes, text, and patterns of text."""

    def __init__(self, path: Path) -> None:
        root = ET.parse(path).getroot()  # noqa: S314 - our own
        self.elements = {one.get("name"): one for one in root.findall(f"{XS}element")}
        self.types = {one.get("name"): one for one in root if one.tag in (f"{XS}complexType", f"{XS}simpleType")}

    def faults(self, node: ET.Element, at: str = "") -> Iterator[str]:
        """What of an element and of all in it does not fit its declaration."""
        at = f"{at}/{node.tag}"
        declared = self.elements.get(node.tag)
        if declared is None:
            yield f"{at} is no element"
            return
        kind = declared.find(f"{XS}complexType")
        kind = self.types.get(declared.get("type"), declared) if kind is None else kind
        attributes = {one.get("name"): one for one in kind.iter(f"{XS}attribute")}
        yield from (f"{at} has an attribute {name}" for name in node.attrib.keys() - attributes.keys())
        yield from (f"{at} has no {name}" for name, one in attributes.items() if one.get("use") == "required" and name not in node.attrib)
        for name, value in node.items():
            simple = self.types.get(attributes[name].get("type")) if name in attributes else None
            pattern = next(simple.iter(f"{XS}pattern"), None) if simple is not None else None
            if pattern is not None and re.fullmatch(pattern.get("value", ""), value) is None:
                yield f"{at} has {name}={value!r}"
        if kind is not declared and kind.get("mixed") != "true" and "".join([node.text or "", *(one.tail or "" for one in node)]).strip():
            yield f"{at} has text"
        children = {one.get("ref") or one.get("name") for one in kind.iter(f"{XS}element")} if kind is not declared else set()
        for child in node:
            if child.tag in children:
                yield from self.faults(child, at)
            else:
                yield f"{at} has a child {child.tag}"


def junit_faults(text: str) -> list[str]:
    """What of a text is no JUnit report."""
    root = ET.fromstring(text.encode())  # noqa: S314 - our own
    faults = [] if root.tag in ("testsuites", "testsuite") else [f"{root.tag} is no root"]
    return [*faults, *_Schema(STANDARDS / "junit-10.xsd").faults(root)]
