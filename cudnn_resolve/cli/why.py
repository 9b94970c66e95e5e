"""`cudnn-resolve why`: the chain of reasons behind one pin, or behind its absence."""

from __future__ import annotations

import argparse

from cudnn_resolve.cli.gather import gather_options, gather_question
from cudnn_resolve.cli.options import add_common_options
from cudnn_resolve.cli.printing import emit, say, style_of, width_of
from cudnn_resolve.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `why`."""
    parser.add_argument("package", metavar="PACKAGE", help="a pip package, `cuda`, `cudnn`, `driver` or `python`")
    add_common_options(parser)
    parser.epilog = "The other options are those of `plan`: the same request, the same answer."


def run(args: argparse.Namespace) -> int:
    """Print the chain; where there is no plan, why not."""
    from cudnn_resolve.planning.make import make_plan
    from cudnn_resolve.report.json import render as render_json
    from cudnn_resolve.resolution.chain import chain
    from cudnn_resolve.resolution.model import Conflict
    from cudnn_resolve.resolution.resolve import resolve

    options = gather_options(args)
    asked = gather_question(options)
    book, facts = asked.book, asked.facts
    outcome = resolve(book, asked.machine, asked.request, asked.source, tell=asked.tell)
    for note in asked.source.notes:
        say(f"note: {note}", options)
    if isinstance(outcome, Conflict):
        from cudnn_resolve.facts.codec import encode as encode_facts
        from cudnn_resolve.report.plan import render as render_plan
        from cudnn_resolve.report.plan_json import encode_plan

        plan = make_plan(facts, outcome, book, asked.source)
        if options.format == "json":
            emit(render_json(encode_plan(plan, encode_facts(facts))), options)
        else:
            emit(render_plan(plan, style=style_of(options), width=width_of(options)), options)
        return ExitCode.NO
    from cudnn_resolve.report.why import encode, render

    found = chain(outcome, args.package, book)
    if options.format == "json":
        emit(render_json(encode(found)), options)
    else:
        emit(render(found, style=style_of(options), width=width_of(options)), options)
    return ExitCode.OK
