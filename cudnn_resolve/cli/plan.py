"""`cudnn-resolve plan`: a stack that works, and the changes that it needs; changes nothing."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import Output, add_common_options, lock_among, output_of, request_of
from cudnn_resolve.cli.printing import emit, messages, print_value, say, say_page, show
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.operations.options import PlanRequest

if TYPE_CHECKING:
    from cudnn_resolve.operations.plan import PlanResult
    from cudnn_resolve.operations.results import Result

FORMATS = ("text", "json", "html", "sh", "requirements", "notebook", "dockerfile")
_REPORTS = ("text", "json", "html")
"""Formats for reading. The others are files to run or install from, made by the module of that name in report/ (`sh`: `script`)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `plan`."""
    words = ("REQ | LOCK", "; or a pylock.toml, to see what it would change here")
    add_common_options(parser, FORMATS, words=words, takes=("env", "kernel", "allow_break", "reinstall_package"))
    parser.epilog = "Exit code 0: there is a plan; 1: there is none, and the output says what would work; 2: the request is invalid."


def run(args: argparse.Namespace) -> int:
    """Print the plan; exit code 1 if there is none."""
    output = output_of(args)
    plan = api.plan(request_of(PlanRequest, lock_among(args)), messages(output))
    for note in plan.notes:
        say(f"note: {note}", output)
    if output.format not in _REPORTS:
        for warning in plan.warnings:
            if warning.code == "overlay":
                say(f"note: {warning.message}", output)
    if plan.is_satisfiable and output.format not in _REPORTS:
        report = import_module(f"cudnn_resolve.report.{'script' if output.format == 'sh' else output.format}")
        emit(report.render(plan), output)
        return ExitCode.OK
    return print_plan(plan, output)


def print_refusal(result: Result, plan: PlanResult, output: Output) -> int:
    """Print a result without a plan, and return the exit code."""
    if output.format == "text":
        return print_plan(plan, output)
    print_value(result, output)
    return ExitCode.NO


def print_plan(plan: PlanResult, output: Output) -> int:
    """Print the plan or the conflict, and return the exit code."""
    from cudnn_resolve.report.plan import show_plan, verdict

    if not plan.is_satisfiable and output.format not in _REPORTS:  # a file to run is not written; the conflict is a message
        say_page(lambda page: show_plan(page, plan), output)
    elif output.quiet and output.format == "text":
        emit(verdict(plan), output)
    else:
        show(plan, output, lambda page: show_plan(page, plan, verbose=output.verbose > 0, command=plan.command))
    if plan.conflict is not None and output.output is not None:
        effect = "is not written" if output.format not in _REPORTS else "says why"
        say(f"there is no plan, and {output.output} {effect}: {plan.conflict.message}", output)
    return ExitCode.OK if plan.is_satisfiable else ExitCode.NO
