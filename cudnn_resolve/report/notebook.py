"""A plan as a notebook: a cell that sets the environment up, and one that looks at it; neither needs this program."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection
from typing import Any

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.planning.preload import folder_actions, preload_files
from cudnn_resolve.report.pins import folder_groups, groups, looks
from cudnn_resolve.report.plan import machine_line
from cudnn_resolve.report.script import new_folder, python_minor, repository_commands
from cudnn_resolve.report.text import clean


def render(plan: Plan) -> str:
    """The notebook as nbformat 4.5 JSON."""
    folder = new_folder(plan) if plan.facts.sources.get("python") == "--env" else None
    look = looks(plan) + "print('the environment is as planned')\n"
    cells = [_cell("markdown", "about", _about(plan))]
    if folder is None:
        cells += [_cell("code", "setup", setup_cell(plan)), _cell("code", "look", look)]
    else:
        words = [clean(word) for step in plan.steps if step.kind == "venv" for word in step.argv or () if word != "--seed"]
        made = _NEW.format(python=f"{folder}/bin/python", words=words, setup=setup_cell(plan))
        inside = f"%%script {clean(shlex.quote(folder))}/bin/python -u\n"
        cells += [_cell("code", "setup", made), _cell("code", "look", f"{inside}# cells that begin so run in the new environment\n{look}")]
    book = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


_NEW = """import os, subprocess, sys

PYTHON = {python!r}
SETUP = {setup!r}
if not os.path.exists(PYTHON):
    make = {words!r}
    if make[0] == "uv":
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "uv"], check=True)
        make = [sys.executable, "-m", "uv", "venv", "-q", "--seed", *make[2:]]
    subprocess.run(make, check=True)
done = subprocess.run([PYTHON, "-u", "-c", SETUP], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(done.stdout)
if done.returncode:
    raise SystemExit("failed: nothing of the kernel itself was changed")
"""
"""The cell that makes an environment and sets it up: the kernel's own Python stays as it is."""


def _cell(kind: str, name: str, text: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "id": name, "metadata": {}, "source": text.rstrip("\n").splitlines(keepends=True)}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell


def _about(plan: Plan) -> str:
    lines = [f"# {clean(', '.join(plan.targets))}", "", f"For {machine_line(plan)}."]
    if plan.stack and plan.stack.driver_min:
        lines += ["", f"Needs NVIDIA driver {plan.stack.driver_min} or newer."]
    lines += [f"- {clean(one.message)}" for one in plan.warnings]
    if plan.facts.container == "colab":
        lines += ["", "On Colab: choose a GPU under *Runtime > Change runtime type* first. The image has imported none of these packages"]
        lines[-1] += " when a session begins; where the first cell asks for a restart, take *Runtime > Restart session*, which keeps"
        lines[-1] += " what was installed. A new session starts from the image again, and needs the first cell again."
    lines += ["", "Run the first cell; where it asks for it, restart the kernel and run it again. The second time it changes nothing."]
    return "\n".join(lines)


def setup_cell(plan: Plan) -> str:
    """The source of the cell: checks the driver, installs pins with hashes by the kernel's own pip, says where a restart is needed."""
    apart = list(zip(folder_actions(plan.environment), folder_groups(plan), strict=False))
    packages = [[list(group.options), list(group.lines)] for group in groups(plan, kept=True)]
    apt = [list(one.argv) for one in plan.steps if one.kind == "apt" and one.argv is not None]
    repositories = [repository_commands(one.repository) for one in plan.steps if one.repository is not None]
    values = {
        "MINOR": python_minor(plan),
        "DRIVER": plan.stack.driver_min if plan.stack else None,
        "PACKAGES": packages,
        "PINS": {one.name: one.version for one in plan.pip if one.action != "remove"},
        "REMOVE": sorted(one.name for one in plan.pip if one.action == "remove"),
        "FREE": list(plan.left_open),
        "FILES": preload_files(plan.environment),
        "APART": [[one.pin, list(group.options), list(group.lines)] for one, group in apart],
        "REPOSITORIES": [" && ".join(commands) for commands in repositories],
        "APT": apt,
    }
    how = " (Runtime > Restart session)" if plan.facts.container == "colab" else ""
    needed = {name for name, value in values.items() if value} | {"PINS"}
    head = "".join(f"{name} = {value!r}\n" for name, value in values.items() if name in needed)
    return f"{head}\n{program_for(needed).replace('FOLDER', FOLDER).replace('HOW', how)}"


def program_for(needed: Collection[str]) -> str:
    """The program of the cell with the parts alone that these values are for: each is shown to a reader, who should meet nothing idle."""
    out, wanted = [], True
    for line in _SETUP.splitlines(keepends=True):
        mark = _PART.fullmatch(line)
        if mark is not None:
            wanted = not mark[1] or bool(set(mark[1].split()) & set(needed))
        elif wanted:
            out.append(line)
    return "".join(out)


_PART = re.compile(r"#:([A-Z ]*)\n")
"""A line before what the values of these names are for; without names, for what is always there."""
_SETUP = """import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import PackageNotFoundError, distribution, distributions, version


def here(name):
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
def driver():
    try:
        with open(os.environ.get("NVIDIA_VERSION_FILE", "/proc/driver/nvidia/version")) as file:
            said = file.read()
    except OSError:
        try:
            said = "Module " + subprocess.run(
                ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], stdout=subprocess.PIPE, universal_newlines=True
            ).stdout
        except OSError:
            said = ""
    found = re.search(r"Module\\D* (\\d+(?:\\.\\d+)+)", said)
    return found.group(1) if found else None


def numbers(text):
    return [int(part) for part in text.split(".")]


#:
def in_use(name):
    # What this kernel has of a package: its modules that are imported, and its libraries that are mapped.
    try:
        files = distribution(name).files or ()
    except PackageNotFoundError:
        return False
    for file in files:
        top = file.parts[0] if file.parts else ""
        module = top[:-3] if top.endswith(".py") else top
        # A folder such as `nvidia` is shared by many packages: there the library counts.
        if module in sys.modules and (len(file.parts) == 1 or file.parts[1] == "__init__.py"):
            return True
        if ".so" in file.name and os.path.realpath(str(file.locate())) in mapped:
            return True
    return False


#:DRIVER
there = driver()
if there is None:
    print("no NVIDIA driver is seen here: the plan needs %s or newer" % DRIVER)
elif numbers(there) < numbers(DRIVER):
    raise SystemExit("the NVIDIA driver is %s; the plan needs %s or newer" % (there, DRIVER))
#:MINOR
if MINOR != "%d.%d" % sys.version_info[:2]:
    raise SystemExit("this kernel is Python %d.%d; the plan is for %s" % (sys.version_info[0], sys.version_info[1], MINOR))
#:
changed = [name for name, wanted in PINS.items() if here(name) != wanted]
#:REMOVE
changed += [name for name in REMOVE if here(name)]
#:APART FILES
folder = sysconfig.get_paths()["purelib"]
#:APART
apart = os.path.join(folder, "FOLDER")
there = {(one.metadata["Name"], one.version) for one in distributions(path=[apart])}
missing = [(name, options, lines) for name, options, lines in APART if tuple(name.split("==")) not in there]
changed += [name for name, _, _ in missing]
#:FILES
for name, text in FILES.items():
    path = os.path.join(folder, name)
    if not os.path.exists(path) or open(path).read() != text:
        with open(path, "w") as file:
            file.write(text)
        changed.append(name)
#:
if not changed:
    print("nothing to do: the environment is as planned")
else:
    try:
        with open("/proc/self/maps") as file:
            mapped = {line.split(None, 5)[5].rstrip("\\n") for line in file if line.count(" /")}
    except OSError:
        mapped = set()
    loaded = [name for name in changed if in_use(name)]  # before their files move
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
    if any(here(name) for name in REMOVE):
        run(sys.executable, "-m", "pip", "uninstall", "-y", *REMOVE)
#:PACKAGES
    for options, lines in PACKAGES:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
            file.write("\\n".join(lines) + "\\n")
        run(sys.executable, "-m", "pip", "install", "-q", *options, "-r", file.name)
        os.unlink(file.name)
#:FREE
    run(sys.executable, "-m", "pip", "install", "-q", *FREE)
#:APART
    for _, options, lines in missing:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
            file.write("\\n".join(lines) + "\\n")
        run(sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", apart, *options, "-r", file.name)
        os.unlink(file.name)
#:
    print("done: %d package%s changed" % (len(changed), "" if len(changed) == 1 else "s"))
    if loaded:
        print("RESTART the kernelHOW: it has loaded %s already and keeps the old one until then" % ", ".join(loaded))
"""
