"""`cudnn-resolve doctor`: what is wrong, how that is known, and what to type."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import Output, add_common_options, add_options, output_of, request_of
from cudnn_resolve.cli.printing import Messages, emit, say, show
from cudnn_resolve.errors import ExitCode, UsageError
from cudnn_resolve.operations.options import DoctorRequest, Options, option_words

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Diagnosis, Finding

FORMATS = ("text", "json", "html", "markdown")
_OWN = frozenset(
    {"framework", "packages", "facts", "given", "python_version", "platform", "project_matrix", "allow_break", "reinstall_package"}
)
"""Options that `apply` takes from the remedy, or that it has not."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `doctor`."""
    parser.add_argument("log", metavar="LOG", nargs="?", help="a log file, `-` for standard input; without it the machine alone is judged")
    add_options(parser, DoctorRequest, "no_facts")
    parser.add_argument(
        "--fix", action="store_true", help="hand the remedy of each error to `apply`, one after the other, until none is left"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="with --fix: do not ask")
    add_common_options(parser, FORMATS, words=None)
    parser.epilog = "Exit code 0: nothing of severity error was found; 1: something was; 2: the log cannot be read."


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 where one of them is an error."""
    output = output_of(args)
    request = request_of(DoctorRequest, args)
    if args.fix and (args.no_facts or request.facts is not None):
        elsewhere = "--no-facts" if args.no_facts else "--facts"
        raise UsageError(
            f"--fix changes this machine, and {elsewhere} says that the log is of another", code="usage-contradiction", hint="run it there"
        )
    diagnosis = api.doctor(replace(request, ranges=output.format == "html"), Messages(output))
    from cudnn_resolve.report import doctor as report

    if output.format == "markdown":
        emit(report.markdown(diagnosis) + "".join(f"\n{remark}\n" for remark in diagnosis.overlays), output)
    else:
        show(diagnosis, output, lambda style, width: report.render(diagnosis, style=style, width=width))
    if args.fix:
        return mend(diagnosis, args, output)
    return ExitCode.NO if diagnosis.is_error else ExitCode.OK


def _again(args: argparse.Namespace) -> Diagnosis:
    """The findings on this machine as it is now."""
    return api.doctor(replace(request_of(DoctorRequest, args), log=None, no_facts=False))


def mend(diagnosis: Diagnosis, args: argparse.Namespace, output: Output) -> int:
    """0 where nothing of severity error is left once the remedies were carried out, one finding after the other."""
    done: set[str] = set()
    if not diagnosis.is_error:
        return ExitCode.OK
    code = fix(diagnosis, args, output, done)
    while code == ExitCode.OK:
        left = _again(args)
        if not left.is_error or not set(_plans(left)) - done:
            return look_again(left, output)
        code = fix(left, args, output, done)
    if done:
        look_again(_again(args), output)
    return code


def _plans(diagnosis: Diagnosis) -> list[str]:
    """The remedies of errors that `apply` can carry out, the first one of each finding."""
    each = ((one.command for one in finding.remedy if one.command and _is_plan(_words(one.command))) for finding in _errors(diagnosis))
    return [command for commands in each for command in list(commands)[:1]]


def _errors(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.severity == "error"]


def fix(diagnosis: Diagnosis, args: argparse.Namespace, output: Output, done: set[str]) -> int:
    """The exit code of `apply` for the first remedy that it can carry out and that was not; 1 with what to type where there is none."""
    from cudnn_resolve.cli import apply

    command = next((one for one in _plans(diagnosis) if one not in done and _tables(one) <= set(getattr(args, "matrix", None) or ())), None)
    if command is None:
        say("nothing of this can be carried out by `apply`; what helps is:", output)
        for one in (remedy.command for finding in _errors(diagnosis) for remedy in finding.remedy if remedy.command):
            say(f"  {one}", output)
        return ExitCode.NO
    done.add(command)
    words = ["-y"] if args.yes else []
    asked = getattr(args, "framework", None)
    plan = shlex.split(command)[2:]
    if asked and "-f" in plan:
        kept = [part for place, part in enumerate(plan) if part != "-f" and (not place or plan[place - 1] != "-f")]
        plan = [*(part for one in asked for part in ("-f", one)), *kept]
    words += plan
    told = {word.partition("=")[0] for word in words}
    told |= {"--device", "--cuda", "--cudnn"} if "--reinstall-package" in told else set()
    return int(apply.run(apply.apply_parser().parse([*words, *(word for word in _same_words(args) if word.partition("=")[0] not in told)])))


def look_again(diagnosis: Diagnosis, output: Output) -> int:
    """0 where nothing of severity error is left on this machine; 1 with what is, and with what to type."""
    left = _errors(diagnosis)
    for finding in left:
        say(f"still wrong: {finding.summary}", output)
        for one in finding.remedy[:1]:
            say(f"  {one.command or one.text}", output)
    return ExitCode.NO if left else ExitCode.OK


def _same_words(args: argparse.Namespace) -> list[str]:
    """The options of the command line that mean the same for `apply`: it makes its plan as the user would have it made."""
    options = option_words(request_of(DoctorRequest, args), (name for name in Options.__struct_fields__ if name not in _OWN))
    same = [f"{option}={value}" if value else option for option, value in options]
    return [*same, "--no-color"] if getattr(args, "no_color", False) else same


def _words(command: str) -> list[str]:
    """The words of a command; none where it is no plan of ours, which alone is carried out."""
    try:
        return shlex.split(command) if command.startswith("cudnn-resolve ") else []
    except ValueError:
        return []


def _tables(command: str) -> set[str]:
    """The tables that a remedy names: those that the user did not name himself are not carried out, wherever the remedy comes from."""
    words = _words(command)
    after = (words[place + 1] for place, word in enumerate(words[:-1]) if word == "--matrix")
    return {*after, *(word.partition("=")[2] for word in words if word.startswith("--matrix="))}


def _is_plan(words: list[str]) -> bool:
    apart = "--env" in words  # which leaves this environment as it is
    return words[:2] == ["cudnn-resolve", "apply"] and "FRAMEWORK" not in words and not apart
