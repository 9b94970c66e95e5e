"""Every value that a user meets can be written and read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import fields, replace
from packaging.specifiers import SpecifierSet

from cudnn_resolve.diagnosis.model import Diagnosis
from cudnn_resolve.execution.model import Execution
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.operations.options import (
    ApplyRequest,
    DoctorRequest,
    LockRequest,
    MatrixRequest,
    PlanRequest,
    ValidateRequest,
    WhyRequest,
)
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.report.document import ApplyDocument, HistoryDocument, LockDocument, PlanDocument, WhyDocument
from cudnn_resolve.requirement.model import Request
from cudnn_resolve.requirement.source import Direct, File, Metadata, Offer
from cudnn_resolve.validation.model import Validation
from tests.codec import read, write
from tests.property.test_facts import FACTS

REQUESTS = (PlanRequest, WhyRequest, LockRequest, ApplyRequest, DoctorRequest, ValidateRequest, MatrixRequest)
RESULTS = (Plan, Diagnosis, Validation, Execution)
DOCUMENTS = (PlanDocument, LockDocument, ApplyDocument, HistoryDocument, WhyDocument)
FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.explicit, Phase.generate])
"""Every field gets a value in each example; the shapes of most are the same."""
TEXTS = st.text(max_size=8)
DEEPEST = 4
"""Levels at which structs that hold themselves end."""
DIRECTS = st.builds(
    Direct,
    name=TEXTS,
    url=TEXTS,
    offer=st.builds(
        Offer, TEXTS, st.lists(st.builds(File, TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=1)), max_size=1).map(tuple)
    ),
    metadata=st.builds(Metadata, st.just(("six",)), st.none() | TEXTS, st.just(()), st.none() | TEXTS),
    folder=st.none() | TEXTS,
    editable=st.booleans(),
)
SPECIAL: Mapping[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(0, 1 << 40),
    float: st.floats(0, 1e6),
    bool: st.booleans(),
    type(None): st.none(),
    UnsetType: st.just(UNSET),
    Any: TEXTS,
    SpecifierSet: st.sampled_from(["", ">=1", "==2.*"]).map(SpecifierSet),
    Facts: FACTS,
    Direct: DIRECTS,
}


def values(kind: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values of a type; structs that hold themselves end soon."""
    if kind in SPECIAL:
        return SPECIAL[kind]
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return values(inside[0], depth)
    if origin is Literal:
        return st.sampled_from(inside)
    if origin is tuple and inside[-1] is not ...:
        return st.tuples(*(values(one, depth + 1) for one in inside))
    if origin is tuple:
        return st.lists(values(inside[0], depth + 1), max_size=2).map(tuple) if depth < DEEPEST else st.just(())
    if origin is frozenset:
        return st.frozensets(values(inside[0], depth), max_size=2)
    if (inside and origin in (Mapping, dict)) or str(origin).endswith("Mapping'>"):
        return st.dictionaries(values(inside[0], depth), values(inside[1], depth + 1), max_size=1)
    if origin is Union or inside:
        return st.one_of([values(one, depth) for one in inside])
    if isinstance(kind, type) and issubclass(kind, int):
        return st.sampled_from([*kind])  # type: ignore[misc]
    assert isinstance(kind, type), kind
    assert issubclass(kind, Struct), kind
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{one.name: values(hints[one.name], depth + 1) for one in fields(kind)})


@pytest.mark.parametrize("kind", [*REQUESTS, *RESULTS, *DOCUMENTS], ids=lambda kind: kind.__name__)
@given(data=st.data())
@FEW
def test_a_value_is_read_back(kind: Any, data: st.DataObject) -> None:
    value = data.draw(values(kind))

    assert read(write(value), kind) == value


@given(data=st.data())
@FEW
def test_a_request_is_read_back_with_what_comes_from_one_place(data: st.DataObject) -> None:
    value = data.draw(values(Request))

    again = read(write(value), Request)

    assert replace(again, direct={}) == replace(value, direct={})
    assert {name: (one.place, one.metadata) for name, one in again.direct.items()} == {
        name: (one.place, one.metadata) for name, one in value.direct.items()
    }
    assert {name: one.offer.files for name, one in again.direct.items()} == {name: one.offer.files for name, one in value.direct.items()}
