"""`cudnn-resolve check`: whether the files of an environment are those that were installed."""

from __future__ import annotations

import argparse

from cudnn_resolve import api
from cudnn_resolve.cli.options import add_options, add_output_options, output_of, request_of
from cudnn_resolve.cli.printing import show
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.operations.options import CheckRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check`."""
    add_options(parser.add_argument_group("what is judged"), CheckRequest, "python")
    add_output_options(parser)
    parser.epilog = (
        "Judged are the files of the environment: what is missing, empty, changed or nobody's, by the lists of the packages (RECORD) "
        "and by the journal of `apply`. Not judged are what the frameworks load and compute: `doctor` and `validate` say that. "
        "Nothing is changed. "
        "Exit code 0: nothing wrong was found; 1: something is broken."
    )


def run(args: argparse.Namespace) -> int:
    """Print the verdict; 1 where something is broken."""
    output = output_of(args)
    found = api.check(request_of(CheckRequest, args))
    from cudnn_resolve.report.check import render

    show(found, output, lambda style, width: render(found.verdicts, style=style, width=width))
    return ExitCode.NO if found.is_broken else ExitCode.OK
