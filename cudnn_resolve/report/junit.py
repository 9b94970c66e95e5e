"""A validation as JUnit XML, as CI systems read it."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from cudnn_resolve.report.text import clean
from cudnn_resolve.validation.model import Check, Validation

_OUTSIDE_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(validation: Validation) -> str:
    """One test suite, a test case for each check; a warning passes, and its words stand in system-out."""
    count = {status: sum(check.status == status for check in validation.checks) for status in ("failed", "skipped")}
    seconds = sum(check.seconds or 0.0 for check in validation.checks)
    numbers = f'tests="{len(validation.checks)}" failures="{count["failed"]}" errors="0" skipped="{count["skipped"]}" time="{seconds:.3f}"'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {numbers}>", f'<testsuite name="cudnn-resolve validate" {numbers}>']
    if validation.driver or validation.gpus or validation.loaded:
        lines.append("<properties>")
        lines += [_property(f"gpu{gpu.index}", gpu.name or "unknown") for gpu in validation.gpus]
        lines += [_property("driver", validation.driver)] if validation.driver else []
        lines += [_property(name, version) for name, version in (*validation.frameworks.items(), *validation.loaded.items())]
        lines.append("</properties>")
    for check in validation.checks:
        lines += _case(check)
    lines += ["</testsuite>", "</testsuites>"]
    return "\n".join(lines) + "\n"


def _property(name: str, value: str) -> str:
    return f"<property name={_attribute(name)} value={_attribute(value)}/>"


def _case(check: Check) -> list[str]:
    group, _, name = check.id.rpartition("/")
    head = (
        f'<testcase classname={_attribute(group.replace("/", ".") or "machine")} name={_attribute(name)} time="{check.seconds or 0.0:.6f}"'
    )
    if check.status == "passed":
        return [f"{head}/>"]
    words = _text("\n".join([f"expected: {check.expected}", f"observed: {check.observed}", check.detail, *check.output]))
    message = _attribute(check.observed or check.detail)
    body = {
        "failed": f'<failure type="failed" message={message}>{words}</failure>',
        "skipped": f"<skipped message={message}/>",
        "warning": f"<system-out>{words}</system-out>",
    }
    return [f"{head}>", body[check.status], "</testcase>"]


def _text(text: str) -> str:
    return escape(_OUTSIDE_XML.sub("?", clean(text, lines=True)))


def _attribute(text: str) -> str:
    return quoteattr(_OUTSIDE_XML.sub("?", clean(text)))
