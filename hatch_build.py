"""Build hook: adds compiled tables, so that the first run is as fast as the second, and the manual page."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuiltParts(BuildHookInterface):  # type: ignore[type-arg,misc]
    """The build hook named in pyproject.toml."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile every table and write the manual page; not for an editable install, whose tables change."""
        if version != "standard":
            return
        _unload_package()  # an earlier build in this process may have imported another checkout
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
        _unload_package()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary files."""
        del version, build_data, artifact_path
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()


def _unload_package() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cudnn_resolve"]:
        del sys.modules[name]
