"""`cudnn-resolve plan`: the stack that works, and what would have to change; changes nothing."""

from __future__ import annotations

import argparse

from cudnn_resolve.cli.gather import gather_options, gather_question
from cudnn_resolve.cli.options import Options, add_common_options, add_reinstall_option
from cudnn_resolve.cli.printing import draw, emit, message_style, message_width, say, style_of, width_of
from cudnn_resolve.errors import ExitCode, UsageError
from cudnn_resolve.planning.model import Plan

FORMATS = ("text", "json", "sh", "requirements", "notebook", "dockerfile")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `plan`."""
    parser.add_argument("lock", nargs="?", metavar="LOCK", help="a pylock.toml, instead of targets: what it would change here")
    add_common_options(parser, FORMATS)
    add_reinstall_option(parser)
    parser.epilog = "Exit code 0: there is a plan; 1: there is none, and the output says what would work; 2: the request cannot be read."


def run(args: argparse.Namespace) -> int:
    """Print the plan; 1 where there is none."""
    options = gather_options(args)
    plan = _plan(args, options)
    say_notes(plan, options)
    if not plan.is_satisfiable and options.format in FORMATS[2:]:
        # Whoever asked for a script or a file to install from gets none, and reads why where messages go.
        from cudnn_resolve.report.plan import render as render_text

        draw(render_text(plan, style=message_style(options), width=message_width(), verbose=options.verbose > 0), options)
        return ExitCode.NO
    emit(_render(plan, options), options)
    return ExitCode.OK if plan.is_satisfiable else ExitCode.NO


def _plan(args: argparse.Namespace, options: Options) -> Plan:
    if args.lock is None:
        return plan_of(options)
    if args.framework or args.requirement:
        hint = "the lock says what is installed; `cudnn-resolve lock` changes it"
        raise UsageError("a lock and targets contradict each other", code="usage-contradiction", hint=hint)
    from cudnn_resolve.cli.from_lock import plan_of_lock_file

    return plan_of_lock_file(args.lock, options)


def plan_of(options: Options, verb: str = "plan") -> Plan:
    """The plan behind the options, as a command asks for it."""
    from cudnn_resolve.planning.make import make_plan
    from cudnn_resolve.resolution.resolve import resolve

    asked = gather_question(options, verb=verb)
    return make_plan(
        asked.facts, resolve(asked.book, asked.machine, asked.request, asked.source, tell=asked.tell), asked.book, asked.source
    )


def say_notes(plan: Plan, options: Options) -> None:
    """Nothing; what was noticed about the indexes stands on standard error."""
    for note in plan.notes:
        say(f"note: {note}", options)


def _render(plan: Plan, options: Options) -> str:
    if options.format == "json":
        from cudnn_resolve.facts.codec import encode
        from cudnn_resolve.report.json import render
        from cudnn_resolve.report.plan_json import encode_plan

        return render(encode_plan(plan, encode(plan.facts)))
    if options.format == "text" or not plan.is_satisfiable:
        from cudnn_resolve.report.plan import render as render_text

        return render_text(plan, style=style_of(options), width=width_of(options), verbose=options.verbose > 0)
    if options.format == "sh":
        from cudnn_resolve.report.script import render as render_script

        return render_script(plan)
    if options.format == "requirements":
        from cudnn_resolve.report.requirements import render as render_requirements

        return render_requirements(plan)
    if options.format == "notebook":
        from cudnn_resolve.report.notebook import render as render_notebook

        return render_notebook(plan)
    if options.format == "dockerfile":
        from cudnn_resolve.report.dockerfile import render as render_dockerfile

        return render_dockerfile(plan)
    raise UsageError(f"there is no format {options.format!r}", code="unknown-format", context="--format")
