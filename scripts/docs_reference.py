"""MkDocs hook that generates parts of the documentation: options from the parsers, fields from the JSON Schemas.

`<!-- generated: commands -->` marks their place in a page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cudnn_resolve import api
from cudnn_resolve.cli.manual import parsers, shown_options
from cudnn_resolve.operations.options import PlanRequest
from cudnn_resolve.report.picture import render

SCHEMAS = Path(__file__).resolve().parent.parent / "docs" / "schema"


def commands() -> Iterator[str]:
    """Generate all commands with their options."""
    for name, parser in parsers():
        yield f"## {name}\n\n{parser.description}\n"
        yield f"```text\n{parser.format_help().splitlines()[0]}\n```\n"
        for group in parser._action_groups:  # noqa: SLF001 - not public in argparse
            shown = shown_options(group)
            if shown:
                yield f"**{group.title}**{f' {group.description}' if group.description else ''}\n"
                yield "| option | means |\n| --- | --- |"
                yield "\n".join(f"| {', '.join(f'`{form}`' for form in forms)} | {_cell(about)} |" for forms, about in shown) + "\n"
        if parser.epilog:
            yield f"```text\n{parser.epilog}\n```\n" if "\n" in parser.epilog else f"{parser.epilog}\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def fields() -> Iterator[str]:
    """Generate all JSON documents with their fields."""
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_text("utf-8"))
        yield f"## {path.stem}\n"
        heads = [_resolved(node, schema) for node in schema.get("anyOf", [schema])]
        for head in heads:
            if head.get("description"):
                yield f"{head['description']}\n"
            yield "| field | type |\n| --- | --- |"
            yield "\n".join(f"| `{name}` | {_type(node)} |" for name, node in head.get("properties", {}).items()) + "\n"


def _resolved(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = node.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = schema["$defs"].get(name, node) if name else node
    return found


def _type(node: dict[str, Any]) -> str:
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(map(_type, node["anyOf"])))
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    if "const" in node:
        return f"`{node['const']}`"
    if "$ref" in node:
        return str(node["$ref"]).rpartition("/")[2].removesuffix(".json").removesuffix("Document")
    if node.get("type") == "array":
        inner: dict[str, Any] = node.get("items") or next(iter(node.get("prefixItems", ())), {})
        return f"list of {_type(inner)}" if inner else "list"
    return str(node.get("type", "any"))


def picture() -> Iterator[str]:
    """Draw the versions that each party allows, for a pair that pip and uv call impossible."""
    request = PlanRequest(
        framework=("torch==2.6.0", "tensorflow==2.18.0"),
        driver="550.54.15",
        gpu=("T4",),
        python_version="3.11",
        offline=True,
        ranges=True,
    )
    yield render(api.plan(request).to_json()["ranges"])


_PLACES = (
    ("already loaded", "another framework, a preload"),
    ("RPATH of the caller", "the wheel: PyTorch, JAX"),
    ("LD_LIBRARY_PATH", "you, a module, the image"),
    ("RUNPATH of the caller", "the wheel: TensorFlow"),
    ("cache of ldconfig", "apt, an administrator"),
    ("/lib, /usr/lib", "the system"),
)
_HIGH = 44


def loader() -> Iterator[str]:
    """Draw the search order of the loader, which takes the first file of a name."""
    description = "The loader takes the first libcudnn.so.9 that it finds: " + ", then ".join(place for place, _ in _PLACES)
    parts = []
    for number, (place, owner) in enumerate(_PLACES):
        y = 40 + number * _HIGH
        parts.append(f'<path d="M150 {y - 12}v9m-4 -4l4 4l4 -4" fill="none" stroke="currentColor"/>')
        box = f'x="10" y="{y}" width="280" height="{_HIGH - 14}" rx="4"'
        parts.append(f'<rect {box} fill="#3b82f6" fill-opacity="0.18" stroke="#3b82f6"/>')
        parts.append(f'<text x="18" y="{y + 13}" font-weight="bold">{number + 1}. {place}</text>')
        parts.append(f'<text x="18" y="{y + 25}" font-size="10">{owner}</text>')
    end = 40 + len(_PLACES) * _HIGH
    ends = f'<text x="10" y="22">libcudnn.so.9?</text><text x="10" y="{end + 8}">not found: cannot open shared object file</text>'
    size = f'viewBox="0 0 300 {end + 16}" width="300" height="{end + 16}"'
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{description}" fill="currentColor" '
        f'font-family="system-ui,sans-serif" font-size="12">{ends}{"".join(parts)}</svg>\n'
    )


def tables() -> Iterator[str]:
    """Include the tables of the matrix with their columns."""
    yield (SCHEMAS.parent.parent / "matrices" / "README.md").read_text("utf-8")


GENERATED: dict[str, Callable[[], Iterator[str]]] = {
    "commands": commands,
    "json": fields,
    "loader": loader,
    "picture": picture,
    "tables": tables,
}


def on_page_markdown(markdown: str, **_: object) -> str:
    """Fill the generated parts of a page (called by MkDocs)."""
    for name, make in GENERATED.items():
        mark = f"<!-- generated: {name} -->"
        if mark in markdown:
            markdown = markdown.replace(mark, "\n".join(make()))
    return markdown
