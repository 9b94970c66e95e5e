"""What is said while work on the hosts of an inventory goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from cudnn_resolve.facts.model import Facts
from cudnn_resolve.fleet.model import FleetClass
from cudnn_resolve.host.playbook import HostAnswer, Play
from cudnn_resolve.operations import fleet_machines
from cudnn_resolve.operations.options import FleetRequest
from tests.listening import Heard


@pytest.mark.parametrize("work", [fleet_machines.undo, fleet_machines.validate])
def test_every_host_is_known_to_wait_before_the_first_answers(
    work: Callable[[Sequence[FleetClass], FleetRequest, Heard], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_play(_play: Play, _inventory: object, _limit: object, hear: Callable[[HostAnswer], None]) -> None:
        hear(HostAnswer(host="n2", state="ok", result={"changed": True}))

    monkeypatch.setattr(fleet_machines, "run_play", run_play)
    heard = Heard()
    classes = [FleetClass(name="t4", hosts=("n1", "n2"), about={}, facts=Facts())]

    work(classes, FleetRequest(verb="undo", env="/opt/dl", inventory=("hosts",)), heard)

    assert heard.states == [("n1", "waits", "t4"), ("n2", "waits", "t4"), ("n2", "changed", "t4")]
