"""The manual page of all commands, made of their parsers: the build of the wheel puts it where man(1) looks."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from cudnn_resolve._version import __version__
from cudnn_resolve.cli.main import EXIT_CODES, PROGRAM, VERBS, verb
from cudnn_resolve.cli.parser import Parser

_ABOUT = "plan GPU deep-learning environments that load and run: driver, CUDA, cuDNN and frameworks solved together"
_FILES = {
    "pyproject.toml": "[tool.cudnn-resolve]: what a project always wants; each option of `plan` is a setting.",
    "pylock.toml": "the lock that `lock` writes, and that `apply` and `check` read.",
    "$XDG_CACHE_HOME/cudnn-resolve": "answers of indexes and compiled tables; `clean` frees them.",
    "$XDG_STATE_HOME/cudnn-resolve": "journals of `apply`, and what `apply --undo` puts back.",
}


def parsers() -> Iterator[tuple[str, Parser]]:
    """Every command with its whole parser."""
    return ((name, verb(name, whole=True)[0]) for name in VERBS)


def shown_options(group: argparse._ArgumentGroup) -> list[tuple[list[str], str]]:
    """What the help of a group shows: each option as it is typed, in its several forms, and what it means."""
    found = []
    for one in group._group_actions:  # noqa: SLF001 - argparse has no other way
        if one.help != argparse.SUPPRESS:
            value = f" {one.metavar or one.dest.upper()}" if one.option_strings and one.nargs != 0 else ""
            found.append(([f"{name}{value}" for name in one.option_strings or (str(one.metavar or one.dest),)], one.help or ""))
    return found


def manual() -> str:
    """The page as troff has it, for `man`."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f'.TH {PROGRAM.upper()} 1 "" "{PROGRAM} {__version__}" "User Commands"'
    yield from (".SH NAME", f"{PROGRAM} \\- {_text(_ABOUT)}", ".SH SYNOPSIS", f".B {_text(PROGRAM)}", "COMMAND [OPTIONS]", ".SH COMMANDS")
    for name, parser in parsers():
        usage = parser.format_help().splitlines()[0].removeprefix("usage: ")
        yield from (f".SS {_text(name)}", f".B {_text(usage)}", ".PP", _text(parser.description or ""))
        for group in parser._action_groups:  # noqa: SLF001 - argparse has no other way
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
    """Words that troff takes as they are."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)
