"""`cudnn-resolve check`: say whether an environment or a list of packages will run, and what is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from cudnn_resolve import api
from cudnn_resolve._version import __version__
from cudnn_resolve.cli.arguments import add_options, add_output_options, output_of, request_of
from cudnn_resolve.cli.printing import emit, show
from cudnn_resolve.errors import ExitCode
from cudnn_resolve.operations.options import CheckRequest

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Verdict

FORMATS = ("text", "json", "html", "markdown", "sarif", "github", "junit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check`."""
    group = parser.add_argument_group("what to check")
    group.add_argument(
        "what",
        nargs="*",
        metavar="FILE",
        help="a lock (pylock.toml, uv, poetry, pdm, Pipenv, conda-lock, pixi), a requirements file, environment.yml, a notebook, a "
        "Dockerfile, the output of `pip freeze`, `pip list` or `conda list`; - reads standard input (default: the active environment)",
    )
    add_options(group, CheckRequest, "diff", "extra", "group", "no_default_groups", "python", "strict")
    machine = parser.add_argument_group("for which machine (default: this one)")
    add_options(machine, CheckRequest, "facts", "machine", "driver", "gpu", "python_version", "platform", "glibc", "os")
    add_options(parser, CheckRequest, "matrix")
    add_output_options(parser, FORMATS)
    parser.epilog = (
        "Checks whether the frameworks among the packages will run on the machine, by the rules of `plan`: driver, GPU code, CUDA and "
        "cuDNN, bounds, companions, shared files; in the live environment also files, against the lists of the packages (RECORD) and "
        "the journal of `apply`. Changes nothing. "
        "Exit code 0: no problem was found; 1: something breaks, or with --strict something is unknown."
    )


def run(args: argparse.Namespace) -> int:
    """Print the verdicts; exit code 1 if something is broken."""
    output = output_of(args)
    result = api.check(request_of(CheckRequest, args))
    from cudnn_resolve.report import check as report

    printers: dict[str, Callable[[tuple[Verdict, ...]], str]] = {
        "markdown": lambda verdicts: report.markdown_diff(result.changes) + report.markdown(verdicts),
        "github": report.github,
        "junit": report.junit,
        "sarif": lambda verdicts: report.sarif(verdicts, __version__),
    }
    if output.format in printers:
        emit(printers[output.format](result.verdicts), output)
    elif result.changes:
        show(result, output, lambda page: report.show_comparisons(page, result.changes))
    else:
        show(result, output, lambda page: report.show_verdicts(page, result.verdicts, verbose=output.verbose))
    return ExitCode.NO if result.is_broken else ExitCode.OK
