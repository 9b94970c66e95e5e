"""Render the chain of reasons behind a pin as an indented list."""

from __future__ import annotations

from cudnn_resolve.report.text import Page, clean
from cudnn_resolve.resolution.chain import Chain, Link

_MAX_DEPTH = 8


def show_chain(page: Page, chain: Chain) -> None:
    """Show the package with its version and, below it, who requires what and why, up to the user's own targets."""
    if chain.chosen is None:
        page.paragraph(f"{chain.package} is not part of the plan: {chain.absence}", "")
        return
    head = f"{chain.package}: this machine has none" if chain.chosen == "none" else f"{chain.package} {chain.chosen}"
    page.lines.append(page.style(clean(head), "bold"))
    seen: set[Link] = set()
    for link in chain.links:
        _show(page, link, 1, seen)


def _show(page: Page, link: Link, depth: int, seen: set[Link]) -> None:
    if link.because in link.text:  # the text already names who requires it
        text = link.text
    elif link.because == "asked for":
        text = f"{link.text}, asked for"
    else:
        text = f"{link.text}{'' if link.obeyed else ' (overridden)'}: {link.because}"
    page.paragraph(text, f"{'  ' * depth}<- ")
    if depth >= _MAX_DEPTH or (link in seen and link.links):
        return
    seen.add(link)
    for parent in link.links:
        _show(page, parent, depth + 1, seen)
