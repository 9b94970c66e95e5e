"""Rules that hold over all tables together: what one file alone cannot show to be wrong.

Each rule is a function that takes the book and gives the rows that break it; its docstring says the rule. `check` runs them all.
Rules over frameworks and pip packages stand in `framework_rules`, those over symptoms in `symptom_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.overlay import key_of, key_text
from cudnn_resolve.matrix.position import Fault, Placed
from cudnn_resolve.matrix.row import Plain
from cudnn_resolve.matrix.table import Table, arrays_of, row_type
from cudnn_resolve.version import Capability, CodeTarget, CudaVersion

Rule = Callable[[Book], Iterable[Fault]]

_FIRST_DAY = "2007-01-01"
"""CUDA 1.0 is of that year."""
_TENSOR_TYPES = Capability(8, 0)
"""From here on cards have TF32 and bfloat16."""


def check(book: Book) -> tuple[Fault, ...]:
    """Every fault of every table against every rule; empty where all hold. Reads all tables."""
    from cudnn_resolve.matrix.framework_rules import RULES as FRAMEWORK_RULES
    from cudnn_resolve.matrix.symptom_rules import RULES as SYMPTOM_RULES

    return tuple(fault for rule in (*RULES, *FRAMEWORK_RULES, *SYMPTOM_RULES) for fault in rule(book))


def overlay_faults(book: Book) -> tuple[Fault, ...]:
    """What is wrong with the rows of overlays taken by themselves: unknown indexes, two rows of one key, a framework without head.

    Costs no more than the tables that the overlays touch.
    """
    from cudnn_resolve.matrix.framework_rules import known_indexes, whole_heads

    touched = frozenset(name for layer in book.layers[1:] for name in layer.names())
    heads = tuple(whole_heads(book, touched))
    if heads:
        return heads
    own = {layer.path(name) for layer in book.layers[1:] for name in layer.names()}
    found = (*unique_keys(book, touched), *known_indexes(book, touched))
    return tuple(fault for fault in found if fault.file in own)


def unique_keys(book: Book, names: Iterable[str] | None = None) -> Iterator[Fault]:
    """No two rows of a table have the same key; where they may differ by architecture or Python, these do not overlap."""
    for name in book.names() if names is None else sorted(names):
        for array in arrays_of(name):
            yield from _repeated(book.placed(name, array))


def _repeated(rows: Iterable[Placed]) -> Iterator[Fault]:
    seen: dict[tuple[object, ...], list[Placed]] = {}
    for line in rows:
        before = seen.setdefault(key_of(line.row), [])
        twin = next((one for one in before if _overlap(one.row, line.row)), None)
        if twin:
            yield line.fault("", f"has the key of {twin.place}: {key_text(line.row)}")
        before.append(line)


def _overlap(one: Plain, other: Plain) -> bool:
    """True where rows of one key mean the same things: in every field of `apart` either says all, or both name something alike."""
    for field in one.apart:
        ours, theirs = getattr(one, field), getattr(other, field)
        if isinstance(ours, tuple):
            if ours and theirs and not set(ours) & set(theirs):
                return False
        elif ours != theirs:
            return False
    return True


def ranges_not_inverted(book: Book) -> Iterator[Fault]:
    """The first of every range is not after its last."""
    for name, array, pairs in (
        ("gpu/architecture", "architecture", ("cuda", "driver", "cudnn")),
        ("cudnn/release", "build", ("cuda",)),
        ("apt/repository", "repository", ("cuda",)),
        ("cuda/soname", "soname", ("",)),
        ("apt/package", "package", ("",)),
    ):
        for line in book.placed(name, array):
            for pair in pairs:
                first, last = (f"{pair}_{end}" if pair else end for end in ("first", "last"))
                low, high = getattr(line.row, first), getattr(line.row, last)
                if low is not None and high is not None and high < low:
                    yield line.fault(first, f"{low} is after {last} {high}")


def minimum_drivers_monotone(book: Book) -> Iterator[Fault]:
    """A newer toolkit was not made for an older driver."""
    yield from _monotone(book.placed("driver/minimum", "minimum"), "cuda", "driver")


def branch_cuda_monotone(book: Book) -> Iterator[Fault]:
    """A newer driver branch does not run an older CUDA at most."""
    yield from _monotone(book.placed("driver/branch", "branch"), "number", "cuda")


def _monotone(rows: Iterable[Placed], by: str, field: str) -> Iterator[Fault]:
    ordered = sorted(rows, key=lambda line: getattr(line.row, by))
    for before, line in pairwise(ordered):
        low, high = getattr(before.row, field), getattr(line.row, field)
        if high < low:
            message = f"{high} for {by} {getattr(line.row, by)} is older than {low} for {by} {getattr(before.row, by)}"
            yield line.fault(field, message)


def branch_names(book: Book) -> Iterator[Fault]:
    """A driver branch is called R and its number."""
    for line in book.placed("driver/branch", "branch"):
        if line.row.name != f"R{line.row.number}":
            yield line.fault("name", f"{line.row.name!r} is not R{line.row.number}")


def floors_below_minimums(book: Book) -> Iterator[Fault]:
    """Minor-version compatibility never asks for a newer driver branch than the toolkit itself.

    By the branch, since CUDA 11.0 came with an earlier driver of R450 than the one that NVIDIA names as the floor of all 11.x.
    """
    floors = {line.row.cuda_major: line for line in book.placed("driver/minimum", "floor")}
    for one in book.minimums():
        floor = floors.get(one.cuda.major)
        if floor is not None and one.driver.major < floor.row.first.major:
            yield floor.fault("first", f"{floor.row.first} is newer than the driver {one.driver} of CUDA {one.cuda}")


def minimums_known(book: Book) -> Iterator[Fault]:
    """Toolkit releases have a driver (the newest line may wait for it), drivers a known release, majors from 11 on a floor."""
    minimums = {line.row.cuda: line for line in book.placed("driver/minimum", "minimum")}
    releases = {line.row.cuda: line for line in book.placed("cuda/release", "release")}
    newest = max(minimums, default=None)
    for cuda, line in releases.items():
        if newest is not None and cuda < newest and book.toolkit_driver(cuda) is None:
            yield line.fault("cuda", f"{cuda} has no row in driver/minimum.toml")
        if cuda.major >= 11 and book.floor(cuda.major) is None:
            yield line.fault("cuda", f"there is no [[floor]] for CUDA {cuda.major} in driver/minimum.toml")
    for cuda, line in minimums.items():
        if cuda not in releases:
            yield line.fault("cuda", f"{cuda} is not a release of cuda/release.toml")


_REFERENCES = (
    ("driver/forward", "forward", "base", "branch"),
    ("driver/forward", "forward", "branch", "branch"),
    ("gpu/card", "card", "capability", "capability"),
    ("cudnn/release", "build", "capability", "capability"),
    ("cuda/wheel", "wheel", "package", "component"),
    ("cuda/wheel", "wheel", "cuda", "line"),
    ("framework/*", "build", "cuda", "line"),
    ("framework/*", "build", "targets", "capability"),
    ("framework/*", "build", "targets_aarch64", "capability"),
    ("framework/*", "build", "capability_first", "capability"),
    ("framework/*", "build", "capability_last", "capability"),
    ("framework/*", "release", "cuda", "line"),
    ("framework/*", "release", "targets", "capability"),
    ("advisory", "advisory", "capability", "capability"),
)
"""Table, array and field of rows that name something, and what."""


def references_known(book: Book) -> Iterator[Fault]:
    """What a row names is there: compute capabilities, CUDA lines, driver branches, component packages and frameworks.

    A build of a CUDA that is older than all of the tables is known only to be refused.
    """
    first = book.first_cuda()
    known: dict[str, tuple[Collection[object], str]] = {
        "branch": ({one.number for one in book.branches()}, "is not a branch of driver/branch.toml"),
        "capability": ({one.capability for one in book.architectures()}, "has no row in gpu/architecture.toml"),
        "component": ({one.row.package for one in book.placed("cuda/component", "component")}, "has no row in cuda/component.toml"),
        "framework": (book.frameworks(), "is not a framework"),
        "line": ({one.line for one in book.cuda_releases()}, "is of no line in cuda/release.toml"),
    }
    for table, array, field, kind in _REFERENCES:
        there, message = known[kind]
        for name in book.names() if table.endswith("*") else (table,):
            for line in book.placed(name, array) if name.startswith(table.rstrip("*")) else ():
                named = getattr(line.row, field)
                for one in named if type(named) is tuple else () if named is None else (named,):  # a capability is a named tuple
                    shown = one.capability if isinstance(one, CodeTarget) else one
                    if (one.line if kind == "line" else shown) not in there and not (array == "build" and field == "cuda" and one < first):
                        yield line.fault(_column(line.row, field), f"{'R' if kind == 'branch' else ''}{shown} {message}")


def _column(row: Plain, field: str) -> str:
    """The name of a field in TOML."""
    return row.__struct_encode_fields__[row.__struct_fields__.index(field)]


def release_lines(book: Book) -> Iterator[Fault]:
    """The line of a toolkit release is its major and minor."""
    for line in book.placed("cuda/release", "release"):
        if line.row.line != line.row.cuda.line:
            yield line.fault("line", f"{line.row.line!r} is not the line of {line.row.cuda}")


def soname_ranges(book: Book) -> Iterator[Fault]:
    """The ranges of one library's sonames do not overlap, and leave no known CUDA line out between them."""
    cuda = sorted({CudaVersion(one.line) for one in book.cuda_releases()})
    libraries: dict[str, list[Placed]] = {}
    for line in book.placed("cuda/soname", "soname"):
        libraries.setdefault(line.row.library, []).append(line)
    for ranges in libraries.values():
        ranges.sort(key=lambda line: line.row.first)
        for before, line in pairwise(ranges):
            last = before.row.last
            if last is None or line.row.first <= last:
                yield line.fault("first", f"{line.row.first} lies in the range of {before.row.soname} ({before.place})")
            elif gap := [one for one in cuda if last < one < line.row.first]:
                yield line.fault("first", f"no soname of {line.row.library} for CUDA {', '.join(map(str, gap))}")


def card_names(book: Book) -> Iterator[Fault]:
    """No name or alias stands for two cards."""
    seen: dict[str, Placed] = {}
    for line in book.placed("gpu/card", "card"):
        for name in dict.fromkeys((line.row.name, *line.row.alias)):
            other = seen.setdefault(name.casefold(), line)
            if other is not line:
                yield line.fault("alias", f"{name!r} is {other.row.name} already ({other.place})")


def peaks_fit(book: Book) -> Iterator[Fault]:
    """A peak is of a card in gpu/card.toml and of one only, of types that it has, and no wider type is faster than a narrower one."""
    seen: dict[str, Placed] = {}
    for line in book.placed("gpu/peak", "peak"):
        row = line.row
        for column, name in (("name", row.name), *(("alias", one) for one in row.alias)):
            card = book.card(name)
            if card is None:
                yield line.fault(column, f"{name!r} is no card of gpu/card.toml")
            elif card.capability < _TENSOR_TYPES:
                for type_ in ("tf32", "bf16"):
                    if getattr(row, type_) is not None:
                        yield line.fault(type_, f"{name!r} is of capability {card.capability}, which has neither TF32 nor bfloat16")
            other = seen.setdefault(name.casefold(), line)
            if other is not line:
                yield line.fault(column, f"{name!r} has a peak already ({other.place})")
        yield from _rates_fit(line)


def places_fit(book: Book) -> Iterator[Fault]:
    """The card of a place is in gpu/card.toml, and what its names look like is in lower case and belongs to it alone."""
    seen: dict[str, Placed] = {}
    for line in book.placed("gpu/place", "place"):
        if book.card(line.row.gpu) is None:
            yield line.fault("gpu", f"{line.row.gpu!r} is no card of gpu/card.toml")
        for shape in line.row.match:
            if shape != shape.casefold():
                yield line.fault("match", f"{shape!r} is not in lower case, as names are compared")
            other = seen.setdefault(shape, line)
            if other is not line:
                yield line.fault("match", f"{shape!r} is {other.row.name} already ({other.place})")


def _rates_fit(line: Placed) -> Iterator[Fault]:
    """Rates are more than nothing and rise as types become narrower."""
    least, widest = 0.0, "nothing"
    for type_ in ("fp32", "tf32", "fp16"):
        rate = getattr(line.row, type_)
        if rate is None:
            continue
        if not rate > 0:
            yield line.fault(type_, "must be more than 0")
        elif rate < least:
            yield line.fault(type_, f"must rise: it is less than {widest}")
        least, widest = rate, type_
    if line.row.bf16 not in (None, line.row.fp16):
        yield line.fault("bf16", "must be the same as fp16")


def cudnn_capabilities(book: Book) -> Iterator[Fault]:
    """Every cuDNN build says which GPUs it has code for, and those are GPUs that its CUDA knows."""
    for line in book.placed("cudnn/release", "build"):
        if not line.row.capability:
            yield line.fault("capability", "is missing: without it no GPU can be judged")
        for capability in line.row.capability:
            architecture = book.architecture(capability)
            newest = line.row.cuda_built or line.row.cuda_last
            if architecture and newest and CudaVersion(newest.line) < architecture.cuda_first:
                yield line.fault("capability", f"{capability} is unknown to CUDA {newest} (from {architecture.cuda_first} on)")


def cudnn_numbers_agree(book: Book) -> Iterator[Fault]:
    """The soname of a cuDNN build is its major, its CUDA range lies in its CUDA major, its apt version begins with its own."""
    for line in book.placed("cudnn/release", "build"):
        row = line.row
        if row.soname != row.version.major:
            yield line.fault("soname", f"{row.soname} is not the major of {row.version}")
        for column in ("cuda_built", "cuda_first", "cuda_last"):
            value = getattr(row, column)
            if value is not None and value.major != row.cuda_major:
                yield line.fault(column, f"{value} is not of CUDA {row.cuda_major}")
        if row.apt.version and row.apt.version.partition("-")[0] != str(row.version):
            yield line.fault("apt.version", f"{row.apt.version!r} is not a build of {row.version}")


def slots_shared(book: Book) -> Iterator[Fault]:
    """A slot of package/slot.toml has at least two packages, and no package stands in two slots."""
    seen: dict[str, Placed] = {}
    for line in book.placed("package/slot", "slot"):
        if len({*line.row.packages, *line.row.releases}) < 2:
            yield line.fault("packages", "a slot that one package has to itself excludes nothing")
        for package in line.row.packages:
            component = book.component(package)
            other = seen.setdefault(package, line)
            if other is not line:
                yield line.fault("packages", f"{package} stands in slot {other.row.slot} already ({other.place})")
            elif component is not None and component.slot != line.row.slot:
                yield line.fault("packages", f"{package} has slot {component.slot} in cuda/component.toml")


def dates_sane(book: Book) -> Iterator[Fault]:
    """Nothing was released before CUDA was, or after the day on which the tables were last read."""
    newest = max((day for layer in book.layers for name in layer.names() for day in _days(layer.load(name))), default="")
    for name in book.names():
        for array in arrays_of(name):
            if "date" in row_type(name, array).__struct_fields__:
                for line in book.placed(name, array):
                    if line.row.date and not _FIRST_DAY <= line.row.date <= max(newest, _FIRST_DAY):
                        yield line.fault("date", f"{line.row.date} is not between {_FIRST_DAY} and {newest}, when a source was last read")


def _days(table: Table) -> list[str]:
    return [*([table.read] if table.read else []), *(one.read for one in table.source.values())]


def removals_meet(book: Book) -> Iterator[Fault]:
    """A row of an overlay that removes finds a row to remove."""
    for name in book.names() if len(book.layers) > 1 else ():
        for array in arrays_of(name):
            for layer, position in book.removals_of_nothing(name, array):
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
    removals_meet,
)
