"""`cudnn-resolve matrix`: look up which versions work together, and check the tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from cudnn_resolve.cli.gather import gather_book, gather_options
from cudnn_resolve.cli.options import Options, add_output_options
from cudnn_resolve.cli.printing import emit, style_of, width_of
from cudnn_resolve.errors import ExitCode, UsageError

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
    options = gather_options(args)
    if args.action != "show" and args.name is not None:
        raise UsageError(f"matrix {args.action} takes no name: {args.name!r}", code="matrix-argument", hint=f"matrix show {args.name}")
    if args.action == "check":
        return _check(options)
    if args.action == "list":
        _list(options)
    else:
        _show(options, args.name, args.which)
    return ExitCode.OK


def _check(options: Options) -> int:
    from cudnn_resolve.host.tables import check_tables
    from cudnn_resolve.report.matrix import render_faults
    from cudnn_resolve.report.matrix_json import faults_json

    faults = check_tables(options.matrices)
    _print(options, render_faults(faults, ", ".join(("matrices", *options.matrices))), lambda: faults_json(faults))
    return ExitCode.NO if faults else ExitCode.OK


def _list(options: Options) -> None:
    from cudnn_resolve.report.matrix import render_list
    from cudnn_resolve.report.matrix_json import list_json

    book = gather_book(options)
    _print(options, render_list(book, style=style_of(options), width=width_of(options)), lambda: list_json(book))


def _show(options: Options, name: str | None, which: str | None) -> None:
    if name is None:
        raise UsageError("matrix show needs a name", code="matrix-argument", hint="matrix list shows what there is")
    book = gather_book(options)
    from cudnn_resolve.cli.matrix_show import show_framework, show_stack

    answer = show_stack(book, name, which, options) or show_framework(book, name, which, options)
    _print(options, answer[0], lambda: answer[1])


def _print(options: Options, text: str, value: Callable[[], dict[str, Any]]) -> None:
    if options.format == "json":
        from cudnn_resolve.report.json import render

        text = render(value())
    emit(text, options)
