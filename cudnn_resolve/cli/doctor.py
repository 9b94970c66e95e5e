"""`cudnn-resolve doctor`: what is wrong, how that is known, and what to type."""

from __future__ import annotations

import argparse
import shlex
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cudnn_resolve.cli.gather import gather_book, gather_facts, gather_options
from cudnn_resolve.cli.options import (
    Options,
    add_assumption_options,
    add_choice_options,
    add_index_options,
    add_machine_options,
    add_output_options,
    add_target_options,
)
from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.cli.printing import emit, say, style_of, width_of
from cudnn_resolve.errors import ExitCode, UsageError
from cudnn_resolve.facts.model import or_none

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Diagnosis
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book

FORMATS = ("text", "json", "markdown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `doctor`."""
    parser.add_argument("log", metavar="LOG", nargs="?", help="a log file, `-` for standard input; without it the machine alone is judged")
    parser.add_argument("--no-facts", action="store_true", help="judge the log alone: it came from another machine")
    parser.add_argument("--fix", action="store_true", help="hand the remedy of the first finding to `apply`")
    add_target_options(parser)
    add_machine_options(parser)
    add_assumption_options(parser)
    add_choice_options(parser)
    add_index_options(parser)
    add_output_options(parser, FORMATS)
    parser.epilog = "Exit code 0: nothing of severity error was found; 1: something was; 2: the log cannot be read."


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 where one of them is an error."""
    options = gather_options(args)
    diagnosis = diagnose(options, args.log, no_facts=args.no_facts)
    emit(_render(diagnosis, options), options)
    if args.fix:
        return fix(diagnosis, options)
    return ExitCode.NO if diagnosis.is_error else ExitCode.OK


def diagnose(options: Options, log: str | None, *, no_facts: bool) -> Diagnosis:
    """The findings behind the options."""
    from cudnn_resolve.diagnosis.diagnose import diagnose as weigh
    from cudnn_resolve.diagnosis.read import Reader
    from cudnn_resolve.host.log import read_log

    if log is None and no_facts:
        raise UsageError("--no-facts without a log leaves nothing to judge", code="usage-contradiction", hint="name a log, or `-`")
    if log == "-" and options.facts == "-":
        raise UsageError("the log and the facts cannot both come from standard input", code="usage-contradiction")
    book = gather_book(options)
    reader = Reader(book.symptoms()).read(read_log(log)) if log is not None else None
    facts = None if no_facts else _facts(options, book)
    return weigh(reader, facts, book)


def _facts(options: Options, book: Book) -> Facts:
    """The facts, on this machine with a look at wheels that share files."""
    facts = gather_facts(options, book)
    if options.facts is not None or options.given is not None or options.assumptions.elsewhere:
        return facts
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.probe.overwritten import with_overwritten

    shared = [name for name in or_none(facts.packages.pip) or {} if book.slot(name) is not None]
    return with_overwritten(LinuxHost(), facts, shared) if shared else facts


def fix(diagnosis: Diagnosis, options: Options) -> int:
    """The exit code of `apply` for the first remedy that it can carry out; 1 with what to type where there is none."""
    if not diagnosis.is_error:
        return ExitCode.OK
    commands = [one.command for finding in diagnosis.findings if finding.severity == "error" for one in finding.remedy if one.command]
    words = next(
        (found for command in commands if (found := shlex.split(command))[:2] == ["cudnn-resolve", "apply"] and "FRAMEWORK" not in found),
        None,
    )
    if words is None or find_spec("cudnn_resolve.cli.apply") is None:
        say("nothing here can be carried out by `apply`; what helps is:" if words is None else "what helps is:", options)
        for command in commands or ["cudnn-resolve detect"]:
            say(f"  {command}", options)
        return ExitCode.NO
    apply = import_module("cudnn_resolve.cli.apply")
    parser = Parser(prog="cudnn-resolve apply", description="")
    apply.add_arguments(parser)
    more = ["--python", options.python] if options.python else []
    return int(apply.run(parser.parse([*words[2:], *more])))


def _render(diagnosis: Diagnosis, options: Options) -> str:
    from cudnn_resolve.report import doctor as report

    if options.format == "json":
        from cudnn_resolve.report.json import render

        return render(report.encode(diagnosis))
    if options.format == "markdown":
        return report.markdown(diagnosis)
    return report.render(diagnosis, style=style_of(options), width=width_of(options))
