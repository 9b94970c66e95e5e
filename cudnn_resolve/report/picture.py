"""Draw version ranges as SVG: a bar for what each party allows, and a line through all bars for the chosen version.

The colours are legible on white and on black; text takes the colour of the page. All text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

_PAD, _HEAD, _FOOT, _GAP = 14, 34, 22, 18
_BAR_HEIGHT = 13
_BAR, _LINE, _COMMON, _NONE = "#3b82f6", "#ea580c", "#16a34a", "#dc2626"
_FONT = "font-family='system-ui,sans-serif' font-size='12'"
_STANDALONE_STYLE = (
    "<style>svg{color:#1f2328;background:#fff}@media(prefers-color-scheme:dark){svg{color:#e6edf3;background:#0d1117}}</style>"
)
"""Colours for an image that cannot take those of a page."""


class _Layout(NamedTuple):
    """Sizes in pixels; names are beside the bars, or above them if `label` is 0."""

    label: int
    plot: int
    row: int
    letters: int
    """Longest name."""
    bar: int
    """From the top of a row to its bar."""

    @property
    def left(self) -> int:
        """Left edge of the bars."""
        return _PAD + self.label

    @property
    def width(self) -> int:
        """Width of the picture."""
        return self.left + self.plot + _PAD


_WIDE = _Layout(label=210, plot=610, row=24, letters=29, bar=5)
_NARROW = _Layout(label=0, plot=282, row=38, letters=40, bar=19)


def render(ranges: Sequence[Mapping[str, Any]]) -> str:
    """Draw the ranges of `plan --format json` as HTML; empty if there are none.

    The picture is included twice, for wide and for narrow screens; a page shows the one that fits.
    """
    if not ranges:
        return ""
    wide = f'<div style="overflow-x:auto" tabindex="0" role="region" aria-label="what each party allows">{_drawn(ranges, _WIDE)}</div>'
    return f'<div><div class="wide">{wide}</div><div class="narrow" style="display:none">{_drawn(ranges, _NARROW)}</div></div>'


def svg(ranges: Sequence[Mapping[str, Any]]) -> str:
    """Draw the ranges as a standalone image."""
    return _drawn(ranges, _WIDE, _STANDALONE_STYLE)


def _drawn(ranges: Sequence[Mapping[str, Any]], layout: _Layout, style: str = "") -> str:
    parts, top = [], _PAD
    for one in ranges:
        drawn, height = _range(one, top, layout)
        parts += drawn
        top += height + _GAP
    width, height = layout.width, max(top - _GAP, 0) + _PAD
    description = escape(" ".join(map(_sentence, ranges)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{description}" fill="currentColor" {_FONT}><desc>{description}</desc>{style}{"".join(parts)}</svg>'
    )


def _sentence(one: Mapping[str, Any]) -> str:
    """Describe a range for screen readers."""
    bars = "; ".join(f"{bar['who']} allows {_spans(bar)}" for bar in one["bars"])
    return f"{one['name']}: {one['chosen'] or 'none'} chosen; {bars}."


def _spans(bar: Mapping[str, Any]) -> str:
    return ", ".join(first if first == last else f"{first} to {last}" for first, last in bar["spans"]) or "none of these"


def _range(one: Mapping[str, Any], top: int, layout: _Layout) -> tuple[list[str], int]:
    """Draw the rows of one range from `top` on; return them and their height."""
    versions, bars, chosen = list(one["versions"]), one["bars"], one["chosen"]
    places = {version: place for place, version in enumerate(versions)}
    scale = _Scale(layout, layout.plot / max(len(versions), 1))
    rows = top + _HEAD
    bottom = rows + layout.row * len(bars)
    out = [_text(_PAD, top + 14, f"{one['name']} {chosen or ''}".strip(), 'font-weight="bold"')]
    common = _common(bars, places)
    if not common:
        is_left = bool(layout.label) and (chosen not in places or places[chosen] > len(versions) / 2)
        place, anchor = (layout.left, "start") if is_left else (layout.left + layout.plot, "end")
        out.append(_text(place, top + 14, "no common version", f'text-anchor="{anchor}" fill="{_NONE}"'))
    out += (scale.block(start, end, rows, bottom - rows, f'fill="{_COMMON}" fill-opacity="0.16"') for start, end in common)
    for number, bar in enumerate(bars):
        out += _bar(bar, rows + number * layout.row, places, scale)
    if chosen in places:
        x = scale.middle(places[chosen])
        out.append(f'<line x1="{x:.1f}" y1="{top + 22}" x2="{x:.1f}" y2="{bottom + 2}" stroke="{_LINE}" stroke-width="2"/>')
        if layout.label:  # a narrow picture has it in its heading, just above
            out.append(_text(x, top + 18, chosen, f'text-anchor="{scale.anchor(x)}" fill="{_LINE}" font-weight="bold"'))
    ticks = _ticks(versions, scale)
    out += (_text(scale.middle(place), bottom + 15, label, 'text-anchor="middle" font-size="10"') for place, label in ticks)
    return out, bottom + _FOOT - top


def _bar(bar: Mapping[str, Any], y: int, places: Mapping[str, int], scale: _Scale) -> Iterator[str]:
    because = f" ({bar['because']})" if bar["because"] else ""
    tip = f"<title>{escape(str(bar['who']))}: {escape(str(bar['wants']))}{escape(because)}</title>"
    layout = scale.layout
    left, bar_top = layout.left, y + layout.bar
    who = bar["who"] if len(bar["who"]) <= layout.letters else f"{bar['who'][: layout.letters - 1]}…"  # the tooltip has all of it
    yield _text(_PAD, y + (16 if layout.label else 13), who)
    yield f'<rect x="{left}" y="{bar_top + 6}" width="{layout.plot}" height="1" fill-opacity="0.25"/>'
    for first, last in bar["spans"]:
        yield scale.block(places[first], places[last], bar_top, _BAR_HEIGHT, f'rx="3" fill="{_BAR}"', tip)
    if not bar["spans"]:
        yield _text(left, bar_top + 11, "none of these", f'fill="{_NONE}"')


class _Scale(NamedTuple):
    """Map the position of a version to pixels."""

    layout: _Layout
    step: float

    def middle(self, place: int) -> float:
        """Centre of a version."""
        return self.layout.left + (place + 0.5) * self.step

    def block(self, start: int, end: int, y: int, height: int, attributes: str, content: str = "") -> str:
        """A rectangle that covers the versions from `start` to `end`."""
        x, width = self.layout.left + start * self.step, max((end - start + 1) * self.step, 3)
        return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" {attributes}>{content}</rect>'

    def anchor(self, x: float) -> str:
        """The `text-anchor` that keeps a text at `x` within the picture."""
        left, right = self.layout.left, self.layout.left + self.layout.plot
        return "start" if x < left + 40 else "end" if x > right - 40 else "middle"


def _common(bars: Iterable[Mapping[str, Any]], places: Mapping[str, int]) -> list[tuple[int, int]]:
    """Runs of positions that every bar covers."""
    covered = [{place for first, last in bar["spans"] for place in range(places[first], places[last] + 1)} for bar in bars]
    runs: list[tuple[int, int]] = []
    for place in sorted(set.intersection(*covered) if covered else ()):
        if runs and runs[-1][1] == place - 1:
            runs[-1] = runs[-1][0], place
        else:
            runs.append((place, place))
    return runs


def _ticks(versions: Sequence[str], scale: _Scale) -> Iterator[tuple[int, str]]:
    """Labels of the axis: the first version of each minor, as far as they fit."""
    next_free, before = -1.0, None
    for place, version in enumerate(versions):
        minor = ".".join(version.split(".")[:2])
        x = place * scale.step
        if minor != before and x >= next_free:
            yield place, minor
            next_free = x + 7 * len(minor) + 8
        before = minor


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'
