"""The environment that is changed: where its files lie, and which installer it has."""

from __future__ import annotations

import os

from msgspec import Struct

from cudnn_resolve.errors import UsageError, WorldError
from cudnn_resolve.execution.payload_recover import holds
from cudnn_resolve.host.child import answer_of, payload_path
from cudnn_resolve.host.protocol import Host, which

TIMEOUT_SECONDS = 30.0

KINDS = ("purelib", "platlib", "scripts", "data", "headers")


class Environment(Struct, frozen=True, kw_only=True):
    """One Python environment, as its interpreter tells it."""

    python: str
    """The interpreter, as it is to be run."""
    version: str
    prefix: str
    scheme: dict[str, str]
    """Kind of file (`purelib`, `platlib`, `scripts`, `data`, `headers`) to folder."""
    pip: str | None = None
    """Folder of its pip; None where it has none."""
    uv: str | None = None
    """Path of a uv that may be used; None where there is none."""
    sees_more: bool = False
    """True where folders elsewhere are on its import path, the standard library aside."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Folders that files of packages may lie in, each once."""
        return tuple(
            dict.fromkeys((self.scheme["purelib"], self.scheme["platlib"], self.scheme["scripts"], self.prefix, self.scheme["data"]))
        )

    @property
    def packages(self) -> tuple[str, ...]:
        """Folders that packages are installed into, each once."""
        return tuple(dict.fromkeys((self.scheme["purelib"], self.scheme["platlib"])))

    def holds(self, path: str) -> bool:
        """Return whether a path lies inside the environment and is written plainly: absolute, without `..`."""
        return holds(path, self.roots)


def ask_environment(host: Host, python: str) -> Environment:
    """The environment of an interpreter; UsageError or WorldError where it does not say."""
    result = host.run([python, "-I", "-B", payload_path("execution/payload_environment.py")], timeout_seconds=TIMEOUT_SECONDS)
    told = answer_of(result)
    if told is None:
        raise WorldError(
            f"{python} does not say where it installs packages to: {result.why() or 'it does not answer as a Python interpreter does'}",
            code="python-broken",
            hint="pass --python with the path of an interpreter or of a virtual environment",
        )
    try:
        scheme = {kind: host.realpath(os.path.normpath(str(told["scheme"][kind]))) for kind in KINDS}
        prefix = host.realpath(os.path.normpath(str(told["prefix"])))  # one environment, whatever link leads to it
        pip = told["pip_folder"]
        version, executable = str(told["version"]), str(told["executable"])
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{python} cannot be the target interpreter: its answer makes no sense", code="python-unusable") from None
    if prefix == "/" or not all(path.startswith("/") for path in (prefix, *scheme.values())):
        raise UsageError(f"{python} cannot be the target interpreter: its folders make no sense", code="python-unusable", context=prefix)
    return Environment(
        python=python if os.path.isabs(python) else executable,  # tools are run from another folder
        version=version,
        prefix=prefix,
        scheme=scheme,
        pip=str(pip) if pip else None,
        uv=find_uv(host, scheme["scripts"]),
        sees_more=bool(told.get("outside")),
    )


def find_uv(host: Host, scripts: str | None = None) -> str | None:
    """The uv of an environment, that of PATH, or the one beside this program; None where there is none."""
    beside = (*((f"{scripts}/uv",) if scripts else ()), "uv", os.path.join(os.path.dirname(host.python), "uv"))
    return next((found for one in beside if (found := which(host, one))), None)
