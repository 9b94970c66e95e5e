"""A bundle, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudnn_resolve.report.text import clean, mib, wrap


def render(found: Mapping[str, Any], *, width: int, verbose: bool, is_check: bool) -> str:
    """What the bundle holds, and how it is used."""
    wheels = sum(one["name"].endswith(".whl") for one in found["files"])
    head = f"{found['path']}: {', '.join(found['locks']) or 'no lock'}; {wheels} wheels, {mib(found['bytes'])}"
    lines = wrap(clean(f"{head}{', every file as it was written' if is_check else ''}"), width=width)
    if verbose:
        lines += [f"  {one['sha256']}  {clean(one['name'])}  {mib(one['bytes'])}" for one in found["files"]]
    for note in found["notes"]:
        lines += wrap(clean(f"note: {note}"), width=width)
    if not is_check and found["locks"]:
        place = str(found["path"])
        start = f"tar xf {place} -C DIR; sh DIR/start ENV" if place.endswith(".tar") else f"sh {place}/start ENV"
        lines.append(clean(f"without a network: `cudnn-resolve apply {place}`; without this program, `{start}`"))
    return "\n".join(lines) + "\n"
