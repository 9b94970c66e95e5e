"""`cudnn-resolve lock`: the resolution as a `pylock.toml` that pip and uv install; with `--check`, whether it still is the right one."""

from __future__ import annotations

import argparse
import os.path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import Output, add_common_options, add_options, output_of, request_of
from cudnn_resolve.cli.plan import print_refusal
from cudnn_resolve.cli.printing import Messages, emit, print_value, say, show
from cudnn_resolve.errors import ExitCode, UsageError
from cudnn_resolve.operations.options import LOCK, LOCK_NAMES, LockRequest

if TYPE_CHECKING:
    from cudnn_resolve.operations.lock import LockResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `lock`."""
    add_common_options(parser, ("text", "json", "html"), platforms=True)
    group = parser.add_argument_group("the lock", "It is pylock.toml, or the file of -o; `-o -` prints it and reads none.")
    add_options(group, LockRequest, "check", "no_facts", "upgrade", "upgrade_package")
    parser.epilog = (
        "What is not said is taken from [tool.cudnn-resolve] of pyproject.toml, then from the lock that is there. Exit code 0: the lock is "
        "written, or current; 1: there is no resolution, or the lock is outdated; 2: the request or the lock cannot be read; 3: no index "
        "answers, or a package has no hash."
    )


def run(args: argparse.Namespace) -> int:
    """Write the lock, or with `--check` hold the one that is there against the present."""
    output = replace(output_of(args), output=None)  # -o names the lock
    request = replace(request_of(LockRequest, args), ranges=output.format == "html")
    if output.format != "text" and request.output == "-":
        hint = "leave one of them out: with -o FILE the result goes to standard output and the lock to the file"
        raise UsageError(f"-o - and --format {output.format} would both go to standard output", code="usage-contradiction", hint=hint)
    if request.check:
        return _check(request, output)
    made = api.lock(request, Messages(output))
    if made.plan is not None:
        return print_refusal(made, made.plan, output)
    _say_changes(made, output)
    if made.path == "-":
        emit(made.text, output)
    elif output.format != "text":
        print_value(made, output)
    return ExitCode.OK


def _check(request: LockRequest, output: Output) -> int:
    found = api.check_lock(request, Messages(output))
    from cudnn_resolve.report.lock import render_check

    path = request.output or LOCK
    show(found, output, lambda style, width: render_check(found.lock, found.differences, path, style=style, width=width))
    return ExitCode.NO if found.differences else ExitCode.OK


def _say_changes(made: LockResult, output: Output) -> None:
    """Say what was written, and what it changes."""
    from cudnn_resolve.report.lock import change_lines, summary

    assert made.lock is not None
    what = summary(made.lock)
    if made.path == "-":
        say(what, output)
    else:
        say(f"wrote {made.path}: {what}" if made.is_new else f"{made.path} stays as it is: {what}", output)
    if made.lock.tool is not None and made.lock.tool.has_overrides:
        say(f"it has overrides: `uv pip sync {made.path}`, or `pip install --no-deps -r {made.path}`", output)
    if made.path != "-" and not LOCK_NAMES.fullmatch(os.path.basename(made.path)):
        say("warning: pip and uv take a file for a lock where its name is pylock.toml or pylock.NAME.toml only", output)
    for text in made.warnings:
        say(f"warning: {text}", output)
    if made.old is not None:
        for line in change_lines(made.changes, verbose=output.verbose > 0):
            say(line, output)
        if made.old.tool is not None and made.old.tool.validation and made.lock.tool is not None and not made.lock.tool.validation:
            say("what was proven of the old pins is left out; `cudnn-resolve validate --record` proves the new ones", output)
