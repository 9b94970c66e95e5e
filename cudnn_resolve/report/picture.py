"""Ranges as a picture in SVG: what each party allows as bars, and what is chosen as a line through all of them.

Colours are those that are legible on white and on black; text takes the colour of the page. Every text in it is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

_PAD, _HEAD, _FOOT, _GAP = 14, 34, 22, 18
_BAR_HIGH = 13
_BAR, _LINE, _COMMON, _NONE = "#3b82f6", "#ea580c", "#16a34a", "#dc2626"
_FONT = "font-family='system-ui,sans-serif' font-size='12'"
_ALONE = "<style>svg{color:#1f2328;background:#fff}@media(prefers-color-scheme:dark){svg{color:#e6edf3;background:#0d1117}}</style>"
"""Of an image that is no part of a page, whose colours it could take."""


class _Layout(NamedTuple):
    """Where the bars are, beside their names or under them."""

    label: int
    plot: int
    row: int
    letters: int
    """Of a name, as far as there is room."""
    bar: int
    """From the top of a row to its bar."""

    @property
    def left(self) -> int:
        """Where the bars begin."""
        return _PAD + self.label

    @property
    def width(self) -> int:
        """That of the picture."""
        return self.left + self.plot + _PAD


_WIDE = _Layout(label=210, plot=610, row=24, letters=29, bar=5)
_NARROW = _Layout(label=0, plot=282, row=38, letters=40, bar=19)


def render(ranges: Sequence[Mapping[str, Any]]) -> str:
    """The picture of ranges, as `plan --format json` has them; empty where there are none.

    It is there twice, for screens of either width: a page shows the narrow one where that fits better.
    """
    if not ranges:
        return ""
    wide = f'<div style="overflow-x:auto" tabindex="0" role="region" aria-label="what each party allows">{_drawn(ranges, _WIDE)}</div>'
    return f'<div><div class="wide">{wide}</div><div class="narrow" style="display:none">{_drawn(ranges, _NARROW)}</div></div>'


def svg(ranges: Sequence[Mapping[str, Any]]) -> str:
    """The same as an image alone."""
    return _drawn(ranges, _WIDE, _ALONE)


def _drawn(ranges: Sequence[Mapping[str, Any]], layout: _Layout, style: str = "") -> str:
    parts, top = [], _PAD
    for one in ranges:
        drawn, height = _range(one, top, layout)
        parts += drawn
        top += height + _GAP
    width, height = layout.width, max(top - _GAP, 0) + _PAD
    sentences = []
    for one in ranges:
        bars = "; ".join(f"{bar['who']} allows {_spans(bar)}" for bar in one["bars"])
        sentences.append(f"{one['name']}: {one['chosen'] or 'none'} chosen; {bars}.")
    told = escape(" ".join(sentences))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{told}" fill="currentColor" {_FONT}><desc>{told}</desc>{style}{"".join(parts)}</svg>'
    )


def _spans(bar: Mapping[str, Any]) -> str:
    return ", ".join(first if first == last else f"{first} to {last}" for first, last in bar["spans"]) or "none of these"


def _range(one: Mapping[str, Any], top: int, layout: _Layout) -> tuple[list[str], int]:
    """The rows of one range from `top` on, and their height."""
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
        out.append(_text(place, top + 14, "no version that everyone allows", f'text-anchor="{anchor}" fill="{_NONE}"'))
    out += (scale.block(start, end, rows, bottom - rows, f'fill="{_COMMON}" fill-opacity="0.16"') for start, end in common)
    for number, bar in enumerate(bars):
        out += _bar(bar, rows + number * layout.row, places, scale)
    if chosen in places:
        x = scale.middle(places[chosen])
        out.append(f'<line x1="{x:.1f}" y1="{top + 22}" x2="{x:.1f}" y2="{bottom + 2}" stroke="{_LINE}" stroke-width="2"/>')
        if layout.label:  # else the head is as near
            out.append(_text(x, top + 18, chosen, f'text-anchor="{scale.anchor(x)}" fill="{_LINE}" font-weight="bold"'))
    ticks = _ticks(versions, scale)
    out += (_text(scale.middle(place), bottom + 15, label, 'text-anchor="middle" font-size="10"') for place, label in ticks)
    return out, bottom + _FOOT - top


def _bar(bar: Mapping[str, Any], y: int, places: Mapping[str, int], scale: _Scale) -> Iterator[str]:
    """The row of one party."""
    because = f" ({bar['because']})" if bar["because"] else ""
    tip = f"<title>{escape(str(bar['who']))}: {escape(str(bar['wants']))}{escape(because)}</title>"
    layout = scale.layout
    left, high = layout.left, y + layout.bar
    yield _text(_PAD, y + (16 if layout.label else 13), _short(bar["who"], layout.letters))
    yield f'<rect x="{left}" y="{high + 6}" width="{layout.plot}" height="1" fill-opacity="0.25"/>'
    for first, last in bar["spans"]:
        yield scale.block(places[first], places[last], high, _BAR_HIGH, f'rx="3" fill="{_BAR}"', tip)
    if not bar["spans"]:
        yield _text(left, high + 11, "none of these", f'fill="{_NONE}"')


class _Scale(NamedTuple):
    """From places of versions to pixels."""

    layout: _Layout
    step: float

    def middle(self, place: int) -> float:
        """The middle of a version."""
        return self.layout.left + (place + 0.5) * self.step

    def block(self, start: int, end: int, y: int, height: int, how: str, inside: str = "") -> str:
        """A rectangle over the versions from one place to another."""
        width = max((end - start + 1) * self.step, 3)
        return f'<rect x="{self.layout.left + start * self.step:.1f}" y="{y}" width="{width:.1f}" height="{height}" {how}>{inside}</rect>'

    def anchor(self, x: float) -> str:
        """Which end of a text stands there, so that it stays within the picture."""
        left, right = self.layout.left, self.layout.left + self.layout.plot
        return "start" if x < left + 40 else "end" if x > right - 40 else "middle"


def _common(bars: Iterable[Mapping[str, Any]], places: Mapping[str, int]) -> list[tuple[int, int]]:
    """The runs of places that every bar covers."""
    found = None
    for bar in bars:
        of = {place for first, last in bar["spans"] for place in range(places[first], places[last] + 1)}
        found = of if found is None else found & of
    runs: list[tuple[int, int]] = []
    for place in sorted(found or ()):
        if runs and runs[-1][1] == place - 1:
            runs[-1] = runs[-1][0], place
        else:
            runs.append((place, place))
    return runs


def _ticks(versions: Sequence[str], scale: _Scale) -> Iterator[tuple[int, str]]:
    """The versions that are named below: the first of each minor, as far as there is room."""
    free, before = -1.0, None
    for place, version in enumerate(versions):
        minor = ".".join(version.split(".")[:2])
        x = place * scale.step
        if minor != before and x >= free:
            yield place, minor
            free = x + 7 * len(minor) + 8
        before = minor


def _short(text: str, letters: int) -> str:
    """A name that fits its place; the whole one stands in the tip of its bar."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _text(x: float, y: float, text: str, how: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {how}>{escape(text)}</text>'
