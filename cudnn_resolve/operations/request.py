"""Options to the request that the resolution answers."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.host import disk
from cudnn_resolve.host.files import exists, path_from, read_bounded
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.toml import decode
from cudnn_resolve.operations.options import Options, said
from cudnn_resolve.requirement.model import Extra, Limit, Request, Target
from cudnn_resolve.requirement.source import Direct

if TYPE_CHECKING:
    from cudnn_resolve.requirement.file import Line, Reference, Setting

_ADDRESSES = frozenset({"--index-url", "--extra-index-url", "--find-links"})
_PROPOSED = (
    *("requirement", "constraint", "group", "facts", "python", "env", "kernel"),
    *("machine", "driver", "gpu", "python_version", "platform", "glibc", "os"),
    *("allow_break", "reinstall_package", "prefer", "matrix", "index_url", "extra_index_url", "find_links", "pre"),
    *("index_strategy", "exclude_newer", "no_binary", "only_binary", "offline"),
)
"""Options that a proposed command repeats, in its order; targets and limits are those of the request."""
_FIRST = frozenset({"--index-url", "--pre"})
"""Options of which the command line's own counts, else the first of the files."""
_OF_FILES = frozenset({"--no-index", "--trusted-host"})
"""Settings that only files have."""
SPOKEN = "the command line"
"""Origin of a requirement that stands in no file."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
SIZE = 4 * 1024 * 1024
"""Largest requirements file, in bytes."""


class Wishes(Struct, frozen=True, kw_only=True):
    """What files ask for besides the frameworks of the command line."""

    extras: tuple[Extra, ...] = ()
    """Those of the command line first."""
    references: tuple[Reference, ...] = ()
    settings: tuple[Setting, ...] = ()


def request_of(options: Options, book: Book, wishes: Wishes, direct: Sequence[Direct] = ()) -> Request:
    """The request behind the options; UsageError or InputError where a wish cannot be read, or where there is none.

    `direct` holds what is behind the references among the wishes.
    """
    from cudnn_resolve.requirement.derive import merged, parse_target

    pre = options.pre or any(one.option == "--pre" for one in wishes.settings)
    targets = [parse_target(text, book) for text in options.framework if _companion(text, book) is None]
    extras = [Extra(text=text, origin=SPOKEN) for text in options.framework if _companion(text, book) is not None]
    for extra in wishes.extras:
        target = None if extra.constraint else _framework(extra, book)
        if target is None:
            extras.append(extra)
        else:
            targets.append(target)
    if not targets:
        targets = list(_implied(extras, book))
    if not targets and not options.reinstall_package:
        near = [one for text in options.packages for one in book.nearest(text)]
        hint = f"did you mean {' or '.join(f'`{one}`' for one in dict.fromkeys(near))}? " if near else ""
        raise UsageError(
            "no framework is asked for",
            code="no-target",
            hint=f"{hint}name one: `-f tensorflow==2.15`; known: {', '.join(book.frameworks())}; other packages are planned path_from one",
        )
    plain = request_without_targets(options)
    spoken = (*(one.text for one in extras if one.origin == SPOKEN), *(one.place for one in wishes.references if one.origin == SPOKEN))
    return replace(
        plain,
        context=(*(("", text) for text in spoken), *plain.context),
        allow_break=frozenset(_named(name, book) for name in options.allow_break),
        targets=merged(replace(one, pre=pre) for one in targets if one.marker is None),
        conditional=tuple(replace(one, pre=pre) for one in targets if one.marker is not None),
        pre=pre,
        extras=tuple(extras),
        direct={one.name: one for one in direct},
        settings=tuple(_settings(wishes, options)),
    )


def _companion(text: str, book: Book) -> str | None:
    """The framework that a package goes with, `torch` for `torchvision>=0.21`; None for a framework and for any other text."""
    name = _NAME.match(text.strip())
    return book.companion_of(name[0]) if name is not None and not book.is_framework(name[0]) else None


def _implied(extras: Iterable[Extra], book: Book) -> Iterator[Target]:
    """The frameworks that packages go with, for a request that names none."""
    from packaging.specifiers import SpecifierSet

    for extra in extras:
        framework = None if extra.constraint else _companion(extra.text, book)
        if framework is not None:
            yield Target(text=framework, framework=framework, specifier=SpecifierSet(), origin=f"`{extra.text}`, which goes with it")


def _named(name: str, book: Book) -> str:
    """The framework of a name; UsageError for one that nobody knows."""
    try:
        return book.framework(name).name
    except KeyError:
        near = book.nearest(name)
        raise UsageError(
            f"no framework is called `{name}`",
            code="unknown-framework",
            context="--allow-break",
            hint=(f"did you mean {' or '.join(f'`{one}`' for one in near)}? " if near else "") + f"known: {', '.join(book.frameworks())}",
        ) from None


def request_without_targets(options: Options) -> Request:
    """How a plan is to be made, whatever for; UsageError where a limit cannot be read."""
    return Request(
        targets=(),
        cuda=_limit(options.cuda, "--cuda"),
        cudnn=_limit(options.cudnn, "--cudnn"),
        prefer=options.prefer or "installed",
        driver_policy=options.driver_policy or "minor",
        device=options.device or "gpu",
        strict_pins=options.strict_pins,
        channel=options.channel or "auto",
        variant_indexes=not options.no_variant_indexes,
        context=_context(options),
    )


def _limit(text: str | None, option: str) -> Limit | None:
    if not text:
        return None
    from cudnn_resolve.requirement.derive import parse_limit

    return parse_limit(text, option)


def wishes_of(options: Options) -> Wishes:
    """What the files of `-r`, `-c` and `--group` ask for; InputError where one cannot be read."""
    if not (options.packages or options.requirement or options.constraint or options.group):
        return Wishes()
    from cudnn_resolve.requirement.file import Reference, Setting

    lines = list(_lines(options))
    return Wishes(
        extras=tuple(one for one in lines if isinstance(one, Extra)),
        references=tuple(one for one in lines if isinstance(one, Reference)),
        settings=tuple(_placed(one) for one in lines if isinstance(one, Setting)),
    )


def _placed(setting: Setting) -> Setting:
    """A setting with its folder seen from here: pip reads `--find-links` relative to the file where that exists."""
    if setting.option != "--find-links" or "://" in setting.value or setting.value.startswith("file:"):
        return setting
    near = path_from(setting.value, setting.origin.rpartition(":")[0])
    return replace(setting, value=near) if exists(near) else setting


def _lines(options: Options) -> Iterator[Line]:
    from cudnn_resolve.requirement.file import read_requirements
    from cudnn_resolve.requirement.project import read_group, read_project

    def read(path: str, base: str | None) -> tuple[str, str]:
        where = path_from(path, base)
        return where, read_bounded(where, SIZE, "requirements file")

    def in_folder(path: str) -> str:
        return os.path.join(path, "pyproject.toml") if disk.is_folder(path) else path

    def project(path: str) -> dict[str, Any]:
        try:
            return decode(read_bounded(path, SIZE, "project file"))
        except ValueError as error:
            raise InputError(f"is not TOML: {error}", code="project-invalid", context=path) from None

    spoken = "\n".join(" ".join(word.split()) for word in options.packages)
    yield from (replace(line, origin=SPOKEN) for line in read_requirements(SPOKEN, lambda *_: (SPOKEN, spoken)))
    for path in options.requirement:
        file, _, inside = path.partition("[") if path.endswith("]") else (path, "", "]")
        file = in_folder(file)
        if os.path.basename(file) == "pyproject.toml":
            yield from read_project(project(file), file, [extra.strip() for extra in inside[:-1].split(",") if extra.strip()])
        else:
            yield from read_requirements(path, read)
    for word in options.group:
        where, _, name = word.rpartition(":")
        where = in_folder(where) if where else "pyproject.toml"
        yield from read_group(project(where), where, name)
    for path in options.constraint:
        yield from read_requirements(path, read, constraint=True)


def _framework(extra: Extra, book: Book) -> Target | None:
    """A further requirement that is a framework, which is then a target like the others."""
    from packaging.requirements import Requirement

    from cudnn_resolve.requirement.derive import parse_target

    requirement = Requirement(extra.text)
    spoken = extra.origin == SPOKEN
    if book.framework_of(requirement.name) is None and not (spoken and book.is_framework(requirement.name)):
        return None
    marker, requirement.marker = requirement.marker, None
    plain = parse_target(str(requirement) if marker else extra.text, book)
    return replace(plain, origin=None if spoken else extra.origin, marker=str(marker) if marker else None, hashes=extra.hashes)


def _context(options: Options) -> tuple[tuple[str, str], ...]:
    """The options that describe machine and environment, for the commands that are proposed; credentials left out."""
    if options.prefer == "installed":
        options = replace(options, prefer=None)
    pairs = [(name, _redacted(name, value)) for name, value in said(options, _PROPOSED)]
    return (*pairs, *options.repeated)


def _redacted(option: str, value: str) -> str:
    """The value of an option as it may be shown: an address without its login."""
    if option not in _ADDRESSES:
        return value
    from cudnn_resolve.masking import redacted

    return redacted(value)


def _settings(wishes: Wishes, options: Options) -> Iterator[tuple[str, str]]:
    """What files set of where packages come from, as options, credentials left out: for a command that leaves the files out."""
    known = {name for name, _ in _context(options)}
    for option, value in dict.fromkeys((one.option, one.value) for one in wishes.settings if one.option not in _OF_FILES):
        if option not in _FIRST or option not in known:
            known.add(option)
            yield option, _redacted(option, value)
