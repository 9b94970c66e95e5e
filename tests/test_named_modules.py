"""docs/architecture.md names modules that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "cudnn_resolve"


def missing_modules(text: str) -> list[str]:
    """Modules in backquotes that do not exist: `room/module`, `module.py`, and in the paragraph about a log plain words."""
    package = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*")]
    paths = {path.with_suffix("").as_posix() for path in package} | {path.stem for path in ROOT.glob("*.py")}
    names = {path.rpartition("/")[2] for path in paths}
    missing = []
    for paragraph in text.split("\n\n"):
        for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py)?)`", paragraph):
            path = name.removesuffix(".py")
            is_module = name.endswith(".py") or ("/" in name and name.partition("/")[0] in paths)
            known = paths if "/" in name else names
            if (is_module or paragraph.startswith("A log takes another path")) and path not in known and not (ROOT / name).exists():
                missing.append(name)
    return missing


def test_the_architecture_names_modules_that_there_are() -> None:
    assert missing_modules((ROOT / "docs/architecture.md").read_text("utf-8")) == []


@pytest.mark.parametrize("text", ["`resolution/attempt.py`", "`search_of.py`", "`locking/foreign`", "A log takes another path: `writer`"])
def test_a_module_that_is_gone_is_seen(text: str) -> None:
    assert len(missing_modules(f"The search (`resolution/search.py`) is `ours`.\n\n{text}")) == 1
