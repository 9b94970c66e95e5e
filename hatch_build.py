"""Puts the compiled tables into the wheel, so that the first use of the program is as fast as the second, and the manual page."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuiltParts(BuildHookInterface):  # type: ignore[type-arg,misc]
    """The build hook that pyproject.toml names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles every table and writes the manual; a development install has none, because there they change."""
        if version != "standard":
            return
        _forget()  # another build in this process may have been of another checkout
        sys.path.insert(0, self.root)
        try:
            from cudnn_resolve.cli.manual import manual
            from cudnn_resolve.host.tablecache import SHIPPED, Copies
            from cudnn_resolve.host.tables import DirectoryTables
        finally:
            sys.path.remove(self.root)
        self._folder = tempfile.TemporaryDirectory()
        tables, page = Path(self._folder.name, "tables"), Path(self._folder.name, "cudnn-resolve.1")
        tables.mkdir()
        DirectoryTables(Path(self.root, "matrices"), label="matrices").compile(Copies(str(tables)))
        build_data["force_include"][str(tables)] = f"cudnn_resolve/{SHIPPED}"
        page.write_text(manual(), encoding="utf-8")
        build_data["shared_data"][str(page)] = "share/man/man1/cudnn-resolve.1"
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
