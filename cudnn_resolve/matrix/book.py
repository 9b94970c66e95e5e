"""Questions that a resolution may ask of the tables.

A `Book` performs no I/O: it is given `Tables` and asks for a table only when a question needs it. Answers are kept per instance.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, wraps
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

from cudnn_resolve.matrix import overlay, row, symptom
from cudnn_resolve.matrix.row_fault import Placed
from cudnn_resolve.matrix.table import BuildOutline, Tables, Top, array_alone, extras_of, link, place_of
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion

_T = TypeVar("_T")
_P = ParamSpec("_P")
_RowT = TypeVar("_RowT", bound=row.Plain)


def _once(question: Callable[Concatenate[Book, _P], _T]) -> Callable[Concatenate[Book, _P], _T]:
    """Keep the answer to a question for each book and set of arguments."""

    @wraps(question)
    def answer(book: Book, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return book.remember(question.__qualname__, (args, *kwargs.items()), lambda: question(book, *args, **kwargs))

    return answer


class Book:
    """All questions about the tables; `layers` are the shipped tables followed by overlays, the topmost last."""

    def __init__(self, *layers: Tables) -> None:
        self.layers = layers
        self._answers: dict[tuple[str, object], Any] = {}

    def remember(self, question: str, key: object, answer: Callable[[], _T]) -> _T:
        """Compute a value once per book, question and key; for values derived from its rows alone."""
        place = (question, key)
        if place not in self._answers:
            self._answers[place] = answer()
        return self._answers[place]  # type: ignore[no-any-return]

    # -- frameworks ------------------------------------------------------------------------------------------------------------

    @_once
    def frameworks(self) -> tuple[str, ...]:
        """Names of all frameworks, sorted."""
        return self._stems("framework")

    def framework(self, name: str) -> row.Framework:
        """Framework with all its builds, by name, alias or distribution name; KeyError for an unknown one."""
        found = self.framework_named(name)
        if found is None:
            raise KeyError(name)
        return self._framework(found)

    def builds(self, framework: str) -> Sequence[row.Build | BuildOutline]:
        """Builds of a framework, by its own name, with only the columns that a list of frameworks shows."""
        table = f"framework/{framework}"
        outline: Any = None if self._has_overlay(table) else self.layers[0].part(table, array_alone(BuildOutline, "build"))
        return outline.build if outline is not None else self.framework(framework).builds

    @_once
    def builds_of(self, distribution: str) -> tuple[row.Build, ...]:
        """Builds of a distribution, in table order; none for a package that is no framework."""
        framework = self.framework_of(distribution)
        builds = self._framework(framework).builds if framework is not None else ()
        return tuple(build for build in builds if build.package == distribution)

    def bounds(self, framework: str) -> tuple[row.Bound, ...]:
        """Bounds of a framework, by its own name, without reading its builds."""
        return self.rows(row.Bound, framework)

    @_once
    def head(self, framework: str) -> row.Head:
        """Head of a framework, by its own name, each field from the topmost layer that sets it."""
        table, merged = f"framework/{framework}", {}
        for number, layer in enumerate(self.layers):
            if not self._has(number, table):
                continue
            top = layer.part(table, Top)
            head = (layer.load(table) if top is None else top).framework
            if head is not None:
                fields = {field: value for field in head.__struct_fields__ if (value := getattr(head, field)) not in (None, "", ())}
                if "source" in fields:
                    fields["source"] = tuple(overlay.prefix(number) + source for source in fields["source"])
                merged.update(fields)
        return row.Head(**merged)

    def framework_of(self, distribution: str) -> str | None:
        """Framework that a distribution is: `tensorflow-gpu` is tensorflow; None for any other package."""
        return self._frameworks_by("packages").get(_normalized(distribution))

    def distributions(self, framework: str) -> tuple[str, ...]:
        """Distributions of a framework: those with known builds, then others that install the same files."""
        own = tuple(map(_normalized, self.head(framework).packages))
        slots = {slot for package in own if (slot := self.slot(package)) is not None}
        sharing = (package for slot in self.rows(row.Slot) if slot.slot in slots for package in slot.packages)
        return tuple(dict.fromkeys((*own, *sharing)))

    def framework_named(self, name: str) -> str | None:
        """Framework with this name, alias or distribution; None for any other word."""
        return self._framework_names.get(_normalized(name))

    def companion_of(self, distribution: str) -> str | None:
        """Framework that a distribution moves with: `torchvision` goes with torch; None for any other package."""
        return self._frameworks_by("companions").get(_normalized(distribution))

    def nearest(self, word: str) -> tuple[str, ...]:
        """Frameworks with a name similar to `word`, nearest first, at most three."""
        from difflib import get_close_matches

        names = self._framework_names
        close = get_close_matches(_normalized(word[:80]), list(names), n=6, cutoff=0.7)
        return tuple(dict.fromkeys(names[name] for name in close))[:3]

    def extra_releases(self, package: str) -> tuple[row.ExtraRelease, ...]:
        """Releases of a package on indexes other than the configured one, in table order."""
        return self._extra_releases.get(_normalized(package), ())

    @_once
    def _framework(self, name: str) -> row.Framework:
        head = self.head(name)
        fields = {field: getattr(head, field) for field in head.__struct_fields__}
        return row.Framework(builds=self.rows(row.Build, name), bounds=self.bounds(name), **fields)

    @cached_property
    def _framework_names(self) -> dict[str, str]:
        """Normalized name, alias or distribution to framework; names win over aliases, aliases over distributions."""
        return self._frameworks_by("packages", "aliases", "name")

    @_once
    def _frameworks_by(self, *fields: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for field in fields:
            for name in self.frameworks():
                value = getattr(self.head(name), field)
                found.update(dict.fromkeys([value] if isinstance(value, str) else value, name))
        return found

    @cached_property
    def _extra_releases(self) -> dict[str, tuple[row.ExtraRelease, ...]]:
        found: dict[str, tuple[row.ExtraRelease, ...]] = {}
        for release in self.rows(row.ExtraRelease):
            found[release.package] = (*found.get(release.package, ()), release)
        return found

    # -- pip packages ----------------------------------------------------------------------------------------------------------

    def is_harvested(self, package: str) -> bool:
        """True if the releases of a pip package are known."""
        table = f"wheel/{_normalized(package)}"
        return self._has(0, table) or self._has_overlay(table)

    def releases(self, package: str) -> tuple[row.WheelRelease, ...]:
        """Known releases of a pip package, oldest first; empty if it was not harvested."""
        return self._releases(_normalized(package))

    def release(self, package: str, version: str) -> row.WheelRelease | None:
        """One release of a pip package; None if it was not harvested."""
        return self._releases_by_version(package).get(version)

    def requires(self, package: str, version: str) -> Mapping[str, tuple[str, ...]]:
        """Requires-Dist lines of a release by architecture; empty if it was not harvested."""
        release = self.release(package, version)
        return (release.requires or {}) if release else {}

    def extras(self, package: str) -> frozenset[str]:
        """Normalized extras that any harvested release of a package has."""
        return self._extras(_normalized(package))

    def packages(self) -> tuple[str, ...]:
        """Names of all harvested pip packages."""
        return self._stems("wheel")

    def component(self, package: str) -> row.Component | None:
        """CUDA library that a pip package carries; None for any other package."""
        return self._by(row.Component, "package").get(_normalized(package))

    def components(self, cuda_major: int) -> tuple[row.Component, ...]:
        """Component packages of one CUDA major."""
        return tuple(component for component in self.rows(row.Component) if component.cuda_major == cuda_major)

    def slot(self, package: str, version: str | None = None) -> str | None:
        """Identity of the files that a package, or this version of it, shares with others; None if it shares none."""
        slot, releases = self._slots.get(_normalized(package), (None, ""))
        return slot if not releases or (version is not None and _meets(version, releases)) else None

    def owners(self, slot: str) -> int:
        """Number of packages that own the files of a slot; a slot with a single owner excludes nothing."""
        return self._owners[slot]

    def shares_files(self, slot: str) -> bool:
        """False for a slot whose packages exclude one another although their files differ."""
        found = self._by(row.Slot, "slot").get(slot)
        return found is None or found.files

    def cuda_of(self, package: str, version: str) -> CudaVersion | None:
        """CUDA release that a version of a component package belongs to, if known."""
        found = self._by(row.CudaWheel, "package", "version").get((_normalized(package), version))
        return found.cuda if found else None

    def advisories(self, package: str) -> tuple[row.Advisory, ...]:
        """Advisories about a package, for a wheel of cuDNN also those about `cudnn`, which hold in every channel."""
        component = self.component(package)
        names = (_normalized(package), "cudnn" if component is not None and component.library == "cudnn" else "")
        return tuple(advisory for advisory in self.rows(row.Advisory) if advisory.package in names)

    def traps(self, framework: str) -> tuple[row.Trap, ...]:
        """Known pitfalls of versions of a framework."""
        return tuple(trap for trap in self.rows(row.Trap) if trap.framework == framework)

    @_once
    def _releases(self, name: str) -> tuple[row.WheelRelease, ...]:
        releases = self.rows(row.WheelRelease, name)
        if self._has_overlay(f"wheel/{name}"):
            from packaging.version import Version

            releases = tuple(sorted(releases, key=lambda release: Version(release.version)))
        return releases

    @_once
    def _releases_by_version(self, package: str) -> dict[str, row.WheelRelease]:
        return {release.version: release for release in self.releases(package)}

    @_once
    def _extras(self, name: str) -> frozenset[str]:
        tables = [table for _, table in self._layers(f"wheel/{name}") if table is not None]
        return frozenset(_normalized(extra) for table in tables for extra in extras_of(table))

    @cached_property
    def _slots(self) -> dict[str, tuple[str, str]]:
        """Package to its slot and the requirement that limits it to some releases; "" for all of them."""
        slots = self.rows(row.Slot)
        return {
            **{re.split(r"[<>=!~]", text, maxsplit=1)[0]: (slot.slot, text) for slot in slots for text in slot.releases},
            **{package: (slot.slot, "") for slot in slots for package in slot.packages},
            **{component.package: (component.slot, "") for component in self.rows(row.Component)},
        }

    @cached_property
    def _owners(self) -> Counter[str]:
        return Counter(slot for slot, _ in self._slots.values())

    # -- symptoms ----------------------------------------------------------------------------------------------------------------

    def symptoms(self) -> tuple[symptom.Symptom, ...]:
        """All message patterns, in table order."""
        return self.rows(symptom.Symptom)

    @_once
    def causes(self) -> Mapping[str, symptom.Cause]:
        """All causes by id."""
        return {cause.id: cause for cause in self.rows(symptom.Cause)}

    def remedies(self) -> tuple[symptom.RemedyRow, ...]:
        """All remedies, the least invasive of each cause first."""
        return self.rows(symptom.RemedyRow)

    def clues(self) -> tuple[symptom.Clue, ...]:
        """Words in messages that tell more than a cause."""
        return self.rows(symptom.Clue)

    # -- CUDA and cuDNN --------------------------------------------------------------------------------------------------------

    def first_cuda(self) -> CudaVersion:
        """Oldest CUDA line in the tables; builds of an older one are listed only to be refused."""
        return CudaVersion(self.cuda_releases()[0].line)

    def cuda_releases(self) -> tuple[row.CudaRelease, ...]:
        """Toolkit releases, oldest first."""
        return self._sorted(row.CudaRelease, "cuda")

    @_once
    def soname(self, library: str, cuda: CudaVersion) -> str | None:
        """Soname of a CUDA library, `libcublas.so.12`, in the line of a CUDA version; None if unknown."""
        line = CudaVersion(cuda.line)
        ranges = (soname for soname in self.rows(row.Soname) if soname.library == library)
        return next((found.soname for found in ranges if found.first <= line and (found.last is None or line <= found.last)), None)

    def cudnn_builds(self) -> tuple[row.CudnnBuild, ...]:
        """Builds of all cuDNN releases, oldest first."""
        return self._sorted(row.CudnnBuild, "version")

    # -- GPUs and drivers ------------------------------------------------------------------------------------------------------

    def architectures(self) -> tuple[row.Architecture, ...]:
        """Compute capabilities, oldest first."""
        return self._sorted(row.Architecture, "capability")

    def architecture(self, capability: Capability) -> row.Architecture | None:
        """Row of one compute capability, if known."""
        return self._by(row.Architecture, "capability").get(capability)

    def cards(self) -> tuple[row.Card, ...]:
        """All cards, in table order."""
        return self.rows(row.Card)

    @_once
    def card(self, name: str) -> row.Card | None:
        """Card by name or alias, ignoring vendor words, memory sizes and case; None if unknown or ambiguous."""
        from cudnn_resolve.matrix.card import find

        return find(self.cards(), name)

    def peak(self, name: str) -> row.Peak | None:
        """Peak rates of the card with exactly that name, ignoring case."""
        folded = name.casefold()
        return next((peak for peak in self.rows(row.Peak) if folded in map(str.casefold, (peak.name, *peak.alias))), None)

    def is_from_memory(self, peak: row.Peak) -> bool:
        """True if any source of the row is marked as from memory, not from a document."""
        return any(source.confidence == "memory" for id_ in peak.source if (source := self.source("gpu/peak", id_)))

    def peaks_of(self, card: row.Card) -> tuple[row.Peak, ...]:
        """Peak rates of the boards that share the names of a card."""
        found = (self.peak(name) for name in (card.name, *card.alias))
        return tuple({peak.name: peak for peak in found if peak is not None}.values())

    def nearest_cards(self, word: str) -> tuple[str, ...]:
        """Cards with a name similar to `word`, nearest first, at most five."""
        from cudnn_resolve.matrix.card import nearest

        return nearest(self.cards(), word)

    def branches(self) -> tuple[row.Branch, ...]:
        """Driver branches, oldest first."""
        return self._sorted(row.Branch, "number")

    def forward(self) -> tuple[row.Forward, ...]:
        """Pairs of a forward-compatibility package and a base branch."""
        return self.rows(row.Forward)

    def floor(self, cuda_major: int) -> DriverVersion | None:
        """Oldest driver for a CUDA major under minor-version compatibility; None if the major has none."""
        found = self._by(row.Floor, "cuda_major").get(cuda_major)
        return found.first if found else None

    def minimums(self) -> tuple[row.Minimum, ...]:
        """Toolkit releases with the driver that each was made for, oldest first."""
        return self._sorted(row.Minimum, "cuda")

    @_once
    def toolkit_driver(self, cuda: CudaVersion) -> DriverVersion | None:
        """Driver that a toolkit was made for.

        That of the release itself or else of the newest known one before it in its line; `12.4` means the first of its line.
        None if the line is unknown.
        """
        line = [minimum for minimum in self.minimums() if minimum.cuda.line == cuda.line]
        not_newer = [minimum for minimum in line if minimum.cuda <= cuda]
        return (not_newer[-1] if not_newer else line[0]).driver if line else None

    def oldest_driver(self, cuda: CudaVersion) -> DriverVersion | None:
        """Oldest driver for a CUDA version under minor-version compatibility; None if unknown."""
        return min((driver for driver in (self.toolkit_driver(cuda), self.floor(cuda.major)) if driver is not None), default=None)

    def native_cuda(self, driver: DriverVersion) -> CudaVersion | None:
        """Newest CUDA that a driver runs natively: that of its branch or of the nearest older one; None before the oldest branch."""
        not_newer = [branch for branch in self.branches() if branch.number <= driver.major]
        return not_newer[-1].cuda if not_newer else None

    # -- apt, indexes, sources -------------------------------------------------------------------------------------------------

    def removed_names(self) -> tuple[row.RemovedName, ...]:
        """Names that some releases of packages and of Python do not have."""
        return self.rows(row.RemovedName)

    def repositories(self) -> tuple[row.Repository, ...]:
        """All apt repositories."""
        return self.rows(row.Repository)

    def apt_patterns(self) -> tuple[row.AptPattern, ...]:
        """Names and versions of the apt packages of the CUDA runtime."""
        return self.rows(row.AptPattern)

    def indexes(self) -> tuple[row.Index, ...]:
        """Package indexes that rows refer to, besides the configured one."""
        return self.rows(row.Index)

    def index(self, id: str) -> row.Index:
        """One package index; KeyError if unknown."""
        return self._by(row.Index, "id")[id]

    def source(self, table: str, id: str) -> row.Source | None:
        """Source behind an id under `source` in a row of a table."""
        for number, layer in enumerate(self.layers):
            prefix = overlay.prefix(number)
            if id.startswith(prefix) and self._has(number, table):
                found = layer.load(table).source.get(id[len(prefix) :])
                if found is not None:
                    return found
        return None

    @property
    def version(self) -> str:
        """Short text that changes with any table, recorded in locks; reads every file."""
        return "+".join(layer.version() for layer in self.layers)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Active overlays in words, shown with every answer that rests on their rows."""
        return tuple(layer.remark for layer in self.layers if layer.names() and layer.remark)

    # -- rows ------------------------------------------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """Tables of all layers, sorted."""
        return tuple(sorted(frozenset[str]().union(*self._layer_names)))

    @_once
    def rows(self, row_type: type[_RowT], stem: str | None = None) -> tuple[_RowT, ...]:
        """Rows of a type after overlaying; `stem` is one file of a folder (`torch` in `framework/torch`), None all of its files."""
        if stem is None:
            return tuple(found for file in self._stems_of(row_type) for found in self.rows(row_type, file))
        name, array = place_of(row_type, stem)
        if self._has_overlay(name):
            return tuple(placed.row for placed in self.placed(row_type, stem))
        if not self._has(0, name):
            return ()
        linked = row_type is row.WheelRelease  # needs the other arrays of its table
        alone = None if linked else self.layers[0].part(name, array_alone(row_type, array))
        found: tuple[_RowT, ...] = getattr(self._layers(name)[0][1] if alone is None else alone, array)
        return found

    def placed(self, row_type: type[_RowT], stem: str | None = None) -> list[Placed[_RowT]]:
        """Rows as `rows` gives them, each with its layer and position; for rules and for printing."""
        places = (place_of(row_type, file) for file in (self._stems_of(row_type) if stem is None else (stem,)))
        return [placed for name, array in places for placed in overlay.lay(self._layers(name), row_type, array)]

    def idle_removals(self, row_type: type[row.Plain], stem: str) -> list[tuple[int, int]]:
        """Layer and position of each overlay row with `remove = true` that matches no row."""
        name, array = place_of(row_type, stem)
        return overlay.idle_removals(self._layers(name), row_type, array)

    @_once
    def _by(self, row_type: type[_RowT], *fields: str) -> dict[Any, _RowT]:
        """Rows by one field, or by a tuple of several; the first row wins."""
        key = attrgetter(*fields)
        return {key(found): found for found in reversed(self.rows(row_type))}

    @_once
    def _sorted(self, row_type: type[_RowT], field: str) -> tuple[_RowT, ...]:
        return tuple(sorted(self.rows(row_type), key=attrgetter(field)))

    @_once
    def _layers(self, name: str) -> list[tuple[str, Any]]:
        """File and table of each layer, ready to use; None for a layer without that table."""
        tables = [layer.load(name) if self._has(number, name) else None for number, layer in enumerate(self.layers)]
        folder, _, stem = name.partition("/")
        if folder == "framework":
            packages = self.head(stem).packages
            tables = [overlay.with_package(table, packages[0] if packages else "") for table in tables]
        for table in filter(None, tables if folder == "wheel" else ()):
            link(table)
        return [(layer.path(name), table) for layer, table in zip(self.layers, tables, strict=True)]

    @cached_property
    def _layer_names(self) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(layer.names()) for layer in self.layers)

    def _has(self, layer: int, name: str) -> bool:
        return name in self._layer_names[layer]

    def _has_overlay(self, name: str) -> bool:
        return any(self._has(number, name) for number in range(1, len(self.layers)))

    def _stems_of(self, row_type: type[row.Plain]) -> tuple[str, ...]:
        folder, _, stem = place_of(row_type, "*")[0].partition("/")
        return self._stems(folder) if stem == "*" else ("",)

    def _stems(self, folder: str) -> tuple[str, ...]:
        return tuple(name.partition("/")[2] for name in self.names() if name.startswith(f"{folder}/"))


@lru_cache(maxsize=8192)
def _normalized(name: str) -> str:
    """A distribution name as the tables spell it (PyPA names specification)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _meets(version: str, requirement: str) -> bool:
    from packaging.requirements import Requirement

    return Requirement(requirement).specifier.contains(version, prereleases=True)
