"""Resolutions, one for each platform, to one lock: the files that it will hold, what is yet to be known of them, and its entries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os.path import normpath
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from cudnn_resolve.errors import WorldError
from cudnn_resolve.locking.file import HASHES, hashes_of, locked_file, path_from
from cudnn_resolve.locking.model import CREATED_BY, TOOL, Asked, Lock, Tool, files_of, name_of
from cudnn_resolve.masking import redacted
from cudnn_resolve.requirement.source import Offer
from cudnn_resolve.resolution.key import FrameworkKey
from cudnn_resolve.resolution.tag import Target, fit

if TYPE_CHECKING:
    from packaging.pylock import Package, PackageWheel

    from cudnn_resolve.locking.model import Stack
    from cudnn_resolve.requirement.source import Direct, File
    from cudnn_resolve.resolution.model import PipPin, Reason, Resolution

_LINE = re.compile(r"^(asked for in .*):\d+$")
_Key = tuple[str, str, str]
"""What makes an entry of its own: name, version, and the index or the address that it comes from."""


class Answer(Struct, frozen=True, kw_only=True):
    """The resolution for one platform, with its stack in the words of a lock."""

    resolution: Resolution
    stack: Stack


class _Choice:
    """A pin on one platform."""

    __slots__ = ("direct", "pin", "resolution")

    def __init__(self, pin: PipPin, resolution: Resolution) -> None:
        self.pin = pin
        self.resolution = resolution
        self.direct: Direct | None = resolution.request.direct.get(pin.name)

    @property
    def key(self) -> _Key:
        place = self.direct.url if self.direct is not None else self.pin.file.origin if self.pin.file is not None else None
        return self.pin.name, "" if self._is_folder else _version(self.pin), place or ""

    @property
    def file(self) -> File | None:
        """The file to install; None for a folder, and where no file is known."""
        if self._is_folder:
            return None
        if self.pin.file is None and self.direct is not None:
            return next(iter(self.direct.offer.files), None)
        return self.pin.file

    @property
    def is_open(self) -> bool:
        """True where nobody knows what to install."""
        return not self._is_folder and self.file is None

    @property
    def _is_folder(self) -> bool:
        return self.direct is not None and self.direct.folder is not None


def merge(answers: Sequence[Answer], *, asked: Asked, matrix: str | None, base: str) -> Lock:
    """One lock for the platforms of all answers, which are of one Python minor; `base` is the folder that it will stand in.

    WorldError where a package cannot be locked: nobody knows its version or its files, or no index gives a hash of them.
    """
    from packaging.pylock import Pylock

    answers = sorted(answers, key=lambda one: one.stack.platform)
    pythons = {one.resolution.machine.python for one in answers}
    assert len(pythons) == 1, "one Python minor for all platforms"
    python = pythons.pop()
    assert python is not None, "a resolution is for a Python that is known"
    minor = f"{python[0]}.{python[1]}"
    free = "t" if answers[0].resolution.machine.free_threaded else ""
    for answer in answers:
        refuse_open(answer.resolution)
    return Lock(
        file=Pylock(
            lock_version=Version("1.0"),
            created_by=CREATED_BY,
            requires_python=SpecifierSet(f"=={minor}.*"),
            environments=[Marker(f"sys_platform == 'linux' and {_marker(one.stack.platform)}") for one in answers],
            packages=sorted(_Merger(answers, base).packages(), key=order),
        ),
        tool=Tool(asked=asked, python=minor + free, matrix=matrix, stacks=tuple(one.stack for one in answers)),
    )


def order(package: Package) -> tuple[str, Version, str]:
    """Where an entry stands in a lock: by name, then version."""
    return package.name, package.version or Version("0"), str(package.marker or "")


def _marker(platform: str) -> str:
    """The marker of one platform among those of Linux."""
    return f"platform_machine == '{platform.removeprefix('linux_')}'"


def _hint(resolution: Resolution) -> str:
    remains = resolution.remains
    if remains is not None:
        return f"{remains.change} gives {remains.result}"
    return (
        "lock where the package index can be reached, and without --offline unless its cache has them; "
        "`cudnn-resolve plan` answers from the tables alone"
    )


def refuse_open(resolution: Resolution) -> None:
    """WorldError where a pin has no version, no files, or none with a hash: a lock without hashes proves nothing."""
    choices = [_Choice(pin, resolution) for pin in resolution.pip]
    missing = [one.pin.name for one in choices if one.is_open]
    unfit = [one.pin.name for one in choices if one.is_open and one.pin.offer is not None]
    if unfit:
        machine = resolution.machine
        raise WorldError(
            f"the index has no file of {_some(unfit)} for Python {machine.python_full or 'of any version'} on {machine.platform}",
            code="lock-no-files",
            hint="name an index that has them with --index-url, or lock for another Python with --python-version",
        )
    if missing:
        unreached = next((f"; {resolution.unreached[name]}" for name in missing if name in resolution.unreached), "")
        raise WorldError(
            f"no files are known for {_some(missing)}{unreached}; a lock holds every file with its hashes",
            code="lock-no-files",
            context=f"the lock for {resolution.machine.platform}",
            hint=_hint(resolution),
        )
    bare = [one for one in choices if one.file is not None and not hashes_of(one.file)]
    if bare:
        weak = sorted({name for one in bare if one.file is not None for name in one.file.hashes})
        raise WorldError(
            f"the index gives no hash of {_some([one.pin.name for one in bare])} that pip and uv accept ({' or '.join(HASHES)})"
            + (f", only {', '.join(weak)}" if weak else ""),
            code="lock-no-hash",
            context=", ".join(dict.fromkeys(redacted(file.origin or file.url) for one in bare[:3] if (file := one.file))),
            hint="name an index that gives SHA-256 digests with --index-url, or a folder of wheels with --find-links",
        )


def _some(names: Sequence[str]) -> str:
    names = sorted(set(names))
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _version(pin: PipPin) -> str:
    """The version in its normal form, as the names of the files have it where they say more (`+cu124`)."""
    text = pin.offer.version if pin.offer is not None else pin.version or ""
    try:
        return str(Version(text))
    except InvalidVersion:
        return text


class _Merger:
    """The pins of all platforms, those of one release together."""

    def __init__(self, answers: Sequence[Answer], base: str) -> None:
        self._base = base
        self._platforms = len(answers)
        self._choices: dict[_Key, list[_Choice]] = {}
        self._named: dict[str, list[_Key]] = {}
        for answer in answers:
            for pin in answer.resolution.pip:
                choice = _Choice(pin, answer.resolution)
                if choice.key not in self._choices:
                    self._named.setdefault(pin.name, []).append(choice.key)
                self._choices.setdefault(choice.key, []).append(choice)

    def packages(self) -> Iterator[Package]:
        """The entries of the lock."""
        from packaging.pylock import Package, PackageSdist

        for (name, version, _), found in self._choices.items():
            markers = [_marker(one.resolution.machine.platform) for one in found]
            marker = None if len(found) == self._platforms else Marker(" or ".join(markers))
            shared: dict[str, Any] = {"name": name, "version": Version(version) if version else None, "marker": marker}
            shared["dependencies"] = self._dependencies(found) or None
            direct = found[0].direct
            if direct is not None:
                yield self._direct(direct, shared)
                continue
            file = found[0].file
            assert file is not None, "refused before"
            sdist = next((one.file for one in found if one.file is not None and not one.file.is_wheel), None)
            because = list(dict.fromkeys(text for one in found for text in _reasons(one.pin, one.resolution)))
            yield Package(
                **shared,
                requires_python=SpecifierSet(file.requires_python) if file.requires_python else None,
                index=redacted(file.origin) if file.origin else None,
                wheels=self._wheels(found) or None,
                sdist=PackageSdist(name=sdist.filename, **locked_file(sdist, self._base)) if sdist is not None else None,
                tool={TOOL: {"because": because}} if because else None,
            )

    def _direct(self, direct: Direct, shared: Mapping[str, Any]) -> Package:
        """The entry of a package that comes from one place of the user's."""
        from packaging.pylock import Package, PackageArchive, PackageDirectory

        folder, file = None, next(iter(direct.offer.files), None)
        if direct.folder is not None:
            folder = PackageDirectory(path=path_from(self._base, normpath(direct.folder)), editable=direct.editable or None)
        requires_python = direct.metadata.requires_python
        return Package(
            **shared,
            requires_python=SpecifierSet(requires_python) if requires_python else None,
            archive=PackageArchive(**locked_file(file, self._base, by_path=True)) if folder is None and file is not None else None,
            directory=folder,
        )

    def _dependencies(self, found: Sequence[_Choice]) -> list[dict[str, str]]:
        """Entries that this one needs, with their versions where a name alone would not tell which one is meant."""
        named = set()
        for one in found:
            for name in one.pin.requires:
                keys = self._named.get(name, [])
                if len(keys) == 1:
                    named.add((name, ""))
                    continue
                here = (key for key in keys if any(choice.resolution is one.resolution for choice in self._choices[key]))
                named.update((name, version) for _, version, _ in here)
        return [{"name": name, **({"version": version} if version else {})} for name, version in sorted(named)]

    def _wheels(self, found: Sequence[_Choice]) -> list[PackageWheel]:
        """The wheels of a release that fit the Python and one of the platforms, by name; withdrawn ones only where one was chosen."""
        from packaging.pylock import PackageWheel

        out: dict[str, PackageWheel] = {}
        for one in found:
            chosen, machine = one.file, one.resolution.machine
            target = Target.of(machine, any_libc=True)
            assert chosen is not None, "refused before"
            for file in (chosen, *(one.pin.offer.files if one.pin.offer is not None else ())):
                if not file.is_wheel or file.origin != chosen.origin or file.filename in out or not hashes_of(file):
                    continue
                if (file.yanked is None or chosen.yanked is not None) and fit((file.tag,), target).glibc is not None:
                    out[file.filename] = PackageWheel(name=file.filename, **locked_file(file, self._base))
        return [out[name] for name in sorted(out)]


def _reasons(pin: PipPin, resolution: Resolution) -> Iterator[str]:
    """Why a pin has its version; what other packages merely declare is left out, for their own metadata says it."""
    asked = resolution.pins.get(FrameworkKey(pin.build.framework)) if pin.build is not None else None
    for reason in asked.reasons if asked is not None else ():
        yield _told(reason)
    for reason in pin.reasons:
        if pin.build is not None and reason.parent_key == FrameworkKey(pin.build.framework):
            continue  # that the wheel of a build is the wheel of that build
        if not reason.obeyed or _is_declared(reason):
            continue  # pins that are left are among the overrides
        yield _told(reason)


def _is_declared(reason: Reason) -> bool:
    """True where a package requires this in so many words, or in an extra that is not installed."""
    return reason.because.endswith(f" requires {reason.text}") or not reason.binding or reason.declared is not None


def _told(reason: Reason) -> str:
    """The reason without what changes without meaning, such as the number of a line in a file."""
    because = _LINE.sub(r"\1", reason.because)
    if because.startswith("asked for"):
        return f"{reason.text}, {because}"
    return f"{reason.text}: {because}"


def incomplete(answers: Iterable[Answer], old: Lock | None) -> tuple[dict[str, File], list[File]]:
    """Files whose size the old lock knows, by their addresses; and files that lack a size or a hash still."""
    known: dict[str, File] = {}
    open_: dict[str, File] = {}
    sizes = _sizes(old) if old is not None else {}
    for file in (file for answer in answers for pin in answer.resolution.pip for file in _files(pin, answer.resolution)):
        hashes = hashes_of(file)
        size = next((sizes[file.filename, one] for one in hashes.items() if (file.filename, one) in sizes), None)
        if file.size is None and size is not None:
            known[file.url] = replace(file, size=size)
        elif file.size is None or not hashes:
            open_[file.url] = file
    return known, list(open_.values())


def completed(answers: Sequence[Answer], known: Mapping[str, File]) -> list[Answer]:
    """The answers with all that is known of their files, by their addresses."""
    return [replace(one, resolution=replace(one.resolution, pip=tuple(_pin(pin, known) for pin in one.resolution.pip))) for one in answers]


def _pin(pin: PipPin, known: Mapping[str, File]) -> PipPin:
    if pin.offer is None or not any(file.url in known for file in pin.offer.files):
        return pin
    offer = Offer(version=pin.offer.version, files=tuple(known.get(file.url, file) for file in pin.offer.files))
    return replace(pin, offer=offer, file=known.get(pin.file.url, pin.file) if pin.file is not None else None)


def _files(pin: PipPin, resolution: Resolution) -> Iterator[File]:
    """The files of a pin that a lock would hold for its platform."""
    machine = resolution.machine
    target = Target.of(machine, any_libc=True)
    for file in pin.offer.files if pin.offer is not None else ():
        if file is pin.file or (file.is_wheel and fit((file.tag,), target).glibc is not None):
            yield file


def _sizes(lock: Lock) -> dict[tuple[str, tuple[str, str]], int]:
    """Name and digest to size, of the files of a lock."""
    files = (file for package in lock.packages for file in files_of(package))
    return {(name_of(file), digest): file.size for file in files if file.size is not None for digest in file.hashes.items()}
