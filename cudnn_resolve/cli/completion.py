"""`cudnn-resolve completion`: a shell script that completes commands, options, frameworks with their versions, and GPUs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from cudnn_resolve.cli.arguments import Output
from cudnn_resolve.cli.main import PROGRAM, VERBS
from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.cli.printing import emit
from cudnn_resolve.errors import ExitCode, WorldError
from cudnn_resolve.operations.machine_facts import places

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book

SHELLS = ("bash", "zsh", "fish")
_FINAL = re.compile(r"[0-9.]+(?:\.post[0-9]+)?")
_WORD = re.compile(r"[^\s()]+")  # parentheses are special in shells
_PATHS = {"FILE": "FILE", "DIR": "DIRECTORY", "PATH": "FILE", "LOG": "FILE"}
"""Completion by shtab for placeholders of paths."""
_SPLIT = """# `=` is part of a word: tensorflow==2.15
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `completion`."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.epilog = (
        "bash: `cudnn-resolve completion bash > ~/.local/share/bash-completion/completions/cudnn-resolve`; zsh: into a file _cudnn-resolve "
        "in a folder of $fpath; fish: `cudnn-resolve completion fish > ~/.config/fish/completions/cudnn-resolve.fish`. Repeat this after "
        "an upgrade, since the script contains the versions in the tables."
    )


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError:
        hint = "pip install 'shtab>=1.8', or install `cudnn-resolve[completion]`"
        raise WorldError("completion needs the package shtab", code="shtab-missing", hint=hint) from None
    from cudnn_resolve.host.tables import open_book

    script = shtab.complete(_parser(open_book()), shell=args.shell, preamble=_SPLIT if args.shell == "bash" else "")
    emit(script if script.endswith("\n") else f"{script}\n", Output())
    return ExitCode.OK


def _parser(book: Book) -> argparse.ArgumentParser:
    """A parser of all commands, with the words to complete as choices."""
    import shtab

    main_parser = argparse.ArgumentParser(prog=PROGRAM)
    main_parser.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = main_parser.add_subparsers(parser_class=Parser)
    requirements, names = tuple(_requirements(book)), tuple(book.frameworks())
    of_value = {"REQ": requirements, "REQ | LOCK": requirements, "NAME-OR-SM": tuple(dict.fromkeys(gpu_words(book)))}
    stack = ("cudnn", "cuda", "driver")
    of_option = {
        "machine": tuple(_machines(book)),
        "framework": names,
        "allow_break": names,
        "name": (*names, *stack, "gpu", "machine"),
        "package": (*stack, "python"),
    }
    for name, summary in VERBS.items():
        parser = commands.add_parser(name, help=summary, description=summary)
        import_module(f"cudnn_resolve.cli.{name}").add_arguments(parser)
        for action in parser._actions:  # noqa: SLF001 - shtab uses them, too
            action.choices = action.choices or of_value.get(str(action.metavar)) or of_option.get(action.dest)
            if action.choices is None and action.metavar in _PATHS:
                action.complete = getattr(shtab, _PATHS[action.metavar])  # type: ignore[attr-defined]
    return main_parser


def gpu_words(book: Book) -> Iterator[str]:
    """Names of GPUs as single words; of a card without one, its shortest name with `-` between the words."""
    for card in book.cards():
        names = (card.name, *card.alias)
        yield from [name for name in names if " " not in name] or ["-".join(_WORD.findall(min(names, key=len)))]


def _machines(book: Book) -> Iterator[str]:
    """Names of well-known machines; of a machine type with many sizes, their common prefix."""
    for place in places(book):
        yield from dict.fromkeys(shape.rstrip("*") for shape in place.match if "*" not in shape[:-1])


def _requirements(book: Book) -> Iterator[str]:
    """`torch` and `torch==2.6.0`, for each framework the newest release first."""
    for name in book.frameworks():
        package = book.framework(name).packages[0]
        versions = dict.fromkeys(build.version for build in book.builds(name) if _FINAL.fullmatch(build.version))
        yield package
        yield from (f"{package}=={version}" for version in reversed(versions))
