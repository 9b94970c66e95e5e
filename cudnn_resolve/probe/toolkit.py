"""CUDA toolkits, and the runtime parts of one that packages bring."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from msgspec import Struct

from cudnn_resolve.facts.model import Problem, Source, Toolkit
from cudnn_resolve.host.protocol import Host, is_dir, is_file, which
from cudnn_resolve.probe.python import TargetEnvironment
from cudnn_resolve.version import CudaVersion

_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR")
_HEADER_BYTES = 1 << 16
"""The version stands in the first quarter of cuda_runtime_api.h, which is long."""
_NVCC_SECONDS = 10.0


class Toolkits(Struct, frozen=True, kw_only=True):
    """What was found."""

    toolkits: tuple[Toolkit, ...]
    """Directories first, then parts from apt, conda and pip that lie elsewhere."""
    directories: tuple[str, ...]
    """Roots of the directories, links resolved."""
    how: str
    problems: tuple[Problem, ...]


Compiler = tuple[str | None, CudaVersion | None]
"""Root of the toolkit whose nvcc is on PATH and, where it had to be run, its version; None, None without one."""


def find_toolkits(host: Host, target: TargetEnvironment, apt: Mapping[str, str], on_path: Compiler) -> Toolkits:
    """Find CUDA toolkits: below /usr/local, named by variables or nvcc, and the parts from apt, conda and pip."""
    roots, aliases, problems = _directories(host)
    compiler, version = on_path
    if compiler is not None and compiler not in roots:
        roots.append(compiler)
        aliases.setdefault(compiler, []).append("nvcc on PATH")
    found = [Toolkit(version=_text(_version(host, root, compiler, version)), path=root, source=_source(host, root, apt)) for root in roots]
    found += _apt_parts(apt, found)
    found += _conda_parts(host, target.prefix, found)
    found += _pip_parts(host, target)
    told = [f"{root} (also {', '.join(names)})" if names else root for root in roots for names in [aliases.get(root, [])]]
    others = sorted({toolkit.source for toolkit in found if toolkit.path not in roots})
    how = "; ".join(told + [f"{source} packages" for source in others]) or "no directory and no package"
    return Toolkits(toolkits=tuple(found), directories=tuple(roots), how=how, problems=tuple(problems))


def _directories(host: Host) -> tuple[list[str], dict[str, list[str]], list[Problem]]:
    """Roots of toolkits with links resolved, other names of each, and problems of variables that lead nowhere."""
    named = [(f"/usr/local/{name}", f"/usr/local/{name}") for name in host.list_dir("/usr/local") if name.startswith("cuda")]
    named += [(path, path) for path in ("/opt/cuda", "/usr/lib/cuda")]
    named += [(host.environ[name].rstrip("/"), name) for name in _VARIABLES if host.environ.get(name)]
    roots: list[str] = []
    aliases: dict[str, list[str]] = {}
    problems: list[Problem] = []
    for path, name in named:
        real = host.realpath(path)
        if not _is_toolkit(host, real):
            if name in _VARIABLES:
                problems.append(Problem(what=name, why=f"is {path}, where there is no CUDA toolkit"))
            continue
        if real not in roots:
            roots.append(real)
        if name != real:
            aliases.setdefault(real, []).append(name)
    return roots, aliases, problems


def _is_toolkit(host: Host, root: str) -> bool:
    """True for a directory with the compiler, headers or the runtime library of CUDA in it."""
    if not is_dir(host, root):
        return False
    signs = ("version.json", "version.txt", "bin/nvcc", "include/cuda_runtime_api.h")
    runtimes = (name for folder in ("lib64", "lib") for name in host.list_dir(f"{root}/{folder}") if name.startswith("libcudart.so."))
    return any(is_file(host, f"{root}/{sign}") for sign in signs) or any(runtimes)


def find_compiler(host: Host) -> Compiler:
    """Find the toolkit whose nvcc is on PATH.

    A wrapper script is asked for the compiler behind it with `--dryrun`, which runs nothing.
    """
    program = which(host, "nvcc")
    if program is None:
        return None, None
    root = _root_of(host.realpath(program))
    if root and _is_toolkit(host, root) and host.read_bytes(program, 0, 2) != b"#!":
        return root, None
    result = host.run([program, "--dryrun", "-E", "-x", "cu", "/dev/null"], timeout_seconds=_NVCC_SECONDS)
    home, version = parse_nvcc_dryrun(result.stderr + result.stdout)
    if version is None:
        version = parse_nvcc(host.run([program, "--version"], timeout_seconds=_NVCC_SECONDS).stdout)
    behind = _root_of(f"{host.realpath(home)}/nvcc") if home else root
    return (behind, version) if behind and version is not None else (None, None)


def _root_of(compiler: str) -> str | None:
    folder, _, _ = compiler.rpartition("/")
    root, _, last = folder.rpartition("/")
    return root if last == "bin" and root else None


def _version(host: Host, root: str, compiler: str | None, compiled: CudaVersion | None) -> CudaVersion | None:
    """Version of a toolkit directory, from version.json, version.txt, its header, its nvcc or the directory's name."""
    for name, parse in _VERSION_FILES:
        found = parse(host.read_text(f"{root}/{name}", _HEADER_BYTES) or "")
        if found is not None:
            return found
    if root == compiler and compiled is not None:
        return compiled
    found = None
    if is_file(host, f"{root}/bin/nvcc"):
        found = parse_nvcc(host.run([f"{root}/bin/nvcc", "--version"], timeout_seconds=_NVCC_SECONDS).stdout)
    return found or directory_version(root)


def _source(host: Host, root: str, apt: Mapping[str, str]) -> Source:
    """Installer of a toolkit directory: `apt`, `conda`, `runfile` or `other`."""
    line = directory_version(root)
    if line is not None and any(apt_line(name) == line.line for name in apt):
        return "apt"
    if root in ("/usr", "/usr/lib/cuda", "/usr/lib/nvidia-cuda-toolkit") and "nvidia-cuda-toolkit" in apt:
        return "apt"
    if is_dir(host, f"{root}/conda-meta"):
        return "conda"
    uninstallers = [name for name in host.list_dir(f"{root}/bin") if name.startswith(("cuda-uninstaller", "uninstall_cuda"))]
    return "runfile" if uninstallers else "other"


def _apt_parts(apt: Mapping[str, str], known: list[Toolkit]) -> list[Toolkit]:
    """CUDA lines of apt packages that no directory showed, with the release where a package tells it."""
    there = {_line(toolkit.version) for toolkit in known}
    lines = sorted({line for name in apt if (line := apt_line(name)) is not None and line not in there})
    parts = []
    for line in lines:
        meta = apt.get(f"cuda-toolkit-{line.replace('.', '-')}") or apt.get(f"cuda-libraries-{line.replace('.', '-')}") or ""
        release = meta.partition("-")[0]
        parts.append(Toolkit(version=release if release.startswith(f"{line}.") else line, source="apt"))
    return parts


def _conda_parts(host: Host, prefix: str, known: list[Toolkit]) -> list[Toolkit]:
    """The CUDA runtime of a conda environment: of several packages the one that tells most."""
    found = dict(part for name in host.list_dir(f"{prefix}/conda-meta") if (part := conda_part(name)) is not None)
    if any(toolkit.source == "conda" and toolkit.path == prefix for toolkit in known):
        return []
    for package in ("cuda-toolkit", "cudatoolkit", "cuda-cudart"):
        if package in found:  # the runtime's third number is its own, not the release's
            version = found[package].line if package == "cuda-cudart" else found[package].text
            return [Toolkit(version=version, path=prefix, source="conda")]
    return []


def _pip_parts(host: Host, target: TargetEnvironment) -> list[Toolkit]:
    """The CUDA runtime wheels of the environment, one for each; a `cuda-toolkit` wheel tells the release of its line."""
    releases = {_line(one.version): one.version for one in target.distributions if one.name == "cuda-toolkit"}
    parts = []
    for one in target.distributions:
        if one.name != "nvidia-cuda-runtime" and not one.name.startswith("nvidia-cuda-runtime-cu"):
            continue
        line = _line(one.version)
        major = (line or "").partition(".")[0]
        if major == "0":  # a package that only keeps the name
            continue
        folders = [f"{one.location}/nvidia/{name}" for name in (f"cu{major}", "cuda_runtime")]
        path = next((folder for folder in folders if is_dir(host, f"{folder}/lib")), None)
        parts.append(Toolkit(version=releases.get(line, line), path=path, source="pip"))
    return parts


def _line(version: str | None) -> str | None:
    """Major and minor of a version, or None where it is none."""
    try:
        return CudaVersion(version).line if version else None
    except ValueError:
        return None


def _text(version: CudaVersion | None) -> str | None:
    return str(version) if version is not None else None


# --- what files, nvcc and the names of packages say of a version ---

_PLAIN = r"CUDA Version\s+(\d{1,2}\.\d{1,2}(?:\.\d+)?)"
_NVCC = r"release (\d{1,2}\.\d{1,2}), V(\d+\.\d+\.\d+)"
_HEADER = r"(?m)^#define\s+(?:CUDART_VERSION|CUDA_VERSION)\s+(\d{4,5})\b"
_DIRECTORY = r"cuda-(\d{1,2}\.\d{1,2})$"
_APT = re.compile(r"(?:cuda-toolkit|cuda-cudart|cuda-libraries)-(\d{1,2})-(\d{1,2})$")
_CONDA = r"(cuda-toolkit|cudatoolkit|cuda-cudart|cuda-version)-(\d+\.\d+[\d.]*)-[^-]+\.json$"
_HERE = r"(?m)^#\$ _HERE_=(/.*)$"
_MAJOR = r"-D__CUDACC_VER_MAJOR__=(\d{1,2})\b"
_MINOR = r"-D__CUDACC_VER_MINOR__=(\d{1,2})\b"


def parse_version_json(text: str) -> CudaVersion | None:
    """The release in a toolkit's version.json, `{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}, …}`; None where it is not there."""
    try:
        version = json.loads(text)["cuda"]["version"]
        return CudaVersion(version)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def parse_version_text(text: str) -> CudaVersion | None:
    """The release line in a toolkit's version.txt (before 11.1), `CUDA Version 10.1.243`: 10.1; None where there is none.

    The third number is that of a build, not of a release, and is left out.
    """
    found = re.search(_PLAIN, text)
    return CudaVersion(CudaVersion(found[1]).line) if found else None


def parse_header(text: str) -> CudaVersion | None:
    """The line that cuda_runtime_api.h or cuda.h defines, `#define CUDART_VERSION  12040`; None where it defines none."""
    found = re.search(_HEADER, text)
    return CudaVersion.from_encoded(int(found[1])) if found else None


def parse_nvcc(text: str) -> CudaVersion | None:
    """The line that `nvcc --version` prints, `Cuda compilation tools, release 12.4, V12.4.131`; None where it prints none."""
    found = re.search(_NVCC, text)
    return CudaVersion(found[1]) if found else None


def parse_nvcc_dryrun(text: str) -> tuple[str | None, CudaVersion | None]:
    """Directory and version of the compiler that really runs, from the output of `nvcc --dryrun`; None for what it does not say.

    Samples: `#$ _HERE_=/usr/local/cuda-12.4/bin` and, in the call of the host compiler, `-D__CUDACC_VER_MAJOR__=12`.
    """
    home, major, minor = re.search(_HERE, text), re.search(_MAJOR, text), re.search(_MINOR, text)
    version = CudaVersion(f"{major[1]}.{minor[1]}") if major and minor else None
    return (home[1].strip() if home else None), version


def directory_version(path: str) -> CudaVersion | None:
    """The line in a directory's name, `/usr/local/cuda-12.4`; None for `/usr/local/cuda`."""
    found = re.search(_DIRECTORY, path)
    return CudaVersion(found[1]) if found else None


def apt_line(package: str) -> str | None:
    """The CUDA line whose runtime an apt package holds, `12.4` for `cuda-cudart-12-4`; None for any other package."""
    found = _APT.fullmatch(package)
    return f"{found[1]}.{found[2]}" if found else None


def conda_part(file_name: str) -> tuple[str, CudaVersion] | None:
    """Name and version of a CUDA runtime in the name of a conda-meta file, `cuda-cudart-12.4.127-0.json`; None for another."""
    found = re.fullmatch(_CONDA, file_name)
    try:
        return (found[1], CudaVersion(found[2].strip("."))) if found else None
    except ValueError:
        return None


_VERSION_FILES = (
    ("version.json", parse_version_json),
    ("version.txt", parse_version_text),
    ("include/cuda_runtime_api.h", parse_header),
    ("include/cuda.h", parse_header),
)
"""Files of a toolkit that tell its version, the surest first."""
