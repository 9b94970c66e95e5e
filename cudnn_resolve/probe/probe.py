"""Facts of a machine and of one Python environment on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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

    `python` is the value of `--python` (a path, an environment, a name or a version), None for the default. Unanswered questions become
    problems; UsageError or WorldError are raised only if the interpreter itself cannot be used. `known` are facts detected a moment ago on
    this machine, of which only the environment has changed since: driver, GPUs and rights are not asked again.
    """
    path, how = choose_python(host, python)
    target = Later(lambda: ask_python(host, path, how))
    # These imports run while the interpreter answers.
    from cudnn_resolve.probe.cudnn import find_copies
    from cudnn_resolve.probe.loader import DynamicLoader
    from cudnn_resolve.probe.toolkit import find_compiler
    from cudnn_resolve.probe.would_load import find_frameworks

    machine: Callable[[], Facts] = _later_machine(host) if known is None else partial(replace, known, problems=())
    compiler = Later(lambda: find_compiler(host))
    facts, environment = _surroundings(host, target.result(), compiler)
    loader = DynamicLoader(host, environment)
    copies, copy_problems = find_copies(loader)
    frameworks, framework_problems = find_frameworks(loader, copies)
    found = machine()
    return replace(
        facts,
        driver=found.driver,
        gpus=found.gpus,
        root=found.root,
        cudnn=copies,
        frameworks=frameworks,
        sources=MappingProxyType(dict(sorted({**found.sources, **facts.sources}.items()))),
        problems=tuple(dict.fromkeys((*found.problems, *facts.problems, *copy_problems, *framework_problems))),
    )


def _later_machine(host: Host) -> Callable[[], Facts]:
    """Start to ask the driver's libraries and sudo; the result waits for them and gives driver, GPUs and rights."""
    from cudnn_resolve.probe.driver import find_driver
    from cudnn_resolve.probe.driver_sources import DriverSources, ask_libraries
    from cudnn_resolve.probe.gpu import find_gpus
    from cudnn_resolve.probe.system import find_root

    libraries, root = Later(lambda: ask_libraries(host)), Later(lambda: find_root(host))

    def finish() -> Facts:
        probe = DriverSources(host, *libraries.result())
        driver, driver_sources, driver_problems = find_driver(probe)
        gpus, gpu_source, gpu_problems = find_gpus(probe, driver)
        may_be_root, root_source = root.result()
        sources = {**driver_sources, "gpus": gpu_source, "root": root_source}
        problems = (*driver_problems, *gpu_problems)
        return Facts(driver=driver, gpus=gpus, root=may_be_root, sources=sources, problems=problems)

    return finish


def _surroundings(host: Host, target: TargetEnvironment, compiler: Later[Compiler]) -> tuple[Facts, TargetEnvironment]:
    """Facts that need neither driver nor cuDNN, and the environment in which to look for cuDNN."""
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
            pip=MappingProxyType({distribution.name: distribution.version for distribution in target.distributions}),
            apt=apt,
            requires=MappingProxyType(
                {distribution.name: distribution.requires for distribution in target.distributions if distribution.requires}
            ),
        ),
        container=container,
        sources=sources,
        problems=(*target.problems, *toolkits.problems, *apt_problems, *cache_problems),
    )
    return facts, replace(target, ldconfig=cache, cuda_directories=toolkits.directories, apt=apt)
