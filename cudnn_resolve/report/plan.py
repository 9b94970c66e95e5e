"""Render a plan as text: a short summary, every package with its reasons, or the verdict alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from cudnn_resolve.errors import first_few
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.model import UNKNOWN, Driver, Facts, or_none
from cudnn_resolve.planning.model import PipAction, Plan, Stack, StackFramework, Step
from cudnn_resolve.planning.preload import MODULE
from cudnn_resolve.report.text import Page, clean, wrap
from cudnn_resolve.resolution.model import Refusal

_ACTIONS = {"install": ("+", "green"), "upgrade": ("^", "cyan"), "downgrade": ("v", "yellow"), "remove": ("-", "red"), "keep": ("=", "dim")}
_FIRST = ("overlay", "breaks-framework", "lock-breaks", "cuda-majors", "cudnn-majors")
"""Warnings to show above the plan."""
_PRESSING = ("older-toolkit", "breaks")
"""Warnings to show before the others below the plan."""
_ASIDE = (
    *("driver-policy", "driver-unknown", "gpu-unknown", "known-in-part", "marker", "requirements-guessed", "same-build", "several-indexes"),
    "unread",
)
"""Warnings to show last, as are those about traps of a release: they do not affect what the plan does."""
_MOST_LINES = 15
"""Lines of a summary, including the command that applies it; warnings beyond that are counted."""
_NARROW = 80
"""Use shorter phrases below this many columns."""
_MOST_NAMES = 3
"""Packages to name for each kind of change in a summary."""
_TARGET_REASONS = {
    "--python": "from --python",
    "--env": "a new environment",
    "VIRTUAL_ENV": "the active virtual environment",
    "CONDA_PREFIX": "the active conda environment",
    ".venv": "the virtual environment in this folder",
    "runs this program": "the Python that runs cudnn-resolve",
}
"""Why an interpreter is the target, by the source that `detect` gives for it."""
_LOADER_LABELS = {"none": "nothing to do", "ldconfig": "linker cache"}
_STEPS = {"preload": "the preload", "folder": "the folder of a second cuDNN", "ldconfig": "the linker cache", "kernel": "the kernel"}
_CHANNELS = {"pip": "from pip wheels", "apt": "from apt", "system": "installed on the system", "bundled": "inside the wheel"}


def show_plan(page: Page, plan: Plan, *, verbose: bool = False, command: str | None = None) -> None:
    """Show the plan, or the conflict with its solutions.

    `verbose` shows every package, reason and step; `command`, which applies the plan, is the last line.
    """
    parts = _PlanPage(page, plan)
    parts.head()
    if plan.conflict is not None:
        parts.conflict(plan.conflict)
    elif verbose:
        parts.everything()
    else:
        parts.summary(_MOST_LINES - (command is not None))
    if command is not None and plan.is_satisfiable:
        page.lines += ["", clean(command)] if verbose else [clean(command)]


def verdict(plan: Plan) -> str:
    """Answer in one line."""
    if plan.conflict is not None:
        return clean(f"no: {plan.conflict.message}".rstrip()) + "\n"
    stack = plan.stack
    if stack is None:
        found = list(plan.targets)
    else:
        found = [f"{framework.name} {framework.version}" for framework in stack.frameworks]
        found += [f"{name} {value}" for name, value in (("CUDA", stack.cuda), ("cuDNN", stack.cudnn)) if value]
        found += [f"driver >= {stack.driver_min}"] if stack.driver_min else []
    return clean(f"yes: {', '.join(found)}: {_counts(plan)}") + "\n"


def machine_line(plan: Plan) -> str:
    """Describe the machine and the Python that a plan is for."""
    facts = plan.facts
    platform = facts.platform
    python = facts.python.version or (f"{plan.python} (assumed)" if plan.python else "unknown")
    gpus = or_none(facts.gpus)
    parts = [
        f"{platform.distribution} {platform.release}" if platform.distribution else "Linux",
        platform.arch or (f"{plan.arch} (assumed)" if plan.arch else None),
        f"glibc {platform.glibc}" if platform.glibc else None,
        f"Python {python}",
        "no driver" if facts.driver is None else _driver(or_none(facts.driver)),
        "GPU unknown"
        if facts.gpus is UNKNOWN
        else ", ".join(gpu.name or f"GPU of compute capability {gpu.compute_capability or '?'}" for gpu in gpus or ()) or "no GPU",
    ]
    return clean(", ".join(part for part in parts if part))


def header_comments(plan: Plan) -> list[str]:
    """Comment lines for a generated file: targets, machine and warnings."""
    texts = (clean(", ".join(plan.targets)), f"for {machine_line(plan)}", *(clean(warning.message) for warning in plan.warnings))
    return [f"# {text}" for text in texts]


def _driver(driver: Driver | None) -> str:
    if driver is None or not (driver.version or driver.cuda):
        return "driver unknown"
    return f"driver {driver.version}" if driver.version else f"a driver for CUDA {driver.cuda}"


def environment_line(facts: Facts) -> str:
    """Name the interpreter of the target environment, and why it is the target."""
    python = facts.python
    if python.path is None:
        return "into the environment that the facts describe" if or_none(facts.packages.pip) else "into a new environment"
    source = facts.sources.get("python")
    why = _TARGET_REASONS.get(source, source) if source is not None else "from the facts"
    return clean(f"into {python.path} ({why}{'; managed by the system' if python.externally_managed else ''})")


def _warning_rank(code: str) -> tuple[int, bool]:
    """Sort key of a warning below the plan: pressing ones first, those that do not affect the plan last."""
    rank = _PRESSING.index(code) if code in _PRESSING else len(_PRESSING)
    return rank, _is_aside(code)


def _is_aside(code: str) -> bool:
    return code in _ASIDE or code.startswith("trap-")


def _counts(plan: Plan) -> str:
    actions = [*(action.action for action in plan.pip), *(action.action for action in plan.apt)]
    numbers = {name: actions.count(name) for name in _ACTIONS}
    numbers["install"] += len(plan.unpinned)
    counts = [f"{numbers[name]} to {name}" for name in _ACTIONS if numbers[name] and name != "keep"]
    if numbers["keep"]:
        counts.append(f"{numbers['keep']} kept")
    if plan.changes:
        return ", ".join(counts)
    kinds = dict.fromkeys(step.kind for step in plan.steps if step.kind not in ("pip", "apt"))
    left = f"no package changes, but `apply` sets up {', '.join(_STEPS.get(kind, kind) for kind in kinds)}" if kinds else "nothing to do"
    return ", ".join([left, *counts])


def _step_text(step: Step, plan: Plan) -> str:
    if step.argv is not None:
        return shlex.join(step.argv)
    value = next((entry.value for entry in plan.environment if entry.kind == step.kind), "")
    site = f"the site-packages of {plan.facts.python.path or 'the environment'}"
    if step.kind == "preload":
        return f"write {MODULE}.py and {MODULE}.pth into {site}, for {value}"
    if step.kind == "folder":
        wheel = next((f"{entry.wheel.name}=={entry.wheel.version}" for entry in plan.environment if entry.wheel is not None), "")
        return f"unpack {wheel} into {FOLDER} in {site}, for {value}"
    if step.kind == "ldconfig":
        return f"write {value} into /etc/ld.so.conf.d/cudnn-resolve.conf, and run ldconfig"
    return f"add {step.why}"


class _PlanPage(Page):
    """A page with the parts of one plan, which are written on the lines of another page."""

    def __init__(self, page: Page, plan: Plan) -> None:
        super().__init__(page.style, page.width)
        self.lines = page.lines
        self.plan = plan

    def head(self) -> None:
        """Show the targets, the machine, the environment, and the most important warnings."""
        title = wrap(f"Plan for {clean(', '.join(self.plan.targets))}", width=self.width, rest="  ")
        self.lines += [self.style(line, "bold") for line in title]
        held = f"on {machine_line(self.plan)}".replace(" ", "\0").replace(",\0", ", ")  # break at commas only
        self.lines += [line.replace("\0", " ") for line in wrap(held, width=self.width, first="  ")]
        self.paragraph(environment_line(self.plan.facts), "  ")
        self._warnings(warning.message for warning in self.plan.warnings if warning.code in _FIRST)

    def summary(self, most: int) -> None:
        """Show the stack and the important changes, in less detail until they fit into `most` lines."""
        start = len(self.lines)
        for brevity in range(4):
            del self.lines[start:]
            self._summary(brevity)
            if len(self.lines) <= most:
                return

    def _summary(self, brevity: int) -> None:
        plan = self.plan
        if plan.stack is not None:
            self._stack(plan.stack, brief=brevity > 0)
        self.lines.append(self.style(f"{_counts(plan)} (-v shows all)", "bold"))
        self._changes(brief=brevity > 1)
        if plan.overrides and brevity < 3:
            count = f"{len(plan.overrides)} override{'s' if len(plan.overrides) > 1 else ''}"
            texts = [f"{one.package} {one.chosen} instead of {one.declared} from {one.requested_by}" for one in plan.overrides]
            self._names(texts, f"  {count}: ", most=1)
        for entry in plan.environment if brevity < 2 else ():
            if entry.kind not in ("none", "folder"):  # the stack names the folder
                self.paragraph(f"{_LOADER_LABELS.get(entry.kind, entry.kind)}: {entry.why}", "  * ")
        self._proven()
        later = sorted((warning for warning in plan.warnings if warning.code not in _FIRST), key=lambda one: _warning_rank(one.code))
        pressing = sum(warning.code in _PRESSING for warning in later)
        least = brevity < 2 and not all(_is_aside(warning.code) for warning in later)
        self._first_warnings([warning.message for warning in later], least=max(min(pressing, 2), least))

    def _first_warnings(self, messages: Sequence[str], *, least: int) -> None:
        """Show the warnings that fit, but never fewer than `least`, and count the others."""
        shown = 0
        for number, message in enumerate(messages, 1):
            lines = self._warning(message)
            room = _MOST_LINES - 1 - len(self.lines) - (number < len(messages))
            if shown >= least and len(lines) > room:
                break
            self.lines += lines
            shown = number
        hidden = len(messages) - shown
        if hidden:
            more = "more " if shown else ""
            self._warnings([f"1 {more}warning (-v shows it)" if hidden == 1 else f"{hidden} {more}warnings (-v shows them)"])

    def _changes(self, *, brief: bool) -> None:
        """Show the changes, one line for each kind and index; `brief` puts the kinds on one line and leaves the indexes out."""
        plan = self.plan
        if not brief:
            for name in ("install", "upgrade", "downgrade"):
                moved = [_moved(action) for action in plan.pip if action.action == name]
                if moved:
                    sign, color = _ACTIONS[name]
                    self._names(moved, self.style(f"  {sign} ", color))
        sign, color = _ACTIONS["remove"]
        for action in plan.pip:
            if action.action == "remove":
                self.paragraph(f"{action.name} {action.version}: {'; '.join(action.because)}", self.style(f"  {sign} ", color))
        if brief:
            self._changes_on_one_line()
        else:
            changed = [action for action in plan.pip if action.action != "keep"]
            for index in dict.fromkeys(action.index for action in changed if action.index is not None):
                self._names([action.name for action in changed if action.index == index], f"  from {clean(index)}: ")
        apt = [f"{action.name}={action.version}" for action in plan.apt if action.action != "keep"]
        if apt:
            self._names(apt, "  apt: ")
        if plan.unpinned and not brief:
            self._names(plan.unpinned, "  ? version left to the installer: ")

    def _changes_on_one_line(self) -> None:
        texts = {
            _ACTIONS[name][0]: [_moved(action) for action in self.plan.pip if action.action == name]
            for name in ("install", "upgrade", "downgrade")
        }
        texts["?"] = [*self.plan.unpinned]
        firsts = [f"{sign} {first_few(names, 1)}" for sign, names in texts.items() if names]
        if firsts:
            self.paragraph("; ".join(firsts), "  ", "    ")

    def _names(self, names: Sequence[str], first: str, *, most: int = _MOST_NAMES) -> None:
        self.paragraph(first_few(names, most), first, "    ")

    def everything(self) -> None:
        """Show every package, reason and step."""
        plan = self.plan
        if plan.stack is not None and plan.stack.frameworks:
            self.title("Stack")
            self._stack(plan.stack, verbose=True)
        self._packages()
        if plan.overrides:
            self.title("Overrides (declared pins that the plan does not follow)")
            self.rows([(f"{one.package} {one.chosen}", f"instead of {one.declared}", f"from {one.requested_by}") for one in plan.overrides])
            for override in plan.overrides:
                self.paragraph(f"{override.package}: {override.reason}", "      ")
        self.title("Loader")
        for entry in plan.environment:
            label = {"ldconfig": f"linker cache: {entry.value}", "env": entry.value}.get(entry.kind)
            self.paragraph(f"{label or _LOADER_LABELS.get(entry.kind, entry.kind)}: {entry.why}", "  ")
        later = [warning.message for warning in plan.warnings if warning.code not in _FIRST]
        if later:
            self.title("Warnings")
            self._warnings(later)
        if plan.proven:
            self.title("Proven (`validate --record`)")
            self._proven()
        if plan.steps:
            self.title("Steps")
        for number, step in enumerate(plan.steps, 1):
            self.paragraph(f"{_step_text(step, plan)}{' (root)' if step.needs_root else ''}", f"  {number}. ")

    def _stack(self, stack: Stack, *, verbose: bool = False, brief: bool = False) -> None:
        """Show driver, CUDA, cuDNN and frameworks; `brief` puts frameworks that merely stay on one line."""
        if not stack.frameworks:
            return
        rows = []
        if stack.driver_min:
            because = f"{stack.driver_because or ''}; " if verbose else ""
            driver = self.plan.facts.driver
            here = "; none here" if driver is None else "; unknown here" if driver is UNKNOWN else ""
            rows.append(("driver", f">= {stack.driver_min}", f"{because}policy {stack.driver_policy}{here}"))
        channels = sorted({framework.libraries for framework in stack.frameworks if framework.asked})
        origin = " and ".join(_CHANNELS[channel] for channel in channels if channel in _CHANNELS)
        if stack.cuda:
            rows.append(("CUDA", stack.cuda, "from the installed pip wheels" if stack.cuda_of_wheels else origin))
        separate = {entry.wheel.version: entry.value for entry in self.plan.environment if entry.wheel is not None}
        if stack.cudnn and stack.cudnn not in separate:
            cudnn_origin = f", {origin}" if stack.cuda_of_wheels and origin else ""
            rows.append(("cuDNN", stack.cudnn, f"libcudnn.so.{stack.cudnn_soname}{cudnn_origin}"))
        for version, names in separate.items():
            users = names.replace(" ", " and ")
            rows.append(("cuDNN", version, f"libcudnn.so.{version.partition('.')[0]} for {users} only, in a separate folder"))
        kept = [framework for framework in stack.frameworks if brief and not framework.asked]
        rows += [(one.name, one.version, self._built_with(one)) for one in stack.frameworks if one not in kept]
        self.rows(rows)
        if kept:
            self.paragraph(", ".join(f"{framework.name} {framework.version}" for framework in kept), "  installed and kept: ", "    ")

    def _built_with(self, framework: StackFramework) -> str:
        versions = (("CUDA", framework.cuda_built), ("cuDNN", framework.cudnn_built))
        built = [f"{name} {version}" for name, version in versions if version]
        if not built:
            text = "CPU build"
        elif self.width < _NARROW:
            text = f"for {', '.join(built)}"
        else:
            text = f"built with {' and '.join(built)}"
        return text if framework.asked else f"{text}, installed and kept"

    def _packages(self) -> None:
        plan = self.plan
        self.title(f"Packages ({_counts(plan)})")
        for action in plan.pip:
            if action.action != "keep":
                sign, color = _ACTIONS[action.action]
                index = f"  from {action.index}" if action.index else ""
                self.lines.append(self.style(clean(f"  {sign} {_moved(action)}{index}"), color))
                self._reasons(_distinct(action.because))
        for apt in plan.apt:
            if apt.action != "keep":
                self.lines.append(clean(f"  {_ACTIONS[apt.action][0]} {apt.name}={apt.version}  (apt, {apt.repository})"))
                self._reasons(_distinct(apt.because))
        kept = [action for action in plan.pip if action.action == "keep"]
        if kept:
            self.paragraph(", ".join(f"{action.name} {action.version}" for action in kept), "  = ")
            self._reasons([f"{action.name}: {'; '.join(_distinct(action.because))}" for action in kept])
        if plan.unpinned:
            self.paragraph(f"{', '.join(plan.unpinned)} (version left to the installer)", "  ? ")

    def _reasons(self, because: Sequence[str]) -> None:
        for reason in because:
            self.paragraph(reason, "      ")

    def _warning(self, message: str) -> list[str]:
        return wrap(clean(message), width=self.width, first=self.style("  ! ", "yellow"), rest="    ")

    def _warnings(self, messages: Iterable[str]) -> None:
        for message in messages:
            self.lines += self._warning(message)

    def _proven(self) -> None:
        for proof in self.plan.proven or ():
            if proof.because is not None:
                self._warnings([f"{'recorded' if proof.is_open else 'no longer proven'} on {proof.words}: {proof.because}"])
            else:
                here = ", the same GPU model and driver as here" if proof.is_of(self.plan.facts) else ""
                self.paragraph(f"proven on {proof.words}{here}", "  ", "    ")

    def conflict(self, conflict: Refusal) -> None:
        """Show why there is no plan, and what would work."""
        self.lines.append("")
        self.paragraph(f"There is no plan: {conflict.message}.", "")
        self.title("Why")
        for cause in conflict.causes:
            text = f"{cause.what}: {cause.because}" if cause.because != "asked for" else f"{cause.what}, asked for"
            self.paragraph(text, "  - ", "    ")
        self.title("What would work, smallest change first")
        if not conflict.relaxations:
            self.paragraph("no single change of a version, the Python or the driver makes the set work", "  ")
        for number, relaxation in enumerate(conflict.relaxations, 1):
            self.paragraph(relaxation.change, f"  {number}. ")
            self.paragraph(f"gives {relaxation.result}", "     ")
            self.lines.append(clean(f"     {relaxation.command}"))


def _distinct(because: Sequence[str]) -> list[str]:
    """Drop reasons that repeat another one, and those that only say that a name stands for the package."""
    found = []
    for reason in because:
        wanted, _, why = reason.partition(": ")
        plain = why.partition(" (extra ")[0]
        if not plain.endswith((" is that package", " is that build")) or len(because) == 1:
            found.append(why if plain.endswith(f"requires {wanted}") else reason)
    return [one for one in dict.fromkeys(found) if " (extra " not in one or one.partition(" (extra ")[0] not in found]


def _moved(action: PipAction) -> str:
    """Name a package with its version, or with the old and the new one."""
    if action.action in ("upgrade", "downgrade"):
        return f"{action.name} {action.installed} -> {action.version}"
    return f"{action.name} {action.version}"
