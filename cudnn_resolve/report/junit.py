"""A validation as JUnit XML, as CI systems read it."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from cudnn_resolve.report.text import clean
from cudnn_resolve.validation.model import Check, Validation

_OUTSIDE_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(validation: Validation) -> str:
    """One test suite, a test case for each check; a warning passes, and its words stand in system-out."""
    count = {status: sum(check.status == status for check in validation.checks) for status in ("failed", "skipped")}
    seconds = sum(check.seconds or 0.0 for check in validation.checks)
    numbers = {
        "tests": str(len(validation.checks)),
        "failures": str(count["failed"]),
        "errors": "0",
        "time": f"{seconds:.3f}",
    }
    suites = Element("testsuites", numbers)
    suite = SubElement(suites, "testsuite", {"name": "cudnn-resolve validate", **numbers, "skipped": str(count["skipped"])})
    if validation.driver or validation.gpus or validation.loaded:
        properties = SubElement(suite, "properties")
        rows = [(f"gpu{gpu.index}", gpu.name or "unknown") for gpu in validation.gpus]
        rows += [("driver", validation.driver)] if validation.driver else []
        for name, value in (*rows, *validation.frameworks.items(), *validation.loaded.items()):
            SubElement(properties, "property", {"name": line_of(name), "value": line_of(value)})
    for check in validation.checks:
        _case(suite, check)
    indent(suites, space="")
    return written(suites)


def _case(suite: Element, check: Check) -> None:
    group, _, name = check.id.rpartition("/")
    case = SubElement(
        suite,
        "testcase",
        {"classname": line_of(group.replace("/", ".") or "machine"), "name": line_of(name), "time": f"{check.seconds or 0.0:.6f}"},
    )
    if check.status == "passed":
        return
    message = line_of(check.observed or check.detail)
    words = "\n".join([f"expected: {check.expected}", f"observed: {check.observed}", check.detail, *check.output])
    if check.status == "skipped":
        SubElement(case, "skipped", {"message": message})
    elif check.status == "failed":
        SubElement(case, "failure", {"type": "failed", "message": message}).text = text_of(words)
    else:
        SubElement(case, "system-out").text = text_of(words)


def written(root: Element) -> str:
    """The document."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def text_of(text: str) -> str:
    """Lines that XML can hold."""
    return _OUTSIDE_XML.sub("?", clean(text, lines=True))


def line_of(text: str) -> str:
    """One line that XML can hold."""
    return _OUTSIDE_XML.sub("?", clean(text))
