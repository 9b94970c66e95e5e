"""The options that mean the same wherever they apply, and the frozen value that is made of them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from cudnn_resolve.errors import UsageError
from cudnn_resolve.facts.assume import Assumptions
from cudnn_resolve.facts.model import Facts

_BARE = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_PREFER = ("installed", "newest")
_POLICY = ("minor", "strict")
_DEVICE = ("gpu", "cpu")
_CHANNEL = ("auto", "pip", "apt")
_STRATEGY = ("first-index", "best-match")


class Options(Struct, frozen=True, kw_only=True):
    """What the user said, with the project's settings and the defaults below it."""

    frameworks: tuple[str, ...] = ()
    """PEP 508 requirements, in the order of the command line."""
    requirement_files: tuple[str, ...] = ()
    cuda: str | None = None
    """A PEP 440 specifier, as it was written or `==12.4.*` for a bare `12.4`."""
    cudnn: str | None = None
    python: str | None = None
    """Path or name of the interpreter; None = the active environment's, else the running one."""
    facts: str | None = None
    """A facts file; `-` is standard input."""
    given: Facts | None = None
    """Facts that a caller of the library hands in."""
    assumptions: Assumptions = field(default_factory=Assumptions)
    prefer: Literal["installed", "newest"] = "installed"
    driver_policy: Literal["minor", "strict"] = "minor"
    device: Literal["gpu", "cpu"] | None = None
    """None = not said: a GPU is meant, and a CPU answer must say so."""
    strict_pins: bool = False
    channel: Literal["auto", "pip", "apt"] = "auto"
    constraint_files: tuple[str, ...] = ()
    allow_break: tuple[str, ...] = ()
    """Installed frameworks that may stop working."""
    reinstall: tuple[str, ...] = ()
    """Installed packages whose files are laid anew."""
    groups: tuple[str, ...] = ()
    """Dependency groups, `NAME` or `PATH:NAME`."""
    index_url: str | None = None
    """None = whatever the target's pip or uv configuration says."""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    index_strategy: str | None = None
    """None = that of the configuration that names the indexes."""
    exclude_newer: str | None = None
    """An ISO 8601 date or time."""
    no_binary: tuple[str, ...] = ()
    only_binary: tuple[str, ...] = ()
    pre: bool = False
    variant_indexes: bool = True
    offline: bool = False
    format: str = "text"
    output: str | None = None
    """File for the result; None = standard output."""
    quiet: int = 0
    verbose: int = 0
    color: bool = True
    """False where the user wants none; a terminal without colours decides for itself."""
    matrices: tuple[str, ...] = ()
    """Folders with further or changed rows, the last one on top."""
    repeated: tuple[tuple[str, str], ...] = ()
    """Options of one command alone, as they were given: the same command, when it is proposed, repeats them."""


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """What is asked for: -f, -r, --cuda, --cudnn."""
    group = parser.add_argument_group("what you want")
    group.add_argument(
        "-f", "--framework", metavar="REQ", action="append", help="a framework, as `tensorflow==2.15`, `torch>=2.4` or `jax`; repeatable"
    )
    group.add_argument(
        "-r",
        "--requirement",
        metavar="FILE",
        action="append",
        help="further pip requirements of the project, resolved together: a requirements file, or a pyproject.toml; repeatable",
    )
    group.add_argument(
        "-c", "--constraint", metavar="FILE", action="append", help="limits on packages that are needed anyway, as pip's; repeatable"
    )
    group.add_argument(
        "--group", metavar="[PATH:]NAME", action="append", help="a dependency group of ./pyproject.toml or of PATH; repeatable"
    )
    group.add_argument("--cuda", metavar="SPEC", help="limit CUDA: `12.4` (any 12.4.x), `>=12,<13`")
    group.add_argument("--cudnn", metavar="SPEC", help="limit cuDNN: `9.3` (any 9.3.x), `>=9.1`")


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    """Which machine and environment: --python, --facts."""
    group = parser.add_argument_group("which machine and environment")
    group.add_argument(
        "--python", metavar="PATH", help="the interpreter whose environment is meant (default: the active one, else this one)"
    )
    group.add_argument("--facts", metavar="FILE", help="another machine: what `detect --format json` wrote there; - reads standard input")


def add_assumption_options(parser: argparse.ArgumentParser, *, platforms: bool = False) -> None:
    """Single facts stated by hand; `platforms`: --platform may be said several times, and is a list."""
    group = parser.add_argument_group(
        "facts stated by hand",
        "They replace what was detected. With --python-version or --platform the answer is for a fresh environment on "
        "another machine: nothing of this one counts, and what is not said is unknown.",
    )
    group.add_argument("--driver", metavar="V", help="NVIDIA driver, `550.54.15`")
    group.add_argument("--gpu", metavar="NAME-OR-SM", action="append", help="`T4`, `RTX 4090`, `sm_90` or `9.0`; once for each GPU")
    group.add_argument("--python-version", metavar="X.Y", help="`3.11` or `3.11.9`")
    group.add_argument(
        "--platform",
        metavar="PLATFORM",
        action="append" if platforms else "store",
        help="`linux_x86_64`, `linux_aarch64`, `manylinux_2_28_x86_64`" + ("; repeatable" if platforms else ""),
    )
    group.add_argument("--glibc", metavar="V", help="GNU C library, `2.35`")
    group.add_argument("--os", metavar="NAME", help="distribution with its release, `ubuntu22.04`, `debian12`, `rocky9`")


def add_choice_options(parser: argparse.ArgumentParser) -> None:
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


def add_allow_break_option(parser: argparse.ArgumentParser) -> None:
    """Installed frameworks that may be given up."""
    parser.add_argument(
        "--allow-break",
        metavar="NAME",
        action="append",
        help="an installed framework that may stop working where nothing else leads to an answer; repeatable",
    )


def add_reinstall_option(parser: argparse.ArgumentParser) -> None:
    """Packages that are installed anew although their version stays."""
    parser.add_argument(
        "--reinstall-package",
        metavar="NAME",
        action="append",
        help="lay the files of an installed package anew, where others overwrote them or took them along; repeatable, enough by itself",
    )


def add_index_options(parser: argparse.ArgumentParser) -> None:
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
    group.add_argument("--format", choices=formats, default=formats[0], help=f"{', '.join(formats)} (default: {formats[0]})")
    group.add_argument("-o", "--output", metavar="FILE", help="write the result there; a failure leaves the old file")
    group.add_argument("-q", "--quiet", action="count", default=0, help="say less")
    group.add_argument("-v", "--verbose", action="count", default=0, help="say more")
    group.add_argument("--no-color", action="store_true", help="no colours; NO_COLOR is honoured, too")


def add_common_options(parser: argparse.ArgumentParser, formats: Sequence[str] = ("text", "json"), *, platforms: bool = False) -> None:
    """Every option of this module, for verbs that resolve; for several `platforms` at once where that is said."""
    add_target_options(parser)
    add_machine_options(parser)
    add_assumption_options(parser, platforms=platforms)
    add_choice_options(parser)
    if not platforms:  # an answer for several machines is for none that exists
        add_allow_break_option(parser)
    add_index_options(parser)
    add_output_options(parser, formats)


def options_of(args: argparse.Namespace, settings: Mapping[str, Any] | None = None) -> Options:
    """The options of a command line over the project's settings (`[tool.cudnn-resolve]`) over the defaults.

    A verb need not have every option. A list on the command line replaces the settings' list, but folders of `--matrix` lie on top
    of theirs. UsageError where options contradict each other or cannot be.
    """
    below = dict(settings or {})

    def said(option: str) -> Any:
        value = getattr(args, option.replace("-", "_"), None)
        return below.get(option) if value is None else value

    _refuse_contradictions(args)
    return Options(
        frameworks=tuple(said("framework") or ()),
        requirement_files=tuple(said("requirement") or ()),
        cuda=_specifier("--cuda", said("cuda")),
        cudnn=_specifier("--cudnn", said("cudnn")),
        python=_path("--python", said("python")),
        facts=_path("--facts", said("facts")),
        assumptions=Assumptions(
            driver=said("driver"),
            gpus=tuple(said("gpu") or ()),
            python_version=said("python-version"),
            platform=said("platform"),
            glibc=said("glibc"),
            os=said("os"),
        ),
        prefer=said("prefer") or "installed",
        driver_policy=said("driver-policy") or "minor",
        device=said("device"),
        strict_pins=bool(said("strict-pins")),
        channel=said("channel") or "auto",
        index_url=said("index-url"),
        extra_index_urls=tuple(said("extra-index-url") or ()),
        find_links=tuple(said("find-links") or ()),
        index_strategy=said("index-strategy"),
        exclude_newer=_time("--exclude-newer", said("exclude-newer")),
        no_binary=tuple(said("no-binary") or ()),
        only_binary=tuple(said("only-binary") or ()),
        constraint_files=tuple(said("constraint") or ()),
        groups=tuple(said("group") or ()),
        allow_break=tuple(getattr(args, "allow_break", None) or ()),
        reinstall=tuple(getattr(args, "reinstall_package", None) or ()),
        pre=bool(said("pre")),
        variant_indexes=not said("no-variant-indexes"),
        offline=bool(said("offline")),
        format=getattr(args, "format", "text"),
        output=_path("-o", getattr(args, "output", None)),
        quiet=getattr(args, "quiet", 0),
        verbose=getattr(args, "verbose", 0),
        color=not getattr(args, "no_color", False),
        matrices=(*below.get("matrix", ()), *(getattr(args, "matrix", None) or ())),
    )


def _refuse_contradictions(args: argparse.Namespace) -> None:
    def given(name: str) -> bool:
        return bool(getattr(args, name, None))

    def refuse(one: str, other: str, why: str, hint: str) -> None:
        raise UsageError(f"{one} and {other} contradict each other: {why}", code="usage-contradiction", hint=hint)

    if given("facts") and given("python"):
        refuse("--facts", "--python", "a facts file describes its own interpreter", "leave one of them out, or say --python-version X.Y")
    for option in ("python_version", "platform"):
        if given("python") and given(option):
            name = "--" + option.replace("_", "-")
            refuse("--python", name, f"{name} plans for a fresh environment on another machine", "leave one of them out")
    if getattr(args, "device", None) == "cpu":
        for option in ("gpu", "cuda", "cudnn"):
            if given(option):
                refuse("--device cpu", f"--{option}", "CPU builds use no GPU, CUDA or cuDNN", "leave one of them out")
    if given("quiet") and given("verbose"):
        refuse("-q", "-v", "less and more", "leave one of them out")


def _path(option: str, text: str | None) -> str | None:
    if text is not None and (not text or "\0" in text):
        raise UsageError(f"{option} names no file", code="usage-path", hint=f"give a path after {option}")
    return text


def _time(option: str, text: str | None) -> str | None:
    """The time as ISO 8601 in UTC: a day means the end of that day."""
    if text is None:
        return None
    found = _DAY.fullmatch(text.strip())
    try:
        from datetime import datetime, timedelta, timezone

        time = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(f"{option} {text!r} is no date", code="option-time", hint=f"such as {option} 2025-06-30") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    if found:
        time += timedelta(days=1)
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _specifier(option: str, text: str | None) -> str | None:
    """A PEP 440 specifier for what the user wrote; a bare version means its whole line."""
    if text is None:
        return None
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    written = text.strip()
    if _BARE.fullmatch(written):
        written = f"=={written}.*"
    try:
        clauses = len(SpecifierSet(written))
    except InvalidSpecifier:
        clauses = 0
    if not clauses:
        raise UsageError(
            f"{option} {text!r} is not a version specifier", code="option-specifier", hint=f"such as {option} 12.4 or {option} '>=12,<13'"
        )
    return written
