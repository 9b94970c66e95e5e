"""Puts the compiled tables into the wheel, so that the first use of the program is as fast as the second."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledTables(BuildHookInterface):  # type: ignore[type-arg,misc]
    """The build hook that pyproject.toml names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles every table; a development install has none, because there the tables change."""
        if version != "standard":
            return
        _forget()  # another build in this process may have been of another checkout
        sys.path.insert(0, self.root)
        try:
            from cudnn_resolve.host.tablecache import SHIPPED, Copies
            from cudnn_resolve.host.tables import DirectoryTables
        finally:
            sys.path.remove(self.root)
        self._folder = tempfile.TemporaryDirectory()
        DirectoryTables(Path(self.root, "matrices"), label="matrices").compile(Copies(self._folder.name))
        build_data["force_include"][self._folder.name] = f"cudnn_resolve/{SHIPPED}"
        _forget()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Takes the copies away again."""
        del version, build_data, artifact_path
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cudnn_resolve"]:
        del sys.modules[name]
