"""A plan as text for reading: short, or with every package, reason and step; or the verdict alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.model import UNKNOWN, Driver, Facts, or_none
from cudnn_resolve.planning.model import PipAction, Plan, Stack, StackFramework, Step
from cudnn_resolve.planning.preload import MODULE
from cudnn_resolve.report.text import Page, Style, clean, wrap
from cudnn_resolve.resolution.model import Refusal

_ACTIONS = {"install": ("+", "green"), "upgrade": ("^", "cyan"), "downgrade": ("v", "yellow"), "remove": ("-", "red"), "keep": ("=", "dim")}
_FIRST = ("overlay", "breaks-framework", "lock-breaks", "cuda-majors", "cudnn-majors")
"""Warnings that stand above the plan."""
_ASIDE = (
    *("driver-policy", "driver-unknown", "gpu-unknown", "known-in-part", "marker", "requirements-guessed", "same-build", "several-indexes"),
    "unread",
)
"""Warnings that stand last, besides traps of a release: they change nothing of what the plan does."""
_PRESSING = ("older-toolkit", "breaks")
"""Warnings that stand before the others below the plan."""
_LINES = 15
"""Lines of a short plan, with the command that carries it out; further warnings are counted."""
_NARROW = 80
"""Columns below which words are spared."""
_NAMED = 3
"""Packages of one kind of change that are named in a short plan."""
_CHOSEN = {
    "--python": "as --python says",
    "--env": "a new environment",
    "VIRTUAL_ENV": "the active virtual environment",
    "CONDA_PREFIX": "the active conda environment",
    ".venv": "the virtual environment of this folder",
    "runs this program": "the Python that runs cudnn-resolve",
}
"""Why an interpreter is the target, by what `detect` says of it."""
_LABELS = {"none": "nothing to do", "ldconfig": "linker cache"}
_STEPS = {"preload": "the preload", "folder": "the folder of a second cuDNN", "ldconfig": "the linker cache", "kernel": "the kernel"}
_CHANNELS = {"pip": "from pip wheels", "apt": "from apt", "system": "installed on the system", "bundled": "inside the wheel"}


def render(plan: Plan, *, style: Style | None = None, width: int = 100, verbose: bool = False, command: str | None = None) -> str:
    """The plan, or why there is none and what would work, in lines of at most `width` columns.

    `verbose` shows every package, reason and step; `command` is the last line, which carries the plan out.
    """
    page = _Page(style, width)
    page.head(plan)
    if plan.conflict is not None:
        page.conflict(plan.conflict)
    elif verbose:
        page.everything(plan)
    else:
        page.summary(plan, _LINES - (command is not None))
    if command is not None and plan.is_satisfiable:
        page.lines += ["", clean(command)] if verbose else [clean(command)]
    return page.text()


def verdict(plan: Plan) -> str:
    """The answer in one line."""
    if plan.conflict is not None:
        return clean(f"no: {plan.conflict.message}\n".rstrip()) + "\n"
    found = [f"{one.name} {one.version}" for one in plan.stack.frameworks] if plan.stack is not None else list(plan.targets)
    if plan.stack is not None:
        found += [f"{name} {value}" for name, value in (("CUDA", plan.stack.cuda), ("cuDNN", plan.stack.cudnn)) if value]
        found += [f"driver >= {plan.stack.driver_min}"] if plan.stack.driver_min else []
    return clean(f"yes: {', '.join(found)}: {_counts(plan)}") + "\n"


def machine_line(plan: Plan) -> str:
    """The machine and environment that a plan is for, in one line."""
    facts = plan.facts
    platform = facts.platform
    python = facts.python.version or (f"{plan.python} (assumed)" if plan.python else "unknown")
    driver = or_none(facts.driver)
    gpus = or_none(facts.gpus)
    parts = [
        f"{platform.distribution} {platform.release}" if platform.distribution else "Linux",
        platform.arch or (f"{plan.arch} (assumed)" if plan.arch else None),
        f"glibc {platform.glibc}" if platform.glibc else None,
        f"Python {python}",
        "no driver" if facts.driver is None else _driver(driver),
        "GPU unknown"
        if facts.gpus is UNKNOWN
        else ", ".join(gpu.name or f"GPU of compute capability {gpu.compute_capability or '?'}" for gpu in gpus or ()) or "no GPU",
    ]
    return clean(", ".join(part for part in parts if part))


def _driver(driver: Driver | None) -> str:
    if driver is None or not (driver.version or driver.cuda):
        return "driver unknown"
    return f"driver {driver.version}" if driver.version else f"a driver for CUDA {driver.cuda}"


def environment_line(facts: Facts) -> str:
    """The interpreter whose environment is changed, and why it is this one."""
    python = facts.python
    if python.path is None:
        return "into the environment that the facts describe" if or_none(facts.packages.pip) else "into a new environment"
    how = facts.sources.get("python")
    why = _CHOSEN.get(how, how) if how is not None else "as the facts say"
    return clean(f"into {python.path} ({why}{'; the system manages it' if python.externally_managed else ''})")


def _rank(code: str) -> int:
    """The place of a warning among the others, by how much the reader has to know it."""
    return _PRESSING.index(code) if code in _PRESSING else len(_PRESSING)


def _is_aside(code: str) -> bool:
    """True for a warning that changes nothing of what the plan does."""
    return code in _ASIDE or code.startswith("trap-")


def _counts(plan: Plan) -> str:
    """What changes, in numbers."""
    actions = [*(one.action for one in plan.pip), *(one.action for one in plan.apt)]
    numbers = {name: actions.count(name) for name in _ACTIONS}
    numbers["install"] += len(plan.unpinned)
    words = [f"{numbers[name]} to {name}" for name in _ACTIONS if numbers[name] and name != "keep"]
    words += [f"{numbers['keep']} kept"] if numbers["keep"] else []
    left = dict.fromkeys(step.kind for step in plan.steps if step.kind not in ("pip", "apt"))
    idle = f"no package changes, and `apply` sees to: {', '.join(_STEPS.get(one, one) for one in left)}" if left else "nothing to do"
    return ", ".join(words if plan.changes else [idle, *words])


def _what(step: Step, plan: Plan) -> str:
    """What a step does, and where."""
    if step.argv is not None:
        return shlex.join(step.argv)
    value = next((one.value for one in plan.environment if one.kind == step.kind), "")
    if step.kind == "preload":
        return f"write {MODULE}.py and {MODULE}.pth into the site-packages of {plan.facts.python.path or 'the environment'}, for {value}"
    if step.kind == "folder":
        wheel = next((f"{one.wheel.name}=={one.wheel.version}" for one in plan.environment if one.wheel is not None), "")
        return f"unpack {wheel} into {FOLDER} of the site-packages of {plan.facts.python.path or 'the environment'}, for {value}"
    if step.kind == "ldconfig":
        return f"write {value} into /etc/ld.so.conf.d/cudnn-resolve.conf, and run ldconfig"
    return f"add {step.why}"


class _Page(Page):
    """The page of a plan."""

    def head(self, plan: Plan) -> None:
        """What is asked for, the machine, the environment, and what must be known first."""
        title = wrap(f"Plan for {clean(', '.join(plan.targets))}", width=self.width, rest="  ")
        self.lines += [self.style(line, "bold") for line in title]
        held = f"on {machine_line(plan)}".replace(" ", "\0").replace(",\0", ", ")  # `no driver` stays on one line
        self.lines += [line.replace("\0", " ") for line in wrap(held, width=self.width, first="  ")]
        self.say(environment_line(plan.facts), "  ")
        self._warnings(one.message for one in plan.warnings if one.code in _FIRST)

    def summary(self, plan: Plan, most: int) -> None:
        """The stack, and what changes in numbers and in important names; with less of both where that takes too many lines."""
        start = len(self.lines)
        for brevity in range(4):
            del self.lines[start:]
            self._summary(plan, brevity)
            if len(self.lines) <= most:
                return

    def _summary(self, plan: Plan, brevity: int) -> None:
        if plan.stack is not None:
            self._stack(plan, plan.stack, brief=brevity > 0)
        self.lines.append(self.style(f"{_counts(plan)} (-v shows all)", "bold"))
        self._named(plan, brief=brevity > 1, overrides=brevity < 3)
        for one in plan.environment if brevity < 2 else ():
            if one.kind not in ("none", "folder"):  # of a folder the stack says it
                self.say(f"{_LABELS.get(one.kind, one.kind)}: {one.why}", "  * ")
        self._proven(plan)
        later = sorted((one for one in plan.warnings if one.code not in _FIRST), key=lambda one: (_rank(one.code), _is_aside(one.code)))
        pressing = sum(_rank(one.code) < len(_PRESSING) for one in later)
        least = brevity < 2 and not all(_is_aside(one.code) for one in later)
        self._first_warnings([one.message for one in later], least=max(min(pressing, 2), least))

    def _first_warnings(self, messages: Sequence[str], *, least: int) -> None:
        """The warnings for which there is room, but so many in any case; where there is none for all, their number."""
        each = []
        for message in messages:
            start = len(self.lines)
            self._warnings([message])
            each.append(self.lines[start:])
            del self.lines[start:]
        shown = 0
        for number, lines in enumerate(each, 1):
            room = _LINES - 1 - len(self.lines) - (number < len(each))
            if shown >= least and len(lines) > room:
                break
            self.lines += lines
            shown = number
        if shown < len(each):
            more = len(each) - shown
            self._warnings([f"{more} {'more ' if shown else ''}warning{'s' if more > 1 else ''}: -v shows {'them' if more > 1 else 'it'}"])

    def _named(self, plan: Plan, *, brief: bool, overrides: bool) -> None:
        """The changes, a line for each kind and, unless they are to be brief, for each further index."""
        self._changes(plan, brief=brief)
        for index in () if brief else dict.fromkeys(one.index for one in plan.pip if one.index is not None and one.action != "keep"):
            self._some([one.name for one in plan.pip if one.index == index and one.action != "keep"], f"  from {clean(index)}: ")
        apt = [one for one in plan.apt if one.action != "keep"]
        if apt:
            self._some([f"{one.name}={one.version}" for one in apt], "  apt: ")
        if plan.unpinned and not brief:
            self._some(plan.unpinned, "  ? version left to the installer: ")
        if plan.overrides and overrides:
            texts = [f"{one.package} {one.chosen} instead of {one.declared} of {one.requested_by}" for one in plan.overrides]
            self._some(texts, f"  {len(texts)} override{'s' if len(texts) > 1 else ''}: ", most=1)

    def _changes(self, plan: Plan, *, brief: bool) -> None:
        """The pip packages that change, a line for each kind; in brief all kinds in one."""
        first: list[str] = []
        for action, (sign, color) in _ACTIONS.items():
            found = [one for one in plan.pip if one.action == action]
            if action == "remove":
                for one in found:
                    self.say(f"{one.name} {one.version}: {'; '.join(one.because)}", self.style(f"  {sign} ", color))
            elif found and action != "keep" and not brief:
                self._some([_moved(one) for one in found], self.style(f"  {sign} ", color))
            elif found and action != "keep":
                more = f" and {len(found) - 1} more" if len(found) > 1 else ""
                first.append(f"{sign} {_moved(found[0])}{more}")
        if brief and plan.unpinned:
            first.append(f"? {plan.unpinned[0]}{f' and {len(plan.unpinned) - 1} more' if len(plan.unpinned) > 1 else ''}")
        if first:
            self.say("; ".join(first), "  ", "    ")

    def _some(self, names: Sequence[str], first: str, *, most: int = _NAMED) -> None:
        more = f" and {len(names) - most} more" if len(names) > most else ""
        self.say(f"{', '.join(names[:most])}{more}", first, "    ")

    def everything(self, plan: Plan) -> None:
        """Every package, reason and step."""
        if plan.stack is not None and plan.stack.frameworks:
            self.title("Stack")
            self._stack(plan, plan.stack, verbose=True)
        self._packages(plan)
        if plan.overrides:
            self.title("Overrides (declared pins that the plan leaves)")
            self.rows([(f"{one.package} {one.chosen}", f"instead of {one.declared}", f"of {one.requested_by}") for one in plan.overrides])
            for one in plan.overrides:
                self.say(f"{one.package}: {one.reason}", "      ")
        self.title("Loader")
        for entry in plan.environment:
            label = {"ldconfig": f"linker cache: {entry.value}", "env": entry.value}.get(entry.kind) or _LABELS.get(entry.kind, entry.kind)
            self.say(f"{label}: {entry.why}", "  ")
        later = [one.message for one in plan.warnings if one.code not in _FIRST]
        if later:
            self.title("Warnings")
            self._warnings(later)
        if plan.proven:
            self.title("Proven (`validate --record`)")
            self._proven(plan)
        if plan.steps:
            self.title("Steps")
        for number, step in enumerate(plan.steps, 1):
            self.say(f"{_what(step, plan)}{' (root)' if step.needs_root else ''}", f"  {number}. ")

    def _stack(self, plan: Plan, stack: Stack, *, verbose: bool = False, brief: bool = False) -> None:
        if not stack.frameworks:
            return
        rows = []
        if stack.driver_min:
            because = f"{stack.driver_because or ''}; " if verbose else ""
            known = plan.facts.driver
            here = "; none here" if known is None else "; unknown here" if known is UNKNOWN else ""
            rows.append(("driver", f">= {stack.driver_min}", f"{because}policy {stack.driver_policy}{here}"))
        channels = sorted({one.libraries for one in stack.frameworks if one.asked})
        how = " and ".join(_CHANNELS[one] for one in channels if one in _CHANNELS)
        beside = f", {how}" if stack.cuda_of_wheels and how else ""
        if stack.cuda:
            rows.append(("CUDA", stack.cuda, "from the installed pip wheels" if stack.cuda_of_wheels else how))
        apart = {one.wheel.version: one.value for one in plan.environment if one.wheel is not None}
        if stack.cudnn and stack.cudnn not in apart:
            rows.append(("cuDNN", stack.cudnn, f"libcudnn.so.{stack.cudnn_soname}{beside}"))
        for version, names in apart.items():
            who = names.replace(" ", " and ")
            rows.append(("cuDNN", version, f"libcudnn.so.{version.partition('.')[0]} for {who} alone, in a folder of its own"))
        kept = [one for one in stack.frameworks if brief and not one.asked]
        rows += [(one.name, one.version, self._built_with(one)) for one in stack.frameworks if one not in kept]
        self.rows(rows)
        if kept:
            self.say(", ".join(f"{one.name} {one.version}" for one in kept), "  installed and kept: ", "    ")

    def _built_with(self, one: StackFramework) -> str:
        built = [f"CUDA {one.cuda_built}" if one.cuda_built else "", f"cuDNN {one.cudnn_built}" if one.cudnn_built else ""]
        built = [part for part in built if part]
        said = f"for {', '.join(built)}" if self.width < _NARROW else f"built with {' and '.join(built)}"
        return (said if built else "CPU build") + ("" if one.asked else ", installed and kept")

    def _packages(self, plan: Plan) -> None:
        self.title(f"Packages ({_counts(plan)})")
        for one in (pin for pin in plan.pip if pin.action != "keep"):
            sign, color = _ACTIONS[one.action]
            self.lines.append(self.style(clean(f"  {sign} {_moved(one)}{f'  from {one.index}' if one.index else ''}"), color))
            self._reasons(_reasons(one.because))
        for apt in (pin for pin in plan.apt if pin.action != "keep"):
            self.lines.append(clean(f"  {_ACTIONS[apt.action][0]} {apt.name}={apt.version}  (apt, {apt.repository})"))
            self._reasons(_reasons(apt.because))
        kept = [one for one in plan.pip if one.action == "keep"]
        if kept:
            self.say(", ".join(f"{one.name} {one.version}" for one in kept), "  = ")
            self._reasons([f"{one.name}: {'; '.join(_reasons(one.because))}" for one in kept])
        if plan.unpinned:
            self.say(f"{', '.join(plan.unpinned)} (version left to the installer)", "  ? ")

    def _reasons(self, because: Sequence[str]) -> None:
        for reason in because:
            self.say(reason, "      ")

    def _warnings(self, messages: Sequence[str] | Iterator[str]) -> None:
        for message in messages:
            self.say(message, self.style("  ! ", "yellow"), "    ")

    def _proven(self, plan: Plan) -> None:
        for one in plan.proven or ():
            if one.because is not None:
                self._warnings([f"{'recorded' if one.is_open else 'no longer proven'} on {one.words}: {one.because}"])
            else:
                here = ": a card like this machine's, with its driver" if one.is_of(plan.facts) else ""
                self.say(f"proven on {one.words}{here}", "  ", "    ")

    def conflict(self, conflict: Refusal) -> None:
        """Why there is no plan, and what would work."""
        self.lines.append("")
        self.say(f"There is no plan: {conflict.message}.", "")
        self.title("Why")
        for cause in conflict.causes:
            self.say(f"{cause.what}: {cause.because}" if cause.because != "asked for" else f"{cause.what}, asked for", "  - ", "    ")
        self.title("What would work, nearest first")
        if not conflict.relaxations:
            self.say("no single change of a version, of the Python or of the driver leads to a set that works", "  ")
        for number, one in enumerate(conflict.relaxations, 1):
            self.say(one.change, f"  {number}. ")
            self.say(f"gives {one.result}", "     ")
            self.lines.append(clean(f"     {one.command}"))


def _reasons(because: Sequence[str]) -> list[str]:
    """Reasons without what they say twice, and without those that say only that a name stands for the package."""
    found = []
    for reason in because:
        wanted, _, why = reason.partition(": ")
        plain = why.partition(" (extra ")[0]
        if not plain.endswith((" is that package", " is that build")) or len(because) == 1:
            found.append(why if plain.endswith(f"requires {wanted}") else reason)
    return [one for one in dict.fromkeys(found) if " (extra " not in one or one.partition(" (extra ")[0] not in found]


def _moved(one: PipAction) -> str:
    """A package with its version, or with the two between which it moves."""
    return f"{one.name} {one.installed} -> {one.version}" if one.action in ("upgrade", "downgrade") else f"{one.name} {one.version}"
