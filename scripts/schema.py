"""Write the JSON Schemas of the documents that users and editors read and write to docs/schema/.

scripts/schema.py            write them
scripts/schema.py --check    exit with 1 if one is outdated
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from cudnn_resolve.facts.codec import FactsFile
from cudnn_resolve.operations import bundle, clean, matrix
from cudnn_resolve.operations.settings import Settings
from cudnn_resolve.report import document, fleet

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schema"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: dict[str, Any] = {
    "detect": FactsFile,
    "plan": document.PlanDocument,
    "lock": document.LockDocument | document.LockCheckDocument,
    "apply": document.ApplyDocument,
    "apply-history": document.HistoryDocument,
    "validate": document.ValidateDocument,
    "doctor": document.DoctorDocument,
    "check": document.VerdictsDocument,
    "bundle": bundle.BundleDocument,
    "clean": clean.CleanDocument,
    "fleet": fleet.FleetDocument,
    "why": document.WhyDocument,
    "matrix": matrix.MatrixListResult | matrix.MatrixFrameworkResult | matrix.MatrixStackResult | matrix.MatrixCheckDocument,
    "error": document.ErrorDocument,
    "settings": Settings,
}
"""Types described by each schema."""


def schema_of(name: str) -> dict[str, Any]:
    """Return the schema of that name."""
    kind = DOCUMENTS[name]
    kinds = kind.__args__ if hasattr(kind, "__args__") else (kind,)
    found, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    head: dict[str, Any] = found[0] if len(kinds) == 1 else {"anyOf": list(found)}
    return {"$schema": DRAFT, "$id": f"{name}.json", "title": f"cudnn-resolve {name}", **head, "$defs": components}


def text_of(name: str) -> str:
    """Return the content of the file of a schema."""
    return json.dumps(_tidy(schema_of(name)), indent=1, ensure_ascii=True, sort_keys=False) + "\n"


def _tidy(value: Any) -> Any:
    """Return a schema with the ends of its patterns as JSON Schema writes them."""
    if isinstance(value, dict):
        out = {key: _tidy(node) for key, node in value.items()}
        if isinstance(out.get("pattern"), str):
            out["pattern"] = out["pattern"].replace("\\Z", "$").replace("$(?!\\n)", "$")
        return out
    return [_tidy(node) for node in value] if isinstance(value, list) else value


def main(argv: list[str] | None = None) -> int:
    """Write or check all schemas."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(argv)
    stale = [name for name in DOCUMENTS if not _is_current(name)]
    if args.check:
        for name in stale:
            print(f"docs/schema/{name}.json is outdated: run scripts/schema.py", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (FOLDER / f"{name}.json").write_text(text_of(name), "utf-8")
        print(f"wrote docs/schema/{name}.json")
    return 0


def _is_current(name: str) -> bool:
    path = FOLDER / f"{name}.json"
    return path.exists() and path.read_text("utf-8") == text_of(name)


if __name__ == "__main__":
    sys.exit(main())
