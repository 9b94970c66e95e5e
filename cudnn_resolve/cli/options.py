"""The options that mean the same wherever they apply, how they become a request, and how the result is printed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct

from cudnn_resolve.errors import UsageError
from cudnn_resolve.operations.keywords import make

_PREFER = ("installed", "newest")
_POLICY = ("minor", "strict")
_DEVICE = ("gpu", "cpu")
_CHANNEL = ("auto", "pip", "apt")
_STRATEGY = ("first-index", "best-match")
_OF_PACKAGES = {
    "--allow-break": "an installed framework that may stop working where nothing else leads to an answer; repeatable",
    "--reinstall-package": "lay the files of an installed package anew, where others overwrote them or took them along; repeatable, "
    "enough by itself",
}
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

    A word is a lock where it ends in `.toml`, or is a path, but of no archive and of no project.
    """
    from cudnn_resolve.host import disk

    def is_lock(word: str) -> bool:
        elsewhere = "://" in word or " @ " in word or word.endswith((".whl", ".gz", ".zip", ".tgz", ".bz2"))
        return word.endswith(".toml") or (not elsewhere and (disk.is_regular(word) or ("/" in word and not disk.is_folder(word))))

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


def _add_target_options(parser: argparse.ArgumentParser, words: str | None = "REQ", more: str | None = "") -> None:
    """What is asked for: requirements, -f, -r, --cuda, --cudnn; `words` is what bare words are, None for a command that takes none."""
    group = parser.add_argument_group("what you want")
    if words is not None:
        about = f"requirements as pip and uv take them: frameworks, `tensorflow==2.15`, and other packages{more}"
        group.add_argument("packages", nargs="*", metavar=words, help=about)
    group.add_argument(
        "-f", "--framework", metavar="REQ", action="append", help="a framework, or what goes with one, as `torchvision`; repeatable"
    )
    group.add_argument(
        "-r",
        "--requirement",
        metavar="FILE",
        action="append",
        help="further pip requirements of the project, resolved together: a requirements file, or `pyproject.toml[extra]`; repeatable",
    )
    group.add_argument(
        "-c", "--constraint", metavar="FILE", action="append", help="limits on packages that are needed anyway, as pip's; repeatable"
    )
    group.add_argument(
        "--group",
        metavar="[PATH:]NAME",
        action="append",
        help="a dependency group of ./pyproject.toml, or of the file or folder PATH; repeatable",
    )
    group.add_argument("--cuda", metavar="SPEC", help="limit CUDA: `12.4` (any 12.4.x), `>=12,<13`")
    group.add_argument("--cudnn", metavar="SPEC", help="limit cuDNN: `9.3` (any 9.3.x), `>=9.1`")


def add_machine_options(parser: argparse.ArgumentParser, *, elsewhere: bool = True) -> None:
    """Which machine and environment: --python, --facts; `elsewhere`: it may be another machine."""
    group = parser.add_argument_group("which machine and environment")
    group.add_argument(
        "--python", metavar="PATH", help="the interpreter whose environment is meant (default: the active one, ./.venv, or this one)"
    )
    about = (
        "another machine: what `detect --format json` wrote there, or its `nvidia-smi`, `collect_env` and the like; - reads standard input"
    )
    group.add_argument("--facts", metavar="FILE", help=about if elsewhere else argparse.SUPPRESS)


def _add_assumption_options(parser: argparse.ArgumentParser, *, platforms: bool = False, elsewhere: bool = True) -> None:
    """Single facts stated by hand; `platforms`: --platform may be said several times, and is a list."""
    about = " With --python-version or --platform the answer is for a fresh environment on another machine: nothing of this one counts, "
    about = f"{about}and what is not said is unknown." if elsewhere else ""
    group = parser.add_argument_group("facts stated by hand", f"They replace what was detected.{about}")
    group.add_argument("--driver", metavar="V", help="NVIDIA driver, `550.54.15`")
    group.add_argument("--gpu", metavar="NAME-OR-SM", action="append", help="`T4`, `RTX 4090`, `sm_90` or `9.0`; once for each GPU")
    group.add_argument("--python-version", metavar="X.Y", help="`3.11` or `3.11.9`" if elsewhere else argparse.SUPPRESS)
    group.add_argument(
        "--platform",
        metavar="PLATFORM",
        dest="platforms" if platforms else "platform",
        action="append" if platforms else "store",
        help="`linux_x86_64`, `linux_aarch64`, `manylinux_2_28_x86_64`" + ("; repeatable" if platforms else "")
        if elsewhere
        else argparse.SUPPRESS,
    )
    group.add_argument("--glibc", metavar="V", help="GNU C library, `2.35`")
    group.add_argument("--os", metavar="NAME", help="distribution with its release, `ubuntu22.04`, `debian12`, `rocky9`")


def _add_choice_options(parser: argparse.ArgumentParser) -> None:
    """How to choose among the answers that fit."""
    group = parser.add_argument_group("how to choose")
    group.add_argument(
        "--prefer", choices=_PREFER, help="among consistent answers: what is `installed` and fits (default), or the `newest`"
    )
    group.add_argument(
        "--driver-policy",
        choices=_POLICY,
        help="drivers that a CUDA runtime may have: `minor` (default), NVIDIA's minor-version rule; `strict`, the toolkit's own or newer",
    )
    group.add_argument("--device", choices=_DEVICE, help="`cpu` asks for builds without CUDA; never chosen silently")
    group.add_argument("--pre", action="store_true", default=None, help="pre-releases count like other releases, as pip's")
    group.add_argument("--strict-pins", action="store_true", default=None, help="wheels' own pins hold: no overrides")
    group.add_argument(
        "--channel", choices=_CHANNEL, help="where CUDA and cuDNN come from: `pip`, `apt`, or `auto` (default): pip where that serves"
    )
    group.add_argument("--matrix", metavar="DIR", action="append", help="further or changed rows for the compatibility tables; repeatable")


def _add_index_options(parser: argparse.ArgumentParser) -> None:
    """Where packages come from."""
    group = parser.add_argument_group("where packages come from", "Without these, what the target's pip or uv configuration says.")
    group.add_argument("--index-url", metavar="URL", help="package index, as pip's")
    group.add_argument("--extra-index-url", metavar="URL", action="append", help="a further index, as pip's; repeatable")
    group.add_argument("--find-links", metavar="PATH", action="append", help="a folder or page of wheels, as pip's; repeatable")
    group.add_argument(
        "--index-strategy",
        choices=_STRATEGY,
        help="of several indexes: `first-index`, the first that has the name (uv's rule), or `best-match`, the best version of all (pip's)",
    )
    group.add_argument(
        "--exclude-newer", metavar="DATE", help="nothing that was uploaded after this day, as 2025-06-30 or an ISO 8601 time"
    )
    group.add_argument("--no-binary", metavar="NAMES", action="append", help="no wheels of these packages, as pip's; `:all:` for every one")
    group.add_argument("--only-binary", metavar="NAMES", action="append", help="only wheels of these packages, as pip's")
    group.add_argument(
        "--no-variant-indexes",
        action="store_true",
        default=None,
        help="only the configured indexes, and none that the tables name for a variant such as torch+cu126",
    )
    group.add_argument("--offline", action="store_true", default=None, help="matrix and cache only; what stays open is listed as unpinned")


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
    words: tuple[str | None, ...] = ("REQ",),
    platforms: bool = False,
    elsewhere: bool = True,
    takes: Sequence[str] = (),
) -> None:
    """Every option of this module, for verbs that resolve.

    `words` say what bare words are, see `_add_target_options`; `platforms`: for several at once; `elsewhere`: another machine may be
    meant; `takes` are the options of `_OF_PACKAGES` that the verb has.
    """
    _add_target_options(parser, *words)
    add_machine_options(parser, elsewhere=elsewhere)
    _add_assumption_options(parser, platforms=platforms, elsewhere=elsewhere)
    _add_choice_options(parser)
    for option in takes:
        parser.add_argument(option, metavar="NAME", action="append", help=_OF_PACKAGES[option])
    _add_index_options(parser)
    add_output_options(parser, formats)
