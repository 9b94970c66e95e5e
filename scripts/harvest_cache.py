"""JSON cache of what was read from an index, outside the repository."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from typing import Any

DEFAULT_CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cudnn-resolve-harvest")


class Cache:
    """Entries by kind and key, in one file each. May be used from several threads."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def get(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return an entry, or None if there is none."""
        try:
            with open(self._path(kind, key), encoding="utf-8") as stream:
                entry: dict[str, Any] = json.load(stream)
        except (OSError, ValueError):
            return None
        return entry

    def put(self, kind: str, key: str, entry: dict[str, Any]) -> None:
        """Write an entry atomically."""
        path = self._path(kind, key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.{os.getpid()}.{threading.get_ident()}"
        with open(partial, "w", encoding="utf-8") as stream:
            json.dump(entry, stream)
        os.replace(partial, path)

    def _path(self, kind: str, key: str) -> str:
        return os.path.join(self._folder, kind, hashlib.sha256(key.encode()).hexdigest() + ".json")
