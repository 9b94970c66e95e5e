"""How many children run side by side."""

from __future__ import annotations

import pytest

from cudnn_resolve.validation.children import processes_at_once, programs_on
from tests.fake_host import FakeHost
from tests.unit.validation.recordings import telling


@pytest.mark.parametrize(
    ("processors", "free_gib", "most"),
    [("ffff", 100, 4), ("f", 100, 2), ("3", 100, 2), ("1", 100, 2), ("ffffffff,ffffffff", 9, 2), ("ff", 3, 1), ("ff", 14, 3)],
)
def test_as_many_as_the_machine_has_room_for(processors: str, free_gib: int, most: int) -> None:
    status, memory = (
        f"Name:\tx\nCpus_allowed:\t{processors}\nCpus_allowed_list:\t0\n",
        f"MemTotal: 1 kB\nMemAvailable:   {free_gib << 20} kB\n",
    )

    assert processes_at_once(FakeHost(files={"/proc/self/status": status, "/proc/meminfo": memory})) == most


def test_two_where_the_machine_does_not_say() -> None:
    assert processes_at_once(FakeHost()) == 2


@pytest.mark.parametrize(("free", "programs"), [(141_000, 34), (15_000, 3), (200, 1), (None, 1), ("x", 1), (0, 1)])
def test_as_many_as_a_card_has_room_for(free: object, programs: int) -> None:
    assert programs_on(telling(("card", {"memory": True, "free_mib": free, "mode": 0})), {}) == programs


@pytest.mark.parametrize(
    ("mode", "environ", "programs"),
    [
        (3, {}, 1),
        (1, {}, 1),
        (0, {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, 1),
        (0, {"TF_FORCE_GPU_ALLOW_GROWTH": "False"}, 1),
        (0, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}, 10),
    ],
)
def test_one_on_a_card_for_one_and_beside_a_program_that_takes_all(mode: int, environ: dict[str, str], programs: int) -> None:
    assert programs_on(telling(("card", {"memory": True, "free_mib": 40_960, "mode": mode})), environ) == programs
