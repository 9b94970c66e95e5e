"""A home for gpg with a short path: its agent listens on a socket in it, and those have names of at most 107 bytes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path


def gpg_home(owner: object) -> Path:
    """A folder that goes, and its agent with it, when `owner` does."""
    home = Path(tempfile.mkdtemp(prefix="gpg-", dir="/tmp"))
    weakref.finalize(owner, _forget, home)
    return home


def _forget(home: Path) -> None:
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False, capture_output=True)
    shutil.rmtree(home, ignore_errors=True)
