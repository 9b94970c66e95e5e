"""`cudnn-resolve clean`: show and free the disk space held by undo and caches."""

from __future__ import annotations

import argparse

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import add_options, add_output_options, output_of, request_of
from cudnn_resolve.cli.printing import show
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.operations.options import CleanRequest
from cudnn_resolve.report.clean import show_usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `clean`."""
    add_options(parser.add_argument_group("what to free"), CleanRequest, "all", "dry_run")
    add_output_options(parser)
    parser.epilog = "Frees what is kept for environments that no longer exist; what is needed to undo an interrupted apply is never freed."


def run(args: argparse.Namespace) -> int:
    """Print the disk space in use, and what was freed."""
    output = output_of(args)
    result = api.clean(request_of(CleanRequest, args))
    show(result, output, lambda page: show_usage(page, result.to_json()))
    return ExitCode.OK
