"""The pages of `matrix html`: for each framework where its releases run, which releases go together, drivers, and advisories.

Every page is a file of its own that needs no network. What is drawn stands in it as text and SVG; its script only marks what does not
run on the machine that is picked, and shows what is clicked on. It decides nothing that was not decided here.
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
from cudnn_resolve.resolution.attempt import PYTHONS
from cudnn_resolve.resolution.joint_map import BuildReach, Pair, gpus

MARK = '<meta name="generator" content="cudnn-resolve matrix html">'
"""By which a page is known as one of these, which may be overwritten."""
_ADDRESS = re.compile(r"https://([^/\s]+)(?:[^\s,;]*[^\s,;:.])?")
"""With which a source may begin; more words may follow it."""
_BELOW = re.compile(r"([\w.-]+)<([\d.]+)")
_STEP, _HIGH = 15, 16
_LETTER = 6
_PYTHONS = tuple(f"{major}.{minor}" for major, minor in sorted(PYTHONS))
_Menu = Sequence[tuple[str, Sequence[tuple[str, str]]]]
_Mark = tuple[str, Sequence[str], set[str]]
"""The name of a column, the places of its scale, and those that are marked."""


class Joint(Struct, frozen=True, kw_only=True):
    """Which releases of two frameworks share an environment."""

    first: str
    second: str
    pairs: dict[tuple[str, str], Pair]

    @property
    def file(self) -> str:
        """The name of its page."""
        return f"{self.first}-{self.second}.html"


class Look(Struct, frozen=True, kw_only=True):
    """What all pages have in common."""

    style: str
    script: str
    version: str
    """That of the program."""


def pages(book: Book, reaches: Mapping[str, Sequence[BuildReach]], joints: Sequence[Joint], look: Look) -> dict[str, str]:
    """Each page by the name of its file."""
    titles = {name: book.framework(name).title for name in reaches}
    menu: _Menu = [
        ("Explorer", [("index.html", "Start"), ("drivers.html", "Drivers"), ("advisories.html", "Advisories")]),
        ("Releases", [(f"{name}.html", title) for name, title in titles.items()]),
        ("Together", [(one.file, f"{titles[one.first]} and {titles[one.second]}") for one in joints]),
    ]
    foot = f"cudnn-resolve {look.version}, tables of {book.version}. For Linux on x86_64."
    found: dict[str, tuple[str, str, Mapping[str, Any] | None]] = {
        "index.html": ("Which versions work together", _start(book, reaches, joints, titles), None),
        "drivers.html": ("Drivers", _drivers(book), None),
        "advisories.html": ("Advisories", _advisories(book), None),
    }
    for name, reach in reaches.items():
        found[f"{name}.html"] = (titles[name], *_framework(book, name, reach))
    for one in joints:
        found[one.file] = (f"{titles[one.first]} and {titles[one.second]}", *_joint(book, one, reaches, titles))
    return {
        file: frame(
            title,
            f"<h1>{escape(title)}</h1>\n{body}{_data(data)}",
            look.style,
            look.script,
            foot,
            head=f"{MARK}\n",
            menu=f'<nav aria-label="pages">{_menu(menu, file)}</nav>\n',
        )
        for file, (title, body, data) in found.items()
    }


def _menu(menu: _Menu, file: str) -> str:
    """The links to every page; `file` is the page itself."""
    out = []
    for group, links in menu:
        shown = (f'<a href="{to}"{" aria-current=page" if to == file else ""}>{escape(text)}</a>' for to, text in links)
        out.append(f"<p><span>{group}</span><span class=links>{''.join(shown)}</span></p>")
    return "".join(out)


def _data(data: Mapping[str, Any] | None) -> str:
    """What the script of a page needs."""
    held = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return "" if data is None else f'\n<script type="application/json" id="data">{held}</script>'


def _start(book: Book, reaches: Mapping[str, Sequence[BuildReach]], joints: Sequence[Joint], titles: Mapping[str, str]) -> str:
    def cards(title: str, links: Iterable[tuple[str, str, str]]) -> str:
        items = (f'<li><a href="{link}"><b>{escape(name)}</b><span>{escape(text)}</span></a></li>' for link, name, text in links)
        return f"<h2>{title}</h2><ul class=cards>{''.join(items)}</ul>"

    releases = []
    for name, title in titles.items():
        versions = sorted({one.build.version for one in reaches[name]}, key=Version)
        releases.append((f"{name}.html", title, f"{versions[0]} to {versions[-1]}: {len(versions)} releases with GPU builds"))
    together = []
    for one in joints:
        text = f"{sum(bool(pair.shared) for pair in one.pairs.values())} of {len(one.pairs)} pairs of releases share an environment"
        together.append((one.file, f"{titles[one.first]} and {titles[one.second]}", text))
    also = [
        ("drivers.html", "Drivers", f"{len(book.branches())} branches: the CUDA and the GPUs of each"),
        ("advisories.html", "Advisories", "releases that are known to be bad, and what to take instead"),
    ]
    return (
        "<p class=lead>Pick a GPU, a driver and a Python: what does not run there turns grey. Click on a release, or on a pair of "
        "releases, for the command and the reasons. The address of a page holds what you picked: send it to somebody.</p>"
        f"{cards('What a release runs on', releases)}{cards('What goes together', together)}{cards('Also', also)}"
    )


# -- one framework ---------------------------------------------------------------------------------------------------------------


def _framework(book: Book, name: str, reaches: Sequence[BuildReach]) -> tuple[str, dict[str, Any]]:
    """The map of a framework, the newest release first, and what its script needs."""
    framework = book.framework(name)
    data = _Data(book)
    of: dict[str, list[BuildReach]] = {}
    for one in reaches:
        if not Version(one.build.version).is_prerelease:
            of.setdefault(one.build.version, []).append(one)
    entries = {id(entry.build): entry for entry in digest(book, name).entries}
    builds = [one.build for found in of.values() for one in found]
    scales = {
        "CUDA": sorted({one.cuda.line for one in builds if one.cuda}, key=Version),
        "cuDNN": sorted({_minor(one.cudnn) for one in builds if one.cudnn}, key=Version),
        "Python": [one for one in _PYTHONS if any(one in each.pythons for each in reaches)],
        "GPU": data.gpus,
    }
    has_names = len({one.package for one in builds}) > 3
    rows, targets, details = [], {}, {}
    sources: dict[str, int] = {}
    for version in sorted(of, key=Version, reverse=True):
        found = of[version]
        told = [entries[id(one.build)] for one in found]
        data.rows[version] = [data.build(one) for one in found]
        targets[version] = f"{name if has_names else found[0].build.package}=={version}"
        cited = _Cited(book, sources)
        shown = f"{_list(_builds(framework, told, cited))}{_list(_remarks(book, framework, version, cited))}"
        details[version] = [shown, cited.numbers]
        rows.append(_release(told, _marks(data, found, scales)))
    named = {**scales, "GPU": [f"{one} {row.name if (row := book.architecture(one)) else ''}" for one in gpus(book)]}
    axes = "".join(f"<th scope=col>{escape(one)}{_axis(scale)}</th>" for one, scale in named.items() if scale)
    head = f"<thead><tr><th scope=col>Release</th>{axes}<th scope=col>Driver from</th></tr></thead>"
    lead = "What each release was built with, and where it runs. It takes the cuDNN that it was built with, or a newer minor of that major."
    table = _region(f"releases of {framework.title}", f"<table class=releases>{head}{''.join(rows)}</table>")
    return f"{_picker(book)}<p>{lead}</p>{table}", {**data.plain(), "targets": targets, "details": details, "sources": list(sources)}


def _marks(data: _Data, found: Sequence[BuildReach], scales: Mapping[str, Sequence[str]]) -> list[_Mark]:
    """What of each scale holds for a release."""
    reached = (
        (gpu, driver) for one in found for drivers in one.pythons.values() for gpu, driver in zip(data.gpus, drivers[1:], strict=True)
    )
    marked = {
        "CUDA": {one.build.cuda.line for one in found if one.build.cuda},
        "cuDNN": {_minor(one.build.cudnn) for one in found if one.build.cudnn},
        "Python": {python for one in found for python in one.pythons},
        "GPU": {gpu for gpu, driver in reached if driver is not None},
    }
    return [(name, scale, marked[name]) for name, scale in scales.items() if scale]


def _release(entries: Sequence[Entry], marks: Sequence[_Mark]) -> str:
    """The row of a release. What a click shows under it is added by the script: hundreds of hidden rows would make the page slow."""
    version = entries[0].build.version
    cells = "".join(_strip(name.lower(), scale, marked) for name, scale, marked in marks)
    driver = min((one.driver_minor for one in entries if one.driver_minor is not None), default="")
    day = next((one.date for one in entries if one.date), "")
    return (
        f'<tbody data-release="{escape(version)}"><tr><th scope=row><button type=button aria-expanded=false>{escape(version)}</button>'
        f"<small>{escape(day)}</small></th>{cells}<td>{escape(str(driver))}</td></tr></tbody>"
    )


class _Cited:
    """Where what stands under a release was read: each source is told once, by its number in the list below."""

    def __init__(self, book: Book, known: dict[str, int]) -> None:
        self._book, self._known = book, known
        self.numbers: list[int] = []
        """Those of its sources among all `known` ones of the page."""

    def __call__(self, table: str, row: Row) -> str:
        """The places of a row's sources in the list."""
        found = [self._known.setdefault(text, len(self._known)) for text in _sources(self._book, table, row)]
        self.numbers += [number for number in found if number not in self.numbers]
        return f" <small>[{', '.join(str(self.numbers.index(number) + 1) for number in found)}]</small>" if found else ""


def _builds(framework: Framework, entries: Sequence[Entry], cited: _Cited) -> Iterator[str]:
    """The builds of a release with their sources."""
    for one in entries:
        build = one.build
        facts = [
            f"CUDA {build.cuda}",
            f"cuDNN {build.cudnn}" if build.cudnn else "no cuDNN",
            f"Python {pythons_text(one.pythons)}" if one.pythons else "",
            f"code for {text}" if (text := capabilities_text(build.targets, build.capability_first)) else "",
            f"driver from {one.driver_minor}" if one.driver_minor else "",
            "" if build.index == "default" else f"index {build.index}",
            "withdrawn" if build.yanked else "",
        ]
        name = f"{build.package} {build.wheel_version} ({build.variant})"
        yield f"<b>{escape(name)}</b>: {escape(', '.join(filter(None, facts)))}{cited(f'framework/{framework.name}', build)}"


def _lowest(bounds: Iterable[Bound]) -> Iterable[Bound]:
    """The bounds; of several that have packages below a version for one reason the one that implies the others."""
    kept: dict[tuple[str, str], Bound] = {}
    for one in bounds:
        upper = _BELOW.fullmatch(one.requirement)
        key = (upper[1] if upper else one.requirement, one.reason)
        if not upper or key not in kept or Version(upper[2]) < Version(_BELOW.fullmatch(kept[key].requirement)[2]):  # type: ignore[index]
            kept[key] = one
    return kept.values()


def _remarks(book: Book, framework: Framework, version: str, cited: _Cited) -> Iterator[str]:
    """What else is known of a release."""
    for bound in _lowest(bounds_for(framework, version)):
        yield f"needs {escape(bound.requirement)}: {escape(bound.reason)}{cited(f'framework/{framework.name}', bound)}"
    for trap in traps_for(book, framework, version):
        remedy = f" What helps: {trap.remedy}." if trap.remedy else ""
        yield f"{escape(trap.summary)}.{escape(remedy)}{cited('trap', trap)}"


# -- two frameworks --------------------------------------------------------------------------------------------------------------


def _joint(book: Book, joint: Joint, reaches: Mapping[str, Sequence[BuildReach]], titles: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The joint map of two frameworks, and what its script needs."""
    data = _Data(book)
    names = (joint.first, joint.second)
    versions = [sorted({pair[place] for pair in joint.pairs}, key=Version, reverse=True) for place in (0, 1)]
    alone = [
        {version: [data.build(one) for one in reaches[name] if one.build.version == version] for version in versions[place]}
        for place, name in enumerate(names)
    ]
    head = "".join(f"<th scope=col><span>{escape(one)}</span></th>" for one in versions[1])
    rows = []
    for first in versions[0]:
        cells = "".join(_cell(first, second, joint.pairs[first, second], data) for second in versions[1])
        rows.append(f"<tr><th scope=row>{escape(first)}</th>{cells}</tr>")
    down, across = (escape(titles[name]) for name in names)
    table = f"<table class=joint><thead><tr><td></td>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    body = (
        f"{_picker(book)}<p>Down: {down}. Across: {across}. A cell names the cuDNN that both load in one environment; ● leaves "
        "pins of wheels, ✗ is no environment at all. Click on one for the reasons.</p>"
        f"{_region(f'{titles[joint.first]} and {titles[joint.second]}', table)}<section id=panel aria-live=polite></section>"
        "<p class=quiet>Shown is the newest release of each minor, and of a minor with more than a dozen releases the newest of each "
        "quarter. Each cell is an answer of the resolution itself, for every Python, with what the tables alone know. A GPU or driver that "
        "is picked is held against the builds of that answer; where these do not run but both releases have others that do, the cell has a "
        "question mark, and the command tells.</p>"
    )
    packages = [book.framework(name).packages[0] for name in names]
    return body, {**data.plain(), "alone": alone, "packages": packages, "titles": [titles[name] for name in names], "files": names}


def _cell(first: str, second: str, pair: Pair, data: _Data) -> str:
    answers = [[python, data.profile(one.drivers), one.cuda, one.cudnn, one.builds, one.overrides] for python, one in pair.shared.items()]
    data.rows[f"{first} {second}"] = [answers, pair.why]
    best = next(iter(pair.shared.values()), None)
    if best is None:
        shown, told, kind = "✗", "share no environment", "no"
    else:
        shown = _minor(best.cudnn) if best.cudnn else "✓"
        told = f"share an environment with cuDNN {best.cudnn or 'of none'}{', pins of wheels are left' if best.overrides else ''}"
        kind = f"yes c{(best.cudnn or '0').partition('.')[0]}{' left' if best.overrides else ''}"
    label = escape(f"{first} and {second} {told}")
    return f'<td class="{kind}"><button type=button data-pair="{escape(first)} {escape(second)}" aria-label="{label}">{shown}</button></td>'


class _Data:
    """What the script of a page is handed; the drivers of GPUs that are alike are told once."""

    def __init__(self, book: Book) -> None:
        self.gpus = [str(one) for one in gpus(book)]
        self._lasts = [row.driver_last if (row := book.architecture(one)) else None for one in gpus(book)]
        self.rows: dict[str, Any] = {}
        self._profiles: dict[tuple[str | None, ...], int] = {}

    def profile(self, drivers: tuple[str | None, ...]) -> int:
        """The number of the oldest drivers for all GPUs."""
        return self._profiles.setdefault(drivers, len(self._profiles))

    def build(self, one: BuildReach) -> dict[str, int]:
        """Where a build runs: each Python with its drivers."""
        return {python: self.profile(drivers) for python, drivers in one.pythons.items()}

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"gpus": self.gpus, "lasts": self._lasts, "profiles": list(self._profiles), "rows": self.rows}


# -- drivers and advisories ------------------------------------------------------------------------------------------------------


def _drivers(book: Book) -> str:
    """Every branch, the newest first, and the driver of each CUDA."""
    floors = {major: floor for major in sorted({one.cuda.major for one in book.cuda_releases()}) if (floor := book.floor(major))}
    rows = []
    for one in reversed(book.branches()):
        rows_of = [row for row in book.architectures() if not row.tegra]
        known = [row for row in rows_of if (row.driver_first or 0) <= one.number <= (row.driver_last or one.number)]
        names = list(dict.fromkeys(row.name for row in known))
        served = f"{names[0]} to {names[-1]} ({known[0].capability} to {known[-1].capability})" if known else ""
        majors = ", ".join(f"{major}.x" for major, floor in floors.items() if floor.major <= one.number)
        told = (one.name, f"{one.cuda}", majors, served, one.status or "", one.eol or "")
        rows.append((*map(escape, told), f"<small>{'; '.join(_sources(book, 'driver/branch', one))}</small>"))
    heads = ("branch", "newest CUDA of its own", "CUDA by minor-version compatibility", "GPUs that it knows", "state", "end", "source")
    toolkits = ((f"CUDA {one.cuda}", f"{one.driver}", one.date or "") for one in reversed(book.minimums()))
    said = escape("; ".join(f"CUDA {major}.x from {floor} on" for major, floor in floors.items()))
    return (
        "<p>A driver runs every CUDA up to its own, and by minor-version compatibility also later ones of a major: "
        f"{said}.</p>{_region('drivers', _table(heads, rows))}"
        f"<h2>The driver that each CUDA was made for</h2>{_region('toolkits', _table(('CUDA', 'driver', 'day'), toolkits))}"
    )


def _advisories(book: Book) -> str:
    """Every release that is known to be bad, what is to be avoided first."""
    rows: list[Advisory] = sorted((one.row for one in book.placed("advisory", "advisory")), key=lambda one: (one.action, one.package))
    out = ["<p>A plan takes no release that is to be avoided, and warns of the others.</p>"]
    for one in rows:
        gpu = f", on compute capability {', '.join(map(str, one.capability))}" if one.capability else ""
        beside = f", beside {', '.join(one.beside)}" if one.beside else ""
        read = "; ".join(_sources(book, "advisory", one))
        remedy = f"<p><b>What helps:</b> {escape(one.remedy)}.</p>" if one.remedy else ""
        out.append(
            f'<article id="{escape(one.id)}"><h2>{escape(one.package)} {escape(one.versions)} <span class={one.action}>{one.action}</span>'
            f"</h2><p>{escape(f'{one.summary}{gpu}{beside}')}.</p>{remedy}<p><small>{read}</small></p></article>"
        )
    return "".join(out)


# -- parts -----------------------------------------------------------------------------------------------------------------------


def _picker(book: Book) -> str:
    """What the machine is, to be picked."""
    groups = []
    for one in gpus(book):
        row = book.architecture(one)
        name = escape(f"{row.name if row else 'GPU'} {one}")
        cards = "".join(f"<option data-cc={one}>{escape(card.name)}</option>" for card in book.cards() if card.capability == one)
        groups.append(f'<optgroup label="{name}"><option data-cc={one} value="{one.sm}">any {name}</option>{cards}</optgroup>')
    branches = "".join(f"<option value={one.number}>{escape(one.name)}, CUDA {one.cuda}</option>" for one in reversed(book.branches()))
    pythons = "".join(f"<option>{one}</option>" for one in reversed(_PYTHONS))
    return (
        f"<form class=picker><label>GPU <select name=gpu><option value=''>any</option>{''.join(groups)}</select></label>"
        "<label>Driver <input name=driver list=branches placeholder=any inputmode=decimal size=11 autocomplete=off></label>"
        f"<datalist id=branches>{branches}</datalist>"
        f"<label>Python <select name=python><option value=''>any</option>{pythons}</select></label>"
        "<button type=reset>Clear</button><output></output></form>"
    )


def _region(label: str, table: str) -> str:
    """A table that scrolls in itself."""
    return f'<div class=map tabindex=0 role=region aria-label="{escape(label)}">{table}</div>'


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th scope=col>{one}</th>" for one in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table class=plain><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _axis(scale: Sequence[str]) -> str:
    """The names of the places of a strip, standing."""
    high = max(map(len, scale)) * _LETTER + 12
    texts = (
        f'<text transform="translate({place * _STEP + 11} {high - 4})rotate(-90)">{escape(one)}</text>' for place, one in enumerate(scale)
    )
    return f"<svg class=axis width={len(scale) * _STEP} height={high} aria-hidden=true>{''.join(texts)}</svg>"


def _strip(kind: str, scale: Sequence[str], marked: set[str]) -> str:
    """The cell of the places of a scale that are marked, those side by side as one bar; the same in words for who does not see it."""
    path, start = "", None
    for place in range(len(scale) + 1):
        is_marked = place < len(scale) and scale[place] in marked
        if is_marked and start is None:
            start = place
        elif not is_marked and start is not None:
            width = (place - start) * _STEP - 2
            path += f"M{start * _STEP + 1} 3h{width}v10h-{width}z"
            start = None
    told = escape(", ".join(one for one in scale if one in marked) or "none")
    size = f"width={len(scale) * _STEP} height={_HIGH}"
    return f'<td class={kind} title="{told}"><svg {size} role=img aria-label="{told}"><path d="{path}"/></svg></td>'


def _sources(book: Book, table: str, row: Row) -> Iterator[str]:
    """Where a row was read, with links."""
    for id_ in row.source:
        source = book.source(table, id_)
        if source is not None:
            found = _ADDRESS.match(source.where)
            link = f'<a href="{escape(found[0])}">{escape(found[1])}</a>' if found else ""
            yield f"{link}{escape(source.where[found.end() if found else 0 :])}, {source.read}"


def _list(items: Iterable[str]) -> str:
    lines = "".join(f"<li>{one}</li>" for one in items)
    return f"<ul>{lines}</ul>" if lines else ""


def _minor(version: object) -> str:
    return ".".join(str(version).split(".")[:2])
