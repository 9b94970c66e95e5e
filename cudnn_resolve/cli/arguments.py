"""Options shared by several verbs, their conversion to a request, and output options."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from cudnn_resolve.errors import ContradictionError, UsageError
from cudnn_resolve.operations.keywords import make
from cudnn_resolve.operations.options import FACTS, INDEXES, Declared, Options, declared

_TARGETS = ("framework", "requirement", "constraint", "group", "cuda", "cudnn")
_CHOICE = ("prefer", "driver_policy", "device", "pre", "strict_pins", "channel", "matrix")
_ELSEWHERE = ("facts", "machine", "python_version", "platform")
"""Options about another machine."""
R = TypeVar("R", bound=Struct)


class Output(Struct, frozen=True, kw_only=True):
    """How and where to print the result."""

    format: str = "text"
    output: str | None = None
    """Path of a file for the result; None = standard output."""
    quiet: int = 0
    verbose: int = 0
    color: bool = True
    """False if the user wants no colours; they also depend on the terminal."""


def output_of(args: argparse.Namespace) -> Output:
    """Output options of a command line; UsageError for invalid ones."""
    if args.quiet and args.verbose:
        raise ContradictionError("-q cannot be combined with -v")
    if args.output is not None and (not args.output or "\0" in args.output):
        raise UsageError("-o names no file", code="usage-path", hint="give a path after -o")
    return Output(format=args.format, output=args.output, quiet=args.quiet, verbose=args.verbose, color=not args.no_color)


def lock_among(args: argparse.Namespace) -> argparse.Namespace:
    """Move a lock from the requirements to `args.lock`; ContradictionError for several words.

    A lock is a word that ends in `.toml` (or `.tar` for a bundle), or any path except that of an archive or a project.
    """
    from cudnn_resolve.host import disk

    def is_lock(word: str) -> bool:
        if disk.is_folder(word):
            from cudnn_resolve.host.bundle import is_bundle

            if is_bundle(word):
                return True
        if word.endswith((".toml", ".tar")):
            return True
        is_package = "://" in word or " @ " in word or word.endswith((".whl", ".gz", ".zip", ".tgz", ".bz2"))
        return not is_package and (disk.is_regular(word) or ("/" in word and not disk.is_folder(word)))

    locks = [word for word in args.packages if is_lock(word)]
    if len(args.packages) > 1 and locks:
        other = next((word for word in args.packages if word != locks[0]), locks[0])
        hint = "`cudnn-resolve lock` changes what the lock installs"
        raise ContradictionError(f"the lock {locks[0]} cannot be combined with {other}", hint=hint)
    args.lock = locks[0] if locks else None
    args.packages = [] if locks else args.packages
    return args


def request_of(kind: type[R], args: argparse.Namespace) -> R:
    """The request of a command line; formats with a picture also need version ranges."""
    options = declared(kind)
    words = {name: value for name, value in vars(args).items() if name in options}
    if "ranges" in options:
        words["ranges"] = getattr(args, "format", None) in ("html", "svg")
    return make(kind, {name: _number(options[name], word) if options[name].is_number else word for name, word in words.items()})


def _number(option: Declared, given: str | int | None) -> int | None:
    """The value of an option that takes a small number; a default is one already."""
    if not isinstance(given, str):
        return given
    if not (given.isascii() and given.isdigit() and len(given) < 5):
        raise UsageError(
            f"--{option.key} {given!r} is not a number",
            code=f"option-{option.key}",
            hint=f"a whole number from 0, such as --{option.key} 0",
        )
    return int(given)


def add_options(place: argparse._ActionsContainer, kind: type[Struct], *names: str, hidden: Collection[str] = ()) -> None:
    """Add options declared by the fields of a request; `hidden` ones are accepted, but not in the help."""
    for name in names:
        option = declared(kind)[name]
        if option.is_flag:
            settings: dict[str, Any] = {"action": "store_true"}
        else:
            settings = {"action": "append" if option.is_list else "store", "choices": option.choices or None, "metavar": option.metavar}
            settings["default"] = option.default or None
        place.add_argument(*option.flags, dest=name, help=argparse.SUPPRESS if name in hidden else option.help, **settings)


def add_output_options(parser: argparse.ArgumentParser, formats: Sequence[str] = ("text", "json")) -> None:
    """Add output options; the first of `formats` is the default."""
    group = parser.add_argument_group("output")
    about = f"{', '.join(formats)} (default: {formats[0]})"
    group.add_argument("--format", choices=formats, default=formats[0], metavar="FORMAT", help=about)
    group.add_argument("-o", "--output", metavar="FILE", help="write the result to a file; an existing one stays on failure")
    group.add_argument("-q", "--quiet", action="count", default=0, help="print less")
    group.add_argument("-v", "--verbose", action="count", default=0, help="print more")
    group.add_argument("--no-color", action="store_true", help="no colours, like with NO_COLOR")


def add_common_options(
    parser: argparse.ArgumentParser,
    formats: Sequence[str] = ("text", "json"),
    *,
    words: tuple[str, str] | None = ("REQ", ""),
    platforms: bool = False,
    elsewhere: bool | None = True,
    takes: Sequence[str] = (),
) -> None:
    """Add the options that all resolving commands share.

    `words` are the placeholder for positional arguments and an addition to their help, None if the command takes none. `platforms`:
    several platforms are possible; `elsewhere`: the plan may be for another machine, None if it is for no single machine; `takes` are
    further options of the command.
    """
    group = parser.add_argument_group("what you want")
    if words is not None:
        placeholder, addition = words
        group.add_argument("packages", nargs="*", metavar=placeholder, help=f"{declared(Options)['packages'].help}{addition}")
    add_options(group, Options, *_TARGETS)
    if elsewhere is not None:
        _add_machine(parser, platforms=platforms, elsewhere=elsewhere)
    add_options(parser.add_argument_group("how to choose"), Options, *_CHOICE)
    add_options(parser, Options, *takes)
    about = "The default is the configuration of the target's pip or uv."
    add_options(parser.add_argument_group("where packages come from", about), Options, *INDEXES, "no_variant_indexes")
    add_output_options(parser, formats)


def _add_machine(parser: argparse.ArgumentParser, *, platforms: bool, elsewhere: bool) -> None:
    hidden = () if elsewhere else _ELSEWHERE
    add_options(parser.add_argument_group("which machine and environment"), Options, "python", "facts", hidden=hidden)
    about = "They replace detected facts."
    if elsewhere:
        about += (
            " With --python-version or --platform the plan is for a fresh environment on another machine: nothing is detected here, and "
        )
        about += "facts that are not stated are unknown."
    group = parser.add_argument_group("facts stated by hand", about)
    for name in FACTS:
        if name == "platform" and platforms:
            text = f"{declared(Options)[name].help}; repeatable"
            group.add_argument("--platform", metavar="PLATFORM", dest="platforms", action="append", help=text)
        else:
            add_options(group, Options, name, hidden=hidden)
