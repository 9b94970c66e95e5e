"""`cudnn-resolve fleet VERB`: run a verb for many machines, class by class."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import add_common_options, add_options, output_of, request_of
from cudnn_resolve.cli.printing import messages, show
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.operations.options import FleetRequest, declared

_FAILURE_CODES = {"plan": ExitCode.WORLD, "lock": ExitCode.WORLD, "apply": ExitCode.REVERTED, "undo": ExitCode.REVERTED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fleet`."""
    about = "what to do for each class of hosts with equal facts, like the command of that name for one machine"
    parser.add_argument("verb", choices=declared(FleetRequest)["verb"].choices, help=about)
    group = parser.add_argument_group("which hosts")
    add_options(group, FleetRequest, "inventory", "from_folder", "limit", "python", "env", "serial", "max_fail", "fetch", "replace")
    add_options(parser.add_argument_group("options of single verbs"), FleetRequest, "one_lock", "since", "strict")
    add_common_options(parser, ("text", "json", "html"), words=("REQ | LOCK", "; check: a lock, or several"), elsewhere=None)
    parser.epilog = (
        "Hosts are grouped by decisive facts: driver, GPUs, glibc, Python, platform, and for `plan` installed packages; each class is "
        "resolved once. Exit code 0: every class has an answer; 1: a class has none, or a host has no usable facts, or fails its "
        "validation; 3: an index was unavailable; 4: apply or undo failed on a host, and its old state was restored."
    )


def run(args: argparse.Namespace) -> int:
    """Print the answers for all classes; exit code 1 if one has none."""
    output = output_of(args)
    request = request_of(FleetRequest, args)
    if request.verb == "lock":
        output = replace(output, output=None)  # -o names the locks
    result = api.fleet(request, messages(output))
    from cudnn_resolve.report.fleet import show_answer

    show(result, output, lambda page: show_answer(page, result, verbose=output.verbose > 0))
    if result.status == "failed":
        return _FAILURE_CODES.get(request.verb, ExitCode.NO)
    return ExitCode.NO if result.status == "no" else ExitCode.OK
