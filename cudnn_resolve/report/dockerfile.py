"""Render a plan as a Dockerfile: a matching base image, and layers ordered by how rarely their content changes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from packaging.version import Version

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.distribution import CODENAMES, SYSTEM_PYTHON, glibc_of
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.planning.preload import preload_files
from cudnn_resolve.report.pins import comparison_program, folder_groups, groups
from cudnn_resolve.report.plan import header_comments
from cudnn_resolve.report.script import new_folder, python_minor, repository_commands
from cudnn_resolve.report.text import clean

_FOLDER = "/usr/local/share/cudnn-resolve"
_END = "CUDNN_RESOLVE_END"
_CODENAME = {release: CODENAMES[release] for release in ("debian11", "debian12", "debian13")}
"""Debian releases that the official Python images use."""
_SERVED = {release: python for release, python in SYSTEM_PYTHON.items() if release != "debian10"}
"""Python of the releases whose packages are still where their images look for them: those of Debian 10 have moved to its archive."""
_LIBRARIES = re.compile(r"(?:nvidia|triton|cuda)[-_a-z0-9.]*(?:==| @ )")


def render(plan: Plan) -> str:
    """Return the Dockerfile; raises InputError if no base image has both the Python and the system packages of the plan."""
    minor = python_minor(plan)
    if minor is None:
        raise InputError(
            "a Dockerfile needs a known Python version", code="dockerfile-python", hint="name one, for example --python-version 3.11"
        )
    platform = plan.facts.platform
    release = f"{platform.distribution}{platform.release}"
    needs_apt = any(step.kind in ("apt", "apt-repository") for step in plan.steps)
    lines = ["# syntax=docker/dockerfile:1", *header_comments(plan)]
    setup: list[str] = []
    if needs_apt or (release not in _CODENAME and _SERVED.get(release) == minor):
        base, setup = _system_base(plan, release, minor), [*_system_setup(plan, needs_apt=needs_apt)]
    else:
        base = f"python:{minor}-slim-{_debian_release(plan, release, minor)}"
        if platform.distribution and release not in _CODENAME:
            lines.append(f"# {clean(release)} has no Python {minor}, so the base is a Debian image that has it")
    lines += [
        f"FROM {base}",
        'SHELL ["/bin/bash", "-o", "pipefail", "-c"]',
        "ENV NVIDIA_VISIBLE_DEVICES=all \\",
        "    NVIDIA_DRIVER_CAPABILITIES=compute,utility \\",
        "    PIP_NO_CACHE_DIR=1 \\",
        "    PIP_DISABLE_PIP_VERSION_CHECK=1 \\",
        "    PIP_ROOT_USER_ACTION=ignore",
        *_host_requirements(plan),
        *setup,
        *_environment(plan),
        *_packages(plan),
        *_preload(plan),
        *(f"RUN python3 {clean(shlex.join(step.argv[1:]))}" for step in plan.steps if step.kind == "kernel" and step.argv),
        "",
        "# verify the result",
        *_heredoc(f"{_FOLDER}/look.py", comparison_program(plan).splitlines()),
        f"RUN python3 -I {_FOLDER}/look.py",
    ]
    return "\n".join(lines) + "\n"


def _environment(plan: Plan) -> list[str]:
    """The new environment of `--env`, whose Python all later instructions use."""
    folder = new_folder(plan)
    if folder is None or plan.facts.python.path != f"{folder}/bin/python":
        return []
    quoted = clean(shlex.quote(folder))
    return [f"RUN python3 -m venv {quoted}", f'ENV VIRTUAL_ENV={quoted} PATH="{clean(folder)}/bin:$PATH"']


def _host_requirements(plan: Plan) -> Iterator[str]:
    """Conditions that NVIDIA's container runtime checks before it starts the image, and a label with the same for readers."""
    stack = plan.stack
    if stack is None or not stack.driver_min:
        return
    driver = clean(stack.driver_min)
    branch = driver.partition(".")[0]  # the runtime compares branches, as in NVIDIA's own images
    requirements = [f'NVIDIA_REQUIRE_DRIVER="driver>={branch}"']
    if stack.cuda:
        major, _, minor = clean(stack.cuda).partition(".")
        # Minor-version compatibility, from CUDA 11 on: any driver of the same major runs it.
        oldest = f"{major}.0" if stack.driver_policy == "minor" and major.isdigit() and int(major) >= 11 else f"{major}.{minor or 0}"
        requirements.insert(0, f'NVIDIA_REQUIRE_CUDA="cuda>={oldest}"')
    yield "ENV " + " \\\n    ".join(requirements)
    yield f'LABEL com.nvidia.driver.minimum="{driver}"'


def _debian_release(plan: Plan, release: str, minor: str) -> str:
    """Debian codename of the base: the one in the facts, else one whose C library is new enough for the files of the plan."""
    if int(minor.partition(".")[2]) < 7:  # images of the oldest Pythons end with Debian 11
        return "bullseye"
    if release in _CODENAME:
        return _CODENAME[release]
    glibc = plan.facts.platform.glibc
    return "bookworm" if glibc is None or Version(glibc) <= Version(glibc_of("debian", "12") or "0") else "trixie"


def _system_base(plan: Plan, release: str, minor: str) -> str:
    """Image of the distribution itself; raises InputError unless its own Python is the one of the plan."""
    if _SERVED.get(release) != minor:
        raise InputError(
            f"the plan is for Python {minor} and installs system packages, but Python on {release} is "
            f"{_SERVED.get(release, 'of unknown version')}",
            code="dockerfile-base",
            hint="plan with --channel pip, or with the Python of that release",
        )
    platform = plan.facts.platform
    return f"debian:{_CODENAME[release]}-slim" if release in _CODENAME else f"{platform.distribution}:{platform.release}"


def _system_setup(plan: Plan, *, needs_apt: bool) -> Iterator[str]:
    """Instructions that install Python and the system packages of the plan."""
    yield from (
        "ENV DEBIAN_FRONTEND=noninteractive PIP_BREAK_SYSTEM_PACKAGES=1",
        "# the newest versions of the release; pinned packages follow below",
        "# hadolint ignore=DL3008",
        "RUN apt-get update \\",
        " && apt-get install -y --no-install-recommends ca-certificates curl gnupg python3 python3-pip \\",
        " && rm -rf /var/lib/apt/lists/*",
    )
    if not needs_apt:
        return
    commands = [command for step in plan.steps if step.repository is not None for command in repository_commands(step.repository)]
    commands.append("apt-get update")
    commands += [clean(shlex.join(step.argv)) for step in plan.steps if step.kind == "apt" and step.argv is not None]
    commands.append("rm -rf /var/lib/apt/lists/*")
    yield from ("# hadolint ignore=DL4001", "RUN " + " \\\n && ".join(commands))


def _packages(plan: Plan) -> Iterator[str]:
    """Layers from the rarest to the most frequent change: CUDA libraries, other packages, packages without a pin."""
    number = 0
    for group in groups(plan, fresh=True):
        libraries = [line for line in group.lines if _LIBRARIES.match(line)]
        others = [line for line in group.lines if not _LIBRARIES.match(line)]
        for title, lines in (("CUDA libraries, which change least often", libraries), ("frameworks and their dependencies", others)):
            if lines:
                number += 1
                path = f"{_FOLDER}/pins-{number}.txt"
                yield from ("", f"# {title}", *_heredoc(path, lines))
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
    yield ""  # parsers that predate here-documents need it
