"""`cudnn-resolve completion`: the script by which a shell completes commands, options, frameworks with their versions, and GPUs."""

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
_WORD = re.compile(r"[^\s()]+")  # shells take parentheses for their own
_PATHS = {"FILE": "FILE", "DIR": "DIRECTORY", "PATH": "FILE", "LOG": "FILE"}
"""What stands for a value in a help, and what shtab calls that."""
_SPLIT = """# `=` is part of a word: tensorflow==2.15
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `completion`."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.epilog = (
        "bash: `cudnn-resolve completion bash > ~/.local/share/bash-completion/completions/cudnn-resolve`; zsh: into a file _cudnn-resolve "
        "in a folder of $fpath; fish: `cudnn-resolve completion fish > ~/.config/fish/completions/cudnn-resolve.fish`. Again after an "
        "upgrade: the versions are those of the tables."
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
    """A parser of all commands, whose options have the words that complete them as their choices."""
    import shtab

    whole = argparse.ArgumentParser(prog=PROGRAM)
    whole.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = whole.add_subparsers(parser_class=Parser)
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
        for action in parser._actions:  # noqa: SLF001 - shtab takes them the same way
            action.choices = action.choices or of_value.get(str(action.metavar)) or of_option.get(action.dest)
            if action.choices is None and action.metavar in _PATHS:
                action.complete = getattr(shtab, _PATHS[action.metavar])  # type: ignore[attr-defined]
    return whole


def gpu_words(book: Book) -> Iterator[str]:
    """Names of GPUs in one word each: the short ones, and of a card that has none its shortest with `-` between its words."""
    for one in book.cards():
        known = (one.name, *one.alias)
        yield from [name for name in known if " " not in name] or ["-".join(_WORD.findall(min(known, key=len)))]


def _machines(book: Book) -> Iterator[str]:
    """Names of places as they are typed; of the sizes of a machine type what they begin with."""
    for one in places(book):
        yield from dict.fromkeys(shape.rstrip("*") for shape in one.match if "*" not in shape[:-1])


def _requirements(book: Book) -> Iterator[str]:
    """`torch` and `torch==2.6.0`, of each framework the newest release first."""
    for name in book.frameworks():
        package = book.framework(name).packages[0]
        versions = dict.fromkeys(one.version for one in book.builds(name) if _FINAL.fullmatch(one.version))
        yield package
        yield from (f"{package}=={version}" for version in reversed(versions))
