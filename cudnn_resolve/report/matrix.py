"""What `matrix` prints: lists and tables for reading. Every function returns text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from packaging.version import Version

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.digest import Digest, Entry, bounds_for, capabilities_text, pythons_text, traps_for
from cudnn_resolve.matrix.position import Fault
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.matrix.table import BuildOutline
from cudnn_resolve.report.text import Page, Style, clean

if TYPE_CHECKING:
    _Built = TypeVar("_Built", Build, BuildOutline, Build | BuildOutline)

_ARRIVES = {"wheel": "pip wheels", "bundled": "in the wheel", "system": "system, apt", "none": ""}
_FINDS = {
    "rpath": "by its RPATH, before LD_LIBRARY_PATH",
    "runpath": "by its RUNPATH, after LD_LIBRARY_PATH",
    "self": "by loading them itself",
    "none": "",
}


def render_list(book: Book, *, style: Style | None = None, width: int = 100) -> str:
    """Which frameworks and tables there are."""
    page = Page(style, width)
    page.title("Frameworks")
    rows = []
    for name in book.frameworks():
        builds = book.builds(name)
        newest = newest_build(builds)
        built = f"CUDA {newest.cuda}" if newest and newest.cuda else ""
        cudnn = f"cuDNN {newest.cudnn}" if newest and newest.cudnn else ""
        title = book.head(f"framework/{name}")["title"]
        rows.append((name, title, span(builds), str(len(builds)), ", ".join(filter(None, (built, cudnn)))))
    page.table(("name", "framework", "releases", "builds", "newest built with"), rows, least=("builds", "framework"))
    page.title("Tables")
    page.table(("table", "rows", "from", "to"), _table_rows(book))
    page.title(f"Version {book.version}")
    for remark in book.remarks:
        page.say(remark, "! ")
    page.say("`cudnn-resolve matrix show NAME` shows a framework, or `cudnn`, `cuda`, `driver` or `gpu`.")
    return page.text()


def _table_rows(book: Book) -> list[tuple[str, ...]]:
    branches, cuda, builds = book.branches(), book.cuda_releases(), book.cudnn_builds()
    architectures = book.architectures()
    rows = [
        ("driver", len(branches), branches[0].name, branches[-1].name) if branches else None,
        ("cuda", len(cuda), cuda[0].cuda, cuda[-1].cuda) if cuda else None,
        ("cudnn", len(builds), builds[0].version, builds[-1].version) if builds else None,
        ("gpu", len(architectures), f"sm {architectures[0].capability}", f"sm {architectures[-1].capability}") if architectures else None,
        ("gpu cards", len(book.cards()), "", ""),
        ("pip packages", len(book.packages()), "", ""),
        ("indexes", len(book.indexes()), "", ""),
        ("apt repositories", len(book.repositories()), "", ""),
    ]
    return [tuple(map(str, row)) for row in rows if row is not None]


def newest_build(builds: Iterable[_Built]) -> _Built | None:
    """The newest final GPU build, the first of its version; the newest of any kind where there is none."""
    known = list(builds)
    versions = {text: Version(text) for text in {one.version for one in known}}
    ranked = [(one.cuda is not None, not versions[one.version].is_prerelease, versions[one.version]) for one in known]
    return known[ranked.index(max(ranked))] if known else None


def span(builds: Iterable[Build | BuildOutline]) -> str:
    """`1.15.0 - 2.21.0`: the oldest and the newest final release."""
    every = {Version(text) for text in {one.version for one in builds}}
    final = {one for one in every if not one.is_prerelease} or every
    return f"{min(final)} - {max(final)}" if final else ""


def render_framework(found: Digest, *, style: Style | None = None, width: int = 100) -> str:
    """All releases of a framework, newest first: one line for builds that agree in everything that is shown."""
    page = Page(style, width)
    _head(page, found)
    shown = [one for one in found.entries if one.build.cuda is not None and not Version(one.build.version).is_prerelease]
    shown = shown or list(found.entries)
    _builds(page, shown)
    rest = len(found.entries) - len(shown)
    if rest:
        what = "1 CPU build or pre-release" if rest == 1 else f"{rest} CPU builds and pre-releases"
        page.say(f"Not shown here: {what}; `cudnn-resolve matrix show {found.framework.name} VERSION` shows them.", "")
    _pairs(page, shown)
    _legend(page)
    return page.text()


def render_release(book: Book, found: Digest, *, style: Style | None = None, width: int = 100) -> str:
    """The builds that were asked for, and everything about the newest release among them."""
    page = Page(style, width)
    _head(page, found)
    _builds(page, found.entries)
    _pairs(page, found.entries)
    _legend(page)
    version = found.entries[0].build.version
    for entry in found.entries:
        if entry.build.version == version:
            _detail(page, entry)
    _remarks(page, book, found, version)
    return page.text()


def _head(page: Page, found: Digest) -> None:
    framework = found.framework
    page.title(f"{framework.title} ({', '.join(framework.packages)})")
    if framework.companions:
        page.say(f"moves with: {', '.join(framework.companions)}", "")


def _builds(page: Page, entries: Sequence[Entry]) -> None:
    several = len({one.build.package for one in entries}) > 1
    variants = len({one.build.variant for one in entries}) > 1
    header = ("version", "variant", "package", "Python", "CUDA", "cuDNN", "driver", "strict", "GPUs", "libraries", "index")
    rows = [
        (_span(list(dict.fromkeys(one.build.version for one in group))), *_cells(group[0], package=several, variant=variants))
        for group in _groups(entries)
    ]
    page.lines.append("")
    page.table(header, rows, least=("index", "strict", "package", "libraries", "Python", "driver", "GPUs", "cuDNN"))


def _groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries that a reader need not tell apart: neighbours in the line of one variant, package and platform, alike in every cell."""
    lines: dict[tuple[object, ...], list[Entry]] = {}
    for one in entries:
        build = one.build
        lines.setdefault((build.variant, build.package, build.index, build.arch, build.pythons), []).append(one)
    groups = [list(group) for line in lines.values() for _, group in groupby(line, key=lambda one: _cells(one, package=True, variant=True))]
    order = {id(one): place for place, one in enumerate(entries)}
    return sorted(groups, key=lambda group: order[id(group[0])])


def _cells(entry: Entry, *, package: bool, variant: bool) -> tuple[str, ...]:
    """What the overview says of a build, but for its version."""
    build = entry.build
    arch = "" if not build.arch or "x86_64" in build.arch else build.arch[0]
    return (
        " ".join(filter(None, (build.variant if variant else "", arch))),
        build.package if package else "",
        pythons_text(entry.pythons),
        str(build.cuda or ""),
        str(build.cudnn or ""),
        _short(str(entry.driver_minor or "")),
        _short(str(entry.driver_strict or "")),
        capabilities_text(build.targets, build.capability_first),
        f"extra {build.extra}" if build.extra else _ARRIVES[build.delivery],
        "" if build.index == "default" else build.index,
    )


def _short(driver: str) -> str:
    return ".".join(driver.split(".")[:2])


def _pairs(page: Page, entries: Sequence[Entry]) -> None:
    """Which release of each companion goes with which release of the framework."""
    names = list(dict.fromkeys(name for one in entries for name, _ in one.companions))
    rows, seen = [], set()
    for one in entries:
        found = dict(one.companions)
        if found and one.build.version not in seen:
            seen.add(one.build.version)
            rows.append((one.build.version, *(found.get(name, "") for name in names)))
    if rows:
        page.title("Companions: the newest release that takes each version")
        merged = [(_span([row[0] for row in group]), *cells) for cells, group in groupby(rows, key=lambda row: row[1:])]
        page.table(("version", *names), merged, least=tuple(reversed(names)))


def _span(newest_first: Sequence[str]) -> str:
    """`2.16.1`, or of several `2.8.0 - 2.8.4`."""
    return newest_first[0] if len(newest_first) == 1 else f"{newest_first[-1]} - {newest_first[0]}"


def _legend(page: Page) -> None:
    page.lines.append("")
    page.say(
        "driver: oldest driver by NVIDIA's minor-version compatibility; strict: the toolkit's own driver. GPUs: compute capabilities "
        "with code inside; +PTX: newer GPUs, too, where the driver is as new as the toolkit. libraries: how CUDA and cuDNN arrive.",
        "",
    )


def _detail(page: Page, entry: Entry) -> None:
    build = entry.build
    where = "" if build.index == "default" else f" from {build.index}"
    page.title(f"{build.package} {build.wheel_version} ({build.variant}){where}")
    gpus = " ".join(map(str, build.targets)) or capabilities_text((), build.capability_first)
    other = " ".join(map(str, build.targets_aarch64))
    arrives = " ".join(filter(None, (_ARRIVES[build.delivery], f"with extra [{build.extra}]" if build.extra else "", _FINDS[build.finds])))
    rows = (
        ("released", f"{entry.date or ''}{' (yanked)' if build.yanked else ''}"),
        ("Python", " ".join(entry.pythons)),
        ("platforms", " ".join((*build.arch, f"glibc {build.glibc}" if build.glibc else ""))),
        (
            "built with",
            ", ".join(filter(None, (f"CUDA {build.cuda}" if build.cuda else "", f"cuDNN {build.cudnn}" if build.cudnn else ""))),
        ),
        ("driver", f"{entry.driver_minor} or newer; strict: {entry.driver_strict}" if entry.driver_minor else ""),
        ("GPU code", f"{gpus}{f'; aarch64: {other}' if other else ''}"),
        ("libraries", arrives),
        ("loads", " ".join(build.loads)),
        ("requires", "; ".join(requirement_text(line, build.extra) for line in _wanted(entry.requires or (), build.extra))),
        ("note", build.note or ""),
    )
    for label, text in rows:
        if text.strip():
            page.say(text.strip(), f"  {label:<11}")


def _wanted(lines: Iterable[str], extra: str | None) -> list[str]:
    """The lines that hold without an extra, or for this one."""
    return [line for line in lines if "extra ==" not in line or (extra and re.search(rf"extra == [\"']{re.escape(extra)}[\"']", line))]


def requirement_text(line: str, extra: str | None = None) -> str:
    """A requirement without the conditions that every Linux wheel meets: `triton==3.2.0`, `setuptools (python_version >= "3.12")`."""
    what, _, marker = line.partition(";")
    always = (
        r"""(?:platform_system == ["']Linux["']|sys_platform == ["']linux["']|platform_machine == ["']x86_64["']|extra == ["'][\w-]+["'])"""
    )
    rest = re.sub(rf"{always} and |(?: and )?{always}", "", marker).strip()
    while rest.startswith("(") and rest.endswith(")") and rest.count("(") == 1:
        rest = rest[1:-1].strip()
    return f"{what.strip().replace(',', ', ')}{f' ({rest})' if rest else ''}{f' [{extra}]' if extra and 'extra ==' in marker else ''}"


def _remarks(page: Page, book: Book, found: Digest, version: str) -> None:
    framework = found.framework
    bounds, traps = bounds_for(framework, version), traps_for(book, framework, version)
    if bounds:
        page.title("True, although its metadata does not say so")
        for one in bounds:
            page.say(f"{one.requirement}: {one.reason}", "  - ")
    if traps:
        page.title("Traps")
        for trap in traps:
            page.say(f"{trap.versions}: {trap.summary}{f'; instead: {trap.remedy}' if trap.remedy else ''}", "  - ")
    table_name = f"framework/{framework.name}"
    ids = dict.fromkeys(id_ for one in found.entries if one.build.version == version for id_ in one.build.source)
    ids |= dict.fromkeys(id_ for one in bounds for id_ in one.source)
    sources = [source for id_ in ids if (source := book.source(table_name, id_))]
    if sources:
        page.title("Sources")
        for source in sources:
            memory = ", from memory" if source.confidence else ""
            page.say(f"{source.where} (read {source.read}{memory})", "  - ")


def render_faults(faults: Sequence[Fault], tables: str) -> str:
    """One line for each fault, or that there is none."""
    if not faults:
        return f"{tables}: every row is well formed and every rule holds\n"
    lines = [clean(str(fault)) for fault in faults]
    count = "1 fault" if len(lines) == 1 else f"{len(lines)} faults"
    return "\n".join((*lines, count)) + "\n"


def render_live(rows: int, faults: Sequence[Fault], unread: Sequence[str]) -> str:
    """The rows that are not as the index says, and what could not be compared."""
    lines = [*(clean(str(fault)) for fault in faults), *(clean(f"not compared: {text}") for text in unread)]
    count = f"{len(faults)} of them differ" if faults else "each is as the index says"
    return "\n".join((*lines, f"{rows} rows compared with the index: {count}")) + "\n"
