"""The answers of `matrix show`: what a name and a version mean, and both forms of the answer."""

from __future__ import annotations

from typing import Any

from cudnn_resolve.cli.options import Output
from cudnn_resolve.cli.printing import style_of, width_of
from cudnn_resolve.errors import UsageError
from cudnn_resolve.matrix.book import Book

Answer = tuple[str, dict[str, Any]]
"""The text and the JSON value."""
STACK = ("cudnn", "cuda", "driver", "gpu")


def show_framework(book: Book, name: str, which: str | None, output: Output) -> Answer:
    """A framework, or its releases in `which`; UsageError where the tables know no such framework or release."""
    from cudnn_resolve.matrix.digest import digest
    from cudnn_resolve.report.matrix import render_framework, render_release, span
    from cudnn_resolve.report.matrix_json import framework_json

    try:
        found = digest(book, name, None if which is None else _specifier(which))
    except KeyError:
        near = book.nearest(name)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join((*book.frameworks(), *STACK))}"
        raise UsageError(f"the matrix knows no framework {name!r}", code="framework-unknown", hint=hint) from None
    if not found.entries:
        known = span(found.framework.builds)
        raise UsageError(f"no release of {found.framework.name} is {which}", code="version-unknown", hint=f"the matrix knows {known}")
    style, width = style_of(output), width_of(output)
    text = render_framework(found, style=style, width=width) if which is None else render_release(book, found, style=style, width=width)
    return text, framework_json(book, found)


def show_stack(book: Book, name: str, which: str | None, output: Output) -> Answer | None:
    """What the tables say of `cudnn`, `cuda`, `driver` or `gpu`; None for any other name."""
    if name not in STACK:
        return None
    return {"cudnn": _cudnn, "cuda": _cuda, "driver": _driver, "gpu": _gpu}[name](book, which, output)


def _cudnn(book: Book, which: str | None, output: Output) -> Answer:
    from cudnn_resolve.matrix.table import plain
    from cudnn_resolve.report.matrix_json import stack_json
    from cudnn_resolve.report.matrix_stack import render_cudnn

    builds = [one for one in book.cudnn_builds() if which is None or str(one.version) in _specifier(which)]
    _some(builds, "cuDNN", which, str(book.cudnn_builds()[0].version), str(book.cudnn_builds()[-1].version))
    text = render_cudnn(builds, style=style_of(output), width=width_of(output))
    return text, stack_json(book, "cudnn", builds=plain(builds))


def _cuda(book: Book, which: str | None, output: Output) -> Answer:
    from cudnn_resolve.matrix.table import plain
    from cudnn_resolve.report.matrix_json import stack_json
    from cudnn_resolve.report.matrix_stack import render_cuda

    releases = [one for one in book.cuda_releases() if which is None or str(one.cuda) in _specifier(which)]
    _some(releases, "CUDA", which, str(book.cuda_releases()[0].cuda), str(book.cuda_releases()[-1].cuda))
    text = render_cuda(book, releases, style=style_of(output), width=width_of(output))
    drivers = [one for one in book.minimums() if any(one.cuda == each.cuda for each in releases)]
    floors = [one.row for one in book.placed("driver/minimum", "floor") if any(one.row.cuda_major == each.cuda.major for each in releases)]
    return text, stack_json(
        book,
        "cuda",
        releases=plain(releases),
        minimums=plain(drivers),
        floors=plain(floors),
    )


def _driver(book: Book, which: str | None, output: Output) -> Answer:
    from cudnn_resolve.matrix.table import plain
    from cudnn_resolve.report.matrix_json import stack_json
    from cudnn_resolve.report.matrix_stack import render_driver, render_drivers
    from cudnn_resolve.version import DriverVersion

    style, width = style_of(output), width_of(output)
    if which is None:
        return render_drivers(book.branches(), style=style, width=width), stack_json(book, "driver", branches=plain(book.branches()))
    try:
        driver = DriverVersion(which.removeprefix("R"))
    except ValueError:
        raise UsageError(f"{which!r} is not a driver version", code="driver-version", hint="such as 550.54.15, 550 or R550") from None
    branches = [one for one in book.branches() if one.number == driver.major]
    forward = [one for one in book.forward() if one.base == driver.major]
    return render_driver(book, driver, style=style, width=width), stack_json(
        book,
        "driver",
        branches=plain(branches),
        forward=plain(forward),
    )


def _gpu(book: Book, which: str | None, output: Output) -> Answer:
    from cudnn_resolve.matrix.table import plain
    from cudnn_resolve.report.matrix_json import stack_json
    from cudnn_resolve.report.matrix_stack import render_gpu, render_gpus
    from cudnn_resolve.version import Capability

    style, width = style_of(output), width_of(output)
    if which is None:
        return render_gpus(book.architectures(), style=style, width=width), stack_json(
            book, "gpu", architectures=plain(book.architectures())
        )
    card = book.card(which)
    try:
        capability = card.capability if card else Capability.parse(which)
    except ValueError:
        near = book.nearest_cards(which)
        hint = f"did you mean {' or '.join(near)}?" if near else "a card such as T4, or a compute capability such as 8.9 or sm_89"
        raise UsageError(f"the matrix knows no GPU {which!r}", code="gpu-unknown", hint=hint) from None
    architecture = book.architecture(capability)
    if architecture is None:
        known = ", ".join(str(one.capability) for one in book.architectures())
        raise UsageError(f"the matrix knows no compute capability {capability}", code="gpu-unknown", hint=f"it knows {known}")
    cards = [one for one in book.cards() if one.capability == capability]
    return render_gpu(book, capability, card, style=style, width=width), stack_json(
        book,
        "gpu",
        architectures=plain([architecture]),
        cards=plain([card] if card else cards),
        peaks=[
            {**row, "confidence": "memory" if book.from_memory("gpu/peak", one.source) else None}
            for one in (book.peaks_of(card) if card else ())
            for row in plain([one])
        ],
    )


def _specifier(text: str) -> Any:
    from packaging.specifiers import InvalidSpecifier

    from cudnn_resolve.matrix.digest import version_filter

    try:
        return version_filter(text)
    except InvalidSpecifier:
        hint = "such as 2.15, 2.15.1 or '>=2.4,<2.6'"
        raise UsageError(f"{text!r} is neither a version nor a version specifier", code="version-specifier", hint=hint) from None


def _some(found: list[Any], what: str, which: str | None, first: str, last: str) -> None:
    if not found:
        raise UsageError(f"the matrix knows no {what} {which}", code="version-unknown", hint=f"it knows {first} to {last}")
