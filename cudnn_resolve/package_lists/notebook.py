"""Simulate what the cells of a notebook install, in their order; nothing is executed."""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from cudnn_resolve.matrix.toml import texts
from cudnn_resolve.package_lists.install_lines import SimulatedInstalls
from cudnn_resolve.package_lists.model import ListedPackage, ReadContext, dicts
from cudnn_resolve.package_lists.shell_lines import LONGEST_TEXT, could_install, note_settings, run_line

_MAGIC = re.compile(r"\s*(?:!{1,2}|%)\s*(?:(?:shell|sx|system)\s+)?(\S.*)|\s*((?:pip|conda|mamba)\s+(?:install|uninstall)\s.*)")
_CALL = re.compile(r"[\"']pip3?[\"']\s*,\s*[\"']install[\"']")
_MENTION = re.compile(r"\s*(?:#.*|raise\b.*|print\(\s*f?(?:\"[^\"']*\"|'[^\"']*')\s*\)\s*)")
"""A line of Python that mentions an installer, but runs none."""
_SHELL_CELL = re.compile(r"%%(?:bash|sh|script\s+(?:ba)?sh|shell|capture)\b")
_RUNNERS = frozenset({"system", "popen", "getoutput", "getstatusoutput", "run", "call", "check_call", "check_output", "Popen"})
"""Functions of os, subprocess and IPython that run their first argument."""
_LONGEST_CALL = 5000


def read_notebook(found: dict[str, Any], context: ReadContext) -> Iterator[ListedPackage]:
    """Packages that the cells of a notebook install, in their order."""
    installs = SimulatedInstalls(context)
    left = LONGEST_TEXT
    for cell in dicts(found.get("cells")) or [cell for sheet in dicts(found.get("worksheets")) for cell in dicts(sheet.get("cells"))]:
        if cell.get("cell_type") != "code":
            continue
        text = _source(cell)
        lines = re.sub(r"\\[ \t]*\n", " ", text).split("\n")
        while lines and (not lines[0].strip() or lines[0].startswith("#")):  # a title in Colab
            lines.pop(0)
        is_shell = bool(lines) and _SHELL_CELL.match(lines[0]) is not None and "capture" not in lines[0]
        for line in lines[1:] if is_shell else lines:
            magic = None if is_shell else _MAGIC.fullmatch(line)
            if is_shell or magic is not None:
                command = line if magic is None else magic[1] or magic[2]
                left -= len(command)
                if left >= 0:
                    run_line(command, installs, None)
                else:
                    context.gap(f"not followed: shell lines beyond {LONGEST_TEXT} characters")
            else:
                note_settings(line, context)
                if could_install(line) and not _MENTION.fullmatch(line):
                    _run_python(line, installs)
        if (call := _CALL.search(text)) and "\n" in call[0]:
            context.gap(f"not followed: {' '.join(call[0].split())[:80]}")
    context.partial = True
    context.note("a notebook also uses what is installed on its machine: `check --facts` judges that")
    yield from installs.packages()


def _source(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", cell.get("input"))
    return "".join(texts(source)) if isinstance(source, list) else str(source or "")


def _run_python(line: str, installs: SimulatedInstalls) -> None:
    commands = _commands(line)
    for command in commands:
        run_line(command, installs, None)
    if not commands:
        installs.context.gap(f"not followed: {line.strip()[:80]}")


def _commands(line: str) -> list[str]:
    """The commands that a line of Python runs, such as `os.system("pip install ...")`, with `{value}` for anything but literals."""
    if len(line) > _LONGEST_CALL:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calls = [node for node in ast.walk(ast.parse(line.strip())) if isinstance(node, ast.Call) and node.args]
        return [_command(call.args[0]) for call in calls if getattr(call.func, "attr", getattr(call.func, "id", None)) in _RUNNERS]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _command(value: ast.expr) -> str:
    """A command as a shell would receive it."""
    if isinstance(value, (ast.List, ast.Tuple)):
        words = ("python" if getattr(item, "attr", None) == "executable" else _literal(item) for item in value.elts)
        return shlex.join(words).replace("'{value}'", "{value}")
    return _literal(value)


def _literal(value: ast.expr) -> str:
    """A string expression, with `{value}` for each part that is not a literal."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.JoinedStr):
        return "".join(map(_literal, value.values))
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _literal(value.left) + _literal(value.right)
    return "{value}"
