"""Render the pages of `matrix html`: releases of each framework, pairs of frameworks, drivers, and advisories.

Each page is one file that needs no network. Everything is in it as text and SVG; its script only marks what does not run on the picked
machine and shows details on a click. The script decides nothing that was not decided here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from msgspec import Struct
from packaging.version import Version

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.digest import Entry, bounds_for, capabilities_text, digest, pythons_text, traps_for
from cudnn_resolve.matrix.row import Advisory, Bound, Framework, Row
from cudnn_resolve.report.html_page import frame
from cudnn_resolve.resolution.joint_map import BuildReach, Pair, gpus
from cudnn_resolve.resolution.strategies import PYTHONS

MARK = '<meta name="generator" content="cudnn-resolve matrix html">'
"""Identifies a page of the explorer, which may be overwritten."""
_ADDRESS = re.compile(r"https://([^/\s]+)(?:[^\s,;]*[^\s,;:.])?")
"""The URL that a source may begin with; text may follow it."""
_UPPER_BOUND = re.compile(r"([\w.-]+)<([\d.]+)")
_CELL_WIDTH, _CELL_HEIGHT = 15, 16
_LETTER_WIDTH = 6
_PYTHONS = tuple(f"{major}.{minor}" for major, minor in sorted(PYTHONS))
_Menu = Sequence[tuple[str, Sequence[tuple[str, str]]]]
_Column = tuple[str, Sequence[str], set[str]]
"""Heading of a column, the values of its scale, and those that are marked."""


class Joint(Struct, frozen=True, kw_only=True):
    """Which releases of two frameworks can share an environment."""

    first: str
    second: str
    pairs: dict[tuple[str, str], Pair]

    @property
    def file(self) -> str:
        """File name of its page."""
        return f"{self.first}-{self.second}.html"


class Look(Struct, frozen=True, kw_only=True):
    """What all pages have in common."""

    style: str
    script: str
    version: str
    """Version of the program."""


def pages(book: Book, reaches: Mapping[str, Sequence[BuildReach]], joints: Sequence[Joint], look: Look) -> dict[str, str]:
    """Return the pages by file name."""
    titles = {name: book.framework(name).title for name in reaches}
    menu: _Menu = [
        ("Explorer", [("index.html", "Start"), ("drivers.html", "Drivers"), ("advisories.html", "Advisories")]),
        ("Releases", [(f"{name}.html", title) for name, title in titles.items()]),
        ("Together", [(joint.file, f"{titles[joint.first]} and {titles[joint.second]}") for joint in joints]),
    ]
    foot = f"cudnn-resolve {look.version}, tables of {book.version}. For Linux on x86_64."
    found: dict[str, tuple[str, str, Mapping[str, Any] | None]] = {
        "index.html": ("Which versions work together", _start(book, reaches, joints, titles), None),
        "drivers.html": ("Drivers", _drivers(book), None),
        "advisories.html": ("Advisories", _advisories(book), None),
    }
    for name, builds in reaches.items():
        found[f"{name}.html"] = (titles[name], *_framework(book, name, builds))
    for joint in joints:
        found[joint.file] = (f"{titles[joint.first]} and {titles[joint.second]}", *_joint(book, joint, reaches, titles))
    return {
        file: frame(
            title,
            f"<h1>{escape(title)}</h1>\n{body}{_data_script(data)}",
            look.style,
            look.script,
            foot,
            head=f"{MARK}\n",
            menu=f'<nav aria-label="pages">{_menu(menu, file)}</nav>\n',
        )
        for file, (title, body, data) in found.items()
    }


def _menu(menu: _Menu, current: str) -> str:
    groups = []
    for group, links in menu:
        shown = (f'<a href="{file}"{" aria-current=page" if file == current else ""}>{escape(text)}</a>' for file, text in links)
        groups.append(f"<p><span>{group}</span><span class=links>{''.join(shown)}</span></p>")
    return "".join(groups)


def _data_script(data: Mapping[str, Any] | None) -> str:
    if data is None:
        return ""
    encoded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return f'\n<script type="application/json" id="data">{encoded}</script>'


def _start(book: Book, reaches: Mapping[str, Sequence[BuildReach]], joints: Sequence[Joint], titles: Mapping[str, str]) -> str:
    releases = []
    for name, title in titles.items():
        versions = sorted({reach.build.version for reach in reaches[name]}, key=Version)
        releases.append((f"{name}.html", title, f"{versions[0]} to {versions[-1]}: {len(versions)} releases with GPU builds"))
    together = []
    for joint in joints:
        text = f"{sum(bool(pair.shared) for pair in joint.pairs.values())} of {len(joint.pairs)} pairs of releases can share an environment"
        together.append((joint.file, f"{titles[joint.first]} and {titles[joint.second]}", text))
    more = [
        ("drivers.html", "Drivers", f"{len(book.branches())} branches, with the CUDA releases and GPUs that each supports"),
        ("advisories.html", "Advisories", "releases with known problems, and what to use instead"),
    ]
    return (
        "<p class=lead>Pick a GPU, a driver and a Python version: releases that do not run there turn grey. Click a release, or a pair of "
        "releases, for the command and the reasons. The address of the page records your selection, so you can share it.</p>"
        f"{_cards('Where each release runs', releases)}{_cards('Which releases go together', together)}{_cards('More', more)}"
    )


def _cards(title: str, links: Iterable[tuple[str, str, str]]) -> str:
    items = (f'<li><a href="{file}"><b>{escape(name)}</b><span>{escape(text)}</span></a></li>' for file, name, text in links)
    return f"<h2>{title}</h2><ul class=cards>{''.join(items)}</ul>"


# -- one framework ---------------------------------------------------------------------------------------------------------------


def _framework(book: Book, name: str, reaches: Sequence[BuildReach]) -> tuple[str, dict[str, Any]]:
    """The table of a framework's releases, newest first, and the data for its script."""
    framework = book.framework(name)
    data = _PageData(book)
    by_version: dict[str, list[BuildReach]] = {}
    for reach in reaches:
        if not Version(reach.build.version).is_prerelease:
            by_version.setdefault(reach.build.version, []).append(reach)
    entries = {id(entry.build): entry for entry in digest(book, name).entries}
    builds = [reach.build for group in by_version.values() for reach in group]
    scales = {
        "CUDA": sorted({build.cuda.line for build in builds if build.cuda}, key=Version),
        "cuDNN": sorted({_minor(build.cudnn) for build in builds if build.cudnn}, key=Version),
        "Python": [python for python in _PYTHONS if any(python in reach.pythons for reach in reaches)],
        "GPU": data.gpus,
    }
    has_many_packages = len({build.package for build in builds}) > 3
    rows, targets, details = [], {}, {}
    sources: dict[str, int] = {}
    for version in sorted(by_version, key=Version, reverse=True):
        group = by_version[version]
        group_entries = [entries[id(reach.build)] for reach in group]
        data.rows[version] = [data.build(reach) for reach in group]
        targets[version] = f"{name if has_many_packages else group[0].build.package}=={version}"
        citations = _Citations(book, sources)
        detail = f"{_list(_builds(framework, group_entries, citations))}{_list(_remarks(book, framework, version, citations))}"
        details[version] = [detail, citations.numbers]
        rows.append(_release(group_entries, _columns(data, group, scales)))
    named = {**scales, "GPU": [f"{gpu} {row.name if (row := book.architecture(gpu)) else ''}" for gpu in gpus(book)]}
    axes = "".join(f"<th scope=col>{escape(heading)}{_axis(scale)}</th>" for heading, scale in named.items() if scale)
    head = f"<thead><tr><th scope=col>Release</th>{axes}<th scope=col>Minimum driver</th></tr></thead>"
    lead = (
        "What each release was built with, and where it runs. A release works with the cuDNN that it was built with, or with a newer minor "
        "version of the same major."
    )
    table = _region(f"releases of {framework.title}", f"<table class=releases>{head}{''.join(rows)}</table>")
    return f"{_picker(book)}<p>{lead}</p>{table}", {**data.plain(), "targets": targets, "details": details, "sources": list(sources)}


def _columns(data: _PageData, reaches: Sequence[BuildReach], scales: Mapping[str, Sequence[str]]) -> list[_Column]:
    """The values of each scale that apply to a release."""
    drivers = [profile for reach in reaches for profile in reach.pythons.values()]
    marked = {
        "CUDA": {reach.build.cuda.line for reach in reaches if reach.build.cuda},
        "cuDNN": {_minor(reach.build.cudnn) for reach in reaches if reach.build.cudnn},
        "Python": {python for reach in reaches for python in reach.pythons},
        "GPU": {gpu for profile in drivers for gpu, driver in zip(data.gpus, profile[1:], strict=True) if driver is not None},
    }
    return [(heading, scale, marked[heading]) for heading, scale in scales.items() if scale]


def _release(entries: Sequence[Entry], columns: Sequence[_Column]) -> str:
    """The row of a release. The script adds the details below it on a click: hundreds of hidden rows would make the page slow."""
    version = entries[0].build.version
    cells = "".join(_strip(heading.lower(), scale, marked) for heading, scale, marked in columns)
    driver = min((entry.driver_minor for entry in entries if entry.driver_minor is not None), default="")
    day = next((entry.date for entry in entries if entry.date), "")
    return (
        f'<tbody data-release="{escape(version)}"><tr><th scope=row><button type=button aria-expanded=false>{escape(version)}</button>'
        f"<small>{escape(day)}</small></th>{cells}<td>{escape(str(driver))}</td></tr></tbody>"
    )


class _Citations:
    """The sources below one release, each listed once and cited by its number."""

    def __init__(self, book: Book, page_sources: dict[str, int]) -> None:
        self._book, self._page_sources = book, page_sources
        self.numbers: list[int] = []
        """Positions of the cited sources in those of the page."""

    def cite(self, table: str, row: Row) -> str:
        """Cite the sources of a row."""
        found = [self._page_sources.setdefault(text, len(self._page_sources)) for text in _sources(self._book, table, row)]
        self.numbers += [number for number in found if number not in self.numbers]
        return f" <small>[{', '.join(str(self.numbers.index(number) + 1) for number in found)}]</small>" if found else ""


def _builds(framework: Framework, entries: Sequence[Entry], citations: _Citations) -> Iterator[str]:
    for entry in entries:
        build = entry.build
        facts = [
            f"CUDA {build.cuda}",
            f"cuDNN {build.cudnn}" if build.cudnn else "no cuDNN",
            f"Python {pythons_text(entry.pythons)}" if entry.pythons else "",
            f"code for {text}" if (text := capabilities_text(build.targets, build.capability_first)) else "",
            f"driver {entry.driver_minor} or newer" if entry.driver_minor else "",
            "" if build.index == "default" else f"index {build.index}",
            "yanked" if build.yanked else "",
        ]
        name = f"{build.package} {build.wheel_version} ({build.variant})"
        yield f"<b>{escape(name)}</b>: {escape(', '.join(filter(None, facts)))}{citations.cite(f'framework/{framework.name}', build)}"


def _strictest(bounds: Iterable[Bound]) -> Iterable[Bound]:
    """Drop upper bounds that a lower one implies for the same reason."""
    kept: dict[tuple[str, str], tuple[Bound, Version | None]] = {}
    for bound in bounds:
        upper = _UPPER_BOUND.fullmatch(bound.requirement)
        limit = Version(upper[2]) if upper else None
        key = (upper[1] if upper else bound.requirement, bound.reason)
        known = kept[key][1] if key in kept else None
        if limit is None or known is None or limit < known:
            kept[key] = bound, limit
    return [bound for bound, _ in kept.values()]


def _remarks(book: Book, framework: Framework, version: str, citations: _Citations) -> Iterator[str]:
    for bound in _strictest(bounds_for(framework, version)):
        yield f"needs {escape(bound.requirement)}: {escape(bound.reason)}{citations.cite(f'framework/{framework.name}', bound)}"
    for trap in traps_for(book, framework.name, version):
        remedy = f" Instead: {trap.remedy}." if trap.remedy else ""
        yield f"{escape(trap.summary)}.{escape(remedy)}{citations.cite('trap', trap)}"


# -- two frameworks --------------------------------------------------------------------------------------------------------------


def _joint(book: Book, joint: Joint, reaches: Mapping[str, Sequence[BuildReach]], titles: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The table of two frameworks' releases, and the data for its script."""
    data = _PageData(book)
    names = (joint.first, joint.second)
    versions = [sorted({pair[place] for pair in joint.pairs}, key=Version, reverse=True) for place in (0, 1)]
    alone = [
        {version: [data.build(reach) for reach in reaches[name] if reach.build.version == version] for version in versions[place]}
        for place, name in enumerate(names)
    ]
    head = "".join(f"<th scope=col><span>{escape(second)}</span></th>" for second in versions[1])
    rows = []
    for first in versions[0]:
        cells = "".join(_cell(first, second, joint.pairs[first, second], data) for second in versions[1])
        rows.append(f"<tr><th scope=row>{escape(first)}</th>{cells}</tr>")
    row_title, column_title = (escape(titles[name]) for name in names)
    table = f"<table class=joint><thead><tr><td></td>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    body = (
        f"{_picker(book)}<p>Rows: {row_title}. Columns: {column_title}. A cell shows the cuDNN that both load in one environment; ● means "
        "that pins declared by wheels are overridden, ✗ that the two cannot share an environment. Click a cell for the reasons.</p>"
        f"{_region(f'{titles[joint.first]} and {titles[joint.second]}', table)}<section id=panel aria-live=polite></section>"
        "<p class=quiet>Each minor version is represented by its newest release; a minor version with more than a dozen releases, by the "
        "newest of each quarter. A cell holds the answer of the resolver for every Python version, from the tables alone. The GPU and "
        "driver that you pick are checked against the builds of that answer. A question mark means that these builds do not run, but both "
        "releases have others that do: run the command to find out.</p>"
    )
    packages = [book.framework(name).packages[0] for name in names]
    return body, {**data.plain(), "alone": alone, "packages": packages, "titles": [titles[name] for name in names], "files": names}


def _cell(first: str, second: str, pair: Pair, data: _PageData) -> str:
    answers = [[python, data.profile(one.drivers), one.cuda, one.cudnn, one.builds, one.overrides] for python, one in pair.shared.items()]
    data.rows[f"{first} {second}"] = [answers, pair.why]
    best = next(iter(pair.shared.values()), None)
    if best is None:
        shown, text, classes = "✗", "cannot share an environment", "no"
    else:
        shown = _minor(best.cudnn) if best.cudnn else "✓"
        cudnn = f"with cuDNN {best.cudnn}" if best.cudnn else "without cuDNN"
        text = f"share an environment {cudnn}{', overriding pins of wheels' if best.overrides else ''}"
        classes = f"yes c{(best.cudnn or '0').partition('.')[0]}{' left' if best.overrides else ''}"
    label = escape(f"{first} and {second} {text}")
    return (
        f'<td class="{classes}"><button type=button data-pair="{escape(first)} {escape(second)}" aria-label="{label}">{shown}</button></td>'
    )


class _PageData:
    """Data for the script of a page; equal driver profiles are stored once."""

    def __init__(self, book: Book) -> None:
        self.gpus = [str(gpu) for gpu in gpus(book)]
        self._lasts = [row.driver_last if (row := book.architecture(gpu)) else None for gpu in gpus(book)]
        self.rows: dict[str, Any] = {}
        self._profiles: dict[tuple[str | None, ...], int] = {}

    def profile(self, drivers: tuple[str | None, ...]) -> int:
        """The number of a profile: the oldest driver for any GPU, and for each."""
        return self._profiles.setdefault(drivers, len(self._profiles))

    def build(self, reach: BuildReach) -> dict[str, int]:
        """Python versions of a build, with their profiles."""
        return {python: self.profile(drivers) for python, drivers in reach.pythons.items()}

    def plain(self) -> dict[str, Any]:
        """The data as a JSON object."""
        return {"gpus": self.gpus, "lasts": self._lasts, "profiles": list(self._profiles), "rows": self.rows}


# -- drivers and advisories ------------------------------------------------------------------------------------------------------


def _drivers(book: Book) -> str:
    """Every driver branch, newest first, and the driver of each CUDA toolkit."""
    floors = {major: floor for major in sorted({release.cuda.major for release in book.cuda_releases()}) if (floor := book.floor(major))}
    architectures = [row for row in book.architectures() if not row.tegra]
    rows = []
    for branch in reversed(book.branches()):
        known = [row for row in architectures if (row.driver_first or 0) <= branch.number <= (row.driver_last or branch.number)]
        names = list(dict.fromkeys(row.name for row in known))
        served = f"{names[0]} to {names[-1]} ({known[0].capability} to {known[-1].capability})" if known else ""
        majors = ", ".join(f"{major}.x" for major, floor in floors.items() if floor.major <= branch.number)
        cells = (branch.name, f"{branch.cuda}", majors, served, branch.status or "", branch.eol or "")
        rows.append((*map(escape, cells), f"<small>{'; '.join(_sources(book, 'driver/branch', branch))}</small>"))
    heads = ("branch", "newest CUDA", "CUDA with minor-version compatibility", "GPUs", "status", "end of life", "source")
    toolkits = ((f"CUDA {row.cuda}", f"{row.driver}", row.date or "") for row in reversed(book.minimums()))
    floor_text = escape("; ".join(f"CUDA {major}.x from {floor} on" for major, floor in floors.items()))
    return (
        "<p>A driver runs every CUDA release up to its own and, with minor-version compatibility, also later releases of a major: "
        f"{floor_text}.</p>{_region('drivers', _table(heads, rows))}"
        f"<h2>Driver of each CUDA toolkit</h2>{_region('toolkits', _table(('CUDA', 'driver', 'released'), toolkits))}"
    )


def _advisories(book: Book) -> str:
    """Every release with a known problem, those to avoid first."""
    rows = sorted(book.rows(Advisory), key=lambda row: (row.action, row.package))
    out = ["<p>Plans never use a release marked <em>avoid</em>, and warn about one marked <em>warn</em>.</p>"]
    for row in rows:
        gpu = f", on compute capability {', '.join(map(str, row.capability))}" if row.capability else ""
        beside = f", together with {', '.join(row.beside)}" if row.beside else ""
        remedy = f"<p><b>Instead:</b> {escape(row.remedy)}.</p>" if row.remedy else ""
        out.append(
            f'<article id="{escape(row.id)}"><h2>{escape(row.package)} {escape(row.versions)} <span class={row.action}>{row.action}</span>'
            f"</h2><p>{escape(f'{row.summary}{gpu}{beside}')}.</p>{remedy}"
            f"<p><small>{'; '.join(_sources(book, 'advisory', row))}</small></p></article>"
        )
    return "".join(out)


# -- parts -----------------------------------------------------------------------------------------------------------------------


def _picker(book: Book) -> str:
    groups = []
    for gpu in gpus(book):
        row = book.architecture(gpu)
        name = escape(f"{row.name if row else 'GPU'} {gpu}")
        cards = "".join(f"<option data-cc={gpu}>{escape(card.name)}</option>" for card in book.cards() if card.capability == gpu)
        groups.append(f'<optgroup label="{name}"><option data-cc={gpu} value="{gpu.sm}">any {name}</option>{cards}</optgroup>')
    branches = "".join(f"<option value={row.number}>{escape(row.name)}, CUDA {row.cuda}</option>" for row in reversed(book.branches()))
    pythons = "".join(f"<option>{python}</option>" for python in reversed(_PYTHONS))
    return (
        f"<form class=picker><label>GPU <select name=gpu><option value=''>any</option>{''.join(groups)}</select></label>"
        "<label>Driver <input name=driver list=branches placeholder=any inputmode=decimal size=11 autocomplete=off></label>"
        f"<datalist id=branches>{branches}</datalist>"
        f"<label>Python <select name=python><option value=''>any</option>{pythons}</select></label>"
        "<button type=reset>Clear</button><output></output></form>"
    )


def _region(label: str, table: str) -> str:
    """Make a table scroll inside the page."""
    return f'<div class=map tabindex=0 role=region aria-label="{escape(label)}">{table}</div>'


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th scope=col>{text}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table class=plain><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _axis(scale: Sequence[str]) -> str:
    """The values of a scale as upright labels."""
    height = max(map(len, scale)) * _LETTER_WIDTH + 12
    texts = (
        f'<text transform="translate({place * _CELL_WIDTH + 11} {height - 4})rotate(-90)">{escape(text)}</text>'
        for place, text in enumerate(scale)
    )
    return f"<svg class=axis width={len(scale) * _CELL_WIDTH} height={height} aria-hidden=true>{''.join(texts)}</svg>"


def _strip(kind: str, scale: Sequence[str], marked: set[str]) -> str:
    """The cell of a scale: adjacent marked values as one bar, with a text for screen readers."""
    path, start = "", None
    for place in range(len(scale) + 1):
        is_marked = place < len(scale) and scale[place] in marked
        if is_marked and start is None:
            start = place
        elif not is_marked and start is not None:
            width = (place - start) * _CELL_WIDTH - 2
            path += f"M{start * _CELL_WIDTH + 1} 3h{width}v10h-{width}z"
            start = None
    text = escape(", ".join(value for value in scale if value in marked) or "none")
    size = f"width={len(scale) * _CELL_WIDTH} height={_CELL_HEIGHT}"
    return f'<td class={kind} title="{text}"><svg {size} role=img aria-label="{text}"><path d="{path}"/></svg></td>'


def _sources(book: Book, table: str, row: Row) -> Iterator[str]:
    """The sources of a row, with links."""
    for id_ in row.source:
        source = book.source(table, id_)
        if source is not None:
            found = _ADDRESS.match(source.where)
            link = f'<a href="{escape(found[0])}">{escape(found[1])}</a>' if found else ""
            yield f"{link}{escape(source.where[found.end() if found else 0 :])}, {source.read}"


def _list(items: Iterable[str]) -> str:
    lines = "".join(f"<li>{item}</li>" for item in items)
    return f"<ul>{lines}</ul>" if lines else ""


def _minor(version: object) -> str:
    return ".".join(str(version).split(".")[:2])
