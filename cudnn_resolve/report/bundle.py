"""Render a bundle as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudnn_resolve.errors import mib
from cudnn_resolve.report.text import Page, clean


def show_bundle(page: Page, bundle: Mapping[str, Any], *, verbose: bool, is_check: bool) -> None:
    """Summarize the JSON object of a bundle: its contents, and how to use it."""
    files = bundle["files"]
    wheels = sum(file["name"].endswith(".whl") for file in files)
    head = (
        f"{bundle['path']}: {', '.join(bundle['locks']) or 'no lock'}; {wheels} wheel{'' if wheels == 1 else 's'}, {mib(bundle['bytes'])}"
    )
    page.paragraph(f"{head}{'; all files verified' if is_check else ''}", "")
    if verbose:
        page.lines += [f"  {file['sha256']}  {clean(file['name'])}  {mib(file['bytes'])}" for file in files]
    for note in bundle["notes"]:
        page.paragraph(f"note: {note}", "")
    if not is_check and bundle["locks"]:
        path = str(bundle["path"])
        start = f"tar xf {path} -C DIR; sh DIR/start ENV" if path.endswith(".tar") else f"sh {path}/start ENV"
        page.lines.append(clean(f"to install offline: `cudnn-resolve apply {path}`, or without this program `{start}`"))
