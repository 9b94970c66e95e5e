"""`cudnn-resolve apply`: execute a plan, and never leave a broken environment behind."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import Output, add_common_options, add_options, lock_among, output_of, request_of
from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.cli.plan import print_refusal
from cudnn_resolve.cli.printing import clear_status, messages, require_output, say_page, show
from cudnn_resolve.errors import ContradictionError, ExitCode, UsageError
from cudnn_resolve.host import terminal
from cudnn_resolve.operations.options import ApplyRequest

if TYPE_CHECKING:
    from cudnn_resolve.operations.apply import ApplyResult, Interaction, Stopped
    from cudnn_resolve.planning.model import Plan
    from cudnn_resolve.report.text import Page

_PRESENT = ("yes", "dry_run", "force", "format", "output", "quiet", "verbose", "no_color", "restart")
"""Options that with `--resume` always replace those of the interrupted command."""
_METHODS = ("installer", "no_hashes", "break_system_packages", "no_validate")
"""Options that with `--resume` replace those of the interrupted command if given."""
_WITH_RESUME = (*_PRESENT, *_METHODS, "resume", "undo", "history", "lock", "packages", "python", "env")
_UNDO_HEADS = {"nothing": "nothing to undo", "broken": "not everything could be put back"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `apply`."""
    words = ("REQ | LOCK", "; or a pylock.toml or a bundle to install from (default: ./pylock.toml)")
    add_common_options(parser, words=words, elsewhere=False, takes=("env", "kernel", "allow_break", "reinstall_package"))
    group = parser.add_argument_group("how to execute the plan")
    group.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_options(group, ApplyRequest, "dry_run", *_METHODS, "restart", "bundle_dir")
    group = parser.add_argument_group("earlier applies, instead of a new one")
    group.add_argument("--resume", action="store_true", help="run an interrupted apply again")
    group.add_argument("--undo", nargs="?", metavar="ID", const="", help="undo an earlier apply (default: the last one)")
    add_options(group, ApplyRequest, "force")
    group.add_argument("--history", action="store_true", help="list the applies of this environment")
    parser.epilog = (
        "Exit code 0: done, or nothing to do; 1: there is no plan; 2: the request is invalid; 3: the machine or an index refused, "
        "and nothing was changed; 4: it failed and everything was put back; 5: it failed and not everything could be put back, see the "
        "output; 130: it was interrupted, and nothing was changed."
    )


def run(args: argparse.Namespace) -> int:
    """Execute, undo or list; the exit code tells the outcome."""
    lock_among(args)
    _refuse_contradictions(args)
    output = output_of(args)
    require_output(output)
    request = request_of(ApplyRequest, args)
    if args.history:
        history = api.history(args.env or args.python)
        from cudnn_resolve.report.apply import show_history

        show(history, output, lambda page: show_history(page, history.applies))
        return ExitCode.OK
    if args.undo is not None:
        undone = api.undo(request, _number(args.undo), _interaction(args, output))
        return _finish(undone, output, args, head=_UNDO_HEADS.get(undone.status))
    if args.resume:
        _refuse_ignored(args)
        stopped = api.stopped(args.python, args.env)
        if stopped is not None:
            return run_again(stopped, args)
        from cudnn_resolve.execution.model import Execution
        from cudnn_resolve.operations.apply import ApplyResult

        nothing = ApplyResult(execution=Execution(status="nothing"))
        return _finish(nothing, output, args, head="nothing to resume: no apply was interrupted")
    result = api.apply(request, _interaction(args, output))
    if result.execution is None:
        assert result.plan is not None
        return print_refusal(result, result.plan, output)
    return _finish(result, output, args)


def run_again(stopped: Stopped, args: argparse.Namespace) -> int:
    """Run the interrupted command in its folder, with this command's output and confirmation options."""
    from cudnn_resolve.host import disk

    parser = apply_parser()
    original = parser.parse([*stopped.words])
    output = args.output and os.path.join(disk.folder_here(), args.output)  # relative to this folder, not to the original one
    if original.resume or original.undo is not None or original.history or not disk.go_to(stopped.folder):
        raise UsageError("cannot resume: the journal records no replayable command", code="resume", hint="give the command again")
    if original.env is None:
        original.python = stopped.python  # the environment of the journal, whatever the command says
    for name in _PRESENT:
        setattr(original, name, getattr(args, name))
    original.output = output
    for name in _METHODS:
        if getattr(args, name) != parser.get_default(name):
            setattr(original, name, getattr(args, name))
    return run(original)


def apply_parser() -> Parser:
    """The parser of `apply`."""
    parser = Parser(prog="cudnn-resolve apply", description="")
    add_arguments(parser)
    return parser


def _refuse_ignored(args: argparse.Namespace) -> None:
    """Reject options that `--resume` would ignore."""
    for name, default in vars(apply_parser().parse([])).items():
        if name not in _WITH_RESUME and getattr(args, name) != default:
            option = "--" + name.replace("_", "-")
            raise ContradictionError(f"--resume takes no {option}", hint="leave it out, or give the whole command again")


def _refuse_contradictions(args: argparse.Namespace) -> None:
    actions = [name for name, given in (("--resume", args.resume), ("--undo", args.undo is not None), ("--history", args.history)) if given]
    if len(actions) > 1:
        raise ContradictionError(f"{actions[0]} cannot be combined with {actions[1]}")
    targets = [
        name for name, given in (("LOCK", args.lock), ("REQ", args.packages), ("-f", args.framework), ("-r", args.requirement)) if given
    ]
    if actions and targets:
        raise ContradictionError(f"{actions[0]} takes no {targets[0]}")
    if args.lock and len(targets) > 1:
        raise ContradictionError(f"a lock cannot be combined with {targets[1]}", hint="`cudnn-resolve lock` changes what the lock installs")
    for option in ("facts", "machine", "python_version", "platform"):
        if getattr(args, option) and not (args.env and option == "python_version"):
            name = "--" + option.replace("_", "-")
            raise UsageError(
                f"{name} plans for another machine, but `apply` changes this one",
                code="usage-elsewhere",
                hint="`plan --format sh` writes a script for that machine",
            )


def _number(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise UsageError(f"--undo {text!r} is not a number", code="option-undo", hint="`apply --history` lists the numbers")
    return int(text)


def _interaction(args: argparse.Namespace, output: Output) -> Interaction:
    """Show progress and the plan on standard error, and ask for confirmation on a terminal."""
    from cudnn_resolve.operations.apply import Interaction

    def confirm(plan: Plan) -> bool:
        if output.format == "text":
            from cudnn_resolve.report.plan import show_plan

            def write(page: Page) -> None:
                show_plan(page, plan, verbose=output.verbose > 0)
                page.gap()  # before the question

            say_page(write, output)
        clear_status()
        return bool(args.yes or args.dry_run or not terminal.can_answer() or terminal.ask("Apply this plan?"))

    return Interaction(confirm=confirm, listener=messages(output))


def _finish(result: ApplyResult, output: Output, args: argparse.Namespace, *, head: str | None = None) -> int:
    execution = result.execution
    assert execution is not None
    from cudnn_resolve.report.apply import show_execution

    show(result, output, lambda page: show_execution(page, execution, head=head, python=args.python, env=args.env))
    return 130 if execution.status == "interrupted" else int(execution.exit_code)
