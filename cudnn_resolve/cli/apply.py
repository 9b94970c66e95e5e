"""`cudnn-resolve apply`: carries a plan out, and never leaves a broken environment behind."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from cudnn_resolve.cli.gather import gather_options
from cudnn_resolve.cli.options import (
    Options,
    add_allow_break_option,
    add_assumption_options,
    add_choice_options,
    add_index_options,
    add_machine_options,
    add_output_options,
    add_reinstall_option,
    add_target_options,
)
from cudnn_resolve.cli.printing import draw, emit, message_style, message_width, style_of, width_of
from cudnn_resolve.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from cudnn_resolve.cli.applying import Stopped
    from cudnn_resolve.execution.model import Execution
    from cudnn_resolve.planning.model import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `apply`."""
    parser.add_argument("lock", nargs="?", metavar="LOCK", help="a pylock.toml to install from; without targets: ./pylock.toml")
    add_target_options(parser)
    add_machine_options(parser)
    add_assumption_options(parser)
    add_choice_options(parser)
    add_allow_break_option(parser)
    add_index_options(parser)
    add_reinstall_option(parser)
    group = parser.add_argument_group("how to carry it out")
    group.add_argument("-y", "--yes", action="store_true", help="do not ask")
    group.add_argument("--dry-run", action="store_true", help="show what would be done, and change nothing")
    group.add_argument("--installer", choices=("auto", "pip", "uv"), default="auto", help="default: the environment's own uv, else its pip")
    group.add_argument("--no-hashes", action="store_true", help="also install files that nobody knows a hash of")
    group.add_argument("--break-system-packages", action="store_true", help="also change an environment that the system manages, as pip's")
    group.add_argument("--no-validate", action="store_true", help="do not test the stack on the GPU afterwards")
    group.add_argument("--restart", action="store_true", help="restart the notebook's kernel afterwards where that is needed")
    group = parser.add_argument_group("earlier ones, instead")
    group.add_argument("--resume", action="store_true", help="do again what was stopped in the middle")
    group.add_argument("--undo", nargs="?", metavar="ID", const="", help="put back what an earlier one changed (default: the last one)")
    group.add_argument(
        "--force", action="store_true", help="put back what a stopped one replaced, although others changed the environment meanwhile"
    )
    group.add_argument("--history", action="store_true", help="list what was done in this environment")
    add_output_options(parser)
    parser.epilog = (
        "Exit code 0: done, or nothing to do; 1: there is no plan; 2: the request cannot be read; 3: the machine or an index refused, "
        "and nothing was changed; 4: it failed and everything was put back; 5: it failed and something is left, which the output names."
    )


def run(args: argparse.Namespace) -> int:
    """Carry out, undo, or list; the exit code says what became of it."""
    from cudnn_resolve.cli.applying import Ways, apply, history, stopped, undo
    from cudnn_resolve.cli.progress import Progress
    from cudnn_resolve.execution.model import Execution

    _refuse_contradictions(args)
    options = gather_options(args)
    ways = Ways(
        lock=args.lock,
        has_targets=bool(args.framework or args.requirement or args.group or args.reinstall_package),
        dry_run=args.dry_run,
        force=args.force,
        installer=args.installer,
        trusted=args.no_hashes,
        managed=args.break_system_packages,
        resume=args.resume,
        restart=args.restart,
        validate=not args.no_validate,
        reporter=Progress(quiet=options.quiet > 0),
        confirm=_confirm(args, options),
        words=words_of(args),
    )
    if args.history:
        emit(_history(history(options, ways), options), options)
        return ExitCode.OK
    if args.undo is not None:
        undone = undo(options, ways, _number(args.undo))
        heads = {"nothing": "nothing to undo", "broken": "not everything could be put back"}
        return _finish(undone, None, options, head=heads.get(undone.status))
    if args.resume:
        _refuse_further(args)
        found = stopped(options)
        if found is None:
            return _finish(Execution(status="nothing"), None, options, head="nothing to resume: no apply was stopped in the middle")
        return again(found, args)
    done, plan = apply(options, ways)
    if done is None:
        assert plan is not None
        emit(_no_plan(plan, options), options)
        return ExitCode.NO
    if ways.restart and done.restart is not None:
        from cudnn_resolve.cli.notebook import restart
        from cudnn_resolve.host.linux import LinuxHost

        done = restart(done, LinuxHost())
    return _finish(done, plan, options)


def again(found: Stopped, args: argparse.Namespace) -> int:
    """The command that was stopped, from where it was given, in this command's manner of speaking and asking."""
    from cudnn_resolve.cli.parser import Parser
    from cudnn_resolve.host import disk

    parser = Parser(prog="cudnn-resolve apply", description="")
    add_arguments(parser)
    same = parser.parse([*found.words])
    output = args.output and os.path.join(disk.folder_here(), args.output)  # as it was meant here, not where the other was given
    if same.resume or same.undo is not None or same.history or not disk.go_to(found.folder):
        raise UsageError("the journal says no command that can be done again from here", code="resume", hint="give the command anew")
    same.python = found.python  # whatever the words say: the environment is the one whose journal this is
    for name in _SPOKEN:
        setattr(same, name, getattr(args, name))
    same.output = output
    for name in _WAYS:
        if getattr(args, name) != parser.get_default(name):
            setattr(same, name, getattr(args, name))
    return run(same)


def _refuse_further(args: argparse.Namespace) -> None:
    """Nothing; UsageError where `--resume` is given what it would have to leave out: what was asked for is asked for again."""
    from cudnn_resolve.cli.parser import Parser

    parser = Parser(prog="cudnn-resolve apply", description="")
    add_arguments(parser)
    for name, default in vars(parser.parse([])).items():
        if name not in (*_MANNERS, *_WAYS, "python") and getattr(args, name) != default:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"--resume takes no {option}", code="usage-contradiction", hint="leave it out, or give the whole command anew")


_SPOKEN = ("yes", "dry_run", "force", "format", "output", "quiet", "verbose", "no_color", "restart")
_WAYS = ("installer", "no_hashes", "break_system_packages", "no_validate")
"""Options of `--resume` that hold in the place of those that were given then."""
_MANNERS = (*_SPOKEN, "resume", "undo", "history", "lock")


def words_of(args: argparse.Namespace) -> tuple[str, ...]:
    """The words of a command line that asks for the same."""
    words: list[str] = []
    for name, value in sorted(vars(args).items()):
        if name in _MANNERS or value is None or value is False:
            continue
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        else:
            words += [f"{option}={one}" for one in (value if isinstance(value, list) else [value])]
    return (*words, *([args.lock] if args.lock else []))


def _refuse_contradictions(args: argparse.Namespace) -> None:
    chosen = [name for name, said in (("--resume", args.resume), ("--undo", args.undo is not None), ("--history", args.history)) if said]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]} contradict each other", code="usage-contradiction", hint="leave one of them out")
    asked = [name for name, said in (("LOCK", args.lock), ("-f", args.framework), ("-r", args.requirement)) if said]
    if chosen and asked:
        raise UsageError(f"{chosen[0]} takes no {asked[0]}", code="usage-contradiction", hint="leave one of them out")
    if args.lock and len(asked) > 1:
        raise UsageError(f"a lock and {asked[1]} contradict each other", code="usage-contradiction", hint="the lock says what is installed")
    for option in ("facts", "python_version", "platform"):
        if getattr(args, option):
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


def _confirm(args: argparse.Namespace, options: Options) -> Any:
    """The function that shows a plan and asks; it asks only where somebody can answer."""

    def confirm(plan: Plan) -> bool:
        from cudnn_resolve.host import terminal

        if options.format == "text" and not options.quiet:
            from cudnn_resolve.report.plan import render

            draw(render(plan, style=message_style(options), width=message_width(), verbose=options.verbose > 0) + "\n", options)
        return bool(args.yes or args.dry_run or not terminal.can_answer() or terminal.ask("Carry this out?"))

    return confirm


def _finish(done: Execution, plan: Plan | None, options: Options, *, head: str | None = None) -> int:
    from cudnn_resolve.report.apply import encode, render

    if options.format == "json":
        from cudnn_resolve.report.json import render as render_json

        emit(render_json(encode(done, _encoded(plan))), options)
    else:
        emit(render(done, style=style_of(options), width=width_of(options), head=head, python=options.python), options)
    return 130 if done.status == "interrupted" else int(done.exit_code)


def _encoded(plan: Plan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    from cudnn_resolve.facts.codec import encode
    from cudnn_resolve.report.plan_json import encode_plan

    return encode_plan(plan, encode(plan.facts))


def _no_plan(plan: Plan, options: Options) -> str:
    from cudnn_resolve.report.plan import render

    if options.format == "json":
        from cudnn_resolve.report.json import render as render_json

        return render_json({"schema": "cudnn-resolve/apply/1", "status": "unsatisfiable", "plan": _encoded(plan)})
    return render(plan, style=style_of(options), width=width_of(options))


def _history(rows: list[dict[str, Any]], options: Options) -> str:
    from cudnn_resolve.report.apply import render_history

    if options.format == "json":
        from cudnn_resolve.report.json import render as render_json

        return render_json({"schema": "cudnn-resolve/apply-history/1", "applies": rows})
    return render_history(rows, width=width_of(options))
