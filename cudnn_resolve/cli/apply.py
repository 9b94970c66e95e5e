"""`cudnn-resolve apply`: carries a plan out, and never leaves a broken environment behind."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import Output, add_common_options, add_options, lock_among, output_of, request_of
from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.cli.plan import print_refusal
from cudnn_resolve.cli.printing import Messages, clear_status, draw, message_style, message_width, require_output, show
from cudnn_resolve.errors import ExitCode, UsageError
from cudnn_resolve.host import terminal
from cudnn_resolve.operations.options import ApplyRequest

if TYPE_CHECKING:
    from cudnn_resolve.operations.apply import ApplyResult, Interaction, Stopped
    from cudnn_resolve.planning.model import Plan

_SPOKEN = ("yes", "dry_run", "force", "format", "output", "quiet", "verbose", "no_color", "restart")
_MEANS = ("installer", "no_hashes", "break_system_packages", "no_validate")
"""Options of `--resume` that hold in the place of those that were given then."""
_OTHERS = (*_SPOKEN, *_MEANS, "resume", "undo", "history", "lock", "packages", "python", "env")
_HEADS = {"nothing": "nothing to undo", "broken": "not everything could be put back"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `apply`."""
    words = ("REQ | LOCK", "; or a pylock.toml or a bundle to install from (default: ./pylock.toml)")
    add_common_options(parser, words=words, elsewhere=False, takes=("env", "kernel", "allow_break", "reinstall_package"))
    group = parser.add_argument_group("how to carry it out")
    group.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_options(group, ApplyRequest, "dry_run", *_MEANS, "restart", "bundle_dir")
    group = parser.add_argument_group("earlier ones, instead")
    group.add_argument("--resume", action="store_true", help="do again what was stopped in the middle")
    group.add_argument("--undo", nargs="?", metavar="ID", const="", help="put back what an earlier one changed (default: the last one)")
    add_options(group, ApplyRequest, "force")
    group.add_argument("--history", action="store_true", help="list what was done in this environment")
    parser.epilog = (
        "Exit code 0: done, or nothing to do; 1: there is no plan; 2: the request cannot be read; 3: the machine or an index refused, "
        "and nothing was changed; 4: it failed and everything was put back; 5: it failed and something is left, which the output names; "
        "130: it was interrupted, and nothing is changed."
    )


def run(args: argparse.Namespace) -> int:
    """Carry out, undo, or list; the exit code says what became of it."""
    lock_among(args)
    _refuse_contradictions(args)
    output = output_of(args)
    require_output(output)
    request = request_of(ApplyRequest, args)
    if args.history:
        found = api.history(args.env or args.python)
        from cudnn_resolve.report.apply import render_history

        show(found, output, lambda _, width: render_history(found.applies, width=width))
        return ExitCode.OK
    if args.undo is not None:
        undone = api.undo(request, _number(args.undo), _interaction(args, output))
        return _finish(undone, output, args, head=_HEADS.get(undone.status))
    if args.resume:
        _refuse_further(args)
        stopped = api.stopped(args.python, args.env)
        if stopped is not None:
            return again(stopped, args)
        from cudnn_resolve.execution.model import Execution
        from cudnn_resolve.operations.apply import ApplyResult

        nothing = ApplyResult(execution=Execution(status="nothing"))
        return _finish(nothing, output, args, head="nothing to resume: no apply was stopped in the middle")
    done = api.apply(request, _interaction(args, output))
    if done.execution is None:
        assert done.plan is not None
        return print_refusal(done, done.plan, output)
    return _finish(done, output, args)


def again(found: Stopped, args: argparse.Namespace) -> int:
    """Give the command that was stopped again, from where it was given, in this command's manner of speaking and asking."""
    from cudnn_resolve.host import disk

    parser = apply_parser()
    same = parser.parse([*found.words])
    output = args.output and os.path.join(disk.folder_here(), args.output)  # as it was meant here, not where the other was given
    if same.resume or same.undo is not None or same.history or not disk.go_to(found.folder):
        raise UsageError(
            "cannot resume: the journal records no command that can be given again", code="resume", hint="give the command again"
        )
    if same.env is None:
        same.python = found.python  # whatever the words say: the environment is the one whose journal this is
    for name in _SPOKEN:
        setattr(same, name, getattr(args, name))
    same.output = output
    for name in _MEANS:
        if getattr(args, name) != parser.get_default(name):
            setattr(same, name, getattr(args, name))
    return run(same)


def apply_parser() -> Parser:
    """The parser of `apply` alone."""
    parser = Parser(prog="cudnn-resolve apply", description="")
    add_arguments(parser)
    return parser


def _refuse_further(args: argparse.Namespace) -> None:
    """Reject options that `--resume` would ignore: what was asked for is asked for again."""
    for name, default in vars(apply_parser().parse([])).items():
        if name not in _OTHERS and getattr(args, name) != default:
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"--resume takes no {option}", code="usage-contradiction", hint="leave it out, or give the whole command again"
            )


def _refuse_contradictions(args: argparse.Namespace) -> None:
    chosen = [name for name, said in (("--resume", args.resume), ("--undo", args.undo is not None), ("--history", args.history)) if said]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]} contradict each other", code="usage-contradiction", hint="leave one of them out")
    asked = [name for name, said in (("LOCK", args.lock), ("REQ", args.packages), ("-f", args.framework), ("-r", args.requirement)) if said]
    if chosen and asked:
        raise UsageError(f"{chosen[0]} takes no {asked[0]}", code="usage-contradiction", hint="leave one of them out")
    if args.lock and len(asked) > 1:
        raise UsageError(f"a lock and {asked[1]} contradict each other", code="usage-contradiction", hint="the lock says what is installed")
    for option in ("facts", "machine", "python_version", "platform"):
        if getattr(args, option) and not (args.env and option == "python_version"):
            name = "--" + option.replace("_", "-")
            raise UsageError(
                f"{name} plans for another machine, and `apply` changes this one",
                code="usage-elsewhere",
                hint="`plan --format sh` writes a script for that machine",
            )


def _number(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise UsageError(f"--undo {text!r} is no number", code="option-undo", hint="`apply --history` lists the numbers")
    return int(text)


def _interaction(args: argparse.Namespace, output: Output) -> Interaction:
    """Progress on standard error; the plan is shown there, and asked about where somebody can answer."""
    from cudnn_resolve.cli.progress import Progress
    from cudnn_resolve.operations.apply import Interaction

    def confirm(plan: Plan) -> bool:
        if output.format == "text":
            from cudnn_resolve.report.plan import render

            text = render(plan, style=message_style(output), width=message_width(), verbose=output.verbose > 0)
            draw(text + "\n", output)
        clear_status()
        return bool(args.yes or args.dry_run or not terminal.can_answer() or terminal.ask("Carry this out?"))

    return Interaction(reporter=Progress(quiet=output.quiet > 0), confirm=confirm, listener=Messages(output))


def _finish(done: ApplyResult, output: Output, args: argparse.Namespace, *, head: str | None = None) -> int:
    execution = done.execution
    assert execution is not None
    from cudnn_resolve.report.apply import render

    show(done, output, lambda style, width: render(execution, style=style, width=width, head=head, python=args.python, env=args.env))
    return 130 if execution.status == "interrupted" else int(execution.exit_code)
