"""`cudnn-resolve matrix`: look up which versions work together, and check the tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cudnn_resolve.cli.options import Output, add_output_options, output_of, request_of
from cudnn_resolve.cli.printing import emit, print_json, remark_lines, style_of, width_of
from cudnn_resolve.errors import ExitCode, UsageError
from cudnn_resolve.operations.gather import gather_book
from cudnn_resolve.operations.options import StatedOptions
from cudnn_resolve.operations.settings import project_settings, with_settings

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book

_EXAMPLES = """\
  cudnn-resolve matrix list
  cudnn-resolve matrix show tensorflow
  cudnn-resolve matrix show torch 2.6
  cudnn-resolve matrix show cudnn 9.3
  cudnn-resolve matrix show gpu 'RTX 4090'
  cudnn-resolve matrix check --matrix ./matrices"""
_Answer = tuple[str, dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `matrix`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"examples:\n{_EXAMPLES}"
    parser.add_argument("action", choices=("list", "show", "check"), help="what there is, one of it, or whether the tables are sound")
    parser.add_argument("name", nargs="?", metavar="NAME", help="show: a framework, or `cudnn`, `cuda`, `driver` or `gpu`")
    parser.add_argument("which", nargs="?", metavar="WHICH", help="show: a version (`2.15`, `>=2.4,<2.6`), a driver, or a GPU")
    parser.add_argument("--matrix", metavar="DIR", action="append", help="further or changed rows for the tables; repeatable")
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print what was asked for; 1 where `check` finds a fault."""
    output = output_of(args)
    options = with_settings(request_of(StatedOptions, args), {"matrix": project_settings().get("matrix", ())})
    if args.action != "show" and args.name is not None:
        raise UsageError(f"matrix {args.action} takes no name: {args.name!r}", code="matrix-argument", hint=f"matrix show {args.name}")
    if args.action == "check":
        return _check(options, output)
    if args.action == "list":
        _list(options, output)
    else:
        _show(options, output, args.name, args.which)
    return ExitCode.OK


def _check(options: StatedOptions, output: Output) -> int:
    from cudnn_resolve.host.tables import check_tables
    from cudnn_resolve.report.matrix import render_faults
    from cudnn_resolve.report.matrix_json import faults_json

    faults = check_tables(options.matrix, options.project_matrix)
    _print(output, render_faults(faults, ", ".join(("matrices", *options.project_matrix, *options.matrix))), lambda: faults_json(faults))
    return ExitCode.NO if faults else ExitCode.OK


def _list(options: StatedOptions, output: Output) -> None:
    from cudnn_resolve.report.matrix import render_list
    from cudnn_resolve.report.matrix_json import list_json

    book = gather_book(options)
    _print(output, render_list(book, style=style_of(output), width=width_of(output)), lambda: {**list_json(book), **_overlays(book)})


def _show(options: StatedOptions, output: Output, name: str | None, which: str | None) -> None:
    if name is None:
        raise UsageError("matrix show needs a name", code="matrix-argument", hint="matrix list shows what there is")
    book = gather_book(options)
    from cudnn_resolve.cli.matrix_show import show_framework, show_stack

    answer = show_stack(book, name, which, output) or show_framework(book, name, which, output)
    _print(output, answer[0] + remark_lines(book.remarks, width_of(output)), lambda: {**answer[1], **_overlays(book)})


def _overlays(book: Book) -> dict[str, Any]:
    return {"overlays": list(book.remarks)} if book.remarks else {}


def _print(output: Output, text: str, value: Callable[[], dict[str, Any]]) -> None:
    if output.format == "json":
        print_json(value(), output)
    else:
        emit(text, output)
