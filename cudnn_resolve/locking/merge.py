"""Merge the resolutions for several platforms into one lock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os.path import normpath
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cudnn_resolve.errors import WorldError, first_few
from cudnn_resolve.locking.locked_file import HASHES, hashes_of, locked_file, relative_path
from cudnn_resolve.locking.model import CREATED_BY, TOOL, Lock, LockedRequest, Tool, files_of, name_of
from cudnn_resolve.masking import redacted
from cudnn_resolve.requirement.source import Offer
from cudnn_resolve.resolution.key import FrameworkKey
from cudnn_resolve.resolution.release import parse_version
from cudnn_resolve.resolution.tag import TargetPython, fit

if TYPE_CHECKING:
    from packaging.pylock import Package, PackageWheel

    from cudnn_resolve.locking.model import Stack
    from cudnn_resolve.requirement.source import Direct, File
    from cudnn_resolve.resolution.model import PipPin, Reason, Resolution

_REQUESTED_ON_LINE = re.compile(r"^(asked for in .*):\d+$")
_EntryKey = tuple[str, str, str]
"""Identity of an entry: name, version, and the URL of its index or of the package itself."""


class Answer(Struct, frozen=True, kw_only=True):
    """The resolution for one platform, with its stack for the lock."""

    resolution: Resolution
    stack: Stack


class _PlatformPin:
    __slots__ = ("direct", "pin", "resolution")

    def __init__(self, pin: PipPin, resolution: Resolution) -> None:
        self.pin = pin
        self.resolution = resolution
        self.direct: Direct | None = resolution.request.direct.get(pin.name)

    @property
    def key(self) -> _EntryKey:
        place = self.direct.url if self.direct is not None else self.pin.file.origin if self.pin.file is not None else None
        return self.pin.name, "" if self._is_folder else _version(self.pin), place or ""

    @property
    def file(self) -> File | None:
        """The file to install; None for a folder, and if it is unknown."""
        if self._is_folder:
            return None
        if self.pin.file is None and self.direct is not None:
            return next(iter(self.direct.offer.files), None)
        return self.pin.file

    @property
    def is_unknown(self) -> bool:
        """True if it is unknown what to install."""
        return not self._is_folder and self.file is None

    @property
    def _is_folder(self) -> bool:
        return self.direct is not None and self.direct.folder is not None


def merge(answers: Sequence[Answer], *, request: LockedRequest, matrix: str | None, base: str) -> Lock:
    """Merge answers for platforms with one Python minor into a lock in the folder `base`.

    Raises WorldError if a package cannot be locked: its version, its files or their hashes are unknown.
    """
    from packaging.pylock import Pylock

    answers = sorted(answers, key=lambda answer: answer.stack.platform)
    pythons = {answer.resolution.machine.python for answer in answers}
    assert len(pythons) == 1, "one Python minor for all platforms"
    python = pythons.pop()
    assert python is not None, "a resolution is for a known Python"
    minor = f"{python[0]}.{python[1]}"
    free_threaded = "t" if answers[0].resolution.machine.free_threaded else ""
    for answer in answers:
        _refuse_unlockable(answer.resolution)
    return Lock(
        file=Pylock(
            lock_version=Version("1.0"),
            created_by=CREATED_BY,
            requires_python=SpecifierSet(f"=={minor}.*"),
            environments=[Marker(f"sys_platform == 'linux' and {_marker(answer.stack.platform)}") for answer in answers],
            packages=sorted(_Merger(answers, base).packages(), key=order),
        ),
        tool=Tool(request=request, python=minor + free_threaded, matrix=matrix, stacks=tuple(answer.stack for answer in answers)),
    )


def order(package: Package) -> tuple[str, Version, str]:
    """Sort key of an entry: name, version, marker."""
    return package.name, package.version or Version("0"), str(package.marker or "")


def _marker(platform: str) -> str:
    """The marker that tells a Linux platform from the others."""
    return f"platform_machine == '{platform.removeprefix('linux_')}'"


def _refuse_unlockable(resolution: Resolution) -> None:
    """Raise WorldError for pins without a version, without files, or without hashes: a lock without hashes proves nothing."""
    pins = [_PlatformPin(pin, resolution) for pin in resolution.pip]
    machine = resolution.machine
    missing = [one.pin.name for one in pins if one.is_unknown]
    unfit = [one.pin.name for one in pins if one.is_unknown and one.pin.offer is not None]
    if unfit:
        raise WorldError(
            f"the index has no file of {_names(unfit)} for Python {machine.python_full or 'of unknown version'} on {machine.platform}",
            code="lock-no-files",
            hint="name an index that has them with --index-url, or lock for another Python with --python-version",
        )
    if missing:
        unreached = next((f"; {resolution.unreached[name]}" for name in missing if name in resolution.unreached), "")
        raise WorldError(
            f"no files are known for {_names(missing)}{unreached}; a lock contains every file with its hashes",
            code="lock-no-files",
            context=f"the lock for {machine.platform}",
            hint=_missing_files_hint(resolution),
        )
    bare = [(one.pin.name, one.file) for one in pins if one.file is not None and not hashes_of(one.file)]
    if bare:
        weak = sorted({algorithm for _, file in bare for algorithm in file.hashes})
        only = f", only {', '.join(weak)}" if weak else ""
        raise WorldError(
            f"the index gives no hash of {_names([name for name, _ in bare])} that pip and uv accept ({' or '.join(HASHES)}){only}",
            code="lock-no-hash",
            context=", ".join(dict.fromkeys(redacted(file.origin or file.url) for _, file in bare[:3])),
            hint="name an index that provides SHA-256 hashes with --index-url, or a folder of wheels with --find-links",
        )


def _missing_files_hint(resolution: Resolution) -> str:
    if resolution.remains is not None:
        return f"{resolution.remains.change} gives {resolution.remains.result}"
    return (
        "lock where the package index is reachable, and without --offline unless the files are in its cache; "
        "`cudnn-resolve plan` needs the tables only"
    )


def _names(names: Iterable[str]) -> str:
    return first_few(sorted(set(names)), 6)


def _version(pin: PipPin) -> str:
    """The normalized version, with the local part that file names may add (`+cu124`)."""
    text = pin.offer.version if pin.offer is not None else pin.version or ""
    return str(parse_version(text) or text)


class _Merger:
    """The pins of all platforms, grouped by entry."""

    def __init__(self, answers: Sequence[Answer], base: str) -> None:
        self._base = base
        self._platforms = len(answers)
        self._pins: dict[_EntryKey, list[_PlatformPin]] = {}
        self._keys: dict[str, list[_EntryKey]] = {}
        """Keys of entries by package."""
        for answer in answers:
            for pin in answer.resolution.pip:
                one = _PlatformPin(pin, answer.resolution)
                if one.key not in self._pins:
                    self._keys.setdefault(pin.name, []).append(one.key)
                self._pins.setdefault(one.key, []).append(one)

    def packages(self) -> Iterator[Package]:
        """The entries of the lock."""
        from packaging.pylock import Package, PackageSdist

        for (name, version, _), pins in self._pins.items():
            markers = [_marker(one.resolution.machine.platform) for one in pins]
            fields: dict[str, Any] = {
                "name": name,
                "version": Version(version) if version else None,
                "marker": None if len(pins) == self._platforms else Marker(" or ".join(markers)),
                "dependencies": self._dependencies(pins) or None,
            }
            if pins[0].direct is not None:
                yield self._direct(pins[0].direct, fields)
                continue
            file = pins[0].file
            assert file is not None, "refused before"
            sdist = next((one.file for one in pins if one.file is not None and not one.file.is_wheel), None)
            because = list(dict.fromkeys(text for one in pins for text in _reasons(one.pin, one.resolution)))
            yield Package(
                **fields,
                requires_python=SpecifierSet(file.requires_python) if file.requires_python else None,
                index=redacted(file.origin) if file.origin else None,
                wheels=self._wheels(pins) or None,
                sdist=PackageSdist(name=sdist.filename, **locked_file(sdist, self._base)) if sdist is not None else None,
                tool={TOOL: {"because": because}} if because else None,
            )

    def _direct(self, direct: Direct, fields: Mapping[str, Any]) -> Package:
        """The entry of a package that the user takes from a fixed place."""
        from packaging.pylock import Package, PackageArchive, PackageDirectory

        folder, file = None, next(iter(direct.offer.files), None)
        if direct.folder is not None:
            folder = PackageDirectory(path=relative_path(self._base, normpath(direct.folder)), editable=direct.editable or None)
        requires_python = direct.metadata.requires_python
        return Package(
            **fields,
            requires_python=SpecifierSet(requires_python) if requires_python else None,
            archive=PackageArchive(**locked_file(file, self._base, by_path=True)) if folder is None and file is not None else None,
            directory=folder,
        )

    def _dependencies(self, pins: Sequence[_PlatformPin]) -> list[dict[str, str]]:
        """Entries that this one needs, with their versions if the name alone would be ambiguous."""
        needed = set()
        for one in pins:
            for name in one.pin.requires:
                keys = self._keys.get(name, [])
                if len(keys) == 1:
                    needed.add((name, ""))
                    continue
                here = (key for key in keys if any(other.resolution is one.resolution for other in self._pins[key]))
                needed.update((name, version) for _, version, _ in here)
        return [{"name": name, **({"version": version} if version else {})} for name, version in sorted(needed)]

    def _wheels(self, pins: Sequence[_PlatformPin]) -> list[PackageWheel]:
        """The wheels of a release that fit the Python and one of the platforms, by name; yanked ones only if one was chosen."""
        from packaging.pylock import PackageWheel

        out: dict[str, PackageWheel] = {}
        for one in pins:
            chosen = one.file
            target = TargetPython.of(one.resolution.machine, any_libc=True)
            assert chosen is not None, "refused before"
            for file in (chosen, *(one.pin.offer.files if one.pin.offer is not None else ())):
                if not file.is_wheel or file.origin != chosen.origin or file.filename in out or not hashes_of(file):
                    continue
                if (file.yanked is None or chosen.yanked is not None) and fit((file.tag,), target).glibc is not None:
                    out[file.filename] = PackageWheel(name=file.filename, **locked_file(file, self._base))
        return [out[name] for name in sorted(out)]


def _reasons(pin: PipPin, resolution: Resolution) -> Iterator[str]:
    """Reasons for the version of a pin, without those that the metadata of other packages declares."""
    framework = FrameworkKey(pin.build.framework) if pin.build is not None else None
    target = resolution.pins.get(framework) if framework is not None else None
    for reason in target.reasons if target is not None else ():
        yield _reason_text(reason)
    for reason in pin.reasons:
        if framework is not None and reason.parent_key == framework:
            continue  # says only that the wheel of a build is the wheel of that build
        if not reason.obeyed or not reason.binding:
            continue  # overridden pins are listed with the overrides, and others are of an extra that is not installed
        if reason.declared is not None or reason.because.endswith(f" requires {reason.text}"):
            continue  # a package declares exactly this
        yield _reason_text(reason)


def _reason_text(reason: Reason) -> str:
    """The reason without details that change without meaning, such as the number of a line in a file."""
    because = _REQUESTED_ON_LINE.sub(r"\1", reason.because)
    if because.startswith("asked for"):
        return f"{reason.text}, {because}"
    return f"{reason.text}: {because}"


def incomplete_files(answers: Iterable[Answer], old: Lock | None) -> tuple[dict[str, File], list[File]]:
    """Files whose size the old lock knows, by URL; and files that still lack a size or a hash."""
    known: dict[str, File] = {}
    incomplete: dict[str, File] = {}
    sizes = _sizes(old) if old is not None else {}
    for file in (file for answer in answers for pin in answer.resolution.pip for file in _files(pin, answer.resolution)):
        hashes = hashes_of(file)
        size = next((sizes[file.filename, digest] for digest in hashes.items() if (file.filename, digest) in sizes), None)
        if file.size is None and size is not None:
            known[file.url] = replace(file, size=size)
        elif file.size is None or not hashes:
            incomplete[file.url] = file
    return known, list(incomplete.values())


def with_file_details(answers: Sequence[Answer], known: Mapping[str, File]) -> list[Answer]:
    """Replace the files of the answers by those known, by URL."""
    return [
        replace(answer, resolution=replace(answer.resolution, pip=tuple(_with_known_files(pin, known) for pin in answer.resolution.pip)))
        for answer in answers
    ]


def _with_known_files(pin: PipPin, known: Mapping[str, File]) -> PipPin:
    if pin.offer is None or not any(file.url in known for file in pin.offer.files):
        return pin
    offer = Offer(version=pin.offer.version, files=tuple(known.get(file.url, file) for file in pin.offer.files))
    return replace(pin, offer=offer, file=known.get(pin.file.url, pin.file) if pin.file is not None else None)


def _files(pin: PipPin, resolution: Resolution) -> Iterator[File]:
    """The files of a pin that a lock for its platform contains."""
    target = TargetPython.of(resolution.machine, any_libc=True)
    for file in pin.offer.files if pin.offer is not None else ():
        if file is pin.file or (file.is_wheel and fit((file.tag,), target).glibc is not None):
            yield file


def _sizes(lock: Lock) -> dict[tuple[str, tuple[str, str]], int]:
    """File name and digest to size, for the files of a lock."""
    files = (file for package in lock.packages for file in files_of(package))
    return {(name_of(file), digest): file.size for file in files if file.size is not None for digest in file.hashes.items()}
