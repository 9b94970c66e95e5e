"""The options that mean the same wherever they apply, how they become a request, and how the result is printed."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from cudnn_resolve.errors import UsageError
from cudnn_resolve.operations.keywords import make
from cudnn_resolve.operations.options import Options, declared

_TARGETS = ("framework", "requirement", "constraint", "group", "cuda", "cudnn")
_STATED = ("machine", "driver", "gpu", "python_version", "platform", "glibc", "os")
_CHOICE = ("prefer", "driver_policy", "device", "pre", "strict_pins", "channel", "matrix")
_INDEXES = (
    *("index_url", "extra_index_url", "find_links", "index_strategy", "exclude_newer", "no_binary", "only_binary"),
    *("no_variant_indexes", "offline"),
)
_ELSEWHERE = ("facts", "machine", "python_version", "platform")
"""Options that speak of another machine."""
R = TypeVar("R", bound=Struct)


class Output(Struct, frozen=True, kw_only=True):
    """How and where the result is printed."""

    format: str = "text"
    output: str | None = None
    """File for the result; None = standard output."""
    quiet: int = 0
    verbose: int = 0
    color: bool = True
    """False where the user wants none; a terminal without colours decides for itself."""


def output_of(args: argparse.Namespace) -> Output:
    """What a command line says of the output; UsageError where it contradicts itself."""
    if args.quiet and args.verbose:
        raise UsageError("-q and -v contradict each other: less and more", code="usage-contradiction", hint="leave one of them out")
    if args.output is not None and (not args.output or "\0" in args.output):
        raise UsageError("-o names no file", code="usage-path", hint="give a path after -o")
    return Output(format=args.format, output=args.output, quiet=args.quiet, verbose=args.verbose, color=not args.no_color)


def lock_among(args: argparse.Namespace) -> argparse.Namespace:
    """The command line with a lock among its words in a place of its own; UsageError where there are several, or requirements, too.

    A word is a lock where it ends in `.toml`, or in `.tar` as a bundle may, or is a path, but of no archive and of no project.
    """
    from cudnn_resolve.host import disk

    def is_lock(word: str) -> bool:
        if disk.is_folder(word):
            from cudnn_resolve.host.bundle import is_bundle

            if is_bundle(word):
                return True
        elsewhere = "://" in word or " @ " in word or word.endswith((".whl", ".gz", ".zip", ".tgz", ".bz2"))
        return word.endswith((".toml", ".tar")) or (not elsewhere and (disk.is_regular(word) or ("/" in word and not disk.is_folder(word))))

    locks = [word for word in args.packages if is_lock(word)]
    if len(args.packages) > 1 and locks:
        other = next((word for word in args.packages if word != locks[0]), locks[0])
        hint = "the lock says what is installed; `cudnn-resolve lock` changes it"
        raise UsageError(f"the lock {locks[0]} and {other} contradict each other", code="usage-contradiction", hint=hint)
    args.lock = locks[0] if locks else None
    args.packages = [] if locks else args.packages
    return args


def request_of(kind: type[R], args: argparse.Namespace) -> R:
    """The request that a command line asks."""
    return make(kind, {name: value for name, value in vars(args).items() if name in kind.__struct_fields__})


def add_options(place: argparse._ActionsContainer, kind: type[Struct], *names: str, hidden: Collection[str] = ()) -> None:
    """Add options as the fields of a request declare them; those that are `hidden` are taken, and help does not show them."""
    for name in names:
        one = declared(kind)[name]
        if one.is_flag:
            how: dict[str, Any] = {"action": "store_true"}
        else:
            how = {"action": "append" if one.is_list else "store", "choices": one.choices or None, "metavar": one.metavar}
            how["default"] = one.default or None
        place.add_argument(*one.flags, dest=name, help=argparse.SUPPRESS if name in hidden else one.help, **how)


def add_output_options(parser: argparse.ArgumentParser, formats: Sequence[str] = ("text", "json")) -> None:
    """How and where the result is printed; the first of `formats` is the default."""
    group = parser.add_argument_group("output")
    about = f"{', '.join(formats)} (default: {formats[0]})"
    group.add_argument("--format", choices=formats, default=formats[0], metavar="FORMAT", help=about)
    group.add_argument("-o", "--output", metavar="FILE", help="write the result there; a failure leaves the old file")
    group.add_argument("-q", "--quiet", action="count", default=0, help="say less")
    group.add_argument("-v", "--verbose", action="count", default=0, help="say more")
    group.add_argument("--no-color", action="store_true", help="no colours; NO_COLOR is honoured, too")


def add_common_options(
    parser: argparse.ArgumentParser,
    formats: Sequence[str] = ("text", "json"),
    *,
    words: tuple[str, str] | None = ("REQ", ""),
    platforms: bool = False,
    elsewhere: bool | None = True,
    takes: Sequence[str] = (),
) -> None:
    """Every option that commands which resolve have in common.

    `words` say what bare words are called and what they may be besides requirements, None where the command takes none. `platforms`: for
    several platforms at once; `elsewhere`: another machine may be meant, None where no single one is; `takes` are further options
    that the command has.
    """
    group = parser.add_argument_group("what you want")
    if words is not None:
        name, besides = words
        group.add_argument("packages", nargs="*", metavar=name, help=f"{declared(Options)['packages'].help}{besides}")
    add_options(group, Options, *_TARGETS)
    if elsewhere is not None:
        _add_machine(parser, platforms=platforms, elsewhere=elsewhere)
    add_options(parser.add_argument_group("how to choose"), Options, *_CHOICE)
    add_options(parser, Options, *takes)
    about = "Without these, what the target's pip or uv configuration says."
    add_options(parser.add_argument_group("where packages come from", about), Options, *_INDEXES)
    add_output_options(parser, formats)


def _add_machine(parser: argparse.ArgumentParser, *, platforms: bool, elsewhere: bool) -> None:
    hidden = () if elsewhere else _ELSEWHERE
    add_options(parser.add_argument_group("which machine and environment"), Options, "python", "facts", hidden=hidden)
    about = " With --python-version or --platform the answer is for a fresh environment on another machine: nothing of this one counts, "
    about = f"{about}and what is not said is unknown." if elsewhere else ""
    group = parser.add_argument_group("facts stated by hand", f"They replace what was detected.{about}")
    for name in _STATED:
        if name == "platform" and platforms:
            about = f"{declared(Options)[name].help}; repeatable"
            group.add_argument("--platform", metavar="PLATFORM", dest="platforms", action="append", help=about)
        else:
            add_options(group, Options, name, hidden=hidden)
