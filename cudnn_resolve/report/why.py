"""Render the chain of reasons behind a pin as an indented list."""

from __future__ import annotations

from cudnn_resolve.report.text import PLAIN, Style, clean, wrap
from cudnn_resolve.resolution.chain import Chain, Link

_MAX_DEPTH = 8


def render(chain: Chain, *, style: Style = PLAIN, width: int = 100) -> str:
    """Show the package with its version and, below it, who requires what and why, up to the user's own targets."""
    if chain.chosen is None:
        return "\n".join(wrap(clean(f"{chain.package} is not part of the plan: {chain.absence}"), width=width)) + "\n"
    head = f"{chain.package}: this machine has none" if chain.chosen == "none" else f"{chain.package} {chain.chosen}"
    lines = [style(clean(head), "bold")]
    seen: set[Link] = set()
    for link in chain.links:
        lines += _lines(link, 1, width, seen)
    return "\n".join(lines) + "\n"


def _lines(link: Link, depth: int, width: int, seen: set[Link]) -> list[str]:
    if link.because in link.text:  # the text already names who requires it
        text = link.text
    elif link.because == "asked for":
        text = f"{link.text}, asked for"
    else:
        text = f"{link.text}{'' if link.obeyed else ' (overridden)'}: {link.because}"
    indent = "  " * depth
    lines = wrap(clean(text), width=width, first=f"{indent}<- ", rest=f"{indent}   ")
    if depth >= _MAX_DEPTH or (link in seen and link.links):
        return lines
    seen.add(link)
    for parent in link.links:
        lines += _lines(parent, depth + 1, width, seen)
    return lines
