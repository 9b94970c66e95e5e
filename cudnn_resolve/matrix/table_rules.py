"""Rules across tables: faults that no file shows on its own.

Each rule is a function that takes the book and yields the faults of the rows that break it; its docstring states the rule. `check`
runs them all. Rules about frameworks and pip packages are in `framework_rules`, those about symptoms in `symptom_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any

from cudnn_resolve.matrix import row
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.named_machine import Place
from cudnn_resolve.matrix.overlay import key_of, key_text
from cudnn_resolve.matrix.row_fault import Fault, Placed
from cudnn_resolve.matrix.table import TABLES, Table, arrays_of, place_of
from cudnn_resolve.version import Capability, CodeTarget, CudaVersion

Rule = Callable[[Book], Iterable[Fault]]

_FIRST_DAY = "2007-01-01"
"""CUDA 1.0 appeared in 2007."""
_AMPERE = Capability(8, 0)
"""First cards with TF32 and bfloat16."""


def check(book: Book) -> tuple[Fault, ...]:
    """Return the faults of all tables under all rules. Reads every table."""
    from cudnn_resolve.matrix.framework_rules import RULES as FRAMEWORK_RULES
    from cudnn_resolve.matrix.symptom_rules import RULES as SYMPTOM_RULES

    return tuple(fault for rule in (*RULES, *FRAMEWORK_RULES, *SYMPTOM_RULES) for fault in rule(book))


def overlay_faults(book: Book) -> tuple[Fault, ...]:
    """Return the faults of overlay rows alone: unknown indexes, duplicate keys, a framework without head.

    Reads only the tables that the overlays touch.
    """
    from cudnn_resolve.matrix.framework_rules import known_indexes, whole_heads

    files = {layer.path(name): name for layer in book.layers[1:] for name in layer.names()}
    touched = sorted(set(files.values()))
    frameworks = [stem_of(name) for name in touched if name.startswith("framework/")]
    heads = tuple(whole_heads(book, frameworks))
    if heads:
        return heads
    found = (*unique_keys(book, touched), *known_indexes(book, frameworks))
    return tuple(fault for fault in found if fault.file in files)


def unique_keys(book: Book, names: Iterable[str] | None = None) -> Iterator[Fault]:
    """No two rows of a table have the same key, unless they differ in architecture or Python."""
    for name in book.names() if names is None else names:
        for row_type in arrays_of(name).values():
            yield from _duplicates(book.placed(row_type, stem_of(name)))


def stem_of(name: str) -> str:
    """Return the file name of a table, `torch` for `framework/torch`."""
    return name.partition("/")[2]


def _duplicates(rows: Iterable[Placed[row.Plain]]) -> Iterator[Fault]:
    seen: dict[tuple[object, ...], list[Placed[row.Plain]]] = {}
    for placed in rows:
        same_key = seen.setdefault(key_of(placed.row), [])
        twin = next((other for other in same_key if _overlap(other.row, placed.row)), None)
        if twin:
            yield placed.fault("", f"has the key of {twin.place}: {key_text(placed.row)}")
        same_key.append(placed)


def _overlap(one: row.Plain, other: row.Plain) -> bool:
    """True if rows of one key overlap in every field of `apart`; an empty one covers everything."""
    for field in one.apart:
        ours, theirs = getattr(one, field), getattr(other, field)
        if isinstance(ours, tuple):
            if ours and theirs and not set(ours) & set(theirs):
                return False
        elif ours != theirs:
            return False
    return True


_RANGES: tuple[tuple[type[row.Plain], tuple[str, ...]], ...] = (
    (row.Architecture, ("cuda_", "driver_", "cudnn_")),
    (row.CudnnBuild, ("cuda_",)),
    (row.Repository, ("cuda_",)),
    (row.Soname, ("",)),
    (row.AptPattern, ("",)),
)
"""Rows with ranges, and what precedes `first` and `last` in the names of the fields."""


def ranges_not_inverted(book: Book) -> Iterator[Fault]:
    """The first of a range is not after its last."""
    for row_type, prefixes in _RANGES:
        for placed in book.placed(row_type):
            for prefix in prefixes:
                low, high = getattr(placed.row, f"{prefix}first"), getattr(placed.row, f"{prefix}last")
                if low is not None and high is not None and high < low:
                    yield placed.fault(f"{prefix}first", f"{low} is after {prefix}last {high}")


def minimum_drivers_monotone(book: Book) -> Iterator[Fault]:
    """A newer toolkit was not made for an older driver."""
    yield from _monotone(book.placed(row.Minimum), "cuda", "driver")


def branch_cuda_monotone(book: Book) -> Iterator[Fault]:
    """The newest CUDA of a newer driver branch is not older."""
    yield from _monotone(book.placed(row.Branch), "number", "cuda")


def _monotone(rows: Iterable[Placed[Any]], by: str, field: str) -> Iterator[Fault]:
    ordered = sorted(rows, key=lambda placed: getattr(placed.row, by))
    for before, placed in pairwise(ordered):
        low, high = getattr(before.row, field), getattr(placed.row, field)
        if high < low:
            message = f"{high} for {by} {getattr(placed.row, by)} is older than {low} for {by} {getattr(before.row, by)}"
            yield placed.fault(field, message)


def branch_names(book: Book) -> Iterator[Fault]:
    """The name of a driver branch is R and its number."""
    for placed in book.placed(row.Branch):
        if placed.row.name != f"R{placed.row.number}":
            yield placed.fault("name", f"{placed.row.name!r} is not R{placed.row.number}")


def floors_below_minimums(book: Book) -> Iterator[Fault]:
    """Minor-version compatibility never needs a newer driver branch than the toolkit itself.

    Branches are compared, since CUDA 11.0 came with an earlier driver of R450 than the one that NVIDIA gives as the floor of 11.x.
    """
    floors = {placed.row.cuda_major: placed for placed in book.placed(row.Floor)}
    for minimum in book.minimums():
        floor = floors.get(minimum.cuda.major)
        if floor is not None and minimum.driver.major < floor.row.first.major:
            yield floor.fault("first", f"{floor.row.first} is newer than the driver {minimum.driver} of CUDA {minimum.cuda}")


def minimums_known(book: Book) -> Iterator[Fault]:
    """Toolkit releases have a driver (except in the newest line), drivers have a known release, majors from 11 on have a floor."""
    minimums = {placed.row.cuda: placed for placed in book.placed(row.Minimum)}
    releases = {placed.row.cuda: placed for placed in book.placed(row.CudaRelease)}
    newest = max(minimums, default=None)
    for cuda, release in releases.items():
        if newest is not None and cuda < newest and book.toolkit_driver(cuda) is None:
            yield release.fault("cuda", f"{cuda} has no row in driver/minimum.toml")
        if cuda.major >= 11 and book.floor(cuda.major) is None:
            yield release.fault("cuda", f"there is no [[floor]] for CUDA {cuda.major} in driver/minimum.toml")
    for cuda, minimum in minimums.items():
        if cuda not in releases:
            yield minimum.fault("cuda", f"{cuda} is not a release of cuda/release.toml")


_REFERENCES: tuple[tuple[type[row.Plain], str, str], ...] = (
    (row.Forward, "base", "branch"),
    (row.Forward, "branch", "branch"),
    (row.Card, "capability", "capability"),
    (row.CudnnBuild, "capability", "capability"),
    (row.CudaWheel, "package", "component"),
    (row.CudaWheel, "cuda", "line"),
    (row.Build, "cuda", "line"),
    (row.Build, "targets", "capability"),
    (row.Build, "targets_aarch64", "capability"),
    (row.Build, "capability_first", "capability"),
    (row.Build, "capability_last", "capability"),
    (row.ExtraRelease, "cuda", "line"),
    (row.ExtraRelease, "targets", "capability"),
    (row.Advisory, "capability", "capability"),
)
"""Row type, its field, and the kind of thing that the field refers to."""


def references_known(book: Book) -> Iterator[Fault]:
    """Compute capabilities, CUDA lines, driver branches and component packages that rows refer to exist.

    A build with a CUDA older than all tables is exempt: it is listed only to be refused.
    """
    first = book.first_cuda()
    kinds: dict[str, tuple[Collection[object], str]] = {
        "branch": ({branch.number for branch in book.branches()}, "is not a branch of driver/branch.toml"),
        "capability": ({known.capability for known in book.architectures()}, "has no row in gpu/architecture.toml"),
        "component": ({component.package for component in book.rows(row.Component)}, "has no row in cuda/component.toml"),
        "line": ({release.line for release in book.cuda_releases()}, "belongs to no line in cuda/release.toml"),
    }
    for row_type, field, kind in _REFERENCES:
        known, message = kinds[kind]
        for placed in book.placed(row_type):
            value = getattr(placed.row, field)
            for reference in value if type(value) is tuple else () if value is None else (value,):  # a capability is a named tuple
                shown = reference.capability if isinstance(reference, CodeTarget) else reference
                if (reference.line if kind == "line" else shown) in known:
                    continue
                if row_type is row.Build and field == "cuda" and reference < first:
                    continue
                yield placed.fault(_column(placed.row, field), f"{'R' if kind == 'branch' else ''}{shown} {message}")


def _column(found: row.Plain, field: str) -> str:
    """Return the TOML name of a field."""
    return found.__struct_encode_fields__[found.__struct_fields__.index(field)]


def release_lines(book: Book) -> Iterator[Fault]:
    """The line of a toolkit release is its major and minor."""
    for placed in book.placed(row.CudaRelease):
        if placed.row.line != placed.row.cuda.line:
            yield placed.fault("line", f"{placed.row.line!r} is not the line of {placed.row.cuda}")


def soname_ranges(book: Book) -> Iterator[Fault]:
    """The soname ranges of a library do not overlap, and no known CUDA line lies between them."""
    lines = sorted({CudaVersion(release.line) for release in book.cuda_releases()})
    libraries: dict[str, list[Placed[row.Soname]]] = {}
    for placed in book.placed(row.Soname):
        libraries.setdefault(placed.row.library, []).append(placed)
    for ranges in libraries.values():
        ranges.sort(key=lambda placed: placed.row.first)
        for before, placed in pairwise(ranges):
            last = before.row.last
            if last is None or placed.row.first <= last:
                yield placed.fault("first", f"{placed.row.first} lies in the range of {before.row.soname} ({before.place})")
            elif gap := [line for line in lines if last < line < placed.row.first]:
                yield placed.fault("first", f"no soname of {placed.row.library} for CUDA {', '.join(map(str, gap))}")


def card_names(book: Book) -> Iterator[Fault]:
    """No name or alias stands for two cards."""
    seen: dict[str, Placed[row.Card]] = {}
    for placed in book.placed(row.Card):
        for name in dict.fromkeys((placed.row.name, *placed.row.alias)):
            other = seen.setdefault(name.casefold(), placed)
            if other is not placed:
                yield placed.fault("alias", f"{name!r} is already {other.row.name} ({other.place})")


def peaks_fit(book: Book) -> Iterator[Fault]:
    """A peak belongs to one card in gpu/card.toml, has only types of that card, and narrower types are faster."""
    seen: dict[str, Placed[row.Peak]] = {}
    for placed in book.placed(row.Peak):
        peak = placed.row
        for column, name in (("name", peak.name), *(("alias", alias) for alias in peak.alias)):
            card = book.card(name)
            if card is None:
                yield placed.fault(column, f"{name!r} is not a card of gpu/card.toml")
            elif card.capability < _AMPERE:
                for type_ in ("tf32", "bf16"):
                    if getattr(peak, type_) is not None:
                        yield placed.fault(type_, f"{name!r} is of capability {card.capability}, which has neither TF32 nor bfloat16")
            other = seen.setdefault(name.casefold(), placed)
            if other is not placed:
                yield placed.fault(column, f"{name!r} already has a peak ({other.place})")
        yield from _rates_rise(placed)


def _rates_rise(placed: Placed[row.Peak]) -> Iterator[Fault]:
    """Rates are positive and rise from wide to narrow types."""
    least, wider = 0.0, ""
    for type_ in ("fp32", "tf32", "fp16"):
        rate = getattr(placed.row, type_)
        if rate is None:
            continue
        if not rate > 0:
            yield placed.fault(type_, "must be more than 0")
        elif rate < least:
            yield placed.fault(type_, f"must not be less than {wider}")
        least, wider = rate, type_
    if placed.row.bf16 not in (None, placed.row.fp16):
        yield placed.fault("bf16", "must be the same as fp16")


def places_fit(book: Book) -> Iterator[Fault]:
    """The card of a place is in gpu/card.toml; its name patterns are in lower case and unique."""
    seen: dict[str, Placed[Place]] = {}
    for placed in book.placed(Place):
        if book.card(placed.row.gpu) is None:
            yield placed.fault("gpu", f"{placed.row.gpu!r} is not a card of gpu/card.toml")
        for pattern in placed.row.match:
            if pattern != pattern.casefold():
                yield placed.fault("match", f"{pattern!r} is not in lower case, in which names are compared")
            other = seen.setdefault(pattern, placed)
            if other is not placed:
                yield placed.fault("match", f"{pattern!r} is already {other.row.name} ({other.place})")


def cudnn_capabilities(book: Book) -> Iterator[Fault]:
    """Every cuDNN build lists the GPUs that it has code for, all of them known to its CUDA."""
    for placed in book.placed(row.CudnnBuild):
        build = placed.row
        if not build.capability:
            yield placed.fault("capability", "is missing: without it no GPU can be judged")
        for capability in build.capability:
            architecture = book.architecture(capability)
            newest = build.cuda_built or build.cuda_last
            if architecture and newest and CudaVersion(newest.line) < architecture.cuda_first:
                yield placed.fault("capability", f"{capability} is unknown to CUDA {newest} (only from {architecture.cuda_first} on)")


def cudnn_numbers_agree(book: Book) -> Iterator[Fault]:
    """The soname of a cuDNN build is its major, its CUDA range is within its CUDA major, its apt version starts with its own."""
    for placed in book.placed(row.CudnnBuild):
        build = placed.row
        if build.soname != build.version.major:
            yield placed.fault("soname", f"{build.soname} is not the major of {build.version}")
        for column in ("cuda_built", "cuda_first", "cuda_last"):
            value = getattr(build, column)
            if value is not None and value.major != build.cuda_major:
                yield placed.fault(column, f"{value} is not of CUDA {build.cuda_major}")
        if build.apt.version and build.apt.version.partition("-")[0] != str(build.version):
            yield placed.fault("apt.version", f"{build.apt.version!r} is not a build of {build.version}")


def slots_shared(book: Book) -> Iterator[Fault]:
    """A slot of package/slot.toml has at least two packages, and no package is in two slots."""
    seen: dict[str, Placed[row.Slot]] = {}
    for placed in book.placed(row.Slot):
        if len({*placed.row.packages, *placed.row.releases}) < 2:
            yield placed.fault("packages", "a slot with a single package excludes nothing")
        for package in placed.row.packages:
            component = book.component(package)
            other = seen.setdefault(package, placed)
            if other is not placed:
                yield placed.fault("packages", f"{package} is already in slot {other.row.slot} ({other.place})")
            elif component is not None and component.slot != placed.row.slot:
                yield placed.fault("packages", f"{package} has slot {component.slot} in cuda/component.toml")


def dates_sane(book: Book) -> Iterator[Fault]:
    """No date is before CUDA existed or after the day on which the tables were last read."""
    newest = max((day for layer in book.layers for name in layer.names() for day in _read_days(layer.load(name))), default="")
    dated = [row_type for arrays in TABLES.values() for row_type in arrays.values() if "date" in row_type.__struct_fields__]
    for row_type in dated:
        for placed in book.placed(row_type):
            date = getattr(placed.row, "date", None)
            if date and not _FIRST_DAY <= date <= max(newest, _FIRST_DAY):
                yield placed.fault("date", f"{date} is not between {_FIRST_DAY} and {newest}, when a source was last read")


def _read_days(table: Table) -> list[str]:
    return [*([table.read] if table.read else []), *(source.read for source in table.source.values())]


def removals_match(book: Book) -> Iterator[Fault]:
    """An overlay row with `remove = true` matches a row."""
    for name in book.names() if len(book.layers) > 1 else ():
        for row_type in arrays_of(name).values():
            _, array = place_of(row_type)
            for layer, position in book.idle_removals(row_type, stem_of(name)):
                file = book.layers[layer].path(name)
                yield Fault(file=file, place=f"{array}[{position}]", message="removes nothing: there is no such row below it")


RULES: tuple[Rule, ...] = (
    unique_keys,
    ranges_not_inverted,
    minimum_drivers_monotone,
    branch_cuda_monotone,
    branch_names,
    floors_below_minimums,
    minimums_known,
    references_known,
    release_lines,
    soname_ranges,
    card_names,
    peaks_fit,
    places_fit,
    cudnn_capabilities,
    cudnn_numbers_agree,
    slots_shared,
    dates_sane,
    removals_match,
)
