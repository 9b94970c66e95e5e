"""Render a validation as JUnit XML, the form that CI systems read."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from cudnn_resolve.report.text import clean
from cudnn_resolve.validation.model import Check, Validation

_OUTSIDE_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(validation: Validation) -> str:
    """One test suite with a test case for each check; warnings pass, with their text in system-out."""
    count = {status: sum(check.status == status for check in validation.checks) for status in ("failed", "skipped")}
    seconds = sum(check.seconds or 0.0 for check in validation.checks)
    totals = {
        "tests": str(len(validation.checks)),
        "failures": str(count["failed"]),
        "errors": "0",
        "time": f"{seconds:.3f}",
    }
    suites = Element("testsuites", totals)
    suite = SubElement(suites, "testsuite", {"name": "cudnn-resolve validate", **totals, "skipped": str(count["skipped"])})
    if validation.driver or validation.gpus or validation.loaded:
        properties = SubElement(suite, "properties")
        rows = [(f"gpu{gpu.index}", gpu.name or "unknown") for gpu in validation.gpus]
        rows += [("driver", validation.driver)] if validation.driver else []
        for name, value in (*rows, *validation.frameworks.items(), *validation.loaded.items()):
            SubElement(properties, "property", {"name": xml_line(name), "value": xml_line(value)})
    for check in validation.checks:
        _add_case(suite, check)
    indent(suites, space="")
    return xml_document(suites)


def _add_case(suite: Element, check: Check) -> None:
    group, _, name = check.id.rpartition("/")
    case = SubElement(
        suite,
        "testcase",
        {"classname": xml_line(group.replace("/", ".") or "machine"), "name": xml_line(name), "time": f"{check.seconds or 0.0:.6f}"},
    )
    if check.status == "passed":
        return
    message = xml_line(check.observed or check.detail)
    body = "\n".join([f"expected: {check.expected}", f"observed: {check.observed}", check.detail, *check.output])
    if check.status == "skipped":
        SubElement(case, "skipped", {"message": message})
    elif check.status == "failed":
        SubElement(case, "failure", {"type": "failed", "message": message}).text = xml_text(body)
    else:
        SubElement(case, "system-out").text = xml_text(body)


def xml_document(root: Element) -> str:
    """Serialize a tree with the XML declaration."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def xml_text(text: str) -> str:
    """Replace the characters that XML cannot hold; newlines stay."""
    return _OUTSIDE_XML.sub("?", clean(text, lines=True))


def xml_line(text: str) -> str:
    """Replace the characters that XML cannot hold, newlines among them."""
    return _OUTSIDE_XML.sub("?", clean(text))
