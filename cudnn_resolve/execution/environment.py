"""The environment that is changed: its folders and installers."""

from __future__ import annotations

import os

from msgspec import Struct

from cudnn_resolve.errors import UsageError, WorldError
from cudnn_resolve.execution.payload_recover import holds
from cudnn_resolve.host.child import answer_of, payload_path
from cudnn_resolve.host.protocol import Host, which

_TIMEOUT_SECONDS = 30.0

KINDS = ("purelib", "platlib", "scripts", "data", "headers")


class Environment(Struct, frozen=True, kw_only=True):
    """A Python environment as its interpreter describes it."""

    python: str
    """Command that runs its interpreter."""
    version: str
    prefix: str
    scheme: dict[str, str]
    """Folder for each kind of file: `purelib`, `platlib`, `scripts`, `data` and `headers`."""
    pip: str | None = None
    """Folder of its pip package; None if it has none."""
    uv: str | None = None
    """Path of a usable uv; None if there is none."""
    sees_more: bool = False
    """True if its import path has folders outside of it, besides the standard library."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Distinct folders that may hold files of packages."""
        return tuple(
            dict.fromkeys((self.scheme["purelib"], self.scheme["platlib"], self.scheme["scripts"], self.prefix, self.scheme["data"]))
        )

    @property
    def packages(self) -> tuple[str, ...]:
        """Distinct folders that packages are installed into."""
        return tuple(dict.fromkeys((self.scheme["purelib"], self.scheme["platlib"])))

    def holds(self, path: str) -> bool:
        """Return whether a path is absolute, free of `..`, and inside the environment."""
        return holds(path, self.roots)


def ask_environment(host: Host, python: str) -> Environment:
    """Ask an interpreter for its environment; raises UsageError or WorldError if it gives no usable answer."""
    result = host.run([python, "-I", "-B", payload_path("execution/payload_environment.py")], timeout_seconds=_TIMEOUT_SECONDS)
    answer = answer_of(result.stdout)
    if answer is None:
        raise WorldError(
            f"{python} does not report where it installs packages: {result.why() or 'it does not answer as a Python interpreter'}",
            code="python-broken",
            hint="pass the path of an interpreter or a virtual environment with --python",
        )
    try:
        scheme = {kind: host.realpath(os.path.normpath(str(answer["scheme"][kind]))) for kind in KINDS}
        prefix = host.realpath(os.path.normpath(str(answer["prefix"])))  # resolved: links to one environment lead to the same journals
        pip = answer["pip_folder"]
        version, executable = str(answer["version"]), str(answer["executable"])
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{python} cannot be the target interpreter: its answer makes no sense", code="python-unusable") from None
    if prefix == "/" or not all(path.startswith("/") for path in (prefix, *scheme.values())):
        raise UsageError(f"{python} cannot be the target interpreter: its folders make no sense", code="python-unusable", context=prefix)
    return Environment(
        python=python if os.path.isabs(python) else executable,  # tools run in another working directory
        version=version,
        prefix=prefix,
        scheme=scheme,
        pip=str(pip) if pip else None,
        uv=find_uv(host, scheme["scripts"]),
        sees_more=bool(answer.get("outside")),
    )


def find_uv(host: Host, scripts: str | None = None) -> str | None:
    """Return the uv in an environment's `scripts` folder, on PATH, or next to this program's interpreter; None if there is none."""
    candidates = [f"{scripts}/uv"] if scripts else []
    candidates += ["uv", os.path.join(os.path.dirname(host.python), "uv")]
    return next((found for name in candidates if (found := which(host, name))), None)
