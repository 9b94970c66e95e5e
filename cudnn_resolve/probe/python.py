"""The target interpreter: its choice, its properties, and its installed distributions."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, convert

from cudnn_resolve.errors import UsageError, WorldError
from cudnn_resolve.facts.ldconfig import CacheEntry
from cudnn_resolve.facts.model import UNKNOWN, Problem, Python, Unknown, architecture
from cudnn_resolve.host.child import answer_of, payload_path
from cudnn_resolve.host.protocol import CommandResult, Host, is_dir, is_file, which


class Distribution(Struct, frozen=True, kw_only=True, array_like=True):
    """One installed distribution of the target interpreter; the payload reports it as a list of these fields."""

    name: str
    """Normalized (PEP 503): lower case, runs of `-`, `_` and `.` as one `-`."""
    version: str
    location: str
    """Its directory on the import path, `…/site-packages`."""
    metadata: str
    """Its `.dist-info` or `.egg-info` directory (or file)."""
    requires: tuple[str, ...] = ()
    """`Requires-Dist` lines as written."""


class TargetEnvironment(Struct, frozen=True, kw_only=True):
    """The target interpreter and its environment, as reported by itself, plus facts of the machine; paths are the host's."""

    python: Python
    """`python.path` is the interpreter to run; None without one (and then without distributions)."""
    how: str = ""
    """Why it was chosen."""
    prefix: str
    """`sys.prefix`; also the prefix of a conda environment."""
    system: str = "linux"
    arch: str | None = None
    """`x86_64`, `aarch64`; None = unknown."""
    glibc: str | None = None
    """None for another C library."""
    site_packages: tuple[str, ...] = ()
    """Existing directories on the import path apart from the standard library, in import order."""
    distributions: tuple[Distribution, ...] = ()
    """In import order; one per name, the first on the path."""
    ld_library_path: tuple[str, ...] = ()
    """LD_LIBRARY_PATH as its processes see it (a wrapper may have set it), without empty entries."""
    problems: tuple[Problem, ...] = ()
    ldconfig: tuple[CacheEntry, ...] = ()
    """The linker cache in the loader's order, without entries of other architectures."""
    cuda_directories: tuple[str, ...] = ()
    """Root directories of CUDA toolkits, links resolved, each once: `/usr/local/cuda-12.4`."""
    apt: Mapping[str, str] | Unknown = UNKNOWN
    """Installed apt packages and their versions."""

    def distribution(self, name: str) -> Distribution | None:
        """The installed distribution of a normalized name, or None."""
        return next((distribution for distribution in self.distributions if distribution.name == name), None)


class _Answer(Struct, frozen=True, kw_only=True):
    """Answer of the payload."""

    version: str
    executable: str
    implementation: str
    prefix: str
    externally_managed: bool
    free_threaded: bool
    machine: str
    system: str
    libc: str
    ld_library_path: str
    path: tuple[str, ...]
    distributions: tuple[Distribution, ...]
    problems: tuple[tuple[str, str], ...]


TIMEOUT_SECONDS = 20.0
"""Time limit: enough for an interpreter on a cold network disk."""

LOCAL = ".venv"
"""Virtual environment in a project's folder."""
_TOOLS = r"/uv/tools/[^/]+/$|/pipx/(?:venvs|\.cache)/[^/]+/$|/\.cache/pipx/[^/]+/$"
_UV_CACHE = r"(.*)/(?:archive|environments|builds)-v\d+/"
_MINOR = r"(?a)python3\.(\d{1,2})"
_CONDAS = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba")
_VERSION = r"\d+(\.\d+)?"
_HINT = "pass --python with the path of an interpreter or of a virtual environment"


def choose_python(host: Host, wanted: str | None) -> tuple[str, str]:
    """Choose the target interpreter, and give the reason; UsageError if the wanted one does not exist.

    In order: `wanted` (the path of an interpreter, an environment or its bin directory, a name on PATH, or a version), the active virtual
    environment (VIRTUAL_ENV), the active conda environment (CONDA_PREFIX), `.venv` in the working directory, conda's base environment,
    the interpreter that runs this, the first one on PATH. Environments of a tool (uvx, uv tool, pipx) are skipped: they serve that tool
    alone.
    """
    if wanted is not None:
        return _wanted_python(host, wanted), "--python"
    is_base = host.environ.get("CONDA_DEFAULT_ENV") in ("base", "root")
    for name in ("VIRTUAL_ENV", LOCAL, "CONDA_PREFIX") if is_base else ("VIRTUAL_ENV", "CONDA_PREFIX", LOCAL):
        prefix = host.environ.get(name)
        if name == LOCAL and any(is_file(host, f"{LOCAL}/bin/{python}") for python in ("python", "python3")):
            return _python_below(host, LOCAL, LOCAL), LOCAL
        if prefix and not is_of_tool(host, prefix):
            return _python_below(host, prefix, f"{name}={prefix}"), name
    return _running_python(host)


def _running_python(host: Host) -> tuple[str, str]:
    """The interpreter that runs this, or if that belongs to a tool, the first one on PATH."""
    own = host.python if host.python and is_file(host, host.python) else None
    if own is not None and not is_of_tool(host, _prefix(own)):
        return own, "runs this program"
    for name in ("python3", "python"):
        for folder in host.environ.get("PATH", "").split(":"):
            path = f"{folder}/{name}"
            if folder and is_file(host, path) and not is_of_tool(host, _prefix(path)):
                return path, f"first {name} on PATH"
    if own is None:
        raise UsageError("no Python interpreter was found", code="python-missing", hint=_HINT)
    raise UsageError(
        f"no target environment: cudnn-resolve runs in an environment of its own, {_prefix(own)}",
        code="python-of-tool",
        hint="name the target with `--python .venv`; `python3 -m venv .venv` creates it",
    )


def _prefix(python: str) -> str:
    """Environment of an interpreter in its bin directory."""
    return python.rpartition("/")[0].rpartition("/")[0]


def is_of_tool(host: Host, prefix: str) -> bool:
    """True for an environment made by uv (uvx, uv tool) or pipx for one program."""
    has_receipt = any(is_file(host, f"{prefix}/{name}") for name in ("uv-receipt.toml", "pipx_metadata.json"))
    cache = re.match(_UV_CACHE, f"{prefix}/")  # UV_CACHE_DIR may have any name
    return has_receipt or re.search(_TOOLS, f"{prefix}/") is not None or (cache is not None and is_file(host, f"{cache[1]}/CACHEDIR.TAG"))


def interpreters(host: Host) -> Mapping[tuple[int, int], Sequence[str]]:
    """Find interpreters by minor version: on PATH, then those of pyenv, the system, uv and conda.

    None of them has been run: some may not work.
    """
    home, environ = host.environ.get("HOME", ""), host.environ
    managed = environ.get("UV_PYTHON_INSTALL_DIR") or f"{environ.get('XDG_DATA_HOME') or f'{home}/.local/share'}/uv/python"
    condas = [environ.get("CONDA_EXE", "").removesuffix("/bin/conda"), environ.get("CONDA_PREFIX", "").partition("/envs/")[0]]
    condas += [f"{home}/{name}" for name in _CONDAS] + ["/opt/conda"]
    folders = [path for path in environ.get("PATH", "").split(":") if not path.endswith("/shims")]  # shims may lead nowhere
    folders += _bins(host, f"{environ.get('PYENV_ROOT') or f'{home}/.pyenv'}/versions")
    folders += ["/usr/local/bin", "/usr/bin", *_bins(host, managed)]
    folders += [path for root in condas if root for path in (f"{root}/bin", *_bins(host, f"{root}/envs"))]
    found: dict[tuple[int, int], list[str]] = {}
    for folder in dict.fromkeys(path.rstrip("/") for path in folders if path.startswith("/")):
        for name in host.list_dir(folder):
            minor = re.fullmatch(_MINOR, name)
            if minor is not None and not is_of_tool(host, _prefix(f"{folder}/{name}")):
                found.setdefault((3, int(minor[1])), []).append(f"{folder}/{name}")
    return found


def _bins(host: Host, root: str) -> list[str]:
    """Bin directories of the Pythons below a directory, newest first."""
    names = sorted(host.list_dir(root), key=lambda name: [int(part) for part in re.findall(r"\d{1,9}", name)], reverse=True)
    return [f"{root}/{name}/bin" for name in names]


def ask_python(host: Host, path: str, how: str) -> TargetEnvironment:
    """Ask the interpreter at `path` about itself and its environment.

    UsageError if it is not Python 3.6 or later, WorldError if it hangs or crashes.
    """
    result = host.run([path, "-I", payload_path("probe/payload_python.py")], timeout_seconds=TIMEOUT_SECONDS)
    answer = answer_of(result.stdout)
    if answer is not None:
        try:
            return _target(path, how, answer)
        except ValueError:
            raise _unusable(path, "its answer is invalid") from None
    raise _refusal(host, path, result)


def _wanted_python(host: Host, wanted: str) -> str:
    if re.fullmatch(_VERSION, wanted) and not is_file(host, wanted):
        found = which(host, f"python{wanted}")
        if found is None:
            raise UsageError(f"there is no python{wanted} on PATH", code="python-missing", context=f"--python {wanted}", hint=_HINT)
        return found
    if is_dir(host, wanted):
        return _python_below(host, wanted, wanted)
    if "/" not in wanted:
        found = which(host, wanted)
        if found is not None:
            return found
    if not is_file(host, wanted):
        raise UsageError(f"{wanted!r} does not exist", code="python-missing", context=f"--python {wanted}", hint=_HINT)
    return wanted if "/" in wanted else f"./{wanted}"


def _python_below(host: Host, directory: str, subject: str) -> str:
    """Interpreter of an environment, or in its bin directory."""
    directory = directory.rstrip("/") or "/"
    for candidate in ("bin/python", "bin/python3", "python", "python3"):
        path = f"{directory}/{candidate}"
        if is_file(host, path):
            return path
    raise UsageError(f"{subject} has no Python interpreter", code="python-missing", context=directory, hint=_HINT)


def _target(path: str, how: str, answer: Mapping[str, Any]) -> TargetEnvironment:
    """Read the payload's answer; ValueError if it is invalid."""
    report = convert(_clean(answer), _Answer)
    if tuple(int(part) for part in report.version.split(".")) < (3, 6):
        raise _unusable(path, f"it is Python {report.version}; 3.6 or later is needed")
    problems = [Problem(what=what, why=why) for what, why in report.problems]
    is_glibc = report.libc.startswith("glibc ")
    if report.system == "linux" and not is_glibc:
        problems.append(Problem(what="C library", why="is not glibc: NVIDIA's libraries and manylinux wheels need glibc"))
    return TargetEnvironment(
        python=Python(
            version=report.version,
            path=path if path.startswith("/") else report.executable or path,
            implementation=report.implementation,
            externally_managed=report.externally_managed,
            prefix=report.prefix,
            free_threaded=report.free_threaded,
        ),
        how=how,
        prefix=report.prefix,
        system=report.system,
        arch=architecture(report.machine.lower()) or None,
        glibc=report.libc.removeprefix("glibc ") if is_glibc else None,
        site_packages=report.path,
        distributions=report.distributions,
        ld_library_path=tuple(entry for entry in report.ld_library_path.split(":") if entry),
        problems=tuple(problems),
    )


def _clean(value: Any) -> Any:
    """Replace invalid UTF-8 in all strings, so that they can be printed."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _unusable(path: str, why: str) -> UsageError:
    return UsageError(f"{path} cannot be the target interpreter: {why}", code="python-unusable", context=path, hint=_HINT)


def _refusal(host: Host, path: str, result: CommandResult) -> UsageError | WorldError:
    """Error for an interpreter that gave no answer."""
    if result.timed_out or result.signal:
        code = "python-hangs" if result.timed_out else "python-crashes"
        return WorldError(f"the Python interpreter {path} {result.why()}", code=code, context=path, hint=_HINT)
    if result.missing:
        return UsageError(f"{path} cannot be executed: {result.stderr}", code="python-not-executable", context=path, hint=_HINT)
    old = host.run([path, "-c", "import sys; print('python %d.%d' % sys.version_info[:2])"], timeout_seconds=5.0)
    found = re.fullmatch(r"python (\d+\.\d+)", old.stdout.strip())
    if not found:
        said = result.stderr.strip().splitlines()[:1]
        return _unusable(path, "it does not answer as Python does" + (f": {said[0][:200]}" if said else ""))
    if tuple(int(part) for part in found[1].split(".")) < (3, 6):
        return _unusable(path, f"it is Python {found[1]}; 3.6 or later is needed")
    last = result.stderr.strip().splitlines()[-1:] or [result.why()]
    return WorldError(f"the Python interpreter {path} is broken: {last[0][:300]}", code="python-broken", context=path, hint=_HINT)
