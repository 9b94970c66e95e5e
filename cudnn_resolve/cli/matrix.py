"""`cudnn-resolve matrix`: look up which versions work together, and check the tables."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import Output, add_options, add_output_options, output_of, request_of
from cudnn_resolve.cli.printing import messages, say, show
from cudnn_resolve.errors import ContradictionError, ExitCode, UsageError
from cudnn_resolve.operations.options import MatrixRequest
from cudnn_resolve.report.text import Page

if TYPE_CHECKING:
    from cudnn_resolve.operations.matrix import MatrixCheckResult

_ACTIONS = "overview, lookup, check of the tables, or web pages of what runs where and together"
_EXAMPLES = """\
  cudnn-resolve matrix list
  cudnn-resolve matrix show tensorflow
  cudnn-resolve matrix show torch 2.6
  cudnn-resolve matrix show cudnn 9.3
  cudnn-resolve matrix show gpu 'RTX 4090'
  cudnn-resolve matrix check --matrix ./matrices
  cudnn-resolve matrix check --live
  cudnn-resolve matrix html -o site/"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `matrix`."""
    parser.epilog = f"examples:\n{_EXAMPLES}"
    parser.add_argument("action", choices=("list", "show", "check", "html"), help=_ACTIONS)
    parser.add_argument("name", nargs="?", metavar="NAME", help="show: a framework, or `cudnn`, `cuda`, `driver`, `gpu` or `machine`")
    parser.add_argument("which", nargs="?", metavar="WHICH", help="show: a version (`2.15`, `>=2.4,<2.6`), a driver, or a GPU")
    add_options(parser, MatrixRequest, "matrix", "live", "sample", "index_url")
    add_output_options(parser)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(args: argparse.Namespace) -> int:
    """Print the answer; exit code 1 if `check` finds a fault."""
    output = output_of(args)
    request = request_of(MatrixRequest, args)
    if request.action != "show" and request.name is not None:
        hint = f"matrix show {shlex.quote(request.name)}"
        raise UsageError(f"matrix {request.action} takes no name: {request.name!r}", code="matrix-argument", hint=hint)
    if request.action == "html":
        return _site(request, output)
    if request.action == "check":
        return _check(request, output)
    answer = api.matrix_show(request) if request.action == "show" else api.matrix_list(request)
    show(answer, output, answer.show)
    return ExitCode.OK


def _site(request: MatrixRequest, output: Output) -> int:
    if output.output in (None, "-"):
        raise UsageError("matrix html writes a folder of pages", code="usage-output", hint="name it: -o site")
    if output.format != "text":
        hint = "leave it out; `matrix show NAME --format json` has the rows"
        raise ContradictionError(f"matrix html writes pages, and takes no --format {output.format}", hint=hint)
    assert output.output is not None
    site = api.matrix_site(request, output.output, messages(output))
    size = f"{site.bytes / 1e6:.1f} MB"
    say(f"wrote {site.pages} pages ({size}) with {site.cells} pairs of releases to {site.folder}: open {site.folder}/index.html", output)
    return ExitCode.OK


def _check(request: MatrixRequest, output: Output) -> int:
    result = api.check_matrix(request, messages(output))
    show(result, output, lambda page: _show_check(page, result))
    return ExitCode.NO if result.status == "faulty" else ExitCode.OK


def _show_check(page: Page, result: MatrixCheckResult) -> None:
    from cudnn_resolve.report.matrix import show_faults, show_live

    show_faults(page, result.faults, ", ".join(result.tables))
    if result.live is not None:
        show_live(page, result.live.rows, result.live.faults, result.live.unread)
