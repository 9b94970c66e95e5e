"""A plan as a Dockerfile: a base that fits, and layers that change as rarely as what is in them."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from cudnn_resolve.errors import InputError
from cudnn_resolve.planning.preload import MODULE, preload_pth, preload_source
from cudnn_resolve.planning.step import left_open
from cudnn_resolve.report.pins import Group, groups, looks
from cudnn_resolve.report.plan import machine_line
from cudnn_resolve.report.script import python_minor, repository_commands
from cudnn_resolve.report.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudnn_resolve.planning.model import Plan

_FOLDER = "/usr/local/share/cudnn-resolve"
_END = "CUDNN_RESOLVE_END"
_SYSTEM_PYTHON = {
    "ubuntu18.04": "3.6",
    "ubuntu20.04": "3.8",
    "ubuntu22.04": "3.10",
    "ubuntu24.04": "3.12",
    "debian11": "3.9",
    "debian12": "3.11",
    "debian13": "3.13",
}
"""Python of each release: its package python3."""
_CODENAME = {"debian11": "bullseye", "debian12": "bookworm", "debian13": "trixie"}
_LIBRARIES = re.compile(r"(?:nvidia|triton|cuda)[-_a-z0-9.]*(?:==| @ )")


def render(plan: Plan) -> str:
    """The Dockerfile; InputError where no base has both this Python and these packages of the system."""
    minor = python_minor(plan)
    if minor is None:
        raise InputError("the plan is for no known Python", code="dockerfile-python", hint="say --python-version 3.11")
    apt = [one for one in plan.steps if one.kind in ("apt", "apt-repository")]
    base, setup = _system_base(plan, minor) if apt else (f"python:{minor}-slim-{_release(minor)}", [])
    lines = [
        "# syntax=docker/dockerfile:1",
        f"# {clean(', '.join(plan.targets))}",
        f"# for {machine_line(plan)}",
        *(f"# {clean(one.message)}" for one in plan.warnings),
        f"FROM {base}",
        'SHELL ["/bin/bash", "-o", "pipefail", "-c"]',
        "ENV NVIDIA_VISIBLE_DEVICES=all \\",
        "    NVIDIA_DRIVER_CAPABILITIES=compute,utility \\",
        "    PIP_NO_CACHE_DIR=1 \\",
        "    PIP_DISABLE_PIP_VERSION_CHECK=1 \\",
        "    PIP_ROOT_USER_ACTION=ignore",
    ]
    if plan.stack and plan.stack.driver_min:
        lines.append(f'LABEL com.nvidia.driver.minimum="{clean(plan.stack.driver_min)}"')
    lines += setup
    lines += _pip(plan)
    lines += _preload(plan)
    lines += ["", "# is everything as planned", *_heredoc(f"{_FOLDER}/look.py", looks(plan).rstrip().split("\n"))]
    lines.append(f"RUN python3 -I {_FOLDER}/look.py")
    return "\n".join(lines) + "\n"


def _release(minor: str) -> str:
    """The Debian on which images of this Python are made; the oldest ones end with Debian 11."""
    return "bullseye" if int(minor.partition(".")[2]) < 7 else "bookworm"


def _system_base(plan: Plan, minor: str) -> tuple[str, list[str]]:
    platform = plan.facts.platform
    name = f"{platform.distribution}{platform.release}"
    if _SYSTEM_PYTHON.get(name) != minor:
        raise InputError(
            f"{name} has the packages of the system and Python {_SYSTEM_PYTHON.get(name, 'unknown')}, and the plan is for {minor}",
            code="dockerfile-base",
            hint="plan with --channel pip, or with the Python of that release",
        )
    base = f"debian:{_CODENAME[name]}-slim" if name in _CODENAME else f"{platform.distribution}:{platform.release}"
    lines = [
        "ENV DEBIAN_FRONTEND=noninteractive PIP_BREAK_SYSTEM_PACKAGES=1",
        "RUN apt-get update \\",
        " && apt-get install -y --no-install-recommends ca-certificates curl gnupg python3 python3-pip \\",
        " && rm -rf /var/lib/apt/lists/*",
    ]
    commands = []
    for step in plan.steps:
        if step.repository is not None:
            commands += repository_commands(step.repository)
    commands.append("apt-get update")
    commands += [clean(shlex.join(step.argv)) for step in plan.steps if step.kind == "apt" and step.argv is not None]
    commands.append("rm -rf /var/lib/apt/lists/*")
    lines.append("RUN " + " \\\n && ".join(commands))
    return base, lines


def _pip(plan: Plan) -> Iterator[str]:
    """Layers in the order in which they change: the libraries, the rest, what the installer chooses."""
    number = 0
    for group in groups(plan, kept=True):
        libraries = tuple(line for line in group.lines if _LIBRARIES.match(line))
        rest = tuple(line for line in group.lines if line not in libraries)
        for what, lines in (("the CUDA libraries, which change least", libraries), ("the frameworks and what they need", rest)):
            if lines:
                number += 1
                yield from ("", f"# {what}", *_layer(group, lines, number))
    if plan.unpinned:
        yield f"RUN python3 -m pip install {shlex.join(clean(line) for line in left_open(plan))}"


def _layer(group: Group, lines: tuple[str, ...], number: int) -> Iterator[str]:
    path = f"{_FOLDER}/pins-{number}.txt"
    yield from _heredoc(path, list(lines))
    yield f"RUN python3 -m pip install {clean(shlex.join(group.options))} -r {path}"


def _preload(plan: Plan) -> Iterator[str]:
    entry = next((one for one in plan.environment if one.kind == "preload"), None)
    if entry is None:
        return
    source = preload_source(tuple(entry.value.split())).rstrip("\n")
    yield from ("", "# libraries that a framework does not find by itself", *_heredoc(f"{_FOLDER}/{MODULE}.py", source.split("\n")))
    site = "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()[\"purelib\"])')"
    yield f"RUN cp {_FOLDER}/{MODULE}.py {site}/ && echo {shlex.quote(preload_pth().strip())} > {site}/{MODULE}.pth"


def _heredoc(path: str, lines: list[str]) -> Iterator[str]:
    yield f"COPY <<'{_END}' {path}"
    yield from lines
    yield _END
