"""Facts of a machine and of one Python environment on it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.facts.model import Facts, Loader, Packages
from cudnn_resolve.host.background import Later
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.probe.python import TargetEnvironment, ask_python, choose_python

if TYPE_CHECKING:
    from cudnn_resolve.probe.toolkit import Compiler


def detect(host: Host, python: str | None, known: Facts | None = None) -> Facts:
    """Detect the facts of a machine and of one interpreter's environment, each with its source.

    `python` is what `--python` says (a path, an environment, a name or a version), None for the default. What could not be asked
    becomes a problem; UsageError or WorldError only where the interpreter itself cannot be used. `known` are facts of this machine from a
    moment ago, since which nothing but the environment has changed: driver, GPUs and rights are not asked again.
    """
    path, how = choose_python(host, python)
    told = Later(lambda: ask_python(host, path, how))
    from cudnn_resolve.probe.cudnn import find_copies  # while the interpreter answers
    from cudnn_resolve.probe.driver import find_driver
    from cudnn_resolve.probe.driver_sources import DriverSources, ask_libraries
    from cudnn_resolve.probe.framework import find_frameworks
    from cudnn_resolve.probe.gpu import find_gpus
    from cudnn_resolve.probe.system import find_root
    from cudnn_resolve.probe.toolkit import find_compiler

    native = Later(lambda: ask_libraries(host)) if known is None else None
    root = Later(lambda: find_root(host)) if known is None else None
    compiler = Later(lambda: find_compiler(host))
    facts, environment = _surroundings(host, told.result(), compiler)
    copies, copy_problems = find_copies(host, environment)
    frameworks, framework_problems = find_frameworks(host, environment, copies)
    if native is None or root is None:
        assert known is not None
        problems = (*facts.problems, *copy_problems, *framework_problems)
        facts = replace(facts, driver=known.driver, gpus=known.gpus, root=known.root, cudnn=copies, frameworks=frameworks)
        sources = {**known.sources, **facts.sources}
        return replace(facts, sources=MappingProxyType(dict(sorted(sources.items()))), problems=problems)
    probe = DriverSources(host, native.result())
    driver, driver_sources, driver_problems = find_driver(probe)
    gpus, gpu_source, gpu_problems = find_gpus(probe, driver)
    may_be_root, root_source = root.result()
    sources = {**facts.sources, **driver_sources, "gpus": gpu_source, "root": root_source}
    problems = (*driver_problems, *gpu_problems, *facts.problems, *copy_problems, *framework_problems)
    return replace(
        facts,
        driver=driver,
        gpus=gpus,
        cudnn=copies,
        frameworks=frameworks,
        root=may_be_root,
        sources=MappingProxyType(dict(sorted(sources.items()))),
        problems=tuple(dict.fromkeys(problems)),
    )


def _surroundings(host: Host, target: TargetEnvironment, compiler: Later[Compiler]) -> tuple[Facts, TargetEnvironment]:
    """Facts that need neither the driver nor cuDNN, and the environment in which to look for the latter."""
    from cudnn_resolve.probe.system import find_apt, find_cache, find_container, find_platform, relevant
    from cudnn_resolve.probe.toolkit import find_toolkits

    platform, sources = find_platform(host, target)
    apt, apt_source, apt_problems = find_apt(host, target.arch)
    cache, cache_problems = find_cache(host, target.arch)
    toolkits = find_toolkits(host, target, apt, compiler.result())
    container, container_source = find_container(host)
    sources |= {
        "python": target.how,
        "packages.apt": apt_source,
        "packages.pip": f"metadata on the import path of {target.python.path}",
        "loader.ldconfig": "/etc/ld.so.cache",
        "cuda_toolkits": toolkits.how,
        "container": container_source,
    }
    facts = Facts(
        platform=platform,
        python=target.python,
        cuda_toolkits=toolkits.toolkits,
        loader=Loader(ld_library_path=target.ld_library_path, ldconfig=relevant(cache)),
        packages=Packages(
            pip=MappingProxyType({one.name: one.version for one in target.distributions}),
            apt=apt,
            requires=MappingProxyType({one.name: one.requires for one in target.distributions if one.requires}),
        ),
        container=container,
        sources=sources,
        problems=(*target.problems, *toolkits.problems, *apt_problems, *cache_problems),
    )
    return facts, replace(target, ldconfig=cache, cuda_directories=toolkits.directories, apt=apt)
