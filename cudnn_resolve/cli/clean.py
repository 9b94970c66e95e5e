"""`cudnn-resolve clean`: show and free what undo and caches hold of the disk."""

from __future__ import annotations

import argparse

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import add_options, add_output_options, output_of, request_of
from cudnn_resolve.cli.printing import show
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.operations.options import CleanRequest
from cudnn_resolve.report.clean import render


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `clean`."""
    add_options(parser.add_argument_group("what is freed"), CleanRequest, "all", "dry_run")
    add_output_options(parser)
    parser.epilog = "Freed is what was kept for environments that are gone; what an apply that was stopped needs to be put back stays."


def run(args: argparse.Namespace) -> int:
    """Print what is held and what was freed."""
    output = output_of(args)
    found = api.clean(request_of(CleanRequest, args))

    show(found, output, lambda _, width: render(found.to_json(), width=width))
    return ExitCode.OK
