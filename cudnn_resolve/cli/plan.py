"""`cudnn-resolve plan`: the stack that works, and what would have to change; changes nothing."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import Output, add_common_options, lock_among, output_of, request_of
from cudnn_resolve.cli.printing import Messages, draw, emit, message_style, message_width, print_value, say, style_of, width_of
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.operations.options import PlanRequest

if TYPE_CHECKING:
    from cudnn_resolve.operations.plan import PlanResult
    from cudnn_resolve.operations.results import Result

FORMATS = ("text", "json", "html", "sh", "requirements", "notebook", "dockerfile")
_READ = ("text", "json", "html")
"""Those for reading; each of the others is the module of report/ of that name, `sh` is `script`, and there is none of a conflict."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `plan`."""
    words = ("REQ | LOCK", "; or a pylock.toml: what it would change here")
    add_common_options(parser, FORMATS, words=words, takes=("env", "kernel", "allow_break", "reinstall_package"))
    parser.epilog = "Exit code 0: there is a plan; 1: there is none, and the output says what would work; 2: the request cannot be read."


def run(args: argparse.Namespace) -> int:
    """Print the plan; 1 where there is none."""
    output = output_of(args)
    request = replace(request_of(PlanRequest, lock_among(args)), ranges=output.format == "html")
    plan = api.plan(request, Messages(output))
    for note in plan.notes:
        say(f"note: {note}", output)
    if output.format not in _READ:
        for one in plan.warnings:
            if one.code == "overlay":
                say(f"note: {one.message}", output)
    if plan.is_satisfiable and output.format not in _READ:
        report = import_module(f"cudnn_resolve.report.{'script' if output.format == 'sh' else output.format}")
        emit(report.render(plan), output)
        return ExitCode.OK
    return print_plan(plan, output)


def print_refusal(result: Result, plan: PlanResult, output: Output) -> int:
    """Print a result that is none, because there is no plan; the exit code."""
    if output.format == "text":
        return print_plan(plan, output)
    print_value(result, output)
    return ExitCode.NO


def print_plan(plan: PlanResult, output: Output) -> int:
    """Print the plan, or why there is none, as text or JSON; the exit code."""
    from cudnn_resolve.report.plan import render, verdict

    verbose = output.verbose > 0
    if output.format in ("json", "html"):
        print_value(plan, output)
    elif not plan.is_satisfiable and output.format != "text":  # who asked for a file to run gets none, and reads why among the messages
        draw(render(plan, style=message_style(output), width=message_width()), output)
    elif output.quiet:
        emit(verdict(plan), output)
    else:
        emit(render(plan, style=style_of(output), width=width_of(output), verbose=verbose, command=plan.command), output)
    if plan.conflict is not None and output.output is not None:
        written = "is not written" if output.format not in _READ else "says why"
        say(f"there is no plan, and {output.output} {written}: {plan.conflict.message}", output)
    return ExitCode.OK if plan.is_satisfiable else ExitCode.NO
