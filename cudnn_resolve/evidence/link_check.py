"""The link check: every library of an environment finds every library that it needs, in the right version.

The loader searches the library's own search path, LD_LIBRARY_PATH, the linker cache and its default directories. A library that is
already loaded is found by name wherever it is: an extension is imported after its framework, and so finds the framework's libraries and
those of the NVIDIA wheels that the framework has loaded. A name therefore also counts as found if it is provided by a package that the
requesting one declares, directly or not, or to whose libraries it is linked; and for a package without a path to any NVIDIA wheel, if any
of these provides it, since they are preloaded then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cudnn_resolve.evidence.elf import Elf
from cudnn_resolve.matrix.evidence import wheel_with
from cudnn_resolve.matrix.library_name import library_of

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book

Severity = Literal["error", "warning"]

LIBRARY = re.compile(r"(?:^|/)[^/]+\.so(?:\.[\w.]+)?$")
"""Paths of shared libraries."""
_CUDA = ("cuda", "cudnn", "cupti", "tensorrt")
_DRIVER = ("driver", "ptxjit")
_FRAMEWORK = re.compile(
    r"lib(?:torch|c10|tensorflow|tvm|mxnet|paddle|phi|jax|cudf|cuml|cugraph|rmm|raft|cuvs|arrow)[\w-]*\.so(?:\.[\d.]+)?"
)
"""Libraries that only another pip package provides, never the system."""
_MODULE = re.compile(r"(?!lib)[^/]*\.so|[^/]*\.(?:cpython|abi3|pypy)[\w.-]*\.so")
"""File names of extension modules, which an import loads; other libraries may be plugins that are never opened."""
_NEVER_LOADED = re.compile(r"/(?:stubs|tests?|testing|examples?|debug)/")
_OPTIONAL = (
    # package, file, needed name: opened if the name exists, dispensable otherwise
    ("onnxruntime*", "libonnxruntime_providers_tensorrt*", "*"),
    ("onnxruntime*", "libonnxruntime_providers_nv_tensorrt*", "*"),
    ("nvidia-nvshmem*", "nvshmem_*", "*"),
    ("nvidia-cufile*", "libcufile_rdma*", "*"),
    ("tensorflow*", "*", "libnvinfer*"),
    ("cupy-*", "cutensor.*", "*"),
    ("cupy-*", "nccl.*", "*"),
    ("cupy-*", "cudnn.*", "*"),
    ("numba", "tbbpool*", "*"),
    ("torchaudio", "*", "libsox.so*"),
    ("torchaudio", "*", "libav*"),
    ("*", "*", "libcudadebugger.so*"),
)
_ELSEWHERE = re.compile(
    r"lib(?:mpi(?:cxx|_cxx|fort)?|oshmem|open-(?:rte|pal)|ibverbs|rdmacm|mlx[45]|uc[mpst]|ucx\w*|fabric|efa|pmix|gdrapi"  # networks
    r"|amdhip64|hip\w*|roc\w*|rccl|MIOpen|hsa-runtime64|amd_comgr|sycl|ze_loader|OpenCL|ur_\w+|svml|imf|intlc|irng|mkl_sycl\w*"
    r"|python3[\w.]*)[\w-]*\.so(?:\.[\d.]+)?"  # the interpreter itself
)
"""Libraries of networks, other accelerators and the interpreter itself: needed by optional plugins in wheels."""


class PackagedLibrary(Struct, frozen=True, kw_only=True):
    """A shared library of a package at its present or future path."""

    package: str
    path: str
    elf: Elf

    @property
    def file(self) -> str:
        """File name."""
        return self.path.rpartition("/")[2]


class Site(Struct, frozen=True, kw_only=True, dict=True):
    """Libraries of an environment, planned or present, and of the system below it."""

    libraries: tuple[PackagedLibrary, ...]
    packages: Mapping[str, tuple[str, frozenset[str]]]
    """Version of each package, and the names declared by its metadata, including extras."""
    find: Callable[[str], tuple[str, ...]]
    """Paths of the system's libraries of a name: in LD_LIBRARY_PATH, the linker cache and the loader's directories."""
    look: Callable[[str], Elf | None]
    """Read a library of the system; None if there is none at that path."""
    ahead: tuple[str, ...] = ()
    """Directories of LD_LIBRARY_PATH, which the loader searches before a RUNPATH (ld.so(8))."""
    opens: Mapping[str, tuple[str, ...]] = {}
    """Names that a package opens at run time and requires on a GPU; ignored for a package that is linked to CUDA libraries."""

    @cached_property
    def by_path(self) -> Mapping[str, PackagedLibrary]:
        """Libraries by path."""
        return {library.path: library for library in self.libraries}

    @cached_property
    def by_name(self) -> Mapping[str, tuple[PackagedLibrary, ...]]:
        """Libraries by file name and by soname."""
        return _grouped((name, library) for library in self.libraries for name in {library.file, library.elf.soname} if name is not None)

    @cached_property
    def by_package(self) -> Mapping[str, tuple[PackagedLibrary, ...]]:
        """Libraries by package."""
        return _grouped((library.package, library) for library in self.libraries)

    @cached_property
    def needing(self) -> Mapping[str, tuple[PackagedLibrary, ...]]:
        """Libraries by a name that they need."""
        return _grouped((name, library) for library in self.libraries for name in library.elf.needed)

    @cached_property
    def reach(self) -> Callable[[str], frozenset[str]]:
        """The package, those it declares, and those to whose libraries it is linked, directly or not."""
        return cache(self._reach)

    def declared(self, package: str) -> frozenset[str]:
        """Names declared by the metadata of a package."""
        return self.packages[package][1] if package in self.packages else frozenset()

    def _reach(self, package: str) -> frozenset[str]:
        found, waiting = {package}, [package]
        while waiting:
            current = waiting.pop()
            linked = {
                provider.package
                for library in self.by_package.get(current, ())
                for name in library.elf.needed
                if not is_of_cuda(name)
                for provider in self.by_name.get(name, ())[:1]
            }
            new = ((self.declared(current) & self.packages.keys()) | linked) - found
            found |= new
            waiting += new
        return frozenset(found)


def _grouped(pairs: Iterable[tuple[str, PackagedLibrary]]) -> dict[str, tuple[PackagedLibrary, ...]]:
    groups: dict[str, list[PackagedLibrary]] = {}
    for name, library in pairs:
        groups.setdefault(name, []).append(library)
    return {name: tuple(libraries) for name, libraries in groups.items()}


class BrokenLink(Struct, frozen=True, kw_only=True):
    """A library that would not load."""

    package: str
    path: str
    """Path of the library; empty for a name that the package opens at run time."""
    name: str
    """Library that it needs."""
    version: str | None = None
    """Symbol version missing from the library found under that name; None if none was found."""
    found: str | None = None
    """Path of that library."""
    others: tuple[str, ...] = ()
    """Libraries of the environment that differ from the name only in version, `NAME of PACKAGE`."""
    users: tuple[str, ...] = ()
    """Other packages whose libraries need this one, directly or not."""
    severity: Severity = "error"
    """A library missing from the system is a warning: it can be added without changing the environment."""


def explain(site: Site, link: BrokenLink, book: Book) -> tuple[str, str | None]:
    """Describe a broken link with its remedy, and name the package that has the library, if known."""
    file = link.path.rpartition("/")[2]
    declared = site.declared(link.package)
    wheel = wheel_with(book, link.name, declared, site.by_path[link.path].elf.needed if file else ())
    users = f" ({', '.join(link.users[:3])} {'need' if len(link.users) > 1 else 'needs'} it)" if link.users else ""
    who = f"{link.package}: {file} needs" if file else f"{link.package} opens"
    if link.version:
        remedy = f": a newer {wheel} has it" if wheel else ""
        if link.found is not None and os.path.dirname(link.found) in site.ahead:
            remedy = ": LD_LIBRARY_PATH comes before the library's own search path"
        return f"{who} {link.version} of {link.name}{users}, and {link.found} is too old for that{remedy}", wheel
    if link.severity == "warning":
        return f"{who} {link.name}{users}, which this system lacks: install the system package that has it", None
    others = f"; there is {', '.join(link.others[:2])}" if link.others else ""
    if wheel is None:
        remedy = ""
    elif not link.others or not file or wheel in declared or _is_nvidia(link.package):
        is_installed = any(other.endswith(f" of {wheel}") for other in link.others)
        remedy = f": {'another release of ' if is_installed else ''}{wheel} has it"
    else:
        remedy = f": install a build of {link.package} that matches it"
    return f"{who} {link.name}{users}, which no package provides{others}{remedy}", wheel


def is_of_cuda(name: str) -> bool:
    """True for the name of a library of CUDA, cuDNN or TensorRT."""
    library = library_of(name)
    return library is not None and library.family in _CUDA


def is_imported(site: Site, link: BrokenLink) -> bool:
    """True if importing the package loads the broken library, as opposed to opening it at run time."""
    return link.path in site.by_path and _is_imported(site, site.by_path[link.path])


def broken_links(site: Site) -> tuple[BrokenLink, ...]:
    """List links that would not load, ordered by package, without those known to be optional."""
    found = _without_alternatives(site, [link for library in site.libraries for link in _links_of(site, library)])
    known = {(link.package, link.name) for link in found}
    for package, names in site.opens.items():
        if any(is_of_cuda(name) for library in site.by_package.get(package, ()) for name in library.elf.needed):
            continue
        found += [
            BrokenLink(package=package, path="", name=name, others=_others(site, name))
            for name in names
            if not _loaded_before(site, package, name) and not site.find(name) and (package, name) not in known
        ]
    used = {name for package in site.by_package if not _is_nvidia(package) for name in site.reach(package)}
    relevant = (link for link in found if not _is_nvidia(link.package) or link.package in used)
    return tuple(sorted(relevant, key=lambda link: (link.severity, link.package, link.path, link.name)))


def _is_nvidia(package: str) -> bool:
    return package.startswith("nvidia-")


def _links_of(site: Site, library: PackagedLibrary) -> Iterator[BrokenLink]:
    if _NEVER_LOADED.search(library.path):
        return
    for name in library.elf.needed:
        providers = _providers(site, library, name)
        if providers is None:
            if not _is_optional(library, name) and (missing := _severity(site, library, name)) is not None:
                yield _broken(site, library, name, missing)
            continue
        # A library that the framework has loaded from elsewhere is found by name: LD_LIBRARY_PATH then does no harm.
        severity: Severity = "warning" if providers and os.path.dirname(providers[0][0]) in site.ahead else "error"
        if lacking := _lacking_jit(library, name, providers):
            yield _broken(site, library, name, severity, lacking, providers[0][0])
        wanted = [version for file, version in library.elf.wanted if file == name]
        for version in wanted if providers and _is_imported(site, library) else ():
            if all(elf.provided and version not in elf.provided for _, elf in providers):
                yield _broken(site, library, name, severity, version, providers[0][0])
                break


def _lacking_jit(library: PackagedLibrary, name: str, providers: list[tuple[str, Elf]]) -> str | None:
    """Symbol missing from a libnvJitLink that is too old: its file name does not distinguish releases."""
    provided = [elf.jit for _, elf in providers if elf.jit] if name.startswith("libnvJitLink.so") else []
    return next(iter(sorted(library.elf.jit - provided[0], reverse=True)), None) if provided else None


def _broken(
    site: Site, library: PackagedLibrary, name: str, severity: Severity, version: str | None = None, found: str | None = None
) -> BrokenLink:
    users = dict.fromkeys(user.package for user in _users(site, library) if user.package != library.package)
    return BrokenLink(
        package=library.package,
        path=library.path,
        name=name,
        version=version,
        found=found,
        others=() if version else _others(site, name),
        users=tuple(users),
        severity=severity,
    )


def _providers(site: Site, library: PackagedLibrary, name: str) -> list[tuple[str, Elf]] | None:
    """Candidates to be loaded under a name, likeliest first; empty for the loader's own libraries, None if there is none."""
    if name.startswith(("linux-vdso", "ld-linux", "ld-musl")):
        return []
    own = search_directories(library.elf.runpath or library.elf.rpath, os.path.dirname(library.path))
    for directory in (*(site.ahead if library.elf.runpath else ()), *own):
        path = f"{directory}/{name}"
        elf = site.by_path[path].elf if path in site.by_path else site.look(path)
        if elf is not None and elf.arch == library.elf.arch:
            return [(path, elf)]
    before = _loaded_before(site, library.package, name)
    if not before and is_of_cuda(name) and _other_major_loaded(site, library.package, name):
        return None
    system = [(path, elf) for path in site.find(name) if (elf := site.look(path)) is not None and elf.arch == library.elf.arch]
    return [*((provider.path, provider.elf) for provider in before), *system] or None


def search_directories(path: str | None, origin: str) -> Iterator[str]:
    """Absolute directories of a search path, `$ORIGIN` replaced by the directory of the file that names it."""
    for entry in (path or "").split(":"):
        directory = entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
        if directory.startswith("/"):
            yield os.path.normpath(directory)


def _loaded_before(site: Site, package: str, name: str) -> tuple[PackagedLibrary, ...]:
    """Libraries of that name that earlier imports may have loaded."""
    everywhere = site.by_name.get(name, ())
    if not everywhere or not is_of_cuda(name):
        return everywhere
    reach = site.reach(package)
    if not any(_is_nvidia(other) for other in reach if other in site.by_package):
        return everywhere
    return tuple(library for library in everywhere if library.package in reach)


def _other_major_loaded(site: Site, package: str, name: str) -> bool:
    """True if earlier imports have loaded another major of the library: a second one from the system does not help."""
    stem = name.partition(".so")[0]
    reach = site.reach(package)
    return any(
        library.package in reach and _is_nvidia(library.package) and other.partition(".so")[0] == stem
        for other, libraries in site.by_name.items()
        if other != name
        for library in libraries
    )


def _severity(site: Site, library: PackagedLibrary, name: str) -> Severity | None:
    """Severity of a name that is not found; None if it does not matter."""
    if is_of_cuda(name) or _FRAMEWORK.fullmatch(name):
        return "error"
    return "warning" if _is_imported(site, library) else None


def _is_optional(library: PackagedLibrary, name: str) -> bool:
    needed = library_of(name)
    if (needed is not None and needed.family in _DRIVER) or _ELSEWHERE.fullmatch(name):
        return True
    return any(
        fnmatchcase(library.package, package) and fnmatchcase(library.file, file) and fnmatchcase(name, pattern)
        for package, file, pattern in _OPTIONAL
    )


def _is_imported(site: Site, library: PackagedLibrary) -> bool:
    """True for an extension module, and for a library needed by one, directly or not."""
    return any(_MODULE.fullmatch(user.file) for user in _users(site, library))


def _users(site: Site, library: PackagedLibrary) -> list[PackagedLibrary]:
    """The library and those that need it, directly or not."""
    found = {library.path: library}
    waiting = [library]
    while waiting:
        for user in site.needing.get(waiting.pop().file, ()):
            if user.path not in found:
                found[user.path] = user
                waiting.append(user)
    return list(found.values())


def _others(site: Site, name: str) -> tuple[str, ...]:
    """Libraries that differ only in version: `libcudart.so.12` for `libcudart.so.13`."""
    stem = name.partition(".so")[0]
    found = {(library.package, other) for other, many in site.by_name.items() if other.partition(".so")[0] == stem for library in many}
    return tuple(f"{other} of {package}" for package, other in sorted(found) if other != name)


def _without_alternatives(site: Site, links: list[BrokenLink]) -> list[BrokenLink]:
    """Leave out broken links of a file with a working twin, whose name and needs differ only in numbers.

    `libbitsandbytes_cuda118.so` and `libbitsandbytes_cuda124.so` need different versions of the same libraries, and only one of them is
    opened. Those for CUDA 12 may need more, such as libnvJitLink.
    """
    broken = {link.path for link in links}
    twins: dict[str, list[PackagedLibrary]] = {}
    for name in {link.package for link in links}:
        for library in site.by_package[name]:
            twins.setdefault(_numberless(library.path), []).append(library)
    kept: dict[object, BrokenLink] = {}
    for link in links:
        alternatives = [library for library in twins[_numberless(link.path)] if _needs_other_version(library, link.name)]
        if all(library.path in broken for library in alternatives):
            # The newest twin stands for all.
            kept[(_numberless(link.path), _numberless(link.name)) if alternatives else (link.path, link.name)] = link
    return list(kept.values())


def _needs_other_version(library: PackagedLibrary, wanted: str) -> bool:
    """True if a library needs another version of `wanted`, and not that itself."""
    return wanted not in library.elf.needed and any(_numberless(name) == _numberless(wanted) for name in library.elf.needed)


def _numberless(text: str) -> str:
    return re.sub(r"\d+(?:\.\d+)*", "#", text)
