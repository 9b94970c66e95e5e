"""`cudnn-resolve bundle`: collect a lock and all its files, to install without a network."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from cudnn_resolve import api
from cudnn_resolve.cli.arguments import add_common_options, add_options, lock_among, output_of, request_of
from cudnn_resolve.cli.plan import print_refusal
from cudnn_resolve.cli.printing import messages, show
from cudnn_resolve.errors import ContradictionError, ExitCode, UsageError
from cudnn_resolve.operations.options import BundleRequest
from cudnn_resolve.report.bundle import show_bundle


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bundle`."""
    words = ("REQ | LOCK", "; or a pylock.toml (default: ./pylock.toml); with --check the bundle")
    add_common_options(parser, words=words, platforms=True)
    group = parser.add_argument_group("the bundle", "It is the folder of -o, or a single file if that ends in .tar.")
    add_options(group, BundleRequest, "add", "check", "sbom")
    parser.epilog = (
        "`apply BUNDLE` installs from it, and so does `sh BUNDLE/start DIR`, which needs only Python; neither needs a network. "
        "Exit code 0: the bundle is complete; 1: there is no resolution; 2: the request is invalid, or the bundle is damaged."
    )


def run(args: argparse.Namespace) -> int:
    """Make, extend or verify a bundle; exit code 1 if there is no resolution."""
    if args.check:  # the word is the bundle
        words = [*args.packages, *([args.output] if args.output else [])]
        if len(words) != 1 or args.add:
            raise ContradictionError("--check takes one bundle, and nothing else", hint="`bundle --check BUNDLE`")
        args.output, args.packages = words[0], []
    request = request_of(BundleRequest, lock_among(args))
    output = replace(output_of(args), output=None)  # -o names the bundle
    if request.output is None:
        hint = "-o DIR, or -o FILE.tar" if not request.check else "`bundle --check BUNDLE`"
        raise UsageError("no bundle is named", code="usage-argument", hint=hint)
    result = api.bundle(request, messages(output))
    if result.plan is not None:
        return print_refusal(result, result.plan, output)
    show(result, output, lambda page: show_bundle(page, result.to_json(), verbose=output.verbose > 0, is_check=request.check))
    return ExitCode.OK
