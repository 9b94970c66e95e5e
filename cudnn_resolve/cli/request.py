"""Options to the request that the resolution answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudnn_resolve.errors import UsageError
from cudnn_resolve.record import replace
from cudnn_resolve.requirement.model import Extra, Request, Target

if TYPE_CHECKING:
    from cudnn_resolve.cli.options import Options
    from cudnn_resolve.matrix.book import Book

SIZE = 4 * 1024 * 1024
"""Largest requirements file, in bytes."""


def request_of(options: Options, book: Book) -> Request:
    """The request behind the options; UsageError or InputError where a wish cannot be read, or where there is none."""
    from cudnn_resolve.requirement.derive import parse_limit, parse_target

    targets = [parse_target(text, book) for text in options.frameworks]
    extras = []
    for extra in _requirements(options):
        target = _framework(extra, book)
        if target is None:
            extras.append(extra)
        else:
            targets.append(target)
    if not targets:
        raise UsageError(
            "no framework is asked for",
            code="no-target",
            hint=f"name one: `-f tensorflow==2.15`; known: {', '.join(book.frameworks())}",
        )
    return Request(
        targets=_merged(targets),
        extras=tuple(extras),
        cuda=parse_limit(options.cuda, "--cuda") if options.cuda else None,
        cudnn=parse_limit(options.cudnn, "--cudnn") if options.cudnn else None,
        prefer=options.prefer,
        driver_policy=options.driver_policy,
        device=options.device or "gpu",
        strict_pins=options.strict_pins,
        channel=options.channel,
        context=_context(options),
    )


def _requirements(options: Options) -> list[Extra]:
    if not options.requirement_files:
        return []
    from cudnn_resolve.host.files import beside, read_bounded
    from cudnn_resolve.requirement.file import read_requirements

    def read(path: str, base: str | None) -> tuple[str, str]:
        where = beside(path, base)
        return where, read_bounded(where, SIZE, "requirements file")

    return [extra for path in options.requirement_files for extra in read_requirements(path, read)]


def _framework(extra: Extra, book: Book) -> Target | None:
    """A further requirement that is a framework, which is then a target like the others."""
    from packaging.requirements import Requirement

    from cudnn_resolve.requirement.derive import parse_target

    requirement = Requirement(extra.text)
    if book.framework_of(requirement.name) is None or requirement.marker is not None:
        return None
    return replace(parse_target(extra.text, book), origin=extra.origin)


def _merged(targets: list[Target]) -> tuple[Target, ...]:
    """Targets of one framework as one, with all its specifiers and extras."""
    out: dict[str, Target] = {}
    for target in targets:
        old = out.get(target.framework)
        if old is None:
            out[target.framework] = target
            continue
        package = old.package or target.package
        if old.package and target.package and old.package != target.package:
            raise UsageError(
                f"`{old.text}` and `{target.text}` are two packages of one framework", code="two-packages", context="--framework"
            )
        out[target.framework] = replace(
            old,
            text=old.text if target.text == old.text else f"{old.text},{target.text.removeprefix(target.package or target.framework)}",
            specifier=old.specifier & target.specifier,
            package=package,
            extras=tuple(sorted({*old.extras, *target.extras})),
            origin=old.origin or target.origin,
        )
    return tuple(out.values())


def _context(options: Options) -> tuple[tuple[str, str], ...]:
    """The options that describe machine and environment, for the commands that are proposed."""
    stated = options.assumptions
    pairs = [
        *(("--requirement", path) for path in options.requirement_files),
        ("--facts", options.facts),
        ("--python", options.python),
        ("--driver", stated.driver),
        *(("--gpu", gpu) for gpu in stated.gpus),
        ("--python-version", stated.python_version),
        ("--platform", stated.platform),
        ("--glibc", stated.glibc),
        ("--os", stated.os),
        ("--prefer", options.prefer if options.prefer != "installed" else None),
        *(("--matrix", path) for path in options.matrices),
    ]
    return tuple((name, value) for name, value in pairs if value)
