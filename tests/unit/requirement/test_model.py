"""A request is a plain value: it can be written down and read back."""

from __future__ import annotations

from typing import Any

import msgspec
from packaging.specifiers import SpecifierSet

from cudnn_resolve.requirement.model import Request
from cudnn_resolve.requirement.source import Direct, File, Metadata, Offer
from tests.worlds.load import request, world


def written(value: Any) -> Any:
    return {"version": value.version, "files": value.files} if isinstance(value, Offer) else str(value)


def read(kind: type, value: Any) -> Any:
    if kind is Offer:
        return Offer(value["version"], tuple(msgspec.convert(one, File) for one in value["files"]))
    return SpecifierSet(value)


def test_a_request_can_be_written_and_read_back() -> None:
    file = File("around-1.0-py3-none-any.whl", "file:///w/around-1.0-py3-none-any.whl", {"sha256": "00"})
    around = Direct(name="around", url=file.url, offer=Offer("1.0", (file,)), metadata=Metadata(("numpy",), None, ()))
    asked = request(
        world(), "north>=2,<4", "south", extras=["numpy<2", "around"], cuda="<13", direct={"around": around}, reinstall=frozenset({"numpy"})
    )

    text = msgspec.json.encode(asked, enc_hook=written)
    again = msgspec.json.decode(text, type=Request, dec_hook=read)

    assert msgspec.json.encode(again, enc_hook=written) == text
    assert (again.targets, again.requirements, again.cuda, again.reinstall) == (
        asked.targets,
        asked.requirements,
        asked.cuda,
        asked.reinstall,
    )
    assert again.direct["around"].offer.files == (file,)
