"""What a list means by its versions and by what it says of the machine, as the tables know wheels, images and environments of conda."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from cudnn_resolve.facts.assume import glibc_of, split_os
from cudnn_resolve.facts.model import CudnnCopy, Toolkit
from cudnn_resolve.locking.package_list import BaseEnvironment, ListedPackage
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.machine import Machine

_VARIANT = re.compile(r"\+(?:cu\d{2,3}|cpu)$")


class Wheels:
    """Versions as the tables know them: a variant's index, a build of conda, an image that brings its CUDA."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.gaps: list[str] = []

    def version(self, one: ListedPackage) -> str | None:
        """The version of the wheel that is meant, or that a build of conda is judged as; None where there is none."""
        if one.built_from is not None and is_framework(one.name, self.book):
            self.gaps.append(f"{one.name} {one.version} is built from {one.built_from}, nobody knows how: it is not judged")
            return None
        if one.cuda == "cpu":
            return f"{one.version}+cpu"
        if one.cuda is None and one.channel is None:
            known = [text for variant in one.variants if (text := f"{one.version}+{variant}") in self._known(one.name)]
            if one.variants and not known and "+" not in one.version and has_variants(self._known(one.name)):
                where = ", ".join(one.variants)
                self.gaps.append(f"{one.name} {one.version} on the index of {where} is not known: judged as the plain wheel")
            return max(known, key=Version, default=one.version)
        is_known = self.book.framework_of(one.name) is not None
        rows = [row for row in builds_of(one.name, self.book) if row.cuda is not None and row.version == one.version]
        major, _, minor = (one.cuda or "").partition(".")
        near = [row for row in rows if row.cuda is not None and (not one.cuda or row.cuda.major == int(major))]
        if is_known and not near:
            built = (
                f"built for CUDA {one.cuda}, and no wheel of that version and CUDA is in the tables" if one.cuda else "not in the tables"
            )
            self.gaps.append(f"{one.name} {one.version} is {built}: it is not judged")
            return None
        if not is_known:
            return one.version
        best = min(near, key=lambda row: (abs(row.cuda.minor - int(minor or 0)) if row.cuda and one.cuda else 0, row.index != "default"))
        if one.channel is not None:
            self.gaps.append(
                f"{one.name} {one.version} is a build of {one.channel[:40]}: judged as the wheel {best.wheel_version}, GPU code apart"
            )
        return best.wheel_version

    def _known(self, name: str) -> set[str]:
        return {row.wheel_version for row in builds_of(name, self.book)} | {row.version for row in self.book.extra_releases(name)}

    def base(self, base: BaseEnvironment | None, packages: Mapping[str, str]) -> BaseEnvironment | None:
        """The base with the versions of what it brings."""
        if base is None:
            return None
        for row in builds_of(base.of, self.book) if base.of is not None else ():
            if row.wheel_version == packages.get(row.package) and row.cuda is not None:
                return replace(base, cuda=str(row.cuda), cudnn=str(row.cudnn) if row.cudnn else None)
        if base.cudnn is not None and base.cudnn.isdigit():
            newest = max((one.version for one in self.book.cudnn_builds() if one.soname == int(base.cudnn)), default=None)
            self.gaps.append(f"which cuDNN {base.cudnn} it is, is not told: judged with the newest, {newest}")
            return replace(base, cudnn=str(newest) if newest is not None else None)
        return base


def builds_of(name: str, book: Book) -> tuple[Build, ...]:
    """The builds of a distribution that the tables know; none for what is no framework."""
    framework = book.framework_of(name)
    return tuple(row for row in book.framework(framework).builds if row.package == name) if framework is not None else ()


def has_variants(versions: Iterable[str]) -> bool:
    """True for a package of which there are wheels on indexes of variants, `2.6.0+cu118`."""
    return any(_VARIANT.search(text) for text in versions)


def placed(base: BaseEnvironment | None, machine: Machine) -> Machine:
    """The machine with what the file itself says of it: the image, or the environment of conda."""
    if base is None:
        return machine
    if base.python is not None:
        with suppress(InvalidVersion, ValueError):
            major, minor = Version(base.python).release[:2]
            machine = replace(machine, python=(major, minor), python_full=base.python, free_threaded=False)
    if base.os is not None:
        glibc = glibc_of(*split_os(base.os))
        machine = replace(machine, os=base.os, glibc=(2, int(glibc.partition(".")[2])) if glibc else None)
    own = base.source == "conda"  # in an environment of conda the system's libraries are still there, in an image they are not
    toolkits = (Toolkit(version=base.cuda, source=base.source),) if base.cuda else ()
    copies = (CudnnCopy(version=base.cudnn, source=base.source, complete=True, owner=base.cudnn_of),) if base.cudnn else ()
    return replace(machine, toolkits=(*toolkits, *(machine.toolkits if own else ())), cudnn=(*copies, *(machine.cudnn if own else ())))


def is_framework(name: str, book: Book) -> bool:
    """True for a distribution that is a framework."""
    framework = book.framework_of(name)
    return framework is not None and name in book.distributions(framework)
