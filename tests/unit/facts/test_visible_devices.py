from __future__ import annotations

import pytest

from cudnn_resolve.facts.driver_output import visible_devices

UUIDS = ("GPU-aaaa1111-0000-0000-0000-000000000000", "GPU-aaaa2222-0000-0000-0000-000000000000", "GPU-bbbb3333-0000-0000-0000-000000000000")
INSTANCES = ((), ("MIG-11112222-0000-0000-0000-000000000000",), ())


@pytest.mark.parametrize(
    ("value", "visible"),
    [
        ("", ""),
        ("-1", ""),
        ("0", "0"),
        ("1,2", "12"),
        (" 2 , 0 ", "02"),
        ("0,-1,2", "0"),
        ("0,7,2", "0"),
        ("7", ""),
        ("0,none,2", "0"),
        ("none", ""),
        ("NoDevFiles", ""),
        ("0,0", ""),
        ("00,0", ""),
        ("GPU-aaaa1111", "0"),
        ("gpu-AAAA1111", "0"),
        ("GPU-aaaa", ""),
        ("GPU-bbbb,GPU-aaaa1", "02"),
        ("GPU-bbbb,GPU-bbbb", ""),
        ("GPU-cccc,GPU-bbbb", ""),
        ("MIG-11112222-0000-0000-0000-000000000000", "1"),
        ("MIG-GPU-bbbb3333-0000-0000-0000-000000000000/1/0", "2"),
        ("MIG-9", ""),
    ],
)
def test_the_list_is_read_as_cuda_reads_it(value: str, visible: str) -> None:
    seen = visible_devices(value, UUIDS, INSTANCES)

    assert "".join(str(index) for index, one in enumerate(seen) if one) == visible


def test_a_gpu_without_a_uuid_is_reached_by_its_index() -> None:
    assert visible_devices("1", (None, None)) == (False, True)
    assert visible_devices("GPU-aaaa", (None, None)) == (False, False)
