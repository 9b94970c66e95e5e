"""Show the tables of frameworks on a page, for `matrix`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from packaging.version import Version

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.digest import Digest, Entry, bounds_for, capabilities_text, pythons_text, traps_for
from cudnn_resolve.matrix.row import Build, Index, Repository
from cudnn_resolve.matrix.row_fault import Fault
from cudnn_resolve.matrix.table import BuildOutline
from cudnn_resolve.report.text import Page, clean

if TYPE_CHECKING:
    _Built = TypeVar("_Built", Build, BuildOutline, Build | BuildOutline)

_DELIVERY = {"wheel": "pip wheels", "bundled": "in the wheel", "system": "system, apt", "none": ""}
_LOOKUP = {
    "rpath": "by its RPATH, before LD_LIBRARY_PATH",
    "runpath": "by its RUNPATH, after LD_LIBRARY_PATH",
    "self": "by loading them itself",
    "none": "",
}


def show_list(page: Page, book: Book) -> None:
    """List the frameworks and tables."""
    page.title("Frameworks")
    rows = []
    for name in book.frameworks():
        builds = book.builds(name)
        newest = newest_build(builds)
        cuda = f"CUDA {newest.cuda}" if newest and newest.cuda else ""
        cudnn = f"cuDNN {newest.cudnn}" if newest and newest.cudnn else ""
        title = book.head(name).title
        rows.append((name, title, span(builds), str(len(builds)), ", ".join(filter(None, (cuda, cudnn)))))
    page.table(("name", "framework", "releases", "builds", "newest built with"), rows, droppable=("builds", "framework"))
    page.title("Tables")
    page.table(("table", "rows", "from", "to"), _table_rows(book))
    page.title(f"Version {book.version}")
    for remark in book.remarks:
        page.paragraph(remark, "! ")
    page.paragraph("`cudnn-resolve matrix show NAME` shows a framework, or `cudnn`, `cuda`, `driver` or `gpu`.")


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
        ("indexes", len(book.rows(Index)), "", ""),
        ("apt repositories", len(book.rows(Repository)), "", ""),
    ]
    return [tuple(map(str, row)) for row in rows if row is not None]


def newest_build(builds: Iterable[_Built]) -> _Built | None:
    """The first build of the newest final release for GPUs, or of the newest release of any kind if there is none."""
    known = list(builds)
    versions = {text: Version(text) for text in {build.version for build in known}}
    ranked = [(build.cuda is not None, not versions[build.version].is_prerelease, versions[build.version]) for build in known]
    return known[ranked.index(max(ranked))] if known else None


def span(builds: Iterable[Build | BuildOutline]) -> str:
    """Oldest and newest final release: `1.15.0 - 2.21.0`."""
    versions = {Version(text) for text in {build.version for build in builds}}
    final = {version for version in versions if not version.is_prerelease} or versions
    return f"{min(final)} - {max(final)}" if final else ""


def show_framework(page: Page, found: Digest) -> None:
    """Show all releases of a framework, newest first, with one line for builds that differ in nothing shown."""
    _head(page, found)
    shown = [entry for entry in found.entries if entry.build.cuda is not None and not Version(entry.build.version).is_prerelease]
    shown = shown or list(found.entries)
    _builds(page, shown)
    hidden = len(found.entries) - len(shown)
    if hidden:
        what = "1 CPU build or pre-release" if hidden == 1 else f"{hidden} CPU builds and pre-releases"
        page.paragraph(f"Not shown here: {what}; `cudnn-resolve matrix show {found.framework.name} VERSION` shows them.", "")
    _companions(page, shown)
    _legend(page)


def show_release(page: Page, book: Book, found: Digest) -> None:
    """Show the requested builds, and all details of the newest release among them."""
    _head(page, found)
    _builds(page, found.entries)
    _companions(page, found.entries)
    _legend(page)
    version = found.entries[0].build.version
    for entry in found.entries:
        if entry.build.version == version:
            _detail(page, entry)
    _remarks(page, book, found, version)


def _head(page: Page, found: Digest) -> None:
    framework = found.framework
    page.title(f"{framework.title} ({', '.join(framework.packages)})")
    if framework.companions:
        page.paragraph(f"companion packages: {', '.join(framework.companions)}", "")


def _builds(page: Page, entries: Sequence[Entry]) -> None:
    several_packages = len({entry.build.package for entry in entries}) > 1
    several_variants = len({entry.build.variant for entry in entries}) > 1
    header = ("version", "variant", "package", "Python", "CUDA", "cuDNN", "driver", "strict", "GPUs", "libraries", "index")
    rows = [
        (
            _version_range(list(dict.fromkeys(entry.build.version for entry in group))),
            *_cells(group[0], package=several_packages, variant=several_variants),
        )
        for group in _groups(entries)
    ]
    page.lines.append("")
    page.table(header, rows, droppable=("index", "strict", "package", "libraries", "Python", "driver", "GPUs", "cuDNN"))


def _groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Join successive releases of one variant, package and platform that agree in every cell."""
    lines: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        build = entry.build
        lines.setdefault((build.variant, build.package, build.index, build.arch, build.pythons), []).append(entry)
    groups = [list(group) for line in lines.values() for _, group in groupby(line, key=lambda one: _cells(one, package=True, variant=True))]
    order = {id(entry): place for place, entry in enumerate(entries)}
    return sorted(groups, key=lambda group: order[id(group[0])])


def _cells(entry: Entry, *, package: bool, variant: bool) -> tuple[str, ...]:
    """The cells of a build to the right of its version."""
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
        f"extra {build.extra}" if build.extra else _DELIVERY[build.delivery],
        "" if build.index == "default" else build.index,
    )


def _short(driver: str) -> str:
    return ".".join(driver.split(".")[:2])


def _companions(page: Page, entries: Sequence[Entry]) -> None:
    """Show the newest release of each companion for each release of the framework."""
    names = list(dict.fromkeys(name for entry in entries for name, _ in entry.companions))
    by_version: dict[str, dict[str, str]] = {}
    for entry in entries:
        if entry.companions:
            by_version.setdefault(entry.build.version, dict(entry.companions))
    if not by_version:
        return
    rows = [(version, *(found.get(name, "") for name in names)) for version, found in by_version.items()]
    page.title("Companions: the newest release compatible with each version")
    merged = [(_version_range([row[0] for row in group]), *cells) for cells, group in groupby(rows, key=lambda row: row[1:])]
    page.table(("version", *names), merged, droppable=tuple(reversed(names)))


def _version_range(newest_first: Sequence[str]) -> str:
    """`2.16.1`, or `2.8.0 - 2.8.4` for several."""
    return newest_first[0] if len(newest_first) == 1 else f"{newest_first[-1]} - {newest_first[0]}"


def _legend(page: Page) -> None:
    page.lines.append("")
    page.paragraph(
        "driver: oldest driver under NVIDIA's minor-version compatibility; strict: the toolkit's own driver. GPUs: compute capabilities "
        "with machine code; +PTX: also newer GPUs, if the driver is as new as the toolkit. libraries: where CUDA and cuDNN come from.",
        "",
    )


def _detail(page: Page, entry: Entry) -> None:
    build = entry.build
    index = "" if build.index == "default" else f" from {build.index}"
    page.title(f"{build.package} {build.wheel_version} ({build.variant}){index}")
    gpus = " ".join(map(str, build.targets)) or capabilities_text((), build.capability_first)
    aarch64 = " ".join(map(str, build.targets_aarch64))
    extra = f"with extra [{build.extra}]" if build.extra else ""
    rows = (
        ("released", f"{entry.date or ''}{' (yanked)' if build.yanked else ''}"),
        ("Python", " ".join(entry.pythons)),
        ("platforms", " ".join((*build.arch, f"glibc {build.glibc}" if build.glibc else ""))),
        (
            "built with",
            ", ".join(filter(None, (f"CUDA {build.cuda}" if build.cuda else "", f"cuDNN {build.cudnn}" if build.cudnn else ""))),
        ),
        ("driver", f"{entry.driver_minor} or newer; strict: {entry.driver_strict}" if entry.driver_minor else ""),
        ("GPU code", f"{gpus}{f'; aarch64: {aarch64}' if aarch64 else ''}"),
        ("libraries", " ".join(filter(None, (_DELIVERY[build.delivery], extra, _LOOKUP[build.finds])))),
        ("loads", " ".join(build.loads)),
        ("requires", "; ".join(requirement_text(line, build.extra) for line in _required(entry.requires or (), build.extra))),
        ("note", build.note or ""),
    )
    for label, text in rows:
        if text.strip():
            page.paragraph(text.strip(), f"  {label:<11}")


def _required(lines: Iterable[str], extra: str | None) -> list[str]:
    """The requirements that hold without an extra, or for this one."""
    return [line for line in lines if "extra ==" not in line or (extra and re.search(rf"extra == [\"']{re.escape(extra)}[\"']", line))]


def requirement_text(line: str, extra: str | None = None) -> str:
    """Format a requirement without the markers that every Linux wheel meets: `setuptools (python_version >= "3.12")`."""
    what, _, marker = line.partition(";")
    always = (
        r"""(?:platform_system == ["']Linux["']|sys_platform == ["']linux["']|platform_machine == ["']x86_64["']|extra == ["'][\w-]+["'])"""
    )
    rest = re.sub(rf"{always} and |(?: and )?{always}", "", marker).strip()
    while rest.startswith("(") and rest.endswith(")") and rest.count("(") == 1:
        rest = rest[1:-1].strip()
    condition = f" ({rest})" if rest else ""
    return f"{what.strip().replace(',', ', ')}{condition}{f' [{extra}]' if extra and 'extra ==' in marker else ''}"


def _remarks(page: Page, book: Book, found: Digest, version: str) -> None:
    framework = found.framework
    bounds, traps = bounds_for(framework, version), traps_for(book, framework.name, version)
    if bounds:
        page.title("Additional constraints, missing from the wheel's metadata")
        for bound in bounds:
            page.paragraph(f"{bound.requirement}: {bound.reason}", "  - ")
    if traps:
        page.title("Traps")
        for trap in traps:
            page.paragraph(f"{trap.versions}: {trap.summary}{f'; instead: {trap.remedy}' if trap.remedy else ''}", "  - ")
    table_name = f"framework/{framework.name}"
    ids = dict.fromkeys(id_ for entry in found.entries if entry.build.version == version for id_ in entry.build.source)
    ids |= dict.fromkeys(id_ for bound in bounds for id_ in bound.source)
    sources = [source for id_ in ids if (source := book.source(table_name, id_))]
    if sources:
        page.title("Sources")
        for source in sources:
            memory = ", from memory" if source.confidence else ""
            page.paragraph(f"{source.where} (read {source.read}{memory})", "  - ")


def show_faults(page: Page, faults: Sequence[Fault], tables: str) -> None:
    """List the faults, or say that there are none."""
    page.lines += [clean(str(fault)) for fault in faults]
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    page.lines.append(count if faults else f"{tables}: all rows are well-formed and all rules hold")


def show_live(page: Page, rows: int, faults: Sequence[Fault], unread: Sequence[str]) -> None:
    """List the rows that differ from the index, and what could not be compared."""
    page.lines += [clean(str(fault)) for fault in faults]
    page.lines += [clean(f"not compared: {text}") for text in unread]
    page.lines.append(f"{rows} rows compared with the index: {f'{len(faults)} differ' if faults else 'all match'}")
