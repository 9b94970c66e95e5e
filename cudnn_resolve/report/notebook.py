"""Render a plan as a notebook with a setup cell and a check cell; neither needs this program."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection
from typing import Any

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.planning.preload import folder_actions, preload_files
from cudnn_resolve.report.pins import comparison_program, folder_groups, groups
from cudnn_resolve.report.plan import machine_line
from cudnn_resolve.report.script import new_folder, python_minor, repository_commands
from cudnn_resolve.report.text import clean


def render(plan: Plan) -> str:
    """Return the notebook as nbformat 4.5 JSON."""
    folder = new_folder(plan) if plan.facts.sources.get("python") == "--env" else None
    setup = setup_cell(plan)
    check = comparison_program(plan) + "print('the environment matches the plan')\n"
    if folder is not None:
        command = [clean(word) for step in plan.steps if step.kind == "venv" for word in step.argv or () if word != "--seed"]
        setup = _NEW_ENVIRONMENT.format(python=f"{folder}/bin/python", command=command, setup=setup)
        magic = f"%%script {clean(shlex.quote(folder))}/bin/python -u"
        check = f"{magic}\n# cells that begin with the line above run in the new environment\n{check}"
    book = {
        "cells": [_cell("markdown", "about", _about(plan)), _cell("code", "setup", setup), _cell("code", "look", check)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


_NEW_ENVIRONMENT = """import os, subprocess, sys

PYTHON = {python!r}
SETUP = {setup!r}
if not os.path.exists(PYTHON):
    command = {command!r}
    if command[0] == "uv":
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "uv"], check=True)
        command = [sys.executable, "-m", "uv", "venv", "-q", "--seed", *command[2:]]
    subprocess.run(command, check=True)
done = subprocess.run([PYTHON, "-u", "-c", SETUP], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(done.stdout)
if done.returncode:
    raise SystemExit("setup failed; the kernel's own environment was not changed")
"""
"""The cell that creates an environment and sets it up, leaving the kernel's own Python alone."""


def _cell(kind: str, name: str, text: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "id": name, "metadata": {}, "source": text.rstrip("\n").splitlines(keepends=True)}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell


def _about(plan: Plan) -> str:
    lines = [f"# {clean(', '.join(plan.targets))}", "", f"For {machine_line(plan)}."]
    if plan.stack and plan.stack.driver_min:
        lines += ["", f"Needs NVIDIA driver {plan.stack.driver_min} or newer."]
    lines += [f"- {clean(warning.message)}" for warning in plan.warnings]
    if plan.facts.container == "colab":
        text = (
            "On Colab, first choose a GPU under *Runtime > Change runtime type*. At the start of a session none of these packages has been "
            "imported yet. If the first cell asks for a restart, use *Runtime > Restart session*, which keeps the installed packages. "
            "A new session starts from the original image, so run the first cell again."
        )
        lines += ["", text]
    lines += ["", "Run the first cell. If it asks you to, restart the kernel and run it again; the second run changes nothing."]
    return "\n".join(lines)


def setup_cell(plan: Plan) -> str:
    """Source of the cell that checks the driver, installs hashed pins with the kernel's own pip, and says if a restart is needed."""
    separate = zip(folder_actions(plan.environment), folder_groups(plan), strict=False)
    values = {
        "MINOR": python_minor(plan),
        "DRIVER": plan.stack.driver_min if plan.stack else None,
        "PACKAGES": [[list(group.options), list(group.lines)] for group in groups(plan, fresh=True)],
        "PINS": {action.name: action.version for action in plan.pip if action.action != "remove"},
        "REMOVE": sorted(action.name for action in plan.pip if action.action == "remove"),
        "UNPINNED": list(plan.left_open),
        "FILES": preload_files(plan.environment),
        "SEPARATE": [[action.pin, list(group.options), list(group.lines)] for action, group in separate],
        "REPOSITORIES": [" && ".join(repository_commands(step.repository)) for step in plan.steps if step.repository is not None],
        "APT": [list(step.argv) for step in plan.steps if step.kind == "apt" and step.argv is not None],
    }
    needed = {name for name, value in values.items() if value} | {"PINS"}
    head = "".join(f"{name} = {value!r}\n" for name, value in values.items() if name in needed)
    restart = " (Runtime > Restart session)" if plan.facts.container == "colab" else ""
    return f"{head}\n{program_for(needed).replace('FOLDER', FOLDER).replace('HOW', restart)}"


def program_for(needed: Collection[str]) -> str:
    """The cell's program without the parts for other values than those named, so that readers see no idle code."""
    lines, is_needed = [], True
    for line in _SETUP.splitlines(keepends=True):
        mark = _PART.fullmatch(line)
        if mark is not None:
            is_needed = not mark[1] or not set(mark[1].split()).isdisjoint(needed)
        elif is_needed:
            lines.append(line)
    return "".join(lines)


_PART = re.compile(r"#:([A-Z ]*)\n")
"""Begins a part of `_SETUP` that is for the values of these names; without names, a part that is always present."""
_SETUP = """import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import PackageNotFoundError, distribution, distributions, version


def installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    if done.returncode:
        print(done.stdout[-4000:])
        raise SystemExit("failed: " + " ".join(words[:6]))


#:DRIVER
def driver_version():
    try:
        with open(os.environ.get("NVIDIA_VERSION_FILE", "/proc/driver/nvidia/version")) as file:
            text = file.read()
    except OSError:
        try:
            text = "Module " + subprocess.run(
                ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], stdout=subprocess.PIPE, universal_newlines=True
            ).stdout
        except OSError:
            text = ""
    found = re.search(r"Module\\D* (\\d+(?:\\.\\d+)+)", text)
    return found.group(1) if found else None


def numbers(text):
    return [int(part) for part in text.split(".")]


#:
def in_use(name):
    # Has this kernel imported modules of the package, or mapped its libraries?
    try:
        files = distribution(name).files or ()
    except PackageNotFoundError:
        return False
    for file in files:
        top = file.parts[0] if file.parts else ""
        module = top[:-3] if top.endswith(".py") else top
        # Many packages share a folder such as `nvidia`: there only the libraries count.
        if module in sys.modules and (len(file.parts) == 1 or file.parts[1] == "__init__.py"):
            return True
        if ".so" in file.name and os.path.realpath(str(file.locate())) in mapped:
            return True
    return False


#:DRIVER
driver = driver_version()
if driver is None:
    print("no NVIDIA driver was found here; the plan needs %s or newer" % DRIVER)
elif numbers(driver) < numbers(DRIVER):
    raise SystemExit("the NVIDIA driver is %s; the plan needs %s or newer" % (driver, DRIVER))
#:MINOR
if MINOR != "%d.%d" % sys.version_info[:2]:
    raise SystemExit("this kernel is Python %d.%d; the plan is for %s" % (sys.version_info[0], sys.version_info[1], MINOR))
#:
changed = [name for name, wanted in PINS.items() if installed(name) != wanted]
#:REMOVE
changed += [name for name in REMOVE if installed(name)]
#:SEPARATE FILES
folder = sysconfig.get_paths()["purelib"]
#:SEPARATE
separate = os.path.join(folder, "FOLDER")
present = {(dist.metadata["Name"], dist.version) for dist in distributions(path=[separate])}
missing = [(pin, options, lines) for pin, options, lines in SEPARATE if tuple(pin.split("==")) not in present]
changed += [pin for pin, _, _ in missing]
#:FILES
for name, text in FILES.items():
    path = os.path.join(folder, name)
    if not os.path.exists(path) or open(path).read() != text:
        with open(path, "w") as file:
            file.write(text)
        changed.append(name)
#:
if not changed:
    print("nothing to do: the environment already matches the plan")
else:
    try:
        with open("/proc/self/maps") as file:
            mapped = {line.split(None, 5)[5].rstrip("\\n") for line in file if line.count(" /")}
    except OSError:
        mapped = set()
    loaded = [name for name in changed if in_use(name)]  # before their files are replaced
#:APT REPOSITORIES
    sudo = [] if os.geteuid() == 0 else ["sudo"]
#:REPOSITORIES
    for commands in REPOSITORIES:
        run(*sudo, "sh", "-c", commands)
        run(*sudo, "apt-get", "update")
#:APT
    for words in APT:
        run(*sudo, *words)
#:REMOVE
    if any(installed(name) for name in REMOVE):
        run(sys.executable, "-m", "pip", "uninstall", "-y", *REMOVE)
#:PACKAGES
    for options, lines in PACKAGES:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
            file.write("\\n".join(lines) + "\\n")
        run(sys.executable, "-m", "pip", "install", "-q", *options, "-r", file.name)
        os.unlink(file.name)
#:UNPINNED
    run(sys.executable, "-m", "pip", "install", "-q", *UNPINNED)
#:SEPARATE
    for _, options, lines in missing:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
            file.write("\\n".join(lines) + "\\n")
        run(sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", separate, *options, "-r", file.name)
        os.unlink(file.name)
#:
    print("done: %d package%s changed" % (len(changed), "" if len(changed) == 1 else "s"))
    if loaded:
        print("RESTART the kernelHOW: it has already loaded %s and keeps using the old version until then" % ", ".join(loaded))
"""
