"""`cudnn-resolve validate`: run the stack on every GPU, or check what is possible without one."""

from __future__ import annotations

import argparse

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import Output, add_options, add_output_options, output_of, request_of
from cudnn_resolve.cli.printing import emit, messages, say, show
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.listener import Listener
from cudnn_resolve.operations.options import ValidateRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `validate`."""
    group = parser.add_argument_group("what to test")
    add_options(group, ValidateRequest, "python", "framework", "gpu", "full", "require_gpu", "lock", "plan", "record")
    add_output_options(parser, ("text", "json", "html", "junit"))
    parser.epilog = "Exit codes: 0 passed, or skipped without a GPU; 1 failed, or skipped with --require-gpu."


def run(args: argparse.Namespace) -> int:
    """Print the checks; exit code 1 if one failed."""
    output = output_of(args)
    request = request_of(ValidateRequest, args)
    result = api.validate(request, _Steps(output) if output.verbose > 0 else messages(output))
    if output.format == "junit":
        from cudnn_resolve.report.junit import render as render_junit

        emit(render_junit(result), output)
    else:
        from cudnn_resolve.report.validate import show_validation

        show(result, output, lambda page: show_validation(page, result, verbose=output.verbose > 0))
    return ExitCode.NO if result.status == "failed" else ExitCode.OK


class _Steps(Listener):
    """Listener that prints each step, for -v."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def tell(self, text: str) -> None:
        """Print it."""
        say(text, self._output)

    note = tell
