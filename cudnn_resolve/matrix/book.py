"""The questions that a resolution may ask of the tables.

A `Book` reads nothing itself: it is handed `Tables`, asks them for one table at a time, and only when a question needs it. Rows
are made once and kept in the instance.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cudnn_resolve.matrix import overlay, row
from cudnn_resolve.matrix.position import Placed
from cudnn_resolve.matrix.table import BuildOutline, Outline, P, Table, array_alone, extras_of, link, row_type
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.symptom import Cause, Clue, Help, Symptom

_T = TypeVar("_T")
_LINKED = "wheel/"
"""Tables whose rows stand for others of the same table."""


class Tables(Protocol):
    """Where tables come from: the shipped ones, or those of an overlay."""

    def names(self) -> Sequence[str]:
        """Every table there is, such as `cudnn/release` and `framework/torch`."""

    def load(self, name: str) -> Table:
        """One table, checked; MatrixError where it is malformed."""

    def head(self, name: str) -> row.Head | None:
        """The head of one framework without its rows."""

    def part(self, name: str, part: type[P]) -> P | None:
        """As much of one table as a struct has; None where only the whole table can be had."""

    def path(self, name: str) -> str:
        """The file of one table, for messages."""

    def version(self) -> str:
        """A short text that changes with the content of any table."""

    @property
    def remark(self) -> str:
        """Where the rows come from, as every answer says it; empty for the shipped tables."""


class Book:
    """Every question about the tables; `layers` are the shipped tables and then the overlays, the last one on top."""

    def __init__(self, *layers: Tables) -> None:
        self.layers = layers
        self._kept: dict[tuple[str, object], Any] = {}

    # -- frameworks ------------------------------------------------------------------------------------------------------------

    def frameworks(self) -> tuple[str, ...]:
        """Names of all frameworks, in order of the alphabet."""
        return self._keep("frameworks", None, lambda _: self._stems("framework"))

    def framework(self, name: str) -> row.Framework:
        """The framework of that name, alias or distribution name, with all its builds; KeyError where there is none."""
        found = self._framework_names.get(_normalized(name))
        if found is None:
            raise KeyError(name)
        return self._keep("framework", found, self._framework)

    def builds(self, framework: str) -> Sequence[row.Build | BuildOutline]:
        """The builds of a framework, by its own name, with no more than a list of frameworks needs."""
        table = f"framework/{framework}"
        found = None if self._has_overlay(table) else self.layers[0].part(table, Outline)
        return found.build if found else self.framework(framework).builds

    def bounds(self, framework: str) -> tuple[row.Bound, ...]:
        """The bounds of a framework, by its own name; none of its builds is read for them."""
        return self._rows(f"framework/{framework}", "bound")

    def framework_of(self, distribution: str) -> str | None:
        """The framework that a distribution is: `tensorflow-gpu` is tensorflow; None for any other package."""
        return self._keep("distributions", None, lambda _: self._collect("packages")).get(_normalized(distribution))

    def distributions(self, framework: str) -> tuple[str, ...]:
        """Every distribution that is the framework: those whose builds are known, and others that install the same files."""
        own = tuple(map(_normalized, self.head(f"framework/{framework}").get("packages", ())))
        slots = {slot for package in own if (slot := self.slot(package)) is not None}
        rows: tuple[row.Slot, ...] = self._rows("package/slot", "slot")
        return tuple(dict.fromkeys((*own, *(package for one in rows if one.slot in slots for package in one.packages))))

    def is_framework(self, name: str) -> bool:
        """True for the name, the alias or the distribution of a framework."""
        return _normalized(name) in self._framework_names

    def companion_of(self, distribution: str) -> str | None:
        """The framework that a distribution moves with: `torchvision` goes with torch; None for any other package."""
        return self._keep("companions", None, lambda _: self._collect("companions")).get(_normalized(distribution))

    def nearest(self, word: str) -> tuple[str, ...]:
        """Names of frameworks that look like `word`, the nearest first, at most three."""
        from difflib import get_close_matches

        known = self._framework_names
        close = get_close_matches(_normalized(word[:80]), list(known), n=6, cutoff=0.7)
        return tuple(dict.fromkeys(known[one] for one in close))[:3]

    def extra_releases(self, package: str) -> tuple[row.ExtraRelease, ...]:
        """Releases of a package on indexes other than the configured one, in the order of the tables."""
        return self._keep("extras", None, lambda _: self._extras()).get(_normalized(package), ())

    # -- pip packages ----------------------------------------------------------------------------------------------------------

    def package(self, name: str) -> row.Package | None:
        """What is known of a pip package's releases, oldest first; None where it was not harvested."""
        return self._keep("package", _normalized(name), self._package)

    def releases(self, package: str) -> tuple[row.WheelRelease, ...]:
        """The releases of a pip package, oldest first; none where it was not harvested."""
        found = self.package(package)
        return found.releases if found is not None else ()

    def release(self, package: str, version: str) -> row.WheelRelease | None:
        """One release of a pip package; None where it was not harvested."""
        return next((one for one in self.releases(package) if one.version == version), None)

    def requires(self, package: str, version: str) -> Mapping[str, tuple[str, ...]]:
        """Architecture to the Requires-Dist lines of a release; empty where it was not harvested."""
        release = self.release(package, version)
        return (release.requires or {}) if release else {}

    def extras(self, package: str) -> frozenset[str]:
        """The extras, normalized, that some harvested release of a package has."""
        return self._keep("extras of", _normalized(package), self._extras_of)

    def packages(self) -> tuple[str, ...]:
        """Names of all harvested pip packages."""
        return self._stems("wheel")

    def component(self, package: str) -> row.Component | None:
        """The CUDA library that a pip package carries; None for any other package."""
        by_name = partial(self._index, "cuda/component", "component", lambda one: one.package)
        return self._keep("component of", package, lambda _: by_name().get(_normalized(package)))

    def components(self, cuda_major: int) -> tuple[row.Component, ...]:
        """The component packages of one CUDA major."""
        return tuple(one for one in self._rows("cuda/component", "component") if one.cuda_major == cuda_major)

    def slot(self, package: str, version: str | None = None) -> str | None:
        """The identity of the files that a package, or this version of it, shares with others; None where it has them for itself."""
        found, releases = self._slots.get(_normalized(package), (None, ""))
        return found if not releases or (version is not None and _meets(version, releases)) else None

    def owners(self, slot: str) -> int:
        """How many packages own the files of a slot; an identity that one package has alone excludes nothing."""
        return self._keep("owners", None, lambda _: Counter(one for one, _ in self._slots.values()))[slot]

    def shares_files(self, slot: str) -> bool:
        """False for a slot whose packages exclude one another although each has files of its own."""
        rows: dict[str, row.Slot] = self._index("package/slot", "slot", lambda one: one.slot)
        found = rows.get(slot)
        return found is None or found.files

    def cuda_of(self, package: str, version: str) -> CudaVersion | None:
        """The CUDA release that one version of a component package belongs to, None where that is not known."""
        rows: dict[tuple[str, str], row.CudaWheel] = self._index("cuda/wheel", "wheel", lambda one: (one.package, one.version))
        found = rows.get((_normalized(package), version))
        return found.cuda if found else None

    def advisories(self, package: str) -> tuple[row.Advisory, ...]:
        """Releases of a package that are known to be bad; `cudnn` asks for those that hold in every channel."""
        rows: tuple[row.Advisory, ...] = self._rows("advisory", "advisory")
        return tuple(one for one in rows if one.package == _normalized(package))

    def traps(self, framework: str) -> tuple[row.Trap, ...]:
        """What is worth saying about versions of a framework."""
        return tuple(one for one in self._rows("trap", "trap") if one.framework == framework)

    # -- symptoms ----------------------------------------------------------------------------------------------------------------

    def symptoms(self) -> tuple[Symptom, ...]:
        """Every shape of a message, in the order of the tables."""
        return self._keep("symptoms", None, lambda _: self._symptom_rows("symptom"))

    def causes(self) -> Mapping[str, Cause]:
        """What is said of each cause, by its name."""
        return self._keep("causes", None, lambda _: {one.id: one for one in self._symptom_rows("cause")})

    def helps(self) -> tuple[Help, ...]:
        """Every remedy, the least invasive of each cause first."""
        return self._keep("helps", None, lambda _: self._symptom_rows("remedy"))

    def clues(self) -> tuple[Clue, ...]:
        """What words in messages tell beyond a cause."""
        return self._keep("clues", None, lambda _: self._symptom_rows("clue"))

    def _symptom_rows(self, array: str) -> tuple[Any, ...]:
        return tuple(one for name in self._stems("symptom") for one in self._rows(f"symptom/{name}", array))

    # -- CUDA and cuDNN --------------------------------------------------------------------------------------------------------

    def first_cuda(self) -> CudaVersion:
        """The oldest CUDA line that the tables know: a build of an older one is known only to be refused."""
        return CudaVersion(self.cuda_releases()[0].line)

    def cuda_releases(self) -> tuple[row.CudaRelease, ...]:
        """Every toolkit release, oldest first."""
        return self._keep("cuda", None, lambda _: self._sorted("cuda/release", "release", lambda one: one.cuda))

    def soname(self, library: str, cuda: CudaVersion) -> str | None:
        """The soname of a CUDA library, `libcublas.so.12`, in the CUDA line of that version; None where that is not known."""
        line = CudaVersion(cuda.line)
        rows: tuple[row.Soname, ...] = self._rows("cuda/soname", "soname")
        own = (one for one in rows if one.library == library)
        return next((one.soname for one in own if one.first <= line and (one.last is None or line <= one.last)), None)

    def cudnn_builds(self) -> tuple[row.CudnnBuild, ...]:
        """Every build of every cuDNN release, oldest first."""
        return self._keep("cudnn", None, lambda _: self._sorted("cudnn/release", "build", lambda one: one.version))

    # -- GPUs and drivers ------------------------------------------------------------------------------------------------------

    def architectures(self) -> tuple[row.Architecture, ...]:
        """Every compute capability, oldest first."""
        return self._keep("architectures", None, lambda _: self._sorted("gpu/architecture", "architecture", lambda one: one.capability))

    def architecture(self, capability: Capability) -> row.Architecture | None:
        """What is known of one compute capability."""
        rows: dict[Capability, row.Architecture] = self._index("gpu/architecture", "architecture", lambda one: one.capability)
        return rows.get(capability)

    def cards(self) -> tuple[row.Card, ...]:
        """Every card, in the order of the table."""
        return self._rows("gpu/card", "card")

    def card(self, name: str) -> row.Card | None:
        """The card of that name or alias, vendor words, memory sizes and case apart; None where none or several could be meant."""
        from cudnn_resolve.matrix.card import find

        return self._keep("card", name, lambda _: find(self.cards(), name))

    def peak(self, name: str) -> row.Peak | None:
        """What the card of exactly that name could compute at most, letter case apart."""
        folded = name.casefold()
        rows: tuple[row.Peak, ...] = self._rows("gpu/peak", "peak")
        return next((one for one in rows if folded in (known.casefold() for known in (one.name, *one.alias))), None)

    def from_memory(self, table: str, ids: Iterable[str]) -> bool:
        """True where one of the sources of a row of that table is nothing that could be read."""
        return any(source.confidence == "memory" for id_ in ids if (source := self.source(table, id_)))

    def peaks_of(self, card: row.Card) -> tuple[row.Peak, ...]:
        """The peaks of the boards that are called by the names of one card."""
        found = (self.peak(name) for name in (card.name, *card.alias))
        return tuple({one.name: one for one in found if one is not None}.values())

    def nearest_cards(self, word: str) -> tuple[str, ...]:
        """Names of cards that look like `word`, the nearest first, at most five."""
        from cudnn_resolve.matrix.card import nearest

        return nearest(self.cards(), word)

    def branches(self) -> tuple[row.Branch, ...]:
        """Every driver branch, oldest first."""
        return self._keep("branches", None, lambda _: self._sorted("driver/branch", "branch", lambda one: one.number))

    def forward(self) -> tuple[row.Forward, ...]:
        """Every pair of a forward-compatibility package and a base branch."""
        return self._rows("driver/forward", "forward")

    def floor(self, cuda_major: int) -> DriverVersion | None:
        """The oldest driver that minor-version compatibility allows for a CUDA major; None where that is not offered."""
        rows: dict[int, row.Floor] = self._index("driver/minimum", "floor", lambda one: one.cuda_major)
        found = rows.get(cuda_major)
        return found.first if found else None

    def minimums(self) -> tuple[row.Minimum, ...]:
        """Toolkit releases with the driver that each was made for, oldest first."""
        return self._keep("minimums", None, lambda _: self._sorted("driver/minimum", "minimum", lambda one: one.cuda))

    def toolkit_driver(self, cuda: CudaVersion) -> DriverVersion | None:
        """The driver that a toolkit was made for.

        Of that very release where it is known, else of the newest release of its line up to it; `12.4` means the first of its line.
        None where the tables do not know the line.
        """

        def find(_: object) -> DriverVersion | None:
            line = [one for one in self.minimums() if one.cuda.line == cuda.line]
            below = [one for one in line if one.cuda <= cuda]
            return (below[-1] if below else line[0]).driver if line else None

        return self._keep("toolkit driver", cuda, find)

    def native_cuda(self, driver: DriverVersion) -> CudaVersion | None:
        """The newest CUDA that a driver runs natively.

        That of its branch, or of the nearest older branch that the tables know; a branch newer than all gets that of the newest.
        None for a driver older than all.
        """
        below = [one for one in self.branches() if one.number <= driver.major]
        return below[-1].cuda if below else None

    # -- apt, indexes, sources -------------------------------------------------------------------------------------------------

    def repositories(self) -> tuple[row.Repository, ...]:
        """Every apt repository."""
        return self._rows("apt/repository", "repository")

    def repository(self, os: str, arch: str) -> row.Repository | None:
        """The apt repository for `ubuntu22.04` on `x86_64`."""
        rows: dict[tuple[str, str], row.Repository] = self._index("apt/repository", "repository", lambda one: (one.os, one.arch))
        return rows.get((os, arch))

    def apt_patterns(self) -> tuple[row.AptPattern, ...]:
        """Names and versions of the apt packages of the CUDA runtime."""
        return self._rows("apt/package", "package")

    def indexes(self) -> tuple[row.Index, ...]:
        """Every package index that rows name, the configured one apart."""
        return self._rows("index", "index")

    def index(self, id: str) -> row.Index:
        """One package index; KeyError where the tables do not know it."""
        rows: dict[str, row.Index] = self._index("index", "index", lambda one: one.id)
        return rows[id]

    def source(self, table: str, id: str) -> row.Source | None:
        """What one of the ids under `source` in a row of that table stands for."""
        for number, layer in enumerate(self.layers):
            before = overlay.prefix(number)
            if id.startswith(before) and self._has(number, table):
                found = layer.load(table).source.get(id[len(before) :])
                if found is not None:
                    return found
        return None

    @property
    def version(self) -> str:
        """A short text that changes with any table: for a lock to say which tables it was made from. Reads every file."""
        return "+".join(layer.version() for layer in self.layers)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The active overlays, in words: whoever reads an answer must see whose rows it rests on."""
        return tuple(layer.remark for layer in self.layers if layer.names() and layer.remark)

    # -- rows ------------------------------------------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """Every table of every layer, in order of the alphabet."""
        return tuple(sorted(frozenset[str]().union(*self._layer_names)))

    def placed(self, name: str, array: str) -> list[Placed]:
        """The rows of one array of one table after overlaying, each with its layer and place; for rules and for printing."""
        return overlay.lay(self._layers(name), row_type(name, array), array)

    def removals_of_nothing(self, name: str, array: str) -> list[tuple[int, int]]:
        """Layer and position of each row of an overlay that would remove what is not there."""
        return overlay.removals_of_nothing(self._layers(name), row_type(name, array), array)

    def _rows(self, name: str, array: str) -> tuple[Any, ...]:
        return self._keep(name, array, lambda _: self._made(name, array))

    def _made(self, name: str, array: str) -> tuple[Any, ...]:
        if self._has_overlay(name):
            return tuple(one.row for one in self.placed(name, array))
        rows = row_type(name, array)
        if not self._has(0, name):
            return ()
        alone = None if name.startswith(_LINKED) else self.layers[0].part(name, array_alone(rows, array))
        return getattr(self._layers(name)[0][1] if alone is None else alone, array)  # type: ignore[no-any-return]

    def _has_overlay(self, name: str) -> bool:
        return any(self._has(number, name) for number in range(1, len(self.layers)))

    def _index(self, name: str, array: str, key: Callable[[Any], Any]) -> dict[Any, Any]:
        """Rows by `key`, the first of each; one table and array has one key."""
        return self._keep(f"index of {name}", array, lambda _: {key(one): one for one in reversed(self._rows(name, array))})

    def _sorted(self, name: str, array: str, key: Callable[[Any], Any]) -> tuple[Any, ...]:
        return tuple(sorted(self._rows(name, array), key=key))

    def _layers(self, name: str) -> list[tuple[str, Any]]:
        """File and table of each layer, ready to use; None for a layer without that table."""

        def load(_: object) -> list[tuple[str, Any]]:
            tables = [layer.load(name) if self._has(number, name) else None for number, layer in enumerate(self.layers)]
            if name.startswith("framework/"):
                first = next(iter(self.head(name).get("packages", ())), "")
                tables = [overlay.packaged(table, first) for table in tables]
            for table in filter(None, tables if name.startswith(_LINKED) else ()):
                link(table)
            return [(layer.path(name), table) for layer, table in zip(self.layers, tables, strict=True)]

        return self._keep("layers", name, load)

    @cached_property
    def _layer_names(self) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(layer.names()) for layer in self.layers)

    def _has(self, layer: int, name: str) -> bool:
        return name in self._layer_names[layer]

    def _stems(self, folder: str) -> tuple[str, ...]:
        return tuple(name.partition("/")[2] for name in self.names() if name.startswith(f"{folder}/"))

    def remember(self, question: str, key: object, make: Callable[[], _T]) -> _T:
        """What `make` gives for a key, worked out once for this book: for values that others derive from its rows alone."""
        return self._keep(f"derived {question}", key, lambda _: make())

    def _keep(self, question: str, key: object, answer: Callable[[Any], _T]) -> _T:
        """The answer to a question, worked out once."""
        place = (question, key)
        if place not in self._kept:
            self._kept[place] = answer(key)
        return self._kept[place]  # type: ignore[no-any-return]

    # -- what is put together from several rows --------------------------------------------------------------------------------

    def head(self, name: str) -> dict[str, Any]:
        """The fields of a framework's head, each from the topmost layer that says it."""
        return self._keep("head", name, self._merged_head)

    def _merged_head(self, name: Any) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for number, layer in enumerate(self.layers):
            head = layer.head(name) if self._has(number, name) else None
            if head is not None:
                said = {field: value for field in head.__struct_fields__ if (value := getattr(head, field)) not in (None, "", ())}
                if "source" in said:
                    said["source"] = tuple(overlay.prefix(number) + id_ for id_ in said["source"])
                merged.update(said)
        return merged

    def _framework(self, name: object) -> row.Framework:
        table = f"framework/{name}"
        return row.Framework(builds=self._rows(table, "build"), bounds=self._rows(table, "bound"), **self.head(table))

    @cached_property
    def _framework_names(self) -> dict[str, str]:
        """Name, alias and distribution, all normalized, to the framework's name; names win over aliases, those over distributions."""
        return self._collect("packages", "aliases", "name")

    def _collect(self, *fields: str) -> dict[str, str]:
        found: dict[str, str] = {}
        heads = {name: self.head(f"framework/{name}") for name in self.frameworks()}
        for field in fields:
            for name, head in heads.items():
                said = head.get(field, ())
                found.update(dict.fromkeys([said] if isinstance(said, str) else said, name))
        return found

    def _extras(self) -> dict[str, tuple[row.ExtraRelease, ...]]:
        found: dict[str, tuple[row.ExtraRelease, ...]] = {}
        for name in self.frameworks():
            one: row.ExtraRelease
            for one in self._rows(f"framework/{name}", "release"):
                found[one.package] = (*found.get(one.package, ()), one)
        return found

    def _extras_of(self, name: object) -> frozenset[str]:
        tables = [table for _, table in self._layers(f"wheel/{name}") if table is not None]
        return frozenset(_normalized(extra) for table in tables for extra in extras_of(table))

    @cached_property
    def _slots(self) -> dict[str, tuple[str, str]]:
        slots: tuple[row.Slot, ...] = self._rows("package/slot", "slot")
        components: tuple[row.Component, ...] = self._rows("cuda/component", "component")
        some = {re.split(r"[<>=!~]", text, maxsplit=1)[0]: (one.slot, text) for one in slots for text in one.releases}
        return some | {name: (one.slot, "") for one in slots for name in one.packages} | {one.package: (one.slot, "") for one in components}

    def _package(self, name: object) -> row.Package | None:
        table = f"wheel/{name}"
        holders = sum(self._has(number, table) for number in range(len(self.layers)))
        if not holders:
            return None
        releases: tuple[row.WheelRelease, ...] = self._rows(table, "release")
        if holders > 1:
            from packaging.version import Version

            releases = tuple(sorted(releases, key=lambda one: Version(one.version)))
        return row.Package(name=str(name), releases=releases)


@lru_cache(maxsize=8192)
def _normalized(name: str) -> str:
    """A distribution name as the tables spell it (PyPA names specification)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _meets(version: str, requirement: str) -> bool:
    from packaging.requirements import Requirement

    return Requirement(requirement).specifier.contains(version, prereleases=True)
