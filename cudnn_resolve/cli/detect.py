"""`cudnn-resolve detect`: the facts of this machine and of one environment."""

from __future__ import annotations

import argparse

from cudnn_resolve.cli.gather import detect_facts, read_facts
from cudnn_resolve.cli.options import Options, add_machine_options, add_output_options, options_of
from cudnn_resolve.cli.printing import emit, style_of, width_of
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.facts.model import Facts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `detect`."""
    add_machine_options(parser)
    add_output_options(parser)
    parser.epilog = "The JSON is the file that `--facts` takes, here and in `plan`. Problems are facts, too: the exit code is 0."


def run(args: argparse.Namespace) -> int:
    """Print the facts; 0 also where the machine has problems."""
    options = options_of(args)
    facts = facts_of(options)
    if options.format == "json":
        from cudnn_resolve.facts.codec import encode
        from cudnn_resolve.report.json import render

        emit(render(encode(facts)), options)
    else:
        from cudnn_resolve.report.detect import render as render_text

        emit(render_text(facts, style=style_of(options), width=width_of(options), verbose=options.verbose > 0), options)
    return ExitCode.OK


def facts_of(options: Options) -> Facts:
    """The facts behind the options: of this machine, of a file, or handed in."""
    if options.given is not None:
        return options.given
    return detect_facts(options) if options.facts is None else read_facts(options.facts)
