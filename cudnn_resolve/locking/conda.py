"""Lists of conda and pixi: the wheels among their packages, and what of conda's own decides whether a framework runs.

A build of conda is no wheel: its version and its CUDA are taken from it, and what else is in it is not known.
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
from cudnn_resolve.locking.install_lines import Installs, Line, wheel_at
from cudnn_resolve.locking.listing import Listed, Loose, Reading, dicts, table
from cudnn_resolve.matrix.toml import texts

_FRAMEWORKS = {
    "pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch", "libtorch": "torch",
    "tensorflow": "tensorflow", "tensorflow-gpu": "tensorflow", "tensorflow-base": "tensorflow", "tensorflow-cpu": "tensorflow",
    "jax": "jax", "jaxlib": "jaxlib", "mxnet": "mxnet", "onnxruntime": "onnxruntime-gpu", "paddlepaddle-gpu": "paddlepaddle-gpu",
}  # fmt: skip
"""Frameworks by the names that they have in channels of conda."""
_SAME = frozenset({"numpy", "protobuf", "keras", "ml-dtypes"})
"""Packages whose versions bind frameworks, and which have no CUDA."""
_META = frozenset({"pytorch-gpu", "pytorch-cpu", "libtorch", "tensorflow-base", "tensorflow-gpu", "tensorflow-cpu"})
"""Packages beside the one that has the name of the framework: they tell the build, and where that one is missing the version."""
_RUNTIMES = ("cuda-version", "cuda-cudart", "cuda-runtime", "cuda-toolkit", "cudatoolkit", "cuda", "pytorch-cuda")
"""Packages whose version is that of CUDA, the surest first."""
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
"""Levels of lists and tables; real files have fewer than ten."""
_PIN = re.compile(r"={0,2}\s*(\d[\w.!+]*)")


class Build(Struct, frozen=True, kw_only=True):
    """One package of conda's own."""

    name: str
    version: str
    build: str = ""
    channel: str = ""


def yaml_of(text: str, where: str) -> dict[str, Any]:
    """The tables of a text with every scalar as a text, so that `3.10` stays what it is; InputError where it is no YAML."""
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
        raise InputError(f"{where} is not YAML that can be read: {' '.join(str(error).split())[:200]}", code="list-form") from None
    return table(found)


def _refuse_harmful(events: Iterable[Any]) -> None:
    """Refuse, with ValueError, what no lock needs and what harms a reader of it: endless depth, and trees that are shared.

    The events come one after the other, whatever the depth; what builds trees of them calls itself for each level, in C without a limit.
    """
    depth, trees = 0, set[str]()
    for event in events:
        kind = type(event).__name__
        if kind in ("SequenceStartEvent", "MappingStartEvent"):
            depth += 1
            if depth > _DEEPEST:
                raise ValueError(f"it nests more than {_DEEPEST} lists and tables")
            if event.anchor is not None:
                trees.add(event.anchor)
        elif kind in ("SequenceEndEvent", "MappingEndEvent"):
            depth -= 1
        elif kind == "AliasEvent" and event.anchor in trees:
            raise ValueError(f"the alias *{event.anchor:.40} repeats a whole list or table, which is not followed")


def _text(value: Any) -> str:
    """The text; an empty one where it is none."""
    return value if isinstance(value, str) else ""


def read_conda_lock(text: str, reading: Reading) -> Iterator[Listed]:
    """What `conda-lock install` installs on the platform: its categories main and dev, and those that are named."""
    found = yaml_of(text, reading.where)
    rows = _of_platform(dicts(found.get("package")), reading)
    known = {_text(one.get("category", "main")) for one in rows}
    chosen = {"main", *reading.chosen((*reading.choice.groups, *reading.choice.extras), known, "category")}
    chosen |= {"dev"} if reading.choice.defaults else set()
    builds = []
    for one in rows:
        if _text(one.get("category", "main")) not in chosen:
            continue
        if one.get("manager") == "pip":
            yield from reading.row(one.get("name"), one.get("version"), texts([_end(one.get("url"))]))
        else:
            url = _text(one.get("url"))
            builds.append(
                Build(name=_text(one.get("name")), version=_text(one.get("version")), build=_archive(url).build, channel=_channel(url))
            )
    if left := sorted(known - chosen):
        reading.note(f"categories that are left out: {', '.join(left)}")
    yield from judged(builds, reading)


def _of_platform(rows: list[dict[str, Any]], reading: Reading) -> list[dict[str, Any]]:
    """The rows for the platform of the machine; InputError where the lock is for others alone."""
    wanted = _PLATFORMS.get(reading.arch, f"linux-{reading.arch}")
    known = sorted({platform for one in rows if isinstance(platform := one.get("platform"), str)})
    if known and wanted not in known:
        raise InputError(f"{reading.where} is not for {wanted}: it is for {', '.join(known[:8])}", code="list-platform")
    return [one for one in rows if one.get("platform") == wanted]


def read_pixi(text: str, reading: Reading) -> Iterator[Listed]:
    """What `pixi install` installs on the platform: the environment `default`, or the one that is named."""
    found = yaml_of(text, reading.where)
    version = _text(found.get("version"))
    if version not in ("4", "5", "6", "7"):
        raise InputError(f"{reading.where} is a pixi.lock of version {version:.20}, which is not read", code="list-form", hint=_LIST_HINT)
    environments = table(found.get("environments"))
    named = [*reading.choice.groups, *reading.choice.extras]
    if len(named) > 1:
        raise InputError("of a pixi.lock one environment is judged at a time", code="list-part", hint=f"it has {', '.join(environments)}")
    chosen = next(iter(reading.chosen(named, environments, "environment")), "default" if "default" in environments else None)
    if chosen is None:
        chosen = next(iter(environments), "default")
    if others := sorted(set(environments) - {chosen}):
        reading.note(f"the environment {chosen} is judged; not {', '.join(others[:12])}")
    packages = table(table(environments.get(chosen)).get("packages"))
    wanted = _pixi_platform(found, packages, reading)
    places = {_text(one.get("conda") or one.get("pypi") or one.get("url") or one.get("path")): one for one in dicts(found.get("packages"))}
    builds = []
    for one in dicts(packages.get(wanted)):
        place = _text(one.get("conda") or one.get("pypi"))
        more = places.get(place, {})
        if "conda" in one:
            archive = _archive(place)
            version = _text(more.get("version")) or archive.version
            builds.append(
                Build(name=_text(more.get("name")) or archive.name, version=version, build=archive.build, channel=_channel(place))
            )
            if not version:
                reading.gap(f"{place[:80]} is built from source: its version is not known")
        else:
            if not isinstance(more.get("version"), str):
                reading.gap(f"{_text(more.get('name', place)):.60} has no version in the lock: it comes from a folder or a repository")
            yield from reading.row(more.get("name"), more.get("version"), texts([_end(place)]))
    yield from judged(builds, reading)


def _pixi_platform(found: dict[str, Any], packages: dict[str, Any], reading: Reading) -> str:
    """The lock's name for the platform of the machine; since version 7 platforms may have names of their own."""
    wanted = _PLATFORMS.get(reading.arch, f"linux-{reading.arch}")
    own = (_text(one.get("name")) for one in dicts(found.get("platforms")) if one.get("subdir") == wanted)
    named = next((name for name in (wanted, *own) if name in packages), wanted)
    if packages and named not in packages:
        raise InputError(f"{reading.where} is not for {wanted}: it is for {', '.join(list(packages)[:8])}", code="list-platform")
    return named


_LIST_HINT = "`conda list` or `conda list --json` in the environment gives a list that is read"


def read_environment(text: str, reading: Reading) -> Iterator[Listed]:
    """What `conda env create` is asked for: specs of conda, and requirements of pip."""
    found = yaml_of(text, reading.where)
    installs = Installs(reading)
    specs, lines = found.get("dependencies"), _spec_lines(text)
    read_specs(texts(specs), installs, lines, texts(found.get("channels")))
    for one in dicts(specs):
        asked = texts(one.get("pip"))  # conda hands them to pip as one requirements file
        installs.take(Line(text.strip(), lines.get(text), None, is_limit=False) for text in asked)
    if reading.base is None or reading.base.python is None:
        reading.gap(f"it pins no Python, so conda chooses one: judged for {reading.environment['python_version']}")
    reading.partial = True
    yield from installs.rows()


def _spec_lines(text: str) -> dict[str, int]:
    """Where each spec stands."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        found.setdefault(line.strip().removeprefix("-").partition(" #")[0].strip().strip("'\""), number)
    return found


def read_specs(specs: Iterable[str], installs: Installs, lines: Mapping[str, int], channels: Sequence[str] = ()) -> None:
    """Take specs of conda: `pytorch=2.5.1=py3.11_cuda12.4_cudnn9.1.0_0`, `conda-forge::numpy >=1.26`."""
    builds: list[Build] = []
    open_ones: list[tuple[str, Build, str]] = []
    places: dict[str | None, int | None] = {}
    for text in specs:
        parsed = _SPEC.fullmatch(text.strip()) if len(text) <= _LONGEST_SPEC else None
        if parsed is None:
            installs.reading.gap(f"no spec of conda: {text[:60]!r}")
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
            open_ones.append((wheel, build, version))
    for row in judged(builds, installs.reading):
        installs.put(replace(row, line=places.get(row.name)))
    base = installs.reading.base
    variant = f"cu{base.cuda.replace('.', '')}" if base is not None and base.cuda else None
    for wheel, build, version in open_ones:
        _loosen(installs, Loose(name=wheel, text=version, line=places.get(wheel), variants=(variant,) if variant else ()), build)


def _loosen(installs: Installs, loose: Loose, build: Build) -> None:
    """Take a spec that leaves the version to conda."""
    limits = f"=={build.version}.*" if build.version else re.sub(r"\s", "", loose.text.split("|")[0])
    try:
        text = str(Requirement(f"{loose.name}{limits}"))
    except (InvalidRequirement, ValueError):
        installs.reading.gap(f"not understood: {build.name} {loose.text[:40]}")
        return
    installs.reading.gap(f"conda chooses the version of {build.name}: judged as the wheel that an installer would choose")
    installs.loosen(replace(loose, text=text))


def read_json(found: list[Any], reading: Reading) -> Iterator[Listed]:
    """The output of `conda list --json`."""
    columns = ("name", "version", "build_string", "channel")
    yield from _list((tuple(map(one.get, columns)) for one in dicts(found)), reading)


def read_table(text: str, reading: Reading) -> Iterator[Listed]:
    """The output of `conda list`."""
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    found = ((*row[:2], row[2] if len(row) > 2 else "", row[-1] if len(row) > 2 else "") for row in rows if len(row) > 1)
    yield from _list(found, reading)


def read_explicit(text: str, reading: Reading) -> Iterator[Listed]:
    """The output of `conda list --explicit`: an address for each package; those of pip stand in comments."""
    lines = (re.sub(r"^# pip \S{1,200} @ ", "", line).partition("#")[0].strip() for line in text.splitlines())
    addresses = [line for line in lines if "://" in line]
    builds = []
    for address in addresses:
        archive = _archive(address)
        if archive.version:
            builds.append(replace(archive, channel=_channel(address)))
        elif _end(address).endswith(".whl") and (found := wheel_at(address)):
            yield from reading.row(*found, files=(_end(address),))
    yield from judged(builds, reading)


def _list(rows: Iterable[tuple[Any, ...]], reading: Reading) -> Iterator[Listed]:
    """The wheels of pip among those of conda, then what conda's own tell."""
    builds = []
    for name, version, build, channel in rows:
        if channel == "pypi":
            yield from reading.row(name, version)
        elif isinstance(name, str) and isinstance(version, str):
            builds.append(Build(name=name, version=version, build=str(build or ""), channel=str(channel or "")))
    yield from judged(builds, reading)


def _end(place: Any) -> str:
    return unquote(str(place or "").partition("#")[0].rpartition("/")[2])


def _archive(url: str) -> Build:
    """What the name of an archive tells: `pytorch-2.5.1-py3.11_cuda12.4_cudnn9.1.0_0.tar.bz2`."""
    found = _ARCHIVE.fullmatch(_end(url))
    return Build(**found.groupdict()) if found else Build(name="", version="")


def _channel(url: str) -> str:
    """The channel in an address of a package: `…/conda-forge/linux-64/name-1.0-0.conda`."""
    parts = url.split("/")
    return parts[-3] if len(parts) > 3 else ""


def judged(builds: Iterable[Build], reading: Reading) -> Iterator[Listed]:
    """What of conda's own packages decides: the frameworks, each with its CUDA, what binds them, and Python, CUDA and cuDNN as a base."""
    by_name = {one.name.lower(): one for one in builds}
    if not by_name:
        return
    runtime = next((by_name[name] for name in _RUNTIMES if name in by_name), None)
    cuda = ".".join(runtime.version.split(".")[:2]) if runtime is not None and runtime.version[:1].isdigit() else None
    cudnn = next((by_name[name].version for name in _CUDNN if name in by_name), None)
    rows, inside = [], None
    for name, one in by_name.items():
        framework = _FRAMEWORKS.get(name)
        if framework is None or (name in _META and any(_FRAMEWORKS.get(other) == framework for other in by_name.keys() - _META)):
            continue
        same = [by_name[other] for other in by_name if _FRAMEWORKS.get(other) == framework]
        own = _cuda_of(same, cuda)
        cuda = cuda or (own if own != "cpu" else None)
        own_cudnn = next((found[1] for found in map(_CUDNN_OF_BUILD.search, (each.build for each in same)) if found), None)
        if cudnn is None and own_cudnn is not None:  # such a build holds it among its own libraries
            cudnn, inside = own_cudnn, framework
        channel = None if one.channel.rpartition("/")[2] in _OWN else one.channel or "conda"
        rows += list(reading.row(framework, one.version, cuda=own, channel=channel))
    python = by_name.get("python")
    reading.on("conda", python=python.version if python else None, cuda=cuda, cudnn=cudnn, cudnn_of=inside)
    yield from rows
    for name in _SAME & by_name.keys():
        yield from reading.row(name, by_name[name].version, channel=by_name[name].channel or "conda")
    reading.note(f"{len(by_name)} packages of conda itself: judged are frameworks, CUDA, cuDNN and what binds them")


def _cuda_of(builds: Iterable[Build], cuda: str | None) -> str | None:
    """The CUDA of a framework's build: `cpu` where it says so, else what its name tells, else that of the environment; None = not told."""
    names = [one.build for one in builds]
    found = next((found for found in map(_CUDA_OF_BUILD.search, names) if found), None)
    if found is not None:
        return f"{found[1]}.{found[2]}"
    if any(re.search(r"cuda|gpu", name) for name in names) or not any(names):
        return cuda
    return "cpu" if cuda is None or any(re.search(r"cpu|mkl|eigen", name) for name in names) else cuda
