"""Names of a wheel's members out of its directory."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest

from cudnn_resolve.index.remote_wheel import RangeFile, WheelError, read_contents
from tests.small_wheels import wheel_bytes


def ranges(raw: bytes, tail: int = 16384) -> Any:
    return RangeFile(len(raw), raw[-tail:], lambda start, size: raw[start : start + size])


@pytest.mark.parametrize("count", [1, 600])
@pytest.mark.parametrize("tail", [512, 16384])
def test_every_name_as_the_zip_module_sees_it(count: int, tail: int) -> None:
    raw = wheel_bytes("demo", "1.0", {f"demo/m{number}.py": "x" for number in range(count)}, raw={"../evil": b"x"}, scripts=("demo-tool",))

    found = read_contents(ranges(raw, tail))
    infos = zipfile.ZipFile(io.BytesIO(raw)).infolist()

    assert list(found.names) == [info.filename for info in infos]
    assert "../evil" in found.names
    assert found.unpacked == sum(info.file_size for info in infos)
    assert found.programs == "[console_scripts]\ndemo-tool = demo:main\n"


def test_a_name_goes_on_behind_a_nul_byte_and_a_link_is_known() -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        link = zipfile.ZipInfo("demo/link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc")
        archive.writestr("demo/a.py#/../../x", "")

    found = read_contents(ranges(raw.getvalue().replace(b"a.py#", b"a.py\0")))

    assert found.names == ("demo/link", "demo/a.py\0/../../x")
    assert found.links == ("demo/link",)


@pytest.mark.parametrize(
    "spoil", [lambda raw: raw[:-30], lambda raw: b"x" * len(raw), lambda raw: raw.replace(b"PK\x01\x02", b"PK\x01\x09")]
)
def test_a_damaged_directory(spoil: object) -> None:
    raw = spoil(wheel_bytes("demo", "1.0", {"demo.py": "x"}))  # type: ignore[operator]

    with pytest.raises(WheelError):
        read_contents(ranges(raw))
