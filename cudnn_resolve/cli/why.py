"""`cudnn-resolve why`: the chain of reasons behind a pin, or behind its absence."""

from __future__ import annotations

import argparse

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import add_common_options, lock_among, output_of, request_of
from cudnn_resolve.cli.plan import print_plan
from cudnn_resolve.cli.printing import emit, messages, say, show
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.operations.options import WhyRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `why`."""
    parser.add_argument("package", metavar="PACKAGE", help="a pip package, `cuda`, `cudnn`, `driver` or `python`")
    words = ("REQ | LOCK", "; or a pylock.toml (default without targets: ./pylock.toml)")
    add_common_options(parser, ("text", "json", "html", "svg"), words=words, takes=("allow_break",))
    parser.epilog = "The other options are those of `plan`, and lead to the same answer."


def run(args: argparse.Namespace) -> int:
    """Print the chain, or the conflict."""
    output = output_of(args)
    result = api.why(request_of(WhyRequest, lock_among(args)), messages(output))
    for note in result.plan.notes:
        say(f"note: {note}", output)
    chain = result.chain
    if output.format == "svg":
        from cudnn_resolve.report.picture import svg

        conflict = result.plan.conflict
        if conflict is not None:
            say(f"there is no plan: {conflict.message}", output)
        if not result.ranges:
            say("there is no picture: nothing here limits the driver, Python, CUDA or cuDNN", output)
            return ExitCode.NO
        emit(svg(result.to_json().get("ranges", ())) + "\n", output)
        return ExitCode.OK if conflict is None else ExitCode.NO
    if chain is None:
        return print_plan(result.plan, output)
    from cudnn_resolve.report.why import show_chain

    show(result, output, lambda page: show_chain(page, chain))
    return ExitCode.OK
