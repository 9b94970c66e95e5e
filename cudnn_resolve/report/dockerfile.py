"""A plan as a Dockerfile: a base that fits, and layers that change as rarely as what is in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.planning.preload import preload_files
from cudnn_resolve.report.pins import folder_groups, groups, looks
from cudnn_resolve.report.plan import machine_line
from cudnn_resolve.report.script import new_folder, python_minor, repository_commands
from cudnn_resolve.report.text import clean

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
_GLIBC = {"bullseye": (2, 31), "bookworm": (2, 36), "trixie": (2, 41)}
"""C library of each Debian on which images of Python are made."""
_LIBRARIES = re.compile(r"(?:nvidia|triton|cuda)[-_a-z0-9.]*(?:==| @ )")


def render(plan: Plan) -> str:
    """The Dockerfile; InputError where no base has both this Python and these packages of the system."""
    minor = python_minor(plan)
    if minor is None:
        raise InputError("the plan is for no known Python", code="dockerfile-python", hint="say --python-version 3.11")
    apt = [one for one in plan.steps if one.kind in ("apt", "apt-repository")]
    name = f"{plan.facts.platform.distribution}{plan.facts.platform.release}"
    on_system = bool(apt) or (name not in _CODENAME and _SYSTEM_PYTHON.get(name) == minor)
    base, setup = _system_base(plan, minor) if on_system else (f"python:{minor}-slim-{_release(plan, minor)}", [])
    stated = plan.facts.platform.distribution
    beside = (
        [] if on_system or not stated or name in _CODENAME else [f"# {clean(name)} has no Python {minor}: the base is a Debian that has"]
    )
    lines = [
        "# syntax=docker/dockerfile:1",
        f"# {clean(', '.join(plan.targets))}",
        f"# for {machine_line(plan)}",
        *(f"# {clean(one.message)}" for one in plan.warnings),
        *beside,
        f"FROM {base}",
        'SHELL ["/bin/bash", "-o", "pipefail", "-c"]',
        "ENV NVIDIA_VISIBLE_DEVICES=all \\",
        "    NVIDIA_DRIVER_CAPABILITIES=compute,utility \\",
        "    PIP_NO_CACHE_DIR=1 \\",
        "    PIP_DISABLE_PIP_VERSION_CHECK=1 \\",
        "    PIP_ROOT_USER_ACTION=ignore",
        *_required(plan),
    ]
    lines += setup
    lines += _environment(plan)
    lines += _pip(plan)
    lines += _preload(plan)
    lines += [f"RUN python3 {clean(shlex.join(one.argv[1:]))}" for one in plan.steps if one.kind == "kernel" and one.argv]
    lines += ["", "# is everything as planned", *_heredoc(f"{_FOLDER}/look.py", looks(plan).rstrip().split("\n"))]
    lines.append(f"RUN python3 -I {_FOLDER}/look.py")
    return "\n".join(lines) + "\n"


def _environment(plan: Plan) -> list[str]:
    """The new environment of `--env`, which is then the Python of all that follows."""
    folder = new_folder(plan)
    if folder is None or plan.facts.python.path != f"{folder}/bin/python":
        return []
    place = clean(shlex.quote(folder))
    return [f"RUN python3 -m venv {place}", f'ENV VIRTUAL_ENV={place} PATH="{clean(folder)}/bin:$PATH"']


def _required(plan: Plan) -> Iterator[str]:
    """What NVIDIA's container runtime holds the host against before it starts the image, and the same for readers."""
    stack = plan.stack
    if stack is None or not stack.driver_min:
        return
    driver = clean(stack.driver_min)
    major = driver.partition(".")[0]  # the runtime compares branches, as in NVIDIA's own images
    requirements = [f'NVIDIA_REQUIRE_DRIVER="driver>={major}"']
    if stack.cuda:
        line, _, point = clean(stack.cuda).partition(".")
        # By minor-version compatibility, which begins with CUDA 11, a driver of the same major runs it.
        least = f"{line}.0" if stack.driver_policy == "minor" and line.isdigit() and int(line) >= 11 else f"{line}.{point or 0}"
        requirements.insert(0, f'NVIDIA_REQUIRE_CUDA="cuda>={least}"')
    yield "ENV " + " \\\n    ".join(requirements)
    yield f'LABEL com.nvidia.driver.minimum="{driver}"'


def _release(plan: Plan, minor: str) -> str:
    """The Debian of the base: the one that is asked for, else one with a C library that is new enough for the files of the plan."""
    platform = plan.facts.platform
    named = _CODENAME.get(f"{platform.distribution}{platform.release}")
    if int(minor.partition(".")[2]) < 7:  # images of the oldest Pythons end with Debian 11
        return "bullseye"
    glibc = tuple(int(part) for part in (platform.glibc or "2.36").split(".")[:2])
    return named or ("bookworm" if glibc <= _GLIBC["bookworm"] else "trixie")


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
        "# the newest of the release: what is pinned stands below",
        "# hadolint ignore=DL3008",
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
    if not any(step.kind in ("apt", "apt-repository") for step in plan.steps):
        return base, lines
    lines += ["# hadolint ignore=DL4001", "RUN " + " \\\n && ".join(commands)]
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
                path = f"{_FOLDER}/pins-{number}.txt"
                yield from ("", f"# {what}", *_heredoc(path, list(lines)))
                yield f"RUN python3 -m pip install {clean(shlex.join(group.options))} -r {path}"
    if plan.unpinned:
        yield f"RUN python3 -m pip install {shlex.join(clean(line) for line in plan.left_open)}"


def _preload(plan: Plan) -> Iterator[str]:
    files = preload_files(plan.environment)
    if not files:
        return
    site = "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()[\"purelib\"])')"
    yield from ("", "# libraries that a framework does not find by itself")
    for number, group in enumerate(folder_groups(plan), 1):
        path = f"{_FOLDER}/folder-{number}.txt"
        yield from _heredoc(path, list(group.lines))
        options = clean(shlex.join(group.options))
        yield f'RUN site="{site}" && python3 -m pip install --target "$site/{FOLDER}" {options} -r {path}'
    for name, text in files.items():
        yield from _heredoc(f"{_FOLDER}/{name}", text.rstrip("\n").split("\n"))
    yield f'RUN site="{site}" && cp {" ".join(f"{_FOLDER}/{name}" for name in files)} "$site/"'


def _heredoc(path: str, lines: list[str]) -> Iterator[str]:
    yield f"COPY <<'{_END}' {path}"
    yield from lines
    yield _END
    yield ""  # what reads Dockerfiles as they were before here-documents wants it
