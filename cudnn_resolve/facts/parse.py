"""Decoded JSON to `Facts`: one function for each object of a facts file."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import TypeVar

from cudnn_resolve.facts.model import (
    UNKNOWN,
    CudnnCopy,
    Driver,
    Facts,
    Gpu,
    InstalledFramework,
    Loader,
    Packages,
    Platform,
    Problem,
    Python,
    Toolkit,
    Unknown,
    WouldLoad,
)
from cudnn_resolve.facts.reader import Reader

T = TypeVar("T")

SCHEMA = "cudnn-resolve/detect/1"
_SOURCES = ("apt", "runfile", "conda", "pip", "other")
_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
_SEPARATORS = re.compile(r"[-_.]+")
_PYTHON = re.compile(r"[1-9]\d?\.\d{1,3}(?!\d)")


def parse_facts(top: Reader) -> Facts:
    """The facts that the object under `top` states; what is wrong goes to the faults of the reader, and is unknown in the answer."""
    if not _schema_fits(top):
        return Facts()
    none = Reader({}, "", [])
    packages = top.inner("packages")
    sources = top.inner("sources")
    return Facts(
        platform=_platform(top.inner("platform") or none),
        python=_python(top.inner("python") or none),
        driver=_driver(top),
        gpus=_each(top, "gpus", _gpu),
        cuda_toolkits=_each(top, "cuda_toolkits", _toolkit),
        cudnn=_each(top, "cudnn", _cudnn),
        frameworks=_each(top, "frameworks", _installed),
        loader=_loader(top),
        packages=Packages() if packages is None else _read_packages(packages),
        container=_container(top),
        root=top.flag("root"),
        sources=MappingProxyType({} if sources is None else _texts_by_name(sources)),
        problems=tuple(Problem(what=row.text("what") or "", why=row.text("why") or "") for row in top.rows("problems") or ()),
        note=top.text("note"),
    )


def _schema_fits(top: Reader) -> bool:
    schema = top.text("schema")
    if schema is None or schema == SCHEMA:
        return True
    if schema.startswith("cudnn-resolve/") and not schema.startswith("cudnn-resolve/detect/"):
        top.fault("schema", f"this is the output of another command ({schema[:60]!a}), not facts; its `facts` object may be some")
    else:
        top.fault("schema", f"expected {SCHEMA!r}, found {schema[:60]!a}: facts of another format than this program reads")
    return False


def _each(top: Reader, key: str, build: Callable[[Reader], T | None]) -> tuple[T, ...] | Unknown:
    """The rows of a list, those left out that are faulty; UNKNOWN where the list is not there."""
    rows = top.rows(key)
    return UNKNOWN if rows is None else tuple(row for row in map(build, rows) if row is not None)


def _platform(row: Reader) -> Platform:
    arch = row.name("arch")
    return Platform(
        system=row.name("system"),
        arch=None if arch is None else _ARCHITECTURES.get(arch.lower(), arch),
        distribution=row.name("distribution"),
        release=row.name("release"),
        glibc=row.dotted("glibc"),
    )


def _python(row: Reader) -> Python:
    return Python(
        version=row.parsed("version", _python_version),
        path=row.path("path"),
        implementation=row.name("implementation"),
        externally_managed=row.flag("externally_managed"),
        prefix=row.path("prefix"),
        free_threaded=row.flag("free_threaded"),
    )


def _python_version(text: str) -> None:
    if not _PYTHON.match(text):
        raise ValueError(f"{text!a} is not a Python version such as 3.11 or 3.11.13")


def _driver(top: Reader) -> Driver | Unknown | None:
    if "driver" not in top:
        return UNKNOWN
    if top.is_null("driver"):
        return None
    row = top.inner("driver")
    if row is None:
        return UNKNOWN
    return Driver(version=row.dotted("version"), cuda=row.dotted("cuda"), kernel_module=row.dotted("kernel_module"))


def _gpu(row: Reader) -> Gpu:
    return Gpu(
        name=row.name("name"),
        compute_capability=row.capability("compute_capability"),
        memory_mib=row.number("memory_mib", last=1 << 30),
        uuid=row.name("uuid"),
        hidden=row.flag("hidden") or False,
    )


def _source(row: Reader) -> str:
    found = row.name("source")
    if found is not None and found not in _SOURCES:
        row.fault("source", f"expected one of {', '.join(_SOURCES)}, found {found[:60]!a}")
    return found or "other"


def _toolkit(row: Reader) -> Toolkit:
    return Toolkit(version=row.dotted("version"), path=row.path("path"), source=_source(row))


def _cudnn(row: Reader) -> CudnnCopy:
    return CudnnCopy(
        version=row.dotted("version"),
        soname=row.number("soname", last=999),
        cuda=row.dotted("cuda"),
        path=row.path("path"),
        source=_source(row),
        complete=row.flag("complete"),
        parts=row.texts("parts") if "parts" in row and not row.is_null("parts") else None,
        owner=row.name("owner"),
        problems=row.texts("problems") or () if "problems" in row else (),
    )


def _installed(row: Reader) -> InstalledFramework | None:
    name, version = row.name("name"), row.name("version")
    for key in ("name", "version"):
        if key not in row or row.is_null(key):
            row.fault(key, "is missing")
    if name is None or version is None:
        return None
    load = None if row.is_null("would_load") else row.inner("would_load")
    return InstalledFramework(
        name=_normalized(name),
        version=version,
        variant=row.name("variant"),
        cuda_built=row.dotted("cuda_built"),
        cudnn_built=row.dotted("cudnn_built"),
        would_load=None if load is None else _would_load(load),
    )


def _would_load(row: Reader) -> WouldLoad:
    copy = None if row.is_null("cudnn") else row.inner("cudnn")
    return WouldLoad(
        version=None if copy is None else copy.dotted("version"),
        path=None if copy is None else copy.path("path"),
        because=row.text("because") or "",
    )


def _loader(top: Reader) -> Loader | Unknown:
    row = top.inner("loader")
    return UNKNOWN if row is None else Loader(ld_library_path=row.texts("ld_library_path") or (), ldconfig=row.texts("ldconfig") or ())


def _container(top: Reader) -> str | Unknown | None:
    if "container" not in top:
        return UNKNOWN
    row = None if top.is_null("container") else top.inner("container")
    return None if row is None else row.name("kind")


def _read_packages(row: Reader) -> Packages:
    pip, apt, requires = row.inner("pip"), row.inner("apt"), row.inner("requires")
    lines = {} if requires is None else {_normalized(name): requires.texts(name) or () for name in requires.items()}
    return Packages(
        pip=UNKNOWN if pip is None else MappingProxyType(_pip(pip)),
        apt=UNKNOWN if apt is None else MappingProxyType(_versions(apt)),
        requires=MappingProxyType(lines),
    )


def _pip(row: Reader) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, version in _versions(row).items():
        normalized = _normalized(name)
        if found.setdefault(normalized, version) != version:
            row.fault(name, f"the same package as another entry (both are {normalized!r}), with another version")
    return found


def _versions(row: Reader) -> dict[str, str]:
    found = {}
    for name in row.items():
        version = row.name(name)
        if version is not None:
            found[name] = version
        elif row.is_null(name):
            row.fault(name, "expected text, found null")
    return found


def _texts_by_name(row: Reader) -> dict[str, str]:
    return {name: text for name in row.items() if (text := row.text(name)) is not None}


def _normalized(name: str) -> str:
    """A distribution name as packages are compared by; source: PEP 503."""
    return _SEPARATORS.sub("-", name).lower()
