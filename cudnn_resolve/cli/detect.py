"""`cudnn-resolve detect`: facts about this machine and one environment."""

from __future__ import annotations

import argparse

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import add_options, add_output_options, output_of, request_of
from cudnn_resolve.cli.printing import show
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.operations.options import MachineOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `detect`."""
    add_options(parser.add_argument_group("which machine and environment"), MachineOptions, "python", "facts")
    add_output_options(parser)
    parser.epilog = "The JSON output is a file for `--facts`, here and in `plan`. Problems are facts as well: the exit code is 0."


def run(args: argparse.Namespace) -> int:
    """Print the facts; exit code 0 even if the machine has problems."""
    output = output_of(args)
    facts = api.detect(request_of(MachineOptions, args))
    from cudnn_resolve.report.detect import show_facts

    show(facts, output, lambda page: show_facts(page, facts, verbose=output.verbose > 0))
    return ExitCode.OK
