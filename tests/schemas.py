"""Objects that `--format json` prints, held against the JSON Schemas of docs/schema/."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import schema


@cache
def validator(name: str) -> Any:
    """What holds an object against the schema of a name."""
    jsonschema = pytest.importorskip("jsonschema", reason="the extra `dev` brings jsonschema")
    from referencing import Registry, Resource

    schemas = {one: schema.schema_of(one) for one in schema.DOCUMENTS}
    registry = Registry().with_resources((f"{one}.json", Resource.from_contents(found)) for one, found in schemas.items())
    return jsonschema.Draft202012Validator(schemas[name], registry=registry)


def fit(value: Mapping[str, Any], name: str | None = None) -> None:
    """Hold an object against the schema of its name."""
    plain = json.loads(json.dumps(value))
    faults = validator(name or value["schema"].split("/")[1]).iter_errors(plain)
    assert [f"{error.json_path}: {error.message[:200]}" for error in faults] == []
