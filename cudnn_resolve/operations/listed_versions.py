"""Versions and base of a package list, translated to the wheels in the tables: index variants, conda builds, images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from cudnn_resolve.facts.distribution import glibc_of, split_os
from cudnn_resolve.facts.model import CudnnCopy, Toolkit
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.package_lists.model import BaseEnvironment, ListedPackage
from cudnn_resolve.requirement.machine import Machine

_VARIANT = re.compile(r"\+(?:cu\d{2,3}|cpu)$")


class Wheels:
    """Wheel versions of listed packages; what cannot be translated is added to `gaps`."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.gaps: list[str] = []

    def version(self, package: ListedPackage) -> str | None:
        """Version of the wheel that a listed package means, or that a conda build is judged as; None if there is none."""
        name, version = package.name, package.version
        if package.built_from is not None and is_framework(name, self.book):
            self.gaps.append(f"{name} {version} is built from {package.built_from} in an unknown way: it is not judged")
            return None
        if package.cuda == "cpu":
            return f"{version}+cpu"
        if package.cuda is None and package.channel is None:
            return self._of_variant(package)
        if self.book.framework_of(name) is None:
            return version
        return self._of_conda(package)

    def _of_variant(self, package: ListedPackage) -> str:
        """Version on the index of a variant, if the tables know one."""
        name, version = package.name, package.version
        known = {row.wheel_version for row in self.book.builds_of(name)} | {row.version for row in self.book.extra_releases(name)}
        variants = [text for variant in package.variants if (text := f"{version}+{variant}") in known]
        if package.variants and not variants and "+" not in version and has_variants(known):
            indexes = ", ".join(package.variants)
            self.gaps.append(f"{name} {version} on the index of {indexes} is unknown: judged as the plain wheel")
        return max(variants, key=Version, default=version)

    def _of_conda(self, package: ListedPackage) -> str | None:
        """Version of the wheel with the nearest CUDA to that of a conda build."""
        name, version = package.name, package.version
        major, _, minor = (package.cuda or "").partition(".")
        rows = [row for row in self.book.builds_of(name) if row.cuda is not None and row.version == version]
        near = [row for row in rows if row.cuda is not None and (not package.cuda or row.cuda.major == int(major))]
        if not near:
            built = f"built for CUDA {package.cuda}, and the tables have no wheel of that version and CUDA"
            self.gaps.append(f"{name} {version} is {built if package.cuda else 'not in the tables'}: it is not judged")
            return None

        def distance(row: Build) -> tuple[int, bool]:
            return (abs(row.cuda.minor - int(minor or 0)) if row.cuda and package.cuda else 0, row.index != "default")

        best = min(near, key=distance)
        if package.channel is not None:
            origin = f"a build of {package.channel[:40]}"
            self.gaps.append(f"{name} {version} is {origin}: judged as the wheel {best.wheel_version}, except for GPU code")
        return best.wheel_version

    def base(self, base: BaseEnvironment | None, packages: Mapping[str, str]) -> BaseEnvironment | None:
        """The base with the versions of the CUDA and cuDNN that it brings."""
        if base is None:
            return None
        for row in self.book.builds_of(base.of) if base.of is not None else ():
            if row.wheel_version == packages.get(row.package) and row.cuda is not None:
                return replace(base, cuda=str(row.cuda), cudnn=str(row.cudnn) if row.cudnn else None)
        if base.cudnn is not None and base.cudnn.isdigit():
            newest = max((build.version for build in self.book.cudnn_builds() if build.soname == int(base.cudnn)), default=None)
            self.gaps.append(f"the exact version of cuDNN {base.cudnn} is unknown: judged as the newest, {newest}")
            return replace(base, cudnn=str(newest) if newest is not None else None)
        return base


def has_variants(versions: Iterable[str]) -> bool:
    """True if there are wheels on variant indexes, such as `2.6.0+cu118`."""
    return any(_VARIANT.search(version) for version in versions)


def on_base(machine: Machine, base: BaseEnvironment | None) -> Machine:
    """The machine with the Python, distribution and CUDA libraries of the base: an image, or a conda environment."""
    if base is None:
        return machine
    if base.python is not None:
        with suppress(InvalidVersion, ValueError):
            major, minor = Version(base.python).release[:2]
            machine = replace(machine, python=(major, minor), python_full=base.python, free_threaded=False)
    if base.os is not None:
        glibc = glibc_of(*split_os(base.os))
        machine = replace(machine, os=base.os, glibc=(2, int(glibc.partition(".")[2])) if glibc else None)
    toolkits = (Toolkit(version=base.cuda, source=base.source),) if base.cuda else ()
    copies = (CudnnCopy(version=base.cudnn, source=base.source, complete=True, owner=base.cudnn_of),) if base.cudnn else ()
    if base.source == "conda":  # a conda environment sees the system's libraries, an image does not
        toolkits, copies = (*toolkits, *machine.toolkits), (*copies, *machine.cudnn)
    return replace(machine, toolkits=toolkits, cudnn=copies)


def is_framework(name: str, book: Book) -> bool:
    """True for a distribution that is a framework."""
    framework = book.framework_of(name)
    return framework is not None and name in book.distributions(framework)
