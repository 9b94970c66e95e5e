"""A plan as a requirements file of exact pins."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from cudnn_resolve.planning.model import Plan
from cudnn_resolve.report.pins import digest_of, pin_line
from cudnn_resolve.report.plan import machine_line
from cudnn_resolve.report.text import clean


def _by_hand(plan: Plan) -> Iterator[str]:
    """What this file cannot do, as comments."""
    steps = [one for one in plan.steps if not one.kind.startswith("pip") or one.kind == "pip-remove"]
    if steps:
        yield "# pip cannot do all of this plan; besides this file (`--format sh` prints a script that does everything):"
    for one in steps:
        root = " (root)" if one.needs_root else ""
        yield clean(f"#   {shlex.join(one.argv)}{root}" if one.argv is not None else f"#   {one.why}{root}")


def render(plan: Plan) -> str:
    """Pins of the whole plan, one a line, with the indexes they come from and a comment at each override.

    Each with the hash of its file for this machine, where all are known: pip wants one for every line or for none. The file is to be
    installed with `--no-deps`: pins that leave a wheel's own `==` would be refused otherwise.
    """
    lines = [
        f"# {clean(', '.join(plan.targets))}",
        f"# for {machine_line(plan)}",
        "# install with: pip install --no-deps -r FILE",
    ]
    if plan.stack and plan.stack.driver_min:
        lines.append(f"# needs NVIDIA driver {plan.stack.driver_min} or newer")
    lines += [f"# {clean(one.message)}" for one in plan.warnings]
    lines += _by_hand(plan)
    sources = dict.fromkeys((one.page, one.index) for one in plan.pip if one.index)
    lines += [f"{'--find-links' if page else '--extra-index-url'} {index}" for page, index in sources]
    lines += [f"{name} {value}" for name, value in zip(plan.sources[::2], plan.sources[1::2], strict=True)]
    overrides = {one.package: one for one in plan.overrides}
    hashed = not plan.unpinned and all(one.action == "remove" or digest_of(one) for one in plan.pip)
    for one in plan.pip:
        if one.action == "remove":
            continue
        override = overrides.get(one.name)
        if override is not None:
            lines.append(clean(f"# {override.requested_by} declares {override.declared}: {override.reason}"))
        lines.append(pin_line(one, hashed=hashed))
    lines += [clean(line) for line in plan.left_open]
    return "\n".join(lines) + "\n"
