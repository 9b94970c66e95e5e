"""A made-up machine with libraries that can be read: wheels, directories of cuDNN, an interpreter, and what asked libraries say."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cudnn_resolve.facts.cudnn_files import parts_of
from cudnn_resolve.facts.ldconfig import CacheEntry
from cudnn_resolve.facts.model import UNKNOWN, InstalledFramework, Problem, Python, Unknown
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.probe.cudnn import find_copies
from cudnn_resolve.probe.loader import DynamicLoader
from cudnn_resolve.probe.python import Distribution, TargetEnvironment
from cudnn_resolve.probe.would_load import find_frameworks
from cudnn_resolve.version import CudnnVersion
from tests.elf_writer import write_elf
from tests.fake_host import FakeHost
from tests.loader_double import Trace

SITE = "/venv/lib/python3.11/site-packages"
WHEEL = f"{SITE}/nvidia/cudnn/lib"
LOADER = "/lib64/ld-linux-x86-64.so.2"
MARK = "cudnn-resolve-answer "

Files = dict[str, str | bytes]


def cudnn_files(
    directory: str,
    version: str,
    *,
    parts: Iterable[str] | None = None,
    library: bool = True,
    needs: Mapping[str, Sequence[str]] | None = None,
    size: int = 0,
    **tags: Any,
) -> Files:
    """The libraries of a release as a wheel has them; `tags` are those of libcudnn itself, without any it has RUNPATH $ORIGIN."""
    release = CudnnVersion(version)
    major = release.major
    files: Files = {}
    if library:
        files[f"{directory}/libcudnn.so.{major}"] = write_elf(f"libcudnn.so.{major}", **(tags or {"runpath": "$ORIGIN"}))
    for part in parts_of(release) if parts is None else parts:
        name = f"libcudnn_{part}.so.{major}"
        files[f"{directory}/{name}"] = write_elf(name, (needs or {}).get(part, ()), runpath="$ORIGIN:$ORIGIN/../../cublas/lib")
    return {path: bytes(content) + bytes(size) if isinstance(content, bytes) else content for path, content in files.items()}


def record_of(files: Files, name: str, version: str) -> tuple[Distribution, Files]:
    """A wheel's distribution and its RECORD over those of its files that lie below site-packages."""
    metadata = f"{SITE}/{name.replace('-', '_')}-{version}.dist-info"
    lines = [f"{path.removeprefix(f'{SITE}/')},sha256=x,{len(content)}" for path, content in files.items() if path.startswith(SITE)]
    return distribution(name, version), {f"{metadata}/RECORD": "\n".join(lines)}


def distribution(name: str, version: str, *requires: str) -> Distribution:
    metadata = f"{SITE}/{name.replace('-', '_')}-{version}.dist-info"
    return Distribution(name=name, version=version, location=SITE, metadata=metadata, requires=requires)


def environment_of(
    *distributions: Distribution,
    library_path: tuple[str, ...] = (),
    cache: Mapping[str, str] | None = None,
    cuda: tuple[str, ...] = (),
    apt: Mapping[str, str] | Unknown = UNKNOWN,
    prefix: str = "/venv",
    arch: str = "x86_64",
) -> TargetEnvironment:
    return TargetEnvironment(
        python=Python(version="3.11.9", path=f"{prefix}/bin/python"),
        prefix=prefix,
        site_packages=(SITE,),
        distributions=distributions,
        ld_library_path=library_path,
        ldconfig=tuple(CacheEntry(name=name, path=path, arch=arch) for name, path in (cache or {}).items()),
        cuda_directories=cuda,
        apt=apt,
        arch=arch,
    )


class TreeHost(FakeHost):
    """A host that understands `..`, which search paths of wheels are full of, and whose loader can be asked."""

    cache: Mapping[str, str] = MappingProxyType({})
    """The linker cache of its loader."""

    def run(self, argv: Sequence[str], **options: Any) -> CommandResult:
        if argv[0] == "env":
            return Trace(self, self.cache, tuple(argv)).run()
        return super().run(argv, **options)

    def realpath(self, path: str) -> str:
        return os.path.normpath(super().realpath(os.path.normpath(path)))


def machine(files: Mapping[str, str | bytes], said: Mapping[str, Mapping[str, Any]] | None = None, **more: Any) -> FakeHost:
    """A host with these files and an interpreter; `said` is what a library at a path, or the module of a framework, answers."""
    base: Files = {"/venv/bin/python": write_elf(interpreter=LOADER), "/usr/bin/env": write_elf(interpreter=LOADER)}
    return TreeHost({**base, **files}, programs=answering(said or {}), **more)


def answering(said: Mapping[str, Mapping[str, Any]]) -> Callable[[tuple[str, ...]], CommandResult | None]:
    """Programs: the child that asks copies of cuDNN, and the one that asks a framework."""

    def run(argv: tuple[str, ...]) -> CommandResult | None:
        if not argv[-3].endswith("payload_library.py"):
            return None
        if argv[-2] == "cudnn":
            question = json.loads(argv[-1])
            answer: object = {"answers": {path: said[path] for path in question["libraries"] if path in said}}
        elif argv[-2] == "module":
            answer = said.get(json.loads(argv[-1])["module"], {})
        else:
            return None
        return CommandResult(returncode=0, stdout=f"noise\n{MARK}{json.dumps(answer)}\n")

    return run


def tells(version: int, cuda: int = 12040, **checks: int) -> dict[str, Any]:
    """What a healthy library answers."""
    return {"loaded": True, "version": version, "cuda": cuda, "checks": checks, "done": True, "ended": "exit", "said": ""}


# --- frameworks ---

Found = tuple[InstalledFramework, tuple[Problem, ...]]


def look(host: FakeHost, *distributions: Distribution, **more: Any) -> Found:
    """The only framework, and what is wrong with it."""
    environment = environment_of(*distributions, **more)
    if isinstance(host, TreeHost):
        host.cache = more.get("cache") or {}
    loader = DynamicLoader(host, environment)
    copies, _ = find_copies(loader)
    frameworks, problems = find_frameworks(loader, copies)
    assert len(frameworks) == 1, frameworks
    return frameworks[0], problems


def loaded(found: Found) -> tuple[str | None, str | None, str]:
    """Version, path and reason of what would be loaded."""
    would = found[0].would_load
    assert would is not None
    return would.version, would.path, would.because


def whys(found: Found) -> list[str]:
    return [problem.why for problem in found[1]]


def wheel(version: str, build: str, cuda: int = 12) -> tuple[Distribution, Files]:
    """NVIDIA's wheel in the environment."""
    files = cudnn_files(WHEEL, version)
    one, record = record_of(files, f"nvidia-cudnn-cu{cuda}", f"{version}.{build}")
    return one, {**files, **record}
