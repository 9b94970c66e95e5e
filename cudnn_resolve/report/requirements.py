"""Render a plan as a requirements file of exact pins."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from cudnn_resolve.planning.model import Plan
from cudnn_resolve.report.pins import digest_of, pin_line
from cudnn_resolve.report.plan import machine_line
from cudnn_resolve.report.text import clean


def render(plan: Plan) -> str:
    """Pin every package of the plan, with the indexes and a comment at each override.

    Each pin has the hash of its file for this machine if all hashes are known: pip wants one on every line or on none. The file is to be
    installed with `--no-deps`, since pip would refuse pins that override a wheel's own `==`.
    """
    lines = [
        f"# {clean(', '.join(plan.targets))}",
        f"# for {machine_line(plan)}",
        "# install with: pip install --no-deps -r FILE",
    ]
    if plan.stack and plan.stack.driver_min:
        lines.append(f"# needs NVIDIA driver {plan.stack.driver_min} or newer")
    lines += [f"# {clean(warning.message)}" for warning in plan.warnings]
    lines += _manual_steps(plan)
    sources = dict.fromkeys((action.page, action.index) for action in plan.pip if action.index)
    lines += [f"{'--find-links' if is_page else '--extra-index-url'} {index}" for is_page, index in sources]
    lines += [f"{option} {value}" for option, value in zip(plan.sources[::2], plan.sources[1::2], strict=True)]
    overrides = {override.package: override for override in plan.overrides}
    pinned = [action for action in plan.pip if action.action != "remove"]
    hashed = not plan.unpinned and all(digest_of(action) for action in pinned)
    for action in pinned:
        override = overrides.get(action.name)
        if override is not None:
            lines.append(clean(f"# {override.requested_by} declares {override.declared}: {override.reason}"))
        lines.append(pin_line(action, hashed=hashed))
    lines += [clean(line) for line in plan.left_open]
    return "\n".join(lines) + "\n"


def _manual_steps(plan: Plan) -> Iterator[str]:
    """Comments that list the steps a requirements file cannot perform."""
    steps = [step for step in plan.steps if not step.kind.startswith("pip") or step.kind == "pip-remove"]
    if steps:
        yield "# steps that pip cannot perform (`--format sh` writes a script that performs all of them):"
    for step in steps:
        root = " (root)" if step.needs_root else ""
        yield clean(f"#   {shlex.join(step.argv)}{root}" if step.argv is not None else f"#   {step.why}{root}")
