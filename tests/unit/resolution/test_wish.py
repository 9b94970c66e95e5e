"""Pins of packages that are decided after the libraries, on the shipped tables: only they have releases enough of one library."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cudnn_resolve.host.tables import open_book
from cudnn_resolve.requirement.model import RequirementLine
from cudnn_resolve.requirement.source import Direct, Metadata, Offer
from cudnn_resolve.resolution.model import Resolution
from cudnn_resolve.resolution.resolve import resolve
from tests.worlds.load import machine, request

BOOK = open_book()
HERE = machine(BOOK, driver={"version": "580.65.06"}, python={"version": "3.11.9"})


@pytest.mark.parametrize(
    ("target", "pin", "chosen", "left"),
    [
        ("torch==2.6.0", "nvidia-cudnn-cu12==9.5.1.17", "9.5.1.17", {("nvidia-cudnn-cu12", "==9.1.0.70")}),
        ("tensorflow[and-cuda]==2.19.0", "nvidia-cudnn-cu12==9.5.1.17", "9.5.1.17", {("nvidia-cudnn-cu12", "==9.3.0.75")}),
        ("jax[cuda12]==0.6.0", "nvidia-cublas-cu12==12.6.4.1", "12.6.4.1", set()),
        ("jax[cuda12]==0.6.0", "nvidia-cudnn-cu12==9.5.1.17", None, {("nvidia-cudnn-cu12", "==9.5.1.17")}),  # JAX needs 9.8
    ],
)
def test_they_are_kept_where_the_library_can_be_that_release(target: str, pin: str, chosen: str | None, left: set[tuple[str, str]]) -> None:
    around = Direct(name="around", url="file:///around", offer=Offer(version="1.0", files=()), metadata=Metadata((pin,), None, ()))
    asked = replace(request(BOOK, target), direct={"around": around}, requirements=(RequirementLine(text="around", origin="r.txt:1"),))
    found = resolve(BOOK, HERE, asked)

    assert isinstance(found, Resolution)
    pinned = next(one.version for one in found.pip if one.name == pin.partition("==")[0])
    assert (pinned == chosen) is (chosen is not None)
    assert {(one.package, one.declared) for one in found.overrides} == left
