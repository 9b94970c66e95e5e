"""Children of real frameworks, replayed from tests/validation."""

from __future__ import annotations

import json
from pathlib import Path

from cudnn_resolve.facts.model import CudnnCopy, Facts, InstalledFramework, Loader
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.validation.answers import ChildReport
from cudnn_resolve.validation.child import run_payload
from cudnn_resolve.validation.model import Subject
from cudnn_resolve.validation.payload import MARK
from tests.fake_host import FakeHost

FOLDER = Path(__file__).resolve().parents[2] / "validation"
ENV = "/env/site-packages/nvidia/cudnn/lib"


def answered(result: CommandResult) -> ChildReport:
    """What `run_payload` makes of such an end of a child."""
    host = FakeHost(programs=lambda _argv: result)
    return run_payload(host, "/usr/bin/python3", {"payload": "payload_load"}, env={}, seconds=120)


def recorded(name: str) -> ChildReport:
    """What a child told that was recorded."""
    row = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    stdout, stderr = ("\n".join(row[stream]) + "\n" for stream in ("stdout", "stderr"))
    return answered(CommandResult(returncode=row["returncode"], signal=row["signal"], stdout=stdout, stderr=stderr))


def telling(*events: tuple[str, object], stderr: str = "", end: bool = True) -> ChildReport:
    """A child that told these things and came to its end."""
    lines = [MARK + json.dumps(list(event)) for event in (*events, *([("end", None)] if end else []))]
    return answered(CommandResult(returncode=0, stdout="\n".join(lines), stderr=stderr))


def subject(name: str, module: str | None = None, version: str = "1.0", cudnn: str | None = None, variant: str | None = None) -> Subject:
    """A framework of the environment."""
    installed = InstalledFramework(name=name, version=version, variant=variant, cudnn_built=cudnn)
    return Subject(name=name, module=module or name, installed=installed)


TORCH = subject("torch", version="2.6.0", cudnn="9.1.0.70", variant="cu124")
TENSORFLOW = subject("tensorflow", version="2.18.0", cudnn="9.3", variant="gpu")
JAX = subject("jax", version="0.4.38", cudnn="9.1.1", variant="cuda12")
ONNX = subject("onnxruntime-gpu", "onnxruntime", "1.20.2", "9", "gpu")


def facts(*library_path: str, env: str = "9.1.0.70") -> Facts:
    """The machine of the recordings; `env` is the release in the environment."""
    copies = {ENV: env, "/old/cudnn/lib": "9.0.0.312", "/new/cudnn/lib": "9.2.1.18"}
    return Facts(
        cudnn=tuple(CudnnCopy(version=version, soname=9, path=path) for path, version in copies.items()),
        loader=Loader(ld_library_path=library_path),
    )
