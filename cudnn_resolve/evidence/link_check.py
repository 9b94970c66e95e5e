"""The link check: every library of an environment finds every library that it needs, in the right version.

The loader looks along the search path of the library, in LD_LIBRARY_PATH, in the linker cache and in its own directories. What is loaded
already counts under its name wherever it lies: an extension is imported after its framework, and so finds the framework's libraries and
those of the NVIDIA wheels that the framework has loaded. A name therefore counts as found, too, where a package brings it that the asking
package declares, directly or not, or to whose libraries it is linked; and for a package that leads to no NVIDIA wheel, where any of these
brings it, since it is preloaded then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cudnn_resolve.evidence.elf import Elf
from cudnn_resolve.matrix.evidence import wheel_with
from cudnn_resolve.matrix.library import library_of

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book

LIBRARY = re.compile(r"(?:^|/)[^/]+\.so(?:\.[\w.]+)?$")
"""Paths of shared libraries."""
_CUDA = ("cuda", "cudnn", "cupti", "tensorrt")
_DRIVER = ("driver", "ptxjit")
_FRAMEWORK = re.compile(
    r"lib(?:torch|c10|tensorflow|tvm|mxnet|paddle|phi|jax|cudf|cuml|cugraph|rmm|raft|cuvs|arrow)[\w-]*\.so(?:\.[\d.]+)?"
)
"""Libraries that another pip package brings, never the system."""
_MODULE = re.compile(r"(?!lib)[^/]*\.so|[^/]*\.(?:cpython|abi3|pypy)[\w.-]*\.so")
"""File names of extension modules, which an import loads; other libraries may be plugins that nobody opens."""
_NEVER_LOADED = re.compile(r"/(?:stubs|tests?|testing|examples?|debug)/")
_OPTIONAL = (
    # package, file, name that it needs: it is opened where the name is there, and done without where it is not
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
"""Libraries of networks, of other accelerators and of the interpreter itself: a wheel has plugins for those who have them."""


class Placed(Struct, frozen=True, kw_only=True):
    """A shared library of a package, where it lies or will lie."""

    package: str
    path: str
    elf: Elf


class Site(Struct, frozen=True, kw_only=True, dict=True):
    """The libraries of an environment, planned or there, and what is below it."""

    libraries: tuple[Placed, ...]
    packages: Mapping[str, tuple[str, frozenset[str]]]
    """Version of each package, and the names that its metadata declares, those of extras, too."""
    find: Callable[[str], tuple[str, ...]]
    """Paths at which the system has a library of this name: LD_LIBRARY_PATH, the linker cache, the loader's directories."""
    look: Callable[[str], Elf | None]
    """What lies at a path of the system; None where no library does."""
    ahead: tuple[str, ...] = ()
    """The directories of LD_LIBRARY_PATH: the loader looks there before it follows a RUNPATH (ld.so(8))."""
    opens: Mapping[str, tuple[str, ...]] = {}
    """Names that a package opens at run time and cannot do without on a GPU; they do not count of one that is linked to such."""

    @cached_property
    def by_path(self) -> Mapping[str, Placed]:
        """Each library by its path."""
        return {one.path: one for one in self.libraries}

    @cached_property
    def by_name(self) -> Mapping[str, tuple[Placed, ...]]:
        """Libraries by their file name and by their soname."""
        return _grouped((str(name), one) for one in self.libraries for name in {one.path.rpartition("/")[2], one.elf.soname} - {None})

    @cached_property
    def by_package(self) -> Mapping[str, tuple[Placed, ...]]:
        """Libraries by their package."""
        return _grouped((one.package, one) for one in self.libraries)

    @cached_property
    def needing(self) -> Mapping[str, tuple[Placed, ...]]:
        """Libraries that need a name, by that name."""
        return _grouped((name, one) for one in self.libraries for name in one.elf.needed)

    @cached_property
    def _reached(self) -> dict[str, frozenset[str]]:
        return {}

    def declared(self, package: str) -> frozenset[str]:
        """Names that the metadata of a package declares."""
        return self.packages[package][1] if package in self.packages else frozenset()

    def reach(self, package: str) -> frozenset[str]:
        """The package, what it declares, and the packages to whose libraries it is linked, directly or not."""
        known = self._reached.get(package)
        if known is None:
            found, waiting = {package}, [package]
            while waiting:
                one = waiting.pop()
                linked = {
                    provider.package
                    for library in self.by_package.get(one, ())
                    for name in library.elf.needed
                    if not is_of_cuda(name)
                    for provider in self.by_name.get(name, ())[:1]
                }
                new = ((self.declared(one) & self.packages.keys()) | linked) - found
                found |= new
                waiting += new
            known = self._reached[package] = frozenset(found)
        return known


def _grouped(named: Iterable[tuple[str, Placed]]) -> dict[str, tuple[Placed, ...]]:
    """Libraries by what stands before each."""
    found: dict[str, list[Placed]] = {}
    for name, one in named:
        found.setdefault(name, []).append(one)
    return {name: tuple(many) for name, many in found.items()}


class BrokenLink(Struct, frozen=True, kw_only=True):
    """A library that would not load."""

    package: str
    path: str
    """Of the library; empty for a name that the package opens at run time."""
    name: str
    """The library that it needs."""
    version: str | None = None
    """The symbol version that the library found under that name lacks; None where none was found."""
    found: str | None = None
    """Where that library lies."""
    others: tuple[str, ...] = ()
    """Libraries of the environment that differ from the name in their version only, each behind its package."""
    users: tuple[str, ...] = ()
    """Other packages whose libraries need this one, directly or not."""
    severity: Literal["error", "warning"] = "error"
    """A library that the system lacks is a warning: it comes without any change to the environment."""


def explain(site: Site, link: BrokenLink, book: Book) -> tuple[str, str | None]:
    """A broken link in words with what helps, and the package that has the library, where one is known."""
    file = link.path.rpartition("/")[2]
    declared = site.declared(link.package)
    wheel = wheel_with(book, link.name, declared, site.by_path[link.path].elf.needed if file else ())
    users = f" ({', '.join(link.users[:3])} {'need' if len(link.users) > 1 else 'needs'} it)" if link.users else ""
    who = f"{link.package}: {file} needs" if file else f"{link.package} opens"
    if link.version:
        newer = f": a newer {wheel} has it" if wheel else ""
        if link.found is not None and os.path.dirname(link.found) in site.ahead:
            newer = ": LD_LIBRARY_PATH leads there, before what the library itself names"
        return f"{who} {link.version} of {link.name}{users}, and {link.found} is too old for that{newer}", wheel
    if link.severity == "warning":
        return f"{who} {link.name}{users}, which this system has not: install the package of the system that has it", None
    beside = f"; there is {', '.join(link.others[:2])}" if link.others else ""
    if wheel is None:
        helps = ""
    elif not link.others or not file or wheel in declared or _is_nvidia(link.package):
        again = any(other.endswith(f" of {wheel}") for other in link.others)
        helps = f": {'another release of ' if again else ''}{wheel} has it"
    else:
        helps = f": take a {link.package} that is built for what is there"
    return f"{who} {link.name}{users}, which nothing brings{beside}{helps}", wheel


def is_of_cuda(name: str) -> bool:
    """True for the name of a library of CUDA, cuDNN or TensorRT."""
    library = library_of(name)
    return library is not None and library.family in _CUDA


def is_imported(site: Site, link: BrokenLink) -> bool:
    """True where an import of the package loads the library that lacks something; one that is opened at run time is not."""
    return link.path in site.by_path and _is_imported(site, site.by_path[link.path])


def broken_links(site: Site) -> tuple[BrokenLink, ...]:
    """What would not load, in the order of packages; what is known to be optional is left out."""
    found = [link for one in site.libraries for link in _of_library(site, one)]
    found = _without_alternatives(site, found)
    known = {(one.package, one.name) for one in found}
    for package, names in site.opens.items():
        if any(is_of_cuda(name) for one in site.by_package.get(package, ()) for name in one.elf.needed):
            continue
        found += [
            BrokenLink(package=package, path="", name=name, others=_others(site, name))
            for name in names
            if not _loaded_before(site, package, name) and not site.find(name) and (package, name) not in known
        ]
    used = {name for package in site.by_package if not _is_nvidia(package) for name in site.reach(package)}
    kept = (one for one in found if not _is_nvidia(one.package) or one.package in used)
    return tuple(sorted(kept, key=lambda one: (one.severity, one.package, one.path, one.name)))


def _is_nvidia(package: str) -> bool:
    return package.startswith("nvidia-")


def _of_library(site: Site, one: Placed) -> Iterator[BrokenLink]:
    if _NEVER_LOADED.search(one.path):
        return
    for name in one.elf.needed:
        providers = _providers(site, one, name)
        if providers is None:
            if not _is_optional(one, name) and (severity := _severity(site, one, name)) is not None:
                yield _broken(site, one, name, severity)
            continue
        # What the framework itself has loaded before from elsewhere counts under its name: then LD_LIBRARY_PATH does no harm.
        how_bad: Literal["error", "warning"] = "warning" if providers and os.path.dirname(providers[0][0]) in site.ahead else "error"
        if lacking := _lacking_jit(one, name, providers):
            yield _broken(site, one, name, how_bad, lacking, providers[0][0])
        wanted = [version for file, version in one.elf.wanted if file == name]
        for version in wanted if providers and _is_imported(site, one) else ():
            if all(elf.provided and version not in elf.provided for _, elf in providers):
                yield _broken(site, one, name, how_bad, version, providers[0][0])
                break


def _lacking_jit(one: Placed, name: str, providers: list[tuple[str, Elf]]) -> str | None:
    """A symbol that libnvJitLink lacks because it is older than what wants it: its file name does not tell its releases apart."""
    known = [elf.jit for _, elf in providers if elf.jit] if name.startswith("libnvJitLink.so") else []
    return next(iter(sorted(one.elf.jit - known[0], reverse=True)), None) if known else None


def _broken(
    site: Site, one: Placed, name: str, severity: Literal["error", "warning"], version: str | None = None, found: str | None = None
) -> BrokenLink:
    users = dict.fromkeys(user.package for user in _users(site, one) if user.package != one.package)
    others = () if version else _others(site, name)
    return BrokenLink(
        package=one.package, path=one.path, name=name, version=version, found=found, others=others, users=tuple(users), severity=severity
    )


def _providers(site: Site, one: Placed, name: str) -> list[tuple[str, Elf]] | None:
    """Libraries of which one is loaded under the name, the likeliest first; empty for the loader's own, None where there is none."""
    if name.startswith(("linux-vdso", "ld-linux", "ld-musl")):
        return []
    for folder in (*(site.ahead if one.elf.runpath else ()), *_search_path(one)):
        path = f"{folder}/{name}"
        elf = site.by_path[path].elf if path in site.by_path else site.look(path)
        if elf is not None and elf.arch == one.elf.arch:
            return [(path, elf)]
    before = _loaded_before(site, one.package, name)
    if not before and is_of_cuda(name) and _other_major(site, one.package, name):
        return None
    system = [(path, elf) for path in site.find(name) if (elf := site.look(path)) is not None and elf.arch == one.elf.arch]
    return [*((placed.path, placed.elf) for placed in before), *system] or None


def _search_path(one: Placed) -> Iterator[str]:
    """The directories that the library itself names."""
    origin = os.path.dirname(one.path)
    for entry in (one.elf.runpath or one.elf.rpath or "").split(":"):
        folder = entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
        if folder.startswith("/"):
            yield os.path.normpath(folder)


def _loaded_before(site: Site, package: str, name: str) -> tuple[Placed, ...]:
    """Libraries of that name which the imports that come first may have loaded."""
    everywhere = site.by_name.get(name, ())
    if not everywhere or not is_of_cuda(name):
        return everywhere
    reach = site.reach(package)
    if not any(_is_nvidia(one) for one in reach if one in site.by_package):
        return everywhere
    return tuple(one for one in everywhere if one.package in reach)


def _other_major(site: Site, package: str, name: str) -> bool:
    """True where what a package is imported after has loaded that library of another major: a second one from the system does no good."""
    stem = name.partition(".so")[0]
    reach = site.reach(package)
    return any(
        one.package in reach and _is_nvidia(one.package) and other.partition(".so")[0] == stem
        for other, many in site.by_name.items()
        if other != name
        for one in many
    )


def _severity(site: Site, one: Placed, name: str) -> Literal["error", "warning"] | None:
    """How bad it is that a name is not found; None where nobody minds."""
    if is_of_cuda(name) or _FRAMEWORK.fullmatch(name):
        return "error"
    return "warning" if _is_imported(site, one) else None


def _is_optional(one: Placed, name: str) -> bool:
    library = library_of(name)
    if (library is not None and library.family in _DRIVER) or _ELSEWHERE.fullmatch(name):
        return True
    file = one.path.rpartition("/")[2]
    return any(
        fnmatchcase(one.package, package) and fnmatchcase(file, pattern) and fnmatchcase(name, needed)
        for package, pattern, needed in _OPTIONAL
    )


def _is_imported(site: Site, one: Placed) -> bool:
    """True for an extension module, and for a library that one of them needs, directly or not."""
    return any(_MODULE.fullmatch(user.path.rpartition("/")[2]) for user in _users(site, one))


def _users(site: Site, one: Placed) -> list[Placed]:
    """The library and those that need it, directly or not."""
    found = {one.path: one}
    waiting = [one]
    while waiting:
        here = waiting.pop()
        for user in site.needing.get(here.path.rpartition("/")[2], ()):
            if user.path not in found:
                found[user.path] = user
                waiting.append(user)
    return list(found.values())


def _others(site: Site, name: str) -> tuple[str, ...]:
    """Libraries that are called alike but for their version: `libcudart.so.12` beside `libcudart.so.13`."""
    stem = name.partition(".so")[0]
    found = {(one.package, other) for other, many in site.by_name.items() if other.partition(".so")[0] == stem for one in many}
    return tuple(f"{other} of {package}" for package, other in sorted(found) if other != name)


def _without_alternatives(site: Site, found: list[BrokenLink]) -> list[BrokenLink]:
    """Leave out what a file lacks where one called alike but for numbers needs that under another number, and is whole.

    `libbitsandbytes_cuda118.so` and `libbitsandbytes_cuda124.so` need the same libraries by other numbers, and one of them is opened. Those
    for CUDA 12 may need more, such as libnvJitLink.
    """
    broken = {one.path for one in found}
    alike: dict[str, list[Placed]] = {}
    for name in {one.package for one in found}:
        for placed in site.by_package[name]:
            alike.setdefault(_numberless(placed.path), []).append(placed)
    kept: dict[object, BrokenLink] = {}
    for one in found:
        twins = [other for other in alike[_numberless(one.path)] if _has_another(other, one.name)]
        if all(other.path in broken for other in twins):
            kept[(_numberless(one.path), _numberless(one.name)) if twins else (one.path, one.name)] = one  # the newest speaks for all
    return list(kept.values())


def _has_another(placed: Placed, wanted: str) -> bool:
    """True where a library needs what is called like `wanted` but for its number, and not that itself."""
    return wanted not in placed.elf.needed and any(_numberless(name) == _numberless(wanted) for name in placed.elf.needed)


def _numberless(text: str) -> str:
    return re.sub(r"\d+(?:\.\d+)*", "#", text)
