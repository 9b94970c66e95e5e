"""Lists of conda and pixi: their pip wheels, and the conda packages that decide whether a framework runs.

A conda build is no wheel: its version and CUDA are known, the rest of its content is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement

from cudnn_resolve.errors import InputError, WorldError
from cudnn_resolve.matrix.toml import texts
from cudnn_resolve.package_lists.install_lines import Line, SimulatedInstalls, wheel_at
from cudnn_resolve.package_lists.model import ListedPackage, LooseRequirement, ReadContext, dicts, table

_FRAMEWORKS = {
    "pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch", "libtorch": "torch",
    "tensorflow": "tensorflow", "tensorflow-gpu": "tensorflow", "tensorflow-base": "tensorflow", "tensorflow-cpu": "tensorflow",
    "jax": "jax", "jaxlib": "jaxlib", "mxnet": "mxnet", "onnxruntime": "onnxruntime-gpu", "paddlepaddle-gpu": "paddlepaddle-gpu",
}  # fmt: skip
"""Conda package to the framework in it."""
_SAME = frozenset({"numpy", "protobuf", "keras", "ml-dtypes"})
"""Packages without CUDA whose versions constrain frameworks."""
_META = frozenset({"pytorch-gpu", "pytorch-cpu", "libtorch", "tensorflow-base", "tensorflow-gpu", "tensorflow-cpu"})
"""Companions of the package with the framework's own name: they identify its build, and its version if that package is missing."""
_RUNTIMES = ("cuda-version", "cuda-cudart", "cuda-runtime", "cuda-toolkit", "cudatoolkit", "cuda", "pytorch-cuda")
"""Packages whose version is that of CUDA, most reliable first."""
_CUDNN = ("cudnn", "libcudnn")
_OWN = frozenset({"pytorch", "pytorch-lts", "pytorch-nightly"})
"""Channels in which the maker of the wheels publishes the same builds."""
_CUDA_OF_BUILD = re.compile(r"cuda_?(\d{1,2})\.?(\d)(?:\.\d+)?(?=[_hp.-]|$)")
_CUDNN_OF_BUILD = re.compile(r"cudnn(\d+(?:\.\d+){1,3})")
_ARCHIVE = re.compile(r"(?P<name>[\w.+-]{1,120})-(?P<version>[\w.!+]{1,80})-(?P<build>[\w.+]{1,120})\.(?:conda|tar\.bz2)")
_PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}
_SPEC = re.compile(
    r"(?:(?P<channel>[\w./:-]{1,200})::)?(?P<name>[\w.-]+)(?![\w.-])(?:\[[^\]]*\])?\s*"
    r"(?P<version>(?:[=<>!~]{1,3}\s*)?[^\s=]+)?(?:[\s=]+(?P<build>\S+))?"
)
_LONGEST_SPEC = 500
_DEEPEST = 100
"""Nesting of lists and tables; real files have fewer than ten levels."""
_PIN = re.compile(r"={0,2}\s*(\d[\w.!+]*)")
_CONDA_LIST_HINT = "`conda list` or `conda list --json` in the environment produces a list that can be judged"


class Build(Struct, frozen=True, kw_only=True):
    """One conda package."""

    name: str
    version: str
    build: str = ""
    channel: str = ""


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """Parse YAML with every scalar as a string, so that `3.10` stays what it is; raises InputError if it is invalid."""
    try:
        import yaml
    except ImportError:
        raise WorldError(
            f"reading {where} needs PyYAML",
            code="yaml-missing",
            hint="pip install pyyaml, or install `cudnn-resolve[yaml]`",
        ) from None
    try:
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        _refuse_harmful(yaml.parse(text, Loader=loader))
        found = yaml.load(text, Loader=loader)  # noqa: S506 - it makes texts, lists and tables only
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"cannot parse {where} as YAML: {' '.join(str(error).split())[:200]}", code="list-form") from None
    return table(found)


def _refuse_harmful(events: Iterable[Any]) -> None:
    """Raise ValueError for what no lock needs and what could exhaust a reader: deep nesting, and aliases of whole trees.

    Events arrive one by one at any depth, whereas building trees recurses for each level, in C and without a limit.
    """
    depth, anchors = 0, set[str]()
    for event in events:
        kind = type(event).__name__
        if kind in ("SequenceStartEvent", "MappingStartEvent"):
            depth += 1
            if depth > _DEEPEST:
                raise ValueError(f"more than {_DEEPEST} nested lists and tables")
            if event.anchor is not None:
                anchors.add(event.anchor)
        elif kind in ("SequenceEndEvent", "MappingEndEvent"):
            depth -= 1
        elif kind == "AliasEvent" and event.anchor in anchors:
            raise ValueError(f"the alias *{event.anchor:.40} repeats a whole list or table, which is not supported")


def _text(value: Any) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def read_conda_lock(text: str, context: ReadContext) -> Iterator[ListedPackage]:
    """Packages that `conda-lock install` installs on the platform: the categories main, dev and those selected."""
    found = parse_yaml(text, context.where)
    rows = _of_platform(dicts(found.get("package")), context)
    known = {_text(row.get("category", "main")) for row in rows}
    selection = context.selection
    chosen = {"main", *context.selected((*selection.groups, *selection.extras), known, "category")}
    if selection.defaults:
        chosen.add("dev")
    builds = []
    for row in rows:
        if _text(row.get("category", "main")) not in chosen:
            continue
        if row.get("manager") == "pip":
            yield from context.package(row.get("name"), row.get("version"), texts([_file_name(row.get("url"))]))
        else:
            url = _text(row.get("url"))
            name, version = _text(row.get("name")), _text(row.get("version"))
            builds.append(Build(name=name, version=version, build=_archive(url).build, channel=_channel(url)))
    if left := sorted(known - chosen):
        context.note(f"categories left out: {', '.join(left)}")
    yield from packages_of_builds(builds, context)


def _of_platform(rows: list[dict[str, Any]], context: ReadContext) -> list[dict[str, Any]]:
    """The rows for the platform of the machine; raises InputError if the lock is for other platforms only."""
    wanted = _PLATFORMS.get(context.arch, f"linux-{context.arch}")
    known = sorted({platform for row in rows if isinstance(platform := row.get("platform"), str)})
    if known and wanted not in known:
        raise _wrong_platform(context, wanted, known)
    return [row for row in rows if row.get("platform") == wanted]


def _wrong_platform(context: ReadContext, wanted: str, known: Sequence[str]) -> InputError:
    return InputError(f"{context.where} is not for {wanted}, but for {', '.join(known[:8])}", code="list-platform")


def read_pixi(text: str, context: ReadContext) -> Iterator[ListedPackage]:
    """Packages that `pixi install` installs on the platform: of the environment `default`, or of the selected one."""
    found = parse_yaml(text, context.where)
    version = _text(found.get("version"))
    if version not in ("4", "5", "6", "7"):
        raise InputError(
            f"{context.where} is a pixi.lock of version {version:.20}, which is not supported", code="list-form", hint=_CONDA_LIST_HINT
        )
    environment = _pixi_environment(table(found.get("environments")), context)
    packages = table(environment.get("packages"))
    wanted = _pixi_platform(found, packages, context)
    by_place = {
        _text(row.get("conda") or row.get("pypi") or row.get("url") or row.get("path")): row for row in dicts(found.get("packages"))
    }
    builds = []
    for row in dicts(packages.get(wanted)):
        place = _text(row.get("conda") or row.get("pypi"))
        details = by_place.get(place, {})
        if "conda" in row:
            archive = _archive(place)
            build = replace(
                archive,
                name=_text(details.get("name")) or archive.name,
                version=_text(details.get("version")) or archive.version,
                channel=_channel(place),
            )
            builds.append(build)
            if not build.version:
                context.gap(f"{place[:80]} is built from source: its version is unknown")
        else:
            if not isinstance(details.get("version"), str):
                context.miss_version(_text(details.get("name", place)))
            yield from context.package(details.get("name"), details.get("version"), texts([_file_name(place)]))
    yield from packages_of_builds(builds, context)


def _pixi_environment(environments: dict[str, Any], context: ReadContext) -> dict[str, Any]:
    """The selected environment, else `default`, else the first one."""
    named = [*context.selection.groups, *context.selection.extras]
    if len(named) > 1:
        hint = f"it has {', '.join(environments)}"
        raise InputError("only one environment of a pixi.lock can be judged at a time", code="list-part", hint=hint)
    chosen = next(iter(context.selected(named, environments, "environment")), "default" if "default" in environments else None)
    if chosen is None:
        chosen = next(iter(environments), "default")
    if others := sorted(set(environments) - {chosen}):
        context.note(f"only the environment {chosen} is judged, not {', '.join(others[:12])}")
    return table(environments.get(chosen))


def _pixi_platform(found: dict[str, Any], packages: dict[str, Any], context: ReadContext) -> str:
    """The lock's name for the platform of the machine; since version 7, platforms can have custom names."""
    wanted = _PLATFORMS.get(context.arch, f"linux-{context.arch}")
    custom = (_text(row.get("name")) for row in dicts(found.get("platforms")) if row.get("subdir") == wanted)
    name = next((name for name in (wanted, *custom) if name in packages), wanted)
    if packages and name not in packages:
        raise _wrong_platform(context, wanted, list(packages))
    return name


def read_environment(text: str, context: ReadContext) -> Iterator[ListedPackage]:
    """Packages that `conda env create` is asked for: conda specs, and pip requirements."""
    found = parse_yaml(text, context.where)
    installs = SimulatedInstalls(context)
    specs, lines = found.get("dependencies"), _spec_lines(text)
    read_specs(texts(specs), installs, lines, texts(found.get("channels")))
    for row in dicts(specs):
        requirements = texts(row.get("pip"))  # conda hands them to pip as one requirements file
        installs.install(Line(text.strip(), lines.get(text), None, is_constraint=False) for text in requirements)
    if context.base is None or context.base.python is None:
        context.gap(f"no Python is pinned, so conda chooses one: judged for {context.environment['python_version']}")
    context.partial = True
    yield from installs.packages()


def _spec_lines(text: str) -> dict[str, int]:
    """Spec to its line number."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        found.setdefault(line.strip().removeprefix("-").partition(" #")[0].strip().strip("'\""), number)
    return found


def read_specs(specs: Iterable[str], installs: SimulatedInstalls, lines: Mapping[str, int], channels: Sequence[str] = ()) -> None:
    """Install conda specs: `pytorch=2.5.1=py3.11_cuda12.4_cudnn9.1.0_0`, `conda-forge::numpy >=1.26`."""
    context = installs.context
    builds: list[Build] = []
    open_specs: list[tuple[str, Build, str]] = []
    places: dict[str | None, int | None] = {}
    for text in specs:
        parsed = _SPEC.fullmatch(text.strip()) if len(text) <= _LONGEST_SPEC else None
        if parsed is None:
            context.gap(f"not a conda spec: {text[:60]!r}")
            continue
        name, version = parsed["name"].lower(), (parsed["version"] or "").strip()
        pin = _PIN.fullmatch(version.rstrip("*").rstrip("."))
        channel = parsed["channel"] or next((one for one in channels if one in _OWN), next(iter(channels), ""))
        build = Build(name=name, version=pin[1] if pin else "", build=(parsed["build"] or "").strip("*"), channel=channel)
        wheel = _FRAMEWORKS.get(name, name if name in _SAME else None)
        places.setdefault(wheel, lines.get(text))
        if pin is not None and (wheel is None or build.version.count(".") > 1):
            builds.append(build)
        elif wheel is not None and name not in _META:
            open_specs.append((wheel, build, version))
    for package in packages_of_builds(builds, context):
        installs.pin(replace(package, line=places.get(package.name)))
    variant = f"cu{context.base.cuda.replace('.', '')}" if context.base is not None and context.base.cuda else None
    for wheel, build, version in open_specs:
        variants = (variant,) if variant else ()
        _loosen(installs, LooseRequirement(name=wheel, text=version, line=places.get(wheel), variants=variants), build)


def _loosen(installs: SimulatedInstalls, loose: LooseRequirement, build: Build) -> None:
    """Install a spec whose version conda chooses."""
    limits = f"=={build.version}.*" if build.version else re.sub(r"\s", "", loose.text.split("|")[0])
    try:
        text = str(Requirement(f"{loose.name}{limits}"))
    except (InvalidRequirement, ValueError):
        installs.context.gap(f"not understood: {build.name} {loose.text[:40]}")
        return
    installs.context.gap(f"conda chooses the version of {build.name}: judged as the wheel that an installer would choose")
    installs.loosen(replace(loose, text=text))


def read_json(found: list[Any], context: ReadContext) -> Iterator[ListedPackage]:
    """The output of `conda list --json`."""
    columns = ("name", "version", "build_string", "channel")
    yield from _conda_list((tuple(map(row.get, columns)) for row in dicts(found)), context)


def read_table(text: str, context: ReadContext) -> Iterator[ListedPackage]:
    """The output of `conda list`."""
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    found = ((*row[:2], row[2] if len(row) > 2 else "", row[-1] if len(row) > 2 else "") for row in rows if len(row) > 1)
    yield from _conda_list(found, context)


def read_explicit(text: str, context: ReadContext) -> Iterator[ListedPackage]:
    """The output of `conda list --explicit`: a URL for each package; those of pip are comments."""
    lines = (re.sub(r"^# pip \S{1,200} @ ", "", line).partition("#")[0].strip() for line in text.splitlines())
    builds = []
    for url in (line for line in lines if "://" in line):
        archive = _archive(url)
        if archive.version:
            builds.append(replace(archive, channel=_channel(url)))
        elif _file_name(url).endswith(".whl") and (found := wheel_at(url)):
            yield from context.package(*found, files=(_file_name(url),))
    yield from packages_of_builds(builds, context)


def _conda_list(rows: Iterable[tuple[Any, ...]], context: ReadContext) -> Iterator[ListedPackage]:
    """Pip packages among those of conda, then what the conda packages provide."""
    builds = []
    for name, version, build, channel in rows:
        if channel == "pypi":
            yield from context.package(name, version)
        elif isinstance(name, str) and isinstance(version, str):
            builds.append(Build(name=name, version=version, build=str(build or ""), channel=str(channel or "")))
    yield from packages_of_builds(builds, context)


def _file_name(url: Any) -> str:
    return unquote(str(url or "").partition("#")[0].rpartition("/")[2])


def _archive(url: str) -> Build:
    """Parse the file name of an archive: `pytorch-2.5.1-py3.11_cuda12.4_cudnn9.1.0_0.tar.bz2`."""
    found = _ARCHIVE.fullmatch(_file_name(url))
    return Build(**found.groupdict()) if found else Build(name="", version="")


def _channel(url: str) -> str:
    """The channel in a package URL: `…/conda-forge/linux-64/name-1.0-0.conda`."""
    parts = url.split("/")
    return parts[-3] if len(parts) > 3 else ""


def packages_of_builds(builds: Iterable[Build], context: ReadContext) -> Iterator[ListedPackage]:
    """Frameworks with their CUDA, and packages that constrain them; Python, CUDA and cuDNN become the base environment."""
    by_name = {build.name.lower(): build for build in builds}
    if not by_name:
        return
    runtime = next((by_name[name] for name in _RUNTIMES if name in by_name), None)
    cuda = ".".join(runtime.version.split(".")[:2]) if runtime is not None and runtime.version[:1].isdigit() else None
    cudnn = next((by_name[name].version for name in _CUDNN if name in by_name), None)
    packages, cudnn_of = [], None
    for name, build in by_name.items():
        framework = _FRAMEWORKS.get(name)
        if framework is None or (name in _META and any(_FRAMEWORKS.get(other) == framework for other in by_name.keys() - _META)):
            continue
        companions = [by_name[other] for other in by_name if _FRAMEWORKS.get(other) == framework]
        own_cuda = _cuda_of(companions, cuda)
        cuda = cuda or (own_cuda if own_cuda != "cpu" else None)
        own_cudnn = next((found[1] for found in map(_CUDNN_OF_BUILD.search, (each.build for each in companions)) if found), None)
        if cudnn is None and own_cudnn is not None:  # such a build contains it
            cudnn, cudnn_of = own_cudnn, framework
        channel = None if build.channel.rpartition("/")[2] in _OWN else build.channel or "conda"
        packages += list(context.package(framework, build.version, cuda=own_cuda, channel=channel))
    python = by_name.get("python")
    context.update_base("conda", python=python.version if python else None, cuda=cuda, cudnn=cudnn, cudnn_of=cudnn_of)
    yield from packages
    for name in _SAME & by_name.keys():
        yield from context.package(name, by_name[name].version, channel=by_name[name].channel or "conda")
    context.note(f"conda packages ({len(by_name)}): only frameworks, CUDA, cuDNN and packages that constrain them are judged")


def _cuda_of(builds: Iterable[Build], cuda: str | None) -> str | None:
    """CUDA of a framework's builds: from their build strings, else that of the environment; `cpu`, or None if unknown."""
    names = [build.build for build in builds]
    found = next((found for found in map(_CUDA_OF_BUILD.search, names) if found), None)
    if found is not None:
        return f"{found[1]}.{found[2]}"
    if any(re.search(r"cuda|gpu", name) for name in names) or not any(names):
        return cuda
    return "cpu" if cuda is None or any(re.search(r"cpu|mkl|eigen", name) for name in names) else cuda
