"""Programs with which scripts make environments: uv and interpreters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def find_uv() -> str | None:
    """Path of uv, in this interpreter's environment or on PATH; None if there is none."""
    return shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def uv_program() -> str:
    """Path of uv; SystemExit if there is none."""
    uv = find_uv()
    if uv is None:
        raise SystemExit("uv is needed: pip install uv")
    return uv


def find_python(version: str) -> str:
    """Path of a CPython of a version such as `3.11`, from PATH, pyenv or uv; RuntimeError if there is none."""
    found = shutil.which(f"python{version}")
    for path in (found, *map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")))):
        if path is None:
            continue
        done = subprocess.run([path, "-c", "import sys, venv; print(sys.executable)"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()  # the interpreter behind a shim of pyenv
    if uv := find_uv():
        done = subprocess.run([uv, "python", "find", "--no-project", version], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    raise RuntimeError(f"there is no Python {version} here")


def run(argv: list[str], **variables: str) -> str:
    """Run a command with further environment variables and return its output; RuntimeError with the end of its errors if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"} | variables
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, timeout=1500)
    if done.returncode:
        raise RuntimeError(f"{Path(argv[0]).name} {argv[1] if len(argv) > 1 else ''} gives {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout
