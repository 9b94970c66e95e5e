"""What the cells of a notebook install, in their order; nothing is run."""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Iterator
from typing import Any

from cudnn_resolve.locking.install_lines import Installs
from cudnn_resolve.locking.listing import Listed, Reading, dicts
from cudnn_resolve.locking.shell_lines import LONGEST_TEXT, could_install, run_line, take_settings
from cudnn_resolve.matrix.toml import texts

_MAGIC = re.compile(r"\s*(?:!{1,2}|%)\s*(?:(?:shell|sx|system)\s+)?(\S.*)|\s*((?:pip|conda|mamba)\s+(?:install|uninstall)\s.*)")
_CALL = re.compile(r"[\"']pip3?[\"']\s*,\s*[\"']install[\"']")
_SAID = re.compile(r"\s*(?:#.*|raise\b.*|print\(\s*f?(?:\"[^\"']*\"|'[^\"']*')\s*\)\s*)")
"""A line of Python that names an installer and runs none."""
_SHELL_CELL = re.compile(r"%%(?:bash|sh|script\s+(?:ba)?sh|shell|capture)\b")


def read_notebook(found: dict[str, Any], reading: Reading) -> Iterator[Listed]:
    """What the cells of a notebook install, in their order."""
    installs = Installs(reading)
    left = LONGEST_TEXT
    for cell in dicts(found.get("cells")) or [one for sheet in dicts(found.get("worksheets")) for one in dicts(sheet.get("cells"))]:
        if cell.get("cell_type") != "code":
            continue
        source = cell.get("source", cell.get("input"))
        text = "".join(texts(source)) if isinstance(source, list) else str(source or "")
        lines = _joined(text)
        while lines and (not lines[0].strip() or lines[0].startswith("#")):  # a title in Colab
            lines.pop(0)
        in_shell = bool(lines) and _SHELL_CELL.match(lines[0]) is not None and "capture" not in lines[0]
        for line in lines[1:] if in_shell else lines:
            magic = None if in_shell else _MAGIC.fullmatch(line)
            if in_shell or magic is not None:
                command = line if magic is None else magic[1] or magic[2]
                left -= len(command)
                if left >= 0:
                    run_line(command, installs, None)
                else:
                    reading.gap(f"not followed: lines of a shell after {LONGEST_TEXT} characters of them")
            else:
                take_settings(line, reading)
                if could_install(line) and not _SAID.fullmatch(line):
                    _python(line, installs)
        if (found_call := _CALL.search(text)) and "\n" in found_call[0]:
            reading.gap(f"not followed: {' '.join(found_call[0].split())[:80]}")
    reading.partial = True
    reading.note("a notebook runs on what its machine has already: `check --facts` judges that")
    yield from installs.rows()


def _python(line: str, installs: Installs) -> None:
    """Carry out what a line of Python has a shell install."""
    commands = _called(line)
    for command in commands:
        run_line(command, installs, None)
    if not commands:
        installs.reading.gap(f"not followed: {line.strip()[:80]}")


_SYSTEM = frozenset({"system", "popen", "getoutput", "getstatusoutput", "run", "call", "check_call", "check_output", "Popen"})
"""Functions of os, subprocess and IPython that run what they are given first."""
_LONGEST_CALL = 5000


def _called(line: str) -> list[str]:
    """The commands that a line of Python runs, `os.system("pip install ...")`; what is not written there stands as `{value}`."""
    if len(line) > _LONGEST_CALL:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calls = [one for one in ast.walk(ast.parse(line.strip())) if isinstance(one, ast.Call) and one.args]
        return [_command(one.args[0]) for one in calls if getattr(one.func, "attr", getattr(one.func, "id", None)) in _SYSTEM]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _command(value: ast.expr) -> str:
    """A command as a shell would be given it."""
    if isinstance(value, (ast.List, ast.Tuple)):
        words = ("python" if getattr(one, "attr", None) == "executable" else _literal(one) for one in value.elts)
        return shlex.join(words).replace("'{value}'", "{value}")
    return _literal(value)


def _literal(value: ast.expr) -> str:
    """A text of Python, with a mark for each part that is no text."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.JoinedStr):
        return "".join(map(_literal, value.values))
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _literal(value.left) + _literal(value.right)
    return "{value}"


def _joined(text: str) -> list[str]:
    return re.sub(r"\\[ \t]*\n", " ", text).split("\n")
