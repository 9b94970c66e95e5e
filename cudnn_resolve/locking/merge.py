"""Resolutions, one for each platform, to one lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import normpath
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.version import InvalidVersion, Version

from cudnn_resolve.errors import WorldError
from cudnn_resolve.locking.because import reasons
from cudnn_resolve.locking.file import HASHES, hashes_of, level, locked_file, path_from
from cudnn_resolve.locking.model import Asked, Dependency, Lock, LockedDirectory, LockedFile, LockedPackage, Tool
from cudnn_resolve.locking.stack import platform_of
from cudnn_resolve.resolution.tag import Target, fit

if TYPE_CHECKING:
    from cudnn_resolve.locking.model import Stack
    from cudnn_resolve.requirement.source import Direct, File
    from cudnn_resolve.resolution.model import PipPin, Resolution

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
    answers = sorted(answers, key=lambda one: one.stack.platform)
    pythons = {one.resolution.machine.python for one in answers}
    assert len(pythons) == 1, "one Python minor for all platforms"
    python = pythons.pop()
    assert python is not None, "a resolution is for a Python that is known"
    minor = f"{python[0]}.{python[1]}"
    free = "t" if answers[0].resolution.machine.free_threaded else ""
    for answer in answers:
        refuse_open(answer.resolution)
    packages = _Merger(answers, base).packages()
    return Lock(
        packages=tuple(sorted(packages, key=order)),
        requires_python=f"=={minor}.*",
        environments=tuple(f"sys_platform == 'linux' and {machine_marker(one.stack.platform)}" for one in answers),
        tool=Tool(asked=asked, python=minor + free, matrix=matrix, stacks=tuple(one.stack for one in answers)),
    )


def order(package: LockedPackage) -> tuple[str, Version, str]:
    """Where an entry stands in a lock: by name, then version."""
    try:
        version = Version(package.version or "0")
    except InvalidVersion:
        version = Version("0")
    return package.name, version, package.marker or ""


def machine_marker(platform: str) -> str:
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
            f"the index has no file of {_some(unfit)} for Python {machine.python_full or 'of any version'} on {platform_of(resolution)}",
            code="lock-no-files",
            hint="name an index that has them with --index-url, or lock for another Python with --python-version",
        )
    if missing:
        unreached = next((f"; {resolution.unreached[name]}" for name in missing if name in resolution.unreached), "")
        raise WorldError(
            f"no files are known for {_some(missing)}{unreached}; a lock holds every file with its hashes",
            code="lock-no-files",
            context=f"the lock for {platform_of(resolution)}",
            hint=_hint(resolution),
        )
    bare = [one for one in choices if one.file is not None and not hashes_of(one.file)]
    if bare:
        weak = sorted({name for one in bare if one.file is not None for name in one.file.hashes})
        raise WorldError(
            f"the index gives no hash of {_some([one.pin.name for one in bare])} that pip and uv accept ({' or '.join(HASHES)})"
            + (f", only {', '.join(weak)}" if weak else ""),
            code="lock-no-hash",
            context=", ".join(dict.fromkeys(level(one.file.origin or one.file.url) for one in bare[:3] if one.file is not None)),
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

    def packages(self) -> Iterator[LockedPackage]:
        """The entries of the lock."""
        for (name, version, _), found in self._choices.items():
            markers = [machine_marker(platform_of(one.resolution)) for one in found]
            marker = None if len(found) == self._platforms else " or ".join(markers)
            dependencies = sorted(set(self._dependencies(found)), key=lambda one: (one.name, one.version or ""))
            because = tuple(dict.fromkeys(text for one in found for text in reasons(one.pin, one.resolution)))
            direct = found[0].direct
            if direct is not None:
                yield self._direct(direct, version, marker, tuple(dependencies))
                continue
            file = found[0].file
            assert file is not None, "refused before"
            sdist = next((one.file for one in found if one.file is not None and not one.file.is_wheel), None)
            yield LockedPackage(
                name=name,
                version=version,
                marker=marker,
                requires_python=file.requires_python,
                dependencies=tuple(dependencies),
                index=level(file.origin) if file.origin else None,
                wheels=self._wheels(found),
                sdist=locked_file(sdist, self._base) if sdist is not None else None,
                because=because,
            )

    def _direct(self, direct: Direct, version: str, marker: str | None, dependencies: tuple[Dependency, ...]) -> LockedPackage:
        """The entry of a package that comes from one place of the user's."""
        folder = None
        if direct.folder is not None:
            folder = LockedDirectory(path_from(self._base, normpath(direct.folder)), direct.editable)
        file = next(iter(direct.offer.files), None)
        return LockedPackage(
            name=direct.name,
            version=version or None,
            marker=marker,
            requires_python=direct.metadata.requires_python,
            dependencies=dependencies,
            archive=locked_file(file, self._base, by_path=True) if folder is None and file is not None else None,
            directory=folder,
        )

    def _dependencies(self, found: Sequence[_Choice]) -> Iterator[Dependency]:
        """Entries that this one needs, with their versions where a name alone would not tell which one is meant."""
        for one in found:
            for name in one.pin.requires:
                keys = self._named.get(name, [])
                if len(keys) == 1:
                    yield Dependency(name)
                    continue
                for key in keys:
                    if any(choice.resolution is one.resolution for choice in self._choices[key]):
                        yield Dependency(name, key[1] or None)

    def _wheels(self, found: Sequence[_Choice]) -> tuple[LockedFile, ...]:
        """The wheels of a release that fit the Python and one of the platforms, by name; withdrawn ones only where one was chosen."""
        out: dict[str, LockedFile] = {}
        for one in found:
            chosen, machine = one.file, one.resolution.machine
            target = Target(machine.python, machine.free_threaded, machine.arch, None)
            assert chosen is not None, "refused before"
            for file in (chosen, *(one.pin.offer.files if one.pin.offer is not None else ())):
                if not file.is_wheel or file.origin != chosen.origin or not hashes_of(file):
                    continue
                if (file.yanked is None or chosen.yanked is not None) and fit((file.tag,), target).glibc is not None:
                    out.setdefault(file.filename, locked_file(file, self._base))
        return tuple(out[name] for name in sorted(out))
