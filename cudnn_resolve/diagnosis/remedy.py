"""Remedies of findings: rows of the tables with their fields filled, and plans for this machine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from string import Formatter

from msgspec.structs import replace

from cudnn_resolve.diagnosis.context import GPU_THERE
from cudnn_resolve.diagnosis.fitting_build import OLDEST_PYTHON, has_code, pythons_of, served
from cudnn_resolve.diagnosis.log_stack import cuda_of_driver, driver_of, known_framework, python_line
from cudnn_resolve.diagnosis.logged_install import BY_UV, by_uv
from cudnn_resolve.diagnosis.model import Case, Finding, Match, Remedy
from cudnn_resolve.diagnosis.plan_remedy import is_known, is_possible, repeated, tried_plan
from cudnn_resolve.diagnosis.remedy_fields import OTHER, RemedyFields
from cudnn_resolve.diagnosis.remedy_machine import LINUX, in_service, in_shell, is_of_place, question
from cudnn_resolve.diagnosis.remedy_stack import KnownStack
from cudnn_resolve.diagnosis.unknown import Unknown
from cudnn_resolve.diagnosis.weigh import FINDING
from cudnn_resolve.diagnosis.windows_wheels import of_same_build, on_windows, wheels_for_windows
from cudnn_resolve.matrix.symptom import RemedyRow
from cudnn_resolve.version import Capability

_CONDA_PYTHON = re.compile(
    r"(?i)([^'\"\s]{0,200}[/\\](?:[\w.-]{0,12}conda\w{0,4}|(?:mini|micro)?mamba\w{0,6}|miniforge\w{0,4}|mambaforge)"
    r"(?:[/\\]envs[/\\][^'\"\s/\\]{1,60})?|[^'\"\s]{0,200}[/\\]envs[/\\][^'\"\s/\\]{1,60})(?:/bin/python|\\python\.exe)"
)
"""Interpreter of a conda environment."""
_PLAN = "cudnn-resolve apply -f "
"""Prefix of a command that can be tried as a plan."""
_NO_BUILD = "no-build"
"""What only the rows need that say what is left where no build of the framework runs."""
_COMPILED = Capability(3, 0)
"""Capability below which no framework can be compiled: cuDNN begins with Kepler."""
_BLACKWELL = Capability(10, 0)
_INSTALLS = re.compile(r"(?:%|!?\S{1,300} -m )?pip (?:un)?install\b|cudnn-resolve apply ")
"""Commands after which a running interpreter still has the old packages."""
_OF_HOST = r"restart docker|nvidia-ctk|\bnvidia-container-toolkit(?!-)"
_OURS = ("cudnn-resolve apply ", "cudnn-resolve plan ")
_IN_IMAGE = frozenset({"docker", "container-start"})
_STARTED, _HOST_PROMPT = "context-container-start", "context-host-prompt"
_NO_IMAGE = frozenset({"docker-build", "hosted-notebook", "kubernetes", "jetson", "singularity", "enroot", "windows"})
"""Features of a container that was started by hand, and of places where its image is not made by a Dockerfile, or is just made."""
_ELSEWHERE = {
    "windows": "cudnn-resolve plans for Linux only: on Windows use pip as described on the framework's installation page, or WSL 2",
    "macos": "cudnn-resolve plans for Linux only, and there is no CUDA for macOS",
}
"""Shown instead of a plan on systems without plans."""
_OF_GPU = frozenset({"gpu_arch_too_new_for_build", "gpu_arch_too_old_for_build"})
_OF_MACHINE = frozenset({"driver_too_old", "ptx_too_new"}) | _OF_GPU
"""Causes whose plan is a build for the GPU or driver in the log."""
WEAK = 0.6
"""Confidence below which a finding is a guess, so that nothing is changed before it is confirmed."""
_ASKED = 2
_CHANGES = r"\b(?:install|uninstall|apply|plan|rmmod|modprobe|reboot|restart|rm|rmdir|export|set|unset|purge|dkms|build)\b|%env|os\.environ"
"""Commands that change something."""
_OF_SYSTEM = (
    r"(?i)\bsudo |\b(?:reboot|restart|replace a rented)\b|\b(?:install|update|upgrade)\b.{0,40}\bdriver\b|\bdriver\b.{0,20}\bupdated\b"
)
"""Steps that change the system, or interrupt everything that runs on it."""
WANT_CARD = frozenset({"driver_not_loaded", "container_gpu_not_passed", "gpu_hidden_by_env", "cpu_only_build"})
"""Causes for which a machine without an NVIDIA GPU has other remedies."""
_TOLD = {
    "gpu-virtual": frozenset({"not-supported", "virtual-gpu"}),
    "toolkit-outdated": frozenset({"cgroup-2", "toolkit-old"}),
    "module-wanted": frozenset({"module-failed", "gpu-service"}),
    "nixos-module": frozenset({"nouveau", "smi-failed"}),
    "mismatch-told": frozenset({"library-older", "gsp-firmware", "vgpu-releases", "module-stays", "switch-release"}),
    "module-told": frozenset(
        ("secure-boot", "vfio", "nouveau", "module-build", "driver-container", "gpu-service", "card-legacy", "card-modules", "card-known")
    )
    | {"image-system"},
    "no-install": frozenset({"conda-virtual", "freebsd", "macos", "guest", "jetson", "batch-system", "smi-table", "gpu-seen"})
    | {"driver-seen", "kernel-gcc", "module-unloaded", "module-branch", "nixos", "other-linux"},
}
"""Features that stand for others: why the driver's module is not loaded, where none is to be installed, and what shares a step."""
_AFTER = "after the first problem is solved, install the release of this package for the framework that is then installed"
_OF_CODE = frozenset({"build-failure", "python-failure"})
"""Kinds of unknown failures that have steps of their own even if little says that the run failed."""


class Remedies:
    """Remedies for the findings of one case."""

    def __init__(
        self, case: Case, matches: Mapping[str, tuple[Match, ...]], unknown: Unknown | None = None, *, is_here: bool = True
    ) -> None:
        self.case, self.book = case, case.book
        self.unknown = unknown
        """The failure of unknown cause, if the log shows nothing else."""
        self.matches = matches
        """Matches of each cause's finding."""
        self.stack = KnownStack(case, is_here=is_here)
        self.fields = RemedyFields(case, self.stack)
        system = "windows" if self.stack.is_windows else "macos" if "macos" in case.features else None
        self.elsewhere = _ELSEWHERE[system] if system and not case.features & LINUX else None
        """Why no plan can be made for this system; None if one can."""

    def all(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings with their remedies; a plan is made only for the first one, which is to be fixed first."""
        out: list[Finding] = []
        tried = True
        for finding in findings:
            if finding.severity == "info" and not (self._is_likely(finding) and not out):
                out.append(finding)
                continue
            if out and out[0].cause in _OF_GPU and finding.cause == "framework_pkg_mismatch":
                out.append(replace(finding, remedy=(Remedy(text=_AFTER),)))
                continue
            own = tuple(each for remedy in finding.remedy for each in self._adapted(remedy, tried=tried))
            every = {remedy.command or remedy.text: remedy for remedy in (*self._of(finding, tried=tried), *reversed(own))}
            said = {remedy.text for remedy in own}
            others = (remedy for command, remedy in every.items() if not any(each.startswith(f"{command}; ") for each in every))
            rest = tuple(remedy for remedy in others if remedy not in own and remedy.text not in said)
            steps = tuple(self._possible((*own, *rest)))
            out.append(replace(finding, remedy=self._kept(finding, _begun(self._careful(finding, steps)))))
            tried = tried and finding.severity == "info"
        return out

    def _is_likely(self, finding: Finding) -> bool:
        """True for a note that is the best explanation of a log: a cause that the program has not survived."""
        is_known = finding.cause != "unrecognised" or self.unknown is None or not _OF_CODE.isdisjoint(self.unknown.features)
        return self.case.facts is None and finding.cause != "harmless" and is_known and finding.confidence >= FINDING / 100

    def _careful(self, finding: Finding, steps: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
        """The steps of a finding with little evidence: the question that decides comes first, then at most one change.

        What changes the system, such as a driver or a restart, waits for the answer.
        """
        cause = self.book.causes()[finding.cause]
        command = question(cause, self.case.features, windows=self.stack.is_windows, python=self.stack.python)
        is_open = finding.confidence < WEAK and not is_answered(finding.cause, self.case)
        if self.case.facts is not None or command is None or not is_open:
            return steps
        asks = [step for step in steps if step.command is not None and not re.search(_CHANGES, step.command)]
        changes = [step for step in steps if step not in asks and not re.search(_OF_SYSTEM, f"{step.text} {step.command}")][:1]
        if steps[:1] != tuple(asks[:1]) or not asks:
            titles = [self.book.causes()[name].title for name in (finding.cause, *cause.confused[:2])]
            asked = Remedy(text=cause.answer or f"see which it is: {', or '.join(titles)}", command=command)
            asks = [asked, *(step for step in asks if step.command != command)]
            changes = [replace(step, text=f"if this is the cause: {re.sub('^or,? ', '', step.text)}") for step in changes]
        return (*asks[:_ASKED], *changes)

    def _kept(self, finding: Finding, steps: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
        """The steps; in a container the first one that installs something says how its image gets that."""
        is_made = self.case.features >= _IN_IMAGE or "composed" in self.case.features
        is_image = self.case.facts is None and is_made and self.case.features.isdisjoint(_NO_IMAGE)
        failed = min((line.line or 0 for line in finding.evidence), default=0)
        before = [match for match in self.case.matches if match.symptom.id in (_STARTED, _HOST_PROMPT) and match.line < failed]
        last = max(before, key=lambda match: match.line, default=None)
        is_image &= last is None or last.symptom.id != _HOST_PROMPT
        first = next((step for step in steps if is_image and step.command is not None and _INSTALLS.match(step.command)), None)
        if first is None or first.command is None:
            return steps
        written = first.command.replace(_OURS[0], f"{_OURS[1]}--format dockerfile ", 1)
        by = f"; `{written}` writes that" if written != first.command else ""
        by = f", then docker compose up -d --build{by}" if "composed" in self.case.features else by
        said = replace(first, text=f"{first.text} (a new container of its image does not keep it: put it into the Dockerfile as RUN{by})")
        return tuple(said if step is first else step for step in steps)

    def _possible(self, every: Iterable[Remedy]) -> Iterable[Remedy]:
        """Drop commands of other places, and plans where none can be made; if nothing else is left, keep the first plan's text."""
        every = list(every)
        every = [remedy for remedy in every if remedy.command is None or is_of_place(remedy.command, self.case.features)] or every
        if self.elsewhere is None:
            return every
        plans = [remedy for remedy in every if remedy.command is not None and remedy.command.startswith(_OURS)]
        others = [remedy for remedy in every if remedy not in plans]
        return others or [Remedy(text=f"{remedy.text} ({self.elsewhere})") for remedy in plans[:1]]

    def _adapted(self, remedy: Remedy, *, tried: bool, brings: frozenset[str] = frozenset()) -> Iterator[Remedy]:
        """Adapt a remedy to this environment and user; try it if it is a plan."""
        facts, wishes = self.stack.facts, self.case.wishes
        if remedy.command is None:
            yield remedy
        elif tried and remedy.command.startswith(_PLAN) and facts is not None:
            yield from tried_plan(remedy.text, remedy.command, facts, self.book, wishes, brings=brings)
        else:
            # Containers, and images while they are built, have no `sudo`; what concerns Docker itself is for their host.
            is_inside = "docker-build" in self.case.features and re.search(_OF_HOST, remedy.command) is None
            root = self.case.facts.root if self.case.facts is not None else is_inside
            command = remedy.command.replace("sudo ", "") if root else remedy.command
            if self.case.facts is None:
                there = in_shell(command, self.case.features, windows=self.stack.is_windows)
                if there != command and not self.stack.is_windows:
                    remedy = replace(remedy, text=f"{remedy.text} (in the notebook's first cell, after a restart)")
                command = there.replace("'", '"') if self.stack.is_windows else there  # cmd.exe knows no other quotes
                command += f" --python {self.stack.python}" if command.startswith(_OURS) and "/" in self.stack.python else ""
                command = _in_conda(command, self.stack.python)
                if "notebook" in self.case.features and _INSTALLS.match(command) and "restart" not in remedy.text:
                    is_bare = "hosted-notebook" in self.case.features and command[0] not in "%!"
                    cell = "in a notebook cell, prefixed with `!`; " if is_bare else ""
                    remedy = replace(remedy, text=f"{remedy.text} ({cell}then restart the session)")
                tool = self.fields.done.feature
                if tool in BY_UV or ("uv-environment" in self.case.features and not self.fields.done.packages):
                    command = by_uv(command, self.stack.python, is_project=tool == BY_UV[0])
            yield replace(remedy, command=repeated(command, wishes))

    def _of(self, finding: Finding, *, tried: bool) -> Iterator[Remedy]:
        """Remedies of the tables for a finding."""
        matches = self.matches.get(finding.cause, ())
        values = self.fields.values(finding, matches)
        features = self.case.features | self.fields.features(matches, values)
        seen = features - ({"nouveau"} if "nouveau-alone" in features else set())
        features |= {name for name, some in _TOLD.items() if seen & some}
        if self.unknown is not None and finding.cause == self.unknown.finding.cause:
            features, values = features | self.unknown.features, {**values, **self.unknown.values}
        features |= {"no-card"} if "hosted-runner" in features else set()
        is_open = is_offered = is_mended = False
        is_particular = bool(finding.remedy)
        for row in self._rows(finding.cause, features):
            if row.fallback and is_particular:
                continue
            text, command = _filled(row.text, values), _filled(row.command, values) if row.command is not None else None
            if text is None or (row.command is not None and command is None):
                continue
            if command is not None and not is_known(command):
                is_alternative = is_offered and text.startswith("or ")
                is_open = is_open or not (
                    is_alternative or finding.cause.startswith("pip_") or OTHER in features or self.fields.is_of_another(matches)
                )
                continue
            is_particular = is_particular or bool(row.needs and not row.fallback)
            is_guess = "| grep " in (command or "") or "{cudnn_likely}" in (row.command or "")  # which asks, or may not fit
            is_offered, is_mended = True, is_mended or not is_guess
            if command is not None and command.startswith(_OURS) and self.case.facts is None:
                yield from self._of_told(finding.cause, Remedy(text=text, command=command), values)
                continue
            brings: frozenset[str] = frozenset()
            if command is not None and tried and command.startswith(_PLAN) and self.stack.facts is not None:
                same = command.replace(values["targets"], values["same_targets"])
                stays = same != command and is_possible(same, self.stack.facts, self.book, self.case.wishes)
                command = same if stays else command
                brings = frozenset(shlex.split(values.get("wheel", ""))) if finding.cause == "cuda_runtime_missing" else brings
            told = in_service(command, matches) if command is not None and self.case.facts is None and not self.stack.is_windows else None
            text, command = (f"{text} ({told[0]})", told[1]) if told is not None else (text, command)
            yield from self._adapted(Remedy(text=text, command=command), tried=tried, brings=brings)
        if is_open and not is_mended and not finding.remedy:
            text = "the log does not show which framework is used: run this in the program's environment, where it is detected"
            yield Remedy(text=text, command="cudnn-resolve doctor LOG")

    def _rows(self, cause: str, features: frozenset[str]) -> Iterator[RemedyRow]:
        """Rows of the tables for a cause with these features, fallbacks last."""
        has_no_card = cause in WANT_CARD and "no-card" in features and not features & GPU_THERE
        for row in sorted(self.book.rows(RemedyRow), key=lambda row: row.fallback):
            is_of_cause = cause in (row.cause, *row.also) and (not has_no_card or "no-card" in row.needs)
            if not is_of_cause or not features.issuperset(row.needs):
                continue
            is_shown = features.isdisjoint(row.unless)
            features |= {"settled"} if row.settles else set()
            if is_shown:
                yield row

    def _of_told(self, cause: str, plan: Remedy, values: Mapping[str, str]) -> Iterator[Remedy]:
        """A plan for a machine known only from its log: compared with the builds of the tables that fit it."""
        case, framework = self.case, known_framework(values["framework"], self.book)
        line = python_line(case)
        if framework is None or "jetson" in case.features:
            return
        if line is not None and line < OLDEST_PYTHON:
            if cause == "gpu_arch_too_old_for_build" and (gpus := case.context.capabilities):
                text = f"no known build for Python {line[0]}.{line[1]} runs on compute capability {gpus[0]}"
                yield self._without_build(cause, framework, text)
            return
        machine_code = cause == "gpu_arch_too_new_for_build"
        without, limited = self._limited(cause, framework, plan, values)
        if limited is None:
            yield from [without] if without is not None else []
            return
        bare, plan = plan, limited
        if self.stack.is_windows:
            # Plans are for Linux only, but the indexes of some frameworks also have wheels for Windows.
            is_install = (plan.command or "").startswith(_OURS[0])
            same = (plan.command or "").replace(values["targets"], values["same_targets"])
            tries = (same, plan.command or "") if is_install else ()
            made = (wheels_for_windows(framework, command, values, case, self.stack.majors, machine_code=machine_code) for command in tries)
            chosen = next((choice for choice in made if choice is not None), None)
            if chosen is None:
                yield plan  # kept without its command if nothing else helps
                return
            build, wheels = chosen
            told = served(framework, case, machine_code=machine_code)
            if told is not None and told.text:
                plan = replace(plan, text=plan.text.replace(told.text, replace(told, build=build).text))
            lines = pythons_of(build, case.book) if line is None and "==" in wheels else []
            if not lines and line is None:
                known = "the index of a CUDA that the driver supports (the heading of nvidia-smi shows the newest)"
                plan = replace(plan, text=f"{bare.text}, from {known}")
            if cause == "windows_runtime_missing":
                wheels = of_same_build(wheels, self.stack.torch)
            plans = on_windows(plan, self.stack.python, wheels, lines)
            yield from (adapted for plan in plans for adapted in self._adapted(plan, tried=False))
            return
        yield from self._adapted(plan, tried=False)
        yield from [without] if without is not None else []

    def _limited(self, cause: str, framework: str, plan: Remedy, values: Mapping[str, str]) -> tuple[Remedy | None, Remedy | None]:
        """What to do where no build runs, and the plan for the rest of what the log leaves open; None if there is none."""
        case, machine_code = self.case, cause == "gpu_arch_too_new_for_build"
        if cause in _OF_GPU and not case.context.capabilities:
            if self.stack.is_windows:  # the step before asks for the GPU
                return None, None
            if not machine_code or has_code(framework, _BLACKWELL, self.book):
                return None, plan
            text = f"from compute capability 10.0 on, no known build of {self.book.framework(framework).title} has code for the GPU"
            return self._without_build(cause, framework, text), replace(plan, text=f"for older GPUs, {plan.text}")
        is_limited = cause in _OF_GPU or driver_of(case) is not None or cuda_of_driver(case) is not None
        found = served(framework, case, machine_code=machine_code) if cause in _OF_MACHINE and is_limited else None
        if found is None:
            return None, plan
        if found.build is None:
            return self._without_build(cause, framework, f"no known build of {found.title} runs on {found.known}"), None
        release = re.search(r"==([\w.]+)", values["same_targets"])
        same = served(framework, case, machine_code=machine_code, version=release[1]) if release and not self.stack.is_windows else None
        if same is not None and same.build is not None:  # another CUDA suffices
            found, plan = same, replace(plan, command=(plan.command or "").replace(values["targets"], values["same_targets"]))
        return None, replace(plan, text=f"{plan.text}: for {found.known}, {found.text}")

    def _without_build(self, cause: str, framework: str, text: str) -> Remedy:
        """What is left where no build of the framework runs."""
        gpus = {row.cuda_last for gpu in self.case.context.capabilities if (row := self.book.architecture(gpu)) is not None}
        limits = [f"CUDA {cuda.line} or older" for cuda in gpus if cuda is not None]
        limits += [f"TORCH_CUDA_ARCH_LIST={gpu}" for gpu in self.case.context.capabilities[:1] if framework == "torch"]
        toolkit = f"a CUDA toolkit that still supports the GPU{f' ({joined})' if (joined := ', '.join(limits)) else ''}"
        can_compile = all(gpu >= _COMPILED for gpu in self.case.context.capabilities)
        values = {"no_build": text, "compile_it": f"compile it on this machine with {toolkit}, or " if can_compile else ""}
        left = next(row for row in self._rows(cause, self.case.features | {_NO_BUILD, framework}) if _NO_BUILD in row.needs)
        command = _filled(left.command, {"python": self.stack.python}) if left.command is not None else None
        return Remedy(text=_filled(left.text, values) or text, command=command)


def is_answered(cause: str, case: Case) -> bool:
    """True if a log shows what the question of a cause asks for: the GPU, or wheels that have the libraries."""
    shown = {"lib_not_on_path": "cuda-wheel", "gpu_exclusive_mode": "vgpu-no-cuda"}.get(cause)
    return (cause in _OF_GPU and bool(case.context.capabilities)) or shown in case.features


def _in_conda(command: str, python: str) -> str:
    """The command for the conda environment of the log's interpreter, if it is one."""
    verb = re.match(r"conda (install|list) ", command)
    found = _CONDA_PYTHON.fullmatch(python) if verb is not None else None
    if found is None or verb is None:
        return command
    tool = "micromamba" if "/micromamba" in python else "conda"  # which comes without conda
    command = f"{tool} {verb[1]} -p {found[1]} {command[verb.end() :]}"
    return command.replace("=$CONDA_PREFIX", f"={found[1]}").replace("=%CONDA_PREFIX%", f"={found[1]}")


def _begun(every: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """Remove a leading "or" from the first remedy, whose predecessor may have been left out."""
    first = replace(every[0], text=re.sub(r"^(?:or,? )?(?:if this does not help, )?", "", every[0].text)) if every else None
    return every if first is None else (first, *every[1:])


def _filled(template: str, values: Mapping[str, str]) -> str | None:
    """Fill the fields of a command; None if one is unknown. Other braces (`$(…)`, `{{`) stay."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        return template
    if any(name is not None and name not in values for _, name, _, _ in parts):
        return None
    return "".join(text + (values[name] if name is not None else "") for text, name, _, _ in parts)
