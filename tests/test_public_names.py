"""What a module says that it offers is what it offers."""

from __future__ import annotations

import ast
import importlib
import re
import types
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import cudnn_resolve

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "cudnn_resolve").rglob("*.py")
    if not path.name.startswith(("payload", "__main__"))
    if "ansible_collections" not in path.parts or find_spec("ansible") is not None  # plugins of an extra that not every checkout has
)


def promised(module: types.ModuleType) -> list[str]:
    """The names in the module's `__all__`."""
    return list(getattr(module, "__all__", ()))


@pytest.mark.parametrize("name", MODULES)
def test_module_keeps_what_it_promises(name: str) -> None:
    module = importlib.import_module(name)

    assert [word for word in promised(module) if not hasattr(module, word)] == []
    assert sorted(set(promised(module))) == sorted(promised(module))


def test_package_offers_its_public_names_and_no_more() -> None:
    words = {word for word, value in vars(cudnn_resolve).items() if not word.startswith("_") and not isinstance(value, types.ModuleType)}
    tree = ast.parse(Path(cudnn_resolve.__file__).read_text("utf-8"))
    future = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__" for alias in node.names}

    assert words - future - set(promised(cudnn_resolve)) == set()


def test_installed_metadata_has_the_version_of_the_package() -> None:
    assert version("cudnn-resolve") == cudnn_resolve.__version__


def test_changelog_knows_the_version() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)

    assert headings[0] == "Unreleased" or headings[0] == cudnn_resolve.__version__
