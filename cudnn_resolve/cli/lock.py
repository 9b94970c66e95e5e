"""`cudnn-resolve lock`: write a `pylock.toml` that pip and uv can install; with `--check`, say whether it is up to date."""

from __future__ import annotations

import argparse
import os.path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import Output, add_common_options, add_options, output_of, request_of
from cudnn_resolve.cli.plan import print_refusal
from cudnn_resolve.cli.printing import emit, messages, print_value, say, show
from cudnn_resolve.errors import ContradictionError, ExitCode
from cudnn_resolve.operations.options import LOCK, LOCK_NAMES, LockRequest

if TYPE_CHECKING:
    from cudnn_resolve.operations.lock import LockResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `lock`."""
    add_common_options(parser, ("text", "json", "html"), platforms=True)
    group = parser.add_argument_group("the lock", "It is pylock.toml, or the file of -o; `-o -` prints it and reads no old one.")
    add_options(group, LockRequest, "check", "no_facts", "upgrade", "upgrade_package")
    parser.epilog = (
        "Defaults come from [tool.cudnn-resolve] in pyproject.toml, then from the existing lock. Exit code 0: the lock is written, or "
        "current; 1: there is no resolution, or the lock is outdated; 2: the request or the lock is invalid; 3: no index answers, or a "
        "package has no hash."
    )


def run(args: argparse.Namespace) -> int:
    """Write the lock, or with `--check` check the existing one."""
    output = replace(output_of(args), output=None)  # -o names the lock
    request = request_of(LockRequest, args)
    if output.format != "text" and request.output == "-":
        hint = "leave one of them out: with -o FILE the result goes to standard output, and the lock to the file"
        raise ContradictionError(f"-o - and --format {output.format} would both print to standard output", hint=hint)
    if request.check:
        return _check(request, output)
    result = api.lock(request, messages(output))
    if result.plan is not None:
        return print_refusal(result, result.plan, output)
    _say_changes(result, output)
    if result.path == "-":
        emit(result.text, output)
    elif output.format != "text":
        print_value(result, output)
    return ExitCode.OK


def _check(request: LockRequest, output: Output) -> int:
    result = api.check_lock(request, messages(output))
    from cudnn_resolve.report.lock import show_check

    path = request.output or LOCK
    show(result, output, lambda page: show_check(page, result.lock, result.differences, path))
    return ExitCode.NO if result.differences else ExitCode.OK


def _say_changes(result: LockResult, output: Output) -> None:
    """Print a summary of the lock, its warnings and its changes."""
    from cudnn_resolve.report.lock import change_lines, summary

    assert result.lock is not None
    tool, path = result.lock.tool, result.path
    stack = summary(result.lock)
    if path == "-":
        say(stack, output)
    else:
        say(f"wrote {path}: {stack}" if result.is_new else f"{path} is unchanged: {stack}", output)
    if tool is not None and tool.has_overrides:
        say(f"it has overrides: install with `uv pip sync {path}` or `pip install --no-deps -r {path}`", output)
    if path != "-" and not LOCK_NAMES.fullmatch(os.path.basename(path)):
        say("warning: pip and uv accept locks only under the names pylock.toml and pylock.NAME.toml", output)
    for text in result.warnings:
        say(f"warning: {text}", output)
    if result.old is not None:
        for line in change_lines(result.changes, verbose=output.verbose > 0):
            say(line, output)
        if result.old.tool is not None and result.old.tool.validation and tool is not None and not tool.validation:
            say("validation records of the old pins are dropped; `cudnn-resolve validate --record` adds new ones", output)
