"""`cudnn-resolve fleet VERB`: the same for many machines, class by class."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import add_common_options, add_options, output_of, request_of
from cudnn_resolve.cli.printing import Messages, show
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.operations.options import FleetRequest, declared

_CODES = {"ok": ExitCode.OK, "unknown": ExitCode.OK, "no": ExitCode.NO}
_FAILED = {"plan": ExitCode.WORLD, "lock": ExitCode.WORLD, "apply": ExitCode.REVERTED, "undo": ExitCode.REVERTED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fleet`."""
    about = "what the command of that name does on one machine, for each class of hosts with equal facts"
    parser.add_argument("verb", choices=declared(FleetRequest)["verb"].choices, help=about)
    group = parser.add_argument_group("which hosts")
    add_options(group, FleetRequest, "inventory", "from_folder", "limit", "python", "env", "serial", "max_fail", "fetch", "replace")
    add_options(parser.add_argument_group("for single verbs"), FleetRequest, "one_lock", "since", "strict")
    add_common_options(parser, ("text", "json", "html"), words=("REQ | LOCK", "; check: a lock, or several"), elsewhere=None)
    parser.epilog = (
        "Hosts are grouped by what decides: driver, GPUs, glibc, Python, platform, and for `plan` what is installed; each class is "
        "resolved once. Exit code 0: every class has its answer; 1: one has none, or a host says nothing of itself, or fails its "
        "validation; 3: an index was not there for one; 4: apply or undo failed on a host, and what was there is there again."
    )


def run(args: argparse.Namespace) -> int:
    """Print the answer for all classes; 1 where one has none."""
    output = output_of(args)
    request = replace(request_of(FleetRequest, args), ranges=output.format == "html")
    if request.verb == "lock":
        output = replace(output, output=None)  # -o names the locks
    found = api.fleet(request, Messages(output))
    from cudnn_resolve.report.fleet import render

    show(found, output, lambda style, width: render(found, style=style, width=width, verbose=output.verbose > 0))
    return _FAILED.get(request.verb, ExitCode.NO) if found.status == "failed" else _CODES[found.status]
