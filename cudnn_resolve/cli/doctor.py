"""`cudnn-resolve doctor`: what is wrong, how that is known, and which command helps."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import Output, add_common_options, add_options, output_of, request_of
from cudnn_resolve.cli.printing import emit, messages, say, show
from cudnn_resolve.errors import ContradictionError, ExitCode
from cudnn_resolve.operations.options import DoctorRequest, Options, option_words

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Diagnosis, Finding

FORMATS = ("text", "json", "html", "markdown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `doctor`."""
    parser.add_argument("log", metavar="LOG", nargs="?", help="a log file, `-` for standard input; without it only the machine is judged")
    add_options(parser, DoctorRequest, "no_facts")
    parser.add_argument("--fix", action="store_true", help="`apply` the remedy of each error, one after the other, until none is left")
    parser.add_argument("-y", "--yes", action="store_true", help="with --fix: do not ask")
    add_common_options(parser, FORMATS, words=None)
    parser.epilog = "Exit code 0: no error was found; 1: an error was found; 2: the log cannot be read."


def run(args: argparse.Namespace) -> int:
    """Print the findings; exit code 1 if one of them is an error."""
    output = output_of(args)
    request = request_of(DoctorRequest, args)
    if args.fix and (args.no_facts or request.facts is not None):
        option = "--no-facts" if args.no_facts else "--facts"
        raise ContradictionError(f"--fix changes this machine, but {option} says that the log is from another", hint="run it there")
    diagnosis = api.doctor(request, messages(output))
    from cudnn_resolve.report import doctor as report

    if output.format == "markdown":
        emit(report.markdown(diagnosis) + "".join(f"\n{remark}\n" for remark in diagnosis.overlays), output)
    else:
        show(diagnosis, output, lambda page: report.show_diagnosis(page, diagnosis))
    if args.fix:
        return fix_all(diagnosis, args, output)
    return ExitCode.NO if diagnosis.is_error else ExitCode.OK


def fix_all(diagnosis: Diagnosis, args: argparse.Namespace, output: Output) -> int:
    """Apply the remedies of errors, one after the other; exit code 0 if no error is left."""
    applied: set[str] = set()
    code: int = ExitCode.OK
    while code == ExitCode.OK and diagnosis.is_error and (not applied or set(_apply_commands(diagnosis)) - applied):
        code = fix(diagnosis, args, output, applied)
        if applied:  # judge the machine as it is now
            diagnosis = api.doctor(replace(request_of(DoctorRequest, args), log=None, no_facts=False, ranges=False))
    left = report_remaining(diagnosis, output) if applied else ExitCode.OK
    return code or left


def _apply_commands(diagnosis: Diagnosis) -> list[str]:
    """The first remedy of each error that `apply` can execute."""
    commands = []
    for finding in _errors(diagnosis):
        runnable = (remedy.command for remedy in finding.remedy if remedy.command and _is_applicable(_words(remedy.command)))
        commands += list(runnable)[:1]
    return commands


def _errors(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.severity == "error"]


def fix(diagnosis: Diagnosis, args: argparse.Namespace, output: Output, applied: set[str]) -> int:
    """Apply the first remedy that was not applied yet, and return the exit code; 1, and all commands, if there is none."""
    from cudnn_resolve.cli import apply

    own_tables = set(getattr(args, "matrix", None) or ())
    candidates = (command for command in _apply_commands(diagnosis) if command not in applied and _tables(command) <= own_tables)
    command = next(candidates, None)
    if command is None:
        say("`apply` cannot fix this; these commands help:", output)
        for finding in _errors(diagnosis):
            for remedy in finding.remedy:
                if remedy.command:
                    say(f"  {remedy.command}", output)
        return ExitCode.NO
    applied.add(command)
    words = [*(["-y"] if args.yes else []), *_with_requested_frameworks(shlex.split(command)[2:], getattr(args, "framework", None))]
    given = {word.partition("=")[0] for word in words}
    if "--reinstall-package" in given:
        given |= {"--device", "--cuda", "--cudnn"}
    words += [word for word in _passed_on(args) if word.partition("=")[0] not in given]
    return int(apply.run(apply.apply_parser().parse(words)))


def _with_requested_frameworks(words: list[str], frameworks: list[str] | None) -> list[str]:
    """Replace the frameworks of a command by those on the command line of `doctor`."""
    if not frameworks or "-f" not in words:
        return words
    others = [word for position, word in enumerate(words) if word != "-f" and (not position or words[position - 1] != "-f")]
    return [*(word for framework in frameworks for word in ("-f", framework)), *others]


def report_remaining(diagnosis: Diagnosis, output: Output) -> int:
    """Print the errors that are left with their first remedies; exit code 0 if there are none."""
    errors = _errors(diagnosis)
    for finding in errors:
        say(f"still wrong: {finding.summary}", output)
        for remedy in finding.remedy[:1]:
            say(f"  {remedy.command or remedy.text}", output)
    return ExitCode.NO if errors else ExitCode.OK


def _passed_on(args: argparse.Namespace) -> list[str]:
    """Options of the command line that `apply` shares, so that it plans as the user wants; the targets are those of the remedy."""
    names = (name for name in Options.__struct_fields__ if name not in ("framework", "python_version", "platform"))
    options = option_words(request_of(DoctorRequest, args), names)
    words = [f"{option}={value}" if value else option for option, value in options]
    return [*words, "--no-color"] if getattr(args, "no_color", False) else words


def _words(command: str) -> list[str]:
    """The words of a command of ours; empty for others, which are never executed."""
    try:
        return shlex.split(command) if command.startswith("cudnn-resolve ") else []
    except ValueError:
        return []


def _tables(command: str) -> set[str]:
    """The tables that a remedy names: ones that the user did not name are not used, whatever the origin of the remedy."""
    words = _words(command)
    after_option = (words[position + 1] for position, word in enumerate(words[:-1]) if word == "--matrix")
    return {*after_option, *(word.partition("=")[2] for word in words if word.startswith("--matrix="))}


def _is_applicable(words: list[str]) -> bool:
    is_for_other_environment = "--env" in words  # it would leave this environment as it is
    return words[:2] == ["cudnn-resolve", "apply"] and "FRAMEWORK" not in words and not is_for_other_environment
