"""CUDA toolkits, and their runtime parts in packages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from msgspec import Struct

from cudnn_resolve.facts.model import Problem, Source, Toolkit
from cudnn_resolve.host.protocol import Host, is_dir, is_file, which
from cudnn_resolve.probe.python import TargetEnvironment
from cudnn_resolve.version import CudaVersion, parsed

_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR")
_HEADER_BYTES = 1 << 16
"""cuda_runtime_api.h is long, and has the version in its first quarter."""
_NVCC_SECONDS = 10.0


class Toolkits(Struct, frozen=True, kw_only=True):
    """CUDA toolkits of a machine."""

    toolkits: tuple[Toolkit, ...]
    """Directories first, then parts from apt, conda and pip elsewhere."""
    directories: tuple[str, ...]
    """Root directories, links resolved."""
    how: str
    problems: tuple[Problem, ...]


Compiler = tuple[str | None, CudaVersion | None]
"""Root of the toolkit whose nvcc is on PATH and, if it had to be run, its version; None, None without one."""


def find_toolkits(host: Host, target: TargetEnvironment, apt: Mapping[str, str], on_path: Compiler) -> Toolkits:
    """Find CUDA toolkits: below /usr/local, named by variables or nvcc, and the parts from apt, conda and pip."""
    roots, aliases, problems = _directories(host)
    compiler, compiled = on_path
    if compiler is not None and compiler not in roots:
        roots.append(compiler)
        aliases.setdefault(compiler, []).append("nvcc on PATH")
    found = []
    for root in roots:
        version = _version(host, root, compiler, compiled)
        found.append(Toolkit(version=str(version) if version is not None else None, path=root, source=_source(host, root, apt)))
    found += _apt_parts(apt, found)
    found += _conda_parts(host, target.prefix, found)
    found += _pip_parts(host, target)
    described = [f"{root} (also {', '.join(aliases[root])})" if root in aliases else root for root in roots]
    others = sorted({toolkit.source for toolkit in found if toolkit.path not in roots})
    how = "; ".join(described + [f"{source} packages" for source in others]) or "no directory and no package"
    return Toolkits(toolkits=tuple(found), directories=tuple(roots), how=how, problems=tuple(problems))


def _directories(host: Host) -> tuple[list[str], dict[str, list[str]], list[Problem]]:
    """Root directories with links resolved, their other names, and problems of variables that lead nowhere."""
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
                problems.append(Problem(what=name, why=f"is {path}, which has no CUDA toolkit"))
            continue
        if real not in roots:
            roots.append(real)
        if name != real:
            aliases.setdefault(real, []).append(name)
    return roots, aliases, problems


def _is_toolkit(host: Host, root: str) -> bool:
    """True for a directory with CUDA's compiler, headers or runtime library."""
    if not is_dir(host, root):
        return False
    signs = ("version.json", "version.txt", "bin/nvcc", "include/cuda_runtime_api.h")
    runtimes = (name for folder in ("lib64", "lib") for name in host.list_dir(f"{root}/{folder}") if name.startswith("libcudart.so."))
    return any(is_file(host, f"{root}/{sign}") for sign in signs) or any(runtimes)


def find_compiler(host: Host) -> Compiler:
    """Find the toolkit whose nvcc is on PATH; a wrapper script is run with `--dryrun`, which only names the real compiler."""
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
    """Version of a toolkit directory, from version.json, version.txt, a header, nvcc or the directory's name."""
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
    """CUDA lines of apt packages without a directory, with the release if a package has it."""
    known_lines = {_line(toolkit.version) for toolkit in known}
    lines = sorted({line for name in apt if (line := apt_line(name)) is not None and line not in known_lines})
    parts = []
    for line in lines:
        meta = apt.get(f"cuda-toolkit-{line.replace('.', '-')}") or apt.get(f"cuda-libraries-{line.replace('.', '-')}") or ""
        release = meta.partition("-")[0]
        parts.append(Toolkit(version=release if release.startswith(f"{line}.") else line, source="apt"))
    return parts


def _conda_parts(host: Host, prefix: str, known: list[Toolkit]) -> list[Toolkit]:
    """CUDA runtime of a conda environment, from its most informative package."""
    found = dict(part for name in host.list_dir(f"{prefix}/conda-meta") if (part := conda_part(name)) is not None)
    if any(toolkit.source == "conda" and toolkit.path == prefix for toolkit in known):
        return []
    for package in ("cuda-toolkit", "cudatoolkit", "cuda-cudart"):
        if package in found:  # the runtime's third number is not the release's
            version = found[package].line if package == "cuda-cudart" else found[package].text
            return [Toolkit(version=version, path=prefix, source="conda")]
    return []


def _pip_parts(host: Host, target: TargetEnvironment) -> list[Toolkit]:
    """CUDA runtime wheels of the environment; a `cuda-toolkit` wheel gives the release of its line."""
    releases = {_line(wheel.version): wheel.version for wheel in target.distributions if wheel.name == "cuda-toolkit"}
    parts = []
    for wheel in target.distributions:
        if wheel.name != "nvidia-cuda-runtime" and not wheel.name.startswith("nvidia-cuda-runtime-cu"):
            continue
        line = _line(wheel.version)
        major = (line or "").partition(".")[0]
        if major == "0":  # a placeholder package
            continue
        folders = [f"{wheel.location}/nvidia/{name}" for name in (f"cu{major}", "cuda_runtime")]
        path = next((folder for folder in folders if is_dir(host, f"{folder}/lib")), None)
        parts.append(Toolkit(version=releases.get(line, line), path=path, source="pip"))
    return parts


def _line(version: str | None) -> str | None:
    """Major and minor of a version; None if it is invalid."""
    found = parsed(CudaVersion, version)
    return found.line if found else None


# --- versions in files, in nvcc's output and in package names ---

_PLAIN = r"CUDA Version\s+(\d{1,2}\.\d{1,2}(?:\.\d+)?)"
_NVCC = r"release (\d{1,2}\.\d{1,2}), V(\d+\.\d+\.\d+)"
_HEADER = r"(?m)^#define\s+(?:CUDART_VERSION|CUDA_VERSION)\s+(\d{4,5})\b"
_DIRECTORY = r"cuda-(\d{1,2}\.\d{1,2})$"
_APT = re.compile(r"(?:cuda-toolkit|cuda-cudart|cuda-libraries)-(\d{1,2})-(\d{1,2})$")
_CONDA = r"(cuda-toolkit|cudatoolkit|cuda-cudart|cuda-version)-(\d{1,6}(?:\.\d{1,9}){1,4})-[^-]+\.json"
_HERE = r"(?m)^#\$ _HERE_=(/.*)$"
_MAJOR = r"-D__CUDACC_VER_MAJOR__=(\d{1,2})\b"
_MINOR = r"-D__CUDACC_VER_MINOR__=(\d{1,2})\b"


def parse_version_json(text: str) -> CudaVersion | None:
    """Release in a toolkit's version.json, `{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}, …}`, or None."""
    try:
        version = json.loads(text)["cuda"]["version"]
        return CudaVersion(version)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def parse_version_text(text: str) -> CudaVersion | None:
    """Release line in a toolkit's version.txt (before 11.1), `CUDA Version 10.1.243`: 10.1; or None.

    The third number identifies a build, not a release, and is left out.
    """
    found = re.search(_PLAIN, text)
    return CudaVersion(CudaVersion(found[1]).line) if found else None


def parse_header(text: str) -> CudaVersion | None:
    """CUDA line defined in cuda_runtime_api.h or cuda.h, `#define CUDART_VERSION  12040`, or None."""
    found = re.search(_HEADER, text)
    return CudaVersion.from_encoded(int(found[1])) if found else None


def parse_nvcc(text: str) -> CudaVersion | None:
    """CUDA line printed by `nvcc --version`, `Cuda compilation tools, release 12.4, V12.4.131`, or None."""
    found = re.search(_NVCC, text)
    return CudaVersion(found[1]) if found else None


def parse_nvcc_dryrun(text: str) -> tuple[str | None, CudaVersion | None]:
    """Directory and version of the real compiler, from the output of `nvcc --dryrun`; None if missing.

    Samples: `#$ _HERE_=/usr/local/cuda-12.4/bin` and, in the call of the host compiler, `-D__CUDACC_VER_MAJOR__=12`.
    """
    home, major, minor = re.search(_HERE, text), re.search(_MAJOR, text), re.search(_MINOR, text)
    version = CudaVersion(f"{major[1]}.{minor[1]}") if major and minor else None
    return (home[1].strip() if home else None), version


def directory_version(path: str) -> CudaVersion | None:
    """CUDA line in a directory's name, `/usr/local/cuda-12.4`; None for `/usr/local/cuda`."""
    found = re.search(_DIRECTORY, path)
    return CudaVersion(found[1]) if found else None


def apt_line(package: str) -> str | None:
    """CUDA line of an apt package with a runtime, `12.4` for `cuda-cudart-12-4`; None for any other package."""
    found = _APT.fullmatch(package)
    return f"{found[1]}.{found[2]}" if found else None


def conda_part(file_name: str) -> tuple[str, CudaVersion] | None:
    """Name and version of a CUDA runtime from a conda-meta file name, `cuda-cudart-12.4.127-0.json`; None for any other."""
    found = re.fullmatch(_CONDA, file_name)
    return (found[1], CudaVersion(found[2])) if found else None


_VERSION_FILES = (
    ("version.json", parse_version_json),
    ("version.txt", parse_version_text),
    ("include/cuda_runtime_api.h", parse_header),
    ("include/cuda.h", parse_header),
)
"""Files with a toolkit's version, most reliable first."""
