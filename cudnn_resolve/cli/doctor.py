"""`cudnn-resolve doctor`: what is wrong, how that is known, and what to type."""

from __future__ import annotations

import argparse
import shlex
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
    from cudnn_resolve.diagnosis.model import Diagnosis, Finding
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book

FORMATS = ("text", "json", "markdown")
_HANDED_ON = (
    *("python", "requirement", "constraint", "group", "cuda", "cudnn"),
    *("driver", "gpu", "glibc", "os", "prefer", "driver_policy", "device", "pre", "strict_pins", "channel", "matrix"),
    *("index_url", "extra_index_url", "find_links", "index_strategy", "exclude_newer", "no_binary", "only_binary"),
    *("no_variant_indexes", "offline", "no_color"),
)
"""Options that `apply` has, too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `doctor`."""
    parser.add_argument("log", metavar="LOG", nargs="?", help="a log file, `-` for standard input; without it the machine alone is judged")
    parser.add_argument("--no-facts", action="store_true", help="judge the log alone: it came from another machine")
    parser.add_argument(
        "--fix", action="store_true", help="hand the remedy of each error to `apply`, one after the other, until none is left"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="with --fix: do not ask")
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
    if args.fix and (args.no_facts or options.facts is not None):
        elsewhere = "--no-facts" if args.no_facts else "--facts"
        raise UsageError(
            f"--fix changes this machine, and {elsewhere} says that the log is of another", code="usage-contradiction", hint="run it there"
        )
    diagnosis = diagnose(options, args.log, no_facts=args.no_facts)
    emit(_render(diagnosis, options), options)
    if args.fix:
        return mend(diagnosis, args, options)
    return ExitCode.NO if diagnosis.is_error else ExitCode.OK


def diagnose(options: Options, log: str | None, *, no_facts: bool) -> Diagnosis:
    """The findings behind the options."""
    from cudnn_resolve.cli.request import request_without_targets
    from cudnn_resolve.diagnosis.diagnose import diagnose as weigh
    from cudnn_resolve.diagnosis.read import Reader
    from cudnn_resolve.host.log import read_log

    if log is None and no_facts:
        raise UsageError("--no-facts without a log leaves nothing to judge", code="usage-contradiction", hint="name a log, or `-`")
    if no_facts and options.facts is not None:
        raise UsageError(
            "--no-facts judges the log alone, and --facts names the machine that it is of",
            code="usage-contradiction",
            hint="leave one of them out",
        )
    if log == "-" and options.facts == "-":
        raise UsageError("the log and the facts cannot both come from standard input", code="usage-contradiction")
    book = gather_book(options)
    reader = Reader(book.symptoms()).read(read_log(log)) if log is not None else None
    facts = None if no_facts else _facts(options, book)
    return weigh(reader, facts, book, request_without_targets(options))


def _facts(options: Options, book: Book) -> Facts:
    """The facts, on this machine with a look at wheels that share files, and at the notebook's kernel."""
    facts = gather_facts(options, book)
    if options.facts is not None or options.given is not None or options.assumptions.elsewhere:
        return facts
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.probe.kernel import with_kernel
    from cudnn_resolve.probe.overwritten import with_overwritten

    host = LinuxHost()
    facts = with_kernel(host, facts)
    shared = [name for name in or_none(facts.packages.pip) or {} if book.slot(name) is not None]
    return with_overwritten(host, facts, shared) if shared else facts


def mend(diagnosis: Diagnosis, args: argparse.Namespace, options: Options) -> int:
    """0 where nothing of severity error is left once the remedies were carried out, one finding after the other."""
    done: set[str] = set()
    if not diagnosis.is_error:
        return ExitCode.OK
    code = fix(diagnosis, args, options, done)
    while code == ExitCode.OK:
        left = diagnose(options, None, no_facts=False)
        if not left.is_error or not set(_plans(left)) - done:
            return look_again(left, options)
        code = fix(left, args, options, done)
    if done:
        look_again(diagnose(options, None, no_facts=False), options)
    return code


def _plans(diagnosis: Diagnosis) -> list[str]:
    """The remedies of errors that `apply` can carry out, the first one of each finding."""
    each = ((one.command for one in finding.remedy if one.command and _is_plan(_words(one.command))) for finding in _errors(diagnosis))
    return [command for commands in each for command in list(commands)[:1]]


def _errors(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.severity == "error"]


def fix(diagnosis: Diagnosis, args: argparse.Namespace, options: Options, done: set[str]) -> int:
    """The exit code of `apply` for the first remedy that it can carry out and that was not; 1 with what to type where there is none."""
    from cudnn_resolve.cli import apply

    command = next((one for one in _plans(diagnosis) if one not in done), None)
    if command is None:
        say("nothing of this can be carried out by `apply`; what helps is:", options)
        for one in (remedy.command for finding in _errors(diagnosis) for remedy in finding.remedy if remedy.command):
            say(f"  {one}", options)
        return ExitCode.NO
    done.add(command)
    parser = Parser(prog="cudnn-resolve apply", description="")
    apply.add_arguments(parser)
    words = ["-y"] if args.yes else []
    asked = getattr(args, "framework", None)
    plan = shlex.split(command)[2:]
    if asked and "-f" in plan:
        kept = [part for place, part in enumerate(plan) if part != "-f" and (not place or plan[place - 1] != "-f")]
        plan = [*(part for one in asked for part in ("-f", one)), *kept]
    words += plan
    told = {word.partition("=")[0] for word in words}
    told |= {"--device", "--cuda", "--cudnn"} if "--reinstall-package" in told else set()
    return int(apply.run(parser.parse([*words, *(word for word in _same_words(args) if word.partition("=")[0] not in told)])))


def look_again(diagnosis: Diagnosis, options: Options) -> int:
    """0 where nothing of severity error is left on this machine; 1 with what is, and with what to type."""
    left = _errors(diagnosis)
    for finding in left:
        say(f"still wrong: {finding.summary}", options)
        for one in finding.remedy[:1]:
            say(f"  {one.command or one.text}", options)
    return ExitCode.NO if left else ExitCode.OK


def _same_words(args: argparse.Namespace) -> list[str]:
    """The options of the command line that mean the same for `apply`: it makes its plan as the user would have it made."""
    words = []
    for name in _HANDED_ON:
        value = getattr(args, name, None)
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, (str, list)):
            words += [f"{option}={one}" for one in ([value] if isinstance(value, str) else value)]
    return words


def _words(command: str) -> list[str]:
    """The words of a command; none where it is no plan of ours, which alone is carried out."""
    try:
        return shlex.split(command) if command.startswith("cudnn-resolve ") else []
    except ValueError:
        return []


def _is_plan(words: list[str]) -> bool:
    return words[:2] == ["cudnn-resolve", "apply"] and "FRAMEWORK" not in words


def _render(diagnosis: Diagnosis, options: Options) -> str:
    from cudnn_resolve.report import doctor as report

    if options.format == "json":
        from cudnn_resolve.report.json import render

        return render(report.encode(diagnosis))
    if options.format == "markdown":
        return report.markdown(diagnosis)
    return report.render(diagnosis, style=style_of(options), width=width_of(options))
