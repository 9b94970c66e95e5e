"""The manual page of all commands, made from their parsers; the wheel installs it for man(1)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from cudnn_resolve._version import __version__
from cudnn_resolve.cli.main import EXIT_CODES, PROGRAM, VERBS, verb
from cudnn_resolve.cli.parser import Parser

_ABOUT = "plan GPU deep-learning environments that load and run: driver, CUDA, cuDNN and frameworks solved together"
_FILES = {
    "pyproject.toml": "[tool.cudnn-resolve]: settings of the project, one for each option of `plan`.",
    "pylock.toml": "the lock written by `lock`, and read by `apply` and `check`.",
    "$XDG_CACHE_HOME/cudnn-resolve": "answers of indexes and compiled tables; freed by `clean`.",
    "$XDG_STATE_HOME/cudnn-resolve": "journals of `apply`, and files for `apply --undo`.",
}


def parsers() -> Iterator[tuple[str, Parser]]:
    """Every command with its parser, whose help shows every option."""
    return ((name, verb(name, whole=True)[0]) for name in VERBS)


def shown_options(group: argparse._ArgumentGroup) -> list[tuple[list[str], str]]:
    """Visible options of a group: their spellings and their help."""
    options = []
    for action in group._group_actions:  # noqa: SLF001 - argparse has no public way
        if action.help != argparse.SUPPRESS:
            value = f" {action.metavar or action.dest.upper()}" if action.option_strings and action.nargs != 0 else ""
            options.append(
                ([f"{name}{value}" for name in action.option_strings or (str(action.metavar or action.dest),)], action.help or "")
            )
    return options


def manual() -> str:
    """The page in troff format."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f'.TH {PROGRAM.upper()} 1 "" "{PROGRAM} {__version__}" "User Commands"'
    yield from (".SH NAME", f"{PROGRAM} \\- {_text(_ABOUT)}", ".SH SYNOPSIS", f".B {_text(PROGRAM)}", "COMMAND [OPTIONS]", ".SH COMMANDS")
    for name, parser in parsers():
        usage = parser.format_help().splitlines()[0].removeprefix("usage: ")
        yield from (f".SS {_text(name)}", f".B {_text(usage)}", ".PP", _text(parser.description or ""))
        for group in parser._action_groups:  # noqa: SLF001 - argparse has no public way
            for forms, about in shown_options(group):
                yield from (".TP", f".B {_text(', '.join(forms))}", _text(about))
        if parser.epilog:
            yield from (".PP", ".nf", _text(parser.epilog), ".fi") if "\n" in parser.epilog else (".PP", _text(parser.epilog))
    yield ".SH EXIT STATUS"
    for code in EXIT_CODES.removeprefix("exit codes: ").split("; "):
        number, _, about = code.partition(" ")
        yield from (".TP", f".B {number}", _text(about))
    yield ".SH FILES"
    for path, about in _FILES.items():
        yield from (".TP", f".I {_text(path)}", _text(about))


def _text(text: str) -> str:
    """Escape a text for troff."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)
