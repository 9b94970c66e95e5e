"""Output of the verbs: results to standard output or a file, messages to standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cudnn_resolve._version import __version__
from cudnn_resolve.cli.progress import StatusLine, wrapped
from cudnn_resolve.errors import CudnnResolveError, WorldError
from cudnn_resolve.host import terminal
from cudnn_resolve.listener import SILENT, Listener
from cudnn_resolve.report.text import UNBROKEN, Page, Style, clean

if TYPE_CHECKING:
    from cudnn_resolve.cli.arguments import Output
    from cudnn_resolve.operations.results import Result

_STATUS = StatusLine()


def emit(text: str, options: Output) -> None:
    """Print the result to standard output, or write it atomically to the file of `-o`; WorldError if that fails."""
    clear_status()
    if options.output is not None and options.output != "-":
        from cudnn_resolve.host.files import write_atomic

        write_atomic(options.output, text)
        say(f"wrote {options.output}", options)
        return
    require_output(options)
    sys.stdout.write(text)


def require_output(options: Output) -> None:
    """Check that the result can be written, before any work is done; raises WorldError."""
    if options.output is not None and options.output != "-":
        from cudnn_resolve.host.files import refuse_unwritable

        refuse_unwritable(options.output)
    elif sys.stdout is None:
        raise WorldError("standard output is closed: there is nowhere to print to", code="output-closed", hint="-o FILE writes to a file")


def say(text: str, options: Output) -> None:
    """Print a message to standard error, unless quiet."""
    if sys.stderr is not None and not options.quiet:
        clear_status()
        print(wrapped(clean(text, lines=True)), file=sys.stderr)


def say_page(write: Callable[[Page], None], options: Output) -> None:
    """Print the page that `write` fills to standard error, unless quiet."""
    if sys.stderr is not None and not options.quiet:
        style = Style(options.color and terminal.wants_color(sys.stderr))
        page = Page(style, terminal.width(sys.stderr) if terminal.is_measured(sys.stderr) else UNBROKEN)
        write(page)
        clear_status()
        sys.stderr.write(page.text())
        sys.stderr.flush()


def expect(text: str) -> None:
    """Show an activity on the status line of a terminal if nothing is printed for a second."""
    _STATUS.expect(text)


def messages(options: Output) -> Listener:
    """Listener that shows progress and notes on standard error, unless quiet."""
    return SILENT if options.quiet or sys.stderr is None else _STATUS


@contextmanager
def progress() -> Iterator[Listener]:
    """Show progress and notes of a call."""
    from cudnn_resolve.cli.arguments import Output

    try:
        yield messages(Output())
    finally:
        clear_status(is_over=True)


def print_value(result: Result, options: Output) -> None:
    """Print a result as JSON or as an HTML page."""
    if options.format == "json":
        from cudnn_resolve.report.encode_json import render as render_json

        emit(render_json(result.to_json()), options)
        return
    from cudnn_resolve.report.html_page import render

    emit(render(result.to_json(), __version__), options)


def show(result: Result, options: Output, write: Callable[[Page], None]) -> None:
    """Print a result in the chosen format; for text, `write` fills a page, to which remarks on overlays are added."""
    if options.format != "text":
        print_value(result, options)
        return
    page = Page(style_of(options), width_of(options))
    write(page)
    for remark in getattr(result, "overlays", ()):
        page.paragraph(remark, "! ")
    emit(page.text(), options)


def clear_status(*, is_over: bool = False) -> None:
    """Clear the status line and the table of states; unless the command is over, the table returns with the next state."""
    _STATUS.clear()
    if is_over:
        _STATUS.forget()


def show_error(error: CudnnResolveError) -> None:
    """Print an error with context and hint to standard error."""
    if sys.stderr is None:
        return
    clear_status()
    style = Style(terminal.wants_color(sys.stderr))
    text = wrapped(f"error: {clean(str(error), lines=True)}")
    print(f"{style('error:', 'bold', 'red')}{text.removeprefix('error:')}", file=sys.stderr)


def style_of(options: Output) -> Style:
    """Style of the result: coloured only on a terminal that supports it."""
    return Style(options.color and options.output is None and terminal.wants_color(sys.stdout))


def width_of(options: Output) -> int:
    """Width of the result; unlimited in a pipe or a file."""
    return terminal.width(sys.stdout) if options.output is None and terminal.is_measured(sys.stdout) else UNBROKEN
