"""A plan as text for reading: the stack first, then what changes, then the steps; reasons where they are asked for."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from cudnn_resolve.facts.model import UNKNOWN, Driver, or_none
from cudnn_resolve.report.text import Style, clean, table, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudnn_resolve.planning.model import PipAction, Plan, Stack
    from cudnn_resolve.resolution.model import Conflict

_SIGNS = {"install": "+", "upgrade": "^", "downgrade": "v", "remove": "-", "keep": "="}
_COLORS = {"install": "green", "upgrade": "cyan", "downgrade": "yellow", "remove": "red"}
_FIRST = ("overlay", "breaks-framework", "cuda-majors", "cudnn-majors")
"""Warnings that stand above the plan."""
_STEP_WIDTH = 3
"""Lines of a command that are shown where nobody asks for more."""


def render(plan: Plan, *, style: Style | None = None, width: int = 100, verbose: bool = False) -> str:
    """The plan, or why there is none and what would work, in lines of at most `width` columns; `verbose` adds every reason."""
    page = _Page(style or Style(), width, verbose=verbose)
    page.head(plan)
    if plan.conflict is not None:
        page.conflict(plan.conflict)
    else:
        if plan.stack is not None:
            page.stack(plan.stack)
        page.changes(plan)
        page.overrides(plan)
        page.environment(plan)
        page.warnings(plan)
        page.proven(plan)
        page.steps(plan)
    return "\n".join(page.lines) + "\n"


def machine_line(plan: Plan) -> str:
    """The machine and environment that a plan is for, in one line."""
    facts = plan.facts
    resolved = plan.resolution.machine if plan.resolution else None
    platform = facts.platform
    python = facts.python.version or (f"{resolved.python_full} (assumed)" if resolved else "unknown")
    driver = or_none(facts.driver)
    gpus = or_none(facts.gpus)
    parts = [
        f"{platform.distribution} {platform.release}" if platform.distribution else "Linux",
        platform.arch or (f"{resolved.arch} (assumed)" if resolved else None),
        f"glibc {platform.glibc}" if platform.glibc else None,
        f"Python {python}",
        "no driver"
        if facts.driver is None
        else f"driver {driver.version}"
        if isinstance(driver, Driver) and driver.version
        else "driver unknown",
        "GPU unknown"
        if facts.gpus is UNKNOWN
        else ", ".join(gpu.name or gpu.compute_capability or "GPU" for gpu in gpus or ()) or "no GPU",
    ]
    return clean(", ".join(part for part in parts if part))


class _Page:
    """Lines under construction."""

    def __init__(self, style: Style, width: int, *, verbose: bool) -> None:
        self.lines: list[str] = []
        self._style = style
        self._width = width
        self._verbose = verbose

    def head(self, plan: Plan) -> None:
        self.lines.append(self._style(f"Plan for {clean(', '.join(plan.targets))}", "bold"))
        self._wrap(f"on {machine_line(plan)}", "  ")
        for one in plan.warnings:
            if one.code in _FIRST:
                self._wrap(one.message, self._style("  ! ", "yellow"), "    ")

    def stack(self, stack: Stack) -> None:
        if not stack.frameworks:
            return
        self._title("Stack")
        rows = []
        if stack.driver_min:
            rows.append(("driver", f">= {stack.driver_min}", f"{stack.driver_because or ''}; policy {stack.driver_policy}"))
        channels = sorted({one.libraries for one in stack.frameworks if one.asked})
        where = {"pip": "from pip wheels", "apt": "from apt", "system": "installed on the system", "bundled": "inside the wheel"}
        how = " and ".join(where[one] for one in channels if one in where)
        if stack.cuda:
            rows.append(("CUDA", stack.cuda, how))
        if stack.cudnn:
            rows.append(("cuDNN", stack.cudnn, f"libcudnn.so.{stack.cudnn_soname}"))
        for one in stack.frameworks:
            built = [f"CUDA {one.cuda_built}" if one.cuda_built else "", f"cuDNN {one.cudnn_built}" if one.cudnn_built else ""]
            text = " and ".join(part for part in built if part)
            kept = "" if one.asked else ", installed and kept"
            rows.append((one.name, one.version, f"built with {text}{kept}" if text else f"CPU build{kept}"))
        self._table(rows)

    def changes(self, plan: Plan) -> None:
        changed = [one for one in plan.pip if one.action != "keep"]
        kept = [one for one in plan.pip if one.action == "keep"]
        apt = [one for one in plan.apt if one.action != "keep"]
        count = f"{len(changed) + len(apt)} to change, {len(kept) + len(plan.apt) - len(apt)} kept"
        self._title(f"Packages ({count})")
        if not changed and not apt and not plan.unpinned:
            self.lines.append("  nothing to do: what is installed fits")
        for one in changed:
            self._pip(one)
        for apt_one in apt:
            self.lines.append(clean(f"  {_SIGNS[apt_one.action]} {apt_one.name}={apt_one.version}  (apt, {apt_one.repository})"))
            self._reasons(apt_one.because)
        if kept:
            self._wrap(", ".join(f"{one.name} {one.version}" for one in kept), "  = ")
            if self._verbose:
                for one in kept:
                    self._wrap(f"{one.name}: {'; '.join(one.because)}", "      ")
        if plan.unpinned:
            self._wrap(f"{', '.join(plan.unpinned)} (version left to the installer)", "  ? ")

    def _pip(self, one: PipAction) -> None:
        sign = _SIGNS[one.action]
        arrow = f"{one.installed} -> {one.version}" if one.action in ("upgrade", "downgrade") else one.version
        source = f"  from {one.index}" if one.index else ""
        self.lines.append(self._style(clean(f"  {sign} {one.name} {arrow}{source}"), _COLORS[one.action]))
        self._reasons(one.because, always=one.action == "remove")

    def _reasons(self, because: Sequence[str], *, always: bool = False) -> None:
        if self._verbose or always:
            for reason in because:
                self._wrap(reason, "      ")

    def overrides(self, plan: Plan) -> None:
        if not plan.overrides:
            return
        self._title("Overrides (pins that are read as the range which the ABI allows)")
        rows = [(f"{one.package} {one.chosen}", f"instead of {one.declared}", f"of {one.requested_by}") for one in plan.overrides]
        self._table(rows)
        if self._verbose:
            for one in plan.overrides:
                self._wrap(f"{one.package}: {one.reason}", "      ")

    def environment(self, plan: Plan) -> None:
        self._title("Loader")
        for one in plan.environment:
            label = {"none": "nothing to do", "preload": "preload", "ldconfig": f"linker cache: {one.value}", "env": one.value}[one.kind]
            self._wrap(f"{label}: {one.why}", "  ")

    def warnings(self, plan: Plan) -> None:
        later = [one for one in plan.warnings if one.code not in _FIRST]
        if not later:
            return
        self._title("Warnings")
        for one in later:
            self._wrap(one.message, self._style("  ! ", "yellow"), "    ")

    def proven(self, plan: Plan) -> None:
        if not plan.proven:
            return
        self._title("Proven (`validate --record`)")
        for one in plan.proven:
            if one.because is not None:
                self._wrap(
                    f"{'recorded' if one.is_open else 'no longer'} on {one.words}: {one.because}", self._style("  ! ", "yellow"), "    "
                )
            else:
                self._wrap(f"on {one.words}" + (": a card like this machine's, with its driver" if one.here else ""), "  ", "    ")

    def steps(self, plan: Plan) -> None:
        if not plan.steps:
            return
        self._title("Steps")
        for number, step in enumerate(plan.steps, 1):
            root = " (root)" if step.needs_root else ""
            if step.argv is None:
                self._wrap(f"{step.why}{root}", f"  {number}. ")
                continue
            before = len(self.lines)
            self._wrap(f"{shlex.join(step.argv)}{root}", f"  {number}. ")
            if not (self._verbose or self._style.whole) and len(self.lines) - before > _STEP_WIDTH:
                del self.lines[before + _STEP_WIDTH :]
                self.lines[-1] += " …"
        self.lines.append("")
        self._wrap("`--format sh` prints these steps as a script, `-v` every reason, `why PACKAGE` the chain behind one pin.", "")

    def conflict(self, conflict: Conflict) -> None:
        self.lines.append("")
        self._wrap(f"There is no plan: {conflict.message}.", "")
        self._title("Why")
        for cause in conflict.causes:
            self._wrap(f"{cause.what}: {cause.because}" if cause.because != "asked for" else f"{cause.what}, asked for", "  - ", "    ")
        self._title("What would work, nearest first")
        if not conflict.relaxations:
            self._wrap("no single change of a version, of the Python or of the driver leads to a set that works", "  ")
        for number, one in enumerate(conflict.relaxations, 1):
            self._wrap(one.change, f"  {number}. ")
            self._wrap(f"gives {one.result}", "     ")
            self.lines.append(clean(f"     {one.command}"))

    def _title(self, text: str) -> None:
        self.lines += ["", self._style(clean(text), "bold")]

    def _table(self, rows: Sequence[tuple[str, ...]]) -> None:
        clean_rows = [tuple(clean(cell) for cell in row) for row in rows]
        lead = [row[:-1] for row in clean_rows]
        for row, line in zip(clean_rows, table(lead, width=self._width, flexible=0), strict=True):
            column = max((len(one) for one in table(lead, width=self._width, flexible=0)), default=0)
            if row[-1]:
                self.lines += wrap(row[-1], width=self._width, first=f"{line.ljust(column)}  ")
            else:
                self.lines.append(line)

    def _wrap(self, text: str, first: str, rest: str | None = None) -> None:
        self.lines += wrap(clean(text), width=self._width, first=first, rest=rest)
