"""Resolutions, one for each platform, to one lock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from packaging.version import InvalidVersion, Version

from cudnn_resolve.errors import WorldError
from cudnn_resolve.lock.model import Asked, Dependency, Lock, LockedFile, LockedPackage, Tool
from cudnn_resolve.lock.stack import platform_of
from cudnn_resolve.record import dataclass
from cudnn_resolve.resolution.tag import Target, fit

if TYPE_CHECKING:
    from cudnn_resolve.lock.model import Stack
    from cudnn_resolve.resolution.model import PipPin, Reason, Resolution
    from cudnn_resolve.resolution.source import File

HASHES = ("sha256", "sha384", "sha512")
"""What pip and uv both take for proof."""
_LINE = re.compile(r"^(asked for in .*):\d+$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The resolution for one platform, with its stack in the words of a lock."""

    resolution: Resolution
    stack: Stack


class _Choice:
    """A pin on one platform."""

    __slots__ = ("pin", "resolution")

    def __init__(self, pin: PipPin, resolution: Resolution) -> None:
        self.pin = pin
        self.resolution = resolution

    @property
    def platform(self) -> str:
        return platform_of(self.resolution)


def merge(answers: Sequence[Answer], *, asked: Asked, matrix: str | None, validation: Sequence[Mapping[str, object]] = ()) -> Lock:
    """One lock for the platforms of all answers, which are of one Python minor.

    WorldError where a package cannot be locked: nobody knows its version or its files, or no index gives a hash of them.
    """
    answers = sorted(answers, key=lambda one: one.stack.platform)
    pythons = {one.resolution.machine.python for one in answers}
    assert len(pythons) == 1, "one Python minor for all platforms"
    python = pythons.pop()
    assert python is not None, "a resolution is for a Python that is known"
    minor = f"{python[0]}.{python[1]}"
    choices: dict[tuple[str, str, str], list[_Choice]] = {}
    for answer in answers:
        _refuse_open(answer.resolution)
        for pin in answer.resolution.pip:
            choices.setdefault(_key(pin), []).append(_Choice(pin, answer.resolution))
    versions: dict[str, set[str]] = {}
    for name, version, _ in choices:
        versions.setdefault(name, set()).add(version)
    packages = [_package(key, found, len(answers), choices, versions) for key, found in sorted(choices.items())]
    return Lock(
        packages=tuple(sorted(packages, key=order)),
        requires_python=f"=={minor}.*",
        environments=tuple(_environment(one.stack.platform) for one in answers),
        tool=Tool(asked=asked, python=minor, matrix=matrix, stacks=tuple(one.stack for one in answers), validation=tuple(validation)),
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


def _environment(platform: str) -> str:
    return f"sys_platform == 'linux' and {machine_marker(platform)}"


def _key(pin: PipPin) -> tuple[str, str, str]:
    return pin.name, _version(pin), (pin.file.origin if pin.file else None) or ""


def _version(pin: PipPin) -> str:
    """The version in its normal form, as the names of the files have it where they say more (`+cu124`)."""
    text = pin.offer.version if pin.offer is not None else pin.version or ""
    try:
        return str(Version(text))
    except InvalidVersion:
        return text


def _refuse_open(resolution: Resolution) -> None:
    """WorldError where a pin has no version, no files, or none with a hash: a lock without hashes proves nothing."""
    unknown = [pin.name for pin in resolution.pip if pin.version is None]
    missing = [pin.name for pin in resolution.pip if pin.version is not None and pin.file is None]
    if unknown or missing:
        raise WorldError(
            f"no files are known for {_some(unknown + missing)}, and a lock holds every file with its hashes",
            code="lock-no-files",
            context=f"the lock for {platform_of(resolution)}",
            hint="lock where the package index can be reached, or without --offline; `plan` answers from the tables alone",
        )
    bare = [pin for pin in resolution.pip if pin.file is not None and not _hashes(pin.file)]
    if bare:
        weak = sorted({name for pin in bare if pin.file for name in pin.file.hashes})
        raise WorldError(
            f"the index gives no hash of {_some([one.name for one in bare])} that pip and uv accept ({' or '.join(HASHES)})"
            + (f", only {', '.join(weak)}" if weak else ""),
            code="lock-no-hash",
            context=", ".join(dict.fromkeys(level(one.file.origin or one.file.url) for one in bare[:3] if one.file)),
            hint="name an index that gives SHA-256 digests with --index-url, or a folder of wheels with --find-links",
        )


def _some(names: Sequence[str]) -> str:
    names = sorted(set(names))
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _package(
    key: tuple[str, str, str],
    found: Sequence[_Choice],
    platforms: int,
    choices: Mapping[tuple[str, str, str], Sequence[_Choice]],
    versions: Mapping[str, set[str]],
) -> LockedPackage:
    first = found[0].pin
    assert first.file is not None
    sdist = next((one.pin.file for one in found if one.pin.file is not None and not one.pin.file.is_wheel), None)
    return LockedPackage(
        name=key[0],
        version=key[1],
        marker=None if len(found) == platforms else " or ".join(machine_marker(one.platform) for one in found),
        requires_python=first.file.requires_python,
        dependencies=tuple(sorted(set(_dependencies(found, choices, versions)), key=lambda one: (one.name, one.version or ""))),
        index=level(first.file.origin) if first.file.origin else None,
        wheels=_wheels(found),
        sdist=locked_file(sdist) if sdist is not None else None,
        because=tuple(dict.fromkeys(text for one in found for text in _because(one))),
    )


def _dependencies(
    found: Iterable[_Choice], choices: Mapping[tuple[str, str, str], Sequence[_Choice]], versions: Mapping[str, set[str]]
) -> Iterator[Dependency]:
    """Entries that this one needs, with their versions where a name alone would not tell which one is meant."""
    for one in found:
        for name in one.pin.requires:
            if len(versions.get(name, ())) == 1:
                yield Dependency(name)
            for other, group in choices.items() if len(versions.get(name, ())) > 1 else ():
                if other[0] == name and any(choice.platform == one.platform for choice in group):
                    yield Dependency(name, other[1])


def _wheels(found: Iterable[_Choice]) -> tuple[LockedFile, ...]:
    """The wheels of a release that fit the Python and one of the platforms, by name; what was withdrawn only where it was chosen."""
    out: dict[str, LockedFile] = {}
    for one in found:
        chosen, machine = one.pin.file, one.resolution.machine
        target = Target(machine.python, machine.free_threaded, machine.arch, None)
        assert chosen is not None
        files = one.pin.offer.files if one.pin.offer is not None else ()
        for file in (chosen, *files):
            if not file.is_wheel or file.origin != chosen.origin or not _hashes(file):
                continue
            if file.yanked is not None and chosen.yanked is None:
                continue
            if fit((file.tag,), target).glibc is not None:
                out.setdefault(file.filename, locked_file(file))
    return tuple(out[name] for name in sorted(out))


def locked_file(file: File) -> LockedFile:
    """A file of an index as a lock names it."""
    return LockedFile(
        name=file.filename,
        hashes=_hashes(file),
        url=level(file.url),
        size=file.size,
        uploaded=_utc(file.uploaded) if file.uploaded else None,
    )


def _hashes(file: File) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, digest.lower()) for name, digest in file.hashes.items() if name in HASHES))


def _utc(text: str) -> str | None:
    """A time of an index in the form of a lock, in whole seconds; None for text that is none."""
    found = re.match(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d{1,9})?(Z|\+00:00)?$", text, re.ASCII)
    return f"{found[1]}T{found[2]}Z" if found else None


def level(url: str) -> str:
    """An address without user name, password and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))


def _because(choice: _Choice) -> Iterator[str]:
    """Why this version, where it is more than what some wheel declares: wishes, rules of the matrix and pins that are left."""
    pin = choice.pin
    asked = choice.resolution.pins.get(f"framework:{pin.build.framework}") if pin.build is not None else None
    for reason in asked.reasons if asked is not None else ():
        yield _told(reason)
    for reason in pin.reasons:
        if pin.build is not None and reason.parent_name == f"framework:{pin.build.framework}":
            continue  # that the wheel of a build is the wheel of that build
        if reason.obeyed and reason.because.endswith((f" requires {reason.text}", "(extra and-cuda)")):
            continue
        yield _told(reason)


def _told(reason: Reason) -> str:
    because = _LINE.sub(r"\1", reason.because)
    if because.startswith("asked for"):
        return f"{reason.text}, {because}"
    if not reason.obeyed and reason.requested_by and reason.declared:
        return f"{reason.requested_by} declares {reason.declared}, read as {reason.text}"
    return f"{reason.text}: {because}"
