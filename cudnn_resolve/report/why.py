"""The chain behind a pin as an indented list."""

from __future__ import annotations

from cudnn_resolve.report.text import Style, clean, wrap
from cudnn_resolve.resolution.chain import Chain, Link

_DEPTH = 8
"""Levels that are shown."""


def render(chain: Chain, *, style: Style | None = None, width: int = 100) -> str:
    """The package with its version, and under it who wants what because of what, up to the user's own words."""
    style = style or Style()
    if chain.chosen is None:
        return "\n".join(wrap(clean(f"{chain.package} is not part of the plan: {chain.absence}"), width=width)) + "\n"
    head = f"{chain.package}: this machine has none" if chain.chosen == "none" else f"{chain.package} {chain.chosen}"
    lines = [style(clean(head), "bold")]
    seen: set[Link] = set()
    for link in chain.links:
        lines += _lines(link, 1, width, seen)
    return "\n".join(lines) + "\n"


def _lines(link: Link, depth: int, width: int, seen: set[Link]) -> list[str]:
    indent = "  " * depth
    left = "" if link.obeyed else " (left: an override)"
    text = f"{link.text}, asked for" if link.because == "asked for" else f"{link.text}{left}: {link.because}"
    text = link.text if link.because in link.text else text  # the sentence names who wants it
    lines = wrap(clean(text), width=width, first=f"{indent}<- ", rest=f"{indent}   ")
    if depth >= _DEPTH or (link in seen and link.links):
        return lines
    seen.add(link)
    for above in link.links:
        lines += _lines(above, depth + 1, width, seen)
    return lines
